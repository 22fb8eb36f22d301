//! How is a wrong command line told, in one line?

use clap::error::ErrorKind;

/// A longer word of what is said is shortened.
const WORD_LETTERS_MAX: usize = 160;

/// What parsing a command line ended in, when not in a command.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Told {
    /// Help or a version that was asked for: for stdout, done.
    Asked(String),
    /// Help because nothing was said: for stderr, a usage error.
    Help(String),
    /// What is wrong, as one line.
    Wrong(String),
}

/// Sorts what clap has to say.
pub(crate) fn told(error: &clap::Error, command: &str) -> Told {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => Told::Asked(error.render().to_string()),
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => Told::Help(error.render().to_string()),
        _ => Told::Wrong(one_line(&error.render().to_string(), command)),
    }
}

fn one_line(rendered: &str, command: &str) -> String {
    let lines: Vec<&str> = rendered.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let said: Vec<&str> = lines
        .iter()
        .copied()
        .take_while(|line| !line.starts_with("Usage:"))
        .filter(|line| !line.starts_with("For more information") && !is_advice_on_dashes(line))
        .collect();
    let said = said.join(" ").replace(" tip: ", "; ").replace("invalid digit found in string", "no whole number");
    let said = said.strip_prefix("error: ").unwrap_or(&said);
    let said: Vec<String> = said.split(' ').map(shortened).collect();
    let usage = lines.iter().find_map(|line| line.strip_prefix("Usage: "));
    let command = usage.map_or_else(|| command.to_owned(), command_of);
    format!("{} ({command} --help tells more)", said.join(" "))
}

/// How to pass a flag as a value, which nobody meant who mistyped one.
fn is_advice_on_dashes(line: &str) -> bool {
    line.starts_with("tip: to pass '")
}

/// The command that a usage line is of, its subcommands too.
fn command_of(usage: &str) -> String {
    let words = usage.split(' ').take_while(|word| !word.starts_with(['[', '<', '-']));
    words.collect::<Vec<_>>().join(" ")
}

/// A word as it is, or the beginning and the end of one that is too long to read.
fn shortened(word: &str) -> String {
    let letters: Vec<char> = word.chars().collect();
    if letters.len() <= WORD_LETTERS_MAX {
        return word.to_owned();
    }
    let (head, tail) = (&letters[..WORD_LETTERS_MAX / 2], &letters[letters.len() - 8..]);
    head.iter().chain(&['…']).chain(tail).collect()
}

#[cfg(test)]
mod tests {
    use super::{Told, told};
    use clap::{Arg, Command};

    fn wrong(args: &[&str]) -> Told {
        let command = Command::new("it").arg(Arg::new("to").long("to").required(true));
        told(&command.try_get_matches_from(args).unwrap_err(), "it")
    }

    #[test]
    fn a_missing_argument_is_told_in_one_line_that_names_it() {
        let Told::Wrong(line) = wrong(&["it"]) else { panic!("not told as wrong") };
        assert_eq!(line, "the following required arguments were not provided: --to <to> (it --help tells more)");
    }

    #[test]
    fn a_flag_that_is_unknown_leads_to_the_help_of_its_command() {
        let inner = Command::new("in").arg(Arg::new("what"));
        let error = Command::new("it").subcommand(inner).try_get_matches_from(["it", "in", "--no"]).unwrap_err();
        let expected = "unexpected argument '--no' found (it in --help tells more)";
        assert_eq!(told(&error, "it"), Told::Wrong(expected.to_owned()));
    }

    #[test]
    fn a_value_that_is_too_long_to_read_is_shortened() {
        let long = "x".repeat(5_000);
        let Told::Wrong(line) = wrong(&["it", &long]) else { panic!("not told as wrong") };
        assert!(line.contains("xxx…xxx") && line.len() < 300, "{line}");
    }

    #[test]
    fn help_that_was_asked_for_is_no_error() {
        assert!(matches!(wrong(&["it", "--help"]), Told::Asked(text) if text.contains("--to")));
    }
}
