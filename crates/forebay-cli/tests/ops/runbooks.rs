//! Each runbook in its incident: what it says that its commands print, they print.

use dsql_local::Fault;
use forebay_fleet::Item;

use crate::page::{Page, names};
use crate::scene::Scene;
use crate::server::{DynamoDb, ENDPOINT};
use crate::service::{CALLERS, HOLD};

const LOOK: &str = "Find the cause";
const ACT: &str = "Act";
const CONFIRM: &str = "Confirm recovery";

fn inject(scene: &Scene, fault: &str) {
    scene.cluster.inject(fault.parse::<Fault>().unwrap());
}

/// A service that was full before its incident.
fn healthy(mut scene: Scene) -> Scene {
    scene.start();
    scene.wait_for("dsql_reservoir_size == dsql_reservoir_target");
    scene
}

#[test]
fn every_page_has_its_sections() {
    for name in names().iter().filter(|name| *name != "README.md") {
        let page = Page::read(name);
        for section in ["Symptom", "Meaning", LOOK, ACT, CONFIRM] {
            assert!(page.sections.iter().any(|known| known == section), "{name} has no section {section}");
        }
        assert!(page.commands() > 4, "{name} has few commands");
    }
}

#[test]
fn first_look() {
    let (page, scene) = (Page::read("README.md"), healthy(Scene::new()));
    page.run("Before an incident", &scene);
    page.run("First look", &scene);
    page.finish();
}

#[test]
fn not_filling() {
    let (page, mut scene) = (Page::read("not-filling.md"), Scene::new());
    let port = scene.cluster.address().port().to_string();
    // Nothing listens there.
    scene.set("PGPORT", "1").start();
    scene.prometheus().expect_alert("DSQLReservoirLow");
    scene.prometheus().expect_alert("DSQLReservoirNotFull");
    scene.prometheus().expect_alert("DSQLReservoirRefillFailures");
    page.run(LOOK, &scene);
    page.run(ACT, &scene);
    scene.set("PGPORT", port).start();
    page.run(CONFIRM, &scene);
    page.finish();
}

#[test]
fn draining() {
    let (page, mut scene) = (Page::read("draining.md"), Scene::new());
    scene.set(CALLERS, "40").set(HOLD, "300");
    let mut scene = healthy(scene);
    scene.prometheus().expect_alert("DSQLCheckoutSlow");
    page.run(LOOK, &scene);
    page.run(ACT, &scene);
    scene.set("DSQL_MAX_CONNS", "50").start();
    page.run(CONFIRM, &scene);
    page.finish();
}

#[test]
fn discards() {
    let (page, scene) = (Page::read("discards.md"), healthy(Scene::new()));
    inject(&scene, "sever");
    page.run(LOOK, &scene);
    page.run(ACT, &scene);
    page.run(CONFIRM, &scene);
    page.finish();
}

#[test]
fn empty() {
    let (page, scene) = (Page::read("empty.md"), healthy(Scene::new()));
    inject(&scene, "refuse:how=close");
    inject(&scene, "sever");
    scene.prometheus().expect_alert("DSQLReservoirEmpty");
    scene.prometheus().expect_alert("DSQLCheckoutFailures");
    page.run(LOOK, &scene);
    page.run("Callers that fail", &scene);
    scene.cluster.heal_all();
    page.run(CONFIRM, &scene);
    page.finish();
}

#[test]
fn global_limit() {
    let (page, mut scene) = (Page::read("global-limit.md"), Scene::new());
    scene.set("DSQL_DISTRIBUTED_CONN_LIMIT", "16").set("DSQL_MAX_CONNS", "30").start();
    scene.prometheus().expect_alert("DSQLGlobalLimitNearCapacity");
    scene.prometheus().expect_alert("DSQLLeaseRefused");
    page.run("Limit or table", &scene);
    page.run(LOOK, &scene);
    scene.set("DSQL_DISTRIBUTED_CONN_LIMIT", "400").start();
    page.run(ACT, &scene);
    page.run(CONFIRM, &scene);
    page.finish();
}

#[test]
fn dynamodb() {
    let (page, mut scene) = (Page::read("dynamodb.md"), healthy(Scene::new()));
    // It ends, and another one comes.
    scene.dynamo = DynamoDb::start();
    scene.prometheus().expect_alert("DSQLTableUnavailable");
    page.run(LOOK, &scene);
    let url = scene.dynamo.url();
    scene.set("AWS_ENDPOINT_URL_DYNAMODB", url);
    page.run(ACT, &scene);
    scene.start();
    page.run(CONFIRM, &scene);
    page.finish();
}

#[test]
fn tokens() {
    let (page, mut scene) = (Page::read("tokens.md"), Scene::new());
    // With a fleet, a service without credentials does not start.
    for name in ["DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED"] {
        scene.set(name, "false");
    }
    scene.unset("AWS_ACCESS_KEY_ID").unset("AWS_SECRET_ACCESS_KEY").start();
    scene.prometheus().expect_alert("DSQLTokenNotRenewed");
    page.run(LOOK, &scene);
    for name in ["DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED"] {
        scene.set(name, "true");
    }
    scene.give_keys();
    let scene = healthy(scene);
    inject(&scene, "refuse:how=denied");
    inject(&scene, "sever");
    page.run("The cluster denies access", &scene);
    scene.cluster.heal_all();
    page.run(CONFIRM, &scene);
    page.finish();
}

#[test]
fn server_pushback() {
    let (page, scene) = (Page::read("server-pushback.md"), healthy(Scene::new()));
    inject(&scene, "refuse:how=53400");
    inject(&scene, "sever");
    scene.prometheus().expect_alert("DSQLRateLoweredByServer");
    page.run(LOOK, &scene);
    page.run(ACT, &scene);
    scene.cluster.heal_all();
    page.run(CONFIRM, &scene);
    page.finish();
}

#[test]
fn lost_entry() {
    let (page, scene) = (Page::read("lost-entry.md"), healthy(Scene::new()));
    let record = scene.dynamo.record(&["lease", "status"], 0);
    let instance = record["instances"][0]["instance"].as_str().expect("it has joined");
    scene.dynamo.record(&["lease", "evict", instance, "--yes"], 0);
    scene.prometheus().expect_alert("DSQLLedgerEntryLost");
    page.run(LOOK, &scene);
    page.run(ACT, &scene);
    page.run(CONFIRM, &scene);
    page.finish();
}

#[test]
fn commit_unknown() {
    let (page, scene) = (Page::read("commit-unknown.md"), healthy(Scene::new()));
    inject(&scene, "drop:at=after-commit,p=0.3");
    scene.prometheus().expect_alert("DSQLCommitUnknown");
    page.run(LOOK, &scene);
    page.run(ACT, &scene);
    scene.cluster.heal_all();
    page.run(CONFIRM, &scene);
    page.finish();
}

#[test]
fn recover_empty() {
    let (page, scene) = (Page::read("recover-empty.md"), healthy(Scene::new()));
    inject(&scene, "refuse:how=denied");
    inject(&scene, "sever");
    page.run(LOOK, &scene);
    page.run(ACT, &scene);
    scene.cluster.heal_all();
    page.run(CONFIRM, &scene);
    page.finish();
}

#[test]
fn recover_global_limit() {
    let (page, mut scene) = (Page::read("recover-global-limit.md"), Scene::new());
    scene.set("DSQL_DISTRIBUTED_CONN_LEASE_MODE", "counter");
    let scene = healthy(scene);
    // Instances crashed, and their leases still count. The next open meets the limit.
    let now = i64::try_from(scene.dynamo.wall().as_millis()).unwrap();
    let counter = Item::new().with("active", 400).with("updated_ms", now).with("renewed_ms", now);
    scene.dynamo.put(&format!("dsqllease_counter#{ENDPOINT}"), &counter);
    inject(&scene, "sever:fraction=0.3");
    page.run(LOOK, &scene);
    page.run(ACT, &scene);
    page.run(CONFIRM, &scene);
    page.finish();
}

#[test]
fn rolling_restart() {
    let (page, mut scene) = (Page::read("rolling-restart.md"), healthy(Scene::new()));
    page.run(LOOK, &scene);
    scene.stop();
    // Its slots are free at once.
    assert_eq!(scene.dynamo.record(&["lease", "status"], 0)["held"], 0);
    scene.start();
    page.run(ACT, &scene);
    page.run(CONFIRM, &scene);
    page.finish();
}
