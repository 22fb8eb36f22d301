//! Whatever is noted, what is said of a batch is what a memory without a bound would say, or that it is forgotten.

use proptest::prelude::*;

use super::super::*;

/// Few of each, so that numbers and producers come again.
const PRODUCERS: u64 = PRODUCERS_MAX as u64 + 3;
const NUMBERS: u64 = ANSWERS_MAX as u64 * 2;

#[derive(Debug, Clone)]
enum Step {
    /// A batch comes, is looked for, and is stored if it is new.
    Batch {
        producer: u64,
        no: u64,
        batch_crc: u32,
    },
    OneShot {
        high: u64,
        low: u64,
        batch_crc: u32,
    },
    Forget {
        producer: u64,
    },
    /// It is written down and read again.
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    let batch_crc = || 0..2_u32;
    prop_oneof![
        10 => (1..PRODUCERS, 1..NUMBERS, batch_crc())
            .prop_map(|(producer, no, batch_crc)| Step::Batch { producer, no, batch_crc }),
        4 => (0..4_u64, 0..20_u64, batch_crc())
            .prop_map(|(high, low, batch_crc)| Step::OneShot { high, low, batch_crc }),
        1 => (1..PRODUCERS).prop_map(|producer| Step::Forget { producer }),
        1 => Just(Step::Restart),
    ]
}

/// What is remembered, and all that was ever stored.
#[derive(Default)]
struct Machine {
    dedupe: Dedupe,
    /// In order; none where a producer was forgotten.
    sessions: Vec<(u64, Option<Answer>)>,
    one_shots: Vec<((u64, u64), Answer)>,
    stored: u64,
}

impl Machine {
    fn answer(&mut self, no: u64, batch_crc: u32) -> Answer {
        self.stored += 1;
        let start = Position::new(SeqNum::new(self.stored), 5);
        Answer { no: BatchNo::new(no), batch_crc, records: 1, start, last_ms: 6, lsn: Lsn::ZERO }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Batch { producer, no, batch_crc } => self.batch(producer, no, batch_crc),
            Step::OneShot { high, low, batch_crc } => self.one_shot((high, low), batch_crc),
            Step::Forget { producer } => {
                self.dedupe.forget(ProducerId::new(producer));
                self.sessions.push((producer, None));
            }
            Step::Restart => {
                let mut bytes = Vec::new();
                self.dedupe.encode(&mut bytes);
                self.dedupe = Dedupe::decode(&bytes).expect("what was written is read");
            }
        }
    }

    /// What is known of a producer for sure: its answers since it was forgotten, if fewer others were heard since than would drive it
    /// out; none when it may have been driven out at any time.
    fn known(&self, producer: u64) -> Option<Vec<Answer>> {
        let mut others: Vec<u64> = Vec::new();
        let mut answers = Vec::new();
        for (other, answer) in self.sessions.iter().rev() {
            match answer {
                Some(answer) if *other == producer => answers.push(*answer),
                None if *other == producer => break,
                Some(_) if !others.contains(other) => others.push(*other),
                _ => {}
            }
            if others.len() >= PRODUCERS_MAX {
                return None;
            }
        }
        answers.reverse();
        Some(answers)
    }

    fn batch(&mut self, producer: u64, no: u64, batch_crc: u32) {
        let numbered = Numbered { producer: ProducerId::new(producer), no: BatchNo::new(no), one_shot: false };
        let seen = self.dedupe.look(numbered, batch_crc);
        let ever = self.sessions.iter().filter(|(other, _)| *other == producer).filter_map(|(_, answer)| *answer);
        let under_it: Vec<Answer> = ever.filter(|answer| answer.no.get() == no).collect();
        match seen {
            Seen::Stored(answer) => assert!(under_it.contains(&answer) && answer.batch_crc == batch_crc),
            Seen::OtherBytes => assert!(under_it.iter().any(|answer| answer.batch_crc != batch_crc)),
            Seen::New | Seen::Refused | Seen::Forgotten => {}
        }
        if let Some(known) = self.known(producer) {
            self.is_known(&known, no, seen);
        }
        if matches!(seen, Seen::New | Seen::Refused) {
            let answer = self.answer(no, batch_crc);
            self.dedupe.note(numbered, answer);
            self.sessions.push((producer, Some(answer)));
        }
    }

    /// What must be said under a number of a producer that is remembered with the highest numbers of `known`.
    fn is_known(&self, known: &[Answer], no: u64, seen: Seen) {
        let mut numbers: Vec<u64> = known.iter().map(|answer| answer.no.get()).collect();
        numbers.sort_unstable();
        let remembered = &numbers[numbers.len().saturating_sub(ANSWERS_MAX)..];
        let Some((lowest, highest)) = remembered.first().zip(remembered.last()) else {
            return assert_eq!(seen, Seen::New, "nobody was heard");
        };
        let is = |wanted: &[&str], found: &str| assert!(wanted.contains(&found), "{no} of {remembered:?}: {seen:?}");
        let found = match seen {
            Seen::New => "new",
            Seen::Stored(_) | Seen::OtherBytes => "stored",
            Seen::Refused => "refused",
            Seen::Forgotten => "forgotten",
        };
        match no {
            no if no > *highest => is(&["new"], found),
            no if remembered.contains(&no) => is(&["stored"], found),
            no if no < *lowest => is(&["forgotten"], found),
            _ => is(&["refused"], found),
        }
    }

    fn one_shot(&mut self, (high, low): (u64, u64), batch_crc: u32) {
        let numbered = Numbered { producer: ProducerId::new(high), no: BatchNo::new(low), one_shot: true };
        let seen = self.dedupe.look(numbered, batch_crc);
        let last = &self.one_shots[self.one_shots.len().saturating_sub(ONE_SHOTS_MAX)..];
        let wanted = match last.iter().find(|(key, _)| *key == (high, low)) {
            None => Seen::New,
            Some((_, answer)) if answer.batch_crc == batch_crc => Seen::Stored(*answer),
            Some(_) => Seen::OtherBytes,
        };
        assert_eq!(seen, wanted);
        if seen == Seen::New {
            let answer = self.answer(low, batch_crc);
            self.dedupe.note(numbered, answer);
            self.one_shots.push(((high, low), answer));
        }
    }
}

proptest! {
    #[test]
    fn whatever_is_noted_is_told_right_or_forgotten(steps in prop::collection::vec(step(), 1..300)) {
        let mut machine = Machine::default();
        steps.iter().for_each(|step| machine.take(step));
    }
}
