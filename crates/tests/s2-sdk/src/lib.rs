//! A real `novad` with its façade for S2's clients, and a client of S2's SDK for it.
//!
//! `NOVAD` names the binary, else it is the debug one of this checkout. `S2_SUITE_ENDPOINT` names a server that is there
//! already, which is then used instead.

use std::io::{BufRead, BufReader, Write};
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::mpsc;
use std::time::Duration;

use s2_sdk::S2;
use s2_sdk::types::{BasinName, Compression, CreateBasinInput, RetryConfig, S2Config, S2Endpoints};

/// A start takes at most so long.
const START_MAX: Duration = Duration::from_secs(60);

/// A server, ended with the process that started it.
pub struct Star {
    at: String,
    child: Child,
    data: tempfile::TempDir,
}

impl Star {
    /// Starts one of its own.
    pub fn start() -> Self {
        let data = tempfile::tempdir_in("/var/tmp").expect("a directory");
        let (child, at) = start(data.path(), "127.0.0.1:0");
        Self { at, child, data }
    }

    /// Where it is.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.at)
    }

    /// Ends it as an operator does, and waits for it.
    pub fn stop(&mut self) {
        let mut shell = self.child.stdin.take().expect("it runs");
        shell.write_all(b"TERM\n").expect("the shell listens");
        self.child.wait().expect("it ends");
    }

    /// Starts it again where it was, after [`Star::stop`].
    pub fn start_again(&mut self) {
        (self.child, self.at) = start(self.data.path(), &self.at);
    }
}

static SERVED: OnceLock<(String, Option<Star>)> = OnceLock::new();
static NAMES: AtomicU32 = AtomicU32::new(0);

fn binary() -> PathBuf {
    let named = std::env::var_os("NOVAD").map(PathBuf::from);
    let target = std::env::var_os("CARGO_TARGET_DIR").map(PathBuf::from);
    let here = || PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../target");
    named.unwrap_or_else(|| target.unwrap_or_else(here).join("debug/novad"))
}

fn start(data: &Path, at: &str) -> (Child, String) {
    let help = Command::new(binary()).arg("--help").output().expect("novad, see the head of this file").stdout;
    let help = String::from_utf8_lossy(&help);
    // The shell sends novad the signal that it is told, or ends it once this process is gone, however that ended.
    let script = r#""$0" "$@" </dev/null & read -r signal; kill -"${signal:-9}" $!; wait $!"#;
    let mut child = Command::new("sh")
        .args(["-c", script])
        .arg(binary())
        .args(["--s2", at, "--listen", "127.0.0.1:0", "--shards", "1"])
        .args(if help.contains("--http") { &["--http", "off"][..] } else { &[] })
        .args(["--log-bytes-max", "1GiB", "--data"])
        .arg(data)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::inherit())
        .spawn()
        .expect("a shell");
    let stdout = child.stdout.take().expect("it is piped");
    let (told, heard) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(stdout).lines().map_while(Result::ok) {
            if let Some(at) = line.strip_prefix("serving s2 on ") {
                let _unheard = told.send(at.to_owned());
            }
        }
    });
    let at = heard.recv_timeout(START_MAX).expect("novad serves S2's clients");
    (child, at)
}

/// Where the server that tests share is.
pub fn endpoint() -> &'static str {
    let served = SERVED.get_or_init(|| match std::env::var("S2_SUITE_ENDPOINT") {
        Ok(endpoint) => (endpoint, None),
        Err(_) => {
            let star = Star::start();
            (star.endpoint(), Some(star))
        }
    });
    &served.0
}

/// A client of the server that tests share.
pub fn client(compression: Compression) -> S2 {
    client_of(endpoint(), |config| config.with_compression(compression))
}

/// A client of a server, which tries so often.
pub fn client_that_tries(endpoint: &str, attempts: u32) -> S2 {
    let attempts = NonZeroU32::new(attempts).expect("one at least");
    client_of(endpoint, |config| config.with_retry(RetryConfig::new().with_max_attempts(attempts)))
}

fn client_of(endpoint: &str, with: impl FnOnce(S2Config) -> S2Config) -> S2 {
    let endpoints = S2Endpoints::for_endpoint(endpoint).expect("an endpoint");
    let config = S2Config::new("any-token").with_endpoints(endpoints);
    S2::new(with(config).with_request_timeout(Duration::from_secs(20))).expect("a client")
}

/// A name that nobody else has.
pub fn unique(what: &str) -> String {
    let no = NAMES.fetch_add(1, Ordering::Relaxed);
    format!("{what}-{}-{no}", std::process::id())
}

/// A basin of its own.
pub async fn basin(s2: &S2, config: s2_sdk::types::BasinConfig) -> (BasinName, s2_sdk::S2Basin) {
    let name: BasinName = unique("suite-basin").parse().expect("a name");
    s2.create_basin(CreateBasinInput::new(name.clone()).with_config(config)).await.expect("a basin");
    let basin = s2.basin(name.clone());
    (name, basin)
}
