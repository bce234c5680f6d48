//! TLS for tokio-postgres, with a tracked stream inside.

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;

use forebay::rt::Runtime;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::client::TlsStream as RustlsStream;

use crate::driver::addresses::Answers;
use crate::driver::tls::Tls;
use crate::wire::{StateTracker, TrackedStream};

/// TLS for one connection of tokio-postgres, whose decrypted stream is tracked. It serves one attempt at one address.
pub(crate) struct TrackedTls {
    tls: Tls,
    tracker: Arc<StateTracker>,
    answers: Answers,
    runtime: Arc<dyn Runtime>,
}

impl TrackedTls {
    pub(crate) fn new(
        tls: Tls,
        tracker: Arc<StateTracker>,
        answers: Answers,
        runtime: Arc<dyn Runtime>,
    ) -> Self {
        Self { tls, tracker, answers, runtime }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> MakeTlsConnect<S> for TrackedTls {
    type Stream = TrackedStream<RustlsStream<S>>;
    type TlsConnect = Attempt;
    type Error = io::Error;

    fn make_tls_connect(&mut self, _domain: &str) -> io::Result<Attempt> {
        Ok(Attempt {
            tls: self.tls.clone(),
            tracker: Arc::clone(&self.tracker),
            answers: self.answers.clone(),
            runtime: Arc::clone(&self.runtime),
        })
    }
}

/// One attempt to secure one socket.
pub(crate) struct Attempt {
    tls: Tls,
    tracker: Arc<StateTracker>,
    answers: Answers,
    runtime: Arc<dyn Runtime>,
}

impl<S: AsyncRead + AsyncWrite + Unpin + Send + 'static> TlsConnect<S> for Attempt {
    type Stream = TrackedStream<RustlsStream<S>>;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<Self::Stream>> + Send>>;

    fn connect(self, socket: S) -> Self::Future {
        Box::pin(async move {
            let stream = self.tls.connect(socket).await?;
            self.answers.record();
            Ok(TrackedStream::new(stream, self.tracker, self.runtime))
        })
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> TlsStream for TrackedStream<RustlsStream<S>> {
    fn channel_binding(&self) -> ChannelBinding {
        // The password is a signed token, which needs none.
        ChannelBinding::none()
    }
}
