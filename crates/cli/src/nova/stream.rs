//! How are the verbs of a stream asked and their answers shown?

use std::io::Write;

use wire::ids::SeqNum;
use wire::message::StreamInfo;

use super::Star;
use super::args::{Fence, Output, Stream, StreamCommand, StreamConfigure, StreamList, Trim};
use super::bucket::more;
use super::failure::Failure;
use super::fields::show_config;
use super::row::{Row, one_line};

pub(super) async fn run(command: StreamCommand, star: &Star) -> Result<(), Failure> {
    let client = &star.client;
    match command {
        StreamCommand::Create(args) => {
            let made = client.create_stream(&args.stream.address, args.config.0).await?;
            star.show(&row(&made))
        }
        StreamCommand::Get(args) => star.show(&row(&client.get_stream(&args.address).await?)),
        StreamCommand::Reconfigure(args) => reconfigure(args, star).await,
        StreamCommand::Delete(args) => {
            client.delete_stream(&args.address).await?;
            let address = args.address;
            let row = Row::new()
                .with("bucket", address.bucket.as_str())
                .with("key", address.key.as_str())
                .with("deleted", true);
            star.done(&format!("{} is deleted", one_line(&address.to_string())), &row)
        }
        StreamCommand::List(args) => list(&args, star).await,
    }
}

async fn reconfigure(args: StreamConfigure, star: &Star) -> Result<(), Failure> {
    let address = &args.stream.address;
    if args.config.0 == wire::config::ConfigPatch::default() {
        return Err(Failure::invalid(format!(
            "nothing to change of {address} was said: nova stream reconfigure --help lists what can be"
        )));
    }
    let stream = star.client.reconfigure_stream(address, args.config.0).await?;
    star.show(&row(&stream))
}

async fn list(args: &StreamList, star: &Star) -> Result<(), Failure> {
    let mut out = super::stdout();
    let mut after = cursor::read(&args.page.after)?;
    let mut shown = 0;
    loop {
        let rows = args.page.next_rows(shown);
        if rows == 0 {
            return more(&cursor::show(&after), &mut out);
        }
        let found = star.client.list_streams(&args.bucket.name, &after, rows).await?;
        for stream in &found.streams {
            shown += 1;
            match star.output {
                Output::Json => row(stream).write_json(&mut out)?,
                Output::Text => writeln!(out, "{}", line(stream))?,
            }
        }
        out.flush()?;
        if found.next.is_empty() {
            return Ok(());
        }
        after = found.next;
    }
}

/// A cursor is bytes that mean nothing here; it is shown as base64 that a shell takes as it is.
mod cursor {
    use base64::Engine as _;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD;

    use crate::nova::failure::Failure;

    pub(super) fn show(bytes: &[u8]) -> String {
        URL_SAFE_NO_PAD.encode(bytes)
    }

    pub(super) fn read(text: &str) -> Result<Vec<u8>, Failure> {
        URL_SAFE_NO_PAD
            .decode(text)
            .map_err(|_| Failure::invalid(format!("'{text}' is no cursor: give one as a list printed it")))
    }
}

fn line(stream: &StreamInfo) -> String {
    let key = one_line(stream.key.as_str());
    let range = format!("{}..{}", stream.trim_point, stream.tail.seq_num);
    format!("nova://{}/{key}  {}  {range}  {} bytes", stream.bucket, stream.config.class.word(), stream.bytes)
}

fn row(stream: &StreamInfo) -> Row {
    let row = Row::new()
        .with("stream_id", stream.stream_id.to_string())
        .with("bucket", stream.bucket.as_str())
        .with("key", stream.key.as_str());
    show_config(&stream.config, "", row)
        .with("tail", stream.tail)
        .with("trim_point", stream.trim_point.get())
        .with("settled", stream.settled.get())
        .with("bytes", stream.bytes)
        .with("created_at", stream.created_at_ms)
}

pub(super) async fn tail(args: Stream, star: &Star) -> Result<(), Failure> {
    let tail = star.client.check_tail(&args.address).await?;
    star.show(&Row::of_position(tail))
}

pub(super) async fn trim(args: Trim, star: &Star) -> Result<(), Failure> {
    let address = &args.stream.address;
    let trim_point = match (args.seq_num, args.from_ms) {
        (None, Some(ms)) => star.client.trim_from(address, ms).await?,
        (seq_num, _) => {
            let seq_num = SeqNum::new(seq_num.unwrap_or(0));
            star.client.trim(address, seq_num).await?
        }
    };
    star.show(&Row::new().with("trim_point", trim_point.get()))
}

pub(super) async fn fence(args: Fence, star: &Star) -> Result<(), Failure> {
    let boundary = star.client.fence(&args.stream.address, &args.token).await?;
    star.show(&Row::of_position(boundary))
}

pub(super) async fn token(args: Stream, star: &Star) -> Result<(), Failure> {
    let token = star.client.fencing_token(&args.address).await?;
    match star.output {
        Output::Json => star.show(&Row::new().with("fencing_token", token.as_str())),
        Output::Text => {
            let mut out = super::stdout();
            writeln!(out, "{token}")?;
            Ok(out.flush()?)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{cursor, line, row};
    use wire::config::StreamConfig;
    use wire::ids::{Position, SeqNum, StreamId};
    use wire::message::StreamInfo;
    use wire::names::{BucketName, Key};

    fn events() -> StreamInfo {
        StreamInfo {
            stream_id: StreamId::from_bytes([0x11; 16]),
            bucket: BucketName::new("demo").unwrap(),
            key: Key::new("a\n b").unwrap(),
            config: StreamConfig::default(),
            tail: Position::new(SeqNum::new(9), 77),
            trim_point: SeqNum::new(2),
            settled: SeqNum::new(4),
            bytes: 1_000,
            created_at_ms: 5,
        }
    }

    #[test]
    fn a_stream_shows_the_fields_of_the_specification() {
        let json = serde_json::to_value(row(&events())).unwrap();
        assert_eq!(json["stream_id"], "11111111-1111-1111-1111-111111111111");
        assert_eq!(json["key"], "a\n b");
        assert_eq!(json["class"], "standard");
        assert_eq!(json["tail"]["seq_num"], 9);
        assert_eq!(json["tail"]["timestamp_ms"], 77);
        assert_eq!((&json["trim_point"], &json["settled"]), (&2.into(), &4.into()));
        assert_eq!(json["bytes"], 1_000);
    }

    #[test]
    fn a_key_with_a_newline_stays_on_its_line() {
        assert_eq!(line(&events()), "nova://demo/a\\n b  standard  2..9  1000 bytes");
    }

    #[test]
    fn a_cursor_is_read_back_as_it_was_shown() {
        let bytes = vec![0, 255, b'/', b'-', 7];
        assert_eq!(cursor::read(&cursor::show(&bytes)).unwrap(), bytes);
        assert!(cursor::read("").unwrap().is_empty());
        assert_eq!(cursor::read("!").unwrap_err().exit_code(), 2);
    }
}
