//! Every known error, over the wire, through both clients, wrapped as applications wrap them.

use std::sync::Arc;

use forebay::{CheckoutError, Failure, OpenError};
use forebay_dsql::{Auth, Class, ConditionFailed, Conflict, Error, Limit, Throttle, TokenError};
use sqlx::{Connection, Executor};

use crate::parrot::{self, Line};

const fn line(code: &'static str, message: &'static str, hint: &'static str) -> Line {
    Line { code, message, hint }
}

/// At a statement.
const STATEMENTS: &[(Line, Class)] = &[
    (
        line("40001", "change conflicts with another transaction (OC000)", ""),
        Class::Conflict(Conflict::Change),
    ),
    (
        line("40001", "schema has been updated by another transaction (OC001)", ""),
        Class::Conflict(Conflict::Schema),
    ),
    (
        line("40001", "Change conflicts with another transaction, please retry: (oc000)", ""),
        Class::Conflict(Conflict::Change),
    ),
    (line("40001", "could not serialize access", ""), Class::Conflict(Conflict::Other)),
    (line("54000", "transaction row limit exceeded", ""), Class::Limit(Limit::Rows)),
    (line("54000", "transaction size limit 10mb exceeded", ""), Class::Limit(Limit::Size)),
    (line("54000", "Transaction age limit of 300s exceeded", ""), Class::Limit(Limit::Age)),
    (line("54000", "too many columns", ""), Class::Limit(Limit::Other)),
    (line("0A000", "unsupported statement: Truncate", ""), Class::Unsupported),
    (line("0A000", "multiple ddl statements not supported in a transaction", ""), Class::Unsupported),
    (line("0A000", "cached plan must not change result type", ""), Class::Conflict(Conflict::Schema)),
    (line("XX000", "server unavailable", ""), Class::Unavailable),
    (line("57P01", "terminating connection due to administrator command", ""), Class::Disconnected),
    (line("42704", "type \"serial\" does not exist", ""), Class::Permanent),
    (line("23505", "duplicate key value violates unique constraint", ""), Class::Permanent),
    (line("25P02", "current transaction is aborted", ""), Class::Permanent),
    (line("42601", "syntax error", "OC000 is not what this is about"), Class::Permanent),
    (line("08P01", "message too long", ""), Class::Limit(Limit::Message)),
    (line("08007", "transaction resolution unknown", ""), Class::CommitUnknown),
    (line("40003", "statement completion unknown", ""), Class::CommitUnknown),
    (line("P0001", "the customer was unable to accept connection, access denied", ""), Class::Permanent),
];

/// At a connect. Two of them have no code that anyone knows, so they come here with one that says nothing.
const CONNECTS: &[(Line, Class)] = &[
    (
        line("53300", "Unable to accept connection, too many open connections.", ""),
        Class::Throttled(Throttle::TooManyConnections),
    ),
    (
        line("53400", "Unable to accept connection, rate exceeded.", ""),
        Class::Throttled(Throttle::RateExceeded),
    ),
    (
        line("XX000", "unable to accept connection, rate exceeded", ""),
        Class::Throttled(Throttle::RateExceeded),
    ),
    (
        line("XX000", "unable to accept connection, waking up cluster, please retry later", ""),
        Class::Throttled(Throttle::Waking),
    ),
    (
        line(
            "XX000",
            "UNABLE TO ACCEPT CONNECTION, ACCESS DENIED",
            "signature expired: 20261115T120000Z is now earlier",
        ),
        Class::Auth(Auth::SignatureExpired),
    ),
    (line("28000", "unable to accept connection, access denied", ""), Class::Auth(Auth::Denied)),
    (
        line("28000", "unable to accept connection, access denied", "Role missing: Signature fine"),
        Class::Auth(Auth::Denied),
    ),
    (line("28P01", "password authentication failed", ""), Class::Auth(Auth::Denied)),
    (line("08P01", "unable to accept connection, sni was not received", ""), Class::Permanent),
    (line("3D000", "database does not exist", ""), Class::Permanent),
];

/// As an application would have it: the driver's error two levels down.
#[derive(Debug, thiserror::Error)]
#[error("order 7 was not stored")]
struct Outer(#[source] Middle);

#[derive(Debug, thiserror::Error)]
#[error("the store failed")]
struct Middle(#[source] Box<dyn std::error::Error + Send + Sync>);

fn check(error: impl std::error::Error + Send + Sync + 'static, expected: Class, what: &str) {
    let error = Arc::new(error);
    assert_eq!(
        Class::of(&Middle(Box::new(Arc::clone(&error)))),
        expected,
        "{what}, shared by the application"
    );
    let wrapped = Outer(Middle(Box::new(Arc::into_inner(error).unwrap())));
    assert_eq!(Class::of(&wrapped), expected, "{what}, two levels down");
    let Outer(Middle(error)) = wrapped;
    let shared = Arc::new(Error::of(error));
    assert_eq!(Class::of(&Middle(Box::new(Arc::clone(&shared)))), expected, "{what}, shared");
    let error = Arc::into_inner(shared).unwrap();
    // What the server said, once, whichever client wraps it how.
    let message = what.split('|').nth(1).unwrap();
    assert_eq!(error.to_string().matches(message).count(), 1, "{error}");
    assert_eq!(error.class(), expected, "{what}");
    assert_eq!(Class::of(&Outer(Middle(Box::new(error)))), expected, "{what}, classified before");
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
    for (line, class) in STATEMENTS {
        let client = tokio_postgres(address, "postgres").await.unwrap();
        check(client.simple_query(&line.text()).await.unwrap_err(), *class, &line.text());
    }
    for (line, class) in CONNECTS {
        check(tokio_postgres(address, &line.text()).await.err().unwrap(), *class, &line.text());
    }
}

#[tokio::test]
async fn sqlx_errors_have_their_class() {
    let address = parrot::start().await;
    for (line, class) in STATEMENTS {
        let mut connection = sqlx(address, "postgres").await.unwrap();
        let text = line.text();
        let error = connection.execute(sqlx::raw_sql(sqlx::AssertSqlSafe(text.clone()))).await.unwrap_err();
        check(error, *class, &text);
    }
    for (line, class) in CONNECTS {
        check(sqlx(address, &line.text()).await.err().unwrap(), *class, &line.text());
    }
}

#[tokio::test]
async fn a_lost_connection_is_disconnected_and_unknown_in_a_commit() {
    let address = parrot::start().await;
    let client = tokio_postgres(address, "postgres").await.unwrap();
    for _ in 0..2 {
        // First the end of the stream, then a client that knows it is closed.
        let error = Error::from(client.simple_query("hang up").await.unwrap_err());
        assert_eq!(error.class(), Class::Disconnected, "{error}");
        let error = error.at_commit();
        assert_eq!(error.class(), Class::CommitUnknown);
        assert!(error.to_string().contains("find out before doing it again"), "{error}");
    }
    let mut connection = sqlx(address, "postgres").await.unwrap();
    let error = connection.execute(sqlx::raw_sql("hang up")).await.unwrap_err();
    assert_eq!(Class::of(&error), Class::Disconnected, "{error:?}");

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = listener.local_addr().unwrap();
    drop(listener);
    assert_eq!(Class::of(&tokio_postgres(nobody, "postgres").await.err().unwrap()), Class::Disconnected);
    assert_eq!(Class::of(&sqlx(nobody, "postgres").await.err().unwrap()), Class::Disconnected);
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
        assert_eq!(Error::from(io(kind)).class(), Class::Disconnected, "{kind:?}");
    }
    assert_eq!(
        Error::from(io(std::io::ErrorKind::InvalidData)).class(),
        Class::Permanent,
        "a wrong certificate"
    );
    let wrapped = std::io::Error::other(io(std::io::ErrorKind::ConnectionReset));
    assert_eq!(Error::from(wrapped).class(), Class::Disconnected, "wrapped");
    assert_eq!(Error::from(std::io::Error::other("odd")).class(), Class::Permanent);

    let empty = CheckoutError::Empty { waited: std::time::Duration::ZERO, last_open_error: None };
    assert_eq!(Error::from(empty).class(), Class::NoConnection);
    assert_eq!(Error::from(CheckoutError::Closed).class(), Class::Permanent);
    let open = OpenError::new(Failure::Token, TokenError::unavailable("no metadata"));
    assert_eq!(Error::from(open).class(), Class::Auth(Auth::NoToken));
    assert_eq!(Class::of(&sqlx::Error::PoolTimedOut), Class::NoConnection);
    assert_eq!(Class::of(&sqlx::Error::RowNotFound), Class::Permanent);

    let failed = ConditionFailed { entity: "shard 7".into(), expected: "4".into(), found: Some("5".into()) };
    let error = Error::from(failed.clone());
    assert_eq!(error.class(), Class::ConditionFailed);
    assert_eq!(error.condition(), Some(&failed));
    assert_eq!(error.to_string(), "condition failed: shard 7: expected 4, found 5");
}

/// A pool that is empty says whether that will pass.
#[test]
fn an_empty_pool_has_the_class_of_what_keeps_it_empty() {
    let denied = || Error::new(Class::Auth(Auth::Denied), "unable to accept connection, access denied");
    let no_role = || Error::new(Class::Permanent, "role \"nix\" does not exist");
    let lost = || std::io::Error::from(std::io::ErrorKind::ConnectionRefused);
    for (open, expected) in [
        (OpenError::new(Failure::Auth, denied()), Class::Auth(Auth::Denied)),
        (OpenError::new(Failure::Auth, "a connector of somebody's own"), Class::Auth(Auth::Denied)),
        (OpenError::new(Failure::Open, no_role()), Class::Permanent),
        (OpenError::new(Failure::Open, lost()), Class::NoConnection),
        (OpenError::new(Failure::Open, "who knows"), Class::NoConnection),
        (OpenError::new(Failure::Timeout, "no connection within 10s"), Class::NoConnection),
        (OpenError::new(Failure::Throttled, "waking up"), Class::NoConnection),
        (OpenError::new(Failure::Token, TokenError::credentials("none")), Class::Auth(Auth::NoToken)),
        (OpenError::new(Failure::Token, TokenError::unavailable("away")), Class::NoConnection),
    ] {
        let told = open.to_string();
        let waited = std::time::Duration::from_millis(100);
        let empty = CheckoutError::Empty { waited, last_open_error: Some(std::sync::Arc::new(open)) };
        assert_eq!(Class::of(&empty), expected, "{told}");
        let below = std::error::Error::source(&empty).map(ToString::to_string);
        assert_eq!(below.as_deref(), Some(told.as_str()));
        let error = Error::from(empty);
        assert_eq!(error.class(), expected, "{told}");
        assert_eq!(error.to_string().matches(&told).count(), 1, "{error}");
    }
}

#[test]
fn only_what_may_have_been_committed_is_unknown_in_a_commit() {
    let every = STATEMENTS.iter().chain(CONNECTS).map(|(_, class)| *class);
    for class in every.chain([Class::Disconnected, Class::ConditionFailed, Class::NoConnection]) {
        let unknown = matches!(class, Class::Disconnected | Class::Unavailable | Class::CommitUnknown);
        assert_eq!(class.at_commit() == Class::CommitUnknown, unknown, "{class:?}");
        assert_eq!(class.at_commit().at_commit(), class.at_commit());
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
        || Error::new(Class::CommitUnknown, std::io::Error::from(std::io::ErrorKind::ConnectionReset));
    let shared: Arc<Dyn> = Arc::new(unknown());
    let twice: Arc<Dyn> = Arc::new(Arc::clone(&shared));
    let boxed: Arc<Box<Error>> = Arc::new(Box::new(unknown()));
    let kind = std::io::ErrorKind::TimedOut;
    let in_io: Arc<Dyn> = Arc::new(std::io::Error::new(kind, unknown()));
    for (what, class) in [
        ("shared", Class::of(&Shared(Arc::clone(&shared)))),
        ("shared twice", Class::of(&Shared(twice))),
        ("by itself", Class::of(&shared)),
        ("boxed and shared", Class::of(&boxed)),
        ("as one of I/O", Class::of(&std::io::Error::new(kind, unknown()))),
        ("as one of I/O, wrapped", Class::of(&std::io::Error::other(Shared(Arc::clone(&shared))))),
        ("shared as one of I/O", Class::of(&Shared(in_io))),
    ] {
        assert_eq!(class, Class::CommitUnknown, "{what}");
    }
    let failed = ConditionFailed { entity: "shard 1".into(), expected: "1".into(), found: None };
    let error = Error::of(Shared(Arc::new(failed.clone())));
    assert_eq!((error.class(), error.condition()), (Class::ConditionFailed, Some(&failed)));
}

#[test]
fn a_file_is_not_a_connection() {
    use std::io::ErrorKind;
    for kind in
        [ErrorKind::NotFound, ErrorKind::StorageFull, ErrorKind::PermissionDenied, ErrorKind::InvalidData]
    {
        assert_eq!(Class::of(&std::io::Error::from(kind)), Class::Permanent, "{kind}");
    }
    for kind in
        [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe, ErrorKind::UnexpectedEof, ErrorKind::TimedOut]
    {
        assert_eq!(Class::of(&std::io::Error::from(kind)), Class::Disconnected, "{kind}");
    }
    // What TLS makes of it counts for more than how it is wrapped.
    let of_tls = |error| Class::of(&std::io::Error::new(ErrorKind::InvalidData, error));
    assert_eq!(of_tls(rustls::Error::DecryptError), Class::Disconnected);
    assert_eq!(of_tls(rustls::CertificateError::Expired.into()), Class::Permanent);
    for (alert, class) in [
        (rustls::AlertDescription::InternalError, Class::Disconnected),
        (rustls::AlertDescription::BadRecordMac, Class::Disconnected),
        (rustls::AlertDescription::UnknownCA, Class::Permanent),
        (rustls::AlertDescription::UnrecognisedName, Class::Permanent),
    ] {
        assert_eq!(of_tls(rustls::Error::AlertReceived(alert)), class, "{alert:?}");
    }
}
