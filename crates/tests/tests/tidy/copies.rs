//! Is anything written twice: a function's body, or a struct under the same name?

use std::collections::BTreeMap;

use crate::report;
use crate::tree::{self, Source};

const BODY_LINES_MIN: usize = 8;

/// Bodies of functions, each as its lines without blanks and comments, with where it stands.
fn bodies(source: &Source) -> Vec<(String, String)> {
    let mut found = Vec::new();
    for (byte, _) in tree::names(&source.code).filter(|(_, name)| *name == "fn") {
        let Some(open) = opening(&source.code[byte..]) else {
            continue;
        };
        let range = byte + open + 1..tree::closing(&source.code, byte + open);
        let (text, code) = (&source.text[range.clone()], &source.code[range]);
        let lines = text.lines().zip(code.lines());
        let lines = lines.filter(|(_, code)| !code.trim().is_empty());
        let lines: Vec<_> = lines.map(|(text, _)| text.trim()).collect();
        if lines.len() >= BODY_LINES_MIN {
            found.push((lines.join("\n"), source.at(byte)));
        }
    }
    found
}

/// Where the body opens of the function that `head` starts with; none for a declaration or a
/// function's type. A `;` inside of brackets is part of an array's type.
fn opening(head: &str) -> Option<usize> {
    let is_named = head.strip_prefix("fn ")?.starts_with(|c: char| c.is_alphabetic() || c == '_');
    let mut depth = 0_usize;
    for (at, byte) in head.bytes().enumerate().filter(|_| is_named) {
        match byte {
            b'(' | b'[' => depth += 1,
            b')' | b']' => depth = depth.saturating_sub(1),
            b'{' if depth == 0 => return Some(at),
            b';' if depth == 0 => return None,
            _ => {}
        }
    }
    None
}

/// Structs by name: where each stands, and its fields as `name: type`.
fn structs(source: &Source) -> Vec<(&str, String, Vec<String>)> {
    let code = &source.production;
    let mut found = Vec::new();
    for (byte, _) in tree::names(code).filter(|(_, name)| *name == "struct") {
        let Some((_, name)) = tree::names(&code[byte..]).nth(1) else {
            continue;
        };
        let head = &code[byte..];
        let Some(open) = head.find(['{', ';', '(']).filter(|at| head[*at..].starts_with('{')) else {
            continue;
        };
        let body = &code[byte + open + 1..tree::closing(code, byte + open)];
        let fields = body.lines().map(str::trim).filter(|line| !line.starts_with('#'));
        let fields = fields.filter_map(|line| line.trim_end_matches(',').split_once(": "));
        let fields = fields.map(|(name, kind)| format!("{}: {kind}", name.rsplit(' ').next().unwrap_or(name)));
        found.push((name, source.at(byte), fields.collect()));
    }
    found
}

fn body_faults(sources: &[Source]) -> Vec<String> {
    let mut places: BTreeMap<String, Vec<String>> = BTreeMap::new();
    for (body, place) in sources.iter().flat_map(bodies) {
        places.entry(body).or_default().push(place);
    }
    let copied = places.into_values().filter(|places| places.len() > 1);
    copied.map(|places| format!("the same body: {}", places.join(", "))).collect()
}

fn struct_faults(sources: &[Source]) -> Vec<String> {
    let mut named: BTreeMap<&str, Vec<(String, Vec<String>)>> = BTreeMap::new();
    for (name, place, fields) in sources.iter().flat_map(structs) {
        named.entry(name).or_default().push((place, fields));
    }
    let mut faults = Vec::new();
    for (name, all) in named {
        for (index, (place, fields)) in all.iter().enumerate() {
            let twins = all[index + 1..].iter().filter(|(_, others)| is_twin(fields, others));
            faults.extend(twins.map(|(other, _)| format!("two structs `{name}`: {place}, {other}")));
        }
    }
    faults
}

/// Whether three quarters of the larger one's fields are in both.
fn is_twin(left: &[String], right: &[String]) -> bool {
    let shared = left.iter().filter(|field| right.contains(field)).count();
    shared > 0 && shared * 4 >= left.len().max(right.len()) * 3
}

#[test]
fn no_body_of_a_function_is_written_twice() {
    let body = "a();\nb();\nc();\nd();\ne();\nf();\ng();\nh();\n";
    let first = Source::new("crates/x/src/a.rs", &format!("fn one() {{\n{body}}}\n"));
    let second = Source::new("crates/y/src/b.rs", &format!("fn two() -> [u8; 4] {{\n// why\n\n{body}}}\n"));
    assert_eq!(body_faults(&[first, second]).len(), 1);
    report(&body_faults(&tree::sources()), "one of them calls the other, or both a third");
}

#[test]
fn no_struct_stands_twice() {
    let first = "pub struct A {\n    pub a: u8,\n    #[x]\n    b: u16,\n    c: u32,\n    d: u64,\n}\n";
    let second = "struct A {\n    a: u8,\n    b: u16,\n    c: u32,\n    e: u64,\n}\n";
    let third = "struct A {\n    a: u8,\n    b: u16,\n    f: u32,\n    e: u64,\n}\n";
    let source = |text| Source::new("crates/x/src/a.rs", text);
    assert_eq!(struct_faults(&[source(first), source(second)]).len(), 1);
    assert_eq!(struct_faults(&[source(first), source(third)]).len(), 0);
    report(&struct_faults(&tree::sources()), "one of them should not exist");
}
