//! The grammar of `Sec-WebSocket-Extensions` (RFC 6455 §9.1).

/// One element of the header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Extension<'a> {
    pub(crate) name: &'a str,
    /// Values are owned because quoted ones lose their backslashes.
    pub(crate) parameters: Vec<(&'a str, Option<String>)>,
}

/// The elements of a header.
///
/// # Errors
/// Names the expected element, and the position.
pub(crate) fn parse(header: &str) -> Result<Vec<Extension<'_>>, String> {
    let mut cursor = Cursor { rest: header };
    let mut list = Vec::new();
    loop {
        // RFC 7230 §7: recipients of a list accept empty elements.
        while cursor.take(',') {}
        if cursor.is_done() {
            return Ok(list);
        }
        let name = cursor.token()?;
        let mut parameters = Vec::new();
        while cursor.take(';') {
            let name = cursor.token()?;
            let value = if cursor.take('=') { Some(cursor.value()?) } else { None };
            parameters.push((name, value));
        }
        list.push(Extension { name, parameters });
        if !cursor.is_done() && !cursor.take(',') {
            return Err(cursor.malformed("a comma"));
        }
    }
}

/// Reads the header from left to right and skips white space between elements.
struct Cursor<'a> {
    rest: &'a str,
}

impl<'a> Cursor<'a> {
    fn is_done(&mut self) -> bool {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
        self.rest.is_empty()
    }

    fn take(&mut self, symbol: char) -> bool {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
        match self.rest.strip_prefix(symbol) {
            Some(rest) => {
                self.rest = rest;
                true
            }
            None => false,
        }
    }

    fn token(&mut self) -> Result<&'a str, String> {
        self.rest = self.rest.trim_start_matches([' ', '\t']);
        let len = self.rest.bytes().position(|byte| !is_token_byte(byte)).unwrap_or(self.rest.len());
        if len == 0 {
            return Err(self.malformed("a name"));
        }
        let (token, rest) = self.rest.split_at(len);
        self.rest = rest;
        Ok(token)
    }

    /// A token, or a quoted string whose content is a token (RFC 6455 §9.1).
    fn value(&mut self) -> Result<String, String> {
        if !self.take('"') {
            return self.token().map(str::to_owned);
        }
        let mut value = String::new();
        let mut chars = self.rest.char_indices();
        while let Some((at, char)) = chars.next() {
            let char = match char {
                '"' if !value.is_empty() => {
                    self.rest = &self.rest[at + 1..];
                    return Ok(value);
                }
                '\\' => chars.next().map_or('"', |(_, escaped)| escaped),
                char => char,
            };
            if !char.is_ascii() || !u8::try_from(char).is_ok_and(is_token_byte) {
                break;
            }
            value.push(char);
        }
        Err(self.malformed("a quoted token"))
    }

    fn malformed(&self, expected: &str) -> String {
        let rest: String = self.rest.chars().take(40).collect();
        format!("malformed Sec-WebSocket-Extensions: expected {expected} at {rest:?}")
    }
}

/// `tchar` of RFC 7230 §3.2.6.
fn is_token_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte)
}
