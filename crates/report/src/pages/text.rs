//! Tables and sentences for a terminal, of whatever width.

use crate::tables::table::Table;

/// Begins the line below a table that names the columns left out.
pub(crate) const LEFT_OUT: &str = "No room in";

/// The narrowest column of names, whose fields are cut where a terminal is narrower than they are.
const LEAST_NAME: usize = 8;

impl Table {
    /// Columns aligned with spaces, for a terminal of so many columns. Those that it has no room
    /// for are named below the table.
    pub fn text(&self, room: Option<usize>) -> String {
        let lines = || std::iter::once(&self.headings).chain(&self.rows);
        let width = |column: usize| lines().map(|line| line[column].chars().count()).max().unwrap_or(0);
        let mut widths: Vec<usize> = (0..self.headings.len()).map(width).collect();
        let kept = match room {
            Some(room) => fitting(&mut widths, self.names, room),
            None => (0..widths.len()).collect(),
        };
        let mut text = String::new();
        for line in lines() {
            let mut fields = String::new();
            for column in &kept {
                let (field, width) = (cut(&line[*column], widths[*column]), widths[*column]);
                match *column {
                    0 => fields.push_str(&format!("{field:<width$}")),
                    column if column < self.names => fields.push_str(&format!("  {field:<width$}")),
                    _ => fields.push_str(&format!("  {field:>width$}")),
                }
            }
            text.push_str(fields.trim_end());
            text.push('\n');
        }
        let named = |column: usize| self.headings[column].as_str();
        let left_out: Vec<&str> =
            (0..widths.len()).filter(|column| !kept.contains(column)).map(named).collect();
        if let Some(room) = room.filter(|_| !left_out.is_empty()) {
            fold_within(&mut text, &format!("{LEFT_OUT} {room} columns for: {}", left_out.join(", ")), room);
        }
        text
    }
}

/// The columns that a terminal has room for, in their places: all names, and the first numbers that
/// fit. Names are cut where no number would fit beside them.
fn fitting(widths: &mut [usize], names: usize, room: usize) -> Vec<usize> {
    const BETWEEN: usize = 2;
    let of_names =
        |widths: &[usize]| widths[..names].iter().sum::<usize>() + BETWEEN * names.saturating_sub(1);
    let first = widths.get(names).map_or(0, |width| BETWEEN + width);
    while of_names(widths) + first > room {
        let widest = (0..names).max_by_key(|name| widths[*name]);
        let Some(widest) = widest.filter(|name| widths[*name] > LEAST_NAME) else { break };
        widths[widest] -= 1;
    }
    let mut taken = of_names(widths);
    let mut kept: Vec<usize> = (0..names).collect();
    for (column, width) in widths.iter().enumerate().skip(names) {
        if taken + BETWEEN + width <= room {
            taken += BETWEEN + width;
            kept.push(column);
        }
    }
    kept
}

/// A field of at most so many columns; `…` stands for what is cut.
fn cut(field: &str, width: usize) -> String {
    if field.chars().count() <= width {
        field.to_owned()
    } else {
        field.chars().take(width.saturating_sub(1)).chain(['…']).collect()
    }
}

/// Writes a paragraph in lines of at most so many columns, indented after the first.
pub(crate) fn fold_within(text: &mut String, paragraph: &str, columns: usize) {
    let mut column = 0;
    for word in paragraph.split(' ') {
        let width = word.chars().count();
        if column > 0 && column + 1 + width > columns {
            text.push_str("\n  ");
            column = 2;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += width;
    }
    text.push('\n');
}
