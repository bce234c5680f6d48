//! What goes wrong, and when.

use std::time::Duration;

use forebay::duration;

use super::reader::Section;
use super::service::Service;
use super::{MINUTE, SECOND};

/// Something that goes wrong, once or again and again.
#[derive(Clone, Debug, PartialEq)]
pub struct Fault {
    /// When, counted from the start.
    pub at: Duration,
    /// Up to so much later, by lot.
    pub spread: Duration,
    /// How often.
    pub times: u32,
    /// How long after the last time.
    pub every: Duration,
    /// What.
    pub strike: Strike,
}

/// What goes wrong.
#[derive(Clone, Debug, PartialEq)]
pub enum Strike {
    /// The cluster ends this share of all connections.
    MassDrop {
        /// From zero to one.
        fraction: f64,
    },
    /// The cluster answers no connect for a while, or refuses it.
    Refuse {
        /// How.
        with: Refusal,
        /// How long.
        lasting: Duration,
    },
    /// The cluster ends every connection and is away for a while.
    Failover {
        /// How long.
        lasting: Duration,
    },
    /// Opens take longer.
    SlowOpens {
        /// How many times as long.
        times: f64,
        /// For how long.
        lasting: Duration,
    },
    /// No tokens are to be had.
    CredentialOutage {
        /// How long.
        lasting: Duration,
    },
    /// The shared store does not answer.
    TableOutage {
        /// How long.
        lasting: Duration,
    },
    /// Instances die without a word, and are started anew.
    Crash {
        /// Which, or how many of all by lot.
        who: Who,
        /// How long after their death.
        restart_after: Duration,
    },
    /// Instances reach neither the cluster nor the store, or only not the store.
    Partition {
        /// Which, or how many of all by lot.
        who: Who,
        /// How long.
        lasting: Duration,
        /// They reach the cluster.
        only_table: bool,
    },
    /// Instances stand still: nothing of them runs, while their clocks go on and their connections stay open.
    Pause {
        /// Which, or how many of all by lot.
        who: Who,
        /// How long.
        lasting: Duration,
    },
    /// Instances may own fewer connections for a while.
    Resize {
        /// Which, or how many of all by lot.
        who: Who,
        /// This share of what they may own otherwise.
        fraction: f64,
        /// How long.
        lasting: Duration,
    },
    /// Every instance is drained and started anew, one after the other.
    RollingRestart {
        /// How long after the one before.
        each: Duration,
    },
}

/// Whom a fault strikes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Who {
    /// So many, by lot.
    Lot(usize),
    /// These, by their place in the list of instances.
    These(Vec<usize>),
}

/// How a connect is refused.
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
    /// Nobody listens.
    Unreachable,
    /// No answer at all.
    Silence,
}

impl Refusal {
    /// Every one, by its name in a file.
    pub const ALL: [(&str, Self); 6] = [
        ("53300", Self::TooManyConnections),
        ("53400", Self::RateExceeded),
        ("waking", Self::WakingUp),
        ("denied", Self::AccessDenied),
        ("unreachable", Self::Unreachable),
        ("silence", Self::Silence),
    ];

    /// Its name in a file.
    #[must_use]
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, refusal)| *refusal == self).map_or("", |(name, _)| name)
    }
}

/// The longest pause of a reservoir whose opens fail, and of one that gets no token; how long the one open takes that
/// then goes ahead of the others; and the longest it waits for an answer. Spelled out, and not asked of the reservoir:
/// they are promises.
const PAUSE: Duration = Duration::from_secs(10);
const TOKEN_PAUSE: Duration = Duration::from_secs(1);
const TRIAL: Duration = Duration::from_secs(1);
const OPEN_TIMEOUT: Duration = Duration::from_secs(10);

/// How long it takes at most until something that failed is tried again, and has succeeded.
pub(crate) const RETRY: Duration = PAUSE.saturating_add(TRIAL);

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    ColdStart,
    MassDrop,
    Refuse,
    Failover,
    SlowOpens,
    CredentialOutage,
    TableOutage,
    Crash,
    Partition,
    Pause,
    Resize,
    RollingRestart,
}

impl Fault {
    /// The specification's one `scenario`, and then the list of `faults`.
    pub(super) fn read_all(top: &mut Section<'_>, duration: Duration, services: &[Service]) -> Vec<Self> {
        let mut faults = top.section("scenario", Self::read_scenario);
        // Whoever cuts a run short on the command line knows that the rest of it does not happen.
        let duration = if top.is_overridden("duration") { Duration::MAX } else { duration };
        let has_table = top.has("table");
        faults.extend(top.list("faults", |section| Self::read(section, duration, services, has_table)));
        faults
    }

    fn read_scenario(section: &mut Section<'_>) -> Vec<Self> {
        let kinds = [
            ("cold_start", Kind::ColdStart),
            ("rolling_restart", Kind::RollingRestart),
            ("mass_drop", Kind::MassDrop),
        ];
        let kind = section.choice("kind", Kind::ColdStart, &kinds);
        let each = section.span("rollEvery", MINUTE);
        let at = section.duration("dropAt", 5 * MINUTE);
        let fraction = section.number("dropFraction", 0.3, 0.0, 1.0);
        let once = |at, strike| vec![Self { at, spread: Duration::ZERO, times: 1, every: MINUTE, strike }];
        match kind {
            Kind::MassDrop => once(at, Strike::MassDrop { fraction }),
            Kind::RollingRestart => once(each, Strike::RollingRestart { each }),
            _ => Vec::new(),
        }
    }

    fn read(section: &mut Section<'_>, duration: Duration, services: &[Service], has_table: bool) -> Self {
        let kinds = [
            ("mass_drop", Kind::MassDrop),
            ("refuse", Kind::Refuse),
            ("failover", Kind::Failover),
            ("slow_opens", Kind::SlowOpens),
            ("credential_outage", Kind::CredentialOutage),
            ("table_outage", Kind::TableOutage),
            ("crash", Kind::Crash),
            ("partition", Kind::Partition),
            ("pause", Kind::Pause),
            ("resize", Kind::Resize),
            ("rolling_restart", Kind::RollingRestart),
        ];
        let kind = section.choice("kind", Kind::ColdStart, &kinds);
        let given = section.has("kind");
        section.demand(given, "kind", || "what goes wrong? A fault needs its kind".to_owned());
        let at = section.duration("at", 5 * MINUTE);
        section.demand(at < duration, "at", || {
            format!(
                "{} is after the end of the run, which lasts {}",
                duration::show(at),
                duration::show(duration)
            )
        });
        let spread = section.duration("spread", Duration::ZERO);
        let times = super::bounded(section.whole("times", 1, 1, 1_000_000));
        let every = section.span("every", 10 * MINUTE);
        // Each kind asks for its own keys, and so knows no others.
        let lasting = |section: &mut Section<'_>| section.span("lasting", MINUTE);
        let strike = match kind {
            Kind::MassDrop | Kind::ColdStart => {
                Strike::MassDrop { fraction: section.number("fraction", 0.5, 0.0, 1.0) }
            }
            Kind::Refuse => Strike::Refuse {
                with: section.choice("with", Refusal::Unreachable, &Refusal::ALL),
                lasting: lasting(section),
            },
            Kind::Failover => Strike::Failover { lasting: lasting(section) },
            Kind::SlowOpens => Strike::SlowOpens {
                times: section.number("factor", 10.0, 0.1, 1000.0),
                lasting: lasting(section),
            },
            Kind::CredentialOutage => Strike::CredentialOutage { lasting: lasting(section) },
            Kind::TableOutage => {
                section.demand(has_table, "kind", || {
                    "there is no table that could be away; give the scenario one, as in table: {}".to_owned()
                });
                Strike::TableOutage { lasting: lasting(section) }
            }
            Kind::Crash => Strike::Crash {
                who: Who::read(section, services),
                restart_after: section.duration("restartAfter", 10 * SECOND),
            },
            Kind::Partition => Strike::Partition {
                who: Who::read(section, services),
                lasting: lasting(section),
                only_table: section.choice("from", false, &[("all", false), ("table", true)]),
            },
            Kind::Pause => Strike::Pause { who: Who::read(section, services), lasting: lasting(section) },
            Kind::Resize => Strike::Resize {
                who: Who::read(section, services),
                fraction: section.number("fraction", 0.5, 0.0, 1.0),
                lasting: lasting(section),
            },
            Kind::RollingRestart => Strike::RollingRestart { each: section.span("each", MINUTE) },
        };
        Self { at, spread, times, every, strike }
    }
}

impl Who {
    /// `service`, a name or the name of all its replicas; or `instances`, how many.
    fn read(section: &mut Section<'_>, services: &[Service]) -> Self {
        if !section.has("service") {
            return Self::Lot(section.count("instances", 1, 1, services.len().max(1)));
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
        let these: Vec<usize> = (0..services.len()).filter(|place| is_one(&services[*place])).collect();
        section.demand(!these.is_empty(), "service", || format!("there is no service '{name}'"));
        Self::These(these)
    }
}

impl Strike {
    /// What it is called.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::MassDrop { .. } => "mass_drop",
            Self::Refuse { .. } => "refuse",
            Self::Failover { .. } => "failover",
            Self::SlowOpens { .. } => "slow_opens",
            Self::CredentialOutage { .. } => "credential_outage",
            Self::TableOutage { .. } => "table_outage",
            Self::Crash { .. } => "crash",
            Self::Partition { .. } => "partition",
            Self::Pause { .. } => "pause",
            Self::Resize { .. } => "resize",
            Self::RollingRestart { .. } => "rolling_restart",
        }
    }

    /// How long after its end a reservoir may take to notice: it pauses after failures, and an open that nobody answers
    /// runs into its timeout first.
    #[must_use]
    pub fn patience(&self) -> Duration {
        match self {
            Self::Partition { .. } | Self::Pause { .. } | Self::Refuse { with: Refusal::Silence, .. } => {
                RETRY + OPEN_TIMEOUT
            }
            Self::Refuse { .. } | Self::Failover { .. } => RETRY,
            // A lease that could not be given back is, and then one that waits for it is tried for.
            Self::TableOutage { .. } => PAUSE + RETRY,
            Self::CredentialOutage { .. } => TOKEN_PAUSE + TRIAL,
            Self::MassDrop { .. }
            | Self::SlowOpens { .. }
            | Self::Resize { .. }
            | Self::Crash { .. }
            | Self::RollingRestart { .. } => Duration::ZERO,
        }
    }
}
