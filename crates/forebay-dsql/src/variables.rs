//! The environment variables: their names, defaults and meanings, in one table.

mod need;

pub(crate) use need::NEEDS;
pub use need::manual_needs;

/// One variable of the environment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Variable {
    /// Its name after the prefix; the whole of it if it has none.
    pub name: &'static str,
    /// Whether it carries the prefix.
    pub prefixed: bool,
    /// What kind of value it takes.
    pub kind: &'static str,
    /// What holds when it is not set.
    pub default: &'static str,
    /// What it sets.
    pub meaning: &'static str,
    /// The setting whose problems are reported under its name.
    pub(crate) setting: &'static str,
}

impl Variable {
    /// Its full name.
    #[must_use]
    pub fn full_name(&self, prefix: &str) -> String {
        if self.prefixed { format!("{prefix}_{}", self.name) } else { self.name.to_owned() }
    }

    /// Whether it sets a part of [`Config`](forebay::Config).
    pub(crate) fn is_of_config(&self) -> bool {
        let beginnings = ["MAX_CONNS", "CONNECT", "STAGGERED_", "RESERVOIR_"];
        *self != RESERVOIR_ENABLED && beginnings.iter().any(|beginning| self.name.starts_with(beginning))
    }
}

macro_rules! variables {
    ($all:ident $prefixed:literal:
     $($constant:ident $name:literal $kind:literal $default:literal $setting:literal $meaning:literal;)*) => {
        $(pub(crate) const $constant: Variable = Variable {
            name: $name,
            prefixed: $prefixed,
            kind: $kind,
            default: $default,
            meaning: $meaning,
            setting: $setting,
        };)*

        const $all: &[Variable] = &[$($constant),*];
    };
}

variables! { PLAIN false:
    CLUSTER_ENDPOINT "CLUSTER_ENDPOINT" "text" "none" "endpoint"
        "host of the cluster; also the key of every shared item";
    REGION "REGION" "text" "AWS_REGION, else from the host name" "region"
        "region of the cluster";
    AWS_REGION "AWS_REGION" "text" "from the host name" "region"
        "region of the cluster, if `REGION` is not set";
}

variables! { PREFIXED true:
    MAX_CONNS "MAX_CONNS" "number" "100" "max_open"
        "connections that callers can have: ready, lent and opening together; up to 5 % more while some are replaced";
    SERVICE_NAME "SERVICE_NAME" "text" "the program's name" "service"
        "label `service` of every metric, and `service_name` of a lease";
    TOKEN_DURATION "TOKEN_DURATION" "duration" "15m" "token_duration"
        "how long a token is good for; at most 168h";
    CONNECT_TIMEOUT "CONNECT_TIMEOUT" "duration" "10s" "open_timeout"
        "how long one open may take";
    DEADLINE "DEADLINE" "duration" "60s" "deadline"
        "how long a transaction of `run` or `begin` may take as a whole, and a single statement; `0s`: no limit";
    CONNECTION_RATE_LIMIT "CONNECTION_RATE_LIMIT" "number" "10" "rate"
        "opens a second, in this process";
    CONNECTION_BURST_LIMIT "CONNECTION_BURST_LIMIT" "number" "100" "burst"
        "opens at once after a quiet time, in this process";
    STAGGERED_STARTUP "STAGGERED_STARTUP" "boolean" "true" "startup_jitter"
        "wait a random time before the first open";
    STAGGERED_STARTUP_MAX_DELAY "STAGGERED_STARTUP_MAX_DELAY" "duration" "5s" "startup_jitter"
        "the longest such time";
    RESERVOIR_ENABLED "RESERVOIR_ENABLED" "boolean" "false" "enabled"
        "reservoir mode";
    RESERVOIR_TARGET_READY "RESERVOIR_TARGET_READY" "number" "MAX_CONNS" "target_ready"
        "connections to keep ready; raised to the low watermark if below it, lowered to MAX_CONNS if above it";
    RESERVOIR_LOW_WATERMARK "RESERVOIR_LOW_WATERMARK" "number" "the smaller of target and MAX_CONNS" "low_watermark"
        "usable connections the first fill waits for; fewer later are worth a warning";
    RESERVOIR_BASE_LIFETIME "RESERVOIR_BASE_LIFETIME" "duration" "11m" "base_lifetime"
        "how long a connection lives; zero or negative: 11m";
    RESERVOIR_LIFETIME_JITTER "RESERVOIR_LIFETIME_JITTER" "duration" "2m" "jitter"
        "lives are drawn from base - jitter/2 to base + jitter/2; negative: 0s";
    RESERVOIR_GUARD_WINDOW "RESERVOIR_GUARD_WINDOW" "duration" "45s" "guard_window"
        "a connection with less than this left is not handed out; negative: 0s";
    RESERVOIR_INITIAL_FILL_TIMEOUT "RESERVOIR_INITIAL_FILL_TIMEOUT" "duration" "30s" "fill_timeout"
        "how long a start waits for the low watermark";
    RESERVOIR_EMPTY_WAIT "RESERVOIR_EMPTY_WAIT" "duration" "not set" "empty_wait"
        "if set, a caller gives up once the reservoir has been short of connections for this long";
    RESERVOIR_ACQUIRE_TIMEOUT "RESERVOIR_ACQUIRE_TIMEOUT" "duration" "30s" "acquire_timeout"
        "how long a caller waits for a connection, whatever the reason";
    RESERVOIR_INFLIGHT_LIMIT "RESERVOIR_INFLIGHT_LIMIT" "number" "64" "inflight_limit"
        "opens in flight at most";
    LEASE_ENABLED "DISTRIBUTED_CONN_LEASE_ENABLED" "boolean" "false" "lease"
        "count connections across the fleet";
    LEASE_TABLE "DISTRIBUTED_CONN_LEASE_TABLE" "text" "none; required if leases are enabled" "lease_table"
        "the DynamoDB table of the leases";
    LEASE_LIMIT "DISTRIBUTED_CONN_LIMIT" "number" "10000" "leases.limit"
        "connections the fleet may hold";
    LEASE_MODE "DISTRIBUTED_CONN_LEASE_MODE" "`ledger` or `counter`" "ledger" "lease_mode"
        "how the fleet counts";
    LEASE_HEARTBEAT "DISTRIBUTED_CONN_LEASE_BEAT" "duration" "30s" "leases.heartbeat"
        "how often an instance says that it lives; at least 1s";
    LEASE_LENGTH "DISTRIBUTED_CONN_LEASE_LENGTH" "duration" "120s" "leases.length"
        "how long it is believed; whole seconds, at least 5s, and above the heartbeat";
    LEASE_BLOCK "DISTRIBUTED_CONN_LEASE_BLOCK" "number" "10" "leases.block"
        "slots taken and given back at a time; at most 1000000";
    RATE_ENABLED "DISTRIBUTED_RATE_LIMITER_ENABLED" "boolean" "false" "fleet_rate"
        "share one connect rate across the fleet";
    RATE_TABLE "DISTRIBUTED_RATE_LIMITER_TABLE" "text" "none; required if the limiter is enabled" "rate_table"
        "the DynamoDB table of the limiter";
    RATE_LIMIT "DISTRIBUTED_RATE_LIMITER_LIMIT" "number" "100" "rate.per_second"
        "opens a second for the fleet; zero or less: off";
    RATE_MAX_WAIT "DISTRIBUTED_RATE_LIMITER_MAX_WAIT" "duration" "30s" "rate.max_wait"
        "how long an open waits for a permit";
    RATE_MODE "DISTRIBUTED_RATE_LIMITER_MODE" "`bucket` or `window`" "bucket" "rate_mode"
        "how the fleet shares the rate";
    RATE_BURST "DISTRIBUTED_RATE_LIMITER_BURST" "number" "1000" "rate.burst"
        "opens at once after a quiet time, for the fleet";
    OUTAGE_POLICY "DISTRIBUTED_AWAY_POLICY" "`local`, `closed` or `strict`" "local" "outage_policy"
        "what an instance may do while the shared store does not answer";
    NODE_ID "NODE_ID" "number" "from the ledger" "node_id"
        "number of this process in generated ids, 0 to 1023";
    WARMUP_STAGGER "POOL_WARMUP_STAGGER_DURATION" "duration" "by size" "warmup_stagger"
        "standard mode: time over which the warm-up is spread";
    KEEPER_TICK "POOL_KEEPER_TICK_INTERVAL" "duration" "1s" "keeper_tick"
        "standard mode: how often the keeper looks";
    KEEPER_MAX "POOL_KEEPER_MAX_CONNS_PER_TICK" "number" "by size" "keeper_max"
        "standard mode: connections the keeper opens at a look";
    DESK_LISTEN "DESK_LISTEN" "address and port" "none: no page" "desk_listen"
        "where the status page is served, such as `127.0.0.1:9464`; needs the feature `status-page`, and a token unless the address is a loopback one";
    DESK_TOKEN "DESK_TOKEN" "text, a secret" "none" "desk_token"
        "the token that the status page asks for; at least 16 characters";
}

/// Beginnings of variables of a later version of the original, `DSQL_TOKEN_BUCKET_` and `DSQL_SLOT_BLOCK_`: known, warned about, not used.
pub(crate) const NOT_USED: [&str; 2] = ["TOKEN_BUCKET_", "SLOT_BLOCK_"];

/// Beginnings that are ours alone: any other name that begins so is a typo.
pub(crate) const OURS: [&str; 5] = ["RESERVOIR_", "DISTRIBUTED_", "CONNECTION_", "POOL_", "DESK_"];

/// Every variable, in the order of the manual.
pub fn all() -> impl Iterator<Item = &'static Variable> {
    PLAIN.iter().chain(PREFIXED)
}

/// The manual's table of variables, in Markdown, for this prefix.
#[must_use]
pub fn manual(prefix: &str) -> String {
    let rows = all().map(|variable| {
        let default = variable.default.replace("MAX_CONNS", &format!("`{prefix}_MAX_CONNS`"));
        let meaning = variable.meaning.replace("MAX_CONNS", &format!("`{prefix}_MAX_CONNS`"));
        format!("| `{}` | {} | {default} | {meaning} |\n", variable.full_name(prefix), variable.kind)
    });
    format!("| variable | value | default | meaning |\n|---|---|---|---|\n{}", rows.collect::<String>())
}
