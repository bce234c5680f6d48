//! HTML escaping.

use std::fmt::{self, Write as _};

/// Writes any text so that HTML shows it as text, in an element or in a quoted attribute.
pub(super) struct Escaped<'a>(pub(super) &'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for letter in self.0.chars() {
            match letter {
                '&' => f.write_str("&amp;")?,
                '<' => f.write_str("&lt;")?,
                '>' => f.write_str("&gt;")?,
                '"' => f.write_str("&quot;")?,
                '\'' => f.write_str("&#39;")?,
                // HTML forbids control characters; direction marks would reverse the text after them.
                _ if is_invisible(letter) => f.write_char(char::REPLACEMENT_CHARACTER)?,
                _ => f.write_char(letter)?,
            }
        }
        Ok(())
    }
}

fn is_invisible(letter: char) -> bool {
    let changes_direction =
        matches!(letter, '\u{200e}' | '\u{200f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    changes_direction || (letter.is_control() && letter != '\n')
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn markup_becomes_text() {
        let escaped = |text| Escaped(text).to_string();
        assert_eq!(
            escaped(r#"</title><b onclick="x('&')">"#),
            "&lt;/title&gt;&lt;b onclick=&quot;x(&#39;&amp;&#39;)&quot;&gt;"
        );
        assert_eq!(escaped("a\u{0}b\u{202e}c\u{7f}"), "a\u{fffd}b\u{fffd}c\u{fffd}");
        assert_eq!(escaped("größe 大"), "größe 大");
    }
}
