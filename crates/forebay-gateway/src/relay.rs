//! One client: moves bytes between its socket and a backend, through its virtual session.
//!
//! A relay is one task. It reads into buffers that all relays of a thread share, so an idle client owns no buffer. What a socket does not
//! take at once is kept with the relay, and nothing more is read for it until it is written: a slow reader slows its own statement only.

use std::cell::RefCell;
use std::future::Future;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use forebay::rt::Runtime;
use forebay::{CheckoutError, Instant};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::backends::{Backend, Backends};
use crate::clients::Client;
use crate::metrics;
use crate::protocol::ServerError;
use crate::refusal;
use crate::seat::Ask;
use crate::session::{Cancelled, Detach, HungUp, Lost, Outbox, Reported, TransactionStatus, VirtualSession};
use crate::users::Mode;

mod backlog;
mod clock;
mod lingering;
mod policy;

use backlog::Backlog;
use clock::Clock;
use lingering::Lingering;
pub(crate) use policy::Policy;

/// How much is read at once.
const CHUNK: usize = 32 * 1024;

/// A client that leaves more than this unread is not read any more, until it reads.
const MOST_UNREAD: usize = 64 * 1024;

/// What the relays of a thread use while they run.
struct Scratch {
    bytes: Box<[u8]>,
    out: Outbox,
}

thread_local! {
    static SCRATCH: RefCell<Scratch> =
        RefCell::new(Scratch { bytes: vec![0; CHUNK].into_boxed_slice(), out: Outbox::default() });
}

/// Why a backend is given back: its end is near.
const DUE: &str = "due";

/// Why a relay ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// The client left.
    Left,
    /// The client's connection broke.
    Broken,
    /// The client was told to go.
    Dismissed,
}

/// A client and its virtual session, with a backend or without.
pub(crate) struct Relay<C> {
    client: C,
    session: VirtualSession,
    backends: Arc<Backends>,
    place: Place,
    to_client: Backlog,
    to_server: Backlog,
    /// Its place among the clients.
    entry: Client,
    policy: Arc<Policy>,
    runtime: Arc<dyn Runtime>,
    clock: Clock,
    /// Its backend goes back once its settings are read, for this reason.
    giving_back: Option<&'static str>,
    /// It ends as soon as it is idle.
    leaving: bool,
    /// Its last words are being written, and then it ends.
    ending: Option<End>,
}

type Acquiring = Pin<Box<dyn Future<Output = Result<Backend, CheckoutError>> + Send>>;

/// Where a session's backend is.
enum Place {
    None,
    Waiting(Acquiring, Instant),
    Attached(Box<Backend>),
}

impl<C: AsyncRead + AsyncWrite + Unpin> Relay<C> {
    /// A relay of a client that has been let in. `unread` is what it has sent already.
    pub(crate) fn new(
        client: C,
        session: VirtualSession,
        backends: Arc<Backends>,
        entry: Client,
        policy: Arc<Policy>,
        runtime: Arc<dyn Runtime>,
    ) -> Self {
        let clock = Clock::new(&policy);
        Self {
            client,
            session,
            backends,
            place: Place::None,
            to_client: Backlog::default(),
            to_server: Backlog::default(),
            entry,
            policy,
            runtime,
            clock,
            giving_back: None,
            leaving: false,
            ending: None,
        }
    }

    /// Greets the client behind the end of its login, which is `unsent`, and takes what it has sent already.
    pub(crate) fn greet(&mut self, reported: &Reported, unsent: &[u8], unread: &[u8]) {
        let mut out = Outbox { to_client: unsent.to_vec(), ..Outbox::default() };
        self.session.greet(reported, self.entry.key, &mut out);
        if !unread.is_empty() {
            self.take_from_client(unread, &mut out);
        }
        self.to_client.push(&out.to_client);
        self.to_server.push(&out.to_server);
    }

    fn turn(&mut self, context: &mut Context<'_>, scratch: &mut Scratch) -> Poll<End> {
        loop {
            let mut moved = self.answer_questions(&mut scratch.out);
            moved |= self.acquire(context, &mut scratch.out);
            if self.read_server(context, scratch) {
                moved = true;
                if self.session.is_giving_up() {
                    let cancelled = self.session.give_up_now(&mut scratch.out);
                    self.cancelled(cancelled);
                }
            }
            moved |= self.read_client(context, scratch);
            // Its settings may have been refused, or the server has ended it.
            if self.session.is_over() && self.ending.is_none() {
                self.ending = Some(End::Dismissed);
            }
            // Behind all that may begin or end a wait, so that its timer is there.
            moved |= self.look_at_clock(context, &mut scratch.out);
            self.consider_backend(context, &mut scratch.out);
            match self.write(context, &mut scratch.out) {
                Ok(written) => moved |= written,
                Err(_) => {
                    self.leave(&mut scratch.out);
                    return Poll::Ready(End::Broken);
                }
            }
            if let Some(end) = self.ending {
                // Others need not wait until its last words are read.
                self.leave(&mut scratch.out);
                if self.to_client.is_empty() || self.clock.is_over() {
                    return Poll::Ready(end);
                }
                // Once more, so that there is a timer.
                moved |= self.clock.ends();
            }
            if !moved {
                return Poll::Pending;
            }
        }
    }

    /// What others ask of this session.
    fn answer_questions(&mut self, out: &mut Outbox) -> bool {
        if self.entry.seat.take(Ask::Cancel) {
            let cancelled = self.session.cancel(out);
            self.cancelled(cancelled);
        }
        if self.entry.seat.take(Ask::GiveWay) {
            // If it cannot, somebody else may.
            if !self.detach_if_idle("wanted", out) {
                self.backends.ask_one();
            }
        }
        self.leaving |= self.entry.seat.take(Ask::End);
        if self.entry.seat.take(Ask::EndNow) || self.leaving && self.ending.is_none() && self.may_leave() {
            self.dismiss(refusal::shutting_down(), out);
            return true;
        }
        false
    }

    /// Whether nothing is lost if the session ends now.
    fn may_leave(&self) -> bool {
        self.session.is_idle()
            && !self.session.is_in_frame()
            && self.to_server.is_empty()
            && self.to_client.is_empty()
    }

    /// Takes a backend if the session wants one.
    fn acquire(&mut self, context: &mut Context<'_>, out: &mut Outbox) -> bool {
        if let Place::None = self.place {
            if !self.session.wants_backend() || self.ending.is_some() {
                return false;
            }
            // Nobody overtakes those that wait.
            if !self.backends.is_wanted()
                && let Some(backend) = self.backends.try_acquire(context)
            {
                self.attach(backend, out);
                return true;
            }
            let backends = Arc::clone(&self.backends);
            let acquiring = Box::pin(async move { backends.acquire().await });
            self.place = Place::Waiting(acquiring, self.runtime.now());
            self.clock.waits();
        }
        let Place::Waiting(acquiring, since) = &mut self.place else { return false };
        let Poll::Ready(acquired) = acquiring.as_mut().poll(context) else { return false };
        metrics::waited(self.runtime.now().since(*since), acquired.is_ok());
        match acquired {
            Ok(backend) => {
                self.attach(backend, out);
                true
            }
            Err(error) => {
                self.place = Place::None;
                self.clock.detached();
                self.session.fail(&refusal::no_backend(&error, self.policy.mode), out);
                true
            }
        }
    }

    /// The statement was cancelled, if there was one.
    fn cancelled(&mut self, cancelled: Cancelled) {
        match cancelled {
            Cancelled::NothingRunning | Cancelled::Soon => return,
            Cancelled::DropBackend => {}
            Cancelled::Ended => self.ending = Some(End::Dismissed),
        }
        metrics::cancelled();
        self.place = match std::mem::replace(&mut self.place, Place::None) {
            // It is not needed any more.
            Place::Waiting(..) => {
                self.clock.detached();
                Place::None
            }
            place => place,
        };
        self.drop_backend();
    }

    fn attach(&mut self, mut backend: Backend, out: &mut Outbox) {
        let reported = self.backends.learn(&backend);
        self.session.attach(std::mem::take(&mut backend.memory), &reported, out);
        if self.policy.mode == Mode::Elastic {
            self.backends.hold(&self.entry.seat);
        }
        self.clock.attached(backend.remaining(), backend.is_due());
        self.place = Place::Attached(Box::new(backend));
    }

    fn read_server(&mut self, context: &mut Context<'_>, scratch: &mut Scratch) -> bool {
        let Place::Attached(backend) = &mut self.place else { return false };
        // A client that was told its last word hears nothing more.
        if !self.to_client.is_empty() || self.ending.is_some() {
            return false;
        }
        let mut buffer = ReadBuf::new(&mut scratch.bytes);
        match Pin::new(&mut ***backend).poll_read(context, &mut buffer) {
            Poll::Pending => return false,
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                if self.session.from_server(buffer.filled(), &mut scratch.out).is_ok() {
                    return true;
                }
                tracing::warn!("a backend sent what is not the PostgreSQL protocol, and was closed");
            }
            Poll::Ready(_) => {}
        }
        self.lose_backend(&mut scratch.out);
        true
    }

    fn read_client(&mut self, context: &mut Context<'_>, scratch: &mut Scratch) -> bool {
        let full = !self.to_server.is_empty() || self.to_client.len() > MOST_UNREAD;
        // What a client that has given up was waiting for must not be executed any more.
        let takes_more = self.session.takes_more() || self.session.takes_more_while_it_waits();
        if self.ending.is_some() || full || !takes_more {
            return false;
        }
        let mut buffer = ReadBuf::new(&mut scratch.bytes);
        match Pin::new(&mut self.client).poll_read(context, &mut buffer) {
            Poll::Pending => return false,
            Poll::Ready(Ok(())) if !buffer.filled().is_empty() => {
                self.take_from_client(buffer.filled(), &mut scratch.out);
            }
            Poll::Ready(Ok(())) => self.ending = Some(End::Left),
            Poll::Ready(Err(_)) => self.ending = Some(End::Broken),
        }
        true
    }

    fn take_from_client(&mut self, bytes: &[u8], out: &mut Outbox) {
        self.clock.stirs(self.session.transaction() == TransactionStatus::Idle);
        if self.policy.mode == Mode::Elastic {
            self.entry.seat.set_busy();
        }
        match self.session.from_client(bytes, out) {
            Ok(()) if self.session.is_over() => self.ending = Some(End::Left),
            Ok(()) => {}
            Err(violation) => self.dismiss(*violation.0, out),
        }
    }

    /// Writes what is to be written. Whether something can go on that waited for it. An error is that of the client's socket.
    fn write(&mut self, context: &mut Context<'_>, out: &mut Outbox) -> io::Result<bool> {
        let (for_server, for_client) = (!self.to_server.is_empty(), !self.to_client.is_empty());
        let mut lost = false;
        match &mut self.place {
            Place::Attached(backend) => {
                let backend = Pin::new(&mut ***backend);
                lost = self.to_server.write(backend, context, &out.to_server).is_err();
            }
            // What a session without a backend says to one is of no use.
            Place::None | Place::Waiting(..) => {}
        }
        out.to_server.clear();
        if lost {
            self.lose_backend(out);
        }
        if self.to_client.write(Pin::new(&mut self.client), context, &out.to_client)? {
            self.clock.reads();
        }
        out.to_client.clear();
        self.clock.set_unread(!self.to_client.is_empty());
        Ok(lost || for_server && self.to_server.is_empty() || for_client && self.to_client.is_empty())
    }

    /// Gives the backend back if it is due, if somebody waits for one, or if the session is over.
    fn consider_backend(&mut self, context: &mut Context<'_>, out: &mut Outbox) {
        if !matches!(self.place, Place::Attached(_)) || !self.session.is_idle() {
            return;
        }
        // One that is pinned cannot give way, and must not be asked.
        let wanted = self.policy.mode == Mode::Elastic
            && self.entry.seat.idle_since().is_none()
            && !matches!(self.session.can_detach(), Detach::Not(_))
            && self.backends.is_idle(&self.entry.seat);
        let reason = if self.clock.is_due() {
            Some(DUE)
        } else if wanted {
            Some("wanted")
        } else {
            self.giving_back
        };
        if self.session.can_detach() == Detach::AfterReadingSettings {
            // If the backend were lost now, the session would end with it.
            self.clock.look_soon();
        }
        let Some(reason) = reason else { return };
        // While the client is idle, so that its next statement need not wait for its settings and statements.
        let next =
            if reason == DUE && self.policy.mode == Mode::Session { self.younger(context) } else { None };
        if self.detach_if_idle(reason, out)
            && let (Place::None, Some(next)) = (&self.place, next)
        {
            self.attach(next, out);
            self.session.prepare_ahead(out);
        }
    }

    /// A backend in place of one that is due, if one is ready and nobody waits for it.
    fn younger(&self, context: &mut Context<'_>) -> Option<Backend> {
        if self.session.can_detach() != Detach::Now || self.backends.is_wanted() {
            return None;
        }
        self.backends.try_acquire(context).filter(|backend| !backend.is_due())
    }

    /// Whether the backend is given back, or will be once its settings are read.
    fn detach_if_idle(&mut self, reason: &'static str, out: &mut Outbox) -> bool {
        let Place::Attached(_) = &self.place else { return false };
        if !self.to_server.is_empty() || self.ending.is_some() {
            return false;
        }
        match self.session.can_detach() {
            Detach::Now => {
                self.detach();
                metrics::detached(reason);
                true
            }
            Detach::AfterReadingSettings => {
                self.session.read_settings(out);
                self.giving_back = Some(reason);
                true
            }
            Detach::Not(_) => false,
        }
    }

    fn detach(&mut self) {
        if let Place::Attached(mut backend) = std::mem::replace(&mut self.place, Place::None) {
            backend.memory = self.session.detach();
            if backend.memory.is_spoilt() {
                backend.mark_bad();
            }
            backend.settings_are_known();
            self.release(*backend);
        }
    }

    fn release(&mut self, backend: Backend) {
        // First the backend, so that whoever looks for one finds it.
        drop(backend);
        self.released();
    }

    /// The session has no backend any more.
    fn released(&mut self) {
        if self.policy.mode == Mode::Elastic {
            self.backends.release(&self.entry.seat);
        }
        self.to_server.clear();
        self.giving_back = None;
        self.clock.detached();
    }

    /// The backend is not to be used any more.
    fn drop_backend(&mut self) {
        if let Place::Attached(mut backend) = std::mem::replace(&mut self.place, Place::None) {
            backend.mark_bad();
            self.release(*backend);
        }
    }

    /// The server has ended the connection.
    fn lose_backend(&mut self, out: &mut Outbox) {
        metrics::detached("lost");
        self.drop_backend();
        match self.session.lost(out) {
            Lost::Unnoticed | Lost::Told => {}
            Lost::Ended => self.ending = Some(End::Dismissed),
        }
    }

    /// Tells the client why its session ends.
    fn dismiss(&mut self, error: ServerError, out: &mut Outbox) {
        if self.ending.is_none() {
            self.session.terminate(&error, out);
            self.ending = Some(End::Dismissed);
        }
    }

    /// The client is gone, or goes. Its backend is used again, if that is safe.
    fn leave(&mut self, out: &mut Outbox) {
        let Place::Attached(mut backend) = std::mem::replace(&mut self.place, Place::None) else { return };
        let is_idle = self.session.is_idle();
        match self.session.hang_up(out) {
            HungUp::Drain => {
                self.to_server.push(&out.to_server);
                out.to_server.clear();
                let session = std::mem::replace(&mut self.session, VirtualSession::gone());
                let to_server = std::mem::take(&mut self.to_server);
                let lingering = Lingering::new(backend, session, to_server, Arc::clone(&self.backends));
                lingering.spawn(&self.runtime, self.policy.linger);
                return self.released();
            }
            HungUp::Left(left) if self.to_server.is_empty() => {
                if !is_idle {
                    metrics::abandoned("reused");
                }
                lingering::leave_behind(&mut backend, left);
            }
            HungUp::Left(_) | HungUp::Useless => {
                if !is_idle {
                    metrics::abandoned("useless");
                }
                backend.mark_bad();
            }
        }
        self.release(*backend);
    }

    fn look_at_clock(&mut self, context: &mut Context<'_>, out: &mut Outbox) -> bool {
        let Some(now) = self.clock.poll(context, &*self.runtime) else { return false };
        match &self.place {
            Place::Attached(backend) => self.clock.set_due(backend.is_due(), backend.remaining()),
            // Whoever was asked may have become busy.
            Place::Waiting(..) => self.backends.ask_one(),
            Place::None => {}
        }
        match self.clock.verdict(now, &self.policy, &self.session) {
            // Read while there is time: if the backend is lost, so is what it does not know.
            clock::Verdict::Fine if self.session.can_detach() == Detach::AfterReadingSettings => {
                self.session.read_settings(out);
            }
            clock::Verdict::Fine => {}
            clock::Verdict::GiveBack => {
                self.detach_if_idle("idle", out);
            }
            clock::Verdict::Notice => {
                let notice = ServerError::notice("00000", self.backends.why_waiting(context));
                self.session.notice(&notice, out);
            }
            clock::Verdict::CancelStatement(error) => {
                let cancelled = self.session.give_up(&error, out);
                self.cancelled(cancelled);
            }
            clock::Verdict::Dismiss(error) => self.dismiss(error, out),
        }
        true
    }
}

impl<C: AsyncRead + AsyncWrite + Unpin> Future for Relay<C> {
    type Output = End;

    fn poll(self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<End> {
        let this = self.get_mut();
        this.entry.seat.register(context.waker());
        SCRATCH.with_borrow_mut(|scratch| {
            // If a relay panicked, what it was about to send must not go to another client.
            scratch.out.clear();
            let polled = this.turn(context, scratch);
            scratch.out.shrink();
            polled
        })
    }
}

impl<C> Relay<C> {
    /// The client's stream, once the relay has ended.
    pub(crate) fn client(&mut self) -> &mut C {
        &mut self.client
    }
}

impl<C> Drop for Relay<C> {
    /// A relay that is dropped while it runs leaves a backend in an unknown state.
    fn drop(&mut self) {
        if let Place::Attached(mut backend) = std::mem::replace(&mut self.place, Place::None) {
            backend.mark_bad();
            drop(backend);
            if self.policy.mode == Mode::Elastic {
                self.backends.release(&self.entry.seat);
            }
        }
    }
}
