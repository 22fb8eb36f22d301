//! How are HTTP and the façade for S2's clients served, beside a star or in front of one?

use std::net::SocketAddr;
use std::time::Duration;

use client::Client;
use gateway::{Bound, Kind, Options, Server, StartError, http, s2};
use tuning::settings::Listener;

/// Addresses that are taken, before anything else is begun that would have to be undone.
#[derive(Debug)]
pub(crate) struct Bounds {
    http: Option<Bound>,
    s2: Option<Bound>,
}

impl Bounds {
    /// Takes the addresses of those that are wanted.
    pub(crate) fn take(http: Listener, s2: Listener) -> Result<Self, StartError> {
        let take = |kind, listener: Listener| listener.addr().map(|addr| Bound::bind(kind, addr)).transpose();
        Ok(Self { http: take(Kind::Http, http)?, s2: take(Kind::S2, s2)? })
    }

    /// Serves what `client` reaches.
    pub(crate) fn serve(self, options: &Options, client: &Client) -> Result<Surfaces, StartError> {
        let http = self.http.map(|bound| http::start(bound, options, client.clone())).transpose()?;
        let s2 = self.s2.map(|bound| s2::start(bound, options, client.clone())).transpose()?;
        Ok(Surfaces { http, s2 })
    }
}

/// What is served.
#[derive(Debug)]
pub(crate) struct Surfaces {
    http: Option<Server>,
    s2: Option<Server>,
}

impl Surfaces {
    /// Where.
    pub(crate) fn served(&self) -> Served {
        Served { http: self.http.as_ref().map(Server::addr), s2: self.s2.as_ref().map(Server::addr) }
    }

    /// Ends both, and gives requests so long to finish.
    pub(crate) fn stop(self, within: Duration) {
        let servers = [self.http, self.s2].map(|server| server.inspect(|server| server.drain(within)));
        servers.into_iter().flatten().for_each(Server::stop);
    }
}

/// Where what is served.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Served {
    pub(crate) http: Option<SocketAddr>,
    pub(crate) s2: Option<SocketAddr>,
}

impl Served {
    /// A line for each, which programs look for.
    pub(crate) fn lines(self) -> String {
        let line =
            |what: &str, at: Option<SocketAddr>| at.map_or_else(String::new, |at| format!("serving {what} on {at}\n"));
        line("http", self.http) + &line("s2", self.s2)
    }
}
