//! How does an operator look at a host, make it as nova wants it, and take that back?

mod changes;
mod checked;
mod disk;
mod help;
mod look;
mod planned;
mod selftest;
mod top;

use std::path::PathBuf;

use clap::{Args, Subcommand};

use super::args::Global;
use super::failure::Failure;
use changes::{ApplyArgs, RestoreArgs, ScriptArgs, SystemdArgs};
use checked::{CheckArgs, ExplainArgs};
use disk::DiskArgs;
use planned::PlanArgs;
use selftest::SelftestArgs;
use top::TopArgs;

pub(super) use help::HOST;

#[derive(Debug, Subcommand)]
pub(super) enum HostCommand {
    /// Make the host as nova wants it, and note what it was
    #[command(after_help = help::APPLY)]
    Apply(ApplyArgs),
    /// Look at everything of this host that matters to nova; changes nothing
    #[command(after_help = help::CHECK)]
    Check(CheckArgs),
    /// Measure durable writes where the data are, and keep what was found beside them
    #[command(after_help = help::DISK)]
    Disk(DiskArgs),
    /// Say all there is to say about one item of the check
    #[command(after_help = help::EXPLAIN)]
    Explain(ExplainArgs),
    /// Print the settings that suit this host, as a file for novad
    #[command(after_help = help::PLAN)]
    Plan(PlanArgs),
    /// Put back what apply has changed
    #[command(after_help = help::RESTORE)]
    Restore(RestoreArgs),
    /// Write what apply would do as a shell script, for who may run it
    #[command(after_help = help::SCRIPT)]
    Script(ScriptArgs),
    /// Measure disk, network and store within a minute, and say in words what they are good for
    #[command(after_help = help::SELFTEST)]
    Selftest(SelftestArgs),
    /// Print units of systemd: novad, and what makes the host ready before it
    #[command(after_help = help::SYSTEMD)]
    Systemd(SystemdArgs),
    /// Show what each shard does, second by second
    #[command(after_help = help::TOP)]
    Top(TopArgs),
}

/// Where the changes are noted unless something else is said.
const JOURNAL: &str = "/var/lib/nova-host/journal";

/// The file of changes that were made.
#[derive(Debug, Args)]
struct JournalArgs {
    /// File in which changes are noted before they are made
    #[arg(long, value_name = "FILE", default_value = JOURNAL)]
    journal: PathBuf,
}

pub(super) fn run(command: HostCommand, global: &Global) -> Result<(), Failure> {
    let output = global.output;
    match command {
        HostCommand::Apply(args) => args.run(output),
        HostCommand::Check(args) => args.run(output),
        HostCommand::Disk(args) => args.run(output),
        HostCommand::Explain(args) => args.run(output),
        HostCommand::Plan(args) => args.run(output),
        HostCommand::Restore(args) => args.run(output),
        HostCommand::Script(args) => args.run(output),
        HostCommand::Selftest(args) => args.run(output),
        HostCommand::Systemd(args) => args.run(),
        HostCommand::Top(args) => args.run(output),
    }
}
