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
  nova bench store --store /var/lib/nova-store
  nova bench read --streams 1000 --readers 4
  nova bench subscribe";

pub(super) const BENCH_APPEND: &str = "\
Examples:
  nova bench append --window 1 --duration 5s
  nova bench append --connections 16 --streams 1000 --output json
  nova bench append --records-per-batch 100 --connections 4
  nova bench append --rate 5000 --with-floors ./nova-data
  nova bench append --class standard --streams 1000 --connections 16 --with-floors . --store ./nova-store
  nova bench append --rate 5000 --arrivals poisson --html run.html --csv run.csv --hlog run.hlog --json run.json
  nova bench append --rate 1000 --arrivals burst:20000/100ms/1s --connections 16
  nova bench append --sizes uniform:100..4KiB --spread zipf:1.1 --streams 1000 --conditional
  nova bench append --class express,standard --streams 1000 --connections 16
  nova bench append --rate 5000 --start-at 2026-12-01T10:00:00Z --json one.json   # on each of several hosts: see nova bench merge
  nova bench append --one-shot --streams 10000000 --connections 16          # makes many streams
  nova bench append --streams 10000000 --active-share 0.01 --connections 16 # and appends to some";

pub(super) const BENCH_DISK: &str = "\
Examples:
  nova bench disk --dir ./nova-data
  nova bench disk --sizes 4KiB,64KiB --duration 2s --output json";

pub(super) const BENCH_NET: &str = "\
Examples:
  nova bench net
  nova bench net --connections 16 --window 16";

pub(super) const BENCH_STORE: &str = "\
Examples:
  nova bench store --store ./nova-store
  nova bench store --store s3://bucket/prefix --sizes 64KiB,8MiB --depths 1,8,32
  nova bench store --store s3://bucket/prefix --s3-endpoint http://127.0.0.1:9000 --output json

A put makes an object that is not there yet, as novad makes a chunk; the gets read those objects, whole, in order. It works
below bench/ of the store and removes what it made. Gets from a directory may come from the host's page cache.";

pub(super) const BENCH_READ: &str = "\
Examples:
  nova bench append --streams 100 --connections 4 --record-bytes 4KiB   # something to read
  nova bench read --streams 100 --readers 4
  nova bench read --streams 100 --readers 4 --by pages --output json
  nova bench read --readers 0 --slow-readers 1 --slow-rate 10 --duration 30s   # beside an append

A stream is read from --from to the tail that it has when its turn comes; every batch's sum is checked.";

pub(super) const BENCH_RECOVER: &str = "\
Examples:
  nova bench recover --start --data ./recover-data --duration 10s -- --shards 1
  nova bench recover --start --data ./recover-data --class standard --rounds 5 --output json

It starts a star, appends, kills it as a crash would, and starts it again on the same data, round after round.";

pub(super) const BENCH_SETTLE: &str = "\
Examples:
  nova bench settle
  nova bench settle --streams 100 --rate 1000 --duration 30s --output json

Of Express streams: from the ack of a record until its stream tells that it is settled past it, seen by asking.";

pub(super) const BENCH_SOAK: &str = "\
Examples:
  nova bench soak --duration 2h --rate 2000 --streams 1000 --pid \"$(pidof novad)\" --data ./nova-data
  nova bench soak --start --data ./soak-data --duration 30m --retention 1m -- --shards 1
  nova bench soak --duration 10m --window 10s --retention 30s --output json

Appends at a constant rate, reads, trims, streams that come and go, and retention by age, all at once. A line a window; at the
end a verdict on memory, files, objects, bytes and p99, each flat or not by a least-squares line over the windows after the
warm-up. Witness streams are read back record by record. Exit code 1: something grew, or a record was not what was acked. The
log of a star that it starts is beside the data directory.";

pub(super) const BENCH_COMPARE: &str = "\
Examples:
  nova bench append --json before.json ; nova bench append --json after.json
  nova bench compare before.json after.json
  nova bench compare before.json after.json --p99-max 10 --output json

Rates, p50, p90, p99 and p99.9 are judged, what lies beyond is told. Exit code 4: something is worse by more than it may be.";

pub(super) const BENCH_MERGE: &str = "\
Examples:
  at=$(date -u -d '+30 seconds' +%FT%TZ)
  ssh one nova bench append --addr star:7781 --rate 5000 --key-prefix one --start-at $at --json /tmp/one.json &
  ssh two nova bench append --addr star:7781 --rate 5000 --key-prefix two --start-at $at --json /tmp/two.json &
  wait; scp one:/tmp/one.json two:/tmp/two.json .
  nova bench merge one.json two.json --json all.json --html all.html

Rates add up and histograms are merged, so that quantiles are those of all samples; warnings stay with their generator. Each starts by
the clock of its own host, which a service must keep. Reports of other versions, starts, durations or loads are refused; they may differ in
--addr, --bucket, --key-prefix, --seed, --threads and --cpus. Quantiles of single seconds are withheld. `nova bench compare` takes the result.";

pub(super) const BENCH_FIND_MAX: &str = "\
Examples:
  nova bench find-max --p99-max 5ms --connections 16 --streams 100
  nova bench find-max --p99-max 50ms --class standard --connections 16 --rate 500 --duration 5s

It doubles the rate from --rate on until p99 is too long, an append is refused or never sent, then goes by halves between the last
two; --warm-up and --duration are those of one trial.";

pub(super) const BENCH_PEER: &str = "\
Examples:
  redis-server --appendonly yes --appendfsync always --save '' &
  nova bench peer redis --connections 16 --window 4 --streams 16 --json redis.json
  nova bench append --connections 16 --window 4 --streams 16 --json nova.json
  nova bench compare redis.json nova.json
  nova bench peer nats --streams 16 --connections 16
  nova bench peer s2-lite --at 127.0.0.1:8080 --connections 64

The generator is the one that appends to nova; it speaks the peer's own protocol. The report tells how the peer must be started for
its acks to be durable, and what it says it does.";

pub(super) const BENCH_VERIFY: &str = "\
Examples:
  nova bench verify --journal ./acks --duration 1m
  nova bench verify --journal ./acks --duration 0s     # only checks what an earlier run wrote
  nova bench verify --journal ./acks --start --data ./verify-data --kill-every 5s --duration 1m -- --shards 1

Every record is chained to the one before it; every ack is on this disk before it counts. Writers race each other, change fencing
tokens and try the old ones; readers go along; at the end every stream is read from its first record. Loss, doubles, reorder, gaps,
wrong bodies, late appends, two winners, records read and then lost, wrong tails and stamps out of order are told by stream.";

pub(super) const BENCH_SUBSCRIBE: &str = "\
Examples:
  nova bench subscribe
  nova bench subscribe --rate 2000 --duration 5s --output json
  nova bench subscribe --subscribers 1000 --sse 127.0.0.1:8080 --rate 1000 --record-bytes 64";

pub(super) const GATEWAY: &str = "\
Examples:
  nova gateway --addr 10.0.0.7:7781
  nova gateway --addr star-1:7781,star-2:7781 --http 127.0.0.1:9000
  curl http://127.0.0.1:8080/v1/buckets";

pub(super) const COMPLETIONS: &str = "\
Examples:
  nova completions bash > ~/.local/share/bash-completion/completions/nova
  nova completions zsh > ~/.zfunc/_nova
  nova completions fish > ~/.config/fish/completions/nova.fish";

pub(super) const MAN: &str = "\
Examples:
  nova man ~/.local/share/man/man1
  man nova-append";
