//! Where the lines that were typed are kept.

use std::fs;
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

/// The history's file, in the directory that the XDG base directories have for such things.
pub(crate) fn path(variable: impl Fn(&str) -> Option<String>) -> Option<PathBuf> {
    // A relative one is to be ignored, says the specification.
    let absolute = |name: &str| variable(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let state = absolute("XDG_STATE_HOME").or_else(|| Some(absolute("HOME")?.join(".local/state")))?;
    Some(state.join("forebay/flight_history"))
}

/// Makes the directories it needs, for nobody else to read: statements may hold what is nobody's business.
pub(crate) fn prepare(path: &Path) -> io::Result<()> {
    match path.parent() {
        Some(directory) => fs::DirBuilder::new().recursive(true).mode(0o700).create(directory),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_in_the_users_state_directory() {
        let with = |pairs: &[(&str, &str)]| {
            let pairs: Vec<(String, String)> =
                pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect();
            path(move |name| pairs.iter().find(|(known, _)| known == name).map(|(_, value)| value.clone()))
        };
        let home = ("HOME", "/home/me");
        assert_eq!(with(&[home]), Some("/home/me/.local/state/forebay/flight_history".into()));
        assert_eq!(with(&[home, ("XDG_STATE_HOME", "/s")]), Some("/s/forebay/flight_history".into()));
        assert_eq!(with(&[home, ("XDG_STATE_HOME", "s")]), with(&[home]));
        assert_eq!(with(&[]), None);
    }
}
