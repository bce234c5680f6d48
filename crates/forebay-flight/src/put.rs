//! Statements that are sent with DoPut: updates, with and without rows of parameters.

use std::sync::Arc;

use arrow_array::RecordBatch;
use arrow_flight::encode::FlightDataEncoderBuilder;
use arrow_flight::sql::{CommandStatementUpdate, DoPutUpdateResult, ProstMessageExt};
use arrow_flight::{FlightData, FlightDescriptor};
use bytes::Bytes;
use futures_util::{TryStreamExt, stream};
use prost::Message;
use tonic::Status;

use crate::error::{Error, Phase, Result};
use crate::fetch::close_if_answered;
use crate::ladder::Statement;
use crate::limits::Limits;
use crate::link::{TooLarge, Turn};
use crate::result::UpdateResult;

/// The command that runs `sql` for what it changes.
pub(crate) fn statement(sql: &str) -> Bytes {
    CommandStatementUpdate { query: sql.to_owned(), transaction_id: None }.as_any().encode_to_vec().into()
}

/// Runs a command that changes something, once for each row of `params` if there are any.
///
/// # Cancel safety
/// Dropping it cancels the statement.
pub(crate) async fn update(
    turn: Turn,
    command: Bytes,
    params: Option<RecordBatch>,
    limits: &Limits,
) -> Result<UpdateResult> {
    let answer = put(turn, command, params, limits).await?;
    let answer = answer.ok_or_else(|| Error::protocol("an update without a result"))?;
    updated(&answer)
}

pub(crate) fn updated(answer: &Bytes) -> Result<UpdateResult> {
    let result = DoPutUpdateResult::decode(answer.clone()).map_err(Error::protocol)?;
    Ok(UpdateResult::new(result.record_count))
}

/// Sends a command and its parameters, and returns the first answer.
pub(crate) async fn put(
    turn: Turn,
    command: Bytes,
    params: Option<RecordBatch>,
    limits: &Limits,
) -> Result<Option<Bytes>> {
    limits.check(Phase::Execute)?;
    let link = Arc::clone(turn.link());
    let statement = Statement::begin(turn);
    let answer = limits.run(Phase::Execute, async {
        let data = encode(command, params, link.largest()).await?;
        let judge = |status: Status| link.judge_within(&status, limits, Phase::Execute);
        link.put(stream::iter(data), limits.remaining()).await.map_err(judge)
    });
    match answer.await {
        Ok(answer) => {
            statement.over();
            Ok(answer)
        }
        Err(error) => {
            close_if_answered(&mut Some(statement), &error);
            Err(error)
        }
    }
}

async fn encode(command: Bytes, params: Option<RecordBatch>, largest: usize) -> Result<Vec<FlightData>> {
    let descriptor = FlightDescriptor::new_cmd(command);
    let data = match params {
        Some(params) => encode_params(descriptor, params).await?,
        None => vec![FlightData::new().with_descriptor(descriptor)],
    };
    data.iter()
        .try_for_each(|message| TooLarge::check(message, largest))
        .map_err(|error| Error::config(error.to_string()))?;
    Ok(data)
}

async fn encode_params(descriptor: FlightDescriptor, params: RecordBatch) -> Result<Vec<FlightData>> {
    FlightDataEncoderBuilder::new()
        .with_flight_descriptor(Some(descriptor))
        .with_schema(params.schema())
        .build(stream::iter([Ok(params)]))
        .try_collect()
        .await
        .map_err(|error| Error::config(format!("the parameters cannot be sent: {error}")))
}
