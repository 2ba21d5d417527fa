//! The sentences and tables of a result, each composed once, with the renderings that it is for.
//! Terminal, `summary.md`, the page and quotations draw them.
use crate::{
    derived::Derived,
    metric::ShownIn,
    pages::{
        part::{
            EVERYWHERE, IN_FILES, Media, Medium, ON_TERMINALS, Part, QUOTED, QUOTED_OF_TERMINALS, left_out,
        },
        provenance::{self, selftest_table, tested},
        reading::reading,
        sentences::{self, control_line, headline, saturated_line, steady_line, title, warnings},
        throughput::{self, Throughput, throughputs},
    },
    result::{Config, ResultFile, Search},
    tables::{
        browser::ROWS,
        limits,
        slos::{slo_table, slos},
        table::Table,
    },
    verdicts::{
        answer::answer,
        comparison::Comparison,
        likeness::{code_line, compression_line},
    },
    view::{LoadView, views},
};

/// Everything that a result says, to be rendered.
pub struct Report<'a> {
    pub(crate) result: &'a ResultFile,
    /// Figures, comparisons and verdicts.
    pub derived: Derived,
    pub(crate) title: String,
    pub(crate) warnings: Vec<String>,
    pub(crate) headline: String,
    /// Throughput of loads that were played at their limit.
    pub(crate) throughput: Vec<Throughput>,
    /// The throughputs, or what a search found.
    pub(crate) first: Vec<Part>,
    pub(crate) loads: Vec<Part>,
    /// Sentences about all loads.
    pub(crate) end: Vec<Part>,
}

impl Report<'_> {
    /// Composes what a result says.
    pub fn from_result(result: &ResultFile) -> Report<'_> {
        let loads = views(result);
        let throughput = throughputs(&loads);
        let found = result.search.iter().flat_map(|search| of_search(&result.config, search));
        Report {
            result,
            derived: Derived::from_result(result),
            title: title(result),
            warnings: warnings(result, &loads),
            headline: headline(result),
            first: throughput.iter().flat_map(Throughput::parts).chain(found).collect(),
            throughput,
            loads: loads.iter().flat_map(|load| of_load(load, loads.len() > 1)).collect(),
            end: end(result, &loads),
        }
    }

    /// Whether it begins with tables of loads that were played at their limit.
    pub(crate) fn is_at_limit(&self) -> bool {
        !self.throughput.is_empty()
    }

    /// The parts that a medium shows, in order.
    pub(crate) fn parts(&self, medium: Medium) -> impl Iterator<Item = &Part> {
        // A narrow terminal shows a result at its limit without the loads. Quoted lines are the same parts.
        let without_loads = self.is_at_limit() && matches!(medium, Medium::Terminal | Medium::Lines);
        let (medium, loads) =
            if without_loads { (Medium::Terminal, &[][..]) } else { (medium, &self.loads[..]) };
        self.first.iter().chain(loads).chain(&self.end).filter(move |part| part.on.contains(&medium))
    }

    /// The first tables as CSV; `None` where no load was played at its limit.
    pub fn csv(&self) -> Option<String> {
        throughput::csv(&self.throughput)
    }
}

/// Roots of a search, and p99 against the axis.
fn of_search(config: &Config, search: &Search) -> Vec<Part> {
    let title = Part::sentence(limits::title(config, search));
    let mut parts = vec![title.only(ON_TERMINALS), Part::table(limits::roots(search))];
    parts.extend(limits::remarks(search).into_iter().map(Part::sentence));
    if let Some(curve) = limits::curve(&search.cells) {
        parts.extend([Part::heading(2, "p99 against rate"), Part::table(curve)]);
    }
    parts
}

fn of_load(load: &LoadView<'_>, is_one_of_several: bool) -> Vec<Part> {
    let comparisons = load.comparisons();
    let name = is_one_of_several.then(|| Part::heading(2, load.name()));
    let answer = Part::list(answer(load, &comparisons));
    let answer =
        |on: Media| name.iter().chain([&answer]).map(|part| part.clone().only(on)).collect::<Vec<_>>();
    [
        // A terminal shows the table, the answer, then details.
        answer(IN_FILES),
        costs(load),
        answer(QUOTED_OF_TERMINALS),
        about(load),
        details(load, 3),
        verdicts(load, &comparisons),
    ]
    .concat()
}

/// The cost of each cell.
fn costs(load: &LoadView<'_>) -> Vec<Part> {
    let at = load.first_relay().map_or_else(String::new, |first| format!(" of relay {first}"));
    let heading = format!("{}, × is to JSON without compression{at}", load.name());
    [Part::heading(3, heading), Part::table(load.costs())].map(|part| part.only(QUOTED)).into()
}

/// The meaning of the columns, and the conditions of the blocks.
fn about(load: &LoadView<'_>) -> Vec<Part> {
    let (latency, meaning) = load.latency;
    let of_swarm = |line: String| (!load.is_of_pages()).then_some(line);
    let lines = [
        of_swarm(format!(
            "p50, p99 and p99.9 are of `{latency}`: {meaning}. In brackets: a quantile with 10 to 99 samples beyond it."
        )),
        of_swarm(code_line(load)),
        load.is_of_pages().then(|| ROWS.to_owned()),
        compression_line(load),
        of_swarm(sentences::warmth_line(load)),
        load.starts_line(),
    ];
    lines.into_iter().flatten().map(Part::sentence).collect()
}

/// Tables next to the costs, under headings of a level.
pub(crate) fn details(load: &LoadView<'_>, level: usize) -> Vec<Part> {
    let links = load.metrics(ShownIn::Links);
    // CPU times over links are no evidence, and a page has its own columns.
    let apart = || load.metrics(ShownIn::Apart).filter(|_| !load.is_over_links() && !load.is_of_pages());
    let (agents, about_agents) = load.agents_apart().unzip();
    let differing = "Agents that differ from the others";
    let detail = |on: Media, heading: &str, found: Option<Table>, note: Option<String>| {
        let table = found.map(|table| [Part::heading(level, heading), Part::table(table)]);
        let note = note.map(Part::sentence);
        table.into_iter().flatten().chain(note).map(|part| part.only(on)).collect::<Vec<_>>()
    };
    [
        detail(EVERYWHERE, "Sessions, from the instant each was due by plan", load.sessions(), None),
        detail(EVERYWHERE, "Links", links, load.links_line()),
        detail(EVERYWHERE, "Links apart", load.links_apart(), None),
        detail(IN_FILES, "CPU, handshakes and first deliveries apart", apart(), None),
        detail(IN_FILES, "Populations", load.populations(), None),
        detail(IN_FILES, differing, agents, about_agents),
        detail(EVERYWHERE, "Allocations", load.allocations(), None),
    ]
    .concat()
}

/// Each cell against its reference, and what speaks for and against it.
fn verdicts(load: &LoadView<'_>, comparisons: &[Comparison]) -> Vec<Part> {
    let against = match load.first_relay() {
        Some(first) => format!("the same cell of relay {first}"),
        None => "JSON with the same compression (JSON itself: without compression)".to_owned(),
    };
    let heading = format!("Verdicts, against {against}; [95 % interval]");
    // Without a comparison a terminal has nothing to show.
    let on = if comparisons.is_empty() { IN_FILES } else { EVERYWHERE };
    let mut parts = vec![Part::heading(3, heading), Part::table(load.verdicts(comparisons))];
    parts.extend(load.family_line().map(Part::sentence));
    parts.extend([steady_line(load), saturated_line(load)].map(Part::sentence));
    let control = Part::sentence(control_line(load, comparisons));
    let control = if comparisons.is_empty() { control.only(IN_FILES) } else { control.only(QUOTED) };
    parts.into_iter().map(|part| part.only(on)).chain([control]).collect()
}

/// Demands, left-out blocks, tests of the instrument, and how to read it all.
fn end(result: &ResultFile, loads: &[LoadView<'_>]) -> Vec<Part> {
    let mut parts = Vec::new();
    let slos = slos(result, loads);
    if let Some(table) = slo_table(&slos) {
        parts.push(Part::heading(2, "What was demanded"));
        parts.push(Part::table(table));
    }
    parts.extend(left_out(sentences::left_out(result), IN_FILES));
    let mut files = vec![Part::heading(2, "The instrument's own tests"), Part::sentence(tested(result))];
    files.extend(selftest_table(result).map(Part::table));
    files.extend([Part::heading(2, "How to read this"), Part::items(&reading(result, loads))]);
    files.extend([Part::heading(2, "What was measured"), Part::list(provenance::provenance(result))]);
    parts.extend(files.into_iter().map(|part| part.only(IN_FILES)));
    parts
}
