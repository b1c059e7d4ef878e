//! Facts about the machine and the program; without them a figure has no meaning.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;
use std::time::Duration;

/// The kernel's default period of a processor limit.
const PERIOD: Duration = Duration::from_millis(100);

/// The text for facts that the system does not tell.
pub const UNKNOWN: &str = "unknown";

/// The text for a secret.
pub const HIDDEN: &str = "hidden";

/// Revision that this program was built from, with `-dirty` if its sources differed from it; [`UNKNOWN`] if it was built
/// without git or outside a tree.
pub fn revision() -> String {
    env!("THRONG_REVISION").to_owned()
}

/// `release` or `debug`: how this program was built.
pub fn profile() -> String {
    if cfg!(debug_assertions) { "debug" } else { "release" }.to_owned()
}

/// Architecture and operating system that this program was built for.
pub fn target() -> String {
    format!("{}-{}", std::env::consts::ARCH, std::env::consts::OS)
}

/// The program's arguments, without the program itself and without secrets: a key is [`HIDDEN`], and addresses are [`masked`].
pub fn arguments() -> Vec<String> {
    without_secrets(std::env::args_os().skip(1).map(|argument| argument.to_string_lossy().into_owned()))
}

fn without_secrets(arguments: impl Iterator<Item = String>) -> Vec<String> {
    let (mut is_key, mut is_bus) = (false, false);
    let shown = arguments.map(|argument| {
        let option = argument.strip_prefix("--").or_else(|| argument.strip_prefix('-'));
        match option.map(|option| option.split_once('=').unwrap_or((option, ""))) {
            _ if std::mem::take(&mut is_key) => HIDDEN.to_owned(),
            _ if std::mem::take(&mut is_bus) => masked_servers(&argument),
            Some(("bus", "")) => {
                is_bus = !argument.ends_with('=');
                argument
            }
            Some(("bus", value)) => {
                format!("{}{}", &argument[..argument.len() - value.len()], masked_servers(value))
            }
            Some(("key", "")) => {
                is_key = !argument.ends_with('=');
                argument
            }
            Some(("key", value)) => format!("{}{HIDDEN}", &argument[..argument.len() - value.len()]),
            _ => masked(&argument),
        }
    });
    shown.collect()
}

/// A text whose addresses have no user and no password: of `nats://user:password@host`, `nats://host` is left. A password may have an `@`,
/// `/`, `?` or `#` that should have been escaped, so everything up to the last `@` of an address is left out. A comma ends an address.
pub fn masked(text: &str) -> String {
    let mut parts = text.split("://");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let address = &part[..part.find(|char: char| char.is_whitespace() || char == ',').unwrap_or(part.len())];
        let host = address.rfind('@').map_or(0, |at| at + 1);
        shown += "://";
        shown += &part[host..];
    }
    shown
}

/// The same for a list of servers between commas, of which each may be without a scheme: `user:password@host`.
pub fn masked_servers(list: &str) -> String {
    let without_user = |server: &str| match server.contains("://") {
        true => masked(server),
        false => server.rsplit_once('@').map_or(server, |(_, host)| host).to_owned(),
    };
    list.split(',').map(without_user).collect::<Vec<_>>().join(",")
}

/// Cores that this process may use; 0 where the system does not tell.
pub fn cores() -> u32 {
    std::thread::available_parallelism().map_or(0, |cores| cores.get() as u32)
}

/// Model of the processor; [`UNKNOWN`] where the system does not tell.
pub fn processor() -> String {
    let cpuinfo = read("/proc/cpuinfo");
    let model = field(&cpuinfo, "model name").or_else(|| field(&cpuinfo, "Model"));
    model.unwrap_or(UNKNOWN).to_owned()
}

/// Threads that each core of the first processor has; `None` where the system does not tell.
pub fn threads_per_core() -> Option<f64> {
    let list = read("/sys/devices/system/cpu/cpu0/topology/thread_siblings_list");
    let counts = list.trim().split(',').map(|part| match part.split_once('-') {
        Some((first, last)) => Some(last.parse::<u32>().ok()?.checked_sub(first.parse().ok()?)? + 1),
        None => part.parse::<u32>().ok().map(|_| 1),
    });
    counts.sum::<Option<u32>>().filter(|count| *count > 0).map(f64::from)
}

/// Physical cores that these cores are threads of; `None` where the system does not tell.
pub fn physical_cores(cores: &[usize]) -> Option<usize> {
    let siblings = |core| read(&format!("/sys/devices/system/cpu/cpu{core}/topology/thread_siblings_list"));
    physical(cores, siblings)
}

/// Cores of one list of siblings are one physical core.
fn physical(cores: &[usize], siblings: impl Fn(usize) -> String) -> Option<usize> {
    let lists: BTreeSet<String> = cores.iter().map(|core| siblings(*core).trim().to_owned()).collect();
    (!lists.is_empty() && !lists.contains("")).then_some(lists.len())
}

/// How often and for how long the system has stopped a control group because it had used up its processor time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Throttled {
    /// Periods in which it was stopped.
    pub periods: u64,
    /// The time in which it was stopped, added up over the cores. Where the system counts only periods, each counts as a whole one
    /// of 100 ms, which is the kernel's default.
    pub time: Duration,
}

impl Throttled {
    /// The growth since an earlier look.
    pub fn since(self, before: Throttled) -> Throttled {
        let periods = self.periods.saturating_sub(before.periods);
        Throttled { periods, time: self.time.saturating_sub(before.time) }
    }

    /// The figures of `cpu.stat`: the second version has microseconds, and the first one nanoseconds. `None` without a count.
    fn parse(text: &str) -> Option<Throttled> {
        let number = |name: &str| {
            let fields = text.lines().filter_map(|line| line.split_once(' '));
            fields.filter(|(key, _)| *key == name).find_map(|(_, value)| value.trim().parse::<u64>().ok())
        };
        let periods = number("nr_throttled")?;
        let micros = number("throttled_usec").map(Duration::from_micros);
        let time = micros.or_else(|| number("throttled_time").map(Duration::from_nanos));
        let whole = PERIOD.saturating_mul(u32::try_from(periods).unwrap_or(u32::MAX));
        Some(Throttled { periods, time: time.unwrap_or(whole) })
    }
}

/// How this process's control group and those above it were stopped so far, in sum; `None` where the system does not tell.
pub fn throttled() -> Option<Throttled> {
    throttled_of(Path::new("/sys/fs/cgroup"), &read("/proc/self/cgroup"))
}

fn throttled_of(root: &Path, groups: &str) -> Option<Throttled> {
    let stats = group_files(root, groups, "cpu", |_| "cpu.stat");
    stats.iter().filter_map(|text| Throttled::parse(text)).reduce(|sum, of| Throttled {
        periods: sum.periods.saturating_add(of.periods),
        time: sum.time.saturating_add(of.time),
    })
}

/// The memory that this process may have: the least of what its control group, those above it and the machine have, in bytes.
/// `None` where the system tells none of them.
pub fn memory_limit_bytes() -> Option<u64> {
    let machine = Some(memory_bytes()).filter(|bytes| *bytes > 0);
    memory_limit_of(Path::new("/sys/fs/cgroup"), &read("/proc/self/cgroup")).into_iter().chain(machine).min()
}

/// A group without limit says `max`, or in the first version a number beyond the memory of any machine.
fn memory_limit_of(root: &Path, groups: &str) -> Option<u64> {
    let name = |is_first: bool| if is_first { "memory.limit_in_bytes" } else { "memory.max" };
    let limits = group_files(root, groups, "memory", name);
    limits.iter().filter_map(|text| text.trim().parse().ok()).min()
}

/// A file of the control group that has this controller, and of the groups above it. Groups of the second version are below `root`,
/// those of the first version below a folder of the controller, and their files may have another name. In a container the path may
/// be that of the machine, and `root` the group itself.
fn group_files(root: &Path, groups: &str, controller: &str, name: impl Fn(bool) -> &'static str) -> Vec<String> {
    let mut files = Vec::new();
    for line in groups.lines() {
        let mut parts = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (parts.next(), parts.next()) else { continue };
        let is_first = controllers.split(',').any(|of| of == controller);
        if !is_first && !controllers.is_empty() {
            continue;
        }
        let root = root.join(if is_first { controller } else { "" });
        let group = root.join(path.trim_start_matches('/'));
        let folders = group.ancestors().take_while(|folder| folder.starts_with(&root));
        files.extend(folders.filter_map(|folder| fs::read_to_string(folder.join(name(is_first))).ok()));
    }
    files
}

/// Whether the processor says that it is a hypervisor's.
pub fn is_virtual_machine() -> bool {
    field(&read("/proc/cpuinfo"), "flags").is_some_and(|flags| flags.split(' ').any(|flag| flag == "hypervisor"))
}

/// Memory of the machine, in bytes; 0 where the system does not tell.
pub fn memory_bytes() -> u64 {
    total_bytes(&read("/proc/meminfo"))
}

/// Name and release of the kernel.
pub fn kernel() -> String {
    let part = |name: &str| one_line(&format!("/proc/sys/kernel/{name}"));
    format!("{} {}", part("ostype"), part("osrelease"))
}

/// Tells this machine from others until it starts again, also from within its containers; `None` where the system does not tell.
/// Virtual machines that were copied while they ran have the same.
pub fn boot_id() -> Option<String> {
    Some(one_line("/proc/sys/kernel/random/boot_id")).filter(|id| id != UNKNOWN)
}

/// Frequency governor of the first core.
pub fn governor() -> String {
    one_line("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor")
}

/// Clock source of the kernel.
pub fn clocksource() -> String {
    one_line("/sys/devices/system/clocksource/clocksource0/current_clocksource")
}

/// Resident memory of this process, in bytes; `None` where `/proc` does not tell.
pub fn rss_bytes() -> Option<u64> {
    rss_bytes_of("self")
}

/// Resident memory of the process with that number.
pub fn rss_bytes_of(process: &str) -> Option<u64> {
    kib(field(&read(&format!("/proc/{process}/status")), "VmRSS")?)
}

/// An unreadable file is an empty one: the caller finds no field in it.
fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn one_line(path: &str) -> String {
    let text = read(path);
    let line = text.trim();
    if line.is_empty() { UNKNOWN.to_owned() } else { line.to_owned() }
}

/// The value of the first `name : value` line.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let values = text.lines().filter_map(|line| line.split_once(':'));
    values.filter(|(key, _)| key.trim() == name).map(|(_, value)| value.trim()).next()
}

fn total_bytes(meminfo: &str) -> u64 {
    field(meminfo, "MemTotal").and_then(kib).unwrap_or(0)
}

/// Bytes from `123 kB`.
fn kib(value: &str) -> Option<u64> {
    let number: u64 = value.strip_suffix("kB")?.trim().parse().ok()?;
    number.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use super::*;
    use crate::built_revision;

    #[test]
    fn fields_are_found_by_their_whole_name() {
        let text = "processor\t: 0\nmodel name\t: A CPU: fast\nmodel\t\t: 3\n";
        assert_eq!(field(text, "model name"), Some("A CPU: fast"));
        assert_eq!(field(text, "model"), Some("3"));
        assert_eq!(field(text, "mod"), None);
        assert_eq!(total_bytes("MemTotal:       2048 kB\n"), 2 << 20);
        assert_eq!(total_bytes("MemTotal: much\n"), 0);
    }

    #[test]
    fn threads_of_one_core_are_one_physical_core() {
        let siblings = |core: usize| if core < 4 { format!("{},{}\n", core % 2, core % 2 + 2) } else { String::new() };
        let of = |cores: &[usize]| physical(cores, siblings);
        assert_eq!([of(&[0]), of(&[0, 2]), of(&[0, 1]), of(&[0, 1, 2, 3])], [Some(1), Some(1), Some(2), Some(2)]);
        assert_eq!([of(&[]), of(&[0, 4])], [None, None]);
    }

    #[test]
    fn a_group_is_throttled_with_those_above_it() {
        let root = tempfile::tempdir().unwrap();
        let put = |folder: &str, text: &str| {
            fs::create_dir_all(root.path().join(folder)).unwrap();
            fs::write(root.path().join(folder).join("cpu.stat"), text).unwrap();
        };
        let of = |groups: &str| {
            let Throttled { periods, time } = throttled_of(root.path(), groups)?;
            Some((periods, time.as_micros()))
        };
        assert_eq!(of("0::/pod/one\n"), None);
        put("pod", "usage_usec 5\nnr_periods 9\nnr_throttled 3\nthrottled_usec 7\n");
        put("pod/one", "nr_throttled 4\n");
        put("", "usage_usec 5\n");
        assert_eq!(
            [of("0::/pod/one\n"), of("0::/pod\n"), of("0::/\n"), of("")],
            [Some((7, 400_007)), Some((3, 7)), None, None]
        );
        // The first version: a controller has a folder of its own, and a container sees its group there.
        put("cpu", "nr_throttled 2\nthrottled_time 1500000\n");
        assert_eq!(of("5:memory:/x\n1:cpu,cpuacct:/docker/x\n0::/\n"), Some((2, 1_500)));
    }

    #[test]
    fn a_process_may_have_as_much_memory_as_the_smallest_of_the_groups_above_it() {
        let root = tempfile::tempdir().unwrap();
        let put = |file: &str, text: &str| {
            let file = root.path().join(file);
            fs::create_dir_all(file.parent().unwrap()).unwrap();
            fs::write(file, text).unwrap();
        };
        let of = |groups: &str| memory_limit_of(root.path(), groups);
        assert_eq!(of("0::/system.slice/gate.service\n"), None);
        put("system.slice/gate.service/memory.max", "2147483648\n");
        put("system.slice/memory.max", "max\n");
        assert_eq!(of("0::/system.slice/gate.service\n"), Some(2 << 30), "the root of a machine has no such file");
        put("system.slice/memory.max", "1073741824\n");
        assert_eq!([of("0::/system.slice/gate.service\n"), of("0::/\n")], [Some(1 << 30), None]);
        // In a container the root is the group itself.
        put("memory.max", "4096\n");
        assert_eq!([of("0::/\n"), of("0::/docker/x\n")], [Some(4096), Some(4096)]);
        put("memory/x/memory.limit_in_bytes", "1000\n");
        assert_eq!(of("5:memory:/x\n1:cpu,cpuacct:/y\n"), Some(1000));
        assert!(memory_limit_bytes().is_some_and(|bytes| bytes <= memory_bytes()));
    }

    #[test]
    fn arguments_are_told_without_their_secrets() {
        let given = "crowd --key 0f --key=0f -key 0f -key=0f --players 40 --keys all a@b --bus=nats://me:a@b@host \
            --bus nats://me:word@10.0.0.9:4222,tls://token@[::1]:4222/a --key";
        let told = "crowd --key hidden --key=hidden -key hidden -key=hidden --players 40 --keys all a@b --bus=nats://host \
            --bus nats://10.0.0.9:4222,tls://[::1]:4222/a --key";
        assert_eq!(without_secrets(given.split(' ').map(str::to_owned)), told.split(' ').collect::<Vec<_>>());
        let given = "--bus me:a@b@10.0.0.9:4222,nats://me:a@h1,me:a@h2:1,h3 --bus=me:a@h a@b";
        let told = "--bus 10.0.0.9:4222,nats://h1,h2:1,h3 --bus=h a@b";
        assert_eq!(without_secrets(given.split(' ').map(str::to_owned)), told.split(' ').collect::<Vec<_>>());
        assert_eq!(masked("no answer at nats://ä:ö@ü:1, as x://"), "no answer at nats://ü:1, as x://");
        assert_eq!(masked("nats://me:a/b?c@d#e@h:1/x, tls://h/a s3://b@c"), "nats://h:1/x, tls://h/a s3://c");
    }

    #[test]
    fn a_missing_file_is_unknown() {
        assert_eq!(one_line("/nowhere/at/all"), UNKNOWN);
    }

    #[test]
    fn there_is_always_an_answer() {
        for answer in [processor(), kernel(), governor(), clocksource(), revision()] {
            assert!(!answer.is_empty());
        }
    }

    /// Runs git in a folder; `false` where there is none.
    fn git(folder: &Path, arguments: &[&str]) -> bool {
        let identity = ["-c", "user.name=test", "-c", "user.email=test@localhost", "-c", "commit.gpgsign=false"];
        let output = Command::new("git").current_dir(folder).args(identity).args(arguments).output();
        output.is_ok_and(|output| output.status.success())
    }

    #[test]
    fn a_revision_is_that_of_the_tree_it_is_built_in_and_says_if_its_sources_differ() {
        let folder = tempfile::tempdir().unwrap();
        let (tree, beside) = (folder.path().join("tree"), folder.path().join("beside"));
        fs::create_dir_all(tree.join("crates")).unwrap();
        assert_eq!(built_revision::of(&tree, &["crates"]), None, "without .git");
        assert!(built_revision::marks(&tree).is_empty());
        if !git(&tree, &["init", "--quiet"]) {
            return;
        }
        assert_eq!(built_revision::of(&tree, &["crates"]), None, "without a commit");
        fs::write(tree.join("crates/a.rs"), "1").unwrap();
        fs::write(tree.join("page.md"), "1").unwrap();
        let commit = || assert!(git(&tree, &["add", "."]) && git(&tree, &["commit", "--quiet", "-m", "x"]));
        commit();
        let first = built_revision::of(&tree, &["crates"]).unwrap();
        assert!(first.len() == 12 && first.bytes().all(|byte| byte.is_ascii_hexdigit()), "{first}");
        assert!(git(&tree, &["worktree", "add", "--quiet", "-b", "other", "../beside"]));
        assert_eq!(built_revision::of(&beside, &["crates"]), Some(first.clone()));
        assert_eq!(built_revision::marks(&beside).len(), 2, "its own HEAD, and the branch in the repository");
        fs::write(tree.join("page.md"), "2").unwrap();
        assert_eq!(built_revision::of(&tree, &["crates"]), Some(first.clone()), "no source has changed");
        fs::write(tree.join("crates/a.rs"), "22").unwrap();
        assert_eq!(built_revision::of(&tree, &["crates"]), Some(format!("{first}-dirty")));
        assert_eq!(built_revision::of(&tree.join("crates"), &["a.rs"]), None, "a folder in another tree");
        let branch = built_revision::marks(&tree).pop().unwrap();
        let before = fs::read_to_string(&branch).unwrap();
        commit();
        assert_ne!(fs::read_to_string(&branch).unwrap(), before, "what is watched changes with a commit");
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn this_process_lives_in_memory() {
        assert!(rss_bytes().unwrap() > 100_000);
    }
}
