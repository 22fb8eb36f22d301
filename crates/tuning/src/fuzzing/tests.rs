//! The corpora of this crate's targets.

use wire::fuzzing::{Seed, replay};

use super::*;

#[test]
fn what_the_corpora_hold_is_judged_as_it_should_be() {
    let texts = ["64MiB", "30s", "0-3,5", "ffff,0000000f", "6.18.44-generic"];
    let text = |text: &&str| Seed::new("host_texts", text.replace(|c: char| !c.is_alphanumeric(), "-"), *text);
    let files = [
        ("plain", "data = \"d\"\nlisten = \"127.0.0.1:0\"\nshards = 2\nhttp = \"off\"\n"),
        (
            "sections",
            "[log]\nsegment_bytes = \"8MiB\"\nbytes_max = 67108864\nsync = \"fdatasync\"\ninline_commit = false\n",
        ),
        (
            "s3",
            "store = \"s3://bucket/prefix\"\n[s3]\nendpoint = \"http://127.0.0.1:9000/\"\nregion = \"eu\"\nchecksum = \"none\"\n",
        ),
        (
            "memory",
            "insecure = true\nlisten = \"[::1]:1\"\nmemory = { ring_bytes_max = \"1MiB\" }\nsettle.age_ms = \"10ms\"\n",
        ),
    ];
    let file = |(name, text): &(&str, &str)| Seed::new("settings", *name, *text);
    replay(TARGETS, &texts.iter().map(text).chain(files.iter().map(file)).collect::<Vec<_>>());
}
