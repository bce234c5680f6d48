//! Dates and times. SQLite stores them as text, in UTC, as PostgreSQL prints them.

use std::time::Duration;

use time::format_description::BorrowedFormatItem;
use time::macros::{datetime, format_description};
use time::{Date, OffsetDateTime, PrimitiveDateTime, Time, UtcOffset};

/// PostgreSQL's epoch.
const ORIGIN: OffsetDateTime = datetime!(2000-01-01 00:00 UTC);
const DAY: &[BorrowedFormatItem<'_>] = format_description!("[year]-[month]-[day]");
const CLOCK: &[BorrowedFormatItem<'_>] = format_description!("[hour]:[minute]:[second]");

/// Why a text is not a date.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum DateError {
    /// The syntax is wrong.
    Form,
    /// In UTC it is outside of the calendar.
    Range,
}

/// Parses `2026-01-31`, with or without a time, with or without an offset.
pub(super) fn parse(text: &str) -> Result<OffsetDateTime, DateError> {
    let moment = read(text).ok_or(DateError::Form)?;
    moment.checked_to_offset(UtcOffset::UTC).ok_or(DateError::Range)
}

fn read(text: &str) -> Option<OffsetDateTime> {
    let text = text.trim();
    let day = Date::parse(text.get(..10)?, DAY).ok()?;
    let rest = text[10..].trim_start_matches(['T', 't', ' ']);
    if rest.is_empty() {
        return Some(PrimitiveDateTime::new(day, Time::MIDNIGHT).assume_utc());
    }
    let (clock, offset) = match rest.find(['Z', 'z', '+', '-']) {
        Some(at) => (rest[..at].trim_end(), offset(&rest[at..])?),
        None => (rest, UtcOffset::UTC),
    };
    Some(PrimitiveDateTime::new(day, parse_clock(clock)?).assume_offset(offset))
}

fn parse_clock(text: &str) -> Option<Time> {
    let (clock, fraction) = text.split_once('.').unwrap_or((text, ""));
    let clock = Time::parse(clock, CLOCK).or_else(|_| Time::parse(&format!("{clock}:00"), CLOCK)).ok()?;
    let micros: u32 = if fraction.is_empty() { 0 } else { format!("{fraction:0<6.6}").parse().ok()? };
    clock.replace_microsecond(micros).ok()
}

fn offset(text: &str) -> Option<UtcOffset> {
    if text.eq_ignore_ascii_case("z") {
        return Some(UtcOffset::UTC);
    }
    let sign: i8 = if text.starts_with('-') { -1 } else { 1 };
    let digits: String = text[1..].chars().filter(char::is_ascii_digit).collect();
    let hours: i8 = digits.get(..2)?.parse().ok()?;
    let minutes: i8 = digits.get(2..4).map_or(Some(0), |text| text.parse().ok())?;
    UtcOffset::from_hms(sign * hours, sign * minutes, 0).ok()
}

/// `2026-01-31`.
pub(super) fn date(moment: OffsetDateTime) -> String {
    moment.format(DAY).unwrap_or_default()
}

/// `2026-01-31 23:59:59.5`, with `+00` at the end if it has a zone.
pub(super) fn timestamp(moment: OffsetDateTime, zoned: bool) -> String {
    let clock = moment.time().format(CLOCK).unwrap_or_default();
    let micros = match moment.microsecond() {
        0 => String::new(),
        micros => format!(".{micros:06}").trim_end_matches('0').to_owned(),
    };
    format!("{} {clock}{micros}{}", date(moment), if zoned { "+00" } else { "" })
}

pub(super) fn since_1970(elapsed: Duration) -> OffsetDateTime {
    let nanos = i128::try_from(elapsed.as_nanos()).unwrap_or(0);
    OffsetDateTime::from_unix_timestamp_nanos(nanos).unwrap_or(OffsetDateTime::UNIX_EPOCH)
}

pub(super) fn from_micros(micros: i64) -> Option<OffsetDateTime> {
    ORIGIN.checked_add(time::Duration::microseconds(micros))
}

pub(super) fn to_micros(moment: OffsetDateTime) -> Option<i64> {
    (moment - ORIGIN).whole_microseconds().try_into().ok()
}

pub(super) fn from_days(days: i32) -> Option<OffsetDateTime> {
    ORIGIN.checked_add(time::Duration::days(days.into()))
}

pub(super) fn to_days(moment: OffsetDateTime) -> Option<i32> {
    (moment.date() - ORIGIN.date()).whole_days().try_into().ok()
}

pub(super) fn micros_of_day(text: &str) -> Option<i64> {
    let since = parse_clock(text)? - Time::MIDNIGHT;
    since.whole_microseconds().try_into().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_parsed_in_many_forms() {
        let shown = |text: &str| parse(text).map(|moment| timestamp(moment, true)).ok();
        for same in ["2026-01-31 23:30:00.25+00", "2026-01-31T23:30:00.250Z", "2026-02-01 01:30:00.25+02:00"]
        {
            assert_eq!(shown(same).as_deref(), Some("2026-01-31 23:30:00.25+00"), "{same}");
        }
        assert_eq!(shown("2026-01-31").as_deref(), Some("2026-01-31 00:00:00+00"));
        assert_eq!(shown("2026-01-31 12:34").as_deref(), Some("2026-01-31 12:34:00+00"));
        for bad in ["", "tomorrow", "2026-02-30", "2026-01-31 25:00:00", "2026-01-31 10:00:00 é"] {
            assert_eq!(shown(bad), None, "{bad}");
        }
    }

    #[test]
    fn a_date_outside_of_the_calendar_has_its_own_error() {
        assert_eq!(parse("9999-12-31 23:59:59-12"), Err(DateError::Range));
        assert_eq!(parse("9999-12-31 23:59:59 o'clock"), Err(DateError::Form));
        assert!(parse("9999-12-31 23:59:59+12").is_ok());
        assert!(parse("0000-01-01 00:00:00+12").is_ok());
    }

    #[test]
    fn numbers_count_from_2000() {
        let day = parse("2000-01-03").unwrap();
        assert_eq!((to_days(day), to_micros(day)), (Some(2), Some(172_800_000_000)));
        assert_eq!(
            from_micros(-1).map(|moment| timestamp(moment, false)).as_deref(),
            Some("1999-12-31 23:59:59.999999")
        );
        assert_eq!(from_micros(i64::MAX), None);
        assert_eq!(micros_of_day("00:00:01.5"), Some(1_500_000));
    }
}
