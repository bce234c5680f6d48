//! The headers of every call of a connection: credentials, own headers, cookies.

use std::collections::BTreeMap;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::header::{AUTHORIZATION, COOKIE, SET_COOKIE, USER_AGENT};
use http::{HeaderMap, HeaderName, HeaderValue};
use parking_lot::Mutex;

use super::options::ConnectOptions;
use crate::error::{Error, Result};

const AGENT: HeaderValue = HeaderValue::from_static(concat!("forebay-flight/", env!("CARGO_PKG_VERSION")));

/// The headers of every call of a connection.
pub(crate) struct CallHeaders {
    authorization: Option<HeaderValue>,
    headers: Vec<(HeaderName, HeaderValue)>,
    /// As the server set them last. A connection is a session, and a cookie may be its name.
    cookies: Mutex<BTreeMap<String, String>>,
}

impl CallHeaders {
    pub(crate) fn new(options: &ConnectOptions) -> Self {
        Self {
            authorization: None,
            headers: options.headers.clone(),
            cookies: Mutex::new(options.cookies.clone()),
        }
    }

    pub(crate) fn bearer(&self, token: &str) -> Result<Self> {
        self.authorized(&format!("Bearer {token}"))
    }

    pub(crate) fn basic(&self, user: &str, password: &str) -> Result<Self> {
        self.authorized(&format!("Basic {}", BASE64_STANDARD.encode(format!("{user}:{password}"))))
    }

    /// A copy with this `authorization` header.
    pub(crate) fn authorized(&self, credential: &str) -> Result<Self> {
        // Without the text in the message: it is a secret.
        let mut value = HeaderValue::try_from(credential)
            .map_err(|_| Error::config("the credentials contain characters that a header cannot have"))?;
        value.set_sensitive(true);
        let cookies = Mutex::new(self.cookies.lock().clone());
        Ok(Self { authorization: Some(value), headers: self.headers.clone(), cookies })
    }

    pub(crate) fn apply(&self, headers: &mut HeaderMap) {
        headers.insert(USER_AGENT, AGENT);
        if let Some(value) = &self.authorization {
            headers.insert(AUTHORIZATION, value.clone());
        }
        for (name, value) in &self.headers {
            headers.append(name, value.clone());
        }
        let cookies = self.cookies.lock();
        if !cookies.is_empty() {
            let all: Vec<_> = cookies.iter().map(|(name, value)| format!("{name}={value}")).collect();
            if let Ok(value) = HeaderValue::try_from(all.join("; ")) {
                headers.insert(COOKIE, value);
            }
        }
    }

    pub(crate) fn store_cookies(&self, headers: &HeaderMap) {
        for set in headers.get_all(SET_COOKIE) {
            let Some((pair, attributes)) =
                set.to_str().ok().map(|set| set.split_once(';').unwrap_or((set, "")))
            else {
                continue;
            };
            let Some((name, value)) = pair.split_once('=') else { continue };
            let (name, value) = (name.trim().to_owned(), value.trim().to_owned());
            let mut cookies = self.cookies.lock();
            if is_expired(attributes) {
                cookies.remove(&name);
            } else {
                cookies.insert(name, value);
            }
        }
    }
}

/// A server removes a cookie by setting its `Max-Age` to zero.
fn is_expired(attributes: &str) -> bool {
    attributes.split(';').any(|attribute| {
        let (name, value) = attribute.split_once('=').unwrap_or((attribute, ""));
        name.trim().eq_ignore_ascii_case("max-age") && value.trim().parse::<i64>().is_ok_and(|age| age <= 0)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(call: &CallHeaders) -> HeaderMap {
        let mut headers = HeaderMap::new();
        call.apply(&mut headers);
        headers
    }

    #[test]
    fn cookies_are_stored_changed_and_removed() {
        let options = ConnectOptions::new("grpc://localhost:1").unwrap().cookie("first", "1");
        let call = CallHeaders::new(&options);
        let mut answer = HeaderMap::new();
        for set in ["sid=abc; Path=/; HttpOnly", "lang=de"] {
            answer.append(SET_COOKIE, HeaderValue::from_static(set));
        }
        call.store_cookies(&answer);
        assert_eq!(sent(&call)[COOKIE], "first=1; lang=de; sid=abc");
        answer.clear();
        answer.append(SET_COOKIE, HeaderValue::from_static("sid=; Max-Age=0"));
        answer.append(SET_COOKIE, HeaderValue::from_static("lang=en"));
        answer.append(SET_COOKIE, HeaderValue::from_static("no cookie at all"));
        call.store_cookies(&answer);
        assert_eq!(sent(&call)[COOKIE], "first=1; lang=en");
    }

    #[test]
    fn credentials_are_sent_and_marked_as_secret() {
        let call = CallHeaders::new(&ConnectOptions::new("grpc://localhost:1").unwrap());
        assert!(!sent(&call).contains_key(AUTHORIZATION));
        let headers = sent(&call.basic("me", "pass").unwrap());
        assert_eq!(headers[AUTHORIZATION], "Basic bWU6cGFzcw==");
        assert!(headers[AUTHORIZATION].is_sensitive());
        assert_eq!(sent(&call.bearer("abc").unwrap())[AUTHORIZATION], "Bearer abc");
        let error = call.bearer("abc\n").err().unwrap().to_string();
        assert!(!error.contains("abc"), "{error}");
    }
}
