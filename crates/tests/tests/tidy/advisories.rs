//! Is each advisory that touches a package in a lock file explained, and was each package looked up?

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use cargo_metadata::semver::{Version, VersionReq};
use toml::{Table, Value};

use crate::{report, tree};

const SNAPSHOT: &str = "crates/tests/tests/tidy/advisories.toml";
const LOCKS: &[&str] = &["Cargo.lock", "crates/tests/s2-sdk/Cargo.lock", "fuzz/Cargo.lock"];
const KINDS: &[&str] = &["vulnerability", "unsound", "unmaintained", "notice"];

/// What is known against a package.
#[derive(Debug)]
struct Advisory {
    id: String,
    package: String,
    is_withdrawn: bool,
    /// The versions with the fault mended, and those that never had it.
    sound: Vec<VersionReq>,
}

impl Advisory {
    fn parse(table: &Table, taken: &str) -> Result<Self, String> {
        only(table, &["id", "package", "kind", "withdrawn", "patched", "unaffected"])?;
        let (id, kind) = (text(table, "id")?, text(table, "kind")?);
        if !id.starts_with("RUSTSEC-") || !KINDS.contains(&kind) {
            return Err(format!("no id, or a kind that is none of {KINDS:?}: {table}"));
        }
        let is_withdrawn = table.contains_key("withdrawn");
        if is_withdrawn && date(table, "withdrawn")? > taken {
            return Err(format!("{id} is withdrawn after the snapshot"));
        }
        let mut ranges = texts(table, "patched")?;
        if table.contains_key("unaffected") {
            ranges.extend(texts(table, "unaffected")?);
        }
        let parse = |range| VersionReq::parse(range).map_err(|e| format!("{id}: `{range}`: {e}"));
        let sound = ranges.into_iter().map(parse).collect::<Result<_, _>>()?;
        Ok(Self { id: id.to_owned(), package: text(table, "package")?.to_owned(), is_withdrawn, sound })
    }

    /// A pre-release that no range names is touched: better a false alarm than none.
    fn touches(&self, locked: &Locked) -> bool {
        let is_sound = || self.sound.iter().any(|range| range.matches(&locked.version));
        !self.is_withdrawn && self.package == locked.package && !is_sound()
    }
}

/// What the snapshot says.
#[derive(Debug)]
struct Snapshot {
    looked_up: BTreeSet<String>,
    advisories: Vec<Advisory>,
    /// By id: the packages that bring what it touches, as `name version`, of which the explanation speaks.
    explained: BTreeMap<String, BTreeSet<String>>,
}

impl Snapshot {
    fn parse(content: &str) -> Result<Self, String> {
        let table: Table = content.parse().map_err(|e| format!("no TOML: {e}"))?;
        only(&table, &["snapshot", "looked_up", "advisory", "explained"])?;
        let taken = date(&table, "snapshot")?;
        let looked_up: BTreeSet<_> = texts(&table, "looked_up")?.into_iter().map(str::to_owned).collect();
        let parsed = tables(&table, "advisory")?.into_iter().map(|advisory| Advisory::parse(advisory, taken));
        let advisories = parsed.collect::<Result<Vec<_>, _>>()?;
        let mut ids = BTreeSet::new();
        for Advisory { id, package, .. } in &advisories {
            if !looked_up.contains(package) || !ids.insert(id) {
                return Err(format!("{id} stands twice, or its package is not in `looked_up`"));
            }
        }
        let mut explained = BTreeMap::new();
        for entry in tables(&table, "explained")? {
            only(entry, &["id", "through", "why", "until"])?;
            let (id, _, _) = (text(entry, "id")?, text(entry, "why")?, text(entry, "until")?);
            let through = texts(entry, "through")?.into_iter().map(str::to_owned).collect();
            if explained.insert(id.to_owned(), through).is_some() {
                return Err(format!("{id} is explained twice"));
            }
        }
        Ok(Self { looked_up, advisories, explained })
    }

    fn faults(&self, locked: &[Locked]) -> Vec<String> {
        let mut faults = Vec::new();
        let bought = || locked.iter().filter(|locked| !locked.is_ours);
        let packages: BTreeSet<_> = bought().map(|locked| locked.package.clone()).collect();
        let unknown = packages.difference(&self.looked_up);
        faults.extend(unknown.map(|package| format!("{package} is not in `looked_up` of advisories.toml")));
        let ids: BTreeSet<_> = self.advisories.iter().map(|advisory| &advisory.id).collect();
        let unmeant = self.explained.keys().filter(|id| !ids.contains(id));
        faults.extend(unmeant.map(|id| format!("{id} is explained and is no advisory of the snapshot")));
        for advisory in &self.advisories {
            let touched: Vec<_> = bought().filter(|locked| advisory.touches(locked)).collect();
            let users = locked.iter().filter(|locked| locked.uses.contains(&advisory.package)).map(Locked::name);
            faults.extend(self.fault(advisory, &touched, &users.collect()));
        }
        faults
    }

    fn fault(&self, advisory: &Advisory, touched: &[&Locked], users: &BTreeSet<String>) -> Option<String> {
        let id = &advisory.id;
        match (touched, self.explained.get(id)) {
            ([], None) => None,
            ([], Some(_)) => Some(format!("{id} touches nothing: take its explanation out")),
            ([first, ..], None) => Some(format!("{id} touches {} in {}", first.name(), first.lock)),
            ([..], Some(through)) if through == users => None,
            ([..], Some(through)) => Some(format!("{id} is explained for {through:?}, and comes in through {users:?}")),
        }
    }
}

/// A version of a package in a lock file.
#[derive(Debug)]
struct Locked {
    lock: String,
    package: String,
    version: Version,
    is_ours: bool,
    /// Names of the packages that it is built from.
    uses: BTreeSet<String>,
}

impl Locked {
    fn name(&self) -> String {
        format!("{} {}", self.package, self.version)
    }
}

/// What a lock file holds. Packages of ours have no source there.
fn locked(lock: &str, content: &str) -> Result<Vec<Locked>, String> {
    let table: Table = content.parse().map_err(|e| format!("{lock}: {e}"))?;
    let parsed = tables(&table, "package")?.into_iter().map(|table| {
        let (package, version) = (text(table, "name")?.to_owned(), text(table, "version")?);
        let version = Version::parse(version).map_err(|e| format!("{package} {version}: {e}"))?;
        // `name`, or `name version` where the lock file holds several.
        let uses = if table.contains_key("dependencies") { texts(table, "dependencies")? } else { Vec::new() };
        let uses = uses.into_iter().filter_map(|used| used.split(' ').next()).map(str::to_owned).collect();
        Ok(Locked { lock: lock.to_owned(), package, version, is_ours: !table.contains_key("source"), uses })
    });
    parsed.collect()
}

fn only(table: &Table, keys: &[&str]) -> Result<(), String> {
    let unknown = table.keys().find(|key| !keys.contains(&key.as_str()));
    unknown.map_or(Ok(()), |key| Err(format!("`{key}` is none of {keys:?}")))
}

fn text<'a>(table: &'a Table, key: &str) -> Result<&'a str, String> {
    let text = table.get(key).and_then(Value::as_str).filter(|text| !text.trim().is_empty());
    text.ok_or_else(|| format!("no text as `{key}` in {table}"))
}

/// A day as `2026-01-31`, so that days compare as their texts do.
fn date<'a>(table: &'a Table, key: &str) -> Result<&'a str, String> {
    let date = text(table, key)?;
    let shape: String = date.chars().map(|c| if c.is_ascii_digit() { '0' } else { c }).collect();
    if shape == "0000-00-00" { Ok(date) } else { Err(format!("`{key}`: {date} is no day")) }
}

fn texts<'a>(table: &'a Table, key: &str) -> Result<Vec<&'a str>, String> {
    let values = table.get(key).and_then(Value::as_array);
    let texts = values.and_then(|values| values.iter().map(Value::as_str).collect());
    texts.ok_or_else(|| format!("no list of texts as `{key}` in {table}"))
}

/// The tables under a key, or none if the key is not there.
fn tables<'a>(table: &'a Table, key: &str) -> Result<Vec<&'a Table>, String> {
    let Some(value) = table.get(key) else {
        return Ok(Vec::new());
    };
    let tables = value.as_array().and_then(|values| values.iter().map(Value::as_table).collect());
    tables.ok_or_else(|| format!("`{key}` is no list of tables"))
}

#[test]
fn every_advisory_that_touches_a_lock_file_is_explained() {
    let read = |path: &str| fs::read_to_string(tree::root().join(path)).expect("the file is there");
    let snapshot = Snapshot::parse(&read(SNAPSHOT)).expect("the snapshot is well-formed");
    let parsed = LOCKS.iter().map(|lock| locked(lock, &read(lock)).expect("cargo wrote the lock file"));
    let locked: Vec<_> = parsed.flatten().collect();
    let ours = locked.iter().filter(|locked| locked.is_ours).map(|locked| locked.package.as_str());
    assert!(locked.len() > 100 && ours.clone().any(|name| name == "wire") && !ours.clone().any(|name| name == "tokio"));
    report(&snapshot.faults(&locked), "take a version without it, or say in advisories.toml why it does no harm here");
}

const SAMPLE: &str = r#"
snapshot = "2026-03-02"
looked_up = ["left", "right"]
advisory = [
    { id = "RUSTSEC-2026-0001", package = "left", kind = "unsound", patched = [
        ">= 1.2.3", "< 1.0.0, >= 0.9.4",
    ], unaffected = ["< 0.5.0"] },
]
"#;

const EXPLAINED: &str = r#"
[[explained]]
id = "RUSTSEC-2026-0001"
through = ["ours 0.1.0", "right 7.0.0"]
why = "Nothing calls it."
until = "a release without it"
"#;

/// A lock file with a version of `left`, and with `right` and a package of ours that use it.
fn sample_lock(left: &str) -> Vec<Locked> {
    let bought = "source = \"registry+x\"";
    let package = |name: &str, version: &str, rest: &str| {
        format!("[[package]]\nname = \"{name}\"\nversion = \"{version}\"\n{rest}\n")
    };
    let packages = [
        package("left", left, bought),
        package("right", "7.0.0", &format!("{bought}\ndependencies = [\"left {left}\"]")),
        package("ours", "0.1.0", "dependencies = [\"left\", \"right\"]"),
    ];
    locked("some.lock", &packages.concat()).expect("a lock file")
}

#[test]
fn a_version_that_no_range_calls_sound_is_touched() {
    let snapshot = Snapshot::parse(SAMPLE).expect("a snapshot");
    let explained = Snapshot::parse(&format!("{SAMPLE}{EXPLAINED}")).expect("a snapshot");
    let check = |version: &str, is_touched: bool| {
        let lock = sample_lock(version);
        let fault = format!("RUSTSEC-2026-0001 touches left {version} in some.lock");
        let wanted = if is_touched { vec![fault] } else { Vec::new() };
        assert_eq!(snapshot.faults(&lock), wanted);
        // What explains it is wanted just as long.
        assert_eq!(explained.faults(&lock).is_empty(), is_touched, "{version}");
    };
    check("1.2.2", true);
    check("1.2.3", false);
    check("1.2.3+build", false);
    check("1.3.0-rc.1", true);
    check("1.0.0", true);
    check("0.9.4", false);
    check("0.9.3", true);
    check("0.5.0", true);
    check("0.4.9", false);
}

#[test]
fn an_advisory_without_ranges_touches_every_version_until_it_is_withdrawn() {
    let advisory = |rest: &str| {
        let advisory =
            format!("id = 'RUSTSEC-2026-0002', package = 'right', kind = 'unmaintained', patched = []{rest}");
        let text = SAMPLE.replace("\n]\n", &format!("\n    {{ {advisory} }},\n]\n"));
        Snapshot::parse(&text).expect("a snapshot").faults(&sample_lock("2.0.0"))
    };
    assert_eq!(advisory(""), ["RUSTSEC-2026-0002 touches right 7.0.0 in some.lock"]);
    assert_eq!(advisory(", withdrawn = '2026-03-01'"), [""; 0]);
}

#[test]
fn an_explanation_holds_for_what_it_speaks_of_only() {
    let check = |through: &str, wanted: Option<&str>| {
        let text = format!("{SAMPLE}{EXPLAINED}").replace("\"ours 0.1.0\", \"right 7.0.0\"", through);
        let found = Snapshot::parse(&text).expect("a snapshot").faults(&sample_lock("1.0.0"));
        assert_eq!(found.len(), wanted.iter().len(), "{through}: {found:?}");
        assert!(wanted.is_none_or(|wanted| found[0].contains(wanted)), "{through}: {found:?}");
    };
    check("\"right 7.0.0\", \"ours 0.1.0\"", None);
    check("\"right 7.0.0\"", Some("is explained for"));
    check("\"right 7.0.1\", \"ours 0.1.0\"", Some("is explained for"));
    let text = format!("{SAMPLE}{EXPLAINED}{}", EXPLAINED.replace("0001", "0002"));
    let found = Snapshot::parse(&text).expect("a snapshot").faults(&sample_lock("1.0.0"));
    assert_eq!(found, ["RUSTSEC-2026-0002 is explained and is no advisory of the snapshot"]);
}

#[test]
fn each_package_of_others_is_looked_up() {
    let snapshot = Snapshot::parse(&SAMPLE.replace("\"right\"", "")).expect("a snapshot");
    assert_eq!(snapshot.faults(&sample_lock("2.0.0")), ["right is not in `looked_up` of advisories.toml"]);
}

#[test]
fn a_malformed_snapshot_is_refused() {
    let whole = format!("{SAMPLE}{EXPLAINED}");
    assert!(Snapshot::parse(&whole).is_ok());
    let check = |from: &str, to: &str| {
        assert!(whole.contains(from), "{from}");
        assert!(Snapshot::parse(&whole.replacen(from, to, 1)).is_err(), "{from} -> {to}");
    };
    check("snapshot = \"2026-03-02\"", "");
    check("2026-03-02", "2 March 2026");
    check("snapshot", "advisories = 1\nsnapshot");
    check("[\"left\", \"right\"]", "[\"left\", 2]");
    check("[\"left\", \"right\"]", "[\"right\"]");
    check("RUSTSEC-2026-0001", "CVE-2026-1");
    check("package = \"left\"", "package = \"\"");
    check("kind = \"unsound\"", "kind = \"ugly\"");
    check("kind = \"unsound\"", "kind = \"unsound\", withdrawn = \"2026-03-03\"");
    check("patched", "fixed");
    check(">= 1.2.3", "since 1.2.3");
    check("Nothing calls it.", " ");
    check("until", "by");
    check("through = [", "# [");
    check(EXPLAINED, &format!("{EXPLAINED}{EXPLAINED}"));
    check("looked_up", "looked up");
    let row = &SAMPLE[SAMPLE.find("    {").expect("a row")..SAMPLE.rfind("]\n").expect("its end")];
    check(row, &row.repeat(2));
}
