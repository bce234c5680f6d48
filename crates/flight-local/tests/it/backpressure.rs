//! A slow client slows its statement down.

use flight_local::Config;
use futures_util::TryStreamExt;

use crate::client::{connect, pause, start, until};

/// How far the server may be ahead.
const AHEAD: u64 = 8;

#[tokio::test]
async fn the_server_is_at_most_eight_batches_ahead() {
    for sql in [
        "SELECT * FROM prebuilt(rows => 100000000)",
        // Each row fills a batch. Small rows would be sent earlier on a slow machine, with more batches in
        // flight.
        "SELECT value, hex(zeroblob(600000)) FROM generate_series(1, 100000000)",
    ] {
        let server = start(Config::default()).await;
        let mut client = connect(&server).await;
        let info = client.execute(sql.to_owned(), None).await.unwrap();
        let mut stream = client.do_get(info.endpoint[0].ticket.clone().unwrap()).await.unwrap();
        for taken in 1..=20 {
            stream.try_next().await.unwrap().unwrap();
            if taken % 5 == 0 {
                // Until the steps stop growing.
                let mut steps = server.counters().steps;
                loop {
                    pause(100).await;
                    let now = server.counters().steps;
                    if now == steps {
                        break;
                    }
                    steps = now;
                }
                let sent = server.counters().batches_sent;
                assert!(sent - taken <= AHEAD, "{sent} sent, {taken} taken: {sql}");
            }
        }
        drop(stream);
        let counters = until(&server, |counters| counters.statements_running == 0).await;
        assert_eq!(counters.statements_interrupted, 1);
        assert!(counters.batches_sent <= 20 + AHEAD);
        server.stop().await;
    }
}
