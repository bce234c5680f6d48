use std::net::TcpListener;
use std::sync::Arc;

use dsql_local::{Cluster, Config, Credentials, Speed, TokenClock};
use forebay::rt::TokioRuntime;

use super::*;
use crate::driver::Driver as _;
use crate::error::Throttle;
use crate::options::RootCertificates;
use crate::token::{SignFuture, Signer, TokenCache, TokenRequest};

/// Where the cluster is, and where it is not.
const HERE: [u8; 4] = [127, 0, 0, 1];
const ELSEWHERE: [u8; 4] = [127, 0, 0, 2];

fn cluster() -> Cluster {
    let config = Config {
        credentials: vec![Credentials::new("AKIDEXAMPLE", "not-a-secret")],
        speed: Speed::STOPPED,
        token_clock: TokenClock::Emulator,
        ..Config::default()
    };
    Cluster::start(config).unwrap()
}

struct Nobody;

impl Signer for Nobody {
    fn sign<'a>(&'a self, _: &'a TokenRequest) -> SignFuture<'a> {
        unreachable!("the tests have tokens of their own")
    }
}

fn connector(cluster: &Cluster, timeout: &str) -> Postgres {
    let options = crate::Options::builder(cluster.endpoint())
        .port(cluster.address().port())
        .region(cluster.region())
        .roots(RootCertificates::Pem(cluster.ca_pem().as_bytes().into()))
        .variable("DSQL_CONNECT_TIMEOUT", timeout);
    let runtime = TokioRuntime::current().unwrap();
    let tokens = TokenCache::new(Nobody, runtime.clone(), "test");
    Postgres::new(ConnectorParts::new(options.build().unwrap(), tokens, Arc::new(runtime))).unwrap()
}

async fn dialled(
    cluster: &Cluster,
    timeout: &str,
    addresses: &[[u8; 4]],
) -> Result<PostgresConnection, Error> {
    let addresses: Vec<IpAddr> = addresses.iter().map(|address| IpAddr::from(*address)).collect();
    let token = Token::new(cluster.token("admin").unwrap());
    connector(cluster, timeout).dial_any(&addresses, &token, &ConnectionMonitor::unattached()).await
}

#[tokio::test]
async fn what_one_address_says_is_not_asked_of_another() {
    let cluster = cluster();
    let id = cluster.inject("refuse:how=53300".parse().unwrap());
    let error = dialled(&cluster, "90s", &[HERE, ELSEWHERE, HERE]).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Throttled(Throttle::TooManyConnections), "{error}");
    assert_eq!(cluster.counters().sockets, 1, "one connect for one permit");
    cluster.heal(id);
    dialled(&cluster, "90s", &[ELSEWHERE, HERE]).await.unwrap().batch_execute("SELECT 1").await.unwrap();
}

#[tokio::test]
async fn an_address_that_says_nothing_does_not_take_all_the_time() {
    let cluster = cluster();
    let silent = TcpListener::bind((IpAddr::from(ELSEWHERE), cluster.address().port())).unwrap();
    dialled(&cluster, "100ms", &[ELSEWHERE, HERE]).await.unwrap().batch_execute("SELECT 1").await.unwrap();
    drop(silent);
}
