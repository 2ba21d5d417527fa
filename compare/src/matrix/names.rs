//! The names of a matrix, checked against those that the client knows.

use std::fmt;

use measure::NO_LINK;

/// Each event is a message of its own.
pub(crate) const NO_BATCHES: &str = "off";

/// The relay puts several events of a subscription into one message; its limits may follow behind
/// colons.
pub(crate) const BATCHES: &str = "on";

/// An event is encoded anew in its publisher's format.
pub(crate) const ALWAYS: &str = "always";

/// What a relay may do, as behind `--reencode` of the client.
pub(super) const REENCODINGS: [&str; 2] = [ALWAYS, "never-if-canonical"];

/// The limits of a batch, as they stand in a cell and behind `--batch-` of the client.
const BATCH_LIMITS: [&str; 3] = ["ms", "n", "bytes"];

/// The longest block that is chosen for its bursts, in seconds: beyond it somebody has to say so.
const LONGEST_OF_BURSTS: u32 = 60;

/// What a block asks of links: see [`Known::link_demand`].
pub type LinkDemand =
    fn(&str, &[String], u32, Option<u32>, Option<&str>, &str) -> anyhow::Result<Option<link::Demand>>;

/// The names the client side knows, in the order of every table.
#[derive(Debug, Clone)]
pub struct Known {
    /// Wire formats, each with its implementations.
    pub formats: Vec<(&'static str, Vec<&'static str>)>,
    /// The formats that `core` stands for.
    pub core_formats: Vec<&'static str>,
    /// Compressions.
    pub compressions: Vec<&'static str>,
    /// What `best` stands for: compressions with parameters.
    pub best_compressions: Vec<&'static str>,
    /// Normalises a compression with parameters, or says what is wrong with it.
    pub compression_label: fn(&str) -> Result<String, String>,
    /// Normalises an access link, or says what is wrong with it.
    pub link_label: fn(&str) -> Result<String, String>,
    /// What a block of a scenario asks of its users' links, by scenario, changes of it, seconds,
    /// rate, corpus and link; `None` without links.
    pub link_demand: LinkDemand,
    /// Whether a relay that does no Nostr work can play a scenario.
    pub has_floor: fn(&str) -> bool,
    /// Why blocks of so many seconds of a scenario hold too few bursts.
    pub too_few_bursts: fn(&str, u32) -> Option<String>,
}

impl Known {
    /// The fewest seconds, from these on, of a block that holds enough bursts of a scenario.
    pub(crate) fn enough_seconds(&self, scenario: &str, from: u32) -> u32 {
        let enough = |seconds: &u32| (self.too_few_bursts)(scenario, *seconds).is_none();
        (from..=LONGEST_OF_BURSTS).find(enough).unwrap_or(from)
    }

    /// The names of all wire formats.
    pub(crate) fn format_names(&self) -> Vec<String> {
        self.formats.iter().map(|(name, _)| (*name).to_owned()).collect()
    }

    /// The names of all compressions.
    pub(crate) fn compression_names(&self) -> Vec<String> {
        self.compressions.iter().map(|name| (*name).to_owned()).collect()
    }

    /// Every implementation that some format has, in the order they appear.
    pub(super) fn implementations(&self) -> Vec<&'static str> {
        let mut all: Vec<&'static str> = Vec::new();
        for implementation in self.formats.iter().flat_map(|(_, implementations)| implementations) {
            if !all.contains(implementation) {
                all.push(implementation);
            }
        }
        all
    }

    pub(super) fn has(&self, format: &str, implementation: &str) -> bool {
        self.formats.iter().any(|(name, has)| *name == format && has.contains(&implementation))
    }
}

/// An unknown name, with the known ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownName {
    what: String,
    name: String,
    known: Vec<&'static str>,
    /// Names of groups.
    groups: Vec<&'static str>,
    /// What is wrong with the parameters of a known name.
    why: Option<String>,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(why) = &self.why {
            return write!(f, "{} {:?}: {why}", self.what, self.name);
        }
        let (known, groups) = (self.known.join(" "), self.groups.join(" "));
        write!(f, "unknown {} {:?}; known: {known} (or: {groups})", self.what, self.name)
    }
}

impl std::error::Error for UnknownName {}

/// Refuses a named format without any of the implementations; formats of a group may lack them.
pub(super) fn choose_implementations(
    known: &Known,
    wanted: &[String],
    named: &[String],
    formats: &[&'static str],
) -> Result<Vec<&'static str>, UnknownName> {
    let all = known.implementations();
    let chosen = choose("implementation", &all, &[("all", &all)], wanted)?;
    let named = formats.iter().filter(|format| named.iter().any(|named| named == *format));
    for format in named {
        if !chosen.iter().any(|implementation| known.has(format, implementation)) {
            let (_, known) =
                known.formats.iter().find(|(name, _)| name == format).expect("it was chosen from them");
            return Err(UnknownName {
                what: format!("implementation of {format}"),
                name: chosen.join(","),
                known: known.clone(),
                groups: vec!["all"],
                why: None,
            });
        }
    }
    Ok(chosen)
}

pub(super) fn choose(
    what: &str,
    known: &[&'static str],
    groups: &[(&'static str, &Vec<&'static str>)],
    wanted: &[String],
) -> Result<Vec<&'static str>, UnknownName> {
    let mut chosen: Vec<&str> = Vec::new();
    for name in wanted.iter().map(|name| name.trim()) {
        match groups.iter().find(|(group, _)| *group == name) {
            Some((_, members)) => chosen.extend(members.iter()),
            None if known.contains(&name) => chosen.push(name),
            None => {
                let (what, name) = (what.to_owned(), name.to_owned());
                let groups = groups.iter().map(|(group, _)| *group).collect();
                return Err(UnknownName { what, name, known: known.to_vec(), groups, why: None });
            }
        }
    }
    Ok(known.iter().copied().filter(|name| chosen.contains(name)).collect())
}

/// Compressions in the order of the known names; variants of one name in the given order. `best`
/// stands for one of each name.
pub(super) fn choose_compressions(known: &Known, wanted: &[String]) -> Result<Vec<String>, UnknownName> {
    let expand = |text: &String| match text.trim() {
        "best" => known.best_compressions.iter().map(|best| (*best).to_owned()).collect(),
        _ => vec![text.clone()],
    };
    let wanted: Vec<String> = wanted.iter().flat_map(expand).collect();
    let names = wanted.iter().map(|text| text.trim().split(':').next().unwrap_or_default().to_owned());
    let names = choose(
        "compression",
        &known.compressions,
        &[("all", &known.compressions), ("best", &Vec::new())],
        &names.collect::<Vec<_>>(),
    )?;
    let mut chosen: Vec<String> = Vec::new();
    for name in names {
        for text in wanted.iter().map(|text| text.trim()) {
            let of = text.split(':').next().unwrap_or_default();
            let label = match of == text {
                true if of == name || of == "all" => name.to_owned(),
                false if of == name => (known.compression_label)(text).map_err(|why| UnknownName {
                    what: "compression".to_owned(),
                    name: text.to_owned(),
                    known: Vec::new(),
                    groups: Vec::new(),
                    why: Some(why),
                })?,
                _ => continue,
            };
            if !chosen.contains(&label) {
                chosen.push(label);
            }
        }
    }
    Ok(chosen)
}

/// Batchings in the given order, each once.
pub(super) fn choose_batchings(wanted: &[String]) -> Result<Vec<String>, UnknownName> {
    let mut chosen: Vec<String> = Vec::new();
    for text in wanted.iter().map(|text| text.trim()) {
        let bad = |why: &str| UnknownName {
            what: "batching".to_owned(),
            name: text.to_owned(),
            known: vec![NO_BATCHES, BATCHES],
            groups: vec!["on:ms=2:n=16:bytes=8192"],
            why: (!why.is_empty()).then(|| why.to_owned()),
        };
        if text != NO_BATCHES {
            let parameters = text.strip_prefix(BATCHES).ok_or_else(|| bad(""))?;
            if !parameters.is_empty() && !parameters.starts_with(':') {
                return Err(bad(""));
            }
            for parameter in parameters.split(':').skip(1) {
                let known = parameter.split_once('=').filter(|(name, _)| BATCH_LIMITS.contains(name));
                if known.is_none_or(|(_, value)| value.parse::<u32>().is_err()) {
                    return Err(bad(&format!(
                        "{parameter:?} is no limit; known: ms, n and bytes, each with a whole number behind ="
                    )));
                }
            }
        }
        if !chosen.iter().any(|one| one == text) {
            chosen.push(text.to_owned());
        }
    }
    Ok(chosen)
}

/// Links in the given order, each once.
pub(super) fn choose_links(known: &Known, wanted: &[String]) -> Result<Vec<String>, UnknownName> {
    let mut chosen: Vec<String> = Vec::new();
    for text in wanted.iter().map(|text| text.trim()) {
        let label = match text {
            NO_LINK => Ok(NO_LINK.to_owned()),
            text => (known.link_label)(text),
        };
        let label = label.map_err(|why| UnknownName {
            what: "link".to_owned(),
            name: text.to_owned(),
            known: Vec::new(),
            groups: Vec::new(),
            why: Some(why),
        })?;
        if !chosen.contains(&label) {
            chosen.push(label);
        }
    }
    Ok(chosen)
}
