//! Does S2's SDK find what it expects, operation by operation and error by error?

mod basins;
mod data;
mod errors;
mod producers;
mod sessions;
mod streams;

use s2_sdk::error::RequestError;
use s2_sdk::types::{AppendInput, AppendRecord, AppendRecordBatch};

/// The code of a refusal.
fn code<T: std::fmt::Debug>(refused: Result<T, RequestError>) -> String {
    match refused {
        Err(RequestError::Server(error)) => error.code,
        other => panic!("no refusal of the server: {other:?}"),
    }
}

/// A batch of these bodies.
fn bodies(bodies: &[&str]) -> AppendInput {
    let records = bodies.iter().map(|body| AppendRecord::new(body.to_string()).expect("a record"));
    AppendInput::new(AppendRecordBatch::try_from_iter(records).expect("a batch"))
}
