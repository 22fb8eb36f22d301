//! Is a measurement gone by where it holds, and left out with the reason where it does not?

use std::fs;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use super::{CommitMethod, DiskId, Doubt, Measurement, Method, Timed, kept_at, method};
use crate::settings::{Layers, LogSync, Settings};

const KIB: u64 = 1 << 10;
/// Some day in 2026.
const THEN_MS: u64 = 1_780_000_000_000;

fn at(days: i64) -> SystemTime {
    let then = UNIX_EPOCH + Duration::from_millis(THEN_MS);
    let time = Duration::from_secs(days.unsigned_abs() * 86_400);
    if days < 0 { then - time } else { then + time }
}

fn timed(method: Method, depth: u16, kib: u64, p50_us: f64) -> Timed {
    let write_bytes = kib * KIB;
    let bytes_per_s = f64::from(depth) * f64::from(u32::try_from(write_bytes).unwrap()) / p50_us * 1e6;
    Timed { write_bytes, method, depth, p50_us, p99_us: Some(p50_us * 3.0), bytes_per_s }
}

/// A disk whose methods take so long at depth 1, at every size: in place, by dsync and by fdatasync through a ring. With more at
/// once each write takes so many times as long.
fn disk([in_place, dsync, fdatasync]: [f64; 3], slower: [f64; 3]) -> Vec<Timed> {
    let mut writes = Vec::new();
    for kib in [4, 8, 16, 64, 1_024] {
        writes.push(timed(Method::RwfDsync, 1, kib, in_place));
        for (depth, slower) in [1, 2, 4].into_iter().zip(slower) {
            writes.push(timed(Method::RingDsync, depth, kib, dsync * slower));
            writes.push(timed(Method::RingFdatasync, depth, kib, fdatasync * slower));
        }
    }
    writes
}

/// What is chosen: the sync, whether in place, and how many in flight.
fn chosen(writes: &[Timed]) -> (LogSync, bool, u16) {
    let CommitMethod { sync, inline_commit, commits_in_flight, .. } = CommitMethod::judge(writes).unwrap();
    (sync, inline_commit, commits_in_flight)
}

/// More at once bring somewhat more.
const USUAL: [f64; 3] = [1.0, 1.4, 2.2];

#[test]
fn the_defaults_stay_unless_something_else_is_clearly_better() {
    use LogSync::{Dsync, Fdatasync};
    for (times, slower, wanted) in [
        ([90.0, 100.0, 150.0], USUAL, (Dsync, true, 2)),
        ([90.0, 100.0, 97.0], USUAL, (Dsync, true, 2)),
        ([90.0, 100.0, 80.0], USUAL, (Fdatasync, false, 2)),
        ([78.0, 100.0, 80.0], USUAL, (Fdatasync, true, 2)),
        ([103.0, 100.0, 150.0], USUAL, (Dsync, true, 2)),
        ([110.0, 100.0, 150.0], USUAL, (Dsync, false, 2)),
        // Quicker in place, and too long for a shard to stand still.
        ([8_000.0, 9_000.0, 9_500.0], USUAL, (Dsync, false, 2)),
        // Two at once get in each other's way; four bring half as much again.
        ([90.0, 100.0, 150.0], [1.0, 2.2, 4.4], (Dsync, true, 1)),
        ([90.0, 100.0, 150.0], [1.0, 1.4, 1.8], (Dsync, true, 4)),
    ] {
        assert_eq!(chosen(&disk(times, slower)), wanted, "{times:?} {slower:?}");
    }
}

#[test]
fn a_size_that_something_disturbed_does_not_count() {
    let mut writes = disk([90.0, 100.0, 150.0], USUAL);
    for timed in writes.iter_mut().filter(|timed| timed.write_bytes == 4 * KIB && timed.method == Method::RingDsync) {
        timed.p50_us *= 10.0;
    }
    for timed in writes.iter_mut().filter(|timed| timed.write_bytes == 16 * KIB && timed.method == Method::RwfDsync) {
        timed.p50_us *= 100.0;
    }
    assert_eq!(chosen(&writes), (LogSync::Dsync, true, 2));
}

#[test]
fn only_what_a_head_log_does_is_chosen_by_whatever_else_was_timed() {
    // As quick as nothing, and nothing that commits are made by.
    let mut writes = disk([90.0, 100.0, 150.0], USUAL);
    writes.push(timed(Method::WriteFdatasync, 1, 4, 1.0));
    writes.push(timed(Method::RingFdatasync, 32, 64, 1.0));
    writes.push(timed(Method::RingFdatasync, 1, 512, 1.0));
    let method = CommitMethod::judge(&writes).unwrap();
    assert_eq!((method.sync, method.commits_in_flight), (LogSync::Dsync, 2));
    for (name, value) in CommitMethod::SETTINGS.into_iter().zip(method.values()) {
        let setting = Settings::all().find(|setting| setting.name == name).unwrap();
        Layers::default().flag(setting, &value).unwrap();
    }
    assert!(
        method.how.starts_with("16 KiB are durable after 90 µs in place, 100 µs by dsync, 150 µs by"),
        "{method:?}"
    );
    assert!(method.how.contains("MB/s 4 at once"), "{method:?}");
}

#[test]
fn blocking_writes_alone_say_how_to_sync_and_nothing_at_all_says_nothing() {
    let blocking =
        |dsync, fdatasync| [timed(Method::Dsync, 1, 16, dsync), timed(Method::WriteFdatasync, 1, 16, fdatasync)];
    assert_eq!(chosen(&blocking(100.0, 150.0)), (LogSync::Dsync, true, 2));
    assert_eq!(chosen(&blocking(100.0, 50.0)), (LogSync::Fdatasync, true, 2));
    assert_eq!(CommitMethod::judge(&[]), None);
    assert_eq!(CommitMethod::judge(&[timed(Method::RingDsync, 1, 16, 1.0)]), None);
    assert_eq!(CommitMethod::judge(&disk([1.0; 3], USUAL)[28..]), None, "no commit has a MiB");
}

/// Keeps a measurement of the disk below `folder` for the data in it; answers the data.
fn keep(folder: &Path, change: impl FnOnce(&mut Measurement)) -> std::path::PathBuf {
    let data = folder.join("data");
    let here = DiskId::below(folder).unwrap();
    let writes = disk([110.0, 100.0, 80.0], USUAL);
    let mut measurement = Measurement::new(THEN_MS, "6.18.1".to_owned(), here, true, writes);
    change(&mut measurement);
    assert_eq!(measurement.keep(&data).unwrap(), kept_at(&data));
    data
}

#[test]
fn what_is_kept_is_read_back_on_its_disk_for_as_long_as_it_counts() {
    let folder = tempfile::tempdir().unwrap();
    let data = keep(folder.path(), |_| ());
    assert_eq!(fs::read_dir(folder.path()).unwrap().count(), 1, "the draft has gone");
    for (days, says) in [(0, "within a day"), (1, "a day ago"), (90, "90 days ago"), (-1, "within a day")] {
        let found = method(&data, at(days)).unwrap().unwrap();
        assert_eq!((found.sync, found.inline_commit), (LogSync::Fdatasync, false));
        assert!(found.how.ends_with(says), "{found:?}");
    }
    assert!(matches!(method(&data, at(91)), Err(Doubt::Old { days: 91 })));
    assert!(matches!(method(&data, at(-2)), Err(Doubt::Ahead { days: 2 })));
    assert!(matches!(method(&folder.path().join("other"), at(0)), Ok(None)));
}

#[test]
fn another_disk_or_another_state_of_it_is_told_with_both() {
    let folder = tempfile::tempdir().unwrap();
    let changes: [fn(&mut DiskId); 5] = [
        |disk| disk.file_system = "befs".to_owned(),
        |disk| disk.number = "12".to_owned(),
        |disk| disk.model = Some("an older\n drive".to_owned()),
        |disk| disk.device_bytes = Some(1 << 30),
        |disk| disk.write_cache = Some("write around".to_owned()),
    ];
    for change in changes {
        let data = keep(folder.path(), |measurement| change(&mut measurement.disk));
        let doubt = method(&data, at(0)).unwrap_err();
        assert!(matches!(doubt, Doubt::OtherDisk { .. }), "{doubt}");
        let text = doubt.to_string();
        let here = DiskId::below(folder.path()).unwrap().to_string();
        assert!(text.contains(&here) && !text.contains('\n') && text.contains(", and the data are on "), "{text}");
    }
    // Names of devices change at a restart.
    let data = keep(folder.path(), |measurement| measurement.disk.device = Some("sdz".to_owned()));
    assert!(method(&data, at(0)).unwrap().is_some());
    let data = keep(folder.path(), |measurement| measurement.is_direct = false);
    assert!(matches!(method(&data, at(0)), Err(Doubt::Cached)));
    let data = keep(folder.path(), |measurement| measurement.writes.clear());
    assert!(matches!(method(&data, at(0)), Err(Doubt::TooFew)));
}

#[test]
fn a_damaged_file_is_told_and_never_a_crash() {
    let folder = tempfile::tempdir().unwrap();
    let data = keep(folder.path(), |_| ());
    let whole = fs::read_to_string(kept_at(&data)).unwrap();
    let spoilt = |text: &str| {
        fs::write(kept_at(&data), text).unwrap();
        method(&data, at(0)).unwrap_err()
    };
    let cut = (0..whole.trim_end().len()).step_by(97).map(|end| whole[..end].to_owned());
    let others = [
        "[]".to_owned(),
        "null".to_owned(),
        "\u{0}\u{1b}[2J".to_owned(),
        "{\"format\":1}".to_owned(),
        whole.replace("ring_dsync", "ring_hopes"),
        whole.replace("\"depth\": 1", "\"depth\": 0"),
        whole.replace("\"depth\": 1", "\"depth\": 70000"),
        whole.replace("\"p50_us\": 110.0", "\"p50_us\": -1"),
        whole.replace("\"p50_us\": 110.0", "\"p50_us\": null"),
        whole.replace("\"p50_us\": 110.0", "\"p50_us\": 1e999"),
        "[".repeat(100_000),
        " ".repeat(1 << 20),
    ];
    for text in cut.chain(others) {
        let doubt = spoilt(&text);
        assert!(matches!(doubt, Doubt::Damaged { .. }), "{doubt}: {text}");
        assert!(!doubt.to_string().contains(char::is_control), "{doubt}");
    }
    assert!(matches!(spoilt("{\"format\":2,\"more\":[]}"), Doubt::OtherFormat { found: 2 }));
    fs::remove_file(kept_at(&data)).unwrap();
    fs::create_dir(kept_at(&data)).unwrap();
    assert!(matches!(method(&data, at(0)), Err(Doubt::Unreadable { .. })));
}

#[test]
fn the_file_lies_beside_the_data_under_their_name() {
    assert_eq!(kept_at(Path::new("/var/lib/nova")), Path::new("/var/lib/nova.disk.json"));
    assert_eq!(kept_at(Path::new("/var/lib/nova.d/")), Path::new("/var/lib/nova.d.disk.json"));
    let here = std::env::current_dir().unwrap();
    assert_eq!(kept_at(Path::new("nova-data")), here.join("nova-data.disk.json"));
    let name = format!("{}.disk.json", here.file_name().unwrap().display());
    assert_eq!(kept_at(Path::new("src/..")), here.with_file_name(name));
}
