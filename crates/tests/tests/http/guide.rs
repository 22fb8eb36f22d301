//! Does what the guide says to paste answer what the guide says it answers?

use std::process::{Command, Stdio};

use crate::star::Star;

/// A block of commands and what is under it.
#[derive(Default)]
struct Step {
    line: usize,
    commands: String,
    answer: Option<String>,
}

/// The blocks of a guide, in order: commands are marked `sh`, answers anything else.
fn steps(guide: &str) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    let mut lines = guide.lines().zip(1..);
    while let Some((opening, line)) = lines.next() {
        let Some(kind) = opening.strip_prefix("```") else { continue };
        let block: Vec<&str> = lines.by_ref().map(|(text, _)| text).take_while(|text| *text != "```").collect();
        let block = block.join("\n");
        match (kind, steps.last_mut()) {
            ("sh", _) => steps.push(Step { line, commands: block, answer: None }),
            (_, Some(step)) => step.answer = Some(block),
            (_, None) => panic!("line {line}: an answer to nothing"),
        }
    }
    steps
}

/// Whether a text is what was foreseen, where `…` stands for anything.
fn is_as_foreseen(text: &str, foreseen: &str) -> bool {
    let mut parts = foreseen.split('…');
    let Some(mut rest) = parts.next().and_then(|start| text.strip_prefix(start)) else { return false };
    let ends_open = foreseen.ends_with('…');
    for part in parts {
        match rest.find(part) {
            Some(at) => rest = &rest[at + part.len()..],
            None => return false,
        }
    }
    rest.is_empty() || ends_open
}

#[test]
fn every_command_of_the_guide_answers_what_stands_under_it() {
    assert!(is_as_foreseen("abc", "a…c") && is_as_foreseen("abc", "a…") && !is_as_foreseen("abc", "a…b"));
    let star = Star::start();
    let guide = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/http.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    let steps = steps(&guide);
    assert!(steps.len() > 10);
    // The address is what everyone sets for themselves.
    assert_eq!(steps[0].commands, "export NOVA=http://127.0.0.1:8080");
    let nova = format!("http://{}", star.novad.http());
    for step in &steps[1..] {
        let mut command = Command::new("timeout");
        command.args(["60", "bash", "-euo", "pipefail", "-c", &step.commands]).env("NOVA", &nova);
        let output = command.stdin(Stdio::null()).output().expect("bash runs");
        let (text, error) = (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        assert!(output.status.success(), "line {}: {text}{error}", step.line);
        let foreseen = step.answer.as_deref().unwrap_or_default();
        assert!(
            is_as_foreseen(text.trim_end(), foreseen),
            "line {}:\n{text}\nwhere the guide says\n{foreseen}",
            step.line
        );
    }
}
