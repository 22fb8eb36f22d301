//! What do the snapshots of a slot say of its streams?

use std::collections::BTreeSet;

use wire::chunk::ObjectKind;
use wire::ids::Epoch;
use wire::slot::Slot;
use wire::snapshot::{Snapshot, SnapshotStream};

use super::report::{Missing, Rebuilt, Step};
use super::{New, Rebuilding, is_lost_object};
use crate::channel::ChunkId;
use crate::index::IndexError;
use crate::index::rows::applied::AppliedChunks;
use crate::index::rows::name;
use crate::index::rows::queue::Queue;
use crate::index::rows::stream::Known;
use crate::index::slot::OpenSlot;
use crate::index::snapshot::{Named, What, list};
use crate::index::staged::Staged;
use crate::store::Span;

/// What snapshots say besides the rows of streams.
#[derive(Debug, Default)]
pub(super) struct FromSnapshots {
    /// The chunks whose entries are in the rows.
    pub(super) applied: AppliedChunks,
    /// Bundles that there were.
    pub(super) bundles: BTreeSet<(Epoch, u128)>,
    /// Whether something is missing, so that what is not known may have been.
    pub(super) is_partial: bool,
}

/// Folds the snapshots of every slot into its new database; answers what else they say, by slot.
pub(super) async fn fold(
    what: &Rebuilding,
    new: &New,
    done: &mut Rebuilt,
    tell: &(dyn Fn(Step) + Send + Sync),
) -> Result<Vec<FromSnapshots>, IndexError> {
    let mut all = Vec::new();
    for slot in Slot::all() {
        tell(Step { what: "snapshots of slots", done: slot.get().into(), total: Slot::all().count() as u64 });
        all.push(Folding { what, new, done, slot, says: FromSnapshots::default() }.fold().await?);
    }
    Ok(all)
}

struct Folding<'a> {
    what: &'a Rebuilding,
    new: &'a New,
    done: &'a mut Rebuilt,
    slot: Slot,
    says: FromSnapshots,
}

impl Folding<'_> {
    async fn fold(mut self) -> Result<FromSnapshots, IndexError> {
        let slot = self.slot;
        let objects = list(&*self.what.store, slot).await?;
        let has_index = self.what.slots_with_index >> slot.get() & 1 == 1;
        if objects.is_empty() && !has_index {
            return Ok(self.says);
        }
        let open = self.new.open(slot).await?;
        let last_base = objects.iter().rposition(|named| named.what == What::Base);
        let deltas = last_base.map_or(0, |base| base + 1);
        if let Some(base) = last_base {
            self.fold_base(&open, &objects[..=base]).await?;
        } else {
            self.lacks(
                format!("s/{:02x}/", slot.get()),
                "no snapshot in it is a base, which has all streams of the slot",
            );
        }
        for named in objects[deltas..].iter().filter(|named| named.what == What::Delta) {
            let Some(snapshot) = self.read(named).await? else { continue };
            self.check_previous(&snapshot, (&objects, deltas));
            self.take(&open, snapshot).await?;
        }
        let mut writer = open.writer.lock().await;
        writer.applied.merge(&self.says.applied);
        drop(writer);
        Ok(self.says)
    }

    fn lacks(&mut self, name: String, what: &str) {
        self.says.is_partial = true;
        self.done.missing.push(Missing::Object { name, what: what.to_owned() });
    }

    /// Folds the base that ends the list.
    async fn fold_base(&mut self, open: &OpenSlot, objects: &[Named]) -> Result<(), IndexError> {
        let Some(last) = objects.last() else { return Ok(()) };
        let Some(mut snapshot) = self.read(last).await? else { return Ok(()) };
        while let Some(part) = snapshot.base.filter(|part| part.number > 0) {
            let before = objects
                .iter()
                .find(|named| Some((named.incarnation, named.number)) == snapshot.previous && named.what == What::Part);
            self.take(open, snapshot).await?;
            let Some(before) = before else {
                let name = last.name(self.slot).to_string();
                self.lacks(name, &format!("part {} of the base that it ends is missing", part.number - 1));
                return Ok(());
            };
            let Some(next) = self.read(before).await? else { return Ok(()) };
            snapshot = next;
        }
        self.take(open, snapshot).await
    }

    /// The snapshot before a delta is there, unless a base made it needless.
    fn check_previous(&mut self, snapshot: &Snapshot, (objects, deltas): (&[Named], usize)) {
        let Some((incarnation, number)) = snapshot.previous else { return };
        let is_there = objects.iter().any(|named| (named.incarnation, named.number) == (incarnation, number));
        let base = deltas.checked_sub(1).map(|base| (objects[base].incarnation, objects[base].number));
        if !is_there && base.is_none_or(|base| base < (incarnation, number)) {
            let name = format!("s/{:02x}/{:016x}-{number:016x}-…", self.slot.get(), incarnation.get());
            self.lacks(name, "it is missing, and the one after it is there");
        }
    }

    /// Reads a snapshot; one that is damaged is noted.
    async fn read(&mut self, named: &Named) -> Result<Option<Snapshot>, IndexError> {
        let name = named.name(self.slot);
        self.done.snapshots += 1;
        let what = match self.what.store.get(&name, Span::Whole).await {
            Ok(found) => match Snapshot::decode(&found.body) {
                Ok(snapshot) => {
                    let header = snapshot.header;
                    let found = (header.kind, header.cluster, header.slot, header.incarnation, header.position);
                    let is_it =
                        (ObjectKind::Snapshot, self.what.owner.cluster, self.slot, named.incarnation, named.number);
                    if found == is_it {
                        return Ok(Some(snapshot));
                    }
                    "it is another object than its name says".to_owned()
                }
                Err(error) => error.to_string(),
            },
            Err(error) if is_lost_object(&error) => error.to_string(),
            Err(error) => return Err(error.into()),
        };
        self.lacks(name.to_string(), &what);
        Ok(None)
    }

    async fn take(&mut self, open: &OpenSlot, snapshot: Snapshot) -> Result<(), IndexError> {
        self.says.bundles.extend(snapshot.bundles);
        for (incarnation, position) in snapshot.applied {
            self.says.applied.note(ChunkId { incarnation, position });
        }
        let mut writer = open.writer.lock().await;
        let mut staged = Staged::new(open, &mut writer, &self.new.options, self.what.now_ms);
        for stream in snapshot.streams {
            take_stream(&mut staged, stream).await?;
        }
        staged.commit(None).await?;
        drop(writer);
        self.new.tidy(open).await
    }
}

/// Takes what a snapshot says of a stream, if it is newer than what is known.
async fn take_stream(staged: &mut Staged<'_>, stream: SnapshotStream) -> Result<(), IndexError> {
    let (mut row, has_name) = match stream {
        SnapshotStream::Lives { row, has_name } => (row, has_name),
        SnapshotStream::Deleted(stream_id) => {
            if let Some(Known::Lives { row, .. }) = staged.take_known(stream_id).await? {
                staged.count(row.bucket, -1);
                let name = name::key(row.bucket, row.key.as_str());
                if staged.holder(&name).await? == Some(stream_id) {
                    staged.unname(name);
                }
            }
            staged.know(stream_id, Known::Deleted);
            let forget_ms = staged.now_ms.saturating_add(staged.options.forget_after_ms);
            staged.put(&Queue::Forget.stream_key(forget_ms, stream_id), &[]);
            return Ok(());
        }
    };
    let stream_id = row.stream_id;
    match staged.take_known(stream_id).await? {
        Some(Known::Lives { row: known, due_ms }) if known.rev > row.rev => {
            staged.keep(stream_id, Known::Lives { row: known, due_ms });
            return Ok(());
        }
        Some(Known::Lives { .. }) => {}
        Some(Known::Deleted) => {
            staged.keep(stream_id, Known::Deleted);
            return Ok(());
        }
        None => staged.count(row.bucket, 1),
    }
    if has_name {
        staged.name(name::key(row.bucket, row.key.as_str()), stream_id);
    }
    row.bytes = 0;
    staged.know(stream_id, Known::Lives { row, due_ms: 0 });
    Ok(())
}
