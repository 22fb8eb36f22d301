//! Which request is each call?

use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use http::Method;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use wire::bucket::{Bucket, BucketPatch, BucketSpec};
use wire::config::ConfigPatch;
use wire::ids::{Position, SeqNum};
use wire::message::{Appended, BucketPage, Start, StreamInfo, StreamPage, TrimTo};
use wire::names::{Address, BucketName, FencingToken};
use wire::reason::Reason;

use super::{Ask, Plane, bucket_path, segment, stream_path};
use crate::client::{Again, Client, outcome_unknown};
use crate::error::{Error, Result};
use crate::json::{
    Ack, BucketForm, BucketsForm, Coding, Misfit, PageForm, Place, StreamForm, StreamsForm, cursor, put_config,
};
use crate::page::Page;
use crate::read::ReadOptions;
use crate::record::AppendRecord;
use crate::verbs::OneShot;

#[derive(Deserialize)]
struct TrimPoint {
    trim_point: u64,
}

#[derive(Deserialize)]
struct InstalledToken {
    fencing_token: String,
}

/// The error of an answer of yes that is not what it should be.
fn misfit(again: Again, error: &dyn std::fmt::Display) -> Error {
    outcome_unknown(again, Reason::Internal, format!("the star's answer doesn't validate: {error}"))
}

fn form<T: DeserializeOwned>(again: Again, body: &Bytes) -> Result<T> {
    serde_json::from_slice(body).map_err(|error| misfit(again, &error))
}

fn whole<T, F: TryInto<T, Error = Misfit>>(again: Again, form: F) -> Result<T> {
    form.try_into().map_err(|error| misfit(again, &error))
}

/// A plane, and the client that it is of.
#[derive(Clone, Copy)]
pub(crate) struct Http<'a> {
    pub(crate) client: &'a Client,
    pub(crate) plane: &'a Plane,
}

impl Http<'_> {
    async fn ask(self, again: Again, ask: Ask) -> Result<Bytes> {
        self.client.ask_http(self.plane, again, ask).await
    }

    async fn bucket(self, again: Again, ask: Ask) -> Result<Bucket> {
        let form: BucketForm = form(again, &self.ask(again, ask).await?)?;
        whole(again, form)
    }

    async fn stream(self, again: Again, ask: Ask) -> Result<StreamInfo> {
        let form: StreamForm = form(again, &self.ask(again, ask).await?)?;
        whole(again, form)
    }

    /// Creates a bucket, or ensures it.
    pub(crate) async fn make_bucket(self, method: Method, again: Again, spec: &BucketSpec) -> Result<Bucket> {
        let mut body = Map::new();
        body.insert("location".to_owned(), spec.location.clone().into());
        body.insert("creation_token".to_owned(), spec.creation_token.clone().into());
        body.insert("create_stream_on_append".to_owned(), spec.create_stream_on_append.into());
        body.insert("create_stream_on_read".to_owned(), spec.create_stream_on_read.into());
        put_config(spec.defaults, "default_", &mut body);
        self.bucket(again, Ask::new(method, bucket_path(&spec.name)).json(&body)?).await
    }

    pub(crate) async fn update_bucket(self, name: &BucketName, patch: BucketPatch) -> Result<Bucket> {
        let mut body = Map::new();
        let flags = [
            ("create_stream_on_append", patch.create_stream_on_append),
            ("create_stream_on_read", patch.create_stream_on_read),
        ];
        body.extend(flags.into_iter().filter_map(|(name, set)| Some((name.to_owned(), Value::from(set?)))));
        put_config(patch.defaults, "default_", &mut body);
        self.bucket(Again::Never, Ask::new(Method::PATCH, bucket_path(name)).json(&body)?).await
    }

    pub(crate) async fn get_bucket(self, name: &BucketName) -> Result<Bucket> {
        self.bucket(Again::Asks, Ask::new(Method::GET, bucket_path(name))).await
    }

    pub(crate) async fn delete_bucket(self, name: &BucketName) -> Result<()> {
        self.ask(Again::Never, Ask::new(Method::DELETE, bucket_path(name))).await.map(drop)
    }

    pub(crate) async fn list_buckets(self, after: &str, limit: u32) -> Result<BucketPage> {
        let path = format!("/v1/buckets?after={}&limit={limit}", segment(after));
        let page: BucketsForm = form(Again::Asks, &self.ask(Again::Asks, Ask::new(Method::GET, path)).await?)?;
        let buckets = page.buckets.into_iter().map(|form| whole(Again::Asks, form)).collect::<Result<_>>()?;
        Ok(BucketPage { buckets, next: page.next.unwrap_or_default() })
    }

    pub(crate) async fn create_stream(self, address: &Address, config: ConfigPatch) -> Result<StreamInfo> {
        self.configure(Method::POST, address, config).await
    }

    pub(crate) async fn reconfigure_stream(self, address: &Address, config: ConfigPatch) -> Result<StreamInfo> {
        self.configure(Method::PATCH, address, config).await
    }

    async fn configure(self, method: Method, address: &Address, config: ConfigPatch) -> Result<StreamInfo> {
        let mut body = Map::new();
        put_config(config, "", &mut body);
        self.stream(Again::Never, Ask::new(method, stream_path(address)).json(&body)?).await
    }

    pub(crate) async fn get_stream(self, address: &Address) -> Result<StreamInfo> {
        self.stream(Again::Asks, Ask::new(Method::GET, stream_path(address))).await
    }

    pub(crate) async fn delete_stream(self, address: &Address) -> Result<()> {
        self.ask(Again::Never, Ask::new(Method::DELETE, stream_path(address))).await.map(drop)
    }

    pub(crate) async fn list_streams(self, bucket: &BucketName, after: &[u8], limit: u32) -> Result<StreamPage> {
        let path = format!("{}/streams?after={}&limit={limit}", bucket_path(bucket), cursor::show(after));
        let page: StreamsForm = form(Again::Asks, &self.ask(Again::Asks, Ask::new(Method::GET, path)).await?)?;
        let streams = page.streams.into_iter().map(|form| whole(Again::Asks, form)).collect::<Result<_>>()?;
        let next = cursor::read(&page.next.unwrap_or_default()).map_err(|error| misfit(Again::Asks, &error))?;
        Ok(StreamPage { streams, next })
    }

    pub(crate) async fn append(self, address: &Address, with: OneShot, records: Vec<AppendRecord>) -> Result<Appended> {
        let records: Vec<Value> = records.iter().map(coded).collect();
        let mut body = json!({"records": records});
        if let Some(seq_num) = with.match_seq_num {
            body["match_seq_num"] = seq_num.get().into();
        }
        if !with.fencing_token.is_empty() {
            body["fencing_token"] = with.fencing_token.as_str().into();
        }
        let path = format!("{}/records?encoding=base64", stream_path(address));
        let mut ask = Ask::new(Method::POST, path).json(&body)?;
        ask.idempotency_key = with.idempotency_key;
        let ack: Ack = form(Again::Never, &self.ask(Again::Never, ask).await?)?;
        whole(Again::Never, ack)
    }

    /// Reads a page; where there is nothing yet, waits so long for it.
    pub(crate) async fn read(self, address: &Address, options: ReadOptions, wait: Duration) -> Result<Page> {
        let mut path = format!("{}/records?encoding=base64&", stream_path(address));
        path.push_str(&match options.start {
            Start::SeqNum(seq_num) => format!("from={seq_num}"),
            Start::Timestamp(ms) => format!("from_ms={ms}"),
            Start::Last(records) => format!("last={records}"),
        });
        path.push_str(&format!("&limit={}&max_bytes={}&clamp={}", options.limit, options.max_bytes, options.clamp));
        if let Some(ms) = options.until_ms {
            path.push_str(&format!("&until_ms={ms}"));
        }
        if !wait.is_zero() {
            path.push_str(&format!("&wait_ms={}", wait.as_millis()));
        }
        let mut ask = Ask::new(Method::GET, path);
        ask.waits = wait;
        let body = self.ask(Again::Asks, ask).await?;
        let page: PageForm<'_> = serde_json::from_slice(&body).map_err(|error| misfit(Again::Asks, &error))?;
        page.into_page(Coding::Base64).map_err(|error| misfit(Again::Asks, &error))
    }

    pub(crate) async fn check_tail(self, address: &Address) -> Result<Position> {
        let path = format!("{}/tail", stream_path(address));
        let tail: Place = form(Again::Asks, &self.ask(Again::Asks, Ask::new(Method::GET, path)).await?)?;
        Ok(tail.into())
    }

    pub(crate) async fn trim(self, address: &Address, to: TrimTo) -> Result<SeqNum> {
        let body = match to {
            TrimTo::SeqNum(seq_num) => json!({"seq_num": seq_num.get()}),
            TrimTo::Timestamp(ms) => json!({"from_ms": ms}),
        };
        let ask = Ask::new(Method::POST, format!("{}/trim", stream_path(address))).json(&body)?;
        let answer: TrimPoint = form(Again::Idempotent, &self.ask(Again::Idempotent, ask).await?)?;
        Ok(SeqNum::new(answer.trim_point))
    }

    pub(crate) async fn fence(self, address: &Address, token: &FencingToken) -> Result<Position> {
        let ask = Ask::new(Method::POST, format!("{}/fence", stream_path(address)));
        let ask = ask.json(&json!({"fencing_token": token.as_str()}))?;
        let boundary: Place = form(Again::Never, &self.ask(Again::Never, ask).await?)?;
        Ok(boundary.into())
    }

    pub(crate) async fn fencing_token(self, address: &Address) -> Result<FencingToken> {
        let ask = Ask::new(Method::GET, format!("{}/fence", stream_path(address)));
        let token: InstalledToken = form(Again::Asks, &self.ask(Again::Asks, ask).await?)?;
        FencingToken::new(&token.fencing_token).map_err(|error| misfit(Again::Asks, &error))
    }
}

/// A record with its bytes as base64, which leaves none of them to chance.
fn coded(record: &AppendRecord) -> Value {
    let headers: Vec<_> =
        record.headers.iter().map(|(name, value)| [STANDARD.encode(name), STANDARD.encode(value)]).collect();
    let mut coded = json!({"body": STANDARD.encode(&record.body), "headers": headers});
    if let Some(ms) = record.timestamp_ms {
        coded["timestamp_ms"] = ms.into();
    }
    coded
}
