//! The control port, from outside.

use dsql_local::{Cluster, Config};
use serde_json::Value;
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use crate::harness::{code, config, connect, connect_with, eventually, options, socket, start, try_connect};

fn controlled() -> Cluster {
    start(Config { control: Some("127.0.0.1:0".parse().unwrap()), ..config() })
}

async fn ask(cluster: &Cluster, method: &str, path: &str, body: &str) -> (u16, String) {
    let mut socket = socket(cluster.control_address().unwrap()).await;
    let request = format!(
        "{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    socket.write_all(request.as_bytes()).await.unwrap();
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").unwrap();
    (head.split_whitespace().nth(1).unwrap().parse().unwrap(), body.to_owned())
}

async fn json(cluster: &Cluster, method: &str, path: &str, body: &str) -> Value {
    let (status, body) = ask(cluster, method, path, body).await;
    assert_eq!(status, 200, "{body}");
    serde_json::from_str(&body).unwrap()
}

#[tokio::test]
async fn counters_are_shown_as_json_and_for_prometheus() {
    let cluster = controlled();
    let _client = connect(&cluster).await;
    let counters = json(&cluster, "GET", "/counters", "").await;
    assert_eq!((&counters["accepted"], &counters["live"]), (&1.into(), &1.into()));
    let (status, text) = ask(&cluster, "GET", "/metrics", "").await;
    assert!(status == 200 && text.contains("\ndsql_local_live 1\n"), "{text}");
}

#[tokio::test]
async fn faults_are_added_listed_and_ended() {
    let cluster = controlled();
    let added = json(&cluster, "POST", "/faults", "refuse:how=53300\ndelay:for=1us\n").await;
    assert_eq!(added["ids"], serde_json::json!([1, 2]));
    assert_eq!(code(&try_connect_while_delayed(&cluster).await), "53300");
    let list = json(&cluster, "GET", "/faults", "").await;
    assert_eq!((&list[0]["fault"], &list[0]["hits"]), (&"refuse:how=53300".into(), &1.into()));
    let (status, problem) = ask(&cluster, "POST", "/faults", "conflict\nexplode").await;
    assert!(status == 400 && problem.contains("there is no fault 'explode'"), "{problem}");
    assert_eq!(json(&cluster, "DELETE", "/faults/2", "").await.as_array().unwrap().len(), 1);
    assert_eq!(ask(&cluster, "DELETE", "/faults/2", "").await.0, 400);
    assert_eq!(json(&cluster, "DELETE", "/faults", "").await, serde_json::json!([]));
    connect(&cluster).await;
}

#[tokio::test]
async fn a_delayed_sever_can_be_removed() {
    let cluster = controlled();
    let client = connect(&cluster).await;
    let added = json(&cluster, "POST", "/faults", "sever:after=60s\nsever:after=90s").await;
    assert_eq!(added["ids"], serde_json::json!([1, 2]));
    let list = json(&cluster, "GET", "/faults", "").await;
    assert_eq!(list[0]["fault"], "sever:fraction=1,after=60s");
    assert_eq!(json(&cluster, "DELETE", "/faults/1", "").await.as_array().unwrap().len(), 1);
    cluster.clock().advance(std::time::Duration::from_secs(60));
    client.simple_query("SELECT 1").await.unwrap();
    cluster.clock().advance(std::time::Duration::from_secs(30));
    eventually("the cut", || client.is_closed()).await;
    let list = json(&cluster, "GET", "/faults", "").await;
    assert_eq!((&list[0]["hits"], &list[0]["spent"]), (&1.into(), &true.into()));
}

/// The clock is stopped, so a delayed client needs this task to advance it.
async fn try_connect_while_delayed(cluster: &Cluster) -> tokio_postgres::Error {
    let advance = async {
        eventually("the socket", || cluster.counters().sockets == 1).await;
        while cluster.counters().refusals() == 0 {
            cluster.clock().advance(std::time::Duration::from_micros(1));
            tokio::task::yield_now().await;
        }
    };
    let (outcome, ()) = tokio::join!(try_connect(cluster), advance);
    outcome.err().unwrap()
}

#[tokio::test]
async fn the_clock_and_the_limits_can_be_changed() {
    let cluster = controlled();
    let client = connect(&cluster).await;
    let clock = json(&cluster, "POST", "/clock?advance=1h", "").await;
    assert_eq!(clock["seconds_since_start"], 3_600.0);
    eventually("the end", || client.is_closed()).await;
    let limits = json(&cluster, "POST", "/limits?connections=0&refuse=after-auth", "").await;
    assert_eq!((&limits["connections"], &limits["refuse"]), (&0.into(), &"after-auth".into()));
    assert_eq!(code(&try_connect(&cluster).await.err().unwrap()), "53300");
    assert_eq!(ask(&cluster, "POST", "/limits?colour=blue", "").await.0, 400);
    assert_eq!(ask(&cluster, "POST", "/clock?advance=-1h", "").await.0, 400);
    assert_eq!(ask(&cluster, "GET", "/nothing", "").await.0, 404);
}

#[tokio::test]
async fn it_signs_tokens() {
    let cluster = controlled();
    let (_, token) = ask(&cluster, "GET", "/token?role=app", "").await;
    let mut options = options(&cluster);
    options.user("app").password(token.trim());
    connect_with(&cluster, &options).await.unwrap();
}

#[tokio::test]
async fn an_invalid_configuration_is_refused_with_a_message() {
    let open = Config { control: Some("0.0.0.0:0".parse().unwrap()), ..config() };
    let problem = Cluster::start(open).err().unwrap().to_string();
    assert!(problem.contains("loopback"), "{problem}");
    let precious = std::env::temp_dir().join(format!("dsql-local-it-{}", std::process::id()));
    std::fs::write(&precious, "a letter").unwrap();
    let problem =
        Cluster::start(Config { ca_file: Some(precious.clone()), ..config() }).err().unwrap().to_string();
    assert!(problem.contains("is not a certificate"), "{problem}");
    assert_eq!(std::fs::read_to_string(&precious).unwrap(), "a letter");
    std::fs::remove_file(&precious).unwrap();
    let taken = start(config());
    let problem = Cluster::start(Config { listen: taken.address(), ..config() }).err().unwrap().to_string();
    assert!(problem.contains("cannot listen on 127.0.0.1"), "{problem}");
    for (endpoint, region, part) in [
        ("", "us-east-1", "the endpoint must not be empty"),
        ("http://foo", "us-east-1", "'http://foo' is not an endpoint"),
        ("foo:5432", "us-east-1", "'foo:5432' is not an endpoint"),
        ("foo", "", "the region must not be empty"),
    ] {
        let odd = Config { endpoint: endpoint.to_owned(), region: region.to_owned(), ..config() };
        let problem = Cluster::start(odd).err().unwrap().to_string();
        assert!(problem.contains(part), "{endpoint}, {region}: {problem}");
    }
    let keyless = Cluster::start(Config { credentials: vec![], ..config() }).err().unwrap().to_string();
    assert!(keyless.contains("--credentials-file"), "{keyless}");
}
