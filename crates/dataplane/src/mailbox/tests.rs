use std::future::poll_fn;
use std::sync::Arc;
use std::time::Duration;

use glommio::{LocalExecutorBuilder, Placement};

use super::Lane;

#[test]
fn a_full_lane_gives_the_value_back() {
    let lane = Lane::new(2);
    assert_eq!([lane.push(1), lane.push(2), lane.push(3)], [Ok(()), Ok(()), Err(3)]);
    assert_eq!(lane.pop(), Some(1));
    assert_eq!(lane.push(3), Ok(()));
}

#[test]
fn what_another_thread_pushes_wakes_a_sleeping_shard_and_comes_in_order() {
    const VALUES: u64 = 20_000;
    let lane = Arc::new(Lane::new(64));
    let taken = Arc::clone(&lane);
    let shard = LocalExecutorBuilder::new(Placement::Unbound)
        .preempt_timer(Duration::from_secs(3_600))
        .spawn(move || async move {
            let mut expected = 0;
            while expected < VALUES {
                poll_fn(|context| taken.poll_waiting(context)).await;
                while let Some(value) = taken.pop() {
                    assert_eq!(value, expected);
                    expected += 1;
                }
            }
        })
        .unwrap();
    for mut value in 0..VALUES {
        if value % 5_000 == 0 {
            // Lets the shard fall asleep.
            std::thread::sleep(Duration::from_millis(20));
        }
        while let Err(back) = lane.push(value) {
            value = back;
            std::thread::yield_now();
        }
    }
    shard.join().unwrap();
}
