//! To which cluster do the data in this directory belong? The one of the store that they were first written over.

use std::fs;
use std::io;
use std::path::Path;

use wire::ids::ClusterId;

use super::star_id::keep_text;

/// Holds the id, as it is printed, and a newline.
const FILE: &str = "cluster";

/// Why the cluster of a data directory is not known.
#[derive(Debug, thiserror::Error)]
pub(super) enum ClusterIdError {
    /// The system refused an operation.
    #[error("the cluster's id in {path} can't be kept: {source}")]
    Io {
        /// The file.
        path: String,
        /// What it said.
        source: io::Error,
    },
    /// The file holds something else.
    #[error("{path} holds `{found}`, which is no cluster's id; put back the file that was there")]
    NoId {
        /// The file.
        path: String,
        /// What it holds.
        found: String,
    },
}

fn failed(data: &Path, source: io::Error) -> ClusterIdError {
    ClusterIdError::Io { path: data.join(FILE).display().to_string(), source }
}

/// The cluster of a data directory that this process holds; none before a star of it has joined one.
pub(super) fn of(data: &Path) -> Result<Option<ClusterId>, ClusterIdError> {
    match fs::read_to_string(data.join(FILE)) {
        Ok(text) => {
            let found = text.trim_end();
            let path = || data.join(FILE).display().to_string();
            ClusterId::parse(found)
                .map(Some)
                .map_err(|_| ClusterIdError::NoId { path: path(), found: found.to_owned() })
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(failed(data, error)),
    }
}

/// Keeps it, durably, before anything is written that belongs to it.
pub(super) fn keep(data: &Path, cluster: ClusterId) -> Result<(), ClusterIdError> {
    if of(data)? == Some(cluster) {
        return Ok(());
    }
    keep_text(data, FILE, &cluster.to_string()).map_err(|source| failed(data, source))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_knows_the_cluster_that_was_kept_and_takes_nothing_else_for_one() {
        let data = tempfile::tempdir().unwrap();
        assert_eq!(of(data.path()).unwrap(), None);
        let cluster = ClusterId::from_bytes([7; 16]);
        keep(data.path(), cluster).unwrap();
        keep(data.path(), cluster).unwrap();
        assert_eq!(of(data.path()).unwrap(), Some(cluster));
        fs::write(data.path().join(FILE), "orders").unwrap();
        assert!(of(data.path()).unwrap_err().to_string().contains("orders"));
    }
}
