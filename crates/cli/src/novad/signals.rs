//! When is `novad` told to stop, and when to stop at once?

use std::io;
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;

use tokio::signal::unix::{SignalKind, signal};

/// SIGTERM and SIGINT, one at a time.
#[derive(Debug)]
pub(super) struct Signals(Receiver<()>);

impl Signals {
    /// From here on both are taken; without anyone waiting they only count.
    pub(super) fn watch() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let (mut terminate, mut interrupt) = {
            let _inside = runtime.enter();
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
        };
        let (sender, receiver) = sync_channel(2);
        let watch = async move {
            loop {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                // Full after two, and more say nothing new.
                let _full = sender.try_send(());
            }
        };
        thread::Builder::new().name("nova-signals".to_owned()).spawn(move || runtime.block_on(watch))?;
        Ok(Self(receiver))
    }

    /// Blocks until the first one.
    pub(super) fn wait_for_first(&self) {
        // The watching thread never ends, so there is no error to get.
        self.0.recv().ok();
    }

    /// Ends the process at the next one, as a crash would: what was acked is durable.
    pub(super) fn end_at_second(self) {
        let watch = move || {
            if self.0.recv().is_ok() {
                tracing::warn!("ended at once by a second signal");
                std::process::exit(1);
            }
        };
        if let Err(error) = thread::Builder::new().name("nova-signals-2".to_owned()).spawn(watch) {
            tracing::warn!(%error, "a second signal will not be heeded");
        }
    }
}
