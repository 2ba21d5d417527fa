mod reference;

use super::*;

#[test]
fn every_built_in_scenario_loads_and_asks_its_question() {
    let names = Scenario::names();
    assert!(names.contains(&"follow-list-burst"), "{names:?}");
    for name in names {
        let scenario = Scenario::load(name).unwrap();
        assert!(scenario.question.ends_with('?'), "{name}");
        assert!(!scenario.learn.is_empty(), "{name}");
    }
}

#[test]
fn a_block_of_fewer_than_five_bursts_is_named_with_the_seconds_that_would_do() {
    let lists = Scenario::load("follow-list-burst").unwrap();
    let short = lists.too_few_bursts(4.0).unwrap();
    assert!(short.contains("follow-list-burst holds 4 bursts") && short.contains("--seconds 5 would do"));
    assert_eq!(lists.too_few_bursts(4.1), None);
    let slow = Scenario::load_with("follow-list-burst", &["request.0.arrival.period_ms=2500".to_owned()]);
    let slow = slow.unwrap();
    assert!(slow.too_few_bursts(10.0).unwrap().contains("--seconds 11 would do"));
    assert_eq!(slow.too_few_bursts(11.0), None);
    assert_eq!(Scenario::load("note-stream").unwrap().too_few_bursts(0.1), None);
    // Other populations than requests have bursts, too.
    assert!(Scenario::load("duplicate-fan-in").unwrap().too_few_bursts(2.0).is_some());
}

#[test]
fn unknown_keys_and_names_are_errors_that_list_what_is_known() {
    let text = Scenario::load("nope").unwrap_err().to_string();
    assert!(text.contains("note-stream"), "{text}");
    let base = BUILT_IN.get_file("note-stream.toml").unwrap().contents_utf8().unwrap();
    for extra in ["colour = 1\n", "[extra]\n"] {
        let text = format!("{:#}", Scenario::parse("x", &format!("{extra}{base}")).unwrap_err());
        assert!(text.contains("unknown field"), "{text}");
    }
    let typo = base.replace("rate_per_s = 2000", "rate = 2000");
    assert!(Scenario::parse("x", &typo).is_err());
    let typo = base.replace("rate_per_s = 2000", "rate_per_s = 2000, rtae = 1");
    assert!(Scenario::parse("x", &typo).is_err());
}

#[test]
fn a_population_has_a_link_of_its_own_or_none_and_a_mistake_is_named() {
    let base = BUILT_IN.get_file("follow-list-burst.toml").unwrap().contents_utf8().unwrap();
    let with = |link: &str| {
        Scenario::parse("x", &base.replace("[[request]]", &format!("[[request]]\nlink = {link:?}")))
    };
    let own = with("slow-4g,loss=1%").unwrap();
    assert_eq!(own.request[0].link, Some(Access::Link(Box::new("slow-4g:loss=1%".parse().unwrap()))));
    assert!(own.has_links());
    let none = with("none").unwrap();
    assert_eq!(none.request[0].link, Some(Access::None));
    assert!(!none.has_links() && !Scenario::load("follow-list-burst").unwrap().has_links());
    let error = format!("{:#}", with("5g").unwrap_err());
    assert!(error.contains("known: datacenter wifi lte") && error.contains("line "), "{error}");
    let error = format!("{:#}", with("slow-4g,rtt=20s").unwrap_err());
    assert!(error.contains("too long"), "{error}");
}

#[test]
fn values_that_make_no_sense_are_refused_with_what_would_make_some() {
    for (name, set, words) in [
        ("follow-list-burst", "seconds=0", "seconds must be above 0"),
        ("follow-list-burst", "request.0.connections=0", "connections must be at least 1"),
        ("follow-list-burst", "request.0.arrival.period_ms=0", "period_ms must be at least 1"),
        ("follow-list-burst", "request.0.name=Big", "a name has lower-case letters"),
        ("follow-list-burst", "request.0.step.1.known=500", "known must not exceed"),
        ("follow-list-burst", "request.0.step.1.chunk=0", "chunk must be at least 1"),
        ("note-stream", "publish.window=0", "window must be at least 1"),
        ("note-stream", "publish.window=1", "window needs arrival"),
        ("note-stream", "subscribe.filter=[]", "subscribe.filter must not be empty"),
        ("mixed-day", "publish.phases=[\"noon\"]", "noon"),
        ("duplicate-fan-in", "fan_in.duplicates=0.8", "duplicates must be 0 to 0.75"),
        ("duplicate-fan-in", "fan_in.relays=1", "duplicates must be 0 to 0.00"),
        ("negentropy-sync", "reconcile.frame_bytes=4095", "frame_bytes must be 4096 to 500000"),
        ("negentropy-sync", "reconcile.frame_bytes=600000", "frame_bytes must be 4096 to 500000"),
        ("negentropy-sync", "reconcile.have=1.1", "have must be 0 to 1"),
        ("negentropy-sync", "reconcile.chunk=501", "chunk must be 1 to 500"),
    ] {
        let error = format!("{:#}", Scenario::load_with(name, &[set.to_owned()]).unwrap_err());
        assert!(error.contains(words), "{set}: {error}");
    }
}
