//! The endpoints.

use std::sync::Arc;

use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::middleware;
use axum::response::{IntoResponse, Response};
use axum::routing::get;

use crate::page::Shared;
use crate::{assets, headers, stream};

const TEXT: &str = "text/plain; charset=utf-8";

/// The routes, with the headers that every answer has.
pub(crate) fn router(page: Arc<Shared>) -> Router {
    Router::new()
        .route("/", get(index))
        .route("/status.json", get(status))
        .route("/events", get(events))
        .route("/metrics", get(metrics))
        .route("/healthz", get(healthz))
        .route("/readyz", get(readyz))
        .fallback(unknown)
        .layer(middleware::map_response(headers::add))
        .with_state(page)
}

async fn index(State(page): State<Arc<Shared>>) -> Response {
    let _ = page.start();
    let headers = [
        (header::CONTENT_TYPE, "text/html; charset=utf-8"),
        (header::CONTENT_SECURITY_POLICY, assets::policy()),
    ];
    (headers, assets::page()).into_response()
}

async fn status(State(page): State<Arc<Shared>>) -> Response {
    let _ = page.start();
    ([(header::CONTENT_TYPE, "application/json")], page.status_json()).into_response()
}

async fn events(State(page): State<Arc<Shared>>) -> Response {
    match page.start() {
        Ok(runtime) => stream::respond(page, runtime),
        Err(error) => text(StatusCode::SERVICE_UNAVAILABLE, &error.to_string()),
    }
}

async fn metrics(State(page): State<Arc<Shared>>) -> Response {
    match page.render() {
        Some(render) => {
            ([(header::CONTENT_TYPE, "text/plain; version=0.0.4; charset=utf-8")], render()).into_response()
        }
        None => text(
            StatusCode::NOT_FOUND,
            "No metrics: give the page a renderer, such as StatusPage::new().metrics(forebay_status::prometheus()?).",
        ),
    }
}

async fn healthz() -> Response {
    text(StatusCode::OK, "ok")
}

async fn readyz(State(page): State<Arc<Shared>>) -> Response {
    let _ = page.start();
    let reasons = page.unready();
    if reasons.is_empty() {
        return text(StatusCode::OK, "ready");
    }
    text(StatusCode::SERVICE_UNAVAILABLE, &reasons.join("\n"))
}

async fn unknown() -> Response {
    let line = "Not found. There are /, /status.json, /events, /metrics, /healthz and /readyz.";
    text(StatusCode::NOT_FOUND, line)
}

fn text(status: StatusCode, line: &str) -> Response {
    (status, [(header::CONTENT_TYPE, TEXT)], format!("{line}\n")).into_response()
}
