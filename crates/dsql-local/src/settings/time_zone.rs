//! The values of `SET TIME ZONE` that are not names: an interval, a number of hours, LOCAL.

/// The value as PostgreSQL shows it. None: it is a name, and stays as it is.
///
/// Drivers send both, such as Sequelize: `SET TIME ZONE INTERVAL '+00:00' HOUR TO MINUTE`.
pub(super) fn canonical(value: &str) -> Option<String> {
    let interval =
        value.get(..8).filter(|word| word.eq_ignore_ascii_case("interval")).map(|_| value[8..].trim_start());
    let seconds_east = match interval {
        // The caller has removed a quote at the end.
        Some(interval) => clock_time(interval.strip_prefix('\'')?.split('\'').next()?)?,
        None => hours(value)?,
    };
    // Its name is that of a POSIX zone, whose offset counts to the west.
    let (east, west) = if seconds_east < 0 { ('-', '+') } else { ('+', '-') };
    let offset = seconds_east.abs();
    let mut text = format!("{:02}", offset / 3600);
    if offset % 3600 != 0 {
        text += &format!(":{:02}", offset / 60 % 60);
    }
    if offset % 60 != 0 {
        text += &format!(":{:02}", offset % 60);
    }
    Some(format!("<{east}{text}>{west}{text}"))
}

/// `+05:30`, `-8:00` or `3:00:05` in seconds.
fn clock_time(text: &str) -> Option<i32> {
    let text = text.trim();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let mut parts = digits.split(':').map(|part| part.parse::<u16>().ok().map(i32::from));
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next().unwrap_or(Some(0))?);
    (parts.next().is_none() && minutes < 60 && seconds < 60)
        .then(|| sign * (hours * 3600 + minutes * 60 + seconds))
}

/// `-7` or `5.5` in seconds.
#[expect(clippy::cast_possible_truncation, reason = "it is at most a week")]
fn hours(text: &str) -> Option<i32> {
    let hours: f64 = text.trim().parse().ok()?;
    (hours.abs() <= 168.0).then_some((hours * 3600.0) as i32)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn offsets_are_shown_as_postgresql_shows_them() {
        for (value, shown) in [
            ("INTERVAL '+00:00' HOUR TO MINUTE", "<+00>-00"),
            ("interval '-08:30' hour to minute", "<-08:30>+08:30"),
            ("INTERVAL '3:00:05'", "<+03:00:05>-03:00:05"),
            ("INTERVAL '3:00:05", "<+03:00:05>-03:00:05"),
            ("-7", "<-07>+07"),
            ("5.5", "<+05:30>-05:30"),
        ] {
            assert_eq!(canonical(value).as_deref(), Some(shown), "{value}");
        }
        for name in ["UTC", "Europe/Berlin", "<+05:30>-05:30", "", "interval", "INTERVAL '1 day'", "NaN"] {
            assert_eq!(canonical(name), None, "{name}");
        }
    }
}
