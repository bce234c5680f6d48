//! Dates as servers write them.

use std::time::Duration;

use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};

const STAMP: &[BorrowedFormatItem<'_>] = format_description!("[year][month][day]T[hour][minute][second]Z");
const SQL: &[BorrowedFormatItem<'_>] = format_description!("[year]-[month]-[day] [hour]:[minute]:[second]");
const SHOWN: &[BorrowedFormatItem<'_>] = format_description!("[year]-[month]-[day] [hour]:[minute] UTC");

/// A date for people.
pub(super) fn shown(date: OffsetDateTime) -> String {
    date.format(SHOWN).unwrap_or_default()
}

/// The same of the time since 1970.
pub(super) fn shown_since_1970(time: Duration) -> String {
    let seconds = i64::try_from(time.as_secs()).unwrap_or(i64::MAX);
    OffsetDateTime::from_unix_timestamp(seconds).map(shown).unwrap_or_default()
}

/// The server's date in the words with which it refuses a signature:
/// `Signature expired: A is now earlier than B (NOW - 15 min.)` or
/// `Signature not yet current: A is still later than B (NOW + 5 min.)`. Without brackets, it is B.
pub(super) fn in_refused_signature(words: &str) -> Option<Duration> {
    let (_, words) =
        words.split_once("Signature expired:").or_else(|| words.split_once("not yet current:"))?;
    let stamps: Vec<&str> = words
        .split(|one: char| !one.is_ascii_alphanumeric())
        .filter(|word| word.len() == 16 && word.ends_with('Z'))
        .collect();
    let in_brackets = words.split_once('(').is_some();
    stamp(stamps.get(if in_brackets { 2 } else { 1 })?)
}

/// `20261117T034821Z`.
fn stamp(text: &str) -> Option<Duration> {
    let date = PrimitiveDateTime::parse(text, STAMP).ok()?.assume_utc();
    u64::try_from(date.unix_timestamp()).ok().map(Duration::from_secs)
}

/// `2026-11-17 03:48:21.123456+00`.
pub(super) fn of_sql(text: &str) -> Option<Duration> {
    let (date, rest) = text.split_at_checked(19)?;
    let at = rest.find(['+', '-'])?;
    let (fraction, offset) = rest.split_at(at);
    let fraction: f64 = if fraction.is_empty() { 0.0 } else { format!("0{fraction}").parse().ok()? };
    let mut parts = offset[1..].split(':');
    let hours: i64 = parts.next()?.parse().ok()?;
    let minutes: i64 = parts.next().map_or(Some(0), |minutes| minutes.parse().ok())?;
    let ahead = (hours * 3_600 + minutes * 60) * if offset.starts_with('-') { -1 } else { 1 };
    let date = PrimitiveDateTime::parse(date, SQL).ok()?.assume_utc().unix_timestamp() - ahead;
    let whole = Duration::from_secs(u64::try_from(date).ok()?);
    Duration::try_from_secs_f64(fraction).ok().map(|fraction| whole + fraction)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_servers_date_is_found_in_its_refusal() {
        let date = |text| stamp(text).unwrap();
        for (words, expected) in [
            (
                "Signature expired: 20261117T000000Z is now earlier than 20261117T001500Z (20261117T003000Z - 15 min.)",
                Some("20261117T003000Z"),
            ),
            (
                "InvalidSignatureException: Signature not yet current: 20261117T000000Z is still later than \
                 20261116T234500Z (20261116T234000Z + 5 min.)",
                Some("20261116T234000Z"),
            ),
            (
                "Signature expired: 20261117T000000Z is now earlier than 20261117T002000Z; it was good until \
                 20261117T001500Z",
                Some("20261117T002000Z"),
            ),
            ("Signature expired: soon", None),
            ("access denied", None),
        ] {
            assert_eq!(in_refused_signature(words), expected.map(date), "{words}");
        }
    }

    #[test]
    fn dates_of_sql_are_read_with_fraction_and_zone() {
        for (text, expected) in [
            ("1970-01-01 00:00:01+00", Some(1.0)),
            ("1970-01-01 00:00:01.25+00", Some(1.25)),
            ("1970-01-01 02:00:00+02", Some(0.0)),
            ("1970-01-01 05:30:00.5+05:30", Some(0.5)),
            ("1970-01-01 00:00:00-01", Some(3_600.0)),
            ("1970-01-01 00:00:00", None),
            ("now", None),
        ] {
            assert_eq!(of_sql(text).map(|time| time.as_secs_f64()), expected, "{text}");
        }
    }
}
