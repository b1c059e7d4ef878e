//! Frames as a Parquet file: one row for each tick and subsystem that ran in it.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::Path;
use std::sync::Arc;

use parquet::basic::Compression;
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::properties::WriterProperties;
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use throng_meter::{Budgets, Subsystems};

use crate::recorder::{FrameTimes, Phase};
use crate::scopes::{END, OFFSET_BITS};

/// The columns, in the order of the file. Nanoseconds are wall time unless the name says otherwise.
const COLUMNS: &str = "message frames {
    required binary recorder (string);
    required int64 tick;
    required binary phase (string);
    required int64 start_ns;
    required int64 frame_ns;
    optional int64 cpu_ns;
    optional int64 not_running_ns;
    required int64 late_ns;
    required binary subsystem (string);
    required int64 self_ns;
    optional int64 scopes;
    optional int64 budget_ns;
}";

/// Rows that are written at once; until then they are in memory, about 100 bytes each.
const ROWS_PER_GROUP: usize = 65_536;

/// A file that grows by row groups. It can be read once it is finished.
pub(crate) struct Table {
    file: SerializedFileWriter<BufWriter<File>>,
    rows: Rows,
    subsystems: Vec<ByteArray>,
    phases: Vec<(Phase, ByteArray)>,
}

#[derive(Default)]
struct Rows {
    recorder: Vec<ByteArray>,
    tick: Vec<i64>,
    phase: Vec<ByteArray>,
    start_ns: Vec<i64>,
    frame_ns: Vec<i64>,
    cpu_ns: Optional,
    not_running_ns: Optional,
    late_ns: Vec<i64>,
    subsystem: Vec<ByteArray>,
    self_ns: Vec<i64>,
    scopes: Optional,
    budget_ns: Optional,
}

/// A column with gaps: the values that are there, and 0 or 1 for each row.
#[derive(Default)]
struct Optional {
    values: Vec<i64>,
    levels: Vec<i16>,
}

impl Optional {
    fn push(&mut self, value: Option<u64>) {
        self.values.extend(value.map(as_i64));
        self.levels.push(i16::from(value.is_some()));
    }
}

fn as_i64(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

fn as_io(error: ParquetError) -> io::Error {
    io::Error::other(error)
}

impl Table {
    pub(crate) fn create(path: &Path, names: &Subsystems) -> io::Result<Table> {
        let columns = Arc::new(parse_message_type(COLUMNS).map_err(as_io)?);
        let properties = WriterProperties::builder().set_compression(Compression::SNAPPY).build();
        let file = BufWriter::new(File::create(path)?);
        let mut subsystems = vec![ByteArray::default(); names.count()];
        for subsystem in names.iter() {
            subsystems[subsystem.index()] = ByteArray::from(names.name(subsystem));
        }
        Ok(Table {
            file: SerializedFileWriter::new(file, columns, Arc::new(properties)).map_err(as_io)?,
            rows: Rows::default(),
            subsystems,
            phases: Vec::new(),
        })
    }

    /// Adds the rows of a frame: those of subsystems that took time or were entered.
    pub(crate) fn add(
        &mut self,
        (recorder, frame): (&ByteArray, &FrameTimes),
        (parts_ns, borders, is_complete): (&[u64], &[u64], bool),
        budgets: &Budgets,
        names: &Subsystems,
    ) -> io::Result<()> {
        let mut entered = [0_u64; END as usize + 1];
        borders.iter().for_each(|border| entered[(border >> OFFSET_BITS) as usize] += 1);
        let phase = self.phase(frame.phase);
        for subsystem in names.iter() {
            let index = subsystem.index();
            if parts_ns[index] == 0 && entered[index] == 0 {
                continue;
            }
            let rows = &mut self.rows;
            rows.recorder.push(recorder.clone());
            rows.tick.push(as_i64(frame.tick));
            rows.phase.push(phase.clone());
            rows.start_ns.push(as_i64(frame.start_ns));
            rows.frame_ns.push(as_i64(frame.wall_ns));
            rows.cpu_ns.push(frame.cpu_ns);
            rows.not_running_ns.push(frame.not_running_ns());
            rows.late_ns.push(as_i64(frame.late_ns));
            rows.subsystem.push(self.subsystems[index].clone());
            rows.self_ns.push(as_i64(parts_ns[index]));
            rows.scopes.push(is_complete.then_some(entered[index]));
            rows.budget_ns.push(budgets.limit_ns(subsystem));
        }
        if self.rows.tick.len() < ROWS_PER_GROUP {
            return Ok(());
        }
        self.write_group().map_err(as_io)
    }

    /// Writes what is left, and the end of the file.
    pub(crate) fn finish(mut self) -> io::Result<()> {
        if !self.rows.tick.is_empty() {
            self.write_group().map_err(as_io)?;
        }
        self.file.close().map_err(as_io)?;
        Ok(())
    }

    fn phase(&mut self, phase: Phase) -> ByteArray {
        if let Some((_, name)) = self.phases.iter().find(|(known, _)| *known == phase) {
            return name.clone();
        }
        let name = ByteArray::from(phase.name());
        self.phases.push((phase, name.clone()));
        name
    }

    fn write_group(&mut self) -> Result<(), ParquetError> {
        let rows = std::mem::take(&mut self.rows);
        let mut group = self.file.next_row_group()?;
        strings(&mut group, &rows.recorder)?;
        numbers(&mut group, &rows.tick)?;
        strings(&mut group, &rows.phase)?;
        numbers(&mut group, &rows.start_ns)?;
        numbers(&mut group, &rows.frame_ns)?;
        optional(&mut group, &rows.cpu_ns)?;
        optional(&mut group, &rows.not_running_ns)?;
        numbers(&mut group, &rows.late_ns)?;
        strings(&mut group, &rows.subsystem)?;
        numbers(&mut group, &rows.self_ns)?;
        optional(&mut group, &rows.scopes)?;
        optional(&mut group, &rows.budget_ns)?;
        group.close()?;
        Ok(())
    }
}

type Group<'a> = SerializedRowGroupWriter<'a, BufWriter<File>>;

fn strings(group: &mut Group<'_>, values: &[ByteArray]) -> Result<(), ParquetError> {
    column::<ByteArrayType>(group, values, None)
}

fn numbers(group: &mut Group<'_>, values: &[i64]) -> Result<(), ParquetError> {
    column::<Int64Type>(group, values, None)
}

fn optional(group: &mut Group<'_>, column_of: &Optional) -> Result<(), ParquetError> {
    column::<Int64Type>(group, &column_of.values, Some(&column_of.levels))
}

fn column<T: DataType>(group: &mut Group<'_>, values: &[T::T], levels: Option<&[i16]>) -> Result<(), ParquetError> {
    let mut column: SerializedColumnWriter<'_> =
        group.next_column()?.ok_or_else(|| ParquetError::General("there are more values than columns".to_owned()))?;
    column.typed::<T>().write_batch(values, levels, None)?;
    column.close()
}

impl std::fmt::Debug for Table {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Table").field("rows", &self.rows.tick.len()).finish_non_exhaustive()
    }
}
