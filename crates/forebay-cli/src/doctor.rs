//! `forebay doctor`: why a service cannot connect.

mod certificate;
mod check;
mod clock;
mod configuration;
mod connect;
mod context;
mod credentials;
mod dns;
mod fault;
mod finding;
mod http;
mod moment;
mod page_token;
mod redactor;
mod report;
mod service;
mod tables;
mod tcp;
mod tls;
mod token;

use std::collections::BTreeMap;
use std::env;
use std::io::{self, IsTerminal};
use std::path::PathBuf;
use std::pin::pin;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use forebay::duration::{self, show};
use forebay::rt::{self, Runtime as _, TokioRuntime};

use self::check::Check;
use self::context::{Context, Request};
use self::finding::{Finding, Status};
use self::page_token::PageToken;
use self::redactor::Redactor;
use self::report::Report;
use crate::{fleet_args, output};

/// After this time, a check says that it is still at work.
const SLOW: Duration = Duration::from_secs(2);

/// Find out why a service cannot connect
///
/// It reads the environment as a service does, and checks configuration, DNS, TCP, TLS, credentials, token, one
/// session with the cluster, the tables of the fleet, the clock, and the status page of a running service. Run
/// it where the service runs, with its environment. It changes nothing, and prints no secrets.
#[derive(Debug, Args)]
#[command(
    after_help = "Each line is ok, warning, failure or skipped; warnings and failures have a cause and a \
                  remedy.\n\nExit status: 0 if nothing is wrong, 1 after warnings or if a check that was asked for \
                  could not run, 2 after failures or a wrong argument, 130 after Ctrl-C.\n\nExamples:\n  forebay doctor\n  \
                  forebay doctor --only dns,tcp,tls\n  forebay doctor --status http://127.0.0.1:9464\n  forebay doctor \
                  --json | jq '.findings[] | select(.status == \"failure\")'"
)]
pub(crate) struct Doctor {
    /// Run only these checks
    #[arg(long, value_name = "CHECK", value_delimiter = ',')]
    only: Vec<Check>,

    /// The longest that one check may take
    #[arg(long, value_name = "TIME", default_value = "10s", value_parser = time)]
    timeout: Duration,

    /// The longest that all checks may take; the rest is skipped
    #[arg(long, value_name = "TIME", default_value = "1m", value_parser = time)]
    total_timeout: Duration,

    /// The status page of a running service, such as http://127.0.0.1:9464
    #[arg(long, value_name = "URL")]
    status: Option<String>,

    /// A file with the token of that page, instead of the variable DSQL_DESK_TOKEN
    #[arg(long, value_name = "FILE", requires = "status")]
    status_token_file: Option<PathBuf>,

    /// The connections that the cluster admits; AWS raises it on request
    #[arg(long, value_name = "NUMBER", default_value_t = 10_000, value_parser = clap::value_parser!(u64).range(1..))]
    quota: u64,

    /// The address of a DynamoDB other than AWS's
    #[arg(long, value_name = "URL")]
    dynamodb_endpoint: Option<String>,

    /// Print one JSON object to stdout, and nothing else
    #[arg(long)]
    json: bool,
}

fn time(text: &str) -> Result<Duration, String> {
    let time = duration::parse(text).filter(|time| !time.is_zero());
    time.ok_or_else(|| "it is not a time, such as 10s or 1m".to_owned())
}

impl Doctor {
    pub(crate) fn run(self) -> anyhow::Result<ExitCode> {
        let mut report = Report::default();
        let status = fleet_args::run(async |runtime| self.examine(runtime, &mut report).await)?;
        // A signal has ended it. Programs get what was found until then, too.
        if self.json && !report.is_complete {
            report
                .unchecked
                .extend(Check::ALL.into_iter().filter(|check| self.asks_for(*check)).skip(report.ended));
            output::print(&format!("{:#}\n", report.record()))?;
        }
        Ok(status)
    }

    fn asks_for(&self, check: Check) -> bool {
        self.only.is_empty() || self.only.contains(&check)
    }

    async fn examine(&self, runtime: &TokioRuntime, report: &mut Report) -> anyhow::Result<ExitCode> {
        let text = |part: std::ffi::OsString| part.to_string_lossy().into_owned();
        let variables: BTreeMap<String, String> =
            env::vars_os().map(|(name, value)| (text(name), text(value))).collect();
        let colours = io::stdout().is_terminal()
            && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
            && env::var_os("TERM").is_none_or(|term| term != "dumb");
        let request = Request {
            quota: self.quota,
            dynamodb_endpoint: self.dynamodb_endpoint.clone(),
            status: self.status.clone(),
            page_token: PageToken::find(self.status_token_file.as_deref(), &variables),
        };
        let redactor = Redactor::new(&variables, request.page_token.as_ref().ok().and_then(Option::as_ref));
        let mut context = Context::new(runtime, &request, variables);
        report.endpoint = context.options().map(|options| options.host().to_owned());
        let end = runtime.now() + self.total_timeout;
        for check in Check::ALL {
            let is_asked = self.asks_for(check);
            // They tell the time.
            let is_source =
                matches!(check, Check::Connect | Check::Tables) && self.only.contains(&Check::Clock);
            if !is_asked && !is_source {
                continue;
            }
            let left = end.since(runtime.now());
            let mut found = self.check(check, &mut context, left).await;
            found.iter_mut().for_each(|finding| redactor.redact(finding));
            if let Some(blocking) = found.iter().find(|finding| finding.is_blocking()) {
                context.failed.insert(check, blocking.clone());
            }
            if is_asked {
                if !self.json {
                    let lines: String = found.iter().map(|finding| report::text(finding, colours)).collect();
                    output::print(&lines)?;
                }
                // What is not configured need not be checked, unless somebody asks for it.
                let is_wanted = self.only.contains(&check) || left.is_zero();
                if is_wanted && found.iter().all(|finding| finding.status == Status::Skipped) {
                    report.unchecked.push(check);
                }
                report.findings.extend(found);
                report.ended += 1;
            }
        }
        report.is_complete = true;
        if self.json {
            output::print(&format!("{:#}\n", report.record()))?;
        } else {
            output::print(&report.summary(colours))?;
        }
        Ok(report.exit_code())
    }

    /// What a check finds in the time that is left.
    async fn check(&self, check: Check, context: &mut Context<'_>, left: Duration) -> Vec<Finding> {
        if left.is_zero() {
            let why = format!("the time is up (--total-timeout {})", show(self.total_timeout));
            return vec![Finding::skipped(check, why)];
        }
        if let Some(first) = context.blocks(check) {
            let skipped = Finding::blocked(check, &first, self.asks_for(first.check));
            // The checks behind this one need it, too.
            context.failed.insert(check, first);
            return vec![skipped];
        }
        let (runtime, limit) = (context.runtime, self.timeout.min(left));
        context.allow(limit);
        let mut work = pin!(check.run(context));
        match rt::within(runtime, SLOW, work.as_mut()).await {
            Some(found) => found,
            None => {
                output::say(&format!("{} takes a while; it ends within {}", check.name(), show(limit)));
                work.await
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MANUAL: &str = include_str!("../../../docs/doctor.md");

    /// The rows of the table under this header.
    fn rows(header: &str) -> Vec<&'static str> {
        let (_, table) = MANUAL.split_once(header).expect(header);
        table.lines().skip(2).take_while(|line| line.starts_with('|')).collect()
    }

    #[test]
    fn the_manual_lists_the_checks() {
        let expected: Vec<String> =
            Check::ALL.iter().map(|check| format!("| `{}` | {} |", check.name(), check.about())).collect();
        assert_eq!(rows("| check | what it does |"), expected);
    }

    #[test]
    fn the_manual_lists_the_faults() {
        let row = |fault: &&fault::Fault| {
            format!("| `{}` | {} | {} | {} |", fault.name, fault.check.name(), fault.cause, fault.remedy)
        };
        let expected: Vec<String> = fault::ALL.iter().map(row).collect();
        assert_eq!(rows("| fault | check | cause | remedy |"), expected);
        let names: std::collections::BTreeSet<&str> = fault::ALL.iter().map(|fault| fault.name).collect();
        assert_eq!(names.len(), fault::ALL.len(), "each has a name of its own");
    }

    #[test]
    fn a_check_needs_only_earlier_ones() {
        for check in Check::ALL {
            assert!(check.needs().iter().all(|needed| *needed < check), "{check:?}");
        }
    }

    #[test]
    fn a_check_reads_what_the_checks_before_it_read() {
        let reading = |variable: &str| -> Vec<&str> {
            Check::ALL.into_iter().filter(|check| check.reads(variable)).map(Check::name).collect()
        };
        assert_eq!(reading("PGHOSTADDR"), ["dns", "tcp", "tls", "connect"]);
        assert_eq!(reading("PGSSLROOTCERT"), ["tls", "connect"]);
        assert_eq!(reading("REGION"), ["token", "connect", "tables"]);
        assert_eq!(reading("CLUSTER_ENDPOINT"), ["dns", "tcp", "tls", "token", "connect", "tables"]);
        assert_eq!(reading("DSQL_MAX_CONNS"), [""; 0]);
    }
}
