//! DynamoDB as the table of a fleet.
//!
//! ```no_run
//! # async fn start() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
//! use forebay::{Seed, rt::{Runtime, TokioRuntime}};
//! use forebay_aws::dynamo::{DynamoTable, Location};
//! use forebay_dsql::EnvReader;
//! use forebay_fleet::{Fleet, Tables};
//!
//! let settings = EnvReader::new("DSQL").read_process()?.fleet().ok_or("no fleet")?;
//! let runtime = TokioRuntime::current()?;
//! let table = DynamoTable::from_env("leases", Location::default()).await?;
//! let seed = Seed::new(runtime.entropy());
//! let fleet = Fleet::start(settings, Tables::one(table), runtime, seed).await?;
//! # Ok(())
//! # }
//! ```

mod attributes;
mod expression;
mod failure;
#[cfg(feature = "inspect")]
mod inspect;
mod setup;

use std::fmt;

use aws_config::retry::RetryConfig;
use aws_config::{Region, SdkConfig};
use aws_sdk_dynamodb::Client;
use aws_sdk_dynamodb::config::Builder;
use aws_sdk_dynamodb::config::http::HttpResponse;
use aws_sdk_dynamodb::error::{ProvideErrorMetadata, SdkError};
use aws_sdk_dynamodb::operation::delete_item::DeleteItemError;
use aws_sdk_dynamodb::operation::transact_write_items::TransactWriteItemsError;
use aws_sdk_dynamodb::operation::update_item::UpdateItemError;
use aws_sdk_dynamodb::types::{
    Delete as DeletePart, Put as PutPart, ReturnValue, ReturnValuesOnConditionCheckFailure,
    TransactWriteItem, Update as UpdatePart,
};
use aws_types::service_config::ServiceConfigKey;
use forebay::StoreFuture;
use forebay_fleet::{Cursor, Delete, Item, KEY, Page, Returning, Table, TableError, Update, Write};

use self::expression::Expressions;
use crate::sdk;

#[cfg(feature = "inspect")]
pub use self::inspect::{Expiry, TableInfo};
pub use self::setup::{Setup, SetupError};

/// The location of a table. What is not set comes from the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Location {
    /// The region. It has priority over the environment and the profile.
    pub region: Option<String>,
    /// The host of the cluster. Its region is used if there is no other.
    pub cluster: Option<String>,
    /// The address of another DynamoDB than AWS's, such as `http://127.0.0.1:8000`. It has priority over the environment
    /// and the profile.
    pub endpoint_url: Option<String>,
}

/// Why the location of a table is unknown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LocationError {
    /// Neither the environment nor the caller has a region.
    #[error("there is no region for DynamoDB; set AWS_REGION")]
    NoRegion,
    /// The address is invalid.
    #[error("{0:?} is not an address; use one such as http://127.0.0.1:8000")]
    Address(String),
}

/// A DynamoDB table. The SDK's retries are off: they would hide whether the first attempt was applied.
///
/// Returned items contain only values that [`forebay_fleet::Value`] can represent.
#[derive(Clone)]
pub struct DynamoTable {
    client: Client,
    name: String,
}

impl DynamoTable {
    /// The table called `name`, with the credentials and the region that the SDK finds for this process. It sends no
    /// request before the first call.
    ///
    /// # Errors
    /// If there is no region, or the address is invalid.
    ///
    /// # Cancel safety
    /// Cancel safe: dropping the future leaves nothing behind.
    pub async fn from_env(name: impl Into<String>, location: Location) -> Result<Self, LocationError> {
        Self::located(sdk::loader().load().await, name, location)
    }

    /// The table called `name`, with the credentials of `sdk`, and its region unless `location` has one.
    pub(crate) fn located(
        sdk: SdkConfig,
        name: impl Into<String>,
        location: Location,
    ) -> Result<Self, LocationError> {
        let address = location.endpoint_url.or_else(|| address_for(&sdk));
        let region = location.region.map(Region::new).or_else(|| sdk.region().cloned());
        let region = region.or_else(|| location.cluster.and_then(|host| region_of(&host)));
        // The region does not matter for a DynamoDB of your own.
        let region = region.or_else(|| address.is_some().then(|| Region::from_static("us-east-1")));
        let mut config = sdk.into_builder();
        config.set_region(region);
        Self::at(address, &config.build(), name.into())
    }

    /// The table called `name`, with the region, the credentials and the HTTP client of `sdk`.
    ///
    /// # Errors
    /// If there is no region, or the address is invalid.
    pub fn new(sdk: &SdkConfig, name: impl Into<String>) -> Result<Self, LocationError> {
        Self::at(address_for(sdk), sdk, name.into())
    }

    /// The table at this address, or AWS's without one.
    fn at(address: Option<String>, sdk: &SdkConfig, name: String) -> Result<Self, LocationError> {
        if sdk.region().is_none() {
            return Err(LocationError::NoRegion);
        }
        // With an invalid address, the SDK would refuse each call or panic.
        if let Some(url) = address.as_ref().filter(|url| !is_address(url)) {
            return Err(LocationError::Address(url.clone()));
        }
        let mut config = Builder::from(sdk).retry_config(RetryConfig::disabled());
        // Otherwise the environment's address would have priority over that of `sdk`.
        config.set_endpoint_url(address);
        if sdk.behavior_version().is_none() {
            config.set_behavior_version(Some(sdk::behavior()));
        }
        if sdk.http_client().is_none() {
            config.set_http_client(Some(sdk::https()));
        }
        Ok(Self { client: Client::from_conf(config.build()), name })
    }

    /// Another table at the same location.
    #[must_use]
    pub fn sibling(&self, name: impl Into<String>) -> Self {
        Self { client: self.client.clone(), name: name.into() }
    }

    /// Its name.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    async fn update_item(&self, update: &Update) -> Result<Option<Item>, TableError> {
        let mut expressions = Expressions::default();
        let condition = expressions.conditions(&update.when);
        let changes = expressions.changes(&update.changes);
        let (names, values) = expressions.into_parts();
        let answer = self
            .client
            .update_item()
            .table_name(&self.name)
            .set_key(Some(attributes::key(&update.key)))
            .set_update_expression(changes)
            .set_condition_expression(condition)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values)
            .return_values(match update.returning {
                Returning::Nothing => ReturnValue::None,
                Returning::Old => ReturnValue::AllOld,
                Returning::New => ReturnValue::AllNew,
            })
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        let answer = answer.map_err(|error| match error.as_service_error() {
            Some(UpdateItemError::ConditionalCheckFailedException(failed)) => failure::condition(failed),
            _ => self.failure(&error),
        })?;
        let item = answer.attributes.and_then(attributes::item);
        // If there was no item, AWS returns nothing, and other implementations return the key. Our items always have
        // values.
        let is_bare = |item: &Item| item.iter().next().is_none();
        Ok(item.filter(|item| update.returning != Returning::Old || !is_bare(item)))
    }

    async fn get_item(&self, key: &str) -> Result<Option<Item>, TableError> {
        let get = self.client.get_item().table_name(&self.name).set_key(Some(attributes::key(key)));
        let answer = get.consistent_read(true).send().await.map_err(|error| self.failure(&error))?;
        Ok(answer.item.and_then(attributes::item))
    }

    async fn delete_item(&self, delete: &Delete) -> Result<Option<Item>, TableError> {
        let mut expressions = Expressions::default();
        let condition = expressions.conditions(&delete.when);
        let (names, values) = expressions.into_parts();
        let answer = self
            .client
            .delete_item()
            .table_name(&self.name)
            .set_key(Some(attributes::key(&delete.key)))
            .set_condition_expression(condition)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values)
            .return_values(ReturnValue::AllOld)
            .return_values_on_condition_check_failure(ReturnValuesOnConditionCheckFailure::AllOld)
            .send()
            .await;
        let answer = answer.map_err(|error| match error.as_service_error() {
            Some(DeleteItemError::ConditionalCheckFailedException(failed)) => failure::condition(failed),
            _ => self.failure(&error),
        })?;
        Ok(answer.attributes.and_then(attributes::item))
    }

    async fn transact_write_items(&self, writes: &[Write], token: &str) -> Result<(), TableError> {
        let parts = writes.iter().map(|write| self.part(write)).collect::<Result<_, _>>()?;
        let transaction =
            self.client.transact_write_items().set_transact_items(Some(parts)).client_request_token(token);
        let answer = transaction.send().await;
        answer.map(drop).map_err(|error| match error.as_service_error() {
            Some(TransactWriteItemsError::TransactionCanceledException(cancelled)) => {
                failure::cancelled(cancelled)
            }
            _ => self.failure(&error),
        })
    }

    /// One write of a transaction.
    fn part(&self, write: &Write) -> Result<TransactWriteItem, TableError> {
        let part = TransactWriteItem::builder();
        let mut expressions = Expressions::default();
        let found = ReturnValuesOnConditionCheckFailure::AllOld;
        let part = match write {
            Write::Update(update) => {
                let condition = expressions.conditions(&update.when);
                let changes = expressions.changes(&update.changes);
                let (names, values) = expressions.into_parts();
                let update = UpdatePart::builder()
                    .table_name(&self.name)
                    .set_key(Some(attributes::key(&update.key)))
                    .set_update_expression(changes)
                    .set_condition_expression(condition)
                    .set_expression_attribute_names(names)
                    .set_expression_attribute_values(values)
                    .return_values_on_condition_check_failure(found);
                part.update(update.build().map_err(failure::not_built)?)
            }
            Write::Put { key, item, when } => {
                let condition = expressions.conditions(when);
                let (names, values) = expressions.into_parts();
                let put = PutPart::builder()
                    .table_name(&self.name)
                    .set_item(Some(attributes::whole(key, item)))
                    .set_condition_expression(condition)
                    .set_expression_attribute_names(names)
                    .set_expression_attribute_values(values)
                    .return_values_on_condition_check_failure(found);
                part.put(put.build().map_err(failure::not_built)?)
            }
            Write::Delete(delete) => {
                let condition = expressions.conditions(&delete.when);
                let (names, values) = expressions.into_parts();
                let delete = DeletePart::builder()
                    .table_name(&self.name)
                    .set_key(Some(attributes::key(&delete.key)))
                    .set_condition_expression(condition)
                    .set_expression_attribute_names(names)
                    .set_expression_attribute_values(values)
                    .return_values_on_condition_check_failure(found);
                part.delete(delete.build().map_err(failure::not_built)?)
            }
        };
        Ok(part.build())
    }

    async fn scan_page(&self, prefix: &str, after: Option<&Cursor>) -> Result<Page, TableError> {
        let mut expressions = Expressions::default();
        let filter = (!prefix.is_empty()).then(|| expressions.begins_with(KEY, prefix));
        let (names, values) = expressions.into_parts();
        let answer = self
            .client
            .scan()
            .table_name(&self.name)
            .consistent_read(true)
            .set_filter_expression(filter)
            .set_expression_attribute_names(names)
            .set_expression_attribute_values(values)
            .set_exclusive_start_key(after.map(|cursor| attributes::key(&cursor.0)))
            .send()
            .await
            .map_err(|error| self.failure(&error))?;
        let items = answer.items.unwrap_or_default().into_iter().filter_map(attributes::keyed).collect();
        let next = answer.last_evaluated_key.and_then(attributes::keyed).map(|(key, _)| Cursor(key));
        Ok(Page { items, next })
    }

    fn failure<E>(&self, error: &SdkError<E, HttpResponse>) -> TableError
    where
        E: ProvideErrorMetadata + std::error::Error + 'static,
    {
        failure::failure(error, &self.name)
    }
}

/// The address that the SDK would use: the environment's or the profile's for DynamoDB, or that for all services.
fn address_for(sdk: &SdkConfig) -> Option<String> {
    let key =
        ServiceConfigKey::builder().service_id("DynamoDB").env("AWS_ENDPOINT_URL").profile("endpoint_url");
    let own = sdk.service_config().zip(key.build().ok()).and_then(|(config, key)| config.load_config(key));
    own.or_else(|| sdk.endpoint_url().map(str::to_owned))
}

fn is_address(url: &str) -> bool {
    let host = url.strip_prefix("http://").or_else(|| url.strip_prefix("https://"));
    host.is_some_and(|host| host.starts_with(|first: char| first.is_ascii_alphanumeric() || first == '['))
        && url.chars().all(|one| one.is_ascii_graphic())
}

/// The region in the name of a cluster.
fn region_of(host: &str) -> Option<Region> {
    let options = forebay_dsql::Options::builder(host).build().ok()?;
    Some(Region::new(options.region().to_owned()))
}

impl Table for DynamoTable {
    fn update<'a>(&'a self, update: &'a Update) -> StoreFuture<'a, Result<Option<Item>, TableError>> {
        Box::pin(self.update_item(update))
    }

    fn get<'a>(&'a self, key: &'a str) -> StoreFuture<'a, Result<Option<Item>, TableError>> {
        Box::pin(self.get_item(key))
    }

    fn delete<'a>(&'a self, delete: &'a Delete) -> StoreFuture<'a, Result<Option<Item>, TableError>> {
        Box::pin(self.delete_item(delete))
    }

    fn transact<'a>(
        &'a self,
        writes: &'a [Write],
        token: &'a str,
    ) -> StoreFuture<'a, Result<(), TableError>> {
        Box::pin(self.transact_write_items(writes, token))
    }

    fn scan<'a>(
        &'a self,
        prefix: &'a str,
        after: Option<&'a Cursor>,
    ) -> StoreFuture<'a, Result<Page, TableError>> {
        Box::pin(self.scan_page(prefix, after))
    }
}

impl fmt::Debug for DynamoTable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("DynamoTable").field(&self.name).finish()
    }
}
