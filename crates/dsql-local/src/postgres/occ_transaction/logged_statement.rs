//! A statement that has run and may have to run again.

use std::sync::Arc;

use bytes::Bytes;

use crate::clock::Moment;
use crate::engine::{Call, Description, Extent};
use crate::statement::Statement;
use crate::wire::Format;

#[derive(Clone, Debug)]
pub(super) struct LoggedStatement {
    statement: Statement,
    description: Option<Arc<Description>>,
    values: Vec<Option<Bytes>>,
    formats: Vec<Format>,
    input: Option<Bytes>,
}

impl LoggedStatement {
    pub(super) fn of(call: &Call<'_>) -> Self {
        Self {
            statement: call.statement.clone(),
            description: call.description.cloned(),
            values: call.values.to_vec(),
            formats: call.formats.to_vec(),
            input: call.input.cloned(),
        }
    }

    pub(super) fn call(&self) -> Call<'_> {
        Call {
            statement: &self.statement,
            description: self.description.as_ref(),
            values: &self.values,
            formats: &self.formats,
            results: &[],
            input: self.input.as_ref(),
            extent: Extent::Open,
            deadline: Moment::MAX,
        }
    }
}
