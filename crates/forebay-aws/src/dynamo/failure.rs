//! Errors of DynamoDB and the SDK, by what the caller does next.

use std::error::Error;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{BuildError, ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::error::{ConditionalCheckFailedException, TransactionCanceledException};
use forebay::Chain;
use forebay_fleet::{Cancelled, Item, TableError};

use super::attributes::{self, Attributes};

/// Why a call on `table` failed, except for failed conditions.
pub(crate) fn failure<E>(error: &SdkError<E, HttpResponse>, table: &str) -> TableError
where
    E: ProvideErrorMetadata + Error + 'static,
{
    let response = match error {
        SdkError::ServiceError(response) => response,
        SdkError::ConstructionFailure(_) => return TableError::Invalid(Chain(error).to_string()),
        // Without credentials, the request was never sent.
        _ if lacks_credentials(error) => return TableError::Credentials(Chain(error).to_string()),
        _ => return TableError::Unknown(Chain(error).to_string().into()),
    };
    let (code, status) =
        (response.err().code().unwrap_or("an error without a code"), response.raw().status());
    let text = match response.err().message() {
        Some(message) => format!("{code}: {message}"),
        None => code.to_owned(),
    };
    match code {
        "TransactionConflictException" | "ReplicatedWriteConflictException" => TableError::Conflict,
        "ProvisionedThroughputExceededException"
        | "RequestLimitExceeded"
        | "Throttling"
        | "ThrottlingException" => TableError::Throttled,
        "AccessDeniedException" | "NotAuthorized" | "OptInRequired" => TableError::Denied(text),
        "ExpiredTokenException"
        | "IncompleteSignatureException"
        | "InvalidClientTokenId"
        | "InvalidSignatureException"
        | "MissingAuthenticationTokenException"
        | "UnrecognizedClientException" => TableError::Credentials(text),
        "ResourceNotFoundException" => TableError::NoTable(table.to_owned()),
        // A request with the same token is in progress: its result is not known yet.
        "TransactionInProgressException" => TableError::Unknown(text.into()),
        _ if status.is_client_error() && !matches!(status.as_u16(), 408 | 429) => TableError::Invalid(text),
        _ if status.as_u16() == 429 => TableError::Throttled,
        _ => TableError::Unknown(text.into()),
    }
}

/// A condition does not hold.
pub(crate) fn condition(failed: &ConditionalCheckFailedException) -> TableError {
    TableError::ConditionFailed(found(failed.item.as_ref()))
}

/// A transaction was cancelled.
pub(crate) fn cancelled(cancelled: &TransactionCanceledException) -> TableError {
    let reasons = cancelled.cancellation_reasons();
    let reason = |reason: &aws_sdk_dynamodb::types::CancellationReason| match reason.code() {
        None | Some("None") => Ok(Cancelled::Fine),
        Some("ConditionalCheckFailed") => Ok(Cancelled::ConditionFailed(found(reason.item.as_ref()))),
        Some("TransactionConflict") => Ok(Cancelled::Conflict),
        Some("ProvisionedThroughputExceeded" | "ThrottlingError") => Ok(Cancelled::Throttled),
        Some(code) => {
            Err(TableError::Invalid(format!("{code}: {}", reason.message().unwrap_or("no reason given"))))
        }
    };
    match reasons.iter().map(reason).collect::<Result<Vec<_>, _>>() {
        Ok(reasons) if reasons.is_empty() => {
            TableError::Unknown("a transaction was cancelled without reasons".into())
        }
        Ok(reasons) => TableError::Cancelled(reasons),
        Err(invalid) => invalid,
    }
}

/// The SDK's builder refuses a request. That would be a bug.
pub(crate) fn not_built(error: BuildError) -> TableError {
    TableError::Invalid(error.to_string())
}

fn found(item: Option<&Attributes>) -> Option<Box<Item>> {
    item.cloned().and_then(attributes::item).map(Box::new)
}

fn lacks_credentials(error: &(dyn Error + 'static)) -> bool {
    causes(error).any(|cause| {
        matches!(
            cause.downcast_ref(),
            Some(CredentialsError::CredentialsNotLoaded(_) | CredentialsError::InvalidConfiguration(_))
        )
    })
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
}
