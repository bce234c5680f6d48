//! Joins a fleet on AWS: tokens signed and tables reached with what the SDK finds for this process.

use forebay_dsql::{JoinError, Member, MemberBuilder, Options};
use forebay_fleet::Tables;

use crate::dynamo::{DynamoTable, Place, PlaceError};
use crate::signer::SdkSigner;

/// Why a process could not join. Mend what it names, and start again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AwsJoinError {
    /// Nobody knows where the tables are.
    #[error(transparent)]
    Place(#[from] PlaceError),
    /// The options make no sense, or the fleet cannot be joined.
    #[error(transparent)]
    Join(#[from] JoinError),
}

/// Makes this process a member of those that use the cluster of `options`: with the SDK's credentials, and with the DynamoDB
/// tables that the options name, if they ask for leases or a shared rate (`DSQL_DISTRIBUTED_*`).
///
/// The tables are in the region that REGION or AWS_REGION name, or the SDK's, or the cluster's. A DynamoDB that is not AWS's is
/// found by AWS_ENDPOINT_URL_DYNAMODB, as by any program with the SDK.
///
/// ```no_run
/// # async fn start() -> Result<(), Box<dyn std::error::Error>> {
/// use forebay_dsql::{DsqlPool, Options, Postgres};
///
/// let options = Options::from_env()?;
/// let member = forebay_aws::join(&options).await?;
/// let dsql: DsqlPool<Postgres> = member.pool(options).connect().await?;
/// # Ok(())
/// # }
/// ```
///
/// # Errors
/// If nobody knows where the tables are, or the fleet cannot be joined.
///
/// # Cancel safety
/// Nothing is started before this returns.
pub async fn join(options: &Options) -> Result<Member, AwsJoinError> {
    Ok(member(options).await?.join().await?)
}

/// As [`join`], with more to say before joining: how much all pools of the process hold together, where tasks run.
///
/// # Errors
/// If nobody knows where the tables are.
///
/// # Cancel safety
/// Dropping it leaves nothing behind.
pub async fn member(options: &Options) -> Result<MemberBuilder, PlaceError> {
    let member = Member::builder(options, SdkSigner::from_env().await);
    Ok(match tables(options).await? {
        Some(tables) => member.tables(tables),
        None => member,
    })
}

/// The tables that the options name, if they name any.
async fn tables(options: &Options) -> Result<Option<Tables>, PlaceError> {
    let settings = options.settings();
    let leases = settings.leases.as_ref().map(|leases| leases.table.as_str());
    let rate = settings.rate.as_ref().map(|rate| rate.table.as_str());
    let Some(first) = leases.or(rate) else { return Ok(None) };
    let place = Place {
        region: settings.region.clone(),
        cluster: Some(options.host().to_owned()),
        endpoint_url: None,
    };
    let first_table = DynamoTable::from_env(first, place).await?;
    Ok(Some(match rate {
        // One that is not asked for is not used.
        Some(rate) if rate != first => {
            let rate = first_table.beside(rate);
            Tables { leases: std::sync::Arc::new(first_table), rate: std::sync::Arc::new(rate) }
        }
        _ => Tables::one(first_table),
    }))
}
