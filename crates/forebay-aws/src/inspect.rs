//! For diagnosis: whose credentials these are, without their secrets.

use std::time::{Duration, UNIX_EPOCH};

use aws_config::Region;
use aws_config::retry::RetryConfig;
use aws_credential_types::Credentials;
use aws_sdk_sts::Client;
use aws_sdk_sts::config::Builder;
use aws_sdk_sts::error::ProvideErrorMetadata;
use forebay::Chain;
use forebay_dsql::TokenError;

use crate::sdk;
use crate::signer::SdkSigner;

/// What may be shown of credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct CredentialsInfo {
    /// Where the SDK found them, in its words: `EnvironmentVariable`, `ProfileProvider` and so on.
    pub provider: String,
    /// The last four characters of the id of the access key.
    pub key_ends_with: String,
    /// Whether they have a session token, as those of a role do.
    pub temporary: bool,
    /// The account, if the provider knows it.
    pub account: Option<String>,
    /// When they expire, as the time since 1970-01-01 00:00 UTC.
    pub expires: Option<Duration>,
}

impl CredentialsInfo {
    fn of(credentials: &Credentials) -> Self {
        let id = credentials.access_key_id();
        let start = id.char_indices().rev().nth(3).map_or(0, |(index, _)| index);
        Self {
            provider: provider_name(&format!("{credentials:?}")),
            // The whole of a short id would be all of it.
            key_ends_with: if start >= 4 { id[start..].to_owned() } else { String::new() },
            temporary: credentials.session_token().is_some(),
            account: credentials.account_id().map(|account| account.as_str().to_owned()),
            expires: credentials.expiry().map(|at| at.duration_since(UNIX_EPOCH).unwrap_or_default()),
        }
    }
}

/// The provider in the debug output of credentials. The SDK shows it nowhere else.
fn provider_name(debug: &str) -> String {
    let name = debug.split("provider_name: \"").nth(1).and_then(|rest| rest.split('"').next());
    name.unwrap_or("unknown").to_owned()
}

/// Who AWS says the caller is.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Caller {
    /// The account.
    pub account: String,
    /// The name of the user or the role.
    pub arn: String,
}

/// Why AWS does not say who the caller is.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CallerError {
    /// It does not accept the credentials, or the date of the signature.
    #[error("{0}")]
    Refused(String),
    /// It does not answer. Nothing is known about the credentials.
    #[error("{0}")]
    Unavailable(String),
}

impl SdkSigner {
    /// What may be shown of the credentials. It loads them if necessary.
    ///
    /// # Errors
    /// If there are no credentials.
    ///
    /// # Cancel safety
    /// Cancel safe: the next caller continues the load.
    pub async fn credentials_info(&self) -> Result<CredentialsInfo, TokenError> {
        Ok(CredentialsInfo::of(&self.credentials().await?))
    }

    /// Asks AWS (STS, `GetCallerIdentity`) who the caller is. No permission is needed for it.
    ///
    /// # Errors
    /// If AWS does not accept the credentials, or does not answer.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future leaves nothing behind.
    pub async fn caller(&self, region: &str) -> Result<Caller, CallerError> {
        let sdk = self.sdk();
        let mut config = Builder::from(sdk)
            .region(Region::new(region.to_owned()))
            // One answer is enough for a diagnosis, and it must come soon.
            .retry_config(RetryConfig::disabled());
        if sdk.behavior_version().is_none() {
            config.set_behavior_version(Some(sdk::behavior()));
        }
        if sdk.http_client().is_none() {
            config.set_http_client(Some(sdk::https()));
        }
        let answer = Client::from_conf(config.build()).get_caller_identity().send().await;
        let answer = answer.map_err(|error| match error.code() {
            Some(code) => CallerError::Refused(match error.message() {
                Some(message) => format!("{code}: {message}"),
                None => code.to_owned(),
            }),
            None => CallerError::Unavailable(Chain(&error).to_string()),
        })?;
        let known = |text: Option<String>| text.unwrap_or_else(|| "unknown".to_owned());
        Ok(Caller { account: known(answer.account), arn: known(answer.arn) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_left_out() {
        let credentials = Credentials::new("AKIDEXAMPLE", "hunter2", Some("hunter3".into()), None, "Env");
        let info = CredentialsInfo::of(&credentials);
        assert_eq!((info.provider.as_str(), info.key_ends_with.as_str()), ("Env", "MPLE"));
        assert!(info.temporary && info.expires.is_none());
        assert!(!format!("{info:?}").contains("hunter"));
        let short = CredentialsInfo::of(&Credentials::new("hunter2", "s", None, None, "Env"));
        assert_eq!(short.key_ends_with, "");
    }
}
