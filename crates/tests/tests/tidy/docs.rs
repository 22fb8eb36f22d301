//! Do the names and the links in the documentation lead somewhere?

use std::collections::BTreeSet;
use std::path::Path;

use crate::report;
use crate::tree::{self, Source};

/// Texts between single backticks, outside fenced blocks, each with its line.
fn quoted(text: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    let mut is_fenced = false;
    for (index, line) in text.lines().enumerate() {
        if line.trim_start().starts_with("```") {
            is_fenced = !is_fenced;
        } else if !is_fenced {
            found.extend(line.split('`').skip(1).step_by(2).map(|text| (index + 1, text)));
        }
    }
    found
}

fn is_camel_case(name: &str) -> bool {
    let humps = name.chars().filter(|c| c.is_ascii_uppercase()).count();
    let has_lower = name.chars().any(|c| c.is_ascii_lowercase());
    name.starts_with(|c: char| c.is_ascii_uppercase())
        && humps > 1
        && has_lower
        && name.chars().all(|c| c.is_ascii_alphanumeric())
}

/// Names that must be in the code for this text to be true; none when it is not about code.
fn claims(text: &str, crates: &BTreeSet<String>) -> Vec<String> {
    let bare = text.trim_end_matches("()");
    let is_path = bare.chars().all(|c| c.is_ascii_alphanumeric() || "_:".contains(c));
    let parts: Vec<_> = bare.split("::").map(str::to_owned).collect();
    let is_ours = parts.len() > 1 && crates.contains(&parts[0]);
    let is_type = is_camel_case(&parts[0]);
    let is_function = bare != text;
    if !is_path || !(is_ours || is_type || is_function) {
        return Vec::new();
    }
    parts.into_iter().skip(usize::from(is_ours)).collect()
}

fn is_file_claim(text: &str) -> bool {
    let starts = ["crates/", "docs/", "scripts/", "tuning/", ".ci/"];
    starts.iter().any(|start| text.starts_with(start)) && !text.contains(['*', '<', ' '])
}

fn name_faults(documents: &[(String, String)], sources: &[Source]) -> Vec<String> {
    let crates = sources.iter().map(|source| source.krate().replace('-', "_")).collect();
    let modules = sources.iter().flat_map(|source| source.path.trim_end_matches(".rs").split('/'));
    let mut known: BTreeSet<&str> = modules.collect();
    for source in sources {
        known.extend(tree::names(&source.code).map(|(_, name)| name));
    }
    let mut faults = Vec::new();
    for (path, text) in documents {
        for (line, quoted) in quoted(text) {
            let missing = claims(quoted, &crates).into_iter().filter(|name| !known.contains(name.as_str()));
            faults.extend(missing.map(|name| format!("{path}:{line} `{quoted}`: no `{name}` in the code")));
        }
    }
    faults
}

fn link_faults(documents: &[(String, String)], root: &Path) -> Vec<String> {
    let mut faults = Vec::new();
    for (path, text) in documents {
        let folder = root.join(path).parent().map(Path::to_owned).unwrap_or_default();
        let links = text.split("](").skip(1).filter_map(|rest| rest.split([')', '#']).next());
        let links = links.filter(|link| !link.is_empty() && !link.contains("://"));
        let dead = links.filter(|link| !folder.join(link).exists());
        faults.extend(dead.map(|link| format!("{path} links to {link}, which is not there")));
        let files = quoted(text).into_iter().filter(|(_, text)| is_file_claim(text));
        let gone = files.filter(|(_, file)| !root.join(file).exists());
        faults.extend(gone.map(|(line, file)| format!("{path}:{line} `{file}` is not there")));
    }
    faults
}

#[test]
fn names_in_documents_are_in_the_code() {
    let sources = [Source::new("crates/express-log/src/core.rs", "pub struct HeadLog; fn roll() {}\n")];
    let document = |text: &str| vec![("docs/a.md".to_owned(), text.to_owned())];
    let good = "`HeadLog` `express_log::core` `roll()` `x::y` `Headers` `--flag`\n```\n`GoneType`\n```\n";
    assert_eq!(name_faults(&document(good), &sources), Vec::<String>::new());
    let bad = "`GoneType` `express_log::gone` `gone()`\n";
    assert_eq!(name_faults(&document(bad), &sources).len(), 3);
    report(&name_faults(&tree::documents(), &tree::sources()), "name what is there");
}

#[test]
fn links_and_files_in_documents_are_there() {
    let bad = vec![("docs/a.md".to_owned(), "[a](gone.md) [b](https://x.y) `crates/gone`\n".to_owned())];
    assert_eq!(link_faults(&bad, &tree::root()).len(), 2);
    report(&link_faults(&tree::documents(), &tree::root()), "point at what is there");
}
