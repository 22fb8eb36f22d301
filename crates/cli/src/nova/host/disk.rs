//! How quick are durable writes where the data are, and where is that kept?

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use bench::disk::{DiskOptions, DiskReport, Method};
use clap::Args;
use serde_json::{Value, json};
use tuning::host::nearest_directory;
use tuning::plan::Measured;
use tuning::settings::LogSync;
use tuning::units::Millis;

use super::super::args::Output;
use super::super::failure::Failure;
use super::super::stdout;
use super::look::NovadFlags;

/// Sizes of commits that count: a lone small append to a well-filled group.
const COMMIT_BYTES: std::ops::RangeInclusive<usize> = 4 << 10..=64 << 10;
/// What part of the default's time the other method may take, to be preferred to it.
const RATIO_MAX: f64 = 0.95;
const SHOWN_BYTES: usize = 16 << 10;

#[derive(Debug, Args)]
pub(in crate::nova) struct DiskArgs {
    /// How long each method is measured at each size
    #[arg(long, value_name = "TIME", default_value = "500ms")]
    duration: Millis,
    #[command(flatten)]
    novad: NovadFlags,
}

impl DiskArgs {
    pub(super) fn run(self, output: Output) -> Result<(), Failure> {
        let data = self.novad.settings()?.data;
        let ladder = DiskOptions::ladder(nearest_directory(&data));
        let options = DiskOptions { rung: self.duration.duration(), ..ladder };
        if output == Output::Text {
            let seconds = options.rung.as_secs_f64() * (options.sizes.len() * options.methods.len()) as f64;
            writeln!(io::stderr(), "measuring for about {:.0} s", seconds.max(1.0))?;
        }
        let report = bench::disk::run(&options, &mut |_| ())?;
        let measured = judge(&report);
        let kept = kept_at(&data);
        let value = json!({ "sync": measured.sync.to_string(), "how": measured.how, "ladder": report });
        keep(&kept, &value).map_err(|error| Failure::Local(format!("{} can't be written: {error}", kept.display())))?;
        let mut out = stdout();
        match output {
            Output::Json => writeln!(out, "{value}")?,
            Output::Text => {
                writeln!(out, "{}\n", report.to_string().trim_end())?;
                writeln!(out, "log.sync should be {}: {}", measured.sync, measured.how)?;
                writeln!(out, "kept in {}, for `nova host plan`", kept.display())?;
            }
        }
        Ok(out.flush()?)
    }
}

/// The file beside a data directory that keeps what was measured.
fn kept_at(data: &Path) -> PathBuf {
    let absolute = std::path::absolute(data).unwrap_or_else(|_| data.to_owned());
    let mut name = absolute.file_name().unwrap_or_default().to_owned();
    name.push(".disk.json");
    absolute.with_file_name(name)
}

/// Under its name only once it is whole.
fn keep(path: &Path, value: &Value) -> io::Result<()> {
    if let Some(folder) = path.parent() {
        fs::create_dir_all(folder)?;
    }
    let draft = path.with_extension("new");
    let mut file = File::create(&draft)?;
    writeln!(file, "{value}")?;
    file.sync_all()?;
    fs::rename(&draft, path)
}

/// What was measured beside this data directory; none when nothing was, or nothing that can be read.
pub(super) fn measured(data: &Path) -> Option<Measured> {
    let value: Value = serde_json::from_str(&fs::read_to_string(kept_at(data)).ok()?).ok()?;
    let sync = match value["sync"].as_str()? {
        "dsync" => LogSync::Dsync,
        "fdatasync" => LogSync::Fdatasync,
        _ => return None,
    };
    Some(Measured { sync, how: value["how"].as_str()?.to_owned() })
}

/// Which method the head log should use: the default, unless the other is clearly quicker over the sizes of commits.
pub(super) fn judge(report: &DiskReport) -> Measured {
    let median = |method: Method, bytes: usize| {
        let rung = report.rungs.iter().find(|rung| rung.method == method && rung.write_bytes == bytes);
        rung.and_then(|rung| rung.latency_us.p50.or(rung.latency_us.max))
    };
    let sizes: Vec<usize> = report.settings.sizes.iter().copied().filter(|size| COMMIT_BYTES.contains(size)).collect();
    let ratio = |size: &usize| Some(median(Method::WriteFdatasync, *size)? / median(Method::Dsync, *size)?);
    let mut ratios: Vec<f64> = sizes.iter().filter_map(ratio).collect();
    ratios.sort_by(f64::total_cmp);
    // The one in the middle: a size that something else disturbed does not count.
    let is_quicker = ratios.get(ratios.len() / 2).is_some_and(|ratio| *ratio < RATIO_MAX);
    let sync = if is_quicker { LogSync::Fdatasync } else { LogSync::Dsync };
    let shown = sizes.iter().copied().min_by_key(|size| size.abs_diff(SHOWN_BYTES)).unwrap_or(SHOWN_BYTES);
    let micros = |method| median(method, shown).map_or_else(|| "?".to_owned(), |us| format!("{us:.0}"));
    let how = format!(
        "{} KiB are durable after {} µs by dsync and {} µs by fdatasync, in the middle",
        shown >> 10,
        micros(Method::Dsync),
        micros(Method::WriteFdatasync)
    );
    Measured { sync, how }
}

#[cfg(test)]
mod tests {
    use super::{kept_at, measured};
    use std::fs;
    use std::path::Path;
    use tuning::settings::LogSync;

    #[test]
    fn what_was_measured_lies_beside_the_data_and_garbage_counts_for_nothing() {
        assert_eq!(kept_at(Path::new("/var/lib/nova")), Path::new("/var/lib/nova.disk.json"));
        assert_eq!(kept_at(Path::new("/var/lib/nova.d/")), Path::new("/var/lib/nova.d.disk.json"));
        let folder = tempfile::tempdir().unwrap();
        let data = folder.path().join("data");
        assert_eq!(measured(&data), None);
        for text in ["", "{}", "{\"sync\":\"never\",\"how\":\"\"}", "{\"sync\":7}", "[]", "\u{0}"] {
            fs::write(kept_at(&data), text).unwrap();
            assert_eq!(measured(&data), None, "{text}");
        }
        fs::write(kept_at(&data), "{\"sync\":\"fdatasync\",\"how\":\"so\",\"ladder\":{}}").unwrap();
        let found = measured(&data).unwrap();
        assert_eq!((found.sync, found.how.as_str()), (LogSync::Fdatasync, "so"));
    }
}
