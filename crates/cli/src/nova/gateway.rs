//! How is a star that clients can't reach served over HTTP and to S2's clients from here?

use std::io::{self, Write};
use std::time::Duration;

use client::{Client, Options};
use wire::reason::Reason;
use wire::refusal::Refusal;

use super::args::{Gateway, Global};
use super::failure::Failure;
use crate::novad::signals::Signals;
use crate::surfaces::Bounds;

/// Time that requests have to finish.
const END_WITHIN: Duration = Duration::from_secs(5);

/// Serves until it is told to stop.
pub(super) fn run(args: &Gateway, global: &Global) -> Result<(), Failure> {
    if [args.http, args.s2].iter().all(|listener| listener.addr().is_none()) {
        return Err(Failure::invalid(
            "--http off and no --s2 serve nothing: say where to listen, such as 127.0.0.1:8080",
        ));
    }
    for (flag, listener) in [("--http", args.http), ("--s2", args.s2)] {
        if let Some(listen) = listener.addr().filter(|listen| !listen.ip().is_loopback() && !args.insecure) {
            return Err(Failure::invalid(format!(
                "{flag} {listen} can be reached by others while there is no access control: listen on 127.0.0.1, or say --insecure"
            )));
        }
    }
    if let Some(http) = global.addr.iter().find(|addr| addr.contains("://")) {
        return Err(Failure::invalid(format!("--addr {http}: a gateway speaks the wire to its star, give host:port")));
    }
    let failed = |error: gateway::StartError| Failure::from(Refusal::new(error.reason(), error.to_string()));
    let bounds = Bounds::take(args.http, args.s2).map_err(failed)?;
    let name = concat!("nova-gateway/", env!("CARGO_PKG_VERSION"));
    let client = Client::new(Options::new(global.addr.iter().cloned()).name(name))?;
    let threads = std::thread::available_parallelism().map_or(1, usize::from);
    let options = gateway::Options { threads, ..gateway::Options::default() };
    let surfaces = bounds.serve(&options, &client).map_err(failed)?;
    let signals = Signals::watch().map_err(|error| Failure::from(Refusal::new(Reason::Internal, error.to_string())))?;
    signals.serves();
    let mut out = io::stdout().lock();
    write!(out, "{}", surfaces.served().lines())?;
    out.flush()?;
    drop(out);
    signals.wait_for_first();
    signals.end_at_second();
    surfaces.stop(END_WITHIN);
    Ok(())
}
