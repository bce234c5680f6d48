//! Prepared statements, portals, pipelines, cancel requests.

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_postgres::NoTls;

use dsql_local::Cluster;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;

use crate::harness::{code, config, connect, eventually, socket, start};
use crate::hostile::login;

/// A session that sends exactly what a test needs.
struct Raw(TlsStream<TcpStream>);

impl Raw {
    async fn new(cluster: &Cluster) -> Self {
        Self(login(cluster).await)
    }

    async fn send(&mut self, tag: u8, body: &[u8]) {
        let mut message = vec![tag];
        message.extend(u32::try_from(body.len() + 4).unwrap().to_be_bytes());
        message.extend(body);
        self.0.write_all(&message).await.unwrap();
    }

    async fn prepare(&mut self, name: &str, sql: &str) {
        self.send(b'P', format!("{name}\0{sql}\0\0\0").as_bytes()).await;
    }

    async fn bind(&mut self, portal: &str, statement: &str) {
        self.send(b'B', format!("{portal}\0{statement}\0\0\0\0\0\0\0").as_bytes()).await;
    }

    async fn execute(&mut self, portal: &str, limit: u8) {
        self.send(b'E', format!("{portal}\0\0\0\0{}", char::from(limit)).as_bytes()).await;
    }

    async fn query(&mut self, sql: &str) -> String {
        self.send(b'Q', format!("{sql}\0").as_bytes()).await;
        self.answers().await
    }

    async fn sync(&mut self) -> String {
        self.send(b'S', b"").await;
        self.answers().await
    }

    /// The answers until ReadyForQuery, abbreviated: tags, error codes and command tags.
    async fn answers(&mut self) -> String {
        let mut said = Vec::new();
        loop {
            let mut head = [0; 5];
            self.0.read_exact(&mut head).await.unwrap();
            let [tag, length @ ..] = head;
            let mut body = vec![0; usize::try_from(u32::from_be_bytes(length)).unwrap() - 4];
            self.0.read_exact(&mut body).await.unwrap();
            let body = String::from_utf8_lossy(&body);
            said.push(match tag {
                b'C' => body.trim_end_matches('\0').to_owned(),
                b'E' => body.split('\0').find_map(|field| field.strip_prefix('C')).unwrap().to_owned(),
                b'Z' => return said.join(" "),
                _ => char::from(tag).to_string(),
            });
        }
    }
}

#[tokio::test]
async fn a_portal_runs_once() {
    let cluster = start(config());
    let mut raw = Raw::new(&cluster).await;
    raw.query("CREATE TABLE t (n int)").await;
    raw.prepare("", "INSERT INTO t VALUES (1)").await;
    raw.bind("p", "").await;
    raw.execute("p", 0).await;
    assert_eq!(raw.sync().await, "1 2 INSERT 0 1");
    raw.query("BEGIN").await;
    raw.bind("p", "").await;
    raw.execute("p", 0).await;
    raw.execute("p", 0).await;
    assert_eq!(raw.sync().await, "2 INSERT 0 1 55000");
    assert_eq!(raw.query("ROLLBACK").await, "ROLLBACK");
    assert_eq!(raw.query("SELECT n FROM t").await, "T D SELECT 1");
}

#[tokio::test]
async fn a_portal_that_gave_all_its_rows_gives_no_more() {
    let cluster = start(config());
    let mut raw = Raw::new(&cluster).await;
    raw.prepare("", "SELECT g FROM generate_series(1, 4) AS g").await;
    raw.bind("", "").await;
    // Exactly as many as there are: PostgreSQL does not check whether there are more.
    for limit in [2, 2, 2, 0] {
        raw.execute("", limit).await;
    }
    assert_eq!(raw.sync().await, "1 2 D D s D D s SELECT 0 SELECT 0");
    raw.bind("", "").await;
    raw.execute("", 3).await;
    raw.execute("", 3).await;
    assert_eq!(raw.sync().await, "2 D D D s D SELECT 1");
}

#[tokio::test]
async fn portals_end_with_their_transaction() {
    let cluster = start(config());
    let mut raw = Raw::new(&cluster).await;
    raw.prepare("s", "SELECT g FROM generate_series(1, 4) AS g").await;
    raw.prepare("commit", "COMMIT").await;
    raw.sync().await;
    raw.query("BEGIN").await;
    raw.bind("p", "s").await;
    raw.execute("p", 1).await;
    raw.bind("", "commit").await;
    raw.execute("", 0).await;
    raw.execute("p", 1).await;
    assert_eq!(raw.sync().await, "2 D s 2 COMMIT 34000");
}

#[tokio::test]
async fn a_portal_of_a_failed_transaction_gives_no_more_rows() {
    let cluster = start(config());
    let mut raw = Raw::new(&cluster).await;
    raw.prepare("s", "SELECT g FROM generate_series(1, 4) AS g").await;
    raw.sync().await;
    raw.query("BEGIN").await;
    raw.bind("p", "s").await;
    raw.execute("p", 1).await;
    assert_eq!(raw.sync().await, "2 D s");
    raw.bind("q", "nothing").await;
    assert_eq!(raw.sync().await, "26000");
    raw.execute("p", 1).await;
    assert_eq!(raw.sync().await, "25P02");
}

#[tokio::test]
async fn deallocated_statements_are_gone() {
    let cluster = start(config());
    let mut raw = Raw::new(&cluster).await;
    for name in ["a", "B", "c"] {
        raw.prepare(name, "SELECT 1").await;
    }
    assert_eq!(raw.sync().await, "1 1 1");
    assert_eq!(raw.query("DEALLOCATE a").await, "DEALLOCATE");
    assert_eq!(raw.query("DEALLOCATE PREPARE \"B\"").await, "DEALLOCATE");
    assert_eq!(raw.query("DEALLOCATE a").await, "26000");
    for gone in ["a", "B"] {
        raw.bind("", gone).await;
        assert_eq!(raw.sync().await, "26000");
    }
    // The same in the extended protocol.
    raw.prepare("", "DEALLOCATE ALL").await;
    raw.bind("", "").await;
    raw.execute("", 0).await;
    assert_eq!(raw.sync().await, "1 2 DEALLOCATE ALL");
    raw.bind("", "c").await;
    assert_eq!(raw.sync().await, "26000");
}

#[tokio::test]
async fn invalid_text_is_an_error_and_the_session_continues() {
    let cluster = start(config());
    let mut raw = Raw::new(&cluster).await;
    raw.send(b'Q', b"SELECT '\xff'\0").await;
    assert_eq!(raw.answers().await, "22021");
    raw.send(b'P', b"\0SELECT '\xff'\0\0\0").await;
    raw.bind("", "").await;
    assert_eq!(raw.sync().await, "22021");
    raw.prepare("", "SELECT $1::text").await;
    assert_eq!(raw.sync().await, "1");
    for value in [&b"a\0b"[..], b"a\xffb"] {
        let bind = [&b"\0\0\0\0\0\x01\0\0\0\x03"[..], value, b"\0\0"].concat();
        raw.send(b'B', &bind).await;
        assert_eq!(raw.sync().await, "22021");
    }
    assert_eq!(raw.query("SELECT 1").await, "T D SELECT 1");
}

#[tokio::test]
async fn statements_are_prepared_once_and_run_often() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    client.simple_query("CREATE TABLE t (n int)").await.unwrap();
    let insert = client.prepare("INSERT INTO t (n) VALUES ($1) RETURNING n").await.unwrap();
    for n in 0..5 {
        assert_eq!(client.query_one(&insert, &[&n]).await.unwrap().get::<_, i32>(0), n);
    }
    drop(insert);
    let unknown = client.prepare("SELECT * FROM nowhere").await.err().unwrap();
    assert_eq!(code(&unknown), "42P01");
}

#[tokio::test]
async fn a_pipeline_is_answered_in_order() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    let double = client.prepare("SELECT $1::int * 2").await.unwrap();
    let answers = (0..50).map(|n| {
        let (client, double) = (&client, &double);
        async move { client.query_one(double, &[&n]).await.unwrap().get::<_, i32>(0) }
    });
    let mut set = Vec::new();
    for answer in answers {
        set.push(Box::pin(answer));
    }
    // All are sent before the first answer is awaited.
    let all = futures(set).await;
    assert_eq!(all, (0..50).map(|n| n * 2).collect::<Vec<_>>());
}

async fn futures<F: Future<Output = i32> + Unpin>(mut futures: Vec<F>) -> Vec<i32> {
    let mut done = vec![None; futures.len()];
    std::future::poll_fn(|context| {
        for (future, done) in futures.iter_mut().zip(&mut done) {
            if done.is_none()
                && let std::task::Poll::Ready(value) = std::pin::Pin::new(future).poll(context)
            {
                *done = Some(value);
            }
        }
        if done.iter().all(Option::is_some) { std::task::Poll::Ready(()) } else { std::task::Poll::Pending }
    })
    .await;
    done.into_iter().flatten().collect()
}

#[tokio::test]
async fn a_portal_gives_its_rows_in_portions() {
    let cluster = start(config());
    let mut client = connect(&cluster).await;
    let transaction = client.transaction().await.unwrap();
    let portal = transaction.bind("SELECT g FROM generate_series(1, 10) AS g", &[]).await.unwrap();
    for expected in [4, 4, 2] {
        assert_eq!(transaction.query_portal(&portal, 4).await.unwrap().len(), expected);
    }
}

#[tokio::test]
async fn settings_are_set_shown_and_reported() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    client.simple_query("SET application_name = 'it'").await.unwrap();
    let shown: String = client.query_one("SHOW application_name", &[]).await.unwrap().get(0);
    assert_eq!(shown, "it");
    let version: String = client.query_one("SHOW server_version", &[]).await.unwrap().get(0);
    assert_eq!(version, "16.15");
}

#[tokio::test]
async fn cancel_requests_are_taken_and_ignored() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    let mut cancel = socket(cluster.address()).await;
    cancel.write_all(&[0, 0, 0, 16, 4, 210, 22, 46, 0, 0, 0, 1, 0, 0, 0, 0]).await.unwrap();
    assert_eq!(cancel.read(&mut [0; 1]).await.unwrap(), 0);
    client.simple_query("SELECT 1").await.unwrap();
    assert_eq!(cluster.counters().refusals(), 0);
}

#[tokio::test]
async fn a_client_that_asks_for_gss_first_may_still_have_tls() {
    let cluster = start(config());
    let mut client = socket(cluster.address()).await;
    let mut answer = [0];
    for (request, expected) in [([0, 0, 0, 8, 4, 210, 22, 48], b'N'), ([0, 0, 0, 8, 4, 210, 22, 47], b'S')] {
        client.write_all(&request).await.unwrap();
        client.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer[0], expected);
    }
}

#[tokio::test]
async fn without_tls_there_is_an_explanation() {
    let cluster = start(config());
    let address = cluster.address();
    let plain = format!("host={} port={} user=admin sslmode=disable", address.ip(), address.port());
    let error = tokio_postgres::connect(&plain, NoTls).await.err().unwrap();
    let error = error.as_db_error().unwrap();
    assert!(error.message().ends_with("TLS is required") && error.hint().is_some(), "{error:?}");
    eventually("counted", || cluster.counters().refusals() == 1).await;
}

#[tokio::test]
async fn a_rollback_undoes_the_settings_of_its_transaction() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    let shown = async || -> String { client.query_one("SHOW application_name", &[]).await.unwrap().get(0) };
    client.batch_execute("SET application_name = 'before'").await.unwrap();
    for (end, expected) in [("ROLLBACK", "before"), ("COMMIT", "within")] {
        client.batch_execute("BEGIN").await.unwrap();
        client.batch_execute("SET application_name = 'within'").await.unwrap();
        client.batch_execute(end).await.unwrap();
        assert_eq!(shown().await, expected);
    }
    // A transaction that has failed is rolled back by its COMMIT.
    client.batch_execute("BEGIN").await.unwrap();
    client.batch_execute("SET application_name = 'failed'").await.unwrap();
    client.batch_execute("SELEKT").await.unwrap_err();
    client.batch_execute("COMMIT").await.unwrap();
    assert_eq!(shown().await, "within");
}

#[tokio::test]
async fn a_local_setting_ends_with_its_transaction() {
    let cluster = start(config());
    let client = connect(&cluster).await;
    let shown = async || -> String { client.query_one("SHOW application_name", &[]).await.unwrap().get(0) };
    client.batch_execute("SET application_name = 'before'").await.unwrap();
    client.batch_execute("SET LOCAL application_name = 'nowhere'").await.unwrap();
    assert_eq!(shown().await, "before");
    for end in ["COMMIT", "ROLLBACK"] {
        client.batch_execute("BEGIN").await.unwrap();
        client.batch_execute("SET LOCAL application_name = 'local'").await.unwrap();
        assert_eq!(shown().await, "local");
        client.batch_execute(end).await.unwrap();
        assert_eq!(shown().await, "before");
    }
    // One for the session behind it stays.
    client
        .batch_execute("BEGIN; SET LOCAL application_name = 'local'; SET application_name = 'after'; COMMIT")
        .await
        .unwrap();
    assert_eq!(shown().await, "after");
}
