//! How does a client of the store come of the settings and of what the environment says?

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_config::SdkConfig;
use aws_sdk_s3::Client;
use aws_sdk_s3::config::interceptors::BeforeDeserializationInterceptorContextRef;
use aws_sdk_s3::config::retry::RetryConfig;
use aws_sdk_s3::config::timeout::TimeoutConfig;
use aws_sdk_s3::config::{
    BehaviorVersion, Builder, ConfigBag, Intercept, ProvideCredentials, Region, RequestChecksumCalculation,
    ResponseChecksumValidation, RuntimeComponents, SharedHttpClient, StalledStreamProtectionConfig,
};
use aws_sdk_s3::error::BoxError;
use aws_smithy_http_client::tls::{Provider, rustls_provider::CryptoMode};
use aws_smithy_types::date_time::{DateTime, Format};
use failpoints::wall_shift_ms;
use tuning::settings::{S3, S3Endpoint, S3Region};

use super::failure::{S3Failure, chain};

/// A connection is there by then or is not counted on.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Characters of the SDK's reason for that there are no credentials.
const WHY_MAX: usize = 160;
/// What is signed for when neither the settings nor the environment name a region, as most stores that are not AWS expect.
const REGION_DEFAULT: &str = "us-east-1";

/// How far the store's clock is ahead of this process's.
#[derive(Clone, Debug)]
pub(super) struct Skew(Arc<AtomicI64>);

/// No answer has been seen.
const UNSEEN: i64 = i64::MIN;

impl Skew {
    pub(super) fn new() -> Self {
        Self(Arc::new(AtomicI64::new(UNSEEN)))
    }

    pub(super) fn ms(&self) -> Option<i64> {
        Some(self.0.load(Ordering::Relaxed)).filter(|ms| *ms != UNSEEN)
    }
}

impl Intercept for Skew {
    fn name(&self) -> &'static str {
        "skew"
    }

    /// Each answer says when the store gave it, to the second.
    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _bag: &mut ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date");
        let date = date.and_then(|text| DateTime::from_str(text, Format::HttpDate).ok());
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok().and_then(|now| i64::try_from(now.as_millis()).ok());
        if let (Some(date), Some(now_ms)) = (date.and_then(|date| date.to_millis().ok()), now) {
            self.0.store(date.saturating_sub(now_ms.saturating_add(wall_shift_ms())), Ordering::Relaxed);
        }
        Ok(())
    }
}

fn https() -> SharedHttpClient {
    aws_smithy_http_client::Builder::new().tls_provider(Provider::Rustls(CryptoMode::Ring)).build_https()
}

/// What the environment, the profile, the web identity or the instance has, in this order: credentials and, unless set, the region.
pub(super) async fn environment(s3: &S3) -> Result<SdkConfig, S3Failure> {
    let mut loader = aws_config::defaults(BehaviorVersion::v2026_01_12()).http_client(https());
    if let S3Region::Named(region) = &s3.region {
        loader = loader.region(Region::new(region.clone()));
    }
    let environment = loader.load().await;
    let provider = environment.credentials_provider();
    let provider = provider.ok_or_else(|| no_credentials("the environment has no source of any"))?;
    provider.provide_credentials().await.map_err(|error| no_credentials(&chain(&error)))?;
    Ok(environment)
}

/// How the search for credentials ended, in a few words: the SDK has a page of them.
fn no_credentials(why: &str) -> S3Failure {
    let why = why.split(". Attempted").next().unwrap_or_default();
    let why: String = why.chars().take(WHY_MAX).collect();
    S3Failure::unanswered(format!("no credentials were found: {why}"))
}

/// Makes the client.
pub(super) fn client(s3: &S3, environment: &SdkConfig, skew: &Skew) -> Client {
    let mut config = Builder::from(environment);
    if environment.region().is_none() {
        config = config.region(Region::new(REGION_DEFAULT));
    }
    config = match &s3.endpoint {
        S3Endpoint::Aws => config.http_client(https()),
        S3Endpoint::Url(url) if url.starts_with("http://") => {
            config.endpoint_url(url).http_client(aws_smithy_http_client::Builder::new().build_http())
        }
        S3Endpoint::Url(url) => config.endpoint_url(url).http_client(https()),
    };
    let timeouts = TimeoutConfig::builder().connect_timeout(CONNECT_TIMEOUT.min(s3.attempt_timeout_ms.duration()));
    let config = config
        .force_path_style(s3.path_style)
        .retry_config(RetryConfig::disabled())
        .timeout_config(timeouts.build())
        .stalled_stream_protection(StalledStreamProtectionConfig::disabled())
        .request_checksum_calculation(RequestChecksumCalculation::WhenRequired)
        .response_checksum_validation(ResponseChecksumValidation::WhenRequired)
        .interceptor(skew.clone());
    Client::from_conf(config.build())
}
