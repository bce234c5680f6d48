//! A YAML document as a tree. Every value has its origin, for error messages.

use std::collections::BTreeMap;
use std::sync::Arc;

use saphyr_parser::{Event, Parser, ScalarStyle, Span};

use super::error::{Origin, Problem};

#[derive(Clone, Debug)]
pub(super) struct Node {
    pub(super) origin: Origin,
    pub(super) value: Value,
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    /// Empty, or `null`.
    Nothing,
    Scalar(String),
    List(Vec<Node>),
    Map(Vec<Entry>),
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: String,
    pub(super) origin: Origin,
    pub(super) node: Node,
}

/// The deepest nesting. A hostile file must not exhaust the stack.
const DEEPEST: usize = 32;
/// The most values, with those of aliases counted each time.
const MOST: usize = 200_000;

impl Node {
    /// Parses the one document of `text`. An empty document is an empty map.
    pub(super) fn parse(name: &Arc<str>, text: &str) -> Result<Self, Problem> {
        let start = Origin::File { name: Arc::clone(name), line: 1 };
        let builder = Builder {
            name: Arc::clone(name),
            parser: Parser::new_from_str(text),
            anchors: BTreeMap::new(),
            values: 0,
        };
        Ok(builder.document()?.unwrap_or(Self { origin: start, value: Value::Map(Vec::new()) }))
    }

    /// Overrides one value: `path=value`, with keys and list indexes in the path, as in
    /// `services.0.targetReady=10`. The name of a service can replace its index.
    pub(super) fn set(&mut self, setting: &str) -> Result<(), Problem> {
        let origin = Origin::Set(setting.into());
        let problem = |key: &str, text: &str| Problem {
            origin: origin.clone(),
            key: key.to_owned(),
            text: text.to_owned(),
        };
        let Some((path, value)) = setting.split_once('=') else {
            return Err(problem("", "expected path=value, as in limiterPerSec=50"));
        };
        if value.trim().is_empty() {
            return Err(problem(path, "the value is missing"));
        }
        let mut node = self;
        // Error messages write `services[0]`; accept that, too.
        let path = &path.trim().replace('[', ".").replace(']', "");
        for step in path.split('.') {
            if step.is_empty() {
                return Err(problem(path, "empty key; a path consists of keys joined by dots"));
            }
            if matches!(node.value, Value::Nothing) {
                node.value = Value::Map(Vec::new());
            }
            node = match &mut node.value {
                Value::List(items) => {
                    let index = step
                        .parse()
                        .ok()
                        .filter(|index| *index < items.len())
                        .or_else(|| items.iter().position(|item| item.is_named(step)));
                    let count = items.len();
                    let index = index.ok_or_else(|| {
                        problem(
                            path,
                            &format!(
                                "there is no '{step}' in a list of {count}; use an index from 0, or a name"
                            ),
                        )
                    })?;
                    &mut items[index]
                }
                Value::Map(entries) => {
                    let index = entries.iter().position(|entry| entry.key == step).unwrap_or_else(|| {
                        let node = Self { origin: origin.clone(), value: Value::Nothing };
                        entries.push(Entry { key: step.to_owned(), origin: origin.clone(), node });
                        entries.len() - 1
                    });
                    entries[index].origin = origin.clone();
                    &mut entries[index].node
                }
                Value::Scalar(_) | Value::Nothing => {
                    return Err(problem(path, &format!("'{step}' is below a plain value")));
                }
            };
        }
        let parsed = Self::parse(&Arc::from("--set"), value)
            .map_err(|error| problem(path, &format!("'{value}' is not valid YAML: {}", error.text)))?;
        *node = parsed;
        node.set_origin(&origin);
        Ok(())
    }

    /// The number of values in this subtree, and its height.
    fn extent(&self) -> (usize, usize) {
        let below: Vec<(usize, usize)> = match &self.value {
            Value::Nothing | Value::Scalar(_) => Vec::new(),
            Value::List(items) => items.iter().map(Self::extent).collect(),
            Value::Map(entries) => entries.iter().map(|entry| entry.node.extent()).collect(),
        };
        let values = below.iter().map(|(values, _)| values).sum::<usize>();
        (1 + values, 1 + below.iter().map(|(_, height)| *height).max().unwrap_or(0))
    }

    fn is_named(&self, name: &str) -> bool {
        let Value::Map(entries) = &self.value else { return false };
        entries.iter().any(|entry| {
            entry.key == "name" && matches!(&entry.node.value, Value::Scalar(value) if value == name)
        })
    }

    fn set_origin(&mut self, origin: &Origin) {
        self.origin = origin.clone();
        match &mut self.value {
            Value::Nothing | Value::Scalar(_) => {}
            Value::List(items) => items.iter_mut().for_each(|item| item.set_origin(origin)),
            Value::Map(entries) => {
                for entry in entries {
                    entry.origin = origin.clone();
                    entry.node.set_origin(origin);
                }
            }
        }
    }
}

struct Builder<'a> {
    name: Arc<str>,
    parser: Parser<'a, saphyr_parser::StrInput<'a>>,
    anchors: BTreeMap<usize, Node>,
    values: usize,
}

impl<'a> Builder<'a> {
    fn origin(&self, line: usize) -> Origin {
        Origin::File { name: Arc::clone(&self.name), line }
    }

    fn problem(&self, line: usize, text: impl Into<String>) -> Problem {
        Problem { origin: self.origin(line), key: String::new(), text: text.into() }
    }

    fn next(&mut self) -> Result<Option<(Event<'a>, Span)>, Problem> {
        match self.parser.next() {
            None => Ok(None),
            Some(Ok(event)) => Ok(Some(event)),
            Some(Err(error)) => {
                Err(self.problem(error.marker().line(), format!("not valid YAML: {}", error.info())))
            }
        }
    }

    fn document(mut self) -> Result<Option<Node>, Problem> {
        let mut document = None;
        while let Some((event, span)) = self.next()? {
            match event {
                Event::StreamStart
                | Event::StreamEnd
                | Event::DocumentStart(_)
                | Event::DocumentEnd
                | Event::Nothing => {}
                _ if document.is_some() => {
                    return Err(
                        self.problem(span.start.line(), "a second document; a file must hold one scenario")
                    );
                }
                event => document = Some(self.node(event, &span, 0)?),
            }
        }
        // A file of comments only parses as one empty scalar.
        Ok(document.filter(|node| !matches!(node.value, Value::Nothing)))
    }

    fn node(&mut self, event: Event<'a>, span: &Span, depth: usize) -> Result<Node, Problem> {
        let line = span.start.line();
        if depth > DEEPEST {
            return Err(self.problem(line, format!("nested more than {DEEPEST} deep")));
        }
        let (anchor, value) = match event {
            Event::Scalar(text, style, anchor, _) => {
                let nothing = style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null");
                (anchor, if nothing { Value::Nothing } else { Value::Scalar(text.into_owned()) })
            }
            Event::SequenceStart(anchor, _) => (anchor, Value::List(self.items(depth)?)),
            Event::MappingStart(anchor, _) => (anchor, Value::Map(self.entries(depth)?)),
            Event::Alias(anchor) => {
                let (values, height) = self.anchors.get(&anchor).map_or((0, 0), Node::extent);
                self.values += values;
                if depth + height > DEEPEST {
                    return Err(self.problem(line, format!("nested more than {DEEPEST} deep")));
                }
                self.count(line)?;
                return self.anchors.get(&anchor).cloned().ok_or_else(|| self.problem(line, "unknown alias"));
            }
            _ => return Err(self.problem(line, "the document ends too early")),
        };
        self.values += 1;
        self.count(line)?;
        let node = Node { origin: self.origin(line), value };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        Ok(node)
    }

    fn count(&self, line: usize) -> Result<(), Problem> {
        if self.values > MOST { Err(self.problem(line, format!("more than {MOST} values"))) } else { Ok(()) }
    }

    fn items(&mut self, depth: usize) -> Result<Vec<Node>, Problem> {
        let mut items = Vec::new();
        while let Some((event, span)) = self.next()? {
            if matches!(event, Event::SequenceEnd) {
                break;
            }
            items.push(self.node(event, &span, depth + 1)?);
        }
        Ok(items)
    }

    fn entries(&mut self, depth: usize) -> Result<Vec<Entry>, Problem> {
        let mut entries: Vec<Entry> = Vec::new();
        while let Some((event, span)) = self.next()? {
            let line = span.start.line();
            let key = match event {
                Event::MappingEnd => break,
                Event::Scalar(key, ..) => key.into_owned(),
                _ => return Err(self.problem(line, "a key must be plain text")),
            };
            if let Some(Entry { origin, .. }) = entries.iter().find(|entry| entry.key == key) {
                return Err(self.problem(line, format!("{key} is given twice; the first is at {origin}")));
            }
            let Some((event, span)) = self.next()? else { break };
            let node = self.node(event, &span, depth + 1)?;
            entries.push(Entry { key, origin: self.origin(line), node });
        }
        Ok(entries)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Node, Problem> {
        Node::parse(&Arc::from("a.yaml"), text)
    }

    fn at<'a>(node: &'a Node, key: &str) -> &'a Node {
        let Value::Map(entries) = &node.value else { panic!("{node:?} is not a map") };
        &entries.iter().find(|entry| entry.key == key).expect("the key is there").node
    }

    #[test]
    fn values_have_their_lines() {
        let tree = parse("seed: 7\nservices:\n  - name: a\n    targetReady: 5\n").unwrap();
        let Value::List(items) = &at(&tree, "services").value else { panic!("not a list") };
        assert_eq!(at(&items[0], "targetReady").origin.to_string(), "a.yaml:4");
    }

    #[test]
    fn errors_give_the_line() {
        for (text, expected) in [
            ("a: [1, 2", "not valid YAML"),
            ("a: 1\na: 2", "a.yaml:2: a is given twice; the first is at a.yaml:1"),
            ("a: 1\n---\nb: 2", "a second document"),
            ("? [x]\n: 1", "a key must be plain text"),
            (&"[".repeat(60), "deep"),
        ] {
            let problem = parse(text).expect_err(text).to_string();
            assert!(problem.contains(expected), "{text}: {problem}");
        }
    }

    #[test]
    fn an_empty_file_is_an_empty_map() {
        for text in ["", "# only a comment\n", "---\n"] {
            assert!(
                matches!(parse(text).unwrap().value, Value::Map(entries) if entries.is_empty()),
                "{text:?}"
            );
        }
    }

    #[test]
    fn aliases_repeat_their_anchor() {
        let tree = parse("a: &x {b: 1}\nc: *x\n").unwrap();
        assert!(matches!(&at(at(&tree, "c"), "b").value, Value::Scalar(one) if one == "1"));
    }

    #[test]
    fn nested_aliases_are_limited() {
        let mut text = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
        for level in 1..9 {
            let below = format!("*a{}, ", level - 1).repeat(10);
            text += &format!("a{level}: &a{level} [{below}]\n");
        }
        let problem = parse(&text).expect_err("a billion values").to_string();
        assert!(problem.contains("more than 200000 values"), "{problem}");
        let mut text = "a0: &a0 [x]\n".to_owned();
        for level in 1..60 {
            text += &format!("a{level}: &a{level} [*a{}]\n", level - 1);
        }
        assert!(parse(&text).expect_err("a deep one").to_string().contains("deep"));
    }

    #[test]
    fn a_setting_replaces_or_adds() {
        let mut tree = parse("seed: 7\nservices: [{name: a}, {name: b}]\n").unwrap();
        tree.set("seed=8").unwrap();
        tree.set("scenario.kind=mass_drop").unwrap();
        tree.set("services[1].targetReady=4").unwrap();
        tree.set("services.b.targetReady=3").unwrap();
        tree.set("services.0.workload={enabled: true}").unwrap();
        assert!(matches!(&at(&tree, "seed").value, Value::Scalar(eight) if eight == "8"));
        assert!(matches!(&at(at(&tree, "scenario"), "kind").value, Value::Scalar(_)));
        let Value::List(items) = &at(&tree, "services").value else { panic!("not a list") };
        let target = at(&items[1], "targetReady");
        assert_eq!(target.origin.to_string(), "--set services.b.targetReady=3");
        assert!(matches!(&at(at(&items[0], "workload"), "enabled").value, Value::Scalar(_)));
        for (setting, expected) in [
            ("seed", "expected path=value"),
            ("seed.deep=1", "below a plain value"),
            ("services.7.name=x", "no '7' in a list of 2"),
            ("a..b=1", "empty key"),
            ("seed=[", "not valid YAML"),
            ("seed=", "the value is missing"),
        ] {
            let problem = tree.set(setting).expect_err(setting).to_string();
            assert!(problem.contains(expected) && problem.starts_with("--set "), "{setting}: {problem}");
        }
    }
}
