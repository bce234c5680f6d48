//! Variables and metrics: those that the manual names are those of the code.

use std::collections::BTreeSet;

use forebay_dsql::variables;

use super::page::{Page, files_below, root};

/// Names in capitals that are not ours: those of other programs, and made-up ones of examples.
const FOREIGN: [&str; 14] = [
    "ATTR_ERRMODE",
    "AWS_PROFILE",
    "CONN_MAX_AGE",
    "DATABASE_URL",
    "DISABLE_SERVER_SIDE_CURSORS",
    "ERRMODE_EXCEPTION",
    "KNOWN_ISSUES",
    "MYAPP_MAX_CONNS",
    "PRISMA_SCHEMA_DISABLE_ADVISORY_LOCK",
    "STATUS_TOKEN",
    "SWANLAKE_DUCKDB_THREADS",
    "SWANLAKE_DUCKLAKE_INIT_SQL",
    "SWANLAKE_SESSION_TIMEOUT_SECONDS",
    "USE_SEQUENCE_AUTOFIELDS",
];

/// Answers of gRPC and of Flight, which are in capitals, too.
const STATUSES: [&str; 7] = [
    "ALREADY_EXISTS",
    "FAILED_PRECONDITION",
    "INVALID_ARGUMENT",
    "NOT_CANCELLABLE",
    "NOT_FOUND",
    "PERMISSION_DENIED",
    "RESOURCE_EXHAUSTED",
];

/// What begins as a metric does, and is a crate or a role of a database.
const NO_METRICS: [&str; 2] = ["dsql_local", "dsql_local_"];

/// How the gateway's metrics begin. A build without the gateway does not know them.
const GATEWAY: &str = "forebay_gateway_";

/// The words made of letters, digits and underscores.
fn words(text: &str) -> impl Iterator<Item = &str> {
    text.split(|letter: char| !(letter.is_ascii_alphanumeric() || letter == '_'))
        .filter(|word| !word.is_empty())
}

/// Whether it looks like the name of a variable: capitals with an underscore, or one of libpq's.
fn is_variable(word: &str) -> bool {
    let is_capital = |letter: char| letter.is_ascii_uppercase() || letter.is_ascii_digit() || letter == '_';
    let has_letters = word.chars().filter(char::is_ascii_uppercase).count() > 2;
    has_letters
        && word.chars().all(is_capital)
        && (word.contains('_') || word.starts_with("PG") && word.len() > 4)
}

/// The words of the code, without these tests.
fn code() -> BTreeSet<String> {
    let mut known = BTreeSet::new();
    let sources = ["crates", "ops"].into_iter().flat_map(files_below);
    for path in sources.filter(|path| !path.starts_with("crates/forebay-cli/src/manual")) {
        let end = path.extension().and_then(|end| end.to_str()).unwrap_or_default();
        if ["rs", "py", "toml", "json", "tf", "yaml", "yml"].contains(&end) {
            let text = std::fs::read_to_string(root().join(&path)).expect("text");
            known.extend(words(&text).filter(|word| is_variable(word)).map(str::to_owned));
        }
    }
    known
}

#[test]
fn every_variable_exists() {
    let ours: BTreeSet<String> = variables::all().map(|variable| variable.full_name("DSQL")).collect();
    let code = code();
    let mut named = BTreeSet::new();
    for page in Page::all() {
        for word in words(&page.text).filter(|word| is_variable(word)) {
            let is_known = if let Some(end) = word.strip_prefix('_') {
                // `DSQL_RESERVOIR_BASE_LIFETIME`, `_GUARD_WINDOW`.
                ours.iter().any(|name| name.ends_with(end))
            } else if let Some(beginning) = word.strip_suffix('_') {
                // `DSQL_RESERVOIR_*`, and those that are known as not used.
                ours.iter().any(|name| name.starts_with(beginning)) || code.contains(word)
            } else if word.starts_with("DSQL_") && !word.starts_with("DSQL_LOCAL_") {
                named.insert(word.to_owned());
                ours.contains(word)
            } else {
                code.contains(word) || FOREIGN.contains(&word) || STATUSES.contains(&word)
            };
            assert!(is_known, "{} names the variable {word}, which does not exist", page.name());
        }
    }
    let missing: Vec<&String> =
        ours.iter().filter(|name| name.starts_with("DSQL_") && !named.contains(*name)).collect();
    assert!(missing.is_empty(), "the manual lacks {missing:?}");
}

/// The metrics with the prefix of Aurora DSQL, and what Prometheus makes of histograms.
fn metrics() -> BTreeSet<String> {
    let dsql = forebay_dsql::metrics::ALL.iter().chain(forebay_dsql::pool_metrics::ALL);
    let dsql = dsql.map(|metric| (metric.name.to_owned(), metric.kind));
    let core = forebay::metrics::ALL.iter().chain(forebay_fleet::metrics::ALL);
    let core = core.map(|metric| (metric.full_name("dsql"), metric.kind));
    let all = dsql.chain(core).flat_map(|(name, kind)| {
        let parts =
            if kind == forebay::metrics::Kind::Histogram { &["_bucket", "_sum", "_count"][..] } else { &[] };
        let parts: Vec<String> = parts.iter().map(|part| format!("{name}{part}")).collect();
        parts.into_iter().chain([name])
    });
    all.collect()
}

/// Whether a metric of this name exists; none if the word names no metric.
fn is_metric(metrics: &BTreeSet<String>, word: &str) -> Option<bool> {
    let is_prefix = |word: &str| !word.contains(|letter: char| !letter.is_ascii_lowercase());
    // With the prefix of an application: `myapp_reservoir_size`.
    let reservoir = word.split_once("_reservoir_").filter(|(prefix, _)| is_prefix(prefix));
    let word = reservoir.map_or_else(|| word.to_owned(), |(_, end)| format!("dsql_reservoir_{end}"));
    if word.starts_with("dsql_") && !NO_METRICS.contains(&word.as_str()) {
        // Also the beginning of several: `dsql_reservoir_*`.
        let begins_some = || word.ends_with('_') && metrics.iter().any(|name| name.starts_with(&word));
        Some(metrics.contains(&word) || begins_some())
    } else if word.ends_with("_total") && !word.starts_with('_') && !word.starts_with(GATEWAY) {
        // Without its beginning: `discards_total`.
        Some(metrics.iter().any(|name| name.ends_with(&format!("_{word}"))))
    } else {
        None
    }
}

#[test]
fn every_metric_exists() {
    let metrics = metrics();
    let mut named = 0;
    for page in Page::all() {
        for (word, exists) in words(&page.text).filter_map(|word| Some((word, is_metric(&metrics, word)?))) {
            assert!(exists, "{} names the metric {word}, which does not exist", page.name());
            named += 1;
        }
    }
    assert!(named > metrics.len(), "only {named}");
}

#[test]
fn every_reason_exists() {
    let reasons = forebay::metrics::manual_reasons();
    for page in Page::all() {
        for rest in page.text.split("reason=\"").skip(1) {
            let reason = rest.split('"').next().unwrap_or_default();
            assert!(reasons.contains(&format!("`{reason}`")), "{}: there is no reason {reason}", page.name());
        }
    }
}

#[cfg(feature = "gateway")]
#[test]
fn every_metric_of_the_gateway_exists() {
    let mut named = 0;
    for page in Page::all() {
        for word in words(&page.text).filter(|word| word.starts_with(GATEWAY)) {
            let exists = forebay_gateway::metrics::ALL.iter().any(|metric| metric.name == word);
            assert!(exists, "{} names the metric {word}, which does not exist", page.name());
            named += 1;
        }
    }
    assert!(named >= forebay_gateway::metrics::ALL.len(), "only {named}");
}

#[cfg(feature = "flight")]
#[test]
fn every_metric_of_flight_sql_exists() {
    let mut named = 0;
    for page in Page::all() {
        for code in page
            .code()
            .iter()
            .filter(|code| code.starts_with("pool.acquire.") || code.starts_with("pool.conn."))
        {
            assert!(
                forebay_flight::metrics::ALL.iter().any(|(name, _)| name == code),
                "{}: {code}",
                page.name()
            );
            named += 1;
        }
    }
    assert!(named >= 6, "only {named}");
}
