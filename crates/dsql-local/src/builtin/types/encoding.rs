//! Encodes and decodes values for the wire.

use bytes::{Buf, BufMut, BytesMut};
use rusqlite::types::{Value, ValueRef};
use time::OffsetDateTime;
use uuid::Uuid;

use super::Type;
use crate::builtin::dates::{self, DateError};
use crate::builtin::numeric;
use crate::error::SqlError;
use crate::wire::Format;

impl Type {
    fn moment(self, text: &str) -> Result<OffsetDateTime, SqlError> {
        dates::parse(text).map_err(|problem| match problem {
            DateError::Form => self.invalid(text),
            DateError::Range => SqlError::new("22008", format!("{} out of range: \"{text}\"", self.name())),
        })
    }

    /// Decodes a parameter for SQLite.
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

    /// Returns none if the length does not fit the type.
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
                Value::Text(Uuid::from_bytes(raw).to_string())
            }
            Self::Bytea => Value::Blob(std::mem::take(&mut bytes).to_vec()),
            Self::Numeric | Self::Time => {
                return Some(Err(SqlError::unsupported(format!(
                    "the builtin engine takes parameters of type {} in text form only",
                    self.name()
                ))));
            }
            Self::Jsonb => {
                // The format has a version number in front.
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

    /// Encodes a value that SQLite returned.
    pub(crate) fn encode(
        self,
        value: ValueRef<'_>,
        format: Format,
        out: &mut BytesMut,
    ) -> Result<(), SqlError> {
        // SQLite computes in 64 bits and then in doubles, so a value may be out of range.
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
                .hint("the builtin engine stores values as written; cast the value, or request text")
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
                out.put_slice(hex::encode(bytes).as_bytes());
            }
        }
    }

    /// Returns none if the value is not of this type.
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
            Self::Uuid => out.put_slice(&hex::decode(text()?.replace('-', "")).ok()?),
            Self::Numeric => numeric::encode(value, out)?,
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

/// Decodes `\x...`, or text without escapes.
pub(crate) fn bytea(text: &str) -> Option<Vec<u8>> {
    match text.strip_prefix("\\x") {
        Some(digits) => hex::decode(digits).ok(),
        None if text.contains('\\') => None,
        None => Some(text.as_bytes().to_vec()),
    }
}

fn uuid(text: &str) -> Option<String> {
    let digits: String = text.chars().filter(|letter| !matches!(letter, '-' | '{' | '}')).collect();
    Uuid::try_parse(&digits).ok().map(|uuid| uuid.to_string())
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
    fn a_value_of_the_wrong_type_is_refused_with_a_message() {
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
}
