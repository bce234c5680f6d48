//! The policies in `ops/iam` allow what the code does, and nothing else.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use aws_config::SdkConfig;
use aws_credential_types::Credentials;
use aws_credential_types::provider::SharedCredentialsProvider;
use forebay::Seed;
use forebay_aws::SdkSigner;
use forebay_dsql::{Options, Signer};
use forebay_fleet::{
    Fleet, FleetSettings, Item, LeaseMode, LeaseSettings, RateMode, RateSettings, Tables, Update, operator,
};
use serde_json::Value;

use crate::server::DynamoDb;
use crate::witness::Witness;

const ENDPOINT: &str = "abc.dsql.us-east-1.on.aws";

/// The actions of a policy, by statement.
fn policy(name: &str) -> BTreeMap<String, BTreeSet<String>> {
    let path = format!("{}/../../ops/iam/{name}.json", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let policy: Value = serde_json::from_str(&text).unwrap();
    assert_eq!(policy["Version"], "2012-10-17");
    let statement = |statement: &Value| {
        assert_eq!(statement["Effect"], "Allow");
        let resource = statement["Resource"].as_str().unwrap();
        assert!(resource.starts_with("arn:aws:") && !resource.contains('*'), "{resource}");
        let actions = statement["Action"].as_array().unwrap();
        let actions: BTreeSet<String> =
            actions.iter().map(|action| action.as_str().unwrap().to_owned()).collect();
        assert!(actions.iter().all(|action| !action.contains('*')), "{actions:?}");
        (statement["Sid"].as_str().unwrap().to_owned(), actions)
    };
    policy["Statement"].as_array().unwrap().iter().map(statement).collect()
}

fn settings(leases: LeaseMode, rate: RateMode) -> FleetSettings {
    FleetSettings::new(ENDPOINT, "fleet")
        .leases(LeaseSettings::new("fleet").mode(leases))
        .rate(RateSettings::new("fleet").mode(rate))
}

/// What it takes to join, to hold connections and to leave.
fn needed(leases: LeaseMode, rate: RateMode) -> BTreeSet<String> {
    let (server, witness) = (DynamoDb::with_table(), Witness::default());
    let (table, clock) = (witness.table(&server), server.clock());
    server.run(async {
        let fleet =
            Fleet::start(settings(leases, rate), Tables::one(table), clock, Seed::new(1)).await.unwrap();
        let (leases, limit) = (fleet.leases().unwrap(), fleet.limit().unwrap());
        let mut held = Vec::new();
        for _ in 0..20 {
            held.push(leases.acquire().await.unwrap());
            limit.acquire().await.unwrap().spend();
        }
        for lease in &held {
            leases.release(lease).await.unwrap();
        }
        assert!(fleet.leave(Duration::from_secs(10)).await);
    });
    witness.actions()
}

#[test]
fn instances_may_do_what_they_do() {
    let policy = policy("instance");
    let budget = &policy["ShareTheBudget"];
    assert_eq!(&needed(LeaseMode::Ledger, RateMode::Bucket), budget);
    assert_eq!(&needed(LeaseMode::Ledger, RateMode::Window), budget);
    let with_counter: BTreeSet<String> = budget.union(&policy["LeasesInModeCounter"]).cloned().collect();
    assert_eq!(needed(LeaseMode::Counter, RateMode::Window), with_counter);
    assert!(budget.is_disjoint(&policy["LeasesInModeCounter"]));
    assert_eq!(policy.len(), 4);
}

#[test]
fn instances_may_connect_as_their_tokens_say() {
    let policy = policy("instance");
    let credentials = Credentials::new("AKIDEXAMPLE", "secret", None, None, "test");
    let sdk = SdkConfig::builder().credentials_provider(SharedCredentialsProvider::new(credentials)).build();
    let signer = SdkSigner::new(sdk);
    for (user, statement) in [("app", "ConnectAsARole"), ("admin", "ConnectAsAdmin")] {
        let request = Options::builder(ENDPOINT).user(user).build().unwrap().token_request();
        let signed =
            tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(signer.sign(&request));
        let token = signed.unwrap().token.expose_secret().to_owned();
        let action = token.split("Action=").nth(1).and_then(|rest| rest.split('&').next()).unwrap();
        assert_eq!(policy[statement], BTreeSet::from([format!("dsql:{action}")]));
    }
}

#[test]
fn operators_may_do_what_they_do() {
    let policy = policy("operator");
    let (server, witness) = (DynamoDb::start(), Witness::default());
    let (table, clock) = (witness.table(&server), server.clock());
    server.run(table.setup(&clock)).unwrap();
    assert_eq!(witness.actions(), policy["SetUp"]);
    let witness = Witness::default();
    let table = witness.table(&server);
    server.run(async {
        // What a fleet in mode counter leaves when it crashes, and an instance of a ledger.
        let others = server.table();
        let held = Item::new().with("ttl_epoch", 1).with("created_ms", 1).with("renewed_ms", 1);
        let changes = held.iter().map(|(name, value)| forebay_fleet::Change::set(name, value.clone()));
        let lease = Update { changes: changes.collect(), ..Update::of(format!("dsqllease#{ENDPOINT}#0")) };
        let counter = Update::of(format!("dsqllease_counter#{ENDPOINT}"))
            .change(forebay_fleet::Change::set("active", 5))
            .change(forebay_fleet::Change::set("updated_ms", 1))
            .change(forebay_fleet::Change::set("renewed_ms", 1));
        for update in [lease, counter] {
            forebay_fleet::Table::update(&others, &update).await.unwrap();
        }
        let hour = Duration::from_secs(3600);
        let mended = operator::reconcile(&table, &clock, ENDPOINT, hour).await.unwrap();
        assert_eq!((mended.counted, mended.held, mended.expired), (5, 0, 1));
        let settings = settings(LeaseMode::Ledger, RateMode::Bucket);
        let fleet = Fleet::start(settings, Tables::one(others), clock.clone(), Seed::new(1)).await;
        // The counter was written just now.
        assert!(fleet.is_err());
        operator::reset(&table, &clock, ENDPOINT).await.unwrap();
        let survey = operator::survey(&table, &clock, ENDPOINT).await.unwrap();
        assert_eq!(survey, operator::Survey::default());
        operator::resize(&table, &clock, ENDPOINT, 100).await.unwrap();
        assert_eq!(operator::evict(&table, &clock, ENDPOINT, "nobody").await.unwrap(), 0);
    });
    assert_eq!(witness.actions(), policy["LookAndMend"]);
    assert_eq!(policy.len(), 2);
}

/// What Terraform makes is what the set-up would.
#[test]
fn terraform_makes_the_same_table() {
    let path = format!("{}/../../ops/terraform/main.tf", env!("CARGO_MANIFEST_DIR"));
    let text = std::fs::read_to_string(path).unwrap();
    let words: Vec<&str> = text.split_whitespace().collect();
    for expected in [
        &["hash_key", "=", "\"pk\""][..],
        &["name", "=", "\"pk\"", "type", "=", "\"S\""],
        &["billing_mode", "=", "\"PAY_PER_REQUEST\""],
        &["attribute_name", "=", "\"ttl_epoch\"", "enabled", "=", "true"],
    ] {
        assert!(words.windows(expected.len()).any(|part| part == expected), "{expected:?}");
    }
    // Every placeholder of the policies is filled in.
    for name in ["instance", "operator"] {
        let path = format!("{}/../../ops/iam/{name}.json", env!("CARGO_MANIFEST_DIR"));
        let policy = std::fs::read_to_string(path).unwrap();
        for placeholder in policy.split("${").skip(1).map(|rest| rest.split('}').next().unwrap()) {
            assert!(words.windows(2).any(|pair| pair == [placeholder, "="]), "{placeholder}");
        }
    }
}
