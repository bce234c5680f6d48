//! The values of a result as text. Every value has an exact text, also a time that Arrow cannot write.

use std::fmt::Write;

use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::{Array, RecordBatch};
use arrow_cast::cast;
use arrow_cast::display::{ArrayFormatter, ArrayFormatterFactory, DisplayIndex, FormatOptions, FormatResult};
use arrow_schema::{ArrowError, DataType, Field, TimeUnit};

use super::format::text_error;

const SECONDS_A_DAY: i64 = 86_400;

/// An error is never written as data. NULL in a list must differ from an empty string.
const OPTIONS: FormatOptions<'static> = FormatOptions::new()
    .with_display_error(false)
    .with_null("NULL")
    .with_formatter_factory(Some(&ExactTimes));

/// The values of a column.
pub(super) struct Values<'a> {
    formatter: ArrayFormatter<'a>,
    is_null: Box<dyn Fn(usize) -> bool>,
}

impl<'a> Values<'a> {
    /// # Errors
    /// If Arrow has no text for the type.
    pub(super) fn new(array: &'a dyn Array) -> Result<Self, ArrowError> {
        // Logical, since a union and a column of nothing but NULL have no nulls of their own.
        let nulls = array.logical_nulls();
        let is_null = move |row| nulls.as_ref().is_some_and(|nulls| nulls.is_null(row));
        Ok(Self { formatter: formatter(array)?, is_null: Box::new(is_null) })
    }

    /// The values of each column.
    pub(super) fn of(batch: &'a RecordBatch) -> anyhow::Result<Vec<Self>> {
        let columns = batch.columns().iter().map(|column| Self::new(column.as_ref()));
        columns.collect::<Result<_, _>>().map_err(text_error)
    }

    /// The text of a value; `None` for NULL.
    pub(super) fn text(&self, row: usize) -> Result<Option<String>, ArrowError> {
        if (self.is_null)(row) { Ok(None) } else { self.formatter.value(row).try_to_string().map(Some) }
    }
}

fn formatter(array: &dyn Array) -> Result<ArrayFormatter<'_>, ArrowError> {
    match ExactTimes.create_array_formatter(array, &OPTIONS, None)? {
        Some(formatter) => Ok(formatter),
        None => ArrayFormatter::try_new(array, &OPTIONS),
    }
}

/// Makes formatters for times that write what Arrow cannot: years after 262142, infinity, `24:00:00`, and
/// time zones without a known name.
#[derive(Debug)]
struct ExactTimes;

impl ArrayFormatterFactory for ExactTimes {
    fn create_array_formatter<'a>(
        &self,
        array: &'a dyn Array,
        options: &FormatOptions<'a>,
        _: Option<&'a Field>,
    ) -> Result<Option<ArrayFormatter<'a>>, ArrowError> {
        let usual = match array.data_type() {
            // The zone has no known name, but the values are in UTC.
            DataType::Timestamp(_, Some(_)) => ArrayFormatter::try_new(array, options).ok(),
            // Arrow writes "<invalid>" for some.
            DataType::Duration(_) => None,
            DataType::Date32
            | DataType::Date64
            | DataType::Time32(_)
            | DataType::Time64(_)
            | DataType::Timestamp(_, None) => Some(ArrayFormatter::try_new(array, options)?),
            _ => return Ok(None),
        };
        let times = Times { array, usual, null: options.null() };
        Ok(Some(ArrayFormatter::new(Box::new(times), options.safe())))
    }
}

struct Times<'a> {
    array: &'a dyn Array,
    /// Arrow's own formatter, for the values that it can write.
    usual: Option<ArrayFormatter<'a>>,
    null: &'a str,
}

impl DisplayIndex for Times<'_> {
    fn write(&self, row: usize, f: &mut dyn Write) -> FormatResult {
        if self.array.is_null(row) {
            return Ok(f.write_str(self.null)?);
        }
        // It fails before it writes.
        if self.usual.as_ref().is_some_and(|usual| usual.value(row).write(f).is_ok()) {
            return Ok(());
        }
        Ok(f.write_str(&exact(self.array, row)?)?)
    }
}

/// The text of a time of any size.
fn exact(array: &dyn Array, row: usize) -> Result<String, ArrowError> {
    let value = cast(&array.slice(row, 1), &DataType::Int64)?.as_primitive::<Int64Type>().value(0);
    Ok(match array.data_type() {
        DataType::Date32 => infinite(value, i32::MAX.into()).unwrap_or_else(|| date(value)),
        DataType::Date64 => infinite(value, i64::MAX).unwrap_or_else(|| timestamp(value, 3)),
        DataType::Timestamp(unit, zone) => infinite(value, i64::MAX)
            .unwrap_or_else(|| timestamp(value, digits(*unit)) + if zone.is_some() { "Z" } else { "" }),
        DataType::Time32(unit) | DataType::Time64(unit) => time(value.into(), digits(*unit)),
        DataType::Duration(unit) => {
            let (sign, amount) = (if value < 0 { "-" } else { "" }, u128::from(value.unsigned_abs()));
            let second = 10_u128.pow(digits(*unit));
            let fraction = fraction(amount % second, digits(*unit));
            format!("{sign}PT{}{}S", amount / second, fraction.trim_end_matches('0'))
        }
        other => return Err(ArrowError::NotYetImplemented(format!("the text of a value of type {other}"))),
    })
}

/// DuckDB and PostgreSQL have these two, and send them as the largest and the smallest number.
fn infinite(value: i64, largest: i64) -> Option<String> {
    match value {
        _ if value == largest => Some("infinity".to_owned()),
        _ if value == -largest => Some("-infinity".to_owned()),
        _ => None,
    }
}

/// The digits of a fraction of a second.
fn digits(unit: TimeUnit) -> u32 {
    match unit {
        TimeUnit::Second => 0,
        TimeUnit::Millisecond => 3,
        TimeUnit::Microsecond => 6,
        TimeUnit::Nanosecond => 9,
    }
}

/// The date of a day after (or before) 1970-01-01, as ISO 8601 writes it: other years than those of four
/// digits have a sign.
fn date(days: i64) -> String {
    // Eras of 400 years begin on 1 March, so that a leap day is the last of its year.
    let shifted = days + 719_468;
    let (era, day) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
    let year_of_era = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    match year {
        0..=9_999 => format!("{year:04}-{month:02}-{day_of_month:02}"),
        _ => format!("{year:+05}-{month:02}-{day_of_month:02}"),
    }
}

fn timestamp(value: i64, digits: u32) -> String {
    let day = i128::from(SECONDS_A_DAY) * 10_i128.pow(digits);
    let value = i128::from(value);
    // A day has more than one unit, so there are fewer days than units.
    let days = i64::try_from(value.div_euclid(day)).unwrap_or_default();
    format!("{}T{}", date(days), time(value.rem_euclid(day), digits))
}

/// A time of the day. `24:00:00` is one in some databases.
fn time(value: i128, digits: u32) -> String {
    let (sign, value) = (if value < 0 { "-" } else { "" }, value.unsigned_abs());
    let unit = 10_u128.pow(digits);
    let (seconds, fraction) = (value / unit, fraction(value % unit, digits));
    format!("{sign}{:02}:{:02}:{:02}{fraction}", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// The fraction of a second, with its point.
fn fraction(value: u128, digits: u32) -> String {
    match value {
        0 => String::new(),
        _ => format!(".{value:0width$}", width = digits as usize),
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use arrow_array::types::{Date32Type, Int32Type};
    use arrow_array::{
        ArrayRef, Date32Array, Date64Array, DurationMillisecondArray, DurationSecondArray, Int32Array,
        ListArray, NullArray, Time64MicrosecondArray, TimestampMicrosecondArray, TimestampNanosecondArray,
        TimestampSecondArray,
    };
    use proptest::prelude::*;

    use super::*;

    fn texts(array: impl Array + 'static) -> Vec<Option<String>> {
        let array: ArrayRef = Arc::new(array);
        let values = Values::new(array.as_ref()).unwrap();
        (0..array.len()).map(|row| values.text(row).unwrap()).collect()
    }

    fn text(array: impl Array + 'static) -> String {
        texts(array).remove(0).expect("a value")
    }

    #[test]
    fn a_time_with_a_zone_is_shown_in_that_zone() {
        let at = |zone: &str| {
            text(TimestampMicrosecondArray::from(vec![1_785_585_600_123_456]).with_timezone(zone))
        };
        assert_eq!(at("UTC"), "2026-08-01T12:00:00.123456Z");
        assert_eq!(at("Etc/UTC"), "2026-08-01T12:00:00.123456Z");
        assert_eq!(at("Europe/Berlin"), "2026-08-01T14:00:00.123456+02:00");
        assert_eq!(at("-05:30"), "2026-08-01T06:30:00.123456-05:30");
        assert_eq!(at("Mars/Olympus_Mons"), "2026-08-01T12:00:00.123456Z", "in UTC, as it was sent");
    }

    #[test]
    fn a_time_that_arrow_cannot_write_is_written_all_the_same() {
        assert_eq!(text(Date32Array::from(vec![i32::MAX - 1])), "+5881580-07-10");
        assert_eq!(text(Date32Array::from(vec![i32::MIN + 2])), "-5877641-06-25");
        assert_eq!(text(Date32Array::from(vec![i32::MAX])), "infinity");
        assert_eq!(text(Date32Array::from(vec![-i32::MAX])), "-infinity");
        let micros = |value| TimestampMicrosecondArray::from(vec![value]);
        assert_eq!(text(micros(i64::MAX - 1)), "+294247-01-10T04:00:54.775806");
        assert_eq!(
            text(micros(i64::MAX - 1).with_timezone("Europe/Berlin")),
            "+294247-01-10T04:00:54.775806Z"
        );
        assert_eq!(text(micros(i64::MAX)), "infinity");
        assert_eq!(text(micros(-i64::MAX).with_timezone("UTC")), "-infinity");
        // This one is in range, and no infinity.
        assert_eq!(text(TimestampNanosecondArray::from(vec![i64::MAX])), "2262-04-11T23:47:16.854775807");
        assert_eq!(text(TimestampSecondArray::from(vec![i64::MIN])), "-292277022657-01-27T08:29:52");
        assert_eq!(text(Date64Array::from(vec![i64::MAX - 1])), "+292278994-08-17T07:12:55.806");
        assert_eq!(text(Time64MicrosecondArray::from(vec![86_400_000_000])), "24:00:00");
        assert_eq!(text(DurationSecondArray::from(vec![i64::MAX])), "PT9223372036854775807S");
        assert_eq!(text(DurationMillisecondArray::from(vec![-1_500])), "-PT1.5S");
        let far = vec![Some(vec![Some(i32::MAX - 1), None, Some(0)])];
        let far = ListArray::from_iter_primitive::<Date32Type, _, _>(far);
        assert_eq!(text(far), "[+5881580-07-10, NULL, 1970-01-01]");
    }

    #[test]
    fn null_is_none_and_visible_in_a_list() {
        assert_eq!(texts(Int32Array::from(vec![Some(1), None])), [Some("1".to_owned()), None]);
        assert_eq!(texts(NullArray::new(1)), [None]);
        assert_eq!(texts(Date32Array::from(vec![None])), [None]);
        let list = ListArray::from_iter_primitive::<Int32Type, _, _>(vec![Some(vec![Some(1), None]), None]);
        assert_eq!(texts(list), [Some("[1, NULL]".to_owned()), None]);
    }

    proptest! {
        /// Where Arrow can write a time, both write the same.
        #[test]
        fn exact_texts_are_those_of_arrow(days in -90_000_000_i32..90_000_000, micros: i64) {
            let dates = Date32Array::from(vec![days]);
            prop_assert_eq!(exact(&dates, 0).unwrap(), text(dates));
            let times = TimestampNanosecondArray::from(vec![micros.saturating_mul(1_000)]);
            let usual = text(times.clone());
            let same = exact(&times, 0).unwrap();
            // Arrow leaves out zeros of the fraction, in groups of three.
            let short = |text: &str| text.trim_end_matches('0').to_owned();
            prop_assert!(usual.contains('.') == same.contains('.') || same == "infinity" || same == "-infinity");
            if usual.contains('.') && !same.ends_with("infinity") {
                prop_assert_eq!(short(&usual), short(&same));
            }
        }
    }
}
