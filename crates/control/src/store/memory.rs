//! How does the code above a store behave when the store fails or is slow?
//!
//! A store in memory whose next operations can be told to fail, before or after they apply, or to wait for a step.

use std::collections::{BTreeMap, VecDeque};
use std::io;
use std::ops::Bound;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Semaphore;

use super::{
    Effect, ListPage, Listed, Object, ObjectMeta, ObjectName, ObjectPrefix, PutNonce, Span, Store, StoreError,
    StoreFuture, StoreOp, Version,
};

/// What an operation is told to do instead of succeeding. The caller is told [`Effect::Unknown`] both times for a write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Fail and change nothing.
    BeforeApply,
    /// Apply, then fail: the response was lost.
    AfterApply,
}

/// A store in memory. Clones are the same store. Every operation is atomic and takes effect when it is polled past the gate.
#[derive(Clone, Debug, Default)]
pub(crate) struct MemoryStore(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    gate: Semaphore,
}

impl Default for Shared {
    fn default() -> Self {
        Self { state: Mutex::default(), gate: Semaphore::new(0) }
    }
}

#[derive(Debug, Default)]
struct State {
    objects: BTreeMap<ObjectName, Stored>,
    versions: u64,
    faults: VecDeque<(StoreOp, Fault)>,
    held: bool,
    waiting: usize,
}

#[derive(Clone, Debug)]
struct Stored {
    version: Version,
    nonce: PutNonce,
    body: Bytes,
}

impl Stored {
    fn is(&self, body: &Bytes, nonce: PutNonce) -> bool {
        self.nonce == nonce && self.body == *body
    }

    fn meta(&self) -> ObjectMeta {
        ObjectMeta { size_bytes: self.body.len() as u64, version: self.version.clone(), nonce: self.nonce }
    }
}

impl State {
    fn put(&mut self, name: &ObjectName, body: Bytes, nonce: PutNonce) -> Version {
        self.versions += 1;
        let version = Version::new(&self.versions.to_string());
        self.objects.insert(name.clone(), Stored { version: version.clone(), nonce, body });
        version
    }

    fn found(&self, name: &ObjectName) -> Result<&Stored, StoreError> {
        self.objects.get(name).ok_or_else(|| StoreError::NotFound { name: name.clone() })
    }

    fn put_if_absent(&mut self, name: &ObjectName, body: Bytes, nonce: PutNonce) -> Result<Version, StoreError> {
        match self.objects.get(name) {
            Some(stored) if stored.is(&body, nonce) => Ok(stored.version.clone()),
            Some(stored) => Err(StoreError::AlreadyExists { name: name.clone(), current: stored.version.clone() }),
            None => Ok(self.put(name, body, nonce)),
        }
    }

    fn put_if_match(
        &mut self,
        name: &ObjectName,
        expected: &Version,
        body: Bytes,
        nonce: PutNonce,
    ) -> Result<Version, StoreError> {
        let stored = self.found(name)?;
        if stored.is(&body, nonce) {
            return Ok(stored.version.clone());
        }
        self.check(name, expected)?;
        Ok(self.put(name, body, nonce))
    }

    fn check(&self, name: &ObjectName, expected: &Version) -> Result<(), StoreError> {
        let current = self.found(name)?.version.clone();
        if current == *expected {
            return Ok(());
        }
        Err(StoreError::VersionMismatch { name: name.clone(), expected: expected.clone(), current })
    }

    fn get(&self, name: &ObjectName, span: Span) -> Result<Object, StoreError> {
        let stored = self.found(name)?;
        let meta = stored.meta();
        let Some(range) = span.within(meta.size_bytes) else {
            let start = if let Span::Range { start, .. } = span { start } else { 0 };
            return Err(StoreError::OutOfRange { name: name.clone(), start, size_bytes: meta.size_bytes });
        };
        let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        Ok(Object { meta, body: stored.body.slice(index(range.start)..index(range.end)) })
    }

    fn list(&self, prefix: &ObjectPrefix, after: Option<&ObjectName>, limit: usize) -> ListPage {
        let from = after.map_or(Bound::Unbounded, Bound::Excluded);
        let mut matching =
            self.objects.range((from, Bound::Unbounded)).filter(|(name, _)| name.as_str().starts_with(prefix.as_str()));
        let row = |(name, stored): (&ObjectName, &Stored)| Listed {
            name: name.clone(),
            size_bytes: stored.body.len() as u64,
        };
        let objects = matching.by_ref().take(limit).map(row).collect();
        ListPage { objects, more: matching.next().is_some() }
    }
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub(crate) fn new() -> Self {
        Self::default()
    }

    /// Makes the next `op` that has no fault yet fail; faults of one `op` are used up in order.
    pub(crate) fn inject(&self, op: StoreOp, fault: Fault) {
        self.state().faults.push_back((op, fault));
    }

    /// Makes every operation from now on wait for a [`MemoryStore::step`].
    pub(crate) fn hold(&self) {
        self.state().held = true;
        while let Ok(unused) = self.0.gate.try_acquire() {
            unused.forget();
        }
    }

    /// Lets one held operation, now or later, go on.
    pub(crate) fn step(&self) {
        self.0.gate.add_permits(1);
    }

    /// Lets the held operations go on, and later ones pass.
    pub(crate) fn release(&self) {
        let mut state = self.state();
        state.held = false;
        self.0.gate.add_permits(state.waiting);
    }

    /// How many operations wait for a step.
    #[must_use]
    pub(crate) fn waiting(&self) -> usize {
        self.state().waiting
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn pass_gate(&self) {
        {
            let mut state = self.state();
            if !state.held {
                return;
            }
            state.waiting += 1;
        }
        let waiting = Waiting(self);
        if let Ok(permit) = self.0.gate.acquire().await {
            permit.forget();
        }
        drop(waiting);
    }

    async fn run<T>(
        &self,
        op: StoreOp,
        target: &str,
        apply: impl FnOnce(&mut State) -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        self.pass_gate().await;
        let mut state = self.state();
        let fault = state.faults.iter().position(|(of, _)| *of == op).and_then(|at| state.faults.remove(at));
        let Some((_, fault)) = fault else {
            return apply(&mut state);
        };
        if fault == Fault::AfterApply {
            apply(&mut state)?;
        }
        let reads = matches!(op, StoreOp::Get | StoreOp::Head | StoreOp::List);
        Err(StoreError::Unavailable {
            op,
            target: target.to_owned(),
            effect: if reads { Effect::None } else { Effect::Unknown },
            source: Box::new(io::Error::new(io::ErrorKind::TimedOut, "a fault was injected")),
        })
    }
}

/// Counts one waiter until it goes on or is dropped.
struct Waiting<'a>(&'a MemoryStore);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.state().waiting -= 1;
    }
}

impl Store for MemoryStore {
    fn put_if_absent<'a>(&'a self, name: &'a ObjectName, body: Bytes, nonce: PutNonce) -> StoreFuture<'a, Version> {
        Box::pin(self.run(StoreOp::PutIfAbsent, name.as_str(), move |state| state.put_if_absent(name, body, nonce)))
    }

    fn put_if_match<'a>(
        &'a self,
        name: &'a ObjectName,
        expected: &'a Version,
        body: Bytes,
        nonce: PutNonce,
    ) -> StoreFuture<'a, Version> {
        Box::pin(
            self.run(StoreOp::PutIfMatch, name.as_str(), move |state| state.put_if_match(name, expected, body, nonce)),
        )
    }

    fn get<'a>(&'a self, name: &'a ObjectName, span: Span) -> StoreFuture<'a, Object> {
        Box::pin(self.run(StoreOp::Get, name.as_str(), move |state| state.get(name, span)))
    }

    fn head<'a>(&'a self, name: &'a ObjectName) -> StoreFuture<'a, ObjectMeta> {
        Box::pin(self.run(StoreOp::Head, name.as_str(), move |state| state.found(name).map(Stored::meta)))
    }

    fn delete<'a>(&'a self, name: &'a ObjectName) -> StoreFuture<'a, ()> {
        Box::pin(self.run(StoreOp::Delete, name.as_str(), move |state| {
            state.objects.remove(name);
            Ok(())
        }))
    }

    fn delete_if_match<'a>(&'a self, name: &'a ObjectName, expected: &'a Version) -> StoreFuture<'a, ()> {
        Box::pin(self.run(StoreOp::DeleteIfMatch, name.as_str(), move |state| {
            state.check(name, expected)?;
            state.objects.remove(name);
            Ok(())
        }))
    }

    fn list<'a>(
        &'a self,
        prefix: &'a ObjectPrefix,
        after: Option<&'a ObjectName>,
        limit: usize,
    ) -> StoreFuture<'a, ListPage> {
        Box::pin(self.run(StoreOp::List, prefix.as_str(), move |state| Ok(state.list(prefix, after, limit))))
    }
}
