//! Connect tokens: SigV4 presigned URLs without their scheme.

mod denial;

use std::time::Duration;

use hmac::Mac;
use percent_encoding::percent_decode_str;
use time::format_description::BorrowedFormatItem;
use time::macros::format_description;
use time::{OffsetDateTime, PrimitiveDateTime};

use crate::clock;
use crate::credentials::Credentials;
use crate::sigv4::{self, ALGORITHM, Presigned, Scope, TERMINATOR};
pub use denial::Denial;

/// The longest validity of a token: a week.
pub const LONGEST_LIFE: Duration = Duration::from_secs(604_800);
/// How far a signer's clock may be ahead.
const SKEW: Duration = Duration::from_secs(5 * 60);
const SERVICE: &str = "dsql";
const STAMP: &[BorrowedFormatItem<'_>] = format_description!("[year][month][day]T[hour][minute][second]Z");

/// What a token allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// To connect as a database role.
    Connect,
    /// To connect as `admin`.
    ConnectAdmin,
}

impl Action {
    /// The action that a role needs.
    #[must_use]
    pub fn for_role(role: &str) -> Self {
        if role == "admin" { Self::ConnectAdmin } else { Self::Connect }
    }

    fn text(self) -> &'static str {
        match self {
            Self::Connect => "DbConnect",
            Self::ConnectAdmin => "DbConnectAdmin",
        }
    }
}

/// What a token must be signed for, and the keys that may sign it.
#[derive(Clone, Debug)]
pub struct TokenVerifier {
    /// The host, without a port.
    pub host: String,
    /// The region.
    pub region: String,
    /// The keys.
    pub keys: Vec<Credentials>,
}

impl TokenVerifier {
    /// Checks whether `token` admits `role` at `now` (time since 1970). Expiry is checked after the
    /// signature, because the client gets a hint about it.
    ///
    /// # Errors
    /// Why the token is denied.
    pub fn check(&self, token: &str, role: &str, now: Duration) -> Result<(), Denial> {
        let (host, query) = token.split_once("/?").ok_or(Denial::Malformed("no query"))?;
        let mut query = decode(query)?;
        let signature = take(&mut query, "X-Amz-Signature")?;
        let one = |name: &str| field(&query, name);
        if one("X-Amz-Algorithm")? != ALGORITHM || one("X-Amz-SignedHeaders")? != "host" {
            return Err(Denial::Malformed("the algorithm or the signed headers are wrong"));
        }
        let credential: Vec<&str> = one("X-Amz-Credential")?.split('/').collect();
        let [key, day, region, service, TERMINATOR] = credential[..] else {
            return Err(Denial::Malformed("the scope does not have five parts"));
        };
        let date = one("X-Amz-Date")?;
        let signed_at = parse_stamp(date).ok_or(Denial::Malformed("no valid date"))?;
        // Digits only: Rust would accept a sign.
        let life = Some(one("X-Amz-Expires")?).filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
        let life =
            life.and_then(|text| text.parse().ok()).ok_or(Denial::Malformed("no valid X-Amz-Expires"))?;
        let life = Duration::from_secs(life);
        if life.is_zero() || life > LONGEST_LIFE {
            return Err(Denial::Malformed("it is valid for no time or for more than a week"));
        }
        if !host.eq_ignore_ascii_case(&self.host) {
            return Err(Denial::Host);
        }
        if region != self.region {
            return Err(Denial::Region);
        }
        if service != SERVICE || date.get(..8) != Some(day) {
            return Err(Denial::Scope);
        }
        if one("Action")? != Action::for_role(role).text() {
            return Err(Denial::Action);
        }
        let credentials = self.keys.iter().find(|known| known.access_key_id == key).ok_or(Denial::Key)?;
        let session = query.iter().find(|(name, _)| name == "X-Amz-Security-Token").map(|(_, value)| value);
        if session != credentials.session_token.as_ref() {
            return Err(Denial::Key);
        }
        let request = Presigned { host, query: &query, date, scope: Scope { day, region, service } };
        // The service accepts lower-case digits only.
        let digits = Some(signature).filter(|text| !text.bytes().any(|byte| byte.is_ascii_uppercase()));
        let signature = digits.and_then(|text| hex::decode(text).ok());
        let signature = signature.ok_or(Denial::Malformed("the signature is not hexadecimal"))?;
        let mac = request.mac(&credentials.secret_access_key);
        mac.verify_slice(&signature).map_err(|_| Denial::Signature)?;
        current(date, signed_at, life, now)
    }
}

/// Signs a token with the current date; see [`sign`].
#[must_use]
pub fn sign_now(
    credentials: &Credentials,
    host: &str,
    region: &str,
    action: Action,
    life: Duration,
) -> String {
    sign(credentials, host, region, action, clock::real_date(), life)
}

/// Signs a token as a client would.
#[must_use]
pub fn sign(
    credentials: &Credentials,
    host: &str,
    region: &str,
    action: Action,
    date: Duration,
    life: Duration,
) -> String {
    let date = stamp(date);
    let scope = Scope { day: &date[..8], region, service: SERVICE };
    let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
    let mut query = vec![
        pair("Action", action.text()),
        pair("X-Amz-Algorithm", ALGORITHM),
        pair("X-Amz-Credential", &format!("{}/{}", credentials.access_key_id, scope.text())),
        pair("X-Amz-Date", &date),
        pair("X-Amz-Expires", &life.as_secs().to_string()),
        pair("X-Amz-SignedHeaders", "host"),
    ];
    query.extend(credentials.session_token.as_deref().map(|token| pair("X-Amz-Security-Token", token)));
    let request = Presigned { host, query: &query, date: &date, scope };
    let signature = hex::encode(request.mac(&credentials.secret_access_key).finalize().into_bytes());
    format!("{host}/?{}&X-Amz-Signature={signature}", sigv4::canonical_query(&query))
}

/// Checks the dates in whole seconds, because a token has no fractions.
fn current(date: &str, signed_at: Duration, life: Duration, now: Duration) -> Result<(), Denial> {
    let now = Duration::from_secs(now.as_secs());
    let end = signed_at + life;
    if now > end {
        let (end, now) = (stamp(end), stamp(now));
        return Err(Denial::Expired(format!(
            "Signature expired: {date} is now earlier than {now}; it was good until {end}"
        )));
    }
    if signed_at > now + SKEW {
        let (limit, now) = (stamp(now + SKEW), stamp(now));
        return Err(Denial::NotYet(format!(
            "Signature not yet current: {date} is still later than {limit} ({now} + 5 min.)"
        )));
    }
    Ok(())
}

fn decode(query: &str) -> Result<Vec<(String, String)>, Denial> {
    let text = |part: &str| {
        let decoded = percent_decode_str(part).decode_utf8();
        decoded.map(std::borrow::Cow::into_owned).map_err(|_| Denial::Malformed("not UTF-8"))
    };
    let pair = |pair: &str| {
        let (name, value) = pair.split_once('=').ok_or(Denial::Malformed("a parameter has no value"))?;
        Ok((text(name)?, text(value)?))
    };
    query.split('&').map(pair).collect()
}

/// The value of a name; a repeated name would be ambiguous.
fn field<'a>(query: &'a [(String, String)], name: &str) -> Result<&'a str, Denial> {
    let mut values = query.iter().filter(|(found, _)| found == name).map(|(_, value)| value.as_str());
    match (values.next(), values.next()) {
        (Some(value), None) => Ok(value),
        (None, _) => Err(Denial::Malformed("a field is missing")),
        (Some(_), Some(_)) => Err(Denial::Malformed("a field is repeated")),
    }
}

fn take(query: &mut Vec<(String, String)>, name: &str) -> Result<String, Denial> {
    let value = field(query, name)?.to_owned();
    query.retain(|(found, _)| found != name);
    Ok(value)
}

fn stamp(date: Duration) -> String {
    let seconds = i64::try_from(date.as_secs()).unwrap_or(0);
    let date = OffsetDateTime::from_unix_timestamp(seconds).unwrap_or(OffsetDateTime::UNIX_EPOCH);
    date.format(STAMP).unwrap_or_default()
}

fn parse_stamp(text: &str) -> Option<Duration> {
    let date = PrimitiveDateTime::parse(text, STAMP).ok()?.assume_utc().unix_timestamp();
    u64::try_from(date).ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::SqlError;

    const HOST: &str = "abc.dsql.us-east-1.on.aws";
    const NOW: Duration = Duration::from_secs(1_770_000_000);
    const LIFE: Duration = Duration::from_secs(900);

    fn keys() -> Credentials {
        Credentials::new("AKIDEXAMPLE", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY")
    }

    fn verifier() -> TokenVerifier {
        TokenVerifier { host: HOST.to_owned(), region: "us-east-1".to_owned(), keys: vec![keys()] }
    }

    fn token() -> String {
        sign(&keys(), HOST, "us-east-1", Action::ConnectAdmin, NOW, LIFE)
    }

    #[test]
    fn a_token_is_good_for_its_host_region_action_and_key_only() {
        assert_eq!(verifier().check(&token(), "admin", NOW), Ok(()));
        assert_eq!(verifier().check(&token(), "app", NOW), Err(Denial::Action));
        let elsewhere =
            sign(&keys(), "xyz.dsql.us-east-1.on.aws", "us-east-1", Action::ConnectAdmin, NOW, LIFE);
        assert_eq!(verifier().check(&elsewhere, "admin", NOW), Err(Denial::Host));
        let with_port = sign(&keys(), &format!("{HOST}:5432"), "us-east-1", Action::ConnectAdmin, NOW, LIFE);
        assert_eq!(verifier().check(&with_port, "admin", NOW), Err(Denial::Host));
        let region = sign(&keys(), HOST, "us-west-2", Action::ConnectAdmin, NOW, LIFE);
        assert_eq!(verifier().check(&region, "admin", NOW), Err(Denial::Region));
        let stranger = Credentials::new("AKIDOTHER", "x");
        let stranger = sign(&stranger, HOST, "us-east-1", Action::ConnectAdmin, NOW, LIFE);
        assert_eq!(verifier().check(&stranger, "admin", NOW), Err(Denial::Key));
        let forger = Credentials::new("AKIDEXAMPLE", "x");
        let forged = sign(&forger, HOST, "us-east-1", Action::ConnectAdmin, NOW, LIFE);
        assert_eq!(verifier().check(&forged, "admin", NOW), Err(Denial::Signature));
        for denial in [Denial::Host, Denial::Region, Denial::Action, Denial::Key, Denial::Signature] {
            assert_eq!(denial.refusal(), SqlError::access_denied());
        }
    }

    /// Created by boto3 1.44 at this date, so that signer and verifier cannot share a mistake.
    #[test]
    fn tokens_of_boto3_are_accepted() {
        let scope = "AKIDEXAMPLE%2F20260202%2Fus-east-1%2Fdsql%2Faws4_request&X-Amz-Date=20260202T024000Z&X-Amz-Expires=900";
        let plain = format!(
            "{HOST}/?Action=DbConnect&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={scope}&X-Amz-SignedHeaders=host\
             &X-Amz-Signature=e77f55e49a4ff700ab507e5c3bab71130f774e33dfa21f92c54fce169dd0e632"
        );
        assert_eq!(verifier().check(&plain, "app", NOW), Ok(()));
        assert_eq!(sign(&keys(), HOST, "us-east-1", Action::Connect, NOW, LIFE), plain);
        let temporary = format!(
            "{HOST}/?Action=DbConnectAdmin&X-Amz-Algorithm=AWS4-HMAC-SHA256&X-Amz-Credential={scope}&X-Amz-SignedHeaders=host\
             &X-Amz-Security-Token=one%2Ftwo%2Bthree%3D\
             &X-Amz-Signature=92c93e3df378246777383f950cf17192ce4c1762d3d10c073c0bd6d7edbd6e64"
        );
        let verifier =
            TokenVerifier { keys: vec![keys().with_session_token("one/two+three=")], ..verifier() };
        assert_eq!(verifier.check(&temporary, "admin", NOW), Ok(()));
    }

    #[test]
    fn a_token_is_expired_after_one_second_and_has_the_hint() {
        assert_eq!(verifier().check(&token(), "admin", NOW + LIFE), Ok(()));
        let late = verifier().check(&token(), "admin", NOW + LIFE + Duration::from_secs(1)).unwrap_err();
        let hint = late.refusal().hint.unwrap();
        assert!(hint.starts_with("Signature expired: 20260202T024000Z is now earlier than"), "{hint}");
        let early = verifier().check(&token(), "admin", NOW - SKEW - Duration::from_secs(1)).unwrap_err();
        assert!(early.refusal().hint.unwrap().starts_with("Signature not yet current: "), "{early}");
        assert_eq!(verifier().check(&token(), "admin", NOW - SKEW), Ok(()));
    }

    #[test]
    fn the_session_token_must_match() {
        let temporary = keys().with_session_token("one/two+three=");
        let verifier = TokenVerifier { keys: vec![temporary.clone()], ..verifier() };
        let token_with = sign(&temporary, HOST, "us-east-1", Action::ConnectAdmin, NOW, LIFE);
        assert_eq!(verifier.check(&token_with, "admin", NOW), Ok(()));
        assert_eq!(verifier.check(&token(), "admin", NOW), Err(Denial::Key));
    }

    /// Correctly signed, but with a day or validity that no signer writes.
    #[test]
    fn a_token_needs_a_day_of_eight_digits_and_a_validity_without_sign() {
        let signed = |day: &str, life: &str| {
            let date = stamp(NOW);
            let scope = Scope { day, region: "us-east-1", service: SERVICE };
            let query: Vec<(String, String)> = [
                ("Action", "DbConnectAdmin"),
                ("X-Amz-Algorithm", ALGORITHM),
                ("X-Amz-Credential", &format!("AKIDEXAMPLE/{}", scope.text())),
                ("X-Amz-Date", &date),
                ("X-Amz-Expires", life),
                ("X-Amz-SignedHeaders", "host"),
            ]
            .map(|(name, value)| (name.to_owned(), value.to_owned()))
            .to_vec();
            let request = Presigned { host: HOST, query: &query, date: &date, scope };
            let signature = hex::encode(request.mac(&keys().secret_access_key).finalize().into_bytes());
            let token = format!("{HOST}/?{}&X-Amz-Signature={signature}", sigv4::canonical_query(&query));
            verifier().check(&token, "admin", NOW)
        };
        assert_eq!(signed("20260202", "900"), Ok(()));
        for day in ["", "2026", "2026020", "20260202T", "20260203"] {
            assert_eq!(signed(day, "900"), Err(Denial::Scope), "{day}");
        }
        assert_eq!(signed("20260202", "+900"), Err(Denial::Malformed("no valid X-Amz-Expires")));
    }

    #[test]
    fn what_is_no_token_is_denied() {
        let token = token();
        let week = sign(&keys(), HOST, "us-east-1", Action::ConnectAdmin, NOW, LONGEST_LIFE + LIFE);
        let twice = format!("{token}&Action=DbConnectAdmin");
        let (rest, digits) = token.rsplit_once('=').unwrap();
        let upper = format!("{rest}={}", digits.to_ascii_uppercase());
        let other = token.replace("Signature=", "Signature=g");
        for bad in [
            "",
            "password",
            "host/?",
            "host/?a",
            "host/?a=%ff",
            &token[..token.len() - 70],
            &week,
            &twice,
            &upper,
            &other,
        ] {
            let denial = verifier().check(bad, "admin", NOW).unwrap_err();
            assert_eq!(denial.refusal(), SqlError::access_denied(), "{bad}");
        }
        // Changing any signed part breaks the signature.
        for (from, to) in [("20260202T024000Z", "20260202T024001Z"), ("=900", "=901"), ("/?", "/?x=y&")] {
            assert_eq!(verifier().check(&token.replacen(from, to, 1), "admin", NOW), Err(Denial::Signature));
        }
    }
}
