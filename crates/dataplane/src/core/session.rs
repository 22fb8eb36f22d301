//! Writer sessions: who they write as, what they have in flight, how they end.

use std::collections::HashMap;

use slab::Slab;
use smallvec::SmallVec;
use wire::ids::{ProducerId, ShardId};
use wire::names::FencingToken;
use wire::refusal::Refusal;
use wire::terms::Terms;

use super::world::ConnId;

/// Bits of a session handle that are its place on its shard; the rest is the shard.
const HANDLE_PLACE_BITS: u32 = 24;

/// Sessions that one shard holds at once; one more is refused.
pub(crate) const SESSIONS_MAX: usize = 1 << HANDLE_PLACE_BITS;

/// Where a session is in its life.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Phase {
    /// Appends are admitted.
    Open,
    /// The star ended it: every append gets this, until the client closes it or goes away.
    Ended(Refusal),
}

/// A writer session.
#[derive(Debug)]
pub(crate) struct Session {
    /// On which connection.
    pub(crate) conn: ConnId,
    /// Writes to this row while it is open.
    pub(crate) row: u32,
    /// Its own random number.
    pub(crate) producer: ProducerId,
    /// The token it presented; empty is none.
    pub(crate) presented: FencingToken,
    /// Its place among all sessions of this run.
    pub(crate) epoch: u32,
    /// Batches that are not answered yet.
    pub(crate) in_flight: u32,
    /// The client asked to close it under this number.
    pub(crate) closing: Option<u64>,
    /// Its connection is gone; it is kept until nothing of it is in flight, so that no other session is taken for it.
    pub(crate) is_gone: bool,
    /// Where it is in its life.
    pub(crate) phase: Phase,
    /// What its first batch that was refused got.
    pub(crate) refused: Option<Box<Refusal>>,
}

impl Session {
    /// The refusal that a batch on these terms gets too, since an earlier one did.
    #[inline]
    pub(crate) fn broken_chain(&self, terms: &Terms) -> Option<&Refusal> {
        self.refused.as_deref().filter(|_| terms.chained)
    }

    /// Whether nothing of it is left that an answer could come for.
    pub(crate) fn is_over(&self) -> bool {
        self.is_gone && self.in_flight == 0
    }
}

/// The sessions of a shard, and what each connection has open.
#[derive(Debug, Default)]
pub(crate) struct Sessions {
    sessions: Slab<Session>,
    conns: HashMap<ConnId, Holdings>,
    epochs: u32,
}

/// What a connection has open on this shard.
#[derive(Debug, Default)]
pub(crate) struct Holdings {
    /// Sessions.
    pub(crate) sessions: SmallVec<[u32; 2]>,
    /// Subscriptions: the client's handle and ours.
    pub(crate) subscriptions: SmallVec<[(u32, u32); 2]>,
}

/// The handle that a client knows a session by.
pub(crate) fn handle(shard: ShardId, session: u32) -> u32 {
    u32::from(shard.get()) << HANDLE_PLACE_BITS | session
}

/// The shard of a handle.
pub(crate) fn shard_of(handle: u32) -> ShardId {
    let [shard, ..] = handle.to_be_bytes();
    ShardId::new(u16::from(shard))
}

/// The place of a handle on its shard.
pub(crate) fn place_of(handle: u32) -> u32 {
    handle & ((1 << HANDLE_PLACE_BITS) - 1)
}

impl Sessions {
    /// How many there are.
    pub(crate) fn len(&self) -> usize {
        self.sessions.len()
    }

    /// Adds one, with the next epoch, and answers its number.
    pub(crate) fn insert(&mut self, mut session: Session) -> u32 {
        self.epochs += 1;
        session.epoch = self.epochs;
        let conn = session.conn;
        let at =
            u32::try_from(self.sessions.insert(session)).unwrap_or_else(|_| unreachable!("bounded by SESSIONS_MAX"));
        self.conns.entry(conn).or_default().sessions.push(at);
        at
    }

    /// The session of a handle, if this connection holds it.
    #[inline]
    pub(crate) fn held_by(&mut self, conn: ConnId, handle: u32) -> Option<(u32, &mut Session)> {
        let at = place_of(handle);
        self.sessions.get_mut(at as usize).filter(|session| session.conn == conn).map(|session| (at, session))
    }

    /// A session.
    #[inline]
    pub(crate) fn get_mut(&mut self, session: u32) -> Option<&mut Session> {
        self.sessions.get_mut(session as usize)
    }

    /// A session.
    #[inline]
    pub(crate) fn get(&self, session: u32) -> Option<&Session> {
        self.sessions.get(session as usize)
    }

    /// Forgets a session.
    pub(crate) fn remove(&mut self, session: u32) -> Option<Session> {
        let removed = self.sessions.try_remove(session as usize)?;
        if let Some(holdings) = self.conns.get_mut(&removed.conn) {
            holdings.sessions.retain(|held| *held != session);
            self.drop_if_empty(removed.conn);
        }
        Some(removed)
    }

    /// Forgets a session whose connection is gone, now or once the last batch it has in flight is answered.
    pub(crate) fn let_go(&mut self, session: u32) {
        let Some(state) = self.get_mut(session) else { return };
        state.is_gone = true;
        if state.is_over() {
            self.remove(session);
        }
    }

    fn drop_if_empty(&mut self, conn: ConnId) {
        if self.conns.get(&conn).is_some_and(|it| it.sessions.is_empty() && it.subscriptions.is_empty()) {
            self.conns.remove(&conn);
        }
    }

    /// Notes a subscription of a connection.
    pub(crate) fn note_subscription(&mut self, conn: ConnId, client_handle: u32, subscription: u32) {
        self.conns.entry(conn).or_default().subscriptions.push((client_handle, subscription));
    }

    /// The subscription that a connection knows by this handle.
    pub(crate) fn subscription_of(&self, conn: ConnId, client_handle: u32) -> Option<u32> {
        let holdings = self.conns.get(&conn)?;
        holdings.subscriptions.iter().find(|(known, _)| *known == client_handle).map(|(_, ours)| *ours)
    }

    /// Forgets a subscription of a connection.
    pub(crate) fn forget_subscription(&mut self, conn: ConnId, client_handle: u32) {
        if let Some(holdings) = self.conns.get_mut(&conn) {
            holdings.subscriptions.retain(|(known, _)| *known != client_handle);
            self.drop_if_empty(conn);
        }
    }

    /// The subscriptions of a connection.
    pub(crate) fn subscriptions(&self, conn: ConnId) -> SmallVec<[u32; 8]> {
        let holdings = self.conns.get(&conn);
        holdings.into_iter().flat_map(|it| it.subscriptions.iter().map(|(_, ours)| *ours)).collect()
    }

    /// Takes all that a connection has open.
    pub(crate) fn close(&mut self, conn: ConnId) -> Holdings {
        self.conns.remove(&conn).unwrap_or_default()
    }
}
