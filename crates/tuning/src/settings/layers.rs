//! Which value does each setting have, and where did it come from?

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::fmt;
use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use thiserror::Error;
use wire::log_frame::BLOCK_BYTES;
use wire::reason::Reason;

use super::table::Fault;
use super::{Setting, Settings};
use crate::measured::CommitMethod;
use crate::units::Bytes;

/// Where a value came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// Nobody chose it.
    Default,
    /// This file.
    File(PathBuf),
    /// This variable of the environment.
    Variable(String),
    /// This flag, without its dashes.
    Flag(String),
    /// Nobody chose it, and this file says what was measured.
    Measured(PathBuf),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("by default"),
            Self::File(path) => write!(f, "in {}", path.display()),
            Self::Variable(name) => write!(f, "in the environment as {name}"),
            Self::Flag(name) => write!(f, "by --{name}"),
            Self::Measured(path) => write!(f, "as measured in {}", path.display()),
        }
    }
}

/// Why the settings were refused. Each says the name, the value and what would be taken.
#[derive(Debug, Error)]
pub enum SettingsError {
    /// The file can't be read.
    #[error("the settings file {path} can't be read: {source}")]
    Unreadable {
        /// The file that was named.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
    /// The file is not TOML.
    #[error("the settings file {path} is not valid TOML, line {line}: {message}")]
    Syntax {
        /// The file.
        path: PathBuf,
        /// Line of the fault, from 1.
        line: usize,
        /// What the parser missed.
        message: String,
    },
    /// There is no setting of this name.
    #[error("there is no setting `{name}` (set {origin}){}", hint(nearest.as_deref()))]
    Unknown {
        /// The name that was given.
        name: String,
        /// Where it stands.
        origin: Origin,
        /// The known name that looks most like it, if any does.
        nearest: Option<String>,
    },
    /// The value is of a kind that no setting has, such as a list.
    #[error("`{name}` is set {origin} to a TOML {found}, and wants {wanted}")]
    Kind {
        /// The setting.
        name: &'static str,
        /// Where it stands.
        origin: Origin,
        /// The kind that was found.
        found: &'static str,
        /// What would be taken.
        wanted: &'static str,
    },
    /// The value can't be read as what the setting wants.
    #[error("`{name}` is set {origin} to `{value}`, and wants {wanted}")]
    Malformed {
        /// The setting.
        name: &'static str,
        /// Where it stands.
        origin: Origin,
        /// What was given.
        value: String,
        /// What would be taken.
        wanted: &'static str,
    },
    /// The value is outside the range.
    #[error("`{name}` is set {origin} to `{value}`, and must lie within {low} and {high}")]
    OutOfRange {
        /// The setting.
        name: &'static str,
        /// Where it stands.
        origin: Origin,
        /// What was given.
        value: String,
        /// Smallest value allowed.
        low: String,
        /// Largest value allowed.
        high: String,
    },
    /// One setting must not be larger than its share of another.
    #[error("{part}, which is more than {share} {whole}: lower the first or raise the second")]
    Share {
        /// The setting that is too large.
        part: Box<Choice>,
        /// How much of the other it may be, in words.
        share: &'static str,
        /// The setting that bounds it.
        whole: Box<Choice>,
    },
    /// A size that is laid out in whole blocks is not one.
    #[error("{choice}, which is not a multiple of {block}: round it to one")]
    Unaligned {
        /// The setting.
        choice: Box<Choice>,
        /// The block.
        block: Bytes,
    },
    /// The address can be reached by others, and nobody said that this is meant.
    #[error(
        "`{setting}` is set {origin} to `{listen}`, which others can reach while there is no access \
         control: listen on 127.0.0.1, or say --insecure"
    )]
    Exposed {
        /// The setting.
        setting: &'static str,
        /// The address.
        listen: String,
        /// Where it stands.
        origin: Origin,
    },
}

impl SettingsError {
    /// What it is called to users and programs.
    #[must_use]
    pub fn reason(&self) -> Reason {
        Reason::Invalid
    }
}

/// The value of one setting and where it stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Choice {
    /// The setting.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// Where it stands.
    pub origin: Origin,
}

impl fmt::Display for Choice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` = {} (set {})", self.name, self.value, self.origin)
    }
}

fn hint(nearest: Option<&str>) -> String {
    nearest.map_or_else(String::new, |name| format!("; did you mean `{name}`?"))
}

/// Settings that are being put together. Each call overrides what came before it: give the file
/// first, then the environment, then the flags, then [`finish`](Self::finish).
#[derive(Debug, Default)]
pub struct Layers {
    settings: Settings,
    origins: BTreeMap<&'static str, Origin>,
}

impl Layers {
    /// Takes what the file at `path` sets. Fails when it can't be read, is not TOML, or has a key
    /// that is not a setting.
    pub fn file(self, path: &Path) -> Result<Self, SettingsError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| SettingsError::Unreadable { path: path.to_owned(), source })?;
        self.file_text(path, &text)
    }

    pub(crate) fn file_text(mut self, path: &Path, text: &str) -> Result<Self, SettingsError> {
        let table: toml::Table = text.parse().map_err(|error: toml::de::Error| {
            let start = error.span().map_or(0, |span| span.start).min(text.len());
            SettingsError::Syntax {
                path: path.to_owned(),
                line: text.as_bytes()[..start].iter().filter(|byte| **byte == b'\n').count() + 1,
                message: error.message().replace('\n', ", "),
            }
        })?;
        self.section(path, "", &table)?;
        Ok(self)
    }

    fn section(&mut self, path: &Path, prefix: &str, table: &toml::Table) -> Result<(), SettingsError> {
        for (key, value) in table {
            let name = format!("{prefix}{key}");
            let origin = Origin::File(path.to_owned());
            let inside = format!("{name}.");
            let is_section = Settings::all().any(|setting| setting.name.starts_with(&inside));
            let text = match value {
                toml::Value::Table(inner) if is_section => {
                    self.section(path, &inside, inner)?;
                    continue;
                }
                toml::Value::String(text) => text.clone(),
                toml::Value::Integer(number) => number.to_string(),
                toml::Value::Boolean(truth) => truth.to_string(),
                other => {
                    let setting = find(&name, &origin)?;
                    return Err(SettingsError::Kind {
                        name: setting.name,
                        origin,
                        found: other.type_str(),
                        wanted: setting.wanted,
                    });
                }
            };
            self.assign(find(&name, &origin)?, &text, origin)?;
        }
        Ok(())
    }

    /// Takes the `NOVA_…` variables among `variables`.
    ///
    /// A variable of no setting is refused when it looks like a slip of one (at most two letters
    /// off). Others are left alone: orchestrators put variables such as `NOVA_SERVICE_HOST` there.
    pub fn environment<I>(mut self, variables: I) -> Result<Self, SettingsError>
    where
        I: IntoIterator<Item = (OsString, OsString)>,
    {
        for (variable, value) in variables {
            let Some(variable) = variable.to_str().filter(|name| name.starts_with("NOVA_")) else {
                continue;
            };
            self.variable(variable, &value)?;
        }
        Ok(self)
    }

    fn variable(&mut self, variable: &str, value: &OsStr) -> Result<(), SettingsError> {
        let origin = Origin::Variable(variable.to_owned());
        let Some(setting) = Settings::all().find(|known| known.variable() == variable) else {
            let nearest = nearest(variable, Setting::variable);
            let name = variable.to_owned();
            return match nearest {
                Some(_) => Err(SettingsError::Unknown { name, origin, nearest }),
                None => Ok(()),
            };
        };
        let Some(text) = value.to_str() else {
            return Err(SettingsError::Malformed {
                name: setting.name,
                origin,
                value: value.to_string_lossy().into_owned(),
                wanted: "text in UTF-8",
            });
        };
        self.assign(setting, text, origin)
    }

    /// Takes one flag of the command line, for the setting that it was made from.
    pub fn flag(mut self, setting: &'static Setting, text: &str) -> Result<Self, SettingsError> {
        self.assign(setting, text, Origin::Flag(setting.flag()))?;
        Ok(self)
    }

    fn assign(&mut self, setting: &'static Setting, text: &str, origin: Origin) -> Result<(), SettingsError> {
        let outcome = self.settings.assign(setting.name, text);
        let Some(outcome) = outcome else {
            unreachable!("the table and the structs come from one macro, yet {setting:?} has no field");
        };
        let (name, value) = (setting.name, text.to_owned());
        match outcome {
            Ok(()) => {
                self.origins.insert(name, origin);
                Ok(())
            }
            Err(Fault::Malformed { wanted }) => Err(SettingsError::Malformed { name, origin, value, wanted }),
            Err(Fault::OutOfRange { low, high }) => Err(SettingsError::OutOfRange { name, origin, value, low, high }),
        }
    }

    /// The settings, once the rules that span several of them hold.
    pub fn finish(self) -> Result<Loaded, SettingsError> {
        let loaded = Loaded { settings: self.settings, origins: self.origins };
        loaded.check_exposure()?;
        loaded.check_shares()?;
        loaded.check_blocks()?;
        Ok(loaded)
    }
}

/// Settings that hold together, and where each came from.
#[derive(Debug)]
pub struct Loaded {
    settings: Settings,
    origins: BTreeMap<&'static str, Origin>,
}

impl Loaded {
    /// The settings.
    #[must_use]
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Where the value of this setting came from.
    #[must_use]
    pub fn origin(&self, setting: &Setting) -> &Origin {
        self.origin_of(setting.name)
    }

    /// Those of the settings about commits that somebody chose.
    #[must_use]
    pub fn chosen_commits(&self) -> Vec<Choice> {
        let names = CommitMethod::SETTINGS.into_iter();
        names.filter(|name| self.is_chosen(name)).map(|name| self.choice(name)).collect()
    }

    /// Takes the way of committing that was measured, as `file` says, for those of its settings that nobody chose.
    ///
    /// # Panics
    /// When a setting doesn't take what it was measured to be: each is one of its own values.
    pub fn adopt_commits(&mut self, measured: &CommitMethod, file: &Path) {
        for (name, value) in CommitMethod::SETTINGS.into_iter().zip(measured.values()) {
            if self.is_chosen(name) {
                continue;
            }
            let taken = self.settings.assign(name, &value);
            assert!(taken == Some(Ok(())), "`{name}` takes `{value}`");
            self.origins.insert(name, Origin::Measured(file.to_owned()));
        }
    }

    fn is_chosen(&self, name: &str) -> bool {
        !matches!(self.origin_of(name), Origin::Default | Origin::Measured(_))
    }

    fn origin_of(&self, name: &str) -> &Origin {
        self.origins.get(name).unwrap_or(&Origin::Default)
    }

    fn check_exposure(&self) -> Result<(), SettingsError> {
        let surfaces = [
            ("listen", Some(self.settings.listen)),
            ("http", self.settings.http.addr()),
            ("s2", self.settings.s2.addr()),
        ];
        let is_exposed = |listen: &SocketAddr| !listen.ip().is_loopback() && !self.settings.insecure;
        for (setting, listen) in surfaces {
            if let Some(listen) = listen.filter(is_exposed) {
                let origin = self.origin_of(setting).clone();
                return Err(SettingsError::Exposed { setting, listen: listen.to_string(), origin });
            }
        }
        Ok(())
    }

    fn check_shares(&self) -> Result<(), SettingsError> {
        let Settings { log, memory, .. } = &self.settings;
        let half_shard_bytes = memory.shard_bytes_max.get() / 2;
        if memory.ring_bytes_max.get() > half_shard_bytes {
            let names = ("memory.ring_bytes_max", "memory.shard_bytes_max");
            return Err(self.share(names, "half of"));
        }
        if log.segment_bytes.get() > log.bytes_max.get() / crate::plan::LOG_SEGMENTS_MIN {
            return Err(self.share(("log.segment_bytes", "log.bytes_max"), "a quarter of"));
        }
        Ok(())
    }

    fn check_blocks(&self) -> Result<(), SettingsError> {
        let segment_bytes = self.settings.log.segment_bytes;
        if segment_bytes.as_usize().is_multiple_of(BLOCK_BYTES) {
            return Ok(());
        }
        let choice = Box::new(self.choice("log.segment_bytes"));
        let block = Bytes::new(BLOCK_BYTES as u64);
        Err(SettingsError::Unaligned { choice, block })
    }

    fn share(&self, names: (&'static str, &'static str), share: &'static str) -> SettingsError {
        let (part, whole) = names;
        SettingsError::Share { part: Box::new(self.choice(part)), share, whole: Box::new(self.choice(whole)) }
    }

    fn choice(&self, name: &'static str) -> Choice {
        let value = self.settings.shown(name).unwrap_or_default();
        Choice { name, value, origin: self.origin_of(name).clone() }
    }
}

fn find(name: &str, origin: &Origin) -> Result<&'static Setting, SettingsError> {
    Settings::all().find(|setting| setting.name == name).ok_or_else(|| SettingsError::Unknown {
        name: name.to_owned(),
        origin: origin.clone(),
        nearest: nearest(name, |setting| setting.name.to_owned()),
    })
}

/// The known name nearest to `given`, when it is at most two letters off or stands in another section.
fn nearest(given: &str, name_of: impl Fn(&Setting) -> String) -> Option<String> {
    let last = |name: &str| name.rsplit('.').next().unwrap_or_default().to_owned();
    let by_slips =
        Settings::all().map(&name_of).map(|name| (slips(given, &name), name)).min().filter(|(slips, _)| *slips <= 2);
    by_slips.map(|(_, name)| name).or_else(|| Settings::all().map(name_of).find(|name| last(name) == last(given)))
}

/// Letters that must be put in, taken out or changed to turn one name into the other.
fn slips(from: &str, to: &str) -> usize {
    let to: Vec<char> = to.chars().collect();
    let mut row: Vec<usize> = (0..=to.len()).collect();
    for (done, letter) in from.chars().enumerate() {
        let mut diagonal = row[0];
        row[0] = done + 1;
        for (at, wanted) in to.iter().enumerate() {
            let changed = diagonal + usize::from(letter != *wanted);
            diagonal = row[at + 1];
            row[at + 1] = changed.min(diagonal + 1).min(row[at] + 1);
        }
    }
    row[to.len()]
}
