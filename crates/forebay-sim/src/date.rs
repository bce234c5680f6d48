//! Timestamps for people and spreadsheets.

use std::time::Duration;

use time::OffsetDateTime;
use time::macros::format_description;

/// Formats a wall-clock time, given since 1970, as RFC 3339 with at most milliseconds.
#[must_use]
pub fn rfc3339(wall: Duration) -> String {
    let since_1970 = time::Duration::try_from(wall).unwrap_or(time::Duration::MAX);
    let at = OffsetDateTime::UNIX_EPOCH.saturating_add(since_1970);
    let format = format_description!("[year]-[month]-[day]T[hour]:[minute]:[second]");
    let seconds = at.format(format).expect("a date has all these parts");
    match at.millisecond() {
        0 => format!("{seconds}Z"),
        millis => format!("{seconds}.{millis:03}Z"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_are_rfc_3339() {
        for (seconds, expected) in [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_767_225_600, "2026-01-01T00:00:00Z"),
            (4_107_542_399, "2100-02-28T23:59:59Z"),
        ] {
            assert_eq!(rfc3339(Duration::from_secs(seconds)), expected);
        }
        assert_eq!(rfc3339(Duration::from_millis(1_767_225_600_250)), "2026-01-01T00:00:00.250Z");
        assert_eq!(rfc3339(Duration::MAX), "9999-12-31T23:59:59.999Z");
    }
}
