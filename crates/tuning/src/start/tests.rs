//! Does each check let the good through, and refuse the bad in one sentence with a remedy?

use std::fs;
use std::mem::MaybeUninit;
use std::os::fd::OwnedFd;
use std::path::Path;

use rustix::fs::inotify;
use rustix::process::Rlimit;

use super::directory::{DataDirectory, DirectoryError};
use super::limits::{LimitError, Verdict, judge, open_files_error, open_files_needed};
use super::{Notice, StartError, prepare};
use crate::plan::Plan;
use crate::settings::{Listener, Settings};
use crate::units::Bytes;

/// A folder on a disk: `/tmp` is in memory on some hosts, and would be refused.
fn disk_folder() -> tempfile::TempDir {
    tempfile::tempdir_in("/var/tmp").unwrap()
}

fn entries(path: &Path) -> Vec<String> {
    let names = fs::read_dir(path).unwrap();
    let mut names: Vec<_> = names.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn a_new_directory_is_made_with_its_parents_and_opens_again() {
    let folder = disk_folder();
    let path = folder.path().join("a/b/nova-data");
    let data = DataDirectory::open(&path).unwrap();
    assert_eq!(data.path(), path.canonicalize().unwrap());
    assert_eq!(entries(&path), ["FORMAT", "LOCK"]);
    drop(data);
    DataDirectory::open(&path).unwrap();
}

/// Whether a directory itself was opened, as whoever syncs it does, since this was asked last.
fn was_opened(watch: &OwnedFd) -> bool {
    let mut room = [MaybeUninit::uninit(); 512];
    let mut events = inotify::Reader::new(watch, &mut room);
    let mut was_opened = false;
    while let Ok(event) = events.next() {
        was_opened |= event.file_name().is_none();
    }
    was_opened
}

#[test]
fn the_names_of_all_directories_that_may_be_new_are_synced_before_the_directory_is_ours() {
    let folder = disk_folder();
    let path = folder.path().join("a/b/nova-data");
    // As if a first start had been killed right after it made them.
    fs::create_dir_all(&path).unwrap();
    let watched: Vec<_> = path
        .ancestors()
        .skip(1)
        .take(3)
        .map(|above| {
            let watch = inotify::init(inotify::CreateFlags::NONBLOCK).unwrap();
            inotify::add_watch(&watch, above, inotify::WatchFlags::OPEN | inotify::WatchFlags::ONLYDIR).unwrap();
            (above, watch)
        })
        .collect();
    let data = DataDirectory::open(&path).unwrap();
    for (above, watch) in &watched {
        assert!(was_opened(watch), "{}", above.display());
    }
    drop(data);
    DataDirectory::open(&path).unwrap();
    assert!(watched.iter().all(|(_, watch)| !was_opened(watch)), "once is enough");
}

#[test]
fn what_the_system_says_of_the_path_is_told() {
    let folder = disk_folder();
    let looped = folder.path().join("loop");
    std::os::unix::fs::symlink(&looped, &looped).unwrap();
    let error = DataDirectory::open(&looped).unwrap_err();
    assert!(error.to_string().contains("symbolic links"), "{error}");
}

#[test]
fn a_second_one_on_the_same_directory_is_refused_with_the_pid_of_the_first() {
    let folder = disk_folder();
    let first = DataDirectory::open(folder.path()).unwrap();
    let error = DataDirectory::open(folder.path()).unwrap_err();
    let own_pid = std::process::id();
    assert!(matches!(error, DirectoryError::Locked { pid: Some(pid), .. } if pid == own_pid));
    assert!(error.to_string().contains(&format!("(process {own_pid})")), "{error}");
    drop(first);
    DataDirectory::open(folder.path()).unwrap();
}

#[test]
fn another_format_is_refused_with_both_versions_and_left_as_it_was() {
    let folder = disk_folder();
    fs::write(folder.path().join("FORMAT"), "nova data 7\n").unwrap();
    let error = DataDirectory::open(folder.path()).unwrap_err();
    assert!(matches!(error, DirectoryError::OtherFormat { found: 7, .. }));
    let text = error.to_string();
    assert!(text.contains("format 7") && text.contains("format 2"), "{text}");
    assert_eq!(fs::read_to_string(folder.path().join("FORMAT")).unwrap(), "nova data 7\n");
}

#[test]
fn a_directory_of_something_else_is_refused() {
    for (name, bytes) in [("photo.jpg", &b"x"[..]), ("FORMAT", b"PNG 1"), ("FORMAT", &[0xff, 0])] {
        let folder = disk_folder();
        fs::write(folder.path().join(name), bytes).unwrap();
        let error = DataDirectory::open(folder.path()).unwrap_err();
        assert!(matches!(&error, DirectoryError::Foreign { found, .. } if found == name), "{error}");
    }
}

#[test]
fn what_a_crash_while_it_was_made_left_behind_opens_as_new() {
    let folder = disk_folder();
    fs::write(folder.path().join("LOCK"), "12\n").unwrap();
    fs::write(folder.path().join("FORMAT.new"), "nova d").unwrap();
    fs::create_dir(folder.path().join("lost+found")).unwrap();
    DataDirectory::open(folder.path()).unwrap();
    assert_eq!(fs::read_to_string(folder.path().join("FORMAT")).unwrap(), "nova data 2\n");
}

#[test]
fn a_file_is_no_directory_and_a_file_system_in_memory_is_refused() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let error = DataDirectory::open(file.path()).unwrap_err();
    assert!(matches!(error, DirectoryError::NotDirectory { .. }), "{error}");

    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let error = DataDirectory::open(memory.path()).unwrap_err();
    assert!(error.to_string().contains("is on tmpfs"), "{error}");
    assert!(entries(memory.path()).is_empty(), "a refused directory stays as it was");
}

#[test]
fn a_directory_that_the_kernel_does_not_let_us_make_or_that_holds_its_files_is_refused() {
    let error = DataDirectory::open(Path::new("/proc/self/nova-data")).unwrap_err();
    assert!(matches!(error, DirectoryError::Make { .. }), "{error}");
    let error = DataDirectory::open(Path::new("/proc/self/fdinfo")).unwrap_err();
    assert!(matches!(error, DirectoryError::Foreign { .. }), "{error}");
}

#[test]
fn a_soft_limit_is_raised_as_far_as_the_hard_one_allows() {
    let limit = |current, maximum| Rlimit { current, maximum };
    assert_eq!(judge(limit(None, None), 10), Verdict::Enough);
    assert_eq!(judge(limit(Some(10), Some(10)), 10), Verdict::Enough);
    assert_eq!(judge(limit(Some(9), Some(9)), 10), Verdict::TooSmall);
    let raised = limit(Some(10), Some(20));
    assert_eq!(judge(limit(Some(9), Some(20)), 10), Verdict::Raise(raised));
    assert_eq!(judge(limit(Some(9), None), 10), Verdict::Raise(limit(Some(10), None)));
}

#[test]
fn too_few_files_names_what_would_fit() {
    let allowed = open_files_needed(2, 500, 70);
    let error = open_files_error(allowed, 2, 4_096, 70);
    assert!(matches!(error, LimitError::OpenFiles { connections_fitting: 500, .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("connections_max = 4096") && text.ends_with("connections_max to 500"));
    let error = open_files_error(100, 2, 4_096, 0).to_string();
    assert!(error.ends_with("or lower connections_max"), "{error}");
}

#[test]
fn too_little_locked_memory_names_both_sizes() {
    let (allowed, needed) = (Bytes::new(65_536), Bytes::new(super::limits::MEMLOCK_BYTES_MIN));
    let text = LimitError::Memlock { allowed, needed }.to_string();
    assert!(text.contains("may lock 64KiB of memory and needs 512KiB"), "{text}");
    assert!(text.contains("ulimit -l 512"), "{text}");
}

fn settings_in(path: &Path) -> Settings {
    let data = path.join("nova-data");
    Settings { data, shards: 1, connections_max: 16, http: Listener::Off, ..Settings::default() }
}

#[test]
fn a_good_host_is_prepared_and_its_directory_held() {
    let folder = disk_folder();
    let settings = settings_in(folder.path());
    let prepared = prepare(&settings, |_| false).unwrap();
    assert_eq!(prepared.plan.shard_cpus().len(), 1);
    assert_eq!(prepared.log_bytes_max, settings.log.bytes_max);
    assert!(!prepared.rooms.is_any_low() && prepared.rooms.store.is_some());
    assert_eq!(prepared.rooms.each().count(), 1, "the store lies on the same disk");
    let second = prepare(&settings, |_| false).unwrap_err();
    assert!(matches!(second, StartError::Directory(DirectoryError::Locked { .. })), "{second}");
}

#[test]
fn more_shards_than_cpus_are_told() {
    let folder = disk_folder();
    let mut settings = Settings { shards: 64, ..settings_in(folder.path()) };
    settings.log.segment_bytes = Bytes::mib(8);
    let prepared = prepare(&settings, |_| false).unwrap();
    if crate::host::cpus_allowed().len() <= 64 {
        assert!(prepared.notices.iter().any(|notice| matches!(notice, Notice::CoresShared { .. })));
    }
}

#[test]
fn new_logs_want_room_and_those_that_are_there_are_served_anyhow() {
    let folder = disk_folder();
    let mut settings = Settings { shards: 64, ..settings_in(folder.path()) };
    settings.log.segment_bytes = Bytes::gib(1);
    // 64 logs of four such segments: more than a disk for tests has.
    if crate::host::disk_bytes(folder.path()).unwrap() > Bytes::gib(256).get() {
        return;
    }
    let error = prepare(&settings, |_| false).unwrap_err();
    assert_eq!(error.reason(), wire::reason::Reason::ResourceExhausted, "{error}");
    assert!(error.to_string().contains("64 head logs of 4 segments of 1GiB"), "{error}");
    let prepared = prepare(&settings, |_| true).unwrap();
    assert!(prepared.rooms.is_any_low());
    assert!(prepared.notices.iter().any(|notice| notice.to_string().contains("no records are taken")));
}

#[test]
fn shards_that_are_where_the_plan_has_none_are_told_in_a_line() {
    let settings = Settings::default();
    let cpus = crate::host::cpus_allowed();
    let suited = Plan::new(0, &cpus);
    if cpus.len() <= 4 {
        assert_eq!(super::plan_left(&settings, &suited), None, "what novad does by itself suits a small host");
    }
    let elsewhere = Plan::new(1, &[cpus[0]]);
    if cpus.len() > 1 {
        let told = super::plan_left(&settings, &elsewhere).unwrap().to_string();
        assert!(told.contains(&format!("on CPU {}", cpus[0])) && told.contains("nova host plan"), "{told}");
    }
}
