//! Header fields that a user adds to requests to a relay, shown without their values.

use std::str::FromStr;

use http::{HeaderName, HeaderValue};

/// Fields of the handshake itself (RFC 6455 §4.1), of the body that no request has, and of NIP-11.
const OWN: [&str; 7] =
    ["host", "connection", "upgrade", "content-length", "transfer-encoding", "expect", "accept"];

/// Begins the names of further fields of the handshake.
const OWN_PREFIX: &str = "sec-websocket-";

/// A header field of requests to a relay, written `NAME=VALUE` on command lines. The value may be a
/// secret: whatever is shown has the name alone.
///
/// ```
/// let header: terms::Header = "X-Api-Key=s3cret".parse().unwrap();
/// assert_eq!(header.to_string(), "X-Api-Key");
/// assert_eq!(header.with_value(), "X-Api-Key=s3cret");
/// ```
#[derive(derive_more::Debug, derive_more::Display, Clone, PartialEq, Eq)]
#[debug("Header({name})")]
#[display("{name}")]
pub struct Header {
    /// As the user gave it. Names have no case (RFC 9110 §5.1), but the path may have.
    name: String,
    value: String,
}

/// Why a text is no header field, or not one for these requests. It repeats no value.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// There is no `=`.
    #[error("expected NAME=VALUE, as in X-Api-Key=abc")]
    NoValue,
    /// The part before the `=` is none, and may be a part of a value.
    #[error(
        "what stands before the = is no field name (RFC 9110 §5.1); expected NAME=VALUE, as in X-Api-Key=abc"
    )]
    Name,
    /// A character that ends a header, or is none of one.
    #[error("the value of {0} has a control character, which RFC 9110 §5.5 forbids")]
    Value(String),
    /// One that the requests have themselves, or that HTTP forbids in them.
    #[error("{0} is not for users to set in these requests: leave it out")]
    Own(String),
    /// Given more than once.
    #[error("{0} is given twice: a list is one value with commas (RFC 9110 §5.3)")]
    Twice(String),
    /// Also from user and password of the URL.
    #[error("{0} follows from user and password of the URL, too: leave out either")]
    OfUrl(String),
}

impl Header {
    /// The name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Whether it has this name, in any case.
    pub fn is(&self, name: &str) -> bool {
        self.name.eq_ignore_ascii_case(name)
    }

    /// The value, for requests alone.
    pub fn value(&self) -> &str {
        &self.value
    }

    /// As the user gave it: for a process that connects to the relay, not for records.
    pub fn with_value(&self) -> String {
        format!("{}={}", self.name, self.value)
    }

    /// Refuses names that are given twice.
    ///
    /// # Errors
    /// [`HeaderError::Twice`].
    pub fn distinct(headers: &[Header]) -> Result<(), HeaderError> {
        let again =
            headers.iter().enumerate().find(|(n, one)| headers[..*n].iter().any(|two| two.is(&one.name)));
        again.map_or(Ok(()), |(_, header)| Err(HeaderError::Twice(header.name.clone())))
    }
}

impl FromStr for Header {
    type Err = HeaderError;

    fn from_str(text: &str) -> Result<Header, HeaderError> {
        let (name, value) = text.split_once('=').ok_or(HeaderError::NoValue)?;
        let parsed = HeaderName::from_bytes(name.as_bytes()).map_err(|_| HeaderError::Name)?;
        if OWN.contains(&parsed.as_str()) || parsed.as_str().starts_with(OWN_PREFIX) {
            return Err(HeaderError::Own(name.to_owned()));
        }
        // Spaces around it are none of the value.
        let value = value.trim_matches([' ', '\t']);
        let (name, value) = (name.to_owned(), value.to_owned());
        match HeaderValue::from_bytes(value.as_bytes()) {
            Ok(_) => Ok(Header { name, value }),
            Err(_) => Err(HeaderError::Value(name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_and_values_are_those_of_http_and_values_are_never_shown() {
        for (text, name, value) in [
            ("X-Api-Key=s3cret", "X-Api-Key", "s3cret"),
            ("Cookie=session=s3cret; a=b", "Cookie", "session=s3cret; a=b"),
            ("x=  s3cret\t ", "x", "s3cret"),
            ("x=s3crét \t y", "x", "s3crét \t y"),
            ("!#$%&'*+-.^_`|~9=s3cret", "!#$%&'*+-.^_`|~9", "s3cret"),
            ("Origin=", "Origin", ""),
        ] {
            let header: Header = text.parse().unwrap();
            assert_eq!((header.name(), header.value()), (name, value), "{text}");
            assert_eq!(header.with_value(), format!("{name}={value}"));
            assert_eq!(header.with_value().parse(), Ok(header.clone()), "a process is given what was given");
            assert_eq!(format!("{header} {header:?}"), format!("{name} Header({name})"));
        }
    }

    #[test]
    fn what_is_no_header_of_these_requests_is_refused_without_its_value() {
        for (text, why) in [
            ("s3cret", "expected NAME=VALUE"),
            ("", "expected NAME=VALUE"),
            ("=s3cret", "no field name"),
            ("Schlüssel=s3cret", "no field name"),
            ("x\r\ny=s3cret", "no field name"),
            ("x=s3cret\r\ny: z", "value of x has a control character"),
            ("x=s3cret\0", "value of x has a control character"),
            ("x=s3cret\u{7f}", "value of x has a control character"),
            ("Host=s3cret", "Host is not for users to set"),
            ("HOST=s3cret", "HOST is not for users to set"),
            ("Transfer-Encoding=s3cret", "Transfer-Encoding is not for users to set"),
            ("sec-websocket-anything=s3cret", "sec-websocket-anything is not for users to set"),
        ] {
            let error = text.parse::<Header>().unwrap_err().to_string();
            assert!(error.contains(why) && !error.contains("s3cret"), "{text:?}: {error}");
        }
    }
}
