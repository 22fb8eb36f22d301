//! What speaks against a writer or a batch's stamps?

use wire::batch::VerifiedBatch;
use wire::config::{ProducerPolicy, StreamConfig, TimestampingMode};
use wire::names::FencingToken;
use wire::reason::Reason;
use wire::refusal::Refusal;
use wire::terms::Terms;

use super::live::Live;

/// Judges what a writer presents, at an open or a one-shot.
pub(super) fn judge_presented(live: &Live, presented: &FencingToken) -> Result<(), Refusal> {
    let fenced = live.config.producer_policy == ProducerPolicy::Fenced;
    let message = if presented.is_empty() {
        if !fenced || live.token.is_empty() {
            return Ok(());
        }
        "the stream is fenced: a token must be presented".to_owned()
    } else if *presented == live.token {
        return Ok(());
    } else if live.token.is_empty() {
        format!("token '{presented}' was presented, and none is installed")
    } else {
        format!("token '{presented}' was presented, another one is installed")
    };
    Err(Refusal::new(Reason::FencedOut, message).with_fencing_token(live.token.clone()))
}

/// Judges a one-shot's token, and whether the stream's one writer is somebody else.
pub(super) fn judge_token(
    live: &Live,
    presented: &FencingToken,
    is_there: impl Fn(&u32) -> bool,
) -> Result<(), Refusal> {
    judge_presented(live, presented)?;
    let fenced = live.config.producer_policy == ProducerPolicy::Fenced;
    if fenced && live.token.is_empty() && live.sessions.iter().any(is_there) {
        return Err(writer_held());
    }
    Ok(())
}

/// Judges the token that a batch says is installed.
pub(super) fn judge_installed(live: &Live, installed: &FencingToken) -> Result<(), Refusal> {
    if live.token == *installed {
        return Ok(());
    }
    let message = match (installed.is_empty(), live.token.is_empty()) {
        (true, _) => "the batch expects that no token is installed, and one is".to_owned(),
        (false, true) => format!("the batch expects token '{installed}', and none is installed"),
        (false, false) => format!("the batch expects token '{installed}', another one is installed"),
    };
    Err(Refusal::new(Reason::FencedOut, message).with_fencing_token(live.token.clone()))
}

/// The refusal of a second writer.
pub(super) fn writer_held() -> Refusal {
    let message = "another writer session holds the stream; fence it with a token to take it over";
    Refusal::new(Reason::WriterHeld, message)
}

/// Judges whether a batch has the stamps that the stream's mode asks for.
pub(super) fn judge_stamps(config: &StreamConfig, batch: &VerifiedBatch<'_>, terms: &Terms) -> Result<(), Refusal> {
    match config.timestamping.mode {
        TimestampingMode::ClientPrefer => Ok(()),
        TimestampingMode::ClientRequire => match (0..batch.records()).find(|at| batch.stamp(*at).is_none()) {
            None => Ok(()),
            Some(at) => {
                Err(Refusal::invalid(format!("record {at} has no timestamp, and the stream's mode is client-require")))
            }
        },
        TimestampingMode::Arrival if terms.ignores_stamps || batch.has_no_stamps() => Ok(()),
        TimestampingMode::Arrival => match (0..batch.records()).find(|at| batch.stamp(*at).is_some()) {
            None => Ok(()),
            Some(at) => Err(Refusal::invalid(format!("record {at} has a timestamp, and the stream's mode is arrival"))),
        },
    }
}
