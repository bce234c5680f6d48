//! Roles and privileges, on the engine `postgres`.

use dsql_local::{Cluster, Config, EngineKind};
use tokio_postgres::{Client, Error};

use crate::harness::{code, config, connect, connect_with, options, start, told};

fn cluster() -> Cluster {
    start(Config { engine: EngineKind::Postgres, ..config() })
}

async fn log_in(cluster: &Cluster, role: &str) -> Result<Client, Error> {
    let mut options = options(cluster);
    options.user(role).password(cluster.token(role).unwrap());
    connect_with(cluster, &options).await
}

#[tokio::test]
async fn clients_cannot_reach_the_private_server() {
    let cluster = cluster();
    let admin = connect(&cluster).await;
    for sql in [
        "SELECT set_config('session_authorization', 'dsql_local', false)",
        "SELECT set_config('role', 'dsql_local', false)",
        "CREATE ROLE r SUPERUSER",
        "GRANT dsql_local TO admin",
        "GRANT pg_read_server_files TO admin",
        "UPDATE pg_catalog.pg_authid SET rolsuper = true",
        "INSERT INTO pg_catalog.dsql_local_iam (arn, role, grantor) VALUES ('x', 10, 10)",
        "SELECT * FROM pg_catalog.pg_authid",
    ] {
        let error = admin.batch_execute(sql).await.unwrap_err();
        assert!(["42501", "42704", "22023"].contains(&code(&error)), "{sql}: {error:?}");
    }
    for role in ["dsql_local", "pg_monitor", "x'y"] {
        let (_, message, _) = told(&log_in(&cluster, role).await.unwrap_err());
        assert!(message.starts_with("unable to accept connection"), "{role}: {message}");
    }
}

#[tokio::test]
async fn a_recreated_role_does_not_get_old_connections() {
    let cluster = cluster();
    let admin = connect(&cluster).await;
    let steps = [
        "CREATE TABLE t (id int PRIMARY KEY)",
        "CREATE ROLE app WITH LOGIN",
        "AWS IAM GRANT app TO 'arn:aws:iam::111122223333:role/app'",
    ];
    for sql in steps {
        admin.batch_execute(sql).await.unwrap();
    }
    let app = log_in(&cluster, "app").await.unwrap();
    let who: String = app.query_one("SELECT current_user::text", &[]).await.unwrap().get(0);
    assert_eq!(who, "app");
    assert_eq!(code(&app.batch_execute("SELECT * FROM t").await.unwrap_err()), "42501");
    // Only admin maps roles.
    let error = app.batch_execute("AWS IAM GRANT app TO 'arn:other'").await.unwrap_err();
    assert_eq!(code(&error), "42501");
    drop(app);
    for sql in ["DROP ROLE app", "CREATE ROLE app WITH LOGIN"] {
        admin.batch_execute(sql).await.unwrap();
    }
    // It has not been mapped.
    assert!(log_in(&cluster, "app").await.is_err());
    assert_eq!(cluster.counters().denied, [("role", 1)].into());
    for sql in [steps[2], "GRANT SELECT ON t TO app"] {
        admin.batch_execute(sql).await.unwrap();
    }
    let app = log_in(&cluster, "app").await.unwrap();
    app.batch_execute("SELECT * FROM t").await.unwrap();
}
