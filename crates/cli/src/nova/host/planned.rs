//! How is the plan for a host printed?

use std::io::{self, Write};
use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::super::args::Output;
use super::super::failure::Failure;
use super::disk::measured;
use super::look::LookArgs;

#[derive(Debug, Args)]
pub(in crate::nova) struct PlanArgs {
    #[command(flatten)]
    look: LookArgs,
}

impl PlanArgs {
    pub(super) fn run(self, output: Output) -> Result<(), Failure> {
        let looked = self.look.look(Duration::ZERO)?;
        let plan = &looked.plan;
        let file = plan.file(&looked.machine, &looked.settings, measured(&looked.settings.data)?.as_ref());
        let mut out = io::stdout().lock();
        match output {
            Output::Text => out.write_all(file.as_bytes())?,
            Output::Json => {
                let shards: Vec<_> = plan
                    .shards()
                    .iter()
                    .map(|shard| json!({ "cpu": shard.cpu, "numa": shard.numa, "idle_cpus": shard.idle.cpus() }))
                    .collect();
                let plan = json!({
                    "irq_cpus": plan.irq_cpus().cpus(),
                    "control_cpus": plan.control_cpus().cpus(),
                    "cpus": plan.cpus().cpus(),
                    "shards": shards,
                    "notes": plan.notes(),
                    "file": file,
                });
                writeln!(out, "{plan}")?;
            }
        }
        Ok(out.flush()?)
    }
}
