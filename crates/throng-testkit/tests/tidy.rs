//! The rules of the house that a compiler does not check.

#[path = "tidy/circles.rs"]
mod circles;

use std::fs;
use std::path::{Path, PathBuf};

/// The crates by floor, lowest first. A crate depends on crates of the rows above its own and on no others.
/// ARCHITECTURE.md has the same table with the reasons.
const FLOORS: [(&str, &[&str]); 16] = [
    ("ground", &["throng-wire", "throng-meter", "throng-judge", "throng-schema-derive"]),
    (
        "core",
        &["throng-schema", "throng-link", "throng-interest", "throng-rewind", "throng-sight", "throng-protostate"],
    ),
    ("core", &["throng-replica", "throng-agent"]),
    ("edge", &["throng-file", "throng-http"]),
    (
        "edge",
        &[
            "throng-net",
            "throng-channeld",
            "throng-telemetry",
            "throng-map",
            "throng-doctor",
            "throng-machine",
            "throng-bus",
            "throng-fleet",
        ],
    ),
    ("edge", &["throng", "throng-report", "throng-gateway-engine", "throng-bus-nats", "throng-directory"]),
    ("edge", &["throng-edge", "throng-live", "throng-store"]),
    ("top", &["throng-capacity", "throng-gateway", "throng-match", "throng-models", "throng-scale"]),
    ("top", &["throng-gateway-lab"]),
    ("top", &["throng-crowd", "throng-tactical"]),
    ("top", &["throng-summary", "throng-history"]),
    ("top", &["throng-lab"]),
    ("top", &["throng-range"]),
    ("top", &["throng-cli"]),
    ("dev", &["throng-counting", "throng-seeds"]),
    ("dev", &["throng-testkit"]),
];

/// Things that nothing at or below core may know: sockets, clocks, the process's surroundings, threads, output,
/// globals.
const WORDS_ABOVE_CORE: [&str; 8] =
    ["UdpSocket", "TcpStream", "Instant", "SystemTime", "rayon", "getrandom", "thread_local", "socket2"];
const PATHS_ABOVE_CORE: [&str; 7] =
    ["std::env", "std::fs", "std::thread", "std::process", "println!", "eprintln!", "static mut"];

/// Crates above core for which the same holds.
const SEALED: [&str; 1] = ["throng-gateway-engine"];

const LINES_MAX: usize = 1_000;

/// The files that may hold unsafe code, each block of it with the reason why it is sound: an allocator that counts has to
/// be an allocator, and is asked to give back what it keeps; a file becomes memory; a C library is called. All other
/// crates forbid it, and so does the workspace.
const UNSAFE_FILES: [(&str, &[&str]); 3] =
    [("throng-cli", &["allocation.rs"]), ("throng-counting", &["lib.rs"]), ("throng-map", &["embree.rs", "file.rs"])];

/// Written by others and kept as they came.
const VENDORED: &str = "assets/uplot";

/// Kinds of examples in the documentation that are compiled.
const DOCTESTS: [&str; 5] = ["", "rust", "no_run", "should_panic", "compile_fail"];

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().expect("the repository is there")
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// All files below `folder` that end in one of `endings`, without what is built, generated or vendored.
fn files(folder: &Path, endings: &[&str]) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_path_buf()];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
            let path = entry.path();
            let name = entry.file_name().to_string_lossy().into_owned();
            let skipped =
                ["target", "runs", ".git", "corpus", "artifacts", "node_modules", "results"].contains(&name.as_str());
            if path.is_dir() {
                if !skipped && !path.ends_with(VENDORED) {
                    folders.push(path);
                }
            } else if endings.iter().any(|ending| name.ends_with(ending)) {
                found.push(path);
            }
        }
    }
    assert!(!found.is_empty(), "no {endings:?} in {}", folder.display());
    found.sort();
    found
}

fn crates() -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(root().join("crates"))
        .expect("there are crates")
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    names.sort();
    names
}

/// The names in the sections of a manifest that `wanted` accepts, as `[dependencies]`.
fn dependencies(name: &str, wanted: impl Fn(&str) -> bool) -> Vec<String> {
    let manifest = read(&root().join("crates").join(name).join("Cargo.toml"));
    let mut section = "";
    let mut names = Vec::new();
    for line in manifest.lines().map(str::trim) {
        if line.starts_with('[') {
            section = line;
        } else if wanted(section) && !line.is_empty() && !line.starts_with('#') {
            let end = line.find(['.', ' ', '=']).unwrap_or(line.len());
            names.push(line[..end].to_owned());
        }
    }
    names
}

fn floor_of(name: &str) -> usize {
    FLOORS
        .iter()
        .position(|(_, crates)| crates.contains(&name))
        .unwrap_or_else(|| panic!("{name} has no floor: add it to the table of this test and of ARCHITECTURE.md"))
}

fn fail_if_any(faults: Vec<String>) {
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
}

#[test]
fn crates_depend_on_lower_floors_only() {
    let mut faults = Vec::new();
    for name in crates() {
        for dependency in dependencies(&name, |section| section == "[dependencies]") {
            let ours = dependency.starts_with("throng");
            if ours && floor_of(&dependency) >= floor_of(&name) {
                faults.push(format!("{name} depends on {dependency}, which is not below it"));
            }
        }
    }
    fail_if_any(faults);
}

#[test]
fn the_architecture_page_has_the_same_floors() {
    let page = read(&root().join("ARCHITECTURE.md"));
    for (floor, crates) in FLOORS {
        for name in crates {
            let row = page.lines().find(|line| line.contains(&format!("| `{name}` |")));
            let row = row.unwrap_or_else(|| panic!("ARCHITECTURE.md has no row for {name}"));
            assert!(row.starts_with(&format!("| {floor} |")), "{name} stands on another floor there: {row}");
        }
    }
}

#[test]
fn nothing_at_or_below_core_knows_sockets_clocks_or_threads() {
    let mut faults = Vec::new();
    let low = FLOORS.iter().filter(|(floor, _)| ["ground", "core"].contains(floor)).flat_map(|(_, crates)| *crates);
    for name in low.chain(&SEALED) {
        for file in files(&root().join("crates").join(name).join("src"), &[".rs"]) {
            for (number, line) in read(&file).lines().enumerate() {
                let code = line.trim();
                if code.starts_with("//") {
                    continue;
                }
                let mut words = code.split(|c: char| !c.is_alphanumeric() && c != '_');
                if words.any(|word| WORDS_ABOVE_CORE.contains(&word))
                    || PATHS_ABOVE_CORE.iter().any(|path| code.contains(path))
                {
                    faults.push(format!("{}:{}: {code}", file.display(), number + 1));
                }
            }
        }
    }
    fail_if_any(faults);
}

#[test]
fn every_crate_forbids_unsafe_code() {
    assert!(read(&root().join("Cargo.toml")).contains("unsafe_code = \"deny\""));
    for name in crates() {
        let source = root().join("crates").join(&name).join("src");
        if let Some((_, exceptions)) = UNSAFE_FILES.iter().find(|(exception, _)| *exception == name) {
            for file in *exceptions {
                assert!(read(&source.join(file)).contains("// SAFETY:"), "{name}/{file} does not say why it is sound");
            }
            let allowing = files(&source, &[".rs"]).into_iter().filter(|path| read(path).contains("allow(unsafe_code"));
            let exceptions: Vec<PathBuf> = exceptions.iter().map(|file| source.join(file)).collect();
            assert!(allowing.eq(exceptions.clone()), "{name} allows unsafe code outside of {exceptions:?}");
            continue;
        }
        let roots: Vec<PathBuf> =
            ["lib.rs", "main.rs"].map(|file| source.join(file)).into_iter().filter(|file| file.exists()).collect();
        assert!(!roots.is_empty(), "{name} has no source");
        for file in roots {
            assert!(read(&file).contains("#![forbid(unsafe_code)]"), "{} allows unsafe code", file.display());
        }
    }
}

#[test]
fn files_are_short_and_finished() {
    // Spelled apart, so that this file does not find itself.
    let marks = [concat!("TO", "DO"), concat!("FIX", "ME"), concat!("XX", "X")];
    let mut faults = Vec::new();
    for file in files(&root(), &[".rs", ".md", ".toml", ".js", ".css", ".jinja", "run"]) {
        let text = read(&file);
        if text.lines().count() > LINES_MAX {
            faults.push(format!("{} has more than {LINES_MAX} lines", file.display()));
        }
        for (number, line) in text.lines().enumerate() {
            if marks.iter().any(|mark| line.contains(mark)) {
                faults.push(format!("{}:{}: {}", file.display(), number + 1, line.trim()));
            }
        }
    }
    fail_if_any(faults);
}

#[test]
fn the_code_of_pages_in_steps_is_their_example() {
    let pages = [
        ("docs/getting-started.md", "crates/throng/examples/getting_started.rs"),
        ("docs/match.md", "crates/throng-match/examples/hill.rs"),
    ];
    for (page, example) in pages {
        let text = read(&root().join(page));
        let blocks: Vec<&str> =
            text.split("```rust\n").skip(1).map(|rest| rest.split("```").next().unwrap_or_default()).collect();
        assert!(blocks.len() >= 5, "{page} has only {} blocks of code", blocks.len());
        let code = read(&root().join(example));
        let code = code.split_once("\n\n").expect("a head, then code").1.replace("pub(crate) fn main", "fn main");
        assert_eq!(blocks.join("\n"), code, "{page} is not {example}");
    }
}

#[test]
fn the_quick_start_of_the_readme_is_the_example() {
    let readme = read(&root().join("README.md"));
    let example = read(&root().join("crates/throng/examples/quick_start.rs"));
    let code = example.split_once("\n\n").expect("a head, then code").1.replace("pub(crate) fn main", "fn main");
    assert!(code.lines().count() <= 60, "the quick start has more than 60 lines");
    assert!(
        readme.contains(&format!("```rust\n{code}```\n")),
        "the README's quick start is not what is in crates/throng/examples/quick_start.rs"
    );
}

#[test]
fn every_direct_dependency_is_explained() {
    let page = read(&root().join("docs/dependencies.md"));
    let explained: Vec<&str> =
        page.lines().filter_map(|line| line.strip_prefix("| `")?.split_once('`')).map(|(name, _)| name).collect();
    let used: Vec<(String, String)> = crates()
        .into_iter()
        .flat_map(|name| {
            let names = dependencies(&name, |section| section.ends_with("dependencies]"));
            names.into_iter().map(move |dependency| (dependency, name.clone()))
        })
        .filter(|(dependency, _)| !dependency.starts_with("throng"))
        .collect();
    assert!(used.len() > 20, "the manifests were not understood: {used:?}");
    let mut faults = Vec::new();
    for (dependency, name) in &used {
        if !explained.contains(&dependency.as_str()) {
            faults.push(format!("docs/dependencies.md does not explain {dependency}, which {name} needs"));
        }
    }
    for name in explained {
        if !used.iter().any(|(dependency, _)| dependency == name) {
            faults.push(format!("docs/dependencies.md explains {name}, which no crate names"));
        }
    }
    fail_if_any(faults);
}

/// The comparison with other libraries is a workspace of its own, which no other check builds: with an old lock file it does not build.
#[test]
fn the_lock_file_of_the_peers_has_all_dependencies_of_our_crates() {
    let lock = read(&root().join("bench/peers/Cargo.lock"));
    let ours = crates();
    let faults = lock.split("[[package]]").filter_map(|package| {
        let name = package.split('"').nth(1).filter(|name| ours.iter().any(|known| known == name))?;
        let manifest = read(&root().join("crates").join(name).join("Cargo.toml"));
        let is_optional = |wanted: &str| {
            manifest.lines().any(|line| line.starts_with(&format!("{wanted} ")) && line.contains("optional = true"))
        };
        let has =
            |wanted: &str| [format!(" \"{wanted}\","), format!(" \"{wanted} ")].iter().any(|it| package.contains(it));
        let needed = dependencies(name, |section| section == "[dependencies]");
        let missing: Vec<String> = needed.into_iter().filter(|it| !has(it) && !is_optional(it)).collect();
        (!missing.is_empty())
            .then(|| format!("bench/peers/Cargo.lock: {name} lacks {missing:?}: run cargo metadata there"))
    });
    fail_if_any(faults.collect());
}

#[test]
fn links_of_the_documents_lead_somewhere() {
    let mut faults = Vec::new();
    let mut links = 0;
    for file in files(&root(), &[".md"]) {
        let folder = file.parent().expect("a file lies in a folder");
        for target in read(&file).split("](").skip(1).filter_map(|rest| rest.split(')').next()) {
            let path = target.split('#').next().unwrap_or_default();
            if path.is_empty() || path.contains("://") || path.starts_with("mailto:") {
                continue;
            }
            links += 1;
            if !folder.join(path).exists() {
                faults.push(format!("{}: {target} does not exist", file.display()));
            }
        }
    }
    assert!(links > 20, "only {links} links were found");
    fail_if_any(faults);
}

/// The first words of sentences that are hard to read when they are not questions: "Who is late gets ...".
const INVERTED: [&str; 5] = ["Who", "Whoever", "Whose", "What", "Whatever"];

/// The paragraphs of comments (of a source file) or of text (of a document) with the lines on which they begin. List items,
/// table cells and headings count as paragraphs; code in documents is left out.
fn paragraphs(text: &str, is_source: bool) -> Vec<(usize, String)> {
    let mut found: Vec<(usize, String)> = Vec::new();
    let (mut is_open, mut is_code) = (false, false);
    for (number, line) in text.lines().enumerate() {
        let line = line.trim();
        let comment = line.strip_prefix("//").map(|rest| rest.trim_start_matches(['/', '!']));
        let beside = || line.split_once(" // ").map(|(_, comment)| comment);
        let (words, goes_on) = match (is_source, comment) {
            (false, _) => (Some(line), true),
            (true, Some(comment)) => (Some(comment.trim()), true),
            (true, None) => (beside(), false),
        };
        let words = words.unwrap_or_default();
        if words.starts_with("```") {
            is_code = !is_code;
        }
        if words.is_empty() || words.starts_with("```") || (is_code && !is_source) {
            is_open = false;
            continue;
        }
        let marks = ["- ", "* ", "|", "#", "1. ", "2. ", "3. ", "4. ", "5. ", "6. ", "7. ", "8. ", "9. "];
        let is_first = !is_open || !goes_on || marks.iter().any(|mark| words.starts_with(mark));
        match found.last_mut() {
            Some((_, paragraph)) if !is_first => *paragraph = format!("{paragraph} {words}"),
            _ if words.starts_with('|') => found.extend(words.split('|').map(|cell| (number + 1, cell.to_owned()))),
            _ => found.push((number + 1, words.to_owned())),
        }
        is_open = goes_on && !words.starts_with(['|', '#']);
    }
    found
}

/// The sentences that begin with one of [`INVERTED`] and are not questions.
fn inverted(paragraph: &str) -> Vec<String> {
    let mut sentences = vec![Vec::new()];
    for word in paragraph.split_whitespace() {
        let is_last = word.trim_end_matches(['*', '_', '`', ')', '"', '\'']).ends_with(['.', '!', '?']);
        sentences.last_mut().expect("there is one").push(word);
        if is_last {
            sentences.push(Vec::new());
        }
    }
    let is_inverted = |sentence: &Vec<&str>| {
        let mut words = sentence.iter().map(|word| word.trim_matches(|c: char| !c.is_alphanumeric()));
        let first = words.find(|word| word.chars().any(char::is_alphabetic));
        let is_question = sentence.last().is_some_and(|word| word.contains('?'));
        first.is_some_and(|word| INVERTED.contains(&word)) && !is_question
    };
    sentences.into_iter().filter(is_inverted).map(|sentence| sentence.join(" ")).collect()
}

#[test]
fn sentences_begin_with_their_subject() {
    let bad = concat!("//! A crate.\n\n/// Sends. Who is late\n/// gets less.\nfn send() {} /", "/ Whose it is.\n");
    let found: Vec<String> = paragraphs(bad, true).iter().flat_map(|(_, text)| inverted(text)).collect();
    assert_eq!(found, ["Who is late gets less.", "Whose it is."]);
    let bad = "- Whoever comes.\n\n| a | Who is there |\n\n**Who** reads?\n\n```\nWho is code\n```\n1. Who is next.\n";
    let found: Vec<String> = paragraphs(bad, false).iter().flat_map(|(_, text)| inverted(text)).collect();
    assert_eq!(found, ["- Whoever comes.", "Who is there", "Who is next."]);

    let mut faults = Vec::new();
    for file in files(&root(), &[".md", ".rs"]) {
        let is_source = file.extension().is_some_and(|ending| ending == "rs");
        for (line, paragraph) in paragraphs(&read(&file), is_source) {
            // Headings of documents may name a question.
            let is_meant = |sentence: &String| is_source || !sentence.contains("What");
            for sentence in inverted(&paragraph).into_iter().filter(is_meant) {
                faults.push(format!("{}:{line}: {sentence}", file.display()));
            }
        }
    }
    fail_if_any(faults);
}

/// The pairs of `file` and `test` in a text that names them as `` `crate/tests/file.rs` `test` ``.
fn named_tests(text: &str) -> Vec<(&str, &str)> {
    let code: Vec<&str> = text.split('`').skip(1).step_by(2).collect();
    code.windows(2).filter(|pair| pair[0].ends_with(".rs")).map(|pair| (pair[0], pair[1])).collect()
}

#[test]
fn each_property_of_the_list_has_tests_that_exist() {
    let page = read(&root().join("docs/correctness.md"));
    let mut faults = Vec::new();
    for number in 1..=30 {
        let rows: Vec<&str> = page.lines().filter(|line| line.starts_with(&format!("| R{number} |"))).collect();
        let [row] = rows[..] else { panic!("docs/correctness.md has {} rows for R{number}", rows.len()) };
        let tests = named_tests(row);
        if !tests.iter().any(|(_, test)| test.starts_with(&format!("r{number:02}_"))) {
            faults.push(format!("R{number} names no test that begins with r{number:02}_"));
        }
        for (file, test) in tests {
            let path = root().join("crates").join(file);
            let source = if path.exists() { read(&path) } else { String::new() };
            let mut attributes =
                source.split(&format!("fn {test}(")).next().unwrap_or_default().trim_end().lines().rev();
            let is_test = source.contains(&format!("fn {test}("))
                && attributes.find(|line| !line.starts_with("    //")).is_some_and(|line| line.trim() == "#[test]");
            if !is_test {
                faults.push(format!("R{number}: there is no test {test} in crates/{file}"));
            }
        }
    }
    fail_if_any(faults);
}

#[test]
fn tests_with_random_input_take_their_seeds_from_one_place() {
    let mut faults = Vec::new();
    for file in files(&root().join("crates"), &[".rs"]) {
        let text = read(&file);
        let is_here = file.ends_with("tidy.rs");
        for (number, line) in text.lines().enumerate().filter(|_| !is_here) {
            let next = text.lines().nth(number + 1).unwrap_or_default();
            let is_loop = line.trim().starts_with("for seed in") || line.trim().starts_with("for (seed");
            let is_plain_loop = is_loop && !file.ends_with("throng-seeds/src/lib.rs");
            let is_unseeded = line.trim() == "proptest! {" && !next.contains("throng_seeds::cases(");
            if is_plain_loop || is_unseeded || line.contains("fastrand::Rng::new()") {
                faults.push(format!("{}:{}: use throng_seeds", file.display(), number + 1));
            }
        }
    }
    fail_if_any(faults);
}

/// A library without tests in it would be compiled and linked once more for nothing. With tests that are switched off, nobody would
/// notice that they do not run.
#[test]
fn libraries_are_built_for_tests_exactly_if_they_have_some() {
    let mut faults = Vec::new();
    for name in crates() {
        let folder = root().join("crates").join(&name);
        if !folder.join("src/lib.rs").exists() {
            continue;
        }
        let manifest = read(&folder.join("Cargo.toml"));
        let lib = manifest.split("[lib]\n").nth(1).map_or("", |rest| rest.split("\n[").next().unwrap_or_default());
        let has = |setting: &str| {
            let plain = |line: &str| line.split('#').next().unwrap_or_default().replace(' ', "");
            lib.lines().any(|line| plain(line) == setting)
        };
        let texts: Vec<String> = files(&folder.join("src"), &[".rs"]).iter().map(|file| read(file)).collect();
        let has_tests = texts
            .iter()
            .flat_map(|text| text.lines())
            .any(|line| line.trim().starts_with("#[test]") || line.trim().starts_with("#[tokio::test"));
        // Each second fence ends what the one before it begins.
        let has_doctests = texts.iter().any(|text| {
            let lines = text.lines().map(str::trim);
            let said = lines.filter_map(|line| line.strip_prefix("//!").or_else(|| line.strip_prefix("///")));
            let mut fences = said.filter_map(|line| line.trim().strip_prefix("```")).step_by(2);
            fences.any(|kind| DOCTESTS.contains(&kind.split(',').next().unwrap_or_default().trim()))
        });
        if has("test=false") == has_tests {
            faults.push(format!("{name}: `test = false` in [lib], if and only if it has no unit tests"));
        }
        if has("doctest=false") && has_doctests {
            faults.push(format!("{name}: it has examples in its documentation, and `doctest = false`"));
        }
    }
    fail_if_any(faults);
}
