//! The SDK's signer: its tokens open connections, depend only on time and keys, and need one load of credentials.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use aws_config::SdkConfig;
use aws_credential_types::Credentials;
use aws_credential_types::provider::error::CredentialsError;
use aws_credential_types::provider::{ProvideCredentials, SharedCredentialsProvider, future};
use aws_smithy_async::time::{SharedTimeSource, TimeSource};
use forebay::rt::{Runtime, VirtualTime};
use forebay_aws::SdkSigner;
use forebay_dsql::{Options, Signed, Signer, TokenCache, TokenError, TokenRequest};
use sqlx::postgres::{PgConnectOptions, PgSslMode};
use sqlx::{Connection, PgConnection};

const KEY: &str = "AKIDEXAMPLE";
const SECRET: &str = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY";
/// 2026-01-01 00:00 UTC, when virtual time begins.
const START: Duration = Duration::from_secs(1_767_225_600);

/// A provider that the test controls.
#[derive(Clone, Debug)]
struct Vault(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    loads: AtomicUsize,
    answer: Mutex<Answer>,
    /// Since 1970.
    time: Mutex<Duration>,
}

#[derive(Clone, Copy, Debug)]
enum Answer {
    Good { for_: Option<Duration> },
    None,
    Failing,
    Hanging,
}

impl Vault {
    fn new(answer: Answer) -> Self {
        Self(Arc::new(Inner {
            loads: AtomicUsize::new(0),
            answer: Mutex::new(answer),
            time: Mutex::new(START),
        }))
    }

    fn answer(&self, answer: Answer) {
        *self.0.answer.lock().unwrap() = answer;
    }

    fn pass(&self, time: Duration) {
        *self.0.time.lock().unwrap() += time;
    }

    fn loads(&self) -> usize {
        self.0.loads.load(Ordering::Relaxed)
    }

    fn signer(&self) -> SdkSigner {
        let provider = SharedCredentialsProvider::new(self.clone());
        let time = SharedTimeSource::new(self.clone());
        SdkSigner::new(SdkConfig::builder().credentials_provider(provider).time_source(time).build())
    }
}

impl TimeSource for Vault {
    fn now(&self) -> SystemTime {
        UNIX_EPOCH + *self.0.time.lock().unwrap()
    }
}

impl ProvideCredentials for Vault {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        let answer = *self.0.answer.lock().unwrap();
        self.0.loads.fetch_add(1, Ordering::Relaxed);
        future::ProvideCredentials::new(async move {
            match answer {
                Answer::Good { for_ } => {
                    let expiry = for_.map(|time| self.now() + time);
                    Ok(Credentials::new(KEY, SECRET, None, expiry, "test"))
                }
                Answer::None => Err(CredentialsError::not_loaded("there are none")),
                Answer::Failing => Err(CredentialsError::provider_error("503")),
                Answer::Hanging => std::future::pending().await,
            }
        })
    }
}

fn request(user: &str) -> TokenRequest {
    Options::builder("abc.dsql.us-east-1.on.aws").user(user).build().unwrap().token_request()
}

/// Runs a future that never waits.
fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match poll(future.as_mut()) {
        Poll::Ready(output) => output,
        Poll::Pending => panic!("it waits"),
    }
}

fn poll<F: Future + ?Sized>(future: Pin<&mut F>) -> Poll<F::Output> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

fn sign(signer: &SdkSigner) -> Result<Signed, TokenError> {
    now(signer.sign(&request("admin")))
}

#[test]
fn the_same_moment_and_keys_give_the_same_token() {
    let token = |user: &str| {
        let signer = Vault::new(Answer::Good { for_: None }).signer();
        now(signer.sign(&request(user))).unwrap().token.expose_secret().to_owned()
    };
    let admin = token("admin");
    assert_eq!(admin, token("admin"));
    assert!(admin.starts_with("abc.dsql.us-east-1.on.aws/?Action=DbConnectAdmin&"), "{admin}");
    for part in
        ["X-Amz-Date=20260101T000000Z", "X-Amz-Expires=900", "20260101%2Fus-east-1%2Fdsql%2Faws4_request"]
    {
        assert!(admin.contains(part), "{part} in {admin}");
    }
    assert!(token("app").contains("?Action=DbConnect&"));
}

#[test]
fn credentials_are_loaded_once_and_again_before_they_expire() {
    let hour = Duration::from_secs(3600);
    let vault = Vault::new(Answer::Good { for_: Some(hour) });
    let signer = vault.signer();
    for _ in 0..10 {
        assert_eq!(sign(&signer).unwrap().credentials_expire, Some(START + hour));
    }
    assert_eq!(vault.loads(), 1);
    vault.pass(hour - Duration::from_secs(300));
    assert_eq!(sign(&signer).unwrap().credentials_expire, Some(START + 2 * hour - Duration::from_secs(300)));
    assert_eq!(vault.loads(), 2);

    // Without an expiry, they are loaded again after some time.
    let vault = Vault::new(Answer::Good { for_: None });
    let signer = vault.signer();
    for _ in 0..30 {
        assert_eq!(sign(&signer).unwrap().credentials_expire, None);
        vault.pass(Duration::from_secs(60));
    }
    assert_eq!(vault.loads(), 2);
}

#[test]
fn cached_credentials_are_used_while_a_load_fails() {
    let vault = Vault::new(Answer::Good { for_: Some(Duration::from_secs(600)) });
    let signer = vault.signer();
    sign(&signer).unwrap();
    vault.answer(Answer::Failing);
    vault.pass(Duration::from_secs(599));
    assert!(sign(&signer).is_ok());
    vault.pass(Duration::from_secs(1));
    assert!(matches!(sign(&signer), Err(TokenError::Unavailable(_))));
    vault.answer(Answer::None);
    let error = sign(&signer).unwrap_err();
    assert!(matches!(error, TokenError::Credentials(_)), "{error}");
    assert!(error.to_string().contains("there are none") && !error.to_string().contains(SECRET), "{error}");
}

#[test]
fn a_token_lives_at_least_as_long_as_requested() {
    let signer = Vault::new(Answer::Good { for_: None }).signer();
    let (second, week) = (Duration::from_secs(1), Duration::from_secs(604_800));
    for (life, signed) in [
        (Duration::ZERO, 1),
        (second, 1),
        (second + Duration::from_nanos(1), 2),
        (Duration::from_millis(1900), 2),
        (week, 604_800),
        (week + second, 604_800),
    ] {
        let token = now(signer.sign(&TokenRequest { life, ..request("admin") })).unwrap().token;
        let expires = format!("X-Amz-Expires={signed}&");
        assert!(token.expose_secret().contains(&expires), "{life:?}: {}", token.expose_secret());
    }
}

#[test]
fn one_load_serves_all_and_the_next_caller_continues_a_dropped_one() {
    let vault = Vault::new(Answer::Hanging);
    let signer = vault.signer();
    let (admin, app) = (request("admin"), request("app"));
    let (mut first, mut second) = (signer.sign(&admin), signer.sign(&app));
    assert!(poll(first.as_mut()).is_pending() && poll(second.as_mut()).is_pending());
    assert_eq!(vault.loads(), 1, "the second waits for the first");
    vault.answer(Answer::Good { for_: None });
    drop(first);
    assert!(poll(second.as_mut()).is_pending());
    assert_eq!(vault.loads(), 1, "the second goes on with what the first began");
    drop(second);
    // A load that hangs for a minute is dropped.
    vault.pass(Duration::from_secs(60));
    assert!(sign(&signer).is_ok());
    assert_eq!(vault.loads(), 2);
    assert!(sign(&signer).is_ok());
    assert_eq!(vault.loads(), 2);
}

/// A slow provider.
#[derive(Clone, Debug)]
struct Slow {
    time: VirtualTime,
    loads: Arc<AtomicUsize>,
}

impl ProvideCredentials for Slow {
    fn provide_credentials<'a>(&'a self) -> future::ProvideCredentials<'a>
    where
        Self: 'a,
    {
        self.loads.fetch_add(1, Ordering::Relaxed);
        future::ProvideCredentials::new(async {
            self.time.sleep_until(self.time.now() + Duration::from_secs(12)).await;
            Ok(Credentials::new(KEY, SECRET, None, None, "slow"))
        })
    }
}

#[test]
fn the_next_caller_continues_a_slow_load() {
    let time = VirtualTime::new();
    let slow = Slow { time: time.clone(), loads: Arc::default() };
    let provider = SharedCredentialsProvider::new(slow.clone());
    let signer = SdkSigner::new(SdkConfig::builder().credentials_provider(provider).build());
    let cache = TokenCache::new(signer, time.clone(), "orders");
    let (began, request) = (time.now(), request("app"));
    let mut waits = 1;
    while let Err(error) = time.run(cache.token(&request)) {
        assert!(matches!(error, TokenError::TimedOut { .. }), "{error}");
        waits += 1;
        assert!(waits < 10, "there will never be a token");
    }
    assert_eq!(slow.loads.load(Ordering::Relaxed), 1);
    assert!(time.now().since(began) < Duration::from_secs(14));
}

#[test]
fn credentials_whose_token_was_denied_are_loaded_again() {
    let vault = Vault::new(Answer::Good { for_: None });
    let signer = vault.signer();
    assert!(sign(&signer).is_ok() && sign(&signer).is_ok());
    assert_eq!(vault.loads(), 1);
    signer.denied(&request("admin").identity);
    // If the load fails, the old credentials are used.
    vault.answer(Answer::Failing);
    assert!(sign(&signer).is_ok());
    vault.answer(Answer::Good { for_: None });
    assert!(sign(&signer).is_ok() && sign(&signer).is_ok());
    assert_eq!(vault.loads(), 3);
}

#[test]
fn a_missing_provider_is_an_error_with_a_remedy() {
    let error = sign(&SdkSigner::new(SdkConfig::builder().build())).unwrap_err();
    assert!(error.to_string().contains("give this process a role or keys"), "{error}");
}

/// Variables belong to a process, so the test runs itself again in a new process with variables.
#[test]
fn the_environment_is_enough() {
    if std::env::var("AWS_ACCESS_KEY_ID").is_ok_and(|key| key == KEY) {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let signed =
            runtime.block_on(async { SdkSigner::from_env().await.sign(&request("admin")).await.unwrap() });
        assert!(signed.token.expose_secret().contains(KEY));
        return;
    }
    let child = std::process::Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "the_environment_is_enough"])
        .env("AWS_ACCESS_KEY_ID", KEY)
        .env("AWS_SECRET_ACCESS_KEY", SECRET)
        .env("AWS_EC2_METADATA_DISABLED", "true")
        .output()
        .unwrap();
    let told = String::from_utf8_lossy(&child.stdout);
    assert!(child.status.success() && told.contains("1 passed"), "{told}");
}

/// Uses the cache, as connectors do, and the real clock, which the server checks.
#[tokio::test]
async fn its_tokens_open_connections_to_dsql_local() {
    let keys = dsql_local::Credentials::new(KEY, SECRET);
    let cluster = dsql_local::Cluster::start(dsql_local::Config {
        credentials: vec![keys],
        ..dsql_local::Config::default()
    })
    .unwrap();
    let credentials = Credentials::new(KEY, SECRET, None, None, "test");
    let sdk = SdkConfig::builder().credentials_provider(SharedCredentialsProvider::new(credentials)).build();
    let tokens = TokenCache::new(SdkSigner::new(sdk), forebay::rt::TokioRuntime::current().unwrap(), "test");
    for user in ["admin", "app"] {
        let options =
            Options::builder(cluster.endpoint()).region(cluster.region()).user(user).build().unwrap();
        let token = tokens.token(&options.token_request()).await.unwrap();
        let options = PgConnectOptions::new_without_pgpass()
            .host("localhost")
            .port(cluster.address().port())
            .username(user)
            .database("postgres")
            .password(token.expose_secret())
            .ssl_mode(PgSslMode::VerifyFull)
            .ssl_root_cert(cluster.ca_file());
        let mut connection = PgConnection::connect_with(&options).await.unwrap();
        let one: i32 = sqlx::query_scalar("SELECT 1").fetch_one(&mut connection).await.unwrap();
        assert_eq!(one, 1);
    }
}

#[test]
fn the_cache_keeps_to_the_end_of_the_credentials() {
    let time = VirtualTime::new();
    let vault = Vault::new(Answer::Good { for_: Some(Duration::from_secs(100)) });
    let cache = TokenCache::new(vault.signer(), time.clone(), "test");
    let request = request("admin");
    time.run(cache.token(&request)).unwrap();
    vault.answer(Answer::Failing);
    time.advance(Duration::from_secs(89));
    vault.pass(Duration::from_secs(89));
    time.run(cache.token(&request)).unwrap();
    time.advance(Duration::from_secs(11));
    vault.pass(Duration::from_secs(11));
    assert!(time.run(cache.token(&request)).is_err(), "signed for fifteen minutes, but not worth it");
}
