//! The errors of the model.

use crate::protocol::ServerError;

pub(super) type Outcome = Result<(), Box<ServerError>>;

pub(super) fn error(
    sqlstate: &'static str,
    message: impl Into<std::borrow::Cow<'static, str>>,
) -> Box<ServerError> {
    Box::new(ServerError::error(sqlstate, message))
}

pub(super) fn aborted() -> Box<ServerError> {
    error("25P02", "current transaction is aborted, commands ignored until end of transaction block")
}

pub(super) fn no_portal(name: &[u8]) -> Box<ServerError> {
    error("34000", format!("portal \"{}\" does not exist", String::from_utf8_lossy(name)))
}

pub(super) fn unknown(name: &str) -> Box<ServerError> {
    error("42704", format!("unrecognized configuration parameter \"{name}\""))
}

pub(super) fn routine(mut error: Box<ServerError>, routine: &'static str) -> Box<ServerError> {
    error.routine = Some(routine.into());
    error
}
