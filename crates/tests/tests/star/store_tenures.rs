//! Does what several tenures and several logs wrote settle, though shards come and go and names are used again?

use std::time::{Duration, Instant};

use tests::{eventually, kept_bytes, load_of, within};

use crate::store_kill::Victim;

/// How many shards each tenure has, and whether it settles what it and those before have written.
const TENURES: [(&str, bool); 6] = [("3", false), ("1", false), ("4", true), ("2", false), ("3", false), ("1", true)];
const LOAD: Duration = Duration::from_millis(700);
const SOON: Duration = Duration::from_secs(60);

fn args(shards: &str, settles: bool) -> Vec<&str> {
    vec!["--shards", shards, "--settle-age-ms", if settles { "20" } else { "60s" }, "--settle-grace-ms", "100"]
}

#[test]
fn what_several_tenures_left_in_several_logs_settles_and_nothing_deleted_comes_back() {
    within(200, async {
        let mut victim = Victim::new(&args(TENURES[0].0, TENURES[0].1)).await;
        for (no, next) in (1..=TENURES.len()).zip(TENURES[1..].iter().chain([&TENURES[5]])) {
            let until = Instant::now() + LOAD;
            victim.loaded(|_| Instant::now() > until).await;
            // The last one goes on with settling.
            if no < TENURES.len() {
                victim = victim.die_and_go_on(&args(next.0, next.1)).await;
            }
        }
        assert!(victim.load.acked() > load_of(100) as u64, "there was a load: {}", victim.load.acked());
        victim.load.finish(&victim.novad).await;
        let client = victim.novad.client();
        for address in victim.load.streams() {
            let is_settled = async || {
                let info = client.get_stream(&address).await.expect("the stream");
                info.settled == info.tail.seq_num
            };
            eventually(SOON, "all of it is settled", is_settled).await;
        }
        // Shard 0 alone writes: the logs of the others have no segment left.
        let log = victim.novad.data().join("log");
        let are_free = async || (1..4).all(|shard| kept_bytes(&log.join(shard.to_string())) < 1 << 20);
        eventually(SOON, "the logs of shards that are gone are free", are_free).await;
        victim.clean_up().await;
    });
}
