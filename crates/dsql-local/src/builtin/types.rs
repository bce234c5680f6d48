//! PostgreSQL's types, as far as this engine knows them: their numbers, names and forms on the wire.

use bytes::{Buf, BufMut, BytesMut};
use rusqlite::types::{Value, ValueRef};
use sqlparser::ast::{DataType, ExactNumberInfo, TimezoneInfo};
use time::OffsetDateTime;

use super::dates::{self, NoMoment};
use crate::engine::{Column, Oid};
use crate::error::SqlError;
use crate::sigv4::hex;
use crate::wire::Format;

/// A type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Type {
    Bool,
    Bytea,
    Int8,
    Int2,
    Int4,
    Text,
    Json,
    Float4,
    Float8,
    Bpchar,
    Varchar,
    Date,
    Time,
    Timestamp,
    Timestamptz,
    Numeric,
    Uuid,
    Jsonb,
}

/// Every type with its number, its size and its name.
const TYPES: &[(Type, Oid, i16, &str)] = &[
    (Type::Bool, 16, 1, "bool"),
    (Type::Bytea, 17, -1, "bytea"),
    (Type::Int8, 20, 8, "int8"),
    (Type::Int2, 21, 2, "int2"),
    (Type::Int4, 23, 4, "int4"),
    (Type::Text, 25, -1, "text"),
    (Type::Json, 114, -1, "json"),
    (Type::Float4, 700, 4, "float4"),
    (Type::Float8, 701, 8, "float8"),
    (Type::Bpchar, 1042, -1, "bpchar"),
    (Type::Varchar, 1043, -1, "varchar"),
    (Type::Date, 1082, 4, "date"),
    (Type::Time, 1083, 8, "time"),
    (Type::Timestamp, 1114, 8, "timestamp"),
    (Type::Timestamptz, 1184, 8, "timestamptz"),
    (Type::Numeric, 1700, -1, "numeric"),
    (Type::Uuid, 2950, 16, "uuid"),
    (Type::Jsonb, 3802, -1, "jsonb"),
];

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

    /// The type of that number; what is not known is treated as text.
    pub(crate) fn from_oid(oid: Oid) -> Option<Self> {
        match oid {
            0 => None,
            _ => Some(TYPES.iter().find(|(_, own, ..)| *own == oid).map_or(Self::Text, |(own, ..)| *own)),
        }
    }

    /// The type that a column was declared with, in SQLite's catalog.
    pub(crate) fn from_declared(declared: &str) -> Option<Self> {
        let bare = declared.split('(').next().unwrap_or("").trim().to_ascii_lowercase();
        TYPES.iter().find(|(.., name)| *name == bare).map(|(own, ..)| *own)
    }

    /// The type written in SQL.
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

    /// How SQLite should convert to it.
    pub(crate) fn storage(self) -> &'static str {
        match self {
            Self::Bool | Self::Int2 | Self::Int4 | Self::Int8 => "INTEGER",
            Self::Float4 | Self::Float8 => "REAL",
            Self::Numeric => "NUMERIC",
            Self::Bytea => "BLOB",
            _ => "TEXT",
        }
    }

    /// Those whose text has one meaning at most.
    pub(crate) const NUMBERS: [Self; 6] =
        [Self::Int2, Self::Int4, Self::Int8, Self::Float4, Self::Float8, Self::Numeric];

    /// The least and the greatest whole number of a type that has no others.
    pub(crate) fn range(self) -> Option<(i64, i64)> {
        match self {
            Self::Int2 => Some((i16::MIN.into(), i16::MAX.into())),
            Self::Int4 => Some((i32::MIN.into(), i32::MAX.into())),
            Self::Int8 => Some((i64::MIN, i64::MAX)),
            _ => None,
        }
    }

    /// The number, if this type has room for it.
    pub(crate) fn within(self, number: i64) -> Result<i64, SqlError> {
        match self.range() {
            Some((least, most)) if !(least..=most).contains(&number) => Err(self.out_of_range()),
            _ => Ok(number),
        }
    }

    /// The whole number next to it, if this type has room for that.
    pub(crate) fn rounded(self, number: f64) -> Result<i64, SqlError> {
        let number = number.round();
        // The least is a power of two, and so is the number after the greatest.
        if !(-9_223_372_036_854_775_808.0..9_223_372_036_854_775_808.0).contains(&number) {
            return Err(self.out_of_range());
        }
        #[allow(clippy::cast_possible_truncation, reason = "it has no fraction and is in range")]
        self.within(number as i64)
    }

    pub(crate) fn out_of_range(self) -> SqlError {
        SqlError::new("22003", format!("{} out of range", self.spoken()))
    }

    /// Where nobody knows the text any more.
    pub(crate) fn invalid_input(self) -> SqlError {
        SqlError::new("22P02", format!("invalid input syntax for type {}", self.spoken()))
    }

    fn invalid(self, text: &str) -> SqlError {
        if self.range().is_some() && text.trim().parse::<i128>().is_ok() {
            let message = format!("value \"{text}\" is out of range for type {}", self.spoken());
            return SqlError::new("22003", message);
        }
        SqlError::new("22P02", format!("invalid input syntax for type {}: \"{text}\"", self.spoken()))
    }

    /// Its name in messages.
    fn spoken(self) -> &'static str {
        match self {
            Self::Int4 => "integer",
            Self::Int8 => "bigint",
            Self::Int2 => "smallint",
            Self::Bool => "boolean",
            other => other.name(),
        }
    }

    fn moment(self, text: &str) -> Result<OffsetDateTime, SqlError> {
        dates::parse(text).map_err(|problem| match problem {
            NoMoment::Form => self.invalid(text),
            NoMoment::Range => SqlError::new("22008", format!("{} out of range: \"{text}\"", self.name())),
        })
    }

    /// A parameter as SQLite takes it.
    pub(crate) fn decode(self, bytes: &[u8], format: Format) -> Result<Value, SqlError> {
        match format {
            Format::Text => {
                let text = std::str::from_utf8(bytes)
                    .map_err(|_| SqlError::new("22021", "invalid byte sequence for encoding \"UTF8\""))?;
                self.decode_text(text)
            }
            Format::Binary => self.decode_binary(bytes).ok_or_else(|| {
                SqlError::new("22P03", format!("incorrect binary data format for type {}", self.name()))
            })?,
        }
    }

    fn decode_text(self, text: &str) -> Result<Value, SqlError> {
        let invalid = || self.invalid(text);
        let trimmed = text.trim();
        Ok(match self {
            Self::Bool => Value::Integer(i64::from(truth(trimmed).ok_or_else(invalid)?)),
            Self::Int2 => Value::Integer(trimmed.parse::<i16>().map_err(|_| invalid())?.into()),
            Self::Int4 => Value::Integer(trimmed.parse::<i32>().map_err(|_| invalid())?.into()),
            Self::Int8 => Value::Integer(trimmed.parse().map_err(|_| invalid())?),
            Self::Float4 | Self::Float8 => Value::Real(trimmed.parse().map_err(|_| invalid())?),
            Self::Numeric => match (trimmed.parse(), trimmed.parse()) {
                (Ok(whole), _) => Value::Integer(whole),
                (_, Ok(real)) => Value::Real(real),
                _ => return Err(invalid()),
            },
            Self::Bytea => Value::Blob(bytea(text).ok_or_else(invalid)?),
            Self::Uuid => Value::Text(uuid(trimmed).ok_or_else(invalid)?),
            Self::Date => Value::Text(dates::date(self.moment(trimmed)?)),
            Self::Timestamp => Value::Text(dates::timestamp(self.moment(trimmed)?, false)),
            Self::Timestamptz => Value::Text(dates::timestamp(self.moment(trimmed)?, true)),
            Self::Text | Self::Varchar | Self::Bpchar | Self::Time | Self::Json | Self::Jsonb => {
                Value::Text(text.to_owned())
            }
        })
    }

    /// None for bytes of another length than the type has.
    fn decode_binary(self, mut bytes: &[u8]) -> Option<Result<Value, SqlError>> {
        let value = match self {
            Self::Bool => Value::Integer(i64::from(bytes.try_get_u8().ok()? != 0)),
            Self::Int2 => Value::Integer(bytes.try_get_i16().ok()?.into()),
            Self::Int4 => Value::Integer(bytes.try_get_i32().ok()?.into()),
            Self::Int8 => Value::Integer(bytes.try_get_i64().ok()?),
            Self::Float4 => Value::Real(bytes.try_get_f32().ok()?.into()),
            Self::Float8 => Value::Real(bytes.try_get_f64().ok()?),
            Self::Date => Value::Text(dates::date(dates::from_days(bytes.try_get_i32().ok()?)?)),
            Self::Timestamp => {
                Value::Text(dates::timestamp(dates::from_micros(bytes.try_get_i64().ok()?)?, false))
            }
            Self::Timestamptz => {
                Value::Text(dates::timestamp(dates::from_micros(bytes.try_get_i64().ok()?)?, true))
            }
            Self::Uuid => {
                let mut raw = [0; 16];
                bytes.try_copy_to_slice(&mut raw).ok()?;
                Value::Text(hyphenated(&hex(&raw)))
            }
            Self::Bytea => Value::Blob(std::mem::take(&mut bytes).to_vec()),
            Self::Numeric | Self::Time => {
                return Some(Err(SqlError::unsupported(format!(
                    "the builtin engine takes parameters of type {} in text form only",
                    self.name()
                ))));
            }
            Self::Jsonb => {
                // A version number comes first.
                if bytes.try_get_u8().ok()? != 1 {
                    return None;
                }
                return Some(Self::Text.decode(bytes, Format::Text));
            }
            Self::Text | Self::Varchar | Self::Bpchar | Self::Json => {
                return Some(Self::Text.decode(bytes, Format::Text));
            }
        };
        bytes.is_empty().then_some(Ok(value))
    }

    /// Writes a value that SQLite gave, in this type's form.
    pub(crate) fn encode(
        self,
        value: ValueRef<'_>,
        format: Format,
        out: &mut BytesMut,
    ) -> Result<(), SqlError> {
        // SQLite counts on in 64 bits, and after that in doubles.
        match value {
            ValueRef::Integer(number) => drop(self.within(number)?),
            ValueRef::Real(number) if self.range().is_some() => drop(self.rounded(number)?),
            _ => {}
        }
        match format {
            Format::Text => {
                self.encode_text(value, out);
                Ok(())
            }
            Format::Binary => self.encode_binary(value, out).ok_or_else(|| {
                let mut text = BytesMut::new();
                Self::Text.encode_text(value, &mut text);
                if let (Self::Date | Self::Timestamp | Self::Timestamptz, Ok(text)) =
                    (self, std::str::from_utf8(&text))
                    && let Err(error) = self.moment(text)
                    && error.code == "22008"
                {
                    return error;
                }
                SqlError::new(
                    "22P03",
                    format!(
                        "\"{}\" cannot be sent as binary {}",
                        String::from_utf8_lossy(&text),
                        self.name()
                    ),
                )
                .hint("the builtin engine stores what it is given; cast the value, or ask for text")
            }),
        }
    }

    fn encode_text(self, value: ValueRef<'_>, out: &mut BytesMut) {
        match value {
            ValueRef::Null => {}
            ValueRef::Integer(number) if self == Self::Bool => {
                out.put_u8(if number == 0 { b'f' } else { b't' })
            }
            ValueRef::Integer(number) => out.put_slice(number.to_string().as_bytes()),
            #[allow(clippy::cast_possible_truncation, reason = "that is what the narrower type means")]
            ValueRef::Real(number) if self == Self::Float4 => {
                out.put_slice((number as f32).to_string().as_bytes())
            }
            ValueRef::Real(number) => out.put_slice(number.to_string().as_bytes()),
            ValueRef::Text(text) => out.put_slice(text),
            ValueRef::Blob(bytes) => {
                out.put_slice(b"\\x");
                out.put_slice(hex(bytes).as_bytes());
            }
        }
    }

    /// None if the value is not of this type.
    fn encode_binary(self, value: ValueRef<'_>, out: &mut BytesMut) -> Option<()> {
        let whole = || match value {
            ValueRef::Integer(number) => Some(number),
            ValueRef::Text(text) => std::str::from_utf8(text).ok()?.trim().parse().ok(),
            _ => None,
        };
        #[allow(clippy::cast_precision_loss, reason = "as PostgreSQL converts")]
        let real = || match value {
            ValueRef::Real(number) => Some(number),
            ValueRef::Integer(number) => Some(number as f64),
            _ => None,
        };
        let text = || match value {
            ValueRef::Text(text) => std::str::from_utf8(text).ok(),
            _ => None,
        };
        match self {
            Self::Bool => out.put_u8(u8::from(match value {
                ValueRef::Text(_) => truth(text()?)?,
                _ => whole()? != 0,
            })),
            Self::Int2 => out.put_i16(whole()?.try_into().ok()?),
            Self::Int4 => out.put_i32(whole()?.try_into().ok()?),
            Self::Int8 => out.put_i64(whole()?),
            #[allow(clippy::cast_possible_truncation, reason = "that is what the narrower type means")]
            Self::Float4 => out.put_f32(real()? as f32),
            Self::Float8 => out.put_f64(real()?),
            Self::Date => out.put_i32(dates::to_days(dates::parse(text()?).ok()?)?),
            Self::Timestamp | Self::Timestamptz => {
                out.put_i64(dates::to_micros(dates::parse(text()?).ok()?)?)
            }
            Self::Time => out.put_i64(dates::micros_of_day(text()?)?),
            Self::Uuid => {
                out.put_slice(&crate::sigv4::unhex(&text()?.replace('-', "").to_ascii_lowercase())?)
            }
            Self::Numeric => super::numeric::encode(value, out)?,
            Self::Bytea => match value {
                ValueRef::Blob(bytes) => out.put_slice(bytes),
                _ => out.put_slice(&bytea(text()?)?),
            },
            Self::Jsonb => {
                out.put_u8(1);
                Self::Text.encode_text(value, out);
            }
            Self::Text | Self::Varchar | Self::Bpchar | Self::Json => Self::Text.encode_text(value, out),
        }
        Some(())
    }
}

fn truth(text: &str) -> Option<bool> {
    match text.to_ascii_lowercase().as_str() {
        "t" | "true" | "y" | "yes" | "on" | "1" => Some(true),
        "f" | "false" | "n" | "no" | "off" | "0" => Some(false),
        _ => None,
    }
}

/// The bytes of `\x...`, or of text without escapes.
pub(crate) fn bytea(text: &str) -> Option<Vec<u8>> {
    match text.strip_prefix("\\x") {
        Some(digits) => crate::sigv4::unhex(&digits.to_ascii_lowercase()),
        None if text.contains('\\') => None,
        None => Some(text.as_bytes().to_vec()),
    }
}

fn uuid(text: &str) -> Option<String> {
    let digits: String = text.chars().filter(|letter| !matches!(letter, '-' | '{' | '}')).collect();
    let digits = digits.to_ascii_lowercase();
    (digits.len() == 32 && crate::sigv4::unhex(&digits).is_some()).then(|| hyphenated(&digits))
}

/// 32 digits in groups of 8, 4, 4, 4 and 12.
pub(crate) fn hyphenated(digits: &str) -> String {
    [0..8, 8..12, 12..16, 16..20, 20..32].map(|group| &digits[group]).join("-")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn binary(of: Type, value: &Value) -> Option<Vec<u8>> {
        let mut out = BytesMut::new();
        of.encode(value.into(), Format::Binary, &mut out).ok().map(|()| out.to_vec())
    }

    #[test]
    fn binary_forms_go_both_ways() {
        let cases = [
            (Type::Bool, "t", vec![1]),
            (Type::Int2, "-2", vec![0xff, 0xfe]),
            (Type::Int4, "258", vec![0, 0, 1, 2]),
            (Type::Int8, "-1", vec![0xff; 8]),
            (Type::Float8, "1.5", 1.5_f64.to_be_bytes().to_vec()),
            (Type::Text, "hé", "hé".as_bytes().to_vec()),
            (Type::Bytea, "\\x00ff", vec![0, 255]),
            (Type::Uuid, "00000000-0000-0000-0000-0000000000bb", [vec![0; 15], vec![0xbb]].concat()),
            (Type::Date, "2000-01-02", 1_i32.to_be_bytes().to_vec()),
            (Type::Timestamptz, "2000-01-01 00:00:01+00", 1_000_000_i64.to_be_bytes().to_vec()),
            (Type::Jsonb, "{}", b"\x01{}".to_vec()),
        ];
        for (of, text, bytes) in cases {
            let value = of.decode(text.as_bytes(), Format::Text).unwrap();
            assert_eq!(binary(of, &value).as_ref(), Some(&bytes), "{of:?}");
            assert_eq!(of.decode(&bytes, Format::Binary).unwrap(), value, "{of:?}");
        }
    }

    #[test]
    fn what_is_not_of_a_type_is_refused_in_words() {
        let error = Type::Int4.decode(b"abc", Format::Text).unwrap_err();
        assert_eq!(error.to_string(), "22P02: invalid input syntax for type integer: \"abc\"");
        assert!(Type::Int4.decode(&[0; 3], Format::Binary).is_err());
        assert!(Type::Int4.decode(&[0; 5], Format::Binary).is_err());
        assert!(Type::Uuid.decode(b"zz", Format::Text).is_err());
        let beyond = b"9999-12-31 23:59:59-12";
        for of in [Type::Date, Type::Timestamp, Type::Timestamptz] {
            assert_eq!(of.decode(beyond, Format::Text).unwrap_err().code, "22008");
        }
        assert_eq!(binary(Type::Int2, &Value::Integer(70_000)), None);
        assert_eq!(binary(Type::Date, &Value::Text("soon".into())), None);
    }

    #[test]
    fn types_are_known_by_number_name_and_declaration() {
        for (own, oid, _, name) in TYPES {
            assert_eq!((Type::from_oid(*oid), Type::from_declared(name)), (Some(*own), Some(*own)));
        }
        assert_eq!(Type::from_oid(0), None);
        assert_eq!(Type::from_declared("varchar(20)"), Some(Type::Varchar));
    }
}
