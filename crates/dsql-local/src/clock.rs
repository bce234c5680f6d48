//! The emulator's clock, which can be advanced, sped up or stopped. No other file reads real time.
#![allow(clippy::disallowed_methods, reason = "the one file that reads real clocks and sleeps")]

use std::fmt;
use std::future::{Future, poll_fn};
use std::pin::pin;
use std::str::FromStr;
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime};

use parking_lot::Mutex;
use tokio::sync::watch;

/// A point in the emulator's time: the time since its start.
pub type Moment = Duration;

/// How fast the emulator's clock runs. It is kept in thousandths, so that arithmetic is exact.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Speed(u32);

impl Speed {
    /// As fast as real time.
    pub const REAL: Self = Self(1_000);
    /// The clock moves only when it is advanced.
    pub const STOPPED: Self = Self(0);

    /// This many emulated seconds for each real second.
    #[must_use]
    pub const fn times(factor: u16) -> Self {
        Self(factor as u32 * 1_000)
    }

    fn emulated(self, real: Duration) -> Duration {
        // Every statement reads the clock, nearly always at this speed; the division is slow.
        if self == Self::REAL {
            return real;
        }
        nanos(real.as_nanos() * u128::from(self.0) / 1_000)
    }

    /// The real time until this much emulated time has passed; none if it never does.
    fn real(self, emulated: Duration) -> Option<Duration> {
        (self.0 > 0).then(|| nanos((emulated.as_nanos() * 1_000).div_ceil(u128::from(self.0))))
    }
}

impl Default for Speed {
    fn default() -> Self {
        Self::REAL
    }
}

impl fmt::Display for Speed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", f64::from(self.0) / 1_000.0)
    }
}

impl FromStr for Speed {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let problem =
            || format!("'{text}' is not a speed: give a number from 0 (stopped) to 60000, such as 60");
        let factor: f64 = text.parse().map_err(|_| problem())?;
        if !(0.0..=60_000.0).contains(&factor) {
            return Err(problem());
        }
        #[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "within 0 to 60,000,000")]
        Ok(Self((factor * 1_000.0).round() as u32))
    }
}

fn nanos(nanos: u128) -> Duration {
    Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX))
}

/// The emulator's clock.
pub struct Clock {
    reading: Mutex<Reading>,
    /// Wakes sleepers when the clock is changed.
    changed: watch::Sender<()>,
    /// The time since 1970 at the start.
    epoch: Duration,
}

/// What the clock showed at its last change.
#[derive(Clone, Copy)]
struct Reading {
    shown: Moment,
    at: Instant,
    speed: Speed,
}

impl Reading {
    fn now(self) -> Moment {
        self.shown.saturating_add(self.speed.emulated(self.at.elapsed()))
    }
}

impl Clock {
    /// A clock that starts at zero, at the machine's date.
    #[must_use]
    pub fn new(speed: Speed) -> Self {
        Self {
            reading: Mutex::new(Reading { shown: Duration::ZERO, at: Instant::now(), speed }),
            changed: watch::Sender::new(()),
            epoch: real_date(),
        }
    }

    /// The time since the start.
    #[must_use]
    pub fn now(&self) -> Moment {
        let reading = *self.reading.lock();
        reading.now()
    }

    /// The date, as time since 1970.
    #[must_use]
    pub fn date(&self) -> Duration {
        self.epoch.saturating_add(self.now())
    }

    /// How fast the clock runs.
    #[must_use]
    pub fn speed(&self) -> Speed {
        self.reading.lock().speed
    }

    /// Moves the clock forward. Everything that becomes due, becomes due at once.
    pub fn advance(&self, by: Duration) {
        self.change(|reading| reading.shown = reading.shown.saturating_add(by));
    }

    /// Changes the speed from now on.
    pub fn set_speed(&self, speed: Speed) {
        self.change(|reading| reading.speed = speed);
    }

    fn change(&self, change: impl FnOnce(&mut Reading)) {
        {
            let mut reading = self.reading.lock();
            *reading = Reading { shown: reading.now(), at: Instant::now(), ..*reading };
            change(&mut reading);
        }
        self.changed.send_replace(());
    }

    /// Sleeps until the clock shows `due`.
    ///
    /// # Cancel safety
    /// Can be dropped at any time.
    pub async fn sleep_until(&self, due: Moment) {
        let mut changed = self.changed.subscribe();
        loop {
            changed.mark_unchanged();
            let (now, speed) = {
                let reading = *self.reading.lock();
                (reading.now(), reading.speed)
            };
            let Some(left) = due.checked_sub(now).filter(|left| !left.is_zero()) else { return };
            // The sender lives as long as `self`, so this cannot fail.
            match speed.real(left) {
                Some(real) => drop(tokio::time::timeout(real, changed.changed()).await),
                None => drop(changed.changed().await),
            }
        }
    }

    /// Sleeps for an emulated duration.
    ///
    /// # Cancel safety
    /// Can be dropped at any time.
    pub async fn sleep(&self, duration: Duration) {
        if !duration.is_zero() {
            self.sleep_until(self.now().saturating_add(duration)).await;
        }
    }
}

impl fmt::Debug for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clock").field("now", &self.now()).field("speed", &self.speed()).finish()
    }
}

pub(crate) fn real_date() -> Duration {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default()
}

/// A timeout in real time, for limits that protect sockets: advancing the emulator's clock must not trip
/// them.
pub(crate) async fn within<F: Future>(limit: Duration, future: F) -> Option<F::Output> {
    let mut future = pin!(future);
    // A future that is ready at once, as most writes are, needs no timer.
    let first = poll_fn(|context| Poll::Ready(future.as_mut().poll(context))).await;
    match first {
        Poll::Ready(output) => Some(output),
        Poll::Pending => tokio::time::timeout(limit, future).await.ok(),
    }
}

pub(crate) async fn pause(duration: Duration) {
    tokio::time::sleep(duration).await;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stopped_clock_moves_only_when_advanced() {
        let clock = Clock::new(Speed::STOPPED);
        assert_eq!(clock.now(), Duration::ZERO);
        clock.advance(Duration::from_secs(3_600));
        assert_eq!(clock.now(), Duration::from_secs(3_600));
        assert_eq!(clock.date() - clock.epoch, Duration::from_secs(3_600));
    }

    #[test]
    fn a_change_of_speed_moves_nothing() {
        let clock = Clock::new(Speed::STOPPED);
        clock.advance(Duration::from_secs(5));
        clock.set_speed(Speed::times(60));
        clock.set_speed(Speed::STOPPED);
        let shown = clock.now();
        assert!(shown >= Duration::from_secs(5), "{shown:?}");
        assert_eq!(clock.now(), shown);
    }

    #[test]
    fn speeds_are_read_and_converted_exactly() {
        assert_eq!("60".parse(), Ok(Speed::times(60)));
        assert_eq!("0".parse(), Ok(Speed::STOPPED));
        assert_eq!("0.5".parse(), Ok(Speed(500)));
        for bad in ["-1", "NaN", "fast", "1e9"] {
            assert!(bad.parse::<Speed>().is_err(), "{bad}");
        }
        assert_eq!(Speed::times(60).emulated(Duration::from_secs(60)), Duration::from_secs(3_600));
        assert_eq!(Speed::times(60).real(Duration::from_secs(3_600)), Some(Duration::from_secs(60)));
        assert_eq!(Speed::STOPPED.real(Duration::from_secs(1)), None);
    }

    #[tokio::test]
    async fn sleepers_wake_when_the_clock_is_advanced() {
        let clock = Clock::new(Speed::STOPPED);
        let sleep = clock.sleep_until(Duration::from_secs(3_600));
        let advance = async {
            clock.advance(Duration::from_secs(3_599));
            tokio::task::yield_now().await;
            clock.advance(Duration::from_secs(1));
        };
        tokio::join!(sleep, advance);
        assert_eq!(clock.now(), Duration::from_secs(3_600));
    }
}
