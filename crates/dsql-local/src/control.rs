//! The control port: HTTP on loopback, for tests and people outside of this process.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use percent_encoding::percent_decode_str;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;

use crate::clock::{self, Speed};
use crate::config::{Limits, RefuseWhen};
use crate::faults::{Fault, duration};
use crate::shared::Shared;

const REQUEST_TIMEOUT: Duration = Duration::from_secs(5);
const REQUEST_LIMIT: usize = 64 * 1024;
const MAX_CONCURRENT: usize = 64;
const LIMIT_NAMES: &str = "connections, per_second, burst, session_life, transaction_life, refuse (before-auth, after-auth) and refusal_costs (true, false)";
const HELP: &str = "\
GET    /counters             the counters as JSON
GET    /metrics              the counters for Prometheus
GET    /limits               the admission limits
POST   /limits?NAME=VALUE    changes limits: connections, per_second, burst, session_life, transaction_life,
                             refuse (before-auth, after-auth), refusal_costs (true, false)
POST   /refill               fills the token bucket of new connections
GET    /clock                the emulator's clock
POST   /clock?advance=1h     advances the clock; speed=60 changes its speed
GET    /faults               the active faults
POST   /faults               adds the faults in the body, one per line: conflict:p=0.1
DELETE /faults               removes all faults; /faults/3 removes one
GET    /token?role=admin     a connect token
";

/// Status, content type, body.
struct Response(&'static str, &'static str, String);

impl Response {
    fn json(value: &Value) -> Self {
        Self("200 OK", "application/json", format!("{value:#}\n"))
    }

    fn text(text: String) -> Self {
        Self("200 OK", "text/plain; charset=utf-8", text)
    }

    fn problem(status: &'static str, problem: &str) -> Self {
        Self(status, "application/json", format!("{:#}\n", json!({ "error": problem })))
    }
}

/// Serves requests until the runtime ends.
pub(crate) async fn serve(shared: Arc<Shared>, listener: TcpListener) {
    let places = Arc::new(Semaphore::new(MAX_CONCURRENT));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else { return };
        let Ok((socket, _)) = listener.accept().await else {
            clock::pause(Duration::from_millis(10)).await;
            continue;
        };
        let served = shared.clone();
        shared.tasks.spawn(async move {
            // The client is too slow or gone; either way it gets no answer.
            drop(clock::within(REQUEST_TIMEOUT, handle(&served, socket)).await);
            drop(place);
        });
    }
}

async fn handle(shared: &Arc<Shared>, mut socket: TcpStream) -> std::io::Result<()> {
    let mut input = Vec::new();
    let response = loop {
        match parse_request(&input) {
            Ok(Some(request)) => break respond(shared, &request),
            Err(problem) => break Response::problem("400 Bad Request", problem),
            Ok(None) if input.len() > REQUEST_LIMIT => {
                break Response::problem("413 Content Too Large", "a request has at most 64 KiB");
            }
            Ok(None) => {}
        }
        if socket.read_buf(&mut input).await? == 0 {
            return Ok(());
        }
    };
    let Response(status, kind, body) = response;
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
        body.len()
    );
    socket.write_all(head.as_bytes()).await?;
    socket.write_all(body.as_bytes()).await?;
    socket.shutdown().await
}

struct Request {
    method: String,
    path: String,
    query: BTreeMap<String, String>,
    body: String,
}

/// Parses a request; none if it is not complete.
fn parse_request(input: &[u8]) -> Result<Option<Request>, &'static str> {
    let mut headers = [httparse::EMPTY_HEADER; 32];
    let mut request = httparse::Request::new(&mut headers);
    let httparse::Status::Complete(head) = request.parse(input).map_err(|_| "not HTTP/1.1")? else {
        return Ok(None);
    };
    let header = |name: &str| {
        request
            .headers
            .iter()
            .find(|header| header.name.eq_ignore_ascii_case(name))
            .map(|header| header.value)
    };
    let site = header("sec-fetch-site").unwrap_or(b"none");
    if header("origin").is_some() || !matches!(site, b"none" | b"same-origin") {
        return Err("requests from web pages are refused");
    }
    // A web page whose DNS name points here (DNS rebinding) sends no Origin with a GET, but its name is in
    // Host.
    let mut hosts = request.headers.iter().filter(|header| header.name.eq_ignore_ascii_case("host"));
    if !matches!((hosts.next(), hosts.next()), (Some(host), None) if is_loopback(host.value)) {
        return Err("the Host must be 127.0.0.1, localhost or [::1]");
    }
    let length =
        header("content-length").map_or(Some(0), |text| std::str::from_utf8(text).ok()?.trim().parse().ok());
    let length: usize = length.ok_or("the Content-Length is not a number")?;
    let Some(body) = input[head..].get(..length) else { return Ok(None) };
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).map_err(|_| "not UTF-8");
    let (path, query) =
        request.path.unwrap_or("/").split_once('?').unwrap_or((request.path.unwrap_or("/"), ""));
    let decoded = |part: &str| percent_decode_str(part).decode_utf8_lossy().into_owned();
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    let query = pairs
        .map(|pair| pair.split_once('=').unwrap_or((pair, "")))
        .map(|(name, value)| (decoded(name), decoded(value)));
    Ok(Some(Request {
        method: request.method.unwrap_or("").to_owned(),
        path: path.trim_end_matches('/').to_owned(),
        query: query.collect(),
        body: text(body)?,
    }))
}

/// Whether a Host header, with or without a port, names this machine.
fn is_loopback(host: &[u8]) -> bool {
    let Ok(host) = std::str::from_utf8(host) else { return false };
    ["127.0.0.1", "localhost", "[::1]"].iter().any(|name| {
        let (Some(head), Some(port)) = (host.get(..name.len()), host.get(name.len()..)) else { return false };
        let port_fits =
            port.is_empty() || port.strip_prefix(':').is_some_and(|port| port.parse::<u16>().is_ok());
        head.eq_ignore_ascii_case(name) && port_fits
    })
}

fn respond(shared: &Arc<Shared>, request: &Request) -> Response {
    let path: Vec<&str> = request.path.split('/').skip(1).collect();
    let outcome = match (request.method.as_str(), path.as_slice()) {
        ("GET", []) => Ok(Response::text(HELP.to_owned())),
        ("GET", ["counters"]) => Ok(Response::json(&shared.counters().json())),
        ("GET", ["metrics"]) => Ok(Response::text(shared.counters().prometheus())),
        ("GET", ["limits"]) => Ok(limits(shared)),
        ("POST", ["limits"]) => change_limits(shared.sessions.limits(), &request.query).map(|changed| {
            shared.sessions.set_limits(changed, shared.clock.now());
            limits(shared)
        }),
        ("POST", ["refill"]) => reject_unknown(&request.query, &[]).map(|()| {
            shared.sessions.refill(shared.clock.now());
            limits(shared)
        }),
        ("GET", ["clock"]) => Ok(show_clock(shared)),
        ("POST", ["clock"]) => change_clock(shared, &request.query).map(|()| show_clock(shared)),
        ("GET", ["faults"]) => Ok(Response::json(&shared.faults.json())),
        ("POST", ["faults"]) => add_faults(shared, &request.body),
        ("DELETE", ["faults"]) => {
            shared.faults.clear();
            Ok(Response::json(&shared.faults.json()))
        }
        ("DELETE", ["faults", id]) => match id.parse() {
            Ok(id) if shared.faults.remove(id) => Ok(Response::json(&shared.faults.json())),
            _ => Err(format!("there is no fault {id}; GET /faults lists them")),
        },
        ("GET", ["token"]) => token(shared, &request.query),
        (_, ["counters" | "metrics" | "limits" | "refill" | "clock" | "faults" | "token", ..]) => {
            return Response::problem(
                "405 Method Not Allowed",
                "this path does not have this method; GET / lists all",
            );
        }
        _ => return Response::problem("404 Not Found", "there is no such path; GET / lists all"),
    };
    outcome.unwrap_or_else(|problem| Response::problem("400 Bad Request", &problem))
}

fn limits(shared: &Shared) -> Response {
    let now = shared.clock.now();
    let limits = shared.sessions.limits();
    Response::json(&json!({
        "connections": limits.connections,
        "per_second": limits.per_second,
        "burst": limits.burst,
        "session_life_seconds": limits.session_life.as_secs_f64(),
        "transaction_life_seconds": limits.transaction_life.as_secs_f64(),
        "refuse": if limits.refuse == RefuseWhen::BeforeAuth { "before-auth" } else { "after-auth" },
        "refusal_costs": limits.refusal_costs,
        "tokens": shared.sessions.tokens(now),
    }))
}

fn change_limits(mut limits: Limits, query: &BTreeMap<String, String>) -> Result<Limits, String> {
    fn number<T: std::str::FromStr>(text: &str) -> Result<T, String> {
        text.parse().map_err(|_| format!("'{text}' is invalid: give a whole number, or true or false"))
    }
    if query.is_empty() {
        return Err(format!("no limit is given; there are: {LIMIT_NAMES}"));
    }
    for (name, value) in query {
        match name.as_str() {
            "connections" => limits.connections = number(value)?,
            "per_second" => limits.per_second = number(value)?,
            "burst" => limits.burst = number(value)?,
            "session_life" => limits.session_life = duration(value)?,
            "transaction_life" => limits.transaction_life = duration(value)?,
            "refusal_costs" => limits.refusal_costs = number(value)?,
            "refuse" => {
                limits.refuse = match value.as_str() {
                    "before-auth" => RefuseWhen::BeforeAuth,
                    "after-auth" => RefuseWhen::AfterAuth,
                    _ => return Err(format!("'{value}' is neither before-auth nor after-auth")),
                }
            }
            _ => return Err(format!("there is no limit '{name}'; there are: {LIMIT_NAMES}")),
        }
    }
    Ok(limits)
}

/// Rejects parameters that would be ignored.
fn reject_unknown(query: &BTreeMap<String, String>, known: &[&str]) -> Result<(), String> {
    match query.keys().find(|name| !known.contains(&name.as_str())) {
        Some(name) if known.is_empty() => Err(format!("unknown parameter '{name}': there are none here")),
        Some(name) => Err(format!("unknown parameter '{name}'; there are: {}", known.join(", "))),
        None => Ok(()),
    }
}

fn show_clock(shared: &Shared) -> Response {
    Response::json(&json!({
        "seconds_since_start": shared.clock.now().as_secs_f64(),
        "seconds_since_1970": shared.clock.date().as_secs_f64(),
        "speed": shared.clock.speed().to_string(),
    }))
}

fn change_clock(shared: &Shared, query: &BTreeMap<String, String>) -> Result<(), String> {
    // Read everything before anything changes.
    let speed = query.get("speed").map(|text| text.parse::<Speed>()).transpose()?;
    let advance = query.get("advance").map(|text| duration(text)).transpose()?;
    reject_unknown(query, &["speed", "advance"])?;
    if query.is_empty() {
        return Err("nothing to change: give advance=1h or speed=60".to_owned());
    }
    speed.into_iter().for_each(|speed| shared.clock.set_speed(speed));
    advance.into_iter().for_each(|by| shared.clock.advance(by));
    Ok(())
}

fn add_faults(shared: &Arc<Shared>, body: &str) -> Result<Response, String> {
    let lines = body.lines().map(str::trim).filter(|line| !line.is_empty());
    // All faults or none.
    let faults = lines.map(str::parse).collect::<Result<Vec<Fault>, String>>()?;
    if faults.is_empty() {
        return Err("no fault in the body; for example: conflict:p=0.1".to_owned());
    }
    let ids: Vec<u64> = faults.into_iter().map(|fault| shared.inject(fault)).collect();
    Ok(Response::json(&json!({ "ids": ids })))
}

fn token(shared: &Shared, query: &BTreeMap<String, String>) -> Result<Response, String> {
    reject_unknown(query, &["role"])?;
    let role = query.get("role").map_or("admin", String::as_str);
    let token = shared.token(role).ok_or("there are no credentials to sign with")?;
    // Without a newline, which would become part of the password.
    Ok(Response::text(token))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_waits_for_its_body() {
        let whole = b"POST /faults?a=b%20c HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8\r\n\r\nconflict";
        assert!(parse_request(&whole[..whole.len() - 1]).unwrap().is_none());
        let request = parse_request(whole).unwrap().unwrap();
        assert_eq!((request.method.as_str(), request.path.as_str()), ("POST", "/faults"));
        assert_eq!((request.query["a"].as_str(), request.body.as_str()), ("b c", "conflict"));
        assert!(parse_request(b"\x16\x03\x01").is_err());
    }

    #[test]
    fn requests_from_web_pages_are_refused() {
        let asked =
            |headers: &str| parse_request(format!("GET / HTTP/1.1\r\n{headers}\r\n").as_bytes()).is_ok();
        for host in ["127.0.0.1", "127.0.0.1:5434", "localhost:80", "LOCALHOST", "[::1]:5434", "[::1]"] {
            assert!(asked(&format!("Host: {host}\r\n")), "{host}");
        }
        for host in ["evil.example", "evil.example:5434", "127.0.0.1.evil.example", "localhost:x", "", "[::1"]
        {
            assert!(!asked(&format!("Host: {host}\r\n")), "{host}");
        }
        assert!(!asked(""));
        assert!(!asked("Host: localhost\r\nHost: evil.example\r\n"));
        assert!(!asked("Host: localhost\r\nOrigin: http://x\r\n"));
        for (site, fine) in
            [("cross-site", false), ("same-site", false), ("none", true), ("same-origin", true)]
        {
            assert_eq!(asked(&format!("Host: localhost\r\nSec-Fetch-Site: {site}\r\n")), fine, "{site}");
        }
    }

    #[test]
    fn limits_change_together_or_not_at_all() {
        let query = |pairs: &[(&str, &str)]| {
            pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
        };
        let changed =
            change_limits(Limits::default(), &query(&[("burst", "5"), ("refuse", "after-auth")])).unwrap();
        assert_eq!((changed.burst, changed.refuse), (5, RefuseWhen::AfterAuth));
        let unknown = change_limits(Limits::default(), &query(&[("rate", "5")])).unwrap_err();
        let parts =
            "no limit 'rate'; there are: connections, per_second, burst, session_life, transaction_life";
        assert!(unknown.contains(parts), "{unknown}");
        assert!(change_limits(Limits::default(), &query(&[("burst", "-5")])).is_err());
    }
}
