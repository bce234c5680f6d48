//! The fleet as the command line and the environment describe it.

use std::str::FromStr;
use std::time::Duration;

use anyhow::bail;
use clap::{Args, ValueEnum};
use forebay::duration;
use forebay_dsql::EnvReader;
use forebay_fleet::{LeaseMode, RateMode};

use super::environment;
use super::fleet::{Fleet, Watermark};

/// The options that describe a fleet. What is not given comes from the environment, if that is read, or is the default
/// that the help shows.
#[derive(Clone, Debug, Args)]
pub(super) struct Input {
    /// Services x instances x pools x connections, such as 4x10x2x50, instead of the four options
    #[arg(value_name = "SHAPE", conflicts_with_all = ["services", "instances", "pools", "connections"])]
    shape: Option<Shape>,

    /// Services [default: 1]
    #[arg(long, value_name = "NUMBER", value_parser = count(1_000))]
    services: Option<u64>,

    /// Processes of each service [default: 1]
    #[arg(long, value_name = "NUMBER", value_parser = count(20_000))]
    instances: Option<u64>,

    /// Pools of each process [default: 1]
    #[arg(long, value_name = "NUMBER", value_parser = count(100))]
    pools: Option<u64>,

    /// Connections of each pool, DSQL_MAX_CONNS [default: 100]
    #[arg(long, value_name = "NUMBER", value_parser = count(1_000_000))]
    connections: Option<u64>,

    /// Connections of a pool that its start waits for [default: auto]
    #[arg(long, value_name = "HOW MANY")]
    watermark: Option<Watermark>,

    /// Lifetime of a connection [default: 11m]
    #[arg(long, value_name = "TIME", value_parser = positive)]
    lifetime: Option<Duration>,

    /// Width of the range that lifetimes are drawn from [default: 2m]
    #[arg(long, value_name = "TIME", value_parser = time)]
    jitter: Option<Duration>,

    /// A connection with less time left is not handed out [default: 45s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    guard_window: Option<Duration>,

    /// Opens per second of the whole fleet [default: 100]
    #[arg(long, value_name = "NUMBER", value_parser = count(100_000))]
    rate: Option<u64>,

    /// Opens at once after a quiet time, of the whole fleet [default: 1000]
    #[arg(long, value_name = "NUMBER", value_parser = count(1_000_000))]
    burst: Option<u64>,

    /// How the fleet shares the rate [default: bucket]
    #[arg(long, value_name = "MODE")]
    rate_mode: Option<Sharing>,

    /// Opens per second of one process, with --rate-mode local [default: 10]
    #[arg(long, value_name = "NUMBER", value_parser = local_rate)]
    local_rate: Option<f64>,

    /// Opens at once of one process, with --rate-mode local [default: 100]
    #[arg(long, value_name = "NUMBER", value_parser = count(1_000_000))]
    local_burst: Option<u64>,

    /// How the fleet counts its connections [default: ledger]
    #[arg(long, value_name = "MODE")]
    leases: Option<Counting>,

    /// Connections that the fleet allows itself [default: 10000]
    #[arg(long, value_name = "NUMBER", value_parser = count(1_000_000))]
    limit: Option<u64>,

    /// Connections that the cluster accepts: its quota [default: 10000]
    #[arg(long, value_name = "NUMBER", value_parser = count(1_000_000))]
    cluster_limit: Option<u64>,

    /// Longest random delay before the first open of a process [default: 5s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    startup_jitter: Option<Duration>,

    /// Pause after each process in a rolling restart [default: 30s]
    #[arg(long, value_name = "TIME", value_parser = time)]
    restart_pause: Option<Duration>,

    /// Name of the DynamoDB table in the suggested settings [default: forebay]
    #[arg(long, value_name = "NAME")]
    table: Option<String>,

    /// Take the settings of one process from the variables of this environment
    #[arg(long)]
    from_env: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Counting {
    /// A few items in the table, by process
    Ledger,
    /// The specification's counter and one item for each connection
    Counter,
    /// Not at all
    Off,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Sharing {
    /// One item in the table, reserved ahead
    Bucket,
    /// The specification's item for each second
    Window,
    /// Not at all: each process has a rate of its own
    Local,
}

/// `4x10x2x50`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Shape([u64; 4]);

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || {
            "expected services x instances x pools x connections, four whole numbers above zero, such as 4x10x2x50"
                .to_owned()
        };
        let numbers: Vec<u64> = text
            .split(['x', 'X', '*'])
            .map(|part| part.trim().parse().map_err(|_| wrong()))
            .collect::<Result<_, _>>()?;
        let shape: [u64; 4] = numbers.try_into().map_err(|_| wrong())?;
        if shape.contains(&0) { Err(wrong()) } else { Ok(Self(shape)) }
    }
}

/// What was read.
#[derive(Debug)]
pub(super) struct Read {
    pub(super) fleet: Fleet,
    /// The lifetime is the user's choice, not the default.
    pub(super) lifetime_given: bool,
    pub(super) table: String,
    pub(super) notes: Vec<String>,
}

/// More would not be simulated in a day.
const MOST_PROCESSES: u64 = 20_000;
const MOST_CONNECTIONS: u64 = 1_000_000;
/// The longest name of a table. It may be an ARN.
const LONGEST_TABLE: usize = 1024;
/// A longer delay of the first open is a typo.
const LONGEST_STARTUP: Duration = Duration::from_secs(600);

impl Input {
    /// Reads the options, and the environment if asked to.
    ///
    /// # Errors
    /// What is wrong, and what to do about it.
    pub(super) fn read(&self) -> anyhow::Result<Read> {
        let variables = std::env::vars_os().filter(|_| self.from_env);
        let text = |part: std::ffi::OsString| part.to_string_lossy().into_owned();
        self.read_with(variables.map(|(name, value)| (text(name), text(value))).collect())
    }

    fn read_with(&self, variables: Vec<(String, String)>) -> anyhow::Result<Read> {
        let mut read = Read {
            fleet: Fleet::default(),
            lifetime_given: false,
            table: "forebay".to_owned(),
            notes: Vec::new(),
        };
        if self.from_env {
            read.lifetime_given =
                variables.iter().any(|(name, value)| name == environment::LIFETIME && !value.is_empty());
            let settings = EnvReader::new("DSQL").read(variables)?;
            read.fleet = environment::fleet(&settings);
            read.table = environment::table(&settings).unwrap_or(&read.table).to_owned();
            read.notes = settings.notes.iter().map(ToString::to_string).collect();
            if !settings.reservoir_enabled {
                read.notes
                    .push("DSQL_RESERVOIR_ENABLED is not true; the plan is for reservoir mode".to_owned());
            }
        }
        read.lifetime_given |= self.lifetime.is_some();
        set(&mut read.table, self.table.clone());
        self.apply(&mut read.fleet);
        let Fleet { services, instances, .. } = read.fleet;
        if read.fleet.processes() > MOST_PROCESSES {
            bail!(
                "{services} services x {instances} instances are more than 20,000 processes; lower --instances"
            );
        }
        if read.fleet.total() > MOST_CONNECTIONS {
            bail!(
                "{} connections are more than 1,000,000; lower --connections or --instances",
                read.fleet.total()
            );
        }
        // Only an environment can have it: the option is checked.
        if read.fleet.lifetime < Duration::from_secs(1) {
            bail!("a lifetime of less than 1s is not planned; raise {}", environment::LIFETIME);
        }
        // It becomes a line of the env file.
        let of_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-:/".contains(&byte);
        if read.table.is_empty() || read.table.len() > LONGEST_TABLE || !read.table.bytes().all(of_name) {
            bail!("{:?} is not the name of a table: use letters, digits, '_', '.' and '-'", read.table);
        }
        if read.fleet.startup_jitter > LONGEST_STARTUP {
            bail!("a startup delay of more than 10m is not planned; lower --startup-jitter");
        }
        Ok(read)
    }

    fn apply(&self, fleet: &mut Fleet) {
        let [services, instances, pools, connections] = self
            .shape
            .map_or([self.services, self.instances, self.pools, self.connections], |shape| shape.0.map(Some));
        set(&mut fleet.services, services);
        set(&mut fleet.instances, instances);
        set(&mut fleet.pools, pools);
        set(&mut fleet.connections, connections);
        set(&mut fleet.watermark, self.watermark);
        set(&mut fleet.lifetime, self.lifetime);
        set(&mut fleet.jitter, self.jitter);
        set(&mut fleet.guard_window, self.guard_window);
        set(&mut fleet.rate.per_second, self.rate);
        set(&mut fleet.rate.burst, self.burst);
        set(&mut fleet.local_rate.per_second, self.local_rate);
        set(&mut fleet.local_rate.burst, self.local_burst);
        set(&mut fleet.cluster_limit, self.cluster_limit);
        // A cluster with another quota is meant to be used.
        let limit = self.limit.or(self.cluster_limit.filter(|_| !self.from_env));
        set(&mut fleet.limit, limit);
        set(&mut fleet.startup_jitter, self.startup_jitter);
        set(&mut fleet.restart_pause, self.restart_pause);
        let leases = self.leases.map(|leases| match leases {
            Counting::Ledger => Some(LeaseMode::Ledger),
            Counting::Counter => Some(LeaseMode::Counter),
            Counting::Off => None,
        });
        set(&mut fleet.leases, leases);
        let sharing = self.rate_mode.map(|mode| match mode {
            Sharing::Bucket => Some(RateMode::Bucket),
            Sharing::Window => Some(RateMode::Window),
            Sharing::Local => None,
        });
        set(&mut fleet.sharing, sharing);
    }
}

fn set<T>(setting: &mut T, given: Option<T>) {
    if let Some(given) = given {
        *setting = given;
    }
}

/// A whole number from one to `most`.
fn count(most: u64) -> impl clap::builder::TypedValueParser<Value = u64> {
    clap::value_parser!(u64).range(1..=most)
}

/// The longest duration that means anything here.
const LONGEST: Duration = Duration::from_secs(7 * 24 * 3600);

fn time(text: &str) -> Result<Duration, String> {
    let time = duration::parse(text).ok_or("expected a time with a unit, such as 45s, 11m or 1h30m")?;
    if time > LONGEST { Err("expected at most 168h".to_owned()) } else { Ok(time) }
}

fn positive(text: &str) -> Result<Duration, String> {
    let time = time(text)?;
    if time < Duration::from_secs(1) { Err("expected at least 1s".to_owned()) } else { Ok(time) }
}

/// Opens per second of one process, which may be less than one.
fn local_rate(text: &str) -> Result<f64, String> {
    let rate = text.trim().parse().ok();
    rate.filter(|rate: &f64| (0.001..=100_000.0).contains(rate))
        .ok_or_else(|| "expected a number from 0.001 to 100000".to_owned())
}

/// A price in dollars.
pub(super) fn price(text: &str) -> Result<f64, String> {
    let price = text.trim().trim_start_matches('$').parse().ok();
    price
        .filter(|price: &f64| (0.0..=1e6).contains(price))
        .ok_or_else(|| "expected dollars, such as 0.625".to_owned())
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(flatten)]
        input: Input,
    }

    fn input(line: &str) -> Input {
        Line::try_parse_from(line.split_whitespace()).unwrap_or_else(|error| panic!("{error}")).input
    }

    fn read(line: &str, variables: &[(&str, &str)]) -> Read {
        let variables = variables.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        input(line).read_with(variables.collect()).unwrap_or_else(|error| panic!("{error:#}"))
    }

    #[test]
    fn without_options_it_is_one_process_with_the_defaults() {
        let read = read("plan", &[]);
        assert_eq!((read.fleet, read.lifetime_given), (Fleet::default(), false));
        assert_eq!(read.table, "forebay");
    }

    #[test]
    fn a_shape_is_four_numbers() {
        let by_shape = read("plan 4x10x2x50", &[]).fleet;
        let by_options = read("plan --services 4 --instances 10 --pools 2 --connections 50", &[]).fleet;
        assert_eq!(by_shape, Fleet::of(4, 10, 2, 50));
        assert_eq!(by_shape, by_options);
        for wrong in ["", "4", "4x10x2", "4x10x2x0", "4x10x2xmany", "1x2x3x4x5", "-1x1x1x1"] {
            assert!(wrong.parse::<Shape>().is_err(), "{wrong}");
        }
    }

    #[test]
    fn options_win_over_the_environment() {
        let variables = [
            ("DSQL_MAX_CONNS", "30"),
            ("DSQL_RESERVOIR_ENABLED", "true"),
            ("DSQL_RESERVOIR_BASE_LIFETIME", "20m"),
            ("DSQL_RESERVOIR_GUARD_WINDOW", "20s"),
        ];
        let read = read("plan --from-env --instances 3 --guard-window 1m", &variables);
        assert_eq!((read.fleet.connections, read.fleet.instances), (30, 3));
        assert_eq!(read.fleet.lifetime, Duration::from_secs(1200));
        assert_eq!(read.fleet.guard_window, Duration::from_secs(60));
        assert!(read.lifetime_given && read.notes.is_empty(), "{:?}", read.notes);
        let standard = super::tests::read("plan --from-env", &[("DSQL_MAX_CON", "3")]);
        assert_eq!(standard.notes.len(), 2, "a typo, and standard mode: {:?}", standard.notes);
    }

    #[test]
    fn every_option_sets_its_field() {
        let read = read(
            "plan --lifetime 30m --jitter 3m --guard-window 1m --rate 50 --burst 500 --rate-mode window --local-rate 0.5 \
             --local-burst 6 --leases counter --limit 7 --cluster-limit 8 --startup-jitter 9s --restart-pause 1s --table t \
             --watermark half",
            &[],
        );
        let seconds = Duration::from_secs;
        let expected = Fleet {
            watermark: Watermark::Half,
            lifetime: seconds(1800),
            jitter: seconds(180),
            guard_window: seconds(60),
            startup_jitter: seconds(9),
            cluster_limit: 8,
            limit: 7,
            leases: Some(LeaseMode::Counter),
            sharing: Some(RateMode::Window),
            rate: super::super::fleet::Rate { per_second: 50, burst: 500 },
            local_rate: super::super::fleet::LocalRate { per_second: 0.5, burst: 6 },
            restart_pause: seconds(1),
            ..Fleet::default()
        };
        assert_eq!((read.fleet, read.table.as_str(), read.lifetime_given), (expected, "t", true));
        let off = super::tests::read("plan --leases off --rate-mode local --cluster-limit 9", &[]).fleet;
        assert_eq!(
            (off.leases, off.sharing, off.limit),
            (None, None, 9),
            "the fleet may use the whole quota"
        );
    }

    #[test]
    fn a_fleet_that_is_too_large_is_refused_with_a_remedy() {
        let error = input("plan 100x300x1x1").read_with(Vec::new()).unwrap_err().to_string();
        assert!(error.ends_with("lower --instances"), "{error}");
        let error = input("plan 10x10x10x2000").read_with(Vec::new()).unwrap_err().to_string();
        assert!(error.contains("2000000 connections are more than 1,000,000"), "{error}");
        let short = [
            ("DSQL_RESERVOIR_BASE_LIFETIME", "1ns"),
            ("DSQL_RESERVOIR_GUARD_WINDOW", "0s"),
            ("DSQL_RESERVOIR_LIFETIME_JITTER", "0s"),
        ];
        let short = short.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let error = input("plan --from-env").read_with(short).unwrap_err().to_string();
        assert!(error.contains("raise DSQL_RESERVOIR_BASE_LIFETIME"), "{error}");
        for table in ["a\nEVIL=1", "a b", "é", ""] {
            let wrong = Input { table: Some(table.to_owned()), ..input("plan") };
            let error = wrong.read_with(Vec::new()).unwrap_err().to_string();
            assert!(error.contains("is not the name of a table") && !error.contains('\n'), "{error}");
        }
        let wrong = vec![("DSQL_RESERVOIR_BASE_LIFETIME".to_owned(), "soon".to_owned())];
        let error = input("plan --from-env").read_with(wrong).unwrap_err().to_string();
        assert!(error.contains("DSQL_RESERVOIR_BASE_LIFETIME"), "{error}");
    }

    #[test]
    fn prices_are_dollars() {
        assert_eq!((price("0.5"), price("$1.25")), (Ok(0.5), Ok(1.25)));
        assert!(["", "-1", "NaN", "inf", "cheap"].iter().all(|wrong| price(wrong).is_err()));
    }
}
