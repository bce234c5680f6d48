//! User data of task queues, and build ids.

use forebay_temporal::task_queue_user_data::{self, UserDataRow};
use forebay_temporal::{Condition, Error, PageToken, build_id};

use crate::cluster::{blob, new_uuid, store};
use crate::paging;

fn row(namespace_id: forebay_dsql::Uuid, name: &str, version: i64) -> UserDataRow {
    UserDataRow { namespace_id, task_queue_name: name.to_owned(), data: blob("data"), version }
}

#[tokio::test]
async fn user_data_is_updated_only_with_its_version() {
    let store = store().await;
    let namespace = new_uuid();
    let update = async |row: UserDataRow| {
        let row = &row;
        store.write("update", async |c| task_queue_user_data::update(&c, row).await).await
    };
    let get = async || store.read("get", async |c| task_queue_user_data::get(&c, namespace, "a").await).await;
    let stale = |error: &Error, version: i64| {
        let expected = Condition::row("user data of the task queue", "a", format!("version {version}"));
        assert_eq!(error.condition(), Some(&expected), "{error:?}");
    };
    assert!(get().await.unwrap_err().is_not_found());
    stale(&update(row(namespace, "a", 1)).await.unwrap_err(), 1);
    assert_eq!(update(row(namespace, "a", 0)).await.unwrap(), 1);
    assert_eq!(get().await.unwrap(), row(namespace, "a", 1));
    stale(&update(row(namespace, "a", 0)).await.unwrap_err(), 0);
    let changed = UserDataRow { data: blob("changed"), ..row(namespace, "a", 1) };
    assert_eq!(update(changed.clone()).await.unwrap(), 2);
    stale(&update(row(namespace, "a", 1)).await.unwrap_err(), 1);
    assert_eq!(get().await.unwrap(), UserDataRow { version: 2, ..changed });
}

#[tokio::test]
async fn user_data_of_a_namespace_is_listed_in_pages() {
    let store = store().await;
    let (namespace, other) = (new_uuid(), new_uuid());
    // An empty name comes first, and is not lost.
    for name in ["", "b", "a", "d", "c", "e"] {
        for namespace in [namespace, other] {
            let row = &row(namespace, name, 0);
            store.write("update", async |c| task_queue_user_data::update(&c, row).await).await.unwrap();
        }
    }
    let list = async |size: usize, page: Option<&PageToken>| {
        store.read("list", async |c| task_queue_user_data::list(&c, namespace, size, page).await).await
    };
    let expected: Vec<_> = ["", "a", "b", "c", "d", "e"].map(|name| row(namespace, name, 1)).into();
    for size in [1, 2, 4, 6, 7] {
        assert_eq!(paging::all(size, list).await, expected, "pages of {size}");
    }
    paging::refuses_nonsense(list).await;
}

#[tokio::test]
async fn build_ids_are_added_removed_found_and_counted() {
    let store = store().await;
    let namespace = new_uuid();
    let ids = |ids: &[&str]| -> Vec<String> { ids.iter().map(|id| (*id).to_owned()).collect() };
    let add = async |queue: &str, build_ids: &[String]| {
        store.write("add", async |c| build_id::add(&c, namespace, queue, build_ids).await).await
    };
    let remove = async |queue: &str, build_ids: &[String]| {
        store
            .write("remove", async |c| build_id::remove(&c, namespace, queue, build_ids).await)
            .await
            .unwrap()
    };
    let found = async |build: &str| {
        let found = store.read("find", async |c| {
            let count = build_id::count_task_queues(&c, namespace, build).await?;
            Ok((build_id::task_queues(&c, namespace, build).await?, count))
        });
        let (queues, count) = found.await.unwrap();
        assert_eq!(i64::try_from(queues.len()).unwrap(), count);
        queues
    };
    assert_eq!(found("1").await, ids(&[]));
    add("b", &ids(&["1", "2", "3"])).await.unwrap();
    add("a", &ids(&["1"])).await.unwrap();
    add("a", &[]).await.unwrap();
    let again = add("a", &ids(&["2", "1"])).await.unwrap_err();
    assert!(again.is_already_exists(), "{again:?}");
    assert_eq!(found("1").await, ids(&["a", "b"]));
    assert_eq!(found("2").await, ids(&["b"]), "all of them or none");
    assert_eq!(remove("b", &ids(&["1", "3", "4"])).await, 2);
    assert_eq!(remove("b", &[]).await, 0);
    assert_eq!(found("1").await, ids(&["a"]));
    assert_eq!(found("2").await, ids(&["b"]));
    assert_eq!(found("3").await, ids(&[]));
}
