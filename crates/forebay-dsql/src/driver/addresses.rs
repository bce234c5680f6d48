//! The addresses of a cluster, tried one after the other.
//!
//! A private endpoint has one for each zone, and some may be in a network that this machine cannot reach. tokio-postgres would
//! try the next one after any answer of a server, and report only the last error.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay::rt::{self, Runtime};

use crate::error::{Error, ErrorKind, is_of_system, is_said};
use crate::options::Options;

/// Where the cluster is, best first. Cancel safe.
pub(crate) async fn resolve(options: &Options) -> Result<Vec<IpAddr>, Error> {
    let found = tokio::net::lookup_host((options.address(), options.port())).await?;
    Ok(found.map(|address| address.ip()).collect())
}

/// Whether the server of one address has said anything.
#[derive(Clone, Debug, Default)]
pub(crate) struct Answers(Arc<AtomicBool>);

impl Answers {
    pub(crate) fn record(&self) {
        self.0.store(true, Ordering::Release);
    }

    fn is_recorded(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Dials one address after the other until a server answers, whatever it says. Each but the last has its share of `limit` to
/// say something, which `dial` records in `answers`. After that it has as long as it needs: a slow login is no reason to try
/// another address. If none answers, it returns the error of the first, with its address.
///
/// Cancel safe if `dial` is.
pub(crate) async fn first_reached<T, F>(
    addresses: &[IpAddr],
    port: u16,
    runtime: &dyn Runtime,
    limit: Duration,
    mut dial: impl FnMut(IpAddr, Answers) -> F,
) -> Result<T, Error>
where
    F: Future<Output = Result<T, Error>>,
{
    let Some((last, others)) = addresses.split_last() else {
        return Err(io::Error::from(io::ErrorKind::AddrNotAvailable).into());
    };
    let at = |address: IpAddr, error: Error| error.at_address(SocketAddr::new(address, port));
    let share = limit / u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    let mut first = None;
    for address in others {
        let answers = Answers::default();
        let mut dialled = pin!(dial(*address, answers.clone()));
        let outcome = match rt::within(runtime, share, dialled.as_mut()).await {
            Some(outcome) => outcome,
            None if answers.is_recorded() => dialled.await,
            None => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
        };
        match outcome {
            Err(error) if is_unreached(&error) => {
                tracing::debug!(%address, %error, "no answer from one address of the cluster");
                first.get_or_insert_with(|| at(*address, error));
            }
            answered => return answered,
        }
    }
    match dial(*last, Answers::default()).await {
        Err(error) if is_unreached(&error) => Err(first.unwrap_or_else(|| at(*last, error))),
        answered => answered,
    }
}

/// Whether the error is the network's, and no server has answered.
fn is_unreached(error: &Error) -> bool {
    !is_said(error) && (error.kind() == ErrorKind::Disconnected || is_of_system(error))
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use forebay::rt::VirtualTime;

    use super::*;
    use crate::error::Throttle;

    const LIMIT: Duration = Duration::from_secs(9);

    /// What becomes of an attempt at each of three addresses.
    #[derive(Clone, Copy)]
    enum At {
        Open,
        Refused,
        Forbidden,
        Throttled,
        Stranger,
        Silent,
        SlowLogin,
    }

    /// What comes of these, and how many were tried, in how many seconds.
    fn dialled(at: [At; 3]) -> (Result<usize, ErrorKind>, usize, u64) {
        let time = VirtualTime::new();
        let (began, tried) = (time.now(), RefCell::new(0));
        let addresses = [0, 1, 2].map(|number| IpAddr::from([127, 0, 0, number]));
        let outcome = time.run(first_reached(&addresses, 5432, &time, LIMIT, |address, answers| {
            let number = addresses.iter().position(|other| *other == address).unwrap();
            *tried.borrow_mut() += 1;
            let time = &time;
            async move {
                match at[number] {
                    At::Open => Ok(number),
                    At::Refused => Err(io::Error::from(io::ErrorKind::ConnectionRefused).into()),
                    At::Forbidden => Err(io::Error::from_raw_os_error(13).into()),
                    At::Throttled => {
                        Err(Error::new(ErrorKind::Throttled(Throttle::RateExceeded), "rate exceeded"))
                    }
                    At::Stranger => {
                        Err(io::Error::new(io::ErrorKind::InvalidData, "an unknown issuer").into())
                    }
                    At::Silent => std::future::pending().await,
                    At::SlowLogin => {
                        answers.record();
                        time.sleep_until(time.now() + LIMIT - Duration::from_secs(1)).await;
                        Ok(number)
                    }
                }
            }
        }));
        let outcome = outcome.map_err(|error: Error| {
            // Only who has not answered is named, and the first of them.
            let is_named = error.to_string().contains("no connection to 127.0.0.0:5432: ");
            assert_eq!(is_named, is_unreached(&error), "{error}");
            error.kind()
        });
        (outcome, tried.into_inner(), time.now().since(began).as_secs())
    }

    #[test]
    fn the_first_that_answers_is_the_last_that_is_tried() {
        use At::{Forbidden, Open, Refused, Silent, SlowLogin, Stranger, Throttled};
        let (throttled, lost) = (ErrorKind::Throttled(Throttle::RateExceeded), ErrorKind::Disconnected);
        for (at, outcome, tried, seconds) in [
            ([Open, Refused, Refused], Ok(0), 1, 0),
            ([Refused, Open, Refused], Ok(1), 2, 0),
            ([Forbidden, Silent, Open], Ok(2), 3, 3),
            ([Silent, Silent, Open], Ok(2), 3, 6),
            ([SlowLogin, Open, Open], Ok(0), 1, 8),
            ([Silent, SlowLogin, Open], Ok(1), 2, 11),
            ([Throttled, Open, Open], Err(throttled), 1, 0),
            ([Refused, Throttled, Refused], Err(throttled), 2, 0),
            ([Refused, Refused, Throttled], Err(throttled), 3, 0),
            ([Stranger, Refused, Refused], Err(ErrorKind::Permanent), 1, 0),
            ([Refused, Forbidden, Forbidden], Err(lost), 3, 0),
            ([Forbidden, Refused, Refused], Err(ErrorKind::Permanent), 3, 0),
        ] {
            assert_eq!(dialled(at), (outcome, tried, seconds));
        }
    }

    #[test]
    fn a_name_without_addresses_is_an_error() {
        let time = VirtualTime::new();
        let none = first_reached(&[], 5432, &time, LIMIT, async |_, _| Ok::<(), Error>(()));
        assert_eq!(time.run(none).unwrap_err().kind(), ErrorKind::Disconnected);
    }
}
