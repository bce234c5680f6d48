//! Accepts sockets, then does TLS, the start-up packet and the login.

use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;

use crate::clock;
use crate::config::RefuseWhen;
use crate::connection::{Connection, End};
use crate::counters::count;
use crate::engine::Engine;
use crate::error::SqlError;
use crate::faults::OnAccept;
use crate::race::{self, First};
use crate::sessions::{EndPhase, SessionGuard};
use crate::settings::{Settings, reported};
use crate::shared::Shared;
use crate::tls;
use crate::token::Denial;
use crate::transaction_state::TransactionState;
use crate::wire::backend::{Severity, TransactionStatus};
use crate::wire::frontend::{Message, StartupPacket};
use crate::wire::stream::{StreamLimits, Wire, WireError};

/// The longest password message. A token with a large session token has about 2 KB.
const PASSWORD_LIMIT: usize = 64 * 1024;
/// The first byte of a TLS handshake record.
const HANDSHAKE: u8 = 0x16;
/// How long to wait before the next accept when file descriptors run out.
const ACCEPT_RETRY: Duration = Duration::from_millis(10);

/// Accepts the connections of a cluster.
pub(crate) struct Acceptor<E: Engine> {
    shared: Arc<Shared>,
    engine: Arc<E>,
    tls: TlsAcceptor,
    /// One permit for each socket that may be logging in.
    logins: Arc<Semaphore>,
}

/// Why a login failed.
enum Refused {
    Answered(SqlError),
    /// The client gets nothing; the text is the label of the counter.
    Silent(&'static str),
}

impl From<SqlError> for Refused {
    fn from(error: SqlError) -> Self {
        Self::Answered(error)
    }
}

impl From<WireError> for Refused {
    fn from(broken: WireError) -> Self {
        Self::Silent(match broken {
            WireError::Closed => "gone",
            WireError::Malformed(_) => "garbage",
            WireError::WriteTimeout => "stuck",
            WireError::Io(_) => "broken",
        })
    }
}

impl From<std::io::Error> for Refused {
    fn from(error: std::io::Error) -> Self {
        WireError::Io(error).into()
    }
}

impl<E: Engine> Acceptor<E> {
    pub(crate) fn new(shared: Arc<Shared>, engine: Arc<E>) -> Self {
        let tls = TlsAcceptor::from(shared.identity.server.clone());
        let logins = Arc::new(Semaphore::new(shared.config.login_limit.min(Semaphore::MAX_PERMITS)));
        Self { shared, engine, tls, logins }
    }

    /// Accepts connections until the runtime ends.
    pub(crate) async fn accept(self: Arc<Self>, listener: TcpListener) {
        loop {
            let Ok((socket, _)) = listener.accept().await else {
                // Out of file descriptors, or the client has already closed the socket.
                clock::pause(ACCEPT_RETRY).await;
                continue;
            };
            count(&self.shared.tally.sockets);
            let Ok(permit) = self.logins.clone().try_acquire_owned() else {
                self.shared.tally.refused("crowded");
                continue;
            };
            let acceptor = self.clone();
            self.shared.tasks.spawn(async move { acceptor.serve(socket, permit).await });
        }
    }

    async fn serve(&self, socket: TcpStream, permit: OwnedSemaphorePermit) {
        let (delay, action) = self.shared.faults.on_accept();
        if let First::Left(()) = race::first(hung_up(&socket), self.shared.delay(delay)).await {
            // The permit is free before the refusal is counted: a test that sees the count can connect at
            // once.
            drop(permit);
            return self.shared.tally.refused("gone");
        }
        match action {
            OnAccept::Proceed => {}
            OnAccept::Close => return self.shared.tally.refused("closed"),
            OnAccept::Silence => return self.hold_silently(socket).await,
        }
        // Without this, small answers wait for each other.
        if socket.set_nodelay(true).is_err() {
            return self.shared.tally.refused("gone");
        }
        // Boxed, so that the session's task does not keep the size of a login.
        let login = Box::pin(clock::within(self.shared.config.login_timeout, self.log_in(socket))).await;
        drop(permit);
        let (wire, transactions, admitted) = match login {
            Some(Ok(Some(session))) => session,
            Some(Ok(None)) => return,
            Some(Err(reason)) => return self.shared.tally.refused(reason),
            None => return self.shared.tally.refused("timeout"),
        };
        count(&self.shared.tally.accepted);
        let ending = admitted.ending.clone();
        let mut connection = Connection::<E, _>::new(self.shared.clone(), wire, transactions);
        match race::first(ending.reached(EndPhase::Severed), connection.run(&ending)).await {
            First::Left(()) | First::Right(End::Dropped) => count(&self.shared.tally.severed),
            First::Right(End::Expired) => count(&self.shared.tally.expired),
            First::Right(End::Left) => {}
        }
        // In this order: a client that sees its socket closed finds its slot free.
        drop(admitted);
        drop(connection);
    }

    /// Holds a socket and sends nothing, until the fault ends or the client leaves.
    async fn hold_silently(&self, mut socket: TcpStream) {
        self.shared.tally.refused("silence");
        let mut ignored = [0; 64];
        loop {
            let changed = self.shared.faults.changed();
            if !self.shared.faults.silent() {
                return;
            }
            if let First::Left(Ok(0) | Err(_)) = race::first(socket.read(&mut ignored), changed).await {
                return;
            }
        }
    }

    /// Turns a new socket into a session. Returns none for a cancel request, and for a client that was
    /// refused with an error.
    async fn log_in(&self, mut socket: TcpStream) -> Result<Option<Session<E>>, &'static str> {
        let direct = match self.negotiate(&mut socket).await {
            Ok(Negotiated::Tls { direct }) => direct,
            Ok(Negotiated::Cancel) => return Ok(None),
            Ok(Negotiated::Plain) => {
                let mut wire = Wire::new(socket, self.limits());
                let error = SqlError::new("28000", "unable to accept connection, TLS is required")
                    .hint("connect with sslmode=verify-full");
                self.refuse(&mut wire, &error).await;
                return Ok(None);
            }
            Err(Refused::Silent(reason)) => return Err(reason),
            Err(Refused::Answered(error)) => return Err(error.code),
        };
        let Ok(stream) = self.tls.accept(socket).await else { return Err("tls") };
        if direct && stream.get_ref().1.alpn_protocol() != Some(tls::ALPN) {
            return Err("alpn");
        }
        let mut wire = Wire::new(stream, self.limits());
        match self.start_up(&mut wire).await {
            Ok(Some((transactions, admitted))) => Ok(Some((wire, transactions, admitted))),
            Ok(None) => Ok(None),
            // The slot of the attempt is free by now, so the client can try again at once.
            Err(Refused::Answered(error)) => {
                self.refuse(&mut wire, &error).await;
                Ok(None)
            }
            Err(Refused::Silent(reason)) => Err(reason),
        }
    }

    /// Sends a refusal. It is counted first: a client that has the error finds it counted.
    async fn refuse<S: AsyncRead + AsyncWrite + Unpin>(&self, wire: &mut Wire<S>, error: &SqlError) {
        self.shared.tally.refused(error.code);
        wire.replies.error_response(Severity::Fatal, error);
        // If the client is gone, it needs no answer.
        drop(wire.flush().await);
    }

    fn limits(&self) -> StreamLimits {
        let config = &self.shared.config;
        StreamLimits { message_limit: PASSWORD_LIMIT, write_timeout: config.write_timeout }
    }

    async fn negotiate(&self, socket: &mut TcpStream) -> Result<Negotiated, Refused> {
        let mut first = [0];
        if socket.peek(&mut first).await? == 0 {
            return Err(Refused::Silent("gone"));
        }
        if first == [HANDSHAKE] {
            return Ok(Negotiated::Tls { direct: true });
        }
        // A client may request GSS first and, after the refusal, TLS.
        for _ in 0..2 {
            let mut head = [0; 4];
            socket.read_exact(&mut head).await?;
            let length = StartupPacket::length(head).map_err(WireError::from)?;
            let mut body = vec![0; length];
            socket.read_exact(&mut body).await?;
            match StartupPacket::parse(&body).map_err(WireError::from)? {
                StartupPacket::Tls => {
                    socket.write_all(b"S").await?;
                    return Ok(Negotiated::Tls { direct: false });
                }
                StartupPacket::Gss => socket.write_all(b"N").await?,
                StartupPacket::Cancel => return Ok(Negotiated::Cancel),
                StartupPacket::Startup { .. } => return Ok(Negotiated::Plain),
            }
        }
        Err(Refused::Silent("garbage"))
    }

    async fn start_up(&self, wire: &mut Wire<TlsStream<TcpStream>>) -> Result<Option<Admission<E>>, Refused> {
        let mut head = [0; 4];
        head.copy_from_slice(&wire.exactly(4).await?);
        let length = StartupPacket::length(head).map_err(WireError::from)?;
        let body = wire.exactly(length).await?;
        let (minor, parameters) = match StartupPacket::parse(&body).map_err(WireError::from)? {
            StartupPacket::Startup { minor, parameters } => (minor, parameters),
            StartupPacket::Cancel => return Ok(None),
            StartupPacket::Tls | StartupPacket::Gss => return Err(Refused::Silent("garbage")),
        };
        if wire.stream().get_ref().1.server_name().is_none() {
            return Err(SqlError::no_sni().into());
        }
        let unknown: Vec<&str> = parameters
            .iter()
            .map(|(name, _)| name.as_str())
            .filter(|name| name.starts_with("_pq_."))
            .collect();
        if minor > 0 || !unknown.is_empty() {
            wire.replies.negotiate_protocol_version(&unknown);
        }
        let parameter =
            |name: &str| parameters.iter().find(|(given, _)| given == name).map(|(_, value)| value);
        let role = parameter("user")
            .ok_or_else(|| SqlError::new("28000", "no PostgreSQL user name specified in startup packet"))?;

        let early = self.shared.sessions.limits().refuse == RefuseWhen::BeforeAuth;
        let mut admitted = if early { Some(self.admit(role)?) } else { None };
        let authenticated = self.authenticate(wire, role).await;
        if authenticated.is_err() && !early {
            // No token was taken yet, so nothing could be kept.
            self.shared.sessions.charge_refusal(self.shared.clock.now());
        }
        authenticated?;
        let mut admitted = match admitted.take() {
            Some(admitted) => admitted,
            None => self.admit(role)?,
        };
        let database = parameter("database").unwrap_or(role);
        if database != "postgres" {
            return Err(SqlError::new("3D000", format!("database \"{database}\" does not exist")).into());
        }

        wire.set_message_limit(self.shared.config.message_limit);
        let settings = Settings::from_startup(&parameters)?;
        let session = self.engine.session(role).await;
        let session = session.inspect_err(|refusal| {
            if refusal.code == SqlError::DENIED {
                self.shared.denials.role(role, clock::real_date());
            }
        });
        let mut transactions = TransactionState::new(self.shared.clone(), session?);
        transactions.apply_settings(settings.clone()).await?;
        wire.replies.authentication_ok();
        for name in reported() {
            let (name, value) = settings.show(name)?;
            wire.replies.parameter_status(name, value);
        }
        let number = u32::try_from(admitted.id & u64::from(u32::MAX >> 1)).unwrap_or(0);
        // Cancel requests do nothing here, so the key need not be secret.
        wire.replies.backend_key_data(number, 0);
        // The connection sends these replies later, once the session is counted.
        wire.replies.ready_for_query(TransactionStatus::Idle);
        admitted.confirm();
        Ok(Some((transactions, admitted)))
    }

    fn admit(&self, role: &str) -> Result<SessionGuard, SqlError> {
        let now = self.shared.clock.now();
        self.shared.faults.on_admission(now).inspect_err(|refusal| {
            if refusal.code == SqlError::DENIED {
                self.shared.denials.fault(role, clock::real_date());
            }
            self.shared.sessions.charge_refusal(now);
        })?;
        self.shared.sessions.admit(&self.shared.clock)
    }

    async fn authenticate(&self, wire: &mut Wire<TlsStream<TcpStream>>, role: &str) -> Result<(), Refused> {
        wire.replies.authentication_cleartext_password();
        wire.flush().await?;
        let (tag, body) = wire.message().await?;
        let Message::Password(password) = Message::parse(tag, body)? else {
            return Err(SqlError::protocol("expected a password").into());
        };
        let token = password.strip_suffix(&[0]).and_then(|token| std::str::from_utf8(token).ok());
        let verifier = self.shared.verifier.read();
        let checked = token.ok_or(Denial::Malformed("not UTF-8"));
        let checked = checked.and_then(|token| verifier.check(token, role, self.shared.token_date()));
        Ok(checked.map_err(|denial| {
            self.shared.denials.token(&denial, &verifier, role, clock::real_date());
            denial.refusal()
        })?)
    }
}

/// Waits until the client closes the socket. Unread data stays unread.
async fn hung_up(socket: &TcpStream) {
    loop {
        // The socket stays readable while data is unread, so only the end of the stream is of interest.
        match socket.ready(Interest::READABLE).await {
            Ok(ready) if !ready.is_read_closed() => clock::pause(ACCEPT_RETRY).await,
            Ok(_) | Err(_) => return,
        }
    }
}

enum Negotiated {
    Tls { direct: bool },
    Plain,
    Cancel,
}

type Admission<E> = (TransactionState<E>, SessionGuard);
type Session<E> = (Wire<TlsStream<TcpStream>>, TransactionState<E>, SessionGuard);
