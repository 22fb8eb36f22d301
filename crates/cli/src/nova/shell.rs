//! What does a shell or a manual get from the command line's own description?

use std::fs;
use std::io::Write;
use std::path::Path;

use clap::{Command, CommandFactory};

use super::args::{Completions, Man, Nova};
use super::failure::Failure;

pub(super) fn completions(args: &Completions, out: &mut dyn Write) -> Result<(), Failure> {
    // Into memory first, for the generator panics where an output fails.
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut Nova::command(), "nova", &mut script);
    Ok(out.write_all(&script)?)
}

/// A page a command of both binaries, named as `git` names its own: `nova-bucket-create.1`.
pub(super) fn man(args: &Man) -> Result<(), Failure> {
    let at =
        |path: &Path, error: &std::io::Error| Failure::Local(format!("{} can't be written: {error}", path.display()));
    fs::create_dir_all(&args.directory).map_err(|error| at(&args.directory, &error))?;
    for root in [Nova::command(), crate::novad::command()] {
        for (name, command) in pages(root) {
            let mut page = Vec::new();
            clap_mangen::Man::new(command).render(&mut page)?;
            let page = String::from_utf8_lossy(&page).replace(".SH EXTRA\nExamples:\n", ".SH EXAMPLES\n");
            let path = args.directory.join(format!("{name}.1"));
            fs::write(&path, page).map_err(|error| at(&path, &error))?;
        }
    }
    Ok(())
}

fn pages(mut root: Command) -> Vec<(String, Command)> {
    root.build();
    let mut pages = Vec::new();
    let mut open = vec![(root.get_name().to_owned(), root)];
    while let Some((name, command)) = open.pop() {
        for inner in command.get_subcommands() {
            if inner.get_name() != "help" {
                let name = format!("{name}-{}", inner.get_name());
                open.push((name, inner.clone()));
            }
        }
        let command = command.name(name.clone());
        pages.push((name, command));
    }
    pages
}

#[cfg(test)]
mod tests {
    use super::pages;
    use crate::nova::args::Nova;
    use clap::CommandFactory;

    #[test]
    fn every_command_has_a_page_and_examples() {
        let pages = pages(Nova::command());
        assert!(pages.iter().any(|(name, _)| name == "nova-bucket-create"));
        assert!(pages.iter().all(|(name, _)| !name.contains("help")));
        for (name, command) in pages {
            let after = command.get_after_help().map(ToString::to_string);
            assert!(after.is_some_and(|text| text.contains("Examples:")), "{name} teaches nothing");
        }
    }
}
