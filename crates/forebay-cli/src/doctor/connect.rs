//! One session with the cluster, as a service opens it.

use std::error::Error as StdError;
use std::sync::Arc;

use forebay::rt::Runtime as _;
use forebay::{Connect as _, ConnectionMonitor, OpenError};
use forebay_dsql::{
    Action, Auth, ConnectorParts, Driver as _, Error, ErrorKind, Options, Postgres, Throttle, TokenCache,
    TokenError,
};
use tokio_postgres::SimpleQueryMessage;
use tokio_postgres::error::DbError;

use super::check::Check;
use super::clock::Reading;
use super::context::Context;
use super::fault::{self, Fault};
use super::finding::Finding;
use super::{credentials, moment, tcp};

pub(super) async fn run(context: &mut Context<'_>) -> Vec<Finding> {
    let Some(options) = context.options().cloned() else { return Vec::new() };
    let tokens = TokenCache::new(context.signer().await, context.runtime.clone(), options.service());
    let parts = ConnectorParts::new(options.clone(), tokens, Arc::new(context.runtime.clone()));
    let connector = match Postgres::new(parts) {
        Ok(connector) => connector,
        Err(error) => {
            return vec![Finding::failure(fault::INVALID_SETTING, error.to_string()).under(Check::Connect)];
        }
    };
    let began = context.runtime.now();
    let opened = context.bounded(1, connector.open(ConnectionMonitor::unattached())).await;
    let took = context.runtime.now().since(began);
    let session = match opened {
        Some(Ok(session)) => session,
        Some(Err(error)) => {
            let refusal = Refusal::of(&error);
            let theirs = refusal.hint.as_deref().and_then(moment::in_refused_signature);
            if let Some(theirs) = theirs {
                context.readings.push(Reading::new("the cluster", theirs, context.runtime.wall()));
            }
            return vec![refusal.finding(&options)];
        }
        None => {
            let what = format!("the cluster does not let anybody in within {}", tcp::rounded(took));
            return vec![Finding::failure(fault::SILENT_ADDRESS, what).under(Check::Connect)];
        }
    };
    let mut findings = vec![Finding::ok(
        Check::Connect,
        format!("the cluster lets {} in ({})", options.user(), tcp::millis(took)),
    )];
    let asked = context.runtime.wall();
    let answer = context.bounded(2, session.simple_query("SELECT now()")).await;
    // The server looks at its clock about halfway.
    let ours = (asked + context.runtime.wall()) / 2;
    match answer {
        Some(Ok(messages)) => {
            let text = messages.iter().find_map(|message| match message {
                SimpleQueryMessage::Row(row) => row.get(0),
                _ => None,
            });
            if let Some(theirs) = text.and_then(moment::of_sql) {
                context.readings.push(Reading::new("the cluster", theirs, ours));
            }
        }
        Some(Err(error)) => {
            let what = format!("a statement failed: {}", Error::from(error));
            findings.push(Finding::failure(fault::FAILED_CONNECT, what));
        }
        None => {
            let what = "the cluster does not answer a statement in time";
            findings.push(Finding::failure(fault::SILENT_ADDRESS, what).under(Check::Connect));
        }
    }
    // A server that does not say good-bye is not waited for.
    let _ = context.bounded(1, connector.close(session)).await;
    findings
}

/// Why the cluster does not let us in.
#[derive(Debug)]
struct Refusal {
    kind: ErrorKind,
    /// The whole error, without the remedy.
    words: String,
    code: Option<String>,
    hint: Option<String>,
}

impl Refusal {
    fn of(error: &OpenError) -> Self {
        let said = chain(error.get_ref()).find_map(|cause| cause.downcast_ref::<DbError>());
        let kind = chain(error.get_ref()).find_map(|cause| cause.downcast_ref::<Error>()).map(Error::kind);
        Self {
            kind: kind.unwrap_or_else(|| ErrorKind::of(error)),
            words: match (said, chain(error.get_ref()).find_map(|cause| cause.downcast_ref::<TokenError>())) {
                (Some(said), _) => said.message().to_owned(),
                (None, Some(error)) => credentials::words(error),
                (None, None) => error.to_string(),
            },
            code: said.map(|said| said.code().code().to_owned()),
            hint: said.and_then(DbError::hint).map(str::to_owned),
        }
    }

    fn fault(&self) -> &'static Fault {
        let code = self.code.as_deref();
        match self.kind {
            ErrorKind::Throttled(Throttle::TooManyConnections) => fault::TOO_MANY_CONNECTIONS,
            ErrorKind::Throttled(Throttle::RateExceeded) => fault::RATE_EXCEEDED,
            ErrorKind::Throttled(_) => fault::WAKING,
            _ if self.words.contains("role \"") && self.words.contains("does not exist") => {
                fault::UNKNOWN_ROLE
            }
            ErrorKind::Auth(Auth::SignatureExpired) => fault::REFUSED_SIGNATURE,
            ErrorKind::Auth(_)
                if self.hint.as_deref().is_some_and(|hint| hint.contains("not yet current")) =>
            {
                fault::REFUSED_SIGNATURE
            }
            ErrorKind::Auth(Auth::NoToken) => fault::NO_TOKEN,
            ErrorKind::Auth(_) => fault::ACCESS_DENIED,
            _ if code == Some("3D000") => fault::UNKNOWN_DATABASE,
            _ => fault::FAILED_CONNECT,
        }
    }

    fn finding(&self, options: &Options) -> Finding {
        let fault = self.fault();
        let code = self.code.as_ref().map(|code| format!(" (SQLSTATE {code})")).unwrap_or_default();
        let mut finding =
            Finding::failure(fault, format!("the cluster says: {}{code}", self.words)).under(Check::Connect);
        if self.code.is_none() {
            finding.what = self.words.clone();
        }
        finding = finding.detail(format!("kind of error: {}", self.kind));
        if fault == fault::ACCESS_DENIED {
            let needs = match Action::of(options.user()) {
                Action::DbConnect => "dsql:DbConnect and an AWS IAM GRANT",
                Action::DbConnectAdmin => "dsql:DbConnectAdmin, and no AWS IAM GRANT",
            };
            finding = finding.detail(format!("role {} needs {needs}", options.user()));
        }
        finding.details(self.hint.iter().map(|hint| format!("hint: {hint}")))
    }
}

/// An error and its causes. Errors that have printed their content do not name it as their source.
fn chain<'a>(error: &'a (dyn StdError + 'static)) -> impl Iterator<Item = &'a (dyn StdError + 'static)> {
    std::iter::successors(Some(error), |&error| match error.downcast_ref::<Error>() {
        Some(ours) => Some(ours.get_ref() as &(dyn StdError + 'static)),
        None => error.source(),
    })
}
