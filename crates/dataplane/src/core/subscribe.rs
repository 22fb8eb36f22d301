//! Subscriptions: records from a start on, then live, within the credit that the client gives.

use wire::frame::Kind;
use wire::hot::RecordsHead;
use wire::ids::{SeqNum, StreamId};
use wire::message::{Credit, Done, Start, Subscribe, Subscribed, SubscriptionEnded};
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::append::live_of;
use super::commit::{Answering, Call, Tail, To};
use super::read::{Job, Then, Work, trimmed};
use super::row::{Found, Row};
use super::shard::Shard;
use super::shares::Work as TimeOf;
use super::span::{Cursor, Damaged, Span, gather};
use super::verbs::deleted_meanwhile;
use super::world::{ConnId, Flow, World};

/// Content of one frame of records, in bytes.
const FRAME_CONTENT_BYTES: u64 = 256 << 10;
/// Credit that a subscription may have at once, in bytes; more is cut to it.
const CREDIT_BYTES_MAX: i64 = 16 << 20;
/// Bytes that a connection's peer has not taken: with more its subscriptions wait, with as many it is not read from.
pub(crate) const BACKLOG_BYTES_MAX: usize = 1 << 20;
/// Subscriptions that are pumped in one turn, and bytes of records that they are sent.
const PUMPED_TURN_MAX: usize = 4_096;
const PUMPED_BYTES_TURN_MAX: i64 = 64 << 20;
/// Subscriptions that a connection may have on one shard.
const CONN_SUBSCRIPTIONS_MAX: usize = 1_024;

/// A subscription.
#[derive(Debug, Clone)]
pub(crate) struct Subscription {
    handle: u32,
    credit_bytes: i64,
    /// Its client was told that it is open: before that nothing of it is sent.
    is_open: bool,
    /// It stands in its stream's list of those that wait for the next commit, or was just taken from it.
    waits: bool,
    /// The first record that is not sent yet.
    sent: SeqNum,
    cursor: Cursor,
    payload: Vec<u8>,
}

impl Subscription {
    fn new(handle: u32, credit_bytes: u32) -> Self {
        Self {
            handle,
            credit_bytes: i64::from(credit_bytes).min(CREDIT_BYTES_MAX),
            is_open: false,
            waits: false,
            sent: SeqNum::ZERO,
            cursor: frame_cursor(SeqNum::ZERO),
            payload: Vec::new(),
        }
    }

    /// The same, starting at a record.
    pub(super) fn from(mut self, start: SeqNum) -> Self {
        self.sent = start;
        self.cursor = frame_cursor(start);
        self
    }

    /// What its client knows it by.
    pub(super) fn handle(&self) -> u32 {
        self.handle
    }

    /// The next record it looks at.
    pub(super) fn wanted(&self) -> SeqNum {
        self.cursor.next
    }

    /// Goes on behind records that are lost.
    pub(super) fn cross(&mut self, row: &Row, next: SeqNum) {
        self.cursor.cross(row, next, &mut self.payload);
    }

    /// Takes what it may from a span into one frame.
    pub(super) fn gather(&mut self, row: &Row, span: Span<'_>) -> Result<(), Damaged> {
        gather(row, span, &mut self.cursor, &mut self.payload)
    }

    /// Sends full frames of a span until less than one is left of it, or no credit: what is left then is fetched again. How many.
    pub(super) fn send_more(
        &mut self,
        row: &Row,
        span: Span<'_>,
        conn: ConnId,
        world: &mut impl World,
    ) -> Result<usize, Damaged> {
        let mut sent = 0;
        while self.cursor.is_full && !self.payload.is_empty() && span.reaches(row, self.cursor.next) {
            send(self, row, conn, world);
            sent += 1;
            if self.credit_bytes <= 0 {
                break;
            }
            self.gather(row, span)?;
        }
        Ok(sent)
    }
}

fn frame_cursor(next: SeqNum) -> Cursor {
    Cursor {
        next,
        records_left: u64::MAX,
        bytes_left: FRAME_CONTENT_BYTES,
        until_ms: None,
        has_taken: false,
        is_full: false,
    }
}

impl Shard {
    /// Follow a stream.
    pub(super) fn subscribe(
        &mut self,
        call: Call,
        subscribe: &Subscribe,
        world: &mut impl World,
    ) -> Result<Flow, Refusal> {
        let (handle, conn) = (subscribe.subscription, call.conn);
        if self.sessions.subscription_of(conn, handle).is_some() {
            return Err(Refusal::invalid(format!("this connection has a subscription {handle} already")));
        }
        if self.sessions.subscriptions(conn).len() >= CONN_SUBSCRIPTIONS_MAX {
            let message = format!("this connection has {CONN_SUBSCRIPTIONS_MAX} subscriptions, which is its bound");
            return Err(Refusal::new(Reason::ResourceExhausted, message));
        }
        let found = match subscribe.resume {
            Some(_) => self.find(&subscribe.address, world)?,
            None => self.find_or_create(&subscribe.address, |it| it.create_stream_on_read, world)?,
        };
        let Some(row) = found else { return Ok(Flow::Blocked) };
        let Some(stream_id) = self.streams.row(row).map(|state| state.stream_id) else {
            return Err(deleted_meanwhile());
        };
        if subscribe.resume.is_some_and(|resumed| resumed != stream_id) {
            let message = format!("the stream at '{}' is another one than was subscribed to", subscribe.address);
            return Err(Refusal::new(Reason::NotFound, message));
        }
        let subscription = Subscription::new(handle, subscribe.credit_bytes);
        match self.start(row, subscribe.start, subscribe.clamp) {
            Err(refusal) => {
                let to = To::Call(call);
                self.answer_after(row, to, Answering::Refuse(refusal, Tail::Without), world);
            }
            Ok(Found::At(start)) => {
                self.begin_subscription((row, stream_id), call, subscription.from(start), world);
            }
            Ok(Found::Within(within)) => {
                let Start::Timestamp(ms) = subscribe.start else { unreachable!("only a time is looked for") };
                let work = Work::Find { ms, within, then: Then::Subscribe(subscription) };
                self.begin(Job::new((row, stream_id), call, self.now.mono, work), world);
            }
        }
        Ok(Flow::Done)
    }

    /// Starts a subscription, whose start is known.
    pub(super) fn begin_subscription(
        &mut self,
        stream: (u32, StreamId),
        call: Call,
        subscription: Subscription,
        world: &mut impl World,
    ) {
        let handle = subscription.handle;
        let job = self.readers.insert(Job::new(stream, call, self.now.mono, Work::Subscription(subscription)));
        self.sessions.note_subscription(call.conn, handle, job);
        self.pump(job, world);
    }

    /// Sends what a subscription may get now: first of all that it is open. At the tail it waits for the next commit, and before its
    /// stream is made for that one.
    pub(super) fn pump(&mut self, job: u32, world: &mut impl World) {
        let mut has_filled_a_frame = false;
        loop {
            if std::mem::take(&mut has_filled_a_frame) && !world.may_go(TimeOf::Read) {
                return self.readers.put_off(job, TimeOf::Read);
            }
            let Some(state) = self.readers.jobs.get_mut(job as usize) else { return };
            let (call, stream_id, at) = (state.call, state.stream_id, state.row);
            let conn = call.conn;
            let Work::Subscription(subscription) = &mut state.work else { return };
            if state.waits.is_some() {
                return;
            }
            let Some(row) = self.streams.row_mut(at).filter(|row| row.stream_id == stream_id) else {
                self.end_subscription(job, deleted_meanwhile(), world);
                return;
            };
            if !row.is_committed() {
                return wait(job, subscription, row);
            }
            if !subscription.is_open {
                open(subscription, stream_id, call, world);
                self.note_answered(call.asked);
                continue;
            }
            let tail = row.tail.seq_num;
            let next = subscription.cursor.next;
            let is_whole = subscription.cursor.is_full || next >= tail || next < row.trim_point;
            if !subscription.payload.is_empty() && is_whole {
                has_filled_a_frame = subscription.cursor.is_full;
                send(subscription, row, conn, world);
                self.timings.delivered();
                continue;
            }
            if next >= tail {
                return wait(job, subscription, row);
            }
            if next < row.trim_point {
                let refusal = trimmed(row, next);
                self.end_subscription(job, refusal, world);
                return;
            }
            if subscription.credit_bytes <= 0 || world.backlog_bytes(conn) > BACKLOG_BYTES_MAX {
                return;
            }
            if !self.step(job, next, world) {
                return;
            }
        }
    }

    /// Pumps subscriptions whose stream has got further; those that are too many for one turn have the next.
    pub(super) fn pump_woken(&mut self, world: &mut impl World) {
        if self.woken.is_empty() {
            return;
        }
        let before = world.works(TimeOf::Read);
        self.pump_some_woken(world);
        world.works(before);
    }

    fn pump_some_woken(&mut self, world: &mut impl World) {
        let mut bytes_left = PUMPED_BYTES_TURN_MAX;
        for _ in 0..PUMPED_TURN_MAX {
            if bytes_left <= 0 {
                return;
            }
            let Some(job) = self.woken.pop_front() else { return };
            let Some(subscription) = self.subscription_mut(job) else { continue };
            subscription.waits = false;
            let before = subscription.credit_bytes;
            self.pump(job, world);
            bytes_left -= self.subscription_mut(job).map_or(0, |subscription| before - subscription.credit_bytes);
        }
    }

    fn subscription_mut(&mut self, job: u32) -> Option<&mut Subscription> {
        self.readers.jobs.get_mut(job as usize)?.work.subscription_mut()
    }

    /// A connection has taken all there was for it: its subscriptions go on.
    pub(crate) fn on_writable(&mut self, conn: ConnId, world: &mut impl World) {
        self.now = world.now();
        for job in self.sessions.subscriptions(conn) {
            self.pump(job, world);
        }
    }

    /// More credit for a subscription.
    pub(super) fn credit(&mut self, conn: ConnId, credit: &Credit, world: &mut impl World) -> Flow {
        // One for a subscription that has just ended is no error: the two crossed.
        if let Some(job) = self.sessions.subscription_of(conn, credit.subscription)
            && let Some(subscription) = self.subscription_mut(job)
        {
            let more = i64::from(credit.bytes);
            subscription.credit_bytes = (subscription.credit_bytes + more).min(CREDIT_BYTES_MAX);
            self.pump(job, world);
        }
        Flow::Done
    }

    /// End a subscription as its client asked.
    pub(super) fn unsubscribe(
        &mut self,
        (conn, correlation): (ConnId, u64),
        handle: u32,
        world: &mut impl World,
    ) -> Flow {
        if let Some(job) = self.sessions.subscription_of(conn, handle) {
            self.sessions.forget_subscription(conn, handle);
            self.refuse_opening(job, world);
            self.drop_subscription(job);
        }
        if let Some(out) = world.out(conn) {
            out.message(&Done {}, correlation);
        }
        Flow::Done
    }

    /// Answers the call that asked for a subscription that is not open yet.
    fn refuse_opening(&self, job: u32, world: &mut impl World) {
        let Some(Job { work, call, .. }) = self.readers.jobs.get(job as usize) else { return };
        match work {
            Work::Find { .. } => world.page_ends(call.conn),
            Work::Subscription(subscription) if !subscription.is_open => {}
            Work::Subscription(_) | Work::Page(_) => return,
        }
        if let Some(out) = world.out(call.conn) {
            out.refuse(call.correlation, Refusal::new(Reason::NotFound, "the subscription was ended before it began"));
        }
    }

    /// Ends a subscription and says why; to the call that asked for it when it was not open yet.
    pub(super) fn end_subscription(&mut self, job: u32, refusal: Refusal, world: &mut impl World) {
        let Some(state) = self.readers.jobs.get(job as usize) else { return };
        let Work::Subscription(subscription) = &state.work else { return };
        let (call, row, handle, is_open) = (state.call, state.row, subscription.handle, subscription.is_open);
        self.sessions.forget_subscription(call.conn, handle);
        self.drop_subscription(job);
        if !is_open {
            return self.answer(row, To::Call(call), Answering::Refuse(refusal, Tail::Without), world);
        }
        if let Some(out) = world.out(call.conn) {
            out.message(&SubscriptionEnded { subscription: handle, refusal }, 0);
        }
    }

    /// Forgets a subscription.
    pub(super) fn drop_subscription(&mut self, job: u32) {
        let Some(state) = self.readers.remove(job) else { return };
        // Its number may be another's soon.
        self.woken.retain(|woken| *woken != job);
        let Some(row) = self.streams.row_mut(state.row).filter(|row| row.stream_id == state.stream_id) else {
            return;
        };
        if let Some(live) = row.live.as_mut() {
            live.subscriptions.retain(|waiting| *waiting != job);
        }
        self.retire(state.row);
    }

    /// A stream is gone for good: wakes the subscriptions that wait on it, so that they find out.
    pub(super) fn end_subscriptions(&mut self, row: u32) {
        if let Some(live) = self.streams.row_mut(row).and_then(|row| row.live.as_mut()) {
            self.woken.extend(live.subscriptions.drain(..));
        }
    }
}

/// Tells its client that a subscription is open, and where it starts.
fn open(subscription: &mut Subscription, stream_id: StreamId, call: Call, world: &mut impl World) {
    subscription.is_open = true;
    let subscribed = Subscribed { subscription: subscription.handle, stream_id, start: subscription.sent };
    if let Some(out) = world.out(call.conn) {
        out.message(&subscribed, call.correlation);
    }
}

/// Puts a subscription that is at the tail, or whose stream is being made, among those that wait for the next commit.
fn wait(job: u32, subscription: &mut Subscription, row: &mut Row) {
    if !std::mem::replace(&mut subscription.waits, true) {
        live_of(row).subscriptions.push(job);
    }
}

/// Sends what a subscription has gathered.
fn send(subscription: &mut Subscription, row: &Row, conn: ConnId, world: &mut impl World) {
    let head = RecordsHead {
        subscription: subscription.handle,
        at_tail: subscription.cursor.next >= row.tail.seq_num,
        start: subscription.sent,
        end: subscription.cursor.next,
        tail: row.tail,
        trim_point: row.trim_point,
    };
    if let Some(out) = world.out(conn) {
        out.hot(Kind::Records, 0, &head.encode(), &subscription.payload);
    }
    let bytes = i64::try_from(subscription.payload.len()).unwrap_or(i64::MAX);
    subscription.credit_bytes = subscription.credit_bytes.saturating_sub(bytes);
    subscription.sent = subscription.cursor.next;
    subscription.cursor = frame_cursor(subscription.sent);
    subscription.payload = Vec::new();
}
