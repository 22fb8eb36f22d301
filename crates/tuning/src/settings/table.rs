//! How does one setting become a struct field, a row of the table and a parser, written once?

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::units::{Bytes, Millis};

/// One row of the table of settings; made by the `settings!` macro beside the struct field.
#[derive(Debug, Clone, Copy)]
pub struct Setting {
    /// Name in the file, sections joined by dots: `log.segment_bytes`.
    pub name: &'static str,
    /// What it sets, in which unit, and what is traded.
    pub doc: &'static str,
    /// What a value looks like: `a size such as 64MiB`.
    pub wanted: &'static str,
    /// Whether its flag may stand without a value, which then means true.
    pub is_switch: bool,
    /// The default, as text that reads back as itself.
    pub default: fn() -> String,
    /// Smallest and largest value allowed, where the kind of value has any.
    pub range: fn() -> Option<(String, String)>,
}

impl Setting {
    /// Its variable in the environment: `NOVA_LOG_SEGMENT_BYTES`.
    #[must_use]
    pub fn variable(&self) -> String {
        format!("NOVA_{}", self.name.replace('.', "_").to_ascii_uppercase())
    }

    /// Its flag without the dashes in front: `log-segment-bytes`.
    #[must_use]
    pub fn flag(&self) -> String {
        self.name.replace(['.', '_'], "-")
    }
}

/// A kind of value that a setting can have: one way to read it, one way to show it.
pub(super) trait SettingValue: Sized + PartialOrd {
    const WANTED: &'static str;
    const IS_SWITCH: bool = false;
    fn read(text: &str) -> Option<Self>;
    fn show(&self) -> String;
}

macro_rules! by_from_str {
    ($($Type:ty, $wanted:literal;)+) => {$(
        impl SettingValue for $Type {
            const WANTED: &'static str = $wanted;
            fn read(text: &str) -> Option<Self> {
                text.parse().ok()
            }
            fn show(&self) -> String {
                self.to_string()
            }
        }
    )+};
}

by_from_str! {
    u16, "a whole number";
    u32, "a whole number";
    Bytes, "a size in bytes, or such as 64MiB";
    Millis, "a time in milliseconds, or such as 30s";
    SocketAddr, "an IP address and a port, such as 127.0.0.1:7781";
}

impl SettingValue for bool {
    const WANTED: &'static str = "true or false";
    const IS_SWITCH: bool = true;
    fn read(text: &str) -> Option<Self> {
        text.parse().ok()
    }
    fn show(&self) -> String {
        self.to_string()
    }
}

impl SettingValue for PathBuf {
    const WANTED: &'static str = "a path, not empty";
    fn read(text: &str) -> Option<Self> {
        (!text.is_empty()).then(|| Self::from(text))
    }
    fn show(&self) -> String {
        self.display().to_string()
    }
}

/// Why one value was not taken; the caller knows the name and where it came from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Fault {
    Malformed { wanted: &'static str },
    OutOfRange { low: String, high: String },
}

/// Reads `text` into `field`; on a fault the field keeps what it had.
pub(super) fn assign<T: SettingValue>(field: &mut T, text: &str, range: Option<(T, T)>) -> Result<(), Fault> {
    let value = T::read(text).ok_or(Fault::Malformed { wanted: T::WANTED })?;
    if let Some((low, high)) = range
        && (value < low || high < value)
    {
        return Err(Fault::OutOfRange { low: low.show(), high: high.show() });
    }
    *field = value;
    Ok(())
}

/// The range of a setting, from zero or one pair.
pub(super) fn range_of<T, const N: usize>(pairs: [(T, T); N]) -> Option<(T, T)> {
    pairs.into_iter().next()
}

/// Declares one section of settings: struct, defaults, rows of the table, assignment by name.
///
/// A line is `field: Type = default, low => high;` under its doc comment; the range is left out
/// where the kind of value has none.
macro_rules! settings {
    (
        $(#[doc = $about:literal])+
        $Section:ident under $prefix:literal {
            $(
                $(#[doc = $doc:literal])+
                $field:ident: $Type:ty = $default:expr $(, $low:expr => $high:expr)?;
            )+
        }
        sections { $( $(#[doc = $inner_doc:literal])+ $inner:ident: $Inner:ty; )* }
    ) => {
        $(#[doc = $about])+
        #[derive(Debug, Clone, PartialEq, Eq)]
        pub struct $Section {
            $( $(#[doc = $doc])+ pub $field: $Type, )+
            $( $(#[doc = $inner_doc])+ pub $inner: $Inner, )*
        }

        impl Default for $Section {
            fn default() -> Self {
                Self { $( $field: $default, )+ $( $inner: <$Inner>::default(), )* }
            }
        }

        impl $Section {
            const ROWS: &'static [$crate::settings::Setting] = &[$(
                $crate::settings::Setting {
                    name: concat!($prefix, stringify!($field)),
                    doc: concat!($($doc),+),
                    wanted: <$Type as $crate::settings::table::SettingValue>::WANTED,
                    is_switch: <$Type as $crate::settings::table::SettingValue>::IS_SWITCH,
                    default: || {
                        let value: $Type = $default;
                        $crate::settings::table::SettingValue::show(&value)
                    },
                    range: || {
                        let pairs: [($Type, $Type); _] = [$( ($low, $high) )?];
                        $crate::settings::table::range_of(pairs).map(|(low, high)| {
                            use $crate::settings::table::SettingValue;
                            (low.show(), high.show())
                        })
                    },
                },
            )+];

            /// Assigns the setting of this name; none when this section has no such setting.
            fn assign(
                &mut self,
                name: &str,
                text: &str,
            ) -> Option<Result<(), $crate::settings::table::Fault>> {
                $(
                    if name == concat!($prefix, stringify!($field)) {
                        let range = $crate::settings::table::range_of([$( ($low, $high) )?]);
                        return Some($crate::settings::table::assign(&mut self.$field, text, range));
                    }
                )+
                $(
                    if let Some(outcome) = self.$inner.assign(name, text) {
                        return Some(outcome);
                    }
                )*
                None
            }

            /// The value of the setting of this name, as text that reads back as itself.
            fn shown(&self, name: &str) -> Option<String> {
                $(
                    if name == concat!($prefix, stringify!($field)) {
                        return Some($crate::settings::table::SettingValue::show(&self.$field));
                    }
                )+
                $(
                    if let Some(text) = self.$inner.shown(name) {
                        return Some(text);
                    }
                )*
                None
            }
        }
    };
}

pub(super) use settings;
