//! What does `--help` teach, a command at a time?

pub(super) const NOVA: &str = "\
Examples:
  nova bucket create demo --default-class express --create-on-append
  printf 'hello\\n' | nova append nova://demo/events
  nova read nova://demo/events
  nova subscribe nova://demo/events --last 10

A stream is named nova://BUCKET/KEY; the key is everything after the bucket, slashes too.
Exit codes: 0 done, 2 usage or invalid, 3 not found, 4 exists or held, 5 sequence mismatch or
fenced out, 6 trimmed or out of range, 7 unavailable or exhausted, 8 not allowed, 1 anything else.";

pub(super) const BUCKET: &str = "\
Examples:
  nova bucket create demo --default-class express --create-on-append
  nova bucket list --output json";

pub(super) const BUCKET_CREATE: &str = "\
Examples:
  nova bucket create demo --default-class express --create-on-append
  nova bucket create logs --default-class express --default-throughput-max-bytes-per-second 1MiB
  nova bucket create jobs --creation-token deploy-7   # again with the same token: the same bucket

Its streams are standard, acked from the standard store, unless --default-class says express: acked from the star's disk.";

pub(super) const BUCKET_ENSURE: &str = "\
Examples:
  nova bucket ensure demo --default-class express --create-on-append

Ensure changes nothing of a bucket that exists: see 'nova bucket update'.";

pub(super) const BUCKET_GET: &str = "\
Examples:
  nova bucket get demo
  nova bucket get demo --output json";

pub(super) const BUCKET_UPDATE: &str = "\
Examples:
  nova bucket update demo --create-on-read
  nova bucket update demo --create-on-append=false --default-retention-max-bytes 0";

pub(super) const BUCKET_DELETE: &str = "\
Examples:
  nova bucket delete demo";

pub(super) const BUCKET_LIST: &str = "\
Examples:
  nova bucket list
  nova bucket list --after demo --limit 10";

pub(super) const STREAM: &str = "\
Examples:
  nova stream create nova://demo/orders/eu --producer-policy fenced
  nova stream list demo";

pub(super) const STREAM_CREATE: &str = "\
Examples:
  nova stream create nova://demo/events
  nova stream create nova://demo/orders/eu --class express --producer-policy fenced";

pub(super) const STREAM_GET: &str = "\
Examples:
  nova stream get nova://demo/events
  nova stream get nova://demo/events --output json";

pub(super) const STREAM_RECONFIGURE: &str = "\
Examples:
  nova stream reconfigure nova://demo/events --retention-max-bytes 1GiB
  nova stream reconfigure nova://demo/events --retention-max-bytes 0 --producer-policy fenced";

pub(super) const STREAM_DELETE: &str = "\
Examples:
  nova stream delete nova://demo/events";

pub(super) const STREAM_LIST: &str = "\
Examples:
  nova stream list demo
  nova stream list demo --limit 100 --output json";

pub(super) const APPEND: &str = "\
Examples:
  printf 'x\\n' | nova append nova://demo/events
  nova append nova://demo/log < /var/log/syslog
  printf 'x\\n' | nova append nova://demo/events --fencing-token gen-42
  printf 'x\\n' | nova append nova://demo/events --match-seq-num 0
  echo '{\"headers\":[[\"kind\",\"order\"]],\"body\":\"x\"}' | nova append nova://demo/events --format json
  nova read nova://demo/a --output json --base64 | nova append nova://demo/b --format json --base64

A record is a line without its newline, an empty one too, of at most 1 MiB; what is not lines goes in
as base64. With --format json it takes what read prints, and passes over the sequence numbers.
Everything goes through one session, in order. What is acked is durable, also when the command then
fails: it says how many records are.";

pub(super) const READ: &str = "\
Examples:
  nova read nova://demo/events
  nova read nova://demo/events --last 10
  nova read nova://demo/events --from 1000 --limit 50 --output json
  nova read nova://demo/events --from-ms 1767225600000 --until-ms 1767312000000";

pub(super) const SUBSCRIBE: &str = "\
Examples:
  nova subscribe nova://demo/events
  nova subscribe nova://demo/events --last 10
  nova subscribe nova://demo/events --limit 1 --output json

It goes on after a broken connection where it was, and ends at --limit, at an interrupt or when the
reader of its output ends, all with exit code 0.";

pub(super) const TAIL: &str = "\
Examples:
  nova tail nova://demo/events
  nova tail nova://demo/events --output json";

pub(super) const TRIM: &str = "\
Examples:
  nova trim nova://demo/events 1000
  nova trim nova://demo/events --from-ms 1767225600000

The trim point never moves back, and never past the tail; it is printed as it stands.";

pub(super) const FENCE: &str = "\
Examples:
  nova fence nova://demo/events gen-42
  nova fence nova://demo/events          # clears

It prints the tail: everything below came in under the token before.";

pub(super) const TOKEN: &str = "\
Examples:
  nova token nova://demo/events
  nova append nova://demo/events --fencing-token \"$(nova token nova://demo/events)\" < more";

pub(super) const STAR: &str = "\
Examples:
  nova star
  nova star --output json";

pub(super) const BENCH: &str = "\
Examples:
  nova bench append --streams 1000 --connections 16 --duration 10s
  nova bench disk --dir ./nova-data
  nova bench net
  nova bench subscribe";

pub(super) const BENCH_APPEND: &str = "\
Examples:
  nova bench append --window 1 --duration 5s
  nova bench append --connections 16 --streams 1000 --output json
  nova bench append --records-per-batch 100 --connections 4
  nova bench append --rate 5000 --with-floors ./nova-data";

pub(super) const BENCH_DISK: &str = "\
Examples:
  nova bench disk --dir ./nova-data
  nova bench disk --sizes 4KiB,64KiB --duration 2s --output json";

pub(super) const BENCH_NET: &str = "\
Examples:
  nova bench net
  nova bench net --connections 16 --window 16";

pub(super) const BENCH_SUBSCRIBE: &str = "\
Examples:
  nova bench subscribe
  nova bench subscribe --rate 2000 --duration 5s --output json";

pub(super) const COMPLETIONS: &str = "\
Examples:
  nova completions bash > ~/.local/share/bash-completion/completions/nova
  nova completions zsh > ~/.zfunc/_nova
  nova completions fish > ~/.config/fish/completions/nova.fish";

pub(super) const MAN: &str = "\
Examples:
  nova man ~/.local/share/man/man1
  man nova-append";
