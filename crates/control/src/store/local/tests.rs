use std::fs::{self, File};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use bytes::Bytes;

use super::{LocalDirectory, OpenError, path};
use crate::store::layout::{TRAILER_BYTES, Trailer};
use crate::store::{CorruptObject, Object, ObjectName, ObjectPrefix, PutNonce, Span, Store, StoreError, Version};

fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(future)
}

fn name(text: &str) -> ObjectName {
    ObjectName::parse(text).unwrap()
}

fn put(store: &LocalDirectory, key: &str, body: &[u8]) -> Result<Version, StoreError> {
    block_on(store.put_if_absent(&name(key), Bytes::copy_from_slice(body), PutNonce::fresh()))
}

fn get(store: &LocalDirectory, key: &str) -> Result<Object, StoreError> {
    block_on(store.get(&name(key), Span::Whole))
}

fn listed(store: &LocalDirectory) -> Vec<String> {
    let page = block_on(store.list(&ObjectPrefix::all(), None, 1000)).unwrap();
    page.objects.iter().map(|row| row.name.to_string()).collect()
}

fn scratch_files(root: &Path) -> Vec<PathBuf> {
    let owners = fs::read_dir(root.join(".nova-scratch")).unwrap().map(|entry| entry.unwrap().path());
    let files = owners.filter(|path| path.is_dir()).flat_map(|owner| fs::read_dir(owner).unwrap());
    files.map(|entry| entry.unwrap().path()).filter(|path| !path.ends_with("owner.lock")).collect()
}

/// The bytes that an object's file has.
fn file_bytes(body: &[u8]) -> Vec<u8> {
    [body, &Trailer::of(body, PutNonce::from_bytes([7; 16])).encode()].concat()
}

/// What a killed process leaves: a scratch directory that nobody holds, with one file in it.
fn leave_scratch(root: &Path, bytes: &[u8]) -> PathBuf {
    let owner = root.join(".nova-scratch/dead");
    fs::create_dir_all(&owner).unwrap();
    File::create(owner.join("owner.lock")).unwrap();
    fs::write(owner.join("draft"), bytes).unwrap();
    owner.join("draft")
}

#[test]
fn the_layout_of_a_file_is_fixed() {
    let trailer = Trailer::of(b"nova", PutNonce::from_bytes(*b"0123456789abcdef")).encode();
    let hex: String = trailer.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(hex, GOLDEN_TRAILER);
    let version = Trailer::decode(&trailer, 4).unwrap().version();
    assert_eq!(version.as_str(), GOLDEN_VERSION);
}

const GOLDEN_TRAILER: &str = concat!(
    "4e564f4201000000",
    "30313233343536373839616263646566",
    "0400000000000000",
    "29f0317906165249",
    "a8145f37a9f3e8f6",
);
const GOLDEN_VERSION: &str = "495216067931f029-30313233343536373839616263646566";

#[test]
fn every_flipped_bit_of_the_closing_bytes_shows() {
    let good = Trailer::of(b"body", PutNonce::from_bytes([3; 16])).encode();
    assert!(Trailer::decode(&good, 4).is_ok());
    for bit in 0..TRAILER_BYTES * 8 {
        let mut bad = good;
        bad[bit / 8] ^= 1 << (bit % 8);
        assert!(Trailer::decode(&bad, 4).is_err(), "bit {bit}");
    }
}

#[test]
fn file_names_are_fixed_and_escape_what_is_not_plain() {
    for (key, file) in [
        ("meta/buckets/orders-1", "meta/buckets/orders-1.obj"),
        ("a.b/c d", "a%2Eb/c%20d.obj"),
        ("...", "%2E%2E%2E.obj"),
        ("%41", "%2541.obj"),
        ("é", "%C3%A9.obj"),
    ] {
        assert_eq!(path::of_object(&name(key)), PathBuf::from(file));
    }
    assert_eq!(path::object_entry("%C3%A9.obj"), Some(path::Entry::Object("é".to_owned())));
    for foreign in ["a", ".obj", "a.b.obj", "%41.obj", "%2e.obj", "%C3.obj", "%.obj", "%4.obj"] {
        assert_eq!(path::object_entry(foreign), None, "{foreign}");
    }
}

#[test]
fn a_kill_before_the_link_leaves_no_object() {
    for bytes in [&b""[..], b"half of wh", &file_bytes(b"whole")] {
        let root = tempfile::tempdir().unwrap();
        put(&LocalDirectory::open(root.path()).unwrap(), "kept", b"kept").unwrap();
        leave_scratch(root.path(), bytes);
        let store = LocalDirectory::open(root.path()).unwrap();
        assert_eq!(scratch_files(root.path()), Vec::<PathBuf>::new());
        assert_eq!(listed(&store), ["kept"]);
    }
}

#[test]
fn a_kill_between_link_and_sync_leaves_the_object() {
    let root = tempfile::tempdir().unwrap();
    put(&LocalDirectory::open(root.path()).unwrap(), "kept", b"kept").unwrap();
    let draft = leave_scratch(root.path(), &file_bytes(b"linked"));
    fs::hard_link(&draft, root.path().join("linked.obj")).unwrap();
    let store = LocalDirectory::open(root.path()).unwrap();
    assert_eq!(scratch_files(root.path()), Vec::<PathBuf>::new());
    assert_eq!(get(&store, "linked").unwrap().body, "linked");
    assert!(matches!(put(&store, "linked", b"other"), Err(StoreError::AlreadyExists { .. })));
}

#[test]
fn a_kill_around_the_rename_leaves_the_old_or_the_new_object() {
    for renamed in [false, true] {
        let root = tempfile::tempdir().unwrap();
        let old = put(&LocalDirectory::open(root.path()).unwrap(), "swapped", b"old").unwrap();
        let draft = leave_scratch(root.path(), &file_bytes(b"new"));
        let second = draft.with_file_name("renamed");
        fs::hard_link(&draft, &second).unwrap();
        if renamed {
            fs::rename(&second, root.path().join("swapped.obj")).unwrap();
        }
        let store = LocalDirectory::open(root.path()).unwrap();
        let found = get(&store, "swapped").unwrap();
        assert_eq!(found.body, if renamed { "new" } else { "old" });
        assert_eq!(found.meta.version == old, !renamed);
        let next = block_on(store.put_if_match(&name("swapped"), &found.meta.version, Bytes::new(), PutNonce::fresh()));
        next.unwrap();
        assert_eq!(scratch_files(root.path()), Vec::<PathBuf>::new());
    }
}

#[test]
fn what_a_living_process_is_writing_is_left_alone() {
    let root = tempfile::tempdir().unwrap();
    let living = LocalDirectory::open(root.path()).unwrap();
    let draft = living.files.scratch_path();
    fs::write(&draft, b"being written").unwrap();
    let second = LocalDirectory::open(root.path()).unwrap();
    assert_eq!(scratch_files(root.path()), std::slice::from_ref(&draft));
    drop((living, second));
    LocalDirectory::open(root.path()).unwrap();
    assert!(!draft.exists());
}

#[test]
fn after_a_failed_sync_nothing_is_written_and_nothing_unsynced_is_read() {
    let root = tempfile::tempdir().unwrap();
    let store = LocalDirectory::open(root.path()).unwrap();
    let version = put(&store, "synced", b"1").unwrap();
    let draft = store.files.scratch_path();
    fs::write(&draft, file_bytes(b"2")).unwrap();
    fs::hard_link(&draft, store.path_of(&name("unsynced"))).unwrap();
    store.files.fail_syncs();
    assert_eq!(get(&store, "synced").unwrap().body, "1");
    let refused = [
        get(&store, "unsynced").map(drop),
        put(&store, "new", b"3").map(drop),
        block_on(store.put_if_match(&name("synced"), &version, Bytes::new(), PutNonce::fresh())).map(drop),
        block_on(store.delete(&name("synced"))),
        block_on(store.list(&ObjectPrefix::all(), None, 10)).map(drop),
    ];
    for answer in refused {
        let error = answer.unwrap_err();
        assert!(error.to_string().contains("an earlier sync failed"), "{error}");
    }
    drop(store);
    fs::remove_dir_all(draft.parent().unwrap()).unwrap();
    assert_eq!(listed(&LocalDirectory::open(root.path()).unwrap()), ["synced", "unsynced"]);
}

#[test]
fn a_damaged_object_is_named_and_left_as_it_stands() {
    let root = tempfile::tempdir().unwrap();
    let store = LocalDirectory::open(root.path()).unwrap();
    put(&store, "meta/one", b"some body").unwrap();
    let file = store.path_of(&name("meta/one"));
    let good = fs::read(&file).unwrap();
    let flipped = |at: usize| {
        let mut bytes = good.clone();
        bytes[at] ^= 0x10;
        bytes
    };
    let cases = [
        (flipped(0), "hash to"),
        (flipped(good.len() - 1), "last 48 bytes"),
        (good[1..].to_vec(), "8 bytes of body are there, 9 were written"),
        (good[..good.len() - 1].to_vec(), "last 48 bytes"),
        (b"short".to_vec(), "it has 5 bytes"),
        (Vec::new(), "it has 0 bytes"),
    ];
    for (bytes, says) in cases {
        fs::write(&file, &bytes).unwrap();
        let error = get(&store, "meta/one").unwrap_err();
        assert!(matches!(&error, StoreError::Corrupt { target, .. } if target == "meta/one"), "{error}");
        assert!(error.to_string().contains(says), "{error}");
        assert!(put(&store, "meta/one", b"new").is_err());
        assert_eq!(fs::read(&file).unwrap(), bytes);
        assert_eq!(listed(&store), ["meta/one"]);
    }
}

#[test]
fn an_object_of_a_later_layout_is_refused_by_its_number() {
    let mut trailer = Trailer::of(b"", PutNonce::from_bytes([1; 16])).encode();
    trailer[4] = 9;
    let own = xxhash_rust::xxh3::xxh3_64(&trailer[..40]).to_le_bytes();
    trailer[40..].copy_from_slice(&own);
    assert_eq!(Trailer::decode(&trailer, 0), Err(CorruptObject::Layout { found: 9, known: 1 }));
}

#[test]
fn a_file_that_is_no_objects_is_named_by_a_listing() {
    let root = tempfile::tempdir().unwrap();
    let store = LocalDirectory::open(root.path()).unwrap();
    put(&store, "meta/one", b"1").unwrap();
    fs::write(root.path().join("meta/one.bak"), b"?").unwrap();
    let error = block_on(store.list(&ObjectPrefix::all(), None, 10)).unwrap_err();
    assert!(error.to_string().contains("one.bak"), "{error}");
}

#[test]
fn what_is_not_a_store_is_refused_and_left_alone() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join("letter.txt"), b"Dear").unwrap();
    let error = LocalDirectory::open(root.path()).unwrap_err();
    assert!(matches!(&error, OpenError::Foreign { found, .. } if found == "letter.txt"), "{error}");
    assert_eq!(fs::read_dir(root.path()).unwrap().count(), 1);

    for file in [root.path().join("letter.txt"), root.path().join("letter.txt/store")] {
        let error = LocalDirectory::open(&file).unwrap_err();
        assert!(matches!(error, OpenError::NotADirectory { .. }), "{error}");
    }
}

#[test]
fn a_store_of_another_layout_is_refused() {
    let root = tempfile::tempdir().unwrap();
    fs::write(root.path().join(".nova-store"), b"nova store, layout 2\n").unwrap();
    let error = LocalDirectory::open(root.path()).unwrap_err();
    assert!(matches!(&error, OpenError::Layout { found, .. } if found.contains("layout 2")), "{error}");
}

#[test]
fn a_new_file_system_and_a_missing_directory_become_stores() {
    let root = tempfile::tempdir().unwrap();
    fs::create_dir(root.path().join("lost+found")).unwrap();
    let store = LocalDirectory::open(root.path()).unwrap();
    put(&store, "a", b"1").unwrap();
    assert_eq!(listed(&store), ["a"]);
    put(&LocalDirectory::open(&root.path().join("deep/er")).unwrap(), "a", b"1").unwrap();
}

#[test]
fn a_directory_that_can_not_be_written_is_refused_in_one_line() {
    // The one place that refuses root too.
    let error = LocalDirectory::open(Path::new("/sys/nova-store-test")).unwrap_err();
    assert!(matches!(error, OpenError::ReadOnly { .. }), "{error:?}");
    assert_eq!(error.to_string().lines().count(), 1);
}

/// Runs one ignored test of this binary as a child; `wrap` is a command line to run it under.
fn child(wrap: &[&str], test: &str, root: &Path) -> Command {
    let own = std::env::current_exe().unwrap();
    let full = format!("store::local::tests::{test}");
    let mut command = if let [program, args @ ..] = wrap {
        let mut command = Command::new(program);
        command.args(args).arg(own);
        command
    } else {
        Command::new(own)
    };
    command.args(["--exact", &full, "--ignored", "--nocapture", "--test-threads=1"]);
    command.env("NOVA_TEST_STORE", root);
    command
}

fn child_root() -> PathBuf {
    std::env::var_os("NOVA_TEST_STORE").expect("run by the test that needs it").into()
}

#[test]
#[ignore = "the child of a_full_disk_refuses_and_keeps_what_is_there, inside its own mount"]
fn child_fills_the_disk() {
    let store = LocalDirectory::open(&child_root()).unwrap();
    let big = vec![7; 100 * 1024];
    let kept = (0..).find(|i| put(&store, &format!("big/{i}"), &big).is_err()).unwrap();
    let error = put(&store, "big/over", &big).unwrap_err();
    assert!(matches!(error, StoreError::Full { .. }), "{error:?}");
    assert_eq!(listed(&store).len(), kept);
    for i in 0..kept {
        assert_eq!(get(&store, &format!("big/{i}")).unwrap().body, big);
    }
    block_on(store.delete(&name("big/0"))).unwrap();
    put(&store, "big/over", &big).unwrap();
    assert_eq!(scratch_files(store.root()), Vec::<PathBuf>::new());
    println!("filled at {kept}");
}

#[test]
fn a_full_disk_refuses_and_keeps_what_is_there() {
    let root = tempfile::tempdir().unwrap();
    let mount = format!("mount -t tmpfs -o size=1m none {} && exec \"$@\"", root.path().display());
    let wrap = ["unshare", "--user", "--map-root-user", "--mount", "sh", "-c", &mount, "sh"];
    let probe = Command::new(wrap[0]).args(&wrap[1..]).arg("true").output();
    if !probe.is_ok_and(|output| output.status.success()) {
        eprintln!("skipped: this host lets nobody mount a tmpfs of their own");
        return;
    }
    let output = child(&wrap, "child_fills_the_disk", root.path()).output().unwrap();
    let said = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && said.contains("filled at"), "{said}");
}

#[test]
#[ignore = "the child of a_killed_writer_loses_nothing_that_it_acked"]
fn child_writes_until_killed() {
    let store = LocalDirectory::open(&child_root()).unwrap();
    let run = std::process::id();
    let mut version = block_on(store.head(&name("counter"))).unwrap().version;
    for i in 1_u64.. {
        put(&store, &format!("made/{run}-{i}"), &i.to_le_bytes()).unwrap();
        let next = Bytes::copy_from_slice(&i.to_le_bytes());
        version = block_on(store.put_if_match(&name("counter"), &version, next, PutNonce::fresh())).unwrap();
        println!("\nacked {run} {i}");
        std::io::stdout().flush().unwrap();
    }
}

#[test]
fn a_killed_writer_loses_nothing_that_it_acked() {
    let root = tempfile::tempdir().unwrap();
    put(&LocalDirectory::open(root.path()).unwrap(), "counter", &[0; 8]).unwrap();
    for round in 0..8_u64 {
        let mut writer = child(&[], "child_writes_until_killed", root.path()).stdout(Stdio::piped()).spawn().unwrap();
        let run = writer.id();
        let lines = BufReader::new(writer.stdout.take().unwrap()).lines();
        let acks = lines.map_while(Result::ok).filter_map(|line| line.strip_prefix("acked ").map(str::to_owned));
        let mut acks = acks.map(|ack| ack.split_once(' ').unwrap().1.parse::<u64>().unwrap());
        let first = acks.next().unwrap();
        std::thread::sleep(Duration::from_micros(2_000 + round * 1_700));
        writer.kill().unwrap();
        writer.wait().unwrap();
        let last = acks.last().unwrap_or(first);

        let store = LocalDirectory::open(root.path()).unwrap();
        assert_eq!(scratch_files(root.path()), Vec::<PathBuf>::new());
        let counted = get(&store, "counter").unwrap().body;
        let counted = u64::from_le_bytes(counted[..].try_into().unwrap());
        assert!(counted == last || counted == last + 1, "counted {counted}, acked {last}");
        for i in 1..=last {
            assert_eq!(get(&store, &format!("made/{run}-{i}")).unwrap().body, i.to_le_bytes()[..]);
        }
        for key in listed(&store) {
            get(&store, &key).unwrap();
        }
    }
}
