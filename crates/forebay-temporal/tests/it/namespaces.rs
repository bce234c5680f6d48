//! Namespaces and the counter of their changes.

use std::cell::Cell;

use forebay_temporal::namespace::{self, NamespaceRow};
use forebay_temporal::{Condition, Error, PageToken, Persistence, namespace_metadata};

use crate::cluster::{alone, blob, new_uuid, quiet, store, store_of};
use crate::paging;

fn new_row() -> NamespaceRow {
    let id = new_uuid();
    NamespaceRow {
        id,
        name: format!("name of {id}"),
        info: blob("new"),
        is_global: false,
        notification_version: 1,
    }
}

async fn insert(store: &Persistence, row: &NamespaceRow) -> Result<(), Error> {
    store.write("insert", async |c| namespace::insert(&c, row).await).await
}

async fn select(store: &Persistence, row: &NamespaceRow) -> Result<NamespaceRow, Error> {
    store.read("select", async |c| namespace::select(&c, row.id).await).await
}

async fn select_by_name(store: &Persistence, name: &str) -> Result<NamespaceRow, Error> {
    store.read("select", async |c| namespace::select_by_name(&c, name).await).await
}

#[tokio::test]
async fn a_namespace_has_an_id_and_a_name_of_its_own() {
    let store = store().await;
    let (row, other) = (new_row(), new_row());
    insert(&store, &row).await.unwrap();
    insert(&store, &other).await.unwrap();
    assert_eq!(select(&store, &row).await.unwrap(), row);
    assert_eq!(select_by_name(&store, &row.name).await.unwrap(), row);
    assert!(
        insert(&store, &NamespaceRow { name: new_row().name, ..row.clone() })
            .await
            .unwrap_err()
            .is_already_exists()
    );
    assert!(
        insert(&store, &NamespaceRow { id: new_uuid(), ..row.clone() })
            .await
            .unwrap_err()
            .is_already_exists()
    );
    assert!(select(&store, &new_row()).await.unwrap_err().is_not_found());
    assert!(select_by_name(&store, "nobody").await.unwrap_err().is_not_found());

    let update = async |row: &NamespaceRow, expected: i64| {
        store.write("update", async |c| namespace::update(&c, row, expected).await).await
    };
    let name = new_row().name;
    let renamed =
        NamespaceRow { name, info: blob("renamed"), is_global: true, notification_version: 9, ..row.clone() };
    update(&renamed, 1).await.unwrap();
    assert_eq!(select(&store, &row).await.unwrap(), renamed);
    assert!(select_by_name(&store, &row.name).await.unwrap_err().is_not_found());
    let stale = update(&row, 1).await.unwrap_err();
    let condition = Condition::row("namespace", row.id, "notification_version 1");
    assert_eq!(stale.condition(), Some(&condition), "{stale:?}");
    assert!(update(&new_row(), 1).await.unwrap_err().condition().is_some());
    let taken = update(&NamespaceRow { name: other.name.clone(), ..renamed.clone() }, 9).await.unwrap_err();
    assert!(taken.is_already_exists(), "{taken:?}");

    let delete = async |id| store.write("delete", async |c| namespace::delete(&c, id).await).await.unwrap();
    assert!(delete(row.id).await);
    assert!(!delete(row.id).await);
    let by_name = async |name: &str| {
        store.write("delete", async |c| namespace::delete_by_name(&c, name).await).await.unwrap()
    };
    assert!(by_name(&other.name).await);
    assert!(!by_name(&other.name).await);
    assert!(select(&store, &other).await.unwrap_err().is_not_found());
}

/// Alone on its cluster: the list is one of all namespaces, and their changes have one counter.
#[tokio::test]
async fn namespaces_are_listed_in_pages_and_their_changes_are_counted() {
    let cluster = alone().await;
    let store = store_of(&cluster, 2).await;
    let list = async |size: usize, page: Option<&PageToken>| {
        store.read("list", async |c| namespace::list(&c, size, page).await).await
    };
    assert_eq!(paging::all(2, list).await, [], "none yet");
    let mut rows: Vec<_> = (0..6).map(|_| new_row()).collect();
    rows.reverse();
    for row in &rows {
        insert(&store, row).await.unwrap();
    }
    rows.sort_by_key(|row| row.id);
    for size in [1, 2, 4, 6, 7] {
        assert_eq!(paging::all(size, list).await, rows, "pages of {size}");
    }
    paging::refuses_nonsense(list).await;

    let counter =
        async || store.read("select", async |c| namespace_metadata::select(&c).await).await.unwrap();
    assert_eq!(counter().await, 1, "the schema brings it");
    let count = async |expected| {
        store.write("update", async |c| namespace_metadata::update(&c, expected).await).await
    };
    assert_eq!(count(1).await.unwrap(), 2);
    let stale = count(1).await.unwrap_err();
    let condition = Condition::row("namespace metadata", 54_321, "notification_version 1");
    assert_eq!(stale.condition(), Some(&condition), "{stale:?}");
    assert_eq!(store.run("lock", async |tx| namespace_metadata::lock(&tx).await).await.unwrap(), 2);
    assert_eq!(counter().await, 2);

    let connection = store.pool().unwrap().acquire().await.unwrap();
    connection.batch_execute("DELETE FROM namespace_metadata").await.unwrap();
    let missing = store.run("lock", async |tx| namespace_metadata::lock(&tx).await).await.unwrap_err();
    assert!(missing.is_not_found(), "{missing:?}");
    let missing = store.read("select", async |c| namespace_metadata::select(&c).await).await.unwrap_err();
    assert!(missing.is_not_found(), "{missing:?}");
    connection.batch_execute("INSERT INTO namespace_metadata VALUES (54321, 1)").await.unwrap();
}

/// What an update expects of the row.
#[derive(Clone, Copy)]
enum Fence {
    /// The version that the row has.
    Own,
    /// The number of the change before this one, of whichever namespace.
    Global,
}

/// A change of a namespace, as a server makes it. Returns its number.
async fn change(store: &Persistence, row: &NamespaceRow, fence: Fence) -> Result<i64, Error> {
    let change = store.run("change", async |tx| {
        let number = namespace_metadata::lock(&tx).await?;
        let found = namespace::select(&tx, row.id).await?;
        let expected = match fence {
            Fence::Own => found.notification_version,
            Fence::Global => number - 1,
        };
        let changed = NamespaceRow { info: blob("changed"), notification_version: number, ..found };
        namespace::update(&tx, &changed, expected).await?;
        namespace_metadata::update(&tx, number).await?;
        Ok(number)
    });
    change.await
}

/// Whether a namespace can be changed after another one.
async fn changed_after_another(fence: Fence) -> Result<i64, Error> {
    let store = store_of(&quiet().await, 2).await;
    let (first, second) = (new_row(), new_row());
    for row in [&first, &second] {
        insert(&store, row).await.unwrap();
    }
    change(&store, &first, Fence::Own).await.unwrap();
    change(&store, &second, Fence::Own).await.unwrap();
    let number = change(&store, &first, fence).await?;
    let found = select(&store, &first).await.unwrap();
    assert_eq!((found.info, found.notification_version), (blob("changed"), number));
    Ok(number)
}

#[tokio::test]
async fn a_namespace_that_was_not_the_last_one_changed_can_be_changed() {
    changed_after_another(Fence::Own).await.unwrap();
}

/// That the test above can fail: this is the fault that it is about.
#[tokio::test]
async fn with_a_global_fence_it_cannot() {
    let error = changed_after_another(Fence::Global).await.unwrap_err();
    assert!(error.condition().is_some(), "{error:?}");
}

/// Two changes of two namespaces get two numbers, though they overlap.
#[tokio::test]
async fn overlapping_changes_are_both_counted() {
    let cluster = quiet().await;
    let (store, neighbour) = (store_of(&cluster, 2).await, store_of(&cluster, 2).await);
    let (row, other) = (&new_row(), &new_row());
    insert(&store, row).await.unwrap();
    insert(&store, other).await.unwrap();
    let (attempts, neighbours) = (&Cell::new(0), &Cell::new(0));
    let neighbour = &neighbour;
    let changed = store.run("change", async |tx| {
        let number = namespace_metadata::lock(&tx).await?;
        attempts.set(attempts.get() + 1);
        if attempts.get() == 1 {
            neighbours.set(change(neighbour, other, Fence::Own).await?);
        }
        let changed = NamespaceRow { notification_version: number, ..row.clone() };
        namespace::update(&tx, &changed, 1).await?;
        namespace_metadata::update(&tx, number).await?;
        Ok(number)
    });
    let number = changed.await.unwrap();
    assert!(attempts.get() >= 2, "the first conflicts with the neighbour's");
    assert!(number > neighbours.get());
}
