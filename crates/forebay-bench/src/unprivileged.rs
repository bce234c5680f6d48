//! The user that servers run as which refuse to run as root: PostgreSQL and PgBouncer.

use std::os::unix::fs::chown;
use std::path::Path;
use std::process::Command;

use anyhow::Context;

/// The user that runs them if we are root. Debian's packages of both create it.
const USER: &str = "postgres";

/// A user without privileges: us, or `postgres` if we are root.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Unprivileged(Option<(u32, u32)>);

impl Unprivileged {
    pub(crate) fn find() -> anyhow::Result<Self> {
        if !rustix::process::geteuid().is_root() {
            return Ok(Self(None));
        }
        let number = |flag: &str| -> anyhow::Result<u32> {
            let output = Command::new("id").args([flag, USER]).output()?;
            String::from_utf8_lossy(&output.stdout).trim().parse().context("there is no user postgres")
        };
        Ok(Self(Some((number("-u")?, number("-g")?))))
    }

    /// A program that this user runs. It is stopped if we end before it, even if we are killed.
    pub(crate) fn command(self, program: impl AsRef<Path>) -> Command {
        let mut command = Command::new("setpriv");
        if let Some((user, group)) = self.0 {
            command.args([format!("--reuid={user}"), format!("--regid={group}")]).arg("--clear-groups");
        }
        command.arg("--pdeathsig=INT").arg(program.as_ref());
        command
    }

    /// Makes this user the owner of a file or a directory.
    pub(crate) fn own(self, path: &Path) -> anyhow::Result<()> {
        if let Some((user, group)) = self.0 {
            chown(path, Some(user), Some(group))?;
        }
        Ok(())
    }
}
