//! Which cryptography TLS uses.

/// tonic uses the default of the process. In a program that was built with more than one library there is none, and tonic would panic.
pub(crate) fn choose() {
    // An error means that the program has chosen.
    drop(rustls::crypto::ring::default_provider().install_default());
}
