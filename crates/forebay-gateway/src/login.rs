//! From a fresh socket to a client that is known: start-up message, TLS, authentication, limits.
//!
//! Everything here reads what anybody can send. So each message has a limit, a login has a time limit, and no answer tells whether a
//! user exists.

mod admission;
mod awaited;
mod certificate_error;
mod client_stream;
mod der;
mod error;
mod parameters;
mod peer;
mod policy;
mod private_file;
mod refusal;
mod scram;
mod startup;
mod tls;
mod wire;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use forebay::rt;
use tokio::io::{AsyncRead, AsyncWrite, AsyncWriteExt};

pub use admission::{Admissions, ClientLimits, ClientSlot, Crowd};
pub use awaited::Awaited;
pub use client_stream::{ClientStream, Replay};
pub(crate) use der::common_name;
pub use error::{LoginError, Reason};
pub use parameters::StartParameters;
pub use peer::Peer;
pub use policy::{LoginPolicy, LoginShared};
pub use private_file::PrivateFile;
pub use tls::TlsServer;

use self::admission::LoginSlot;
use self::refusal::{Refusal, message, shown};
use self::scram::{Exchange, Outcome};
use self::startup::{First, Unreadable};
use self::wire::Wire;
use crate::config::Authentication;
use crate::users::User;

#[cfg(test)]
mod tests;

/// The first byte of a TLS handshake. No message of PostgreSQL's begins with it: it would be of 369 MB or more.
const TLS_HANDSHAKE: u8 = 0x16;

/// How long a peer may take to send a cancel request, which it has when it connects.
const HEARING_TIME: Duration = Duration::from_secs(2);

/// How long a client for which there is no place may take to send its start-up packet.
const REFUSAL_TIME: Duration = Duration::from_secs(1);

/// What a connection turned out to be.
#[derive(Debug)]
pub enum Accepted<S> {
    /// A client that is logged in.
    Client(Box<LoggedIn<S>>),
    /// A request to cancel a statement.
    Cancel(CancelRequest<S>),
    /// It went away during the login, as health checks do, and psql before it asks for a password; or it asked to cancel something
    /// that is not here. Nothing is known against it: otherwise it is a [`LoginError::Left`].
    Gone,
}

/// A request to cancel what the session with this key runs. That its connection is closed is all the answer that there is, and clients wait
/// for it.
#[derive(Debug)]
pub struct CancelRequest<S> {
    key: [u8; 8],
    stream: ClientStream<S>,
    /// Its place among those who log in, until it is passed on.
    slot: LoginSlot,
}

impl<S> CancelRequest<S> {
    /// The key of the session.
    #[must_use]
    pub fn key(&self) -> [u8; 8] {
        self.key
    }

    /// It takes its time, as it is passed on to a peer. So it does not count as somebody who logs in any more, but among its like. The
    /// connection stays open until what is returned is dropped.
    ///
    /// # Errors
    /// If there are too many.
    pub(crate) fn pass_on(self, shared: &LoginShared) -> Result<Self, Crowd> {
        let Self { key, stream, slot } = self;
        Ok(Self { key, stream, slot: slot.pass_on(&shared.policy().limits)? })
    }

    /// Tells the client that its request was dealt with. With TLS, libpq from version 17 reports a failure if the connection ends without
    /// a word.
    ///
    /// # Cancel safety
    /// Dropping the future closes the connection without a word.
    pub(crate) async fn close(mut self)
    where
        S: AsyncRead + AsyncWrite + Unpin,
    {
        // A client that does not wait for it is gone.
        let _ = self.stream.shutdown().await;
    }
}

/// A client that is logged in.
#[derive(Debug)]
pub struct LoggedIn<S> {
    /// Its stream.
    pub stream: ClientStream<S>,
    /// Who it is.
    pub user: Arc<User>,
    /// The settings that it asked for, of those that are allowed.
    pub start: StartParameters,
    /// What it has sent after the login.
    pub unread: Vec<u8>,
    /// The end of the authentication, not yet sent: it goes to the client in one write with what follows.
    pub unsent: Vec<u8>,
    /// Its place among the clients. Keep it as long as the client is connected.
    pub slot: ClientSlot,
}

/// Why a login ends.
enum Stop {
    Refused(Refusal, Option<Reason>),
    Left(Reason),
    Crowded(Crowd),
    Stranger,
    Tls(io::Error),
    Io(io::Error),
    Gone,
}

impl From<Refusal> for Stop {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal, None)
    }
}

impl From<Unreadable> for Stop {
    fn from(unreadable: Unreadable) -> Self {
        match unreadable {
            Unreadable::Stranger => Self::Stranger,
            Unreadable::Refused(refusal) => refusal.into(),
        }
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

/// Logs in the client of a fresh socket, or finds out what else it wants.
///
/// # Errors
/// If nobody was logged in. Count it and log it; the client was told, and the socket is closed.
///
/// # Cancel safety
/// Dropping the future closes the socket, and frees the client's place.
pub async fn login<S>(socket: S, peer: Peer, shared: &LoginShared) -> Result<Accepted<S>, LoginError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let policy = shared.policy();
    let mut attempt = Attempt {
        wire: Wire::new(socket),
        peer,
        shared,
        policy: &policy,
        user: None,
        awaited: Awaited::FirstPacket,
        against: None,
        ended: None,
    };
    let run = async {
        match attempt.run().await {
            Ok(granted) => granted,
            Err(stop) => {
                attempt.end(stop).await;
                Granted::Gone
            }
        }
    };
    let granted = rt::within(shared.runtime(), policy.timeout, run).await;
    let Attempt { wire, user, awaited, against: reason, ended, .. } = attempt;
    match (granted, ended) {
        // Also if it took too long to tell the client.
        (_, Some(error)) => Err(error),
        (Some(Granted::Client(granted)), None) => {
            let (stream, unread, unsent) = wire.into_parts().map_err(LoginError::Io)?;
            let Entry { user, start, slot } = granted;
            Ok(Accepted::Client(Box::new(LoggedIn { stream, user, start, unread, unsent, slot })))
        }
        (Some(Granted::Cancel(key, slot)), None) => {
            let (stream, ..) = wire.into_parts().map_err(LoginError::Io)?;
            Ok(Accepted::Cancel(CancelRequest { key, stream, slot }))
        }
        (Some(Granted::Gone), None) => Ok(Accepted::Gone),
        (None, None) => Err(LoginError::TimedOut { user, awaited, reason }),
    }
}

/// Reads a request to cancel a statement that a peer passes on. Whoever wants anything else there is not answered.
///
/// # Errors
/// If it is something else.
///
/// # Cancel safety
/// Dropping the future closes the socket, and frees the peer's place.
pub async fn passed_on<S>(socket: S, peer: Peer, shared: &LoginShared) -> Result<CancelRequest<S>, LoginError>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let policy = shared.policy();
    let late = LoginError::TimedOut { user: None, awaited: Awaited::FirstPacket, reason: None };
    let read = async {
        let slot = shared
            .admissions()
            .hear(&peer, &policy.limits)
            .map_err(|crowd| LoginError::Crowded { user: None, crowd })?;
        let mut wire = Wire::new(socket);
        let first = match wire.first_message().await {
            Ok(message) => startup::read(&message),
            Err(Stop::Io(error)) => return Err(LoginError::Io(error)),
            Err(_) => return Err(LoginError::Stranger),
        };
        let Ok(First::Cancel(Some(key))) = first else { return Err(LoginError::Stranger) };
        let (stream, ..) = wire.into_parts().map_err(LoginError::Io)?;
        Ok(CancelRequest { key, stream, slot })
    };
    rt::within(shared.runtime(), policy.timeout.min(HEARING_TIME), read).await.unwrap_or(Err(late))
}

/// What a connection may do.
enum Granted {
    Client(Entry),
    Cancel([u8; 8], LoginSlot),
    Gone,
}

/// A client that is let in.
struct Entry {
    user: Arc<User>,
    start: StartParameters,
    slot: ClientSlot,
}

/// A login under way.
struct Attempt<'a, S> {
    wire: Wire<S>,
    peer: Peer,
    shared: &'a LoginShared,
    policy: &'a LoginPolicy,
    /// Who the client says it is, cut to the length of a name.
    user: Option<String>,
    /// What it is to do next.
    awaited: Awaited,
    /// Why it will be refused, whatever its password is.
    against: Option<Reason>,
    /// Why nobody was logged in.
    ended: Option<LoginError>,
}

impl<'a, S: AsyncRead + AsyncWrite + Unpin> Attempt<'a, S> {
    async fn run(&mut self) -> Result<Granted, Stop> {
        let limits = &self.policy.limits;
        let slot = match self.shared.admissions().begin(&self.peer, limits) {
            Ok(slot) => slot,
            Err(crowd) => return Err(self.crowded(crowd).await),
        };
        let start = match self.first().await {
            Ok(First::Start(start)) => start,
            Ok(First::Cancel(Some(key))) => return Ok(Granted::Cancel(key, slot)),
            Ok(First::Cancel(None)) => {
                // As if it were a key that is not here.
                let _ = self.wire.close().await;
                return Ok(Granted::Gone);
            }
            // `first` has answered these.
            Ok(First::Tls | First::Gss) => return Ok(Granted::Gone),
            Err(stop) => return Err(stop),
        };
        let name = start.parameter("user").filter(|name| !name.is_empty());
        let Some(name) = name else {
            return Err(Refusal::new("28000", "no PostgreSQL user name specified in startup packet").into());
        };
        self.user = Some(shown(name).into_owned());
        if self.shared.is_draining() {
            return Err(Refusal::new("57P03", "the database system is shutting down").into());
        }
        if self.policy.tls_required && !self.peer.is_local() && !self.wire.is_encrypted() {
            let refusal = Refusal::new("28000", "connection requires TLS");
            return Err(refusal.hint("Set sslmode to require or verify-full.").into());
        }
        start.negotiate(&mut self.wire.out);
        let user = self.authenticate(name).await?;
        check_database(&user, start.parameter("database"))?;
        let settings = parameters::settings(&start, &self.policy.ignored_parameters)?;
        let slot = slot.admit(&user, limits).map_err(Stop::Crowded)?;
        message(&mut self.wire.out, b'R', |out| out.extend(0_u32.to_be_bytes()));
        Ok(Granted::Client(Entry { user, start: settings, slot }))
    }

    /// There is no place for the client. libpq shows an error only if it comes behind its start-up packet, or if it has not asked for
    /// encryption before. So a few clients may ask, and get as far as that packet, if they are quick.
    async fn crowded(&mut self, crowd: Crowd) -> Stop {
        let Some(_slot) = self.shared.admissions().refuse(&self.peer, &self.policy.limits) else {
            return Stop::Crowded(crowd);
        };
        match rt::within(self.shared.runtime(), REFUSAL_TIME, self.first()).await {
            Some(Ok(First::Start(start))) => {
                self.user = start.parameter("user").map(|name| shown(name).into_owned());
                Stop::Crowded(crowd)
            }
            Some(Err(stop)) => stop,
            Some(Ok(_)) | None => Stop::Crowded(crowd),
        }
    }

    /// The first message that is not about encryption. Requests for encryption are answered, each once.
    async fn first(&mut self) -> Result<First, Stop> {
        // Without the byte `S`: TLS can begin at once.
        if self.wire.peek().await? == TLS_HANDSHAKE {
            let Some(tls) = self.tls() else { return Err(Stop::Stranger) };
            self.awaited = Awaited::Tls;
            if self.wire.encrypt(tls).await? != Some(tls::PROTOCOL) {
                let refusal = Refusal::protocol(
                    "received direct SSL connection request without ALPN protocol negotiation extension",
                );
                return Err(refusal.into());
            }
            self.awaited = Awaited::StartUp;
        }
        let (mut may_ask_tls, mut may_ask_gss) = (!self.wire.is_encrypted(), true);
        loop {
            self.wire.peek().await?;
            let first = startup::read(&self.wire.first_message().await?)?;
            let (may_ask, what) = match first {
                First::Tls => (&mut may_ask_tls, "SSL"),
                First::Gss => (&mut may_ask_gss, "GSSAPI encryption"),
                first => return Ok(first),
            };
            if !std::mem::replace(may_ask, false) {
                return Err(Stop::Stranger);
            }
            // Somebody in between may have added it: it would be read as if it had come encrypted.
            if self.wire.has_input() {
                let message = format!("received unencrypted data after {what} request");
                return Err(Refusal::protocol(message).into());
            }
            let tls = self.tls().filter(|_| first == First::Tls);
            self.wire.answer(if tls.is_some() { b'S' } else { b'N' }).await?;
            if let Some(tls) = tls {
                self.awaited = Awaited::Tls;
                self.wire.peek().await?;
                self.wire.encrypt(tls).await?;
            }
            self.awaited = Awaited::StartUp;
        }
    }

    /// As with PostgreSQL, the Unix socket has no TLS.
    fn tls(&self) -> Option<&'a TlsServer> {
        self.policy.tls.as_ref().filter(|_| self.peer != Peer::Unix)
    }

    /// Finds out whether the client is who it says it is.
    async fn authenticate(&mut self, name: &str) -> Result<Arc<User>, Stop> {
        let found = self.policy.users.find(name);
        if self.policy.auth == Authentication::Trust && self.peer.is_local() {
            // Everybody who gets here may know who there is.
            let (why, hint) = match found {
                Some(user) if user.is_allowed_from(self.peer.address()) => return Ok(Arc::clone(user)),
                Some(_) => ("may not log in from this address", "The users file says from where."),
                None => ("is not in the users file of the gateway", "`forebay gateway add-user` adds one."),
            };
            return Err(Refusal::new("28000", format!("user \"{}\" {why}", shown(name))).hint(hint).into());
        }
        // Made in each case, so that all take the same time.
        let decoy = self.policy.users.decoy(name, self.shared.decoy_key());
        let judged = found.ok_or(Reason::NoUser).and_then(|user| self.judge(user).map(|proof| (user, proof)));
        let (user, verifier) = match judged {
            Ok((user, None)) => return Ok(Arc::clone(user)),
            Ok((user, Some(verifier))) => (Ok(user), verifier.clone()),
            Err(reason) => (Err(reason), decoy),
        };
        let binding = self.tls().filter(|_| self.wire.is_encrypted()).and_then(TlsServer::binding);
        let nonce = STANDARD.encode(policy::random::<18>(self.shared.runtime()));
        (self.awaited, self.against) = (Awaited::Password, user.as_ref().err().copied());
        let exchange = Exchange { verifier, is_genuine: user.is_ok(), binding, nonce };
        let outcome = match (converse(&mut self.wire, exchange).await, &user) {
            (Ok(outcome), _) => outcome,
            // Clients such as psql ask for the password only now, or never: the operator is to know that none would do.
            (Err(Stop::Gone | Stop::Io(_)), Err(reason)) => return Err(Stop::Left(*reason)),
            (Err(Stop::Refused(refusal, None)), Err(reason)) => {
                return Err(Stop::Refused(refusal, Some(*reason)));
            }
            (Err(stop), _) => return Err(stop),
        };
        match (outcome, user) {
            (Outcome::Proved(proof), Ok(user)) => {
                sasl(&mut self.wire.out, 12, &proof);
                Ok(Arc::clone(user))
            }
            (_, user) => {
                Err(Stop::Refused(Refusal::password(name), Some(user.err().unwrap_or(Reason::Password))))
            }
        }
    }

    /// What this user has to prove: the password of this verifier, or nothing more than its certificate.
    fn judge<'u>(&self, user: &'u User) -> Result<Option<&'u crate::users::ScramVerifier>, Reason> {
        if !user.is_allowed_from(self.peer.address()) {
            return Err(Reason::Network);
        }
        let shown = user
            .certificate
            .as_ref()
            .map(|rule| self.wire.certificate().is_some_and(|own| rule.matches(own)));
        match (shown, &user.verifier) {
            (Some(true), verifier) => Ok(verifier.as_ref()),
            (Some(false), Some(_)) => Err(Reason::Certificate),
            (None, Some(verifier)) => Ok(Some(verifier)),
            (_, None) => Err(Reason::NoPassword),
        }
    }

    /// Keeps why the client is not let in, and tells it.
    async fn end(&mut self, stop: Stop) {
        let user = self.user.take();
        let (refusal, error) = match stop {
            Stop::Refused(refusal, reason) => {
                let Refusal { code, message, .. } = refusal.clone();
                (Some(refusal), LoginError::Refused { user, code, message, reason })
            }
            Stop::Crowded(crowd) => {
                let message = match (crowd, &user) {
                    (Crowd::ClientsOfUser, Some(user)) => format!("too many connections for role \"{user}\""),
                    (Crowd::ClientsOfAddress | Crowd::LoginsOfAddress, _) => {
                        "too many connections from this address".to_owned()
                    }
                    _ => "sorry, too many clients already".to_owned(),
                };
                (Some(Refusal::new("53300", message)), LoginError::Crowded { user, crowd })
            }
            // No answer: a user that may log in gets none, either, if it leaves there.
            Stop::Left(reason) => (None, LoginError::Left { user, reason }),
            Stop::Stranger => (None, LoginError::Stranger),
            Stop::Tls(error) => (None, LoginError::Tls(error)),
            Stop::Io(error) => (None, LoginError::Io(error)),
            Stop::Gone => return,
        };
        // If the client does not hear it, the operator still does.
        self.ended = Some(error);
        if let Some(refusal) = refusal {
            refusal.encode(&mut self.wire.out);
            let _ = self.wire.close().await;
        }
    }
}

/// The client's database is that of the user. libpq names the user instead, if it is told no database.
fn check_database(user: &User, asked: Option<&str>) -> Result<(), Refusal> {
    match asked {
        Some(asked) if !asked.is_empty() && asked != user.database && asked != user.name => {
            Err(Refusal::new("3D000", format!("database \"{}\" does not exist", shown(asked)))
                .hint(format!("The database of this user is \"{}\".", user.database)))
        }
        _ => Ok(()),
    }
}

/// Asks for the proof of a password.
async fn converse<S>(wire: &mut Wire<S>, exchange: Exchange<'_>) -> Result<Outcome, Stop>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    let mechanisms: Vec<u8> =
        exchange.mechanisms().iter().flat_map(|name| name.bytes().chain([0])).chain([0]).collect();
    sasl(&mut wire.out, 10, &mechanisms);
    wire.send().await?;
    let initial = wire.sasl_message().await?;
    let (mechanism, data) = initial_response(&initial)?;
    let (server_first, challenged) = exchange.first(mechanism, data)?;
    sasl(&mut wire.out, 11, &server_first);
    wire.send().await?;
    Ok(challenged.finish(&wire.sasl_message().await?)?)
}

/// The name of a mechanism, and the data for it with its length.
fn initial_response(body: &[u8]) -> Result<(&[u8], &[u8]), Refusal> {
    let read = || {
        let end = body.iter().position(|byte| *byte == 0)?;
        let (length, data) = body[end + 1..].split_first_chunk::<4>()?;
        // Without data, it is -1.
        let length = usize::try_from(i32::from_be_bytes(*length)).ok()?;
        (length == data.len()).then_some((&body[..end], data))
    };
    read().ok_or_else(|| Refusal::protocol("malformed SASL initial response"))
}

/// A message of the authentication.
fn sasl(out: &mut Vec<u8>, step: u32, data: &[u8]) {
    message(out, b'R', |out| {
        out.extend(step.to_be_bytes());
        out.extend(data);
    });
}
