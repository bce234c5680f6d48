//! Every known error, over the wire, through both clients, wrapped as applications wrap them.

use std::sync::Arc;

use forebay::{CheckoutError, Failure, OpenError};
use forebay_dsql::{Auth, ConditionFailed, Conflict, Error, ErrorKind, Limit, Throttle, TokenError};
use sqlx::{Connection, Executor};

use crate::parrot::{self, Line};

const fn line(code: &'static str, message: &'static str, hint: &'static str) -> Line {
    Line { code, message, hint }
}

/// At a statement.
const STATEMENTS: &[(Line, ErrorKind)] = &[
    (
        line("40001", "change conflicts with another transaction (OC000)", ""),
        ErrorKind::Conflict(Conflict::Change),
    ),
    (
        line("40001", "schema has been updated by another transaction (OC001)", ""),
        ErrorKind::Conflict(Conflict::Schema),
    ),
    (
        line("40001", "Change conflicts with another transaction, please retry: (oc000)", ""),
        ErrorKind::Conflict(Conflict::Change),
    ),
    (line("40001", "could not serialize access", ""), ErrorKind::Conflict(Conflict::Other)),
    (line("OC000", "change conflicts with another transaction", ""), ErrorKind::Conflict(Conflict::Change)),
    (line("OC001", "schema has been updated", ""), ErrorKind::Conflict(Conflict::Schema)),
    (line("54000", "transaction row limit exceeded", ""), ErrorKind::Limit(Limit::Rows)),
    (line("54000", "transaction size limit 10mb exceeded", ""), ErrorKind::Limit(Limit::Size)),
    (line("54000", "Transaction age limit of 300s exceeded", ""), ErrorKind::Limit(Limit::Age)),
    (line("54000", "too many columns", ""), ErrorKind::Limit(Limit::Other)),
    (line("0A000", "unsupported statement: Truncate", ""), ErrorKind::Unsupported),
    (line("0A000", "multiple ddl statements not supported in a transaction", ""), ErrorKind::Unsupported),
    (line("0A000", "cached plan must not change result type", ""), ErrorKind::Conflict(Conflict::Schema)),
    (line("XX000", "server unavailable", ""), ErrorKind::Unavailable),
    (line("57P01", "terminating connection due to administrator command", ""), ErrorKind::Disconnected),
    (line("42704", "type \"serial\" does not exist", ""), ErrorKind::Permanent),
    (line("23505", "duplicate key value violates unique constraint", ""), ErrorKind::Permanent),
    (line("25P02", "current transaction is aborted", ""), ErrorKind::Permanent),
    (line("42601", "syntax error", "OC000 is not what this is about"), ErrorKind::Permanent),
    (line("08P01", "message too long", ""), ErrorKind::Limit(Limit::Message)),
    (line("08007", "transaction resolution unknown", ""), ErrorKind::CommitUnknown),
    (line("40003", "statement completion unknown", ""), ErrorKind::CommitUnknown),
    (line("P0001", "the customer was unable to accept connection, access denied", ""), ErrorKind::Permanent),
];

/// At a connect. Two of them have no code that anyone knows, so they come here with one that says nothing.
const CONNECTS: &[(Line, ErrorKind)] = &[
    (
        line("53300", "Unable to accept connection, too many open connections.", ""),
        ErrorKind::Throttled(Throttle::TooManyConnections),
    ),
    (
        line("53400", "Unable to accept connection, rate exceeded.", ""),
        ErrorKind::Throttled(Throttle::RateExceeded),
    ),
    (
        line("XX000", "unable to accept connection, rate exceeded", ""),
        ErrorKind::Throttled(Throttle::RateExceeded),
    ),
    (
        line("XX000", "unable to accept connection, waking up cluster, please retry later", ""),
        ErrorKind::Throttled(Throttle::Waking),
    ),
    (
        line(
            "XX000",
            "UNABLE TO ACCEPT CONNECTION, ACCESS DENIED",
            "signature expired: 20261115T120000Z is now earlier",
        ),
        ErrorKind::Auth(Auth::SignatureExpired),
    ),
    (line("28000", "unable to accept connection, access denied", ""), ErrorKind::Auth(Auth::Denied)),
    (
        line("28000", "unable to accept connection, access denied", "Role missing: Signature fine"),
        ErrorKind::Auth(Auth::Denied),
    ),
    (line("28P01", "password authentication failed", ""), ErrorKind::Auth(Auth::Denied)),
    (line("08P01", "unable to accept connection, sni was not received", ""), ErrorKind::Permanent),
    (line("3D000", "database does not exist", ""), ErrorKind::Permanent),
];

/// As an application would have it: the driver's error two levels down.
#[derive(Debug, thiserror::Error)]
#[error("order 7 was not stored")]
struct Outer(#[source] Middle);

#[derive(Debug, thiserror::Error)]
#[error("the store failed")]
struct Middle(#[source] Box<dyn std::error::Error + Send + Sync>);

fn check(error: impl std::error::Error + Send + Sync + 'static, expected: ErrorKind, what: &str) {
    let error = Arc::new(error);
    assert_eq!(
        ErrorKind::of(&Middle(Box::new(Arc::clone(&error)))),
        expected,
        "{what}, shared by the application"
    );
    let wrapped = Outer(Middle(Box::new(Arc::into_inner(error).unwrap())));
    assert_eq!(ErrorKind::of(&wrapped), expected, "{what}, two levels down");
    let Outer(Middle(error)) = wrapped;
    let shared = Arc::new(Error::of(error));
    assert_eq!(ErrorKind::of(&Middle(Box::new(Arc::clone(&shared)))), expected, "{what}, shared");
    let error = Arc::into_inner(shared).unwrap();
    // What the server said, once, whichever client wraps it how.
    let message = what.split('|').nth(1).unwrap();
    assert_eq!(error.to_string().matches(message).count(), 1, "{error}");
    assert_eq!(error.kind(), expected, "{what}");
    assert_eq!(ErrorKind::of(&Outer(Middle(Box::new(error)))), expected, "{what}, classified before");
}

async fn tokio_postgres(
    address: std::net::SocketAddr,
    database: &str,
) -> Result<tokio_postgres::Client, tokio_postgres::Error> {
    let mut config = tokio_postgres::Config::new();
    config.hostaddr(address.ip()).port(address.port()).user("admin").dbname(database);
    let (client, connection) = config.connect(tokio_postgres::NoTls).await?;
    tokio::spawn(async move { drop(connection.await) });
    Ok(client)
}

async fn sqlx(address: std::net::SocketAddr, database: &str) -> Result<sqlx::PgConnection, sqlx::Error> {
    let options = sqlx::postgres::PgConnectOptions::new_without_pgpass()
        .host("127.0.0.1")
        .port(address.port())
        .username("admin")
        .database(database)
        .ssl_mode(sqlx::postgres::PgSslMode::Disable);
    sqlx::PgConnection::connect_with(&options).await
}

#[tokio::test]
async fn tokio_postgres_errors_have_their_class() {
    let address = parrot::start().await;
    for (line, kind) in STATEMENTS {
        let client = tokio_postgres(address, "postgres").await.unwrap();
        check(client.simple_query(&line.text()).await.unwrap_err(), *kind, &line.text());
    }
    for (line, kind) in CONNECTS {
        check(tokio_postgres(address, &line.text()).await.err().unwrap(), *kind, &line.text());
    }
}

#[tokio::test]
async fn sqlx_errors_have_their_class() {
    let address = parrot::start().await;
    for (line, kind) in STATEMENTS {
        let mut connection = sqlx(address, "postgres").await.unwrap();
        let text = line.text();
        let error = connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(text.clone()))).await.unwrap_err();
        check(error, *kind, &text);
    }
    for (line, kind) in CONNECTS {
        check(sqlx(address, &line.text()).await.err().unwrap(), *kind, &line.text());
    }
}

#[tokio::test]
async fn a_lost_connection_is_disconnected_and_unknown_in_a_commit() {
    let address = parrot::start().await;
    let client = tokio_postgres(address, "postgres").await.unwrap();
    for _ in 0..2 {
        // First the end of the stream, then a client that knows it is closed.
        let error = Error::from(client.simple_query("hang up").await.unwrap_err());
        assert_eq!(error.kind(), ErrorKind::Disconnected, "{error}");
        let error = error.at_commit();
        assert_eq!(error.kind(), ErrorKind::CommitUnknown);
        assert!(error.to_string().contains("find out before doing it again"), "{error}");
    }
    let mut connection = sqlx(address, "postgres").await.unwrap();
    let error = connection.execute(sqlx::raw_sql("hang up")).await.unwrap_err();
    assert_eq!(ErrorKind::of(&error), ErrorKind::Disconnected, "{error:?}");

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = listener.local_addr().unwrap();
    drop(listener);
    assert_eq!(
        ErrorKind::of(&tokio_postgres(nobody, "postgres").await.err().unwrap()),
        ErrorKind::Disconnected
    );
    assert_eq!(ErrorKind::of(&sqlx(nobody, "postgres").await.err().unwrap()), ErrorKind::Disconnected);
}

#[test]
fn errors_without_a_server_have_their_class() {
    let io = |kind| std::io::Error::new(kind, "as told");
    for kind in ["reset", "pipe", "eof", "aborted", "timeout"] {
        use std::io::ErrorKind::{BrokenPipe, ConnectionAborted, ConnectionReset, TimedOut, UnexpectedEof};
        let kind = match kind {
            "reset" => ConnectionReset,
            "pipe" => BrokenPipe,
            "eof" => UnexpectedEof,
            "aborted" => ConnectionAborted,
            _ => TimedOut,
        };
        assert_eq!(Error::from(io(kind)).kind(), ErrorKind::Disconnected, "{kind:?}");
    }
    assert_eq!(
        Error::from(io(std::io::ErrorKind::InvalidData)).kind(),
        ErrorKind::Permanent,
        "a wrong certificate"
    );
    let wrapped = std::io::Error::other(io(std::io::ErrorKind::ConnectionReset));
    assert_eq!(Error::from(wrapped).kind(), ErrorKind::Disconnected, "wrapped");
    assert_eq!(Error::from(std::io::Error::other("odd")).kind(), ErrorKind::Permanent);

    let empty = CheckoutError::Empty { waited: std::time::Duration::ZERO, last_open_error: None };
    assert_eq!(Error::from(empty).kind(), ErrorKind::NoConnection);
    assert_eq!(Error::from(CheckoutError::Closed).kind(), ErrorKind::Permanent);
    let open = OpenError::new(Failure::Token, TokenError::unavailable("no metadata"));
    assert_eq!(Error::from(open).kind(), ErrorKind::Auth(Auth::NoToken));
    assert_eq!(ErrorKind::of(&sqlx::Error::PoolTimedOut), ErrorKind::NoConnection);
    assert_eq!(ErrorKind::of(&sqlx::Error::RowNotFound), ErrorKind::Permanent);

    let failed = ConditionFailed { entity: "shard 7".into(), expected: "4".into(), found: Some("5".into()) };
    let error = Error::from(failed.clone());
    assert_eq!(error.kind(), ErrorKind::ConditionFailed);
    assert_eq!(error.condition(), Some(&failed));
    assert_eq!(error.to_string(), "condition failed: shard 7: expected 4, found 5");
}

/// A pool that is empty says whether that will pass.
#[test]
fn an_empty_pool_has_the_class_of_what_keeps_it_empty() {
    let denied = || Error::new(ErrorKind::Auth(Auth::Denied), "unable to accept connection, access denied");
    let no_role = || Error::new(ErrorKind::Permanent, "role \"nix\" does not exist");
    let lost = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
    for (open, expected) in [
        (OpenError::new(Failure::Auth, denied()), ErrorKind::Auth(Auth::Denied)),
        (OpenError::new(Failure::Auth, "a connector of somebody's own"), ErrorKind::Auth(Auth::Denied)),
        (OpenError::new(Failure::Open, no_role()), ErrorKind::Permanent),
        (OpenError::new(Failure::Open, lost()), ErrorKind::NoConnection),
        (OpenError::new(Failure::Open, "who knows"), ErrorKind::NoConnection),
        (OpenError::new(Failure::Timeout, "no connection within 10s"), ErrorKind::NoConnection),
        (OpenError::new(Failure::Throttled, "waking up"), ErrorKind::NoConnection),
        (OpenError::new(Failure::Token, TokenError::credentials("none")), ErrorKind::Auth(Auth::NoToken)),
        (OpenError::new(Failure::Token, TokenError::unavailable("away")), ErrorKind::NoConnection),
    ] {
        let told = open.to_string();
        let waited = std::time::Duration::from_millis(100);
        let empty = CheckoutError::Empty { waited, last_open_error: Some(std::sync::Arc::new(open)) };
        assert_eq!(ErrorKind::of(&empty), expected, "{told}");
        let error = Error::from(empty);
        assert_eq!(error.kind(), expected, "{told}");
        assert_eq!(error.to_string().matches(&told).count(), 1, "{error}");
    }
}

/// As `anyhow` prints it with `{:#}`, and as `std::error::Report` would.
fn each_once(error: impl std::error::Error + Send + Sync + 'static, messages: &[&str]) -> String {
    let plain = error.to_string();
    let first: &(dyn std::error::Error + 'static) = &error;
    let walk = std::iter::successors(Some(first), |error| error.source());
    let walked = walk.map(ToString::to_string).collect::<Vec<_>>().join(": ");
    let alternate = format!("{:#}", anyhow::Error::new(error).context("the order was not stored"));
    for message in messages {
        for text in [&plain, &walked, &alternate] {
            assert_eq!(text.matches(message).count(), 1, "{message:?} in {text:?}");
        }
    }
    plain
}

#[tokio::test]
async fn each_message_is_printed_once_and_plain_text_has_the_cause() {
    let address = parrot::start().await;
    let (message, remedy) = ("change conflicts with another transaction", "run the whole transaction again");
    let text = STATEMENTS[0].0.text();
    let client = tokio_postgres(address, "postgres").await.unwrap();
    let error = Error::from(client.simple_query(&text).await.unwrap_err());
    assert!(error.get_ref().is::<tokio_postgres::Error>());
    each_once(error, &[message, "conflict OC000", remedy]);
    let mut connection = sqlx(address, "postgres").await.unwrap();
    let query = sqlx::raw_sql(sqlx::AssertSqlSafe(text));
    let error = Error::from(connection.execute(query).await.unwrap_err());
    assert!(error.get_ref().is::<sqlx::Error>());
    each_once(Error::new(error.kind(), error), &[message, "conflict OC000", remedy]);

    let waited = std::time::Duration::from_millis(100);
    let refused = || {
        let source =
            std::io::Error::new(std::io::ErrorKind::ConnectionRefused, Middle("nobody listens".into()));
        Arc::new(OpenError::new(Failure::Open, source))
    };
    let messages = ["connection_open", "the store failed", "nobody listens"];
    let empty = || CheckoutError::Empty { waited, last_open_error: Some(refused()) };
    each_once(empty(), &messages);
    each_once(Arc::into_inner(refused()).unwrap(), &messages);
    let plain = each_once(Error::from(empty()), &[&messages[..], &["no connection", "100ms"]].concat());
    assert!(plain.starts_with("no connection became ready within 100ms; the last open failed: "), "{plain}");

    let denied = Error::new(ErrorKind::Auth(Auth::Denied), "unable to accept connection, access denied");
    let denied = Arc::new(OpenError::new(Failure::Auth, denied).permanent());
    let denied = CheckoutError::Denied { waited, last_open_error: denied };
    let plain = each_once(Error::from(denied), &["auth: ", "access denied", "check the role"]);
    assert!(plain.starts_with("no connection can be opened; auth: "), "{plain}");

    let token = || TokenError::unavailable(Middle("no metadata".into()));
    each_once(token(), &["the store failed", "no metadata"]);
    each_once(Error::from(token()), &["auth", "the store failed", "no metadata"]);
    let config = forebay::Config::default().max_open(0).validate().unwrap_err();
    each_once(Error::from(forebay::StartError::from(config)), &["max_open"]);
}

#[test]
fn only_what_may_have_been_committed_is_unknown_in_a_commit() {
    let every = STATEMENTS.iter().chain(CONNECTS).map(|(_, kind)| *kind);
    for kind in every.chain([ErrorKind::Disconnected, ErrorKind::ConditionFailed, ErrorKind::NoConnection]) {
        let unknown =
            matches!(kind, ErrorKind::Disconnected | ErrorKind::Unavailable | ErrorKind::CommitUnknown);
        assert_eq!(kind.at_commit() == ErrorKind::CommitUnknown, unknown, "{kind:?}");
        assert_eq!(kind.at_commit().at_commit(), kind.at_commit());
    }
}

/// A pointer to an error passes for it, and names that one's cause as its own.
#[test]
fn errors_are_found_behind_every_pointer() {
    type Dyn = dyn std::error::Error + Send + Sync;
    #[derive(Debug, thiserror::Error)]
    #[error("the application failed")]
    struct Shared(#[source] Arc<Dyn>);
    let unknown =
        || Error::new(ErrorKind::CommitUnknown, std::io::Error::from(std::io::ErrorKind::ConnectionReset));
    let shared: Arc<Dyn> = Arc::new(unknown());
    let twice: Arc<Dyn> = Arc::new(Arc::clone(&shared));
    let boxed: Arc<Box<Error>> = Arc::new(Box::new(unknown()));
    let kind = std::io::ErrorKind::TimedOut;
    let in_io: Arc<Dyn> = Arc::new(std::io::Error::new(kind, unknown()));
    for (what, kind) in [
        ("shared", ErrorKind::of(&Shared(Arc::clone(&shared)))),
        ("shared twice", ErrorKind::of(&Shared(twice))),
        ("by itself", ErrorKind::of(&shared)),
        ("boxed and shared", ErrorKind::of(&boxed)),
        ("as one of I/O", ErrorKind::of(&std::io::Error::new(kind, unknown()))),
        ("as one of I/O, wrapped", ErrorKind::of(&std::io::Error::other(Shared(Arc::clone(&shared))))),
        ("shared as one of I/O", ErrorKind::of(&Shared(in_io))),
    ] {
        assert_eq!(kind, ErrorKind::CommitUnknown, "{what}");
    }
    let failed = ConditionFailed { entity: "shard 1".into(), expected: "1".into(), found: None };
    let error = Error::of(Shared(Arc::new(failed.clone())));
    assert_eq!((error.kind(), error.condition()), (ErrorKind::ConditionFailed, Some(&failed)));
}

#[test]
fn a_file_is_not_a_connection() {
    use std::io::ErrorKind as IoKind;
    for kind in [IoKind::NotFound, IoKind::StorageFull, IoKind::PermissionDenied, IoKind::InvalidData] {
        assert_eq!(ErrorKind::of(&std::io::Error::from(kind)), ErrorKind::Permanent, "{kind}");
    }
    for kind in [IoKind::ConnectionReset, IoKind::BrokenPipe, IoKind::UnexpectedEof, IoKind::TimedOut] {
        assert_eq!(ErrorKind::of(&std::io::Error::from(kind)), ErrorKind::Disconnected, "{kind}");
    }
    // What TLS makes of it counts for more than how it is wrapped.
    let of_tls = |error| ErrorKind::of(&std::io::Error::new(IoKind::InvalidData, error));
    assert_eq!(of_tls(rustls::Error::DecryptError), ErrorKind::Disconnected);
    assert_eq!(of_tls(rustls::CertificateError::Expired.into()), ErrorKind::Permanent);
    for (alert, kind) in [
        (rustls::AlertDescription::InternalError, ErrorKind::Disconnected),
        (rustls::AlertDescription::BadRecordMac, ErrorKind::Disconnected),
        (rustls::AlertDescription::UnknownCA, ErrorKind::Permanent),
        (rustls::AlertDescription::UnrecognisedName, ErrorKind::Permanent),
    ] {
        assert_eq!(of_tls(rustls::Error::AlertReceived(alert)), kind, "{alert:?}");
    }
}
