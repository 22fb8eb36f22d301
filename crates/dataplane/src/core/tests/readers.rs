//! Subscriptions with little credit, over a stream that is appended to, trimmed, settled, freed and crashes in any order: each is told
//! that it is open, then gets every record once, in order, and no more than its credit lets it.

use proptest::prelude::*;
use wire::frame::{self, Kind, Next};
use wire::ids::SeqNum;
use wire::message::{Credit, Start, Subscribe, Trim, TrimTo, Unsubscribe};
use wire::reason::Reason;

use super::world::*;
use crate::core::ConnId;

/// Who reads, each under a handle of its own.
const READERS: usize = 3;
/// The appender's connection is another one.
const CONNS: [ConnId; READERS] = [B, B, C];

#[derive(Debug, Clone)]
enum Step {
    /// Records that are not durable yet.
    Append {
        records: usize,
        bytes: usize,
    },
    Commit,
    /// A reader begins, this far before the tail.
    Subscribe {
        who: usize,
        behind: u64,
        credit: u32,
    },
    Credit {
        who: usize,
        bytes: u32,
    },
    Unsubscribe {
        who: usize,
    },
    /// Up to this far before the tail.
    Trim {
        behind: u64,
    },
    /// So many entries are settled.
    Settle {
        entries: usize,
    },
    /// All are, and their segments go.
    Free,
    /// Disk and control bring what readers wait for.
    Serve,
    Crash,
}

fn step() -> impl Strategy<Value = Step> {
    let who = || 0..READERS;
    prop_oneof![
        6 => (1..4_usize, 1..300_usize).prop_map(|(records, bytes)| Step::Append { records, bytes }),
        5 => Just(Step::Commit),
        3 => (who(), 0..20_u64, 0..2_000_u32)
            .prop_map(|(who, behind, credit)| Step::Subscribe { who, behind, credit }),
        6 => (who(), 1..1_500_u32).prop_map(|(who, bytes)| Step::Credit { who, bytes }),
        1 => who().prop_map(|who| Step::Unsubscribe { who }),
        1 => (0..12_u64).prop_map(|behind| Step::Trim { behind }),
        2 => (1..10_usize).prop_map(|entries| Step::Settle { entries }),
        1 => Just(Step::Free),
        4 => Just(Step::Serve),
        1 => Just(Step::Crash),
    ]
}

/// What a reader has, and may get.
#[derive(Debug, Clone, Copy)]
struct Reader {
    next: u64,
    credit: i64,
    /// It was told that it has begun.
    is_open: bool,
}

struct Machine {
    test: Test,
    /// Bodies of the records that are durable, and of those that are not.
    bodies: Vec<String>,
    undurable: Vec<String>,
    trim_point: u64,
    readers: [Option<Reader>; READERS],
}

fn first_frame(bytes: &[u8]) -> frame::Frame<'_> {
    let Ok(Next::Frame(frame)) = frame::next(bytes, usize::MAX) else { panic!("a whole frame") };
    frame
}

fn handle(who: usize) -> u32 {
    u32::try_from(who).unwrap() + 1
}

impl Machine {
    fn new() -> Self {
        let mut test = Test::new();
        test.put("s", &["first"]).unwrap();
        Self { test, bodies: vec!["first".to_owned()], undurable: Vec::new(), trim_point: 0, readers: [None; READERS] }
    }

    fn tail(&self) -> u64 {
        self.bodies.len() as u64
    }

    fn take(mut self, step: &Step) -> Self {
        match *step {
            Step::Append { records, bytes } => self.append(records, bytes),
            Step::Commit => self.commit(),
            Step::Subscribe { who, behind, credit } => self.subscribe(who, behind, credit),
            Step::Credit { who, bytes } => {
                if let Some(reader) = &mut self.readers[who] {
                    reader.credit += i64::from(bytes);
                    self.test.offer(CONNS[who], &Credit { subscription: handle(who), bytes }, &[]);
                }
            }
            Step::Unsubscribe { who } => {
                self.hear();
                if self.readers[who].take().is_some() {
                    self.test.offer(CONNS[who], &Unsubscribe { subscription: handle(who) }, &[]);
                }
            }
            Step::Trim { behind } => {
                let to = self.tail().saturating_sub(behind);
                let trim = Trim { address: address("s"), to: TrimTo::SeqNum(SeqNum::new(to)) };
                self.test.offer(A, &trim, &[]);
                // What is sent before it is durable may lie below it.
                self.commit();
                self.trim_point = self.trim_point.max(to);
            }
            Step::Settle { entries } => self.test.settle(entries),
            Step::Free => self.test.settle_and_free(),
            Step::Serve => self.test.serve_readers(),
            Step::Crash => return self.crashed(),
        }
        self.hear();
        self
    }

    fn append(&mut self, records: usize, bytes: usize) {
        let first = self.bodies.len() + self.undurable.len();
        let bodies: Vec<String> = (first..first + records).map(|number| format!("{number:0>bytes$}")).collect();
        let (batch, batch_crc) = batch(&bodies.iter().map(String::as_str).collect::<Vec<_>>());
        self.test.offer(A, &Test::once("s", batch_crc), &batch);
        self.undurable.extend(bodies);
    }

    fn commit(&mut self) {
        self.test.commit();
        self.bodies.append(&mut self.undurable);
        let refused = self.test.told(A).into_iter().find(|told| matches!(told, Told::Refused(..)));
        assert_eq!(refused, None);
    }

    fn subscribe(&mut self, who: usize, behind: u64, credit_bytes: u32) {
        if self.readers[who].is_some() {
            return;
        }
        let next = self.tail().saturating_sub(behind).max(self.trim_point);
        let subscribe = Subscribe {
            address: address("s"),
            start: Start::SeqNum(SeqNum::new(next)),
            clamp: false,
            subscription: handle(who),
            credit_bytes,
            resume: None,
        };
        self.readers[who] = Some(Reader { next, credit: credit_bytes.into(), is_open: false });
        self.test.offer(CONNS[who], &subscribe, &[]);
    }

    /// Readers and all that is not durable are gone.
    fn crashed(mut self) -> Self {
        self.hear();
        Self { test: self.test.crashed(), undurable: Vec::new(), readers: [None; READERS], ..self }
    }

    /// Holds all that readers were told against what is there.
    fn hear(&mut self) {
        for conn in [B, C] {
            let bytes = self.test.world.outs.get_mut(&conn).unwrap().take();
            let mut rest = &bytes[..];
            while !rest.is_empty() {
                let frame = first_frame(rest);
                self.heard(&frame);
                rest = &rest[frame.frame_bytes..];
            }
        }
    }

    fn heard(&mut self, frame: &frame::Frame<'_>) {
        let mut told = Vec::new();
        decode(frame, &mut told);
        let payload_bytes = i64::try_from(frame.payload.len()).unwrap();
        match told.pop() {
            Some(Told::Records(handle, page)) => {
                assert_eq!(frame.kind, Kind::Records);
                let reader = self.readers[handle as usize - 1].as_mut().expect("nobody else gets records");
                assert!(reader.is_open && reader.credit > 0, "{reader:?} gets {payload_bytes} bytes");
                assert_eq!(page.start, reader.next, "no gap and no repeat");
                let range = usize::try_from(page.start).unwrap()..usize::try_from(page.end).unwrap();
                assert_eq!(Some(&page.bodies[..]), self.bodies.get(range), "what is durable, as it is");
                (reader.next, reader.credit) = (page.end, reader.credit - payload_bytes);
            }
            Some(Told::Subscribed(subscribed)) => {
                let reader = self.readers[subscribed.subscription as usize - 1].as_mut().expect("one that asked");
                assert_eq!((reader.is_open, subscribed.start.get()), (false, reader.next));
                reader.is_open = true;
            }
            Some(Told::SubscriptionEnded(handle, reason)) => {
                let reader = self.readers[handle as usize - 1].take().expect("one that was there");
                assert_eq!((reader.is_open, reason), (true, Reason::Trimmed));
                assert!(reader.next < self.trim_point, "{reader:?} ends, and the trim point is {}", self.trim_point);
            }
            Some(Told::Done(_)) => {}
            other => panic!("{other:?}"),
        }
    }

    /// With credit enough, each gets all there is.
    fn end(mut self) {
        self.commit();
        for who in 0..READERS {
            self = self.take(&Step::Credit { who, bytes: 1 << 23 });
        }
        self = self.take(&Step::Serve);
        for reader in self.readers.iter().flatten() {
            assert_eq!(reader.next, self.tail(), "{reader:?}");
        }
    }
}

proptest! {
    #[test]
    fn whatever_happens_each_reader_gets_every_record_once_within_its_credit(steps in prop::collection::vec(step(), 1..120)) {
        steps.iter().fold(Machine::new(), |machine, step| machine.take(step)).end();
    }
}
