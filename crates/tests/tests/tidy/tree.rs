//! What stands in the tree: every source file, with its code and its comments told apart.

use std::fs;
use std::path::{Path, PathBuf};

/// One Rust file.
#[derive(Debug)]
pub(crate) struct Source {
    /// Path below the root, with `/`.
    pub(crate) path: String,
    /// The file as it is.
    pub(crate) text: String,
    /// The code: comments and the insides of literals are blanks, lines and columns are kept.
    pub(crate) code: String,
    /// The comments: all else is blanks.
    pub(crate) comments: String,
    /// The code without what only tests see.
    pub(crate) production: String,
}

impl Source {
    pub(crate) fn new(path: &str, text: &str) -> Self {
        let (code, comments) = split(text);
        let production = without_tests(&code);
        let (path, text) = (path.to_owned(), text.to_owned());
        Self { path, text, code, comments, production }
    }

    /// Name of the crate's folder.
    pub(crate) fn krate(&self) -> &str {
        self.path.split('/').nth(1).unwrap_or_default()
    }

    /// Whether the file is there for tests only.
    pub(crate) fn is_test(&self) -> bool {
        let below_src = self.path.split("/src/").nth(1);
        self.krate() == "tests"
            || below_src.is_none()
            || self.path.ends_with("/tests.rs")
            || self.path.contains("/tests/")
    }

    /// Where a byte of the file stands, for a fault.
    pub(crate) fn at(&self, byte: usize) -> String {
        let line = self.code.as_bytes()[..byte].iter().filter(|byte| **byte == b'\n').count() + 1;
        format!("{}:{line}", self.path)
    }
}

/// The folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let crate_folder = std::env::var("CARGO_MANIFEST_DIR").expect("cargo runs this test");
    Path::new(&crate_folder).join("../..").canonicalize().expect("the workspace is there")
}

/// Every Rust file of the workspace, in the order of their paths.
pub(crate) fn sources() -> Vec<Source> {
    let root = root();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).expect("sources are UTF-8");
        Source::new(&below(&root, &path), &text)
    };
    let sources: Vec<_> = files(&root.join("crates"), "rs").into_iter().map(read).collect();
    assert!(sources.len() > 20, "the tree was not found from {}", root.display());
    sources
}

/// Every Markdown file for readers: path and text.
pub(crate) fn documents() -> Vec<(String, String)> {
    let root = root();
    let mut paths = files(&root.join("docs"), "md");
    paths.extend(["README.md", "CHANGELOG.md", "tuning/README.md"].map(|name| root.join(name)));
    let read = |path: PathBuf| Some((below(&root, &path), fs::read_to_string(&path).ok()?));
    paths.into_iter().filter_map(read).collect()
}

fn below(root: &Path, path: &Path) -> String {
    path.strip_prefix(root).unwrap_or(path).to_string_lossy().into_owned()
}

fn files(folder: &Path, extension: &str) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(folder) else {
        return Vec::new();
    };
    let mut paths: Vec<_> = entries.filter_map(|entry| Some(entry.ok()?.path())).collect();
    paths.sort();
    let below = |path: PathBuf| {
        if path.is_dir() && !path.ends_with("target") {
            return files(&path, extension);
        }
        let is_wanted = path.extension().is_some_and(|found| found == extension);
        if is_wanted { vec![path] } else { Vec::new() }
    };
    paths.into_iter().flat_map(below).collect()
}

/// What a run of characters is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Code,
    Comment,
    Literal,
}

/// Tells code from comments and from the insides of literals.
fn split(text: &str) -> (String, String) {
    let (mut code, mut comments) = (String::new(), String::new());
    let mut rest = text;
    while !rest.is_empty() {
        let (length, kind) = token(rest);
        let (taken, behind) = rest.split_at(length);
        let is_inside = |c: char| kind == Kind::Literal && !"\"'".contains(c);
        blank_into(&mut code, taken, |c| kind == Kind::Comment || is_inside(c));
        blank_into(&mut comments, taken, |_| kind != Kind::Comment);
        rest = behind;
    }
    (code, comments)
}

/// Length and kind of the comment, literal, name or single character that `rest` starts with.
fn token(rest: &str) -> (usize, Kind) {
    if rest.starts_with("//") {
        return (rest.find('\n').unwrap_or(rest.len()), Kind::Comment);
    }
    if rest.starts_with("/*") {
        let end = rest.find("*/").map_or(rest.len(), |end| end + 2);
        return (end, Kind::Comment);
    }
    let raw = rest.strip_prefix('b').unwrap_or(rest).strip_prefix('r');
    let raw = raw.and_then(|raw| raw.trim_start_matches('#').strip_prefix('"'));
    if let Some(raw) = raw {
        let opening = &rest[..rest.len() - raw.len()];
        let closing = format!("\"{}", "#".repeat(opening.matches('#').count()));
        let end = raw.find(&closing).map_or(raw.len(), |end| end + closing.len());
        return (opening.len() + end, Kind::Literal);
    }
    if rest.starts_with('"') {
        return (closed(rest, '"'), Kind::Literal);
    }
    let mut chars = rest.char_indices().skip(2);
    let is_char = rest.starts_with('\'') && chars.next().is_some_and(|(_, quote)| quote == '\'');
    if is_char || rest.starts_with("'\\") {
        return (closed(rest, '\''), Kind::Literal);
    }
    (word(rest).max(rest.chars().next().map_or(0, char::len_utf8)), Kind::Code)
}

/// Length of a name, which is taken whole so that its last letter opens no raw literal.
fn word(rest: &str) -> usize {
    let is_name = rest.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let end = rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
    if is_name { end } else { 0 }
}

/// Length up to the quote that is not escaped.
fn closed(rest: &str, quote: char) -> usize {
    let mut is_escaped = false;
    for (at, c) in rest.char_indices().skip(1) {
        if c == quote && !is_escaped {
            return at + 1;
        }
        is_escaped = c == '\\' && !is_escaped;
    }
    rest.len()
}

fn blank_into(out: &mut String, taken: &str, is_blank: impl Fn(char) -> bool) {
    for c in taken.chars() {
        if c == '\n' || !is_blank(c) {
            out.push(c);
        } else {
            (0..c.len_utf8()).for_each(|_| out.push(' '));
        }
    }
}

fn without_tests(code: &str) -> String {
    let mut out = code.to_owned();
    while let Some(start) = out.find("#[cfg(test)]") {
        let rest = &out[start..];
        let body = rest.find(['{', ';']).unwrap_or(rest.len() - 1);
        let end = start + if rest[body..].starts_with('{') { closing(rest, body) } else { body };
        let mut blank = String::new();
        blank_into(&mut blank, &out[start..=end], |_| true);
        out.replace_range(start..=end, &blank);
    }
    out
}

/// Where the brace that opens at `open` closes; the last byte when it does not.
pub(crate) fn closing(code: &str, open: usize) -> usize {
    let mut depth = 0_usize;
    for (at, byte) in code.bytes().enumerate().skip(open) {
        match byte {
            b'{' => depth += 1,
            b'}' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return at;
        }
    }
    code.len() - 1
}

/// Every name in some code, with the byte it starts at.
pub(crate) fn names(code: &str) -> impl Iterator<Item = (usize, &str)> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut from = 0;
    std::iter::from_fn(move || {
        let start = from + code[from..].find(is_name)?;
        let end = code[start..].find(|c| !is_name(c)).map_or(code.len(), |length| start + length);
        from = end;
        Some((start, &code[start..end]))
    })
}

#[test]
fn comments_and_literals_are_told_from_code() {
    let text = "let a = \"// no\\\" {\"; // yes\nlet b = '{'; /* é */ fn f<'a>() { r#\"}\"# }\n";
    let source = Source::new("crates/x/src/a.rs", text);
    assert_eq!(source.code.len(), text.len());
    assert!(!source.code.contains("no") && !source.code.contains("yes"));
    assert!(source.comments.contains("// yes") && source.comments.contains("/* é */"));
    assert_eq!(source.code.matches('{').count(), 1, "{}", source.code);
    assert!(source.code.contains("fn f<'a>() {"));
}

#[test]
fn what_only_tests_see_is_not_production() {
    let text = "fn a() {}\n#[cfg(test)]\nmod tests { fn b() { \"}\"; } }\nfn c() {}\n#[cfg(test)]\nmod t;\n";
    let source = Source::new("crates/x/src/a.rs", text);
    let found: Vec<_> = names(&source.production).map(|(_, name)| name).collect();
    assert_eq!(found, ["fn", "a", "fn", "c"]);
}
