//! Are histories that chance makes judged rightly?

use super::super::ledger::{Ledger, Place};
use super::super::model::State;
use super::super::{Answer, Ask, History, Kind, Operation, ReadBack, Token, check, interval, search};
use super::{STEPS_MAX, right, token};

/// Numbers that a seed decides.
struct Dice(u64);

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 31)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ (mixed >> 29)) % bound
    }
}

/// A stream that answers rightly, with clients who ask it at once.
struct Play {
    dice: Dice,
    is_fenced: bool,
    log: Vec<u64>,
    trim_point: u64,
    token: Token,
    fences: u32,
    records: u64,
    now: u64,
    under_way: Vec<Operation>,
    done: Vec<Operation>,
}

impl Play {
    fn history(seed: u64, (clients, operations): (u32, usize), losses: u64) -> History {
        let mut play = Self {
            dice: Dice(seed),
            is_fenced: seed.is_multiple_of(2),
            log: Vec::new(),
            trim_point: 0,
            token: Token::NONE,
            fences: 0,
            records: 0,
            now: 0,
            under_way: Vec::new(),
            done: Vec::new(),
        };
        let mut idle: Vec<u32> = (0..clients).collect();
        while play.done.len() < operations || !play.under_way.is_empty() {
            play.now += 1;
            let asks = play.done.len() < operations && !idle.is_empty();
            if asks && (play.under_way.is_empty() || play.dice.below(2) == 0) {
                let client = idle.swap_remove(play.some_of(idle.len()));
                let ask = play.ask();
                play.under_way.push(Operation { client, call: play.now, ask, answer: None });
                continue;
            }
            let at = play.some_of(play.under_way.len());
            let happens = play.under_way[at].answer.is_none();
            if happens {
                let answer = play.answer(at);
                play.under_way[at].answer = Some((0, answer));
            }
            if happens && play.dice.below(100) >= losses {
                continue;
            }
            let mut operation = play.under_way.swap_remove(at);
            idle.push(operation.client);
            let is_lost = play.dice.below(100) < losses;
            operation.answer = operation.answer.filter(|_| !is_lost).map(|(_, answer)| (play.now, answer));
            play.done.push(operation);
        }
        let records = play.log.split_off(usize::try_from(play.trim_point).expect("few"));
        let read_back = ReadBack { trim_point: play.trim_point, records };
        History { is_fenced: play.is_fenced, operations: play.done, read_back }
    }

    fn some_of(&mut self, len: usize) -> usize {
        usize::try_from(self.dice.below(len as u64)).expect("below a length")
    }

    fn tail(&self) -> u64 {
        self.log.len() as u64
    }

    fn ask(&mut self) -> Ask {
        let near = (self.tail() + 2).saturating_sub(self.dice.below(4));
        match self.dice.below(20) {
            0..8 => {
                let start = self.records;
                self.records += 1 + self.dice.below(3);
                let match_seq_num = (self.dice.below(2) == 0).then_some(near.saturating_sub(1));
                let token = match self.dice.below(4) {
                    0 => Token::NONE,
                    1 => token(self.fences.saturating_sub(1)),
                    _ => token(self.fences),
                };
                Ask::Append { records: start..self.records, match_seq_num, token }
            }
            8..10 => {
                self.fences += 1;
                Ask::Fence(token(self.fences))
            }
            10 => Ask::Fence(Token::NONE),
            11 => Ask::Trim(near.saturating_sub(3)),
            12..16 => Ask::Read(near.saturating_sub(self.dice.below(6))),
            16..19 => Ask::Tail,
            _ => Ask::Token,
        }
    }

    fn answer(&mut self, at: usize) -> Answer {
        let (tail, trim_point) = (self.tail(), self.trim_point);
        match self.under_way[at].ask.clone() {
            Ask::Append { token, .. } if token != self.token && (self.is_fenced || token != Token::NONE) => {
                Answer::FencedOut(self.token)
            }
            Ask::Append { match_seq_num: Some(wanted), .. } if wanted != tail => Answer::Mismatch(tail),
            Ask::Append { records, .. } => {
                self.log.extend(records);
                Answer::Appended(tail)
            }
            Ask::Fence(token) => {
                self.token = token;
                Answer::Fenced(tail)
            }
            Ask::Trim(to) => {
                self.trim_point = trim_point.max(to.min(tail));
                Answer::Trimmed(self.trim_point)
            }
            Ask::Read(from) if from < trim_point => Answer::BelowTrimPoint { tail, trim_point },
            Ask::Read(from) if from > tail => Answer::PastTail(tail),
            Ask::Read(from) => {
                let records = self.log[usize::try_from(from).expect("few")..].iter().take(5).copied().collect();
                Answer::Page { records, tail, trim_point }
            }
            Ask::Tail => Answer::Tail(tail),
            Ask::Token => Answer::Token(self.token),
        }
    }
}

#[test]
fn right_histories_of_many_clients_pass() {
    for seed in 0..300 {
        let losses = [0, 0, 1, 4][usize::try_from(seed % 4).expect("few")];
        let history = Play::history(seed, (6, 300), losses);
        let checked = check(&history, STEPS_MAX).unwrap_or_else(|fault| panic!("seed {seed}: {fault}"));
        assert!(checked.unanswered == 0 || losses > 0, "seed {seed}");
    }
}

/// Another answer than the one that was given.
fn bend(operation: &mut Operation, dice: &mut Dice) {
    let Some((_, answer)) = &mut operation.answer else { return };
    let number = match answer {
        Answer::Appended(number)
        | Answer::Mismatch(number)
        | Answer::Fenced(number)
        | Answer::Trimmed(number)
        | Answer::PastTail(number)
        | Answer::Tail(number)
        | Answer::Page { tail: number, .. }
        | Answer::BelowTrimPoint { trim_point: number, .. } => number,
        Answer::FencedOut(installed) | Answer::Token(installed) => {
            *installed = token(installed.number() + 1);
            return;
        }
        Answer::Refused => unreachable!("each is judged"),
    };
    let by = 1 + dice.below(2);
    *number = if dice.below(2) == 0 { number.checked_sub(by).unwrap_or(*number + by) } else { *number + by };
}

/// With one client each answer has to be what it is.
#[test]
fn any_other_answer_to_a_lone_client_is_found() {
    for seed in 0..600 {
        let mut history = Play::history(seed, (1, 60), 0);
        right(&history);
        let mut dice = Dice(!seed);
        let at = usize::try_from(dice.below(60)).expect("few");
        bend(&mut history.operations[at], &mut dice);
        assert!(check(&history, STEPS_MAX).is_err(), "seed {seed}: {}", history.operations[at]);
    }
}

/// Tries all orders there are.
fn has_order(left: &[(&Operation, Place)], state: State, ledger: &Ledger<'_>, read_back: &ReadBack) -> bool {
    let ends_so = (state.tail, state.trim_point) == (read_back.tail(), read_back.trim_point);
    if ends_so && left.iter().all(|(operation, _)| operation.answer.is_none()) {
        return true;
    }
    let deadline = left.iter().filter_map(|(operation, _)| operation.returned()).min().unwrap_or(u64::MAX);
    (0..left.len()).filter(|at| left[*at].0.call <= deadline).any(|at| {
        let (operation, place) = left[at];
        let Some(after) = state.after(operation, place) else { return false };
        let has_room = place != Place::Open || ledger.has_room(state.tail, after.tail - state.tail);
        let others = [&left[..at], &left[at + 1..]].concat();
        has_room && has_order(&others, after, ledger, read_back)
    })
}

#[test]
fn the_search_and_the_quick_check_agree_with_all_orders_there_are() {
    let (mut ordered, mut unordered, mut found_at_once) = (0, 0, 0);
    for seed in 0..4_000 {
        let mut history = Play::history(seed, (4, 7), 12);
        let mut dice = Dice(!seed);
        let at = usize::try_from(dice.below(7)).expect("few");
        if dice.below(4) > 0 {
            bend(&mut history.operations[at], &mut dice);
        }
        let Ok(ledger) = Ledger::of(&history) else { continue };
        let all: Vec<(&Operation, Place)> =
            history.operations.iter().enumerate().map(|(index, operation)| (operation, ledger.place(index))).collect();
        let is_ordered = has_order(&all, State::new(history.is_fenced), &ledger, &history.read_back);
        let found = search::find(&history, &ledger, STEPS_MAX);
        assert_eq!(found.is_ok(), is_ordered, "seed {seed}: {found:?}");
        let at_once = interval::check(&history, &ledger);
        assert!(at_once.is_ok() || !is_ordered, "seed {seed}: {at_once:?}");
        ordered += u32::from(is_ordered);
        unordered += u32::from(!is_ordered);
        found_at_once += u32::from(at_once.is_err());
    }
    assert!(ordered > 500 && unordered > 500, "{ordered} and {unordered}");
    assert!(found_at_once * 2 > unordered, "{found_at_once} of {unordered}");
}

#[test]
fn a_history_that_is_too_long_for_a_search_is_held_against_its_times() {
    let mut history = Play::history(7, (8, 40_000), 1);
    let checked = check(&history, 0).unwrap_or_else(|fault| panic!("{fault}"));
    assert!(checked.found > 0 && checked.steps == 0, "{checked:?}");
    let middle = history.operations.iter_mut().skip(20_000);
    let mut tails = middle.filter_map(|operation| match &mut operation.answer {
        Some((_, Answer::Tail(tail))) => Some(tail),
        _ => None,
    });
    *tails.next().expect("a tail") -= 50;
    assert_eq!(check(&history, 0).map_err(|fault| fault.kind), Err(Kind::Stale));
}
