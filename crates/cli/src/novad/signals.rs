//! When is `novad` told to stop, and when to stop at once?

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, sync_channel};
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, getppid, set_parent_process_death_signal};
use tokio::signal::unix::{SignalKind, signal};

/// SIGTERM and SIGINT, one at a time.
#[derive(Debug)]
pub(crate) struct Signals {
    received: Receiver<()>,
    serves: Arc<AtomicBool>,
}

impl Signals {
    /// From here on both are taken. Until the star serves there is nothing to finish, and one ends the process in order.
    pub(crate) fn watch() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
        let (mut terminate, mut interrupt) = {
            let _inside = runtime.enter();
            (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?)
        };
        let (sender, received) = sync_channel(2);
        let serves = Arc::new(AtomicBool::new(false));
        let is_serving = Arc::clone(&serves);
        let on_signal = move || {
            if !is_serving.load(Ordering::Acquire) {
                tracing::info!("stopped before it served: nothing was acknowledged, and the next start goes on");
                std::process::exit(0);
            }
            // Full after two, and more say nothing new.
            let _full = sender.try_send(());
        };
        let watch = async move {
            loop {
                tokio::select! {
                    _ = terminate.recv() => {}
                    _ = interrupt.recv() => {}
                }
                on_signal();
            }
        };
        thread::Builder::new().name("nova-signals".to_owned()).spawn(move || runtime.block_on(watch))?;
        Ok(Self { received, serves })
    }

    /// From now on the star serves, and ends only once it has finished.
    pub(crate) fn serves(&self) {
        self.serves.store(true, Ordering::Release);
    }

    /// Blocks until the first one.
    pub(crate) fn wait_for_first(&self) {
        // The watching thread never ends, so there is no error to get.
        self.received.recv().ok();
    }

    /// Waits so long for the next one, and says whether it came.
    pub(crate) fn comes_within(&self, time: Duration) -> bool {
        self.received.recv_timeout(time).is_ok()
    }

    /// Ends the process at the next one, as a crash would: what was acked is durable.
    pub(crate) fn end_at_second(self) {
        let watch = move || {
            if self.received.recv().is_ok() {
                tracing::warn!("ended at once by a second signal");
                std::process::exit(1);
            }
        };
        if let Err(error) = thread::Builder::new().name("nova-signals-2".to_owned()).spawn(watch) {
            tracing::warn!(%error, "a second signal will not be heeded");
        }
    }
}

/// Has this process get SIGTERM when the one that started it ends; false when that is not `parent`, or has ended already.
pub(super) fn end_with(parent: Pid) -> io::Result<bool> {
    set_parent_process_death_signal(Some(Signal::TERM))?;
    Ok(getppid() == Some(parent))
}
