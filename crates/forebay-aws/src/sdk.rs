//! The SDK, set up for this process.

use aws_config::{BehaviorVersion, ConfigLoader};
use aws_smithy_http_client::tls::Provider;
use aws_smithy_http_client::tls::rustls_provider::CryptoMode;
use aws_smithy_runtime_api::client::http::SharedHttpClient;

/// The SDK's configuration for this process.
pub(crate) fn loader() -> ConfigLoader {
    aws_config::defaults(behavior()).http_client(https())
}

/// The SDK's defaults as of this date. A later date is a deliberate change.
pub(crate) fn behavior() -> BehaviorVersion {
    BehaviorVersion::v2026_01_12()
}

/// TLS with rustls and ring. The SDK's default would add a second cryptographic library.
pub(crate) fn https() -> SharedHttpClient {
    let rustls = Provider::Rustls(CryptoMode::Ring);
    aws_smithy_http_client::Builder::new().tls_provider(rustls).build_https()
}
