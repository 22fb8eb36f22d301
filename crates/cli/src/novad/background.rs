//! What do the settings mean for the background?

use std::sync::Arc;
use std::time::Duration;

use control::Options;
use control::channel::UploadOptions;
use control::history::HistoryOptions;
use control::index::IndexOptions;
use control::settle::SettleOptions;
use control::store::StoreMeter;
use tuning::settings::{Settings, StoreAddress};
use tuning::start::Prepared;

use super::args::Says;

/// Chunks that are not full, a second, on a store where each costs money.
const S3_PUTS_PER_SECOND: u32 = 20;
/// The part of the background's memory that index blocks get, as a divisor; reads get the rest.
const INDEX_DIVISOR: u64 = 4;

/// The options of the background.
pub(super) fn options(settings: &Settings, prepared: &Prepared, says: Says, meter: Arc<StoreMeter>) -> Options {
    let is_s3 = matches!(settings.store, StoreAddress::S3 { .. });
    let settle = &settings.settle;
    let default_puts = if is_s3 { S3_PUTS_PER_SECOND } else { 0 };
    let puts_per_second_max = if settle.puts_per_second_max == 0 { default_puts } else { settle.puts_per_second_max };
    let memory = settings.memory.control_bytes_max.get();
    let history_bytes = usize::try_from(memory - memory / INDEX_DIVISOR).unwrap_or(usize::MAX);
    let grace = settle.grace_ms.duration();
    Options {
        upload: UploadOptions {
            puts_per_second_max,
            settle_age: settle.age_ms.duration(),
            standard_age: Duration::from_millis(if is_s3 { 50 } else { 2 }),
            hedge: is_s3,
            ..UploadOptions::default()
        },
        index: IndexOptions {
            cache_bytes: memory / INDEX_DIVISOR,
            dead_grace_ms: i64::try_from(grace.as_millis()).unwrap_or(i64::MAX),
            ..IndexOptions::default()
        },
        history: HistoryOptions { hedge: is_s3, ..HistoryOptions::of_memory(history_bytes) },
        settle: SettleOptions { grace, ..SettleOptions::default() },
        confirms_clock: says.confirms_clock,
        cpus: prepared.plan.control_cpus().to_vec(),
        meter: Some(meter),
    }
}
