//! What must hold of what an operator writes, and of what the kernel tells?

use std::fmt::Display;
use std::path::Path;

use wire::fuzzing::Target;

use crate::host::KernelRelease;
use crate::machine::CpuList;
use crate::settings::{Layers, Settings};
use crate::units::{Bytes, Millis};

/// The targets of this crate.
pub const TARGETS: &[Target] =
    &[Target { name: "host_texts", check: host_texts }, Target { name: "settings", check: settings }];

/// A settings file.
///
/// What it sets is the same once each setting is shown and set by its flag.
///
/// # Panics
/// When that is not so.
pub fn settings(file: &[u8]) {
    let Ok(text) = std::str::from_utf8(file) else { return };
    let loaded = Layers::default().file_text(Path::new("nova.toml"), text).and_then(Layers::finish);
    let Ok(loaded) = loaded else { return };
    let mut again = Layers::default();
    for setting in Settings::all() {
        let shown = loaded.settings().show(setting);
        again = again.flag(setting, &shown).unwrap_or_else(|error| panic!("`{shown}` is shown, and: {error}"));
    }
    let again = again.finish().expect("they held together before");
    assert_eq!(again.settings(), loaded.settings());
}

/// A text where a size, a time, a list of CPUs, a mask of them or a kernel's version is due.
///
/// What is taken is the same once it is written and read again.
///
/// # Panics
/// When that is not so.
pub fn host_texts(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
    comes_back(text, |text| text.parse::<Bytes>().ok());
    comes_back(text, |text| text.parse::<Millis>().ok());
    comes_back(text, CpuList::parse);
    comes_back(text, KernelRelease::parse);
    if let Some(cpus) = CpuList::parse_mask(text) {
        assert_eq!(CpuList::parse_mask(&cpus.mask()), Some(cpus));
    }
}

fn comes_back<T: Display + PartialEq + std::fmt::Debug>(text: &str, read: impl Fn(&str) -> Option<T>) {
    let Some(value) = read(text) else { return };
    assert_eq!(read(&value.to_string()), Some(value));
}

#[cfg(test)]
mod tests;
