//! History nodes and trees.

use forebay_temporal::history_node::{self, BranchKey, HistoryNode, ReadNodes};
use forebay_temporal::history_tree::{self, HistoryBranch};
use forebay_temporal::{Blob, Error, PageToken, Persistence};

use crate::cluster::{alone, blob, new_shard_id, new_uuid, quiet, store, store_of};

fn new_branch() -> BranchKey {
    BranchKey { shard_id: new_shard_id(), tree_id: new_uuid(), branch_id: new_uuid() }
}

fn node(node_id: i64, txn_id: i64) -> HistoryNode {
    HistoryNode { node_id, txn_id, prev_txn_id: txn_id - 1, events: blob(&format!("{node_id}/{txn_id}")) }
}

async fn insert(store: &Persistence, branch: &BranchKey, nodes: &[HistoryNode]) {
    let insert =
        store.write("insert_nodes", |c| async move { history_node::insert(&c, branch, nodes).await });
    insert.await.unwrap();
}

/// All pages, each with `size` nodes but the last.
async fn pages(
    store: &Persistence,
    branch: &BranchKey,
    range: std::ops::Range<i64>,
    read: ReadNodes,
    size: usize,
) -> Vec<Vec<HistoryNode>> {
    let (mut pages, mut token) = (Vec::new(), None);
    loop {
        let (range, from) = (&range, token.as_ref());
        let select = store.read("range_select", |c| async move {
            history_node::range_select(&c, branch, range.clone(), read, size, from).await
        });
        let page = select.await.unwrap();
        pages.push(page.rows);
        token = page.next;
        if token.is_none() {
            return pages;
        }
    }
}

#[tokio::test]
async fn nodes_are_read_in_both_directions_page_by_page() {
    let store = store().await;
    let branch = &new_branch();
    // Node 3 was written twice: the greater transaction comes first.
    let nodes = [node(1, 10), node(3, 30), node(3, 12), node(5, 40), node(9, 50)];
    insert(&store, branch, &[]).await;
    insert(&store, branch, &nodes).await;
    insert(&store, &new_branch(), &nodes).await;
    for size in [1, 2, 4, 5, 100] {
        let forward = pages(&store, branch, i64::MIN..i64::MAX, ReadNodes::Forward, size).await;
        assert_eq!(forward.concat(), nodes, "by {size}");
        assert_eq!(forward.len(), nodes.len().div_ceil(size), "no page is empty");
        let reverse = pages(&store, branch, i64::MIN..i64::MAX, ReadNodes::Reverse, size).await.concat();
        assert_eq!(reverse, nodes.iter().rev().cloned().collect::<Vec<_>>(), "by {size}");
    }
    let some = pages(&store, branch, 3..9, ReadNodes::Forward, 2).await.concat();
    assert_eq!(some, nodes[1..4]);
    assert_eq!(pages(&store, branch, 3..9, ReadNodes::Reverse, 2).await.concat().last(), Some(&nodes[1]));
    let metadata = pages(&store, branch, 1..4, ReadNodes::Metadata, 2).await.concat();
    let bare: Vec<_> =
        nodes[..3].iter().map(|node| HistoryNode { events: Blob::new([], ""), ..node.clone() }).collect();
    assert_eq!(metadata, bare);
    assert_eq!(pages(&store, branch, 6..9, ReadNodes::Forward, 2).await, [[]], "nothing there");
}

#[tokio::test]
async fn a_node_is_replaced_and_deleted() {
    let store = store().await;
    let branch = &new_branch();
    insert(&store, branch, &[node(1, 10)]).await;
    let again = HistoryNode { prev_txn_id: 4, events: blob("again"), ..node(1, 10) };
    insert(&store, branch, std::slice::from_ref(&again)).await;
    assert_eq!(pages(&store, branch, 0..9, ReadNodes::Forward, 9).await, [[again]]);
    let delete = |txn| {
        store.write("delete_node", move |c| async move { history_node::delete(&c, branch, 1, txn).await })
    };
    assert!(!delete(11).await.unwrap());
    assert!(delete(10).await.unwrap());
    assert!(!delete(10).await.unwrap());
}

#[tokio::test]
async fn what_is_no_page_is_refused() {
    let store = store().await;
    let branch = &new_branch();
    let select = |size, token: Option<PageToken>| {
        store.read("range_select", move |c| {
            let token = token.clone();
            async move {
                history_node::range_select(&c, branch, 0..9, ReadNodes::Forward, size, token.as_ref()).await
            }
        })
    };
    for (size, token) in [(0, None), (1, Some(PageToken::from_bytes(*b"other")))] {
        let error = select(size, token).await.unwrap_err();
        assert!(matches!(error, Error::InvalidInput(_)), "{error:?}");
    }
}

/// More bytes than fit into one transaction, and more than fit into one answer.
#[tokio::test]
async fn a_long_history_is_written_and_deleted_in_several_transactions() {
    let store = store_of(&quiet().await, 2).await;
    let branch = &new_branch();
    let large = Blob::proto3(vec![7; 900 << 10]);
    let nodes: Vec<_> = (1..=14).map(|id| HistoryNode { events: large.clone(), ..node(id, id) }).collect();
    let all_at_once =
        store.write("insert_nodes", |c| async { history_node::insert(&{ c }, branch, &nodes).await }).await;
    assert!(all_at_once.is_err(), "12 MiB");
    history_node::insert_in_batches(&store, branch, &nodes).await.unwrap();
    let read = pages(&store, branch, 0..100, ReadNodes::Forward, 5).await;
    assert_eq!(read.iter().map(Vec::len).collect::<Vec<_>>(), [5, 5, 4]);
    let in_transaction =
        store.run("delete", |tx| async move { history_node::range_delete_at_most(&tx, branch, 8, 2).await });
    assert_eq!(in_transaction.await.unwrap(), 2);
    let read = pages(&store, branch, 0..100, ReadNodes::Metadata, 100).await.concat();
    let ids: Vec<_> = read.iter().map(|node| node.node_id).collect();
    assert_eq!(ids, [1, 2, 3, 4, 5, 6, 7, 10, 11, 12, 13, 14], "the first ones are deleted");
    assert_eq!(history_node::range_delete(&store, branch, 8).await.unwrap(), 5);
    assert_eq!(history_node::range_delete(&store, branch, 0).await.unwrap(), 7);
    assert_eq!(pages(&store, branch, 0..100, ReadNodes::Metadata, 5).await, [[]]);
}

async fn insert_branch(store: &Persistence, branch: &HistoryBranch) {
    store.write("insert_branch", async |c| history_tree::insert(&c, branch).await).await.unwrap();
}

#[tokio::test]
async fn branches_of_a_tree() {
    let store = store().await;
    let key = new_branch();
    let other = BranchKey { branch_id: new_uuid(), ..key };
    let branches = [key, other].map(|key| HistoryBranch { key, info: blob("branch") });
    for branch in &branches {
        insert_branch(&store, branch).await;
    }
    insert_branch(&store, &HistoryBranch { key: new_branch(), info: blob("of another tree") }).await;
    let select = || store.read("select", async |c| history_tree::select(&c, key.shard_id, key.tree_id).await);
    assert_eq!(select().await.unwrap(), branches);
    let again = HistoryBranch { info: blob("again"), ..branches[0].clone() };
    insert_branch(&store, &again).await;
    assert_eq!(select().await.unwrap(), [again, branches[1].clone()]);
    let delete = || store.write("delete", async |c| history_tree::delete(&c, &key).await);
    assert!(delete().await.unwrap());
    assert!(!delete().await.unwrap());
    assert_eq!(select().await.unwrap().len(), 1);
}

/// The faulty version fails at the first page, for which it has no identifiers to begin after.
#[tokio::test]
async fn all_branches_page_by_page_from_the_first() {
    let cluster = alone().await;
    let store = store_of(&cluster, 2).await;
    let page = async |size, token: Option<&PageToken>| {
        store.read("paginate", |c| async move { history_tree::paginate(&c, size, token).await }).await
    };
    assert_eq!(page(3, None).await.unwrap().rows, [], "an empty table has one page");
    let mut all: Vec<_> = (0..6).map(|_| HistoryBranch { key: new_branch(), info: blob("branch") }).collect();
    // The smallest and the greatest keys there are belong to the list.
    for (shard_id, id) in [(i32::MIN, 0), (i32::MAX, u128::MAX)] {
        let id = forebay_dsql::Uuid::from_u128(id);
        let key = BranchKey { shard_id, tree_id: id, branch_id: id };
        all.push(HistoryBranch { key, info: blob("extreme") });
    }
    for branch in &all {
        insert_branch(&store, branch).await;
    }
    all.sort_by_key(|branch| branch.key);
    for size in [1, 3, 4, 8, 9] {
        let (mut seen, mut token, mut count) = (Vec::new(), None, 0);
        loop {
            let next = page(size, token.as_ref()).await.unwrap();
            seen.extend(next.rows);
            count += 1;
            token = next.next;
            if token.is_none() {
                break;
            }
        }
        assert_eq!(seen, all);
        assert_eq!(count, all.len().div_ceil(size));
    }
}
