//! Are the machine's own words read rightly?

use super::disk::{FileSystem, Fitness};
use super::kernel::{KernelRelease, judge_io_uring};
use super::{HostFacts, cpu_model, cpus_allowed, nearest_directory};

#[test]
fn the_version_is_read_from_any_release_name() {
    for (text, want) in [
        ("6.18.44-fc-v595", Some("6.18")),
        ("5.15.0-91-generic", Some("5.15")),
        ("6.1", Some("6.1")),
        ("6.12-rc3", Some("6.12")),
        ("linux", None),
        ("", None),
    ] {
        let release = KernelRelease::parse(text).map(|release| release.to_string());
        assert_eq!(release.as_deref(), want, "{text}");
    }
}

#[test]
fn minor_versions_are_compared_as_numbers() {
    let release = |text| KernelRelease::parse(text).unwrap();
    assert!(release("5.4") < KernelRelease::COOP_TASKRUN);
    assert!(release("5.19") >= KernelRelease::COOP_TASKRUN);
    assert!(release("6.18") > KernelRelease::RECOMMENDED);
    assert!(release("6.0") < KernelRelease::RECOMMENDED);
}

#[test]
fn a_switched_off_io_uring_names_the_value_and_the_remedy() {
    assert!(judge_io_uring("", false).is_ok(), "a kernel without the switch has none");
    assert!(judge_io_uring("0\n", false).is_ok());
    assert!(judge_io_uring("1\n", true).is_ok());
    assert_eq!(judge_io_uring("1\n", false).unwrap_err().value, 1);
    let error = judge_io_uring("2\n", true).unwrap_err().to_string();
    assert!(error.contains("kernel.io_uring_disabled = 2") && error.contains("sysctl -w"), "{error}");
}

#[test]
fn memory_file_systems_are_unfit_and_network_ones_doubtful() {
    let fitness = |magic| FileSystem::from_magic(magic).fitness();
    assert_eq!(fitness(0xef53), Fitness::Fit);
    assert_eq!(fitness(0x5846_5342), Fitness::Fit);
    assert!(matches!(fitness(0x0102_1994), Fitness::Unfit(_)));
    assert!(matches!(fitness(0x794c_7630), Fitness::Doubtful(_)));
    assert!(matches!(fitness(0x6969), Fitness::Doubtful(_)));
    assert!(matches!(fitness(0x1234), Fitness::Doubtful(_)));
}

#[test]
fn the_model_is_what_stands_behind_the_colon() {
    let text = "processor\t: 0\nmodel name\t: Some CPU @ 2.00GHz\nprocessor\t: 1\n";
    assert_eq!(cpu_model(text).as_deref(), Some("Some CPU @ 2.00GHz"));
    assert_eq!(cpu_model("processor : 0\n"), None);
}

#[test]
fn this_machine_has_a_cpu_memory_a_kernel_and_a_disk() {
    let folder = tempfile::tempdir().unwrap();
    let facts = HostFacts::read(folder.path());
    assert!(!facts.cpus.is_empty() && facts.cpus == cpus_allowed());
    assert!(facts.memory_bytes > 64 << 20);
    assert!(KernelRelease::parse(&facts.kernel).is_some(), "{}", facts.kernel);
    assert!(facts.disk.unwrap().free_bytes > 0);
}

#[test]
fn the_nearest_directory_is_one_that_is_there_and_never_a_file() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("file"), "").unwrap();
    for below in ["", "a", "a/b/c", "file", "file/a"] {
        assert_eq!(nearest_directory(&folder.path().join(below)), folder.path(), "{below}");
    }
    assert_eq!(nearest_directory("nowhere/at/all".as_ref()), std::env::current_dir().unwrap());
}

#[test]
fn proc_is_told_apart_from_a_disk() {
    let kind = super::file_system(std::path::Path::new("/proc")).unwrap();
    assert_eq!(kind, FileSystem::Other(0x9fa0));
}
