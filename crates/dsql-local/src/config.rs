//! Everything that can be told to the emulator at its start.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use crate::clock::Speed;
use crate::credentials::Credentials;
use crate::error::Error;
use crate::faults::Fault;

/// How the emulator starts. `Config::default()` is a cluster called `localhost` with the real service's figures.
#[derive(Clone, Debug)]
pub struct Config {
    /// What runs statements. Default: the built-in one.
    pub engine: EngineKind,
    /// Which SQL there is. Default: today's.
    pub rules: Rules,
    /// Where the files of an empty PostgreSQL are kept for the next start, by version, user and content; who runs it must be able
    /// to write there. Default: the system's directory for temporary files.
    pub cache: PathBuf,
    /// The host name that clients connect to and sign tokens for. Default: `localhost`.
    pub endpoint: String,
    /// The region that tokens are signed for. Default: `us-east-1`.
    pub region: String,
    /// Where to listen; port 0 takes a free one. Default: `127.0.0.1:0`.
    pub listen: SocketAddr,
    /// Where to listen for control, on loopback only; none for no control port. Default: none.
    pub control: Option<SocketAddr>,
    /// The keys that may sign tokens.
    pub credentials: Vec<Credentials>,
    /// The figures of admission.
    pub limits: Limits,
    /// How fast the emulator's clock runs.
    pub speed: Speed,
    /// By which clock tokens expire.
    pub token_clock: TokenClock,
    /// How far the server's date is from the truth when it looks at tokens, in seconds: to play a wrong clock.
    pub token_skew: i64,
    /// What every random draw comes from. Default: 0.
    pub seed: u64,
    /// What goes wrong from the start.
    pub faults: Vec<Fault>,
    /// Who is told in words why a login was denied, of each kind of reason at most once a second. No token is in it. Default:
    /// nobody.
    pub notice: Option<fn(&str)>,
    /// Where to write the authority's certificate; removed at the end. Default: in a directory of its own.
    pub ca_file: Option<PathBuf>,
    /// How long a client may take to log in, in real time. Default: 10 s.
    pub login_timeout: Duration,
    /// How many sockets may be logging in at once. Default: 8,192.
    pub login_limit: usize,
    /// How long a client may take no bytes of an answer, in real time. Default: 10 s.
    pub write_timeout: Duration,
    /// The longest message from a client, in bytes. Default: 10 MiB, as documented of the real service.
    pub message_limit: usize,
    /// The largest result of one statement, in bytes. Default: 10 MiB.
    pub result_limit: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            engine: EngineKind::default(),
            rules: Rules::default(),
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
            "no credentials: nobody could sign a token; give --credentials-file, or fill Config::credentials"
                .to_owned()
        } else if self.control.is_some_and(|control| !control.ip().is_loopback()) {
            "the control port lets anyone do anything, so it must be on loopback: 127.0.0.1".to_owned()
        } else if self.endpoint.is_empty() {
            "the endpoint must not be empty: give a host name, such as localhost".to_owned()
        } else if self.endpoint.contains([':', '/']) {
            let given = &self.endpoint;
            format!("'{given}' is no endpoint: give a host name alone, without scheme, port or path")
        } else if self.region.is_empty() {
            "the region must not be empty: give one that tokens are signed for, such as us-east-1".to_owned()
        } else {
            return Ok(());
        };
        Err(Error::Setting(problem))
    }
}

/// What runs statements.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum EngineKind {
    /// SQLite, in this process: needs nothing installed.
    #[default]
    Builtin,
    /// A private PostgreSQL: the real SQL; it must be installed.
    Postgres,
}

/// Which SQL the service accepts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rules {
    /// What is known of it now.
    #[default]
    Today,
    /// The narrower SQL of older clusters, to which code must keep that shall run there, too.
    Spec,
}

/// By which clock tokens expire.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TokenClock {
    /// The machine's: clients sign by it, however fast the emulator's own clock runs.
    #[default]
    Machine,
    /// The emulator's: for tests that let tokens grow old at once.
    Emulator,
}

/// The figures of admission; all of them can be changed at any time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// How many connections may be open. Default: 10,000.
    pub connections: u32,
    /// How many may be opened a second. Default: 100.
    pub per_second: u32,
    /// How many may be opened at once after a quiet time. Default: 1,000.
    pub burst: u32,
    /// How long a session may live. Default: 60 minutes. A change applies to sessions that begin after it.
    pub session_life: Duration,
    /// How long a transaction may live. Default: 300 s.
    pub transaction_life: Duration,
    /// When a connection is refused. Nobody knows of the real service.
    pub refuse: RefuseWhen,
    /// Whether a refused connection costs a token of the bucket. Nobody knows of the real service.
    pub refusal_costs: bool,
}

/// When a connection is refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum RefuseWhen {
    /// Before its token is asked for.
    #[default]
    BeforeAuth,
    /// After its token was found good.
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
