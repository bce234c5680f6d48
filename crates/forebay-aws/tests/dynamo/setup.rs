//! The table is made once, as it must be, and nobody else's is touched.

use forebay_aws::dynamo::SetupError;
use forebay_fleet::TableError;
use serde_json::{Value, json};

use crate::answers::{Answer, Answers};
use crate::server::{DynamoDb, TABLE, sdk};

fn make(server: &DynamoDb, schema: Value) {
    let mut request = schema;
    request["TableName"] = TABLE.into();
    server.database.create_table(serde_json::from_value(request).unwrap()).unwrap();
}

fn described(server: &DynamoDb) -> Value {
    let request = serde_json::from_value(json!({ "TableName": TABLE })).unwrap();
    serde_json::to_value(server.database.describe_table(request).unwrap()).unwrap()["Table"].clone()
}

fn expiry(server: &DynamoDb) -> Value {
    let request = serde_json::from_value(json!({ "TableName": TABLE })).unwrap();
    let answer = server.database.describe_time_to_live(request).unwrap();
    serde_json::to_value(answer).unwrap()["TimeToLiveDescription"].clone()
}

#[test]
fn it_is_made_once_and_repeating_is_safe() {
    let server = DynamoDb::start();
    let (table, clock) = (server.table(), server.clock());
    let first = server.run(table.setup(&clock)).unwrap();
    assert!(first.created && first.expiry_enabled && !first.provisioned, "{first:?}");
    let found = described(&server);
    assert_eq!(found["KeySchema"], json!([{ "AttributeName": "pk", "KeyType": "HASH" }]));
    assert_eq!(found["AttributeDefinitions"], json!([{ "AttributeName": "pk", "AttributeType": "S" }]));
    assert_eq!(found["BillingModeSummary"]["BillingMode"], "PAY_PER_REQUEST");
    assert_eq!(expiry(&server), json!({ "AttributeName": "ttl_epoch", "TimeToLiveStatus": "ENABLED" }));
    let again = server.run(table.setup(&clock)).unwrap();
    assert!(!again.created && !again.expiry_enabled, "{again:?}");
}

#[test]
fn two_at_once_make_one() {
    let server = DynamoDb::start();
    let (one, other) = (server.table(), server.table());
    let clock = server.clock();
    let (first, second) = server.run(async { tokio::join!(one.setup(&clock), other.setup(&clock)) });
    let (first, second) = (first.unwrap(), second.unwrap());
    assert!(first.created || second.created);
    assert_eq!(expiry(&server)["TimeToLiveStatus"], "ENABLED");
}

#[test]
fn a_table_that_lacks_expiry_gets_it_and_one_with_capacity_is_told() {
    let server = DynamoDb::start();
    make(
        &server,
        json!({
            "KeySchema": [{ "AttributeName": "pk", "KeyType": "HASH" }],
            "AttributeDefinitions": [{ "AttributeName": "pk", "AttributeType": "S" }],
            "ProvisionedThroughput": { "ReadCapacityUnits": 5, "WriteCapacityUnits": 5 },
        }),
    );
    let done = server.run(server.table().setup(&server.clock())).unwrap();
    assert!(!done.created && done.expiry_enabled && done.provisioned, "{done:?}");
}

#[test]
fn another_shape_is_explained_and_left_alone() {
    let server = DynamoDb::start();
    make(
        &server,
        json!({
            "KeySchema": [
                { "AttributeName": "id", "KeyType": "HASH" },
                { "AttributeName": "at", "KeyType": "RANGE" },
            ],
            "AttributeDefinitions": [
                { "AttributeName": "id", "AttributeType": "N" },
                { "AttributeName": "at", "AttributeType": "S" },
            ],
            "BillingMode": "PAY_PER_REQUEST",
        }),
    );
    let error = server.run(server.table().setup(&server.clock())).unwrap_err();
    let text = error.to_string();
    assert!(matches!(error, SetupError::Schema { .. }), "{text}");
    for words in
        ["its partition key is id (number), and must be pk (string)", "a sort key, at (string)", TABLE]
    {
        assert!(text.contains(words), "{words}: {text}");
    }
    assert_eq!(expiry(&server)["TimeToLiveStatus"], "DISABLED");
}

#[test]
fn expiry_by_another_attribute_is_explained_and_left_alone() {
    let server = DynamoDb::start();
    make(
        &server,
        json!({
            "KeySchema": [{ "AttributeName": "pk", "KeyType": "HASH" }],
            "AttributeDefinitions": [{ "AttributeName": "pk", "AttributeType": "S" }],
            "BillingMode": "PAY_PER_REQUEST",
        }),
    );
    let request = json!({
        "TableName": TABLE,
        "TimeToLiveSpecification": { "AttributeName": "expires", "Enabled": true },
    });
    server.database.update_time_to_live(serde_json::from_value(request).unwrap()).unwrap();
    let error = server.run(server.table().setup(&server.clock())).unwrap_err().to_string();
    assert!(error.contains("its time-to-live is on expires, and must be on ttl_epoch"), "{error}");
    assert_eq!(expiry(&server)["AttributeName"], "expires");
}

#[test]
fn a_table_on_its_way_out_is_not_waited_for() {
    let answers = Answers::start(Answer::json(200, json!({ "Table": { "TableStatus": "DELETING" } })));
    let server = DynamoDb::start();
    let table = forebay_aws::dynamo::DynamoTable::new(&sdk(answers.address), TABLE).unwrap();
    let error = server.run(table.setup(&server.clock())).unwrap_err();
    assert!(matches!(&error, SetupError::NotActive { status, .. } if status == "DELETING"), "{error}");
}

#[test]
fn a_lack_of_rights_is_told() {
    let denied =
        Answer::error(400, "AccessDeniedException", "not authorized to perform: dynamodb:DescribeTable");
    let (answers, server) = (Answers::start(denied), DynamoDb::start());
    let table = forebay_aws::dynamo::DynamoTable::new(&sdk(answers.address), TABLE).unwrap();
    let error = server.run(table.setup(&server.clock())).unwrap_err();
    assert!(matches!(error, SetupError::Table(TableError::Denied(_))), "{error}");
}
