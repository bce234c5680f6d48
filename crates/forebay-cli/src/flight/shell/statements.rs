//! Statements and listings: what goes to the server.

use std::io;
use std::sync::Arc;

use forebay::rt::{self, Runtime};
use forebay_flight::{CancelHandle, Error, Phase};

use super::{Outcome, Shell};
use crate::flight::catalog::{self, Listing};
use crate::flight::format::Format;
use crate::flight::out::terminal_width;
use crate::flight::progress::{Spinner, timing};
use crate::flight::running::{self, Done, RunError, RunOptions};
use crate::flight::statement::{Kind, Statement};

impl Shell {
    pub(super) fn statement(&mut self, statement: &Statement) -> Outcome {
        if statement.kind == Kind::Query
            && self.format == Format::Arrow
            && std::mem::replace(&mut self.has_written_arrow, true)
        {
            return self
                .fail("an Arrow stream holds one result, and this one has it already: use another --output");
        }
        let options = self.run_options();
        let _running = self.interrupts.cancel(&options.cancel);
        let runtime = Arc::clone(&self.runtime);
        let mut spinner = Spinner::start(runtime.now());
        let outcome = self.tokio.block_on(async {
            let session = self.connection.session(&*runtime, &mut spinner, &options.cancel).await?;
            running::run(session, statement, &options, &*runtime, &mut spinner).await
        });
        let elapsed = spinner.elapsed(runtime.now());
        drop(spinner);
        self.names_are_old |= statement.changes_names;
        let before = self.transaction;
        self.transaction = match &outcome {
            Ok(_) => before.after(statement.effect),
            // Nothing was sent, so that nothing has failed in the transaction.
            Err(RunError::Statement(Error::Config { .. })) => before,
            Err(RunError::Statement(error)) if !was_interrupted(error) => {
                before.after_failed(statement.effect)
            }
            Err(_) => before.after_interrupted(statement.effect),
        };
        match &outcome {
            Ok(_) => self.may_still_run = false,
            Err(RunError::Statement(error)) => self.may_still_run |= was_interrupted(error),
            Err(RunError::Output(_)) => self.may_still_run = true,
        }
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
            Err(error) => {
                let outcome = self.report(error, Some(statement));
                // A lost session has already ended its transaction.
                if self.transaction != before {
                    self.explain_transaction();
                }
                outcome
            }
        }
    }

    pub(super) fn list(&mut self, listing: &Listing) -> Outcome {
        let options = self.run_options();
        // A listing is a table for people, not a binary stream.
        let format = if options.format == Format::Arrow { Format::Table } else { options.format };
        let options = RunOptions { format, ..options };
        let _running = self.interrupts.cancel(&options.cancel);
        let runtime = Arc::clone(&self.runtime);
        let mut spinner = Spinner::start(runtime.now());
        let answer = self.tokio.block_on(async {
            let session = self.connection.session(&*runtime, &mut spinner, &options.cancel).await?;
            let unless =
                || options.cancel.is_cancelled().then_some(Err(Error::Cancelled { may_have_run: true }));
            let listing = spinner.wait_for(&*runtime, catalog::list(session, listing), unless);
            match options.timeout {
                None => listing.await,
                Some(after) => {
                    let overdue = Error::QueryTimeout { after, phase: Phase::Execute };
                    rt::within(&*runtime, after, listing).await.unwrap_or(Err(overdue))
                }
            }
        });
        drop(spinner);
        self.names_are_old = true;
        match answer {
            Ok(Ok(batches)) => match running::show(&options, &batches[0].schema(), &batches) {
                Ok(()) => Outcome::Done,
                Err(error) => self.report(RunError::Output(error), None),
            },
            Ok(Err(problem)) => self.fail(&problem),
            Err(error) => self.report(RunError::Statement(error), None),
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

    fn run_options(&self) -> RunOptions {
        let width = if self.out.is_file() { None } else { terminal_width(&io::stdout()) };
        RunOptions {
            out: self.out.clone(),
            format: self.format,
            width,
            timeout: self.timeout,
            cancel: CancelHandle::new(),
        }
    }
}

/// Whether the server may still have run the statement when the client gave up.
fn was_interrupted(error: &Error) -> bool {
    matches!(error, Error::Cancelled { .. } | Error::QueryTimeout { .. }) && !error.is_not_executed()
}

fn changed(statement: &Statement, count: Option<u64>) -> String {
    match count {
        Some(1) if statement.changes_rows => "1 row changed".to_owned(),
        Some(count) if statement.changes_rows => format!("{count} rows changed"),
        _ if statement.may_return_rows => {
            "done (rows, if any, are not shown; for a table function, write SELECT * FROM f(...))".to_owned()
        }
        _ => "done".to_owned(),
    }
}
