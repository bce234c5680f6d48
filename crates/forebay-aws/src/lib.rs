//! AWS's part of Forebay: the only crate with the SDK in it.
//!
//! [`SdkSigner`] signs tokens for Aurora DSQL with whatever credentials the process has: a role of its task or instance,
//! a web identity, a profile, variables.
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
//! With feature `dynamodb`, `join` makes a process a member of its fleet as its environment says, and `dynamo::DynamoTable` is the
//! table that the fleet shares its budget through.

#[cfg(feature = "dynamodb")]
pub mod dynamo;

mod credentials;
#[cfg(feature = "dynamodb")]
mod join;
mod sdk;
mod signer;

#[cfg(feature = "dynamodb")]
pub use join::{AwsJoinError, join, member};
pub use signer::SdkSigner;

/// The page that shows how a fleet is joined, so that what it shows is compiled.
#[cfg(all(doctest, feature = "dynamodb"))]
#[doc = include_str!("../../../docs/fleet.md")]
mod manual {}
