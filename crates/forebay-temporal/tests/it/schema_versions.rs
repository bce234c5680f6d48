//! The version of the schema, for operators.

use dsql_local::Rules;
use forebay_dsql::Timestamp;
use forebay_temporal::schema_version::{self, SchemaUpdate, SchemaVersion};
use forebay_temporal::{Error, Persistence, schema};

use crate::cluster::{start, store_of};

fn time(seconds: i128) -> Timestamp {
    Timestamp::from_nanos(seconds * 1_000_000_000).unwrap()
}

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
            let update = store.write("update_version", async |c| {
                schema_version::update(&c, "temporal", version, time(1_700_000_000)).await
            });
            update.await.unwrap();
            assert_eq!(read(&store, "temporal").await.unwrap(), *version);
        }
        assert!(read(&store, "postgres").await.unwrap_err().is_not_found(), "another name");

        for (old, new, at) in [("", "1.0", 1_700_000_000), ("1.0", "1.1", 1_710_000_000)] {
            let update = &SchemaUpdate {
                old_version: old.into(),
                new_version: new.into(),
                manifest_md5: "0".into(),
                description: "initial version".into(),
            };
            let log =
                store.write("log", async |c| schema_version::write_update_log(&c, update, time(at)).await);
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

#[test]
fn databases_are_made_elsewhere() {
    for refused in [schema_version::create_database("a"), schema_version::drop_database("a")] {
        let error = refused.unwrap_err();
        assert!(matches!(error, Error::Unsupported { .. }));
        assert!(error.to_string().contains("AWS console"), "{error}");
    }
}
