//! Frames as a Parquet file: one row for each tick and subsystem that ran in it.
//!
//! The file can be read at any time, also after its process was killed. Every few seconds the newest rows are written
//! behind the full groups, with the end of a file behind them. The next rows take their place.
//!
//! ```text
//!  PAR1 | group of 32,768 rows | group of 32,768 rows | newest rows, end of the file
//!                                                     '-- written again each time, until they are 32,768
//! ```

use std::fs::File;
use std::io::{self, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::Arc;

use crc32fast::Hasher;
use parquet::basic::{Compression, Encoding};
use parquet::data_type::{ByteArray, ByteArrayType, DataType, Int64Type};
use parquet::errors::ParquetError;
use parquet::file::metadata::{
    FileMetaData, KeyValue, ParquetMetaData, ParquetMetaDataReader, ParquetMetaDataWriter, RowGroupMetaData,
};
use parquet::file::properties::{EnabledStatistics, WriterProperties};
use parquet::file::writer::{SerializedColumnWriter, SerializedFileWriter, SerializedRowGroupWriter};
use parquet::schema::parser::parse_message_type;
use parquet::schema::types::{ColumnPath, TypePtr};
use throng_meter::{Budgets, MAX_SUBSYSTEMS, Subsystems};

use crate::checksum;
use crate::recorder::{FrameTimes, Phase};
use crate::scopes::{END, OFFSET_BITS};
use crate::telemetry::BeforeWrite;

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

/// Columns that are the same in all rows of a frame: a difference of 0 takes no bits, and is found faster than an entry of a
/// dictionary.
const DELTA_COLUMNS: [&str; 6] = ["tick", "start_ns", "frame_ns", "cpu_ns", "not_running_ns", "late_ns"];

/// The least and the largest of these say nothing, and a seventh of the time of writing went into comparing texts.
const TEXT_COLUMNS: [&str; 3] = ["recorder", "phase", "subsystem"];

/// Rows of a group; until it is full they are in memory, 174 bytes each. The description of a group, which would take 7 kB, is in
/// the file alone: a day of 30 ticks in a second has 870 of them.
const ROWS_PER_GROUP: usize = 32_768;

/// The newest rows are written after so many nanoseconds of frames, and a millisecond more for each group: the end of the
/// file lists all groups.
const SAVE_INTERVAL_NS: u64 = 5_000_000_000;
const SAVE_INTERVAL_PER_GROUP_NS: u64 = 1_000_000;

/// The first bytes of a Parquet file.
const MAGIC: &[u8; 4] = b"PAR1";

/// A file that grows, and that can be read at any time.
pub(crate) struct Table {
    file: File,
    before_write: Option<BeforeWrite>,
    columns: TypePtr,
    properties: Arc<WriterProperties>,
    /// The number of groups that are full. The end of the file describes them.
    groups: usize,
    /// The place behind them.
    groups_end: u64,
    /// Of all bytes before that place.
    groups_hash: Hasher,
    /// Their descriptions, if the end of the file was not written as a whole.
    unwritten: Option<Vec<RowGroupMetaData>>,
    /// The rows behind them.
    rows: Rows,
    /// The beginning of the frame with which the newest rows were written last.
    saved_ns: Option<u64>,
    /// Whether a write has failed.
    has_failed: bool,
    /// Whether frames came while a full group could not be written. They are in no file, and neither are later ones: a file
    /// with a gap is worth less than one that ends.
    has_ended: bool,
    subsystems: Vec<ByteArray>,
    phases: Vec<(Phase, ByteArray)>,
}

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
    pub(crate) fn create(path: &Path, names: &Subsystems, before_write: Option<BeforeWrite>) -> io::Result<Table> {
        let columns = Arc::new(parse_message_type(COLUMNS).map_err(as_io)?);
        // Places of pages would have to be moved with their group, and a group has few pages.
        let mut properties = WriterProperties::builder()
            .set_compression(Compression::SNAPPY)
            .set_statistics_enabled(EnabledStatistics::Chunk)
            .set_offset_index_disabled(true)
            // Hardly two of these are the same.
            .set_column_dictionary_enabled(ColumnPath::from("self_ns"), false);
        for name in DELTA_COLUMNS {
            let column = ColumnPath::from(name);
            properties = properties
                .set_column_dictionary_enabled(column.clone(), false)
                .set_column_encoding(column, Encoding::DELTA_BINARY_PACKED);
        }
        for name in TEXT_COLUMNS {
            properties = properties.set_column_statistics_enabled(ColumnPath::from(name), EnabledStatistics::None);
        }
        let properties = properties.build();
        let mut subsystems = vec![ByteArray::default(); names.count()];
        for subsystem in names.iter() {
            subsystems[subsystem.index()] = ByteArray::from(names.name(subsystem));
        }
        let mut file = File::options().read(true).write(true).create(true).truncate(true).open(path)?;
        file.write_all(MAGIC)?;
        let mut groups_hash = Hasher::new();
        groups_hash.update(MAGIC);
        let mut table = Table {
            file,
            before_write: None,
            columns,
            properties: Arc::new(properties),
            groups: 0,
            unwritten: None,
            groups_end: MAGIC.len() as u64,
            groups_hash,
            rows: Rows::with_room(),
            saved_ns: None,
            has_failed: false,
            has_ended: false,
            subsystems,
            phases: Vec::new(),
        };
        table.save()?;
        table.before_write = before_write;
        Ok(table)
    }

    /// Adds the rows of a frame: those of subsystems that took time or were entered.
    ///
    /// # Errors
    /// The rows could not be written. They are written later, with the next ones. Only the first such error is returned.
    pub(crate) fn add(
        &mut self,
        (recorder, frame): (&ByteArray, &FrameTimes),
        (parts_ns, borders, is_complete): (&[u64], &[u64], bool),
        budgets: &Budgets,
        names: &Subsystems,
    ) -> io::Result<()> {
        if self.rows.tick.len() >= ROWS_PER_GROUP {
            self.has_ended = true;
            if !self.is_due(frame) {
                return Ok(());
            }
            self.saved_ns = Some(frame.start_ns);
            return self.save_again();
        }
        if self.has_ended {
            return Ok(());
        }
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
        let is_due = self.is_due(frame);
        if !is_due && self.rows.tick.len() < ROWS_PER_GROUP {
            return Ok(());
        }
        self.saved_ns = Some(frame.start_ns);
        self.save_again()
    }

    /// Whether it is time to write the newest rows, since they were written last or could not be.
    fn is_due(&mut self, frame: &FrameTimes) -> bool {
        let since_ns = frame.start_ns.saturating_sub(*self.saved_ns.get_or_insert(frame.start_ns));
        since_ns >= SAVE_INTERVAL_NS + SAVE_INTERVAL_PER_GROUP_NS * self.groups as u64
    }

    /// Writes the newest rows. Returns only the first error.
    fn save_again(&mut self) -> io::Result<()> {
        let saved = self.save();
        let had_failed = self.has_failed;
        self.has_failed |= saved.is_err();
        if had_failed { Ok(()) } else { saved }
    }

    /// Writes the rest, which nobody else will do.
    pub(crate) fn finish(&mut self) -> io::Result<()> {
        self.save()
    }

    fn phase(&mut self, phase: Phase) -> ByteArray {
        if let Some((_, name)) = self.phases.iter().find(|(known, _)| *known == phase) {
            return name.clone();
        }
        let name = ByteArray::from(phase.name());
        self.phases.push((phase, name.clone()));
        name
    }

    /// Writes the newest rows and the end of the file. If they fill a group, they are done.
    fn save(&mut self) -> io::Result<()> {
        let (mut bytes, description, group) = self.encoded().map_err(as_io)?;
        let group_end = self.groups_end + bytes.len() as u64;
        let mut group_hash = self.groups_hash.clone();
        group_hash.update(&bytes);
        let mut groups = match self.unwritten.take() {
            Some(groups) => groups,
            None => self.full_groups().map_err(as_io)?,
        };
        groups.extend(group);
        let end = end_of_file(&description, groups, group_hash.clone());
        ParquetMetaDataWriter::new(&mut bytes, &end).finish().map_err(as_io)?;
        self.before_write.iter().for_each(BeforeWrite::run);
        if let Err(error) = self.write_end(&bytes) {
            let mut groups = end.into_builder().take_row_groups();
            groups.truncate(self.groups);
            self.end_after_full_groups(&description, groups);
            return Err(error);
        }
        if self.rows.tick.len() >= ROWS_PER_GROUP {
            self.rows.clear();
            (self.groups_end, self.groups_hash) = (group_end, group_hash);
            self.groups += 1;
        }
        Ok(())
    }

    /// Ends the file behind the full groups, so that it can be read without the newest rows. A full disk has room for that:
    /// this end is hardly longer than the one that stood there.
    fn end_after_full_groups(&mut self, description: &FileMetaData, groups: Vec<RowGroupMetaData>) {
        let end = end_of_file(description, groups, self.groups_hash.clone());
        let mut bytes = Vec::new();
        let encoded = ParquetMetaDataWriter::new(&mut bytes, &end).finish().map_err(as_io);
        if encoded.and_then(|()| self.write_end(&bytes)).is_err() {
            // Until the file has an end again, the full groups are described here alone.
            self.unwritten = Some(end.into_builder().take_row_groups());
        }
    }

    /// Writes everything that comes after the full groups.
    fn write_end(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.seek(SeekFrom::Start(self.groups_end))?;
        self.file.write_all(bytes)?;
        self.file.set_len(self.groups_end + bytes.len() as u64)
    }

    /// The descriptions of the full groups, from the end of the file as it was written last.
    fn full_groups(&self) -> Result<Vec<RowGroupMetaData>, ParquetError> {
        if self.groups == 0 {
            return Ok(Vec::new());
        }
        let mut groups = ParquetMetaDataReader::new().parse_and_finish(&self.file)?.into_builder().take_row_groups();
        groups.truncate(self.groups);
        Ok(groups)
    }

    /// The newest rows as they are in the file behind the full groups, the description of a file, and that of the group.
    fn encoded(&self) -> Result<(Vec<u8>, FileMetaData, Option<RowGroupMetaData>), ParquetError> {
        let mut bytes = Vec::new();
        let mut file = SerializedFileWriter::new(&mut bytes, self.columns.clone(), self.properties.clone())?;
        if !self.rows.tick.is_empty() {
            self.rows.write(&mut file)?;
        }
        let whole = file.close()?;
        let description = whole.file_metadata().clone();
        let group = whole.into_builder().take_row_groups().pop();
        let Some(group) = group else { return Ok((Vec::new(), description, None)) };
        let end = group.columns().iter().map(|column| column.byte_range()).map(|(from, bytes)| from + bytes).max();
        bytes.truncate(end.unwrap_or_default() as usize);
        bytes.drain(..MAGIC.len());
        let by = self.groups_end as i64 - MAGIC.len() as i64;
        Ok((bytes, description, Some(moved(group, self.groups as i32, by)?)))
    }
}

/// The end of a file with these groups. `data` is the hash of all that lies before it.
fn end_of_file(description: &FileMetaData, groups: Vec<RowGroupMetaData>, data: Hasher) -> ParquetMetaData {
    let rows = groups.iter().map(RowGroupMetaData::num_rows).sum();
    let columns = description.schema_descr_ptr();
    let created_by = description.created_by().map(str::to_owned);
    let checksum = checksum::of(data, description, &groups);
    let keys = Some(vec![KeyValue::new(checksum::KEY.to_owned(), checksum)]);
    let description = FileMetaData::new(description.version(), rows, created_by, keys, columns, None);
    ParquetMetaData::new(description, groups)
}

/// The group as the one of this number, `by` bytes later in its file.
fn moved(group: RowGroupMetaData, ordinal: i32, by: i64) -> Result<RowGroupMetaData, ParquetError> {
    let mut group = group.into_builder();
    let columns = group.take_columns().into_iter().map(|column| {
        let (data, dictionary) = (column.data_page_offset() + by, column.dictionary_page_offset());
        let column = column.into_builder().set_data_page_offset(data);
        column.set_dictionary_page_offset(dictionary.map(|place| place + by)).build()
    });
    let columns: Vec<_> = columns.collect::<Result<_, _>>()?;
    let first = columns.first().map_or(0, |column| column.byte_range().0 as i64);
    group.set_column_metadata(columns).set_file_offset(first).set_ordinal(ordinal).build()
}

impl Rows {
    /// No rows, with room for those of a group and of one frame more. Its pages are written once here: else the memory of a
    /// process would grow for as long as the first group fills.
    fn with_room() -> Rows {
        let room = ROWS_PER_GROUP + MAX_SUBSYSTEMS;
        let (texts, numbers) = (|| vec![ByteArray::default(); room], || vec![i64::MAX; room]);
        let optional = || Optional { values: numbers(), levels: vec![i16::MAX; room] };
        let mut rows = Rows {
            recorder: texts(),
            tick: numbers(),
            phase: texts(),
            start_ns: numbers(),
            frame_ns: numbers(),
            cpu_ns: optional(),
            not_running_ns: optional(),
            late_ns: numbers(),
            subsystem: texts(),
            self_ns: numbers(),
            scopes: optional(),
            budget_ns: optional(),
        };
        rows.clear();
        rows
    }

    fn clear(&mut self) {
        [&mut self.recorder, &mut self.phase, &mut self.subsystem].into_iter().for_each(Vec::clear);
        [&mut self.tick, &mut self.start_ns, &mut self.frame_ns, &mut self.late_ns, &mut self.self_ns]
            .into_iter()
            .for_each(Vec::clear);
        for column in [&mut self.cpu_ns, &mut self.not_running_ns, &mut self.scopes, &mut self.budget_ns] {
            column.values.clear();
            column.levels.clear();
        }
    }

    fn write(&self, file: &mut SerializedFileWriter<&mut Vec<u8>>) -> Result<(), ParquetError> {
        let mut group = file.next_row_group()?;
        strings(&mut group, &self.recorder)?;
        numbers(&mut group, &self.tick)?;
        strings(&mut group, &self.phase)?;
        numbers(&mut group, &self.start_ns)?;
        numbers(&mut group, &self.frame_ns)?;
        optional(&mut group, &self.cpu_ns)?;
        optional(&mut group, &self.not_running_ns)?;
        numbers(&mut group, &self.late_ns)?;
        strings(&mut group, &self.subsystem)?;
        numbers(&mut group, &self.self_ns)?;
        optional(&mut group, &self.scopes)?;
        optional(&mut group, &self.budget_ns)?;
        group.close()?;
        Ok(())
    }
}

type Group<'a, 'b> = SerializedRowGroupWriter<'a, &'b mut Vec<u8>>;

fn strings(group: &mut Group<'_, '_>, values: &[ByteArray]) -> Result<(), ParquetError> {
    column::<ByteArrayType>(group, values, None)
}

fn numbers(group: &mut Group<'_, '_>, values: &[i64]) -> Result<(), ParquetError> {
    column::<Int64Type>(group, values, None)
}

fn optional(group: &mut Group<'_, '_>, column_of: &Optional) -> Result<(), ParquetError> {
    column::<Int64Type>(group, &column_of.values, Some(&column_of.levels))
}

fn column<T: DataType>(group: &mut Group<'_, '_>, values: &[T::T], levels: Option<&[i16]>) -> Result<(), ParquetError> {
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

#[cfg(test)]
mod tests {
    use super::*;

    fn push_rows(table: &mut Table, rows: usize) {
        let text = || ByteArray::from("it");
        for tick in 0..rows as i64 {
            let rows = &mut table.rows;
            [&mut rows.recorder, &mut rows.phase, &mut rows.subsystem]
                .into_iter()
                .for_each(|column| column.push(text()));
            let numbers =
                [&mut rows.tick, &mut rows.start_ns, &mut rows.frame_ns, &mut rows.late_ns, &mut rows.self_ns];
            numbers.into_iter().for_each(|column| column.push(tick));
            let gaps = [&mut rows.cpu_ns, &mut rows.not_running_ns, &mut rows.scopes, &mut rows.budget_ns];
            gaps.into_iter().for_each(|column| column.push(None));
        }
    }

    /// A full disk takes the end of the file, and has room again later.
    #[test]
    fn full_groups_outlive_an_end_that_was_half_written() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("frames.parquet");
        let mut table = Table::create(&path, &Subsystems::default(), None).unwrap();
        push_rows(&mut table, ROWS_PER_GROUP);
        table.save().unwrap();
        push_rows(&mut table, 5);
        let writable = std::mem::replace(&mut table.file, File::open(&path).unwrap());
        assert!(table.save().is_err(), "nothing can be written");
        writable.set_len(table.groups_end + 3).unwrap();
        assert!(table.save().is_err(), "still not");
        table.file = writable;
        table.save().unwrap();
        let rows = ParquetMetaDataReader::new().parse_and_finish(&File::open(&path).unwrap()).unwrap();
        assert_eq!(rows.file_metadata().num_rows(), ROWS_PER_GROUP as i64 + 5);
        assert_eq!((rows.num_row_groups(), table.groups), (2, 1));
    }
}
