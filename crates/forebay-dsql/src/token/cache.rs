//! A token ready whenever one is wanted.
//!
//! One task for each identity, the keeper, is the only one that signs: it signs when first asked, again when a third of
//! the token's life is over, and at short intervals while that fails. Callers take what is there, or wait for the
//! keeper's next outcome. So two thirds of a life, ten minutes of the default fifteen, can pass without a signer before
//! anybody notices.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, Weak};
use std::time::Duration;

use forebay::rt::{Runtime, within};
use forebay::{Rng, Seed};
use parking_lot::Mutex;
use tokio::sync::{Notify, watch};

use super::slot::{Signing, Slot, Step};
use super::{Identity, Signed, Signer, Token, TokenError, TokenRequest, TokenStatus};
use crate::metrics::TokenCounters;

/// How long one signing may take. Signing is arithmetic; what takes time is to fetch credentials.
const SIGN_TIMEOUT: Duration = Duration::from_secs(5);

/// Tokens by [`Identity`], signed ahead of need. A clone is another handle to the same cache; all pools of a process
/// should share one.
///
/// ```
/// use forebay::rt::VirtualTime;
/// use forebay_dsql::{Options, SignFuture, Signed, Signer, Token, TokenCache, TokenRequest};
///
/// struct Fixed;
/// impl Signer for Fixed {
///     fn sign<'a>(&'a self, _request: &'a TokenRequest) -> SignFuture<'a> {
///         Box::pin(async { Ok(Signed { token: Token::new("secret"), credentials_expire: None }) })
///     }
/// }
///
/// let time = VirtualTime::new();
/// let cache = TokenCache::new(Fixed, time.clone(), "orders");
/// let options = Options::builder("abc.dsql.us-east-1.on.aws").build()?;
/// let token = time.run(cache.token(&options.token_request()))?;
/// assert_eq!(format!("{token:?}"), "Token(redacted)");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct TokenCache(Arc<Shared>);

struct Shared {
    signer: Arc<dyn Signer>,
    runtime: Arc<dyn Runtime>,
    counters: TokenCounters,
    state: Mutex<State>,
}

struct State {
    slots: BTreeMap<Identity, Place>,
    rng: Rng,
}

/// What came of a signing.
type Outcome = Result<Token, TokenError>;

/// A slot, and how its keeper and those who wait hear of each other.
struct Place {
    slot: Slot,
    outcome: watch::Sender<Option<Outcome>>,
    wake: Arc<Notify>,
}

impl Default for Place {
    fn default() -> Self {
        Self { slot: Slot::default(), outcome: watch::Sender::new(None), wake: Arc::default() }
    }
}

impl TokenCache {
    /// An empty cache. `service` is the label of its metrics.
    pub fn new(signer: impl Signer, runtime: impl Runtime, service: &str) -> Self {
        let rng = Seed::new(runtime.entropy()).fork("token").rng();
        Self(Arc::new(Shared {
            signer: Arc::new(signer),
            runtime: Arc::new(runtime),
            counters: TokenCounters::new(service),
            state: Mutex::new(State { slots: BTreeMap::new(), rng }),
        }))
    }

    /// A token that is good for a while: at once if there is one, else as soon as it is signed.
    ///
    /// # Errors
    /// If there is none and signing fails. It is tried again in the background, so ask again.
    ///
    /// # Cancel safety
    /// Dropping it loses nothing: what is being signed is kept for the next.
    pub async fn token(&self, request: &TokenRequest) -> Result<Token, TokenError> {
        let mut outcome = match self.ask(request) {
            Ok(token) => return Ok(token),
            Err(outcome) => outcome,
        };
        loop {
            // The sender is in the cache, which `self` keeps alive.
            if outcome.changed().await.is_err() {
                return Err(TokenError::unavailable("the cache is gone"));
            }
            if let Some(outcome) = outcome.borrow_and_update().clone() {
                return outcome;
            }
        }
    }

    /// What is known of the token of `identity`, without the token. `None` if nobody has asked for one.
    #[must_use]
    pub fn status(&self, identity: &Identity) -> Option<TokenStatus> {
        let state = self.0.state.lock();
        let slot = &state.slots.get(identity)?.slot;
        let age = slot.age(self.0.runtime.now(), self.0.runtime.wall());
        Some(TokenStatus {
            age: age.map(|(age, _)| age),
            good_for: age.map(|(_, good_for)| good_for).unwrap_or_default(),
            failures: slot.failures(),
        })
    }

    /// Forgets `token`, which the server refused, if it is still the one in the cache: the next caller gets another.
    pub fn invalidate(&self, identity: &Identity, token: &Token) {
        let mut state = self.0.state.lock();
        if let Some(place) = state.slots.get_mut(identity) {
            place.slot.forget(token);
        }
    }

    /// The server says that `token` has expired: the next caller gets another. But at most one in 10 s is given up so: a clock
    /// that is wrong makes all of them old, and a new one is refused like the one before.
    #[cfg(any(feature = "tokio-postgres", feature = "sqlx"))]
    pub(crate) fn expired(&self, identity: &Identity, token: &Token) {
        let now = self.0.runtime.now();
        if let Some(place) = self.0.state.lock().slots.get_mut(identity) {
            place.slot.refuse(token, now);
        }
    }

    /// The server let nobody in with `token`: if its keys are old, another will do. At most one in 10 s is given up so.
    pub fn denied(&self, identity: &Identity, token: &Token) {
        let now = self.0.runtime.now();
        let given_up =
            self.0.state.lock().slots.get_mut(identity).is_some_and(|place| place.slot.refuse(token, now));
        if given_up {
            self.0.signer.denied(identity);
        }
    }

    /// The token, or where to hear of the next one.
    fn ask(&self, request: &TokenRequest) -> Result<Token, watch::Receiver<Option<Outcome>>> {
        let shared = &self.0;
        let (answer, hired) = {
            let mut state = shared.state.lock();
            let (now, wall) = (shared.runtime.now(), shared.runtime.wall());
            let place = state.slots.entry(request.identity.clone()).or_default();
            let token = place.slot.ask(request.life, now, wall);
            if token.is_none() && place.slot.is_waiting() {
                place.wake.notify_one();
            }
            (token.ok_or_else(|| place.outcome.subscribe()), place.slot.hire())
        };
        shared.counters.asked(answer.is_ok());
        if let Some(number) = hired {
            let identity = request.identity.clone();
            let keeper = Keeper { cache: Arc::downgrade(shared), identity, number };
            shared.runtime.spawn(Box::pin(keeper.run(Arc::clone(&shared.runtime))));
        }
        answer
    }
}

impl fmt::Debug for TokenCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = self.0.state.lock();
        f.debug_set().entries(state.slots.keys()).finish()
    }
}

impl Shared {
    /// What the keeper of `identity` does now.
    fn next(&self, identity: &Identity) -> Option<(Step, Arc<Notify>)> {
        let mut state = self.state.lock();
        let (now, wall) = (self.runtime.now(), self.runtime.wall());
        let place = state.slots.get_mut(identity)?;
        let step = place.slot.next(now, wall)?;
        Some((step, Arc::clone(&place.wake)))
    }

    /// Keeps what came of a signing, and tells those who wait for it. How many attempts have failed before it.
    fn tell(
        &self,
        identity: &Identity,
        signing: Signing,
        signed: Result<Signed, TokenError>,
    ) -> Option<(Outcome, u32)> {
        let mut state = self.state.lock();
        let State { slots, rng } = &mut *state;
        let place = slots.get_mut(identity)?;
        let failures_before = place.slot.failures();
        let now = (self.runtime.now(), self.runtime.wall());
        let outcome = place.slot.settle(signing, now, signed, rng);
        place.outcome.send_replace(Some(outcome.clone()));
        Some((outcome, failures_before))
    }

    /// The same, for operators, too.
    fn settle(&self, identity: &Identity, signing: Signing, signed: Result<Signed, TokenError>) {
        let Some((outcome, failures)) = self.tell(identity, signing, signed) else { return };
        self.counters.signed(outcome.is_ok());
        let Identity { host, user, .. } = identity;
        match outcome {
            Ok(_) if failures > 0 => tracing::info!(%host, %user, failures, "tokens are signed again"),
            Ok(_) => tracing::debug!(%host, %user, "token signed"),
            // Once for each outage; the counter has the rest.
            Err(error) if failures == 0 => tracing::warn!(%host, %user, %error, "no new token; trying again"),
            Err(error) => tracing::debug!(%host, %user, %error, failures, "still no new token"),
        }
    }
}

/// Keepers that rest must not outlive what they keep.
impl Drop for Shared {
    fn drop(&mut self) {
        for place in self.state.get_mut().slots.values() {
            place.wake.notify_one();
        }
    }
}

/// The task that signs for one identity. It does not keep the cache alive.
struct Keeper {
    cache: Weak<Shared>,
    identity: Identity,
    number: u64,
}

impl Keeper {
    async fn run(self, runtime: Arc<dyn Runtime>) {
        while let Some(shared) = self.cache.upgrade() {
            let Some((step, wake)) = shared.next(&self.identity) else { return };
            match step {
                Step::Wait(until) => {
                    drop(shared);
                    let rest = until.since(runtime.now());
                    within(&*runtime, rest, wake.notified()).await;
                }
                Step::Sign(life) => {
                    let signer = Arc::clone(&shared.signer);
                    drop(shared);
                    let request = TokenRequest { identity: self.identity.clone(), life };
                    let signing = Signing { began: runtime.now(), began_wall: runtime.wall(), life };
                    let signed = within(&*runtime, SIGN_TIMEOUT, signer.sign(&request)).await;
                    let signed = signed.unwrap_or(Err(TokenError::TimedOut { waited: SIGN_TIMEOUT }));
                    let Some(shared) = self.cache.upgrade() else { return };
                    shared.settle(&self.identity, signing, signed);
                }
            }
        }
    }
}

/// A keeper that ends otherwise than by decision (its signer panicked, its runtime went) leaves no one waiting.
impl Drop for Keeper {
    fn drop(&mut self) {
        let Some(shared) = self.cache.upgrade() else { return };
        let kept = |place: &Place| place.slot.is_kept_by(self.number);
        let fell = shared.state.lock().slots.get(&self.identity).is_some_and(kept);
        if fell {
            let (began, began_wall) = (shared.runtime.now(), shared.runtime.wall());
            let signing = Signing { began, began_wall, life: Duration::ZERO };
            if std::thread::panicking() {
                let error = TokenError::unavailable("the signer's task fell over");
                shared.settle(&self.identity, signing, Err(error));
            } else {
                // The program ends, so that no operator needs to know.
                let error = TokenError::unavailable("the runtime of the signer's task has ended");
                shared.tell(&self.identity, signing, Err(error));
            }
            if let Some(place) = shared.state.lock().slots.get_mut(&self.identity) {
                place.slot.dismiss();
            }
        }
    }
}
