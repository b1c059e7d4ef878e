//! JSON that a person can read too: a key per line, lists on one line, six significant digits.

use std::io::{self, Write};

use serde::Serialize;
use serde_json::Serializer;
use serde_json::ser::Formatter;

/// The figures of a run as JSON: a key per line, lists on one line, six significant digits, a final line break.
///
/// # Panics
/// A part of them has no form in JSON, as a map whose keys are no text: a defect of the caller.
pub fn to_json(figures: &impl Serialize) -> String {
    let mut bytes = Vec::new();
    let written = figures.serialize(&mut Serializer::with_formatter(&mut bytes, Readable::default()));
    written.expect("figures are numbers, texts and lists of them");
    bytes.push(b'\n');
    String::from_utf8_lossy(&bytes).into_owned()
}

#[derive(Default)]
struct Readable {
    depth: usize,
    lists: usize,
    filled: bool,
}

impl Readable {
    fn line_break<W: ?Sized + Write>(&self, writer: &mut W) -> io::Result<()> {
        if self.lists > 0 {
            return Ok(());
        }
        writer.write_all(b"\n")?;
        (0..self.depth).try_for_each(|_| writer.write_all(b"  "))
    }
}

impl Formatter for Readable {
    fn write_f64<W: ?Sized + Write>(&mut self, writer: &mut W, value: f64) -> io::Result<()> {
        write!(writer, "{}", rounded(value))
    }

    fn write_f32<W: ?Sized + Write>(&mut self, writer: &mut W, value: f32) -> io::Result<()> {
        write!(writer, "{value}")
    }

    fn begin_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.lists += 1;
        writer.write_all(b"[")
    }

    fn end_array<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.lists -= 1;
        writer.write_all(b"]")
    }

    fn begin_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth += 1;
        self.filled = false;
        writer.write_all(b"{")
    }

    fn end_object<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        self.depth -= 1;
        if self.filled {
            self.line_break(writer)?;
        }
        writer.write_all(b"}")
    }

    fn begin_object_key<W: ?Sized + Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if !first {
            writer.write_all(b",")?;
        }
        self.line_break(writer)
    }

    fn begin_object_value<W: ?Sized + Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }

    fn end_object_value<W: ?Sized + Write>(&mut self, _: &mut W) -> io::Result<()> {
        self.filled = true;
        Ok(())
    }
}

/// To six significant digits.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn keys_have_lines_and_lists_do_not() {
        let text = to_json(&json!({ "a": { "b": 1.23456789, "c": {} }, "d": [1, { "e": "x\ny" }] }));
        assert_eq!(
            text,
            "{\n  \"a\": {\n    \"b\": 1.23457,\n    \"c\": {}\n  },\n  \"d\": [1,{\"e\": \"x\\ny\"}]\n}\n"
        );
    }

    #[test]
    fn numbers_keep_six_digits_at_every_size() {
        for (value, text) in [(0.1 + 0.2, "0.3"), (1e-9, "0.000000001"), (123_456_789.0, "123457000"), (-2.5, "-2.5")] {
            assert_eq!(to_json(&value).trim(), text);
        }
        assert_eq!(serde_json::from_str::<Value>(&to_json(&f64::NAN)).unwrap(), Value::Null);
        assert_eq!(serde_json::from_str::<f64>(&to_json(&1.5e300)).unwrap(), 1.5e300);
    }
}
