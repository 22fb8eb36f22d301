//! Who serves a frame: this shard's core, another shard, control, or all shards together?

use wire::frame::{Frame, Kind};
use wire::handoff::ToControl;
use wire::ids::ShardId;
use wire::limits::FRAME_BODY_BYTES_MAX;
use wire::message::{Hello, Message, Ping, Pong, Welcome};
use wire::reason::Reason;
use wire::refusal::Refusal;

use crate::conns::Phase;
use crate::core::{ConnId, Flow, Request, Route, Shard, Work, World};
use crate::incoming::{Hops, refuse_and_close};
use crate::shell::{Shell, State};

/// Bucket verbs of one shard that control works on; one more is refused.
const TICKETS_MAX: usize = 4_096;

/// Requests about the star that were put off; one more is refused.
const CHORES_MAX: usize = 1_024;

/// What became of a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Served {
    /// It was taken.
    Done,
    /// The log has no room for it: offer it again.
    Blocked,
    /// The connection may not be served now: offer it again.
    Gate,
    /// The connection belongs to another shard: offer it there.
    HandOver(ShardId),
}

impl From<Flow> for Served {
    fn from(flow: Flow) -> Self {
        match flow {
            Flow::Done => Self::Done,
            Flow::Blocked => Self::Blocked,
        }
    }
}

impl Shell {
    /// Serves a frame of a connection of this shard; `bytes` starts with it.
    #[inline]
    pub(crate) fn serve(
        &self,
        state: &mut State,
        id: ConnId,
        (frame, bytes): (&Frame<'_>, &[u8]),
        hops: &mut Hops,
    ) -> Served {
        let Some(conn) = state.world.conns.get_mut(id) else { return Served::Done };
        if conn.phase == Phase::Greeting {
            self.greet(state, id, frame);
            return Served::Done;
        }
        state.world.counts.frames += 1;
        let whole = bytes.get(..frame.frame_bytes).unwrap_or_default();
        match frame.kind {
            Kind::Append => {
                conn.is_fresh = false;
                state.world.works(Work::Append);
                match self.other_shard_of(frame.head) {
                    None => state.core.on_append(id, frame.head, frame.payload, &mut state.world).into(),
                    Some(shard) => add_hop(hops, shard, whole),
                }
            }
            Kind::Ping => {
                let echo = Ping::get(frame.head).map_or(0, |ping| ping.echo);
                conn.out.message(&Pong { echo }, frame.correlation);
                state.world.mark_dirty(id);
                Served::Done
            }
            Kind::Pong => Served::Done,
            _ => match Request::decode(frame) {
                Ok(request) => self.serve_request(state, (id, frame), request, (whole, hops)),
                Err(refusal) => refuse(state, id, frame.correlation, refusal),
            },
        }
    }

    /// The shard of an append's session, when it is another one.
    #[inline]
    fn other_shard_of(&self, head: &[u8]) -> Option<ShardId> {
        let handle = u32::from_le_bytes(*head.first_chunk()?);
        self.other(Shard::session_shard(handle))
    }

    fn other(&self, shard: ShardId) -> Option<ShardId> {
        (shard != self.me && shard.get() < self.star.shards).then_some(shard)
    }

    fn serve_request(
        &self,
        state: &mut State,
        (id, frame): (ConnId, &Frame<'_>),
        request: Request,
        (whole, hops): (&[u8], &mut Hops),
    ) -> Served {
        state.world.works(request.work());
        let owner = match request.route() {
            Route::Here | Route::Control | Route::EveryShard => {
                return self.take_chore(state, (id, frame.correlation), request);
            }
            Route::Stream(address) => match state.core.owner(address) {
                Ok(owner) => self.other(owner),
                Err(refusal) => return refuse(state, id, frame.correlation, refusal),
            },
            Route::Session(handle) => self.other(Shard::session_shard(handle)),
            Route::Subscription(handle) => {
                state.world.conns.get(id).and_then(|conn| conn.remote_subscriptions.shard(handle))
            }
        };
        let Some(conn) = state.world.conns.get_mut(id) else { return Served::Done };
        let opens = matches!(request, Request::Open(_) | Request::Subscribe(_));
        if let Some(owner) = owner
            && conn.is_fresh
            && opens
        {
            return Served::HandOver(owner);
        }
        match (&request, owner) {
            (Request::Subscribe(subscribe), Some(owner)) => {
                let noted = conn.remote_subscriptions.note(subscribe.subscription, owner, frame.correlation);
                if let Err(refusal) = noted {
                    return refuse(state, id, frame.correlation, refusal);
                }
            }
            (Request::Subscribe(subscribe), None) => conn.remote_subscriptions.forget(subscribe.subscription),
            (Request::Unsubscribe(end), Some(_)) => conn.remote_subscriptions.forget(end.subscription),
            _ => {}
        }
        let served = match owner {
            Some(owner) => add_hop(hops, owner, whole),
            None => {
                let call = (id, frame.correlation);
                state.core.on_request(call, request, frame.payload, &mut state.world).into()
            }
        };
        if served == Served::Done
            && let Some(conn) = state.world.conns.get_mut(id)
        {
            conn.is_fresh = false;
        }
        served
    }

    /// Does what is asked of the star as a whole, now or once others have had their share of the shard's time.
    fn take_chore(&self, state: &mut State, call: (ConnId, u64), request: Request) -> Served {
        if state.chores.is_empty() && state.world.may_go(Work::Admin) {
            return self.do_chore(state, call, request);
        }
        if state.chores.len() >= CHORES_MAX {
            return refuse(state, call.0, call.1, too_many("requests about the star"));
        }
        if let Some(conn) = state.world.conns.get_mut(call.0) {
            conn.is_fresh = false;
        }
        state.chores.push_back((call, request));
        self.bells.chores.ring();
        Served::Done
    }

    pub(crate) fn do_chore(&self, state: &mut State, (id, correlation): (ConnId, u64), request: Request) -> Served {
        match request.route() {
            Route::Control => self.ask_control(state, (id, correlation), request),
            Route::EveryShard => self.list_streams(state, (id, correlation), &request),
            _ => self.answer_star(state, id, correlation),
        }
    }

    /// Serves a frame that hopped here.
    pub(crate) fn serve_hopped(state: &mut State, id: ConnId, frame: &Frame<'_>) -> Flow {
        state.world.counts.frames += 1;
        if frame.kind == Kind::Append {
            state.world.works(Work::Append);
            return state.core.on_append(id, frame.head, frame.payload, &mut state.world);
        }
        match Request::decode(frame) {
            Ok(request) => {
                let call = (id, frame.correlation);
                state.world.works(request.work());
                state.core.on_request(call, request, frame.payload, &mut state.world)
            }
            Err(refusal) => {
                refuse(state, id, frame.correlation, refusal);
                Flow::Done
            }
        }
    }

    fn greet(&self, state: &mut State, id: ConnId, frame: &Frame<'_>) {
        let hello = match Hello::of(frame) {
            Ok(hello) => hello,
            Err(refusal) => return refuse_and_close(state, id, frame.correlation, refusal),
        };
        tracing::debug!(shard = %self.me, client = hello.client, "hello");
        let star = &self.star;
        let welcome = Welcome {
            cluster_id: star.cluster_id,
            star_id: star.star_id,
            version: star.version.to_owned(),
            shard: self.me.get(),
            shards: star.shards,
            append_window: star.append_window,
            keepalive_ms: u32::try_from(star.keepalive.as_millis()).unwrap_or(u32::MAX),
            frame_body_bytes_max: u32::try_from(FRAME_BODY_BYTES_MAX).unwrap_or(u32::MAX),
        };
        let Some(conn) = state.world.conns.get_mut(id) else { return };
        conn.phase = Phase::Open;
        conn.out.message(&welcome, frame.correlation);
        if self.is_draining.get() {
            conn.out.message(&crate::drain::go_away(), 0);
        }
        state.world.mark_dirty(id);
    }

    fn ask_control(&self, state: &mut State, (id, correlation): (ConnId, u64), request: Request) -> Served {
        let Request::Bucket(verb) = request else { return Served::Done };
        if state.tickets.len() >= TICKETS_MAX {
            return refuse(state, id, correlation, too_many("bucket requests"));
        }
        let ticket = state.next_ticket();
        let reply_to = wire::handoff::ReplyTo { shard: self.me, ticket };
        let asked = state.world.to_control(ToControl::Bucket { reply_to, verb });
        if asked.is_err() {
            let refusal = Refusal::new(Reason::Unavailable, "too many bucket requests wait: try again");
            return refuse(state, id, correlation, refusal);
        }
        if let Some(conn) = state.world.conns.get_mut(id) {
            conn.is_fresh = false;
        }
        state.tickets.insert(ticket, (id, correlation));
        Served::Done
    }
}

/// Answers no.
pub(crate) fn refuse(state: &mut State, id: ConnId, correlation: u64, refusal: Refusal) -> Served {
    if let Some(out) = state.world.out(id) {
        out.refuse(correlation, refusal);
    }
    Served::Done
}

/// A refusal for want of places.
pub(crate) fn too_many(what: &str) -> Refusal {
    Refusal::new(Reason::ResourceExhausted, format!("too many {what} are under way: try again later"))
}

fn add_hop(hops: &mut Hops, shard: ShardId, frame: &[u8]) -> Served {
    match hops.iter_mut().find(|(to, _)| *to == shard) {
        Some((_, frames)) => frames.extend_from_slice(frame),
        None => hops.push((shard, frame.to_vec())),
    }
    Served::Done
}
