//! Session options, and CloseSession.

use std::collections::BTreeMap;

use arrow_flight::error::FlightError;
use arrow_flight::{Action, Empty};
use flight_local::messages::{
    CloseSessionRequest, CloseSessionResult, CloseStatus, GetSessionOptionsRequest, GetSessionOptionsResult,
    OptionProblem, OptionValue, SessionOptionValue, SetSessionOptionsRequest, SetSessionOptionsResult,
};
use flight_local::{Actions, Config, Support};
use futures_util::TryStreamExt;
use prost::Message;
use tonic::Code;

use crate::client::{Client, code, connect, number, query, start, update};

async fn act<R: Message + Default>(
    client: &mut Client,
    name: &str,
    body: &impl Message,
) -> Result<R, FlightError> {
    let mut answers = client.do_action(Action::new(name, body.encode_to_vec())).await?;
    let answer = answers.message().await?.unwrap();
    Ok(R::decode(answer.body).unwrap())
}

async fn set(client: &mut Client, values: Vec<(&str, Option<OptionValue>)>) -> BTreeMap<String, i32> {
    let session_options =
        values.into_iter().map(|(name, value)| (name.to_owned(), SessionOptionValue { value })).collect();
    let request = SetSessionOptionsRequest { session_options };
    let result: SetSessionOptionsResult = act(client, "SetSessionOptions", &request).await.unwrap();
    result.errors.into_iter().map(|(name, error)| (name, error.value)).collect()
}

async fn get(client: &mut Client, name: &str) -> Option<OptionValue> {
    let result: GetSessionOptionsResult =
        act(client, "GetSessionOptions", &GetSessionOptionsRequest {}).await.unwrap();
    result.session_options.get(name).and_then(|value| value.value.clone())
}

#[tokio::test]
async fn options_are_the_sessions_own_and_have_effect() {
    let server = start(Config::default()).await;
    let (mut one, mut two) = (connect(&server).await, connect(&server).await);
    update(&mut one, "CREATE TABLE t (n INT)").await.unwrap();
    assert!(set(&mut one, vec![("query_only", Some(OptionValue::Bool(true)))]).await.is_empty());
    assert_eq!(code(update(&mut one, "INSERT INTO t VALUES (1)").await), Code::PermissionDenied);
    assert_eq!(update(&mut two, "INSERT INTO t VALUES (1)").await.unwrap(), 1);
    assert_eq!(get(&mut one, "query_only").await, Some(OptionValue::Bool(true)));
    assert_eq!(get(&mut two, "query_only").await, Some(OptionValue::Bool(false)));
    let errors = set(
        &mut one,
        vec![
            ("query_only", None),
            ("busy_timeout_ms", Some(OptionValue::Text("long".to_owned()))),
            ("colour", Some(OptionValue::Real(1.0))),
        ],
    )
    .await;
    let wanted = [
        ("busy_timeout_ms".to_owned(), i32::from(OptionProblem::InvalidValue)),
        ("colour".to_owned(), i32::from(OptionProblem::InvalidName)),
    ];
    assert_eq!(errors, BTreeMap::from(wanted));
    assert_eq!(update(&mut one, "INSERT INTO t VALUES (1)").await.unwrap(), 1);
    let counters = server.counters();
    assert_eq!((counters.set_session_options, counters.get_session_options), (2, 2));
    server.stop().await;
}

#[tokio::test]
async fn a_session_can_be_closed_before_its_connection() {
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    update(&mut client, "CREATE TEMP TABLE mine (n INT)").await.unwrap();
    let result: CloseSessionResult = act(&mut client, "CloseSession", &CloseSessionRequest {}).await.unwrap();
    assert_eq!(result.status(), CloseStatus::Closed);
    let counters = server.counters();
    assert_eq!((counters.sessions_open, counters.connections_open, counters.close_session), (0, 1, 1));
    // The next statement on the connection begins another session.
    assert_eq!(code(query(&mut client, "SELECT * FROM mine").await), Code::InvalidArgument);
    assert_eq!(server.counters().sessions_ever, 2);
    server.stop().await;
}

#[tokio::test]
async fn refused_actions_are_listed_and_unknown_ones_are_not() {
    for (support, listed, answer) in
        [(Support::Refused, true, Code::Unimplemented), (Support::Unknown, false, Code::InvalidArgument)]
    {
        let server = start(Config { actions: Actions::all(support), ..Config::default() }).await;
        let mut client = connect(&server).await;
        let actions = client.inner_mut().list_actions(Empty {}).await.unwrap().into_inner();
        let names: Vec<String> = actions.map_ok(|action| action.r#type).try_collect().await.unwrap();
        assert!(names.iter().any(|name| name == "EndTransaction"));
        for name in [
            "BeginTransaction",
            "CloseSession",
            "SetSessionOptions",
            "GetSessionOptions",
            "CancelFlightInfo",
            "CancelQuery",
        ] {
            assert_eq!(names.iter().any(|listed| listed == name), listed, "{name}");
            let result: Result<CloseSessionResult, _> = act(&mut client, name, &CloseSessionRequest {}).await;
            assert_eq!(code(result), answer, "{name}");
        }
        assert_eq!(number(&mut client, "SELECT 1").await, 1);
        server.stop().await;
    }
    let server = start(Config::default()).await;
    let mut client = connect(&server).await;
    let result: Result<CloseSessionResult, _> = act(&mut client, "Dance", &CloseSessionRequest {}).await;
    assert_eq!(code(result), Code::InvalidArgument);
    server.stop().await;
}
