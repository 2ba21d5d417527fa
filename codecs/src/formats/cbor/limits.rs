//! A relay's limits, applied to the heads of a request before the library makes room for anything.

use super::{
    Dialect,
    item::Name,
    message::client::{COUNT, NEG_OPEN, REQ},
    strict::{Head, Heads},
};
use crate::{DecodeError, Limits, Request, model::Bounds};

const TEXT: u8 = 3;
const ARRAY: u8 = 4;

/// Counts filters and the entries of their lists in a message that [`super::strict::check`] has accepted, so that
/// verbs have one spelling and heads are what they say. Whatever is no request passes, for the library to judge.
/// Lists of unknown fields count as well.
///
/// # Errors
/// [`DecodeError::OverLimit`].
pub(super) fn check<D: Dialect>(bytes: &[u8], limits: &Limits) -> Result<(), DecodeError> {
    let mut heads = Heads::new(bytes);
    if heads.major() != Some(ARRAY) {
        return Ok(());
    }
    let Head::Items(items @ 2..) = heads.next()? else { return Ok(()) };
    let Some(request) = request::<D>(&mut heads)? else { return Ok(()) };
    if heads.major() != Some(TEXT) {
        return Ok(());
    }
    let subscription = str::from_utf8(heads.text()?).map_err(|_| DecodeError::Utf8("text"))?;
    let bounds = Bounds::new(limits, request, subscription)?;
    let filters = if request == Request::NegOpen { 1.min(items - 2) } else { items - 2 };
    bounds.filters(usize::try_from(filters).unwrap_or(usize::MAX))?;
    for _ in 0..filters {
        lists(&mut heads, &bounds)?;
    }
    Ok(())
}

/// Passes over the verb; which request it is, if it is one.
fn request<D: Dialect>(heads: &mut Heads<'_>) -> Result<Option<Request>, DecodeError> {
    let spelled = heads.major() == Some(TEXT);
    let verb = if spelled { heads.text()? } else { heads.item()? };
    let is = |Name(number, word): Name| match D::SPELLED {
        true => spelled && verb == word.as_bytes(),
        false => !spelled && verb.iter().map(|byte| u64::from(*byte)).eq([number]),
    };
    let requests = [(REQ, Request::Req), (COUNT, Request::Count), (NEG_OPEN, Request::NegOpen)];
    Ok(requests.into_iter().find(|(name, _)| is(*name)).map(|(_, request)| request))
}

/// Passes over an item, and checks the length of every array in it.
fn lists(heads: &mut Heads<'_>, bounds: &Bounds<'_>) -> Result<(), DecodeError> {
    let mut open = 1_u64;
    while open > 0 {
        let is_list = heads.major() == Some(ARRAY);
        open -= 1;
        if let Head::Items(count) = heads.next()? {
            if is_list {
                bounds.values(usize::try_from(count).unwrap_or(usize::MAX))?;
            }
            open += count; // of items that are there: the strict walk has seen them
        }
    }
    Ok(())
}
