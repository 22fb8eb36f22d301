//! Does each file say its question, stay readable, and speak of the present?

use crate::report;
use crate::tree::{self, Source};

const LINES_MAX: usize = 500;
const COMMENT_LINES_MAX: usize = 8;

/// Files that are longer than [`LINES_MAX`], with the lines they have. A number may only be lowered,
/// and a file under the bound leaves the list.
const LONG: &[(&str, usize)] = &[];

const BANNED_MODULES: &[&str] = &["util", "utils", "common", "helper", "helpers", "misc", "types"];

/// Words of a history or of how the work was organised, which belongs to version control.
const BANNED_WORDS: &[&str] = &[
    "previously",
    "no longer",
    "formerly",
    "phase 1",
    "phase 2",
    "phase 3",
    "session said",
    "the brief",
    "todo",
    "fixme",
    "as requested",
];

fn production_lines(source: &Source) -> usize {
    let lines = source.production.lines().zip(source.comments.lines());
    lines.filter(|(code, comment)| !code.trim().is_empty() || !comment.trim().is_empty()).count()
}

fn length_fault(source: &Source, long: &[(&str, usize)]) -> Option<String> {
    let lines = production_lines(source);
    let listed = long.iter().find(|(path, _)| *path == source.path);
    let allowed_lines = listed.map_or(LINES_MAX, |(_, lines)| *lines);
    let path = &source.path;
    if lines > allowed_lines {
        return Some(format!("{path} has {lines} lines, more than {allowed_lines}"));
    }
    let is_slack = listed.is_some() && lines < allowed_lines;
    is_slack.then(|| format!("{path} has {lines} lines: lower or remove its entry in LONG"))
}

fn shape_faults(source: &Source) -> Vec<String> {
    let mut faults = Vec::new();
    let opening = source.text.lines().find(|line| !line.trim().is_empty());
    // Tests beside the code answer the question of the file that they test.
    let has_question = opening.is_some_and(|line| line.starts_with("//!"));
    if !has_question && !source.path.ends_with("/tests.rs") {
        faults.push(format!("{} does not open with `//!`", source.path));
    }
    for part in source.path.trim_end_matches(".rs").split('/') {
        if BANNED_MODULES.contains(&part) {
            faults.push(format!("{} is called `{part}`, which says nothing", source.path));
        }
    }
    let mut run = 0;
    for (index, line) in source.text.lines().enumerate() {
        let line = line.trim_start();
        let is_inline = line.starts_with("//") && !line.starts_with("///") && !line.starts_with("//!");
        run = if is_inline { run + 1 } else { 0 };
        if run == COMMENT_LINES_MAX + 1 {
            let (path, line) = (&source.path, index + 1);
            faults.push(format!("{path}:{line} an inline comment of over {COMMENT_LINES_MAX} lines"));
        }
    }
    faults
}

fn word_faults(path: &str, text: &str) -> Vec<String> {
    let mut faults = Vec::new();
    for (index, line) in text.to_lowercase().lines().enumerate() {
        let has = |word: &&&str| {
            let is_part = |c: Option<char>| c.is_some_and(char::is_alphanumeric);
            line.match_indices(**word).any(|(at, word)| {
                let (before, behind) = (&line[..at], &line[at + word.len()..]);
                !is_part(before.chars().next_back()) && !is_part(behind.chars().next())
            })
        };
        let found = BANNED_WORDS.iter().filter(has);
        faults.extend(found.map(|word| format!("{path}:{} says `{word}`", index + 1)));
    }
    faults
}

#[test]
fn files_stay_under_the_bound_and_the_list_only_shrinks() {
    let bad = Source::new("crates/x/src/a.rs", &"fn f() {}\n".repeat(501));
    assert!(length_fault(&bad, &[]).is_some());
    assert!(length_fault(&bad, &[("crates/x/src/a.rs", 501)]).is_none());
    assert!(length_fault(&bad, &[("crates/x/src/a.rs", 502)]).is_some());
    let sources = tree::sources();
    let production = sources.iter().filter(|source| !source.is_test());
    let faults: Vec<_> = production.filter_map(|source| length_fault(source, LONG)).collect();
    report(&faults, "part the file by the questions it answers");
    for (path, _) in LONG {
        assert!(sources.iter().any(|source| source.path == *path), "{path} in LONG is not there");
    }
}

#[test]
fn files_open_with_their_question_and_have_names_that_say_something() {
    let comment = "// why\n".repeat(9);
    let bad = Source::new("crates/x/src/util.rs", &format!("fn f() {{}}\n{comment}"));
    assert_eq!(shape_faults(&bad).len(), 3, "{:?}", shape_faults(&bad));
    let faults: Vec<_> = tree::sources().iter().flat_map(shape_faults).collect();
    report(&faults, "see docs/STYLE.md");
}

#[test]
fn comments_and_documents_speak_of_the_present() {
    assert_eq!(word_faults("a", "It was Previously so.\nmethodology").len(), 1);
    let mut faults = Vec::new();
    for source in tree::sources() {
        faults.extend(word_faults(&source.path, &source.comments));
    }
    let documents = tree::documents();
    for (path, text) in documents.iter().filter(|(path, _)| path != "CHANGELOG.md") {
        faults.extend(word_faults(path, text));
    }
    report(&faults, "say what holds now, and leave the history to version control");
}
