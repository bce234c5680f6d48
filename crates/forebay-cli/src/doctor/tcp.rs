//! A TCP connection to each address.

use std::io;
use std::time::Duration;

use forebay::duration::show;
use forebay::rt::Runtime as _;
use tokio::net::TcpStream;

use super::check::Check;
use super::context::Context;
use super::dns;
use super::fault::{self, Fault};
use super::finding::{Finding, Status};

pub(super) async fn run(context: &mut Context<'_>) -> Vec<Finding> {
    let addresses = match dns::addresses(context, Check::Tcp).await {
        Ok(addresses) => addresses,
        Err(finding) => return vec![finding],
    };
    let (mut findings, mut accepting) = (Vec::new(), Vec::new());
    for (number, address) in addresses.iter().enumerate() {
        let began = context.runtime.now();
        let connected = context.bounded(addresses.len() - number, TcpStream::connect(address)).await;
        let took = context.runtime.now().since(began);
        findings.push(match connected {
            Some(Ok(_)) => {
                accepting.push(*address);
                Finding::ok(Check::Tcp, format!("{address} accepts connections ({})", millis(took)))
            }
            Some(Err(error)) => {
                Finding::failure(fault_of(&error), format!("{address} cannot be reached: {error}"))
            }
            None => {
                let what = format!("{address} does not answer within {}", rounded(took));
                Finding::failure(fault::SILENT_ADDRESS, what)
            }
        });
    }
    soften(&mut findings);
    context.accepting = Some(accepting);
    findings
}

/// A service uses another address if one fails: that is worth a warning.
pub(super) fn soften(findings: &mut [Finding]) {
    if findings.iter().any(|finding| finding.status == Status::Ok) {
        for finding in findings.iter_mut().filter(|finding| finding.status == Status::Failure) {
            finding.status = Status::Warning;
            finding.details.push("another address works, and services use that".to_owned());
        }
    }
}

/// A time of waiting, without what nobody asks for.
pub(super) fn rounded(time: Duration) -> String {
    show(Duration::from_millis(u64::try_from(time.as_millis()).unwrap_or(u64::MAX)))
}

pub(super) fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1_000.0)
}

fn fault_of(error: &io::Error) -> &'static Fault {
    match error.kind() {
        io::ErrorKind::ConnectionRefused | io::ErrorKind::ConnectionReset => fault::CLOSED_PORT,
        io::ErrorKind::TimedOut => fault::SILENT_ADDRESS,
        _ => fault::UNREACHABLE,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_of_the_network_are_told_apart() {
        for (kind, known) in [
            (io::ErrorKind::ConnectionRefused, fault::CLOSED_PORT),
            (io::ErrorKind::TimedOut, fault::SILENT_ADDRESS),
            (io::ErrorKind::NetworkUnreachable, fault::UNREACHABLE),
            (io::ErrorKind::PermissionDenied, fault::UNREACHABLE),
        ] {
            assert_eq!(fault_of(&kind.into()), known);
        }
    }

    #[test]
    fn one_good_address_is_enough() {
        let failure = || Finding::failure(fault::CLOSED_PORT, "x");
        let mut all = [failure(), failure()];
        soften(&mut all);
        assert!(all.iter().all(|finding| finding.status == Status::Failure));
        let mut some = [failure(), Finding::ok(Check::Tcp, "y")];
        soften(&mut some);
        assert_eq!(some[0].status, Status::Warning);
    }
}
