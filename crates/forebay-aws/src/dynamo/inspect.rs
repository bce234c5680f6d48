//! For diagnosis: what a table is like, and what time it is there.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use aws_sdk_dynamodb::primitives::{DateTime, DateTimeFormat};
use aws_sdk_dynamodb::types::TimeToLiveStatus;
use aws_smithy_runtime_api::box_error::BoxError;
use aws_smithy_runtime_api::client::interceptors::Intercept;
use aws_smithy_runtime_api::client::interceptors::context::BeforeDeserializationInterceptorContextRef;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use forebay_fleet::TableError;

use super::{DynamoTable, attributes, setup};

/// What a table is like.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct TableInfo {
    /// Its status, such as `ACTIVE`.
    pub status: String,
    /// How its keys differ from those that a fleet needs. Empty if they are right.
    pub problems: Vec<String>,
    /// Its capacity is provisioned. It works, but may throttle in a cold start.
    pub provisioned: bool,
}

/// Whether items expire.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Expiry {
    /// They do, by `ttl_epoch`.
    On,
    /// They do not.
    Off,
    /// They do, by another attribute.
    OtherAttribute(String),
}

impl DynamoTable {
    /// Describes the table (`DescribeTable`).
    ///
    /// # Errors
    /// [`TableError::NoTable`], or another error of DynamoDB.
    ///
    /// # Cancel safety
    /// Cancel safe: reading changes nothing.
    pub async fn inspect(&self) -> Result<TableInfo, TableError> {
        let found = self.describe().await?.ok_or_else(|| TableError::NoTable(self.name.clone()))?;
        let status = found.table_status.as_ref().map_or_else(|| "unknown".to_owned(), ToString::to_string);
        let (problems, provisioned) = (setup::problems(&found), setup::is_provisioned(&found));
        Ok(TableInfo { status, problems, provisioned })
    }

    /// Whether its items expire (`DescribeTimeToLive`).
    ///
    /// # Errors
    /// The error of DynamoDB.
    ///
    /// # Cancel safety
    /// Cancel safe: reading changes nothing.
    pub async fn expiry(&self) -> Result<Expiry, TableError> {
        let describe = self.client.describe_time_to_live().table_name(&self.name);
        let answer = describe.send().await.map_err(|error| self.failure(&error))?;
        let Some(found) = answer.time_to_live_description else { return Ok(Expiry::Off) };
        let on =
            matches!(found.time_to_live_status, Some(TimeToLiveStatus::Enabled | TimeToLiveStatus::Enabling));
        Ok(match found.attribute_name {
            _ if !on => Expiry::Off,
            Some(attribute) if attribute != setup::TTL => Expiry::OtherAttribute(attribute),
            _ => Expiry::On,
        })
    }

    /// The date in DynamoDB's answer to a read of `key`, as the time since 1970-01-01 00:00 UTC, in whole seconds. It also has
    /// one if it refuses the read. None without an answer.
    ///
    /// # Cancel safety
    /// Cancel safe: reading changes nothing.
    pub async fn server_date(&self, key: &str) -> Option<Duration> {
        let recorder = DateRecorder::default();
        let get = self.client.get_item().table_name(&self.name).set_key(Some(attributes::key(key)));
        // Whatever it says, the date counts.
        let _answer = get.customize().interceptor(recorder.clone()).send().await;
        let text = recorder.0.lock().unwrap_or_else(PoisonError::into_inner).take()?;
        let date = DateTime::from_str(&text, DateTimeFormat::HttpDate).ok()?;
        u64::try_from(date.secs()).ok().map(Duration::from_secs)
    }
}

/// Keeps the header `date` of an answer.
#[derive(Clone, Debug, Default)]
struct DateRecorder(Arc<Mutex<Option<String>>>);

impl Intercept for DateRecorder {
    fn name(&self) -> &'static str {
        "DateRecorder"
    }

    fn read_before_deserialization(
        &self,
        context: &BeforeDeserializationInterceptorContextRef<'_>,
        _components: &RuntimeComponents,
        _bag: &mut aws_sdk_dynamodb::config::ConfigBag,
    ) -> Result<(), BoxError> {
        let date = context.response().headers().get("date").map(str::to_owned);
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = date;
        Ok(())
    }
}
