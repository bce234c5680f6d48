//! `docs/SUMMARY.md`, the contents, from which mdBook makes a book.

use std::collections::BTreeMap;

use super::page::Page;

const CONTENTS: &str = "docs/SUMMARY.md";

#[test]
fn the_contents_list_every_page_once() {
    let mut listed: BTreeMap<String, usize> = BTreeMap::new();
    for link in Page::read(CONTENTS).links() {
        *listed.entry(format!("docs/{link}")).or_default() += 1;
    }
    for page in Page::all().iter().filter(|page| page.path.starts_with("docs")) {
        let path = page.path.to_str().expect("a name");
        let times = listed.remove(path).unwrap_or_default();
        let expected = usize::from(path != CONTENTS);
        assert_eq!(times, expected, "{CONTENTS} lists {path} {times} times: write '- [Title](path)' once");
    }
    assert_eq!(listed, BTreeMap::new(), "{CONTENTS} lists pages that do not exist");
}

/// Somebody who arrives from a search must see at once whether the page is theirs.
#[test]
fn each_page_begins_with_its_title_and_a_sentence() {
    for page in Page::all().iter().filter(|page| page.path.to_str() != Some(CONTENTS)) {
        let mut lines = page.text.lines();
        assert!(lines.next().is_some_and(|line| line.starts_with("# ")), "{}: no title", page.name());
        assert_eq!(lines.next(), Some(""), "{}", page.name());
        let text = lines.next().unwrap_or_default();
        assert!(text.starts_with(char::is_alphanumeric), "{} begins with {text:?}", page.name());
    }
}
