//! Tests for implementations of [`Table`]. Call them from your own tests.

use crate::expression::{Change, Condition};
use crate::item::{Item, Path, Value};
use crate::table::{Cancelled, Delete, Returning, Table, TableError, Update, Write};

/// Tests everything that a [`Table`] must do. The table must be empty under `prefix`.
///
/// # Cancel safety
/// If the future is dropped, the items written so far remain.
///
/// # Panics
/// If a test fails.
pub async fn table(table: &dyn Table, prefix: &str) {
    updates(table, &format!("{prefix}update")).await;
    conditions(table, &format!("{prefix}condition")).await;
    nested(table, &format!("{prefix}nested")).await;
    transactions(table, &format!("{prefix}transact")).await;
    deletes(table, &format!("{prefix}delete")).await;
    scans(table, &format!("{prefix}scan")).await;
}

async fn write(table: &dyn Table, update: Update) -> Option<Item> {
    table.update(&update).await.unwrap_or_else(|error| panic!("{update:?} failed: {error}"))
}

async fn read(table: &dyn Table, key: &str) -> Option<Item> {
    table.get(key).await.unwrap_or_else(|error| panic!("get of {key} failed: {error}"))
}

async fn updates(table: &dyn Table, key: &str) {
    assert_eq!(read(table, key).await, None, "{key} already exists");
    // The names are reserved words.
    let update = Update::of(key).change(Change::set("ttl", "soon")).change(Change::Add("count".into(), 2));
    let made = write(table, update.clone()).await;
    let expected = Item::new().with("ttl", "soon").with("count", 2);
    assert_eq!(made, Some(expected.clone()), "an update creates the item and returns it");
    assert_eq!(read(table, key).await, Some(expected.clone()), "a get sees the update before it");
    let old = write(table, Update { returning: Returning::Old, ..update.clone() }).await;
    assert_eq!(old, Some(expected), "the old item is returned on demand");
    let nothing = write(table, Update { returning: Returning::Nothing, ..update }).await;
    assert_eq!(nothing, None, "nothing is returned on demand");
    let after =
        write(table, Update::of(key).change(Change::plus("count", -1)).change(Change::Remove("ttl".into())))
            .await;
    assert_eq!(after, Some(Item::new().with("count", 5)), "sums and removals");
    let large = write(table, Update::of(key).change(Change::set("count", i64::MAX))).await;
    assert_eq!(large, Some(Item::new().with("count", i64::MAX)), "whole numbers are exact");
    let fresh = Update {
        returning: Returning::Old,
        ..Update::of(format!("{key}-fresh")).change(Change::set("a", 1))
    };
    assert_eq!(write(table, fresh).await, None, "a new item has no old one");
}

async fn conditions(table: &dyn Table, key: &str) {
    let touch = |condition| Update::of(key).when(condition).change(Change::Add("touched".into(), 1));
    let refused = |item: Option<Item>| async move {
        for condition in [Condition::an_item(), Condition::Exists("free".into())] {
            match table.update(&touch(condition.clone())).await {
                Err(TableError::ConditionFailed(found)) => {
                    assert_eq!(found.map(|item| *item), item, "the item of a refusal")
                }
                other => panic!("{condition:?} of {item:?}: {other:?}"),
            }
        }
    };
    refused(None).await;
    let item = Item::new().with("free", 5).with("name", "x");
    let make = Update::of(key)
        .when(Condition::no_item())
        .change(Change::set("free", 5))
        .change(Change::set("name", "x"));
    assert_eq!(write(table, make.clone()).await, Some(item.clone()));
    match table.update(&make).await {
        Err(TableError::ConditionFailed(Some(found))) => assert_eq!(*found, item, "a refusal shows the item"),
        other => panic!("made twice: {other:?}"),
    }
    let free = || Path::of("free");
    let cases = [
        (Condition::Equals(free(), Value::Number(5)), true),
        (Condition::Equals(free(), Value::Number(6)), false),
        (Condition::Equals("name".into(), Value::from("x")), true),
        (Condition::AtLeast(free(), 5), true),
        (Condition::AtLeast(free(), 6), false),
        (Condition::AtMost(free(), 5), true),
        (Condition::AtMost(free(), 4), false),
        (Condition::Below(free(), 6), true),
        (Condition::Below(free(), 5), false),
        (Condition::Missing("gone".into()), true),
        (Condition::Missing(free()), false),
        (Condition::Any(vec![Condition::Missing(free()), Condition::AtMost(free(), 5)]), true),
        (Condition::Any(vec![Condition::Missing(free()), Condition::AtMost(free(), 4)]), false),
    ];
    for (condition, holds) in cases {
        let outcome = table.update(&touch(condition.clone())).await;
        assert_eq!(outcome.is_ok(), holds, "{condition:?}: {outcome:?}");
    }
    let both = touch(Condition::AtLeast(free(), 1)).when(Condition::Equals("name".into(), Value::from("y")));
    assert!(
        matches!(table.update(&both).await, Err(TableError::ConditionFailed(_))),
        "all conditions must hold"
    );
}

async fn nested(table: &dyn Table, key: &str) {
    let empty = Value::Map(Default::default());
    let entry = |slots: i64| Value::Map([("s".to_owned(), Value::Number(slots))].into());
    // A name with a dot and a dash: names must be escaped.
    let at = Path::of("inst").then("a.b-c");
    write(table, Update::of(key).change(Change::set("free", 10)).change(Change::set("inst", empty))).await;
    let join = Update::of(key)
        .when(Condition::Missing(at.clone()))
        .change(Change::Set(at.clone(), entry(4)))
        .change(Change::plus("free", -4));
    let joined = write(table, join.clone()).await.expect("the new item");
    assert_eq!((joined.number("free"), joined.at(&at)), (Some(6), Some(&entry(4))));
    assert!(matches!(table.update(&join).await, Err(TableError::ConditionFailed(Some(_)))));
    let slots = at.clone().then("s");
    let grow = Update::of(key)
        .when(Condition::Equals(slots.clone(), Value::Number(4)))
        .change(Change::set(slots.clone(), 7))
        .change(Change::plus("free", -3));
    let grown = write(table, grow).await.expect("the new item");
    assert_eq!(grown.at(&slots), Some(&Value::Number(7)));
    let leave = Update::of(key).change(Change::Remove(at.clone())).change(Change::plus("free", 7));
    let left = write(table, leave).await.expect("the new item");
    assert_eq!((left.number("free"), left.at(&at)), (Some(10), None));
    let nowhere = Update::of(key).change(Change::Set(slots, Value::Number(1)));
    assert!(
        matches!(table.update(&nowhere).await, Err(TableError::Invalid(_))),
        "a path whose parent is missing"
    );
}

async fn transactions(table: &dyn Table, key: &str) {
    let (counter, lease) = (format!("{key}#counter"), format!("{key}#lease"));
    let put = |number: i64| Write::Put {
        key: format!("{lease}{number}"),
        item: Item::new().with("number", number),
        when: vec![Condition::no_item()],
    };
    let up = Write::Update(
        Update::of(&counter)
            .when(Condition::Any(vec![
                Condition::Missing("active".into()),
                Condition::Below("active".into(), 2),
            ]))
            .change(Change::Add("active".into(), 1)),
    );
    let active = || async { read(table, &counter).await.and_then(|item| item.number("active")) };
    for number in 0..2 {
        let writes = [up.clone(), put(number)];
        for _ in 0..2 {
            let done = table.transact(&writes, &format!("{key}-{number}")).await;
            done.unwrap_or_else(|error| panic!("transaction {number} failed: {error}"));
        }
        assert_eq!(active().await, Some(number + 1), "a token makes its changes once");
    }
    match table.transact(&[up.clone(), put(2)], &format!("{key}-2")).await {
        Err(TableError::Cancelled(reasons)) => {
            let item = Some(Box::new(Item::new().with("active", 2)));
            assert_eq!(
                reasons,
                [Cancelled::ConditionFailed(item), Cancelled::Fine],
                "a reason for each change"
            );
        }
        other => panic!("beyond the limit: {other:?}"),
    }
    assert_eq!(read(table, &format!("{lease}2")).await, None, "all or nothing");
    let gone = Write::Delete(Delete { key: format!("{lease}1"), when: vec![Condition::an_item()] });
    let down = Write::Update(
        Update::of(&counter).when(Condition::AtLeast("active".into(), 1)).change(Change::plus("active", -1)),
    );
    table.transact(&[gone.clone(), down.clone()], &format!("{key}-3")).await.expect("a release");
    assert_eq!((active().await, read(table, &format!("{lease}1")).await), (Some(1), None));
    let again = table.transact(&[gone, down], &format!("{key}-4")).await;
    assert!(
        matches!(again, Err(TableError::Cancelled(_))),
        "another token is another transaction: {again:?}"
    );
    assert_eq!(active().await, Some(1));
    invalid_changes(table, key).await;
}

/// Changes that do not match their item, in a transaction: conditions come first, and nothing is changed.
async fn invalid_changes(table: &dyn Table, key: &str) {
    let (one, other) = (format!("{key}#unfit"), format!("{key}#beside"));
    let nowhere = || Update::of(&one).change(Change::Set(Path::of("inst").then("a"), Value::Number(1)));
    let beside = Write::Update(Update::of(&other).change(Change::set("a", 1)));
    let refused = Write::Update(nowhere().when(Condition::an_item()));
    match table.transact(&[beside.clone(), refused], &format!("{key}-5")).await {
        Err(TableError::Cancelled(reasons)) => {
            assert_eq!(reasons, [Cancelled::Fine, Cancelled::ConditionFailed(None)], "conditions come first");
        }
        outcome => panic!("a condition that does not hold: {outcome:?}"),
    }
    let unfit = table.transact(&[beside, Write::Update(nowhere())], &format!("{key}-6")).await;
    assert!(matches!(unfit, Err(TableError::Invalid(_))), "a path whose parent is missing: {unfit:?}");
    assert_eq!((read(table, &one).await, read(table, &other).await), (None, None), "all or nothing");
}

async fn deletes(table: &dyn Table, key: &str) {
    let delete = |when| Delete { key: key.to_owned(), when };
    let gone = table.delete(&delete(Vec::new())).await.expect("deleting a missing item succeeds");
    assert_eq!(gone, None);
    write(table, Update::of(key).change(Change::set("a", 1))).await;
    let refused = table.delete(&delete(vec![Condition::Equals("a".into(), Value::Number(2))])).await;
    assert!(matches!(refused, Err(TableError::ConditionFailed(Some(_)))), "{refused:?}");
    let gone = table.delete(&delete(vec![Condition::an_item()])).await.expect("a delete");
    assert_eq!((gone, read(table, key).await), (Some(Item::new().with("a", 1)), None));
}

async fn scans(table: &dyn Table, key: &str) {
    let count = 250;
    for number in 0..count {
        write(table, Update::of(format!("{key}#{number:03}")).change(Change::set("n", number))).await;
    }
    write(table, Update::of(format!("{key}-other")).change(Change::set("n", -1))).await;
    let (mut seen, mut after) = (Vec::new(), None);
    loop {
        let page = table.scan(&format!("{key}#"), after.as_ref()).await.expect("a page");
        seen.extend(page.items.into_iter().map(|(key, item)| (key, item.number("n"))));
        after = page.next;
        if after.is_none() {
            break;
        }
    }
    seen.sort();
    let expected: Vec<_> = (0..count).map(|number| (format!("{key}#{number:03}"), Some(number))).collect();
    assert_eq!(seen, expected, "every item once, and no others");
}
