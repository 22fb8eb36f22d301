//! Which examples stand below the help of the commands of `nova host`?

pub(in crate::nova) const HOST: &str = "\
Examples:
  nova host check
  nova host plan --data /var/lib/nova > /etc/nova/novad.toml
  nova host apply --dry-run
  nova host apply --only swap,scheduler
  nova host restore
  nova host selftest

docs/host.md goes through all of it.";

pub(super) const CHECK: &str = "\
Examples:
  nova host check
  nova host check --data /var/lib/nova --shards 4
  nova host check --config /etc/nova/novad.toml --output json
  docker run -v /:/host:ro … nova host check --root /host

Each item stands for itself; one that can't be read is unknown, with the reason. Nothing is changed. Exit codes: 0 when nothing
that is off is worse than info, 1 when something is a warning, 4 when something is fatal.";

pub(super) const EXPLAIN: &str = "\
Examples:
  nova host explain swap
  nova host explain interrupt-cpus";

pub(super) const PLAN: &str = "\
Examples:
  nova host plan
  nova host plan --data /var/lib/nova > /etc/nova/novad.toml && novad --config /etc/nova/novad.toml --check
  nova host plan --goal throughput
  nova host plan --output json

CPUs for interrupts come first, then those of the background, then a shard each on what is left. Where cores have several
threads, --goal latency gives a shard a core, --goal throughput a thread.";

pub(super) const APPLY: &str = "\
Examples:
  nova host apply --dry-run
  nova host apply
  nova host apply --only swap,scheduler,interrupt-cpus
  nova host apply --journal ./journal

Only files of /proc and /sys are written; a restart of the host undoes all of it, so `nova host systemd` prints a unit that does it at
each start. Each change is noted, durable, before it is made. Exit code 1: the host refused some of it, and each says why.";

pub(super) const RESTORE: &str = "\
Examples:
  nova host restore

What somebody else has changed since is left as it is, and told. It may be interrupted, and run again.";

pub(super) const SCRIPT: &str = "\
Examples:
  nova host script tune.sh
  nova host script - | less
  sudo sh tune.sh
  sudo sh tune.sh undo
  nova host script --sysctl 90-nova.conf     # for /etc/sysctl.d; what is no sysctl is left out";

pub(super) const SYSTEMD: &str = "\
Examples:
  nova host systemd
  nova host systemd --config-file /etc/nova/novad.toml --user nova --bin-dir /usr/local/bin
  nova host systemd --data /mnt/fast/nova --store /mnt/store --dir /etc/systemd/system
  nova host systemd --any-host

The third unit is for a host with a gateway and no star. --any-host makes what lies in tuning/systemd of the sources.";

pub(super) const DISK: &str = "\
Examples:
  nova host disk --data /var/lib/nova
  nova host disk --data /var/lib/nova --duration 2s --output json

Writes in place and through a ring, by O_DSYNC and by fdatasync, one and several at once. What is found is kept beside the data
directory, as NAME.disk.json: novad goes by it where log.sync, log.inline_commit and log.commits_in_flight are not set, and `nova host
plan` writes it down.";

pub(super) const SELFTEST: &str = "\
Examples:
  nova host selftest --data /var/lib/nova
  nova host selftest --store s3://bucket/prefix
  nova host selftest --output json

It opens rings as shards do, and works below bench/ of the store, removing what it made. Exit code 4: something that novad needs does
not work here.";

pub(super) const TOP: &str = "\
Examples:
  nova host top
  nova host top --http 10.0.0.7:8080 --interval 5s
  nova host top --once --output json

It reads /metrics of novad's HTTP, or of a gateway's. Times are means of the appends of one interval. It ends at an interrupt.";
