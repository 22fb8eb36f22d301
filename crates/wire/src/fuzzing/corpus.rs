//! What does the corpus of a target hold, and is it judged as it should be?
//!
//! `fuzz/corpus/TARGET` holds the seeds of the target, which its tests make from real encodings, and inputs that fuzzing found to lead
//! where no other does, which `scripts/fuzz --keep` puts there.

use std::collections::BTreeMap;
use std::fs;
use std::panic::catch_unwind;
use std::path::{Path, PathBuf};

/// A decoder, or some that belong together, and what is checked of them.
#[derive(Debug, Clone, Copy)]
pub struct Target {
    /// What its corpus is called, and its file among the targets of `fuzz`.
    pub name: &'static str,
    /// Panics where something doesn't hold.
    pub check: fn(&[u8]),
}

/// An input that fuzzing begins with.
#[derive(Debug, Clone)]
pub struct Seed {
    /// Of which target.
    pub target: &'static str,
    /// What it is, unlike the others of the target.
    pub name: String,
    /// Its bytes.
    pub bytes: Vec<u8>,
}

impl Seed {
    /// A seed of this name.
    #[must_use]
    pub fn new(target: &'static str, name: impl Into<String>, bytes: impl Into<Vec<u8>>) -> Self {
        Self { target, name: name.into(), bytes: bytes.into() }
    }
}

/// Most bytes that the corpus of a target has: all of them together stay near 1 MiB, and are replayed within seconds.
const CORPUS_BYTES_MAX: usize = 40 << 10;
/// What the name of a seed's file begins with.
const SEED: &str = "seed-";

/// Checks all that the corpora of `targets` hold, and that their seeds are `seeds`; with `NOVA_BLESS=1` in the environment it writes those
/// first.
///
/// # Panics
/// When a check does, or a corpus is not what it should be.
pub fn replay(targets: &[Target], seeds: &[Seed]) {
    let fuzz = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz");
    let is_known = |seed: &Seed| targets.iter().any(|target| target.name == seed.target);
    assert!(seeds.iter().all(is_known), "a seed of a target that is none");
    for Target { name, check } in targets {
        let program = fuzz.join("fuzz_targets").join(name).with_extension("rs");
        assert!(program.is_file(), "{} is not there", program.display());
        let folder = fuzz.join("corpus").join(name);
        keep_seeds(&folder, seeds.iter().filter(|seed| seed.target == *name));
        let inputs = inputs(&folder);
        let bytes: usize = inputs.values().map(Vec::len).sum();
        assert!(bytes <= CORPUS_BYTES_MAX, "{} has {bytes} bytes, more than {CORPUS_BYTES_MAX}", folder.display());
        for (path, input) in &inputs {
            let held = catch_unwind(|| check(input)).is_ok();
            assert!(held, "{} is not judged as it should be; what was missed stands above", path.display());
        }
    }
}

/// Compares the seeds of a corpus with what they should be, or writes them.
fn keep_seeds<'a>(folder: &Path, seeds: impl Iterator<Item = &'a Seed>) {
    let wanted: BTreeMap<PathBuf, &[u8]> =
        seeds.map(|seed| (folder.join(format!("{SEED}{}", seed.name)), &seed.bytes[..])).collect();
    assert!(!wanted.is_empty(), "{} has no seed", folder.display());
    let is_seed = |path: &Path| path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(SEED));
    if std::env::var_os("NOVA_BLESS").is_some() {
        fs::create_dir_all(folder).expect("the folder is made");
        let gone = inputs(folder).into_keys().filter(|path| is_seed(path) && !wanted.contains_key(path));
        gone.for_each(|path| fs::remove_file(path).expect("the seed goes"));
        wanted.iter().for_each(|(path, bytes)| fs::write(path, bytes).expect("the seed is written"));
    }
    let mut found = inputs(folder);
    found.retain(|path, _| is_seed(path));
    let is_same =
        found.iter().map(|(path, bytes)| (path, &bytes[..])).eq(wanted.iter().map(|(path, bytes)| (path, *bytes)));
    let remedy = "write them anew with `NOVA_BLESS=1 cargo test --workspace --lib corpora`";
    assert!(is_same, "the seeds in {} are not what the code makes: {remedy}", folder.display());
}

/// The files of a corpus, each with its bytes.
fn inputs(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let entries = fs::read_dir(folder).unwrap_or_else(|error| panic!("{}: {error}", folder.display()));
    let read = |path: PathBuf| {
        let bytes = fs::read(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        (path, bytes)
    };
    entries.map(|entry| read(entry.expect("the folder is read").path())).collect()
}
