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
fn values_that_make_no_sense_are_refused() {
    let base = BUILT_IN.get_file("follow-list-burst.toml").unwrap().contents_utf8().unwrap();
    for (from, to) in [
        ("seconds = 2", "seconds = 0"),
        ("connections = 50", "connections = 0"),
        ("period_ms = 1000", "period_ms = 0"),
        ("known = 40", "known = 500"),
        ("chunk = 200", "chunk = 0"),
    ] {
        assert!(base.contains(from), "{from}");
        assert!(Scenario::parse("x", &base.replace(from, to)).is_err(), "{to}");
    }
}
