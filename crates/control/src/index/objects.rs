//! How does SlateDB read and write through our store?
//!
//! Its objects lie below one prefix. A put's own id becomes its nonce, so a repeated put that had been applied is taken for done. The
//! store tells no times: what this process writes counts as written when the write began, anything else long ago, for whoever wrote it
//! was fenced before this process opened a database. So what many short lives leave behind is garbage at once.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::SystemTime;

use async_trait::async_trait;
use bytes::Bytes;
use failpoints::{Point, hit};
use futures_util::stream::{self, BoxStream, StreamExt, TryStreamExt};
use slatedb::object_store::path::Path;
use slatedb::object_store::{
    Attribute, Attributes, CopyMode, CopyOptions, Error, Extensions, GetOptions, GetRange, GetResult, GetResultPayload,
    ListResult, MultipartUpload, ObjectMeta, ObjectStore, PutMode, PutMultipartOptions, PutOptions, PutPayload,
    PutResult, Result, UploadPart,
};
use xxhash_rust::xxh3::xxh3_128;

use crate::store::{self, ObjectName, ObjectPrefix, PutNonce, Span, Store, StoreError, Version};

/// Who says an error.
const STORE: &str = "nova";
/// Names in a page of a listing.
const PAGE: usize = 1000;
/// Times that an overwrite that lost against another one is tried again.
const OVERWRITES_MAX: usize = 16;
/// Where SlateDB puts the id of a put.
const PUT_ID: &str = "slatedbputid";

/// The part of a store below a prefix, as SlateDB sees it.
#[derive(Clone)]
pub(super) struct Objects {
    store: Arc<dyn Store>,
    prefix: Arc<str>,
    written: Arc<Mutex<HashMap<ObjectName, SystemTime>>>,
}

impl Objects {
    /// What lies below `prefix`, which ends with a slash.
    pub(super) fn new(store: Arc<dyn Store>, prefix: &str) -> Self {
        Self { store, prefix: prefix.into(), written: Arc::default() }
    }

    fn name(&self, path: &Path) -> Result<ObjectName> {
        ObjectName::parse(&format!("{}{path}", self.prefix)).map_err(generic)
    }

    fn path(&self, name: &ObjectName) -> Result<Path> {
        let below = name.as_str().strip_prefix(&*self.prefix);
        Ok(Path::parse(below.unwrap_or_else(|| name.as_str()))?)
    }

    fn written(&self) -> MutexGuard<'_, HashMap<ObjectName, SystemTime>> {
        self.written.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn meta(&self, name: &ObjectName, size: u64, version: Option<&Version>) -> Result<ObjectMeta> {
        Ok(ObjectMeta {
            location: self.path(name)?,
            last_modified: self.written().get(name).copied().unwrap_or(SystemTime::UNIX_EPOCH).into(),
            size,
            e_tag: version.map(|version| version.as_str().to_owned()),
            version: None,
        })
    }

    async fn write(&self, name: &ObjectName, body: Bytes, mode: PutMode, nonce: PutNonce) -> Result<PutResult> {
        // Before it is there: it must not be met as garbage before anything refers to it.
        self.written().insert(name.clone(), SystemTime::now());
        hit(Point::IndexWrite);
        let version = match mode {
            PutMode::Create => self.store.put_if_absent(name, body, nonce).await.map_err(refused)?,
            PutMode::Update(update) => {
                let Some(tag) = update.e_tag else {
                    return Err(generic("an update that names no version"));
                };
                self.store.put_if_match(name, &Version::new(&tag), body, nonce).await.map_err(unmatched)?
            }
            PutMode::Overwrite => self.overwrite(name, body, nonce).await?,
        };
        hit(Point::IndexWritten);
        Ok(PutResult { e_tag: Some(version.as_str().to_owned()), version: None, extensions: Extensions::new() })
    }

    /// Names of sorted runs are new, so the first try does in all but a repeat.
    async fn overwrite(&self, name: &ObjectName, body: Bytes, nonce: PutNonce) -> Result<Version> {
        for _ in 0..OVERWRITES_MAX {
            let current = match self.store.put_if_absent(name, body.clone(), nonce).await {
                Ok(version) => return Ok(version),
                Err(StoreError::AlreadyExists { current, .. }) => current,
                Err(error) => return Err(refused(error)),
            };
            match self.store.put_if_match(name, &current, body.clone(), nonce).await {
                Ok(version) => return Ok(version),
                Err(StoreError::VersionMismatch { .. } | StoreError::NotFound { .. }) => {}
                Err(error) => return Err(refused(error)),
            }
        }
        Err(generic(format!("{name} was replaced by others {OVERWRITES_MAX} times while it was overwritten")))
    }

    async fn read(&self, name: &ObjectName, options: &GetOptions) -> Result<(store::ObjectMeta, Bytes)> {
        if options.head {
            return Ok((self.store.head(name).await.map_err(refused)?, Bytes::new()));
        }
        let span = match &options.range {
            None => Span::Whole,
            Some(GetRange::Bounded(range)) => Span::Range { start: range.start, end: range.end },
            Some(GetRange::Offset(start)) => Span::Range { start: *start, end: u64::MAX },
            Some(GetRange::Suffix(bytes)) => Span::Suffix(*bytes),
        };
        let object = self.store.get(name, span).await.map_err(refused)?;
        Ok((object.meta, object.body))
    }

    fn prefix_of(&self, prefix: Option<&Path>) -> Result<ObjectPrefix> {
        let text = match prefix.filter(|prefix| !prefix.as_ref().is_empty()) {
            Some(prefix) => format!("{}{prefix}/", self.prefix),
            None => self.prefix.to_string(),
        };
        ObjectPrefix::parse(&text).map_err(generic)
    }

    async fn page(
        &self,
        prefix: &ObjectPrefix,
        after: Option<&ObjectName>,
    ) -> Result<(Vec<ObjectMeta>, Option<ObjectName>)> {
        let page = self.store.list(prefix, after, PAGE).await.map_err(refused)?;
        let next = page.objects.last().filter(|_| page.more).map(|last| last.name.clone());
        let metas = page.objects.iter().map(|listed| self.meta(&listed.name, listed.size_bytes, None));
        Ok((metas.collect::<Result<_>>()?, next))
    }

    async fn remove(&self, path: Path) -> Result<Path> {
        let name = self.name(&path)?;
        self.store.delete(&name).await.map_err(refused)?;
        self.written().remove(&name);
        Ok(path)
    }
}

impl fmt::Debug for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Objects").field("store", &self.store).field("prefix", &self.prefix).finish_non_exhaustive()
    }
}

impl fmt::Display for Objects {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{STORE}({})", self.prefix)
    }
}

#[async_trait]
impl ObjectStore for Objects {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let (name, nonce) = (self.name(location)?, nonce_of(&opts.attributes));
        self.write(&name, payload.into(), opts.mode, nonce).await
    }

    async fn put_multipart_opts(&self, location: &Path, opts: PutMultipartOptions) -> Result<Box<dyn MultipartUpload>> {
        let nonce = nonce_of(&opts.attributes);
        Ok(Box::new(Gathered { objects: self.clone(), name: self.name(location)?, parts: Vec::new(), nonce }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let name = self.name(location)?;
        let (meta, body) = self.read(&name, &options).await?;
        let meta = self.meta(&name, meta.size_bytes, Some(&meta.version))?;
        options.check_preconditions(&meta)?;
        let range = match &options.range {
            None => 0..meta.size,
            Some(range) => range.as_range(meta.size).map_err(generic)?,
        };
        let payload = GetResultPayload::Stream(stream::iter([Ok(body)]).boxed());
        Ok(GetResult { payload, meta, range, attributes: Attributes::new(), extensions: Extensions::new() })
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        let objects = self.clone();
        let removed = locations.map(move |path| {
            let objects = objects.clone();
            async move { objects.remove(path?).await }
        });
        removed.buffered(8).boxed()
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let objects = self.clone();
        let start = self.prefix_of(prefix).map(|prefix| (prefix, None));
        stream::once(async move { start })
            .map_ok(move |(prefix, after)| pages(objects.clone(), prefix, after))
            .try_flatten()
            .boxed()
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        let within = self.prefix_of(prefix)?;
        let skip = within.as_str().len();
        let (mut common_prefixes, mut objects): (Vec<Path>, Vec<ObjectMeta>) = Default::default();
        let mut found = self.list(prefix);
        while let Some(meta) = found.try_next().await? {
            let name = self.name(&meta.location)?;
            match name.as_str()[skip..].split_once('/') {
                None => objects.push(meta),
                Some((directory, _)) => {
                    let path = Path::parse(format!("{}{directory}", &within.as_str()[self.prefix.len()..]))?;
                    if common_prefixes.last() != Some(&path) {
                        common_prefixes.push(path);
                    }
                }
            }
        }
        Ok(ListResult { common_prefixes, objects, extensions: Extensions::new() })
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        let mode = match options.mode {
            CopyMode::Overwrite => PutMode::Overwrite,
            CopyMode::Create => PutMode::Create,
        };
        let source = self.store.get(&self.name(from)?, Span::Whole).await.map_err(refused)?;
        self.write(&self.name(to)?, source.body, mode, PutNonce::fresh()).await.map(drop)
    }
}

/// Every object of the pages from `after` on.
fn pages(
    objects: Objects,
    prefix: ObjectPrefix,
    after: Option<ObjectName>,
) -> impl futures_util::Stream<Item = Result<ObjectMeta>> + Send {
    let first = Some((objects, prefix, after));
    let pages = stream::try_unfold(first, |state| async move {
        let Some((objects, prefix, after)) = state else { return Ok::<_, Error>(None) };
        let (metas, next) = objects.page(&prefix, after.as_ref()).await?;
        let rest = next.map(|next| (objects, prefix, Some(next)));
        Ok(Some((stream::iter(metas.into_iter().map(Ok)), rest)))
    });
    pages.try_flatten()
}

/// An upload in parts: they wait in memory and are put as one object.
#[derive(Debug)]
struct Gathered {
    objects: Objects,
    name: ObjectName,
    parts: Vec<PutPayload>,
    nonce: PutNonce,
}

#[async_trait]
impl MultipartUpload for Gathered {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        self.parts.push(data);
        Box::pin(async { Ok(()) })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let body: PutPayload = self.parts.iter().flat_map(|part| part.iter().cloned()).collect();
        self.objects.write(&self.name, body.into(), PutMode::Overwrite, self.nonce).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.parts.clear();
        Ok(())
    }
}

/// The nonce of a put: the same for each of its tries.
fn nonce_of(attributes: &Attributes) -> PutNonce {
    match attributes.get(&Attribute::Metadata(Cow::Borrowed(PUT_ID))) {
        Some(id) => PutNonce::from_bytes(xxh3_128(id.as_bytes()).to_be_bytes()),
        None => PutNonce::fresh(),
    }
}

fn generic(source: impl Into<Box<dyn std::error::Error + Send + Sync>>) -> Error {
    Error::Generic { store: STORE, source: source.into() }
}

fn refused(error: StoreError) -> Error {
    let (path, source) = (target(&error), Box::new(error));
    match *source {
        StoreError::AlreadyExists { .. } => Error::AlreadyExists { path, source },
        StoreError::NotFound { .. } => Error::NotFound { path, source },
        StoreError::VersionMismatch { .. } => Error::Precondition { path, source },
        StoreError::Denied { .. } => Error::PermissionDenied { path, source },
        _ => Error::Generic { store: STORE, source },
    }
}

/// As [`refused`], of an update: that the object is gone is a version of it that isn't the one expected.
fn unmatched(error: StoreError) -> Error {
    match refused(error) {
        Error::NotFound { path, source } => Error::Precondition { path, source },
        other => other,
    }
}

fn target(error: &StoreError) -> String {
    match error {
        StoreError::AlreadyExists { name, .. }
        | StoreError::VersionMismatch { name, .. }
        | StoreError::NotFound { name }
        | StoreError::OutOfRange { name, .. } => name.to_string(),
        StoreError::Denied { target, .. } => target.clone(),
        // The others become errors that say everything themselves.
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests;
