//! What is asked of the server.

use std::sync::Arc;

use forebay::rt::{self, Runtime};
use forebay_flight::{CancelHandle, Error, Phase};

use super::{Outcome, Shell};
use crate::flight::catalog::{self, Question};
use crate::flight::format::Format;
use crate::flight::progress::{Spinner, timing};
use crate::flight::running::{self, Done, Manner, Trouble};
use crate::flight::statement::{Kind, Statement};
use crate::flight::terminal;
use crate::flight::transaction::Transaction;

impl Shell {
    pub(super) fn statement(&mut self, statement: &Statement) -> Outcome {
        if statement.kind == Kind::Query
            && self.format == Format::Arrow
            && std::mem::replace(&mut self.has_written_arrow, true)
        {
            return self.fail(
                "an Arrow stream holds one result, and there is one already: write the next with another --output",
            );
        }
        let manner = self.manner();
        let _running = self.interrupts.cancel(&manner.cancel);
        let runtime = Arc::clone(&self.runtime);
        let mut spinner = Spinner::start(runtime.now());
        let outcome = self.tokio.block_on(async {
            let session = self.connection.session(&*runtime, &mut spinner, &manner.cancel).await?;
            running::run(session, statement, &manner, &*runtime, &mut spinner).await
        });
        let elapsed = spinner.elapsed(runtime.now());
        drop(spinner);
        self.names_are_old |= statement.changes_names;
        let before = self.transaction;
        self.transaction = match &outcome {
            Ok(_) => before.after(statement.effect),
            Err(Trouble::Statement(error)) if !is_broken_off(error) => before.after_failed(statement.effect),
            Err(_) => before.after_broken_off(statement.effect),
        };
        match outcome {
            Ok(done) => {
                self.was_cancelled = false;
                if let Done::Changed(count) = done {
                    self.note(&changed(statement, count));
                }
                if self.timing {
                    self.note(&timing(elapsed));
                }
                Outcome::Done
            }
            Err(trouble) => {
                let outcome = self.trouble(trouble, Some(statement));
                // As it is now: a lost session has taken its transaction along.
                if self.transaction == Transaction::Doubtful && self.transaction != before {
                    self.tell_doubt();
                }
                outcome
            }
        }
    }

    pub(super) fn ask(&mut self, question: &Question) -> Outcome {
        let manner = self.manner();
        // Lists are for people, unless a program can read them.
        let format = if manner.format == Format::Arrow { Format::Table } else { manner.format };
        let manner = Manner { format, ..manner };
        let _running = self.interrupts.cancel(&manner.cancel);
        let runtime = Arc::clone(&self.runtime);
        let mut spinner = Spinner::start(runtime.now());
        let answer = self.tokio.block_on(async {
            let session = self.connection.session(&*runtime, &mut spinner, &manner.cancel).await?;
            let unless =
                || manner.cancel.is_cancelled().then_some(Err(Error::Cancelled { may_have_run: true }));
            let asking = spinner.attend(&*runtime, catalog::ask(session, question), unless);
            match manner.timeout {
                None => asking.await,
                Some(after) => {
                    let overdue = Error::QueryTimeout { after, phase: Phase::Execute };
                    rt::within(&*runtime, after, asking).await.unwrap_or(Err(overdue))
                }
            }
        });
        drop(spinner);
        self.names_are_old = true;
        match answer {
            Ok(Ok(batches)) => match running::show(&manner, &batches[0].schema(), &batches) {
                Ok(()) => Outcome::Done,
                Err(error) => self.trouble(Trouble::Output(error), None),
            },
            Ok(Err(problem)) => self.fail(&problem),
            Err(error) => self.trouble(Trouble::Statement(error), None),
        }
    }

    /// Opens a session, if there is none.
    pub(super) fn connect(&mut self) -> Result<(), Error> {
        let cancel = CancelHandle::new();
        let _running = self.interrupts.cancel(&cancel);
        let runtime = Arc::clone(&self.runtime);
        let mut spinner = Spinner::start(runtime.now());
        self.tokio
            .block_on(async { self.connection.session(&*runtime, &mut spinner, &cancel).await.map(drop) })
    }

    fn manner(&self) -> Manner {
        let width = if self.out.is_file() { None } else { terminal::width() };
        Manner {
            out: self.out.clone(),
            format: self.format,
            width,
            timeout: self.timeout,
            cancel: CancelHandle::new(),
        }
    }
}

/// Whether the server may have been at work when nobody waited for it any more.
fn is_broken_off(error: &Error) -> bool {
    matches!(error, Error::Cancelled { .. } | Error::QueryTimeout { .. }) && !error.is_not_executed()
}

fn changed(statement: &Statement, count: Option<u64>) -> String {
    match count {
        Some(1) if statement.changes_rows => "1 row changed".to_owned(),
        Some(count) if statement.changes_rows => format!("{count} rows changed"),
        _ => "done".to_owned(),
    }
}
