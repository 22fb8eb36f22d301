//! How are streams made, looked at, changed, deleted, listed, trimmed and fenced over HTTP?

use client::json::{Place, StreamForm, StreamsForm, config_fields, cursor, take_config};
use client::{ConfigPatch, FencingToken, SeqNum};
use http::StatusCode;
use serde_json::json;

use super::answer::{self, nothing};
use super::body::{count, nothing_else, stamp, text};
use super::failure::HttpRefusal;
use super::route::{Ask, Outcome};

/// What a configuration takes.
fn takes() -> String {
    let names: Vec<&str> = config_fields().iter().map(|field| field.name).collect();
    names.join(", ")
}

async fn config(ask: &mut Ask) -> Result<ConfigPatch, HttpRefusal> {
    let mut object = ask.object().await?;
    let config = take_config(&mut object, "")?;
    nothing_else(&object, &takes())?;
    Ok(config)
}

pub(super) async fn create(mut ask: Ask) -> Outcome {
    let address = ask.address()?;
    let config = config(&mut ask).await?;
    let stream = ask.client().create_stream(&address, config).await?;
    answer::json(StatusCode::CREATED, &StreamForm::from(&stream))
}

pub(super) async fn get(ask: Ask) -> Outcome {
    let stream = ask.client().get_stream(&ask.address()?).await?;
    answer::json(StatusCode::OK, &StreamForm::from(&stream))
}

pub(super) async fn reconfigure(mut ask: Ask) -> Outcome {
    let address = ask.address()?;
    let config = config(&mut ask).await?;
    if config == ConfigPatch::default() {
        return Err(HttpRefusal::invalid(format!("nothing to change was said: this path takes {}", takes())));
    }
    let stream = ask.client().reconfigure_stream(&address, config).await?;
    answer::json(StatusCode::OK, &StreamForm::from(&stream))
}

pub(super) async fn delete(ask: Ask) -> Outcome {
    ask.client().delete_stream(&ask.address()?).await?;
    Ok(nothing())
}

pub(super) async fn list(ask: Ask) -> Outcome {
    let after = cursor::read(ask.query.text("after").unwrap_or_default())?;
    let page = ask.client().list_streams(&ask.bucket()?, &after, ask.query.page_bound("limit")).await?;
    let next = (!page.next.is_empty()).then(|| cursor::show(&page.next));
    answer::json(StatusCode::OK, &StreamsForm { streams: page.streams.iter().map(StreamForm::from).collect(), next })
}

pub(super) async fn tail(ask: Ask) -> Outcome {
    let tail = ask.client().check_tail(&ask.address()?).await?;
    answer::json(StatusCode::OK, &Place::from(tail))
}

pub(super) async fn trim(mut ask: Ask) -> Outcome {
    let address = ask.address()?;
    let mut object = ask.object().await?;
    let places = (count(&mut object, "seq_num")?, stamp(&mut object, "from_ms")?);
    nothing_else(&object, "seq_num or from_ms")?;
    let trim_point = match places {
        (Some(seq_num), None) => ask.client().trim(&address, SeqNum::new(seq_num)).await?,
        (None, Some(from_ms)) => ask.client().trim_from(&address, from_ms).await?,
        (None, None) => return Err(HttpRefusal::invalid("where to trim was not said: give seq_num or from_ms")),
        (Some(_), Some(_)) => return Err(HttpRefusal::invalid("seq_num and from_ms exclude each other: give one")),
    };
    answer::json(StatusCode::OK, &json!({"trim_point": trim_point.get()}))
}

pub(super) async fn fence(mut ask: Ask) -> Outcome {
    let address = ask.address()?;
    let mut object = ask.object().await?;
    let token = text(&mut object, "fencing_token")?;
    nothing_else(&object, "fencing_token")?;
    let Some(token) = token else {
        return Err(HttpRefusal::invalid(
            "fencing_token was not said: give the token, or the empty string to clear it",
        ));
    };
    let boundary = ask.client().fence(&address, &FencingToken::new(&token)?).await?;
    answer::json(StatusCode::OK, &Place::from(boundary))
}

pub(super) async fn token(ask: Ask) -> Outcome {
    let token = ask.client().fencing_token(&ask.address()?).await?;
    answer::json(StatusCode::OK, &json!({"fencing_token": token.as_str()}))
}
