//! Reads a file of frames again, as far as comparisons need it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::panic::UnwindSafe;
use std::path::Path;

use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};

use crate::checksum;

/// The name of the whole frame among the subsystems.
pub const WHOLE_FRAME: &str = "frame";

const MILLISECOND_NS: i64 = 1_000_000;
/// Rows that are read at once.
const ROWS: usize = 65_536;
/// No run is longer: 30 days.
const SECONDS_MAX: usize = 30 * 86_400;
/// So many times of subsystems are summed up, one for each second: 128 MB.
const TIMES_MAX: usize = 16 << 20;
/// No file has more subsystems.
const SUBSYSTEMS_MAX: usize = 1_024;

/// The columns that are needed, by their place in the file.
const TICK: usize = 1;
const START_NS: usize = 3;
const SUBSYSTEM: usize = 8;
const SELF_NS: usize = 9;

/// The mean time of a frame in each second, in nanoseconds: of each subsystem, and of the whole as [`WHOLE_FRAME`]. Seconds
/// without a frame are left out. Reads about 10 million rows a second, and holds 65,536 of them at once.
///
/// # Errors
/// The file cannot be read, is no file of frames, or is damaged.
pub fn read_seconds(path: &Path) -> io::Result<BTreeMap<String, Vec<f64>>> {
    let (seconds, names) = read(path, Seconds::default())?;
    seconds.means(&names)
}

/// A frame with its parts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LongFrame {
    /// The number of the tick.
    pub tick: u64,
    /// When it began, in nanoseconds since the first frame of the file.
    pub start_ns: u64,
    /// Exclusive time of each subsystem that ran in it, in nanoseconds.
    pub parts_ns: BTreeMap<String, u64>,
}

impl LongFrame {
    /// The time of the whole frame, in nanoseconds.
    pub fn total_ns(&self) -> u64 {
        self.parts_ns.values().sum()
    }
}

/// The longest frame of each time span, by time. The spans are of equal length, a power of two of milliseconds, and at most
/// `spans_max`. Reads about 10 million rows a second.
///
/// # Errors
/// The file cannot be read, is no file of frames, or is damaged.
pub fn read_longest(path: &Path, spans_max: usize) -> io::Result<Vec<LongFrame>> {
    let longest = Longest { spans_max: spans_max.max(1), span_ns: MILLISECOND_NS, ..Longest::default() };
    read(path, longest).map(|(longest, names)| longest.frames(&names))
}

/// Something that is made of the rows of a file. The rows of a frame follow each other.
trait FromRows: UnwindSafe {
    /// Takes a row: the tick and the start of its frame, the place of its subsystem in [`Names`], and its nanoseconds.
    fn add(&mut self, frame: (i64, i64), subsystem: usize, ns: i64) -> io::Result<()>;
}

fn read<R: FromRows>(path: &Path, rows: R) -> io::Result<(R, Names)> {
    // The reader of the format checks most of a file, but panics at some of the damage that it finds.
    let read = std::panic::catch_unwind(move || read_file(path, rows));
    read.unwrap_or_else(|_| Err(invalid("it is damaged")))
}

fn read_file<R: FromRows>(path: &Path, mut rows: R) -> io::Result<(R, Names)> {
    let bytes = std::fs::metadata(path)?.len();
    let odd = |error: ParquetError| io::Error::new(io::ErrorKind::InvalidData, error.to_string());
    let reader = SerializedFileReader::new(File::open(path)?).map_err(odd)?;
    check_sum(path, reader.metadata())?;
    let mut names = Names::default();
    for index in 0..reader.num_row_groups() {
        let group = reader.get_row_group(index).map_err(odd)?;
        check_places(&*group, bytes)?;
        read_group(&*group, (&mut rows, &mut names))?;
    }
    Ok((rows, names))
}

fn invalid(words: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, words.to_owned())
}

fn too_many_times() -> io::Error {
    invalid("it has too many subsystems for so many seconds")
}

fn read_group<R: FromRows>(group: &dyn RowGroupReader, (sums, known): (&mut R, &mut Names)) -> io::Result<()> {
    let mut ticks = numbers(group, TICK, "tick")?;
    let mut starts = numbers(group, START_NS, "start_ns")?;
    let mut selves = numbers(group, SELF_NS, "self_ns")?;
    let mut names = match column(group, SUBSYSTEM, "subsystem")? {
        ColumnReader::ByteArrayColumnReader(reader) => reader,
        _ => return Err(invalid("column subsystem is no text")),
    };
    let (mut tick, mut start, mut time, mut name) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    loop {
        let rows = fill::<Int64Type>(&mut ticks, &mut tick)?;
        fill::<Int64Type>(&mut starts, &mut start)?;
        fill::<Int64Type>(&mut selves, &mut time)?;
        fill::<ByteArrayType>(&mut names, &mut name)?;
        if [start.len(), time.len(), name.len()].iter().any(|count| *count != rows) {
            return Err(invalid("its columns are not of the same length"));
        }
        if rows == 0 {
            return Ok(());
        }
        for row in 0..rows {
            sums.add((tick[row], start[row]), known.index(&name[row])?, time[row])?;
        }
    }
}

/// Files of older programs have no checksum.
fn check_sum(path: &Path, metadata: &ParquetMetaData) -> io::Result<()> {
    let description = metadata.file_metadata();
    let keys = description.key_value_metadata().into_iter().flatten();
    let Some(written) = keys.filter(|pair| pair.key == checksum::KEY).find_map(|pair| pair.value.as_ref()) else {
        return Ok(());
    };
    let found = checksum::of(checksum::of_data(&mut File::open(path)?)?, description, metadata.row_groups());
    if found == *written { Ok(()) } else { Err(invalid("its checksum is another one: it is damaged")) }
}

/// The reader takes the places of columns as they are.
fn check_places(group: &dyn RowGroupReader, bytes: u64) -> io::Result<()> {
    for column in group.metadata().columns() {
        let places = [column.data_page_offset(), column.compressed_size()];
        let first = column.dictionary_page_offset().unwrap_or(places[0]);
        let is_inside = |place: i64| u64::try_from(place).is_ok_and(|place| place <= bytes);
        if !places.into_iter().chain([first]).all(is_inside) {
            return Err(invalid("a column lies outside of it: it is damaged"));
        }
    }
    Ok(())
}

fn column(group: &dyn RowGroupReader, place: usize, name: &str) -> io::Result<ColumnReader> {
    let schema = group.metadata().schema_descr();
    if place >= schema.num_columns() || schema.column(place).name() != name {
        return Err(invalid(&format!("column {} is not {name}: it is no file of frames", place + 1)));
    }
    group.get_column_reader(place).map_err(|error| invalid(&error.to_string()))
}

fn numbers(group: &dyn RowGroupReader, place: usize, name: &str) -> io::Result<ColumnReaderImpl<Int64Type>> {
    match column(group, place, name)? {
        ColumnReader::Int64ColumnReader(reader) => Ok(reader),
        _ => Err(invalid(&format!("column {name} has no numbers"))),
    }
}

/// The next rows; none at the end.
fn fill<T: DataType>(reader: &mut ColumnReaderImpl<T>, values: &mut Vec<T::T>) -> io::Result<usize> {
    values.clear();
    while values.len() < ROWS {
        let left = ROWS - values.len();
        let (_, read, _) =
            reader.read_records(left, None, None, values).map_err(|error| invalid(&error.to_string()))?;
        if read == 0 {
            break;
        }
    }
    Ok(values.len())
}

/// The names of subsystems.
#[derive(Default)]
struct Names(Vec<(ByteArray, String)>);

impl Names {
    fn index(&mut self, name: &ByteArray) -> io::Result<usize> {
        if let Some(index) = self.0.iter().position(|(known, _)| known == name) {
            return Ok(index);
        }
        if self.0.len() >= SUBSYSTEMS_MAX {
            return Err(invalid("it has too many subsystems"));
        }
        let text = String::from_utf8_lossy(name.data()).into_owned();
        self.0.push((name.clone(), text));
        Ok(self.0.len() - 1)
    }
}

/// Sums by second.
#[derive(Default)]
struct Seconds {
    seconds: BTreeMap<i64, Second>,
    /// The times in all seconds.
    times: usize,
    /// The tick and the start of the row before.
    former: Option<(i64, i64)>,
}

#[derive(Default)]
struct Second {
    frames: u64,
    ns: Vec<f64>,
}

impl FromRows for Seconds {
    fn add(&mut self, frame: (i64, i64), subsystem: usize, ns: i64) -> io::Result<()> {
        let is_new = self.former.replace(frame) != Some(frame);
        let key = frame.1.div_euclid(1_000_000_000);
        if self.seconds.len() >= SECONDS_MAX && !self.seconds.contains_key(&key) {
            return Err(invalid("it has frames of more than 30 days"));
        }
        let second = self.seconds.entry(key).or_default();
        second.frames += u64::from(is_new);
        if second.ns.len() <= subsystem {
            self.times += subsystem + 1 - second.ns.len();
            if self.times > TIMES_MAX {
                return Err(too_many_times());
            }
            second.ns.resize(subsystem + 1, 0.0);
        }
        second.ns[subsystem] += ns as f64;
        Ok(())
    }
}

impl Seconds {
    fn means(&self, names: &Names) -> io::Result<BTreeMap<String, Vec<f64>>> {
        if self.seconds.len() * names.0.len() > TIMES_MAX {
            return Err(too_many_times());
        }
        let mut means: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for second in self.seconds.values().filter(|second| second.frames > 0) {
            let of = |ns: f64| ns / second.frames as f64;
            means.entry(WHOLE_FRAME.to_owned()).or_default().push(of(second.ns.iter().sum()));
            for (index, (_, name)) in names.0.iter().enumerate() {
                let ns = second.ns.get(index).copied().unwrap_or(0.0);
                means.entry(name.clone()).or_default().push(of(ns));
            }
        }
        Ok(means)
    }
}

/// The longest frame by time span.
#[derive(Default)]
struct Longest {
    spans_max: usize,
    span_ns: i64,
    spans: BTreeMap<i64, Parts>,
    /// The earliest start of a frame.
    first_ns: Option<i64>,
    /// The frame whose rows come.
    newest: Option<Parts>,
}

/// A frame while it is read.
#[derive(Clone, Default)]
struct Parts {
    frame: (i64, i64),
    total_ns: i64,
    /// By the place of the subsystem.
    parts_ns: Vec<(usize, i64)>,
}

impl FromRows for Longest {
    fn add(&mut self, frame: (i64, i64), subsystem: usize, ns: i64) -> io::Result<()> {
        if self.newest.as_ref().is_none_or(|newest| newest.frame != frame) {
            self.keep_newest();
        }
        let newest = self.newest.get_or_insert_with(|| Parts { frame, ..Parts::default() });
        newest.total_ns = newest.total_ns.saturating_add(ns.max(0));
        if newest.parts_ns.len() < SUBSYSTEMS_MAX {
            newest.parts_ns.push((subsystem, ns.max(0)));
        }
        Ok(())
    }
}

impl Longest {
    fn keep_newest(&mut self) {
        let Some(newest) = self.newest.take() else { return };
        self.first_ns = Some(self.first_ns.unwrap_or(i64::MAX).min(newest.frame.1));
        self.keep(newest);
        while self.spans.len() > self.spans_max && self.span_ns < i64::MAX / 2 {
            self.span_ns *= 2;
            std::mem::take(&mut self.spans).into_values().for_each(|frame| self.keep(frame));
        }
    }

    fn keep(&mut self, frame: Parts) {
        let kept = self.spans.entry(frame.frame.1.div_euclid(self.span_ns)).or_default();
        if frame.total_ns > kept.total_ns || kept.parts_ns.is_empty() {
            *kept = frame;
        }
    }

    fn frames(mut self, names: &Names) -> Vec<LongFrame> {
        self.keep_newest();
        let first_ns = self.first_ns.unwrap_or(0);
        let name = |index: usize| names.0.get(index).map_or(String::new(), |(_, name)| name.clone());
        let long = |frame: Parts| LongFrame {
            tick: frame.frame.0.max(0) as u64,
            start_ns: frame.frame.1.abs_diff(first_ns),
            parts_ns: frame.parts_ns.into_iter().map(|(index, ns)| (name(index), ns as u64)).collect(),
        };
        self.spans.into_values().map(long).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_does_not_grow_with_what_a_file_names() {
        let mut seconds = Seconds::default();
        let mut add = |second: i64| seconds.add((second, second * 1_000_000_000), SUBSYSTEMS_MAX - 1, 1);
        let most = (TIMES_MAX / SUBSYSTEMS_MAX) as i64;
        assert!((0..most).all(|second| add(second).is_ok()));
        assert!(add(most).unwrap_err().to_string().contains("too many subsystems for so many seconds"));
        // Many names, each in a second of its own, would become means of all in each.
        let names = Names((0..SUBSYSTEMS_MAX).map(|number| (ByteArray::new(), number.to_string())).collect());
        let mut few = Seconds::default();
        (0..=most).for_each(|second| few.add((second, second * 1_000_000_000), 0, 1).unwrap());
        assert!(few.means(&names).is_err());
    }
}
