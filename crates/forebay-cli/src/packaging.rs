//! Files for a package of this program: shell completions and man pages.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use anyhow::Context;
use clap::Args;
use clap_complete::Shell;

use crate::{command, output};

/// Print a shell's completion script
#[derive(Clone, Debug, Args)]
#[command(after_help = "Examples:
  forebay completions bash > ~/.local/share/bash-completion/completions/forebay
  forebay completions zsh > ~/.zfunc/_forebay    # with ~/.zfunc in fpath
  forebay completions fish > ~/.config/fish/completions/forebay.fish")]
pub(crate) struct Completions {
    /// The shell that reads the script
    shell: Shell,
}

/// Write a man page for each command
#[derive(Clone, Debug, Args)]
#[command(after_help = "Example:
  forebay man ~/.local/share/man/man1    # then: man forebay-demo")]
pub(crate) struct Man {
    /// The directory to write to; it is created if it is missing
    directory: PathBuf,
}

impl Completions {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut command(), "forebay", &mut script);
        output::print(&String::from_utf8(script)?)?;
        Ok(ExitCode::SUCCESS)
    }
}

impl Man {
    pub(crate) fn run(&self) -> anyhow::Result<ExitCode> {
        fs::create_dir_all(&self.directory)
            .and_then(|()| clap_mangen::generate_to(command(), &self.directory))
            .with_context(|| format!("cannot write to {}", self.directory.display()))?;
        Ok(ExitCode::SUCCESS)
    }
}
