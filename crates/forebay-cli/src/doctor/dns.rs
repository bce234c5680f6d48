//! Every address of the cluster.

use std::io;
use std::net::SocketAddr;

use super::check::Check;
use super::context::Context;
use super::fault::{self, Fault};
use super::finding::Finding;

pub(super) async fn run(context: &mut Context<'_>) -> Vec<Finding> {
    let Some(options) = context.options().cloned() else { return Vec::new() };
    let name = options.address();
    let found = context.addresses().await;
    let finding = match found {
        Ok(found) if found.is_empty() => without_address(name),
        Ok(_) if name.parse::<std::net::IpAddr>().is_ok() => {
            Finding::ok(Check::Dns, format!("{name} is an address; no lookup is needed"))
        }
        Ok(found) => {
            let count =
                if found.len() == 1 { "1 address".into() } else { format!("{} addresses", found.len()) };
            let addresses: Vec<String> = found.iter().map(|address| address.ip().to_string()).collect();
            Finding::ok(Check::Dns, format!("{name} has {count}: {}", addresses.join(", ")))
        }
        Err(error) => failed(name, &error),
    };
    vec![finding]
}

/// Every address of the cluster, for another check.
///
/// # Errors
/// What that check has found instead.
pub(super) async fn addresses(context: &mut Context<'_>, check: Check) -> Result<Vec<SocketAddr>, Finding> {
    let found = context.addresses().await;
    let name = context.options().map(|options| options.address()).unwrap_or_default();
    match found {
        Ok(found) if found.is_empty() => Err(without_address(name).under(check)),
        Ok(found) => Ok(found),
        Err(error) => Err(failed(name, &error).under(check)),
    }
}

fn without_address(name: &str) -> Finding {
    Finding::failure(fault::WRONG_ENDPOINT, format!("{name} has no address"))
}

fn failed(name: &str, error: &io::Error) -> Finding {
    Finding::failure(fault_of(error), format!("{name} cannot be looked up: {error}"))
}

/// Only the text tells them apart. A name that does not exist is the usual case.
fn fault_of(error: &io::Error) -> &'static Fault {
    let text = error.to_string();
    if error.kind() == io::ErrorKind::TimedOut
        || text.contains("Temporary failure")
        || text.contains("try again")
    {
        fault::NO_RESOLVER
    } else {
        fault::WRONG_ENDPOINT
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resolver_that_does_not_answer_is_another_fault() {
        let error = |text: &str| io::Error::other(format!("failed to lookup address information: {text}"));
        assert_eq!(fault_of(&error("Name or service not known")), fault::WRONG_ENDPOINT);
        assert_eq!(fault_of(&error("Temporary failure in name resolution")), fault::NO_RESOLVER);
        assert_eq!(fault_of(&io::ErrorKind::TimedOut.into()), fault::NO_RESOLVER);
    }
}
