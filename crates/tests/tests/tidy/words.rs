//! Does the public surface use the words of this project, and no other system's?

use crate::report;
use crate::tree::{self, Source};

/// Words of other systems, with ours.
const BANNED: &[(&str, &str)] = &[
    ("topic", "stream"),
    ("partition", "stream or shard"),
    ("wal", "head log"),
    ("node", "star"),
    ("broker", "star"),
    ("consumer", "subscriber"),
    ("lsm", "index"),
];

/// Crates in which an offset is a place in a file or an object; elsewhere it would be taken for a position.
const OFFSET_CRATES: &[&str] = &["wire", "express-log", "dataplane", "control", "bench", "tests"];

const KEYWORDS: &[&str] =
    &["fn", "struct", "enum", "trait", "type", "mod", "const", "static", "async", "unsafe", "crate", "super", "in"];

/// Names that other modules may use, each with the byte it starts at.
fn public_names(source: &Source) -> Vec<(usize, &str)> {
    let mut names = tree::names(&source.production);
    let mut found = Vec::new();
    while let Some((_, name)) = names.next() {
        if name == "pub" {
            found.extend(names.by_ref().find(|(_, name)| !KEYWORDS.contains(name)));
        }
    }
    found
}

/// The words that a name is made of, in lower case.
fn words(name: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut was_lower = false;
    for c in name.chars() {
        if c == '_' || (c.is_uppercase() && was_lower) {
            words.push(String::new());
        }
        was_lower = c.is_lowercase();
        if let (true, Some(word)) = (c != '_', words.last_mut()) {
            word.extend(c.to_lowercase());
        }
    }
    words
}

fn faults(sources: &[Source]) -> Vec<String> {
    let mut faults = Vec::new();
    for source in sources {
        for (byte, name) in public_names(source) {
            for word in words(name) {
                let word = word.trim_end_matches('s');
                let ours = BANNED.iter().find(|(banned, _)| *banned == word).map(|(_, ours)| *ours);
                let is_place = OFFSET_CRATES.contains(&source.krate());
                let ours = ours.or_else(|| (word == "offset" && !is_place).then_some("position or seq_num"));
                faults.extend(ours.map(|ours| format!("{} `{name}`: say {ours}", source.at(byte))));
            }
        }
    }
    faults
}

#[test]
fn public_names_use_our_words() {
    assert_eq!(words("StreamTopics"), ["stream", "topics"]);
    assert_eq!(words("wal_bytes_max"), ["wal", "bytes", "max"]);
    let text = "pub(crate) struct Nodes {\n    pub offset: u64,\n}\nfn topic() {}\npub async fn walk() {}\n";
    let bad = [Source::new("crates/client/src/a.rs", text)];
    assert_eq!(faults(&bad).len(), 2, "{:?}", faults(&bad));
    report(&faults(&tree::sources()), "see the words in docs/ARCHITECTURE.md");
}
