//! How does a test mount what is gone whatever ends it?

use std::thread;

use rustix::thread::UnshareFlags;
use tests::run_tool;

/// Runs the body of a test in mounts of its own, which go with the last process that sees them.
///
/// # Panics
/// When the body does, and when this process may not mount.
pub(crate) fn alone(body: impl FnOnce() + Send) {
    let name = thread::current().name().unwrap_or("a test").to_owned();
    let outcome = thread::scope(|scope| {
        let builder = thread::Builder::new().name(name);
        let running = builder.spawn_scoped(scope, || {
            part();
            body();
        });
        running.expect("a thread for the test").join()
    });
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

/// What this thread and those that it starts mount is seen by them and their children alone.
fn part() {
    #[expect(deprecated, reason = "what makes it unsafe is a table of files of its own, which is not asked for")]
    let parted = rustix::thread::unshare(UnshareFlags::NEWNS);
    parted.unwrap_or_else(|error| panic!("mounts of its own, which take root: {error}"));
    run_tool("mount", &["--make-rprivate", "/"]).unwrap_or_else(|why| panic!("mounts of its own: {why}"));
}
