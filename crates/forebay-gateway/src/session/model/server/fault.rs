//! An error that comes from outside: in place of an answer, or between two requests.

use super::error::Outcome;
use super::transaction::Transaction;
use super::{ModelServer, World};
use crate::protocol::{ServerError, header};

/// An error that takes the place of what the server would say.
#[derive(Clone, Debug, PartialEq)]
pub(in crate::session::model) struct Fault {
    /// Behind so many frames of the answer.
    pub(in crate::session::model) at: usize,
    pub(in crate::session::model) error: Box<ServerError>,
    /// It ends a transaction block, too.
    pub(in crate::session::model) ends_block: bool,
}

impl ModelServer {
    /// Does something, unless a fault comes in between: then nothing of it is done, and only the frames before the fault are said.
    pub(super) fn guarded(&mut self, work: impl FnOnce(&mut Self) -> Outcome) -> Outcome {
        let Some(fault) = self.fault.clone() else { return work(self) };
        let before = self.clone();
        let outcome = work(self);
        let mut said = std::mem::take(&mut self.flushed);
        said.append(&mut self.out);
        let ends = ends_of_frames(&said);
        if fault.at >= ends.len() + usize::from(outcome.is_err()) {
            self.flushed = said;
            return outcome;
        }
        said.truncate(fault.at.checked_sub(1).map_or(0, |last| ends[last]));
        *self = before;
        (self.flushed, self.out) = (said, Vec::new());
        (self.fault, self.fault_came) = (None, Some(fault.ends_block));
        Err(fault.error)
    }

    /// What a client sees of a frame, without ParameterStatus, whenever that is flushed.
    pub(in crate::session::model) fn step(&mut self, frame: &[u8], world: &World) -> Vec<u8> {
        self.quiet = true;
        let mut seen = self.feed(frame, world);
        seen.append(&mut self.out);
        seen
    }

    /// As `step`, with an error in place of a frame of the answer. None if there is no place for it.
    pub(in crate::session::model) fn step_with_fault(
        &mut self,
        frame: &[u8],
        world: &World,
        fault: Fault,
    ) -> Option<Vec<u8>> {
        self.fault = Some(fault);
        let seen = self.step(frame, world);
        self.fault.take().is_none().then_some(seen)
    }

    /// An error between two frames of the client. None if the client does not wait for anything.
    pub(in crate::session::model) fn fault_now(&mut self, fault: Fault) -> Option<Vec<u8>> {
        let extended = match self.copy.take() {
            Some(copy) => copy.extended,
            None if self.unsynced && !self.skipping => true,
            None => return None,
        };
        self.quiet = true;
        self.fault_came = Some(fault.ends_block);
        self.fail(&fault.error, extended);
        let mut seen = std::mem::take(&mut self.flushed);
        seen.append(&mut self.out);
        Some(seen)
    }

    /// A fault has taken the backend, and with it the transaction block and the portals.
    pub(super) fn backend_is_gone(&mut self) {
        self.gone = self.transaction == Transaction::Failed;
        if self.gone {
            self.portals.clear();
            self.settings.roll_back();
        }
    }

    /// What the client did not see described, because of a fault, the next backend may describe in another way. Later the client cannot tell when
    /// it gets that one.
    pub(super) fn free_statements(&mut self) {
        for prepared in self.statements.values_mut() {
            prepared.free |= !prepared.described;
        }
    }
}

/// Where each of these frames ends.
fn ends_of_frames(bytes: &[u8]) -> Vec<usize> {
    let mut ends = Vec::new();
    let mut at = 0;
    while let Ok(Some((_, length))) = header(&bytes[at..]) {
        at += length;
        ends.push(at);
    }
    ends
}
