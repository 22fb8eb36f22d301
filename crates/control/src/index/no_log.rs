//! How is a database opened that has no log of its own?
//!
//! The channel is the log, so nothing is to be replayed and nobody to be kept from writing to it: a writer that was taken over is found out by the
//! manifest, which it can't replace any more. Opening leaves nothing in the store besides that.

use async_trait::async_trait;
use slatedb::RowEntry;
use slatedb::wal::{
    WalError, WalFlushResult, WalIterator, WalObserver, WalRows, WalStatus, WalStatusListener, WalWriter, WriterInit,
    WriterInitResult, WriterManifest,
};

/// What stands in for the log.
pub(super) struct NoLog;

#[async_trait]
impl WriterInit for NoLog {
    async fn fence_and_init(&self, manifest: &mut WriterManifest) -> Result<WriterInitResult, WalError> {
        let closed = Closed { last_flushed: manifest.replay_after_wal_id() };
        Ok(WriterInitResult { replay_iterator: Box::new(Nothing), wal_writer: Box::new(closed) })
    }
}

/// A log that is closed from the start.
#[derive(Clone, Copy)]
struct Closed {
    last_flushed: u64,
}

impl Closed {
    fn closed(self) -> WalStatus {
        WalStatus {
            closed_reason: Some(WalError::Closed),
            estimated_bytes: 0,
            last_flushed_wal_id: self.last_flushed,
            last_flushed_seq: None,
            buffered_wal_entries_count: 0,
        }
    }
}

#[async_trait]
impl WalWriter for Closed {
    async fn append(&mut self, _: &[RowEntry]) -> Result<(), WalError> {
        Err(WalError::Closed)
    }

    async fn flush(&mut self) -> Result<WalFlushResult, WalError> {
        Err(WalError::Closed)
    }

    fn observer(&self) -> Box<dyn WalObserver> {
        Box::new(*self)
    }

    fn status(&self) -> Result<WalStatus, WalStatus> {
        Err(self.closed())
    }

    async fn close(&mut self) -> Result<(), WalError> {
        Ok(())
    }
}

impl WalObserver for Closed {
    fn status(&self) -> Result<WalStatus, WalStatus> {
        Err(self.closed())
    }

    fn subscribe(&self, _: WalStatusListener) -> Result<(), WalError> {
        Err(WalError::Closed)
    }
}

/// A replay of nothing.
struct Nothing;

#[async_trait]
impl WalIterator for Nothing {
    async fn next(&mut self) -> Result<Option<WalRows>, WalError> {
        Ok(None)
    }
}
