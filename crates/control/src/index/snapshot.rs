//! How can the rows of streams be made again when the index is lost?
//!
//! Chunks go, and bundles have only what records there are. So before chunks may go, the rows of the streams that they change are put
//! into [snapshots](wire::snapshot), slot by slot: `s/<slot>/<incarnation>-<number>-<what>`. Most are deltas; from time to time a base
//! has all rows of a slot, and the snapshots before it are deleted. A slot has a base before it has anything else. They also name the
//! slot's bundles, so that one that is lost can be told by its name.

use std::collections::BTreeSet;
use std::sync::Arc;

use futures_util::stream::{self, StreamExt, TryStreamExt};
use slatedb::config::DurabilityLevel;
use tokio::sync::Mutex;
use wire::chunk::{Footer, ObjectError, ObjectHeader, ObjectKind};
use wire::ids::{Epoch, StreamId};
use wire::slot::Slot;
use wire::snapshot::{BasePart, Snapshot, SnapshotStream};

use super::object_id::ObjectId;
use super::rows::stream::{self as stream_row, Known};
use super::rows::{name, object};
use super::slot::OpenSlot;
use super::touched::Wanted;
use super::{Index, IndexError, IndexOwner};
use crate::channel::{ChunkId, PriorChannel, ReadError, chunk_name};
use crate::shell::unix_ms;
use crate::store::{ObjectName, ObjectPrefix, PutNonce, Span, Store, StoreError};

/// Deltas after which a base is due.
const DELTAS_MAX: usize = 256;
/// Bytes of deltas after which a base is due, unless the last one was larger.
const DELTA_BYTES_MIN: u64 = 4 << 20;
/// So many streams that changed are put one by one however few others there are.
const STREAMS_MIN: usize = 1024;
/// With more of them: a stream that is looked up for a delta takes as long as so many bytes of a base, which is read in order.
const BASE_BYTES_A_STREAM: u64 = 4 << 10;
/// Bytes of rows in one object, about.
const PART_BYTES: usize = 8 << 20;
/// Slots that are looked at side by side.
const SLOTS_AT_A_TIME: usize = 8;
/// Footers that are read side by side.
const READS_AT_A_TIME: usize = 16;
/// Times that a put is tried, or that another number is.
const TRIES_MAX: usize = 8;
/// Bytes of an object's end that are read at first.
const SUFFIX_BYTES: u64 = 64 << 10;
/// Names in a page of a listing.
const PAGE: usize = 1000;

/// What a snapshot is, as its name says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    Delta,
    /// A part of a base that is not the last.
    Part,
    /// The last part of a base.
    Base,
}

/// A snapshot in the store. They sort as they were made.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Named {
    pub(super) incarnation: Epoch,
    pub(super) number: u64,
    pub(super) what: What,
    pub(super) bytes: u64,
}

impl Named {
    pub(super) fn name(&self, slot: Slot) -> ObjectName {
        let what = match self.what {
            What::Delta => "delta",
            What::Part => "part",
            What::Base => "base",
        };
        let (slot, incarnation, number) = (slot.get(), self.incarnation.get(), self.number);
        match ObjectName::parse(&format!("s/{slot:02x}/{incarnation:016x}-{number:016x}-{what}")) {
            Ok(name) => name,
            Err(error) => unreachable!("digits and letters are a name: {error}"),
        }
    }

    pub(super) fn parse(slot: Slot, name: &ObjectName, bytes: u64) -> Option<Self> {
        let mut fields = name.segments().nth(2)?.splitn(3, '-');
        let mut number = || u64::from_str_radix(fields.next()?, 16).ok();
        let (incarnation, number) = (Epoch::new(number()?), number()?);
        let what = match fields.next()? {
            "delta" => What::Delta,
            "part" => What::Part,
            "base" => What::Base,
            _ => return None,
        };
        let named = Self { incarnation, number, what, bytes };
        (named.name(slot) == *name).then_some(named)
    }
}

/// The snapshots of a slot, in order.
pub(super) async fn list(store: &dyn Store, slot: Slot) -> Result<Vec<Named>, StoreError> {
    let Ok(prefix) = ObjectPrefix::parse(&format!("s/{:02x}/", slot.get())) else {
        unreachable!("digits and a slash are a prefix")
    };
    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.list(&prefix, after.as_ref(), PAGE).await?;
        found.extend(page.objects.iter().filter_map(|listed| Named::parse(slot, &listed.name, listed.size_bytes)));
        after = page.objects.last().map(|listed| listed.name.clone());
        if !page.more || after.is_none() {
            found.sort_by_key(|named| (named.incarnation, named.number));
            return Ok(found);
        }
    }
}

/// The snapshots of a slot.
#[derive(Debug, Default)]
struct Chain {
    is_loaded: bool,
    /// Those in the store, in order.
    objects: Vec<Named>,
    /// The number of the next one.
    next: u64,
    /// A base is wanted whatever there is.
    wants_base: bool,
    /// Bundles up to this one are in a snapshot of this process.
    bundles_to: Option<ObjectId>,
}

impl Chain {
    fn wants_base(&self) -> bool {
        let Some(base) = self.objects.iter().rposition(|named| named.what == What::Base) else { return true };
        let bytes = |objects: &[Named]| objects.iter().map(|named| named.bytes).sum::<u64>();
        let (before, deltas) = self.objects.split_at(base + 1);
        let parts = before.iter().rev().skip(1).take_while(|named| named.what == What::Part).count();
        let base_bytes = bytes(&before[base - parts..]);
        self.wants_base || deltas.len() >= DELTAS_MAX || bytes(deltas) > base_bytes.max(DELTA_BYTES_MIN)
    }

    /// Whether a delta of these streams takes longer than a base.
    fn is_dearer_than_base(&self, wanted: &Wanted) -> bool {
        let Wanted::Some(streams) = wanted else { return true };
        let bytes: u64 = self.objects.iter().map(|named| named.bytes).sum();
        streams.len() > STREAMS_MIN && streams.len() as u64 * BASE_BYTES_A_STREAM > bytes
    }
}

/// Puts the snapshots of all slots.
#[derive(Debug)]
pub(super) struct Snapshots {
    store: Arc<dyn Store>,
    owner: IndexOwner,
    chains: Vec<Mutex<Chain>>,
    /// Whether changes of before this process are noted.
    recalled: Mutex<bool>,
}

/// Rows of one object.
#[derive(Debug, Default)]
struct Rows {
    base: Option<BasePart>,
    bundles: Vec<(Epoch, u128)>,
    applied: Vec<(Epoch, u64)>,
    streams: Vec<SnapshotStream>,
}

impl Snapshots {
    pub(super) fn new(store: Arc<dyn Store>, owner: IndexOwner) -> Self {
        let chains = Slot::all().map(|_| Mutex::default()).collect();
        Self { store, owner, chains, recalled: Mutex::new(false) }
    }

    fn chain(&self, slot: Slot) -> &Mutex<Chain> {
        &self.chains[usize::from(slot.get())]
    }

    /// Puts the base of a slot that has nothing yet.
    pub(super) async fn begin(&self, slot: Slot) -> Result<(), IndexError> {
        let mut chain = self.chain(slot).lock().await;
        self.load(slot, &mut chain).await?;
        if chain.wants_base() {
            let base = Some(BasePart { number: 0, is_last: true });
            self.put(slot, &mut chain, Rows { base, ..Rows::default() }).await?;
        }
        Ok(())
    }

    /// Every slot is to have a base next.
    async fn want_bases(&self) {
        for chain in &self.chains {
            chain.lock().await.wants_base = true;
        }
    }

    async fn load(&self, slot: Slot, chain: &mut Chain) -> Result<(), IndexError> {
        if !chain.is_loaded {
            chain.objects = list(&*self.store, slot).await?;
            let own = chain.objects.iter().filter(|named| named.incarnation == self.owner.incarnation);
            chain.next = own.map(|named| named.number + 1).max().unwrap_or(0);
            chain.is_loaded = true;
        }
        Ok(())
    }

    /// Puts one object behind the last one.
    async fn put(&self, slot: Slot, chain: &mut Chain, rows: Rows) -> Result<(), IndexError> {
        let IndexOwner { cluster, star, incarnation } = self.owner;
        let Rows { base, bundles, applied, streams } = rows;
        let what = match base {
            None => What::Delta,
            Some(part) if part.is_last => What::Base,
            Some(_) => What::Part,
        };
        let kind = ObjectKind::Snapshot;
        let header = ObjectHeader { kind, cluster, star, incarnation, position: 0, slot, created_ms: unix_ms() };
        let previous = chain.objects.last().map(|named| (named.incarnation, named.number));
        let mut snapshot = Snapshot { header, base, previous, bundles, applied, streams };
        for _ in 0..TRIES_MAX {
            let number = chain.next;
            snapshot.header.position = number;
            let body = snapshot.encode();
            let named = Named { incarnation, number, what, bytes: body.len() as u64 };
            let nonce = PutNonce::fresh();
            let (name, body) = (named.name(slot), bytes::Bytes::from(body));
            let mut put = self.store.put_if_absent(&name, body.clone(), nonce).await;
            if matches!(put, Err(StoreError::Unavailable { .. })) {
                put = self.store.put_if_absent(&name, body, nonce).await;
            }
            chain.next += 1;
            match put {
                Ok(_) => {
                    chain.objects.push(named);
                    return Ok(());
                }
                // One that was given up has the number, and got there all the same: what it says was so.
                Err(StoreError::AlreadyExists { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Err(IndexError::Crowded { slot })
    }

    /// Deletes what is before the last base. What can't be is, after the next one.
    async fn forget(&self, slot: Slot, chain: &mut Chain) {
        let Some(base) = chain.objects.iter().rposition(|named| named.what == What::Base) else { return };
        let parts = chain.objects[..base].iter().rev().take_while(|named| named.what == What::Part).count();
        let mut kept = chain.objects.split_off(base - parts);
        for named in std::mem::take(&mut chain.objects) {
            if let Err(error) = self.store.delete(&named.name(slot)).await {
                tracing::warn!(slot = slot.get(), %error, "a snapshot that is not needed stays");
                chain.objects.push(named);
            }
        }
        chain.objects.append(&mut kept);
    }
}

impl Index {
    /// Puts what only chunks say of streams, of all that are applied, into snapshots: then those of them that nothing points to may go.
    /// `prior` are the channels that had ended when this process began.
    ///
    /// # Errors
    /// [`IndexError`]; no chunk may go then.
    pub async fn snapshot(&self, prior: &[PriorChannel]) -> Result<(), IndexError> {
        self.recall(prior).await?;
        let slots = stream::iter(Slot::all()).map(|slot| self.snapshot_slot(slot));
        slots.buffer_unordered(SLOTS_AT_A_TIME).try_collect().await
    }

    async fn snapshot_slot(&self, slot: Slot) -> Result<(), IndexError> {
        let (has_index, open) = self.has_index(slot).await?;
        if !has_index {
            return Ok(());
        }
        let mut chain = self.snapshots.chain(slot).lock().await;
        self.snapshots.load(slot, &mut chain).await?;
        let open = match open {
            Some(open) => open,
            None if !chain.wants_base() => return Ok(()),
            None => match self.open_slot(slot).await? {
                Some(open) => open,
                None => return Ok(()),
            },
        };
        let (wanted, applied) = {
            let mut writer = open.writer.lock().await;
            (writer.touched.begin(), writer.applied.channels().collect::<Vec<_>>())
        };
        let is_base = chain.wants_base() || chain.is_dearer_than_base(&wanted);
        match wanted {
            Wanted::Some(streams) if !is_base => {
                // Bundles of streams that rest are named too: nothing else would name one of them that is lost.
                let bundles = bundles_after(&open, chain.bundles_to).await?;
                if streams.is_empty() && bundles.is_empty() {
                    return Ok(());
                }
                self.put_delta(&open, &mut chain, (streams, bundles, applied)).await?;
            }
            _ => {
                self.put_base(&open, &mut chain, applied).await?;
                chain.wants_base = false;
                self.snapshots.forget(slot, &mut chain).await;
            }
        }
        open.writer.lock().await.touched.end();
        Ok(())
    }

    async fn put_delta(
        &self,
        open: &OpenSlot,
        chain: &mut Chain,
        (wanted, bundles, applied): (Vec<StreamId>, Vec<ObjectId>, Vec<(Epoch, u64)>),
    ) -> Result<(), IndexError> {
        let mut rows = Rows { bundles: ids(&bundles), ..Rows::default() };
        let mut bytes = 0;
        for stream_id in wanted {
            let known = open.known(stream_id).await?.unwrap_or(Known::Deleted);
            let has_name = match &known {
                Known::Lives { row, .. } => {
                    let holder = open.get(&name::key(row.bucket, row.key.as_str())).await?;
                    holder.map(|holder| open.row(name::decode(&holder))).transpose()? == Some(stream_id)
                }
                Known::Deleted => false,
            };
            bytes += known.encode().len();
            rows.streams.push(of_known(stream_id, known, has_name));
            if bytes >= PART_BYTES {
                self.snapshots.put(open.slot, chain, std::mem::take(&mut rows)).await?;
                bytes = 0;
            }
        }
        rows.applied = applied;
        self.snapshots.put(open.slot, chain, rows).await?;
        chain.bundles_to = bundles.last().copied().or(chain.bundles_to);
        Ok(())
    }

    async fn put_base(&self, open: &OpenSlot, chain: &mut Chain, applied: Vec<(Epoch, u64)>) -> Result<(), IndexError> {
        // A name that changes from here on is its stream's in the next delta.
        let mut holders = BTreeSet::new();
        let mut names = open.scan(name::all(), DurabilityLevel::Memory).await?;
        while let Some((_, value)) = names.next().await? {
            holders.insert(open.row(name::decode(&value))?);
        }
        let bundles = bundles_after(open, None).await?;
        let mut number = 0;
        let mut rows = Rows { bundles: ids(&bundles), ..Rows::default() };
        let mut bytes = 0;
        let mut found = open.scan(stream_row::all(), DurabilityLevel::Memory).await?;
        while let Some((key, value)) = found.next().await? {
            if bytes >= PART_BYTES {
                rows.base = Some(BasePart { number, is_last: false });
                self.snapshots.put(open.slot, chain, std::mem::take(&mut rows)).await?;
                (number, bytes) = (number + 1, 0);
            }
            let (stream_id, known) = open.row(Known::of(&key, &value))?;
            bytes += value.len();
            rows.streams.push(of_known(stream_id, known, holders.contains(&stream_id)));
        }
        (rows.base, rows.applied) = (Some(BasePart { number, is_last: true }), applied);
        self.snapshots.put(open.slot, chain, rows).await?;
        chain.bundles_to = bundles.last().copied();
        Ok(())
    }

    /// Notes which streams the chunks have that were applied before this process began and are still there.
    async fn recall(&self, prior: &[PriorChannel]) -> Result<(), IndexError> {
        let mut recalled = self.snapshots.recalled.lock().await;
        if *recalled {
            return Ok(());
        }
        let first = self.progress().first.clone();
        let chunks = prior.iter().flat_map(|PriorChannel { incarnation, low, end }| {
            let end = first.get(incarnation).copied().unwrap_or(*end).min(*end);
            (*low..end).map(|position| ChunkId { incarnation: *incarnation, position })
        });
        let footers = stream::iter(chunks.collect::<Vec<_>>()).map(|at| async move {
            let name = chunk_name(at);
            footer_of(&*self.store, &name).await
        });
        let mut footers = Box::pin(footers.buffered(READS_AT_A_TIME));
        while let Some(footer) = footers.next().await {
            match footer {
                Ok(footer) => self.recall_streams(&footer).await?,
                Err(ReadError::Store(error))
                    if !matches!(error, StoreError::NotFound { .. } | StoreError::Corrupt { .. }) =>
                {
                    return Err(error.into());
                }
                Err(error) => {
                    tracing::warn!(%error, "which streams a chunk has is not known: all are put into snapshots");
                    self.snapshots.want_bases().await;
                }
            }
        }
        *recalled = true;
        Ok(())
    }

    async fn recall_streams(&self, footer: &Footer) -> Result<(), IndexError> {
        for extents in footer.extents.chunk_by(|one, next| one.slot == next.slot) {
            let Some(slot) = extents.first().map(|extent| extent.slot) else { continue };
            let Some(open) = self.open_slot(slot).await? else { continue };
            let mut writer = open.writer.lock().await;
            extents.iter().for_each(|extent| writer.touched.note(extent.stream_id));
        }
        Ok(())
    }
}

fn of_known(stream_id: StreamId, known: Known, has_name: bool) -> SnapshotStream {
    match known {
        Known::Lives { row, .. } => SnapshotStream::Lives { row, has_name },
        Known::Deleted => SnapshotStream::Deleted(stream_id),
    }
}

async fn bundles_after(open: &OpenSlot, after: Option<ObjectId>) -> Result<Vec<ObjectId>, IndexError> {
    let mut range = object::bundles();
    if let Some(after) = after {
        range.start = [&object::key(after)[..], &[0]].concat();
    }
    let mut rows = open.scan(range, DurabilityLevel::Memory).await?;
    let mut bundles = Vec::new();
    while let Some((key, _)) = rows.next().await? {
        bundles.push(open.row(object::decode_key(&key))?);
    }
    Ok(bundles)
}

fn ids(bundles: &[ObjectId]) -> Vec<(Epoch, u128)> {
    let id = |object: &ObjectId| match object {
        ObjectId::Bundle { epoch, id, .. } => Some((*epoch, *id)),
        ObjectId::Chunk(_) => None,
    };
    bundles.iter().filter_map(id).collect()
}

/// What an object holds, by its end alone.
pub(super) async fn footer_of(store: &dyn Store, name: &ObjectName) -> Result<Footer, ReadError> {
    let mut bytes = SUFFIX_BYTES;
    loop {
        let found = store.get(name, Span::Suffix(bytes)).await?;
        match Footer::decode_suffix(&found.body, found.meta.size_bytes) {
            Err(ObjectError::NeedMore { bytes: more }) if more > bytes => bytes = more,
            decoded => return decoded.map_err(|source| ReadError::Damaged { object: name.clone(), source }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_is_read_as_it_was_written() {
        let slot = Slot::new(9).unwrap();
        for (what, text) in [(What::Delta, "delta"), (What::Part, "part"), (What::Base, "base")] {
            let named = Named { incarnation: Epoch::new(17), number: 255, what, bytes: 3 };
            let name = named.name(slot);
            assert_eq!(name.as_str(), format!("s/09/0000000000000011-00000000000000ff-{text}"));
            assert_eq!(Named::parse(slot, &name, 3), Some(named));
        }
        for wrong in ["s/09/11-ff-delta", "s/09/0000000000000011-00000000000000ff-more", "s/09/x"] {
            assert_eq!(Named::parse(slot, &ObjectName::parse(wrong).unwrap(), 3), None, "{wrong}");
        }
    }

    #[test]
    fn a_base_is_due_after_many_deltas_or_large_ones() {
        let named = |number, what, bytes| Named { incarnation: Epoch::new(1), number, what, bytes };
        let chain = |objects| Chain { objects, is_loaded: true, ..Chain::default() };
        assert!(chain(Vec::new()).wants_base());
        assert!(chain(vec![named(0, What::Part, 1), named(1, What::Delta, 1)]).wants_base(), "half a base is none");
        let base = [named(0, What::Part, 5 << 20), named(1, What::Base, 1)];
        let with = |count: u64, bytes| {
            let deltas = (2..count + 2).map(|number| named(number, What::Delta, bytes));
            chain(base.iter().cloned().chain(deltas).collect()).wants_base()
        };
        assert_eq!((with(255, 1), with(256, 1), with(1, 5 << 20), with(2, 3 << 20)), (false, true, false, true));
    }

    #[test]
    fn a_base_is_put_instead_of_a_delta_of_most_streams() {
        let base = Named { incarnation: Epoch::new(1), number: 0, what: What::Base, bytes: 40 << 20 };
        let chain = Chain { objects: vec![base], is_loaded: true, ..Chain::default() };
        let some = |streams| Wanted::Some(vec![StreamId::from_bytes([1; 16]); streams]);
        let is_dearer = |wanted| chain.is_dearer_than_base(&wanted);
        assert_eq!((is_dearer(some(10_240)), is_dearer(some(10_241)), is_dearer(Wanted::All)), (false, true, true));
        let small = Chain::default();
        assert_eq!((small.is_dearer_than_base(&some(1024)), small.is_dearer_than_base(&some(1025))), (false, true));
    }
}
