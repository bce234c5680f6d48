//! TLS for tokio-postgres, with a watch inside.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::client::TlsStream as RustlsStream;

use super::Tls;
use crate::wire::{Watch, Watched};

/// TLS for one connection of tokio-postgres, with a watch on what passes inside. It is for one address, and one attempt.
pub(crate) struct WatchedTls {
    tls: Tls,
    watch: Arc<Watch>,
}

impl WatchedTls {
    pub(crate) fn new(tls: Tls, watch: Arc<Watch>) -> Self {
        Self { tls, watch }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for WatchedTls {
    type Stream = Watched<RustlsStream<S>>;
    type TlsConnect = Attempt;
    type Error = io::Error;

    fn make_tls_connect(&mut self, _domain: &str) -> io::Result<Attempt> {
        Ok(Attempt { tls: self.tls.clone(), watch: Arc::clone(&self.watch) })
    }
}

/// One attempt to secure one socket.
pub(crate) struct Attempt {
    tls: Tls,
    watch: Arc<Watch>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Attempt {
    type Stream = Watched<RustlsStream<S>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Stream>> + Send>>;

    fn connect(self, socket: S) -> Self::Future {
        Box::pin(async move {
            let stream = self.tls.connector.connect(self.tls.name, socket).await?;
            Ok(Watched::new(stream, self.watch))
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for Watched<RustlsStream<S>> {
    fn channel_binding(&self) -> ChannelBinding {
        // The password is a signed token, which needs none.
        ChannelBinding::none()
    }
}
