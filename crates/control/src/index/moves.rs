//! How do extents change the object that holds them?
//!
//! A stream's extents in chunks become one extent of a settled object. Between the copy and this, a trim may have dropped some, or a
//! delete all: only what is still there, unchanged, moves.

use wire::ids::{SeqNum, StreamId};
use wire::slot::Slot;

use super::object_id::ObjectId;
use super::rows::extent::{self, Located};
use super::slot::{OpenSlot, Pass};
use super::staged::Staged;
use super::{Index, IndexError};

/// Extents of one stream, in order and without a gap, and the one that takes their place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Move {
    /// The stream.
    pub stream_id: StreamId,
    /// What was copied.
    pub from: Vec<Located>,
    /// The copy.
    pub to: Located,
}

impl Move {
    /// The key of the first row that it replaces.
    fn first_key(&self) -> Vec<u8> {
        self.from.first().map_or_else(Vec::new, |from| from.key(self.stream_id))
    }

    /// A key after those of all rows that it replaces.
    fn end_key(&self) -> Vec<u8> {
        extent::from(self.stream_id, SeqNum::ZERO).end
    }
}

/// Moves of one slot into one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Moves {
    /// The slot.
    pub slot: Slot,
    /// The object, which is in the store.
    pub object: ObjectId,
    /// When it was made, in milliseconds.
    pub created_ms: i64,
    /// Of a stream as many as it has extents in the object.
    pub moves: Vec<Move>,
}

/// What became of moves.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Moved {
    /// Streams whose extents moved.
    pub moved: usize,
    /// Streams whose extents had changed, so that they stay where they are.
    pub stale: usize,
}

impl Index {
    /// Replaces the rows of extents by those of their copies, in one write. An object that nothing moved to is dead.
    ///
    /// # Errors
    /// [`IndexError::Move`] when a copy does not cover what was copied, and others when the slot's database fails; nothing has moved then.
    pub async fn move_extents(&self, moves: &Moves) -> Result<Moved, IndexError> {
        moves.moves.iter().try_for_each(|one| check(one, moves.object))?;
        let open = self.open_or_make(moves.slot).await?;
        let mut writer = open.writer.lock().await;
        let mut staged = Staged::new(&open, &mut writer, &self.options, moves.created_ms);
        staged.make(moves.object, moves.created_ms);
        let mut moved = Moved::default();
        let mut in_order: Vec<&Move> = moves.moves.iter().collect();
        in_order.sort_by_key(|one| (one.stream_id, one.to.end));
        let mut rows = match (in_order.first(), in_order.last()) {
            (Some(first), Some(last)) => open.pass(first.first_key()..last.end_key()).await?,
            _ => open.pass(Vec::new()..Vec::new()).await?,
        };
        for one in in_order {
            if move_one(&open, &mut rows, &mut staged, one).await? {
                moved.moved += 1;
            } else {
                moved.stale += 1;
            }
        }
        staged.commit(None).await?;
        Ok(moved)
    }
}

fn check(one: &Move, object: ObjectId) -> Result<(), IndexError> {
    let wrong = |what| Err(IndexError::Move { stream_id: one.stream_id, what });
    let (Some(first), Some(last)) = (one.from.first(), one.from.last()) else { return wrong("there are none") };
    if one.to.object != object || one.from.iter().any(|from| from.object == object) {
        return wrong("the object is another one");
    }
    if one.from.windows(2).any(|pair| pair[0].end > pair[1].first) {
        return wrong("they overlap");
    }
    if (first.first, last.end) != (one.to.first, one.to.end) {
        return wrong("its records are others");
    }
    Ok(())
}

/// Moves what is left of the extents, if that is a rear part of them.
async fn move_one(
    open: &OpenSlot,
    rows: &mut Pass<'_>,
    staged: &mut Staged<'_>,
    one: &Move,
) -> Result<bool, IndexError> {
    let mut left: Vec<&Located> = Vec::with_capacity(one.from.len());
    for from in &one.from {
        let key = from.key(one.stream_id);
        let is_there = match rows.at(&key).await?.filter(|(found, _)| found[..] == key[..]) {
            None => false,
            Some((_, value)) if open.row(Located::decode(&key, &value))? == *from => true,
            Some(_) => return Ok(false),
        };
        if is_there {
            left.push(from);
        } else if !left.is_empty() {
            return Ok(false);
        }
    }
    if left.is_empty() {
        return Ok(false);
    }
    let content_bytes = left.iter().map(|from| from.content_bytes).fold(0, u32::saturating_add);
    for from in left {
        staged.drop_extent(one.stream_id, from);
    }
    // Trimmed content was taken off the stream's bytes before, and is not to be again when this extent goes.
    staged.put_extent(one.stream_id, &Located { content_bytes, ..one.to });
    Ok(true)
}
