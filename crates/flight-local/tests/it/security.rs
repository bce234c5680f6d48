//! Authentication and TLS.

use flight_local::{Auth, Config, FlightLocal, StartError, Tls};
use tonic::Code;
use tonic::transport::{Certificate, ClientTlsConfig, Endpoint, Identity};

use crate::client::{Client, code, connect, number, query, start};

#[tokio::test]
async fn a_handshake_is_answered_with_a_token() {
    let auth = Auth { tokens: vec!["fixed".to_owned()], ..Auth::basic("ann", "secret") };
    let server = start(Config { auth: Some(auth), ..Config::default() }).await;
    let mut client = connect(&server).await;
    assert_eq!(code(query(&mut client, "SELECT 1").await), Code::Unauthenticated);
    assert!(client.handshake("ann", "wrong").await.is_err());
    client.handshake("ann", "secret").await.unwrap();
    assert!(client.token().is_some());
    assert_eq!(number(&mut client, "SELECT 1").await, 1);
    client.set_token("fixed".to_owned());
    assert_eq!(number(&mut client, "SELECT 2").await, 2);
    client.set_token("forged".to_owned());
    assert_eq!(code(query(&mut client, "SELECT 1").await), Code::Unauthenticated);
    let counters = server.counters();
    assert_eq!((counters.handshakes, counters.refused, counters.sessions_ever), (1, 3, 1));
    server.stop().await;
}

async fn secured(server: &FlightLocal, tls: ClientTlsConfig) -> Result<Client, tonic::transport::Error> {
    let url = server.url().replacen("grpc+tls", "https", 1);
    let endpoint = Endpoint::from_shared(url).unwrap().tls_config(tls).unwrap();
    Ok(Client::new(endpoint.connect().await?))
}

#[tokio::test]
async fn tls_with_an_authority_of_its_own() {
    let made = Tls::self_signed().unwrap();
    let server = start(Config { tls: Some(made.tls.clone()), ..Config::default() }).await;
    assert!(server.url().starts_with("grpc+tls://127.0.0.1:"));
    let root = Certificate::from_pem(&made.root_pem);
    let mut client = secured(&server, ClientTlsConfig::new().ca_certificate(root)).await.unwrap();
    assert_eq!(number(&mut client, "SELECT 1").await, 1);
    assert_eq!(server.counters().sessions_open, 1);
    let stranger = Tls::self_signed().unwrap();
    let root = Certificate::from_pem(&stranger.root_pem);
    assert!(secured(&server, ClientTlsConfig::new().ca_certificate(root)).await.is_err());
    server.stop().await;
}

#[tokio::test]
async fn clients_may_have_to_show_a_certificate() {
    let made = Tls::self_signed().unwrap();
    let server = start(Config { tls: Some(made.mutual()), ..Config::default() }).await;
    let trusting = ClientTlsConfig::new().ca_certificate(Certificate::from_pem(&made.root_pem));
    let identity = Identity::from_pem(&made.client_certificate_pem, &made.client_key_pem);
    let mut known = secured(&server, trusting.clone().identity(identity)).await.unwrap();
    assert_eq!(number(&mut known, "SELECT 1").await, 1);
    // With TLS 1.3, a client notices the refusal with its first answer.
    if let Ok(mut nobody) = secured(&server, trusting).await {
        assert!(query(&mut nobody, "SELECT 1").await.is_err());
    }
    assert_eq!(server.counters().sessions_ever, 1);
    server.stop().await;
}

#[tokio::test]
async fn a_certificate_of_no_use_is_an_error_at_the_start() {
    let tls =
        Tls { certificate_pem: "nothing".to_owned(), key_pem: "nothing".to_owned(), client_ca_pem: None };
    let error = FlightLocal::start(Config { tls: Some(tls), ..Config::default() }).await.unwrap_err();
    assert!(matches!(error, StartError::Certificate(_)), "{error}");
}
