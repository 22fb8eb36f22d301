//! How are objects kept in a directory so that a kill at any step, or another process, never shows a wrong one?
//!
//! A new object is written to a scratch file, synced, linked to its name (which fails if the name is taken), and its directory
//! synced. A replacement is renamed over the old file while a lock of its name is held. Both keep a scratch link until the
//! directory is synced. So a reader that sees a second link syncs before it answers, and whoever opens the store and finds the
//! scratch files of a killed process syncs the file system before it clears them.

mod draft;
mod object;
mod open;
pub(in crate::store) mod path;
mod walk;

use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Semaphore;

use super::{
    Effect, ListPage, Object, ObjectMeta, ObjectName, ObjectPrefix, PutNonce, Span, Store, StoreError, StoreFuture,
    StoreOp, Version,
};
use object::Files;
pub use open::OpenError;

/// Operations that use the disk at a time; more wait their turn.
const CONCURRENT_MAX: usize = 16;

/// A store in a directory, which processes of one host may share. Must be used inside a tokio runtime: file work runs on its
/// blocking threads, at most 16 at a time.
#[derive(Clone, Debug)]
pub struct LocalDirectory {
    files: Arc<Files>,
    turns: Arc<Semaphore>,
}

impl LocalDirectory {
    /// Opens the store in `root`, or makes one there if nothing or an empty directory is; clears what killed processes left.
    ///
    /// # Errors
    /// See [`OpenError`]; nothing is changed in a directory that is not a store.
    pub fn open(root: &Path) -> Result<Self, OpenError> {
        let (root, scratch) = open::open(root)?;
        let files = Arc::new(Files::new(root, scratch));
        Ok(Self { files, turns: Arc::new(Semaphore::new(CONCURRENT_MAX)) })
    }

    /// The directory.
    #[cfg(test)]
    pub(crate) fn root(&self) -> &Path {
        self.files.root()
    }

    /// Where an object lies.
    #[cfg(test)]
    pub(crate) fn path_of(&self, name: &ObjectName) -> std::path::PathBuf {
        self.files.root().join(path::of_object(name))
    }

    async fn run<T: Send + 'static>(
        &self,
        (op, target): (StoreOp, &str),
        work: impl FnOnce(&Files) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let lost = |source: Box<dyn std::error::Error + Send + Sync>, effect| StoreError::Unavailable {
            op,
            target: target.to_owned(),
            effect,
            source,
        };
        let turn = Arc::clone(&self.turns).acquire_owned().await.map_err(|e| lost(e.into(), Effect::None))?;
        let files = Arc::clone(&self.files);
        let task = tokio::task::spawn_blocking(move || {
            let answer = work(&files);
            drop(turn);
            answer
        });
        task.await.map_err(|e| lost(e.into(), Effect::Unknown))?
    }
}

impl Store for LocalDirectory {
    fn put_if_absent<'a>(&'a self, name: &'a ObjectName, body: Bytes, nonce: PutNonce) -> StoreFuture<'a, Version> {
        let key = name.clone();
        Box::pin(self.run((StoreOp::PutIfAbsent, name.as_str()), move |files| files.put_if_absent(&key, &body, nonce)))
    }

    fn put_if_match<'a>(
        &'a self,
        name: &'a ObjectName,
        expected: &'a Version,
        body: Bytes,
        nonce: PutNonce,
    ) -> StoreFuture<'a, Version> {
        let (key, expected) = (name.clone(), expected.clone());
        Box::pin(
            self.run((StoreOp::PutIfMatch, name.as_str()), move |files| {
                files.put_if_match(&key, &expected, &body, nonce)
            }),
        )
    }

    fn get<'a>(&'a self, name: &'a ObjectName, span: Span) -> StoreFuture<'a, Object> {
        let key = name.clone();
        Box::pin(self.run((StoreOp::Get, name.as_str()), move |files| files.get(&key, span)))
    }

    fn head<'a>(&'a self, name: &'a ObjectName) -> StoreFuture<'a, ObjectMeta> {
        let key = name.clone();
        Box::pin(self.run((StoreOp::Head, name.as_str()), move |files| files.head(&key)))
    }

    fn delete<'a>(&'a self, name: &'a ObjectName) -> StoreFuture<'a, ()> {
        let key = name.clone();
        Box::pin(self.run((StoreOp::Delete, name.as_str()), move |files| files.delete(&key)))
    }

    fn delete_if_match<'a>(&'a self, name: &'a ObjectName, expected: &'a Version) -> StoreFuture<'a, ()> {
        let (key, expected) = (name.clone(), expected.clone());
        Box::pin(self.run((StoreOp::DeleteIfMatch, name.as_str()), move |files| files.delete_if_match(&key, &expected)))
    }

    fn list<'a>(
        &'a self,
        prefix: &'a ObjectPrefix,
        after: Option<&'a ObjectName>,
        limit: usize,
    ) -> StoreFuture<'a, ListPage> {
        let (within, after) = (prefix.clone(), after.cloned());
        Box::pin(
            self.run((StoreOp::List, prefix.as_str()), move |files| walk::list(files, &within, after.as_ref(), limit)),
        )
    }
}

#[cfg(test)]
mod tests;
