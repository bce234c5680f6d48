//! Who may see a page that is served at an address of its own.

use std::net::IpAddr;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{HeaderMap, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use crate::token::Token;

/// The rule for all requests of a server.
#[derive(Clone, Debug)]
pub(crate) enum Access {
    /// Only requests with this token, except for probes.
    Token(Arc<Token>),
    /// Only requests that name this machine. A website whose name was made to point here does not.
    LoopbackNames,
}

/// Paths that orchestrators ask without a token. They get the status only: reasons can name servers and users.
const PROBES: [&str; 2] = ["/healthz", "/readyz"];

/// Refuses a request, or lets it pass.
pub(crate) async fn check(State(access): State<Access>, request: Request, next: Next) -> Response {
    let is_probe = PROBES.contains(&request.uri().path());
    match access.refusal(request.headers()) {
        Some(Refusal::Token) if is_probe => {
            let status = next.run(request).await.status();
            let text =
                if status.is_success() { "ok\n" } else { "not ready: with the token, this says why\n" };
            (status, text).into_response()
        }
        Some(refusal) => refusal.into_response(),
        None => next.run(request).await,
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Refusal {
    Token,
    Host,
}

impl IntoResponse for Refusal {
    fn into_response(self) -> Response {
        match self {
            Self::Token => (
                StatusCode::UNAUTHORIZED,
                [(header::WWW_AUTHENTICATE, "Basic realm=\"forebay\", charset=\"UTF-8\"")],
                "This page needs its token: as Authorization: Bearer TOKEN, or as the password with any user name.\n",
            )
                .into_response(),
            Self::Host => (
                StatusCode::FORBIDDEN,
                "This page answers only requests to localhost or a loopback address. Serve it with a token to use another name.\n",
            )
                .into_response(),
        }
    }
}

impl Access {
    fn refusal(&self, headers: &HeaderMap) -> Option<Refusal> {
        match self {
            Self::Token(token) => {
                let mut presented = headers.get_all(header::AUTHORIZATION).iter();
                let admitted = presented.any(|value| value.to_str().is_ok_and(|value| token.admits(value)));
                (!admitted).then_some(Refusal::Token)
            }
            // A browser always sends the name. What sends none is no browser.
            Self::LoopbackNames => {
                let mut hosts = headers.get_all(header::HOST).iter();
                let local = hosts.all(|host| host.to_str().is_ok_and(names_this_machine));
                (!local).then_some(Refusal::Host)
            }
        }
    }
}

/// Whether the value of a `Host` header is a name or an address of this machine only.
fn names_this_machine(host: &str) -> bool {
    let name = match host.strip_prefix('[') {
        Some(rest) => match rest.split_once(']') {
            Some((address, port)) if is_port(port) => address,
            _ => return false,
        },
        None => match host.split_once(':') {
            Some((name, port)) if port.bytes().all(|byte| byte.is_ascii_digit()) => name,
            Some(_) => return false,
            None => host,
        },
    };
    let name = name.strip_suffix('.').unwrap_or(name).to_ascii_lowercase();
    name == "localhost"
        || name.ends_with(".localhost")
        || name.parse::<IpAddr>().is_ok_and(|address| address.to_canonical().is_loopback())
}

fn is_port(text: &str) -> bool {
    text.is_empty()
        || text.strip_prefix(':').is_some_and(|port| port.bytes().all(|byte| byte.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    fn headers(name: header::HeaderName, values: &[&str]) -> HeaderMap {
        let mut headers = HeaderMap::new();
        for value in values {
            headers.append(&name, HeaderValue::from_str(value).unwrap());
        }
        headers
    }

    #[test]
    fn names_of_this_machine() {
        for host in [
            "localhost",
            "localhost:9464",
            "LocalHost",
            "localhost.",
            "demo.localhost:80",
            "127.0.0.1",
            "127.0.0.1:9464",
            "127.1.2.3",
            "[::1]",
            "[::1]:9464",
            "[::ffff:127.0.0.1]:1",
        ] {
            assert!(names_this_machine(host), "{host}");
        }
        for host in [
            "",
            "example.org",
            "example.org:9464",
            "127.0.0.1.example.org",
            "localhost.example.org",
            "notlocalhost",
            "10.0.0.1",
            "0.0.0.0",
            "[::]:1",
            "[2001:db8::1]",
            "::1",
            "[::1",
            "[::1]x",
            "localhost:x",
            "user@localhost",
            "127.0.0.1:80:80",
        ] {
            assert!(!names_this_machine(host), "{host}");
        }
    }

    #[test]
    fn another_name_is_refused() {
        let refusal = |hosts: &[&str]| Access::LoopbackNames.refusal(&headers(header::HOST, hosts));
        assert_eq!(refusal(&["localhost:9464"]), None);
        assert_eq!(refusal(&[]), None, "no browser");
        assert_eq!(refusal(&["evil.example"]), Some(Refusal::Host));
        assert_eq!(refusal(&["localhost", "evil.example"]), Some(Refusal::Host));
    }

    #[test]
    fn a_token_is_needed() {
        let access = Access::Token(Arc::new(Token::new("0123456789abcdef").unwrap()));
        let refusal = |values: &[&str]| access.refusal(&headers(header::AUTHORIZATION, values));
        assert_eq!(refusal(&["Bearer 0123456789abcdef"]), None);
        assert_eq!(refusal(&[]), Some(Refusal::Token));
        assert_eq!(refusal(&["Bearer 0123456789abcdeF"]), Some(Refusal::Token));
    }
}
