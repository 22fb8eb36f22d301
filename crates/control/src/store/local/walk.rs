//! Which objects follow a name, in the order of names?

use std::fs;
use std::io;
use std::path::Path;

use super::object::Files;
use super::open::LOST_AND_FOUND;
use super::path::{self, Entry};
use crate::store::layout::TRAILER_BYTES;
use crate::store::{CorruptObject, Effect, ListPage, Listed, ObjectName, ObjectPrefix, StoreError, StoreOp};

/// A page of the objects; see [`crate::store::Store::list`].
pub(super) fn list(
    files: &Files,
    prefix: &ObjectPrefix,
    after: Option<&ObjectName>,
    limit: usize,
) -> Result<ListPage, StoreError> {
    let (prefix, after) = (prefix.as_str(), after.map(ObjectName::as_str));
    let mut walk = Walk { files, prefix, after, limit, found: Vec::new() };
    walk.directory(files.root(), "")?;
    let more = walk.found.len() > limit;
    walk.found.truncate(limit);
    Ok(ListPage { objects: walk.found, more })
}

struct Walk<'a> {
    files: &'a Files,
    prefix: &'a str,
    after: Option<&'a str>,
    limit: usize,
    found: Vec<Listed>,
}

/// Something in a directory that may matter: `key` is an object's name, or what the names in a directory begin with.
struct Row {
    key: String,
    entry: fs::DirEntry,
    is_object: bool,
}

impl Walk<'_> {
    fn directory(&mut self, directory: &Path, key: &str) -> Result<(), StoreError> {
        let mut rows = Vec::new();
        for entry in fs::read_dir(directory).map_err(|e| failed(directory, e))? {
            let entry = entry.map_err(|e| failed(directory, e))?;
            rows.extend(self.row(entry, key)?);
        }
        // A directory's key ends in a slash, as all names in it go on: so this is the order of the names.
        rows.sort_by(|a, b| a.key.cmp(&b.key));
        for row in rows {
            if self.found.len() > self.limit {
                break;
            }
            if row.is_object {
                self.object(&row)?;
            } else {
                self.directory(&row.entry.path(), &row.key)?;
            }
        }
        Ok(())
    }

    fn row(&self, entry: fs::DirEntry, key: &str) -> Result<Option<Row>, StoreError> {
        let file_name = entry.file_name();
        let file_name = file_name.to_string_lossy();
        if file_name.starts_with('.') || (key.is_empty() && file_name == LOST_AND_FOUND) {
            return Ok(None);
        }
        let is_object = !entry.file_type().map_err(|e| failed(&entry.path(), e))?.is_dir();
        let read = if is_object { path::object_entry(&file_name) } else { path::directory_entry(&file_name) };
        let key = match read {
            Some(Entry::Object(segment)) => format!("{key}{segment}"),
            Some(Entry::Directory(segment)) => format!("{key}{segment}/"),
            None => return Err(foreign(&entry.path())),
        };
        let matters = self.may_match(&key, is_object) && self.may_follow(&key, is_object);
        Ok(matters.then_some(Row { key, entry, is_object }))
    }

    fn may_match(&self, key: &str, is_object: bool) -> bool {
        key.starts_with(self.prefix) || (!is_object && self.prefix.starts_with(key))
    }

    fn may_follow(&self, key: &str, is_object: bool) -> bool {
        self.after.is_none_or(|after| key > after || (!is_object && after.starts_with(key)))
    }

    fn object(&mut self, row: &Row) -> Result<(), StoreError> {
        let name = ObjectName::parse(&row.key).map_err(|_| foreign(&row.entry.path()))?;
        match row.entry.metadata() {
            Ok(found) => {
                let path = row.entry.path();
                self.files.sync_if_drafted(&found, path.parent().unwrap_or(&path)).map_err(|e| failed(&path, e))?;
                let size_bytes = found.len().saturating_sub(TRAILER_BYTES as u64);
                self.found.push(Listed { name, size_bytes });
                Ok(())
            }
            // Removed since the directory was read.
            Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(()),
            Err(e) => Err(failed(&row.entry.path(), e)),
        }
    }
}

fn failed(path: &Path, source: io::Error) -> StoreError {
    StoreError::from_io(StoreOp::List, &path.display().to_string(), Effect::None, source)
}

fn foreign(path: &Path) -> StoreError {
    StoreError::Corrupt { target: path.display().to_string(), fault: CorruptObject::FileName }
}
