//! Makes the table, or says what is wrong with the one that is there.

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

/// The attribute by which items end: seconds since 1970.
const TTL: &str = "ttl_epoch";
/// How long one call may take: those that make a table are slow.
const CALL: Duration = Duration::from_secs(15);
/// How long a table may take to become active: most take a few seconds.
const PATIENCE: Duration = Duration::from_secs(120);
const LOOK_AGAIN: Duration = Duration::from_millis(500);

/// What a set-up has done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Setup {
    /// The table was not there, and is now.
    pub created: bool,
    /// Items were not deleted at their end, and are now.
    pub expiry_enabled: bool,
    /// The table is billed by capacity that someone must foresee. It works, but may throttle in a cold start.
    pub provisioned: bool,
}

/// Why a table could not be set up. Whatever it is, it is safe to try again.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SetupError {
    /// There is such a table, but made for something else. It was left as it is.
    #[error("the table {table} has another shape: {}; take another name, or delete it first", Problems(.problems))]
    Shape {
        /// Its name.
        table: String,
        /// What was found, and what should be.
        problems: Vec<String>,
    },
    /// It is not active, and does not become so.
    #[error("the table {table} is {status} after {after:?}; try again when it is ACTIVE")]
    NotActive {
        /// Its name.
        table: String,
        /// What it is instead.
        status: String,
        /// For how long it was waited for.
        after: Duration,
    },
    /// What DynamoDB said instead.
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
    /// Makes the table, with on-demand billing and a time-to-live on `ttl_epoch`, and waits until it is active. A table
    /// that is there already is looked at, and only its time-to-live switched on, if it was off.
    ///
    /// # Errors
    /// If there is a table of another shape, or DynamoDB refuses.
    ///
    /// # Cancel safety
    /// What was made by then is made; it can be run again.
    pub async fn setup(&self, runtime: &dyn Runtime) -> Result<Setup, SetupError> {
        let created = match bounded(runtime, self.describe()).await? {
            Some(_) => false,
            None => bounded(runtime, self.create()).await?,
        };
        let found = self.active(runtime).await?;
        let problems = problems(&found);
        if !problems.is_empty() {
            return Err(SetupError::Shape { table: self.name.clone(), problems });
        }
        let expiry_enabled = self.expire(runtime).await?;
        let billing = found.billing_mode_summary.and_then(|summary| summary.billing_mode);
        // A table that never was anything else than provisioned has no summary.
        let provisioned = billing != Some(BillingMode::PayPerRequest);
        Ok(Setup { created, expiry_enabled, provisioned })
    }

    async fn describe(&self) -> Result<Option<TableDescription>, TableError> {
        match self.client.describe_table().table_name(&self.name).send().await {
            Ok(answer) => Ok(answer.table),
            Err(error) => match self.failure(&error) {
                TableError::NoTable(_) => Ok(None),
                failure => Err(failure),
            },
        }
    }

    /// Whether it was this call that made it.
    async fn create(&self) -> Result<bool, TableError> {
        let key = AttributeDefinition::builder().attribute_name(KEY).attribute_type(ScalarAttributeType::S);
        let schema = KeySchemaElement::builder().attribute_name(KEY).key_type(KeyType::Hash);
        let made = self
            .client
            .create_table()
            .table_name(&self.name)
            .attribute_definitions(key.build().map_err(super::failure::unsaid)?)
            .key_schema(schema.build().map_err(super::failure::unsaid)?)
            .billing_mode(BillingMode::PayPerRequest)
            .send()
            .await;
        match made {
            Ok(_) => Ok(true),
            // Someone else was faster.
            Err(error) if error.code() == Some("ResourceInUseException") => Ok(false),
            Err(error) => Err(self.failure(&error)),
        }
    }

    /// Waits until the table is active.
    async fn active(&self, runtime: &dyn Runtime) -> Result<TableDescription, SetupError> {
        let began = runtime.now();
        loop {
            // A table that was just made may not be seen at once.
            let found = bounded(runtime, self.describe()).await?;
            let status = found.as_ref().and_then(|table| table.table_status.clone());
            let status = match (found, status) {
                // One that is being updated is in use meanwhile.
                (Some(found), Some(TableStatus::Active | TableStatus::Updating)) => return Ok(found),
                (_, status) => status,
            };
            let waited = runtime.now().since(began);
            let hopeless = !matches!(status, None | Some(TableStatus::Creating));
            if hopeless || waited > PATIENCE {
                let status = status.map_or_else(|| "not there".to_owned(), |status| status.to_string());
                return Err(SetupError::NotActive { table: self.name.clone(), status, after: waited });
            }
            runtime.sleep_until(runtime.now() + LOOK_AGAIN).await;
        }
    }

    /// Has items deleted at their end; whether that is new.
    async fn expire(&self, runtime: &dyn Runtime) -> Result<bool, SetupError> {
        if self.expires(runtime).await? {
            return Ok(false);
        }
        let specification = TimeToLiveSpecification::builder().attribute_name(TTL).enabled(true);
        let specification = specification.build().map_err(super::failure::unsaid)?;
        let enable = self
            .client
            .update_time_to_live()
            .table_name(&self.name)
            .time_to_live_specification(specification);
        let enabled =
            bounded(runtime, async { enable.send().await.map_err(|error| self.failure(&error)) }).await;
        match enabled {
            Ok(_) => Ok(true),
            // Someone else may have been faster.
            Err(TableError::Invalid(_)) if self.expires(runtime).await? => Ok(false),
            Err(error) => Err(error.into()),
        }
    }

    /// Whether items are deleted at their end; an error if it is by another attribute.
    async fn expires(&self, runtime: &dyn Runtime) -> Result<bool, SetupError> {
        let describe = self.client.describe_time_to_live().table_name(&self.name);
        let answer =
            bounded(runtime, async { describe.send().await.map_err(|error| self.failure(&error)) }).await?;
        let Some(found) = answer.time_to_live_description else { return Ok(false) };
        let on =
            matches!(found.time_to_live_status, Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling));
        match found.attribute_name {
            Some(attribute) if on && attribute != TTL => Err(SetupError::Shape {
                table: self.name.clone(),
                problems: vec![format!("its time-to-live is on {attribute}, and must be on {TTL}")],
            }),
            _ => Ok(on),
        }
    }
}

/// What is wrong with the keys of a table.
fn problems(found: &TableDescription) -> Vec<String> {
    let kind = |name: &str| {
        let definition = found.attribute_definitions().iter().find(|one| one.attribute_name == name);
        match definition.map(|definition| &definition.attribute_type) {
            Some(ScalarAttributeType::S) => "string".to_owned(),
            Some(ScalarAttributeType::N) => "number".to_owned(),
            Some(ScalarAttributeType::B) => "binary".to_owned(),
            _ => "of a kind unknown".to_owned(),
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
    let late = || Err(TableError::Unknown(format!("nothing within {CALL:?}").into()));
    rt::within(runtime, CALL, call).await.unwrap_or_else(late)
}
