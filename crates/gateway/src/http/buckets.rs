//! How are buckets made, looked at, changed, deleted and listed over HTTP?

use client::json::{BucketForm, BucketsForm, take_config};
use client::{BucketPatch, BucketSpec};
use http::StatusCode;
use serde_json::{Map, Value};
use wire::refusal::Refusal;

use super::answer::{json, nothing};
use super::body::{nothing_else, switch, text};
use super::failure::HttpRefusal;
use super::route::{Ask, Outcome};

const TAKES: &str =
    "create_stream_on_append, create_stream_on_read, location, creation_token and default_ with a field of a stream";
const CHANGES: &str = "create_stream_on_append, create_stream_on_read and default_ with a field of a stream";

async fn spec(ask: &mut Ask) -> Result<BucketSpec, HttpRefusal> {
    let name = ask.bucket()?;
    let mut object = ask.object().await?;
    let spec = BucketSpec {
        name,
        location: text(&mut object, "location")?.unwrap_or_default(),
        create_stream_on_append: switch(&mut object, "create_stream_on_append")?.unwrap_or(false),
        create_stream_on_read: switch(&mut object, "create_stream_on_read")?.unwrap_or(false),
        defaults: take_config(&mut object, "default_")?,
        creation_token: text(&mut object, "creation_token")?.unwrap_or_default(),
    };
    nothing_else(&object, TAKES)?;
    Ok(spec)
}

pub(super) fn patch(object: &mut Map<String, Value>) -> Result<BucketPatch, Refusal> {
    let patch = BucketPatch {
        create_stream_on_append: switch(object, "create_stream_on_append")?,
        create_stream_on_read: switch(object, "create_stream_on_read")?,
        defaults: take_config(object, "default_")?,
    };
    nothing_else(object, CHANGES)?;
    if patch == BucketPatch::default() {
        return Err(Refusal::invalid(format!("nothing to change was said: this path takes {CHANGES}")));
    }
    Ok(patch)
}

pub(super) async fn create(mut ask: Ask) -> Outcome {
    let spec = spec(&mut ask).await?;
    let bucket = ask.client().create_bucket(spec).await?;
    json(StatusCode::CREATED, &BucketForm::from(&bucket))
}

pub(super) async fn ensure(mut ask: Ask) -> Outcome {
    let spec = spec(&mut ask).await?;
    let bucket = ask.client().ensure_bucket(spec).await?;
    json(StatusCode::OK, &BucketForm::from(&bucket))
}

pub(super) async fn get(ask: Ask) -> Outcome {
    let bucket = ask.client().get_bucket(&ask.bucket()?).await?;
    json(StatusCode::OK, &BucketForm::from(&bucket))
}

pub(super) async fn update(mut ask: Ask) -> Outcome {
    let name = ask.bucket()?;
    let patch = patch(&mut ask.object().await?)?;
    let bucket = ask.client().update_bucket(&name, patch).await?;
    json(StatusCode::OK, &BucketForm::from(&bucket))
}

pub(super) async fn delete(ask: Ask) -> Outcome {
    ask.client().delete_bucket(&ask.bucket()?).await?;
    Ok(nothing())
}

pub(super) async fn list(ask: Ask) -> Outcome {
    let after = ask.query.text("after").unwrap_or_default();
    let page = ask.client().list_buckets(after, ask.query.page_bound("limit")).await?;
    let next = Some(page.next).filter(|next| !next.is_empty());
    json(StatusCode::OK, &BucketsForm { buckets: page.buckets.iter().map(BucketForm::from).collect(), next })
}
