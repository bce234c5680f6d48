//! A server that gives wrong answers.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use arrow_array::RecordBatch;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::flight_service_server::{FlightService, FlightServiceServer};
use arrow_flight::sql::DoPutUpdateResult;
use arrow_flight::{
    Action, ActionType, Criteria, Empty, FlightData, FlightDescriptor, FlightEndpoint, FlightInfo,
    HandshakeRequest, HandshakeResponse, PollInfo, PutResult, SchemaResult, Ticket,
};
use arrow_ipc::CompressionType;
use arrow_ipc::writer::IpcWriteOptions;
use arrow_schema::Schema;
use futures_util::{FutureExt, Stream, StreamExt, TryStreamExt, stream};
use parking_lot::Mutex;
use prost::Message;
use tokio::net::TcpListener;
use tonic::{Request, Response, Status, Streaming};

use crate::fixture::numbers;

type Answer<T> = Result<Response<T>, Status>;
type Flow<T> = Pin<Box<dyn Stream<Item = Result<T, Status>> + Send>>;

/// How it is odd.
#[derive(Default)]
pub(crate) struct Oddity {
    /// Where it says that its results are.
    pub(crate) locations: Vec<String>,
    /// What it makes of the second message of a result, which is its first batch.
    pub(crate) spoil: Option<fn(&mut FlightData)>,
    /// It answers the first question about progress, and breaks off the second.
    pub(crate) breaks_off_polling: bool,
    /// How it compresses its results.
    pub(crate) compression: Option<CompressionType>,
    /// Whether each part of a result has rows. A part without has no columns either. By default there is one, with rows.
    pub(crate) parts: Vec<bool>,
    /// Whether it says beforehand which columns a result has.
    pub(crate) declares_columns: bool,
    /// What it does with data that it is sent.
    pub(crate) upload: Option<Upload>,
}

/// How it takes data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Upload {
    /// Answers when it has all of it.
    Late,
    /// Answers when all is there, but begins its answer at once.
    Early,
    /// Begins its answer at once, and reads nothing.
    Never,
    /// Answers again and again.
    Endless,
}

/// What it was sent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Received {
    pub(crate) messages: usize,
    /// Uploads that came to their end.
    pub(crate) ended: usize,
    /// Uploads that broke off.
    pub(crate) broken: usize,
}

/// One such server.
#[derive(Clone, Default)]
pub(crate) struct OddServer(Arc<State>);

#[derive(Default)]
struct State {
    oddity: Mutex<Oddity>,
    statements: AtomicUsize,
    secrets: Mutex<Vec<String>>,
    received: Mutex<Received>,
}

impl OddServer {
    /// Starts it, on a free port.
    pub(crate) async fn start(oddity: Oddity) -> (Self, u16) {
        let server = Self::default();
        *server.0.oddity.lock() = oddity;
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let incoming = stream::unfold(listener, async |listener| {
            Some((listener.accept().await.map(|(socket, _)| socket), listener))
        });
        let service = FlightServiceServer::new(server.clone());
        // It ends with the test's runtime.
        #[allow(clippy::disallowed_methods, reason = "a server of its own")]
        tokio::spawn(
            tonic::transport::Server::builder().add_service(service).serve_with_incoming(Box::pin(incoming)),
        );
        (server, port)
    }

    /// How often it was sent a statement.
    pub(crate) fn statements(&self) -> usize {
        self.0.statements.load(Ordering::Relaxed)
    }

    /// Headers that it should not have got, if it is a stranger.
    pub(crate) fn secrets(&self) -> Vec<String> {
        self.0.secrets.lock().clone()
    }

    pub(crate) fn received(&self) -> Received {
        *self.0.received.lock()
    }

    async fn take(self, mut data: Streaming<FlightData>) -> Result<PutResult, Status> {
        loop {
            let message = data.message().await;
            let mut received = self.0.received.lock();
            match message {
                Ok(Some(_)) => received.messages += 1,
                Ok(None) => {
                    received.ended += 1;
                    return Ok(updated());
                }
                Err(status) => {
                    received.broken += 1;
                    return Err(status);
                }
            }
        }
    }

    fn listen<T>(&self, request: &Request<T>) {
        let known = ["authorization", "cookie", "x-key"];
        let sent = known.iter().filter(|name| request.metadata().contains_key(**name));
        self.0.secrets.lock().extend(sent.map(|name| (*name).to_owned()));
    }
}

fn updated() -> PutResult {
    PutResult { app_metadata: DoPutUpdateResult { record_count: 7 }.encode_to_vec().into() }
}

async fn encoded(batch: RecordBatch, compression: Option<CompressionType>) -> Vec<FlightData> {
    let options = IpcWriteOptions::default().try_with_compression(compression).unwrap();
    FlightDataEncoderBuilder::new()
        .with_options(options)
        .build(stream::iter([Ok(batch)]))
        .try_collect()
        .await
        .unwrap()
}

/// A result without columns and rows.
async fn no_columns() -> Vec<FlightData> {
    let encoder = FlightDataEncoderBuilder::new().with_schema(Arc::new(Schema::empty()));
    encoder.build(stream::empty()).try_collect().await.unwrap()
}

fn unknown<T>() -> Answer<T> {
    Err(Status::unimplemented("not here"))
}

#[tonic::async_trait]
impl FlightService for OddServer {
    type HandshakeStream = Flow<HandshakeResponse>;
    type ListFlightsStream = Flow<FlightInfo>;
    type DoGetStream = Flow<FlightData>;
    type DoPutStream = Flow<PutResult>;
    type DoExchangeStream = Flow<FlightData>;
    type DoActionStream = Flow<arrow_flight::Result>;
    type ListActionsStream = Flow<ActionType>;

    async fn handshake(
        &self,
        request: Request<Streaming<HandshakeRequest>>,
    ) -> Answer<Self::HandshakeStream> {
        self.listen(&request);
        unknown()
    }

    async fn list_flights(&self, _: Request<Criteria>) -> Answer<Self::ListFlightsStream> {
        unknown()
    }

    async fn get_flight_info(&self, request: Request<FlightDescriptor>) -> Answer<FlightInfo> {
        self.listen(&request);
        // The question whether a session answers is none of the caller's statements.
        if !request.get_ref().cmd.windows(8).any(|text| text == b"SELECT 1") {
            self.0.statements.fetch_add(1, Ordering::Relaxed);
        }
        let oddity = self.0.oddity.lock();
        let parts = if oddity.parts.is_empty() { &[true][..] } else { &oddity.parts };
        let mut info = FlightInfo::new();
        if oddity.declares_columns {
            info = info.try_with_schema(&numbers([]).schema()).unwrap();
        }
        for has_rows in parts {
            let endpoint =
                FlightEndpoint::new().with_ticket(Ticket::new(if *has_rows { "all" } else { "none" }));
            let locations = oddity.locations.iter().cloned();
            info = info.with_endpoint(locations.fold(endpoint, FlightEndpoint::with_location));
        }
        Ok(Response::new(info))
    }

    async fn poll_flight_info(&self, request: Request<FlightDescriptor>) -> Answer<PollInfo> {
        if !self.0.oddity.lock().breaks_off_polling {
            return unknown();
        }
        if request.get_ref().cmd == "again" {
            return Err(Status::unavailable("broken off"));
        }
        self.0.statements.fetch_add(1, Ordering::Relaxed);
        Ok(Response::new(PollInfo::new().with_descriptor(FlightDescriptor::new_cmd("again"))))
    }

    async fn get_schema(&self, _: Request<FlightDescriptor>) -> Answer<SchemaResult> {
        unknown()
    }

    async fn do_get(&self, request: Request<Ticket>) -> Answer<Self::DoGetStream> {
        self.listen(&request);
        let compression = self.0.oddity.lock().compression;
        let has_rows = request.get_ref().ticket == "all";
        let mut messages =
            if has_rows { encoded(numbers([1, 2, 3]), compression).await } else { no_columns().await };
        let spoil = self.0.oddity.lock().spoil;
        if let Some(spoil) = spoil {
            spoil(&mut messages[1]);
        }
        Ok(Response::new(stream::iter(messages.into_iter().map(Ok)).boxed()))
    }

    async fn do_put(&self, request: Request<Streaming<FlightData>>) -> Answer<Self::DoPutStream> {
        let data = request.into_inner();
        // A task of its own goes on when the call is over, so that what it reads then is seen.
        #[allow(clippy::disallowed_methods, reason = "a server of its own")]
        let take = |data| tokio::spawn(self.clone().take(data)).map(|received| received.unwrap());
        let upload = self.0.oddity.lock().upload;
        let answers = match upload {
            None => return unknown(),
            Some(Upload::Late) => stream::iter([take(data).await]).boxed(),
            Some(Upload::Early) => stream::once(take(data)).boxed(),
            Some(Upload::Never) => stream::pending().chain(stream::once(take(data))).boxed(),
            Some(Upload::Endless) => stream::repeat_with(|| Ok(updated())).boxed(),
        };
        Ok(Response::new(answers))
    }

    async fn do_exchange(&self, _: Request<Streaming<FlightData>>) -> Answer<Self::DoExchangeStream> {
        unknown()
    }

    async fn do_action(&self, request: Request<Action>) -> Answer<Self::DoActionStream> {
        self.listen(&request);
        if request.get_ref().r#type == "Never" {
            return Ok(Response::new(stream::pending().boxed()));
        }
        unknown()
    }

    async fn list_actions(&self, _: Request<Empty>) -> Answer<Self::ListActionsStream> {
        unknown()
    }
}
