//! Who is let in, and how. It is loaded as a whole, and replaced as a whole.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use forebay::rt::Runtime;
use forebay::{ConfigError, Problem};
use parking_lot::RwLock;

use super::admission::{Admissions, ClientLimits};
use super::private_file::PrivateFile;
use super::tls::TlsServer;
use crate::config::{Authentication, GatewayConfig};
use crate::users::{Hash, Users};

/// Who is let in, and how.
#[derive(Clone, Debug)]
pub struct LoginPolicy {
    /// How clients prove who they are.
    pub auth: Authentication,
    /// Who may log in.
    pub users: Users,
    /// The certificate for clients that ask for TLS.
    pub tls: Option<TlsServer>,
    /// Whether clients of other machines must use TLS.
    pub tls_required: bool,
    /// How many clients there may be.
    pub limits: ClientLimits,
    /// How long a login may take.
    pub timeout: Duration,
    /// Start-up parameters that are dropped without an error.
    pub ignored_parameters: Vec<String>,
    /// The files that it comes from, of those that others should not have.
    pub private_files: Vec<PrivateFile>,
}

impl LoginPolicy {
    /// What is allowed and still seldom meant, at this time since 1970: each for a line of a log.
    #[must_use]
    pub fn warnings(&self, wall: Duration) -> Vec<String> {
        let mut warnings: Vec<String> = self.private_files.iter().filter_map(PrivateFile::warning).collect();
        if let Some(why) = self.tls.as_ref().and_then(|tls| tls.out_of_date(wall)) {
            warnings.push(format!("clients that check the certificate of tls_cert_file refuse it: {why}"));
        }
        let unbound = self.tls.as_ref().is_some_and(|tls| tls.binding().is_none());
        if self.auth == Authentication::Scram && self.users.has_verifiers() && unbound {
            warnings.push(
                "clients cannot bind their logins to the certificate of tls_cert_file (SCRAM-SHA-256-PLUS), because of how it is signed: \
                 with Ed25519 or RSA-PSS; clients with channel_binding=require are not let in. Use one that is signed with ECDSA or RSA"
                    .to_owned(),
            );
        }
        if self.auth == Authentication::Scram && !self.users.has_decoy_key() {
            warnings.push(
                "the users file has no decoy_key, so who compares two gateways, or one before and after a restart, can tell which names exist: \
                 add decoy_key = \"...\", 32 random bytes in base64 (openssl rand -base64 32)"
                    .to_owned(),
            );
        }
        warnings
    }

    /// Reads the users and the certificate that `config` names. For a start, and again for every reload: with an error, the old
    /// policy stays as it is.
    ///
    /// # Errors
    /// Every problem with these files.
    pub fn load(config: &GatewayConfig) -> Result<Self, ConfigError> {
        let mut problems: Vec<Problem> = Vec::new();
        let users = Users::load(&config.users_file, &config.user_defaults());
        let users = users.map_err(|error| problems.extend(error.problems)).ok();
        let tls = config.tls.as_ref().map(TlsServer::load).transpose();
        let tls = tls.map_err(|found| problems.extend(found)).ok();
        if let Some(users) = &users {
            problems.extend(certificates_without_authority(users, config));
        }
        let (Some(users), Some(tls), true) = (users, tls, problems.is_empty()) else {
            return Err(ConfigError { problems });
        };
        let private =
            |setting, path: &Path, is_secret| PrivateFile { setting, path: path.to_owned(), is_secret };
        let mut private_files = vec![private("users_file", &config.users_file, users.has_secrets())];
        private_files.extend(config.tls.as_ref().map(|files| private("tls_key_file", &files.key, true)));
        Ok(Self {
            auth: config.auth,
            users,
            tls,
            tls_required: config.tls.as_ref().is_some_and(|files| files.required),
            limits: config.limits.client_limits(),
            timeout: config.timeouts.login,
            ignored_parameters: config.ignore_startup_parameters.clone(),
            private_files,
        })
    }
}

/// Users that can never log in: they need a certificate, and no authority for it is trusted.
fn certificates_without_authority(users: &Users, config: &GatewayConfig) -> Option<Problem> {
    if config.tls.as_ref().is_some_and(|files| files.client_ca.is_some())
        || config.auth == Authentication::Trust
    {
        return None;
    }
    let mut needing = users.iter().filter(|user| user.certificate.is_some());
    let first = needing.next()?;
    let others = match needing.count() {
        0 => String::new(),
        others => format!(" and of {others} more"),
    };
    Some(Problem {
        setting: "tls_client_ca_file".into(),
        value: "not set".to_owned(),
        allowed: format!(
            "the file of the authority that signs the certificate of user {:?}{others}",
            first.name
        ),
    })
}

/// What all logins of a gateway share.
#[derive(Debug)]
pub struct LoginShared {
    policy: RwLock<Arc<LoginPolicy>>,
    admissions: Arc<Admissions>,
    is_draining: AtomicBool,
    runtime: Arc<dyn Runtime>,
    /// Makes the salts of users that do not exist, unless the users file has a key for it.
    decoy_key: DecoyKey,
}

struct DecoyKey(Hash);

impl std::fmt::Debug for DecoyKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("DecoyKey")
    }
}

impl LoginShared {
    /// Logins by this policy.
    #[must_use]
    pub fn new(policy: LoginPolicy, runtime: Arc<dyn Runtime>) -> Self {
        let decoy_key = DecoyKey(random(&*runtime));
        let (policy, admissions) = (RwLock::new(Arc::new(policy)), Arc::default());
        Self { policy, admissions, is_draining: AtomicBool::new(false), runtime, decoy_key }
    }

    /// The present policy.
    #[must_use]
    pub fn policy(&self) -> Arc<LoginPolicy> {
        Arc::clone(&self.policy.read())
    }

    /// From now on, logins follow this policy. Clients that are logged in stay.
    pub fn replace(&self, policy: LoginPolicy) {
        *self.policy.write() = Arc::new(policy);
    }

    /// How many clients there are.
    #[must_use]
    pub fn admissions(&self) -> &Arc<Admissions> {
        &self.admissions
    }

    /// From now on, clients that log in are told that the gateway shuts down. Cancel requests still pass.
    pub fn drain(&self) {
        self.is_draining.store(true, Ordering::Relaxed);
    }

    pub(crate) fn is_draining(&self) -> bool {
        self.is_draining.load(Ordering::Relaxed)
    }

    pub(super) fn runtime(&self) -> &dyn Runtime {
        &*self.runtime
    }

    pub(super) fn decoy_key(&self) -> &Hash {
        &self.decoy_key.0
    }
}

/// Random bytes.
pub(super) fn random<const N: usize>(runtime: &dyn Runtime) -> [u8; N] {
    let mut bytes = [0; N];
    for chunk in bytes.chunks_mut(8) {
        chunk.copy_from_slice(&runtime.entropy().to_ne_bytes()[..chunk.len()]);
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::fs;
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;
    use crate::config::ConfigBuilder;
    use crate::users::ScramVerifier;

    /// A policy of files in a directory, the warnings about which are to be looked at.
    fn warnings(
        certificate: &rcgen::Certificate,
        key: &rcgen::KeyPair,
        mode: u32,
        settings: &[(&str, &str)],
    ) -> Vec<String> {
        let directory = tempfile::tempdir().unwrap();
        let path = |name: &str| directory.path().join(name).display().to_string();
        let verifier = ScramVerifier::derive("secret", b"0123456789abcdef", 2).to_text();
        let users = format!(
            "decoy_key = '{}='\n[[user]]\nname = 'app'\nrole = 'r'\npassword = '{verifier}'\n",
            "A".repeat(43)
        );
        for (name, text) in [("users", users), ("cert", certificate.pem()), ("key", key.serialize_pem())] {
            fs::write(path(name), text).unwrap();
            fs::set_permissions(path(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        let mut config = ConfigBuilder::default()
            .flag("users_file", &path("users"))
            .flag("tls_cert_file", &path("cert"))
            .flag("tls_key_file", &path("key"));
        for (name, value) in settings {
            config = config.flag(name, value);
        }
        let policy = LoginPolicy::load(&config.build().unwrap()).unwrap();
        // 2030, when the certificate is valid.
        policy.warnings(Duration::from_secs(60 * 365 * 86_400))
    }

    #[test]
    fn a_certificate_that_cannot_be_bound_is_warned_of() {
        let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ED25519).unwrap();
        let own = rcgen::CertificateParams::new(["localhost".to_owned()]).unwrap().self_signed(&key).unwrap();
        let said = warnings(&own, &key, 0o600, &[]);
        assert!(said.len() == 1 && said[0].contains("SCRAM-SHA-256-PLUS"), "{said:?}");
        assert_eq!(warnings(&own, &key, 0o600, &[("auth", "trust")]), [""; 0]);
    }

    #[test]
    fn files_that_others_can_read_are_warned_of() {
        let own = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
        assert_eq!(warnings(&own.cert, &own.signing_key, 0o640, &[]), [""; 0]);
        let said = warnings(&own.cert, &own.signing_key, 0o644, &[]);
        assert!(said.len() == 2 && said[0].contains("the users_file (mode 0644)"), "{said:?}");
        assert!(said[1].contains("the tls_key_file (mode 0644): chmod 600"), "{said:?}");
    }
}
