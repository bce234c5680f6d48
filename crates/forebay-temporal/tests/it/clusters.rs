//! Cluster metadata and membership.

use forebay_dsql::Timestamp;
use forebay_temporal::cluster_membership::{self, MemberFilter, MemberRow};
use forebay_temporal::cluster_metadata::{self, ClusterMetadataRow};
use forebay_temporal::{Condition, PageToken, Persistence, Tx};

use crate::cluster::{blob, new_uuid, quiet, store, store_of};
use crate::{overlap, paging};

#[tokio::test]
async fn cluster_metadata_is_saved_only_with_its_version() {
    let store = store().await;
    let row = |name: &str, version| ClusterMetadataRow {
        cluster_name: name.to_owned(),
        data: blob("metadata"),
        version,
    };
    let save = async |row: ClusterMetadataRow| {
        let row = &row;
        store.write("save", async |c| cluster_metadata::save(&c, row).await).await
    };
    let get = async |name: &str| store.read("get", async |c| cluster_metadata::get(&c, name).await).await;
    let lock = async |name: &str| store.run("lock", async |tx| cluster_metadata::lock(&tx, name).await).await;
    assert!(get("a").await.unwrap_err().is_not_found());
    assert!(lock("a").await.unwrap_err().is_not_found());
    assert!(save(row("a", 3)).await.unwrap_err().condition().is_some(), "there is none");
    assert_eq!(save(row("a", 0)).await.unwrap(), 1);
    assert_eq!(get("a").await.unwrap(), row("a", 1));
    let changed = ClusterMetadataRow { data: blob("changed"), ..row("a", 1) };
    assert_eq!(save(changed.clone()).await.unwrap(), 2);
    let changed = ClusterMetadataRow { version: 2, ..changed };
    for stale in [0, 1] {
        let error = save(row("a", stale)).await.unwrap_err();
        let condition = Condition::row("metadata of cluster", "a", format!("version {stale}"));
        assert_eq!(error.condition(), Some(&condition), "{error:?}");
    }
    assert_eq!(get("a").await.unwrap(), changed);
    assert_eq!(lock("a").await.unwrap(), changed);

    for name in ["c", "", "b", "d", "e"] {
        save(row(name, 0)).await.unwrap();
    }
    let list = async |size: usize, page: Option<&PageToken>| {
        store.read("list", async |c| cluster_metadata::list(&c, size, page).await).await
    };
    for size in [1, 2, 4, 6, 7] {
        let names: Vec<_> = paging::all(size, list).await.into_iter().map(|row| row.cluster_name).collect();
        assert_eq!(names, ["", "a", "b", "c", "d", "e"], "pages of {size}");
    }
    paging::refuses_nonsense(list).await;
    let delete = async |name: &str| {
        store.write("delete", async |c| cluster_metadata::delete(&c, name).await).await.unwrap()
    };
    for name in ["", "a", "b", "c", "d", "e"] {
        assert!(delete(name).await);
    }
    assert!(!delete("a").await);
    assert_eq!(paging::all(2, list).await, []);
}

#[tokio::test]
async fn a_lock_of_cluster_metadata_conflicts_with_a_save() {
    let store = store_of(&quiet().await, 1).await;
    let new = ClusterMetadataRow { cluster_name: "locked".to_owned(), data: blob("metadata"), version: 0 };
    let saved = ClusterMetadataRow { version: 1, ..new.clone() };
    let save = async |store: &Persistence, row: &ClusterMetadataRow| {
        store.write("save", async |c| cluster_metadata::save(&c, row).await).await.map(drop)
    };
    save(&store, &new).await.unwrap();
    let lock = async |tx: &Tx| cluster_metadata::lock(tx, "locked").await.map(drop);
    assert_eq!(overlap::attempts(lock, async |neighbour| save(neighbour, &saved).await).await, 2);
}

fn at(second: i128) -> Timestamp {
    Timestamp::from_nanos((1_800_000_000 + second) * 1_000_000_000).unwrap()
}

#[tokio::test]
async fn members_are_found_by_every_filter_and_pruned() {
    let store = store().await;
    let members: Vec<MemberRow> = (0..6)
        .map(|n: i16| MemberRow {
            host_id: new_uuid(),
            rpc_address: format!("127.0.0.{}", n % 2),
            rpc_port: 6_933 + n.unsigned_abs(),
            role: n % 3,
            session_start: at(n.into()),
            last_heartbeat: at(i128::from(n) + 100),
            record_expiry: at(i128::from(n) + 200),
        })
        .collect();
    let upsert = async |member: &MemberRow| {
        store.write("upsert", async |c| cluster_membership::upsert(&c, member).await).await
    };
    for member in members.iter().rev() {
        upsert(&MemberRow { rpc_address: "before".to_owned(), rpc_port: 1, role: 9, ..member.clone() })
            .await
            .unwrap();
        upsert(member).await.unwrap();
    }
    let store = &store;
    let get = |filter: MemberFilter| {
        async move |size: usize, page: Option<&PageToken>| {
            store.read("get", async |c| cluster_membership::get(&c, &filter, size, page).await).await
        }
    };
    let all = MemberFilter::default();
    for size in [1, 2, 4, 6, 7] {
        assert_eq!(paging::all(size, get(all.clone())).await, members, "pages of {size}");
    }
    paging::refuses_nonsense(get(all.clone())).await;
    for (filter, expected) in [
        (MemberFilter { host_id: Some(members[2].host_id), ..all.clone() }, &[2][..]),
        (MemberFilter { host_id: Some(new_uuid()), ..all.clone() }, &[]),
        (MemberFilter { rpc_address: Some("127.0.0.1".to_owned()), ..all.clone() }, &[1, 3, 5]),
        (MemberFilter { role: Some(0), ..all.clone() }, &[0, 3]),
        (MemberFilter { last_heartbeat_after: Some(at(103)), ..all.clone() }, &[4, 5]),
        (MemberFilter { record_expiry_after: Some(at(203)), ..all.clone() }, &[4, 5]),
        (MemberFilter { session_started_since: Some(at(3)), ..all.clone() }, &[3, 4, 5]),
        (
            MemberFilter {
                host_id: Some(members[3].host_id),
                rpc_address: Some("127.0.0.1".to_owned()),
                role: Some(0),
                last_heartbeat_after: Some(at(102)),
                record_expiry_after: Some(at(202)),
                session_started_since: Some(at(3)),
            },
            &[3],
        ),
    ] {
        let expected: Vec<_> = expected.iter().map(|at: &usize| members[*at].clone()).collect();
        for size in [1, 100] {
            assert_eq!(paging::all(size, get(filter.clone())).await, expected, "{filter:?}");
        }
    }

    let large = upsert(&MemberRow { rpc_port: 40_000, ..members[0].clone() }).await.unwrap_err();
    assert_eq!(large.to_string(), "the table cannot hold the port 40000: listen on one up to 32767");
    let in_transaction = |limit| {
        store.run(
            "prune",
            move |tx| async move { cluster_membership::prune_at_most(&tx, at(203), limit).await },
        )
    };
    assert_eq!(in_transaction(1).await.unwrap(), 1, "at most");
    assert_eq!(paging::all(9, get(all.clone())).await.len(), members.len() - 1);
    assert_eq!(cluster_membership::prune(store, at(203)).await.unwrap(), 2, "those that expired before");
    assert_eq!(cluster_membership::prune(store, at(203)).await.unwrap(), 0);
    assert_eq!(paging::all(2, get(all.clone())).await, members[3..]);
    assert_eq!(cluster_membership::prune(store, at(1_000)).await.unwrap(), 3);
}
