//! Every panel and every rule has data of a running service, and every metric is what the dashboards take it for.

use std::collections::{BTreeMap, BTreeSet};

use dsql_local::Fault;
use serde_json::Value;

use crate::process::{repository, until};
use crate::promql;
use crate::scene::Scene;
use crate::service::CALLERS;

/// One query of a panel.
struct Query {
    place: String,
    expression: String,
    legend: String,
}

fn queries() -> Vec<Query> {
    let mut queries = Vec::new();
    for name in ["fleet", "instance"] {
        let path = repository().join(format!("ops/grafana/{name}.json"));
        let board: Value = serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        for panel in board["panels"].as_array().unwrap() {
            for target in panel["targets"].as_array().into_iter().flatten() {
                let place = format!("{name}: {}", text(&panel["title"]));
                let (expression, legend) = (text(&target["expr"]), text(&target["legendFormat"]));
                queries.push(Query { place, expression, legend });
            }
        }
        for variable in board["templating"]["list"].as_array().unwrap() {
            if let Some(query) = variable["query"]["query"].as_str() {
                // label_values(metric{...}, label)
                let inside =
                    query.strip_prefix("label_values(").and_then(|rest| rest.strip_suffix(')')).unwrap();
                let (expression, label) = inside.rsplit_once(", ").unwrap();
                let (place, legend) = (format!("{name}: a variable"), format!("{{{{{label}}}}}"));
                queries.push(Query { place, expression: expression.to_owned(), legend });
            }
        }
    }
    queries
}

/// With values for what Grafana fills in.
fn filled(expression: &str) -> String {
    let variables = [("$__rate_interval", "1m"), ("$service", ".*"), ("$instance", ".*"), ("$pool", ".*")];
    let filled =
        variables.iter().fold(expression.to_owned(), |text, (name, value)| text.replace(name, value));
    assert!(!filled.contains('$'), "{filled}");
    filled
}

/// Kinds and labels of the metrics on a page, by name.
fn exported(page: &str) -> BTreeMap<String, (String, BTreeSet<String>)> {
    let mut metrics = BTreeMap::new();
    for line in page.lines().filter_map(|line| line.strip_prefix("# TYPE ")) {
        let (name, kind) = line.split_once(' ').unwrap();
        metrics.insert(name.to_owned(), (kind.to_owned(), BTreeSet::new()));
    }
    for line in page.lines().filter(|line| !line.starts_with('#')) {
        let Some((name, rest)) = line.split_once('{') else { continue };
        let labels = rest.split("=\"").filter_map(|part| part.rsplit([',', '{', '"']).next());
        let base =
            ["_bucket", "_sum", "_count"].iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        let metric = if metrics.contains_key(base) { base } else { name };
        if let Some((_, all)) = metrics.get_mut(metric) {
            all.extend(labels.map(str::to_owned));
        }
    }
    metrics
}

/// Everything that a service exports is on its page: also what only trouble brings.
fn trouble() -> Scene {
    let mut scene = Scene::new();
    scene.set(CALLERS, "12").set("DSQL_RESERVOIR_BASE_LIFETIME", "4s");
    scene.set("DSQL_RESERVOIR_LIFETIME_JITTER", "1s").set("DSQL_RESERVOIR_GUARD_WINDOW", "1s");
    scene.start();
    for fault in ["conflict:p=0.6", "drop:at=after-commit,p=0.02", "refuse:how=53400,p=0.05"] {
        scene.cluster.inject(fault.parse::<Fault>().unwrap());
    }
    scene
}

#[test]
fn every_panel_and_rule_has_data_of_a_running_service() {
    let scene = trouble();
    let prometheus = scene.prometheus();
    scene.wait_for("dsql_distributed_conn_lease_held > 0");
    // The table is gone for a while: calls fail.
    let table = serde_json::json!({ "TableName": "forebay" });
    scene.dynamo.database.delete_table(serde_json::from_value(table).unwrap()).unwrap();
    scene.wait_for("dsql_distributed_store_failures_total > 0");
    assert!(scene.shell("forebay lease setup").status.success());
    let rules = until(|| {
        let mut answer = prometheus.get("rules", &[]);
        let groups = answer["groups"].as_array_mut().unwrap();
        let rules: Vec<Value> = groups
            .iter_mut()
            .flat_map(|group| std::mem::take(group["rules"].as_array_mut().unwrap()))
            .collect();
        match rules.iter().find(|rule| rule["health"] != "ok") {
            Some(rule) => Err(format!("{rule}")),
            None => Ok(rules),
        }
    });
    let recorded = rules.iter().filter(|rule| rule["type"] == "recording");
    let recorded: Vec<&str> = recorded.map(|rule| rule["name"].as_str().unwrap()).collect();
    assert!(recorded.len() > 10 && rules.len() > recorded.len() + 10, "{rules:?}");

    // Metrics and labels, by what the service exports.
    let page =
        || String::from_utf8(scene.shell("curl --silent http://127.0.0.1:9464/metrics").stdout).unwrap();
    let mut all: Vec<Query> = queries();
    all.extend(rules.iter().map(|rule| Query {
        place: rule["name"].as_str().unwrap().to_owned(),
        expression: rule["query"].as_str().unwrap().to_owned(),
        legend: String::new(),
    }));
    until(|| {
        let page = page();
        let metrics = exported(&page);
        for query in &all {
            check(query, &metrics, &recorded)?;
            for (label, value) in promql::values(&query.expression) {
                if !page.contains(&format!("{label}=\"{value}\"")) {
                    return Err(format!("{}: {label} is never {value}", query.place));
                }
            }
        }
        Ok(())
    });

    // Data. An alert has none while all is well.
    for query in all.iter().filter(|query| !query.place.starts_with("DSQL")) {
        let expression = filled(&query.expression);
        until(|| match prometheus.series(&expression) {
            0 => Err(format!("{}: no data for {expression}\n{}", query.place, page())),
            _ => Ok(()),
        });
    }
}

/// Whether a query asks only for what is there, and takes histograms for histograms.
fn check(
    query: &Query,
    metrics: &BTreeMap<String, (String, BTreeSet<String>)>,
    recorded: &[&str],
) -> Result<(), String> {
    let mut labels: BTreeSet<String> = ["instance", "job"].map(str::to_owned).into();
    for name in promql::metrics(&query.expression) {
        if name.contains(':') {
            if !recorded.contains(&name.as_str()) {
                return Err(format!("{}: there is no rule {name}", query.place));
            }
            labels.extend(["service", "reason"].map(str::to_owned));
            continue;
        }
        let base = name.strip_suffix("_bucket").unwrap_or(&name);
        let Some((kind, its)) = metrics.get(base) else {
            return Err(format!("{}: the service does not export {name}", query.place));
        };
        let expected = if name == base { ["counter", "gauge"] } else { ["histogram"; 2] };
        if !expected.contains(&kind.as_str()) {
            return Err(format!("{}: {name} is a {kind}", query.place));
        }
        if query.expression.contains(&format!("rate({name}")) && kind == "gauge" {
            return Err(format!("{}: {name} is a gauge", query.place));
        }
        labels.extend(its.iter().cloned());
    }
    let asked = promql::labels(&query.expression).into_iter().chain(promql::of_legend(&query.legend));
    match asked.into_iter().find(|label| !labels.contains(label)) {
        Some(label) => Err(format!("{}: {} has no label {label}", query.place, query.expression)),
        None => Ok(()),
    }
}

/// Each panel of the specification is there.
#[test]
fn the_panels_are_those_of_the_specification() {
    let titles: BTreeSet<String> = queries().into_iter().map(|query| query.place).collect();
    for board in ["fleet", "instance"] {
        for title in [
            "Size and target",
            "Fill ratio",
            "Checkout success rate",
            "Discards by reason",
            "Refills and failures by reason",
            "Checkout and refill rate",
            "Checkout latency",
            "Waits at expiry",
        ] {
            assert!(titles.contains(&format!("{board}: {title}")), "{board}: {title}");
        }
    }
    for title in ["Size by service", "Counter and sum of sizes"] {
        assert!(titles.contains(&format!("fleet: {title}")), "{title}");
    }
}
