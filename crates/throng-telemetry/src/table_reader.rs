//! Reads a file of frames again, as far as comparisons need it.

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use parquet::column::reader::{ColumnReader, ColumnReaderImpl};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::ParquetMetaData;
use parquet::file::reader::{FileReader, RowGroupReader, SerializedFileReader};

use crate::checksum;

/// The name of the whole frame among the subsystems.
pub const WHOLE_FRAME: &str = "frame";

/// Rows that are read at once.
const ROWS: usize = 65_536;
/// No run is longer: 30 days.
const SECONDS_MAX: usize = 30 * 86_400;
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
    // The reader of the format checks most of a file, but panics at some of the damage that it finds.
    let read = std::panic::catch_unwind(|| read_file(path));
    read.unwrap_or_else(|_| Err(invalid("it is damaged")))
}

fn read_file(path: &Path) -> io::Result<BTreeMap<String, Vec<f64>>> {
    let bytes = std::fs::metadata(path)?.len();
    let odd = |error: ParquetError| io::Error::new(io::ErrorKind::InvalidData, error.to_string());
    let reader = SerializedFileReader::new(File::open(path)?).map_err(odd)?;
    check_sum(path, reader.metadata())?;
    let mut seconds = Seconds::default();
    for index in 0..reader.num_row_groups() {
        let group = reader.get_row_group(index).map_err(odd)?;
        check_places(&*group, bytes)?;
        read_group(&*group, &mut seconds)?;
    }
    Ok(seconds.means())
}

fn invalid(words: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, words.to_owned())
}

fn read_group(group: &dyn RowGroupReader, seconds: &mut Seconds) -> io::Result<()> {
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
            seconds.add((tick[row], start[row]), &name[row], time[row])?;
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

/// Sums by second.
#[derive(Default)]
struct Seconds {
    names: Vec<(ByteArray, String)>,
    seconds: BTreeMap<i64, Second>,
    /// The tick and the start of the row before.
    former: Option<(i64, i64)>,
}

#[derive(Default)]
struct Second {
    frames: u64,
    ns: Vec<f64>,
}

impl Seconds {
    fn add(&mut self, frame: (i64, i64), name: &ByteArray, ns: i64) -> io::Result<()> {
        let index = self.index(name)?;
        let is_new = self.former.replace(frame) != Some(frame);
        let key = frame.1.div_euclid(1_000_000_000);
        if self.seconds.len() >= SECONDS_MAX && !self.seconds.contains_key(&key) {
            return Err(invalid("it has frames of more than 30 days"));
        }
        let second = self.seconds.entry(key).or_default();
        second.frames += u64::from(is_new);
        if second.ns.len() <= index {
            second.ns.resize(index + 1, 0.0);
        }
        second.ns[index] += ns as f64;
        Ok(())
    }

    fn index(&mut self, name: &ByteArray) -> io::Result<usize> {
        if let Some(index) = self.names.iter().position(|(known, _)| known == name) {
            return Ok(index);
        }
        if self.names.len() >= SUBSYSTEMS_MAX {
            return Err(invalid("it has too many subsystems"));
        }
        let text = String::from_utf8_lossy(name.data()).into_owned();
        self.names.push((name.clone(), text));
        Ok(self.names.len() - 1)
    }

    fn means(&self) -> BTreeMap<String, Vec<f64>> {
        let mut means: BTreeMap<String, Vec<f64>> = BTreeMap::new();
        for second in self.seconds.values().filter(|second| second.frames > 0) {
            let of = |ns: f64| ns / second.frames as f64;
            means.entry(WHOLE_FRAME.to_owned()).or_default().push(of(second.ns.iter().sum()));
            for (index, (_, name)) in self.names.iter().enumerate() {
                let ns = second.ns.get(index).copied().unwrap_or(0.0);
                means.entry(name.clone()).or_default().push(of(ns));
            }
        }
        means
    }
}
