//! A proxy that counts how often a client waits for the server.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};

/// A client that has sent nothing for this long waits for an answer.
const QUIET: Duration = Duration::from_millis(100);

/// Counts round trips. It holds back the answers of the server until the client has sent all that it can send without them. It ends with
/// the test's runtime.
#[derive(Clone)]
pub(crate) struct RoundTrips {
    pub(crate) port: u16,
    count: Arc<AtomicU32>,
}

#[derive(Default)]
struct Flow {
    /// The client has sent something since it last got an answer.
    asks: AtomicBool,
    /// It has sent something since somebody looked.
    sends: AtomicBool,
}

impl RoundTrips {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let this = Self { port: listener.local_addr().unwrap().port(), count: Arc::default() };
        let count = Arc::clone(&this.count);
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let server = TcpStream::connect(server).await.unwrap();
                let ((from_client, to_client), (from_server, to_server)) =
                    (client.into_split(), server.into_split());
                let flow = Arc::new(Flow::default());
                tokio::spawn(requests(from_client, to_server, Arc::clone(&flow)));
                tokio::spawn(answers(from_server, to_client, flow, Arc::clone(&count)));
            }
        });
        this
    }

    /// How often a client has waited since the last call.
    pub(crate) fn take(&self) -> u32 {
        self.count.swap(0, Ordering::SeqCst)
    }
}

async fn requests(mut client: OwnedReadHalf, mut server: OwnedWriteHalf, flow: Arc<Flow>) {
    let mut bytes = vec![0; 1 << 16];
    while let Ok(count @ 1..) = client.read(&mut bytes).await {
        flow.sends.store(true, Ordering::SeqCst);
        flow.asks.store(true, Ordering::SeqCst);
        if server.write_all(&bytes[..count]).await.is_err() {
            break;
        }
    }
}

async fn answers(
    mut server: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    flow: Arc<Flow>,
    count: Arc<AtomicU32>,
) {
    let mut held = Vec::new();
    while let Ok(1..) = server.read_buf(&mut held).await {
        while flow.sends.swap(false, Ordering::SeqCst) {
            tokio::time::sleep(QUIET).await;
        }
        if flow.asks.swap(false, Ordering::SeqCst) {
            count.fetch_add(1, Ordering::SeqCst);
        }
        if client.write_all(&held).await.is_err() {
            break;
        }
        held.clear();
    }
}
