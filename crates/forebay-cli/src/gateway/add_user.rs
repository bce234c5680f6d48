//! `forebay gateway add-user`: adds a user to the users file.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use forebay::rt::{Runtime, TokioRuntime};
use forebay_gateway::users::{CertificateRule, ITERATIONS, Network, NewUser, ScramVerifier, add_user};

use super::password;
use crate::output;

/// Add a user to the users file of a gateway
///
/// It asks for the password, or reads it as a line from stdin. The file gets a SCRAM verifier, from which the password cannot be
/// computed. It is replaced as a whole and keeps its owner and mode; only its owner can read a new one. A running gateway reads it again on SIGHUP.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  forebay gateway add-user app --role app_writer
  forebay gateway add-user bi --role reader --mode elastic --allow 10.0.0.0/8
  pass show db/app | forebay gateway add-user app --role app_writer --users-file /etc/forebay/users.toml
  forebay gateway add-user batch --role writer --certificate batch.example.com --no-password")]
pub(super) struct AddUser {
    /// What clients call themselves
    name: String,
    /// The role of the cluster that they get
    #[arg(long)]
    role: String,
    /// The users file; it is made if it is missing
    #[arg(long, value_name = "FILE", default_value = "users.toml")]
    users_file: PathBuf,
    /// The database of the cluster. Default: postgres
    #[arg(long, value_name = "NAME")]
    database: Option<String>,
    /// How long a client keeps a backend. Default: as the gateway is configured
    #[arg(long, value_enum)]
    mode: Option<Mode>,
    /// Only from this network, such as 10.0.0.0/8; unix for the Unix socket; can be given several times
    #[arg(long, value_name = "NETWORK")]
    allow: Vec<Network>,
    /// The client certificate that is needed: its common name, or sha256: and its fingerprint
    #[arg(long, value_name = "RULE")]
    certificate: Option<CertificateRule>,
    /// Ask for no password: a certificate is enough, or the gateway trusts its clients
    #[arg(long)]
    no_password: bool,
    /// How often the password is hashed: more make it harder to guess from a stolen file, and each login slower for the client
    #[arg(long, value_name = "NUMBER", default_value_t = ITERATIONS, value_parser = clap::value_parser!(u32).range(4_096..=1_000_000))]
    iterations: u32,
    /// Print the entry instead of writing it to the file; it has the verifier, which is a secret
    #[arg(long)]
    print: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum Mode {
    /// As long as it is connected.
    Session,
    /// Until it is idle, or somebody else needs it.
    Elastic,
}

impl AddUser {
    pub(super) fn run(self) -> anyhow::Result<ExitCode> {
        let verifier = if self.no_password {
            None
        } else {
            let password = password::ask(&self.name)?;
            Some(ScramVerifier::derive(&password, &random::<16>()?, self.iterations))
        };
        let user = NewUser {
            name: self.name,
            verifier,
            certificate: self.certificate.map(|rule| rule.to_string()),
            role: self.role,
            database: self.database,
            mode: self.mode.map(|mode| match mode {
                Mode::Session => forebay_gateway::users::Mode::Session,
                Mode::Elastic => forebay_gateway::users::Mode::Elastic,
            }),
            allow: self.allow,
        };
        if self.print {
            output::print(&user.to_toml())?;
        } else {
            add_user(&self.users_file, &user, &random::<32>()?)?;
            output::say(&format!(
                "{} has the user {:?}, with role {:?}",
                self.users_file.display(),
                user.name,
                user.role
            ));
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Random bytes of the operating system.
fn random<const N: usize>() -> anyhow::Result<[u8; N]> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build()?;
    let runtime = TokioRuntime::new(runtime.handle().clone());
    let mut bytes = [0; N];
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&runtime.entropy().to_ne_bytes()[..chunk.len()]);
    }
    Ok(bytes)
}
