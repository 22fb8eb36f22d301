//! What can be said on the command line of `nova`?

use std::path::PathBuf;
use std::time::Duration;

use clap::builder::BoolishValueParser;
use clap::{ArgGroup, Args, Parser, Subcommand, ValueEnum};
use tuning::settings::Listener;
use wire::limits::{LINGER_MS_MAX, LIST_PAGE_MAX};
use wire::names::{Address, BucketName, FencingToken};

use super::bench::BenchCommand;
use super::fields::ConfigFlags;
use super::help;
use super::host::{HOST, HostCommand};

/// Append to, read and follow durable streams, and look after them.
#[derive(Debug, Parser)]
#[command(
    name = "nova",
    version,
    after_help = help::NOVA,
    subcommand_required = true,
    arg_required_else_help = true,
    max_term_width = 110
)]
pub(super) struct Nova {
    #[command(flatten)]
    pub(super) global: Global,
    #[command(subcommand)]
    pub(super) command: Command,
}

/// What every command takes.
#[derive(Debug, Clone, Args)]
pub(super) struct Global {
    /// Where the star listens, or the URL of a gateway; several, with commas, are tried in turn
    #[arg(
        long,
        global = true,
        env = "NOVA_ADDR",
        value_name = "HOST:PORT|URL",
        default_value = "127.0.0.1:7781",
        value_delimiter = ',',
        num_args = 1,
        help_heading = "Global options"
    )]
    pub(super) addr: Vec<String>,
    /// How answers look: for people, or JSON with an object a line
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "FORMAT",
        default_value = "text",
        help_heading = "Global options"
    )]
    pub(super) output: Output,
}

/// How answers look.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Output {
    /// For people.
    Text,
    /// One JSON object, or one a line.
    Json,
}

#[derive(Debug, Subcommand)]
pub(super) enum Command {
    /// Make, look at, change, delete and list buckets
    #[command(subcommand, after_help = help::BUCKET)]
    Bucket(BucketCommand),
    /// Make, look at, reconfigure, delete and list streams
    #[command(subcommand, after_help = help::STREAM)]
    Stream(StreamCommand),
    /// Append stdin to a stream, a record a line
    #[command(after_help = help::APPEND)]
    Append(Append),
    /// Read a stream up to its tail
    #[command(after_help = help::READ)]
    Read(Read),
    /// Read a stream and follow it as records commit
    #[command(after_help = help::SUBSCRIBE)]
    Subscribe(Subscribe),
    /// Print the next sequence number and the last record's stamp
    #[command(after_help = help::TAIL)]
    Tail(Stream),
    /// Remove records from the front of a stream
    #[command(after_help = help::TRIM)]
    Trim(Trim),
    /// Install, rotate or clear a stream's fencing token
    #[command(after_help = help::FENCE)]
    Fence(Fence),
    /// Print a stream's fencing token; empty when none is installed
    #[command(after_help = help::TOKEN)]
    Token(Stream),
    /// Show what a star is and what its shards count
    #[command(after_help = help::STAR)]
    Star,
    /// Measure a star, and the disk and network beneath it
    #[command(subcommand, after_help = help::BENCH)]
    Bench(Box<BenchCommand>),
    /// Serve a star over HTTP from here, for clients that can't reach it
    #[command(after_help = help::GATEWAY)]
    Gateway(Gateway),
    /// Look at a host, make it as nova wants it, and lay a star over it
    #[command(subcommand, after_help = HOST)]
    Host(HostCommand),
    /// Print the completions of a shell
    #[command(after_help = help::COMPLETIONS)]
    Completions(Completions),
    /// Write the manual pages of nova and novad into a directory
    #[command(after_help = help::MAN)]
    Man(Man),
}

#[derive(Debug, Subcommand)]
pub(super) enum BucketCommand {
    /// Make a bucket
    #[command(after_help = help::BUCKET_CREATE)]
    Create(BucketMake),
    /// Make a bucket, or take the one there is as it is
    #[command(after_help = help::BUCKET_ENSURE)]
    Ensure(BucketMake),
    /// Show a bucket
    #[command(after_help = help::BUCKET_GET)]
    Get(Bucket),
    /// Change a bucket: flags act at once, defaults govern streams made later
    #[command(after_help = help::BUCKET_UPDATE)]
    Update(BucketUpdate),
    /// Delete a bucket that holds no stream
    #[command(after_help = help::BUCKET_DELETE)]
    Delete(Bucket),
    /// List buckets by name
    #[command(after_help = help::BUCKET_LIST)]
    List(Page),
}

#[derive(Debug, Subcommand)]
pub(super) enum StreamCommand {
    /// Make a stream; what is not said, or zero, comes from the bucket's defaults
    #[command(after_help = help::STREAM_CREATE)]
    Create(StreamConfigure),
    /// Show a stream
    #[command(after_help = help::STREAM_GET)]
    Get(Stream),
    /// Change a stream: what is not said is untouched, zero is zero
    #[command(after_help = help::STREAM_RECONFIGURE)]
    Reconfigure(StreamConfigure),
    /// Delete a stream; deleting what is not there succeeds
    #[command(after_help = help::STREAM_DELETE)]
    Delete(Stream),
    /// List the streams of a bucket by key
    #[command(after_help = help::STREAM_LIST)]
    List(StreamList),
}

/// A bucket by its name.
#[derive(Debug, Args)]
pub(super) struct Bucket {
    /// The bucket's name
    #[arg(value_name = "BUCKET", value_parser = bucket_name)]
    pub(super) name: BucketName,
}

#[derive(Debug, Args)]
pub(super) struct BucketMake {
    #[command(flatten)]
    pub(super) bucket: Bucket,
    #[command(flatten)]
    pub(super) switches: BucketSwitches,
    /// Where its data should live, in words of your own
    #[arg(long, value_name = "TEXT", default_value = "", hide_default_value = true)]
    pub(super) location: String,
    /// Who says the same token may create it again and gets this one
    #[arg(long, value_name = "TOKEN", default_value = "", hide_default_value = true)]
    pub(super) creation_token: String,
    #[command(flatten)]
    pub(super) defaults: ConfigFlags<true>,
}

#[derive(Debug, Args)]
pub(super) struct BucketUpdate {
    #[command(flatten)]
    pub(super) bucket: Bucket,
    #[command(flatten)]
    pub(super) switches: BucketSwitches,
    #[command(flatten)]
    pub(super) defaults: ConfigFlags<true>,
}

/// When a bucket makes streams by itself.
#[derive(Debug, Args)]
pub(super) struct BucketSwitches {
    /// Make a stream on its first append
    #[arg(
        long,
        value_name = "BOOL",
        value_parser = BoolishValueParser::new(),
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        hide_possible_values = true
    )]
    pub(super) create_on_append: Option<bool>,
    /// Make a stream on its first read or subscription
    #[arg(
        long,
        value_name = "BOOL",
        value_parser = BoolishValueParser::new(),
        num_args = 0..=1,
        require_equals = true,
        default_missing_value = "true",
        hide_possible_values = true
    )]
    pub(super) create_on_read: Option<bool>,
}

/// Which rows of a list.
#[derive(Debug, Args)]
pub(super) struct Page {
    /// Start after this cursor, as the list before told it on stderr
    #[arg(long, value_name = "CURSOR", default_value = "", hide_default_value = true)]
    pub(super) after: String,
    /// End after so many; without it the list goes to its end
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) limit: Option<u64>,
}

impl Page {
    /// Rows to ask for when `shown` have been shown; 0 when none is wanted any more.
    pub(super) fn next_rows(&self, shown: u64) -> u32 {
        let wanted = self.limit.unwrap_or(u64::MAX).saturating_sub(shown);
        u32::try_from(wanted).unwrap_or(u32::MAX).min(LIST_PAGE_MAX)
    }
}

/// A stream by its address.
#[derive(Debug, Args)]
pub(super) struct Stream {
    /// The stream's address
    #[arg(value_name = "nova://BUCKET/KEY")]
    pub(super) address: Address,
}

#[derive(Debug, Args)]
pub(super) struct StreamConfigure {
    #[command(flatten)]
    pub(super) stream: Stream,
    #[command(flatten)]
    pub(super) config: ConfigFlags<false>,
}

#[derive(Debug, Args)]
pub(super) struct StreamList {
    #[command(flatten)]
    pub(super) bucket: Bucket,
    #[command(flatten)]
    pub(super) page: Page,
}

/// How a line is a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(super) enum Format {
    /// The line is the body.
    Lines,
    /// The line is an object with `body`, and with `headers` and `timestamp_ms` if it has any.
    Json,
}

#[derive(Debug, Args)]
pub(super) struct Append {
    #[command(flatten)]
    pub(super) stream: Stream,
    /// What a line is
    #[arg(long, value_enum, value_name = "FORMAT", default_value = "lines")]
    pub(super) format: Format,
    /// With --format json: bodies, header names and header values are base64
    #[arg(long)]
    pub(super) base64: bool,
    /// Present this fencing token
    #[arg(long, value_name = "TOKEN", value_parser = token)]
    pub(super) fencing_token: Option<FencingToken>,
    /// Append only if the first record gets this sequence number, and each batch right after the one before
    #[arg(long, value_name = "N")]
    pub(super) match_seq_num: Option<u64>,
    /// Wait so many milliseconds for a fuller batch
    #[arg(
        long,
        value_name = "MS",
        default_value = "0",
        value_parser = linger
    )]
    pub(super) linger: Duration,
}

/// Where a read or a subscription starts; the first record that is still there when nothing is said.
#[derive(Debug, Args)]
#[command(group = ArgGroup::new("start").multiple(false))]
pub(super) struct Start {
    /// Start at this sequence number [default: the first there is]
    #[arg(long, value_name = "SEQ_NUM", group = "start")]
    pub(super) from: Option<u64>,
    /// Start at the first record stamped at or after these milliseconds
    #[arg(long, value_name = "MS", group = "start", allow_negative_numbers = true)]
    pub(super) from_ms: Option<i64>,
    /// Start at the last N records
    #[arg(long, value_name = "N", group = "start")]
    pub(super) last: Option<u64>,
    /// Pull a start that was trimmed, or lies past the tail, into range
    #[arg(long)]
    pub(super) clamp: bool,
}

#[derive(Debug, Args)]
pub(super) struct Read {
    #[command(flatten)]
    pub(super) stream: Stream,
    #[command(flatten)]
    pub(super) start: Start,
    /// End after so many records
    #[arg(long, value_name = "N")]
    pub(super) limit: Option<u64>,
    /// End before the first record stamped at or after these milliseconds
    #[arg(long, value_name = "MS", allow_negative_numbers = true)]
    pub(super) until_ms: Option<i64>,
    /// With --output json: print bodies, header names and header values as base64
    #[arg(long)]
    pub(super) base64: bool,
}

#[derive(Debug, Args)]
pub(super) struct Subscribe {
    #[command(flatten)]
    pub(super) stream: Stream,
    #[command(flatten)]
    pub(super) start: Start,
    /// End after so many records
    #[arg(long, value_name = "N")]
    pub(super) limit: Option<u64>,
    /// With --output json: print bodies, header names and header values as base64
    #[arg(long)]
    pub(super) base64: bool,
}

#[derive(Debug, Args)]
#[command(group = ArgGroup::new("to").required(true).multiple(false))]
pub(super) struct Trim {
    #[command(flatten)]
    pub(super) stream: Stream,
    /// Remove the records below this sequence number
    #[arg(value_name = "SEQ_NUM", group = "to")]
    pub(super) seq_num: Option<u64>,
    /// Remove the records before the first one stamped at or after these milliseconds
    #[arg(long, value_name = "MS", group = "to", allow_negative_numbers = true)]
    pub(super) from_ms: Option<i64>,
}

#[derive(Debug, Args)]
pub(super) struct Fence {
    #[command(flatten)]
    pub(super) stream: Stream,
    /// The token to install; with none the installed one is cleared
    #[arg(value_name = "TOKEN", default_value = "", hide_default_value = true, value_parser = token)]
    pub(super) token: FencingToken,
}

#[derive(Debug, Args)]
pub(super) struct Gateway {
    /// Where HTTP listens; port 0 is any that is free, and is printed
    #[arg(long, value_name = "HOST:PORT", default_value = "127.0.0.1:8080")]
    pub(super) http: Listener,
    /// Where S2's clients are served
    #[arg(long, value_name = "HOST:PORT", default_value = "off")]
    pub(super) s2: Listener,
    /// Serve on an address that others can reach although there is no access control
    #[arg(long)]
    pub(super) insecure: bool,
}

#[derive(Debug, Args)]
pub(super) struct Completions {
    /// Which shell
    #[arg(value_enum)]
    pub(super) shell: clap_complete::Shell,
}

#[derive(Debug, Args)]
pub(super) struct Man {
    /// Where the pages go; made when it is not there
    #[arg(value_name = "DIR")]
    pub(super) directory: PathBuf,
}

fn bucket_name(text: &str) -> Result<BucketName, wire::names::NameError> {
    let bare = text.strip_prefix("nova://").unwrap_or(text);
    BucketName::new(bare.strip_suffix('/').unwrap_or(bare))
}

fn token(text: &str) -> Result<FencingToken, wire::names::NameError> {
    FencingToken::new(text)
}

fn linger(text: &str) -> Result<Duration, String> {
    let bare = text.strip_suffix("ms").unwrap_or(text);
    match bare.parse::<u64>() {
        Ok(ms) if ms <= LINGER_MS_MAX => Ok(Duration::from_millis(ms)),
        Ok(ms) => Err(format!("{ms} ms is more than the bound of {LINGER_MS_MAX}")),
        Err(_) => Err("it is a number of milliseconds".to_owned()),
    }
}

#[cfg(test)]
mod tests;
