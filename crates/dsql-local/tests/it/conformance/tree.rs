//! YAML as a tree.

use std::collections::BTreeMap;

use saphyr_parser::{Event, Parser, ScalarStyle, StrInput};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    Nothing,
    Text(String),
    List(Vec<Node>),
    Map(Vec<(String, Node)>),
}

impl Node {
    /// Reads the one document of a file.
    pub(super) fn parse(text: &str) -> Self {
        let mut reader = Reader { parser: Parser::new_from_str(text), anchors: BTreeMap::new() };
        loop {
            match reader.next() {
                Event::StreamStart | Event::DocumentStart(_) => {}
                event => return reader.node(event),
            }
        }
    }

    pub(super) fn get(&self, key: &str) -> Option<&Node> {
        self.entries().iter().find(|(own, _)| own == key).map(|(_, node)| node)
    }

    pub(super) fn text(&self, key: &str) -> Option<&str> {
        self.get(key).and_then(Self::as_text)
    }

    pub(super) fn list(&self, key: &str) -> &[Node] {
        self.get(key).map_or(&[], Self::items)
    }

    pub(super) fn as_text(&self) -> Option<&str> {
        if let Self::Text(text) = self { Some(text) } else { None }
    }

    pub(super) fn items(&self) -> &[Node] {
        if let Self::List(items) = self { items } else { &[] }
    }

    pub(super) fn entries(&self) -> &[(String, Node)] {
        if let Self::Map(entries) = self { entries } else { &[] }
    }
}

struct Reader<'a> {
    parser: Parser<'a, StrInput<'a>>,
    anchors: BTreeMap<usize, Node>,
}

impl<'a> Reader<'a> {
    fn next(&mut self) -> Event<'a> {
        self.parser.next().expect("the document ends too early").expect("valid YAML").0
    }

    fn node(&mut self, event: Event<'a>) -> Node {
        let (node, anchor) = match event {
            Event::Scalar(text, style, anchor, _) => {
                let nothing = style == ScalarStyle::Plain && matches!(&*text, "" | "~" | "null");
                (if nothing { Node::Nothing } else { Node::Text(text.into_owned()) }, anchor)
            }
            Event::SequenceStart(anchor, _) => {
                let mut items = Vec::new();
                loop {
                    match self.next() {
                        Event::SequenceEnd => break (Node::List(items), anchor),
                        event => items.push(self.node(event)),
                    }
                }
            }
            Event::MappingStart(anchor, _) => {
                let mut entries = Vec::new();
                loop {
                    match self.next() {
                        Event::MappingEnd => break (Node::Map(entries), anchor),
                        Event::Scalar(key, ..) => {
                            let event = self.next();
                            entries.push((key.into_owned(), self.node(event)));
                        }
                        other => panic!("a key that is no plain text: {other:?}"),
                    }
                }
            }
            Event::Alias(anchor) => (self.anchors[&anchor].clone(), 0),
            other => panic!("unexpected {other:?}"),
        };
        if anchor > 0 {
            self.anchors.insert(anchor, node.clone());
        }
        node
    }
}
