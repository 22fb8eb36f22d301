//! What do the objects of the store in memory answer, one operation at a time?

use std::collections::BTreeMap;
use std::ops::Bound;

use bytes::Bytes;

use crate::store::{
    ListPage, Listed, Object, ObjectMeta, ObjectName, ObjectPrefix, PutNonce, Span, StoreError, StoreOp, Version,
};

/// Objects, and which conditions are judged.
#[derive(Debug, Default)]
pub(super) struct Objects {
    by_name: BTreeMap<ObjectName, Stored>,
    versions: u64,
    /// Operations that are carried out whatever their condition.
    heedless: Vec<StoreOp>,
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

impl Objects {
    pub(super) fn ignore_conditions_of(&mut self, op: StoreOp) {
        self.heedless.push(op);
    }

    /// Other bytes under the same version and nonce; answers whether the object was there.
    pub(super) fn tamper(&mut self, name: &ObjectName, body: Bytes) -> bool {
        self.by_name.get_mut(name).map(|stored| stored.body = body).is_some()
    }

    pub(super) fn bytes(&self) -> u64 {
        self.by_name.values().map(|stored| stored.body.len() as u64).sum()
    }

    pub(super) fn count(&self) -> usize {
        self.by_name.len()
    }

    fn put(&mut self, name: &ObjectName, body: Bytes, nonce: PutNonce) -> Version {
        self.versions += 1;
        let version = Version::new(&self.versions.to_string());
        self.by_name.insert(name.clone(), Stored { version: version.clone(), nonce, body });
        version
    }

    fn found(&self, name: &ObjectName) -> Result<&Stored, StoreError> {
        self.by_name.get(name).ok_or_else(|| StoreError::NotFound { name: name.clone() })
    }

    pub(super) fn put_if_absent(
        &mut self,
        name: &ObjectName,
        body: Bytes,
        nonce: PutNonce,
    ) -> Result<Version, StoreError> {
        match self.by_name.get(name).filter(|_| !self.heedless.contains(&StoreOp::PutIfAbsent)) {
            Some(stored) if stored.is(&body, nonce) => Ok(stored.version.clone()),
            Some(stored) => Err(StoreError::AlreadyExists { name: name.clone(), current: stored.version.clone() }),
            None => Ok(self.put(name, body, nonce)),
        }
    }

    pub(super) fn put_if_match(
        &mut self,
        name: &ObjectName,
        expected: &Version,
        body: Bytes,
        nonce: PutNonce,
    ) -> Result<Version, StoreError> {
        if self.heedless.contains(&StoreOp::PutIfMatch) {
            return Ok(self.put(name, body, nonce));
        }
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

    pub(super) fn head(&self, name: &ObjectName) -> Result<ObjectMeta, StoreError> {
        self.found(name).map(Stored::meta)
    }

    pub(super) fn get(&self, name: &ObjectName, span: Span) -> Result<Object, StoreError> {
        let stored = self.found(name)?;
        let meta = stored.meta();
        let range = span.of(name, meta.size_bytes)?;
        let index = |at: u64| usize::try_from(at).unwrap_or(usize::MAX);
        Ok(Object { meta, body: stored.body.slice(index(range.start)..index(range.end)) })
    }

    pub(super) fn delete(&mut self, name: &ObjectName) {
        self.by_name.remove(name);
    }

    pub(super) fn delete_if_match(&mut self, name: &ObjectName, expected: &Version) -> Result<(), StoreError> {
        if !self.heedless.contains(&StoreOp::DeleteIfMatch) {
            self.check(name, expected)?;
        }
        self.by_name.remove(name);
        Ok(())
    }

    pub(super) fn list(&self, prefix: &ObjectPrefix, after: Option<&ObjectName>, limit: usize) -> ListPage {
        // From where the prefix could begin, so that a page costs its rows rather than the objects before it.
        let from = after.filter(|after| after.as_str() >= prefix.as_str()).map(Bound::Excluded);
        let first = ObjectName::parse(prefix.as_str().trim_end_matches('/')).ok();
        let from = from.unwrap_or_else(|| first.as_ref().map_or(Bound::Unbounded, Bound::Included));
        let beyond = |name: &ObjectName| name.as_str() > prefix.as_str() && !name.as_str().starts_with(prefix.as_str());
        let mut matching = self
            .by_name
            .range((from, Bound::Unbounded))
            .take_while(|(name, _)| !beyond(name))
            .filter(|(name, _)| name.as_str().starts_with(prefix.as_str()));
        let row = |(name, stored): (&ObjectName, &Stored)| Listed {
            name: name.clone(),
            size_bytes: stored.body.len() as u64,
        };
        let objects = matching.by_ref().take(limit).map(row).collect();
        ListPage { objects, more: matching.next().is_some() }
    }
}
