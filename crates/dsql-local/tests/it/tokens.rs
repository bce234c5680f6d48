//! Which tokens are accepted, and the errors for the others.

use std::sync::Mutex;
use std::time::Duration;

use dsql_local::{Action, Cluster, Config, Credentials, sign};
use tokio_postgres::Error;
use tokio_postgres::config::SslNegotiation;

use crate::harness::{ENDPOINT, config, connect_with, keys, options, start, told};

const LIFE: Duration = Duration::from_secs(900);

async fn with_token(cluster: &Cluster, user: &str, token: String) -> Result<tokio_postgres::Client, Error> {
    let mut options = options(cluster);
    options.user(user).password(token);
    connect_with(cluster, &options).await
}

fn denied() -> (String, String, Option<String>) {
    ("28000".to_owned(), "unable to accept connection, access denied".to_owned(), None)
}

#[tokio::test]
async fn a_token_one_second_too_old_is_refused_with_the_hint() {
    let cluster = start(config());
    let token = cluster.token("admin").unwrap();
    cluster.clock().advance(LIFE);
    with_token(&cluster, "admin", token.clone()).await.unwrap();
    cluster.clock().advance(Duration::from_secs(1));
    let (code, message, hint) = told(&with_token(&cluster, "admin", token).await.err().unwrap());
    assert_eq!((code, message), (denied().0, denied().1));
    assert!(hint.as_ref().is_some_and(|hint| hint.starts_with("Signature expired: ")), "{hint:?}");
}

#[tokio::test]
async fn a_token_for_another_host_region_action_or_key_is_refused_without_it() {
    let cluster = start(config());
    let now = cluster.clock().date();
    let admin = Action::ConnectAdmin;
    let wrong = [
        sign(&keys(), "xyz.dsql.us-east-1.on.aws", "us-east-1", admin, now, LIFE),
        sign(&keys(), ENDPOINT, "us-west-2", admin, now, LIFE),
        sign(&keys(), ENDPOINT, "us-east-1", Action::Connect, now, LIFE),
        sign(&Credentials::new("AKIDOTHER", "x"), ENDPOINT, "us-east-1", admin, now, LIFE),
        sign(&Credentials::new("AKIDEXAMPLE", "x"), ENDPOINT, "us-east-1", admin, now, LIFE),
        "no token".to_owned(),
    ];
    for token in wrong {
        assert_eq!(told(&with_token(&cluster, "admin", token).await.err().unwrap()), denied());
    }
    assert_eq!(cluster.counters().refused["28000"], 6);
    let reasons = ["host", "region", "action", "key", "signature", "malformed"];
    assert_eq!(cluster.counters().denied, reasons.map(|reason| (reason, 1)).into());
    let other_role = sign(&keys(), ENDPOINT, "us-east-1", admin, now, LIFE);
    assert_eq!(told(&with_token(&cluster, "app", other_role).await.err().unwrap()), denied());
}

#[tokio::test]
async fn the_operator_learns_the_reason_but_never_the_token() {
    static SAID: Mutex<Vec<String>> = Mutex::new(Vec::new());
    let notice = |text: &str| SAID.lock().unwrap().push(text.to_owned());
    let cluster = start(Config { notice: Some(notice), ..config() });
    let now = cluster.clock().date();
    let old = sign(&keys(), ENDPOINT, "us-east-1", Action::ConnectAdmin, now - LIFE * 2, LIFE);
    let elsewhere = sign(&keys(), "xyz.example", "us-east-1", Action::ConnectAdmin, now, LIFE);
    for token in [&old, &elsewhere] {
        assert!(with_token(&cluster, "admin", token.clone()).await.is_err());
        let said = SAID.lock().unwrap().join("\n");
        let signature = token.rsplit('=').next().unwrap();
        assert!(!said.contains(signature) && !said.contains("X-Amz"), "{said}");
    }
    cluster.inject("refuse:how=denied".parse().unwrap());
    assert!(crate::harness::try_connect(&cluster).await.is_err());
    let said = SAID.lock().unwrap().clone();
    assert!(said[0].starts_with("denied \"admin\": Signature expired: "), "{said:?}");
    assert!(said[1].contains(&format!("signed for another host; sign for {ENDPOINT}")), "{said:?}");
    assert!(said[2].contains("there is a fault"), "{said:?}");
    assert_eq!(cluster.counters().denied, [("expired", 1), ("fault", 1), ("host", 1)].into());
}

#[tokio::test]
async fn every_role_needs_its_own_action() {
    let cluster = start(config());
    let token = cluster.token("app").unwrap();
    with_token(&cluster, "app", token).await.unwrap();
}

#[tokio::test]
async fn a_session_outlives_its_token_and_its_key() {
    let cluster = start(config());
    let client = crate::harness::connect(&cluster).await;
    cluster.clock().advance(LIFE * 2);
    cluster.set_credentials(vec![Credentials::new("AKIDNEW", "new")]);
    client.simple_query("SELECT 1").await.unwrap();
    let old = sign(&keys(), ENDPOINT, "us-east-1", Action::ConnectAdmin, cluster.clock().date(), LIFE);
    assert_eq!(told(&with_token(&cluster, "admin", old).await.err().unwrap()), denied());
    crate::harness::connect(&cluster).await;
}

#[tokio::test]
async fn a_server_whose_clock_is_wrong_says_so() {
    for (skew, hint) in [(-400, "Signature not yet current: "), (901, "Signature expired: ")] {
        let machine = dsql_local::TokenClock::Machine;
        let cluster = start(Config { token_skew: skew, token_clock: machine, ..config() });
        let token = dsql_local::sign_now(&keys(), ENDPOINT, "us-east-1", Action::ConnectAdmin, LIFE);
        let told = told(&with_token(&cluster, "admin", token).await.err().unwrap());
        assert!(told.2.as_ref().is_some_and(|told| told.starts_with(hint)), "{told:?}");
    }
}

#[tokio::test]
async fn both_negotiations_work_and_another_database_does_not() {
    let cluster = start(config());
    for negotiation in [SslNegotiation::Postgres, SslNegotiation::Direct] {
        let mut options = options(&cluster);
        options.ssl_negotiation(negotiation);
        connect_with(&cluster, &options).await.unwrap().simple_query("SELECT 1").await.unwrap();
    }
    let mut options = options(&cluster);
    options.dbname("other");
    let told = told(&connect_with(&cluster, &options).await.err().unwrap());
    assert_eq!((told.0.as_str(), told.1.as_str()), ("3D000", "database \"other\" does not exist"));
}

#[tokio::test]
async fn localhost_is_a_name_it_answers_to() {
    let cluster = start(config());
    let mut options = tokio_postgres::Config::new();
    options
        .host("localhost")
        .port(cluster.address().port())
        .user("admin")
        .password(cluster.token("admin").unwrap())
        .dbname("postgres")
        .ssl_mode(tokio_postgres::config::SslMode::Require);
    connect_with(&cluster, &options).await.unwrap();
}
