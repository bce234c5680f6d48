//! Certificates: an authority, the gateway's own, and those of clients.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering};

use forebay_gateway::config::TlsFiles;
use rcgen::{
    BasicConstraints, CertificateParams, CertifiedIssuer, DnType, ExtendedKeyUsagePurpose, IsCa, KeyPair,
    KeyUsagePurpose, SignatureAlgorithm,
};

/// A directory with certificates, removed at the end.
pub(super) struct Identity {
    directory: PathBuf,
    authority: CertifiedIssuer<'static, KeyPair>,
}

static COUNT: AtomicUsize = AtomicUsize::new(0);

impl Identity {
    /// Its keys sign by `algorithm`. The hash of that is the one of channel binding.
    pub(super) fn new(algorithm: &'static SignatureAlgorithm) -> Self {
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let directory = std::env::temp_dir().join(format!("forebay-gateway-{}-{number}", std::process::id()));
        fs::create_dir(&directory).unwrap();
        let mut ca = CertificateParams::default();
        ca.is_ca = IsCa::Ca(BasicConstraints::Constrained(0));
        ca.key_usages = vec![KeyUsagePurpose::KeyCertSign];
        ca.distinguished_name.push(DnType::CommonName, "the authority of a test");
        let authority = CertifiedIssuer::self_signed(ca, KeyPair::generate_for(algorithm).unwrap()).unwrap();
        fs::write(directory.join("ca.pem"), authority.pem()).unwrap();
        let identity = Self { directory, authority };
        identity.issue("server", ExtendedKeyUsagePurpose::ServerAuth);
        identity
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.directory.join(name).display().to_string()
    }

    /// The certificate of a client with this common name: `NAME.pem` and `NAME.key`.
    pub(super) fn client(&self, name: &str) {
        self.issue(name, ExtendedKeyUsagePurpose::ClientAuth);
    }

    fn issue(&self, name: &str, usage: ExtendedKeyUsagePurpose) {
        let mut leaf = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()]).unwrap();
        leaf.distinguished_name.push(DnType::OrganizationName, "a test");
        leaf.distinguished_name.push(DnType::CommonName, name);
        leaf.extended_key_usages = vec![usage];
        let key = KeyPair::generate().unwrap();
        let certificate = leaf.signed_by(&key, &self.authority).unwrap();
        fs::write(self.directory.join(format!("{name}.pem")), certificate.pem()).unwrap();
        let path = self.directory.join(format!("{name}.key"));
        fs::write(&path, key.serialize_pem()).unwrap();
        // libpq refuses a key that others can read.
        #[cfg(unix)]
        fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    }

    pub(super) fn files(&self) -> TlsFiles {
        let [cert, key, ca] = ["server.pem", "server.key", "ca.pem"].map(|name| self.directory.join(name));
        TlsFiles { cert, key, client_ca: Some(ca), required: true }
    }
}

impl Drop for Identity {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.directory));
    }
}
