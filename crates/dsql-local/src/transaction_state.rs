//! Runs statements as the service does, on either engine: rules, transaction state, faults and counters.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use crate::clock::Moment;
use crate::counters::count;
use crate::engine::{Call, Column, CopyFormat, Description, Engine, Extent, Rows, Session};
use crate::error::SqlError;
use crate::faults::Failure;
use crate::settings::Settings;
use crate::shared::Shared;
use crate::statement::{Kind, Statement, names};
use crate::wire::backend::TransactionStatus;

/// The outcome of a statement for the client.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) tag: String,
    /// The settings that changed.
    pub(crate) changed: Vec<(&'static str, String)>,
    pub(crate) warning: Option<SqlError>,
    pub(crate) description: Arc<Description>,
}

/// The transactions of one session.
pub(crate) struct TransactionState<E: Engine> {
    shared: Arc<Shared>,
    session: E::Session,
    settings: Settings,
    /// Those before the transaction block, which a rollback restores.
    settings_before: Option<Settings>,
    /// Those that a commit restores, if the transaction block has a SET LOCAL: all but the local ones.
    settings_after: Option<Settings>,
    state: State,
    /// The number of schema changes that the session has noticed.
    noticed_changes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    Idle,
    Open {
        explicit: bool,
        wrote: bool,
        began: Moment,
        done: Done,
        read_only: bool,
    },
    Failed {
        began: Moment,
    },
    /// It became too old while the client was idle, and was rolled back. The client does not know yet.
    TimedOut {
        explicit: bool,
        began: Moment,
    },
}

/// What a transaction has done: one DDL statement, or DML.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Done {
    Nothing,
    Ddl,
    Dml,
}

impl<E: Engine> TransactionState<E> {
    pub(crate) fn new(shared: Arc<Shared>, session: E::Session) -> Self {
        let noticed_changes = shared.schema_changes.load(Ordering::SeqCst);
        Self {
            shared,
            session,
            settings: Settings::default(),
            settings_before: None,
            settings_after: None,
            state: State::Idle,
            noticed_changes,
        }
    }

    /// Applies settings, unless the engine rejects them.
    pub(crate) async fn apply_settings(&mut self, settings: Settings) -> Result<(), SqlError> {
        let changed = settings.engine_settings();
        if changed != self.settings.engine_settings() {
            self.session.configure(changed).await?;
        }
        self.settings = settings;
        Ok(())
    }

    pub(crate) fn status(&self) -> TransactionStatus {
        match self.state {
            State::Idle | State::Open { explicit: false, .. } | State::TimedOut { explicit: false, .. } => {
                TransactionStatus::Idle
            }
            State::Open { explicit: true, .. } | State::TimedOut { explicit: true, .. } => {
                TransactionStatus::InTransaction
            }
            State::Failed { .. } => TransactionStatus::Failed,
        }
    }

    pub(crate) fn began(&self) -> Option<Moment> {
        match self.state {
            State::Idle => None,
            State::Open { began, .. } | State::Failed { began } | State::TimedOut { began, .. } => {
                Some(began)
            }
        }
    }

    /// Whether it has failed, and the client has got the error.
    pub(crate) fn failed(&self) -> bool {
        matches!(self.state, State::Failed { .. })
    }

    /// Whether a transaction is open, which may become too old.
    pub(crate) fn is_open(&self) -> bool {
        matches!(self.state, State::Open { .. })
    }

    /// Rolls back the open transaction, which is too old. The client gets the error with its next message.
    pub(crate) async fn time_out(&mut self) {
        if let State::Open { explicit, began, .. } = self.state {
            self.state = State::TimedOut { explicit, began };
            // If the rollback fails, nothing was done.
            drop(self.session.rollback().await);
        }
    }

    /// Whether a statement may run or be described in the current state.
    fn check_state(&self, statement: &Statement) -> Result<(), SqlError> {
        if ends_transaction(statement) { Ok(()) } else { self.check_alive() }
    }

    /// Whether the transaction can continue.
    pub(crate) fn check_alive(&self) -> Result<(), SqlError> {
        match self.state {
            State::Failed { .. } => Err(SqlError::aborted()),
            State::TimedOut { .. } => Err(self.too_old()),
            State::Idle | State::Open { .. } => Ok(()),
        }
    }

    /// When the open transaction is too old.
    pub(crate) fn deadline(&self) -> Moment {
        self.began().unwrap_or_default().saturating_add(self.shared.sessions.limits().transaction_life)
    }

    pub(crate) fn too_old(&self) -> SqlError {
        let age = self.shared.clock.now().saturating_sub(self.began().unwrap_or_default());
        SqlError::too_old(self.shared.sessions.limits().transaction_life, age)
    }

    pub(crate) async fn describe(
        &mut self,
        statement: &Statement,
        types: &[u32],
    ) -> Result<Arc<Description>, SqlError> {
        self.check_state(statement)?;
        self.shared.rules.check(statement)?;
        match statement.kind() {
            Kind::Empty | Kind::Begin | Kind::Commit | Kind::Rollback | Kind::Set => Ok(Arc::default()),
            Kind::Show => match shown(statement).as_str() {
                "all" => Ok(texts(&ALL_SETTINGS)),
                name => Ok(texts(&[self.show(name)?.0])),
            },
            _ => self.session.describe(statement, types).await,
        }
    }

    /// Runs a statement. Outside of an explicit transaction, all statements up to [`finish`](Self::finish)
    /// share one.
    pub(crate) async fn run(&mut self, call: Call<'_>, rows: &mut Rows) -> Result<Outcome, Failure> {
        let statement = call.statement;
        self.check(&call)?;
        match statement.kind() {
            Kind::Empty => Ok(Outcome::default()),
            Kind::Begin => self.begin(statement).await,
            Kind::Commit => self.end(statement).await,
            Kind::Rollback => self.roll_back(statement).await,
            Kind::Set => self.set(statement).await,
            Kind::Show => {
                let description = match shown(statement).as_str() {
                    "all" => {
                        self.settings.all().iter().for_each(|setting| rows.texts(setting));
                        texts(&ALL_SETTINGS)
                    }
                    name => {
                        let (name, value) = self.show(name)?;
                        rows.texts(&[value]);
                        texts(&[name])
                    }
                };
                Ok(Outcome { tag: statement.tag(0), description, ..Outcome::default() })
            }
            _ => {
                let call = self.begin_statement(call).await?;
                self.run_begun(call, rows).await
            }
        }
    }

    /// Runs a SET or RESET.
    async fn set(&mut self, statement: &Statement) -> Result<Outcome, Failure> {
        let tag = statement.tag(0);
        let mut settings = self.settings.clone();
        let changed = settings.set(statement)?;
        let local = statement.begins(&["SET", "LOCAL"]);
        if local && self.settings_before.is_none() {
            let warning = SqlError::new("25P01", "SET LOCAL can only be used in transaction blocks");
            return Ok(Outcome { tag, warning: Some(warning), ..Outcome::default() });
        }
        let before = self.settings.clone();
        self.apply_settings(settings).await?;
        if local {
            self.settings_after.get_or_insert(before);
        } else if let Some(after) = &mut self.settings_after {
            after.set(statement)?;
        }
        Ok(Outcome { tag, changed, ..Outcome::default() })
    }

    /// Begins a COPY FROM STDIN. Returns the format of the data that the client has to send, and the call for
    /// [`run_begun`](Self::run_begun).
    pub(crate) async fn begin_copy<'a>(&mut self, call: Call<'a>) -> Result<(CopyFormat, Call<'a>), Failure> {
        self.check(&call)?;
        let call = self.begin_statement(call).await?;
        Ok((self.session.copy_format(call.statement).await?, call))
    }

    /// Counts a statement, and checks that it may run.
    fn check(&self, call: &Call<'_>) -> Result<(), SqlError> {
        if call.statement.kind() != Kind::Empty {
            count(&self.shared.tally.statements);
        }
        self.check_state(call.statement)?;
        // A described statement was checked before.
        if call.description.is_none() { self.shared.rules.check(call.statement) } else { Ok(()) }
    }

    /// The name and value of a setting.
    fn show(&self, name: &str) -> Result<(&'static str, &str), SqlError> {
        let shown = self.settings.show(name)?;
        let read_only = match self.state {
            State::Open { read_only, .. } => read_only,
            _ => self.settings.is_read_only(),
        };
        Ok(if shown.0 == "transaction_read_only" && read_only { (shown.0, "on") } else { shown })
    }

    /// Whether another session has changed the schema since the last call.
    fn notice_changes(&mut self) -> bool {
        let changes = self.shared.schema_changes.load(Ordering::SeqCst);
        std::mem::replace(&mut self.noticed_changes, changes) != changes
    }

    /// Fails the transaction. Call this for every error that the client gets.
    pub(crate) async fn fail(&mut self, failure: &Failure) {
        count(&self.shared.tally.errors);
        if matches!(failure, Failure::Error(SqlError { code: "40001", .. })) {
            count(&self.shared.tally.conflicts);
        }
        self.state = match self.state {
            State::Open { explicit: true, began, .. }
            | State::TimedOut { explicit: true, began }
            | State::Failed { began } => State::Failed { began },
            State::Idle | State::Open { explicit: false, .. } | State::TimedOut { explicit: false, .. } => {
                State::Idle
            }
        };
        // The locks must not wait for the client's ROLLBACK. If the rollback fails, nothing was done.
        drop(self.session.rollback().await);
    }

    /// Commits an implicit transaction, at the end of a query or at a Sync.
    pub(crate) async fn finish(&mut self) -> Result<(), Failure> {
        match self.state {
            State::Open { explicit: false, .. } => self.commit().await,
            State::TimedOut { explicit: false, .. } => {
                self.state = State::Idle;
                Err(self.too_old().into())
            }
            _ => Ok(()),
        }
    }

    /// Opens a transaction for a statement, if none is open. Faults strike here.
    async fn begin_statement<'a>(&mut self, call: Call<'a>) -> Result<Call<'a>, Failure> {
        self.check_age()?;
        let stale = self.notice_changes();
        let (delay, failure) = self.shared.faults.on_statement(stale);
        self.shared.delay(delay).await;
        if let Some(failure) = failure {
            return Err(failure);
        }
        let mut extent = call.extent;
        match self.state {
            State::Idle => self.open(false, self.settings.is_read_only()).await?,
            State::Open { explicit: false, .. } => extent = Extent::Query,
            _ => extent = Extent::Open,
        }
        self.check_mix(call.statement)?;
        Ok(Call { deadline: self.deadline(), extent, ..call })
    }

    /// Runs a statement for which [`begin_statement`](Self::begin_statement) was called.
    pub(crate) async fn run_begun(&mut self, call: Call<'_>, rows: &mut Rows) -> Result<Outcome, Failure> {
        let done = self.session.execute(call, rows).await.map_err(|error| {
            // The engine does not know the limit.
            if error.code == SqlError::DEADLINE { self.too_old() } else { error }
        })?;
        if let State::Open { wrote, .. } = &mut self.state {
            *wrote |= done.description.writes;
        }
        let counted = if done.description.columns.is_some() { rows.count() } else { done.changed };
        let tag = call.statement.tag(counted);
        Ok(Outcome { tag, description: done.description, ..Outcome::default() })
    }

    async fn begin(&mut self, statement: &Statement) -> Result<Outcome, Failure> {
        let mut outcome = Outcome { tag: statement.tag(0), ..Outcome::default() };
        let read_only = statement.is_read_only().unwrap_or_else(|| self.settings.is_read_only());
        match &mut self.state {
            State::Open { explicit: explicit @ false, read_only: mode, .. } => {
                if *mode && !read_only {
                    let message = "transaction read-write mode must be set before any query";
                    return Err(SqlError::new("25001", message).into());
                }
                (*explicit, *mode) = (true, read_only);
                self.settings_before = Some(self.settings.clone());
            }
            State::Idle => {
                self.open(true, read_only).await?;
                self.settings_before = Some(self.settings.clone());
            }
            State::Open { .. } | State::Failed { .. } | State::TimedOut { .. } => {
                outcome.warning = Some(SqlError::new("25001", "there is already a transaction in progress"));
            }
        }
        Ok(outcome)
    }

    async fn open(&mut self, explicit: bool, read_only: bool) -> Result<(), SqlError> {
        self.session.begin(read_only).await?;
        let began = self.shared.clock.now();
        self.state = State::Open { explicit, wrote: false, began, done: Done::Nothing, read_only };
        Ok(())
    }

    async fn end(&mut self, statement: &Statement) -> Result<Outcome, Failure> {
        match self.state {
            State::Open { .. } => {
                let result = self.commit().await;
                // The transaction is over, even if its commit failed.
                self.state = State::Idle;
                if result.is_ok() {
                    // What was set for the transaction only ends with it.
                    self.settings_before = self.settings_after.take();
                }
                let changed = self.undo_settings().await?;
                result.map(|()| Outcome { tag: statement.tag(0), changed, ..Outcome::default() })
            }
            State::TimedOut { .. } => {
                let error = self.too_old();
                self.state = State::Idle;
                self.undo_settings().await?;
                Err(error.into())
            }
            State::Failed { .. } => {
                self.state = State::Idle;
                let changed = self.undo_settings().await?;
                Ok(Outcome { tag: "ROLLBACK".to_owned(), changed, ..Outcome::default() })
            }
            State::Idle => Ok(outside(statement)),
        }
    }

    async fn roll_back(&mut self, statement: &Statement) -> Result<Outcome, Failure> {
        if self.state == State::Idle {
            return Ok(outside(statement));
        }
        self.state = State::Idle;
        self.session.rollback().await?;
        let changed = self.undo_settings().await?;
        Ok(Outcome { tag: statement.tag(0), changed, ..Outcome::default() })
    }

    /// Restores the settings before the transaction block. Returns those that clients are told.
    async fn undo_settings(&mut self) -> Result<Vec<(&'static str, String)>, SqlError> {
        self.settings_after = None;
        let Some(before) = self.settings_before.take() else { return Ok(Vec::new()) };
        let changed = before.reported_unlike(&self.settings);
        self.apply_settings(before).await?;
        Ok(changed)
    }

    async fn commit(&mut self) -> Result<(), Failure> {
        let State::Open { explicit, wrote, done, .. } = self.state else { return Ok(()) };
        if !explicit && !wrote {
            // A single read has nothing to commit or to lose.
            self.state = State::Idle;
            return Ok(self.session.commit().await?);
        }
        self.check_age()?;
        let stale = self.notice_changes();
        let faults = self.shared.faults.on_commit(wrote, stale);
        self.shared.delay(faults.delay).await;
        if let Some(failure) = faults.before {
            return Err(failure);
        }
        self.session.commit().await?;
        self.state = State::Idle;
        count(&self.shared.tally.commits);
        if done == Done::Ddl {
            self.noticed_changes = self.shared.schema_changes.fetch_add(1, Ordering::SeqCst) + 1;
        }
        faults.after.map_or(Ok(()), Err)
    }

    /// Whether the open transaction is young enough to go on.
    pub(crate) fn check_age(&self) -> Result<(), SqlError> {
        let Some(began) = self.began() else { return Ok(()) };
        let limit = self.shared.sessions.limits().transaction_life;
        let over = self.shared.clock.now() > began.saturating_add(limit);
        if over { Err(self.too_old()) } else { Ok(()) }
    }

    /// A transaction contains DML, or one DDL statement; a read-only one contains neither.
    fn check_mix(&mut self, statement: &Statement) -> Result<(), SqlError> {
        let next = match statement.kind() {
            Kind::Ddl => Done::Ddl,
            Kind::Dml => Done::Dml,
            Kind::Select if statement.modifies() => Done::Dml,
            _ => return Ok(()),
        };
        let State::Open { done, read_only, .. } = &mut self.state else { return Ok(()) };
        if *read_only {
            let tag = statement.tag(0);
            let verb = if statement.copies_in() { "COPY FROM" } else { tag.trim_end_matches(['0', ' ']) };
            let message = format!("cannot execute {verb} in a read-only transaction");
            return Err(SqlError::new("25006", message));
        }
        match (std::mem::replace(done, next), next) {
            (Done::Ddl, Done::Ddl) => {
                Err(SqlError::unsupported("multiple ddl statements not supported in a transaction"))
            }
            (Done::Ddl, Done::Dml) | (Done::Dml, Done::Ddl) => {
                Err(SqlError::unsupported("ddl and dml are not supported in the same transaction"))
            }
            _ => Ok(()),
        }
    }
}

impl From<SqlError> for Failure {
    fn from(error: SqlError) -> Self {
        Self::Error(error)
    }
}

fn ends_transaction(statement: &Statement) -> bool {
    matches!(statement.kind(), Kind::Commit | Kind::Rollback | Kind::Empty)
}

fn outside(statement: &Statement) -> Outcome {
    let warning = SqlError::new("25P01", "there is no transaction in progress");
    Outcome { tag: statement.tag(0), warning: Some(warning), ..Outcome::default() }
}

/// The columns of SHOW ALL.
const ALL_SETTINGS: [&str; 3] = ["name", "setting", "description"];

/// Columns of texts.
fn texts(names: &[&str]) -> Arc<Description> {
    let column = |name: &&str| Column { name: (*name).to_owned(), oid: 25, size: -1 };
    Arc::new(Description { columns: Some(names.iter().map(column).collect()), ..Description::default() })
}

/// The words after SHOW, in lower case.
fn shown(statement: &Statement) -> String {
    let words = names(statement.text());
    words.get(1..).unwrap_or_default().join(" ").to_ascii_lowercase()
}
