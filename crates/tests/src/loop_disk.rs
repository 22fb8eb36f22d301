//! How does a test get a disk that is small, and how does it run the tools that make one?

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::scratch::Scratch;

/// Control groups of version 1 and of version 2.
const GROUPS: [&str; 2] = ["/sys/fs/cgroup/blkio", "/sys/fs/cgroup"];

/// A file system of its own on a loop device, unmounted in the end.
#[derive(Debug)]
pub struct LoopDisk {
    mount: PathBuf,
    _scratch: Scratch,
}

impl LoopDisk {
    /// An ext4 of so many MiB; a reason when this host gives none.
    ///
    /// # Errors
    /// Why there is none: it takes root, loop devices and the tools of ext4.
    ///
    /// # Panics
    /// When the directory for it can't be made.
    pub fn new(mib: u32) -> Result<Self, String> {
        let scratch = Scratch::new();
        let (image, mount) = (scratch.join("image"), scratch.join("mount"));
        std::fs::create_dir(&mount).expect("a directory to mount on");
        let size = format!("{mib}M");
        run_tool("truncate", &["-s", &size, path(&image)])?;
        run_tool("mkfs.ext4", &["-q", "-F", "-m", "0", path(&image)])?;
        run_tool("mount", &["-o", "loop", path(&image), path(&mount)])?;
        Ok(Self { mount, _scratch: scratch })
    }

    /// Where it is mounted.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.mount
    }

    /// Lets nobody write to it any more, or again.
    ///
    /// # Errors
    /// Why it can't be.
    pub fn set_read_only(&self, read_only: bool) -> Result<(), String> {
        let options = if read_only { "remount,ro" } else { "remount,rw" };
        run_tool("mount", &["-o", options, path(&self.mount)]).map(drop)
    }

    /// A group of processes that write so many bytes a second to this disk, together.
    ///
    /// # Errors
    /// Why there is none: it takes root and a kernel that throttles.
    ///
    /// # Panics
    /// When the disk can't be looked at.
    pub fn throttle(&self, bytes_per_second: u64) -> Result<Throttle, String> {
        let device = rustix::fs::stat(&self.mount).expect("the disk").st_dev;
        let device = format!("{}:{}", rustix::fs::major(device), rustix::fs::minor(device));
        let name = format!("nova-test-{}", std::process::id());
        let (group, rule, limit) = if Path::new(GROUPS[0]).exists() {
            (Path::new(GROUPS[0]).join(name), "blkio.throttle.write_bps_device", bytes_per_second.to_string())
        } else {
            // A group that is not told to pass it on has no throttle to set, which is found out below.
            let _denied = std::fs::write(Path::new(GROUPS[1]).join("cgroup.subtree_control"), "+io");
            (Path::new(GROUPS[1]).join(name), "io.max", format!("wbps={bytes_per_second}"))
        };
        std::fs::create_dir_all(&group).map_err(|error| format!("{}: {error}", group.display()))?;
        let throttle = Throttle { group };
        throttle.set(rule, &format!("{device} {limit}"))?;
        Ok(throttle)
    }
}

/// A control group whose processes write slowly; removed in the end.
#[derive(Debug)]
pub struct Throttle {
    group: PathBuf,
}

impl Throttle {
    fn set(&self, file: &str, value: &str) -> Result<(), String> {
        let path = self.group.join(file);
        std::fs::write(&path, value).map_err(|error| format!("{}: {error}", path.display()))
    }

    /// Slows a process down.
    ///
    /// # Panics
    /// When the process can't be put into the group.
    pub fn hold(&self, pid: u32) {
        self.set("cgroup.procs", &pid.to_string()).expect("a process that runs");
    }
}

impl Drop for Throttle {
    fn drop(&mut self) {
        for _ in 0..50 {
            if std::fs::remove_dir(&self.group).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        eprintln!("{} stays", self.group.display());
    }
}

impl Drop for LoopDisk {
    fn drop(&mut self) {
        // Writes of a process that was killed may hold it for a moment longer.
        for _ in 0..50 {
            if run_tool("umount", &[path(&self.mount)]).is_ok() {
                return;
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        eprintln!("{} stays mounted", self.mount.display());
    }
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path of plain text")
}

/// Runs a tool of the system to its end: what it wrote.
///
/// # Errors
/// That it is not there, or what it complained of.
pub fn run_tool(program: &str, args: &[&str]) -> Result<String, String> {
    let place = std::env::var("PATH").unwrap_or_default();
    let outcome = Command::new(program).args(args).env("PATH", format!("{place}:/usr/sbin:/sbin")).output();
    match outcome {
        Ok(output) if output.status.success() => Ok(String::from_utf8_lossy(&output.stdout).into_owned()),
        Ok(output) => Err(format!("{program}: {}", String::from_utf8_lossy(&output.stderr).trim())),
        Err(error) => Err(format!("{program}: {error}")),
    }
}
