//! Whether a statement may run now.

use super::ModelServer;
use super::World;
use super::error::{Outcome, aborted, error, routine};
use super::prepared::Prepared;
use super::transaction::Transaction;
use crate::session::model::statement::Op;

impl ModelServer {
    pub(super) fn admit(&mut self, op: &Op) -> Outcome {
        if self.transaction == Transaction::Failed && !self.is_exit(op) {
            return Err(aborted());
        }
        self.meet_conflict()?;
        self.begin();
        if self.dsql && op.is_refused() {
            return Err(error("0A000", format!("the gateway let {op:?} pass")));
        }
        if *op == Op::Wrong {
            return Err(error("42703", "column \"wrong\" does not exist"));
        }
        Ok(())
    }

    pub(super) fn revalidate(&mut self, prepared: &Prepared, world: &World) -> Outcome {
        if self.transaction == Transaction::Failed && !self.is_exit(&prepared.op) && prepared.op != Op::Empty
        {
            return Err(aborted());
        }
        self.meet_conflict()?;
        self.begin();
        if prepared.op == Op::Table && prepared.column_type != world.column_type && !prepared.free {
            return Err(routine(
                error("0A000", "cached plan must not change result type"),
                "RevalidateCachedQuery",
            ));
        }
        Ok(())
    }

    fn meet_conflict(&mut self) -> Outcome {
        // In a block, only what comes first meets one.
        let is_first = std::mem::take(&mut self.begun);
        if self.is_in_block() && !is_first || self.conflicts == 0 {
            return Ok(());
        }
        if self.spared > 0 {
            self.spared -= 1;
            return Ok(());
        }
        self.conflicts -= 1;
        Err(error("40001", "schema has been updated by another transaction, please retry: (OC001)"))
    }

    /// Whether a failed transaction lets it pass.
    pub(super) fn is_exit(&self, op: &Op) -> bool {
        op.is_exit() && !(self.gone && matches!(op, Op::RollbackTo(_)))
    }
}
