//! Nexus endpoints, and the version of their table.

use std::cell::Cell;

use forebay_temporal::nexus_endpoint::{self, NexusEndpointRow};
use forebay_temporal::{Condition, Error, PageToken, Persistence};

use crate::cluster::{blob, new_uuid, quiet, store, store_of};
use crate::paging;

async fn insert(store: &Persistence, id: forebay_dsql::Uuid) -> Result<(), Error> {
    let endpoint = &blob("endpoint");
    store.write("insert", async |c| nexus_endpoint::insert(&c, id, endpoint).await).await
}

/// No other test on this cluster has endpoints.
#[tokio::test]
async fn endpoints_have_versions_and_are_listed_in_pages() {
    let store = store().await;
    let list = async |size: usize, page: Option<&PageToken>| {
        store.read("list", async |c| nexus_endpoint::list(&c, size, page).await).await
    };
    assert_eq!(paging::all(2, list).await, [], "none yet");
    let mut rows: Vec<_> =
        (0..6).map(|_| NexusEndpointRow { id: new_uuid(), endpoint: blob("endpoint"), version: 1 }).collect();
    for row in rows.iter().rev() {
        insert(&store, row.id).await.unwrap();
    }
    assert!(insert(&store, rows[0].id).await.unwrap_err().is_already_exists());
    for size in [1, 2, 4, 6, 7] {
        assert_eq!(paging::all(size, list).await, rows, "pages of {size}");
    }
    paging::refuses_nonsense(list).await;

    let get = async |id| store.read("get", async |c| nexus_endpoint::get(&c, id).await).await;
    assert_eq!(get(rows[0].id).await.unwrap(), rows[0]);
    assert!(get(new_uuid()).await.unwrap_err().is_not_found());
    let update = async |row: &NexusEndpointRow| {
        store.write("update", async |c| nexus_endpoint::update(&c, row).await).await
    };
    let changed = NexusEndpointRow { endpoint: blob("changed"), ..rows[0].clone() };
    assert_eq!(update(&changed).await.unwrap(), 2);
    let stale = update(&rows[0]).await.unwrap_err();
    let condition = Condition::row("nexus endpoint", rows[0].id, "version 1");
    assert_eq!(stale.condition(), Some(&condition), "{stale:?}");
    rows[0] = NexusEndpointRow { version: 2, ..changed };
    assert_eq!(get(rows[0].id).await.unwrap(), rows[0]);
    let nobody = NexusEndpointRow { id: new_uuid(), ..rows[0].clone() };
    assert!(update(&nobody).await.unwrap_err().condition().is_some());

    let delete =
        async |id| store.write("delete", async |c| nexus_endpoint::delete(&c, id).await).await.unwrap();
    assert!(delete(rows[0].id).await);
    assert!(!delete(rows[0].id).await);
    assert_eq!(paging::all(2, list).await, rows[1..]);
}

/// The faulty version asks for the first page with an empty string as the last identifier.
#[tokio::test]
async fn an_empty_string_is_not_an_identifier() {
    let store = store().await;
    let sql = "SELECT id FROM nexus_endpoints WHERE id > ''::uuid ORDER BY id LIMIT 1";
    let refused = store.read("list", async |c| c.swap(sql, &[], || unreachable!()).await).await.unwrap_err();
    assert!(refused.to_string().contains("invalid input syntax for type uuid"), "{refused:?}");
    store.read("list", async |c| nexus_endpoint::list(&c, 1, None).await).await.unwrap();
}

#[tokio::test]
async fn the_version_of_the_table_counts_every_change() {
    let cluster = quiet().await;
    let (store, neighbour) = (store_of(&cluster, 1).await, store_of(&cluster, 1).await);
    let version =
        async || store.read("version", async |c| nexus_endpoint::table_version(&c).await).await.unwrap();
    let increment = async |store: &Persistence, expected| {
        store.write("increment", async |c| nexus_endpoint::increment_table_version(&c, expected).await).await
    };
    let stale = |error: &Error, version: i64| {
        let condition = Condition::row("table of", "nexus endpoints", format!("version {version}"));
        assert_eq!(error.condition(), Some(&condition), "{error:?}");
    };
    let initialize = async || {
        store.write("initialize", async |c| nexus_endpoint::initialize_table_version(&c).await).await
    };
    assert_eq!(version().await, 0);
    stale(&increment(&store, 0).await.unwrap_err(), 0);
    initialize().await.unwrap();
    assert_eq!(version().await, 1);
    stale(&initialize().await.unwrap_err(), 0);
    assert_eq!(increment(&store, 1).await.unwrap(), 2);
    stale(&increment(&store, 1).await.unwrap_err(), 1);

    // Two changes with the same version: the second is run again, and fails then. Its endpoint is not inserted.
    let (id, attempts, neighbour) = (new_uuid(), &Cell::new(0), &neighbour);
    let create = store.run("create", async |tx| {
        attempts.set(attempts.get() + 1);
        nexus_endpoint::increment_table_version(&tx, 2).await?;
        nexus_endpoint::insert(&tx, id, &blob("endpoint")).await?;
        increment(neighbour, 2).await.map(drop)
    });
    stale(&create.await.unwrap_err(), 2);
    assert_eq!((attempts.get(), version().await), (2, 3));
    assert!(store.read("get", async |c| nexus_endpoint::get(&c, id).await).await.unwrap_err().is_not_found());
}
