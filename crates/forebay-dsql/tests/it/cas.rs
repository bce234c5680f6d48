//! Compare-and-swap on a database, through both clients.

use forebay_dsql::{ConditionFailed, Error, ErrorKind, Fence, Sessions, swapped};
use sqlx::Executor;

use crate::plain::{Postgres, Sqlx, cluster};

const QUEUES: Fence = Fence::new("queues", &["hash", "id"], "range_id");
const TABLE: &str = "CREATE TABLE queues (hash bigint, id bigint, range_id bigint NOT NULL, data text, PRIMARY KEY (hash, id))";

fn condition(error: &Error) -> ConditionFailed {
    assert_eq!(error.kind(), ErrorKind::ConditionFailed, "{error}");
    error.condition().unwrap().clone()
}

#[tokio::test]
async fn only_the_owner_updates_through_tokio_postgres() {
    let cluster = cluster();
    let client = Postgres(&cluster).session().await.unwrap().0;
    client.batch_execute(TABLE).await.unwrap();
    client.execute("INSERT INTO queues VALUES (1, 7, 3, 'a')", &[]).await.unwrap();

    QUEUES.update(&client, &[&1_i64, &7_i64], 3, &[("range_id", &4_i64), ("data", &"b")]).await.unwrap();
    let error = QUEUES.update(&client, &[&1_i64, &7_i64], 3, &[("data", &"stale")]).await.unwrap_err();
    let failed = condition(&error);
    assert_eq!(failed.entity, "range_id of queues, hash 1, id 7");
    assert_eq!((failed.expected.as_str(), failed.found.as_deref()), ("3", Some("4")));
    let error = QUEUES.update(&client, &[&1_i64, &8_i64], 3, &[("data", &"stale")]).await.unwrap_err();
    assert_eq!(condition(&error).found.as_deref(), Some("no such row"));

    QUEUES.auto_update(&client, &[&1_i64, &7_i64], &[("data", &"c")]).await.unwrap();
    let error = QUEUES.auto_update(&client, &[&2_i64, &7_i64], &[("data", &"c")]).await.unwrap_err();
    assert_eq!(condition(&error).expected, "a row");
    let row = client.query_one("SELECT range_id, data FROM queues", &[]).await.unwrap();
    assert_eq!((row.get::<_, i64>(0), row.get::<_, String>(1)), (4, "c".into()));

    // The caller's own statement.
    let rows = client.execute("UPDATE queues SET data = 'd' WHERE range_id = 3", &[]).await.unwrap();
    assert_eq!(Error::from(swapped(rows, "queue 7", 3).unwrap_err()).kind(), ErrorKind::ConditionFailed);
    let error = QUEUES.update(&client, &[&1_i64], 3, &[("data", &"x")]).await.unwrap_err();
    assert!(error.to_string().contains("the key of queues is hash, id, but 1 values are given"), "{error}");
    let error = QUEUES.update(&client, &[&1_i64, &7_i64], 4, &[]).await.unwrap_err();
    assert!(error.to_string().contains("must set a column at least, such as range_id"), "{error}");
}

#[tokio::test]
async fn only_the_owner_updates_through_sqlx() {
    let cluster = cluster();
    let mut connection = Sqlx(&cluster).session().await.unwrap().0;
    connection.execute(TABLE).await.unwrap();
    connection.execute("INSERT INTO queues VALUES (1, 7, 3, 'a')").await.unwrap();

    let set: [(&str, &dyn forebay_dsql::Bind); 2] = [("range_id", &4_i64), ("data", &"b")];
    QUEUES.update_sqlx(&mut connection, &[&1_i64, &7_i64], 3, &set).await.unwrap();
    let error = QUEUES.update_sqlx(&mut connection, &[&1_i64, &7_i64], 3, &set).await.unwrap_err();
    assert_eq!(condition(&error).found.as_deref(), Some("4"));
    QUEUES.auto_update_sqlx(&mut connection, &[&1_i64, &7_i64], &[("data", &"c".to_owned())]).await.unwrap();
    let error = QUEUES.auto_update_sqlx(&mut connection, &[&2_i64, &7_i64], &set).await.unwrap_err();
    assert_eq!(condition(&error).expected, "a row");
    let data: String =
        sqlx::query_scalar("SELECT data FROM queues").fetch_one(&mut connection).await.unwrap();
    assert_eq!(data, "c");
}

/// A token of NULL, and a key that is none.
#[tokio::test]
async fn rows_that_cannot_be_fenced_are_told_apart() {
    const LOOSE: Fence = Fence::new("loose", &["id"], "range_id");
    let cluster = cluster();
    let client = Postgres(&cluster).session().await.unwrap().0;
    client.batch_execute("CREATE TABLE loose (id bigint, range_id bigint, data text)").await.unwrap();
    let rows = "INSERT INTO loose VALUES (8, NULL, 'a'), (9, 4, 'b'), (9, 4, 'c')";
    client.execute(rows, &[]).await.unwrap();
    let mut connection = Sqlx(&cluster).session().await.unwrap().0;

    let error = LOOSE.update(&client, &[&8_i64], 4, &[("data", &"x")]).await.unwrap_err();
    assert_eq!(condition(&error).found.as_deref(), Some("no token (NULL)"));
    let error = LOOSE.auto_update(&client, &[&8_i64], &[("data", &"x")]).await.unwrap_err();
    assert_eq!(condition(&error).expected, "a token");
    let set: [(&str, &dyn forebay_dsql::Bind); 1] = [("data", &"x")];
    let mut in_sqlx = LOOSE.update_sqlx(&mut connection, &[&8_i64], 4, &set).await;
    if in_sqlx.as_ref().is_err_and(|error| matches!(error.kind(), ErrorKind::Conflict(_))) {
        // The new table met this connection.
        in_sqlx = LOOSE.update_sqlx(&mut connection, &[&8_i64], 4, &set).await;
    }
    assert_eq!(condition(&in_sqlx.unwrap_err()).found.as_deref(), Some("no token (NULL)"));

    for error in [
        LOOSE.update(&client, &[&9_i64], 4, &[("data", &"x")]).await.unwrap_err(),
        LOOSE.update(&client, &[&9_i64], 5, &[("data", &"x")]).await.unwrap_err(),
        LOOSE.auto_update(&client, &[&9_i64], &[("data", &"x")]).await.unwrap_err(),
        LOOSE.auto_update_sqlx(&mut connection, &[&9_i64], &set).await.unwrap_err(),
    ] {
        assert_eq!(error.kind(), ErrorKind::Permanent, "{error}");
        assert!(error.to_string().contains("id is no key of loose: 2 rows have the same"), "{error}");
    }
}
