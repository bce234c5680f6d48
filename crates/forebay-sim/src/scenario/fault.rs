//! The faults of a scenario.

use std::time::Duration;

use forebay::duration;

use super::reader::Section;
use super::service::Service;
use super::{MINUTE, SECOND};

/// A fault, injected once or several times.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// The first time, since the start of the run.
    pub at: Duration,
    /// A random delay of up to this is added.
    pub spread: Duration,
    /// How often.
    pub times: u32,
    /// The time between two repetitions.
    pub every: Duration,
    /// How long it lasts; the time until the restart for a crash, and between two restarts for a rolling
    /// restart.
    pub lasting: Duration,
    /// What goes wrong.
    pub kind: FaultKind,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum FaultKind {
    /// The cluster ends a share of all connections.
    MassDrop {
        /// The share, from zero to one.
        fraction: f64,
    },
    /// The cluster refuses all connects, or does not answer them.
    Refuse {
        /// The refusal.
        with: Refusal,
    },
    /// The cluster ends every connection and is unreachable.
    Failover,
    /// Opens take longer.
    SlowOpens {
        /// How many times as long.
        factor: f64,
    },
    /// The credential service fails.
    CredentialOutage,
    /// The shared table does not answer.
    TableOutage,
    /// Processes die and start again later.
    Crash {
        /// The instances.
        targets: Targets,
    },
    /// Instances do not reach the table, nor the cluster.
    Partition {
        /// The instances.
        targets: Targets,
        /// They reach the cluster.
        only_table: bool,
    },
    /// Instances run no tasks. Their clocks go on, and their connections stay open.
    Pause {
        /// The instances.
        targets: Targets,
    },
    /// Instances may own fewer connections.
    Resize {
        /// The instances.
        targets: Targets,
        /// The share of their `maxOpen`.
        fraction: f64,
    },
    /// Every instance is drained and restarted, one after the other.
    RollingRestart,
}

/// The instances that a fault affects.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Targets {
    /// A random choice of this many running instances.
    Random(usize),
    /// These, by their index in the list of instances.
    These(Vec<usize>),
}

/// How the cluster refuses a connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Refusal {
    /// 53300: too many open connections.
    TooManyConnections,
    /// 53400: rate exceeded.
    RateExceeded,
    /// The cluster is waking up.
    WakingUp,
    /// The token is refused.
    AccessDenied,
    /// The connection is refused.
    Unreachable,
    /// No answer.
    Silence,
}

impl Refusal {
    /// All refusals with their names in a scenario.
    pub const ALL: [(&str, Self); 6] = [
        ("53300", Self::TooManyConnections),
        ("53400", Self::RateExceeded),
        ("waking", Self::WakingUp),
        ("denied", Self::AccessDenied),
        ("unreachable", Self::Unreachable),
        ("silence", Self::Silence),
    ];

    /// The name in a scenario.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, refusal)| *refusal == self).map_or("", |(name, _)| name)
    }
}

// Documented limits of the reservoir. Not read from it, because they are promises that the judge checks.

/// The longest pause after failed opens.
const PAUSE: Duration = Duration::from_secs(10);
/// The longest pause after a failed token.
const TOKEN_PAUSE: Duration = Duration::from_secs(1);
/// The time for the single open that goes ahead of the others after a pause.
const TRIAL: Duration = Duration::from_secs(1);
/// The timeout of an open.
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// The longest time until a failed operation is retried and has succeeded.
pub(crate) const RETRY: Duration = PAUSE.saturating_add(TRIAL);

impl Fault {
    /// Reads the key `scenario` of the specification, and then the list `faults`.
    pub(super) fn read_all(top: &mut Section<'_>, duration: Duration, services: &[Service]) -> Vec<Self> {
        let mut faults = top.section("scenario", Self::read_scenario);
        // A shorter duration on the command line cuts off later faults on purpose.
        let duration = if top.is_overridden("duration") { Duration::MAX } else { duration };
        let has_table = top.has("table");
        faults.extend(top.list("faults", |section| Self::read(section, duration, services, has_table)));
        faults
    }

    fn read_scenario(section: &mut Section<'_>) -> Vec<Self> {
        let kinds = ["cold_start", "rolling_restart", "mass_drop"].map(|kind| (kind, kind));
        let kind = section.choice("kind", "cold_start", &kinds);
        let each = section.span("rollEvery", MINUTE);
        let drop_at = section.duration("dropAt", 5 * MINUTE);
        let fraction = section.number("dropFraction", 0.3, 0.0, 1.0);
        let (at, lasting, kind) = match kind {
            "mass_drop" => (drop_at, Duration::ZERO, FaultKind::MassDrop { fraction }),
            "rolling_restart" => (each, each, FaultKind::RollingRestart),
            _ => return Vec::new(),
        };
        vec![Self { at, spread: Duration::ZERO, times: 1, every: MINUTE, lasting, kind }]
    }

    fn read(section: &mut Section<'_>, duration: Duration, services: &[Service], has_table: bool) -> Self {
        let name = section.choice("kind", "", &FaultKind::NAMES.map(|name| (name, name)));
        let given = section.has("kind");
        section.demand(given, "kind", || "missing; every fault needs a kind".to_owned());
        let at = section.duration("at", 5 * MINUTE);
        section.demand(at < duration, "at", || {
            let (at, duration) = (duration::show(at), duration::show(duration));
            format!("{at} is after the end of the run, which lasts {duration}")
        });
        let spread = section.duration("spread", Duration::ZERO);
        let times = super::bounded(section.whole("times", 1, 1, 1_000_000));
        let every = section.span("every", 10 * MINUTE);
        // Each kind reads its own keys, and so refuses those of others.
        let kind = FaultKind::read(name, section, services);
        section.demand(has_table || kind != FaultKind::TableOutage, "kind", || {
            "the scenario has no table; add one, as in table: {}".to_owned()
        });
        let lasting = match kind {
            FaultKind::MassDrop { .. } => Duration::ZERO,
            FaultKind::Crash { .. } => section.duration("restartAfter", 10 * SECOND),
            FaultKind::RollingRestart => section.span("each", MINUTE),
            _ => section.span("lasting", MINUTE),
        };
        Self { at, spread, times, every, lasting, kind }
    }
}

impl Targets {
    /// `service`, the name of an instance or of all its replicas; or `instances`, how many.
    fn read(section: &mut Section<'_>, services: &[Service]) -> Self {
        if !section.has("service") {
            return Self::Random(section.count("instances", 1, 1, services.len().max(1)));
        }
        let both = section.has("instances");
        section.demand(!both, "instances", || "give either service or instances".to_owned());
        let name = section.text("service", "");
        let is_one = |service: &Service| {
            service.name == name
                || service.name.rsplit_once('-').is_some_and(|(stem, number)| {
                    stem == name && number.bytes().all(|byte| byte.is_ascii_digit())
                })
        };
        let these: Vec<usize> = (0..services.len()).filter(|index| is_one(&services[*index])).collect();
        section.demand(!these.is_empty(), "service", || format!("there is no service '{name}'"));
        Self::These(these)
    }
}

impl FaultKind {
    const NAMES: [&str; 11] = [
        "mass_drop",
        "refuse",
        "failover",
        "slow_opens",
        "credential_outage",
        "table_outage",
        "crash",
        "partition",
        "pause",
        "resize",
        "rolling_restart",
    ];

    fn read(name: &str, section: &mut Section<'_>, services: &[Service]) -> Self {
        let targets = |section: &mut Section<'_>| Targets::read(section, services);
        match name {
            "refuse" => Self::Refuse { with: section.choice("with", Refusal::Unreachable, &Refusal::ALL) },
            "failover" => Self::Failover,
            "slow_opens" => Self::SlowOpens { factor: section.number("factor", 10.0, 0.1, 1000.0) },
            "credential_outage" => Self::CredentialOutage,
            "table_outage" => Self::TableOutage,
            "crash" => Self::Crash { targets: targets(section) },
            "partition" => Self::Partition {
                targets: targets(section),
                only_table: section.choice("from", false, &[("all", false), ("table", true)]),
            },
            "pause" => Self::Pause { targets: targets(section) },
            "resize" => Self::Resize {
                targets: targets(section),
                fraction: section.number("fraction", 0.5, 0.0, 1.0),
            },
            "rolling_restart" => Self::RollingRestart,
            _ => Self::MassDrop { fraction: section.number("fraction", 0.5, 0.0, 1.0) },
        }
    }

    /// The name in a scenario.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::MassDrop { .. } => "mass_drop",
            Self::Refuse { .. } => "refuse",
            Self::Failover => "failover",
            Self::SlowOpens { .. } => "slow_opens",
            Self::CredentialOutage => "credential_outage",
            Self::TableOutage => "table_outage",
            Self::Crash { .. } => "crash",
            Self::Partition { .. } => "partition",
            Self::Pause { .. } => "pause",
            Self::Resize { .. } => "resize",
            Self::RollingRestart => "rolling_restart",
        }
    }

    /// The instances it affects; `None` for a fault that affects all.
    #[must_use]
    pub fn targets(&self) -> Option<&Targets> {
        match self {
            Self::Crash { targets }
            | Self::Partition { targets, .. }
            | Self::Pause { targets }
            | Self::Resize { targets, .. } => Some(targets),
            _ => None,
        }
    }

    /// How long a reservoir may take to notice the end of the fault. It pauses after failures, and an open
    /// without an answer first runs into its timeout.
    #[must_use]
    pub fn patience(&self) -> Duration {
        match self {
            Self::Partition { .. } | Self::Pause { .. } | Self::Refuse { with: Refusal::Silence } => {
                RETRY + OPEN_TIMEOUT
            }
            Self::Refuse { .. } | Self::Failover => RETRY,
            // First a failed release is retried, and then an open that waits for that lease.
            Self::TableOutage => PAUSE + RETRY,
            Self::CredentialOutage => TOKEN_PAUSE + TRIAL,
            _ => Duration::ZERO,
        }
    }
}
