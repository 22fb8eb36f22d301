//! A store that keeps what it held after each change: what is found by whoever starts after a process that died there.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::Mutex;

use crate::store::{
    ListPage, MemoryStore, Object, ObjectMeta, ObjectName, ObjectPrefix, PutNonce, Span, Store, StoreError,
    StoreFuture, Version,
};

/// All that a store held at one time.
#[derive(Debug, Clone, Default)]
pub(super) struct Moment(BTreeMap<ObjectName, Bytes>);

impl Moment {
    /// A store that holds the same.
    pub(super) async fn store(&self) -> Arc<dyn Store> {
        let store = MemoryStore::new();
        for (name, body) in &self.0 {
            store.put_if_absent(name, body.clone(), PutNonce::fresh()).await.unwrap();
        }
        Arc::new(store)
    }
}

/// Changes go one at a time. Clones are the same store.
#[derive(Debug, Clone, Default)]
pub(super) struct Moments {
    memory: MemoryStore,
    kept: Arc<Mutex<Kept>>,
}

#[derive(Debug, Default)]
struct Kept {
    now: Moment,
    /// Since when it keeps them; `None`: it doesn't.
    moments: Option<Vec<Moment>>,
}

impl Moments {
    /// Keeps what there is, and what there is after each change from now on.
    pub(super) async fn keep(&self) {
        let mut kept = self.kept.lock().await;
        kept.moments = Some(vec![kept.now.clone()]);
    }

    /// What was kept, in order.
    pub(super) async fn take(&self) -> Vec<Moment> {
        self.kept.lock().await.moments.take().unwrap_or_default()
    }

    async fn change<T>(
        &self,
        change: StoreFuture<'_, T>,
        (name, body): (&ObjectName, Option<Bytes>),
    ) -> Result<T, StoreError> {
        let mut kept = self.kept.lock().await;
        let changed = change.await?;
        let before = match body.clone() {
            Some(body) => kept.now.0.insert(name.clone(), body),
            None => kept.now.0.remove(name),
        };
        let Kept { now, moments } = &mut *kept;
        if let Some(moments) = moments.as_mut().filter(|_| before != body) {
            moments.push(now.clone());
        }
        Ok(changed)
    }
}

impl Store for Moments {
    fn put_if_absent<'a>(&'a self, name: &'a ObjectName, body: Bytes, nonce: PutNonce) -> StoreFuture<'a, Version> {
        let put = self.memory.put_if_absent(name, body.clone(), nonce);
        Box::pin(self.change(put, (name, Some(body))))
    }

    fn put_if_match<'a>(
        &'a self,
        name: &'a ObjectName,
        expected: &'a Version,
        body: Bytes,
        nonce: PutNonce,
    ) -> StoreFuture<'a, Version> {
        let put = self.memory.put_if_match(name, expected, body.clone(), nonce);
        Box::pin(self.change(put, (name, Some(body))))
    }

    fn get<'a>(&'a self, name: &'a ObjectName, span: Span) -> StoreFuture<'a, Object> {
        self.memory.get(name, span)
    }

    fn head<'a>(&'a self, name: &'a ObjectName) -> StoreFuture<'a, ObjectMeta> {
        self.memory.head(name)
    }

    fn delete<'a>(&'a self, name: &'a ObjectName) -> StoreFuture<'a, ()> {
        Box::pin(self.change(self.memory.delete(name), (name, None)))
    }

    fn delete_if_match<'a>(&'a self, name: &'a ObjectName, expected: &'a Version) -> StoreFuture<'a, ()> {
        Box::pin(self.change(self.memory.delete_if_match(name, expected), (name, None)))
    }

    fn list<'a>(
        &'a self,
        prefix: &'a ObjectPrefix,
        after: Option<&'a ObjectName>,
        limit: usize,
    ) -> StoreFuture<'a, ListPage> {
        self.memory.list(prefix, after, limit)
    }
}
