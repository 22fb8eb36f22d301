//! How does the code above a store behave when the store fails, lies or is slow?
//!
//! A store in memory that keeps the promises of [`Store`] and passes its conformance suite, until it is told otherwise: [`Rule`]s
//! strike operations by kind, name and number or chance, [`Latency`] makes them slow, and it can be made to ignore conditions,
//! refuse writes or hold everything. All chance comes from one seed.

mod faults;
mod objects;

use std::future::pending;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use tokio::sync::Semaphore;

use super::{
    Effect, ListPage, Object, ObjectMeta, ObjectName, ObjectPrefix, PutNonce, Span, Store, StoreError, StoreFuture,
    StoreOp, Version,
};
pub use faults::{Fault, Latency, Rule, When};
use faults::{Plan, Weather};
use objects::Objects;

/// A store in memory. Clones are the same store. Every operation is atomic, takes effect in the middle of the time that it takes,
/// and must be polled inside a tokio runtime when that is not zero.
#[derive(Clone, Debug, Default)]
pub struct MemoryStore(Arc<Shared>);

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
    objects: Objects,
    weather: Weather,
    is_read_only: bool,
    skew_ms: Option<i64>,
    held: bool,
    waiting: usize,
}

impl MemoryStore {
    /// An empty store.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty store whose chances and latencies this seed decides.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        let store = Self::default();
        store.state().weather = Weather::seeded(seed);
        store
    }

    /// Adds trouble. Rules are asked in the order they were added, and the first that strikes is the one that counts.
    pub fn add(&self, rule: Rule) {
        self.state().weather.add(rule);
    }

    /// Makes the next `op` that no earlier rule strikes fail.
    pub fn inject(&self, op: StoreOp, fault: Fault) {
        self.add(Rule::new(fault).of(op).when(When::Nth(1)));
    }

    /// Makes every operation take a time, until [`MemoryStore::calm`].
    pub fn set_latency(&self, latency: Latency) {
        self.state().weather.set_latency(latency);
    }

    /// Removes the rules and the latency.
    pub fn calm(&self) {
        self.state().weather.clear();
    }

    /// Carries `op` out from now on whatever its condition, as stores do that do not know the header.
    pub fn ignore_conditions_of(&self, op: StoreOp) {
        self.state().objects.ignore_conditions_of(op);
    }

    /// Refuses writes and removals, or takes them again.
    pub fn set_read_only(&self, is_read_only: bool) {
        self.state().is_read_only = is_read_only;
    }

    /// Sets what [`Store::clock_skew_ms`] answers.
    pub fn set_clock_skew_ms(&self, skew_ms: i64) {
        self.state().skew_ms = Some(skew_ms);
    }

    /// Changes the bytes of an object behind the back of whoever put it; its version and nonce stay. Answers whether it is there.
    pub fn tamper(&self, name: &ObjectName, body: Bytes) -> bool {
        self.state().objects.tamper(name, body)
    }

    /// How many objects there are.
    #[must_use]
    pub fn objects(&self) -> usize {
        self.state().objects.count()
    }

    /// Bytes of all bodies.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.state().objects.bytes()
    }

    /// Makes every operation from now on wait for a [`MemoryStore::step`].
    pub fn hold(&self) {
        self.state().held = true;
        while let Ok(unused) = self.0.gate.try_acquire() {
            unused.forget();
        }
    }

    /// Lets one held operation, now or later, go on.
    pub fn step(&self) {
        self.0.gate.add_permits(1);
    }

    /// Lets the held operations go on, and later ones pass.
    pub fn release(&self) {
        let mut state = self.state();
        state.held = false;
        self.0.gate.add_permits(state.waiting);
    }

    /// How many operations wait for a step.
    #[must_use]
    pub fn waiting(&self) -> usize {
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

    /// Waits until the operation is at the store, and says what it meets there.
    async fn arrive(&self, op: StoreOp, target: &str) -> Plan {
        self.pass_gate().await;
        let plan = self.state().weather.plan(op, target);
        if plan.fault == Some(Fault::Hang) {
            pending::<()>().await;
        }
        if !plan.delay.is_zero() {
            tokio::time::sleep(plan.delay / 2).await;
        }
        plan
    }

    async fn run<T: Send + 'static>(
        &self,
        (op, target): (StoreOp, &str),
        apply: impl FnOnce(&mut Objects) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let plan = self.arrive(op, target).await;
        self.finish(plan, (op, target), apply).await
    }

    async fn finish<T: Send + 'static>(
        &self,
        plan: Plan,
        (op, target): (StoreOp, &str),
        apply: impl FnOnce(&mut Objects) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let answer = if !op.is_read() && self.state().is_read_only {
            Err(StoreError::Denied { op, target: target.to_owned(), source: io::ErrorKind::ReadOnlyFilesystem.into() })
        } else {
            self.meet(plan.fault, (op, target), apply)
        };
        if !plan.delay.is_zero() {
            tokio::time::sleep(plan.delay / 2).await;
        }
        answer
    }

    fn meet<T: Send + 'static>(
        &self,
        fault: Option<Fault>,
        (op, target): (StoreOp, &str),
        apply: impl FnOnce(&mut Objects) -> Result<T, StoreError> + Send + 'static,
    ) -> Result<T, StoreError> {
        let lost = |what: &str| StoreError::Unavailable {
            op,
            target: target.to_owned(),
            effect: if op.is_read() { Effect::None } else { Effect::Unknown },
            source: Box::new(io::Error::new(io::ErrorKind::TimedOut, what)),
        };
        let refused = |what: &str| StoreError::Unavailable {
            op,
            target: target.to_owned(),
            effect: Effect::None,
            source: Box::new(io::Error::other(what)),
        };
        match fault {
            None | Some(Fault::Truncated | Fault::Flipped | Fault::Hang) => apply(&mut self.state().objects),
            Some(Fault::BeforeApply) => Err(lost("the connection was reset, by an injected fault")),
            Some(Fault::AfterApply) => {
                apply(&mut self.state().objects)?;
                Err(lost("the answer was lost, by an injected fault"))
            }
            Some(Fault::Late(by)) => {
                let store = self.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(by).await;
                    // Nobody waits for the answer any more.
                    drop(apply(&mut store.state().objects));
                });
                Err(lost("the connection was lost on the way, by an injected fault"))
            }
            Some(Fault::ServerError) => Err(lost("status 500, by an injected fault")),
            Some(Fault::SlowDown) => Err(refused("status 503 SlowDown, by an injected fault")),
            Some(Fault::Conflict) => Err(refused("status 409 ConditionalRequestConflict, by an injected fault")),
        }
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
        let key = name.clone();
        let put = move |objects: &mut Objects| objects.put_if_absent(&key, body, nonce);
        Box::pin(self.run((StoreOp::PutIfAbsent, name.as_str()), put))
    }

    fn put_if_match<'a>(
        &'a self,
        name: &'a ObjectName,
        expected: &'a Version,
        body: Bytes,
        nonce: PutNonce,
    ) -> StoreFuture<'a, Version> {
        let (key, expected) = (name.clone(), expected.clone());
        let put = move |objects: &mut Objects| objects.put_if_match(&key, &expected, body, nonce);
        Box::pin(self.run((StoreOp::PutIfMatch, name.as_str()), put))
    }

    fn get<'a>(&'a self, name: &'a ObjectName, span: Span) -> StoreFuture<'a, Object> {
        Box::pin(async move {
            let (target, key) = ((StoreOp::Get, name.as_str()), name.clone());
            let plan = self.arrive(target.0, target.1).await;
            let object = self.finish(plan, target, move |objects| objects.get(&key, span)).await?;
            Ok(match plan.fault {
                Some(fault) => fault.spoil(object),
                None => object,
            })
        })
    }

    fn head<'a>(&'a self, name: &'a ObjectName) -> StoreFuture<'a, ObjectMeta> {
        let key = name.clone();
        Box::pin(self.run((StoreOp::Head, name.as_str()), move |objects| objects.head(&key)))
    }

    fn delete<'a>(&'a self, name: &'a ObjectName) -> StoreFuture<'a, ()> {
        let key = name.clone();
        let remove = move |objects: &mut Objects| {
            objects.delete(&key);
            Ok(())
        };
        Box::pin(self.run((StoreOp::Delete, name.as_str()), remove))
    }

    fn delete_if_match<'a>(&'a self, name: &'a ObjectName, expected: &'a Version) -> StoreFuture<'a, ()> {
        let (key, expected) = (name.clone(), expected.clone());
        let remove = move |objects: &mut Objects| objects.delete_if_match(&key, &expected);
        Box::pin(self.run((StoreOp::DeleteIfMatch, name.as_str()), remove))
    }

    fn list<'a>(
        &'a self,
        prefix: &'a ObjectPrefix,
        after: Option<&'a ObjectName>,
        limit: usize,
    ) -> StoreFuture<'a, ListPage> {
        let (within, after) = (prefix.clone(), after.cloned());
        let list = move |objects: &mut Objects| Ok(objects.list(&within, after.as_ref(), limit));
        Box::pin(self.run((StoreOp::List, prefix.as_str()), list))
    }

    fn clock_skew_ms(&self) -> Option<i64> {
        self.state().skew_ms
    }
}
