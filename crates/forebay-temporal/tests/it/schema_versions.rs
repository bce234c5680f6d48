//! The version of the schema, for operators.

use dsql_local::Rules;
use forebay_schema::{Migrator, Version};
use forebay_temporal::schema_version::{self, SchemaUpdate, SchemaVersion};
use forebay_temporal::{Error, Persistence, schema};

use crate::cluster::{quiet, start, store_of};

async fn read(store: &Persistence, db_name: &str) -> Result<SchemaVersion, Error> {
    store.read("read_version", async |c| schema_version::read(&c, db_name).await).await
}

async fn tables(store: &Persistence) -> Vec<String> {
    store.read("list_tables", async |c| schema_version::list_tables(&c).await).await.unwrap()
}

/// On a cluster without tables, by both sets of rules.
#[tokio::test]
async fn versions_are_created_read_and_updated_for_any_database_name() {
    for rules in [Rules::Today, Rules::Spec] {
        let cluster = start(rules);
        let store = store_of(&cluster, 2).await;
        // The faulty version takes any failure to read for the absence of a version.
        let unreadable = read(&store, "temporal").await.unwrap_err();
        assert!(matches!(unreadable, Error::Database(_)), "{unreadable:?}");
        schema_version::create_tables(&store).await.unwrap();
        schema_version::create_tables(&store).await.unwrap();
        assert_eq!(tables(&store).await, ["schema_update_history", "schema_version"]);
        assert!(read(&store, "temporal").await.unwrap_err().is_not_found());

        let version = |current: &str| SchemaVersion {
            current: current.into(),
            min_compatible: schema::MIN_COMPATIBLE_VERSION.into(),
        };
        for current in ["1.0", schema::VERSION] {
            let version = &version(current);
            let update = store
                .write("update_version", async |c| schema_version::update(&c, "temporal", version).await);
            update.await.unwrap();
            assert_eq!(read(&store, "temporal").await.unwrap(), *version);
        }
        assert!(read(&store, "postgres").await.unwrap_err().is_not_found(), "another name");

        for (old, new) in [("", "1.0"), ("1.0", "1.1")] {
            let update = &SchemaUpdate {
                old_version: old.into(),
                new_version: new.into(),
                manifest_md5: "0".into(),
                description: "initial version".into(),
            };
            let log = store.write("log", async |c| schema_version::write_update_log(&c, update).await);
            log.await.unwrap();
        }
        let log = store.read("read_log", async |c| schema_version::read_update_log(&c).await).await.unwrap();
        let versions: Vec<_> = log.iter().map(|update| &*update.new_version).collect();
        assert_eq!(versions, ["1.0", "1.1"]);

        schema_version::execute(&store, "CREATE TABLE \"Odd \"\"name\" (id bigint)").await.unwrap();
        schema_version::drop_table(&store, "Odd \"name").await.unwrap();
        let missing = schema_version::drop_table(&store, "Odd \"name").await.unwrap_err();
        assert!(matches!(missing, Error::Database(_)), "{missing:?}");
        assert_eq!(schema_version::drop_all_tables(&store).await.unwrap(), 2);
        assert_eq!(tables(&store).await, Vec::<String>::new());
    }
}

/// What the files of the schema leave, applied by the migration tool.
#[tokio::test]
async fn the_migration_keeps_version_and_log() {
    let cluster = quiet().await;
    let store = store_of(&cluster, 4).await;
    let expected = SchemaVersion { current: "1.1".into(), min_compatible: "1.0".into() };
    assert_eq!(read(&store, "temporal").await.unwrap(), expected);
    let log = || store.read("read_log", async |c| schema_version::read_update_log(&c).await);
    let updates = log().await.unwrap();
    let versions: Vec<_> =
        updates.iter().map(|update| (&*update.old_version, &*update.new_version)).collect();
    assert_eq!(versions, [("", "1.0"), ("1.0", "1.1")]);
    assert!(updates.iter().all(|update| update.manifest_md5.len() == 64));

    // Again: there is nothing to do.
    let migrator =
        Migrator::new(store.pool().unwrap().clone(), schema::migrations()).hook(schema::hook("temporal"));
    assert_eq!(migrator.setup().await.unwrap().applied, Vec::<String>::new());
    assert_eq!(log().await.unwrap(), updates);
    let tables = tables(&store).await;
    assert_eq!(tables.iter().filter(|table| !table.starts_with("forebay_schema")).count(), 40);

    let client = store.pool().unwrap().acquire().await.unwrap();
    let seed =
        client.query_one("SELECT partition_id, notification_version FROM namespace_metadata", &[]).await;
    let seed = seed.unwrap();
    assert_eq!(seed.get::<_, i32>(0), 54321);
    let indexes = "SELECT count(*) FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid \
                   WHERE indisvalid AND (relname LIKE 'cm_idx_%' OR relname LIKE 'idx_%')";
    assert_eq!(client.query_one(indexes, &[]).await.unwrap().get::<_, i64>(0), 7);
}

/// A database with the plugin's tables only, in which an earlier version of the stores has left an announcement.
#[tokio::test]
async fn the_table_of_takeovers_is_added_to_a_database_with_shards() {
    let cluster = start(Rules::Spec);
    let store = store_of(&cluster, 2).await;
    let migrator =
        || Migrator::new(store.pool().unwrap().clone(), schema::migrations()).hook(schema::hook("temporal"));
    let plugins = Version::parse(schema::VERSION).unwrap();
    migrator().to(plugins).setup().await.unwrap();
    assert!(!tables(&store).await.contains(&"shard_takeovers".into()));
    let rows = "INSERT INTO shards (shard_id, range_id, data, data_encoding) \
                VALUES (7, 1, 'a', 'Proto3'), (-8, 2, '', ''), (-9, 2, '', 'Proto3')";
    schema_version::execute(&store, rows).await.unwrap();
    let before = read(&store, "temporal").await.unwrap();

    assert_eq!(migrator().setup().await.unwrap().applied, ["1.1.1_shard_takeovers.sql"]);
    assert!(tables(&store).await.contains(&"shard_takeovers".into()));
    let client = store.pool().unwrap().acquire().await.unwrap();
    let left = client.query("SELECT shard_id FROM shards ORDER BY shard_id", &[]).await.unwrap();
    let left: Vec<i32> = left.iter().map(|row| row.get(0)).collect();
    assert_eq!(left, [-9, 7], "whatever has an encoding is a shard");
    assert_eq!(read(&store, "temporal").await.unwrap(), before, "the version of Temporal's tables");
}

#[test]
fn databases_are_made_elsewhere() {
    for refused in [schema_version::create_database("a"), schema_version::drop_database("a")] {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }));
        assert!(error.to_string().contains("AWS console"), "{error}");
    }
}
