//! A proxy in front of a cluster, which can be led elsewhere, and stopped at any byte.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// What is behind an address: a cluster, or nothing.
#[derive(Clone)]
pub(crate) struct Door(Arc<Inner>);

struct Inner {
    behind: std::sync::Mutex<Option<SocketAddr>>,
    /// How many more bytes of the server may pass, and of its clients.
    from_server: AtomicU64,
    from_client: AtomicU64,
    opened: Notify,
}

impl Door {
    /// Passes connections on to what is behind it. Returns its port.
    pub(crate) async fn open(behind: SocketAddr) -> (Self, u16) {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let door = Self(Arc::new(Inner {
            behind: std::sync::Mutex::new(Some(behind)),
            from_server: AtomicU64::new(u64::MAX),
            from_client: AtomicU64::new(u64::MAX),
            opened: Notify::new(),
        }));
        let shared = door.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(shared.clone().pass(client));
            }
        });
        (door, port)
    }

    pub(crate) fn lead_to(&self, behind: Option<SocketAddr>) {
        *self.0.behind.lock().unwrap() = behind;
    }

    /// So many more bytes pass in all, and then nothing, while sockets stay open: as of a server that has stopped.
    pub(crate) fn stop_after(&self, from_client: u64, from_server: u64) {
        self.0.from_client.store(from_client, Ordering::SeqCst);
        self.0.from_server.store(from_server, Ordering::SeqCst);
    }

    /// Everything passes again.
    pub(crate) fn go_on(&self) {
        self.stop_after(u64::MAX, u64::MAX);
        self.0.opened.notify_waiters();
    }

    async fn pass(self, client: TcpStream) {
        let Some(behind) = *self.0.behind.lock().unwrap() else { return };
        let server = TcpStream::connect(behind).await.unwrap();
        let ((client_reads, client_writes), (server_reads, server_writes)) =
            (client.into_split(), server.into_split());
        tokio::join!(
            self.copy(client_reads, server_writes, &self.0.from_client),
            self.copy(server_reads, client_writes, &self.0.from_server),
        );
    }

    async fn copy(
        &self,
        mut from: impl AsyncRead + Unpin,
        mut to: impl AsyncWrite + Unpin,
        budget: &AtomicU64,
    ) {
        let mut bytes = [0; 4096];
        while let Ok(read @ 1..) = from.read(&mut bytes).await {
            let mut rest = &bytes[..read];
            while !rest.is_empty() {
                let mut opened = std::pin::pin!(self.0.opened.notified());
                opened.as_mut().enable();
                let left = budget.load(Ordering::SeqCst);
                let (now, later) = rest.split_at(rest.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
                if left != u64::MAX {
                    budget.fetch_sub(now.len() as u64, Ordering::SeqCst);
                }
                if to.write_all(now).await.is_err() {
                    return;
                }
                rest = later;
                if !rest.is_empty() {
                    opened.await;
                }
            }
        }
        drop(to.shutdown().await);
    }
}
