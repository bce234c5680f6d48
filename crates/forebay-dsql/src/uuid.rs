//! UUIDs as text: the way they are bound to a column of that type, whichever client does it.

/// Writes 16 bytes as `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx`.
///
/// ```
/// assert_eq!(forebay_dsql::uuid_text([0xab; 16]), "abababab-abab-abab-abab-abababababab");
/// ```
#[must_use]
pub fn uuid_text(bytes: [u8; 16]) -> String {
    let digits = format!("{:032x}", u128::from_be_bytes(bytes));
    format!("{}-{}-{}-{}-{}", &digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..])
}

/// Reads what [`uuid_text`] writes, in either case, and 32 digits without hyphens.
///
/// # Errors
/// If it is neither.
pub fn uuid_bytes(text: &str) -> Result<[u8; 16], NotAUuid> {
    let bytes = text.as_bytes();
    let hyphens = [8, 13, 18, 23];
    let digits: Vec<u8> = match bytes.len() {
        32 => bytes.to_vec(),
        36 if hyphens.iter().all(|at| bytes[*at] == b'-') => {
            (0..36).filter(|at| !hyphens.contains(at)).map(|at| bytes[at]).collect()
        }
        _ => return Err(NotAUuid),
    };
    // A sign would pass for a digit below.
    if !digits.iter().all(u8::is_ascii_hexdigit) {
        return Err(NotAUuid);
    }
    let digits = str::from_utf8(&digits).map_err(|_| NotAUuid)?;
    u128::from_str_radix(digits, 16).map(u128::to_be_bytes).map_err(|_| NotAUuid)
}

/// A text that is not a UUID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "not a UUID: it must be 32 hexadecimal digits, with hyphens after the 8th, 12th, 16th and 20th or without any"
)]
pub struct NotAUuid;

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn what_is_written_can_be_read(bytes: [u8; 16]) {
            let text = uuid_text(bytes);
            prop_assert_eq!(text.len(), 36);
            prop_assert_eq!(uuid_bytes(&text), Ok(bytes));
            prop_assert_eq!(uuid_bytes(&text.to_uppercase()), Ok(bytes));
            prop_assert_eq!(uuid_bytes(&text.replace('-', "")), Ok(bytes));
        }

        #[test]
        fn nothing_makes_it_panic(text in "\\PC{0,40}") {
            let _ = uuid_bytes(&text);
        }
    }

    #[test]
    fn what_is_not_one_is_refused() {
        for text in [
            "",
            "+1234567-1234-1234-1234-123456789012",
            "12345678-1234-1234-1234-12345678901",
            "12345678_1234_1234_1234_123456789012",
            "1234567-81234-1234-1234-123456789012",
            "{12345678-1234-1234-1234-12345678901}",
            "g2345678-1234-1234-1234-123456789012",
        ] {
            assert_eq!(uuid_bytes(text), Err(NotAUuid), "{text}");
        }
    }
}
