//! How does a test end in time, whatever it waits for?

use std::collections::HashSet;
use std::future::Future;
use std::sync::{Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

/// Past its limit a test has so long to fail by itself, before its whole process is ended.
const GRACE: Duration = Duration::from_secs(20);

/// Processes that were started and have not been waited for.
static CHILDREN: Mutex<Option<HashSet<u32>>> = Mutex::new(None);

/// Runs the body of a test on a runtime of its own.
///
/// # Panics
/// When it takes longer than `seconds`. A body that can't even be interrupted ends the whole process, and with it every
/// child that is still there.
pub fn within<T>(seconds: u64, body: impl Future<Output = T>) -> T {
    let limit = Duration::from_secs(seconds);
    let name = thread::current().name().unwrap_or("a test").to_owned();
    let (done, is_done) = std::sync::mpsc::channel::<()>();
    let watch = thread::spawn(move || {
        if is_done.recv_timeout(limit + GRACE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
            eprintln!("{name} hangs: it took more than {} s", (limit + GRACE).as_secs());
            kill_children();
            std::process::exit(101);
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let outcome = runtime.block_on(async { tokio::time::timeout(limit, body).await });
    runtime.shutdown_background();
    drop(done);
    watch.join().expect("the watch ends");
    outcome.unwrap_or_else(|_| panic!("it took more than {seconds} s"))
}

/// Asks until the answer is yes.
///
/// # Panics
/// When it is still no after `limit`.
pub async fn eventually<F: Future<Output = bool>>(limit: Duration, what: &str, mut ask: impl FnMut() -> F) {
    let until = Instant::now() + limit;
    while !ask().await {
        assert!(Instant::now() < until, "not within {} ms: {what}", limit.as_millis());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

pub(crate) fn child_started(pid: u32) {
    let mut children = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
    children.get_or_insert_default().insert(pid);
}

pub(crate) fn child_ended(pid: u32) {
    let mut children = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
    children.get_or_insert_default().remove(&pid);
}

/// Sends a signal to a child that has not been waited for.
pub(crate) fn signal(pid: u32, signal: Signal) {
    let pid = i32::try_from(pid).ok().and_then(Pid::from_raw).expect("the id of a process");
    // One that ended by itself meanwhile needs no signal.
    let _gone = kill_process(pid, signal);
}

fn kill_children() {
    let children = CHILDREN.lock().unwrap_or_else(PoisonError::into_inner);
    for pid in children.iter().flatten() {
        signal(*pid, Signal::KILL);
    }
}
