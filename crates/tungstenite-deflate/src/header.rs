//! The grammar of `Sec-WebSocket-Extensions` (RFC 6455 §9.1).

/// One element of the header.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Extension<'a> {
    pub(crate) name: &'a str,
    /// Values are owned because quoted ones lose their backslashes.
    pub(crate) parameters: Vec<(&'a str, Option<String>)>,
}

/// The elements of a header. Values are tokens in quotes, too, so no quotes hold a comma or a semicolon.
///
/// # Errors
/// Names what is no token.
pub(crate) fn parse(header: &str) -> Result<Vec<Extension<'_>>, String> {
    // RFC 9110 §5.6.1: recipients of a list accept empty elements.
    header.split(',').filter(|element| !element.trim_matches(SPACES).is_empty()).map(extension).collect()
}

fn extension(element: &str) -> Result<Extension<'_>, String> {
    let mut parts = element.split(';');
    let name = token(parts.next().unwrap_or_default())?;
    Ok(Extension { name, parameters: parts.map(parameter).collect::<Result<_, _>>()? })
}

fn parameter(text: &str) -> Result<(&str, Option<String>), String> {
    match text.split_once('=') {
        Some((name, value)) => Ok((token(name)?, Some(unquoted(value)?))),
        None => Ok((token(text)?, None)),
    }
}

/// A token, or the token in a quoted string, where a backslash may precede each letter.
fn unquoted(value: &str) -> Result<String, String> {
    let Some(quoted) = value.trim_matches(SPACES).strip_prefix('"') else {
        return token(value).map(str::to_owned);
    };
    let inside = quoted.strip_suffix('"').ok_or_else(|| malformed(value))?;
    let (mut plain, mut chars) = (String::new(), inside.chars());
    while let Some(char) = chars.next() {
        // A backslash at the end takes the quote away.
        plain.push(if char == '\\' { chars.next().unwrap_or('"') } else { char });
    }
    if is_token(&plain) { Ok(plain) } else { Err(malformed(value)) }
}

fn token(text: &str) -> Result<&str, String> {
    let text = text.trim_matches(SPACES);
    if is_token(text) { Ok(text) } else { Err(malformed(text)) }
}

fn malformed(text: &str) -> String {
    format!("malformed Sec-WebSocket-Extensions: {:?} is no token", &text[..text.floor_char_boundary(40)])
}

const SPACES: [char; 2] = [' ', '\t'];

/// Letters are `tchar` of RFC 7230 §3.2.6.
fn is_token(text: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    !text.is_empty() && text.bytes().all(is_letter)
}
