//! What a client is told when it is made, and which plane its addresses choose.

use std::time::Duration;

use wire::reason::Reason;

use crate::error::{Error, Result};

/// The port of the wire when an address names none.
pub const DEFAULT_PORT: u16 = 7781;

/// How a [`Client`](crate::Client) reaches its stars.
///
/// ```
/// use std::time::Duration;
/// use client::{Client, Options};
///
/// let client = Client::new(Options::new(["127.0.0.1:7781"]).retry_budget(Duration::from_secs(10)))?;
/// # Ok::<(), client::Error>(())
/// ```
#[derive(Debug, Clone)]
pub struct Options {
    /// Stars, each `host:port` or `host`, or all of them `http://host:port` or `https://host:port`; tried in turn until one
    /// answers.
    pub addrs: Vec<String>,
    /// How long a producer session or a subscription that was open keeps trying to come back after its connection broke.
    pub retry_budget: Duration,
    /// How long a call, an open or a subscribe that nobody has taken yet keeps looking for a star; zero tries each address once.
    pub connect_budget: Duration,
    /// How long one address may take to connect and shake hands.
    pub connect_timeout: Duration,
    /// How long a call may take in all; past it the call is `deadline_exceeded`.
    pub request_timeout: Duration,
    /// What the star's logs call this client.
    pub name: String,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            addrs: vec![format!("127.0.0.1:{DEFAULT_PORT}")],
            retry_budget: Duration::from_secs(30),
            connect_budget: Duration::from_secs(5),
            connect_timeout: Duration::from_secs(3),
            request_timeout: Duration::from_secs(15),
            name: concat!("nova-rust/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }
}

impl Options {
    /// The defaults with these addresses.
    #[must_use]
    pub fn new<S: Into<String>>(addrs: impl IntoIterator<Item = S>) -> Self {
        Self { addrs: addrs.into_iter().map(Into::into).collect(), ..Self::default() }
    }

    /// The same with another [`retry_budget`](Self::retry_budget).
    #[must_use]
    pub fn retry_budget(mut self, retry_budget: Duration) -> Self {
        self.retry_budget = retry_budget;
        self
    }

    /// The same with another [`connect_budget`](Self::connect_budget).
    #[must_use]
    pub fn connect_budget(mut self, connect_budget: Duration) -> Self {
        self.connect_budget = connect_budget;
        self
    }

    /// The same with another [`connect_timeout`](Self::connect_timeout).
    #[must_use]
    pub fn connect_timeout(mut self, connect_timeout: Duration) -> Self {
        self.connect_timeout = connect_timeout;
        self
    }

    /// The same with another [`request_timeout`](Self::request_timeout).
    #[must_use]
    pub fn request_timeout(mut self, request_timeout: Duration) -> Self {
        self.request_timeout = request_timeout;
        self
    }

    /// The same with another [`name`](Self::name).
    #[must_use]
    pub fn name(mut self, name: impl Into<String>) -> Self {
        self.name = name.into();
        self
    }
}

fn invalid(message: String) -> Error {
    Error::harmless(Reason::Invalid, message)
}

/// What is spoken with the stars of a client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Spoken {
    Wire,
    Http,
}

/// The stars that these addresses name, each as `host:port` or as the start of every URL of its HTTP surface.
pub(crate) fn stars(addrs: &[String]) -> Result<(Spoken, Vec<String>)> {
    if addrs.is_empty() {
        return Err(invalid("no address was given: name at least one star as host:port".into()));
    }
    let is_http = |addr: &&String| addr.starts_with("http://") || addr.starts_with("https://");
    let http = addrs.iter().find(is_http);
    let wire = addrs.iter().find(|addr| !is_http(addr));
    match (http, wire) {
        (Some(http), Some(wire)) => Err(invalid(format!(
            "'{http}' speaks HTTP and '{wire}' the wire: the addresses of one client are of one kind"
        ))),
        (Some(_), None) => Ok((Spoken::Http, addrs.iter().map(|addr| base(addr)).collect::<Result<_>>()?)),
        (None, _) => Ok((Spoken::Wire, addrs.iter().map(|addr| star(addr)).collect::<Result<_>>()?)),
    }
}

/// What every URL of this HTTP surface starts with.
fn base(addr: &str) -> Result<String> {
    let bad = || invalid(format!("'{addr}' is not an address of the form http://host:port"));
    let uri: http::Uri = addr.parse().map_err(|_| bad())?;
    let authority = uri.authority().filter(|authority| !authority.as_str().contains('@')).ok_or_else(bad)?;
    let has_port = authority.as_str().len() > authority.host().len();
    if has_port && authority.port_u16().is_none_or(|port| port == 0) {
        return Err(bad());
    }
    if uri.query().is_some() || authority.host().is_empty() || addr.contains('#') {
        return Err(bad());
    }
    Ok(addr.trim_end_matches('/').to_owned())
}

fn star(addr: &str) -> Result<String> {
    if let Some((scheme, _)) = addr.split_once("://") {
        return Err(invalid(format!(
            "the scheme '{scheme}' of '{addr}' is unknown: give host:port to speak the wire, or http://host:port"
        )));
    }
    let bad = || invalid(format!("'{addr}' is not an address of the form host:port"));
    let bracketed = addr.strip_prefix('[').map(|rest| rest.split_once(']').ok_or_else(bad));
    let (host, port) = match bracketed.transpose()? {
        Some((host, "")) => (host, None),
        Some((host, port)) => (host, Some(port.strip_prefix(':').ok_or_else(bad)?)),
        None if addr.matches(':').count() > 1 => (addr, None),
        None => addr.split_once(':').map_or((addr, None), |(host, port)| (host, Some(port))),
    };
    let is_fit = |c: char| !c.is_whitespace() && !c.is_control() && !matches!(c, '/' | '[' | ']' | '@' | '?');
    if host.is_empty() || !host.chars().all(is_fit) {
        return Err(bad());
    }
    let port = match port {
        Some(port) => port.parse::<u16>().ok().filter(|port| *port > 0).ok_or_else(bad)?,
        None => DEFAULT_PORT,
    };
    if host.contains(':') { Ok(format!("[{host}]:{port}")) } else { Ok(format!("{host}:{port}")) }
}

#[cfg(test)]
mod tests;
