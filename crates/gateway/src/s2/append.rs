//! How are records appended: a batch a request, or a session of many?
//!
//! A session is a producer of nova's. Its batches are chained, so that once one is refused none of those behind it lands, and
//! each is acked in order. Its frames are taken as fast as the producer stages them.

use std::pin::pin;
use std::sync::Arc;

use axum::body::Body;
use bytes::{Bytes, BytesMut};
use client::{Address, Appended, FencingToken, OneShot, Producer, ProducerOptions, ProducerPolicy, StreamInfo, Terms};
use futures_util::FutureExt;
use http::{HeaderMap, Request, StatusCode};
use http_body_util::BodyExt;
use prost::Message;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::task::JoinHandle;

use super::answer::Answer;
use super::facade::{Facade, Session};
use super::failure::{Code, Failure, Result};
use super::frame::{self, Coding};
use super::json;
use super::places::Place;
use super::proto::{AppendAck, AppendInput};
use super::record::Input;
use super::request::{self, Form, take};
use super::session::{Grace, Outgoing, response};
use super::streams::On;
use super::weight;

/// Batches of a session that are not acked yet; the next frame waits.
const UNACKED_MAX: usize = 256;
/// Acks that go out together at most.
const ACKS_AT_ONCE: usize = 64;

impl Facade {
    /// `POST /v1/streams/{stream}/records`.
    pub(super) async fn append(self: &Arc<Self>, address: Address, request: Request<Body>) -> Result<Answer> {
        match request::content(request.headers()) {
            Some(Form::Session) => self.append_session(address, request).await,
            Some(Form::Proto) => self.append_batch(&address, request, Form::Proto).await,
            Some(Form::Json) => self.append_batch(&address, request, Form::Json).await,
            _ => Err(Failure::new(
                Code::BadJson,
                "the header content-type must be application/json, application/protobuf or s2s/proto",
            )),
        }
    }

    async fn append_batch(&self, address: &Address, request: Request<Body>, form: Form) -> Result<Answer> {
        let headers = request.headers().clone();
        let format = request::format(&headers)?;
        let taken = take(request, &self.bodies).await?;
        let input = match form {
            Form::Proto => {
                weight::of_message(&taken.bytes)?;
                decoded(taken.bytes.clone())?.checked()?
            }
            _ => json::append_input(&taken.bytes, format)?,
        };
        let _room = request::reserve(&self.bodies, weight::of_records(&input.records))?;
        // Else it is nova that makes the stream.
        if headers.contains_key("s2-stream-config") || self.pending.check(&address.bucket).is_err() {
            self.stream_or_new(address, On::Append, &headers).await?;
        }
        self.check_trim(address, &input).await?;
        let with = OneShot {
            fencing_token: input.fencing_token.clone().unwrap_or_default(),
            match_seq_num: input.match_seq_num,
            terms: Terms { chained: false, ..terms(&input) },
            ..OneShot::default()
        };
        let appended = match self.client.append_with(address, with, input.records).await {
            Ok(appended) => appended,
            Err(error) => return Err(self.refused(&address.bucket, &error).await),
        };
        Ok(match request::accepted(&headers) {
            Form::Proto => Answer::proto(&AppendAck::from(appended)),
            _ => Answer::json(StatusCode::OK, &json::ack(&appended)),
        })
    }

    /// Refuses the one trim that would have another effect here, see [`Input::trim_within_tail`].
    async fn check_trim(&self, address: &Address, input: &Input) -> Result<()> {
        let Some(to) = input.trim_within_tail() else { return Ok(()) };
        let tail = match self.client.check_tail(address).await {
            Ok(tail) => tail.seq_num,
            Err(error) => return Err(self.refused(&address.bucket, &error).await),
        };
        if to <= tail {
            return Ok(());
        }
        let message = format!(
            "a trim to {to}, past the tail at {tail}, with records behind it in its batch: append them after it"
        );
        Err(Failure::invalid(message))
    }

    async fn append_session(self: &Arc<Self>, address: Address, request: Request<Body>) -> Result<Answer> {
        let place = self.place(Session::Append, request.version())?;
        let coding = Coding::accepted(request.headers());
        let opening = self.opening(address, request.headers()).await?;
        let (outgoing, body) = Outgoing::new(coding, self.draining());
        let held = Held { place, grace: outgoing.grace() };
        let facade = Arc::clone(self);
        tokio::spawn(facade.run_appends(opening, request.into_body(), outgoing, held));
        Ok(Answer::Streamed(response(body)))
    }

    /// Opens the producer, or finds out that it has to wait for the token that the first batch presents.
    async fn opening(&self, address: Address, headers: &HeaderMap) -> Result<Opening> {
        let stream = self.stream_or_new(&address, On::Append, headers).await?;
        if stream.as_ref().is_some_and(is_fenced) {
            return Ok(Opening { address, producer: None });
        }
        let producer = self.open(&address, FencingToken::default()).await?;
        Ok(Opening { address, producer: Some(producer) })
    }

    async fn open(&self, address: &Address, token: FencingToken) -> Result<Producer> {
        match self.client.open(address, ProducerOptions::default().fencing_token(token)).await {
            Ok(producer) => Ok(producer),
            Err(error) => Err(self.refused(&address.bucket, &error).await),
        }
    }

    /// Takes frames and acks them until either side ends the session.
    async fn run_appends(self: Arc<Self>, opening: Opening, body: Body, mut outgoing: Outgoing, held: Held) {
        let (steps, mut taken) = mpsc::channel(UNACKED_MAX);
        let mut reading = pin!(self.read_frames(opening, body, steps, &held).fuse());
        let mut acking = pin!(answer_all(&mut taken, &mut outgoing));
        loop {
            tokio::select! {
                () = &mut acking => break,
                // Dropping its end of the channel lets the other one end.
                () = &mut reading => {}
            }
        }
    }

    async fn read_frames(&self, opening: Opening, body: Body, steps: mpsc::Sender<Step>, held: &Held) {
        let last = tokio::select! {
            ended = self.take_frames(opening, body, &steps, &held.place) => ended.err(),
            () = held.grace.ended() => Some(Failure::new(Code::ServerDraining, "the server is about to end: reconnect")),
            needed = held.place.asked_for() => Some(needed),
        };
        if let Some(failure) = last {
            // It waits for the acks of all that came before.
            let _gone = steps.send(Step::Failed(failure)).await;
        }
    }

    async fn take_frames(
        &self,
        mut opening: Opening,
        mut body: Body,
        steps: &mpsc::Sender<Step>,
        place: &Place,
    ) -> Result<()> {
        let mut input = BytesMut::new();
        loop {
            while let Some(message) = frame::take(&mut input)? {
                self.submit(&mut opening, message, steps).await?;
                place.heard();
            }
            match body.frame().await {
                Some(Ok(frame)) => input.extend_from_slice(&frame.into_data().unwrap_or_default()),
                // The client is gone, and with it whoever an answer would be for.
                Some(Err(_)) => return Ok(()),
                None => break,
            }
        }
        if input.is_empty() {
            return Ok(());
        }
        Err(Failure::new(Code::BadFrame, format!("the session ends within a frame, after {} bytes of it", input.len())))
    }

    async fn submit(&self, opening: &mut Opening, message: Bytes, steps: &mpsc::Sender<Step>) -> Result<()> {
        // A place first: what is submitted must not be left without an answer, and what waits for one holds no room.
        let Ok(place) = steps.reserve().await else { return Ok(()) };
        let room = self.room(message.len() + weight::of_message(&message)?).await;
        let batch = decoded(message)?.checked()?;
        self.check_trim(&opening.address, &batch).await?;
        if opening.producer.is_none() {
            let token = batch.fencing_token.clone().unwrap_or_default();
            opening.producer = Some(self.open(&opening.address, token).await?);
        }
        let Some(producer) = &opening.producer else { unreachable!("it was just opened") };
        let (terms, match_seq_num) = (terms(&batch), batch.match_seq_num);
        let submitted = producer.submit_on(terms, match_seq_num, batch.records).await;
        match submitted {
            Ok(ticket) => {
                place.send(Step::Batch(acked(ticket, room), opening.address.clone()));
                Ok(())
            }
            Err(error) => Err(self.refused(&opening.address.bucket, &error).await),
        }
    }
}

/// A session whose producer is open, or is once its first batch is there.
#[derive(Debug)]
struct Opening {
    address: Address,
    producer: Option<Producer>,
}

/// What a session has for as long as it goes on.
#[derive(Debug)]
struct Held {
    place: Place,
    grace: Grace,
}

/// The ack of a batch that is on its way.
type Acked = JoinHandle<client::Result<Appended>>;

/// Waits for an ack, and gives the room of its batch back then: also when the client takes no acks, or is gone.
fn acked<T>(ticket: T, room: OwnedSemaphorePermit) -> Acked
where
    T: Future<Output = client::Result<Appended>> + Send + 'static,
{
    tokio::spawn(async move {
        let appended = ticket.await;
        drop(room);
        appended
    })
}

/// What is answered next.
#[derive(Debug)]
enum Step {
    Batch(Acked, Address),
    Failed(Failure),
}

fn is_fenced(stream: &StreamInfo) -> bool {
    stream.config.producer_policy == ProducerPolicy::Fenced
}

fn terms(input: &Input) -> Terms {
    Terms { installed: input.fencing_token.clone(), ignores_stamps: true, chained: true, effect: input.effect() }
}

fn decoded(message: Bytes) -> Result<AppendInput> {
    AppendInput::decode(message).map_err(|error| Failure::new(Code::BadProto, error.to_string()))
}

/// Answers all steps, in order, until the session is over.
async fn answer_all(taken: &mut mpsc::Receiver<Step>, outgoing: &mut Outgoing) {
    let mut acks = 0;
    while let Some(step) = taken.recv().await {
        let answered = match step {
            Step::Failed(failure) => Err(failure),
            Step::Batch(acked, address) => answer(acked, &address, outgoing).await,
        };
        match answered {
            Ok(ack) => outgoing.put(&ack),
            Err(failure) => {
                outgoing.put_terminal(&failure);
                let _gone = outgoing.send().await;
                return;
            }
        }
        acks += 1;
        // Acks that are ready together leave together.
        if (taken.is_empty() || acks % ACKS_AT_ONCE == 0) && !outgoing.send().await {
            return;
        }
    }
}

/// The answer of a batch; what is put already leaves before it is waited for.
async fn answer(mut acked: Acked, address: &Address, outgoing: &mut Outgoing) -> Result<AppendAck> {
    let appended = match (&mut acked).now_or_never() {
        Some(appended) => appended,
        None => {
            // That the client is gone shows at the next one.
            let _gone = outgoing.send().await;
            acked.await
        }
    };
    let Ok(appended) = appended else {
        return Err(Failure::new(Code::Unavailable, "the server ended before the batch was acked"));
    };
    appended.map(AppendAck::from).map_err(|error| gone(&error, address))
}

fn gone(error: &client::Error, address: &Address) -> Failure {
    match Failure::of(error, Code::StreamNotFound) {
        Failure::Coded { code: Code::StreamNotFound, .. } => {
            let Address { bucket, key } = address;
            Failure::new(Code::StreamNotFound, format!("stream '{key}' in basin '{bucket}' was deleted"))
        }
        failure => failure,
    }
}

#[cfg(test)]
mod tests {
    use client::{Class, Position};
    use tokio::sync::{Semaphore, oneshot};

    use super::*;

    #[tokio::test]
    async fn a_batch_gives_its_room_back_when_it_is_acked_and_not_when_its_session_ends() {
        let place = Position::default();
        let ack = Appended { start: place, end: place, tail: place, class: Class::Express };
        let room = Arc::new(Semaphore::new(5));
        let batch = || {
            let (answer, answered) = oneshot::channel();
            let held = Arc::clone(&room).try_acquire_many_owned(2).unwrap();
            (answer, acked(answered.map(Result::unwrap), held))
        };
        let ((first, its), (second, of_ended)) = (batch(), batch());
        drop(of_ended);
        tokio::task::yield_now().await;
        assert_eq!(room.available_permits(), 1);
        first.send(Ok(ack.clone())).unwrap();
        its.await.unwrap().unwrap();
        assert_eq!(room.available_permits(), 3);
        second.send(Ok(ack)).unwrap();
        let _all = room.acquire_many(5).await.unwrap();
    }
}
