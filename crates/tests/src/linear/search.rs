//! Is there an order, true to the times, in which the model gives every answer?

use std::collections::HashSet;

use super::ledger::{Ledger, Place};
use super::model::State;
use super::{Answer, Ask, Fault, History, Kind, Operation};

/// An operation that has to find its place in the order.
#[derive(Debug, Clone, Copy)]
struct Item<'a> {
    operation: &'a Operation,
    place: Place,
    /// It happens before this.
    by: u64,
}

impl Item<'_> {
    /// Whether it changes nothing wherever it comes. A fence or a trim that changes nothing here may do so elsewhere.
    fn only_looks(&self) -> bool {
        let is_refused = matches!(self.operation.told(), Some(Answer::Mismatch(_) | Answer::FencedOut(_)));
        is_refused || matches!(self.operation.ask, Ask::Read(_) | Ask::Tail | Ask::Token)
    }
}

/// How far an order has come.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
struct Order {
    /// All answered operations before this one are in the order.
    base: usize,
    /// Of those after it, these are.
    beyond: Vec<usize>,
    /// Of those that nobody answered, and whose place nobody knows, these are.
    taken: Vec<usize>,
    state: State,
}

impl Order {
    fn has(&self, index: usize) -> bool {
        index < self.base || self.beyond.binary_search(&index).is_ok()
    }

    /// The same with one more, after which the stream stands so.
    fn with(&self, index: usize, state: State) -> Self {
        let mut next = Self { state, ..self.clone() };
        if let Err(at) = next.beyond.binary_search(&index) {
            next.beyond.insert(at, index);
        }
        while next.beyond.first() == Some(&next.base) {
            next.beyond.remove(0);
            next.base += 1;
        }
        next
    }

    fn with_open(&self, index: usize, state: State) -> Self {
        let mut next = Self { state, ..self.clone() };
        if let Err(at) = next.taken.binary_search(&index) {
            next.taken.insert(at, index);
        }
        next
    }

    fn ordered(&self) -> usize {
        self.base + self.beyond.len()
    }
}

/// How a search ended.
enum Ended {
    Found,
    /// None fits; this one came the furthest.
    None(Order),
    Spent,
}

/// What is to be ordered.
struct Search<'a> {
    ledger: &'a Ledger<'a>,
    /// Those that must come in, by their calls.
    items: Vec<Item<'a>>,
    /// Those that may come in.
    open: Vec<Item<'a>>,
    steps: u64,
    steps_max: u64,
}

/// Finds an order, and answers the steps it took.
pub(super) fn find(history: &History, ledger: &Ledger<'_>, steps_max: u64) -> Result<u64, Fault> {
    let last = history.operations.iter().filter_map(Operation::returned).max().unwrap_or(0);
    let last = history.operations.iter().map(|operation| operation.call).max().unwrap_or(0).max(last);
    let read_back = Operation {
        client: u32::MAX,
        call: last + 1,
        ask: Ask::Read(history.read_back.trim_point),
        answer: Some((
            last + 2,
            Answer::Page {
                records: history.read_back.records.clone(),
                tail: history.read_back.tail(),
                trim_point: history.read_back.trim_point,
            },
        )),
    };
    let mut all: Vec<(&Operation, Place)> =
        history.operations.iter().enumerate().map(|(index, operation)| (operation, ledger.place(index))).collect();
    all.push((&read_back, Place::Nowhere));
    all.retain(|(operation, place)| may_matter(operation, *place));
    all.sort_by_key(|(operation, _)| operation.call);
    let start = State::new(history.is_fenced);
    let mut whole = Search::of(&all, ledger, u64::MAX, steps_max);
    match whole.run(start) {
        Ended::Found => Ok(whole.steps),
        Ended::Spent => {
            let says = format!("no order was found in {steps_max} steps, and it is not certain that there is none");
            Err(Fault::new(Kind::Undecided, says, []))
        }
        Ended::None(furthest) => {
            Err(shortest(&all, ledger, (start, steps_max)).unwrap_or_else(|| whole.told(&furthest)))
        }
    }
}

/// Whether an operation has to do with the order: not so if it did not happen, or nobody was told what it would have read.
fn may_matter(operation: &Operation, place: Place) -> bool {
    match (&operation.ask, operation.told()) {
        (_, Some(Answer::Refused)) | (Ask::Read(_) | Ask::Tail | Ask::Token, None) => false,
        (Ask::Append { .. }, None) => place != Place::Nowhere,
        _ => true,
    }
}

/// The fault of the shortest beginning that has no order: if a beginning has none, none that goes on from it has.
fn shortest(all: &[(&Operation, Place)], ledger: &Ledger<'_>, (start, steps_max): (State, u64)) -> Option<Fault> {
    let mut ends: Vec<u64> = all.iter().filter_map(|(operation, _)| operation.returned()).collect();
    ends.sort_unstable();
    let (mut low, mut high) = (0, ends.len());
    let mut fault = None;
    while low < high {
        let middle = low + (high - low) / 2;
        let mut search = Search::of(all, ledger, ends[middle], steps_max);
        match search.run(start) {
            Ended::None(furthest) => {
                fault = Some(search.told(&furthest));
                high = middle;
            }
            Ended::Found | Ended::Spent => low = middle + 1,
        }
    }
    fault
}

impl<'a> Search<'a> {
    /// Over what was called up to a time; what was answered after it may have happened before it, or not.
    fn of(all: &[(&'a Operation, Place)], ledger: &'a Ledger<'a>, until: u64, steps_max: u64) -> Self {
        let mut search = Self { ledger, items: Vec::new(), open: Vec::new(), steps: 0, steps_max };
        for (operation, place) in all.iter().filter(|(operation, _)| operation.call <= until) {
            match operation.returned().filter(|by| *by <= until) {
                Some(by) => search.items.push(Item { operation, place: *place, by }),
                None => search.open.push(Item { operation, place: *place, by: u64::MAX }),
            }
        }
        search
    }

    fn run(&mut self, start: State) -> Ended {
        let first = Order { base: 0, beyond: Vec::new(), taken: Vec::new(), state: start };
        let mut furthest = first.clone();
        let mut seen: HashSet<Order> = HashSet::new();
        let mut untried = vec![first];
        while let Some(order) = untried.pop() {
            let order = self.with_idle(order);
            if !seen.insert(order.clone()) {
                continue;
            }
            if order.base == self.items.len() {
                return Ended::Found;
            }
            if order.ordered() > furthest.ordered() {
                furthest = order.clone();
            }
            if self.steps >= self.steps_max {
                return Ended::Spent;
            }
            untried.extend(self.successors(&order));
        }
        Ended::None(furthest)
    }

    /// Takes in all that only looks: wherever else it fits, it fits here, and nothing else is the worse for it.
    fn with_idle(&mut self, mut order: Order) -> Order {
        loop {
            let state = order.state;
            let is_idle = |index: &usize| self.items[*index].only_looks() && self.after(*index, state).is_some();
            let idle = self.candidates(&order).into_iter().find(is_idle);
            self.steps += 1;
            let Some(index) = idle else { return order };
            order = order.with(index, state);
        }
    }

    fn successors(&mut self, order: &Order) -> Vec<Order> {
        let mut all = Vec::new();
        let deadline = self.deadline(order);
        for (index, item) in self.open.iter().enumerate() {
            if item.operation.call > deadline {
                break;
            }
            if order.taken.binary_search(&index).is_err()
                && let Some(state) = self.after_item(item, order.state).filter(|state| *state != order.state)
            {
                all.push(order.with_open(index, state));
            }
        }
        for index in self.candidates(order) {
            if let Some(state) = self.after(index, order.state) {
                all.push(order.with(index, state));
            }
        }
        self.steps += all.len() as u64;
        all
    }

    fn after(&self, index: usize, state: State) -> Option<State> {
        self.after_item(&self.items[index], state)
    }

    fn after_item(&self, item: &Item<'_>, state: State) -> Option<State> {
        let after = state.after(item.operation, item.place)?;
        let has_room = item.place != Place::Open || self.ledger.has_room(state.tail, after.tail - state.tail);
        has_room.then_some(after)
    }

    /// When the next operation must be in: nothing that is called later comes before that.
    fn deadline(&self, order: &Order) -> u64 {
        let mut deadline = u64::MAX;
        for (index, item) in self.items.iter().enumerate().skip(order.base) {
            if item.operation.call > deadline {
                break;
            }
            if !order.has(index) {
                deadline = deadline.min(item.by);
            }
        }
        deadline
    }

    /// What may come next, by the times.
    fn candidates(&self, order: &Order) -> Vec<usize> {
        let deadline = self.deadline(order);
        let rest = self.items.iter().enumerate().skip(order.base);
        let called = rest.take_while(|(_, item)| item.operation.call <= deadline);
        called.map(|(index, _)| index).filter(|index| !order.has(*index)).collect()
    }

    /// The fault of an order that can't go on: what may come next, what went on at the same time, and what came before.
    fn told(&self, order: &Order) -> Fault {
        let stuck: Vec<&Operation> =
            self.candidates(order).into_iter().map(|index| self.items[index].operation).collect();
        let since = stuck.iter().map(|operation| operation.call).min().unwrap_or(0);
        let ordered = || self.items.iter().enumerate().filter(|(index, _)| order.has(*index)).map(|(_, item)| item);
        let meanwhile = ordered().filter(|item| item.by >= since).map(|item| item.operation);
        let changes = ordered().filter(|item| item.by < since && is_change(item.operation));
        let before = changes.max_by_key(|item| item.by).map(|item| item.operation);
        let State { tail, trim_point, token, .. } = order.state;
        let is_behind = |place: Place| matches!(place, Place::At(start) if start < tail);
        let open = self.open.iter().filter(|item| !item.only_looks() && !is_behind(item.place));
        let open = open.map(|item| item.operation);
        let says = format!(
            "{} operations have an order, after which the stream stands at tail {tail}, trim point {trim_point}, {token}; \
             none of {} comes next",
            order.ordered(),
            stuck.len()
        );
        Fault::new(Kind::Unordered, says, stuck.into_iter().chain(meanwhile).chain(open).chain(before))
    }
}

/// Whether an operation changed the stream.
fn is_change(operation: &Operation) -> bool {
    matches!(operation.told(), Some(Answer::Appended(_) | Answer::Fenced(_) | Answer::Trimmed(_)))
}
