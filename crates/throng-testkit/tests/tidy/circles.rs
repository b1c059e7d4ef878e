//! Circles between modules: files that can only be read and tested together.
//!
//! A file uses another one if it names something of it by a path: `super::`, `crate::` or `self::`. That a file names what
//! lies above it, and that a folder's own file names what lies below, is not counted: they are one thing. Nor are tests.

use std::collections::{BTreeMap, BTreeSet};

use super::{files, read, root};

/// The crates without circles.
const WITHOUT_CIRCLES: &[&str] = &["throng-protostate", "throng-gateway-engine", "throng-gateway"];

/// Circles that stay: a value holds maps, and a map holds values.
const RECURSIVE_TYPES: &[(&str, &[&str])] = &[("throng-protostate", &["map", "tree"])];

type Module = Vec<String>;
type Uses = BTreeMap<Module, BTreeSet<Module>>;

#[test]
fn the_modules_of_the_gateway_have_no_circles() {
    let mut found = Vec::new();
    for name in WITHOUT_CIRCLES {
        let known: BTreeSet<Vec<String>> = RECURSIVE_TYPES
            .iter()
            .filter(|(crate_name, _)| crate_name == name)
            .map(|(_, modules)| modules.iter().map(|module| module.to_string()).collect())
            .collect();
        let circles = circles(&uses_of(name))
            .into_iter()
            .map(|circle| circle.iter().map(|module| module.join("/")).collect::<Vec<String>>());
        found.extend(circles.filter(|circle| !known.contains(circle)).map(|circle| format!("{name}: {circle:?}")));
    }
    assert!(found.is_empty(), "files that use each other; move what both need into a file below both:\n{found:#?}");
}

#[test]
fn a_circle_of_three_is_found_and_what_hangs_on_it_is_not_part_of_it() {
    let text = [
        ("a", "use super::b::Thing;\n//! super::d\n"),
        ("b", "fn f() { super::c::g() }\n#[cfg(test)]\nmod tests {\n use super::super::d::X;\n}\n"),
        ("c", "use super::{d::Y, a};\n"),
        ("d", "use crate::Everything;\n"),
    ];
    let modules = text.map(|(name, text)| (vec![name.to_owned()], text.to_owned()));
    let found = circles(&uses(&modules));
    assert_eq!(found, [vec![vec!["a".to_owned()], vec!["b".to_owned()], vec!["c".to_owned()]]]);
}

/// The files of a crate, each with those that it uses.
fn uses_of(name: &str) -> Uses {
    let source = root().join("crates").join(name).join("src");
    let modules = files(&source, &[".rs"]).into_iter().map(|file| {
        let inside = file.strip_prefix(&source).expect("it lies there").with_extension("");
        let mut module: Module = inside.iter().map(|part| part.to_string_lossy().into_owned()).collect();
        if module.last().is_some_and(|last| last == "mod") || module == ["lib"] {
            module.pop();
        }
        (module, read(&file))
    });
    uses(&modules.collect::<Vec<_>>())
}

fn uses(modules: &[(Module, String)]) -> Uses {
    let names: BTreeSet<&Module> = modules.iter().map(|(module, _)| module).collect();
    let used = |module: &Module, text: &str| {
        let code: String = text
            .split("#[cfg(test)]\nmod tests")
            .next()
            .unwrap_or_default()
            .lines()
            .filter(|line| !line.trim_start().starts_with("//"))
            .map(|line| format!("{line}\n"))
            .collect();
        let targets = paths(&code).into_iter().map(|path| target(module, &path, &names));
        targets.filter(|target| !module.starts_with(target) && !target.starts_with(module)).collect()
    };
    modules.iter().map(|(module, text)| (module.clone(), used(module, text))).collect()
}

/// The paths in a text that begin with `crate`, `super` or `self`. Of a group in braces, each member is a path.
fn paths(code: &str) -> Vec<Vec<String>> {
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '_';
    let mut paths = Vec::new();
    for begin in ["crate::", "super::", "self::"] {
        for (at, _) in code.match_indices(begin) {
            // Not the middle of another path, which was found from its beginning.
            if code[..at].ends_with(|letter| is_name(letter) || letter == ':') {
                continue;
            }
            let rest = &code[at..];
            let end = rest.find(|letter| !is_name(letter) && letter != ':').unwrap_or(rest.len());
            let path: Vec<String> =
                rest[..end].split("::").map(str::to_owned).filter(|part| !part.is_empty()).collect();
            match rest[end..].strip_prefix('{').and_then(|group| group.split('}').next()) {
                Some(group) => paths.extend(group.split(',').map(|member| {
                    let first = member.trim().split("::").next().unwrap_or_default();
                    path.iter().cloned().chain([first.to_owned()]).collect()
                })),
                None => paths.push(path),
            }
        }
    }
    paths
}

/// The file that a path of a module leads to: the deepest one on its way.
fn target(module: &Module, path: &[String], names: &BTreeSet<&Module>) -> Module {
    let mut at = module.clone();
    for part in path {
        match part.as_str() {
            "crate" => at.clear(),
            "self" => {}
            "super" => drop(at.pop()),
            name => {
                let below: Module = at.iter().cloned().chain([name.to_owned()]).collect();
                if !names.contains(&below) {
                    break;
                }
                at = below;
            }
        }
    }
    at
}

/// Groups of files each of which leads to all others of its group, sorted.
fn circles(uses: &Uses) -> Vec<Vec<Module>> {
    let reached: BTreeMap<&Module, BTreeSet<&Module>> =
        uses.keys().map(|module| (module, reach(uses, module))).collect();
    let mut found = BTreeSet::new();
    for (module, all) in &reached {
        let circle: Vec<Module> = all
            .iter()
            .filter(|other| reached.get(*other).is_some_and(|back| back.contains(module)))
            .map(|&other| other.clone())
            .collect();
        if circle.len() > 1 {
            found.insert(circle);
        }
    }
    found.into_iter().collect()
}

/// All that a file uses, directly or not.
fn reach<'u>(uses: &'u Uses, from: &Module) -> BTreeSet<&'u Module> {
    let mut seen = BTreeSet::new();
    let mut open: Vec<&Module> = uses.get(from).into_iter().flatten().collect();
    while let Some(module) = open.pop() {
        if seen.insert(module) {
            open.extend(uses.get(module).into_iter().flatten());
        }
    }
    seen
}
