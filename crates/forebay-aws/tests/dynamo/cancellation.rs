//! Every call may be dropped at any await. It is made or not, and the next call works.

use std::future::{Future, poll_fn};
use std::pin::pin;
use std::task::Poll;

use forebay_fleet::{Change, Delete, Item, Table, Update, Write};

use crate::server::DynamoDb;

/// Polls `future` at most `polls` times and drops it. Returns its output if it was done.
async fn drop_after<T>(polls: usize, future: impl Future<Output = T>) -> Option<T> {
    let (mut future, mut left) = (pin!(future), polls);
    poll_fn(|context| {
        if left == 0 {
            return Poll::Ready(None);
        }
        left -= 1;
        future.as_mut().poll(context).map(Some)
    })
    .await
}

#[test]
fn calls_may_be_dropped_anywhere() {
    let server = DynamoDb::with_table();
    let table = server.table();
    let count = Update::of("x").change(Change::Add("count".into(), 1));
    let delete = Delete { key: "x".into(), when: Vec::new() };
    server.run(async {
        let (mut asked, mut polls, mut done) = (0, 0, [false; 5]);
        while !done.iter().all(|done| *done) {
            let writes = [Write::Update(count.clone())];
            let token = format!("token {polls}");
            done[0] |= drop_after(polls, table.update(&count)).await.is_some();
            done[1] |= drop_after(polls, table.transact(&writes, &token)).await.is_some();
            asked += 2;
            done[2] |= drop_after(polls, table.get("x")).await.is_some();
            done[3] |= drop_after(polls, table.scan("x", None)).await.is_some();
            done[4] |= drop_after(polls, table.delete(&Delete { key: "y".into(), ..delete.clone() }))
                .await
                .is_some();
            let counted = table.get("x").await.unwrap().and_then(|item| item.number("count")).unwrap_or(0);
            assert!((0..=asked).contains(&counted), "{counted} of {asked}");
            polls += 1;
            assert!(polls < 1000, "they are never done");
        }
        assert!(polls > 1, "nothing was dropped on its way");
        // A dropped call may still arrive, so a fresh item is checked at the end.
        let fresh = table.update(&Update::of("z").change(Change::set("a", 1))).await.unwrap();
        assert_eq!(fresh, Some(Item::new().with("a", 1)));
    });
}

#[test]
fn an_interrupted_setup_can_be_repeated() {
    let mut polls = 0;
    loop {
        let server = DynamoDb::start();
        let (table, clock) = (server.table(), server.clock());
        let done = server.run(drop_after(polls, table.setup(&clock)));
        let again = server.run(table.setup(&clock)).unwrap();
        if let Some(done) = done {
            assert!(done.unwrap().created && !again.created);
            break;
        }
        polls += 1;
        assert!(polls < 1000, "it is never done");
    }
    assert!(polls > 1, "nothing was dropped on its way");
}
