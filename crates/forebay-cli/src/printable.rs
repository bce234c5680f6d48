//! Text of others on a terminal.

/// Replaces characters that would control the terminal or reorder text: a server's data must not do that.
#[cfg(feature = "flight")]
pub(crate) fn printable(text: &str) -> String {
    text.chars().map(visible).collect()
}

/// The same for text of several lines: line feeds and tabs stay.
#[cfg(feature = "schema")]
pub(crate) fn printable_lines(text: &str) -> String {
    text.chars().map(|letter| if matches!(letter, '\n' | '\t') { letter } else { visible(letter) }).collect()
}

fn visible(letter: char) -> char {
    match letter {
        '\u{0}'..='\u{1f}' => char::from_u32(0x2400 + u32::from(letter)).unwrap_or('�'),
        '\u{7f}' => '␡',
        '\u{80}'..='\u{9f}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}' | '\u{2028}' | '\u{2029}' => {
            '�'
        }
        other => other,
    }
}
