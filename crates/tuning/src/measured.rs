//! Which way of committing is the quickest on the disk of the data, by what was measured there?
//!
//! `nova host disk` measures, and keeps what it found beside the data directory as `NAME.disk.json`; novad reads it as it starts. The file
//! is one JSON object:
//!
//! | key | what it holds |
//! |---|---|
//! | `format` | 1; a file of another format is not gone by |
//! | `measured_at_ms` | when, in milliseconds since the Unix epoch |
//! | `version`, `kernel` | nova's and the host's, for people |
//! | `disk` | the file system and its device, see [`DiskId`] |
//! | `is_direct` | whether the writes went past the page cache |
//! | `writes` | what was timed, see [`Timed`] |
//!
//! It holds what was found and no choice. Who reads it chooses by [`CommitMethod::judge`], among what a head log can do and nothing else;
//! each of those keeps what is acked, so that a wrong file costs time alone.

mod disk_id;
mod doubt;
mod method;

use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::host::nearest_directory;
use crate::machine::shown;

pub use disk_id::DiskId;
pub use doubt::Doubt;
pub use method::CommitMethod;

const FORMAT: u32 = 1;
/// Largest file that is read; what `nova host disk` keeps has a tenth of it.
const FILE_BYTES_MAX: u64 = 256 << 10;
/// Writes that a file may hold.
const WRITES_MAX: usize = 1_024;
/// Past this age firmware, kernel or neighbours may have changed what was found.
const AGE_DAYS_MAX: u64 = 90;
/// How far ahead of this clock a measurement may be: clocks differ.
const AHEAD_DAYS_MAX: u64 = 1;
const DAY: Duration = Duration::from_secs(86_400);

/// How a write is made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Method {
    /// A write, then `fdatasync`.
    WriteFdatasync,
    /// A write to a file opened with `O_DSYNC`.
    Dsync,
    /// A write with `RWF_DSYNC`, as a head log commits in place.
    RwfDsync,
    /// A write through a ring, then `fdatasync` through it.
    RingFdatasync,
    /// A write through a ring to a file opened with `O_DSYNC`.
    RingDsync,
}

impl Method {
    /// Those that block their thread.
    pub const BLOCKING: [Self; 3] = [Self::WriteFdatasync, Self::Dsync, Self::RwfDsync];
    /// Those that go through a ring, as shards write: several may be in flight at once.
    pub const RING: [Self; 2] = [Self::RingFdatasync, Self::RingDsync];

    /// Whether it goes through a ring.
    #[must_use]
    pub const fn is_ring(self) -> bool {
        matches!(self, Self::RingFdatasync | Self::RingDsync)
    }
}

impl fmt::Display for Method {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::WriteFdatasync => "write+fdatasync",
            Self::Dsync => "O_DSYNC",
            Self::RwfDsync => "RWF_DSYNC",
            Self::RingFdatasync => "ring+fdatasync",
            Self::RingDsync => "ring O_DSYNC",
        })
    }
}

/// Writes of one size by one method, as they were timed.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Timed {
    /// Bytes of a write.
    pub write_bytes: u64,
    /// How each was made durable.
    pub method: Method,
    /// Writes in flight at once.
    pub depth: u16,
    /// Median from before a write until it was durable, in microseconds.
    pub p50_us: f64,
    /// 99 in 100 were durable by then, in microseconds; absent where they were too few to tell.
    pub p99_us: Option<f64>,
    /// Bytes a second.
    pub bytes_per_s: f64,
}

impl Timed {
    /// Whether its numbers can be those of a disk.
    fn is_sane(&self) -> bool {
        let is_time = |us: f64| us.is_finite() && us > 0.0;
        let are_times = is_time(self.p50_us) && self.p99_us.is_none_or(is_time);
        are_times && is_time(self.bytes_per_s) && self.write_bytes > 0 && self.depth > 0
    }
}

/// What was found on a disk.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Measurement {
    format: u32,
    measured_at_ms: u64,
    version: String,
    kernel: String,
    disk: DiskId,
    is_direct: bool,
    writes: Vec<Timed>,
}

/// What tells the format of a file, whatever else it holds.
#[derive(Debug, Deserialize)]
struct Head {
    format: u64,
}

impl Measurement {
    /// What was found on a disk at a time, in milliseconds since the Unix epoch, under a kernel.
    #[must_use]
    pub fn new(measured_at_ms: u64, kernel: String, disk: DiskId, is_direct: bool, writes: Vec<Timed>) -> Self {
        let version = env!("CARGO_PKG_VERSION").to_owned();
        Self { format: FORMAT, measured_at_ms, version, kernel, disk, is_direct, writes }
    }

    /// Keeps it beside a data directory, under its name only once it is whole; answers the file.
    ///
    /// # Errors
    /// What the system says.
    pub fn keep(&self, data: &Path) -> io::Result<PathBuf> {
        let path = kept_at(data);
        if let Some(folder) = path.parent() {
            fs::create_dir_all(folder)?;
        }
        let draft = path.with_extension("new");
        let text = serde_json::to_string_pretty(self).map_err(io::Error::from)?;
        let mut file = File::create(&draft)?;
        writeln!(file, "{text}")?;
        file.sync_all()?;
        fs::rename(&draft, &path)?;
        Ok(path)
    }

    /// What is kept in a file; none when there is no such file.
    fn read(path: &Path) -> Result<Option<Self>, Doubt> {
        let mut bytes = Vec::new();
        let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX + 1).read_to_end(&mut bytes));
        match read {
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(Doubt::Unreadable { source }),
        }
        let damaged = |why: &str| Doubt::Damaged { why: shown(why) };
        if bytes.len() as u64 > FILE_BYTES_MAX {
            return Err(damaged("it is far too long"));
        }
        let head: Head = serde_json::from_slice(&bytes).map_err(|error| damaged(&error.to_string()))?;
        if head.format != u64::from(FORMAT) {
            return Err(Doubt::OtherFormat { found: head.format });
        }
        let measurement: Self = serde_json::from_slice(&bytes).map_err(|error| damaged(&error.to_string()))?;
        let is_sane = measurement.writes.len() <= WRITES_MAX && measurement.writes.iter().all(Timed::is_sane);
        if is_sane { Ok(Some(measurement)) } else { Err(damaged("its numbers are those of no disk")) }
    }

    /// Days since it was measured, if it may be gone by on this disk at this time.
    fn age_days(&self, disk: &DiskId, now: SystemTime) -> Result<u64, Doubt> {
        if !self.disk.is(disk) {
            return Err(Doubt::OtherDisk { measured: self.disk.to_string(), found: disk.to_string() });
        }
        if !self.is_direct {
            return Err(Doubt::Cached);
        }
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let then = Duration::from_millis(self.measured_at_ms);
        let days = |time: Duration| time.as_secs() / DAY.as_secs();
        match (days(now.saturating_sub(then)), days(then.saturating_sub(now))) {
            (_, ahead) if ahead > AHEAD_DAYS_MAX => Err(Doubt::Ahead { days: ahead }),
            (age, _) if age > AGE_DAYS_MAX => Err(Doubt::Old { days: age }),
            (age, _) => Ok(age),
        }
    }
}

/// The file beside a data directory that keeps what was measured of its disk.
#[must_use]
pub fn kept_at(data: &Path) -> PathBuf {
    let absolute = std::path::absolute(data).unwrap_or_else(|_| data.to_owned());
    // A path such as `a/..` has no name of its own.
    let named = if absolute.file_name().is_none() { absolute.canonicalize().unwrap_or(absolute) } else { absolute };
    let mut name = named.file_name().unwrap_or_default().to_owned();
    name.push(".disk.json");
    named.with_file_name(name)
}

/// The way of committing that suits the disk of a data directory, by what is kept beside it; none when nothing is.
///
/// # Errors
/// [`Doubt`] when what is kept may not be gone by.
pub fn method(data: &Path, now: SystemTime) -> Result<Option<CommitMethod>, Doubt> {
    let Some(measurement) = Measurement::read(&kept_at(data))? else { return Ok(None) };
    let disk = DiskId::below(&nearest_directory(data)).map_err(|source| Doubt::DiskUnknown { source })?;
    let days = measurement.age_days(&disk, now)?;
    let mut method = CommitMethod::judge(&measurement.writes).ok_or(Doubt::TooFew)?;
    method.how += &match days {
        0 => ", measured within a day".to_owned(),
        1 => ", measured a day ago".to_owned(),
        days => format!(", measured {days} days ago"),
    };
    Ok(Some(method))
}

#[cfg(test)]
mod tests;
