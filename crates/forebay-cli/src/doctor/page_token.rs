//! The token of a status page.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::path::Path;

/// The variable with which a service sets it.
const VARIABLE: &str = "DSQL_DESK_TOKEN";
/// No token is longer. A wrong file may be endless.
const LONGEST: u64 = 4096;

/// The token that the page asks for, and where it comes from. It is never printed.
#[derive(Clone, PartialEq, Eq)]
pub(crate) struct PageToken {
    secret: String,
    source: String,
}

impl PageToken {
    /// The token in the file, else that of the environment.
    ///
    /// # Errors
    /// Why it cannot be used, without the token.
    pub(super) fn find(
        file: Option<&Path>,
        variables: &BTreeMap<String, String>,
    ) -> Result<Option<Self>, String> {
        match file {
            Some(file) => {
                let source = file.display().to_string();
                let text = read(file).map_err(|error| format!("{source}: {error}"))?;
                if text.trim().is_empty() {
                    return Err(format!("{source} is empty"));
                }
                Self::new(&text, source).map(Some)
            }
            None => {
                let text = variables.get(VARIABLE).filter(|text| !text.trim().is_empty());
                text.map(|text| Self::new(text, VARIABLE.to_owned())).transpose()
            }
        }
    }

    fn new(text: &str, source: String) -> Result<Self, String> {
        let secret = text.trim();
        if !secret.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(format!("{source} has something else than one line of visible ASCII"));
        }
        Ok(Self { secret: secret.to_owned(), source })
    }

    /// Where it comes from.
    pub(super) fn source(&self) -> &str {
        &self.source
    }

    pub(super) fn expose_secret(&self) -> &str {
        &self.secret
    }
}

fn read(file: &Path) -> Result<String, String> {
    let mut bytes = Vec::new();
    let read = File::open(file).and_then(|file| file.take(LONGEST + 1).read_to_end(&mut bytes));
    match read {
        Err(error) => Err(error.to_string()),
        Ok(length) if length as u64 > LONGEST => Err("it is too long for a token".to_owned()),
        Ok(_) => Ok(String::from_utf8_lossy(&bytes).into_owned()),
    }
}

impl fmt::Debug for PageToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageToken(of {})", self.source)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_the_environment_is_trimmed_and_never_shown() {
        let find = |value: &str| PageToken::find(None, &[(VARIABLE.to_owned(), value.to_owned())].into());
        let token = find(" 0123456789abcdef\n").unwrap().unwrap();
        assert_eq!((token.expose_secret(), token.source()), ("0123456789abcdef", VARIABLE));
        assert!(!format!("{token:?}").contains("0123"));
        assert_eq!(find("  "), Ok(None), "set to nothing is not set");
        assert_eq!(PageToken::find(None, &BTreeMap::new()), Ok(None));
        for wrong in ["hunter2\r\nX-Evil: 1", "hunter2 hunter2", "hunter2é"] {
            let error = find(wrong).unwrap_err();
            assert!(error.contains("visible ASCII") && !error.contains("hunter2"), "{error}");
        }
    }

    #[test]
    #[cfg(unix)]
    fn a_file_that_cannot_be_a_token_is_told() {
        for (file, words) in [
            ("/nowhere/token", "No such file"),
            ("/dev/null", "is empty"),
            ("/dev/zero", "too long"),
            ("/", "directory"),
        ] {
            let error = PageToken::find(Some(Path::new(file)), &BTreeMap::new()).unwrap_err();
            assert!(error.starts_with(file) && error.contains(words), "{error}");
        }
    }
}
