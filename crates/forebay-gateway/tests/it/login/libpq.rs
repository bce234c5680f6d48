//! psql, with the libpq that Debian ships.

use std::process::Command;

use forebay_gateway::config::Authentication;
use forebay_gateway::login::{LoginError, Reason};

use super::door::{Door, Visit, policy};
use super::identity::Identity;

/// What psql prints, or why it cannot.
async fn psql(door: &Door, settings: &str, password: &str) -> Result<String, String> {
    let address = format!("host=localhost hostaddr=127.0.0.1 port={}", door.address.port());
    run(format!("{address} {settings}"), password.to_owned()).await
}

async fn run(settings: String, password: String) -> Result<String, String> {
    let output = tokio::task::spawn_blocking(move || {
        let mut command = Command::new("psql");
        for (variable, _) in std::env::vars_os() {
            if variable.to_string_lossy().starts_with("PG") {
                command.env_remove(variable);
            }
        }
        // Nothing of the user's: no password file, no certificate.
        let output = command
            .env("HOME", "/nonexistent")
            .env("PGPASSWORD", password)
            .args(["-X", "-A", "-t", "-w", "-c", "SELECT role", &settings])
            .output();
        output.expect("psql is installed")
    });
    let output = output.await.unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap().trim_end().to_owned();
    if output.status.success() { Ok(text(output.stdout)) } else { Err(text(output.stderr)) }
}

#[tokio::test]
async fn a_password_is_proved_with_and_without_tls() {
    let identity = Identity::new(&rcgen::PKCS_ECDSA_P256_SHA256);
    let mut door = Door::open(policy(Authentication::Scram, Some(&identity))).await;
    let verify = format!("sslmode=verify-full sslrootcert={}", identity.path("ca.pem"));
    for (tls, encrypted) in [
        ("sslmode=disable".to_owned(), false),
        ("sslmode=require channel_binding=disable".to_owned(), true),
        ("sslmode=require channel_binding=prefer".to_owned(), true),
        (format!("{verify} channel_binding=require"), true),
        (format!("{verify} channel_binding=require ssl_max_protocol_version=TLSv1.2"), true),
    ] {
        let settings = format!("{tls} dbname=postgres user=app application_name=mine");
        assert_eq!(psql(&door, &settings, "secret").await, Ok("writer".to_owned()), "{tls}");
        let Visit::Client { user, encrypted: was, start } = door.visit().await else { panic!("{tls}") };
        assert_eq!((user.as_str(), was), ("app", encrypted), "{tls}");
        assert!(start.contains(&("application_name".to_owned(), "mine".to_owned())), "{start:?}");
        let refused = psql(&door, &settings, "wrong").await.unwrap_err();
        assert!(refused.ends_with("password authentication failed for user \"app\""), "{refused}");
        let visit = door.visit().await;
        assert!(
            matches!(visit, Visit::Refused(LoginError::Refused { reason: Some(Reason::Password), .. })),
            "{visit:?}"
        );
    }
    let odd = psql(&door, "user=odd dbname=postgres", "\u{2168} pass\u{ad}word, with ümlauts=").await;
    assert_eq!(odd, Ok("odd".to_owned()));
}

/// The hash of channel binding is that of the certificate's signature.
#[tokio::test]
async fn channel_binding_uses_the_hash_of_the_certificate() {
    let identity = Identity::new(&rcgen::PKCS_ECDSA_P384_SHA384);
    let door = Door::open(policy(Authentication::Scram, Some(&identity))).await;
    let settings = "user=app dbname=postgres sslmode=require channel_binding=require";
    assert_eq!(psql(&door, settings, "secret").await, Ok("writer".to_owned()));
    // RFC 5929 defines no hash for it. Clients that insist are refused by themselves, others do without.
    let identity = Identity::new(&rcgen::PKCS_ED25519);
    let door = Door::open(policy(Authentication::Scram, Some(&identity))).await;
    let refused = psql(&door, settings, "secret").await.unwrap_err();
    assert!(refused.contains("channel binding is required"), "{refused}");
    let settings = "user=app dbname=postgres sslmode=require";
    assert_eq!(psql(&door, settings, "secret").await, Ok("writer".to_owned()));
}

#[tokio::test]
async fn a_client_certificate_is_asked_of_whom_the_file_says() {
    let identity = Identity::new(&rcgen::PKCS_ECDSA_P256_SHA256);
    for name in ["cert", "both", "other"] {
        identity.client(name);
    }
    let mut door = Door::open(policy(Authentication::Scram, Some(&identity))).await;
    let with = |user: &str, certificate: &str| {
        let [cert, key] = ["pem", "key"].map(|kind| identity.path(&format!("{certificate}.{kind}")));
        format!("user={user} dbname=postgres sslmode=require sslcert={cert} sslkey={key}")
    };
    let without = |user: &str| format!("user={user} dbname=postgres sslmode=require");
    let role = |role: &str| Ok(role.to_owned());
    // Its certificate is enough for one, and the password is needed, too, by the other.
    assert_eq!(psql(&door, &with("cert", "cert"), "").await, role("by certificate"));
    assert_eq!(psql(&door, &with("both", "both"), "secret").await, role("both"));
    // Who needs none may show one.
    assert_eq!(psql(&door, &with("app", "other"), "secret").await, role("writer"));
    for _ in 0..3 {
        door.visit().await;
    }
    for (settings, password, reason) in [
        (with("cert", "other"), "secret", Reason::NoPassword),
        (without("cert"), "secret", Reason::NoPassword),
        (with("both", "other"), "secret", Reason::Certificate),
        (without("both"), "secret", Reason::Certificate),
        (with("both", "both"), "wrong", Reason::Password),
        (with("nobody", "cert"), "secret", Reason::NoUser),
        (without("far"), "secret", Reason::Network),
    ] {
        let refused = psql(&door, &settings, password).await.unwrap_err();
        assert!(refused.contains("password authentication failed for user"), "{settings}: {refused}");
        let visit = door.visit().await;
        let Visit::Refused(LoginError::Refused { reason: found, .. }) = visit else { panic!("{visit:?}") };
        assert_eq!(found, Some(reason), "{settings}");
    }
    // A certificate of another authority does not even get to the start-up message.
    let stranger = Identity::new(&rcgen::PKCS_ECDSA_P256_SHA256);
    stranger.client("cert");
    let [cert, key] = ["cert.pem", "cert.key"].map(|name| stranger.path(name));
    let settings = format!("user=cert dbname=postgres sslmode=require sslcert={cert} sslkey={key}");
    assert!(psql(&door, &settings, "").await.is_err());
    assert!(matches!(door.visit().await, Visit::Refused(LoginError::Tls(_))));
}

#[tokio::test]
async fn what_is_refused_is_explained_in_the_words_of_postgresql() {
    let mut door = Door::open(policy(Authentication::Scram, None)).await;
    for (settings, words) in [
        ("user=app dbname=other", "database \"other\" does not exist"),
        ("user=app options='-c role=admin'", "setting configuration parameter \"role\" not supported"),
        ("user=app replication=database dbname=postgres", "replication connections are not supported"),
        ("user=app sslmode=require", "server does not support SSL, but SSL was required"),
        ("user=app sslmode=disable channel_binding=require", "channel binding"),
    ] {
        let refused = psql(&door, settings, "secret").await.unwrap_err();
        assert!(refused.contains(words), "{settings}: {refused}");
    }
    // Without a database, libpq asks for that of the user's name.
    assert_eq!(psql(&door, "user=app", "secret").await, Ok("writer".to_owned()));
    while !matches!(door.visit().await, Visit::Client { .. }) {}
    door.shared.drain();
    let refused = psql(&door, "user=app", "secret").await.unwrap_err();
    assert!(refused.contains("the database system is shutting down"), "{refused}");
}

#[tokio::test]
async fn a_limit_is_explained_also_within_tls() {
    let identity = Identity::new(&rcgen::PKCS_ECDSA_P256_SHA256);
    for identity in [None, Some(&identity)] {
        let mut policy = policy(Authentication::Scram, identity);
        policy.limits.logins = 0;
        let door = Door::open(policy).await;
        let sslmode = if identity.is_some() { "require" } else { "prefer" };
        let refused = psql(&door, &format!("user=app sslmode={sslmode}"), "secret").await.unwrap_err();
        assert!(refused.contains("sorry, too many clients already"), "{refused}");
    }
}

#[tokio::test]
async fn a_unix_socket_needs_a_password_unless_trust_is_configured() {
    let identity = Identity::new(&rcgen::PKCS_ECDSA_P256_SHA256);
    for (auth, password) in [(Authentication::Scram, "secret"), (Authentication::Trust, "")] {
        let directory = identity.directory().join(format!("{auth:?}"));
        std::fs::create_dir(&directory).unwrap();
        let _door = Door::open_unix(policy(auth, Some(&identity)), &directory).await;
        let settings = format!("host={} port=1 user=app dbname=postgres", directory.display());
        assert_eq!(run(settings.clone(), password.to_owned()).await, Ok("writer".to_owned()));
        let wrong = run(settings, "wrong".to_owned()).await;
        assert_eq!(wrong.is_ok(), auth == Authentication::Trust, "{wrong:?}");
    }
}
