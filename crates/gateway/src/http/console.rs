//! What does a browser see that comes to the root?
//!
//! One page with its script and its style, all of it in this binary: it loads nothing from anywhere else.

use axum::Router;
use axum::routing::get;
use http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, X_FRAME_OPTIONS};
use http::{HeaderValue, StatusCode};

use super::answer::fresh;

/// Nothing from elsewhere, nothing inline, and in no frame: what is in streams is shown here, and is its writers'.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
     form-action 'self'; base-uri 'none'; frame-ancestors 'none'";

const FILES: [(&str, &str, &str); 3] = [
    ("/", "text/html; charset=utf-8", include_str!("console.html")),
    ("/console.css", "text/css; charset=utf-8", include_str!("console.css")),
    ("/console.js", "text/javascript; charset=utf-8", include_str!("console.js")),
];

/// The router with the console's files.
pub(super) fn on(router: Router) -> Router {
    FILES.into_iter().fold(router, |router, (path, kind, text)| {
        router.route(
            path,
            get(move || async move {
                let mut response = fresh(StatusCode::OK, kind, text);
                let headers = response.headers_mut();
                headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
                headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
                headers.insert(X_FRAME_OPTIONS, HeaderValue::from_static("DENY"));
                response
            }),
        )
    })
}
