//! The tables of a fleet: leases and rate.

use std::collections::BTreeMap;
use std::time::Duration;

use forebay::duration::show;
use forebay::rt::Runtime as _;
use forebay_aws::dynamo::{DynamoTable, Expiry, Location};
use forebay_dsql::Options;
use forebay_fleet::operator::{self, Survey};
use forebay_fleet::{
    Cancelled, Change, Condition, Delete, Item, LeaseMode, LeaseSettings, Table, TableError, Update, Write,
};

use super::check::Check;
use super::clock::Reading;
use super::context::Context;
use super::fault::{self, Fault};
use super::finding::Finding;
use super::{configuration, moment, tcp};

/// A read of a table in the same region takes milliseconds.
const SLOW: Duration = Duration::from_millis(500);
/// How long a count that does not add up is given to do so: the counter and its leases are read one after the other.
const SETTLE: Duration = Duration::from_secs(1);
/// Of a large fleet, not every instance is listed; `forebay lease status` does that.
const MOST_LISTED: usize = 20;
/// The parts of a ledger.
const SHARDS: u64 = 8;

/// A table, and what it is for.
struct Use<'a> {
    name: &'a str,
    leases: Option<&'a LeaseSettings>,
    rate: bool,
}

pub(super) async fn run(context: &mut Context<'_>) -> Vec<Finding> {
    let Some(options) = context.options().cloned() else { return Vec::new() };
    let uses = uses(&options);
    let mut findings = unusable(&context.variables, &options);
    if uses.is_empty() && findings.is_empty() {
        return vec![Finding::skipped(Check::Tables, "neither leases nor a shared rate are enabled")];
    }
    for one in &uses {
        let place = Location {
            region: options.settings().region.clone(),
            cluster: Some(options.host().to_owned()),
            endpoint_url: context.request.dynamodb_endpoint.clone(),
        };
        match context.signer().await.table(one.name, place) {
            Ok(table) => of_table(context, &table, one, options.host(), &mut findings).await,
            Err(error) => {
                findings.push(Finding::failure(fault::NO_LOCATION, format!("table {}: {error}", one.name)));
            }
        }
    }
    findings
}

/// What is switched on, and cannot be used because of its settings.
fn unusable(variables: &BTreeMap<String, String>, options: &Options) -> Vec<Finding> {
    let settings = options.settings();
    let is_zero =
        |name: &str| variables.get(name).is_some_and(|value| value.trim().parse().is_ok_and(|n: i64| n <= 0));
    [
        ("leases", "DSQL_DISTRIBUTED_CONN_LEASE_ENABLED", settings.leases.is_none()),
        (
            "the shared rate",
            "DSQL_DISTRIBUTED_RATE_LIMITER_ENABLED",
            // A limit of zero is another way to turn it off.
            settings.rate.is_none() && !is_zero("DSQL_DISTRIBUTED_RATE_LIMITER_LIMIT"),
        ),
    ]
    .into_iter()
    .filter(|(_, switch, is_absent)| *is_absent && configuration::is_on(variables, switch))
    .map(|(what, switch, _)| {
        let why = format!("{what}: {switch} is true, but the settings are wrong: see check configuration");
        Finding::skipped(Check::Tables, why)
    })
    .collect()
}

fn uses(options: &Options) -> Vec<Use<'_>> {
    let settings = options.settings();
    let leases = settings.leases.as_ref().map(|leases| Use {
        name: &leases.table,
        leases: Some(leases),
        rate: settings.rate.as_ref().is_some_and(|rate| rate.table == leases.table),
    });
    let is_shared = leases.as_ref().is_some_and(|leases| leases.rate);
    let rate = settings.rate.as_ref().filter(|_| !is_shared);
    let rate = rate.map(|rate| Use { name: &rate.table, leases: None, rate: true });
    leases.into_iter().chain(rate).collect()
}

async fn of_table(
    context: &mut Context<'_>,
    table: &DynamoTable,
    usage: &Use<'_>,
    endpoint: &str,
    findings: &mut Vec<Finding>,
) {
    let name = usage.name;
    let probe = probe_key(endpoint);
    let read = context.bounded(1, table.get(&probe)).await.unwrap_or_else(late);
    let is_allowed = match read {
        Ok(_) => true,
        Err(error) => {
            if let TableError::Credentials(words) = &error
                && let Some(theirs) = moment::in_refused_signature(words)
            {
                context.readings.push(Reading::new("DynamoDB", theirs, context.runtime.wall()));
            }
            // Wrong keys of a table make the key invalid: the next check says so.
            let is_of_keys = matches!(error, TableError::Invalid(_));
            if !is_of_keys {
                let finding = refused(name, "GetItem", &error);
                let is_silent = finding.fault == Some(fault::UNREACHABLE_TABLE);
                findings.push(finding.details(is_silent.then(|| tried(context, &error.to_string()))));
            }
            if !is_of_keys && !matches!(error, TableError::Denied(_)) {
                return;
            }
            false
        }
    };
    // The first read has made the connection.
    let began = context.runtime.now();
    let date = context.bounded(1, table.server_date(&probe)).await.flatten();
    let took = context.runtime.now().since(began);
    if let Some(theirs) = date {
        // Its date has whole seconds: on average, half a second has passed.
        let theirs = theirs + Duration::from_millis(500);
        context.readings.push(Reading::new("DynamoDB", theirs, context.runtime.wall()));
    }
    if !described(context, table, name, findings).await {
        return;
    }
    if is_allowed {
        let purpose = match (usage.leases.is_some(), usage.rate) {
            (true, true) => "leases and rate",
            (true, false) => "leases",
            _ => "rate",
        };
        findings.push(if took >= SLOW {
            Finding::warning(fault::SLOW_TABLE, format!("table {name}: a read takes {}", tcp::millis(took)))
        } else {
            Finding::ok(Check::Tables, format!("table {name} ({purpose}) answers in {}", tcp::millis(took)))
        });
    }
    permissions(context, table, usage, &probe, is_allowed, findings).await;
    if let Some(leases) = usage.leases.filter(|_| is_allowed) {
        counts(context, table, name, leases, endpoint, findings).await;
    }
}

/// A key that nobody uses. Nothing is ever written there.
fn probe_key(endpoint: &str) -> String {
    format!("forebay_doctor#{endpoint}")
}

fn late<T>() -> Result<T, TableError> {
    Err(TableError::Unknown("the time of the check is up".into()))
}

/// A call that failed.
fn refused(table: &str, action: &str, error: &TableError) -> Finding {
    let known: &'static Fault = match error {
        TableError::NoTable(_) => fault::MISSING_TABLE,
        TableError::Denied(_) => {
            let what = format!("table {table}: dynamodb:{action} is not allowed");
            return Finding::failure(fault::NO_PERMISSION, what).detail(error.to_string());
        }
        TableError::Credentials(_) => fault::REFUSED_BY_TABLE,
        TableError::Throttled => fault::THROTTLED_TABLE,
        TableError::Unknown(_) => fault::UNREACHABLE_TABLE,
        _ => fault::WRONG_TABLE,
    };
    Finding::failure(known, format!("table {table}: {error}"))
}

/// The address that was asked, and how far that got.
fn tried(context: &Context<'_>, words: &str) -> String {
    let of_variable = |name: &str| {
        let value = context.variables.get(name).filter(|value| !value.trim().is_empty());
        value.map(|value| format!("{} ({name})", value.trim()))
    };
    let given = context.request.dynamodb_endpoint.as_ref().map(|url| format!("{url} (--dynamodb-endpoint)"));
    let address = given
        .or_else(|| of_variable("AWS_ENDPOINT_URL_DYNAMODB"))
        .or_else(|| of_variable("AWS_ENDPOINT_URL"))
        .unwrap_or_else(|| "AWS's own address, or that of the profile".to_owned());
    format!("tried {address}{}", got(words))
}

/// What an error of the network says about the way. The SDK tells it in words only.
fn got(words: &str) -> &'static str {
    let has = |part: &str| words.to_ascii_lowercase().contains(part);
    if has("connection refused") {
        ": nothing listens there"
    } else if has("dns error") || has("failed to lookup") {
        ": nobody knows this name"
    } else if has("timeout") || has("timed out") || has("time of the check is up") {
        ": no answer, so there is no network path, or something drops the packets"
    } else {
        ""
    }
}

/// Checks keys and time-to-live. A service needs no permission for that, so its lack is no fault. Returns whether
/// the table can be used.
async fn described(
    context: &Context<'_>,
    table: &DynamoTable,
    name: &str,
    findings: &mut Vec<Finding>,
) -> bool {
    match context.bounded(1, table.inspect()).await.unwrap_or_else(late) {
        Ok(info) if !info.problems.is_empty() => {
            let what = format!("table {name} has another schema: {}", info.problems.join("; "));
            findings.push(Finding::failure(fault::WRONG_TABLE, what));
            return false;
        }
        Ok(info) if !["ACTIVE", "UPDATING"].contains(&info.status.as_str()) => {
            findings
                .push(Finding::failure(fault::INACTIVE_TABLE, format!("table {name} is {}", info.status)));
            return false;
        }
        Ok(info) if info.provisioned => {
            let what = format!("table {name} has provisioned capacity");
            findings.push(Finding::warning(fault::PROVISIONED_TABLE, what));
        }
        Ok(_) => findings.push(Finding::ok(Check::Tables, format!("table {name} has the right keys"))),
        Err(TableError::Denied(_)) => {
            let why = format!(
                "keys of table {name}: this role lacks dynamodb:DescribeTable; services do not need it"
            );
            findings.push(Finding::skipped(Check::Tables, why));
        }
        Err(error) => {
            findings.push(refused(name, "DescribeTable", &error));
            return false;
        }
    }
    match context.bounded(1, table.expiry()).await.unwrap_or_else(late) {
        Ok(Expiry::On) => {
            let what = format!("items of table {name} expire by ttl_epoch");
            findings.push(Finding::ok(Check::Tables, what));
        }
        Ok(Expiry::OtherAttribute(attribute)) => {
            let what = format!("items of table {name} expire by {attribute}, not by ttl_epoch");
            findings.push(Finding::warning(fault::NO_TTL, what));
        }
        Ok(_) => {
            let what = format!("items of table {name} do not expire: it has no time-to-live");
            findings.push(Finding::warning(fault::NO_TTL, what));
        }
        Err(TableError::Denied(_)) => {
            let why = format!(
                "time-to-live of table {name}: this role lacks dynamodb:DescribeTimeToLive; services do not need it"
            );
            findings.push(Finding::skipped(Check::Tables, why));
        }
        Err(error) => findings.push(refused(name, "DescribeTimeToLive", &error)),
    }
    true
}

/// Tries each write that a service makes, with a condition that never holds: a permission shows, and nothing changes.
async fn permissions(
    context: &Context<'_>,
    table: &DynamoTable,
    usage: &Use<'_>,
    probe: &str,
    may_read: bool,
    findings: &mut Vec<Finding>,
) {
    let never = || Condition::Any(Vec::new());
    let update = || Update::of(probe).when(never()).change(Change::set("probe", 1));
    let mut allowed = if may_read { vec!["GetItem"] } else { Vec::new() };
    let mut attempt = |action: &'static str, tried: Result<(), TableError>| match tried {
        Err(TableError::ConditionFailed(_)) => allowed.push(action),
        Err(TableError::Cancelled(reasons))
            if reasons.iter().all(|reason| matches!(reason, Cancelled::ConditionFailed(_))) =>
        {
            allowed.push(action);
        }
        // The condition never holds.
        Ok(()) => {}
        Err(error) => findings.push(refused(usage.name, action, &error)),
    };
    let tried = context.bounded(1, table.update(&update())).await.unwrap_or_else(late);
    attempt("UpdateItem", tried.map(drop));
    if usage.leases.is_some_and(|leases| leases.mode == LeaseMode::Counter) {
        // Leases are put and deleted in transactions, which need the permissions of their parts.
        let item = Item::new().with("probe", 1);
        let put = [Write::Put { key: probe.to_owned(), item, when: vec![never()] }];
        let delete = [Write::Delete(Delete { key: probe.to_owned(), when: vec![never()] })];
        for (action, writes) in [("PutItem", &put), ("DeleteItem", &delete)] {
            let token = format!("doctor-{:016x}", context.runtime.entropy());
            let tried = context.bounded(1, table.transact(writes, &token)).await.unwrap_or_else(late);
            attempt(action, tried);
        }
    }
    if !allowed.is_empty() {
        let verb = if allowed.len() == 1 { "is" } else { "are" };
        let what = format!("table {}: {} {verb} allowed", usage.name, allowed.join(", "));
        findings.push(Finding::ok(Check::Tables, what));
    }
}

async fn counts(
    context: &Context<'_>,
    table: &DynamoTable,
    name: &str,
    leases: &LeaseSettings,
    endpoint: &str,
    findings: &mut Vec<Finding>,
) {
    let survey = || async {
        let read = operator::survey(table, context.runtime, endpoint);
        context.bounded(1, read).await.unwrap_or_else(late)
    };
    let mut read = survey().await;
    if read.as_ref().is_ok_and(|survey| !survey.is_exact()) && context.left() > SETTLE {
        context.runtime.sleep_until(context.runtime.now() + SETTLE).await;
        read = survey().await;
    }
    match read {
        Ok(survey) => findings.extend(held(&survey, name, leases)),
        Err(TableError::Denied(_)) if leases.mode == LeaseMode::Counter => {
            let why =
                format!("counter of table {name}: this role lacks dynamodb:Scan; services do not need it");
            findings.push(Finding::skipped(Check::Tables, why));
        }
        Err(error) => findings.push(refused(name, "GetItem", &error)),
    }
}

/// Who holds how much, and whether it adds up.
fn held(survey: &Survey, name: &str, leases: &LeaseSettings) -> Vec<Finding> {
    let mut findings = Vec::new();
    for shard in &survey.broken {
        findings.push(Finding::failure(
            fault::DAMAGED_LEDGER,
            format!("table {name}: shard {shard} of the ledger cannot be read"),
        ));
    }
    let drift: i64 = survey.shards.iter().map(|(_, shard)| shard.drift.abs()).sum();
    if drift != 0 {
        let what =
            format!("table {name}: free and held slots of the ledger differ from its capacity by {drift}");
        findings.push(Finding::failure(fault::DAMAGED_LEDGER, what));
    }
    if let Some(counter) = survey.counter {
        let (active, items, drift) = (counter.active, counter.leases, counter.drift());
        let what = format!("table {name}: the counter says {active}, and there are {items} leases");
        let reaches = |count: i64| u64::try_from(count).unwrap_or(0) >= leases.limit;
        // Then nobody can open, and only the drift is to blame: more instances would fit.
        let is_blocked_by_drift = reaches(active) && !reaches(active.saturating_sub(drift));
        findings.push(if drift == 0 {
            Finding::ok(Check::Tables, what)
        } else if is_blocked_by_drift {
            let what = format!(
                "table {name}: the counter says {active}, the limit is {}, and {drift} of them have no lease: nobody can open more",
                leases.limit
            );
            Finding::failure(fault::DRIFTED_COUNTER, what)
        } else {
            Finding::warning(fault::DRIFTED_COUNTER, format!("{what}: a drift of {drift:+}"))
        });
        if reaches(active) && !is_blocked_by_drift {
            let what = format!("table {name}: the counter says {active}, and the limit is {}", leases.limit);
            findings.push(Finding::failure(fault::LIMIT_REACHED, what));
        }
    }
    let (slots, capacity) = survey.totals();
    if survey.shards.is_empty() && survey.counter.is_none() {
        findings.push(Finding::ok(Check::Tables, format!("table {name}: nobody has joined yet")));
    }
    if survey.shards.is_empty() {
        return findings;
    }
    let mut names: Vec<&str> = survey.instances.iter().map(|one| one.instance.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    let what = format!("table {name}: {slots} of {capacity} slots are held by {}", instances(names.len()));
    let holders = survey.instances.iter().filter(|one| one.slots > 0).take(MOST_LISTED).map(|one| {
        let age = show(Duration::from_secs(one.heartbeat_age.as_secs()));
        format!("{}: {} slots in shard {}, heartbeat {age} ago", one.instance, one.slots, one.shard)
    });
    let holders: Vec<String> = holders.collect();
    let free: u64 = survey.shards.iter().map(|(_, shard)| shard.free).sum();
    findings.push(if free == 0 && survey.shards.len() as u64 == SHARDS {
        Finding::warning(fault::LIMIT_REACHED, what).details(holders)
    } else {
        Finding::ok(Check::Tables, what).details(holders)
    });
    let part = |k: u64| leases.limit / SHARDS + u64::from(k < leases.limit % SHARDS);
    if survey.shards.iter().any(|(k, shard)| shard.capacity != part(u64::from(*k))) {
        let what = format!("table {name}: the ledger does not have the limit of {}", leases.limit);
        findings.push(Finding::warning(fault::OTHER_LIMIT, what));
    }
    let overdue = survey.instances.iter().filter(|one| one.heartbeat_age > one.lease);
    findings.extend(overdue.map(|one| {
        let age = show(Duration::from_secs(one.heartbeat_age.as_secs()));
        let what = format!("table {name}: instance {} gave its last heartbeat {age} ago", one.instance);
        Finding::warning(fault::OVERDUE_INSTANCE, what)
    }));
    findings
}

fn instances(count: usize) -> String {
    if count == 1 { "1 instance".to_owned() } else { format!("{count} instances") }
}

#[cfg(test)]
mod tests {
    use forebay_fleet::operator::{CounterReport, InstanceReport, ShardReport};

    use super::super::finding::Status;
    use super::*;

    fn faults(survey: &Survey, limit: u64) -> Vec<Option<&'static str>> {
        let found = held(survey, "t", &LeaseSettings::new("t").limit(limit));
        found.iter().map(|finding| finding.fault.map(|fault| fault.name)).collect()
    }

    #[test]
    fn a_ledger_is_read_like_the_status_of_leases() {
        let mut survey = Survey::default();
        assert_eq!(faults(&survey, 80), [None]);
        let shard = |free, drift| ShardReport { capacity: 10, free, drift };
        survey.shards = (0..8).map(|k| (k, shard(10, 0))).collect();
        assert_eq!(faults(&survey, 80), [None]);
        assert_eq!(faults(&survey, 81), [None, Some("other-limit")]);
        survey.shards = (0..8).map(|k| (k, shard(0, 0))).collect();
        assert_eq!(faults(&survey, 80), [Some("limit-reached")]);
        survey.shards = vec![(0, shard(8, 2))];
        survey.broken = vec![3];
        assert_eq!(faults(&survey, 80), [Some("damaged-ledger"), Some("damaged-ledger"), None]);
        let second = Duration::from_secs(1);
        let late = InstanceReport {
            instance: "a".to_owned(),
            shard: 0,
            slots: 2,
            node: None,
            heartbeat_age: second * 121,
            lease: second * 120,
        };
        survey = Survey::default();
        (survey.shards, survey.instances) = (vec![(0, shard(8, 0))], vec![late]);
        assert_eq!(faults(&survey, 80), [None, Some("overdue-instance")]);
    }

    #[test]
    fn a_counter_that_drifted_up_to_the_limit_has_one_remedy() {
        let mut survey = Survey::default();
        for (active, leases, expected) in [
            (400, 10, vec![Some("drifted-counter")]),
            (12, 10, vec![Some("drifted-counter")]),
            (400, 400, vec![None, Some("limit-reached")]),
            // Both: without the drift, nobody could open, either.
            (402, 400, vec![Some("drifted-counter"), Some("limit-reached")]),
            (400, 402, vec![Some("drifted-counter"), Some("limit-reached")]),
        ] {
            survey.counter = Some(CounterReport { active, leases, age: Duration::ZERO });
            assert_eq!(faults(&survey, 400), expected, "{active} {leases}");
        }
    }

    #[test]
    fn a_refused_connection_is_not_a_missing_path() {
        for (words, said) in [
            ("tcp connect error: Connection refused (os error 111)", "nothing listens"),
            ("dns error: failed to lookup address information", "nobody knows"),
            ("HTTP connect timeout occurred after 3.1s", "no network path"),
            ("broken pipe", ""),
        ] {
            assert!(got(words).contains(said), "{words}");
        }
        assert_eq!(got("broken pipe"), "");
    }

    #[test]
    fn errors_of_a_table_are_told_apart() {
        for (error, known) in [
            (TableError::NoTable("t".into()), fault::MISSING_TABLE),
            (TableError::Denied("x".into()), fault::NO_PERMISSION),
            (TableError::Credentials("x".into()), fault::REFUSED_BY_TABLE),
            (TableError::Throttled, fault::THROTTLED_TABLE),
            (TableError::Unknown("x".into()), fault::UNREACHABLE_TABLE),
        ] {
            let found = refused("t", "UpdateItem", &error);
            assert_eq!((found.fault, found.status), (Some(known), Status::Failure));
        }
    }
}
