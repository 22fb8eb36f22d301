//! Which star is this data directory's? The same one at every start.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use wire::ids::StarId;

/// Holds the id, as it is printed, and a newline.
const FILE: &str = "star";

/// Why the id of a star is not known.
#[derive(Debug, thiserror::Error)]
pub(super) enum StarIdError {
    /// The system refused an operation.
    #[error("the star's id in {path} can't be kept: {source}")]
    Io {
        /// The file.
        path: String,
        /// What it said.
        source: io::Error,
    },
    /// The file holds something else.
    #[error("{path} holds `{found}`, which is no star's id; put back the file that was there")]
    NoId {
        /// The file.
        path: String,
        /// What it holds.
        found: String,
    },
    /// There is no randomness to be had.
    #[error("no random bytes for the star's id: {0}")]
    Random(getrandom::Error),
}

/// The star of a data directory that this process holds; minted and kept at its first start.
pub(super) fn of(data: &Path) -> Result<StarId, StarIdError> {
    let path = data.join(FILE);
    let failed = |source| StarIdError::Io { path: path.display().to_string(), source };
    match fs::read_to_string(&path) {
        Ok(text) => StarId::parse(text.trim_end())
            .map_err(|_| StarIdError::NoId { path: path.display().to_string(), found: text.trim_end().to_owned() }),
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let star = mint().map_err(StarIdError::Random)?;
            keep_text(data, FILE, &star.to_string()).map_err(failed)?;
            Ok(star)
        }
        Err(error) => Err(failed(error)),
    }
}

/// Written beside its place and put there whole, durably.
pub(super) fn keep_text(data: &Path, file: &str, text: &str) -> io::Result<()> {
    let unfinished = data.join(format!("{file}.new"));
    let place = data.join(file);
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).open(&unfinished)?;
    writeln!(file, "{text}")?;
    file.sync_all()?;
    fs::rename(&unfinished, place)?;
    File::open(data)?.sync_all()
}

fn mint() -> Result<StarId, getrandom::Error> {
    let mut random = [0; 10];
    getrandom::fill(&mut random)?;
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    Ok(StarId::mint(u64::try_from(since.as_millis()).unwrap_or(u64::MAX), random))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_keeps_its_star_and_no_two_have_the_same() {
        let (data, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let first = of(data.path()).unwrap();
        assert_eq!(of(data.path()).unwrap(), first);
        assert_ne!(of(other.path()).unwrap(), first);
    }

    #[test]
    fn a_start_that_was_killed_while_it_kept_the_id_is_no_hindrance() {
        let data = tempfile::tempdir().unwrap();
        fs::write(data.path().join("star.new"), "half").unwrap();
        let first = of(data.path()).unwrap();
        assert_eq!(of(data.path()).unwrap(), first);
    }

    #[test]
    fn a_file_that_holds_no_id_is_named_and_left_as_it_is() {
        let data = tempfile::tempdir().unwrap();
        let file = data.path().join(FILE);
        for found in ["orders\n", ""] {
            fs::write(&file, found).unwrap();
            let error = of(data.path()).unwrap_err().to_string();
            assert!(error.contains(found.trim_end()) && error.contains(&file.display().to_string()), "{error}");
            assert_eq!(fs::read_to_string(&file).unwrap(), found);
        }
    }
}
