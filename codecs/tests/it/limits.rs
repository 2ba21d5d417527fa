//! A relay's limits end a request while it is read, in every format and implementation: at the
//! first entry too many, and before there is room for it.

use allocation_counter::measure;
use codecs::{ClientMessage, DecodeError, Filter, Limit, Limits, OverLimit, Request, TagFilter};

use crate::common::{self, Subject, subjects};

const LIMITS: Limits = Limits {
    max_filters: 3,
    max_filter_values: 5,
    max_subscription_chars: 8,
    max_unpacked_bytes: usize::MAX,
};

/// Memory that an error and a few entries may take. A frame of those below has a hundred times as
/// much.
const MAX_BYTES: u64 = 8 << 10;

/// Filters with one list of so many entries, a list each.
fn lists(entries: usize) -> [Filter; 4] {
    let keys = || Some(vec![[7; 32]; entries]);
    let values = vec!["value".to_owned(); entries];
    [
        Filter { ids: keys(), ..Filter::default() },
        Filter { authors: keys(), limit: Some(1), ..Filter::default() },
        Filter { kinds: Some(vec![7; entries]), ..Filter::default() },
        Filter { tags: vec![TagFilter { letter: 't', values }], ..Filter::default() },
    ]
}

fn message(request: Request, subscription: &str, filters: &[Filter]) -> ClientMessage<'static> {
    let (subscription, mut filters) = (subscription.to_owned().into(), filters.to_vec());
    match request {
        Request::Req => ClientMessage::Req { subscription, filters },
        Request::Count => ClientMessage::Count { subscription, filters },
        Request::NegOpen => {
            let filter = filters.pop().unwrap();
            ClientMessage::NegOpen { subscription, filter, message: vec![0x61].into() }
        }
    }
}

fn is_read(subject: &Subject, message: &ClientMessage<'_>) {
    let bytes = subject.client(message).unwrap();
    let read = subject.codec.decode_client_within(&bytes, &LIMITS).map(ClientMessage::into_owned);
    assert_eq!(read.as_ref(), Ok(message), "{}", subject.label);
}

fn is_refused(subject: &Subject, message: &ClientMessage<'_>, request: Request, limit: Limit) {
    let bytes = subject.client(message).unwrap();
    let expected = OverLimit { limit, request, subscription: "sub-äöü1".to_owned() };
    let expected = Err(DecodeError::OverLimit(Box::new(expected)));
    let mut read = None;
    let peak = measure(|| read = Some(subject.codec.decode_client_within(&bytes, &LIMITS))).bytes_max;
    assert_eq!(read.unwrap(), expected, "{}", subject.label);
    // The packed form is unpacked first, as far as its own bound.
    let is_packed = subject.format.name() == "capnp-packed";
    let max = if is_packed { MAX_BYTES + 16 * bytes.len() as u64 } else { MAX_BYTES };
    assert!(peak <= max, "{}: {peak} bytes for {limit:?} in {} bytes", subject.label, bytes.len());
}

#[test]
fn a_request_at_every_limit_is_read() {
    for subject in subjects() {
        for request in [Request::Req, Request::Count, Request::NegOpen] {
            for filter in lists(LIMITS.max_filter_values) {
                is_read(&subject, &message(request, "sub-äöü1", &[filter]));
            }
        }
        let lists = lists(LIMITS.max_filter_values);
        is_read(&subject, &message(Request::Req, "s", &lists[..LIMITS.max_filters]));
        is_read(&subject, &message(Request::Count, "s", &vec![Filter::default(); LIMITS.max_filters]));
    }
}

/// Also frames of up to a mebibyte, of which nothing is kept.
#[test]
fn one_entry_too_many_is_refused_by_name_and_has_taken_no_room() {
    for subject in subjects() {
        // As long as the envelope can say; elsewhere the whole frame.
        let is_short = common::ENVELOPE.contains(&subject.format.name());
        let long = format!("sub-äöü1{}", "x".repeat(if is_short { 200 } else { 1_000_000 }));
        for request in [Request::Req, Request::Count, Request::NegOpen] {
            let limit = Limit::FilterValues(LIMITS.max_filter_values);
            for filter in [LIMITS.max_filter_values + 1, 10_000].into_iter().flat_map(lists) {
                is_refused(&subject, &message(request, "sub-äöü1", &[filter]), request, limit);
            }
            let limit = Limit::SubscriptionChars(LIMITS.max_subscription_chars);
            for subscription in ["sub-äöü12", &long] {
                is_refused(&subject, &message(request, subscription, &lists(1)), request, limit);
            }
            let limit = Limit::Filters(LIMITS.max_filters);
            for count in [LIMITS.max_filters + 1, 4_096].into_iter().filter(|_| request != Request::NegOpen) {
                let filters = vec![Filter { limit: Some(1), ..Filter::default() }; count];
                is_refused(&subject, &message(request, "sub-äöü1", &filters), request, limit);
            }
        }
    }
}

/// The bound that every format has is a limit like the others.
#[test]
fn without_limits_a_request_has_4096_filters() {
    let request = |filters| message(Request::Req, "s", &vec![Filter::default(); filters]);
    let json = format!("[\"REQ\",\"s\"{}]", ",{}".repeat(4_097));
    let over =
        OverLimit { limit: Limit::Filters(4_096), request: Request::Req, subscription: "s".to_owned() };
    for subject in subjects() {
        let bytes = subject.client(&request(4_096)).unwrap();
        assert_eq!(subject.read_client(&bytes), Ok(request(4_096)), "{}", subject.label);
        let error = subject.client(&request(4_097)).unwrap_err().to_string();
        assert!(error.ends_with(" 4096"), "{}: {error}", subject.label);
        if ["json", "nson"].contains(&subject.format.name()) {
            let read = subject.read_client(json.as_bytes());
            assert_eq!(read, Err(DecodeError::OverLimit(Box::new(over.clone()))), "{}", subject.label);
        }
    }
}
