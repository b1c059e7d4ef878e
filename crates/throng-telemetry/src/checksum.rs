//! The checksum of a file of frames: of its data, and of what its end says about the places of the data. A damaged byte would
//! else be another number.
//!
//! ```text
//!  PAR1 | groups of rows | end of the file: columns, places of the groups, checksum | length of the end, PAR1
//!  '--- CRC-32 of it all --'                '---- as text, in the same CRC ---'
//! ```

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};

use crc32fast::Hasher;
use parquet::file::metadata::{FileMetaData, RowGroupMetaData};

/// The key of the checksum in the end of the file.
pub(crate) const KEY: &str = "throng.checksum";
/// The length of the end, and `PAR1`.
const TAIL: u64 = 8;
/// Bytes that are read at once.
const CHUNK: usize = 1 << 20;

/// The checksum of a file with this data.
pub(crate) fn of(mut data: Hasher, description: &FileMetaData, groups: &[RowGroupMetaData]) -> String {
    let mut add = |words: String| data.update(words.as_bytes());
    for column in description.schema_descr().columns() {
        add(format!("{} {:?} {};", column.name(), column.physical_type(), column.max_def_level()));
    }
    for group in groups {
        add(format!("{} rows;", group.num_rows()));
        for column in group.columns() {
            let (from, length) = column.byte_range();
            add(format!("{from} {length} {} {:?};", column.num_values(), column.compression()));
        }
    }
    format!("{:08x}", data.finalize())
}

/// The hasher of the data of a file: of all that lies before its end.
pub(crate) fn of_data(file: &mut File) -> io::Result<Hasher> {
    let length = file.seek(SeekFrom::End(0))?;
    file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
    let mut end_length = [0; 4];
    file.read_exact(&mut end_length)?;
    let data_length = length.saturating_sub(TAIL + u64::from(u32::from_le_bytes(end_length)));
    file.seek(SeekFrom::Start(0))?;
    let (mut left, mut hasher, mut chunk) = (data_length, Hasher::new(), vec![0; CHUNK]);
    while left > 0 {
        let part = &mut chunk[..left.min(CHUNK as u64) as usize];
        file.read_exact(part)?;
        hasher.update(part);
        left -= part.len() as u64;
    }
    Ok(hasher)
}
