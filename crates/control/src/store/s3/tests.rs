use aws_sdk_s3::config::{BehaviorVersion, Credentials, Region, SharedCredentialsProvider};

use super::super::conformance;
use super::*;

/// An S3 server of the tests, such as `http://127.0.0.1:5000`.
const ENDPOINT: &str = "NOVA_TEST_S3_ENDPOINT";

fn block_on<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(300), future).await.unwrap() })
}

fn settings(endpoint: &str) -> S3 {
    S3 {
        endpoint: S3Endpoint::Url(endpoint.to_owned()),
        region: tuning::settings::S3Region::Named("us-east-1".to_owned()),
        attempt_timeout_ms: tuning::units::Millis::new(2_000),
        ..S3::default()
    }
}

/// The server that the environment names, if it does: says so on stderr if not, so that a run without it is seen to be one.
fn server(test: &str) -> Option<String> {
    let endpoint = std::env::var(ENDPOINT).ok().filter(|endpoint| !endpoint.is_empty());
    if endpoint.is_none() {
        eprintln!("NOT RUN ON S3: {test} needs {ENDPOINT}, the URL of an S3 server for tests");
    }
    endpoint
}

/// A store whose credentials are those of the tests, whatever the environment has.
fn open(bucket: &str, prefix: &str, s3: &S3) -> S3Store {
    let store = S3Store::new(bucket, prefix, s3);
    let environment = aws_config::SdkConfig::builder()
        .behavior_version(BehaviorVersion::v2026_01_12())
        .region(Region::new("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(Credentials::new("test", "test", None, None, "tests")))
        .build();
    store.0.client.set(connect::client(s3, &environment, &store.0.skew)).unwrap();
    store
}

fn name(text: &str) -> ObjectName {
    ObjectName::parse(text).unwrap()
}

#[test]
fn a_nonce_and_a_content_range_are_read_back() {
    let nonce = PutNonce::fresh();
    assert_eq!(parse_nonce(&nonce.to_string()), Some(nonce));
    for bad in ["", "12", "zz000000000000000000000000000000", "+1000000000000000000000000000000z"] {
        assert_eq!(parse_nonce(bad), None, "{bad}");
    }
    assert_eq!(parse_content_range("bytes 3-9/58"), Some((3, 58)));
    for bad in ["", "bytes */58", "bytes 3-9/*", "3-9/58"] {
        assert_eq!(parse_content_range(bad), None, "{bad}");
    }
}

/// A store in a bucket of its own, made without nova.
async fn fresh(endpoint: &str) -> S3Store {
    let bucket = format!("nova-{}", uuid::Uuid::now_v7().simple());
    let store = open(&bucket, "some/prefix", &settings(endpoint));
    let client = store.client(&store.call(StoreOp::Get, "")).await.unwrap();
    client.create_bucket().bucket(&bucket).send().await.unwrap();
    store
}

#[test]
fn the_s3_store_conforms() {
    let Some(endpoint) = server("the_s3_store_conforms") else { return };
    block_on(async {
        let store = fresh(&endpoint).await;
        let cases = conformance::check(Arc::new(store.clone()), |_| {}).await;
        let lines: Vec<_> = cases.iter().map(ToString::to_string).collect();
        assert!(cases.iter().all(|case| case.outcome.is_ok()), "{}", lines.join("\n"));
        let skew_ms = store.clock_skew_ms().unwrap();
        assert!((-2_000..=1_000).contains(&skew_ms), "a server on this host is {skew_ms} ms ahead");
    });
}

#[test]
fn a_bucket_that_is_not_there_is_no_absent_object() {
    let Some(endpoint) = server("a_bucket_that_is_not_there_is_no_absent_object") else { return };
    let store = open("nova-none", "", &settings(&endpoint));
    block_on(async {
        let key = name("meta/cluster");
        let (prefix, none) = (ObjectPrefix::all(), Version::new("\"0\""));
        let errors = [
            store.head(&key).await.unwrap_err(),
            store.get(&key, Span::Whole).await.unwrap_err(),
            store.put_if_absent(&key, Bytes::new(), PutNonce::fresh()).await.unwrap_err(),
            store.put_if_match(&key, &none, Bytes::new(), PutNonce::fresh()).await.unwrap_err(),
            store.delete_if_match(&key, &none).await.unwrap_err(),
            store.list(&prefix, None, 1).await.unwrap_err(),
        ];
        for error in errors {
            let line = error.to_string();
            assert!(matches!(error, StoreError::Refused { .. }), "{line}");
            assert!(line.contains("s3://nova-none/") && line.contains("make the bucket nova-none"), "{line}");
        }
    });
}

#[test]
fn another_program_sees_the_body_the_closing_bytes_and_the_nonce() {
    let Some(endpoint) = server("another_program_sees_the_body_the_closing_bytes_and_the_nonce") else { return };
    block_on(async {
        let store = fresh(&endpoint).await;
        let nonce = PutNonce::fresh();
        let version = store.put_if_absent(&name("a/b"), Bytes::from_static(b"body"), nonce).await.unwrap();
        let client = store.client(&store.call(StoreOp::Get, "")).await.unwrap();
        let get = client.get_object().bucket(&store.0.name).key("some/prefix/a/b").send().await.unwrap();
        assert_eq!(get.e_tag(), Some(version.as_str()));
        assert_eq!(get.metadata().unwrap()[NONCE_KEY], nonce.to_string());
        let stored = get.body.collect().await.unwrap().into_bytes();
        assert_eq!(stored, [&b"body"[..], &Trailer::of(b"body", nonce).encode()].concat());
    });
}

#[test]
fn an_object_that_was_changed_behind_nova_is_never_served() {
    let Some(endpoint) = server("an_object_that_was_changed_behind_nova_is_never_served") else { return };
    block_on(async {
        let store = fresh(&endpoint).await;
        let stored = [&b"body"[..], &Trailer::of(b"body", PutNonce::fresh()).encode()].concat();
        let mut flipped = stored.clone();
        flipped[1] ^= 4;
        let spoiled =
            [("cut", stored[..20].to_vec()), ("flipped", flipped), ("foreign", vec![9; 100]), ("empty", vec![])];
        let client = store.client(&store.call(StoreOp::Get, "")).await.unwrap();
        for (key, bytes) in spoiled {
            let path = format!("some/prefix/{key}");
            client.put_object().bucket(&store.0.name).key(path).body(ByteStream::from(bytes)).send().await.unwrap();
            let error = store.get(&name(key), Span::Whole).await.unwrap_err();
            let line = error.to_string();
            assert!(matches!(error, StoreError::Corrupt { .. }) && line.contains(key), "{key}: {line}");
        }
    });
}

#[test]
fn a_store_that_does_not_answer_is_told_with_its_address() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    // Accepted by the kernel, answered by nobody.
    let mut s3 = settings(&endpoint);
    s3.attempt_timeout_ms = tuning::units::Millis::new(100);
    let store = open("b", "p", &s3);
    let error = block_on(async { store.put_if_absent(&name("a"), Bytes::new(), PutNonce::fresh()).await.unwrap_err() });
    assert_eq!(error.effect(), Effect::Unknown);
    assert!(error.to_string().contains("put-if-absent of s3://b/p/a"), "{error}");
    drop(listener);
    let error = block_on(async { store.get(&name("a"), Span::Whole).await.unwrap_err() });
    assert_eq!(error.effect(), Effect::None);
    assert!(error.to_string().contains("refused"), "{error}");
}

#[test]
fn of_what_a_store_says_no_more_than_a_sentence_is_told() {
    let short = failure::short;
    assert_eq!(short("Access Denied"), "Access Denied");
    let (told, said) = (short(&"ä".repeat(5_000)), "ä".repeat(200));
    assert_eq!(told, format!("{said}…"));
}
