//! What the tests of all servers in the foreground need.

use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::{env, fs};

pub(crate) fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("the output is text")
}

/// A directory of its own, removed at the end.
pub(crate) struct Place(pub(crate) PathBuf);

impl Place {
    pub(crate) fn new(name: &str) -> Self {
        let path = env::temp_dir().join(format!("forebay-cli-{name}-{}", std::process::id()));
        fs::create_dir(&path).expect("a new directory");
        Self(path)
    }

    /// A file with this text.
    pub(crate) fn write(&self, name: &str, content: &str) -> String {
        let path = self.0.join(name);
        fs::write(&path, content).expect("a new file");
        path.to_str().expect("a name").to_owned()
    }

    pub(crate) fn entries(&self) -> Vec<String> {
        let entries = fs::read_dir(&self.0).expect("it is there");
        let mut names: Vec<String> =
            entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// A command of forebay's that serves.
#[derive(Clone, Copy)]
pub(crate) struct Server(pub(crate) &'static str);

impl Server {
    /// Without anything of the user's.
    pub(crate) fn command(self, arguments: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_forebay"));
        command.arg(self.0).args(arguments);
        for (variable, _) in env::vars_os() {
            if variable.to_string_lossy().starts_with("FLIGHT_SQL_") {
                command.env_remove(variable);
            }
        }
        command
    }

    pub(crate) fn run(self, arguments: &[&str]) -> Output {
        self.command(arguments).output().expect("the command starts")
    }

    /// One that works and makes its files in `place`, and what it says up to the line with `last` in it.
    pub(crate) fn start(self, place: &Place, last: &str, arguments: &[&str]) -> (Child, String) {
        let mut child = self
            .command(arguments)
            .current_dir(&place.0)
            .env("TMPDIR", &place.0)
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .expect("it starts");
        let said = greeting(&mut child, last);
        (child, said)
    }

    pub(crate) fn manual(self) -> String {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/{}.md", self.0));
        fs::read_to_string(path).expect("the page")
    }

    /// The manual page knows every flag of each of these calls for help.
    pub(crate) fn assert_manual_knows_flags(self, calls: &[&[&str]]) {
        let manual = self.manual();
        for arguments in calls {
            let help = self.run(arguments);
            let flags = text(&help.stdout).split_whitespace().filter(|word| word.starts_with("--"));
            for flag in flags.map(|flag| flag.trim_matches(|letter: char| !letter.is_ascii_lowercase())) {
                assert!(manual.contains(&format!("`--{flag}")) || matches!(flag, "help"), "--{flag}");
            }
        }
    }

    /// The blocks of shell commands on the manual page that have this in them.
    pub(crate) fn commands_with(self, part: &str) -> Vec<String> {
        let manual = self.manual();
        let blocks = manual.split("```sh\n").skip(1).filter_map(|block| block.split("```").next());
        blocks.filter(|block| block.contains(part)).map(str::to_owned).collect()
    }
}

/// What it says up to the line with `last` in it.
pub(crate) fn greeting(child: &mut Child, last: &str) -> String {
    let mut output = BufReader::new(child.stdout.take().expect("its output"));
    let mut said = String::new();
    while !said.contains(last) {
        assert!(output.read_line(&mut said).expect("it is read") > 0, "it ended: {said}");
    }
    said
}

pub(crate) fn stop(child: &mut Child, signal: &str) {
    let sent = Command::new("kill").args([signal, &child.id().to_string()]).status().expect("kill");
    assert!(sent.success());
    let status = child.wait().expect("it ends");
    assert_eq!(status.code(), Some(0), "{signal}");
}
