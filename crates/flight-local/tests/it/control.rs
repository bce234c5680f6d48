//! Commands to a running server.

use std::time::Duration;

use flight_local::{Access, Auth, Config, Login, TellError, Tls, tell};
use tonic::Code;

use crate::client::{code, connect, number, query, start, until};

#[tokio::test]
async fn it_does_what_it_is_told() {
    let server = start(Config { control: true, ..Config::default() }).await;
    let (url, access) = (server.url(), Access::default());
    let mut client = connect(&server).await;
    assert_eq!(tell(&url, &access, "internal 1").await.unwrap(), "");
    assert_eq!(code(query(&mut client, "SELECT 1").await), Code::Internal);
    assert_eq!(number(&mut client, "SELECT 1").await, 1);
    let counters = tell(&url, &access, "counters").await.unwrap();
    assert!(counters.contains("\"statements_finished\":2"), "{counters}");
    // It needs no session.
    assert!(counters.contains("\"sessions_ever\":1"), "{counters}");
    let error = tell(&url, &access, "dance").await;
    assert!(matches!(&error, Err(TellError::Refused(text)) if text.contains("hang N")), "{error:?}");
    // No client can connect to end it. It ends by itself, and here a little earlier.
    tell(&url, &access, "refuse 1h").await.unwrap();
    let refused = tell(&url, &access, "counters").await;
    assert!(matches!(refused, Err(TellError::Unreachable { .. })), "{refused:?}");
    assert_eq!(number(&mut client, "SELECT 2").await, 2);
    server.faults().refuse_connections_for(Duration::ZERO);
    tell(&url, &access, "counters").await.unwrap();
    // The client may have tried more than once.
    assert!(server.counters().refused >= 1);
    tell(&url, &access, "reboot 0s").await.unwrap();
    until(&server, |counters| counters.sessions_open == 0).await;
    server.stop().await;
    assert!(matches!(tell(&url, &access, "counters").await, Err(TellError::Unreachable { .. })));
}

#[tokio::test]
async fn commands_need_the_control_setting_and_authentication() {
    let server = start(Config::default()).await;
    let error = tell(&server.url(), &Access::default(), "counters").await;
    assert!(matches!(error, Err(TellError::Refused(_))), "{error:?}");
    server.stop().await;
    let made = Tls::self_signed().unwrap();
    let auth = Some(Auth { tokens: vec!["fixed".to_owned()], ..Auth::basic("ann", "secret") });
    let tls = Some(made.mutual());
    let server = start(Config { control: true, tls, auth, ..Config::default() }).await;
    let mut access = Access { root_pem: Some(made.root_pem), ..Access::default() };
    assert!(tell(&server.url(), &access, "counters").await.is_err());
    access.identity_pem = Some((made.client_certificate_pem, made.client_key_pem));
    access.server_name = Some("localhost".to_owned());
    assert!(matches!(tell(&server.url(), &access, "counters").await, Err(TellError::Unknown(_))));
    let basic = |password: &str| Login::Basic { user: "ann".to_owned(), password: password.to_owned() };
    access.login = Some(basic("guess"));
    assert!(matches!(tell(&server.url(), &access, "counters").await, Err(TellError::Unknown(_))));
    for login in [Login::Bearer("fixed".to_owned()), basic("secret")] {
        access.login = Some(login);
        assert!(tell(&server.url(), &access, "counters").await.unwrap().starts_with('{'));
        let debug = format!("{access:?}");
        assert!(!["fixed", "secret", "PRIVATE"].iter().any(|secret| debug.contains(secret)), "{debug}");
    }
    access.login = Some(Login::Bearer("two\nlines".to_owned()));
    assert!(matches!(tell(&server.url(), &access, "counters").await, Err(TellError::Login)));
    let elsewhere = tell("http://127.0.0.1:1", &access, "counters").await;
    assert!(matches!(elsewhere, Err(TellError::Address(_))), "{elsewhere:?}");
    server.stop().await;
}
