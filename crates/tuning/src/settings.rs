//! What may an operator choose, and what does each choice trade?
//!
//! A new setting is one line in a `settings!` block here and the line that reads it: its key in
//! the file, its `NOVA_…` variable, its flag, its check and its row in `docs/settings.md` follow.
//! A number that no operator can choose well is a constant beside its use, not a setting.

mod kinds;
mod layers;
mod table;

use std::net::SocketAddr;
use std::path::PathBuf;

pub use kinds::{BlockCache, Listener, LogSync, NoListener, S3Checksum, S3Endpoint, S3Region, StoreAddress};
pub use layers::{Choice, Layers, Loaded, Origin, SettingsError};
pub use table::Setting;

use crate::units::{Bytes, Millis};

/// Most shards of a star.
pub const SHARDS_MAX: u16 = 64;

table::settings! {
    /// Everything that an operator may choose for one `novad`.
    Settings under "" {
        /// Directory of everything that this star keeps. It must lie on a local file system that
        /// honours direct I/O; only one process may use it at a time.
        data: PathBuf = PathBuf::from("nova-data");
        /// Address that the wire listens on. Anything but loopback is reachable by others, and is
        /// refused unless `insecure` says so.
        listen: SocketAddr = SocketAddr::from(([127, 0, 0, 1], 7781));
        /// Address that HTTP listens on, for curl, browsers and every HTTP client; `off` is none. Anything but loopback is
        /// reachable by others, and is refused unless `insecure` says so.
        http: Listener = Listener::At(SocketAddr::from(([127, 0, 0, 1], 8080)));
        /// HTTP connections held at once, subscribers among them; one more is answered 503. Each costs a descriptor and
        /// some 20 KiB. It holds for those of S2's clients too, beside them.
        http_connections_max: u32 = 4_096, 16 => 1_000_000;
        /// Address of the façade for S2's clients; `off` is none. Anything but loopback is reachable by others, and is refused
        /// unless `insecure` says so.
        s2: Listener = Listener::Off;
        /// Threads that serve streams, each pinned to a core; 0 is one a core less one for the
        /// background, and at least one. More spread the load, but leave fewer cores to the rest.
        shards: u16 = 0, 0 => SHARDS_MAX;
        /// Serve on an address that others can reach although there is no access control: whoever
        /// reaches it may read and write everything.
        insecure: bool = false;
        /// Where the standard store is: a local directory or `s3://bucket/prefix`; `in-data` is
        /// the folder `store` of the data directory, which shares the fate of its disk.
        store: StoreAddress = StoreAddress::InData;
        /// Bytes of this host's disk that keep blocks of settled records which left memory, so that they are read again without
        /// the store; 0 keeps none. `auto` is none where the store is a directory, which is as near, and on S3 4GiB, or a
        /// sixteenth of what the disk has free if that is less. They are taken at the start, and hold nothing then.
        block_cache_bytes: BlockCache = BlockCache::Auto;
        /// Connections that one shard holds at once; one more is closed as soon as it is accepted.
        /// Each costs a descriptor and a few KiB.
        connections_max: u32 = 4_096, 16 => 1_000_000;
        /// Batches that a session may have in flight, told to the client at the handshake. More
        /// hide a longer round trip; a stream remembers the answers of no more than 16, so that a
        /// reconnect can resend them all without storing one twice.
        append_window: u32 = wire::limits::APPEND_WINDOW_DEFAULT, 1 => 16;
        /// Silence on a connection after which the server pings, in milliseconds; after three of
        /// them unanswered it closes. Shorter finds dead peers sooner and wakes idle ones more.
        keepalive_ms: Millis = Millis::seconds(15), Millis::seconds(1) => Millis::seconds(600);
        /// Time from SIGTERM in which clients may finish before their connections are closed, in
        /// milliseconds. novad ends 2 s later at most, also when the store is away; what was acked is
        /// safe either way.
        drain_timeout_ms: Millis = Millis::seconds(10), Millis::new(0) => Millis::seconds(600);
    }
    sections {
        /// The head log of each shard.
        log: Log;
        /// The memory of shards and of the background.
        memory: Memory;
        /// How records get into the standard store, and leave it.
        settle: Settle;
        /// A store on S3.
        s3: S3;
        /// The time of each shard.
        shares: Shares;
    }
}

table::settings! {
    /// The head log of each shard.
    Log under "log." {
        /// Bytes of one segment file. Larger segments roll less often; smaller ones are zeroed ahead
        /// in shorter bursts.
        segment_bytes: Bytes = Bytes::mib(64), Bytes::mib(8) => Bytes::gib(1);
        /// Bytes that one shard's head log may take on disk, as far as the disk has room. Past it, and when the disk is full,
        /// appends are answered `resource_exhausted` until what is settled or deleted gives its room back.
        bytes_max: Bytes = Bytes::gib(64), Bytes::mib(32) => Bytes::gib(16_384);
        /// Commits that are on their way to the disk at once. Two keep it busy while the next one
        /// gathers; more mostly write more padding. Unset, it is what `nova host disk` has found on this disk.
        commits_in_flight: u16 = 2, 1 => 8;
        /// How a commit is made durable: `dsync` is one write, `fdatasync` a write and a flush.
        /// Each wins on some hosts. Unset, it is what `nova host disk` has found on this disk.
        sync: LogSync = LogSync::Dsync;
        /// Commit with one blocking write when a shard has nothing else to do. It shortens the ack
        /// of a lone writer, and holds up the shard's other work for the length of one write. Unset, it
        /// is what `nova host disk` has found on this disk.
        inline_commit: bool = true;
    }
    sections {}
}

table::settings! {
    /// How records get into the standard store, and leave it.
    Settle under "settle." {
        /// How long an Express record waits at most for others before they are put into the store together, in milliseconds.
        /// Longer means fewer and larger objects; until a record is settled, this star's disk alone holds it.
        age_ms: Millis = Millis::seconds(1), Millis::new(10) => Millis::seconds(60);
        /// Objects a second that are put although they are not full; 0 is 20 on S3, where each costs money, and as many as come
        /// on a directory. Fewer cost less, and let a Standard record wait longer for its ack.
        puts_per_second_max: u32 = 0, 0 => 10_000;
        /// How long an Express record may be on this star's disk alone, in milliseconds, when the store takes nothing; past it,
        /// counted from this start on, Express appends are answered `resource_exhausted`. The other bound is `log.bytes_max`.
        backlog_age_max_ms: Millis = Millis::seconds(86_400), Millis::seconds(1) => Millis::seconds(2_592_000);
        /// How long an object that holds nothing any more stays in the store, in milliseconds: longer than any read of it
        /// takes. Shorter gives room back sooner.
        grace_ms: Millis = Millis::seconds(3_600), Millis::new(100) => Millis::seconds(604_800);
    }
    sections {}
}

table::settings! {
    /// The memory of shards and of the background.
    Memory under "memory." {
        /// Bytes of records that one shard holds at once: the ring, and batches that a bound of
        /// their stream holds back. Past it those batches are answered `resource_exhausted`.
        shard_bytes_max: Bytes = Bytes::mib(512), Bytes::mib(64) => Bytes::gib(256);
        /// Bytes of committed batches that one shard keeps for readers near the tail, within
        /// `memory.shard_bytes_max`. Readers further behind are served from disk.
        ring_bytes_max: Bytes = Bytes::mib(128), Bytes::mib(1) => Bytes::gib(128);
        /// Bytes that the background takes, for all shards together: blocks of settled records and of the index, rows and
        /// chunks on their way to the store, copies and answers under way. Less means smaller chunks and more reads of the store.
        control_bytes_max: Bytes = Bytes::mib(512), Bytes::mib(64) => Bytes::gib(256);
    }
    sections {}
}

table::settings! {
    /// A store on S3. The credentials are those of the environment: AWS_ACCESS_KEY_ID and
    /// AWS_SECRET_ACCESS_KEY, else a profile, a web identity, or the instance's role.
    S3 under "s3." {
        /// Where the store answers: `aws`, or the URL of another one that speaks S3.
        endpoint: S3Endpoint = S3Endpoint::Aws;
        /// Region that requests are signed for; `auto` is the one of the environment, the profile or
        /// the instance, else us-east-1, which most stores that are not AWS expect.
        region: S3Region = S3Region::Auto;
        /// Name the bucket in the path rather than in the host. Every store takes it; an address in
        /// the host needs DNS names for buckets, and is what AWS prefers.
        path_style: bool = true;
        /// Checksum that goes with each object and that the store checks. nova checks its own when it
        /// reads; some stores that are not AWS refuse them, and want `none`.
        checksum: S3Checksum = S3Checksum::Crc32c;
        /// Sign the bytes of objects also where TLS protects them, at about 1 ms of CPU a MiB. Without
        /// TLS they are always signed.
        sign_payload: bool = false;
        /// Time in which the store must answer one request, in milliseconds, and 250 more for each MiB
        /// of it. A request is repeated until four times this is over. Shorter finds a request that got
        /// stuck sooner; too short repeats those that were only slow.
        attempt_timeout_ms: Millis = Millis::seconds(5), Millis::new(100) => Millis::seconds(120);
    }
    sections {}
}

table::settings! {
    /// How a shard's time is divided among kinds of work, when several have work to do: each gets what its share is of the shares of those.
    /// Time that others don't want is anybody's.
    Shares under "shares." {
        /// Share of appends, of what else changes a stream, and of their answers, in a shard's time: kinds of work divide it by their shares
        /// where several have work to do, and what one leaves is the others'. Appends are never put off, and have work also while they wait for
        /// their commit; a larger share puts the others off for longer.
        append: u16 = 400, 1 => 1_000;
        /// Share of records from memory, to readers and subscribers. What commits goes to subscribers at the tail at once, whatever this says.
        read: u16 = 800, 1 => 1_000;
        /// Share of records that left memory, to readers who are behind. Less keeps them from appends and takes them longer.
        catch_up: u16 = 400, 1 => 1_000;
        /// Share of what brings records into the standard store and forgets what is there. Too little lets the backlog grow, until appends are
        /// refused.
        settle: u16 = 400, 1 => 1_000;
        /// Share of buckets, lists, and what the star tells of itself.
        admin: u16 = 100, 1 => 1_000;
    }
    sections {}
}

impl Settings {
    /// Every setting there is, in the order of the documentation.
    pub fn all() -> impl Iterator<Item = &'static Setting> {
        Self::ROWS.iter().chain(Log::ROWS).chain(Memory::ROWS).chain(Settle::ROWS).chain(S3::ROWS).chain(Shares::ROWS)
    }

    /// Connections of HTTP and of S2's clients, at most.
    #[must_use]
    pub fn surface_connections_max(&self) -> u32 {
        let surfaces = [self.http, self.s2].iter().filter_map(|listener| listener.addr()).count();
        u32::try_from(surfaces).unwrap_or(u32::MAX).saturating_mul(self.http_connections_max)
    }

    /// The value of a setting by its name in the file, as text that reads back as itself.
    #[must_use]
    pub fn show(&self, setting: &Setting) -> String {
        self.shown(setting.name).unwrap_or_default()
    }
}

#[cfg(test)]
mod tests;
