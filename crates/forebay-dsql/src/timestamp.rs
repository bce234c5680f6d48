//! Points in time as the database keeps them.

use std::fmt;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

/// 2000-01-01 00:00 UTC, from which PostgreSQL counts, in microseconds since 1970.
const POSTGRES_EPOCH: i128 = 946_684_800_000_000;
/// The first microsecond of 4714-11-24 BC, and the first after 294276 AD, as PostgreSQL counts.
const FIRST: i64 = -211_813_488_000_000_000;
const END: i64 = 9_223_371_331_200_000_000;

/// A `timestamp` or `timestamptz` in UTC: whole microseconds, from 4714 BC to 294276 AD. What is finer is cut off towards
/// the past, as a store must do that compares what it wrote with what it reads.
///
/// ```
/// use std::time::{Duration, UNIX_EPOCH};
/// use forebay_dsql::Timestamp;
///
/// let written = Timestamp::try_from(UNIX_EPOCH + Duration::from_nanos(1_999))?;
/// assert_eq!(written.nanos(), 1_000);
/// # Ok::<(), forebay_dsql::TimeOutOfRange>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(
    /// Microseconds after 2000: what goes over the wire.
    i64,
);

/// A point in time that the database cannot keep.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a timestamp must lie between 4714-11-24 BC and the end of 294276 AD")]
pub struct TimeOutOfRange;

impl Timestamp {
    /// The earliest.
    pub const MIN: Self = Self(FIRST);
    /// The latest.
    pub const MAX: Self = Self(END - 1);

    /// The point `nanos` nanoseconds after 1970-01-01 00:00 UTC; of them, whole microseconds.
    ///
    /// # Errors
    /// If the database cannot keep it.
    pub fn from_nanos(nanos: i128) -> Result<Self, TimeOutOfRange> {
        let micros = nanos.div_euclid(1_000) - POSTGRES_EPOCH;
        i64::try_from(micros).map_err(|_| TimeOutOfRange).and_then(Self::from_wire)
    }

    /// Nanoseconds after 1970-01-01 00:00 UTC: whole microseconds.
    #[must_use]
    pub const fn nanos(self) -> i128 {
        (self.0 as i128 + POSTGRES_EPOCH) * 1_000
    }

    /// Both ends of 64 bits stand for infinity, which is out of range too.
    fn from_wire(micros: i64) -> Result<Self, TimeOutOfRange> {
        (FIRST..END).contains(&micros).then_some(Self(micros)).ok_or(TimeOutOfRange)
    }
}

impl TryFrom<SystemTime> for Timestamp {
    type Error = TimeOutOfRange;

    fn try_from(time: SystemTime) -> Result<Self, TimeOutOfRange> {
        let nanos = |duration: Duration| i128::try_from(duration.as_nanos()).map_err(|_| TimeOutOfRange);
        match time.duration_since(UNIX_EPOCH) {
            Ok(after) => Self::from_nanos(nanos(after)?),
            Err(before) => Self::from_nanos(-nanos(before.duration())?),
        }
    }
}

impl TryFrom<Timestamp> for SystemTime {
    type Error = TimeOutOfRange;

    fn try_from(timestamp: Timestamp) -> Result<Self, TimeOutOfRange> {
        let micros = u64::try_from(timestamp.nanos().unsigned_abs() / 1_000).map_err(|_| TimeOutOfRange)?;
        let distance = Duration::from_micros(micros);
        let before = timestamp.nanos() < 0;
        let time = if before { UNIX_EPOCH.checked_sub(distance) } else { UNIX_EPOCH.checked_add(distance) };
        time.ok_or(TimeOutOfRange)
    }
}

/// Seconds since 1970, with six digits behind the point.
impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (sign, micros) = (if self.nanos() < 0 { "-" } else { "" }, self.nanos().unsigned_abs() / 1_000);
        write!(f, "{sign}{}.{:06}", micros / 1_000_000, micros % 1_000_000)
    }
}

#[cfg(feature = "tokio-postgres")]
mod of_tokio_postgres {
    use std::error::Error;

    use bytes::{BufMut, BytesMut};
    use tokio_postgres::types::{FromSql, IsNull, ToSql, Type, accepts, to_sql_checked};

    use super::{TimeOutOfRange, Timestamp};

    impl ToSql for Timestamp {
        fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
            out.put_i64(self.0);
            Ok(IsNull::No)
        }

        accepts!(TIMESTAMP, TIMESTAMPTZ);
        to_sql_checked!();
    }

    impl<'a> FromSql<'a> for Timestamp {
        fn from_sql(_: &Type, raw: &'a [u8]) -> Result<Self, Box<dyn Error + Sync + Send>> {
            let micros = raw.try_into().map_err(|_| TimeOutOfRange)?;
            Ok(Self::from_wire(i64::from_be_bytes(micros))?)
        }

        accepts!(TIMESTAMP, TIMESTAMPTZ);
    }
}

#[cfg(feature = "sqlx")]
mod of_sqlx {
    use sqlx::encode::IsNull;
    use sqlx::error::BoxDynError;
    use sqlx::postgres::{PgArgumentBuffer, PgTypeInfo, PgValueFormat, PgValueRef, types::Oid};
    use sqlx::{Decode, Encode, Postgres, Type};

    use super::{TimeOutOfRange, Timestamp};

    const TIMESTAMP: PgTypeInfo = PgTypeInfo::with_oid(Oid(1114));
    const TIMESTAMPTZ: PgTypeInfo = PgTypeInfo::with_oid(Oid(1184));

    impl Type<Postgres> for Timestamp {
        fn type_info() -> PgTypeInfo {
            TIMESTAMPTZ
        }

        fn compatible(ty: &PgTypeInfo) -> bool {
            ty.oid() == TIMESTAMP.oid() || ty.oid() == TIMESTAMPTZ.oid()
        }
    }

    impl Encode<'_, Postgres> for Timestamp {
        fn encode_by_ref(&self, out: &mut PgArgumentBuffer) -> Result<IsNull, BoxDynError> {
            out.extend(&self.0.to_be_bytes());
            Ok(IsNull::No)
        }
    }

    impl Decode<'_, Postgres> for Timestamp {
        fn decode(value: PgValueRef<'_>) -> Result<Self, BoxDynError> {
            if value.format() == PgValueFormat::Text {
                // Eight letters, such as those of infinity, would pass for a number.
                return Err("a timestamp as text, as sqlx::raw_sql gets it: ask with sqlx::query".into());
            }
            let micros = value.as_bytes()?.try_into().map_err(|_| TimeOutOfRange)?;
            Ok(Self::from_wire(i64::from_be_bytes(micros))?)
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_is_finer_than_a_microsecond_is_cut_off_towards_the_past() {
        for (nanos, kept) in
            [(0, 0), (999, 0), (1_000, 1_000), (-1, -1_000), (-1_000, -1_000), (-1_001, -2_000)]
        {
            assert_eq!(Timestamp::from_nanos(nanos).unwrap().nanos(), kept, "{nanos}");
        }
    }

    #[test]
    fn the_range_is_the_databases() {
        for end in [Timestamp::MIN, Timestamp::MAX] {
            assert_eq!(Timestamp::from_nanos(end.nanos()), Ok(end));
        }
        assert_eq!(Timestamp::from_nanos(Timestamp::MIN.nanos() - 1), Err(TimeOutOfRange));
        assert_eq!(Timestamp::from_nanos(Timestamp::MAX.nanos() + 1_000), Err(TimeOutOfRange));
        for wire in [i64::MIN, i64::MAX] {
            assert_eq!(Timestamp::from_wire(wire), Err(TimeOutOfRange), "infinity");
        }
        assert_eq!(Timestamp::from_nanos(i128::MAX), Err(TimeOutOfRange));
        assert_eq!(Timestamp::from_nanos(i128::MIN), Err(TimeOutOfRange));
        assert_eq!(Timestamp::MIN.to_string(), "-210866803200.000000");
        assert_eq!(Timestamp::from_nanos(-1).unwrap().to_string(), "-0.000001");
    }

    proptest! {
        #[test]
        fn there_and_back(micros in FIRST..END) {
            let time = Timestamp::from_wire(micros).unwrap();
            prop_assert_eq!(Timestamp::from_nanos(time.nanos()), Ok(time));
            let system = SystemTime::try_from(time).unwrap();
            prop_assert_eq!(Timestamp::try_from(system), Ok(time));
        }
    }
}
