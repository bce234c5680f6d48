//! Records the permissions that the requests need.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};

use aws_smithy_runtime_api::client::http::{
    HttpClient, HttpConnector, HttpConnectorFuture, HttpConnectorSettings, SharedHttpClient,
    SharedHttpConnector,
};
use aws_smithy_runtime_api::client::orchestrator::HttpRequest;
use aws_smithy_runtime_api::client::runtime_components::RuntimeComponents;
use forebay_aws::dynamo::DynamoTable;
use serde_json::Value;

use crate::server::{DynamoDb, TABLE, sdk};

/// The actions that were needed so far.
#[derive(Clone, Debug, Default)]
pub(crate) struct Witness(Arc<Mutex<BTreeSet<String>>>);

impl Witness {
    /// The table of `server`, behind this recorder.
    pub(crate) fn table(&self, server: &DynamoDb) -> DynamoTable {
        let http = aws_smithy_http_client::Builder::new().build_http();
        let watched = Watched { client: http, witness: self.clone() };
        let sdk = sdk(server.address).into_builder().http_client(watched).build();
        DynamoTable::new(&sdk, TABLE).unwrap()
    }

    pub(crate) fn actions(&self) -> BTreeSet<String> {
        self.0.lock().unwrap().clone()
    }

    fn note(&self, request: &HttpRequest) {
        let target = request.headers().get("x-amz-target").expect("every request has one");
        let operation = target.rsplit('.').next().unwrap();
        let mut actions = self.0.lock().unwrap();
        if operation == "TransactWriteItems" {
            // There is no permission of that name: a transaction needs those of its parts.
            let body: Value = serde_json::from_slice(request.body().bytes().unwrap()).unwrap();
            for part in body["TransactItems"].as_array().unwrap() {
                actions.extend(part.as_object().unwrap().keys().map(|kind| format!("dynamodb:{kind}Item")));
            }
        } else {
            actions.insert(format!("dynamodb:{operation}"));
        }
    }
}

#[derive(Debug)]
struct Watched {
    client: SharedHttpClient,
    witness: Witness,
}

impl HttpClient for Watched {
    fn http_connector(
        &self,
        settings: &HttpConnectorSettings,
        components: &RuntimeComponents,
    ) -> SharedHttpConnector {
        let connector = self.client.http_connector(settings, components);
        SharedHttpConnector::new(WatchedConnector { connector, witness: self.witness.clone() })
    }
}

#[derive(Debug)]
struct WatchedConnector {
    connector: SharedHttpConnector,
    witness: Witness,
}

impl HttpConnector for WatchedConnector {
    fn call(&self, request: HttpRequest) -> HttpConnectorFuture {
        self.witness.note(&request);
        self.connector.call(request)
    }
}
