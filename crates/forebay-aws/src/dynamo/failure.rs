//! What DynamoDB and the SDK say went wrong, by what the caller does next.

use std::error::Error;

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{BuildError, ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::types::error::{ConditionalCheckFailedException, TransactionCanceledException};
use forebay_fleet::{Cancelled, Item, TableError};

use super::attributes::{self, Attributes};

/// Why a call on `table` failed, but for failed conditions.
pub(crate) fn failure<E>(error: &SdkError<E, HttpResponse>, table: &str) -> TableError
where
    E: ProvideErrorMetadata + Error + 'static,
{
    let told = match error {
        SdkError::ServiceError(told) => told,
        SdkError::ConstructionFailure(_) => return TableError::Invalid(story(error)),
        // There was nothing to sign it with, so it was never sent.
        _ if lacks_credentials(error) => return TableError::Credentials(story(error)),
        _ => return TableError::Unknown(story(error).into()),
    };
    let (code, status) = (told.err().code().unwrap_or("an error without a code"), told.raw().status());
    let said = match told.err().message() {
        Some(message) => format!("{code}: {message}"),
        None => code.to_owned(),
    };
    match code {
        "TransactionConflictException" | "ReplicatedWriteConflictException" => TableError::Conflict,
        "ProvisionedThroughputExceededException"
        | "RequestLimitExceeded"
        | "Throttling"
        | "ThrottlingException" => TableError::Throttled,
        "AccessDeniedException" | "NotAuthorized" | "OptInRequired" => TableError::Denied(said),
        "ExpiredTokenException"
        | "IncompleteSignatureException"
        | "InvalidClientTokenId"
        | "InvalidSignatureException"
        | "MissingAuthenticationTokenException"
        | "UnrecognizedClientException" => TableError::Credentials(said),
        "ResourceNotFoundException" => TableError::NoTable(table.to_owned()),
        // The same token is at work: what will come of it is not known yet.
        "TransactionInProgressException" => TableError::Unknown(said.into()),
        _ if status.is_client_error() && !matches!(status.as_u16(), 408 | 429) => TableError::Invalid(said),
        _ if status.as_u16() == 429 => TableError::Throttled,
        _ => TableError::Unknown(said.into()),
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

/// A request that the SDK's own builder refuses: a bug, and not one to panic over.
pub(crate) fn unsaid(error: BuildError) -> TableError {
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

/// An error with its causes: the SDK's own words for one are "dispatch failure".
fn story(error: &(dyn Error + 'static)) -> String {
    let mut told: Vec<String> = Vec::new();
    for cause in causes(error) {
        let words = cause.to_string();
        // Some repeat what is below them.
        if told.last().is_none_or(|above| !above.ends_with(&words)) {
            told.push(words);
        }
    }
    told.join(": ")
}

fn causes<'a>(error: &'a (dyn Error + 'static)) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |error: &&'a (dyn Error + 'static)| (*error).source())
}
