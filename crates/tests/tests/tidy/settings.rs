//! Is each setting and each bound read by some code, and does the documentation list them all?

use std::fmt::Write;

use tuning::settings::{Setting, Settings};

use crate::tree::{self, Source};
use crate::{check_generated, report};

/// How code reads a setting. A name of one word is too common alone, and needs its owner in front.
fn reading(name: &str) -> String {
    let (section, field) = name.rsplit_once('.').unwrap_or(("settings", name));
    if field.contains('_') { format!(".{field}") } else { format!("{section}.{field}") }
}

fn has_name(source: &Source, wanted: &str) -> bool {
    source.production.match_indices(wanted).any(|(at, found)| {
        let behind = source.production[at + found.len()..].chars().next();
        !behind.is_some_and(|c| c.is_alphanumeric() || c == '_')
    })
}

fn is_used(wanted: &str, sources: &[Source]) -> bool {
    let mut readers = sources.iter().filter(|source| source.krate() != "tuning" && !source.is_test());
    readers.any(|source| has_name(source, wanted))
}

/// Fields that the start-up checks of `tuning` itself take up, and hand on as values.
fn is_prepared(name: &str, sources: &[Source]) -> bool {
    let wanted = format!(".{}", name.rsplit('.').next().unwrap_or(name));
    let mut checks = sources.iter().filter(|source| {
        matches!(
            source.path.as_str(),
            "crates/tuning/src/start.rs" | "crates/tuning/src/plan.rs" | "crates/tuning/src/settings/layers.rs"
        )
    });
    checks.any(|source| has_name(source, &wanted))
}

fn constants(source: &Source) -> Vec<&str> {
    let mut names = tree::names(&source.production).map(|(_, name)| name);
    let mut found = Vec::new();
    while let Some(name) = names.next() {
        if name == "const" {
            found.extend(names.next());
        }
    }
    found
}

fn page() -> String {
    let mut out = String::from(
        "# Settings\n\nGenerated from `tuning::settings` by the tidy test; do not edit. A flag beats the \
         environment, which beats\nthe file (`--config FILE`, TOML), which beats the default. A key that \
         is not listed is refused.\n",
    );
    let mut section = "";
    for setting in Settings::all() {
        let own = setting.name.rsplit_once('.').map_or("", |(section, _)| section);
        if own != section {
            write!(out, "\n## `[{own}]`\n").expect("a string takes all");
            section = own;
        }
        row(&mut out, setting);
    }
    out
}

fn row(out: &mut String, setting: &Setting) {
    let (name, flag, variable) = (setting.name, setting.flag(), setting.variable());
    let mut doc = setting.doc.split_whitespace().collect::<Vec<_>>().join(" ");
    doc.insert(0, ' ');
    let range = (setting.range)().map_or(String::new(), |(low, high)| format!("; {low} to {high}"));
    let default = (setting.default)();
    let wanted = setting.wanted;
    write!(
        out,
        "\n**`{name}`** (`--{flag}`, `{variable}`): {wanted}{range}; default `{default}`.\n{}\n",
        doc.trim_start()
    )
    .expect("a string takes all");
}

#[test]
fn every_setting_is_read_by_some_code() {
    let text = "fn f(s: &Settings) { s.log.segment_bytes_max; s.data }\n";
    let other = [Source::new("crates/cli/src/a.rs", text)];
    assert!(!is_used(&reading("log.segment_bytes"), &other) && !is_used(&reading("data"), &other));
    let sources = tree::sources();
    let is_read = |name: &str| is_used(&reading(name), &sources) || is_prepared(name, &sources);
    let unread = Settings::all().filter(|setting| !is_read(setting.name));
    let faults: Vec<_> = unread.map(|setting| format!("nothing reads `{}`", setting.name)).collect();
    report(&faults, "remove the setting, or read it");
}

#[test]
fn every_bound_is_kept_by_some_code() {
    let sources = tree::sources();
    let bounds = sources.iter().find(|source| source.path == "crates/tuning/src/bounds.rs");
    let names = constants(bounds.expect("the bounds are there"));
    assert!(!names.is_empty());
    let unread = names.into_iter().filter(|name| !is_used(name, &sources));
    let faults: Vec<_> = unread.map(|name| format!("nothing keeps `bounds::{name}`")).collect();
    report(&faults, "remove the bound, or keep it");
}

#[test]
fn the_page_of_settings_is_the_one_in_the_code() {
    check_generated("docs/settings.md", &page());
}
