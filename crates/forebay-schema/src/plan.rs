//! What a run would do.

use crate::error::Error;
use crate::migrator::{Migrator, with};
use crate::sql::Statement;
use crate::steps::{Step, Work, steps};
use crate::version::Version;

/// The transactions that a run would consist of.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Plan {
    /// In their order. What a run records about itself is left out.
    pub transactions: Vec<PlannedTransaction>,
    /// A statement of an earlier run whose outcome is unknown: the run finds out first.
    pub in_flight: Option<String>,
    /// Files that would be recorded as applied, and not run.
    pub recorded: Vec<String>,
}

/// One transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct PlannedTransaction {
    /// The name of the file.
    pub file: String,
    /// The line of its first statement.
    pub line: usize,
    /// Settings of the file, then the statements.
    pub statements: Vec<String>,
    /// Whether the server goes on with a job in the background, which the run waits for.
    pub has_job: bool,
}

impl Migrator {
    /// What [`setup`](Self::setup) or [`update`](Self::update) would do now. Nothing is changed.
    ///
    /// # Errors
    /// Those that these would end with before they change anything.
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn plan(&self) -> Result<Plan, Error> {
        self.plan_from(None).await
    }

    /// What [`setup_from`](Self::setup_from) would do now, if a version is given. Nothing is changed.
    ///
    /// # Errors
    /// As [`plan`](Self::plan).
    ///
    /// # Cancel safety
    /// It only reads.
    pub async fn plan_from(&self, baseline: Option<&Version>) -> Result<Plan, Error> {
        let records = match baseline {
            Some(baseline) => self.records_from(baseline).await?,
            None => self.records_or_none().await?,
        };
        let recorded = self.declared(&records, baseline);
        let records = with(records, &recorded);
        let pending = self.pending(&records)?;
        self.tell_fixes(&self.preflight(&pending).await?);
        let recorded = recorded.into_iter().map(|record| record.file).collect();
        let mut plan = Plan { recorded, ..Plan::default() };
        for one in pending {
            plan.in_flight = plan.in_flight.or(one.record.in_flight.map(|it| it.statement));
            let transaction = |step: Step| PlannedTransaction {
                file: one.file.path().to_owned(),
                line: step.head().map_or(0, Statement::line),
                has_job: matches!(&step.work, Work::Ddl(statement) if statement.submits_job()),
                statements: step
                    .settings
                    .iter()
                    .cloned()
                    .chain(step.statements().iter().map(|statement| statement.text().to_owned()))
                    .collect(),
            };
            plan.transactions.extend(steps(one.file, one.record.done, self.fix).into_iter().map(transaction));
        }
        Ok(plan)
    }
}
