//! A relay's limits, applied to the heads of a request before the library makes room for anything.

use super::{
    Dialect,
    head::{ARRAY, Item, TEXT, UINT, major, read_argument, read_item, read_whole},
    item::Name,
    message::client::{COUNT, NEG_OPEN, REQ},
};
use crate::{DecodeError, Limits, Request, model::Bounds, reader::Reader};

/// Counts filters and the entries of their lists in a message that [`super::strict::check`] has
/// accepted, so verbs have one spelling and heads are true. Everything else passes; the library
/// judges it. Lists of unknown fields count as well.
///
/// # Errors
/// [`DecodeError::OverLimit`].
pub(super) fn check<D: Dialect>(bytes: &[u8], limits: &Limits) -> Result<(), DecodeError> {
    let mut reader = Reader::new(bytes);
    if major(&reader) != Some(ARRAY) {
        return Ok(());
    }
    let Item::Items(items @ 2..) = read_item(&mut reader)? else { return Ok(()) };
    let Some(request) = request::<D>(&mut reader)? else { return Ok(()) };
    if major(&reader) != Some(TEXT) {
        return Ok(());
    }
    let bounds = Bounds::new(limits, request, read_text(&mut reader)?)?;
    let filters = if request == Request::NegOpen { 1.min(items - 2) } else { items - 2 };
    bounds.filters(usize::try_from(filters).unwrap_or(usize::MAX))?;
    for _ in 0..filters {
        read_whole(&mut reader, |count| Ok(bounds.values(usize::try_from(count).unwrap_or(usize::MAX))?))?;
    }
    Ok(())
}

/// Passes over the verb; which request it is, if it is one.
fn request<D: Dialect>(reader: &mut Reader<'_>) -> Result<Option<Request>, DecodeError> {
    let requests = [(REQ, Request::Req), (COUNT, Request::Count), (NEG_OPEN, Request::NegOpen)];
    let find = |is: &dyn Fn(Name) -> bool| {
        Ok(requests.into_iter().find(|(name, _)| is(*name)).map(|(_, request)| request))
    };
    match (major(reader), D::SPELLED) {
        (Some(TEXT), true) => {
            let word = read_text(reader)?;
            find(&|name| name.1 == word)
        }
        (Some(UINT), false) => {
            let number = read_argument(reader, UINT, "verb")?;
            find(&|name| name.0 == number)
        }
        _ => Ok(None), // no verb of this dialect
    }
}

fn read_text<'a>(reader: &mut Reader<'a>) -> Result<&'a str, DecodeError> {
    let length = read_argument(reader, TEXT, "text")?;
    reader.text(length, "text")
}
