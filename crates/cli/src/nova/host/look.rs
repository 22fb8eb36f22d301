//! Which host, which data and which settings is a command of `nova host` about?

use std::ffi::OsString;
use std::path::PathBuf;
use std::time::Duration;

use clap::{ArgMatches, Args, Command, FromArgMatches, ValueEnum};
use tuning::check::Subject;
use tuning::machine::{DataDisk, Machine, Process, RingOps, Sample};
use tuning::plan::{Goal, HostPlan};
use tuning::settings::{Layers, Settings, SettingsError};
use wire::refusal::Refusal;

use super::super::failure::Failure;

/// Flags of novad that say what a host is to carry.
const FLAGS: [&str; 4] = ["config", "data", "shards", "store"];
/// Variables of nova that are no settings.
const OTHER_VARIABLES: [&str; 3] = ["NOVA_ADDR", "NOVA_LOG", "NOVA_CONFIG"];

/// The flags of novad that matter here, as novad has them.
#[derive(Debug, Clone)]
pub(super) struct NovadFlags {
    matches: ArgMatches,
}

impl Args for NovadFlags {
    fn augment_args(command: Command) -> Command {
        let novad = crate::novad::command();
        let flags = novad.get_arguments().filter(|arg| FLAGS.contains(&arg.get_id().as_str()));
        let flags: Vec<_> = flags.map(|arg| arg.clone().help_heading("What novad is to carry")).collect();
        command.args(flags)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for NovadFlags {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        Ok(Self { matches: matches.clone() })
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        self.matches = matches.clone();
        Ok(())
    }
}

impl NovadFlags {
    /// The settings as novad would have them.
    pub(super) fn settings(&self) -> Result<Settings, Failure> {
        self.layers().map_err(|error| Failure::from(Refusal::new(error.reason(), error.to_string())))
    }

    fn layers(&self) -> Result<Settings, SettingsError> {
        let file = self.matches.get_one::<PathBuf>("config");
        let layers = file.map_or_else(|| Ok(Layers::default()), |path| Layers::default().file(path))?;
        let is_setting = |name: &OsString| !OTHER_VARIABLES.iter().any(|other| name == other);
        let mut layers = layers.environment(std::env::vars_os().filter(|(name, _)| is_setting(name)))?;
        for setting in Settings::all().filter(|setting| FLAGS.contains(&setting.name)) {
            if let Some(value) = self.matches.get_one::<OsString>(setting.name) {
                layers = layers.flag(setting, &value.to_string_lossy())?;
            }
        }
        Ok(layers.finish()?.settings().clone())
    }

    pub(super) fn matches(&self) -> &ArgMatches {
        &self.matches
    }
}

/// What the shards are laid out for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum GoalArg {
    /// A core a shard: the shortest tail.
    Latency,
    /// A thread a shard: the most work.
    Throughput,
}

/// Which host is looked at, and for which novad.
#[derive(Debug, Args)]
pub(super) struct LookArgs {
    /// Where the host's / is; in a container, where it is mounted
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Device that the data lie on, where the file system does not tell
    #[arg(long, value_name = "NAME")]
    device: Option<String>,
    /// What shards are laid out for, where cores have several threads
    #[arg(long, value_enum, value_name = "GOAL", default_value = "latency")]
    goal: GoalArg,
    #[command(flatten)]
    novad: NovadFlags,
}

/// A host that was looked at.
pub(super) struct Looked {
    pub(super) machine: Machine,
    pub(super) settings: Settings,
    pub(super) plan: HostPlan,
    /// What the plan is laid out for.
    pub(super) goal: Goal,
}

impl LookArgs {
    /// Looks at the host, and for so long at what it counts.
    pub(super) fn look(&self, sample: Duration) -> Result<Looked, Failure> {
        if !self.root.is_dir() {
            let root = self.root.display();
            return Err(Failure::invalid(format!("--root {root} is no directory: name the one where the host's / is")));
        }
        let settings = self.novad.settings()?;
        let mut machine = Machine::new(&self.root, Process::here(), DataDisk::below(&settings.data));
        machine.device.clone_from(&self.device);
        machine.ring = Some(RingOps::here());
        if !sample.is_zero() {
            machine.before = Some(Sample::of(&machine));
            std::thread::sleep(sample);
        }
        let goal = match self.goal {
            GoalArg::Latency => Goal::Latency,
            GoalArg::Throughput => Goal::Throughput,
        };
        let plan = HostPlan::of(&machine, &settings, goal);
        Ok(Looked { machine, settings, plan, goal })
    }
}

impl Looked {
    pub(super) fn subject(&self) -> Subject<'_> {
        Subject { machine: &self.machine, settings: &self.settings, plan: &self.plan }
    }
}
