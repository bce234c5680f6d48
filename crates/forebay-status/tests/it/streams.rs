//! The event stream.

use forebay_status::StatusPage;
use serde_json::Value;

use crate::http::Stream;
use crate::{pool, serve};

/// The data of all complete events of a kind.
fn data(text: &str, kind: &str) -> Vec<Value> {
    // Chunked encoding puts a length between chunks, never within one of these small ones.
    let events = text.split("\n\n").filter(|event| event.contains(&format!("event: {kind}\n")));
    events.filter_map(|event| serde_json::from_str(event.split_once("data: ")?.1.trim_end()).ok()).collect()
}

#[tokio::test]
async fn a_stream_begins_with_all_and_goes_on_with_each_sample() {
    let (memory, reservoir) = pool().await;
    let page = StatusPage::new();
    page.reservoir("orders", &reservoir);
    let server = serve(&page).await;
    let mut stream = Stream::events(server.address()).await;
    let head = stream.until("event: whole").await;
    assert!(
        head.contains("content-type: text/event-stream\r\n") && head.contains("retry: 1000\n\n"),
        "{head}"
    );
    stream.until("event: sample").await;
    page.note("a deployment");
    // For longer than the time between two samples.
    memory.open_time(std::time::Duration::from_millis(800));
    memory.kill_all();
    stream.until("10 connections died").await;
    let text = stream.until("refilled after").await;
    assert!(text.contains("a deployment"));

    let whole = &data(text, "whole")[0];
    assert_eq!(whole["pools"][0]["name"], "orders");
    assert!(!whole["history"]["orders"].as_array().expect("points").is_empty());
    assert_eq!(whole["history"]["orders"][0].as_array().map(Vec::len), Some(11));
    assert!(whole["pools"][0]["ages"].is_object(), "somebody looks, so connections are listed");
    let samples = data(text, "sample");
    let ticks: Vec<_> = samples.iter().map(|sample| sample["tick"].as_u64().expect("a number")).collect();
    assert!(ticks.is_sorted(), "{ticks:?}");
    assert!(samples.iter().all(|sample| sample["pools"][0]["ages"].is_object()));
    let died = samples.iter().filter(|sample| sample["events"].to_string().contains("10 connections died"));
    // None if this reader was slow, and got the whole instead.
    assert!(died.count() <= 1, "an event is sent when it is new");
}

#[tokio::test]
async fn the_number_of_streams_is_bounded() {
    let server = serve(&StatusPage::new()).await;
    let mut open = Vec::new();
    for _ in 0..64 {
        let mut stream = Stream::events(server.address()).await;
        stream.until("event: whole").await;
        open.push(stream);
    }
    let mut refused = Stream::events(server.address()).await;
    assert!(refused.until("\r\n\r\n").await.starts_with("HTTP/1.1 503 "));
    // A stream that is closed makes room, once the server has noticed.
    open.pop();
    loop {
        let mut next = Stream::events(server.address()).await;
        if next.until("\r\n\r\n").await.starts_with("HTTP/1.1 200 ") {
            break;
        }
        forebay::rt::yield_now().await;
    }
}
