//! Joins a fleet on AWS: tokens signed and tables reached with what the SDK finds for this process.

use aws_config::SdkConfig;
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
    let signer = SdkSigner::from_env().await;
    let tables = tables(options, signer.sdk())?;
    let member = Member::builder(options, signer);
    Ok(match tables {
        Some(tables) => member.tables(tables),
        None => member,
    })
}

/// The tables that the options name, if they name any, by the credentials of `sdk`.
fn tables(options: &Options, sdk: &SdkConfig) -> Result<Option<Tables>, PlaceError> {
    let settings = options.settings();
    let leases = settings.leases.as_ref().map(|leases| leases.table.as_str());
    let rate = settings.rate.as_ref().map(|rate| rate.table.as_str());
    let Some(first) = leases.or(rate) else { return Ok(None) };
    let first_table = DynamoTable::placed(sdk.clone(), first, place(options))?;
    Ok(Some(match rate {
        // One that is not asked for is not used.
        Some(rate) if rate != first => {
            let rate = first_table.beside(rate);
            Tables { leases: std::sync::Arc::new(first_table), rate: std::sync::Arc::new(rate) }
        }
        _ => Tables::one(first_table),
    }))
}

/// Where the tables are, as far as the options say: in the region that was given with them. The cluster's own comes last, after what
/// the SDK finds, as for `forebay lease`.
fn place(options: &Options) -> Place {
    Place {
        region: options.settings().region.clone(),
        cluster: Some(options.host().to_owned()),
        endpoint_url: None,
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use aws_config::Region;
    use aws_credential_types::Credentials;
    use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
    use forebay_dsql::Signer;

    use super::*;

    const HOST: &str = "abc.dsql.eu-west-1.on.aws";

    fn options(region: Option<&str>) -> Options {
        let options = Options::builder(HOST)
            .variable("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "true")
            .variable("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "leases");
        let options = match region {
            Some(region) => options.region(region),
            None => options,
        };
        options.build().unwrap()
    }

    #[test]
    fn the_clusters_region_is_the_last_that_is_asked() {
        let named = place(&options(Some("us-east-2")));
        assert_eq!((named.region.as_deref(), named.cluster.as_deref()), (Some("us-east-2"), Some(HOST)));
        let unnamed = place(&options(None));
        assert_eq!((unnamed.region, unnamed.cluster.as_deref()), (None, Some(HOST)));
    }

    /// Credentials that are counted.
    #[derive(Clone, Debug, Default)]
    struct Counted(Arc<AtomicUsize>);

    impl ProvideCredentials for Counted {
        fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
        where
            Self: 'a,
        {
            self.0.fetch_add(1, Ordering::Relaxed);
            future::ProvideCredentials::ready(Ok(Credentials::new("AKID", "secret", None, None, "test")))
        }
    }

    #[tokio::test]
    async fn tokens_and_tables_share_one_load_of_credentials() {
        let counted = Counted::default();
        let sdk = SdkConfig::builder()
            .region(Region::from_static("us-east-1"))
            // Nobody listens there: it is refused at once, when the request is signed.
            .endpoint_url("http://127.0.0.1:1")
            .credentials_provider(SharedCredentialsProvider::new(counted.clone()))
            .build();
        let signer = SdkSigner::new(sdk);
        let options = options(None);
        let tables = tables(&options, signer.sdk()).unwrap().unwrap();
        for _ in 0..2 {
            let refused = tables.leases.get("x").await;
            assert!(refused.is_err_and(|error| error.remedy().is_none()), "it has credentials");
            signer.sign(&options.token_request()).await.unwrap();
        }
        assert_eq!(counted.0.load(Ordering::Relaxed), 1);
    }
}
