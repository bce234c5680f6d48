//! Creates the table, or checks an existing one.

use std::fmt;
use std::future::Future;
use std::time::Duration;

use aws_sdk_dynamodb::error::ProvideErrorMetadata;
use aws_sdk_dynamodb::types::{
    AttributeDefinition, BillingMode, KeySchemaElement, KeyType, ScalarAttributeType, TableDescription,
    TableStatus, TimeToLiveSpecification, TimeToLiveStatus,
};
use forebay::rt::{self, Runtime};
use forebay_fleet::{KEY, TableError};

use super::DynamoTable;

/// The time-to-live attribute: seconds since 1970.
pub(super) const TTL: &str = "ttl_epoch";
/// The timeout of one call. Calls that create a table are slow.
const CALL_TIMEOUT: Duration = Duration::from_secs(15);
/// The longest wait until the table is active. Most take a few seconds.
const ACTIVE_TIMEOUT: Duration = Duration::from_secs(120);
const POLL_INTERVAL: Duration = Duration::from_millis(500);

/// The result of a setup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Setup {
    /// The table was created.
    pub created: bool,
    /// The time-to-live was enabled.
    pub expiry_enabled: bool,
    /// The table has provisioned capacity. It works, but may throttle in a cold start.
    pub provisioned: bool,
}

/// Why a table could not be set up. It is always safe to try again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// The table exists with another schema. It was not changed.
    #[error("the table {table} has another schema: {}; use another name, or delete it first", Problems(.problems))]
    Schema {
        /// Its name.
        table: String,
        /// The differences.
        problems: Vec<String>,
    },
    /// The table does not become active.
    #[error("the table {table} is {status} after {after:?}; try again when it is ACTIVE")]
    NotActive {
        /// Its name.
        table: String,
        /// Its status.
        status: String,
        /// How long it was waited for.
        after: Duration,
    },
    /// The error of DynamoDB.
    #[error(transparent)]
    Table(#[from] TableError),
}

struct Problems<'a>(&'a [String]);

impl fmt::Display for Problems<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.join("; "))
    }
}

impl DynamoTable {
    /// Creates the table, with on-demand billing and a time-to-live on `ttl_epoch`, and waits until it is active. If the
    /// table exists, it is checked, and only its time-to-live is enabled.
    ///
    /// # Errors
    /// If the table has another schema, or DynamoDB refuses.
    ///
    /// # Cancel safety
    /// The table may have been created. Run it again.
    pub async fn setup(&self, runtime: &dyn Runtime) -> Result<Setup, SetupError> {
        let created = match bounded(runtime, self.describe()).await? {
            Some(_) => false,
            None => bounded(runtime, self.create()).await?,
        };
        let found = self.active(runtime).await?;
        let problems = problems(&found);
        if !problems.is_empty() {
            return Err(SetupError::Schema { table: self.name.clone(), problems });
        }
        let expiry_enabled = self.enable_expiry(runtime).await?;
        Ok(Setup { created, expiry_enabled, provisioned: is_provisioned(&found) })
    }

    pub(super) async fn describe(&self) -> Result<Option<TableDescription>, TableError> {
        match self.client.describe_table().table_name(&self.name).send().await {
            Ok(answer) => Ok(answer.table),
            Err(error) => match self.failure(&error) {
                TableError::NoTable(_) => Ok(None),
                failure => Err(failure),
            },
        }
    }

    /// Creates the table. Returns false if another caller did.
    async fn create(&self) -> Result<bool, TableError> {
        let key = AttributeDefinition::builder().attribute_name(KEY).attribute_type(ScalarAttributeType::S);
        let schema = KeySchemaElement::builder().attribute_name(KEY).key_type(KeyType::Hash);
        let made = self
            .client
            .create_table()
            .table_name(&self.name)
            .attribute_definitions(key.build().map_err(super::failure::not_built)?)
            .key_schema(schema.build().map_err(super::failure::not_built)?)
            .billing_mode(BillingMode::PayPerRequest)
            .send()
            .await;
        match made {
            Ok(_) => Ok(true),
            // Another caller was faster.
            Err(error) if error.code() == Some("ResourceInUseException") => Ok(false),
            Err(error) => Err(self.failure(&error)),
        }
    }

    /// Waits until the table is active.
    async fn active(&self, runtime: &dyn Runtime) -> Result<TableDescription, SetupError> {
        let began = runtime.now();
        loop {
            // A new table may not be visible at once.
            let found = bounded(runtime, self.describe()).await?;
            let status = found.as_ref().and_then(|table| table.table_status.clone());
            let status = match (found, status) {
                // A table that is being updated is usable.
                (Some(found), Some(TableStatus::Active | TableStatus::Updating)) => return Ok(found),
                (_, status) => status,
            };
            let waited = runtime.now().since(began);
            let hopeless = !matches!(status, None | Some(TableStatus::Creating));
            if hopeless || waited > ACTIVE_TIMEOUT {
                let status = status.map_or_else(|| "missing".to_owned(), |status| status.to_string());
                return Err(SetupError::NotActive { table: self.name.clone(), status, after: waited });
            }
            runtime.sleep_until(runtime.now() + POLL_INTERVAL).await;
        }
    }

    /// Enables the time-to-live. Returns whether it was off.
    async fn enable_expiry(&self, runtime: &dyn Runtime) -> Result<bool, SetupError> {
        if self.expires(runtime).await? {
            return Ok(false);
        }
        let specification = TimeToLiveSpecification::builder().attribute_name(TTL).enabled(true);
        let specification = specification.build().map_err(super::failure::not_built)?;
        let enable = self
            .client
            .update_time_to_live()
            .table_name(&self.name)
            .time_to_live_specification(specification);
        let enabled =
            bounded(runtime, async { enable.send().await.map_err(|error| self.failure(&error)) }).await;
        match enabled {
            Ok(_) => Ok(true),
            // Another caller may have been faster.
            Err(TableError::Invalid(_)) if self.expires(runtime).await? => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether the time-to-live is enabled; an error if it is on another attribute.
    async fn expires(&self, runtime: &dyn Runtime) -> Result<bool, SetupError> {
        let describe = self.client.describe_time_to_live().table_name(&self.name);
        let answer =
            bounded(runtime, async { describe.send().await.map_err(|error| self.failure(&error)) }).await?;
        let Some(found) = answer.time_to_live_description else { return Ok(false) };
        let on =
            matches!(found.time_to_live_status, Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling));
        match found.attribute_name {
            Some(attribute) if on && attribute != TTL => Err(SetupError::Schema {
                table: self.name.clone(),
                problems: vec![format!("its time-to-live is on {attribute}, and must be on {TTL}")],
            }),
            _ => Ok(on),
        }
    }
}

/// Whether the capacity is provisioned. A table that was always provisioned has no summary.
pub(super) fn is_provisioned(found: &TableDescription) -> bool {
    let billing = found.billing_mode_summary.as_ref().and_then(|summary| summary.billing_mode.as_ref());
    billing != Some(&BillingMode::PayPerRequest)
}

/// The differences in the keys of a table.
pub(super) fn problems(found: &TableDescription) -> Vec<String> {
    let kind = |name: &str| {
        let definition = found.attribute_definitions().iter().find(|one| one.attribute_name == name);
        match definition.map(|definition| &definition.attribute_type) {
            Some(ScalarAttributeType::S) => "string".to_owned(),
            Some(ScalarAttributeType::N) => "number".to_owned(),
            Some(ScalarAttributeType::B) => "binary".to_owned(),
            _ => "of an unknown type".to_owned(),
        }
    };
    let mut problems = Vec::new();
    for key in found.key_schema() {
        let (name, kind) = (&key.attribute_name, kind(&key.attribute_name));
        match key.key_type {
            KeyType::Hash if name == KEY && kind == "string" => {}
            KeyType::Hash => {
                problems.push(format!("its partition key is {name} ({kind}), and must be {KEY} (string)"))
            }
            _ => problems.push(format!("it has a sort key, {name} ({kind}), and must have none")),
        }
    }
    problems
}

async fn bounded<T>(
    runtime: &dyn Runtime,
    call: impl Future<Output = Result<T, TableError>>,
) -> Result<T, TableError> {
    let late = || Err(TableError::Unknown(format!("no answer within {CALL_TIMEOUT:?}").into()));
    rt::within(runtime, CALL_TIMEOUT, call).await.unwrap_or_else(late)
}
