//! The cluster behind the gateway, as the environment names it.

use std::future::Future;
use std::net::SocketAddr;
use std::pin::Pin;

use forebay_dsql::{Error, Member, Options, OptionsBuilder};
use forebay_gateway::{Cluster, RawPool};

use super::preparation::PAGE;

/// Opens pools of the cluster that variables name. They share tokens and the budget of this process and its fleet.
pub(super) struct FromVariables {
    variables: Vec<(String, String)>,
    member: Member,
}

impl FromVariables {
    /// The cluster of these variables.
    pub(super) async fn new(variables: Vec<(String, String)>) -> anyhow::Result<Self> {
        let options = builder(&variables).build()?;
        let member = join(&options).await?;
        Ok(Self { variables, member })
    }

    /// What its pools share.
    pub(super) fn member(&self) -> &Member {
        &self.member
    }

    async fn connect(&self, role: &str, database: &str) -> Result<RawPool, Error> {
        let name = if database == "postgres" { role.to_owned() } else { format!("{role}@{database}") };
        let options = builder(&self.variables).user(role).database(database).pool(name).build()?;
        self.member.pool(options).connect().await
    }
}

/// With `page`, its pools are shown there, and `/metrics` is served.
pub(super) fn with_page(
    mut variables: Vec<(String, String)>,
    page: Option<SocketAddr>,
) -> Vec<(String, String)> {
    if let Some(page) = page {
        variables.retain(|(name, _)| name != PAGE);
        variables.push((PAGE.to_owned(), page.to_string()));
    }
    variables
}

pub(super) fn builder(variables: &[(String, String)]) -> OptionsBuilder {
    let builder = OptionsBuilder::from_variables(variables.iter().cloned()).reservoir(true);
    // A client without a name has none at the server either, as if there were no gateway.
    let is_named = variables.iter().any(|(name, value)| name == "PGAPPNAME" && !value.is_empty());
    if is_named { builder } else { builder.application_name("") }
}

impl Cluster for FromVariables {
    fn open<'a>(
        &'a self,
        role: &'a str,
        database: &'a str,
    ) -> Pin<Box<dyn Future<Output = Result<RawPool, Error>> + Send + 'a>> {
        Box::pin(self.connect(role, database))
    }
}

#[cfg(feature = "aws")]
async fn join(options: &Options) -> anyhow::Result<Member> {
    Ok(forebay_aws::join(options).await?)
}

/// Without AWS's SDK, there is only the key of the environment, and no fleet.
#[cfg(not(feature = "aws"))]
async fn join(options: &Options) -> anyhow::Result<Member> {
    Ok(Member::builder(options, crate::key_signer::KeySigner::from_env("aws,gateway")?).join().await?)
}
