//! Links between pages, and to files of the repository.

use std::path::{Component, Path, PathBuf};

use super::page::{Page, root};

/// The path without `.` and `..`.
fn plain(path: &Path) -> PathBuf {
    let mut plain = PathBuf::new();
    for part in path.components() {
        match part {
            Component::ParentDir => drop(plain.pop()),
            Component::CurDir => {}
            part => plain.push(part),
        }
    }
    plain
}

#[test]
fn every_link_leads_somewhere() {
    let mut followed = 0;
    for page in Page::all() {
        for link in page.links().iter().filter(|link| !link.contains("://")) {
            let (path, anchor) = link.split_once('#').unwrap_or((link, ""));
            let folder = page.path.parent().expect("it is in a folder");
            let target = if path.is_empty() { page.path.clone() } else { plain(&folder.join(path)) };
            assert!(root().join(&target).exists(), "{}: nothing is at {link}", page.name());
            followed += 1;
            let is_page = target.extension().is_some_and(|end| end == "md");
            // mdBook links to the page that it makes of a Markdown file, and it makes none of files elsewhere.
            let is_in_book = target.starts_with("docs") || !page.path.starts_with("docs");
            assert!(!is_page || is_in_book, "{}: {link} is not in the book; link to its folder", page.name());
            if !anchor.is_empty() {
                let anchors = Page::read(&target).anchors();
                assert!(
                    anchors.iter().any(|one| one == anchor),
                    "{}: {link}: there is {anchors:?}",
                    page.name()
                );
            }
        }
    }
    assert!(followed > 100, "only {followed}");
}
