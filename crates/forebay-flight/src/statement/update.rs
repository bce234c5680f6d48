//! Statements sent with `DoPut`: updates, with and without rows of parameters.

use std::sync::Arc;

use arrow_flight::sql::{CommandStatementUpdate, DoPutUpdateResult, ProstMessageExt};
use arrow_flight::{FlightData, FlightDescriptor};
use bytes::Bytes;
use futures_util::{TryStreamExt, stream};
use prost::Message;

use super::cancellation::RunningStatement;
use super::limits::Limits;
use super::options::QueryOptions;
use super::result::UpdateResult;
use crate::connection::{StatementPermit, TooLarge};
use crate::error::{Error, Phase, Result};

/// The command that runs `sql` as an update.
pub(crate) fn update_command(sql: &str, transaction_id: Option<Bytes>) -> Bytes {
    CommandStatementUpdate { query: sql.to_owned(), transaction_id }.as_any().encode_to_vec().into()
}

/// Runs an update, once for each row of the parameters if there are any.
///
/// # Cancel safety
/// Dropping it cancels the statement.
pub(crate) async fn run_update(
    permit: StatementPermit,
    command: Bytes,
    options: &QueryOptions,
    limits: &Limits,
) -> Result<UpdateResult> {
    decode_result(send_params(permit, RunningStatement::begin, command, options, limits).await?)
}

pub(super) fn decode_result(answer: Option<Bytes>) -> Result<UpdateResult> {
    let answer = answer.ok_or_else(|| Error::protocol("an update without a result"))?;
    let result = DoPutUpdateResult::decode(answer).map_err(Error::protocol)?;
    Ok(UpdateResult::new(result.record_count))
}

/// Sends a command and its parameters, and returns the first answer.
///
/// # Cancel safety
/// Dropping it cancels the statement.
pub(super) async fn send_params(
    permit: StatementPermit,
    begin: fn(StatementPermit) -> RunningStatement,
    command: Bytes,
    options: &QueryOptions,
    limits: &Limits,
) -> Result<Option<Bytes>> {
    limits.check(Phase::Execute)?;
    let connection = Arc::clone(permit.connection());
    let statement = begin(permit);
    let answer = limits.run(Phase::Execute, async {
        let data = encode(command, options, connection.max_message_size()).await?;
        let answer = connection.put(stream::iter(data), limits.remaining()).await;
        answer.map_err(|status| connection.classify_within(&status, limits, Phase::Execute))
    });
    let answer = answer.await;
    statement.end(&answer);
    answer
}

async fn encode(command: Bytes, options: &QueryOptions, max_size: usize) -> Result<Vec<FlightData>> {
    let descriptor = FlightDescriptor::new_cmd(command);
    let data = match &options.params {
        Some(params) => options
            .encoder()
            .with_flight_descriptor(Some(descriptor))
            .with_schema(params.schema())
            .build(stream::iter([Ok(params.clone())]))
            .try_collect()
            .await
            .map_err(|error| Error::config(format!("the parameters cannot be sent: {error}")))?,
        None => vec![FlightData::new().with_descriptor(descriptor)],
    };
    data.iter()
        .try_for_each(|message| TooLarge::check(message, max_size))
        .map_err(|error| Error::config(error.to_string()))?;
    Ok(data)
}
