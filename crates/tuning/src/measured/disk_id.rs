//! By what is a disk known again that something was measured on?

use std::fmt;
use std::io;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::host::{DiskFacts, disk_facts, file_system_number};
use crate::units::Bytes;

/// Characters of a disk at most, as it is told.
const LINE_MAX: usize = 160;

/// A file system and the device below it, by what decides how quick they are.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskId {
    /// Kind of the file system, such as `ext4`.
    pub file_system: String,
    /// The number that the file system gives itself, in hexadecimal digits: drawn when it was made, or that of its device.
    pub number: String,
    /// Kernel name of the whole device, for people: it may be another one after a restart.
    pub device: Option<String>,
    /// Model of the device.
    pub model: Option<String>,
    /// Bytes of the whole device: in clouds a larger one is quicker.
    pub device_bytes: Option<u64>,
    /// Its cache as the kernel sees it: `write back` is flushed, `write through` is not.
    pub write_cache: Option<String>,
    /// Whether a durable write is one command.
    pub has_fua: Option<bool>,
}

impl DiskId {
    /// The disk below a directory, which must exist.
    ///
    /// # Errors
    /// What the system says.
    pub fn below(directory: &Path) -> io::Result<Self> {
        let DiskFacts { file_system, device, model, device_bytes, write_cache, has_fua, .. } = disk_facts(directory)?;
        let number = format!("{:016x}", file_system_number(directory)?);
        Ok(Self { file_system: file_system.to_string(), number, device, model, device_bytes, write_cache, has_fua })
    }

    /// Whether it is the other one, in the same state.
    pub(super) fn is(&self, other: &Self) -> bool {
        let nameless = |id: &Self| Self { device: None, ..id.clone() };
        nameless(self) == nameless(other)
    }
}

impl fmt::Display for DiskId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { file_system, number, device, model, device_bytes, write_cache, has_fua } = self;
        let device = device.as_deref().unwrap_or("no block device");
        let bytes = device_bytes.map(|bytes| Bytes::new(bytes).to_string());
        let fua = has_fua.map(|has_fua| if has_fua { "FUA" } else { "no FUA" });
        let more = [model.as_deref(), bytes.as_deref(), write_cache.as_deref(), fua];
        let more: String = more.into_iter().flatten().map(|word| format!(", {word}")).collect();
        let line = format!("{file_system} {number} on {device}{more}");
        // What a file says stays one line, and as long as that of a disk.
        let clean = line.chars().map(|c| if c.is_control() { ' ' } else { c });
        f.write_str(&clean.take(LINE_MAX).collect::<String>())
    }
}
