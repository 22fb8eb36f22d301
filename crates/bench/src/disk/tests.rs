use std::time::Duration;

use tuning::measured::Method;

use super::{DiskOptions, run};

fn options(directory: &std::path::Path) -> DiskOptions {
    DiskOptions {
        sizes: vec![4 << 10, 64 << 10],
        rung: Duration::from_millis(30),
        file_bytes: 4 << 20,
        ..DiskOptions::ladder(directory.to_owned())
    }
}

#[test]
fn the_ladder_has_a_rung_a_size_and_method_and_leaves_nothing_behind() {
    let directory = tempfile::tempdir().unwrap();
    let mut told = Vec::new();
    let report = run(&options(directory.path()), &mut |progress| told.push(*progress)).unwrap();
    let rungs: Vec<_> = report.rungs.iter().map(|rung| (rung.write_bytes, rung.method)).collect();
    let expected: Vec<_> =
        [4 << 10, 64 << 10].into_iter().flat_map(|size| Method::BLOCKING.map(|method| (size, method))).collect();
    assert_eq!(rungs, expected);
    for rung in &report.rungs {
        assert!(rung.latency_us.samples > 0 && rung.bytes_per_s > 0.0, "{rung:?}");
    }
    assert_eq!(told.len(), 6);
    assert_eq!(told[5].percent, Some(100.0));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    assert_eq!(report.to_string().matches("← floor").count(), 2);
    let json = serde_json::to_value(&report).unwrap();
    assert_eq!(json["rungs"][0]["method"], "write_fdatasync");
    assert!(json["host"]["kernel"].is_string() && json["settings"]["rung_seconds"].is_f64());
}

#[test]
fn the_floor_of_a_size_is_its_quickest_method() {
    let directory = tempfile::tempdir().unwrap();
    let mut report = run(&options(directory.path()), &mut |_| ()).unwrap();
    for (rung, p50) in report.rungs.iter_mut().zip([30.0, 10.0, 20.0, 1.0, 2.0, 3.0]) {
        rung.latency_us.p50 = Some(p50);
    }
    assert_eq!(report.floor(4 << 10).map(|rung| rung.method), Some(Method::Dsync));
    assert_eq!(report.floor(8 << 10), None);
}

#[test]
fn writes_through_a_ring_have_a_rung_a_depth_and_are_no_floor_but_alone() {
    let directory = tempfile::tempdir().unwrap();
    let methods = [Method::RwfDsync].into_iter().chain(Method::RING).collect();
    let cpu = tuning::host::cpus_allowed().first().copied();
    let options = DiskOptions { methods, depths: vec![1, 2], cpu, ..options(directory.path()) };
    let mut report = run(&options, &mut |_| ()).unwrap();
    let steps: Vec<_> = report.rungs.iter().map(|rung| (rung.write_bytes, rung.method, rung.depth)).collect();
    assert_eq!(steps, options.steps());
    assert_eq!(steps.len(), 2 * 5);
    assert!(report.rungs.iter().all(|rung| rung.latency_us.samples >= rung.depth as u64 && rung.bytes_per_s > 0.0));
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    for rung in &mut report.rungs {
        rung.latency_us.p50 = Some(if rung.depth == 2 { 1.0 } else { 2.0 });
    }
    assert_eq!(report.floor(4 << 10).map(|rung| rung.depth), Some(1));
    assert_eq!(serde_json::to_value(&report).unwrap()["rungs"][3]["method"], "ring_dsync");
}

#[test]
fn the_ladder_of_commits_has_what_is_chosen_by() {
    let ladder = DiskOptions::commits("/".into());
    assert_eq!(ladder.steps().len(), 6 * (3 + 2 * 3));
    assert!(ladder.steps().contains(&(64 << 10, Method::RingFdatasync, 4)));
}

#[test]
fn a_pinned_writer_measures_and_tells_its_progress() {
    let directory = tempfile::tempdir().unwrap();
    let cpu = tuning::host::cpus_allowed()[0];
    let options = DiskOptions { cpu: Some(cpu), ..options(directory.path()) };
    let mut told = 0;
    let report = run(&options, &mut |_| told += 1).unwrap();
    assert_eq!((report.rungs.len(), told), (6, 6));
}

#[test]
fn memory_is_said_to_be_no_disk() {
    let Ok(directory) = tempfile::tempdir_in("/dev/shm") else {
        return;
    };
    let report = run(&options(directory.path()), &mut |_| ()).unwrap();
    assert!(report.warnings.iter().any(|warning| warning.starts_with("tmpfs")), "{report}");
}

#[test]
fn sizes_that_direct_writes_can_t_have_and_absent_directories_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    for size in [0, 4_095, 6_000, 2 << 20] {
        let options = DiskOptions { sizes: vec![size], ..options(directory.path()) };
        assert!(run(&options, &mut |_| ()).is_err(), "{size}");
    }
    for depth in [0, 9] {
        let options = DiskOptions { depths: vec![depth], ..options(directory.path()) };
        assert!(run(&options, &mut |_| ()).is_err(), "{depth}");
    }
    let error = run(&options(&directory.path().join("absent")), &mut |_| ()).unwrap_err();
    assert!(error.to_string().contains("absent"), "{error}");
}
