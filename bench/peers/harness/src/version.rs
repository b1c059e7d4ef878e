/// The version of a dependency of a peer (`env!("CARGO_PKG_NAME")`), as the workspace's lock file has it.
///
/// # Panics
/// If the lock file does not name it.
pub fn locked_version(peer: &str, dependency: &str) -> String {
    let lock = include_str!("../../Cargo.lock");
    let block = lock.split("[[package]]").find(|block| block.contains(&format!("\nname = \"{peer}\"\n"))).unwrap_or("");
    // Where the lock file knows several versions of a package, its dependants name theirs.
    let named = format!(" \"{dependency} ");
    let single = format!("name = \"{dependency}\"\nversion = \"");
    let at = match block.find(&named) {
        Some(at) => &block[at + named.len()..],
        None => lock.find(&single).map(|at| &lock[at + single.len()..]).unwrap_or_else(|| panic!("no {dependency}")),
    };
    at.chars().take_while(|c| !matches!(c, '"' | ' ')).collect()
}
