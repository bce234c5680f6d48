//! Conformance tests of the table.

use forebay_fleet::{
    Change, Condition, Item, MemoryTable, Path, Returning, Table, TableError, Update, Value, conformance,
};

use crate::server::DynamoDb;

#[test]
fn dynamodb_conforms() {
    let server = DynamoDb::with_table();
    server.run(conformance::table(&server.table(), "conformance-"));
}

/// Every condition on every kind of value, after every change: DynamoDB and the table in memory agree.
#[test]
fn conditions_and_changes_are_the_same_as_in_memory() {
    let server = DynamoDb::with_table();
    let (dynamo, memory) = (server.table(), MemoryTable::new());
    let inner = || Value::Map([("n".to_owned(), Value::Number(3))].into());
    let make = Update::of("x")
        .change(Change::set("number", 5))
        .change(Change::set("text", "5"))
        .change(Change::set("map", inner()));
    let paths = ["number", "text", "map", "missing", "pk"].map(Path::of);
    let paths: Vec<Path> =
        paths.into_iter().chain([Path::of("map").then("n"), Path::of("map").then("o")]).collect();
    let mut conditions = vec![Condition::Any(Vec::new())];
    for path in paths.iter().filter(|path| path.names() != ["pk"]) {
        let path = || path.clone();
        let values = [Value::Number(5), Value::from("5"), inner()];
        conditions.extend(values.into_iter().map(|value| Condition::Equals(path(), value)));
        conditions.extend([4, 5, 6].into_iter().flat_map(|number| {
            [
                Condition::AtLeast(path(), number),
                Condition::AtMost(path(), number),
                Condition::Below(path(), number),
            ]
        }));
    }
    conditions.extend(
        paths.iter().flat_map(|path| [Condition::Exists(path.clone()), Condition::Missing(path.clone())]),
    );
    let pairs = conditions.windows(2).map(|pair| Condition::Any(pair.to_vec())).collect::<Vec<_>>();
    conditions.extend(pairs);
    let mut changes: Vec<Change> = vec![Change::Add("number".into(), 2), Change::Add("fresh".into(), -2)];
    changes.push(Change::Add("text".into(), 1));
    for path in paths.iter().filter(|path| path.names() != ["pk"]) {
        changes.push(Change::plus(path.clone(), 4));
        changes.push(Change::set(path.clone(), "new"));
        changes.push(Change::Remove(path.clone()));
    }
    changes.push(Change::set(Path::of("missing").then("deep"), 1));
    changes.push(Change::Remove(Path::of("missing").then("deep")));

    let compare = |update: &Update| {
        let outcomes = [&dynamo as &dyn Table, &memory].map(|table| story(server.run(table.update(update))));
        assert_eq!(outcomes[0], outcomes[1], "{update:?}");
        outcomes[0].clone()
    };
    for there in [false, true] {
        if there {
            compare(&make);
        }
        let said: Vec<String> = conditions
            .iter()
            .map(|condition| {
                compare(&Update::of("x").when(condition.clone()).when(Condition::Missing("no".into())))
            })
            .collect();
        assert!(said.iter().any(|said| said.starts_with("done")), "none holds");
        assert!(said.iter().any(|said| said.starts_with("refused")), "all hold");
        server.run(dynamo.delete(&forebay_fleet::Delete { key: "x".into(), when: Vec::new() })).unwrap();
        memory.expire("x");
    }
    for change in changes {
        compare(&make);
        for returning in [Returning::New, Returning::Old, Returning::Nothing] {
            compare(&Update { returning, ..Update::of("x").change(change.clone()) });
        }
        for update in [Update::of("y").change(change.clone()), Update::of("y")] {
            compare(&update);
        }
    }
}

fn story(outcome: Result<Option<Item>, TableError>) -> String {
    match outcome {
        Ok(item) => format!("done: {item:?}"),
        Err(TableError::ConditionFailed(item)) => format!("refused: {item:?}"),
        // The messages differ.
        Err(TableError::Invalid(_)) => "invalid".to_owned(),
        Err(error) => panic!("{error}"),
    }
}
