//! Forebay on AWS: the only crate that depends on the AWS SDK.
//!
//! [`SdkSigner`] signs tokens for Aurora DSQL with the credentials of the process: the role of its task or instance, a
//! web identity, a profile, or variables.
//!
//! ```no_run
//! # async fn start() -> Result<(), Box<dyn std::error::Error>> {
//! use forebay::rt::TokioRuntime;
//! use forebay_aws::SdkSigner;
//! use forebay_dsql::{Options, TokenCache};
//!
//! let options = Options::from_env()?;
//! let tokens = TokenCache::new(SdkSigner::from_env().await, TokioRuntime::current()?, options.service());
//! let token = tokens.token(&options.token_request()).await?;
//! # Ok(())
//! # }
//! ```
//!
//! With feature `dynamodb`, `join` makes a process a member of its fleet, by its environment, and `dynamo::DynamoTable`
//! is the table of the fleet. Feature `inspect` is for programs that look for the cause of a problem.

#[cfg(feature = "dynamodb")]
pub mod dynamo;

mod credentials;
#[cfg(feature = "inspect")]
mod inspect;
#[cfg(feature = "dynamodb")]
mod join;
mod sdk;
mod signer;

#[cfg(feature = "inspect")]
pub use inspect::{Caller, CallerError, CredentialsInfo};
#[cfg(feature = "dynamodb")]
pub use join::{AwsJoinError, join, member};
pub use signer::SdkSigner;

/// Compiles the example of the README, which is that of docs/fleet.md.
#[cfg(all(doctest, feature = "dynamodb"))]
#[doc = include_str!("../README.md")]
mod readme {}
