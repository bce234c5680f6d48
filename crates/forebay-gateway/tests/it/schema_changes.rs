//! Changes of the schema that sessions meet on a connection that is new to them.

use dsql_local::EngineKind;

use crate::world::{Plan, eventually};

/// Simple queries, and extended ones.
#[tokio::test]
async fn the_first_statement_meets_none_also_in_a_block() {
    for (begins, extended) in [(false, false), (true, false), (true, true)] {
        let world = Plan { engine: EngineKind::Postgres, connections: 2, ..Plan::default() }.start().await;
        let owner = world.client().await;
        owner.batch_execute("CREATE TABLE t (id int PRIMARY KEY)").await.unwrap();
        let before = world.client().await;
        before.batch_execute("SELECT * FROM t").await.unwrap();
        drop(before);
        eventually("its connection is free", || world.in_use() == 1).await;
        owner.batch_execute("ALTER TABLE t ADD COLUMN a int").await.unwrap();
        let conflicts = world.cluster.counters().conflicts;
        // On the connection that has seen the table before.
        let client = world.client().await;
        if begins {
            client.batch_execute("BEGIN").await.unwrap();
        }
        if extended {
            assert_eq!(client.prepare("SELECT * FROM t").await.unwrap().columns().len(), 2);
        } else {
            client.batch_execute("SELECT a FROM t").await.unwrap();
        }
        assert_eq!(world.cluster.counters().conflicts, conflicts + 1, "it was met");
        if begins {
            client.batch_execute("INSERT INTO t VALUES (1, 2)").await.unwrap();
            client.batch_execute("COMMIT").await.unwrap();
            assert_eq!(owner.query("SELECT a FROM t", &[]).await.unwrap().len(), 1);
        }
        assert_eq!(world.cluster.counters().accepted, 2);
    }
}
