//! A token, signed as for a connection.

use std::time::Duration;

use forebay::duration::show;
use forebay::rt::Runtime as _;
use forebay_dsql::{Action, Signer as _};

use super::check::Check;
use super::context::Context;
use super::finding::Finding;
use super::{credentials, fault};

pub(super) async fn run(context: &mut Context<'_>) -> Vec<Finding> {
    let Some(options) = context.options().cloned() else { return Vec::new() };
    let (signer, request) = (context.signer().await, options.token_request());
    let signed = context.bounded(1, signer.sign(&request)).await;
    let action = match request.identity.action {
        Action::DbConnect => "dsql:DbConnect",
        Action::DbConnectAdmin => "dsql:DbConnectAdmin",
    };
    vec![match signed {
        Some(Ok(signed)) => {
            let left = signed.credentials_expire.map(|end| end.saturating_sub(context.runtime.wall()));
            let life = left.map_or(request.life, |left| left.min(request.life));
            let why = if life < request.life { ", since the credentials expire then" } else { "" };
            let life = show(Duration::from_secs(life.as_secs()));
            let (user, region) = (&request.identity.user, &request.identity.region);
            let what = format!("signed for {user} ({action}) in {region}; good for {life}{why}");
            Finding::ok(Check::Token, what)
        }
        Some(Err(error)) => Finding::failure(fault::NO_TOKEN, credentials::words(&error)),
        None => Finding::failure(fault::NO_TOKEN, "the credentials do not load in time"),
    }]
}
