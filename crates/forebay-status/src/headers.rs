//! The headers that every answer has.

use axum::http::{HeaderValue, header};
use axum::response::Response;

/// Adds them. Nothing is cached, nothing is guessed, and no other site can use it.
pub(crate) async fn add(mut response: Response) -> Response {
    let always = [
        (header::CACHE_CONTROL, "no-store"),
        (header::X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (header::REFERRER_POLICY, "no-referrer"),
        (header::X_FRAME_OPTIONS, "DENY"),
    ];
    for (name, value) in always {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    let policy = HeaderValue::from_static("default-src 'none'; frame-ancestors 'none'");
    response.headers_mut().entry(header::CONTENT_SECURITY_POLICY).or_insert(policy);
    response
}
