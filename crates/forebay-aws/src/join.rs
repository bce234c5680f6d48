//! Joins a fleet on AWS, with the credentials and the region that the SDK finds for this process.

use aws_config::SdkConfig;
use forebay_dsql::{JoinError, Member, MemberBuilder, Options};
use forebay_fleet::Tables;

use crate::dynamo::{DynamoTable, Location, LocationError};
use crate::signer::SdkSigner;

/// Why a process could not join. Fix the cause, and start again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum AwsJoinError {
    /// The location of the tables is unknown.
    #[error(transparent)]
    Location(#[from] LocationError),
    /// The options are invalid, or the fleet cannot be joined.
    #[error(transparent)]
    Join(#[from] JoinError),
}

/// Joins the fleet of the cluster in `options`, with the SDK's credentials. Leases and a shared rate
/// (`DSQL_DISTRIBUTED_*`) use the DynamoDB tables in the options.
///
/// The tables are in the region of REGION or AWS_REGION, else the SDK's, else the cluster's. For another DynamoDB than
/// AWS's, set AWS_ENDPOINT_URL_DYNAMODB, as for any program with the SDK.
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
/// If the location of the tables is unknown, or the fleet cannot be joined.
///
/// # Cancel safety
/// Cancel safe: nothing starts before this returns.
pub async fn join(options: &Options) -> Result<Member, AwsJoinError> {
    Ok(member(options).await?.join().await?)
}

/// As [`join`], but returns a builder: for several pools, or another runtime.
///
/// # Errors
/// If the location of the tables is unknown.
///
/// # Cancel safety
/// Cancel safe: dropping the future leaves nothing behind.
pub async fn member(options: &Options) -> Result<MemberBuilder, LocationError> {
    let signer = SdkSigner::from_env().await;
    let tables = tables(options, signer.sdk())?;
    let member = Member::builder(options, signer);
    Ok(match tables {
        Some(tables) => member.tables(tables),
        None => member,
    })
}

/// The tables in the options, if any, with the credentials of `sdk`.
fn tables(options: &Options, sdk: &SdkConfig) -> Result<Option<Tables>, LocationError> {
    let settings = options.settings();
    let leases = settings.leases.as_ref().map(|leases| leases.table.as_str());
    let rate = settings.rate.as_ref().map(|rate| rate.table.as_str());
    let Some(first) = leases.or(rate) else { return Ok(None) };
    let first_table = DynamoTable::located(sdk.clone(), first, location(options))?;
    Ok(Some(match rate {
        // A table that the options do not name is not used.
        Some(rate) if rate != first => {
            let rate = first_table.sibling(rate);
            Tables { leases: std::sync::Arc::new(first_table), rate: std::sync::Arc::new(rate) }
        }
        _ => Tables::one(first_table),
    }))
}

/// The location of the tables, by the options. The cluster's region comes last, after the SDK's, as for `forebay lease`.
fn location(options: &Options) -> Location {
    Location {
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
    fn the_clusters_region_comes_last() {
        let named = location(&options(Some("us-east-2")));
        assert_eq!((named.region.as_deref(), named.cluster.as_deref()), (Some("us-east-2"), Some(HOST)));
        let unnamed = location(&options(None));
        assert_eq!((unnamed.region, unnamed.cluster.as_deref()), (None, Some(HOST)));
    }

    /// Counts how often credentials are loaded.
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
            // Nothing listens there: the signed request is refused at once.
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
