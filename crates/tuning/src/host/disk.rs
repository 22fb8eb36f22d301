//! Which file system and device lie below a directory, and do they suit a head log?

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use serde::{Serialize, Serializer};

/// What `/sys` counts the size of a device in, whatever sectors it has.
const SECTOR_BYTES: u64 = 512;

/// Kind of a file system, by the magic number that `statfs` answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FileSystem {
    /// ext2, ext3 or ext4, which share a number.
    Ext,
    /// XFS.
    Xfs,
    /// F2FS.
    F2fs,
    /// Btrfs.
    Btrfs,
    /// ZFS.
    Zfs,
    /// tmpfs, in memory.
    Tmpfs,
    /// ramfs, in memory.
    Ramfs,
    /// overlayfs, as below containers.
    Overlay,
    /// NFS.
    Nfs,
    /// SMB and its older kin.
    Smb,
    /// Anything in user space.
    Fuse,
    /// A kind that nova has no word for.
    Other(u64),
}

/// Whether a file system suits a head log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fitness {
    /// It does.
    Fit,
    /// It works, but at a price or a risk, in words.
    Doubtful(&'static str),
    /// It can't keep what was acked, in words.
    Unfit(&'static str),
}

impl FileSystem {
    /// The kind that this magic number stands for (`linux/magic.h`, and OpenZFS for its own).
    #[must_use]
    pub const fn from_magic(magic: u64) -> Self {
        match magic {
            0xef53 => Self::Ext,
            0x5846_5342 => Self::Xfs,
            0xf2f5_2010 => Self::F2fs,
            0x9123_683e => Self::Btrfs,
            0x2fc1_2fc1 => Self::Zfs,
            0x0102_1994 => Self::Tmpfs,
            0x8584_58f6 => Self::Ramfs,
            0x794c_7630 => Self::Overlay,
            0x6969 => Self::Nfs,
            0x517b | 0xff53_4d42 | 0xfe53_4d42 => Self::Smb,
            0x6573_5546 => Self::Fuse,
            other => Self::Other(other),
        }
    }

    /// Whether it suits a head log.
    #[must_use]
    pub const fn fitness(self) -> Fitness {
        match self {
            Self::Ext | Self::Xfs | Self::F2fs => Fitness::Fit,
            Self::Tmpfs | Self::Ramfs => {
                Fitness::Unfit("direct I/O is silently not honoured and everything is lost with the machine")
            }
            Self::Btrfs | Self::Zfs => {
                Fitness::Doubtful("every write is copied, so zeroed segments do not make commits cheaper")
            }
            Self::Overlay => {
                Fitness::Doubtful("the data lies in a container's writable layer and goes with it; mount a volume")
            }
            Self::Nfs | Self::Smb => Fitness::Doubtful("locks and flushes depend on the server at the other end"),
            Self::Fuse => Fitness::Doubtful("flushes depend on a program in user space"),
            Self::Other(_) => Fitness::Doubtful("nova has not been tried on it"),
        }
    }
}

impl fmt::Display for FileSystem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Ext => "ext4",
            Self::Xfs => "xfs",
            Self::F2fs => "f2fs",
            Self::Btrfs => "btrfs",
            Self::Zfs => "zfs",
            Self::Tmpfs => "tmpfs",
            Self::Ramfs => "ramfs",
            Self::Overlay => "overlayfs",
            Self::Nfs => "nfs",
            Self::Smb => "smb",
            Self::Fuse => "fuse",
            Self::Other(magic) => return write!(f, "an unknown file system ({magic:#x})"),
        })
    }
}

impl Serialize for FileSystem {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The file system and the device below a directory.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DiskFacts {
    /// Kind of file system.
    pub file_system: FileSystem,
    /// Bytes that this process could still write.
    pub free_bytes: u64,
    /// Kernel name of the whole device, such as `nvme0n1`; none for what has no block device.
    pub device: Option<String>,
    /// Model of the device, where it tells one.
    pub model: Option<String>,
    /// Bytes of the whole device.
    pub device_bytes: Option<u64>,
    /// Whether it has spinning platters.
    pub is_rotational: Option<bool>,
    /// Its cache as the kernel sees it: `write back` needs flushes, `write through` does not.
    pub write_cache: Option<String>,
    /// Whether it takes writes that force unit access, so that a durable write is one command.
    pub has_fua: Option<bool>,
}

/// Reads what lies below `directory`, which must exist.
pub(crate) fn disk_facts(directory: &Path) -> io::Result<DiskFacts> {
    let queue = device_folder(directory);
    let read = |path: &str| {
        let text = fs::read_to_string(queue.as_ref()?.join(path)).ok()?;
        Some(text.trim().to_owned()).filter(|text| !text.is_empty())
    };
    Ok(DiskFacts {
        file_system: file_system(directory)?,
        free_bytes: free_bytes(directory)?,
        device: queue.as_ref().and_then(|folder| Some(folder.file_name()?.to_string_lossy().into_owned())),
        model: read("device/model"),
        device_bytes: read("size").and_then(|sectors| sectors.parse::<u64>().ok()?.checked_mul(SECTOR_BYTES)),
        is_rotational: read("queue/rotational").map(|flag| flag == "1"),
        write_cache: read("queue/write_cache"),
        has_fua: read("queue/fua").map(|flag| flag == "1"),
    })
}

/// Kind of the file system below `directory`, which must exist.
pub fn file_system(directory: &Path) -> io::Result<FileSystem> {
    let magic = rustix::fs::statfs(directory)?.f_type;
    // The field is signed and as wide as a word; the magic numbers are 32 bits without a sign.
    Ok(FileSystem::from_magic(magic.cast_unsigned() & 0xffff_ffff))
}

/// Bytes that this process could still write below `directory`, which must exist.
pub(crate) fn free_bytes(directory: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(directory)?;
    Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
}

/// The number that the file system below `directory`, which must exist, gives itself.
pub(crate) fn file_system_number(directory: &Path) -> io::Result<u64> {
    Ok(rustix::fs::statvfs(directory)?.f_fsid)
}

/// Bytes of the whole file system below `directory`, which must exist.
pub(crate) fn disk_bytes(directory: &Path) -> io::Result<u64> {
    let stat = rustix::fs::statvfs(directory)?;
    Ok(stat.f_blocks.saturating_mul(stat.f_frsize))
}

/// The folder in `/sys` of the whole device below `directory`: that of a partition's parent.
fn device_folder(directory: &Path) -> Option<PathBuf> {
    let device = rustix::fs::stat(directory).ok()?.st_dev;
    let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
    let folder = fs::canonicalize(format!("/sys/dev/block/{major}:{minor}")).ok()?;
    if folder.join("partition").exists() {
        return folder.parent().map(Path::to_owned);
    }
    Some(folder)
}
