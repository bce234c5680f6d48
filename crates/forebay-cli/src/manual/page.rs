//! A page of the manual, in the parts that the tests look at.

use std::fs;
use std::path::{Path, PathBuf};

/// The repository, where paths of pages begin.
pub(super) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// The files below a folder of the repository, by their paths in it, sorted.
pub(super) fn files_below(folder: &str) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![PathBuf::from(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(root().join(&folder)).expect("a folder") {
            let entry = entry.expect("an entry");
            let path = folder.join(entry.file_name());
            if entry.path().is_dir() { folders.push(path) } else { found.push(path) }
        }
    }
    found.sort();
    found
}

/// A block of code between fences.
pub(super) struct Block<'a> {
    /// What it is, as the fence says: `sh`, `toml`, `rust,no_run`.
    pub(super) language: &'a str,
    pub(super) text: &'a str,
}

/// One Markdown file.
pub(super) struct Page {
    /// Its path in the repository.
    pub(super) path: PathBuf,
    pub(super) text: String,
}

impl Page {
    pub(super) fn read(path: impl Into<PathBuf>) -> Self {
        let path = path.into();
        let text = fs::read_to_string(root().join(&path));
        let text = text.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        Self { path, text }
    }

    /// README.md and every page of the manual, its contents included.
    pub(super) fn all() -> Vec<Self> {
        let pages =
            files_below("docs").into_iter().filter(|path| path.extension().is_some_and(|end| end == "md"));
        std::iter::once(PathBuf::from("README.md")).chain(pages).map(Self::read).collect()
    }

    pub(super) fn name(&self) -> std::path::Display<'_> {
        self.path.display()
    }

    /// The page without its blocks of code, and the blocks.
    fn split(&self) -> (String, Vec<Block<'_>>) {
        let mut prose = String::new();
        let mut blocks = Vec::new();
        let mut open: Option<(&str, usize)> = None;
        let mut at = 0;
        for line in self.text.split_inclusive('\n') {
            match (line.trim().strip_prefix("```"), open) {
                (Some(language), None) => open = Some((language, at + line.len())),
                (Some(_), Some((language, from))) => {
                    blocks.push(Block { language, text: &self.text[from..at] });
                    open = None;
                }
                (None, None) => prose.push_str(line),
                (None, Some(_)) => {}
            }
            at += line.len();
        }
        assert!(open.is_none(), "{}: a block of code has no end", self.name());
        (prose, blocks)
    }

    pub(super) fn blocks(&self) -> Vec<Block<'_>> {
        self.split().1
    }

    /// The blocks in this language.
    pub(super) fn blocks_in(&self, language: &str) -> Vec<&str> {
        self.blocks().into_iter().filter(|block| block.language == language).map(|block| block.text).collect()
    }

    /// The paragraphs outside of blocks, each in one line and cut at its backticks: text, code, text and so on.
    fn paragraphs(&self) -> Vec<Vec<String>> {
        let (prose, _) = self.split();
        let paragraph = |text: &str| text.replace('\n', " ").split('`').map(str::to_owned).collect();
        prose.split("\n\n").map(paragraph).collect()
    }

    /// What is written `as code` within the text.
    pub(super) fn code(&self) -> Vec<String> {
        self.paragraphs().into_iter().flat_map(|parts| parts.into_iter().skip(1).step_by(2)).collect()
    }

    /// The targets of its links and images.
    pub(super) fn links(&self) -> Vec<String> {
        let mut links = Vec::new();
        for parts in self.paragraphs() {
            // Code may be a part of what is linked, but links nothing itself.
            let text: Vec<&str> = parts.iter().step_by(2).map(String::as_str).collect();
            let text = text.join("code");
            let targets = text.split("](").skip(1).filter_map(|rest| rest.split(')').next());
            links.extend(targets.map(str::to_owned));
        }
        links
    }

    /// Its headings, as they are written.
    pub(super) fn headings(&self) -> Vec<String> {
        let (prose, _) = self.split();
        let heading = |line: &str| {
            let text = line.trim_start_matches('#');
            (text.len() < line.len()).then(|| text.strip_prefix(' ').map(str::to_owned)).flatten()
        };
        prose.lines().filter_map(heading).collect()
    }

    /// What a link can name after `#`: as GitHub and mdBook make it of the headings.
    pub(super) fn anchors(&self) -> Vec<String> {
        let mut anchors: Vec<String> = Vec::new();
        for heading in self.headings() {
            let anchor: String = heading
                .to_lowercase()
                .chars()
                .filter_map(|letter| match letter {
                    ' ' => Some('-'),
                    '-' | '_' => Some(letter),
                    _ => letter.is_alphanumeric().then_some(letter),
                })
                .collect();
            let before = anchors.iter().filter(|other| **other == anchor).count();
            anchors.push(if before == 0 { anchor } else { format!("{anchor}-{before}") });
        }
        anchors
    }
}

#[test]
fn a_page_has_parts() {
    let text = "# It's `a` page\n\nSee [`b`](c.md#d),\nand `e\nf`.\n\n```sh\n# g [h](i)\n```\n\n## Twice\n\n## Twice\n";
    let page = Page { path: "page.md".into(), text: text.to_owned() };
    assert_eq!(page.anchors(), ["its-a-page", "twice", "twice-1"]);
    assert_eq!(page.links(), ["c.md#d"]);
    assert_eq!(page.code(), ["a", "b", "e f"]);
    assert_eq!(page.blocks_in("sh"), ["# g [h](i)\n"]);
}
