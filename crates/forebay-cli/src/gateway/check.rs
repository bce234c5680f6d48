//! `forebay gateway check`: whether a gateway would start, and who would get which role.

use std::fmt::Write as _;
use std::process::ExitCode;

use anyhow::Context as _;
use clap::Args;
use forebay::rt::{Runtime as _, TokioRuntime};
use forebay_gateway::config::{Authentication, GatewayConfig};
use forebay_gateway::users::{Mode, User};

use super::Sources;
use super::preparation::Preparation;
use crate::output;

/// Check the configuration and the users of a gateway, and show which role each user gets
///
/// It reads the same flags, variables and files as the gateway, and connects to nothing. All problems are listed at once. The exit
/// status is 1 if there is one.
#[derive(Debug, Args)]
#[command(after_help = "Run it as the gateway's user, with its variables and flags. In a unit of systemd:
  ExecReload=/usr/local/bin/forebay gateway check --config /etc/forebay/gateway.toml
  ExecReload=/bin/kill -HUP $MAINPID")]
pub(super) struct Check {
    #[command(flatten)]
    sources: Sources,
    /// As for a start.
    #[arg(long, hide = true)]
    local: bool,
}

impl Check {
    pub(super) fn run(&self) -> anyhow::Result<ExitCode> {
        anyhow::ensure!(
            !self.local,
            "--local has nothing to check: it starts a cluster of its own, and makes the users file if there is none; check without it, \
             or try: forebay gateway --local"
        );
        let Preparation { config, policy, cluster, .. } = Preparation::new(&self.sources, false)?;
        let policy = policy.context("the users could not be read")?;
        let mut text = format!("cluster  {}, region {}\n", cluster.host(), cluster.region());
        text += &places(&config);
        let roles = policy.users.roles().len();
        let connections = cluster.config().max_open;
        let _ = writeln!(
            text,
            "pools    {roles}, each with up to {connections} connections: {} in all\n",
            roles * connections
        );
        text += &table(policy.users.iter().map(|user| row(user, config.auth)));
        output::print(&text)?;
        let runtime = tokio::runtime::Builder::new_current_thread().build()?;
        for warning in policy.warnings(TokioRuntime::new(runtime.handle().clone()).wall()) {
            output::say(&warning);
        }
        for note in &cluster.settings().notes {
            output::say(&note.to_string());
        }
        Ok(ExitCode::SUCCESS)
    }
}

/// Where it would listen.
fn places(config: &GatewayConfig) -> String {
    let mut places: Vec<String> = config.listen.iter().map(ToString::to_string).collect();
    places.extend(config.unix_socket.as_ref().map(|socket| socket.path().display().to_string()));
    let tls = match &config.tls {
        None => "without TLS",
        Some(files) if files.required => "with TLS, which clients of other machines must use",
        Some(_) => "with TLS for those who ask",
    };
    let shared = if config.so_reuseport { ", also if another process does" } else { "" };
    let mut text = format!("listen   {}{shared}, {tls}\n", places.join(", "));
    if let Some(peers) = &config.peers {
        let _ = write!(text, "peers    {} is this one, on {}", peers.id, peers.listen);
        for (id, address) in &peers.addresses {
            let _ = write!(text, "; {id} is {address}");
        }
        text.push('\n');
    }
    text
}

/// A user: name, role, what is needed, mode, from where.
fn row(user: &User, auth: Authentication) -> [String; 6] {
    let proof = match (auth, &user.verifier, &user.certificate) {
        (Authentication::Trust, ..) => "nothing (trust)".to_owned(),
        (_, Some(_), None) => "password".to_owned(),
        (_, Some(_), Some(rule)) => format!("password and certificate {rule}"),
        (_, None, Some(rule)) => format!("certificate {rule}"),
        // The users file is refused then.
        (_, None, None) => "nobody can log in".to_owned(),
    };
    let mode = match user.mode {
        Mode::Session => "session".to_owned(),
        Mode::Elastic => format!("elastic, {}", forebay::duration::show(user.release_after)),
    };
    let networks: Vec<String> = user.allow.iter().map(ToString::to_string).collect();
    let from = if networks.is_empty() { "anywhere".to_owned() } else { networks.join(", ") };
    [user.name.clone(), user.role.clone(), user.database.clone(), proof, mode, from]
}

/// Columns as wide as their widest entry.
fn table(rows: impl Iterator<Item = [String; 6]>) -> String {
    let head = ["client", "role", "database", "proof", "mode", "from"].map(str::to_owned);
    // Names come from a file: they must not change the terminal.
    let rows: Vec<[String; 6]> =
        [head].into_iter().chain(rows).map(|row| row.map(|cell| cell.escape_debug().to_string())).collect();
    let mut text = String::new();
    for row in &rows {
        let mut line = String::new();
        for (column, cell) in row.iter().enumerate() {
            let width = rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
            let _ = write!(line, "{cell:<width$}  ");
        }
        text += line.trim_end();
        text.push('\n');
    }
    text
}
