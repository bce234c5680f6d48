//! What a gateway needs to start. Everything is read and checked, and all problems are told at once.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::fs::FileTypeExt as _;

use forebay::{ConfigError, Problem};
use forebay_dsql::{Options, OptionsBuilder};
use forebay_gateway::config::{Authentication, Draft, GatewayConfig};
use forebay_gateway::login::{LoginPolicy, TlsServer};
use rustix::fs::{Access, access};

use super::Sources;
use super::cluster;
use super::environment::Environment;

/// What is there, and right.
pub(super) struct Preparation {
    pub(super) config: GatewayConfig,
    /// Who may log in. With `--local`, it is made if there is no users file.
    pub(super) policy: Option<LoginPolicy>,
    /// The cluster. With `--local`, it is made, and this is only its page.
    pub(super) cluster: Options,
    /// Those of the cluster.
    pub(super) variables: Vec<(String, String)>,
}

impl Preparation {
    /// Reads and checks everything. With `local`, the cluster and perhaps the users are made later.
    pub(super) fn new(sources: &Sources, local: bool) -> Result<Self, ConfigError> {
        let mut environment = Environment::read();
        let mut draft = sources.draft(&environment, local);
        let no_text = std::mem::take(&mut environment.problems);
        let has_users = ["auth", "users_file"].iter().all(|key| draft.is_known(key))
            && !no_text.iter().any(|problem| problem.setting.starts_with("FOREBAY_"));
        let mut problems = std::mem::take(&mut draft.problems);
        problems.extend(socket_problem(&draft));
        let policy = policy(&draft, has_users, local, &mut problems);
        let (cluster, variables) = if local {
            (page_of_local(&draft.config, &environment), Vec::new())
        } else {
            problems.extend(missing_keys(&environment));
            let variables = cluster::with_page(environment.variables, draft.config.metrics_listen);
            (cluster::builder(&variables), variables)
        };
        let cluster = cluster.build().map_err(|error| problems.extend(of_page(error, &draft))).ok();
        if let Some(cluster) = &cluster {
            problems.extend(page_in_the_way(cluster, &draft.config));
        }
        // That is no reason to say that it is not set.
        problems.retain(|problem| no_text.iter().all(|variable| variable.setting != problem.setting));
        problems.extend(no_text);
        match cluster {
            Some(cluster) if problems.is_empty() => {
                Ok(Self { config: draft.config, policy, cluster, variables })
            }
            _ => Err(ConfigError { problems }),
        }
    }
}

/// Those who may log in, and the certificate. `has_users` says whether it is known where they are.
fn policy(draft: &Draft, has_users: bool, local: bool, problems: &mut Vec<Problem>) -> Option<LoginPolicy> {
    let config = &draft.config;
    if has_users && (!local || config.users_file.exists()) {
        let loaded = LoginPolicy::load(config).map_err(|error| error.problems);
        return loaded
            .map_err(|found| problems.extend(found.into_iter().filter(|found| is_new(found, draft))))
            .ok();
    }
    if has_users && config.auth == Authentication::Scram {
        let file = config.users_file.display();
        problems.push(Problem {
            setting: file.to_string().into(),
            value: "missing".to_owned(),
            allowed: format!(
                "there, as --local with --auth scram asks for the passwords in it; `forebay gateway add-user NAME --role admin --users-file \
                 {file}` makes one, and without --auth scram none is needed"
            ),
        });
    }
    let tls = config.tls.as_ref().map(TlsServer::load).transpose();
    problems.extend(tls.err().unwrap_or_default());
    None
}

/// Without the other files of TLS, nobody knows whether there is an authority.
fn is_new(found: &Problem, draft: &Draft) -> bool {
    let is_known =
        ["tls_cert_file", "tls_key_file", "tls_client_ca_file"].iter().all(|key| draft.is_known(key));
    is_known || found.setting != "tls_client_ca_file"
}

/// What is wrong with the place of the Unix socket.
fn socket_problem(draft: &Draft) -> Option<Problem> {
    let socket = draft.config.unix_socket.as_ref()?;
    let directory = socket.directory.display();
    let (value, allowed) = match fs::metadata(&socket.directory) {
        Err(error) => (
            format!("not usable ({error})"),
            "a directory that is there: make it first, or choose another one; empty for no Unix socket",
        ),
        Ok(found) if !found.is_dir() => ("not a directory".to_owned(), "a directory"),
        Ok(_) => match access(&socket.directory, Access::WRITE_OK | Access::EXEC_OK) {
            Err(error) => (
                format!("not writable ({})", std::io::Error::from(error)),
                "a directory that this process may write to; or empty, for no Unix socket",
            ),
            Ok(()) => {
                let found = fs::symlink_metadata(socket.path()).ok()?;
                if found.file_type().is_socket() {
                    return None;
                }
                (
                    format!("a directory with another file called .s.PGSQL.{}", socket.port),
                    "one without: remove the file, or choose another directory",
                )
            }
        },
    };
    let setting = format!("{} ({directory})", draft.name_of("unix_socket_dir")).into();
    Some(Problem { setting, value, allowed: allowed.to_owned() })
}

/// The page of a local cluster, which nothing else is asked about.
fn page_of_local(config: &GatewayConfig, environment: &Environment) -> OptionsBuilder {
    let options = Options::builder("localhost").region("local");
    match config.metrics_listen {
        None => options,
        Some(page) => with_token(options.variable(PAGE, page.to_string()), environment.get(TOKEN)),
    }
}

/// The variable with what the page's readers must present.
pub(super) const TOKEN: &str = "DSQL_DESK_TOKEN";

/// A page with this token, if there is one.
pub(super) fn with_token(options: OptionsBuilder, token: Option<&str>) -> OptionsBuilder {
    match token {
        Some(token) => options.variable(TOKEN, token),
        None => options,
    }
}

/// Problems of the cluster's variables. The page is that of a setting, if there is one.
fn of_page(error: ConfigError, draft: &Draft) -> Vec<Problem> {
    let named = |mut problem: Problem| {
        if problem.setting == PAGE && draft.config.metrics_listen.is_some() {
            problem.setting = draft.name_of("metrics_listen").into();
        }
        problem
    };
    error.problems.into_iter().map(named).collect()
}

/// The variable that `metrics_listen` stands for.
pub(super) const PAGE: &str = "DSQL_DESK_LISTEN";

/// A page that the variable asks for. The setting is checked with the others.
fn page_in_the_way(cluster: &Options, config: &GatewayConfig) -> Option<Problem> {
    let page: SocketAddr = cluster.settings().status_page.as_ref()?.listen;
    if config.metrics_listen.is_some() {
        return None;
    }
    config.in_the_way_of(page).map(|other| Problem {
        setting: PAGE.into(),
        value: page.to_string(),
        allowed: format!("another address than {other}, where the gateway listens"),
    })
}

/// With AWS's SDK, only a request shows whether there are credentials.
#[cfg(feature = "aws")]
fn missing_keys(_environment: &Environment) -> Vec<Problem> {
    Vec::new()
}

#[cfg(not(feature = "aws"))]
fn missing_keys(environment: &Environment) -> Vec<Problem> {
    let missing = ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"]
        .into_iter()
        .filter(|name| environment.get(name).is_none());
    let problem = missing.map(|name| Problem {
        setting: name.into(),
        value: "not set".to_owned(),
        allowed: "set, as this build signs with nothing else; for roles and profiles, build it with: cargo build --release --features \
                  aws,gateway"
            .to_owned(),
    });
    problem.collect()
}
