//! Which cells are measured: formats × compressions, checked against the names the client knows.

use std::fmt;

/// The format every ratio refers to.
pub(crate) const BASE_FORMAT: &str = "json";

/// The compression every ratio refers to.
pub(crate) const BASE_COMPRESSION: &str = "none";

/// The names the client side knows, in the order of every table.
#[derive(Debug, Clone)]
pub struct Known {
    /// Wire formats.
    pub formats: Vec<&'static str>,
    /// Those of the question, which `core` stands for.
    pub core_formats: Vec<&'static str>,
    /// Compressions.
    pub compressions: Vec<&'static str>,
}

/// One cell of the matrix.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CellSpec {
    /// The wire format's name.
    pub format: String,
    /// The compression's name.
    pub compression: String,
}

impl CellSpec {
    /// The cell's name in files and on the terminal: `json+deflate`.
    pub fn id(&self) -> String {
        format!("{}+{}", self.format, self.compression)
    }
}

/// A name nobody here knows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownName {
    what: &'static str,
    name: String,
    known: Vec<&'static str>,
    /// Names that stand for several.
    groups: Vec<&'static str>,
}

impl fmt::Display for UnknownName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (known, groups) = (self.known.join(" "), self.groups.join(" "));
        write!(f, "unknown {} {:?}; known: {known} (or: {groups})", self.what, self.name)
    }
}

impl std::error::Error for UnknownName {}

/// Every chosen format with every chosen compression, in the order of the known names. JSON without compression is
/// always among them, because every ratio refers to it.
///
/// # Errors
/// [`UnknownName`]; the text lists those that are known.
pub fn cells(
    known: &Known,
    formats: &[String],
    compressions: &[String],
) -> Result<Vec<CellSpec>, UnknownName> {
    let groups = [("core", &known.core_formats), ("all", &known.formats)];
    let formats = choose("format", &known.formats, &groups, formats)?;
    let groups = [("all", &known.compressions)];
    let compressions = choose("compression", &known.compressions, &groups, compressions)?;
    let cell = |format: &str, compression: &str| CellSpec {
        format: format.to_owned(),
        compression: compression.to_owned(),
    };
    let mut cells: Vec<CellSpec> = formats
        .iter()
        .flat_map(|format| compressions.iter().map(|compression| cell(format, compression)))
        .collect();
    let base = cell(BASE_FORMAT, BASE_COMPRESSION);
    if !cells.contains(&base) {
        cells.insert(0, base);
    }
    Ok(cells)
}

fn choose(
    what: &'static str,
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
                let groups = groups.iter().map(|(group, _)| *group).collect();
                return Err(UnknownName { what, name: name.to_owned(), known: known.to_vec(), groups });
            }
        }
    }
    Ok(known.iter().copied().filter(|name| chosen.contains(name)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(formats: &str, compressions: &str) -> Result<String, UnknownName> {
        let known = Known {
            formats: vec!["json", "cbor", "proto", "tlv"],
            core_formats: vec!["json", "cbor", "proto"],
            compressions: vec!["none", "deflate", "zstd"],
        };
        let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        let cells = cells(&known, &list(formats), &list(compressions))?;
        Ok(cells.iter().map(CellSpec::id).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn the_matrix_follows_the_order_of_the_known_names() {
        assert_eq!(
            ids("proto,json", "deflate,none").unwrap(),
            "json+none json+deflate proto+none proto+deflate"
        );
        assert_eq!(ids("all", "none").unwrap(), "json+none cbor+none proto+none tlv+none");
        assert_eq!(ids("core", "none").unwrap(), "json+none cbor+none proto+none");
        assert_eq!(ids("tlv,core", "none").unwrap(), ids("all", "none").unwrap());
        assert_eq!(ids("json,json", "none,none").unwrap(), "json+none");
    }

    #[test]
    fn json_without_compression_is_always_measured() {
        assert_eq!(ids("cbor", "zstd").unwrap(), "json+none cbor+zstd");
    }

    #[test]
    fn an_unknown_name_is_answered_with_the_known_ones() {
        let error = ids("xml", "none").unwrap_err().to_string();
        assert_eq!(error, "unknown format \"xml\"; known: json cbor proto tlv (or: core all)");
        let error = ids("json", "none,brotli").unwrap_err().to_string();
        assert_eq!(error, "unknown compression \"brotli\"; known: none deflate zstd (or: all)");
    }
}
