//! What an exporter shows of a pool, in both modes.

use forebay::memory::Answer;
use forebay_dsql::pool_metrics;
use metrics_exporter_prometheus::PrometheusBuilder;

use super::world::{World, config, poll, seconds};

/// Runs `story` and gives back what was exported.
fn exported(story: impl FnOnce(&World)) -> String {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    metrics::with_local_recorder(&recorder, || story(&World::new()));
    handle.render()
}

fn value(text: &str, name: &str) -> String {
    let line = text.lines().find(|line| line.starts_with(&format!("{name}{{")));
    let line = line.unwrap_or_else(|| panic!("no {name} in\n{text}"));
    assert!(line.contains("pool=\"default\"") && line.contains("service=\""), "{line}");
    line.rsplit(' ').next().unwrap().to_owned()
}

#[test]
fn standard_mode_shows_its_pool() {
    let text = exported(|world| {
        let pool = world.standard(config(2));
        let held = [world.time.run(pool.acquire()).unwrap(), world.time.run(pool.acquire()).unwrap()];
        world.time.run(pool.acquire_within(seconds(3))).unwrap_err();
        drop(held);
        world.server.on_open(Answer::Fail(forebay::Failure::Open));
        world.server.kill_all();
        world.time.advance(seconds(2));
        world.server.on_open(Answer::Well);
        world.time.advance(seconds(2));
        world.time.advance(seconds(56 * 60));
        let _lent = world.time.run(pool.acquire()).unwrap();
        world.time.advance(seconds(1));
    });
    for metric in pool_metrics::ALL {
        assert!(text.contains(metric.name), "no {} in\n{text}", metric.name);
    }
    assert_eq!(value(&text, "dsql_db_closed_max_idle_time_total"), "0", "nothing is closed for being idle");
    assert_eq!(value(&text, "dsql_db_closed_max_idle_total"), "0");
    assert_eq!(value(&text, "dsql_pool_max_open"), "2");
    assert_eq!(value(&text, "dsql_pool_open"), "2");
    assert_eq!(value(&text, "dsql_pool_in_use"), "1");
    assert_eq!(value(&text, "dsql_pool_idle"), "1");
    assert_eq!(value(&text, "dsql_pool_wait_total"), "1");
    assert_eq!(value(&text, "dsql_pool_wait_duration_sum"), "3000");
    assert_eq!(value(&text, "dsql_db_closed_max_lifetime_total"), "2");
    assert_eq!(
        value(&text, "dsql_pool_keeper_topup_total"),
        "4",
        "after the deaths, and after the 55 minutes"
    );
    assert_eq!(value(&text, "dsql_pool_keeper_current_size"), "2");
    assert_eq!(
        value(&text, "dsql_pool_keeper_topup_failures_total"),
        "3",
        "a tick at each end, and one between"
    );
}

#[test]
fn a_caller_that_gives_up_has_waited_and_a_drained_pool_shows_nothing() {
    let text = exported(|world| {
        let pool = world.standard(config(1));
        world.time.advance(seconds(1));
        let held = world.time.run(pool.acquire()).unwrap();
        let mut caller = Box::pin(pool.acquire());
        assert!(poll(&mut caller).is_pending());
        world.time.advance(seconds(2));
        drop(caller);
        drop(held);
        assert!(world.time.run(pool.drain(seconds(10))).is_complete());
    });
    assert_eq!(value(&text, "dsql_pool_wait_total"), "1");
    assert_eq!(value(&text, "dsql_pool_wait_duration_sum"), "2000");
    for gauge in ["dsql_pool_open", "dsql_pool_in_use", "dsql_pool_idle"] {
        assert_eq!(value(&text, gauge), "0", "{gauge}");
    }
}

#[test]
fn reservoir_mode_shows_the_same_and_more() {
    let text = exported(|world| {
        let pool = world.time.run(world.builder(config(2), true, None).connect()).unwrap();
        let held = [world.time.run(pool.acquire()).unwrap(), world.time.run(pool.acquire()).unwrap()];
        world.time.run(pool.acquire_within(seconds(3))).unwrap_err();
        drop(held);
        world.time.advance(seconds(30 * 60));
    });
    assert_eq!(value(&text, "dsql_pool_max_open"), "2");
    assert_eq!(value(&text, "dsql_pool_open"), "2");
    assert_eq!(value(&text, "dsql_pool_in_use"), "0");
    assert_eq!(value(&text, "dsql_pool_idle"), "2");
    assert_eq!(value(&text, "dsql_pool_wait_total"), "1");
    assert_eq!(value(&text, "dsql_reservoir_size"), "2");
    assert_eq!(value(&text, "dsql_reservoir_waits_total"), "1");
    assert_ne!(value(&text, "dsql_db_closed_max_lifetime_total"), "0");
}

#[test]
fn a_reservoir_shows_what_it_closed_for_being_idle() {
    let text = exported(|world| {
        let config = config(4).on_demand(1).idle_timeout(seconds(60));
        let pool = world.time.run(world.builder(config, true, None).connect()).unwrap();
        let held: Vec<_> = (0..4).map(|_| world.time.run(pool.acquire()).unwrap()).collect();
        drop(held);
        world.time.advance(seconds(120));
        assert_eq!(pool.status().open, 1);
    });
    assert_eq!(value(&text, "dsql_db_closed_max_idle_time_total"), "3");
    assert_eq!(value(&text, "dsql_db_closed_max_idle_total"), "0");
    assert_eq!(value(&text, "dsql_db_closed_max_lifetime_total"), "0");
}

#[test]
fn the_manual_lists_every_metric() {
    let manual = include_str!("../../../../../docs/dsql.md");
    assert!(manual.contains(&pool_metrics::manual()), "the table should be:\n{}", pool_metrics::manual());
}
