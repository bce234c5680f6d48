//! The page: one document with its style and its script, so that it works at any path.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use sha2::{Digest, Sha256};

const HTML: &str = include_str!("../assets/page.html");
const STYLE: &str = include_str!("../assets/page.css");
const SCRIPT: &str = include_str!("../assets/page.js");

/// The document.
pub(crate) fn page() -> &'static str {
    static PAGE: LazyLock<String> =
        LazyLock::new(|| HTML.replacen("/*style*/", STYLE, 1).replacen("/*script*/", SCRIPT, 1));
    &PAGE
}

/// Its content security policy: this style, this script, and requests to this server.
pub(crate) fn policy() -> &'static str {
    static POLICY: LazyLock<String> = LazyLock::new(|| {
        format!(
            "default-src 'none'; connect-src 'self'; style-src '{}'; script-src '{}'; img-src data:; \
             base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
            hash(STYLE),
            hash(SCRIPT)
        )
    });
    &POLICY
}

fn hash(text: &str) -> String {
    format!("sha256-{}", STANDARD.encode(Sha256::digest(text)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_parts_are_in_their_places() {
        let page = page();
        assert!(!page.contains("/*style*/") && !page.contains("/*script*/"));
        assert!(page.contains(&format!("<style>{STYLE}</style>")), "the hash is of all between the tags");
        assert!(page.contains(&format!("<script>{SCRIPT}</script>")));
        assert!(!SCRIPT.contains("</script") && !STYLE.contains("</style"));
    }

    #[test]
    fn nothing_external_is_referred_to() {
        for part in [HTML, STYLE, SCRIPT] {
            let links = part.matches("://").count() - part.matches("http://www.w3.org/").count();
            assert_eq!(links, 0, "an address in {}", &part[..40]);
        }
    }

    #[test]
    fn data_never_becomes_markup() {
        for word in ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("] {
            assert!(!SCRIPT.contains(word), "{word}");
        }
    }
}
