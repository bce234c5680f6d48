//! A whole fleet on DynamoDB, in real time.

use std::time::Duration;

use forebay::{LeaseError, Seed};
use forebay_fleet::{Fleet, FleetSettings, LeaseSettings, RateSettings, Tables, operator};

use crate::server::DynamoDb;

const ENDPOINT: &str = "abc.dsql.us-east-1.on.aws";

fn settings() -> FleetSettings {
    let mut settings = FleetSettings::new(ENDPOINT, "fleet")
        .leases(LeaseSettings::new("fleet").limit(30))
        .rate(RateSettings::new("fleet"));
    settings.max_open = 10;
    settings
}

#[test]
fn three_instances_share_one_budget() {
    let server = DynamoDb::with_table();
    let (table, clock) = (server.table(), server.clock());
    server.run(async {
        let mut fleets = Vec::new();
        for number in 0..3 {
            let tables = Tables::one(table.clone());
            fleets.push(Fleet::start(settings(), tables, clock.clone(), Seed::new(number)).await.unwrap());
        }
        // In turns, until nobody gets any more: slots are taken in blocks, so not all get the same.
        let (mut held, mut refused) = (Vec::new(), 0);
        for turn in 0.. {
            let fleet = &fleets[turn % fleets.len()];
            let (leases, limit) = (fleet.leases().unwrap(), fleet.limit().unwrap());
            match leases.acquire().await {
                Ok(lease) => {
                    limit.acquire().await.unwrap().spend();
                    held.push((lease, leases));
                    refused = 0;
                }
                Err(LeaseError::Limit { limit }) => {
                    assert_eq!(limit, 30);
                    refused += 1;
                }
                Err(error) => panic!("{error}"),
            }
            if refused == fleets.len() {
                break;
            }
        }
        assert_eq!(held.len(), 30, "all there are, and not one more");
        let survey = operator::survey(&table, &clock, ENDPOINT).await.unwrap();
        assert_eq!(survey.totals(), (30, 30));
        assert!(survey.is_exact() && survey.rate_reserved.is_some(), "{survey:?}");
        assert!(survey.instances.iter().all(|one| one.heartbeat_age < Duration::from_secs(60)), "{survey:?}");
        let mut nodes: Vec<u16> = survey.instances.iter().filter_map(|instance| instance.node).collect();
        nodes.sort_unstable();
        nodes.dedup();
        assert!(nodes.len() >= 3, "{nodes:?}");
        for (lease, leases) in &held {
            leases.release(lease).await.unwrap();
        }
        for fleet in &fleets {
            assert!(fleet.leave(Duration::from_secs(10)).await);
        }
        let survey = operator::survey(&table, &clock, ENDPOINT).await.unwrap();
        assert_eq!(survey.totals(), (0, 30));
        assert!(survey.is_exact() && survey.instances.is_empty(), "{survey:?}");
    });
}
