//! What the pools of a process share, and through a table the processes of a fleet.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use dsql_local::Cluster;
use forebay::Seed;
use forebay::rt::{self, ProcessClock, Runtime, TokioRuntime, VirtualTime};
use forebay_dsql::{
    Dsql, DsqlPool, ErrorKind, JoinError, Member, Node, OptionsBuilder, Postgres, SignFuture, Signer, Sqlx,
    TokenError, TokenRequest,
};
use forebay_fleet::{Faults, FaultyTable, MemoryTable, Tables, operator};

use super::cluster::{Keys, PATIENCE, eventually, options, start};

/// Options for pools of 5 in a fleet of 8.
fn fleet(cluster: &Cluster, reservoir: bool) -> OptionsBuilder {
    options(cluster, 5)
        .reservoir(reservoir)
        .variable("DSQL_RESERVOIR_LOW_WATERMARK", "1")
        .variable("DSQL_POOL_KEEPER_TICK_INTERVAL", "20ms")
        .variable("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "true")
        .variable("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "table")
        .variable("DSQL_DISTRIBUTED_CONN_LIMIT", "8")
        .variable("DSQL_DISTRIBUTED_CONN_LEASE_BLOCK", "1")
        .variable("DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED", "true")
        .variable("DSQL_DISTRIBUTED_RATE_LIMITER_TABLE", "table")
}

async fn survey(table: &MemoryTable, cluster: &Cluster) -> operator::Survey {
    let runtime = TokioRuntime::current().unwrap();
    operator::survey(table, &runtime, cluster.endpoint()).await.unwrap()
}

#[tokio::test]
async fn pools_of_both_modes_and_clients_share_tokens_and_the_fleets_budget() {
    let (cluster, table) = (start(), MemoryTable::new());
    let keys = Keys::of(&cluster);
    let join = |options| {
        Member::builder(&options, keys.clone()).tables(Tables::one(table.clone())).max_open(10).join()
    };
    let member = join(fleet(&cluster, true).build().unwrap()).await.unwrap();
    let one: DsqlPool<Sqlx> =
        member.pool(fleet(&cluster, false).pool("one").build().unwrap()).connect().await.unwrap();
    assert_eq!(one.status().open, 5, "it is warm");
    let other: Dsql =
        member.pool(fleet(&cluster, true).pool("other").build().unwrap()).connect().await.unwrap();
    eventually("nothing is left", || (one.status().open, other.status().open) == (5, 3)).await;
    assert_eq!(cluster.counters().live, 8);
    assert_eq!(keys.asked.load(Ordering::SeqCst), 1, "one token serves all");

    let seen = survey(&table, &cluster).await;
    assert_eq!(seen.totals(), (8, 8));
    assert!(seen.rate_reserved.is_some(), "the rate is shared, too");
    let status = member.fleet_status().unwrap();
    assert_eq!((status.slots, status.leases), (8, 8));
    assert!(seen.instances.iter().all(|entry| entry.instance == status.instance), "{seen:?}");

    // Another process gets none, until this one goes.
    let late = join(fleet(&cluster, true).build().unwrap()).await.unwrap();
    let waiting: Dsql = late
        .pool(fleet(&cluster, true).variable("DSQL_RESERVOIR_INITIAL_FILL_TIMEOUT", "100ms").build().unwrap())
        .connect()
        .await
        .unwrap();
    assert_eq!((waiting.status().open, cluster.counters().live_high_water), (0, 8));
    assert!(one.drain(PATIENCE).await.is_complete() && other.drain(PATIENCE).await.is_complete());
    assert!(member.leave(PATIENCE).await);
    eventually("the other process has what it wants", || waiting.status().open == 5).await;
    assert_eq!(cluster.counters().live_high_water, 8);
    drop((waiting, late));
    let (table, cluster) = (&table, &cluster);
    eventually("dropped is left", || {
        table.items().values().all(|item| item.number("free") == item.number("capacity"))
    })
    .await;
    assert!(survey(table, cluster).await.instances.is_empty());
}

#[tokio::test]
async fn a_process_on_its_own_shares_its_local_limit() {
    let cluster = start();
    let options = options(&cluster, 2).reservoir(true).variable("DSQL_NODE_ID", "77").build().unwrap();
    let member = Member::builder(&options, Keys::of(&cluster)).join().await.unwrap();
    let pool: Dsql = member.pool(options.clone()).connect().await.unwrap();
    pool.acquire().await.unwrap().batch_execute("SELECT 1").await.unwrap();
    assert_eq!(member.fleet_status(), None);
    assert_eq!(member.node(Duration::ZERO).await.number(), 77, "that of the options");
    assert!(member.leave(Duration::ZERO).await);
    let elsewhere = forebay_dsql::Options::builder("abc.dsql.us-east-1.on.aws").build().unwrap();
    let error = member.pool::<Postgres>(elsewhere).connect().await.unwrap_err();
    assert!(error.to_string().contains("which this member joined for"), "{error}");
}

#[tokio::test]
async fn node_numbers_come_from_the_ledger_before_the_options() {
    let (cluster, table) = (start(), MemoryTable::new());
    let mut nodes = Vec::new();
    for _ in 0..3 {
        let options = fleet(&cluster, true).variable("DSQL_NODE_ID", "77").build().unwrap();
        let member = Member::builder(&options, Keys::of(&cluster)).tables(Tables::one(table.clone()));
        let member = member.max_open(1).join().await.unwrap();
        let node = member.node(PATIENCE).await;
        assert_eq!(Some(node), member.fleet_status().unwrap().node.and_then(Node::new));
        assert_eq!(member.ids(PATIENCE).await.node(), node);
        nodes.push((node, member));
    }
    let numbers: std::collections::BTreeSet<Node> = nodes.iter().map(|(node, _)| *node).collect();
    assert_eq!(numbers.len(), 3, "{numbers:?}");
}

#[tokio::test]
async fn a_member_joins_with_slots_for_all_its_pools_can_have_at_once() {
    let cluster = start();
    let of = |reservoir| {
        fleet(&cluster, reservoir).variable("DSQL_DISTRIBUTED_CONN_LIMIT", "800").build().unwrap()
    };
    let (reservoir, standard) = (of(true), of(false));
    let builder = |options| {
        let member = Member::builder(options, Keys::of(&cluster));
        member.tables(Tables::one(MemoryTable::new()))
    };
    for (member, slots) in [
        (builder(&reservoir), 5 + 1),
        (builder(&standard), 5),
        (builder(&reservoir).pools([&reservoir, &standard]), 5 + 1 + 5),
        (builder(&reservoir).pools([&reservoir]).max_open(3), 3),
    ] {
        let member = member.join().await.unwrap();
        member.node(PATIENCE).await;
        let status = member.fleet_status().unwrap();
        assert_eq!(status.slots, slots);
        assert!(status.index.is_some(), "its pools retire connections in turn: {status:?}");
    }
}

#[tokio::test]
async fn what_is_to_be_shared_is_not_left_out_silently() {
    let cluster = start();
    let options = fleet(&cluster, true).build().unwrap();
    let error = Member::builder(&options, Keys::of(&cluster)).join().await.unwrap_err();
    assert!(
        matches!(&error, JoinError::Config(_)) && error.to_string().contains("forebay_aws::join"),
        "{error}"
    );
    let error = Dsql::connect(options, Keys::of(&cluster)).await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Permanent, "{error}");
    assert!(error.to_string().contains("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED"), "{error}");
    let rate_only = options_with_rate(&cluster);
    let error = Dsql::connect(rate_only, Keys::of(&cluster)).await.unwrap_err();
    assert!(error.to_string().contains("DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED"), "{error}");
    assert_eq!(cluster.counters().accepted, 0);
}

/// Each future of a member, dropped after so many milliseconds on a slow way to the table.
#[test]
fn futures_that_are_dropped_leave_nothing_behind() {
    let host = "abc.dsql.us-east-1.on.aws";
    for millis in (0..160).step_by(5) {
        let (time, memory) = (VirtualTime::new(), MemoryTable::new());
        let table = Arc::new(FaultyTable::new(memory.clone(), time.clone(), Seed::new(millis)));
        table.set(Faults {
            latency: (Duration::from_millis(10), Duration::from_millis(20)),
            ..Faults::default()
        });
        let options = forebay_dsql::Options::builder(host)
            .variable("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "true")
            .variable("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "table")
            .build()
            .unwrap();
        let join = || {
            let tables = Tables { leases: Arc::clone(&table) as _, rate: Arc::clone(&table) as _ };
            Member::builder(&options, Nobody).tables(tables).runtime(time.clone()).join()
        };
        let joined = time.run(rt::within(&time, Duration::from_millis(millis), join()));
        drop(joined);
        time.advance(Duration::from_secs(30));
        let survey = || time.run(operator::survey(&memory, &time, host)).unwrap();
        assert!(survey().instances.is_empty(), "joined and dropped after {millis} ms: {:?}", survey());

        let member = time.run(join()).unwrap();
        let early = time.run(rt::within(&time, Duration::from_millis(millis), member.ids(PATIENCE)));
        let node = time.run(member.node(PATIENCE));
        assert!(early.is_none_or(|ids| ids.node() == node), "asking changes nothing");
        time.run(rt::within(&time, Duration::from_millis(millis), member.leave(PATIENCE)));
        time.advance(Duration::from_secs(30));
        assert!(survey().instances.is_empty() && survey().is_exact(), "it goes on in the background");
    }
}

/// A process is cut off, taken for dead, and replaced by one that gets its number; then it joins again.
#[test]
fn there_are_no_ids_after_the_lease_of_their_number() {
    let (time, table, host) = (VirtualTime::new(), MemoryTable::new(), "abc.dsql.us-east-1.on.aws");
    let options = forebay_dsql::Options::builder(host)
        .variable("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "true")
        .variable("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "table")
        .build()
        .unwrap();
    // The clock of the one that is cut off is slow, and that of the other one fast.
    let join = |drift_ppm| {
        let runtime = time.process(ProcessClock { drift_ppm, ..ProcessClock::default() });
        let faulty = Arc::new(FaultyTable::new(table.clone(), time.clone(), Seed::new(1)));
        let tables = Tables { leases: Arc::clone(&faulty) as _, rate: Arc::clone(&faulty) as _ };
        let member = Member::builder(&options, Nobody).tables(tables).runtime(runtime).join();
        let member = time.run(member).unwrap();
        let ids = time.run(member.ids(PATIENCE));
        (member, ids, faulty)
    };
    let (member, ids, faulty) = join(-30_000);
    let (_other, other_ids, _) = join(30_000);
    time.advance(Duration::from_secs(100));
    let (last, node) = (ids.next().unwrap(), ids.node());
    assert_ne!(other_ids.node(), node);
    faulty.set(Faults { outage: true, ..Faults::default() });
    let instance = member.fleet_status().unwrap().instance;
    let shard = format!("forebay_ledger#{host}#{}", node.number() / 128);
    let has_entry = || table.item(&shard).unwrap().map("inst").unwrap().contains_key(&instance);
    let (mut made, began) = (0, time.now());
    while has_entry() {
        made += usize::from(ids.next().is_ok());
        time.advance(Duration::from_millis(500));
    }
    assert!(made > 150, "it makes ids for most of its lease, and not for {made} half seconds");
    assert!(time.now().since(began) < Duration::from_secs(240), "its observer has removed it");
    assert_eq!(ids.next(), Err(forebay_dsql::IdError::NoNumber));

    // Another one has the number when it comes back.
    let item = table.item(&shard).unwrap();
    let mut entries = item.map("inst").unwrap().clone();
    let fields = [("s", 0), ("b", 1), ("e", 1_000_000), ("n", i64::from(node.number()))];
    let fields = fields.map(|(name, number)| (name.to_owned(), forebay_fleet::Value::Number(number)));
    entries.insert("newcomer".to_owned(), forebay_fleet::Value::Map(fields.into()));
    table.put(&shard, item.with("inst", forebay_fleet::Value::Map(entries)));
    faulty.set(Faults::default());
    while let Err(error) = ids.next() {
        assert_eq!(error, forebay_dsql::IdError::NoNumber);
        time.advance(Duration::from_millis(10));
    }
    assert_ne!(ids.node(), node);
    assert!(ids.next().unwrap() > last);
    time.shut_down();
}

/// What was made with a number is still about when the ledger has forgotten who has it.
#[test]
fn ids_follow_the_number_in_the_ledger() {
    let (time, table, host) = (VirtualTime::new(), MemoryTable::new(), "abc.dsql.us-east-1.on.aws");
    let options = forebay_dsql::Options::builder(host)
        .variable("DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", "true")
        .variable("DSQL_DISTRIBUTED_CONN_LEASE_TABLE", "table")
        .build()
        .unwrap();
    let faulty = Arc::new(FaultyTable::new(table.clone(), time.clone(), Seed::new(1)));
    let slow = Duration::from_millis(20);
    faulty.set(Faults { latency: (slow, slow), ..Faults::default() });
    let tables = Tables { leases: Arc::clone(&faulty) as _, rate: Arc::clone(&faulty) as _ };
    let member = Member::builder(&options, Nobody).tables(tables).runtime(time.clone());
    let member = time.run(member.join()).unwrap();
    let ids = time.run(member.ids(PATIENCE));
    let (first, node) = (ids.next().unwrap(), ids.node());
    assert_eq!(u64::try_from(first).unwrap() >> 12 & 1023, u64::from(node.number()));

    // Forgotten, and nobody else takes the number: it is the same again.
    time.run(operator::reset(&table, &time, host)).unwrap();
    let wait = || time.advance(Duration::from_millis(1));
    while ids.next().is_ok() {
        wait();
    }
    assert_eq!(ids.next(), Err(forebay_dsql::IdError::NoNumber), "another may have it");
    while ids.next().is_err() {
        wait();
    }
    assert_eq!((ids.node(), member.fleet_status().unwrap().node), (node, Some(node.number())));

    // Someone else has it now.
    let shard = format!("forebay_ledger#{host}#{}", node.number() / 128);
    let mut item = table.item(&shard).unwrap();
    let mut entries = item.map("inst").unwrap().clone();
    let entry = entries.remove(&member.fleet_status().unwrap().instance).unwrap();
    entries.insert("other".to_owned(), entry);
    item = item.with("inst", forebay_fleet::Value::Map(entries));
    table.put(&shard, item);
    let before = ids.next().unwrap();
    time.advance(Duration::from_secs(60));
    let other = ids.node();
    assert_ne!(other, node);
    let after = ids.next().unwrap();
    assert!(after > before && u64::try_from(after).unwrap() >> 12 & 1023 == u64::from(other.number()));
    time.shut_down();
}

struct Nobody;

impl Signer for Nobody {
    fn sign<'a>(&'a self, _: &'a TokenRequest) -> SignFuture<'a> {
        Box::pin(async { Err(TokenError::credentials("nobody signs here")) })
    }
}

fn options_with_rate(cluster: &Arc<Cluster>) -> forebay_dsql::Options {
    options(cluster, 1)
        .variable("DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED", "true")
        .variable("DSQL_DISTRIBUTED_RATE_LIMITER_TABLE", "table")
        .build()
        .unwrap()
}
