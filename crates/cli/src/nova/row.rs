//! How does one answer look, as text for people and as JSON for programs?

use std::io::{self, Write};

use serde::ser::{Serialize, SerializeMap, Serializer};
use wire::ids::Position;

/// A value of an answer.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Cell {
    Text(String),
    Count(u64),
    Millionths(u64),
    Stamp(i64),
    Flag(bool),
    Nothing,
    Row(Row),
}

/// An answer: named values in the order they are shown.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Row(Vec<(String, Cell)>);

impl Row {
    pub(super) fn new() -> Self {
        Self::default()
    }

    #[must_use]
    pub(super) fn with(mut self, name: impl Into<String>, cell: impl Into<Cell>) -> Self {
        self.0.push((name.into(), cell.into()));
        self
    }

    /// The same, with a value that is left out when there is none.
    #[must_use]
    pub(super) fn with_some(self, name: &str, cell: Option<impl Into<Cell>>) -> Self {
        match cell {
            Some(cell) => self.with(name, cell),
            None => self,
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// A sequence number and a stamp.
    pub(super) fn of_position(position: Position) -> Self {
        Self::new().with("seq_num", position.seq_num.get()).with("timestamp_ms", position.timestamp_ms)
    }

    /// One JSON object and a newline.
    pub(super) fn write_json(&self, out: &mut dyn Write) -> io::Result<()> {
        serde_json::to_writer(&mut *out, self)?;
        out.write_all(b"\n")
    }

    /// A name and a value a line, the values in one column; what is nested is named with a dot.
    pub(super) fn write_text(&self, out: &mut dyn Write) -> io::Result<()> {
        let mut lines = Vec::new();
        self.flatten("", &mut lines);
        let width = lines.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
        for (name, value) in lines {
            writeln!(out, "{}", format!("{name:width$}  {value}").trim_end())?;
        }
        Ok(())
    }

    fn flatten(&self, prefix: &str, lines: &mut Vec<(String, String)>) {
        for (name, cell) in &self.0 {
            let name = format!("{prefix}{name}");
            match cell {
                Cell::Row(row) => row.flatten(&format!("{name}."), lines),
                Cell::Text(text) if text.is_empty() => lines.push((name, "-".to_owned())),
                Cell::Text(text) => lines.push((name, one_line(text))),
                Cell::Count(count) => lines.push((name, count.to_string())),
                Cell::Millionths(count) => lines.push((name, format!("{:.4}", as_units(*count)))),
                Cell::Stamp(stamp) => lines.push((name, stamp.to_string())),
                Cell::Flag(flag) => lines.push((name, flag.to_string())),
                Cell::Nothing => lines.push((name, "-".to_owned())),
            }
        }
    }
}

fn as_units(millionths: u64) -> f64 {
    millionths as f64 / 1e6
}

/// `text` without anything that would break a line or move a cursor.
pub(super) fn one_line(text: &str) -> String {
    let shown = |c: char| -> String { if c.is_control() { c.escape_default().to_string() } else { c.to_string() } };
    text.chars().map(shown).collect()
}

impl Serialize for Row {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(Some(self.0.len()))?;
        for (name, cell) in &self.0 {
            map.serialize_entry(name, cell)?;
        }
        map.end()
    }
}

impl Serialize for Cell {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Text(text) => serializer.serialize_str(text),
            Self::Count(count) => serializer.serialize_u64(*count),
            Self::Millionths(count) => serializer.serialize_f64(as_units(*count)),
            Self::Stamp(stamp) => serializer.serialize_i64(*stamp),
            Self::Flag(flag) => serializer.serialize_bool(*flag),
            Self::Nothing => serializer.serialize_none(),
            Self::Row(row) => row.serialize(serializer),
        }
    }
}

macro_rules! cells {
    ($($type:ty => $make:expr;)*) => {$(
        impl From<$type> for Cell {
            fn from(value: $type) -> Self {
                let make: fn($type) -> Self = $make;
                make(value)
            }
        }
    )*};
}

cells! {
    &str => |text| Self::Text(text.to_owned());
    String => Self::Text;
    u64 => Self::Count;
    i64 => Self::Stamp;
    bool => Self::Flag;
    Row => Self::Row;
    Position => |position| Self::Row(Row::of_position(position));
}

#[cfg(test)]
mod tests {
    use super::{Cell, Row};
    use wire::ids::{Position, SeqNum};

    fn text(row: &Row) -> String {
        let mut out = Vec::new();
        row.write_text(&mut out).unwrap();
        String::from_utf8(out).unwrap()
    }

    fn sample() -> Row {
        Row::new()
            .with("name", "a\nb")
            .with("tail", Position::new(SeqNum::new(7), -3))
            .with("deleted_at", Cell::Nothing)
            .with("live", true)
    }

    #[test]
    fn json_keeps_the_order_and_nests() {
        let mut out = Vec::new();
        sample().write_json(&mut out).unwrap();
        let line = String::from_utf8(out).unwrap();
        assert_eq!(
            line,
            "{\"name\":\"a\\nb\",\"tail\":{\"seq_num\":7,\"timestamp_ms\":-3},\"deleted_at\":null,\"live\":true}\n"
        );
    }

    #[test]
    fn text_is_a_line_a_value_whatever_the_value_holds() {
        assert_eq!(
            text(&sample()),
            "name               a\\nb\ntail.seq_num       7\ntail.timestamp_ms  -3\ndeleted_at         -\nlive               true\n"
        );
    }
}
