//! One token and its keeper: what is good, what is due. No clock, no task, no chance of its own.

use std::time::Duration;

use forebay::{Instant, Rng};

use super::{Signed, Token, TokenError};

/// A token is not used so close to its end: an open takes a while, and clocks differ. A tenth of a shorter life.
const MARGIN: Duration = Duration::from_secs(10);
/// A clock that was set back by more than this has made the token one from the future.
const BACK_STEP: Duration = Duration::from_secs(60);
/// Between two signings that succeed, however little life the credentials leave.
const SHORTEST_REST: Duration = Duration::from_secs(1);
/// The first pause after a failure; it doubles.
const FIRST_PAUSE: Duration = Duration::from_millis(250);
/// The longest, while there is no token: this is how late a returned signer may be noticed.
const LONGEST_PAUSE: Duration = Duration::from_secs(1);
/// The longest, while there is one that lives for long yet.
const LONGEST_CALM_PAUSE: Duration = Duration::from_secs(5);

/// The longest life of a token. Signers sign no longer one, whatever they are asked for.
const WEEK: Duration = Duration::from_secs(7 * 24 * 3_600);
/// Between two tokens that are given up because the server refused them.
const REFUSED_REST: Duration = Duration::from_secs(10);

/// What is known of one identity.
#[derive(Debug, Default)]
pub(super) struct Slot {
    life: Duration,
    cached: Option<Cached>,
    keeper: Keeper,
    /// How many keepers there were: the number of the last.
    hired: u64,
    /// Whether someone has asked since the last signing began: a token nobody wants is not renewed.
    wanted: bool,
    failures: u32,
    retry_at: Option<Instant>,
    refused_at: Option<Instant>,
}

/// A signing: when it began, by both clocks, and for how long a life.
#[derive(Clone, Copy, Debug)]
pub(super) struct Signing {
    pub(super) began: Instant,
    pub(super) began_wall: Duration,
    pub(super) life: Duration,
}

#[derive(Debug)]
struct Cached {
    token: Token,
    signed_at: Instant,
    refresh_at: Instant,
    /// Its end by both clocks. The monotonic one stops while a machine sleeps, the other one can be set.
    good_until: Instant,
    good_until_wall: Duration,
    signed_wall: Duration,
}

impl Cached {
    fn is_good(&self, now: Instant, wall: Duration) -> bool {
        now < self.good_until && wall < self.good_until_wall && wall + BACK_STEP >= self.signed_wall
    }
}

/// What the keeper is at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Keeper {
    #[default]
    Absent,
    Signing,
    /// For the next renewal, or for the next attempt after a failure.
    Waiting,
}

/// What the keeper does next.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    Sign(Duration),
    Wait(Instant),
}

impl Slot {
    /// The token, if there is a good one.
    pub(super) fn ask(&mut self, life: Duration, now: Instant, wall: Duration) -> Option<Token> {
        self.life = life;
        self.wanted = true;
        let cached = self.cached.as_ref().filter(|cached| cached.is_good(now, wall));
        if cached.is_none() {
            // A pause that was long because all was calm is so no longer.
            self.retry_at = self.retry_at.map(|at| at.min(now + LONGEST_PAUSE));
        }
        cached.map(|cached| cached.token.clone())
    }

    /// The number of a keeper that is to be started, if there is none.
    pub(super) fn hire(&mut self) -> Option<u64> {
        if self.keeper != Keeper::Absent {
            return None;
        }
        self.keeper = Keeper::Waiting;
        self.hired += 1;
        Some(self.hired)
    }

    pub(super) fn dismiss(&mut self) {
        self.keeper = Keeper::Absent;
    }

    /// Whether this is its keeper. One that was dismissed is not, also if another was hired since.
    pub(super) fn is_kept_by(&self, keeper: u64) -> bool {
        self.keeper != Keeper::Absent && self.hired == keeper
    }

    /// Whether the keeper waits, and should hear that there is no good token.
    pub(super) fn is_waiting(&self) -> bool {
        self.keeper == Keeper::Waiting
    }

    pub(super) fn failures(&self) -> u32 {
        self.failures
    }

    /// The age of the token, and how long it is still good for. `None` without a good one.
    pub(super) fn age(&self, now: Instant, wall: Duration) -> Option<(Duration, Duration)> {
        let cached = self.cached.as_ref().filter(|cached| cached.is_good(now, wall))?;
        Some((now.since(cached.signed_at), cached.good_until.since(now)))
    }

    /// Drops the token if it is this one.
    pub(super) fn forget(&mut self, token: &Token) {
        self.cached.take_if(|cached| cached.token == *token);
    }

    /// The server refused `token`. It may be one of old keys or of another hour, so another is tried; but not all the time,
    /// since a role that may not connect will not with any, and a wrong clock makes all of them old. Whether it is given up.
    pub(super) fn refuse(&mut self, token: &Token, now: Instant) -> bool {
        if self.refused_at.is_some_and(|at| now < at + REFUSED_REST) {
            return false;
        }
        let refused = self.cached.take_if(|cached| cached.token == *token).is_some();
        if refused {
            self.refused_at = Some(now);
        }
        refused
    }

    /// What the keeper does now; none if it is dismissed.
    pub(super) fn next(&mut self, now: Instant, wall: Duration) -> Option<Step> {
        let cached = self.cached.as_ref().filter(|cached| cached.is_good(now, wall));
        let (keeper, step) = match (cached, self.retry_at) {
            (_, Some(at)) if now < at => (Keeper::Waiting, Some(Step::Wait(at))),
            (Some(cached), None) if now < cached.refresh_at => {
                (Keeper::Waiting, Some(Step::Wait(cached.refresh_at)))
            }
            // A renewal that has begun goes on while the old token lives, whether or not anyone asks.
            (cached, retry) if self.wanted || (cached.is_some() && retry.is_some()) => {
                self.wanted = false;
                (Keeper::Signing, Some(Step::Sign(self.life.min(WEEK))))
            }
            _ => (Keeper::Absent, None),
        };
        self.keeper = keeper;
        step
    }

    /// Keeps what came of a signing.
    pub(super) fn settle(
        &mut self,
        signing: Signing,
        (now, wall): (Instant, Duration),
        signed: Result<Signed, TokenError>,
        rng: &mut Rng,
    ) -> Result<Token, TokenError> {
        let kept = signed.and_then(|signed| self.keep(signing, (now, wall), signed, rng));
        match kept {
            Ok(_) => {
                self.failures = 0;
                self.retry_at = None;
            }
            Err(_) => {
                self.failures = self.failures.saturating_add(1);
                self.retry_at = Some(now + self.pause(now, wall, rng));
            }
        }
        kept
    }

    fn keep(
        &mut self,
        Signing { began, began_wall, life }: Signing,
        (now, wall): (Instant, Duration),
        signed: Signed,
        rng: &mut Rng,
    ) -> Result<Token, TokenError> {
        let Signed { token, credentials_expire } = signed;
        if let Some(expired) = credentials_expire.filter(|expire| *expire <= wall) {
            return Err(TokenError::CredentialsExpired { ago: wall - expired });
        }
        // What was signed, and not what somebody has asked for since.
        let life = credentials_expire.map_or(life, |expire| life.min(expire.saturating_sub(began_wall)));
        let usable = life - MARGIN.min(life / 10);
        // Not all processes of a fleet at once.
        let rest = (life / 3).saturating_sub(rng.up_to(life / 20));
        self.cached = Some(Cached {
            token: token.clone(),
            signed_at: began,
            refresh_at: (began + rest).max(now + SHORTEST_REST),
            good_until: began + usable,
            good_until_wall: began_wall + usable,
            signed_wall: began_wall,
        });
        Ok(token)
    }

    /// Between half and all of a pause that doubles with each failure.
    fn pause(&self, now: Instant, wall: Duration, rng: &mut Rng) -> Duration {
        let cached = self.cached.as_ref().filter(|cached| cached.is_good(now, wall));
        let left = cached.map_or(Duration::ZERO, |cached| cached.good_until.since(now));
        let longest = (left / 10).clamp(LONGEST_PAUSE, LONGEST_CALM_PAUSE);
        let doublings = self.failures.saturating_sub(1).min(10);
        let full = FIRST_PAUSE.saturating_mul(1 << doublings).min(longest);
        full / 2 + rng.up_to(full / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_keeper_that_was_dismissed_is_not_the_one_that_came_after_it() {
        let mut slot = Slot::default();
        let first = slot.hire().unwrap();
        assert!(slot.is_kept_by(first) && slot.hire().is_none());
        assert_eq!(slot.next(Instant::ZERO, Duration::ZERO), None, "nobody has asked");
        assert!(!slot.is_kept_by(first));
        // Before the first has gone home, somebody asks.
        assert_eq!(slot.ask(Duration::from_secs(900), Instant::ZERO, Duration::ZERO), None);
        let second = slot.hire().unwrap();
        assert!(slot.is_kept_by(second) && !slot.is_kept_by(first));
    }
}
