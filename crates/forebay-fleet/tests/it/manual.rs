//! The manual page says what is so.

use std::time::Duration;

use forebay::Seed;
use forebay::rt::VirtualTime;
use forebay_fleet::{Fleet, LeaseMode, MemoryTable, RateMode, Tables, metrics};
use metrics_exporter_prometheus::PrometheusBuilder;

use crate::support::{bucket, leases, settings};

const MANUAL: &str = include_str!("../../../../docs/fleet.md");

#[test]
fn it_lists_every_metric() {
    assert!(
        MANUAL.contains(&metrics::manual("dsql")),
        "put this into docs/fleet.md:\n{}",
        metrics::manual("dsql")
    );
}

#[test]
fn metrics_tell_what_happens() {
    let recorder = PrometheusBuilder::new().build_recorder();
    let handle = recorder.handle();
    ::metrics::with_local_recorder(&recorder, || {
        let (time, mut settings) = (VirtualTime::new(), settings());
        settings.leases = Some(leases(LeaseMode::Ledger, 1000));
        settings.rate = Some(bucket(RateMode::Bucket, 100, 1000));
        let tables = Tables::one(MemoryTable::new());
        let fleet = time.run(Fleet::start(settings, tables, time.clone(), Seed::new(1))).unwrap();
        time.advance(Duration::from_secs(100));
        time.run(fleet.limit().unwrap().acquire()).unwrap().spend();
        time.shut_down();
    });
    let text = handle.render();
    for line in [
        "dsql_distributed_conn_lease_limit{service=\"history\"} 1000",
        "dsql_distributed_conn_lease_held{service=\"history\"} 100",
        "dsql_distributed_conn_lease_active{service=\"history\"} 100",
        "dsql_distributed_lease_beats_total{service=\"history\"} 6",
        "dsql_distributed_degraded{service=\"history\"} 0",
        "dsql_distributed_rate_wait_milliseconds_count{service=\"history\"} 1",
    ] {
        assert!(text.contains(line), "{line} is missing from:\n{text}");
    }
    assert!(text.contains("operation=\"beat\"") && text.contains("dsql_distributed_store_write_units_total"));
}
