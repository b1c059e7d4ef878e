//! A store keeps runs whole, overwrites nothing, and believes nobody.

use std::cell::Cell;
use std::fs::{self, File};
use std::io::{Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use futures_util::StreamExt;
use futures_util::stream::{self, BoxStream};
use object_store::chunked::ChunkedStore;
use object_store::memory::InMemory;
use object_store::path::Path as ObjectPath;
use object_store::throttle::{ThrottleConfig, ThrottledStore};
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore, ObjectStoreExt,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result,
};
use throng_store::{FILES, RunAge, RunName, RunStore, is_address};

static GO_ON: AtomicBool = AtomicBool::new(false);

/// The folder of a run with a large file.
fn run(parent: &Path, name: &str) -> PathBuf {
    let folder = parent.join(name);
    fs::create_dir_all(folder.join("a folder")).unwrap();
    let frames: Vec<u8> = (0..20_000_000_u32).map(|number| (number / 7) as u8).collect();
    fs::write(folder.join("frames.parquet"), frames).unwrap();
    fs::write(folder.join("summary.json"), format!("{{\"name\":\"{name}\"}}")).unwrap();
    fs::write(folder.join("report.html"), "<html>").unwrap();
    folder
}

fn name(text: &str) -> RunName {
    RunName::new(text).expect("a name")
}

/// A store of each kind, with the folder of the first.
fn stores(folder: &Path) -> [RunStore; 2] {
    let place = folder.join("store");
    let on_disk = RunStore::open_to_write(place.to_str().unwrap(), &GO_ON).unwrap();
    [on_disk, RunStore::with_objects("memory", Arc::new(InMemory::new())).unwrap()]
}

#[test]
fn a_run_comes_back_as_it_went_and_is_never_overwritten() {
    let folder = tempfile::tempdir().unwrap();
    let first = run(folder.path(), "20260131-120000-crowd");
    for (number, store) in stores(folder.path()).into_iter().enumerate() {
        let shown = Cell::new((0, 0));
        let stored = store
            .upload(&first, RunAge::Old, &GO_ON, &mut |progress| {
                assert!(progress.bytes >= shown.get().1 && progress.bytes <= progress.bytes_in_all);
                shown.set((shown.get().0 + 1, progress.bytes));
            })
            .unwrap();
        assert!(shown.get().0 >= 5, "a large file is shown in parts: {shown:?}");
        assert_eq!(store.runs(&GO_ON).unwrap(), std::slice::from_ref(&stored));
        let into = folder.path().join(format!("back-{number}"));
        let back = store.download(&stored, &["summary.json", "frames.parquet"], &into, &GO_ON).unwrap();
        for file in ["summary.json", "frames.parquet"] {
            assert!(fs::read(back.join(file)).unwrap() == fs::read(first.join(file)).unwrap(), "{file}");
        }
        assert!(!back.join("report.html").exists(), "nobody asked for it");
        fs::write(first.join("summary.json"), "{\"another\": 1}").unwrap();
        let error = store.upload(&first, RunAge::Old, &GO_ON, &mut |_| ()).unwrap_err();
        assert!(error.tag() == "taken" && error.to_string().contains("rename the folder"), "{error}");
        fs::write(first.join("summary.json"), "{\"name\":\"20260131-120000-crowd\"}").unwrap();
        let again = store.download(&stored, &["summary.json"], &into, &GO_ON).unwrap_err();
        assert_eq!(again.tag(), "local", "a folder that is there is not overwritten either");
        assert_eq!(store.download(&name("nowhere"), &["summary.json"], &into, &GO_ON).unwrap_err().tag(), "not_a_run");
    }
}

/// Two machines of a fleet begin a run in the same second.
#[test]
fn a_new_run_whose_name_is_taken_gets_a_number() {
    let folder = tempfile::tempdir().unwrap();
    let first = run(folder.path(), "20260131-120000-crowd");
    for store in stores(folder.path()) {
        let names: Vec<String> =
            (0..3).map(|_| store.upload(&first, RunAge::New, &GO_ON, &mut |_| ()).unwrap().to_string()).collect();
        assert_eq!(names, ["20260131-120000-crowd", "20260131-120000-crowd-2", "20260131-120000-crowd-3"]);
        assert_eq!(store.runs(&GO_ON).unwrap().len(), 3);
        assert!(!store.is_folder(&first));
    }
    let own = RunStore::open(folder.path().to_str().unwrap()).unwrap();
    assert!(own.is_folder(&folder.path().join("20260131-120000-crowd/..")));
}

#[test]
fn a_stopped_upload_is_no_run_and_goes_on_where_it_ended() {
    let folder = tempfile::tempdir().unwrap();
    let first = run(folder.path(), "20260131-120000-crowd");
    for store in stores(folder.path()) {
        let stop = AtomicBool::new(false);
        let stop_late = &mut |progress: &throng_store::Progress| {
            stop.store(progress.file == "report.html", Ordering::Relaxed);
        };
        assert_eq!(store.upload(&first, RunAge::Old, &stop, stop_late).unwrap_err().tag(), "stopped");
        assert_eq!(store.runs(&GO_ON).unwrap(), []);
        store.upload(&first, RunAge::Old, &GO_ON, &mut |_| ()).unwrap();
        assert_eq!(store.runs(&GO_ON).unwrap().len(), 1);
    }
    // A file that another run of this name has left is not taken for a part of this one.
    let place = folder.path().join("other");
    fs::create_dir_all(place.join("20260131-120000-crowd")).unwrap();
    fs::write(place.join("20260131-120000-crowd/report.html"), "<html lang=\"en\">").unwrap();
    let store = RunStore::open_to_write(place.to_str().unwrap(), &GO_ON).unwrap();
    assert_eq!(store.upload(&first, RunAge::Old, &GO_ON, &mut |_| ()).unwrap_err().tag(), "taken");
    assert_eq!(store.runs(&GO_ON).unwrap(), []);
}

#[test]
fn a_download_that_is_stopped_leaves_no_run_and_begins_again() {
    let folder = tempfile::tempdir().unwrap();
    let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let summary = "1".repeat(1_000_000);
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let path = ObjectPath::from("run/summary.json");
    runtime.block_on(objects.put(&path, summary.clone().into_bytes().into())).unwrap();
    // A byte comes each millisecond: the whole would take a quarter of an hour.
    let slow = ThrottleConfig { wait_get_per_byte: Duration::from_millis(1), ..ThrottleConfig::default() };
    let slow = ThrottledStore::new(ChunkedStore::new(objects.clone(), 1), slow);
    let slow = RunStore::with_objects("slow", Arc::new(slow)).unwrap();
    let (stop, into) = (AtomicBool::new(false), folder.path().join("run"));
    let sizes =
        || fs::read_dir(&into).into_iter().flatten().flatten().filter_map(|file| Some(file.metadata().ok()?.len()));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) && !sizes().any(|bytes| bytes > 0) {
                std::thread::sleep(Duration::from_millis(1));
            }
            stop.store(true, Ordering::Relaxed);
        });
        let error = slow.download(&name("run"), &["summary.json"], folder.path(), &stop).unwrap_err();
        stop.store(true, Ordering::Relaxed);
        assert_eq!(error.tag(), "stopped", "{error}");
    });
    assert_eq!(sizes().count(), 0, "a part of a file is none");
    let store = RunStore::with_objects("memory", objects).unwrap();
    store.download_all(&["summary.json"], folder.path(), &GO_ON).unwrap();
    assert!(fs::read_to_string(into.join("summary.json")).unwrap() == summary && sizes().count() == 1);
}

#[test]
fn a_torn_line_of_the_index_takes_no_other_with_it() {
    let folder = tempfile::tempdir().unwrap();
    let [on_disk, _] = stores(folder.path());
    fs::write(folder.path().join("store/index.jsonl"), "{\"name\": \"a\"}\n{\"name\": \"to").unwrap();
    on_disk.add_to_index("b", &GO_ON).unwrap();
    on_disk.add_to_index("c", &GO_ON).unwrap();
    assert_eq!(on_disk.index(&GO_ON).unwrap(), ["{\"name\": \"a\"}", "{\"name\": \"to", "b", "c"]);
}

#[test]
fn the_index_keeps_lines_in_their_order_and_those_of_others() {
    let folder = tempfile::tempdir().unwrap();
    for store in stores(folder.path()) {
        assert_eq!(store.index(&GO_ON).unwrap(), [""; 0]);
        store.add_to_index("{\"name\": \"a\"}", &GO_ON).unwrap();
        store.add_to_index("two\nlines are one", &GO_ON).unwrap();
        assert_eq!(store.index(&GO_ON).unwrap(), ["{\"name\": \"a\"}", "two lines are one"]);
        let before = store.index(&GO_ON).unwrap();
        store.add_to_index("meanwhile", &GO_ON).unwrap();
        store.replace_index(&before, &["b".to_owned(), "c".to_owned()], &GO_ON).unwrap();
        store.add_to_index("d", &GO_ON).unwrap();
        assert_eq!(store.index(&GO_ON).unwrap(), ["b", "c", "meanwhile", "d"]);
        assert_eq!(store.runs(&GO_ON).unwrap(), [], "an index is no run");
    }
    // Eight programs add at the same time.
    let objects: Arc<dyn ObjectStore> = Arc::new(InMemory::new());
    let on_disk = folder.path().join("store");
    std::thread::scope(|scope| {
        for number in 0..8 {
            let (objects, on_disk) = (objects.clone(), on_disk.to_str().unwrap());
            scope.spawn(move || {
                for store in [RunStore::with_objects("memory", objects), RunStore::open(on_disk)] {
                    store.unwrap().add_to_index(&format!("line {number}"), &GO_ON).unwrap();
                }
            });
        }
    });
    for (store, before) in
        [(RunStore::with_objects("memory", objects), 0), (RunStore::open(on_disk.to_str().unwrap()), 4)]
    {
        let mut lines = store.unwrap().index(&GO_ON).unwrap().split_off(before);
        lines.sort();
        assert_eq!(lines, (0..8).map(|number| format!("line {number}")).collect::<Vec<_>>());
    }
}

/// A run is removed, and sent again while the index is made anew: its line is the one that was there before.
#[test]
fn a_line_that_was_there_before_and_is_added_again_meanwhile_is_kept() {
    let folder = tempfile::tempdir().unwrap();
    for store in stores(folder.path()) {
        for line in ["removed", "twice", "stays", "twice"] {
            store.add_to_index(line, &GO_ON).unwrap();
        }
        let before = store.index(&GO_ON).unwrap();
        for line in ["removed", "stays"] {
            store.add_to_index(line, &GO_ON).unwrap();
        }
        store.replace_index(&before, &["stays".to_owned()], &GO_ON).unwrap();
        assert_eq!(store.index(&GO_ON).unwrap(), ["stays", "removed"]);
    }
}

#[test]
fn the_index_of_a_folder_is_changed_by_one_process_at_a_time() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().to_str().unwrap();
    let open = || RunStore::open(place).unwrap();
    let (index, lock) = (folder.path().join("index.jsonl"), folder.path().join("index.jsonl.lock"));
    open().add_to_index("first", &GO_ON).unwrap();
    // Another process is about to add a line: it has opened the file, and holds the lock.
    let mut other = File::options().append(true).open(&index).unwrap();
    let lock = File::open(lock).unwrap();
    lock.lock().unwrap();
    let before = open().index(&GO_ON).unwrap();
    std::thread::scope(|scope| {
        let replacing = scope.spawn(|| open().replace_index(&before, &["anew".to_owned()], &GO_ON).unwrap());
        let adding = scope.spawn(|| open().add_to_index("last", &GO_ON).unwrap());
        std::thread::sleep(Duration::from_millis(300));
        let have_waited = !replacing.is_finished() && !adding.is_finished();
        let stopped = open().add_to_index("late", &AtomicBool::new(true));
        other.write_all(b"of another\n").unwrap();
        lock.unlock().unwrap();
        assert!(have_waited);
        assert_eq!(stopped.unwrap_err().tag(), "stopped", "nobody has to wait");
    });
    let mut lines = open().index(&GO_ON).unwrap();
    assert_eq!(lines.remove(0), "anew");
    lines.sort();
    assert_eq!(lines, ["last", "of another"]);
}

/// A bucket that is not there.
#[derive(Debug)]
struct NoBucket;

impl std::fmt::Display for NoBucket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("no bucket")
    }
}

fn no_bucket<T>() -> Result<T> {
    Err(Error::NotFound { path: "bucket".to_owned(), source: "NoSuchBucket".into() })
}

#[async_trait::async_trait]
impl ObjectStore for NoBucket {
    async fn put_opts(&self, _: &ObjectPath, _: PutPayload, _: PutOptions) -> Result<PutResult> {
        no_bucket()
    }
    async fn put_multipart_opts(&self, _: &ObjectPath, _: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        no_bucket()
    }
    async fn get_opts(&self, _: &ObjectPath, _: GetOptions) -> Result<GetResult> {
        no_bucket()
    }
    fn delete_stream(&self, _: BoxStream<'static, Result<ObjectPath>>) -> BoxStream<'static, Result<ObjectPath>> {
        stream::empty().boxed()
    }
    fn list(&self, _: Option<&ObjectPath>) -> BoxStream<'static, Result<ObjectMeta>> {
        stream::once(async { no_bucket() }).boxed()
    }
    async fn list_with_delimiter(&self, _: Option<&ObjectPath>) -> Result<ListResult> {
        no_bucket()
    }
    async fn copy_opts(&self, _: &ObjectPath, _: &ObjectPath, _: CopyOptions) -> Result<()> {
        no_bucket()
    }
}

#[test]
fn an_index_that_cannot_be_written_is_an_error() {
    let store = RunStore::with_objects("memory", Arc::new(NoBucket)).unwrap();
    for error in [store.replace_index(&[], &["a".to_owned()], &GO_ON), store.add_to_index("a", &GO_ON)] {
        let text = error.expect_err("nothing was written").to_string();
        assert!(text.contains("NoSuchBucket"), "{text}");
    }
}

#[test]
fn names_that_no_object_has_do_not_keep_a_folder_from_being_a_store() {
    use std::os::unix::ffi::OsStrExt;
    let folder = tempfile::tempdir().unwrap();
    for odd in [&b"with space"[..], b"..%2Fescape", b"\x1b[2J", b"tab\t", b"#recovery#", b"~", b"\xff\xfe"] {
        fs::write(folder.path().join(std::ffi::OsStr::from_bytes(odd)), "").unwrap();
        let store = RunStore::open_to_write(folder.path().to_str().unwrap(), &GO_ON);
        let store = store.unwrap_or_else(|error| panic!("{odd:?}: {error}"));
        store.add_to_index("a", &GO_ON).unwrap();
    }
}

#[test]
fn odd_names_and_enormous_files_do_no_harm() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("store");
    for run in ["good", ".hidden", "with space", "..%2Fescape", "-option", "\u{1b}[2J"] {
        fs::create_dir_all(place.join(run)).unwrap();
        fs::write(place.join(run).join("summary.json"), "{}").unwrap();
    }
    fs::create_dir_all(place.join("no-summary")).unwrap();
    fs::write(place.join("no-summary/frames.parquet"), "PAR1").unwrap();
    fs::create_dir_all(place.join("deep/good")).unwrap();
    fs::write(place.join("deep/good/summary.json"), "{}").unwrap();
    let store = RunStore::open(place.to_str().unwrap()).unwrap();
    assert_eq!(store.runs(&GO_ON).unwrap(), [name("good")]);
    for bad in ["..", ".", "", "../x", "a/b", "/etc", "a\\b", "a b", "a\n", &"a".repeat(121)] {
        assert_eq!(RunName::new(bad), None, "{bad:?}");
    }
    // A file with holes: it has its size, and takes no room.
    let (file, most_bytes) = FILES.into_iter().find(|(file, _)| *file == "summary.json").unwrap();
    File::create(place.join("good").join(file)).unwrap().set_len(most_bytes + 1).unwrap();
    let into = folder.path().join("into");
    let error = store.download(&name("good"), &[file], &into, &GO_ON).unwrap_err();
    assert_eq!(error.tag(), "too_large", "{error}");
    assert!(!into.join("good").join(file).exists(), "nothing of it was read");
    // Of an index that is too long for memory, the newest lines are read.
    let mut index = File::create(place.join("index.jsonl")).unwrap();
    index.set_len(64 << 20).unwrap();
    index.seek(SeekFrom::End(0)).unwrap();
    index.write_all(b"\nb\nc\n").unwrap();
    assert_eq!(store.index(&GO_ON).unwrap(), ["b", "c"]);
    // Files of a run that have no known name are not read.
    let objects = Arc::new(InMemory::new());
    let put = async |path: &str| objects.put(&ObjectPath::from(path), "x".into()).await.unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    for path in ["run/summary.json", "run/.bashrc", "run/x/summary.json", "summary.json"] {
        runtime.block_on(put(path));
    }
    let store = RunStore::with_objects("memory", objects).unwrap();
    assert_eq!(store.runs(&GO_ON).unwrap(), [name("run")]);
    let back = store.download(&name("run"), &["summary.json", ".bashrc"], &into, &GO_ON).unwrap();
    assert_eq!(fs::read_dir(back).unwrap().count(), 1);
}

#[test]
fn a_run_itself_is_a_place_too_and_a_place_has_all_its_runs() {
    let folder = tempfile::tempdir().unwrap();
    let place = folder.path().join("store");
    for run in ["first", "second"] {
        fs::create_dir_all(place.join(run)).unwrap();
        fs::write(place.join(run).join("summary.json"), "{}").unwrap();
    }
    let all = |address: String, into: &str| {
        let store = RunStore::open(&address).unwrap();
        store.download_all(&["summary.json"], &folder.path().join(into), &GO_ON).unwrap()
    };
    let one = all(format!("file://{}/first/", place.display()), "one");
    assert!(one.ends_with("one/first") && one.join("summary.json").is_file(), "{one:?}");
    assert_eq!(all(format!("file://{}/first/", place.display()), "one"), one, "it is there already");
    let both = all(format!("file://{}", place.display()), "both");
    assert!(both.join("first/summary.json").is_file() && both.join("second/summary.json").is_file());
}

#[test]
fn a_place_that_makes_no_sense_is_refused_in_one_line() {
    for (place, words) in [
        ("ftp://there", "use a folder"),
        ("s3://", "the name of the bucket is missing"),
        ("s3://bucket/../x", ""),
        ("file://relative", "three slashes"),
        ("/no/such/folder", "check its name"),
        ("s3://bucket/prefix", "AWS_ACCESS_KEY_ID"),
    ] {
        let error = RunStore::open(place).map(|_| ()).unwrap_err();
        let text = error.to_string();
        assert!(error.tag() == "place" && text.contains(words) && !text.contains('\n'), "{text}");
    }
    assert!(is_address("s3://bucket") && is_address("file:///x") && !is_address("runs") && !is_address("../runs"));
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("file"), "").unwrap();
    let error = RunStore::open_to_write(folder.path().join("file").to_str().unwrap(), &GO_ON).unwrap_err();
    assert_eq!(error.tag(), "local", "{error}");
    let store = RunStore::open(folder.path().to_str().unwrap()).unwrap();
    assert_eq!(store.upload(folder.path(), RunAge::Old, &GO_ON, &mut |_| ()).unwrap_err().tag(), "not_a_run");
}
