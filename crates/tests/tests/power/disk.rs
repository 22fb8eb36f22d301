//! How does a file become a disk with a file system on it?

use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use tests::run_tool;

const MIB: u64 = 1 << 20;

/// A file system under test.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FileSystem {
    Ext4,
    Xfs,
}

impl FileSystem {
    /// The size of its disks. `mkfs.xfs` makes none below 300 MiB.
    pub(crate) fn bytes(self) -> u64 {
        match self {
            Self::Ext4 => 256 * MIB,
            Self::Xfs => 320 * MIB,
        }
    }

    fn make(self, device: &str) -> Result<(), String> {
        match self {
            Self::Ext4 => run_tool("mkfs.ext4", &["-q", "-F", "-m", "0", "-E", "nodiscard", device]).map(drop),
            Self::Xfs => run_tool("mkfs.xfs", &["-q", "-f", "-K", device]).map(drop),
        }
    }
}

/// Something mounted, until this is dropped. Its loop device goes with it.
#[derive(Debug)]
pub(crate) struct Mounted(PathBuf);

impl Mounted {
    /// A disk that records, with a file system of this kind made on it, or with what it has.
    ///
    /// # Errors
    /// Why it can't be: it takes root, loop devices with direct I/O and the tools of the file system.
    pub(crate) fn recorded(file: &Path, on: &Path, made: Option<FileSystem>) -> Result<Self, String> {
        let device = Attached::new(file)?;
        if let Some(kind) = made {
            kind.make(&device.0)?;
        }
        run_tool("mount", &[&device.0, plain(on)])?;
        // Dropped while it is mounted, the loop device goes once it is not.
        Ok(Self(on.to_owned()))
    }

    /// A plain file with a file system on it.
    ///
    /// # Errors
    /// Why it can't be.
    pub(crate) fn image(file: &Path, on: &Path) -> Result<Self, String> {
        let mount = || run_tool("mount", &["-o", "loop", plain(file), plain(on)]);
        if mount().is_err() {
            // What a disk that failed has left of ext4 is mended as at a boot; the tool says by its exit code that it was.
            run_tool("e2fsck", &["-fy", plain(file)]).ok();
            mount()?;
        }
        Ok(Self(on.to_owned()))
    }
}

impl Drop for Mounted {
    fn drop(&mut self) {
        // Writes of a process that was killed may hold it for a moment longer.
        for _ in 0..100 {
            if run_tool("umount", &[plain(&self.0)]).is_ok() {
                return;
            }
            thread::sleep(Duration::from_millis(50));
        }
        eprintln!("{} stays mounted: {:?}", self.0.display(), run_tool("umount", &["-l", plain(&self.0)]));
    }
}

/// A loop device, detached in the end or once nobody has it mounted.
#[derive(Debug)]
struct Attached(String);

impl Attached {
    fn new(file: &Path) -> Result<Self, String> {
        let told = run_tool("losetup", &["--find", "--show", "--direct-io=on", plain(file)])?;
        let device = Self(told.trim().to_owned());
        let direct = run_tool("losetup", &["--list", "--noheadings", "--output", "DIO", &device.0])?;
        if direct.trim() != "1" {
            return Err(format!("{}: a loop device without direct I/O, which would sync behind our back", device.0));
        }
        Ok(device)
    }
}

impl Drop for Attached {
    fn drop(&mut self) {
        if let Err(why) = run_tool("losetup", &["--detach", &self.0]) {
            eprintln!("{} stays: {why}", self.0);
        }
    }
}

fn plain(path: &Path) -> &str {
    path.to_str().expect("a path of plain text")
}
