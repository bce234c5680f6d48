//! PostgreSQL's types that this engine knows, with their OIDs, names and ranges.

mod encoding;

pub(crate) use encoding::bytea;

use sqlparser::ast::{DataType, ExactNumberInfo, TimezoneInfo};

use crate::engine::{Column, Oid};
use crate::error::SqlError;

macro_rules! types {
    ($($name:ident $oid:literal $size:literal $sql:literal,)*) => {
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Type { $($name),* }

        /// Type, OID, size in bytes, name.
        const TYPES: &[(Type, Oid, i16, &str)] = &[$((Type::$name, $oid, $size, $sql)),*];
    };
}

types! {
    Bool 16 1 "bool",
    Bytea 17 -1 "bytea",
    Int8 20 8 "int8",
    Int2 21 2 "int2",
    Int4 23 4 "int4",
    Text 25 -1 "text",
    Json 114 -1 "json",
    Float4 700 4 "float4",
    Float8 701 8 "float8",
    Bpchar 1042 -1 "bpchar",
    Varchar 1043 -1 "varchar",
    Date 1082 4 "date",
    Time 1083 8 "time",
    Timestamp 1114 8 "timestamp",
    Timestamptz 1184 8 "timestamptz",
    Numeric 1700 -1 "numeric",
    Uuid 2950 16 "uuid",
    Jsonb 3802 -1 "jsonb",
}

impl Type {
    fn entry(self) -> &'static (Self, Oid, i16, &'static str) {
        let found = TYPES.iter().find(|(own, ..)| *own == self);
        found.unwrap_or(&TYPES[0])
    }

    pub(crate) fn oid(self) -> Oid {
        self.entry().1
    }

    pub(crate) fn name(self) -> &'static str {
        self.entry().3
    }

    pub(crate) fn column(self, name: impl Into<String>) -> Column {
        let (_, oid, size, _) = *self.entry();
        Column { name: name.into(), oid, size }
    }

    /// An unknown type is treated as text.
    pub(crate) fn from_oid(oid: Oid) -> Option<Self> {
        match oid {
            0 => None,
            _ => Some(TYPES.iter().find(|(_, own, ..)| *own == oid).map_or(Self::Text, |(own, ..)| *own)),
        }
    }

    /// From the declaration in SQLite's catalog.
    pub(crate) fn from_declared(declared: &str) -> Option<Self> {
        let bare = declared.split('(').next().unwrap_or("").trim().to_ascii_lowercase();
        TYPES.iter().find(|(.., name)| *name == bare).map(|(own, ..)| *own)
    }

    /// From the type in a statement.
    pub(crate) fn from_sql(written: &DataType) -> Result<Self, SqlError> {
        Ok(match written {
            DataType::Bool | DataType::Boolean => Self::Bool,
            DataType::SmallInt(_) | DataType::Int2(_) => Self::Int2,
            DataType::Int(_) | DataType::Integer(_) | DataType::Int4(_) => Self::Int4,
            DataType::BigInt(_) | DataType::Int8(_) => Self::Int8,
            DataType::Real | DataType::Float4 => Self::Float4,
            DataType::Float(ExactNumberInfo::Precision(1..=24)) => Self::Float4,
            DataType::Float8 | DataType::DoublePrecision | DataType::Double(_) | DataType::Float(_) => {
                Self::Float8
            }
            DataType::Numeric(_) | DataType::Decimal(_) | DataType::Dec(_) => Self::Numeric,
            DataType::Text => Self::Text,
            DataType::Varchar(_) | DataType::CharacterVarying(_) | DataType::CharVarying(_) => Self::Varchar,
            DataType::Char(_) | DataType::Character(_) => Self::Bpchar,
            DataType::Bytea => Self::Bytea,
            DataType::Uuid => Self::Uuid,
            DataType::Date => Self::Date,
            DataType::Time(_, TimezoneInfo::None | TimezoneInfo::WithoutTimeZone) => Self::Time,
            DataType::Timestamp(_, TimezoneInfo::Tz | TimezoneInfo::WithTimeZone) => Self::Timestamptz,
            DataType::Timestamp(..) => Self::Timestamp,
            DataType::JSON => Self::Json,
            DataType::JSONB => Self::Jsonb,
            DataType::Regclass => Self::Text,
            other => {
                let name = other.to_string();
                let bare = name.split('(').next().unwrap_or("").to_ascii_lowercase();
                if bare == "name" {
                    return Ok(Self::Text);
                }
                return Self::from_declared(&bare).ok_or_else(|| {
                    SqlError::new("42704", format!("type \"{}\" does not exist", name.to_ascii_lowercase()))
                });
            }
        })
    }

    /// SQLite's storage class for it.
    pub(crate) fn storage(self) -> &'static str {
        match self {
            Self::Bool | Self::Int2 | Self::Int4 | Self::Int8 => "INTEGER",
            Self::Float4 | Self::Float8 => "REAL",
            Self::Numeric => "NUMERIC",
            Self::Bytea => "BLOB",
            _ => "TEXT",
        }
    }

    /// The types that a text is checked for.
    pub(crate) const NUMBERS: [Self; 6] =
        [Self::Int2, Self::Int4, Self::Int8, Self::Float4, Self::Float8, Self::Numeric];

    /// The range of an integer type.
    pub(crate) fn range(self) -> Option<(i64, i64)> {
        match self {
            Self::Int2 => Some((i16::MIN.into(), i16::MAX.into())),
            Self::Int4 => Some((i32::MIN.into(), i32::MAX.into())),
            Self::Int8 => Some((i64::MIN, i64::MAX)),
            _ => None,
        }
    }

    /// Checks that a number fits.
    pub(crate) fn within(self, number: i64) -> Result<i64, SqlError> {
        match self.range() {
            Some((least, most)) if !(least..=most).contains(&number) => Err(self.out_of_range()),
            _ => Ok(number),
        }
    }

    /// Rounds a number and checks that it fits.
    pub(crate) fn rounded(self, number: f64) -> Result<i64, SqlError> {
        let number = number.round();
        // Both bounds are powers of two, so a double holds them exactly.
        if !(-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number) {
            return Err(self.out_of_range());
        }
        #[allow(clippy::cast_possible_truncation, reason = "it has no fraction and is in range")]
        self.within(number as i64)
    }

    pub(crate) fn out_of_range(self) -> SqlError {
        SqlError::new("22003", format!("{} out of range", self.display_name()))
    }

    /// For a check that does not have the text.
    pub(crate) fn invalid_input(self) -> SqlError {
        SqlError::new("22P02", format!("invalid input syntax for type {}", self.display_name()))
    }

    fn invalid(self, text: &str) -> SqlError {
        if self.range().is_some() && text.trim().parse::<i128>().is_ok() {
            let message = format!("value \"{text}\" is out of range for type {}", self.display_name());
            return SqlError::new("22003", message);
        }
        SqlError::new("22P02", format!("invalid input syntax for type {}: \"{text}\"", self.display_name()))
    }

    /// The name in error messages.
    fn display_name(self) -> &'static str {
        match self {
            Self::Int4 => "integer",
            Self::Int8 => "bigint",
            Self::Int2 => "smallint",
            Self::Bool => "boolean",
            other => other.name(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_are_known_by_number_name_and_declaration() {
        for (own, oid, _, name) in TYPES {
            assert_eq!((Type::from_oid(*oid), Type::from_declared(name)), (Some(*own), Some(*own)));
        }
        assert_eq!(Type::from_oid(0), None);
        assert_eq!(Type::from_declared("varchar(20)"), Some(Type::Varchar));
    }
}
