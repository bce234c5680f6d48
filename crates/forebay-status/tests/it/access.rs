//! Who gets an answer.

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use forebay_status::{Listen, ServeError, StatusPage, Token};

use crate::http::get_with;
use crate::serve;

const SECRET: &str = "2a7c1f90b3d84e65";

#[tokio::test]
async fn other_machines_need_a_token() {
    for address in ["0.0.0.0:0", "[::]:0"] {
        let refused = StatusPage::new().serve(address.parse().expect("an address")).await;
        let Err(error @ ServeError::NeedsToken { .. }) = refused else { panic!("{refused:?}") };
        assert!(error.to_string().contains("serve the page with a token, or on 127.0.0.1"), "{error}");
    }
}

#[tokio::test]
async fn an_address_in_use_is_named() {
    let first = serve(&StatusPage::new()).await;
    let second = StatusPage::new().serve(Listen::new(first.address())).await;
    let Err(error @ ServeError::Bind { .. }) = second else { panic!("{second:?}") };
    assert!(error.to_string().starts_with(&format!("cannot listen on {}: ", first.address())), "{error}");
}

#[tokio::test]
async fn a_token_is_asked_for_everywhere_but_at_the_probes() {
    let page = StatusPage::new();
    let listen = Listen::new(([0, 0, 0, 0], 0).into()).token(Token::new(SECRET).expect("a token"));
    let server = page.serve(listen).await.expect("a server");
    let address = ([127, 0, 0, 1], server.address().port()).into();
    let host = ("Host", "status.example");
    for path in ["/", "/status.json", "/events", "/metrics", "/nothing", "/healthz/", "//readyz"] {
        let refused = get_with(address, path, &[host]).await;
        assert_eq!(refused.status, 401, "{path}");
        assert!(refused.header("www-authenticate").starts_with("Basic "), "a browser prompts");
        assert_eq!(refused.header("cache-control"), "no-store");
        assert!(!refused.body.contains(SECRET));
    }
    let bearer = format!("Bearer {SECRET}");
    let basic = format!("Basic {}", STANDARD.encode(format!("me:{SECRET}")));
    for value in [&bearer, &basic] {
        let admitted = get_with(address, "/status.json", &[host, ("Authorization", value)]).await;
        assert_eq!(admitted.status, 200);
    }
    let wrong = get_with(address, "/", &[host, ("Authorization", "Bearer 2a7c1f90b3d84e66")]).await;
    assert_eq!(wrong.status, 401);
    assert_eq!(get_with(address, "/healthz", &[host]).await.status, 200);
    let probe = get_with(address, "/readyz", &[host]).await;
    assert_eq!((probe.status, probe.body.contains("no pool")), (503, false), "the reasons need the token");
    let probe = get_with(address, "/readyz", &[host, ("Authorization", &bearer)]).await;
    assert_eq!((probe.status, probe.body.contains("no pool")), (503, true));
}

#[tokio::test]
async fn without_a_token_only_names_of_this_machine_are_answered() {
    let server = serve(&StatusPage::new()).await;
    let status =
        async |host: &str| get_with(server.address(), "/status.json", &[("Host", host)]).await.status;
    assert_eq!(status("localhost").await, 200);
    assert_eq!(status("[::1]:1").await, 200);
    assert_eq!(status("rebound.example").await, 403);
    let refused = get_with(server.address(), "/", &[("Host", "rebound.example")]).await;
    assert!(refused.body.contains("only requests to localhost"), "{}", refused.body);
}
