//! A runbook: its sections, their commands, and what it says that they print.
//!
//! A command is a line `$ ...` of a block `console`; `# exit status N` at its end says how it ends if not with 0. The
//! lines below it are part of what it prints, in this order. A number stands for any number, and `...` for anything.

use std::cell::RefCell;
use std::collections::BTreeSet;
use std::path::PathBuf;

use crate::process::{repository, until};
use crate::scene::Scene;

pub(crate) struct Page {
    name: String,
    steps: Vec<Step>,
    pub(crate) sections: Vec<String>,
    done: RefCell<BTreeSet<usize>>,
}

#[derive(Debug)]
struct Step {
    section: String,
    command: String,
    status: i32,
    prints: Vec<String>,
}

/// Every page.
pub(crate) fn names() -> Vec<String> {
    let files = std::fs::read_dir(folder()).unwrap().map(|file| file.unwrap().file_name());
    let mut names: Vec<String> = files.map(|name| name.into_string().unwrap()).collect();
    names.sort();
    names
}

fn folder() -> PathBuf {
    repository().join("docs/runbooks")
}

impl Page {
    pub(crate) fn read(name: &str) -> Self {
        let text = std::fs::read_to_string(folder().join(name)).unwrap();
        let (mut steps, mut sections) = (Vec::<Step>::new(), Vec::new());
        let mut section = String::new();
        let mut block: Option<String> = None;
        for line in text.lines() {
            if let Some(language) = line.trim_start().strip_prefix("```") {
                block = if block.is_none() { Some(language.to_owned()) } else { None };
                let known = ["console", "text", ""].contains(&language);
                assert!(known, "{name}: a block is of commands (console) or of text, not {language}");
                continue;
            }
            match (block.as_deref(), steps.last_mut()) {
                (None, _) => {
                    if let Some(heading) = line.strip_prefix("## ") {
                        heading.clone_into(&mut section);
                        sections.push(heading.to_owned());
                    }
                }
                (Some("console"), last) => {
                    if let Some(command) = line.trim_start().strip_prefix("$ ") {
                        let (command, status) =
                            command.rsplit_once("# exit status ").unwrap_or((command, "0"));
                        steps.push(Step {
                            section: section.clone(),
                            command: command.trim_end().to_owned(),
                            status: status.trim().parse().unwrap_or_else(|_| panic!("{name}: {line}")),
                            prints: Vec::new(),
                        });
                    } else {
                        let last = last.unwrap_or_else(|| panic!("{name}: {line} follows no command"));
                        last.prints.push(line.to_owned());
                    }
                }
                _ => {}
            }
        }
        Self { name: name.to_owned(), steps, sections, done: RefCell::default() }
    }

    pub(crate) fn commands(&self) -> usize {
        self.steps.len()
    }

    /// Runs the commands of a section until each prints what the page says. That takes a while if the service is about to.
    pub(crate) fn run(&self, section: &str, scene: &Scene) {
        let steps = self.steps.iter().enumerate().filter(|(_, step)| step.section == section);
        let mut count = 0;
        for (number, step) in steps {
            until(|| self.attempt(step, scene));
            self.done.borrow_mut().insert(number);
            count += 1;
        }
        assert!(count > 0, "{}: {section} has no commands", self.name);
    }

    fn attempt(&self, step: &Step, scene: &Scene) -> Result<(), String> {
        let output = scene.shell(&step.command);
        let said = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
        let reason = |what: &str| format!("{}: `{}` {what}; it prints\n{said}", self.name, step.command);
        if output.status.code() != Some(step.status) {
            return Err(reason(&format!("ends with {}, not {}", output.status, step.status)));
        }
        // Long lines are broken, and columns are aligned: only words count.
        let (seen, mut from) = (plain(&said), 0);
        for line in &step.prints {
            for part in scene.translate(line).split("...").map(plain).filter(|part| !part.is_empty()) {
                match seen[from..].find(&part) {
                    Some(at) => from += at + part.len(),
                    None => return Err(reason(&format!("does not print '{line}'"))),
                }
            }
        }
        Ok(())
    }

    /// Fails if a command was never run.
    pub(crate) fn finish(self) {
        let done = self.done.into_inner();
        let left: Vec<&Step> = self
            .steps
            .iter()
            .enumerate()
            .filter(|(at, _)| !done.contains(at))
            .map(|(_, step)| step)
            .collect();
        assert!(left.is_empty(), "{}: not run: {left:#?}", self.name);
    }
}

/// The words of a text, with `#` for each number.
fn plain(text: &str) -> String {
    let words: Vec<&str> = text.split_whitespace().collect();
    let mut plain = String::new();
    for one in words.join(" ").chars() {
        let goes_on = plain.ends_with('#');
        match one {
            '0'..='9' if goes_on => {}
            '0'..='9' => plain.push('#'),
            _ => plain.push(one),
        }
    }
    // 1,000 and 0.25 are numbers, too.
    let mut before = String::new();
    while before != plain {
        before = plain;
        plain = before.replace("#.#", "#").replace("#,#", "#");
    }
    plain
}

#[test]
fn numbers_and_spaces_do_not_matter() {
    assert_eq!(plain("12 of  1,000\n slots, 0.25 s"), "# of # slots, # s");
    assert_eq!(plain("shards 1,2"), plain("shards 7"));
}
