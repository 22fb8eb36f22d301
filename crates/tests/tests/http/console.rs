//! Can a person do with the console what it is for, clicking in a real browser?

use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use tests::{Http, Scratch};

use crate::star::Star;

/// Whatever is waited for in the page is there by then.
const PATIENCE: Duration = Duration::from_secs(30);
/// How elements are named in answers of WebDriver.
const ELEMENT: &str = "element-6066-11e4-a52e-4f735466cecf";

/// A headless Chromium and its driver; both end when this is dropped.
struct Browser {
    driver: Child,
    http: Http,
    session: String,
    profile: Scratch,
}

impl Browser {
    fn start() -> Self {
        let port = TcpListener::bind("127.0.0.1:0").and_then(|free| free.local_addr()).expect("a port").port();
        let mut driver = Command::new("chromedriver");
        driver.arg(format!("--port={port}")).stdout(Stdio::null()).stderr(Stdio::null());
        let driver = driver.spawn().expect("chromedriver, of Debian's package chromium-driver");
        let addr = SocketAddr::from(([127, 0, 0, 1], port));
        let mut browser = Self { driver, http: Http::of(addr), session: String::new(), profile: Scratch::new() };
        let until = Instant::now() + PATIENCE;
        while std::net::TcpStream::connect(addr).is_err() {
            assert!(Instant::now() < until, "chromedriver does not listen");
            std::thread::sleep(Duration::from_millis(50));
        }
        let profile = format!("--user-data-dir={}", browser.profile.path().display());
        let flags = [
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-quic",
            "--no-first-run",
            "--disable-dev-shm-usage",
            "--disable-background-networking",
            "--disable-component-update",
            "--disable-sync",
            &profile,
        ];
        let wanted = json!({"capabilities": {"alwaysMatch": {"goog:chromeOptions": {"args": flags}}}});
        let session = browser.ask("POST", "/session", &wanted);
        browser.session = format!("/session/{}", session["sessionId"].as_str().expect("a session"));
        browser
    }

    fn ask(&self, method: &str, path: &str, body: &Value) -> Value {
        let path = format!("{}{path}", self.session);
        let reply =
            if method == "POST" { self.http.json(method, &path, body) } else { self.http.ask(method, &path, "", b"") };
        assert_eq!(reply.status, 200, "{path}: {}", reply.text());
        reply.json()["value"].clone()
    }

    fn find(&self, css: &str) -> String {
        let found = self.ask("POST", "/element", &json!({"using": "css selector", "value": css}));
        format!("/element/{}", found[ELEMENT].as_str().expect("an element"))
    }

    fn click(&self, css: &str) {
        self.ask("POST", &format!("{}/click", self.find(css)), &json!({}));
    }

    fn type_into(&self, css: &str, text: &str) {
        self.ask("POST", &format!("{}/value", self.find(css)), &json!({"text": text}));
    }

    fn text(&self, css: &str) -> String {
        let script = "return document.querySelector(arguments[0])?.textContent ?? ''";
        let text = self.ask("POST", "/execute/sync", &json!({"script": script, "args": [css]}));
        text.as_str().expect("text").to_owned()
    }

    /// Waits until an element says this.
    #[track_caller]
    fn sees(&self, css: &str, due: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.text(css).contains(due) {
            assert!(
                Instant::now() < until,
                "{css} says '{}' where '{due}' was due; {}",
                self.text(css),
                self.text("#message")
            );
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

impl Drop for Browser {
    fn drop(&mut self) {
        if !self.session.is_empty() {
            // The driver ends its browser with the session.
            let _ended = self.http.ask("DELETE", &self.session, "", b"");
        }
        let _gone = self.driver.kill();
        let _waited = self.driver.wait();
    }
}

#[test]
#[ignore = "needs Chromium and chromedriver, which .ci/run installs"]
fn buckets_and_streams_are_made_followed_appended_to_and_trimmed_by_clicking() {
    let star = Star::start();
    star.append("orders", &["before", "<img src=x onerror=alert(1)>"]);
    let browser = Browser::start();
    browser.ask("POST", "/url", &json!({"url": format!("http://{}/", star.novad.http())}));
    browser.sees("#buckets", "demo");
    browser.click("#buckets li button");
    browser.sees("#streams", "orders");
    browser.click("#streams li button");
    browser.sees("#stream", "nova://demo/orders");
    browser.sees("#records", "before");
    browser.sees("#records", "<img src=x");
    browser.sees("#tail", "2");

    browser.type_into("#body", "typed ä");
    browser.click("#append button");
    browser.sees("#message", "2 is durable");
    browser.sees("#records li:first-child", "typed ä");
    star.append("orders", &["from elsewhere"]);
    browser.sees("#records li:first-child", "from elsewhere");
    browser.sees("#tail", "4");
    assert_eq!(star.got("/v1/buckets/demo/streams/orders/records?from=2")["records"][0]["body"], "typed ä");
    browser.type_into("#trim-to", "3");
    browser.click("#trim button");
    browser.sees("#trim-point", "3");

    browser.type_into("#bucket-name", "made-here");
    browser.click("#make-bucket button");
    browser.sees("#bucket", "made-here");
    browser.type_into("#stream-key", "a/b %2F?");
    browser.click("#open-stream button");
    browser.sees("#stream", "nova://made-here/a/b %2F?");
    browser.type_into("#body", "first");
    browser.click("#append button");
    browser.sees("#records li:first-child", "first");
    assert_eq!(star.got("/v1/buckets/made-here/streams/a%2Fb%20%252F%3F")["tail"]["seq_num"], 1);
    browser.type_into("#bucket-name", "X");
    browser.click("#make-bucket button");
    browser.sees("#message.wrong", "invalid: bucket name 'X'");
}
