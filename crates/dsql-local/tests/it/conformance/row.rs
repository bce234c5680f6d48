//! The rows of the table.

use std::path::Path;

use dsql_local::Rules;

use super::tree::Node;

const ROW: &[&str] = &["name", "source", "rules", "note", "fixture", "protocol", "steps", "plain"];
/// What a step does, and with what.
const DOES: &[&str] = &[
    "in",
    "sql",
    "params",
    "copy",
    "prepare",
    "execute",
    "pipeline",
    "repeat",
    "drop",
    "cancel_after",
    "advance",
    "set",
    "connect",
    "as",
    "parallel",
    "each",
    "check",
    "save",
];
/// What a step expects.
const EXPECTS: &[&str] = &[
    "ok",
    "columns",
    "rows",
    "sqlstate",
    "message",
    "contains",
    "detail",
    "hint",
    "results",
    "within",
    "status",
    "closed",
    "empty",
    "parameters",
    "refused",
    "outcomes",
    "equals",
];

#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) name: String,
    pub(super) source: String,
    /// The rules that it applies to.
    pub(super) rules: &'static [Rules],
    pub(super) protocols: &'static [Protocol],
    pub(super) fixture: Vec<String>,
    pub(super) steps: Vec<Node>,
    node: Node,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Protocol {
    Simple,
    Extended,
}

impl Row {
    fn read(node: &Node) -> Self {
        let text = |key| node.text(key).unwrap_or_default().to_owned();
        let protocols: &[Protocol] = match node.text("protocol") {
            Some("simple") => &[Protocol::Simple],
            Some("extended") => &[Protocol::Extended],
            _ => &[Protocol::Simple, Protocol::Extended],
        };
        Self {
            name: text("name"),
            source: text("source"),
            rules: match node.text("rules") {
                Some("today") => &[Rules::Today],
                Some("spec") => &[Rules::Spec],
                _ => &[Rules::Today, Rules::Spec],
            },
            protocols,
            fixture: node.list("fixture").iter().filter_map(Node::as_text).map(str::to_owned).collect(),
            steps: node.list("steps").to_vec(),
            node: node.clone(),
        }
    }

    /// Whether a plain PostgreSQL must behave differently.
    pub(super) fn differs(&self) -> bool {
        self.node.text("plain") == Some("differs")
    }

    /// What is wrong with the row itself.
    pub(super) fn problem(&self) -> Option<String> {
        let one_of = |key: &str, known: &[&str]| {
            self.node.get(key).is_none_or(|node| node.as_text().is_some_and(|text| known.contains(&text)))
        };
        let kebab = |name: &str| {
            name.split('-').all(|part| !part.is_empty())
                && name.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-')
        };
        let keys_known = |node: &Node, known: &[&[&str]]| {
            node.entries().iter().all(|(key, _)| known.iter().any(|known| known.contains(&key.as_str())))
        };
        let problem = if !kebab(&self.name) {
            "the name is not in kebab case"
        } else if self.source.is_empty() {
            "no source"
        } else if self.steps.is_empty() {
            "no steps"
        } else if self.node.get("plain").is_none() {
            "it does not say what a plain PostgreSQL does"
        } else if !keys_known(&self.node, &[ROW])
            || !self.steps.iter().all(|step| keys_known(step, &[DOES, EXPECTS]))
        {
            "an unknown key"
        } else if !self.steps.iter().all(|step| keys_known(&Node::Map(step.entries()[..1].to_vec()), &[DOES]))
        {
            "a step does not begin with what it does"
        } else if self.fixture.len() != self.node.list("fixture").len() {
            "a fixture is no statement"
        } else if !one_of("rules", &["both", "today", "spec"])
            || !one_of("protocol", &["both", "simple", "extended"])
            || !one_of("plain", &["differs", "same"])
        {
            "rules, protocol or plain has an unknown value"
        } else {
            return None;
        };
        Some(format!("{}: {problem}", self.name))
    }
}

fn directory() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/conformance"))
}

/// Every row of every file.
pub(super) fn table() -> Vec<Row> {
    let entries = std::fs::read_dir(directory()).unwrap();
    let mut files: Vec<_> = entries.map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let files = files.iter().filter(|path| path.extension().is_some_and(|extension| extension == "yaml"));
    let trees = files.map(|path| Node::parse(&std::fs::read_to_string(path).unwrap()));
    trees.flat_map(|tree| tree.items().iter().map(Row::read).collect::<Vec<_>>()).collect()
}
