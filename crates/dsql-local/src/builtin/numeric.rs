//! Encodes numeric in PostgreSQL's binary format: digits in base 10,000.

use bytes::{BufMut, BytesMut};
use rusqlite::types::ValueRef;

/// Returns none if the value is not a number.
pub(super) fn encode(value: ValueRef<'_>, out: &mut BytesMut) -> Option<()> {
    let text = match value {
        ValueRef::Integer(number) => number.to_string(),
        ValueRef::Real(number) if number.is_finite() => number.to_string(),
        ValueRef::Text(text) => std::str::from_utf8(text).ok()?.trim().to_owned(),
        _ => return None,
    };
    let (negative, digits) = text.strip_prefix('-').map_or((false, text.as_str()), |digits| (true, digits));
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, ""));
    if whole.is_empty() || !(whole.bytes().chain(fraction.bytes()).all(|byte| byte.is_ascii_digit())) {
        return None;
    }
    // Four decimal digits make one digit; both halves are padded away from the point.
    let whole = format!("{}{whole}", "0".repeat((4 - whole.len() % 4) % 4));
    let scale = i16::try_from(fraction.len()).ok()?;
    let fraction = format!("{fraction}{}", "0".repeat((4 - fraction.len() % 4) % 4));
    let groups = |digits: &str| {
        digits
            .as_bytes()
            .chunks(4)
            .map(|group| group.iter().fold(0_i16, |sum, digit| sum * 10 + i16::from(digit - b'0')))
            .collect::<Vec<_>>()
    };
    let (mut large, small) = (groups(&whole), groups(&fraction));
    let mut weight = i16::try_from(large.len()).ok()? - 1;
    large.extend(small);
    let zeros = large.iter().take_while(|group| **group == 0).count();
    large.drain(..zeros);
    weight -= i16::try_from(zeros).ok()?;
    while large.last() == Some(&0) {
        large.pop();
    }
    out.put_i16(i16::try_from(large.len()).ok()?);
    out.put_i16(if large.is_empty() { 0 } else { weight });
    out.put_u16(if negative && !large.is_empty() { 0x4000 } else { 0 });
    out.put_i16(scale);
    large.into_iter().for_each(|group| out.put_i16(group));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn groups(text: &str) -> Option<Vec<i16>> {
        let mut out = BytesMut::new();
        encode(ValueRef::Text(text.as_bytes()), &mut out)?;
        Some(out.chunks(2).map(|pair| i16::from_be_bytes([pair[0], pair[1]])).collect())
    }

    #[test]
    fn digits_weight_sign_and_scale() {
        assert_eq!(groups("0"), Some(vec![0, 0, 0, 0]));
        assert_eq!(groups("12345.67"), Some(vec![3, 1, 0, 2, 1, 2345, 6700]));
        assert_eq!(groups("-0.0001"), Some(vec![1, -1, 0x4000, 4, 1]));
        assert_eq!(groups("10000"), Some(vec![1, 1, 0, 0, 1]));
        assert_eq!(groups("1e5"), None);
        assert_eq!(groups(""), None);
    }
}
