//! Every failure is told by what the caller does next.

use std::net::{Ipv4Addr, SocketAddr, TcpListener};
use std::time::Duration;

use aws_config::{Region, SdkConfig};
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use forebay::rt::{TokioRuntime, within};
use forebay_aws::dynamo::{DynamoTable, LocationError};
use forebay_fleet::{Cancelled, Change, Condition, Delete, Item, Table, TableError, Update, Write};
use serde_json::json;
use tokio::runtime::Builder;

use crate::answers::{Answer, Answers};
use crate::server::{DynamoDb, TABLE, sdk};

fn run<T>(future: impl Future<Output = T>) -> T {
    Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

fn table_at(address: SocketAddr) -> DynamoTable {
    DynamoTable::new(&sdk(address), TABLE).unwrap()
}

fn beat() -> Update {
    Update::of("x").when(Condition::an_item()).change(Change::set("beat", 1))
}

/// What every kind of call makes of one answer, and that each asked once.
fn all_calls(answer: Answer) -> Vec<TableError> {
    let server = Answers::start(answer);
    let table = table_at(server.address);
    let writes = [Write::Update(beat())];
    let failures = run(async {
        vec![
            table.update(&beat()).await.unwrap_err(),
            table.get("x").await.unwrap_err(),
            table.delete(&Delete { key: "x".into(), when: Vec::new() }).await.unwrap_err(),
            table.transact(&writes, "token").await.unwrap_err(),
            table.scan("x", None).await.unwrap_err(),
        ]
    });
    assert_eq!(server.asked(), failures.len(), "one attempt each");
    failures
}

fn each(answer: Answer, fits: impl Fn(&TableError) -> bool) {
    for failure in all_calls(answer.clone()) {
        assert!(fits(&failure), "{answer:?} became {failure:?}");
    }
}

#[test]
fn throttling_is_told() {
    for code in ["ProvisionedThroughputExceededException", "ThrottlingException", "RequestLimitExceeded"] {
        each(Answer::error(400, code, "slow down"), |failure| matches!(failure, TableError::Throttled));
    }
}

#[test]
fn a_lack_of_rights_is_told_with_the_reason() {
    let answer = Answer::error(400, "AccessDeniedException", "User: arn:x may not dynamodb:UpdateItem");
    each(answer, |failure| {
        let (text, remedy) = (failure.to_string(), failure.remedy().unwrap());
        matches!(failure, TableError::Denied(_))
            && text.contains("arn:x")
            && remedy.contains("grant this role")
    });
}

#[test]
fn credentials_that_are_not_valid_are_no_lack_of_rights() {
    for code in ["UnrecognizedClientException", "ExpiredTokenException", "InvalidSignatureException"] {
        each(Answer::error(400, code, "the security token"), |failure| {
            let (text, remedy) = (failure.to_string(), failure.remedy().unwrap());
            let told = text.contains(code) && text.contains("the security token");
            matches!(failure, TableError::Credentials(_)) && told && remedy.contains("AWS_PROFILE")
        });
    }
}

#[test]
fn a_missing_table_is_told_by_its_name() {
    each(Answer::error(400, "ResourceNotFoundException", "Requested resource not found"), |failure| {
        matches!(failure, TableError::NoTable(name) if name == TABLE) && failure.remedy().is_some()
    });
    let server = DynamoDb::start();
    let failure = server.run(async { server.table().get("x").await }).unwrap_err();
    assert!(matches!(failure, TableError::NoTable(_)), "{failure:?}");
}

#[test]
fn what_makes_no_sense_is_told() {
    for code in ["ValidationException", "SerializationException"] {
        each(
            Answer::error(400, code, "no such path"),
            |failure| matches!(failure, TableError::Invalid(why) if why.contains("no such path")),
        );
    }
    let server = Answers::start(Answer::error(400, "IdempotentParameterMismatchException", "other writes"));
    let failure = run(async { table_at(server.address).transact(&[Write::Update(beat())], "t").await });
    assert!(matches!(failure, Err(TableError::Invalid(_))), "{failure:?}");
}

#[test]
fn a_conflict_is_told_from_a_condition() {
    let answer = Answer::error(400, "TransactionConflictException", "ongoing");
    each(answer, |failure| matches!(failure, TableError::Conflict));
}

#[test]
fn whatever_may_have_been_applied_is_unknown() {
    let unknown = |failure: &TableError| failure.may_have_been_applied();
    each(Answer::error(500, "InternalServerError", "oops"), unknown);
    each(Answer::Says(503, "<html>try later</html>".into()), unknown);
    each(Answer::Says(200, "this is no JSON".into()), unknown);
    each(Answer::HangsUp, unknown);
    each(Answer::BreaksOff, unknown);
    let server = Answers::start(Answer::error(400, "TransactionInProgressException", "the same token"));
    let failure = run(async { table_at(server.address).transact(&[Write::Update(beat())], "t").await });
    assert!(unknown(&failure.unwrap_err()), "the first attempt is still at work");
}

#[test]
fn nobody_there_is_unknown_and_says_so() {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = listener.local_addr().unwrap();
    drop(listener);
    let failure = run(async { table_at(address).get("x").await }).unwrap_err();
    assert!(failure.may_have_been_applied(), "{failure:?}");
    assert!(failure.to_string().contains("refused"), "{failure}");
}

/// The caller's timeout ends a call that nobody answers; nothing of it is left.
#[test]
fn silence_lasts_as_long_as_the_caller_likes() {
    // It is never accepted, let alone answered.
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let table = table_at(listener.local_addr().unwrap());
    run(async {
        let runtime = TokioRuntime::current().unwrap();
        let answered = within(&runtime, Duration::from_millis(50), table.get("x")).await;
        assert!(answered.is_none(), "{answered:?}");
    });
}

#[test]
fn a_cancelled_transaction_has_a_reason_for_each_change() {
    let reasons = json!([
        { "Code": "None" },
        { "Code": "ConditionalCheckFailed", "Message": "x", "Item": { "pk": { "S": "x" }, "active": { "N": "2" } } },
        { "Code": "ConditionalCheckFailed", "Message": "x" },
        { "Code": "TransactionConflict", "Message": "x" },
        { "Code": "ProvisionedThroughputExceeded", "Message": "x" },
        { "Code": "ThrottlingError", "Message": "x" },
    ]);
    let kind = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException";
    let body = json!({ "__type": kind, "Message": "Transaction cancelled", "CancellationReasons": reasons });
    let server = Answers::start(Answer::json(400, body));
    let failure = run(async { table_at(server.address).transact(&[Write::Update(beat())], "t").await });
    let found = Some(Box::new(Item::new().with("active", 2)));
    match failure.unwrap_err() {
        TableError::Cancelled(reasons) => assert_eq!(
            reasons,
            [
                Cancelled::Fine,
                Cancelled::ConditionFailed(found),
                Cancelled::ConditionFailed(None),
                Cancelled::Conflict,
                Cancelled::Throttled,
                Cancelled::Throttled,
            ]
        ),
        other => panic!("{other:?}"),
    }
    let reasons = json!([{ "Code": "ValidationError", "Message": "no such path" }]);
    let body = json!({ "__type": kind, "Message": "Transaction cancelled", "CancellationReasons": reasons });
    let server = Answers::start(Answer::json(400, body));
    let failure = run(async { table_at(server.address).transact(&[Write::Update(beat())], "t").await });
    assert!(matches!(failure, Err(TableError::Invalid(why)) if why.contains("no such path")));
}

#[derive(Debug)]
struct NoKeys;

impl ProvideCredentials for NoKeys {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        future::ProvideCredentials::ready(Err(CredentialsError::not_loaded("there are none")))
    }
}

#[test]
fn without_credentials_an_operator_must_act() {
    let sdk = SdkConfig::builder()
        .region(Region::new("us-east-1"))
        .credentials_provider(SharedCredentialsProvider::new(NoKeys))
        .endpoint_url("http://127.0.0.1:1")
        .build();
    let table = DynamoTable::new(&sdk, TABLE).unwrap();
    let failure = run(async { table.get("x").await }).unwrap_err();
    assert!(
        matches!(&failure, TableError::Credentials(why) if why.contains("there are none")),
        "{failure:?}"
    );
}

#[test]
fn without_a_place_there_is_no_table() {
    let failure = DynamoTable::new(&SdkConfig::builder().build(), TABLE).unwrap_err();
    assert_eq!(failure, LocationError::NoRegion);
    assert!(failure.to_string().contains("AWS_REGION"));
    for url in ["", "nonsense", "http://", "http:///x", "ftp://host", "http://a b", "127.0.0.1:8000"] {
        let sdk = SdkConfig::builder().region(Region::new("us-east-1")).endpoint_url(url).build();
        let failure = DynamoTable::new(&sdk, TABLE).unwrap_err();
        assert_eq!(failure, LocationError::Address(url.to_owned()));
        assert!(failure.to_string().contains("http://127.0.0.1:8000"), "{failure}");
    }
    for url in ["http://127.0.0.1:8000", "https://[::1]:8000/", "https://dynamodb.us-east-1.amazonaws.com"] {
        let sdk = SdkConfig::builder().region(Region::new("us-east-1")).endpoint_url(url).build();
        assert!(DynamoTable::new(&sdk, TABLE).is_ok(), "{url}");
    }
}
