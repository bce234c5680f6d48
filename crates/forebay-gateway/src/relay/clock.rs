//! What a session's limits say, looked at every now and then.
//!
//! No statement reads a clock or sets a timer. A tick notes what the session does, and since when it does so: since the tick that saw it
//! first. So a limit is kept to within a tick, and never cuts short.

use std::task::{Context, Poll};
use std::time::Duration;

use forebay::Instant;
use forebay::rt::{Runtime, Task};

use super::policy::Policy;
use crate::protocol::ServerError;
use crate::refusal;
use crate::session::{TransactionStatus, VirtualSession};

/// The shortest tick.
const SHORTEST: Duration = Duration::from_millis(10);

/// What a session does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Doing {
    Nothing,
    NothingInTransaction,
    Running,
    Waiting,
}

/// What follows from a look at the clock.
#[derive(Debug)]
pub(super) enum Verdict {
    Fine,
    /// The session has been idle for long enough to give its backend back.
    GiveBack,
    /// The client should be told why it waits.
    Notice,
    /// The statement has run for too long.
    CancelStatement(ServerError),
    /// The session is over.
    Dismiss(ServerError),
}

/// The clock of one session.
pub(super) struct Clock {
    tick: Option<Task>,
    every: Duration,
    /// The same for a backend that expires soon.
    every_now: Duration,
    /// Also without a backend and a client that waits.
    always: bool,
    has_backend: bool,
    waits: bool,
    noticed: bool,
    /// The client has sent something since the last tick.
    stirred: bool,
    /// It did so outside of a transaction.
    was_outside: bool,
    /// What the session does, at which of its answers, and since when.
    doing: Option<(Doing, u64, Instant)>,
    transaction_since: Option<Instant>,
    /// The client's segment that lacked its Sync at the last tick.
    unsynced: Option<u64>,
    /// Since when the client owes its Sync, and says nothing.
    owes_since: Option<Instant>,
    /// The client leaves something unread.
    unread: bool,
    /// Since when it has read nothing.
    unread_since: Option<Instant>,
    due: bool,
    /// The backend was due already when it came: the pool had no younger one. It is kept until this much of its life is left.
    kept_until: Option<Duration>,
    /// The next look comes as soon as it may.
    soon: bool,
    /// Looks that the client has left to read its last words.
    last_looks: Option<u32>,
}

/// How many looks a client has to read its last words.
const LAST_LOOKS: u32 = 4;

impl Clock {
    pub(super) fn new(policy: &Policy) -> Self {
        Self {
            tick: None,
            every: policy.tick,
            every_now: policy.tick,
            always: policy.idle_timeout.is_some(),
            has_backend: false,
            waits: false,
            noticed: false,
            stirred: false,
            was_outside: true,
            doing: None,
            transaction_since: None,
            unsynced: None,
            owes_since: None,
            unread: false,
            unread_since: None,
            due: false,
            kept_until: None,
            soon: false,
            last_looks: None,
        }
    }

    pub(super) fn waits(&mut self) {
        (self.waits, self.noticed, self.doing) = (true, false, None);
    }

    /// There is a backend, which expires in so long, and is due or not.
    pub(super) fn attached(&mut self, remaining: Option<Duration>, due: bool) {
        // Given back at once, it would come and go at each tick until its replacement is open.
        self.kept_until = remaining.filter(|_| due).map(|remaining| remaining / 2);
        self.every_now =
            remaining.map_or(self.every, |remaining| (remaining / 40).clamp(SHORTEST, self.every));
        // What the client does goes on, or began when it was seen to: an idle one may have got this before it asked.
        (self.waits, self.has_backend, self.due) = (false, true, false);
    }

    pub(super) fn detached(&mut self) {
        (self.has_backend, self.due, self.waits) = (false, false, false);
    }

    /// The client has sent something.
    pub(super) fn stirs(&mut self, outside: bool) {
        self.stirred = true;
        self.was_outside |= outside;
    }

    /// The client has read something.
    pub(super) fn reads(&mut self) {
        self.unread_since = None;
    }

    /// Whether the client leaves something unread.
    pub(super) fn set_unread(&mut self, unread: bool) {
        self.unread = unread;
    }

    pub(super) fn set_due(&mut self, due: bool, remaining: Option<Duration>) {
        let kept = self.kept_until.is_some_and(|until| remaining.is_some_and(|remaining| remaining > until));
        self.due = due && !kept;
    }

    /// Something should not wait for the next tick.
    pub(super) fn look_soon(&mut self) {
        if !std::mem::replace(&mut self.soon, true) {
            self.tick = None;
        }
    }

    /// The session ends, once the client has read why, or after a while. Whether that is new.
    pub(super) fn ends(&mut self) -> bool {
        let is_new = self.last_looks.is_none();
        self.last_looks.get_or_insert(LAST_LOOKS);
        is_new
    }

    /// Whether the client had its time to read why.
    pub(super) fn is_over(&self) -> bool {
        self.last_looks == Some(0)
    }

    /// Whether the backend should be given back soon.
    pub(super) fn is_due(&self) -> bool {
        self.due
    }

    /// The time, if it is time for a look.
    pub(super) fn poll(&mut self, context: &mut Context<'_>, runtime: &dyn Runtime) -> Option<Instant> {
        if !(self.always || self.has_backend || self.waits || self.unread || self.last_looks.is_some()) {
            self.tick = None;
            return None;
        }
        let every = match self.has_backend {
            _ if self.soon => SHORTEST,
            true => self.every_now,
            false => self.every,
        };
        let tick = self.tick.get_or_insert_with(|| runtime.sleep_until(runtime.now() + every));
        match tick.as_mut().poll(context) {
            Poll::Pending => None,
            Poll::Ready(()) => {
                self.tick = None;
                self.soon = false;
                if let Some(left) = &mut self.last_looks {
                    *left = left.saturating_sub(1);
                }
                Some(runtime.now())
            }
        }
    }

    /// What follows, now that it is `now`.
    pub(super) fn verdict(&mut self, now: Instant, policy: &Policy, session: &VirtualSession) -> Verdict {
        let doing = if self.waits {
            Doing::Waiting
        } else if session.is_running() {
            Doing::Running
        } else if session.transaction() == TransactionStatus::Idle {
            Doing::Nothing
        } else {
            Doing::NothingInTransaction
        };
        let stirred = std::mem::take(&mut self.stirred);
        let answers = session.answers();
        let goes_on = |(was, seen, _): &(Doing, u64, Instant)| {
            *was == doing
                && match doing {
                    Doing::Waiting => true,
                    // What the client sends, such as copy data, does not make its statement a new one.
                    Doing::Running => *seen == answers,
                    Doing::Nothing | Doing::NothingInTransaction => !stirred,
                }
        };
        let (.., since) = match self.doing.filter(goes_on) {
            Some(still) => still,
            None => *self.doing.insert((doing, answers, now)),
        };
        let outside = std::mem::take(&mut self.was_outside);
        let unsynced = session.unsynced_segment();
        let same_segment = std::mem::replace(&mut self.unsynced, unsynced) == unsynced;
        self.transaction_since = match session.transaction() {
            TransactionStatus::Idle if unsynced.is_none() => None,
            TransactionStatus::Idle => self.transaction_since.filter(|_| same_segment).or(Some(now)),
            _ if outside => Some(now),
            _ => self.transaction_since.or(Some(now)),
        };
        self.owes_since = session.owes_sync().then(|| self.owes_since.filter(|_| !stirred).unwrap_or(now));
        self.unread_since = if self.unread { self.unread_since.or(Some(now)) } else { None };
        let over =
            |limit: Option<Duration>, since: Instant| limit.is_some_and(|limit| now.since(since) >= limit);
        if self.unread_since.is_some_and(|since| over(policy.unread_timeout, since)) {
            return Verdict::Dismiss(refusal::unread());
        }
        // What becomes of a COMMIT, its client must learn.
        let late = self.transaction_since.is_some_and(|since| over(policy.transaction_timeout, since));
        if late && !session.is_committing() {
            return Verdict::Dismiss(refusal::transaction_timeout());
        }
        // What it has sent may still run, but nobody has asked for the answer.
        if self.owes_since.is_some_and(|since| over(policy.idle_in_transaction_timeout, since)) {
            return Verdict::Dismiss(refusal::idle_in_transaction_timeout());
        }
        match doing {
            Doing::Waiting if !self.noticed && over(policy.notice_after, since) => {
                self.noticed = true;
                Verdict::Notice
            }
            Doing::Running if over(policy.query_timeout, since) => {
                Verdict::CancelStatement(refusal::query_timeout())
            }
            Doing::NothingInTransaction if over(policy.idle_in_transaction_timeout, since) => {
                Verdict::Dismiss(refusal::idle_in_transaction_timeout())
            }
            Doing::Nothing if over(policy.idle_timeout, since) => Verdict::Dismiss(refusal::idle_timeout()),
            Doing::Nothing if self.has_backend && over(policy.release_after, since) => Verdict::GiveBack,
            _ => Verdict::Fine,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::protocol::{client, server, write};
    use crate::session::{Memory, Outbox, Reported, SessionLimits, StartSettings};
    use crate::users::Mode;

    const SECOND: Duration = Duration::from_secs(1);

    fn policy() -> Policy {
        Policy {
            mode: Mode::Session,
            release_after: None,
            query_timeout: Some(10 * SECOND),
            transaction_timeout: Some(10 * SECOND),
            idle_in_transaction_timeout: None,
            idle_timeout: None,
            unread_timeout: None,
            notice_after: None,
            linger: SECOND,
            tick: SECOND,
        }
    }

    /// A session with a backend, and its clock.
    struct Scene {
        session: VirtualSession,
        clock: Clock,
        policy: Policy,
        now: Instant,
    }

    impl Scene {
        fn new(policy: Policy) -> Self {
            let mut session = VirtualSession::new(StartSettings::default(), SessionLimits::default());
            session.attach(Memory::default(), &Reported::default(), &mut Outbox::default());
            let mut clock = Clock::new(&policy);
            clock.attached(None, false);
            Self { session, clock, policy, now: Instant::ZERO }
        }

        fn client(&mut self, frame: impl FnOnce(&mut Vec<u8>)) {
            let mut bytes = Vec::new();
            frame(&mut bytes);
            self.clock.stirs(self.session.transaction() == TransactionStatus::Idle);
            self.session.from_client(&bytes, &mut Outbox::default()).unwrap();
        }

        fn server(&mut self, frame: impl FnOnce(&mut Vec<u8>)) {
            let mut bytes = Vec::new();
            frame(&mut bytes);
            self.session.from_server(&bytes, &mut Outbox::default()).unwrap();
        }

        /// So many looks, one each second, with what the client does before each. The first that is not fine, if there is one.
        fn looks(&mut self, count: u32, mut before: impl FnMut(&mut Self)) -> Option<(u32, Verdict)> {
            (0..count).find_map(|look| {
                before(self);
                self.now = self.now + SECOND;
                let verdict = self.clock.verdict(self.now, &self.policy, &self.session);
                (!matches!(verdict, Verdict::Fine)).then_some((look, verdict))
            })
        }
    }

    #[test]
    fn a_backend_that_was_due_when_it_came_does_not_go_at_once() {
        let mut scene = Scene::new(policy());
        scene.clock.attached(Some(60 * SECOND), false);
        scene.clock.set_due(true, Some(50 * SECOND));
        assert!(scene.clock.is_due());
        scene.clock.attached(Some(40 * SECOND), true);
        for (left, is_due) in [(40, false), (21, false), (20, true), (1, true)] {
            scene.clock.set_due(true, Some(left * SECOND));
            assert_eq!(scene.clock.is_due(), is_due, "{left}");
        }
    }

    #[test]
    fn an_idle_client_is_idle_while_its_backends_are_replaced() {
        let mut scene = Scene::new(Policy { idle_timeout: Some(10 * SECOND), ..policy() });
        let mut look = 0;
        let late = scene.looks(20, |scene| {
            look += 1;
            if look % 3 == 0 {
                scene.session.detach();
                scene.clock.detached();
                scene.session.attach(Memory::default(), &Reported::default(), &mut Outbox::default());
                scene.clock.attached(Some(60 * SECOND), false);
            }
        });
        is_dismissed(late, "57P05");
    }

    #[test]
    fn what_the_client_sends_does_not_make_its_statement_a_new_one() {
        let mut scene = Scene::new(policy());
        scene.client(|out| write::query(out, b"COPY t FROM STDIN"));
        scene.server(|out| write::frame(out, b'G', |out| out.extend_from_slice(&[0; 3])));
        let late = scene.looks(20, |scene| {
            scene.client(|out| write::frame(out, client::COPY_DATA, |out| out.extend_from_slice(b"1\n")));
        });
        assert!(matches!(late, Some((10, Verdict::CancelStatement(_)))), "{late:?}");
    }

    #[test]
    fn a_client_that_always_has_a_statement_under_way_is_not_late() {
        let mut scene = Scene::new(policy());
        scene.client(|out| write::query(out, b"SELECT 1"));
        let late = scene.looks(30, |scene| {
            // The next is sent before this one is answered.
            scene.client(|out| write::query(out, b"SELECT 1"));
            scene.server(|out| {
                write::command_complete(out, "SELECT 1");
                write::ready_for_query(out, b'I');
            });
        });
        assert!(late.is_none(), "{late:?}");
        // One text of several statements: each has its time.
        let mut scene = Scene::new(policy());
        scene.client(|out| write::query(out, b"SELECT 1; SELECT 2; SELECT 3"));
        let mut second = 0;
        let late = scene.looks(25, |scene| {
            second += 1;
            if second % 8 == 0 {
                scene.server(|out| write::command_complete(out, "SELECT 1"));
            }
        });
        assert!(late.is_none(), "{late:?}");
    }

    #[test]
    fn a_commit_that_is_under_way_is_not_cut_off_by_the_timeout_of_its_transaction() {
        for (sql, dismissed) in [("COMMIT", false), ("SELECT 1", true)] {
            let mut scene = Scene::new(Policy { query_timeout: None, ..policy() });
            scene.client(|out| write::query(out, b"BEGIN"));
            scene.server(|out| {
                write::command_complete(out, "BEGIN");
                write::ready_for_query(out, b'T');
            });
            assert!(scene.looks(5, |_| {}).is_none());
            scene.client(|out| write::query(out, sql.as_bytes()));
            let late = scene.looks(30, |_| {});
            assert_eq!(late.is_some(), dismissed, "{sql}: {late:?}");
            if !dismissed {
                scene.server(|out| {
                    write::command_complete(out, "COMMIT");
                    write::ready_for_query(out, b'I');
                });
                assert!(scene.looks(30, |_| {}).is_none(), "it is committed");
            }
        }
    }

    /// Parse, Bind and Execute, without a Sync.
    fn execute(out: &mut Vec<u8>) {
        write::parse(out, b"", b"INSERT INTO t VALUES (1)\0\0\0");
        write::bind(out, b"", b"");
        write::execute(out, b"");
    }

    fn executed(out: &mut Vec<u8>) {
        write::bare(out, server::PARSE_COMPLETE);
        write::bare(out, server::BIND_COMPLETE);
        write::command_complete(out, "INSERT 0 1");
    }

    const NO_TIMEOUT: Option<Duration> = None;

    fn timeouts(transaction: Option<Duration>, idle_in_transaction: Option<Duration>) -> Policy {
        Policy {
            query_timeout: None,
            transaction_timeout: transaction,
            idle_in_transaction_timeout: idle_in_transaction,
            ..policy()
        }
    }

    #[track_caller]
    fn is_dismissed(late: Option<(u32, Verdict)>, sqlstate: &str) {
        match late {
            Some((10, Verdict::Dismiss(error))) => assert_eq!(error.sqlstate, sqlstate),
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn a_client_that_does_not_send_its_sync_is_in_a_transaction() {
        for (policy, sqlstate) in [
            (timeouts(Some(10 * SECOND), NO_TIMEOUT), "25P04"),
            (timeouts(NO_TIMEOUT, Some(10 * SECOND)), "25P03"),
        ] {
            // Nothing is answered, as nobody has asked for it.
            let mut scene = Scene::new(policy.clone());
            scene.client(execute);
            is_dismissed(scene.looks(20, |_| {}), sqlstate);
            // Or everything.
            let mut scene = Scene::new(policy);
            scene.client(|out| {
                execute(out);
                write::bare(out, client::FLUSH);
            });
            scene.server(executed);
            is_dismissed(scene.looks(20, |_| {}), sqlstate);
        }
        let mut scene = Scene::new(timeouts(NO_TIMEOUT, NO_TIMEOUT));
        scene.client(execute);
        assert!(scene.looks(30, |_| {}).is_none());
    }

    #[test]
    fn a_client_that_has_asked_for_its_answer_is_not_idle() {
        let mut scene = Scene::new(timeouts(NO_TIMEOUT, Some(10 * SECOND)));
        scene.client(|out| {
            execute(out);
            write::bare(out, client::FLUSH);
        });
        assert!(scene.looks(30, |_| {}).is_none());
        // Nor is one whose Sync was sent.
        let mut scene = Scene::new(timeouts(Some(10 * SECOND), Some(10 * SECOND)));
        scene.client(|out| {
            execute(out);
            write::bare(out, client::SYNC);
        });
        assert!(scene.looks(30, |_| {}).is_none());
    }

    /// What it has pipelined behind that, the server has not begun.
    #[test]
    fn a_client_whose_earlier_request_is_unanswered_is_not_late() {
        let mut scene = Scene::new(timeouts(Some(10 * SECOND), Some(10 * SECOND)));
        scene.client(|out| {
            execute(out);
            write::bare(out, client::SYNC);
            execute(out);
        });
        assert!(scene.looks(30, |_| {}).is_none());
        scene.server(|out| {
            executed(out);
            write::ready_for_query(out, b'I');
        });
        is_dismissed(scene.looks(20, |_| {}), "25P04");
    }

    #[test]
    fn a_copy_is_not_late_while_its_data_comes() {
        let mut scene = Scene::new(timeouts(Some(10 * SECOND), Some(10 * SECOND)));
        scene.client(|out| {
            write::parse(out, b"", b"COPY t FROM STDIN\0\0\0");
            write::bind(out, b"", b"");
            write::execute(out, b"");
            write::bare(out, client::SYNC);
        });
        scene.server(|out| {
            write::bare(out, server::PARSE_COMPLETE);
            write::bare(out, server::BIND_COMPLETE);
            write::frame(out, server::COPY_IN, |out| out.extend_from_slice(&[0; 3]));
        });
        assert!(scene.looks(30, |_| {}).is_none());
    }

    #[test]
    fn a_client_that_goes_on_is_not_idle_but_its_transaction_is_the_same() {
        let mut scene = Scene::new(timeouts(NO_TIMEOUT, Some(10 * SECOND)));
        assert!(scene.looks(30, |scene| scene.client(execute)).is_none());
        let mut scene = Scene::new(timeouts(Some(10 * SECOND), NO_TIMEOUT));
        is_dismissed(scene.looks(30, |scene| scene.client(execute)), "25P04");
    }

    /// Each time it sends the Sync together with what follows it.
    #[test]
    fn a_client_that_is_always_in_another_segment_is_not_late() {
        let mut scene = Scene::new(timeouts(Some(10 * SECOND), Some(10 * SECOND)));
        scene.client(execute);
        let late = scene.looks(30, |scene| {
            scene.client(|out| {
                write::bare(out, client::SYNC);
                execute(out);
            });
            scene.server(|out| {
                executed(out);
                write::ready_for_query(out, b'I');
            });
        });
        assert!(late.is_none(), "{late:?}");
    }

    /// The server has rolled it back. But the backend is of no use to anybody before the Sync.
    #[test]
    fn a_transaction_that_has_failed_without_a_block_is_none_and_lacks_its_sync() {
        let failed = |policy| {
            let mut scene = Scene::new(policy);
            scene.client(|out| {
                execute(out);
                write::bare(out, client::FLUSH);
            });
            scene.server(|out| write::error(out, &ServerError::error("42P01", "as told")));
            scene.looks(30, |_| {})
        };
        assert!(failed(timeouts(Some(10 * SECOND), None)).is_none());
        let late = failed(timeouts(None, Some(10 * SECOND)));
        assert!(matches!(late, Some((10, Verdict::Dismiss(_)))), "{late:?}");
    }
}
