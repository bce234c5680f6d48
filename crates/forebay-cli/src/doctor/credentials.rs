//! The credentials of this process, and whose they are.

use std::net::IpAddr;
use std::time::Duration;

use forebay::duration::show;
use forebay::rt::Runtime as _;
use forebay_aws::{CallerError, CredentialsInfo};
use forebay_dsql::{Options, TokenError};

use super::check::Check;
use super::clock::Reading;
use super::context::Context;
use super::fault;
use super::finding::Finding;
use super::moment;

/// Roles replace their credentials five minutes before they expire.
const SOON: Duration = Duration::from_secs(5 * 60);

pub(super) async fn run(context: &mut Context<'_>) -> Vec<Finding> {
    let signer = context.signer().await;
    let info = match context.bounded(1, signer.credentials_info()).await {
        Some(Ok(info)) => info,
        Some(Err(error)) => return vec![refused(&error)],
        None => {
            let what = "the credentials do not load in time";
            return vec![Finding::failure(fault::UNAVAILABLE_CREDENTIALS, what)];
        }
    };
    let mut findings = vec![loaded(&info, context.runtime.wall())];
    let Some(options) = context.options().cloned() else { return findings };
    if let Some(wrong) = context.configuration.wrong(|name| ["REGION", "AWS_REGION"].contains(&name)) {
        let why = format!("whose they are is not asked without a region: {}", wrong.what);
        findings.push(Finding::skipped(Check::Credentials, why));
        return findings;
    }
    if is_local(&options) && !names_sts(context) {
        let why = "whose they are is asked of AWS only for a cluster on AWS";
        findings.push(Finding::skipped(Check::Credentials, why));
        return findings;
    }
    let caller = context.bounded(1, signer.caller(options.region())).await;
    findings.push(match caller {
        Some(Ok(caller)) => {
            let what = format!("AWS knows them: {} in account {}", caller.arn, caller.account);
            Finding::ok(Check::Credentials, what)
        }
        Some(Err(CallerError::Refused(words))) => {
            if let Some(theirs) = moment::in_refused_signature(&words) {
                context.readings.push(Reading::new("AWS STS", theirs, context.runtime.wall()));
            }
            Finding::failure(fault::REFUSED_CREDENTIALS, format!("AWS refuses them: {words}"))
        }
        Some(Err(error)) => {
            Finding::skipped(Check::Credentials, format!("whose they are is not known: {error}"))
        }
        None => Finding::skipped(
            Check::Credentials,
            "whose they are is not known: AWS STS does not answer in time",
        ),
    });
    findings
}

fn loaded(info: &CredentialsInfo, now: Duration) -> Finding {
    let mut what = format!("loaded from {}", source(&info.provider));
    if !info.key_ends_with.is_empty() {
        what += &format!(", key ...{}", info.key_ends_with);
    }
    if let Some(account) = &info.account {
        what += &format!(", account {account}");
    }
    let Some(expires) = info.expires else {
        // A session token ends, but only its source knows when.
        let end = if info.temporary { "they expire, but the source does not say when" } else { "no expiry" };
        return Finding::ok(Check::Credentials, format!("{what}; {end}"));
    };
    let at = moment::shown_since_1970(expires);
    match expires.checked_sub(now) {
        None => {
            let what = format!("{what}; they expired at {at}");
            Finding::failure(fault::EXPIRED_CREDENTIALS, what)
        }
        Some(left) if left < SOON => {
            let what = format!("{what}; they expire at {at}, and should have been renewed");
            Finding::warning(fault::EXPIRED_CREDENTIALS, what)
        }
        Some(left) => {
            let left = show(Duration::from_secs(left.as_secs()));
            Finding::ok(Check::Credentials, format!("{what}; they expire at {at}, in {left}"))
        }
    }
}

/// The SDK's name of a provider, for people.
fn source(provider: &str) -> &str {
    match provider {
        "EnvironmentVariable" => "variables (AWS_ACCESS_KEY_ID)",
        "ProfileProvider" | "SharedCredentialsProfile" => "a profile",
        "WebIdentityToken" => "a web identity",
        "EcsContainer" => "the role of the container",
        "IMDSv2" | "Imds" => "the role of the instance",
        other => other,
    }
}

fn refused(error: &TokenError) -> Finding {
    let fault = match error {
        TokenError::Credentials(_) => fault::NO_CREDENTIALS,
        TokenError::CredentialsExpired { .. } => fault::EXPIRED_CREDENTIALS,
        _ => fault::UNAVAILABLE_CREDENTIALS,
    };
    Finding::failure(fault, words(error))
}

/// Why there is no token. A service tries again, and says so; the doctor does not.
pub(super) fn words(error: &TokenError) -> String {
    match error {
        TokenError::Credentials(cause) => format!("there are no credentials: {cause}"),
        TokenError::CredentialsExpired { ago } => format!("the credentials expired {} ago", show(*ago)),
        TokenError::Unavailable(cause) => format!("the credentials do not load: {cause}"),
        TokenError::TimedOut { waited } => format!("the credentials do not load within {}", show(*waited)),
        error => error.to_string(),
    }
}

/// Whether the cluster is an emulator: AWS does not know its keys.
fn is_local(options: &Options) -> bool {
    let address = options.address();
    let is_loopback = address.parse::<IpAddr>().is_ok_and(|address| address.is_loopback());
    is_loopback || address == "localhost" || !options.host().ends_with(".on.aws")
}

fn names_sts(context: &Context<'_>) -> bool {
    ["AWS_ENDPOINT_URL_STS", "AWS_ENDPOINT_URL"]
        .iter()
        .any(|name| context.variables.get(*name).is_some_and(|url| !url.is_empty()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn emulators_are_told_from_clusters() {
        let host = "abc.dsql.us-east-1.on.aws";
        let built = |host: &str| Options::builder(host).region("us-east-1");
        assert!(!is_local(&built(host).build().unwrap()));
        assert!(is_local(&built(host).address("127.0.0.1").build().unwrap()));
        assert!(is_local(&built(host).address("::1").build().unwrap()));
        assert!(is_local(&built("localhost").build().unwrap()));
        assert!(!is_local(&built(host).address("10.0.0.1").build().unwrap()));
    }
    #[test]
    fn nothing_is_tried_again() {
        let second = Duration::from_secs(1);
        for (error, fault) in [
            (TokenError::credentials("no provider"), fault::NO_CREDENTIALS),
            (TokenError::unavailable("no answer"), fault::UNAVAILABLE_CREDENTIALS),
            (TokenError::CredentialsExpired { ago: second }, fault::EXPIRED_CREDENTIALS),
            (TokenError::TimedOut { waited: second }, fault::UNAVAILABLE_CREDENTIALS),
        ] {
            let finding = refused(&error);
            assert_eq!(finding.fault, Some(fault));
            assert!(finding.what.contains("credentials") && !finding.what.contains("again"), "{finding:?}");
        }
    }
}
