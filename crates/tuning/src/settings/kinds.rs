//! Which kinds of value are only met in settings?

use std::fmt;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use super::table::SettingValue;
use crate::units::Bytes;

/// How much of the local disk keeps blocks of settled records.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum BlockCache {
    /// What suits the store; written as `auto`.
    Auto,
    /// This much; 0 is none.
    Bytes(Bytes),
}

impl BlockCache {
    const BYTES_MIN: Bytes = Bytes::mib(16);
    const BYTES_MAX: Bytes = Bytes::gib(16_384);
}

impl SettingValue for BlockCache {
    const WANTED: &'static str = "auto, 0 for none, or a size of 16MiB to 16TiB";
    fn read(text: &str) -> Option<Self> {
        if text == "auto" {
            return Some(Self::Auto);
        }
        let bytes: Bytes = text.parse().ok()?;
        let is_size = (Self::BYTES_MIN..=Self::BYTES_MAX).contains(&bytes);
        (is_size || bytes.get() == 0).then_some(Self::Bytes(bytes))
    }
    fn show(&self) -> String {
        match self {
            Self::Auto => "auto".to_owned(),
            Self::Bytes(bytes) => bytes.to_string(),
        }
    }
}

/// How a commit of the head log is made durable.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum LogSync {
    /// The segment is open with `O_DSYNC`: a write that returns is durable.
    Dsync,
    /// A plain write, and `fdatasync` behind it.
    Fdatasync,
}

impl fmt::Display for LogSync {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Dsync => "dsync",
            Self::Fdatasync => "fdatasync",
        })
    }
}

impl SettingValue for LogSync {
    const WANTED: &'static str = "dsync or fdatasync";
    fn read(text: &str) -> Option<Self> {
        match text {
            "dsync" => Some(Self::Dsync),
            "fdatasync" => Some(Self::Fdatasync),
            _ => None,
        }
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

/// Where a surface listens that may be left out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Listener {
    /// Nowhere; written as `off`.
    Off,
    /// At this address.
    At(SocketAddr),
}

impl Listener {
    /// Where it listens, if it does.
    #[must_use]
    pub fn addr(self) -> Option<SocketAddr> {
        match self {
            Self::Off => None,
            Self::At(addr) => Some(addr),
        }
    }
}

/// A text that says nowhere to listen.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("'{text}' is not {}", Listener::WANTED)]
pub struct NoListener {
    text: String,
}

impl FromStr for Listener {
    type Err = NoListener;

    fn from_str(text: &str) -> Result<Self, NoListener> {
        match text {
            "off" => Ok(Self::Off),
            _ => text.parse().map(Self::At).map_err(|_| NoListener { text: text.to_owned() }),
        }
    }
}

impl SettingValue for Listener {
    const WANTED: &'static str = "an IP address and a port, such as 127.0.0.1:8080, or off";
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
    fn show(&self) -> String {
        self.addr().map_or_else(|| "off".to_owned(), |addr| addr.to_string())
    }
}

/// Where the standard store is.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum StoreAddress {
    /// The folder `store` of the data directory; written as `in-data`.
    InData,
    /// A local directory.
    Directory(PathBuf),
    /// Objects below a prefix of an S3 bucket; written as `s3://bucket/prefix`.
    S3 {
        /// The bucket's name.
        bucket: String,
        /// What every object's name starts with; may be empty.
        prefix: String,
    },
}

impl StoreAddress {
    /// The local directory that it names, none for S3.
    #[must_use]
    pub fn directory(&self, data: &Path) -> Option<PathBuf> {
        match self {
            Self::InData => Some(data.join("store")),
            Self::Directory(path) => Some(path.clone()),
            Self::S3 { .. } => None,
        }
    }
}

impl fmt::Display for StoreAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InData => f.write_str("in-data"),
            Self::Directory(path) => write!(f, "{}", path.display()),
            Self::S3 { bucket, prefix } => write!(f, "s3://{bucket}/{prefix}"),
        }
    }
}

impl SettingValue for StoreAddress {
    const WANTED: &'static str = "a directory, s3://bucket/prefix or in-data";
    fn read(text: &str) -> Option<Self> {
        if let Some(rest) = text.strip_prefix("s3://") {
            let (bucket, prefix) = rest.split_once('/').unwrap_or((rest, ""));
            return (!bucket.is_empty()).then(|| Self::S3 { bucket: bucket.to_owned(), prefix: prefix.to_owned() });
        }
        match text {
            "in-data" => Some(Self::InData),
            // With a slash too few it is a slip, and would make a directory of that name.
            other if other.is_empty() || other.contains("://") || other.starts_with("s3:") => None,
            other => Some(Self::Directory(PathBuf::from(other))),
        }
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

/// Where an S3 store answers.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum S3Endpoint {
    /// Where AWS serves the region; written as `aws`.
    Aws,
    /// At this URL.
    Url(String),
}

impl SettingValue for S3Endpoint {
    const WANTED: &'static str = "aws, or a URL such as http://127.0.0.1:9000";
    fn read(text: &str) -> Option<Self> {
        let url = text.trim_end_matches('/');
        let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
        match (text, host) {
            ("aws", _) => Some(Self::Aws),
            (_, Some(host)) if !host.is_empty() => Some(Self::Url(url.to_owned())),
            _ => None,
        }
    }
    fn show(&self) -> String {
        match self {
            Self::Aws => "aws".to_owned(),
            Self::Url(url) => url.clone(),
        }
    }
}

/// Which region requests to S3 are signed for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum S3Region {
    /// What the environment, the profile or the instance says, else `us-east-1`; written as `auto`.
    Auto,
    /// This one.
    Named(String),
}

impl SettingValue for S3Region {
    const WANTED: &'static str = "auto, or a region such as eu-central-1";
    fn read(text: &str) -> Option<Self> {
        match text {
            "auto" => Some(Self::Auto),
            other if other.is_empty() || other.contains(char::is_whitespace) => None,
            other => Some(Self::Named(other.to_owned())),
        }
    }
    fn show(&self) -> String {
        match self {
            Self::Auto => "auto".to_owned(),
            Self::Named(region) => region.clone(),
        }
    }
}

/// Which checksum goes to S3 with each object.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum S3Checksum {
    /// None.
    None,
    /// CRC-32.
    Crc32,
    /// CRC-32C.
    Crc32c,
    /// CRC-64/NVME.
    Crc64nvme,
}

impl SettingValue for S3Checksum {
    const WANTED: &'static str = "none, crc32, crc32c or crc64nvme";
    fn read(text: &str) -> Option<Self> {
        [Self::None, Self::Crc32, Self::Crc32c, Self::Crc64nvme].into_iter().find(|kind| kind.show() == text)
    }
    fn show(&self) -> String {
        let text = match self {
            Self::None => "none",
            Self::Crc32 => "crc32",
            Self::Crc32c => "crc32c",
            Self::Crc64nvme => "crc64nvme",
        };
        text.to_owned()
    }
}
