//! How does this star make its commits durable: as somebody has set it, as it was measured on its disk, or by default?

use std::time::SystemTime;

use tuning::measured::{CommitMethod, Doubt, kept_at, method};
use tuning::settings::Loaded;

/// Takes what was measured beside the data directory for those settings that nobody chose, and says how commits are made and why.
///
/// What is kept there and may not be gone by is told, and stands in nobody's way.
pub(super) fn choose(loaded: &mut Loaded) {
    let chosen = loaded.chosen_commits();
    let mut why: Vec<String> = chosen.iter().map(ToString::to_string).collect();
    if chosen.len() < CommitMethod::SETTINGS.len() {
        let (data, now) = (loaded.settings().data.clone(), SystemTime::now());
        why.push(adopt(loaded, method(&data, now)));
    }
    let log = &loaded.settings().log;
    let (sync, in_place, in_flight) = (log.sync, log.inline_commit, log.commits_in_flight);
    tracing::info!(%sync, in_place, in_flight, why = why.join("; "), "how commits are made");
}

/// Adopts what was measured, if that may be, and answers why those settings that nobody chose are what they are.
fn adopt(loaded: &mut Loaded, measured: Result<Option<CommitMethod>, Doubt>) -> String {
    let file = kept_at(&loaded.settings().data);
    match measured {
        Ok(Some(method)) => {
            loaded.adopt_commits(&method, &file);
            method.how
        }
        Ok(None) => "by default, for nothing was measured: see `nova host disk`".to_owned(),
        Err(doubt) => {
            tracing::warn!(file = %file.display(), why = %doubt, "what was measured of the disk is left out: `nova host disk` makes it anew");
            "by default".to_owned()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{CommitMethod, Doubt, adopt};
    use tuning::settings::{Layers, Loaded, LogSync, Settings};

    fn loaded(flags: &[(&str, &str)]) -> Loaded {
        let setting = |name: &str| Settings::all().find(|setting| setting.name == name).unwrap();
        let layers = flags.iter().fold(Layers::default(), |layers, (name, value)| {
            let layers = layers.flag(setting(name), value);
            layers.unwrap()
        });
        layers.finish().unwrap()
    }

    fn measured() -> CommitMethod {
        let how = "so it was".to_owned();
        CommitMethod { sync: LogSync::Fdatasync, inline_commit: false, commits_in_flight: 4, how }
    }

    fn check(loaded: &Loaded, sync: LogSync, in_place: bool, in_flight: u16) {
        let log = &loaded.settings().log;
        assert_eq!((log.sync, log.inline_commit, log.commits_in_flight), (sync, in_place, in_flight));
    }

    #[test]
    fn what_was_measured_is_taken_but_where_somebody_chose() {
        let mut free = loaded(&[]);
        assert_eq!(adopt(&mut free, Ok(Some(measured()))), "so it was");
        check(&free, LogSync::Fdatasync, false, 4);
        let sync = Settings::all().find(|setting| setting.name == "log.sync").unwrap();
        assert!(free.origin(sync).to_string().ends_with("nova-data.disk.json"), "{}", free.origin(sync));
        assert!(free.chosen_commits().is_empty());

        let mut chosen = loaded(&[("log.sync", "dsync"), ("log.commits_in_flight", "3")]);
        assert_eq!(chosen.chosen_commits().len(), 2);
        adopt(&mut chosen, Ok(Some(measured())));
        check(&chosen, LogSync::Dsync, false, 3);
    }

    #[test]
    fn without_a_measurement_or_with_a_doubtful_one_the_defaults_stay() {
        for measured in [Ok(None), Err(Doubt::Cached), Err(Doubt::Old { days: 400 })] {
            let mut loaded = loaded(&[]);
            assert!(adopt(&mut loaded, measured).starts_with("by default"));
            check(&loaded, LogSync::Dsync, true, 2);
        }
    }
}
