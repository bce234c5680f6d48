//! Settings that a program gives in code.

use std::net::SocketAddr;
use std::time::Duration;

use forebay::duration::show;
use forebay::{Config, Lifetime};

/// What the methods of [`OptionsBuilder`](crate::OptionsBuilder) have set. Each value takes the place of the variable that sets
/// the same.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Typed {
    pub(crate) region: Option<String>,
    pub(crate) service: Option<String>,
    pub(crate) token_life: Option<Duration>,
    pub(crate) reservoir: Option<bool>,
    pub(crate) max_connections: Option<usize>,
    pub(crate) acquire_timeout: Option<Duration>,
    /// Zero for none.
    pub(crate) deadline: Option<Duration>,
    /// Opens a second, and opens at once.
    pub(crate) connect_rate: Option<(f64, u32)>,
    pub(crate) startup_jitter: Option<Duration>,
    pub(crate) status_page: Option<SocketAddr>,
    pub(crate) config: Option<Config>,
}

impl Typed {
    /// The method that has given this setting.
    pub(crate) fn method(&self, setting: &str) -> Option<&'static str> {
        let (method, is_given) = match setting {
            "region" => ("region", self.region.is_some()),
            "service" => ("service", self.service.is_some()),
            "token_duration" => ("token_life", self.token_life.is_some()),
            "max_open" => ("max_connections", self.max_connections.is_some()),
            "acquire_timeout" => ("acquire_timeout", self.acquire_timeout.is_some()),
            "rate" | "burst" => ("connect_rate", self.connect_rate.is_some()),
            "startup_jitter" => ("startup_jitter", self.startup_jitter.is_some()),
            "desk_listen" => ("status_page", self.status_page.is_some()),
            _ => return None,
        };
        is_given.then_some(method)
    }

    /// The methods that were called and that set a part of [`Config`], each with its value.
    pub(crate) fn of_config(&self) -> impl Iterator<Item = (&'static str, String)> {
        let rate = |(rate, burst): (f64, u32)| format!("{rate} and {burst}");
        [
            ("max_connections", self.max_connections.map(|connections| connections.to_string())),
            ("acquire_timeout", self.acquire_timeout.map(show)),
            ("connect_rate", self.connect_rate.map(rate)),
            ("startup_jitter", self.startup_jitter.map(show)),
        ]
        .into_iter()
        .filter_map(|(method, value)| Some((method, value?)))
    }
}

/// Where settings come from. It decides how problems name them, and what holds where nothing is set.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Origin {
    #[default]
    Code,
    Url,
    Environment,
}

impl Origin {
    /// Whether connections come from a reservoir. The specification's default is a plain pool.
    pub(crate) fn reservoir(self) -> bool {
        self != Self::Environment
    }

    /// The reservoir's settings. The specification's life is 11 minutes, and its number of connections 100: a service that is
    /// told nothing keeps to that. A program that says nothing gets the life that we recommend, and few connections.
    pub(crate) fn config(self) -> Config {
        match self {
            Self::Environment => Config::default(),
            Self::Code | Self::Url => {
                let Lifetime { jitter, guard, .. } = Lifetime::default();
                let life = Lifetime::new(LONG_LIFE).jitter(jitter).guard_window(guard);
                Config::default().max_open(FEW_CONNECTIONS).lifetime(life)
            }
        }
    }
}

/// With a jitter of 2 minutes, the longest life is 56 minutes: 4 below the hour after which Aurora DSQL ends sessions.
const LONG_LIFE: Duration = Duration::from_secs(55 * 60);
const FEW_CONNECTIONS: usize = 10;
