//! The revision of a tree, as `git` tells it: for the build script, and for its tests.

use std::path::{Path, PathBuf};
use std::process::Command;

/// Short name of the commit that is checked out in `root`, with `-dirty` if one of `sources` differs from it. `None`
/// without git, or if `root` is not the top of a tree of its own: a copy inside another project has not its revision.
pub(crate) fn of(root: &Path, sources: &[&str]) -> Option<String> {
    let top = git(root, &["rev-parse", "--show-toplevel"])?;
    if Path::new(&top).canonicalize().ok()? != root.canonicalize().ok()? {
        return None;
    }
    let revision = git(root, &["rev-parse", "--short=12", "HEAD"])?;
    let present = sources.iter().filter(|source| root.join(source).exists());
    let status: Vec<&str> =
        ["status", "--porcelain", "--untracked-files=no", "--"].into_iter().chain(present.copied()).collect();
    // A tree whose state is not known is not called clean.
    let is_clean = git(root, &status).is_some_and(|changes| changes.is_empty());
    Some(if is_clean { revision } else { format!("{revision}-dirty") })
}

/// The files that change when another commit is checked out in `root` or made there. A working tree beside the repository
/// keeps its `HEAD` elsewhere than its branch, so git is asked for each.
pub(crate) fn marks(root: &Path) -> Vec<PathBuf> {
    let path = |name: &str| git(root, &["rev-parse", "--git-path", name]).map(|path| root.join(path));
    let branch = git(root, &["symbolic-ref", "--quiet", "HEAD"]);
    let mut marks: Vec<PathBuf> = path("HEAD").into_iter().collect();
    match branch.and_then(|branch| path(&branch)) {
        Some(branch) if branch.exists() => marks.push(branch),
        // The branch is packed: its own file appears among the others with the next commit.
        Some(_) => marks.extend(["packed-refs", "refs/heads"].into_iter().filter_map(path)),
        None => {}
    }
    // A path that is not there would have the script run at every build.
    marks.retain(|mark| mark.exists());
    marks
}

/// The output of git, trimmed; `None` if git fails or is missing.
fn git(root: &Path, arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").current_dir(root).args(arguments).output().ok()?;
    output.status.success().then(|| String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
