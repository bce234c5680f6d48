//! The configuration of a cluster.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::clock::Speed;
use crate::credentials::Credentials;
use crate::error::Error;
use crate::faults::Fault;

/// How the emulator starts. `Config::default()` is a cluster named `localhost` with the limits of the real
/// service.
#[derive(Clone, Debug)]
pub struct Config {
    /// The engine that runs statements. Default: SQLite, in this process.
    pub engine: EngineKind,
    /// Which SQL the cluster accepts. Default: what the service accepts today.
    pub rules: Rules,
    /// Whether LEFT JOIN LATERAL may refer to the outer query. The service fails with 42804. Default: false.
    pub allow_lateral: bool,
    /// Where the files of an empty PostgreSQL are cached for the next start, by version, user and content.
    /// The user that runs PostgreSQL must be able to write there. Default: the system's temporary directory.
    pub cache: PathBuf,
    /// The host name that clients connect to and sign tokens for. Default: `localhost`.
    pub endpoint: String,
    /// The region that tokens are signed for. Default: `us-east-1`.
    pub region: String,
    /// The address to listen on; port 0 picks a free port. Default: `127.0.0.1:0`.
    pub listen: SocketAddr,
    /// The address of the control port, on loopback only. Default: none, no control port.
    pub control: Option<SocketAddr>,
    /// The keys that may sign tokens.
    pub credentials: Vec<Credentials>,
    /// The admission limits.
    pub limits: Limits,
    /// How fast the emulator's clock runs.
    pub speed: Speed,
    /// By which clock tokens expire.
    pub token_clock: TokenClock,
    /// An offset in seconds that the server adds to its date when it checks tokens. It simulates a wrong
    /// clock. Default: 0.
    pub token_skew: i64,
    /// The seed of all random numbers. Default: 0.
    pub seed: u64,
    /// Faults that are active from the start.
    pub faults: Vec<Fault>,
    /// Receives a line of text when a login is denied, at most once per second for each reason. It never
    /// contains a token. Default: none.
    pub notice: Option<fn(&str)>,
    /// Where to write the certificate of the certificate authority; removed at the end. Default: in a
    /// temporary directory.
    pub ca_file: Option<PathBuf>,
    /// How long a login may take, in real time. Default: 10 s.
    pub login_timeout: Duration,
    /// How many sockets may log in at once. Default: 8,192.
    pub login_limit: usize,
    /// How long a client may read nothing of an answer, in real time. Default: 10 s.
    pub write_timeout: Duration,
    /// The largest message from a client, in bytes. Default: 10 MiB, as documented for the real service.
    pub message_limit: usize,
    /// The largest result of one statement, in bytes. Default: 10 MiB.
    pub result_limit: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            engine: EngineKind::default(),
            rules: Rules::default(),
            allow_lateral: false,
            cache: std::env::temp_dir(),
            endpoint: "localhost".to_owned(),
            region: "us-east-1".to_owned(),
            listen: SocketAddr::from(([127, 0, 0, 1], 0)),
            control: None,
            credentials: Vec::new(),
            limits: Limits::default(),
            speed: Speed::REAL,
            token_clock: TokenClock::default(),
            token_skew: 0,
            seed: 0,
            faults: Vec::new(),
            notice: None,
            ca_file: None,
            login_timeout: Duration::from_secs(10),
            login_limit: 8_192,
            write_timeout: Duration::from_secs(10),
            message_limit: 10 << 20,
            result_limit: 10 << 20,
        }
    }
}

impl Config {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let problem = if self.credentials.is_empty() {
            "there are no credentials to sign tokens with: give --credentials-file, or set Config::credentials"
                .to_owned()
        } else if self.control.is_some_and(|control| !control.ip().is_loopback()) {
            "the control port has no authentication, so it must be on loopback: 127.0.0.1".to_owned()
        } else if self.endpoint.is_empty() {
            "the endpoint must not be empty: give a host name, such as localhost".to_owned()
        } else if self.endpoint.contains([':', '/']) {
            let given = &self.endpoint;
            format!("'{given}' is not an endpoint: give a host name alone, without scheme, port or path")
        } else if self.region.is_empty() {
            "the region must not be empty: give one that tokens are signed for, such as us-east-1".to_owned()
        } else {
            return Ok(());
        };
        Err(Error::Setting(problem))
    }
}

/// The engine that runs statements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// SQLite, in this process. Nothing needs to be installed.
    #[default]
    Builtin,
    /// A private PostgreSQL, which must be installed. It runs real SQL.
    Postgres,
}

/// Which SQL the cluster accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// What the service accepts today.
    #[default]
    Today,
    /// The smaller SQL of older clusters, for code that must run there too.
    Spec,
}

/// The clock by which tokens expire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenClock {
    /// The machine's clock. Clients sign by it, however fast the emulator's clock runs.
    #[default]
    Machine,
    /// The emulator's clock, for tests that expire tokens at once.
    Emulator,
}

/// The admission limits. All of them can be changed at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The largest number of open connections. Default: 10,000.
    pub connections: u32,
    /// New connections per second. Default: 100.
    pub per_second: u32,
    /// How many connections may be opened at once after an idle time. Default: 1,000.
    pub burst: u32,
    /// The lifetime of a session. Default: 60 minutes. A change applies to new sessions.
    pub session_life: Duration,
    /// The lifetime of a transaction. Default: 300 s.
    pub transaction_life: Duration,
    /// When a connection is refused. It is not known what the real service does.
    pub refuse: RefuseWhen,
    /// Whether a refused connection costs a token of the bucket. It is not known what the real service does.
    pub refusal_costs: bool,
}

/// When a connection is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RefuseWhen {
    /// Before the server requests a password.
    #[default]
    BeforeAuth,
    /// After the token was verified.
    AfterAuth,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            connections: 10_000,
            per_second: 100,
            burst: 1_000,
            session_life: Duration::from_secs(60 * 60),
            transaction_life: Duration::from_secs(300),
            refuse: RefuseWhen::default(),
            refusal_costs: false,
        }
    }
}
