//! How does a request that is refused look to its client?

use axum::body::Body;
use client::json::FailureForm;
use http::header::{CACHE_CONTROL, CONTENT_TYPE, RETRY_AFTER};
use http::{HeaderValue, Response, StatusCode};
use wire::reason::Reason;
use wire::refusal::Refusal;

/// Why a request is answered no.
#[derive(Debug)]
pub(super) struct HttpRefusal {
    refusal: Refusal,
    no_side_effect: bool,
    resent: bool,
    /// What HTTP itself has a status for: a method, a media type, a body that never came.
    status: Option<StatusCode>,
}

impl HttpRefusal {
    /// `invalid`, with the status that HTTP has for this kind of it.
    pub(super) fn of_http(status: StatusCode, message: impl Into<String>) -> Self {
        Self { status: Some(status), ..Self::from(Refusal::invalid(message)) }
    }

    pub(super) fn invalid(message: impl Into<String>) -> Self {
        Self::from(Refusal::invalid(message))
    }

    fn status(&self) -> StatusCode {
        let of_reason = self.refusal.reason.http_status().and_then(|status| StatusCode::from_u16(status).ok());
        self.status.or(of_reason).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }

    /// The body, as one JSON object.
    pub(super) fn body(&self, request_id: &str) -> String {
        let form = FailureForm::new(&self.refusal, self.no_side_effect, self.resent, request_id.to_owned());
        serde_json::to_string(&form).unwrap_or_default()
    }

    pub(super) fn response(&self, request_id: &str) -> Response<Body> {
        let status = self.status();
        if status.is_server_error() {
            tracing::warn!(request_id, status = status.as_u16(), refusal = %self.refusal, "a request failed");
        } else {
            tracing::debug!(request_id, status = status.as_u16(), refusal = %self.refusal, "a request was refused");
        }
        let mut response = Response::new(Body::from(self.body(request_id) + "\n"));
        *response.status_mut() = status;
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
        if let Ok(id) = HeaderValue::from_str(request_id) {
            headers.insert("x-request-id", id);
        }
        if let Some(seconds) = self.retry_after_seconds() {
            headers.insert(RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }

    /// HTTP knows whole seconds only; the body has milliseconds.
    fn retry_after_seconds(&self) -> Option<u64> {
        let told = self.refusal.details.as_ref().and_then(|details| details.retry_after_ms);
        match self.refusal.reason {
            Reason::ResourceExhausted | Reason::Unavailable => Some(told.unwrap_or(1_000).div_ceil(1_000).max(1)),
            _ => told.map(|ms| ms.div_ceil(1_000)),
        }
    }
}

impl From<Refusal> for HttpRefusal {
    fn from(refusal: Refusal) -> Self {
        Self { no_side_effect: refusal.reason.no_side_effect(), refusal, resent: false, status: None }
    }
}

impl From<client::Error> for HttpRefusal {
    fn from(error: client::Error) -> Self {
        Self {
            refusal: error.refusal().clone(),
            no_side_effect: error.no_side_effect(),
            resent: error.resent(),
            status: None,
        }
    }
}

impl From<wire::names::NameError> for HttpRefusal {
    fn from(error: wire::names::NameError) -> Self {
        Self::from(Refusal::from(error))
    }
}

#[cfg(test)]
mod tests {
    use super::HttpRefusal;
    use http::StatusCode;
    use wire::reason::Reason;
    use wire::refusal::Refusal;

    fn answered(refusal: Refusal) -> (StatusCode, Option<String>) {
        let response = HttpRefusal::from(refusal).response("r-1");
        let after = response.headers().get("retry-after").map(|value| value.to_str().unwrap().to_owned());
        assert_eq!(response.headers()["x-request-id"], "r-1");
        (response.status(), after)
    }

    #[test]
    fn every_reason_that_leaves_has_its_status_and_those_that_pass_a_time_to_come_back() {
        for reason in Reason::ALL.iter().filter(|reason| reason.http_status().is_some()) {
            let (status, _) = answered(Refusal::new(*reason, "no"));
            assert_eq!(Some(status.as_u16()), reason.http_status());
        }
        let (_, after) = answered(Refusal::new(Reason::ResourceExhausted, "no").with_retry_after_ms(1_001));
        assert_eq!(after.as_deref(), Some("2"));
        let (_, after) = answered(Refusal::new(Reason::Unavailable, "no"));
        assert_eq!(after.as_deref(), Some("1"));
        assert_eq!(answered(Refusal::new(Reason::NotFound, "no")).1, None);
    }
}
