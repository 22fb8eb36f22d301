use std::sync::Arc;
use std::sync::mpsc::{Receiver, sync_channel};

use wire::handoff::{BucketTable, Full, ToShard};
use wire::ids::{BucketId, LogId, Lsn};

use super::{KEPT_MAX, Outbox};

/// An outbox to a queue of `room`, and the queue's other end.
fn outbox(room: usize) -> (Outbox, Receiver<ToShard>) {
    let (sender, receiver) = sync_channel(room);
    (Outbox::new(Box::new(move |message| sender.try_send(message).map_err(|_| Full))), receiver)
}

fn table(version: u64) -> ToShard {
    ToShard::Buckets(Arc::new(BucketTable { version, ..BucketTable::default() }))
}

fn freeze(id: u8) -> ToShard {
    ToShard::Freeze { bucket: BucketId::from_bytes([id; 16]) }
}

fn taken(outbox: &mut Outbox, queue: &Receiver<ToShard>) -> Vec<String> {
    let mut out = Vec::new();
    while let Ok(message) = queue.try_recv() {
        out.push(match message {
            ToShard::Buckets(table) => format!("table {}", table.version),
            ToShard::Freeze { bucket } => format!("freeze {}", bucket.to_bytes()[0]),
            other => format!("{other:?}"),
        });
        outbox.flush();
    }
    out
}

#[test]
fn what_a_full_queue_refuses_comes_later_in_order_and_once() {
    let (mut outbox, queue) = outbox(1);
    outbox.send(table(1));
    for id in 1..=3 {
        outbox.send(freeze(id));
    }
    assert!(!outbox.is_empty());
    assert_eq!(taken(&mut outbox, &queue), ["table 1", "freeze 1", "freeze 2", "freeze 3"]);
    assert!(outbox.is_empty());
}

#[test]
fn a_table_that_was_not_taken_gives_way_to_the_next_before_any_freeze() {
    let (mut outbox, queue) = outbox(1);
    outbox.send(table(1));
    outbox.send(table(2));
    outbox.send(freeze(1));
    outbox.send(table(3));
    assert_eq!(taken(&mut outbox, &queue), ["table 1", "table 3", "freeze 1"]);
}

#[test]
fn what_is_only_how_far_something_has_come_is_told_once_and_never_applied_before_committed() {
    let (committed, applied) =
        (|lsn| ToShard::Committed { standard: Lsn::new(lsn) }, |lsn| ToShard::Applied { standard: Lsn::new(lsn) });
    let (mut outbox, queue) = outbox(1);
    for message in [committed(1), applied(1), committed(2), applied(2), committed(3), applied(3)] {
        outbox.send(message);
    }
    let told = taken(&mut outbox, &queue);
    let expected = [committed(1), applied(1), committed(3), applied(3)];
    assert_eq!(told, expected.map(|message| format!("{message:?}")));
}

#[test]
fn each_head_log_is_told_of_by_itself() {
    let settled = |log, upto| ToShard::Settled { log: LogId::from_bytes([log; 16]), upto: Lsn::new(upto) };
    let (mut outbox, queue) = outbox(1);
    for message in [freeze(1), settled(1, 5), settled(2, 3), settled(1, 9)] {
        outbox.send(message);
    }
    let told = taken(&mut outbox, &queue);
    let expected = ["freeze 1".to_owned(), format!("{:?}", settled(1, 9)), format!("{:?}", settled(2, 3))];
    assert_eq!(told, expected);
}

#[test]
fn a_shard_that_takes_nothing_fills_its_outbox() {
    let (mut outbox, queue) = outbox(0);
    for _ in 0..KEPT_MAX {
        assert!(!outbox.is_full());
        outbox.send(freeze(1));
    }
    assert!(outbox.is_full());
    drop(queue);
}
