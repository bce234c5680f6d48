//! What an expression asks for: its metrics and labels. Whether it is valid is Prometheus's business.

use std::collections::BTreeSet;

/// Metrics that an expression names: those of this project have a prefix.
pub(crate) fn metrics(expression: &str) -> BTreeSet<String> {
    words(expression)
        .filter(|word| word.starts_with("dsql_") || word.contains(":dsql_"))
        .map(str::to_owned)
        .collect()
}

/// Labels that it selects or groups by, and those that a legend shows.
pub(crate) fn labels(expression: &str) -> BTreeSet<String> {
    let mut labels = BTreeSet::new();
    for (open, close) in [('{', '}'), ('(', ')')] {
        for (at, _) in expression.match_indices(open) {
            let Some(inside) = expression[at + 1..].split(close).next() else { continue };
            let before = expression[..at].trim_end();
            if open == '{' {
                let names = inside.split(',').filter_map(|one| one.split(['=', '!']).next());
                labels.extend(names.map(|name| name.trim().to_owned()).filter(|name| !name.is_empty()));
            } else if before.ends_with("by") || before.ends_with("without") {
                labels.extend(inside.split(',').map(|name| name.trim().to_owned()));
            }
        }
    }
    labels
}

/// Values that it selects, with their labels. A pattern is not a value.
pub(crate) fn values(expression: &str) -> Vec<(String, String)> {
    let mut values = Vec::new();
    for inside in expression.split('{').skip(1).filter_map(|rest| rest.split('}').next()) {
        for (label, value) in inside.split(", ").filter_map(|one| one.split_once('=')) {
            let alternatives = value.trim_start_matches('~').trim_matches('"').split('|');
            let plain =
                alternatives.filter(|one| one.chars().all(|one| one.is_ascii_alphanumeric() || one == '_'));
            values.extend(plain.map(|one| (label.trim_end_matches('!').to_owned(), one.to_owned())));
        }
    }
    values
}

/// Labels in `{{label}}`.
pub(crate) fn of_legend(legend: &str) -> BTreeSet<String> {
    legend
        .split("{{")
        .skip(1)
        .filter_map(|rest| rest.split("}}").next())
        .map(|name| name.trim().to_owned())
        .collect()
}

fn words(expression: &str) -> impl Iterator<Item = &str> {
    // Not what is quoted.
    let plain = expression.split('"').step_by(2);
    plain.flat_map(|part| part.split(|one: char| !one.is_ascii_alphanumeric() && one != '_' && one != ':'))
}

#[test]
fn metrics_and_labels_are_found() {
    let expression = "sum by (service, le) (rate(dsql_a_bucket{pool=~\"x|y\", reason!=\"dsql_b\"}[5m])) / service:dsql_c:sum";
    assert_eq!(metrics(expression), ["dsql_a_bucket", "service:dsql_c:sum"].map(str::to_owned).into());
    assert_eq!(labels(expression), ["le", "pool", "reason", "service"].map(str::to_owned).into());
    let pairs = [("pool", "x"), ("pool", "y"), ("reason", "dsql_b")];
    assert_eq!(values(expression), pairs.map(|(label, value)| (label.to_owned(), value.to_owned())));
    assert_eq!(of_legend("p99, {{service}}"), ["service".to_owned()].into());
}
