//! Runs transactions until they commit.

use std::fmt;
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use forebay::rt::{self, Runtime};
use forebay::{Instant, Rng, Seed};
use parking_lot::Mutex;

use crate::error::{Error, ErrorKind};
use crate::metrics::{Outcome, TransactionMeter};

mod body_error;
mod deadline;
mod loan;
mod open_transaction;
mod retry;
mod session;

pub use body_error::BodyError;
use deadline::Deadline;
use loan::Loan;
pub use loan::Transaction;
pub use open_transaction::OpenTransaction;
use retry::{Attempts, Verdict};
pub use retry::{RetryBudget, RetryPolicy};
pub use session::{Session, Sessions};

/// Runs transactions, again while they conflict, and counts the outcomes.
///
/// One is enough for each pool. A clone shares everything.
#[derive(Clone)]
pub struct Transactions(Arc<Inner>);

struct Inner {
    policy: RetryPolicy,
    runtime: Arc<dyn Runtime>,
    rng: Mutex<Rng>,
    meter: TransactionMeter,
}

/// Where in a transaction something failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Before COMMIT was sent: nothing was committed.
    Statement,
    /// At COMMIT: if the connection was lost, the transaction may have been committed.
    Commit,
}

impl Transactions {
    /// With this policy. `service` and `pool` are labels of the metrics.
    pub fn new(policy: RetryPolicy, runtime: impl Runtime, service: &str, pool: &str) -> Self {
        let rng = Mutex::new(Seed::new(runtime.entropy()).fork("transaction").rng());
        let meter = TransactionMeter::new(service, pool);
        Self(Arc::new(Inner { policy, runtime: Arc::new(runtime), rng, meter }))
    }

    /// The same with another policy, for transactions that need one of their own. Both are counted together.
    #[must_use]
    pub fn with_policy(&self, policy: RetryPolicy) -> Self {
        let Inner { runtime, meter, .. } = &*self.0;
        let rng = Mutex::new(Seed::new(runtime.entropy()).fork("transaction").rng());
        Self(Arc::new(Inner { policy, runtime: Arc::clone(runtime), rng, meter: meter.clone() }))
    }

    /// Runs `body` in a transaction on a connection of `sessions` and commits it.
    ///
    /// The whole of it is run again after a conflict, at a statement or at COMMIT; after `server unavailable` at a
    /// statement; and, on another connection, if the connection was lost before COMMIT was sent. So apart from what it does
    /// through its connection, `body` must be safe to run twice. If the connection is lost at COMMIT, the outcome is unknown:
    /// that is [`ErrorKind::CommitUnknown`], and is never run again.
    ///
    /// All of it ends at the [deadline](RetryPolicy::deadline) of the policy, or else at that of the pool: the waits for a connection,
    /// `body`, whatever it waits for, COMMIT, and the pauses. Then the future of `body` is dropped, and nothing is committed; only a COMMIT
    /// that is unanswered at that time is `CommitUnknown`.
    ///
    /// Without a deadline of the policy, all its waits for a connection together last at most as long as `sessions` wait for one, that is
    /// the acquire timeout of a pool. No wait that fails ends the run before that, unless waiting does not help, as when the cluster
    /// denies access. A wait is not a retry.
    ///
    /// An error of `body` rolls back and is returned unchanged. It may be any [`BodyError`], such as `anyhow::Error`.
    /// `operation` is the name of the transaction in metrics.
    ///
    /// `body` leaves BEGIN, COMMIT and ROLLBACK alone, and begins no transaction of its client's own. One that ended the
    /// transaction fails for it, and is not run again after it may have committed something, by a COMMIT or by a statement
    /// outside of a transaction; where the connection tells, as that of tokio-postgres does.
    ///
    /// ```
    /// # use forebay_dsql::{Error, Sessions, Transactions};
    /// # trait Client { async fn execute(&self, sql: &str) -> Result<u64, Error>; }
    /// # async fn pay<P: Sessions<Session: Client>>(transactions: &Transactions, pool: &P) -> Result<u64, Error> {
    /// transactions.run(pool, "pay", async |tx| {
    ///     tx.execute("UPDATE account SET balance = balance - 1 WHERE id = 7").await?;
    ///     tx.execute("UPDATE account SET balance = balance + 1 WHERE id = 8").await
    /// }).await
    /// # }
    /// ```
    ///
    /// # Errors
    /// The last attempt's.
    ///
    /// # Cancel safety
    /// If the future is dropped, its connection goes back with the transaction open, and the pool rolls it back or closes
    /// the connection. If it was waiting for a COMMIT, the transaction may have been committed or not.
    pub async fn run<P, T, E, F, B, By>(
        &self,
        sessions: &P,
        operation: &'static str,
        mut body: B,
    ) -> Result<T, E>
    where
        P: Sessions,
        E: BodyError<By>,
        F: Future<Output = Result<T, E>>,
        B: FnMut(Transaction<P::Session>) -> F,
    {
        let mut run = Run::new(self, sessions, operation);
        loop {
            let transaction = run.begin().await?;
            let Some(outcome) = run.deadline.race(body(transaction)).await else {
                return Err(run.timed_out("in the body of the transaction").await.into());
            };
            if let Some(outcome) = run.end(outcome).await {
                return outcome;
            }
        }
    }

    /// Like [`run`](Self::run), for an `async` closure that changes what it captures, or owns it: one that counts its attempts,
    /// or an `async move` closure.
    ///
    /// ```
    /// # use forebay_dsql::{Error, Sessions, Transactions};
    /// # async fn count<P: Sessions>(transactions: &Transactions, pool: &P) -> Result<u32, Error> {
    /// let mut attempts = 0;
    /// transactions.run_mut(pool, "count", async |_tx| {
    ///     attempts += 1;
    ///     Ok::<_, Error>(())
    /// }).await?;
    /// # Ok(attempts)
    /// # }
    /// ```
    ///
    /// It is a method of its own because of a limit of the compiler, which cannot always prove that such a future is `Send`. If it
    /// says in a spawned task that an "implementation of `Send` is not general enough", use [`run`](Self::run) with a plain
    /// closure around an `async` block: `|tx| { attempts += 1; async move { ... } }`.
    ///
    /// # Errors
    /// As [`run`](Self::run).
    ///
    /// # Cancel safety
    /// As [`run`](Self::run).
    pub async fn run_mut<P, T, E, B, By>(
        &self,
        sessions: &P,
        operation: &'static str,
        mut body: B,
    ) -> Result<T, E>
    where
        P: Sessions,
        E: BodyError<By>,
        B: AsyncFnMut(Transaction<P::Session>) -> Result<T, E>,
    {
        let mut run = Run::new(self, sessions, operation);
        loop {
            let transaction = run.begin().await?;
            let Some(outcome) = run.deadline.race(body(transaction)).await else {
                return Err(run.timed_out("in the body of the transaction").await.into());
            };
            if let Some(outcome) = run.end(outcome).await {
                return outcome;
            }
        }
    }

    /// Begins a transaction, for a caller that commits or rolls back by itself; a drop rolls back. It ends at the deadline of the policy,
    /// or else at that of `sessions`, and is not run again after a conflict: see [`run`](Self::run) for that. A connection that is
    /// lost at BEGIN is replaced.
    ///
    /// # Errors
    /// [`NoConnection`](ErrorKind::NoConnection), or why no transaction could be begun.
    ///
    /// # Cancel safety
    /// If the future is dropped, its connection goes back, and the pool rolls back what was begun.
    pub async fn begin<P: Sessions>(
        &self,
        sessions: &P,
        operation: &'static str,
    ) -> Result<OpenTransaction<P::Session>, Error> {
        let mut run = Run::new(self, sessions, operation);
        let session = run.begun().await?;
        Ok(OpenTransaction::new(session, run.operation, run.deadline))
    }

    /// The same with a deadline of its own.
    ///
    /// # Errors
    /// As [`begin`](Self::begin).
    ///
    /// # Cancel safety
    /// As [`begin`](Self::begin).
    pub async fn begin_within<P: Sessions>(
        &self,
        sessions: &P,
        operation: &'static str,
        deadline: Duration,
    ) -> Result<OpenTransaction<P::Session>, Error> {
        let mut operation = self.operation(operation);
        operation.attempts.set_deadline(deadline);
        let mut run = Run::of(operation, sessions);
        let session = run.begun().await?;
        Ok(OpenTransaction::new(session, run.operation, run.deadline))
    }

    /// Counts and times the attempts of one transaction, for a caller that begins and commits it itself.
    ///
    /// ```
    /// # use forebay_dsql::{Error, RetryPolicy, Stage, Transactions};
    /// # async fn attempt() -> Result<u32, (Stage, Error)> { Ok(7) }
    /// # async fn update(transactions: &Transactions) -> Result<u32, Error> {
    /// let mut operation = transactions.operation("update_shard");
    /// loop {
    ///     match attempt().await {
    ///         Ok(done) => {
    ///             operation.committed();
    ///             return Ok(done);
    ///         }
    ///         // Returns the error if it must not or should not be tried again; pauses otherwise.
    ///         Err((stage, error)) => operation.retry(stage, error).await?,
    ///     }
    /// }
    /// # }
    /// ```
    pub fn operation(&self, operation: &'static str) -> Operation {
        let now = self.0.runtime.now();
        Operation {
            transactions: self.clone(),
            name: operation,
            began: now,
            attempts: self.0.policy.begin(now),
            outcome: Outcome::Dropped,
        }
    }
}

impl fmt::Debug for Transactions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Transactions").field(&self.0.policy).finish()
    }
}

/// One transaction and its attempts.
#[derive(Debug)]
#[must_use = "it counts the attempts of one transaction"]
pub struct Operation {
    transactions: Transactions,
    name: &'static str,
    began: Instant,
    attempts: Attempts,
    outcome: Outcome,
}

impl Operation {
    /// The transaction is committed.
    pub fn committed(mut self) {
        self.outcome = Outcome::Committed;
    }

    /// An attempt failed with `error` at `stage`: pauses before the next one.
    ///
    /// # Errors
    /// `error`, if there should be no next one. After [`Stage::Commit`], what may have been committed is among them.
    ///
    /// # Cancel safety
    /// Dropping it ends the pause; the attempt has been counted.
    pub async fn retry<E: BodyError<By>, By>(&mut self, stage: Stage, error: E) -> Result<(), E> {
        let kind = ErrorKind::of(error.as_error());
        let kind = if stage == Stage::Commit { kind.at_commit() } else { kind };
        self.decide(kind, error).await.map_or(Ok(()), Err)
    }

    /// Returns the error if there is no further attempt; otherwise pauses and returns nothing.
    async fn decide<E>(&mut self, kind: ErrorKind, error: E) -> Option<E> {
        let Inner { runtime, rng, meter, .. } = &*self.transactions.0;
        meter.failed(self.name, kind);
        let now = runtime.now();
        let verdict = self.attempts.decide(kind, now, &mut rng.lock());
        self.obey(verdict, kind, now, error).await
    }

    /// The same for a wait that ended without a connection.
    async fn decide_wait(&mut self, error: Error) -> Option<Error> {
        let kind = error.kind();
        if !error.is_of_waiting() {
            return self.decide(kind, error).await;
        }
        let Inner { runtime, rng, meter, .. } = &*self.transactions.0;
        meter.failed(self.name, kind);
        let now = runtime.now();
        let verdict = self.attempts.decide_wait(now, &mut rng.lock());
        let waited = self.attempts.has_waited();
        Some(self.obey(verdict, kind, now, error).await?.after(waited))
    }

    /// An attempt failed, and its caller decides what to do next.
    fn failed(&mut self, kind: ErrorKind) {
        self.transactions.0.meter.failed(self.name, kind);
        self.outcome = Outcome::of(kind);
    }

    async fn obey<E>(&mut self, verdict: Verdict, kind: ErrorKind, now: Instant, error: E) -> Option<E> {
        let Inner { runtime, meter, .. } = &*self.transactions.0;
        match verdict {
            Verdict::Again { retry, pause } => {
                tracing::debug!(operation = self.name, class = %kind, retry, ?pause, "transaction is run again");
                meter.retried(self.name, retry, pause);
                runtime.sleep_until(now + pause).await;
                None
            }
            Verdict::Wait { pause } => {
                tracing::debug!(operation = self.name, class = %kind, ?pause, "transaction goes on waiting for a connection");
                runtime.sleep_until(now + pause).await;
                None
            }
            Verdict::Exhausted => {
                let retries = self.attempts.retries();
                tracing::warn!(operation = self.name, class = %kind, retries, "transaction given up after its last retry");
                meter.exhausted(self.name);
                self.outcome = Outcome::Exhausted;
                Some(error)
            }
            Verdict::Final => {
                self.outcome = Outcome::of(kind);
                Some(error)
            }
        }
    }

    /// All its waits for a connection together may last as long as those of `sessions`, and the whole as long as they say.
    fn limited_by(mut self, sessions: &impl Sessions) -> Self {
        self.attempts.set_patience(sessions.patience());
        self.attempts.set_default_deadline(sessions.deadline());
        self
    }

    /// A connection for the next attempt, if there is one in what is left of the time for that.
    async fn take<P: Sessions>(&mut self, sessions: &P) -> Result<P::Session, Error> {
        let runtime = &*self.transactions.0.runtime;
        let now = runtime.now();
        let taken = match self.attempts.left(now) {
            None => return sessions.session().await,
            // A wait of the pool's usual length costs less: it needs no timer of its own.
            Some(_) if self.attempts.is_left_to_the_pool(now) => sessions.session().await,
            Some(left) if sessions.patience().is_some() => sessions.session_within(left).await,
            Some(left) => rt::within(runtime, left, sessions.session()).await.unwrap_or_else(|| {
                Err(Error::new(
                    ErrorKind::NoConnection,
                    "no connection for another attempt before the deadline",
                ))
            }),
        };
        self.attempts.waited(runtime.now().since(now));
        taken
    }
}

impl Drop for Operation {
    fn drop(&mut self) {
        let Inner { runtime, meter, .. } = &*self.transactions.0;
        meter.ended(self.name, self.outcome, runtime.now().since(self.began));
    }
}

/// One `run`: its attempts, and the connection that goes from one to the next.
struct Run<'a, P: Sessions> {
    sessions: &'a P,
    operation: Operation,
    deadline: Deadline,
    /// The connection for the next attempt, if the last one has left it.
    held: Held<P::Session>,
    /// Where the connection of the attempt under way comes back to.
    loan: Option<Loan<P::Session>>,
}

impl<'a, P: Sessions> Run<'a, P> {
    fn new(transactions: &Transactions, sessions: &'a P, operation: &'static str) -> Self {
        Self::of(transactions.operation(operation), sessions)
    }

    fn of(operation: Operation, sessions: &'a P) -> Self {
        let operation = operation.limited_by(sessions);
        let runtime = Arc::clone(&operation.transactions.0.runtime);
        let deadline = Deadline::new(operation.attempts.until(), operation.began, runtime);
        Self { sessions, operation, deadline, held: Held(None), loan: None }
    }

    /// Begins a transaction, for the body.
    async fn begin(&mut self) -> Result<Transaction<P::Session>, Error> {
        let (transaction, loan) = Transaction::lend(self.begun().await?);
        self.loan = Some(loan);
        Ok(transaction)
    }

    /// A connection with a transaction.
    async fn begun(&mut self) -> Result<P::Session, Error> {
        loop {
            let mut session = match self.held.0.take() {
                Some(session) => session,
                None => match self.operation.take(self.sessions).await {
                    Ok(session) => session,
                    Err(error) => match self.operation.decide_wait(error).await {
                        Some(error) => return Err(error),
                        None => continue,
                    },
                },
            };
            if let Some(until) = self.deadline.at() {
                session.set_deadline(Some(until));
            }
            let error = match self.deadline.race(session.begin()).await {
                Some(Ok(())) => return Ok(session),
                Some(Err(error)) => error,
                None => return Err(self.timed_out("at BEGIN").await),
            };
            self.held = Held(self.rolled_back(session).await);
            if let Some(error) = self.again(error.kind(), error).await {
                return Err(error);
            }
        }
    }

    /// Commits or rolls back what the body has done. None if there is another attempt.
    async fn end<T, E: BodyError<By>, By>(&mut self, outcome: Result<T, E>) -> Option<Result<T, E>> {
        let session = self.loan.take().and_then(Loan::back);
        let failed = match outcome {
            Ok(value) => match self.commit(session).await {
                Ok(()) => {
                    self.operation.outcome = Outcome::Committed;
                    return Some(Ok(value));
                }
                Err(error) => self.again(error.kind(), error).await.map(E::from),
            },
            Err(error) => {
                let (kind, error) = self.roll_back(session, error).await;
                self.again(kind, error).await
            }
        };
        failed.map(Err)
    }

    async fn commit(&mut self, session: Option<P::Session>) -> Result<(), Error> {
        let Some(mut session) = session else {
            let error = "the body kept the connection of its transaction: it cannot be committed";
            return Err(Error::new(ErrorKind::Permanent, error));
        };
        let error = match commit(&mut session, &mut self.deadline).await {
            Ok(()) => return Ok(()),
            // What was begun ends with the connection, or when its pool resets it.
            Err(error) if self.deadline.is_over() => return Err(error),
            Err(error) => error,
        };
        // A COMMIT that was refused has ended the transaction.
        let held = if session.commit_was_sent() { Some(session) } else { self.rolled_back(session).await };
        self.held = Held(held);
        Err(error)
    }

    /// Rolls back after an error of the body. Returns the error and what it means for the transaction.
    async fn roll_back<E: BodyError<By>, By>(
        &mut self,
        session: Option<P::Session>,
        error: E,
    ) -> (ErrorKind, E) {
        let of_error = ErrorKind::of(error.as_error());
        let mut kind = of_error;
        if let Some(mut session) = session {
            let rolled_back = self.deadline.race(session.rollback()).await;
            // Not before: only now all that the body has sent is answered, or never will be.
            kind = session.classify(error.as_error());
            self.held = Held(matches!(rolled_back, Some(Ok(()))).then_some(session));
        }
        if kind == ErrorKind::CommitUnknown && of_error != kind {
            let told = format!(
                "the body ended its transaction by itself, may have committed something then, and failed: {}",
                forebay::Chain(error.as_error())
            );
            return (kind, Error::new(kind, told).into());
        }
        let is_of_another =
            kind == ErrorKind::NoConnection || self.held.0.is_some() && kind == ErrorKind::Disconnected;
        // The error is about another connection, which the body uses.
        (if is_of_another { ErrorKind::Permanent } else { kind }, error)
    }

    /// The connection, if its transaction could be rolled back.
    async fn rolled_back(&mut self, mut session: P::Session) -> Option<P::Session> {
        let rolled_back = self.deadline.race(session.rollback()).await;
        matches!(rolled_back, Some(Ok(()))).then_some(session)
    }

    /// The deadline came while something other than a COMMIT was under way. What the body may have committed by itself is
    /// not known here.
    async fn timed_out(&mut self, place: &'static str) -> Error {
        let error = self.deadline.error(ErrorKind::TimedOut, place);
        let session = self.loan.take().and_then(Loan::back);
        let kind = session.map_or(ErrorKind::TimedOut, |mut session| session.classify(&error));
        let error = if kind == error.kind() { error } else { Error::new(kind, error) };
        match self.again(kind, error).await {
            Some(error) => error,
            None => self.deadline.error(kind, place),
        }
    }

    /// Returns the error if there is no further attempt; otherwise pauses and returns nothing.
    async fn again<E>(&mut self, kind: ErrorKind, error: E) -> Option<E> {
        // Otherwise the same connection again: it knows a new schema already, and `server unavailable` asks for it.
        self.held.0.take_if(|_| kind == ErrorKind::CommitUnknown);
        self.operation.decide(kind, error).await
    }
}

/// The connection for the next attempt. If there is none, it has its pool's own deadline again.
struct Held<S: Session>(Option<S>);

impl<S: Session> Drop for Held<S> {
    fn drop(&mut self) {
        if let Some(session) = &mut self.0 {
            session.set_deadline(None);
        }
    }
}

/// Commits. The error says whether it may have been committed, also if the body did that by itself.
async fn commit<S: Session>(session: &mut S, deadline: &mut Deadline) -> Result<(), Error> {
    // One that is sent after the deadline is not waited for: nobody would know its outcome.
    let sent = !deadline.is_over();
    let outcome = if sent { deadline.race(session.commit()).await } else { None };
    let error = match outcome {
        Some(Ok(())) => {
            session.set_deadline(None);
            return Ok(());
        }
        Some(Err(error)) if session.commit_was_sent() => return Err(error.at_commit()),
        Some(Err(error)) => error,
        None if sent && session.commit_was_sent() => {
            return Err(deadline.error(ErrorKind::CommitUnknown, "with COMMIT unanswered"));
        }
        None => deadline.error(ErrorKind::TimedOut, "before COMMIT was sent"),
    };
    // Nothing was committed here; but perhaps before, by the body itself.
    let kind = session.classify(&error);
    Err(if kind == error.kind() { error } else { Error::new(kind, error) })
}
