//! Why a gateway does not start.

use std::io;

use forebay::ConfigError;
use forebay_dsql::Error;

/// Why a gateway does not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The configuration, the users file or a certificate.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// It cannot listen there.
    #[error("cannot listen on {on}: {error}{}", remedy(error))]
    Listen {
        /// An address, or the path of a socket.
        on: String,
        /// What the system says.
        error: io::Error,
    },
    /// The cluster cannot be used by a role.
    #[error("no connection to the cluster as role {role:?}: {error}")]
    Cluster {
        /// The role.
        role: String,
        /// Why.
        error: Error,
    },
}

fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            "; another process listens there: stop it, choose another port, or set so_reuseport to share the port with it"
        }
        io::ErrorKind::AlreadyExists => "; remove what is there, or choose another unix_socket_dir",
        io::ErrorKind::PermissionDenied => {
            "; choose a port above 1023, and a directory that this process may write to"
        }
        io::ErrorKind::NotFound => "; make the directory first",
        _ => "",
    }
}
