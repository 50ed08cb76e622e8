//! Layout of the file: header, directory, sections.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | magic; its first byte is not ASCII and its last is a line feed, so that no text starts so and a transfer in text mode breaks it |
//! | 8..12 | format version |
//! | 12..16 | number of sections |
//! | 16..24 | length of the file |
//! | 24..56 | blake3 of bytes 0..24 and of the directory |
//! | 56.. | directory: per section kind (4), index (4), offset (8), length (8), blake3 (32) |
//! | … | sections, each 64-byte aligned, the weights 4096-byte aligned; the padding is zero |
//!
//! Numbers are little-endian. Magic and version have this place in every format version.

use std::fmt;

use bytes::Bytes;

use super::EngineError;

/// The newest format that this crate reads. What it writes has the least version that can hold it: 3 has
/// launch attributes, 2 machine code, 1 neither.
pub const FORMAT_VERSION: u32 = 3;

const MAGIC: [u8; 8] = *b"\x8eEGGINE\n";
const HEADER_BYTES: usize = 56;
const ENTRY_BYTES: usize = 56;
/// A cache line, and the widest vector access many times over.
const SECTION_ALIGN_BYTES: u64 = 64;
/// A page, so that a mapped weights section starts one.
const WEIGHTS_ALIGN_BYTES: u64 = 4096;
/// More than any plan has; a directory that claims more is damaged.
const MAX_SECTIONS: u32 = 1 << 20;

/// Names a section.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Section {
    Manifest,
    Plan,
    Sources,
    Report,
    Evidence,
    Ptx(usize),
    Weights,
    /// Machine code of all kernels for one target.
    Code(usize),
}

impl Section {
    fn code(self) -> (u32, u32) {
        match self {
            Section::Manifest => (1, 0),
            Section::Plan => (2, 0),
            Section::Sources => (3, 0),
            Section::Report => (4, 0),
            Section::Evidence => (5, 0),
            Section::Ptx(kernel) => (6, u32::try_from(kernel).expect("fewer than 2³² kernels")),
            Section::Weights => (7, 0),
            Section::Code(target) => (8, u32::try_from(target).expect("fewer than 2³² targets")),
        }
    }

    fn from_code(kind: u32, index: u32) -> Option<Self> {
        match (kind, index) {
            (1, 0) => Some(Section::Manifest),
            (2, 0) => Some(Section::Plan),
            (3, 0) => Some(Section::Sources),
            (4, 0) => Some(Section::Report),
            (5, 0) => Some(Section::Evidence),
            (6, kernel) => Some(Section::Ptx(kernel as usize)),
            (7, 0) => Some(Section::Weights),
            (8, target) => Some(Section::Code(target as usize)),
            _ => None,
        }
    }

    fn align_bytes(self) -> u64 {
        if self == Section::Weights { WEIGHTS_ALIGN_BYTES } else { SECTION_ALIGN_BYTES }
    }
}

impl fmt::Display for Section {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Section::Manifest => f.write_str("section `manifest`"),
            Section::Plan => f.write_str("section `plan`"),
            Section::Sources => f.write_str("section `sources`"),
            Section::Report => f.write_str("section `report`"),
            Section::Evidence => f.write_str("section `evidence`"),
            Section::Ptx(kernel) => write!(f, "section `ptx {kernel}`"),
            Section::Weights => f.write_str("section `weights`"),
            Section::Code(target) => write!(f, "section `code {target}`"),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    section: Section,
    offset: u64,
    n_bytes: u64,
    hash: [u8; 32],
}

/// The checked directory of a file.
#[derive(Clone, Debug)]
pub(super) struct Directory {
    entries: Vec<Entry>,
    hash: [u8; 32],
}

/// Header, directory and sections with their padding, in file order, in a format of at least `version`.
pub(super) fn lay_out(sections: &[(Section, Bytes)], version: u32) -> Vec<Bytes> {
    let mut at = (HEADER_BYTES + ENTRY_BYTES * sections.len()) as u64;
    let mut table = Vec::with_capacity(ENTRY_BYTES * sections.len());
    let mut body = Vec::with_capacity(2 * sections.len());
    for (section, bytes) in sections {
        let offset = at.next_multiple_of(section.align_bytes());
        body.push(Bytes::from(vec![0; (offset - at) as usize]));
        body.push(bytes.clone());
        let (kind, index) = section.code();
        table.extend(kind.to_le_bytes());
        table.extend(index.to_le_bytes());
        table.extend(offset.to_le_bytes());
        table.extend((bytes.len() as u64).to_le_bytes());
        table.extend(blake3::hash(bytes).as_bytes());
        at = offset + bytes.len() as u64;
    }
    let mut header = Vec::with_capacity(HEADER_BYTES);
    header.extend(MAGIC);
    let has_code = sections.iter().any(|(section, _)| matches!(section, Section::Code(_)));
    header.extend(version.max(if has_code { 2 } else { 1 }).to_le_bytes());
    header.extend((sections.len() as u32).to_le_bytes());
    header.extend(at.to_le_bytes());
    header.extend(table_hash(&header, &table));
    let mut chunks = vec![Bytes::from(header), Bytes::from(table)];
    chunks.append(&mut body);
    chunks
}

fn table_hash(header: &[u8], table: &[u8]) -> [u8; 32] {
    *blake3::Hasher::new().update(&header[..24]).update(table).finalize().as_bytes()
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("four bytes"))
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

/// The format version of a file whose directory was read.
pub(super) fn version(bytes: &[u8]) -> u32 {
    u32_at(bytes, 8)
}

fn hash_at(bytes: &[u8], at: usize) -> [u8; 32] {
    bytes[at..at + 32].try_into().expect("thirty-two bytes")
}

/// What a file that is no engine seems to be.
fn looks(bytes: &[u8]) -> &'static str {
    let text_start = bytes.trim_ascii_start();
    match bytes {
        [] => "it is empty",
        [b'P', b'K', 3, 4, ..] => "it is a zip archive, such as a case file (.npz)",
        [b'v', b'e', b'r', b's', b'i', b'o', b'n', b' ', b'h', b't', b't', b'p', ..] => {
            "it is a Git LFS pointer: fetch the file itself"
        }
        [0x8e, b'E', b'G', b'G', b'P', b'R', b'G', ..] => {
            "it is a program of several engines, for `run`, `compare`, `inspect` and `bench`"
        }
        [0x08, ..] => "it may be an ONNX model: compile it first",
        _ if text_start.first() == Some(&b'<') => "it is an HTML or XML page",
        _ if MAGIC.starts_with(&bytes[..bytes.len().min(8)]) => "it ends within its first bytes",
        _ => "it does not start as one",
    }
}

impl Directory {
    /// Checks the header, the directory, the bounds of all sections and the padding between them.
    pub(super) fn read(file: &str, bytes: &[u8]) -> Result<Self, EngineError> {
        let file = || file.to_owned();
        if !bytes.starts_with(&MAGIC) {
            return Err(EngineError::Foreign { file: file(), looks: looks(bytes) });
        }
        let has_bytes = bytes.len() as u64;
        let too_short =
            |needs_bytes: u64| EngineError::Length { file: file(), has_bytes, needs_bytes };
        if bytes.len() < 12 {
            return Err(too_short(HEADER_BYTES as u64));
        }
        let found = u32_at(bytes, 8);
        if found > FORMAT_VERSION {
            return Err(EngineError::Newer { file: file(), found, supported: FORMAT_VERSION });
        }
        if bytes.len() < HEADER_BYTES {
            return Err(too_short(HEADER_BYTES as u64));
        }
        let damaged = |section: String, reason: &str| EngineError::Damaged {
            file: file(),
            section,
            reason: reason.into(),
        };
        let header = |reason: &str| damaged("header".into(), reason);
        if found == 0 {
            return Err(header("there is no format 0"));
        }
        let (n_sections, file_bytes) = (u32_at(bytes, 12), u64_at(bytes, 16));
        let table_end = HEADER_BYTES as u64 + ENTRY_BYTES as u64 * u64::from(n_sections);
        if n_sections > MAX_SECTIONS || table_end > file_bytes {
            return Err(header("the number of sections is impossible"));
        }
        if table_end > has_bytes {
            return Err(too_short(file_bytes));
        }
        let table = &bytes[HEADER_BYTES..table_end as usize];
        let hash = table_hash(bytes, table);
        // The hash covers the length too: a length that is believed is one that was written.
        if hash != hash_at(bytes, 24) {
            return Err(header("it does not have the hash that was written with it"));
        }
        if has_bytes != file_bytes {
            return Err(too_short(file_bytes));
        }
        let mut entries: Vec<Entry> = Vec::with_capacity(n_sections as usize);
        let mut end = table_end;
        for row in table.chunks_exact(ENTRY_BYTES) {
            let section = Section::from_code(u32_at(row, 0), u32_at(row, 4));
            let section = section.ok_or_else(|| header("it names an unknown section"))?;
            let (offset, n_bytes) = (u64_at(row, 8), u64_at(row, 16));
            let section_end = offset.checked_add(n_bytes).filter(|&end| end <= file_bytes);
            let Some(section_end) = section_end.filter(|_| offset >= end) else {
                return Err(damaged(section.to_string(), "it is not inside the file"));
            };
            if bytes[end as usize..offset as usize].iter().any(|&byte| byte != 0) {
                return Err(damaged(section.to_string(), "the bytes before it are not zero"));
            }
            if entries.iter().any(|entry| entry.section == section) {
                return Err(damaged(section.to_string(), "it is there twice"));
            }
            entries.push(Entry { section, offset, n_bytes, hash: hash_at(row, 24) });
            end = section_end;
        }
        if end != file_bytes {
            return Err(header("there are bytes behind the last section"));
        }
        Ok(Self { entries, hash })
    }

    fn entry(&self, file: &str, section: Section) -> Result<&Entry, EngineError> {
        let found = self.entries.iter().find(|entry| entry.section == section);
        found.ok_or_else(|| EngineError::Damaged {
            file: file.to_owned(),
            section: section.to_string(),
            reason: "it is missing".into(),
        })
    }

    /// The bytes of a section, without a look at them.
    pub(super) fn unchecked(
        &self,
        file: &str,
        bytes: &Bytes,
        section: Section,
    ) -> Result<Bytes, EngineError> {
        let entry = self.entry(file, section)?;
        Ok(bytes.slice(entry.offset as usize..(entry.offset + entry.n_bytes) as usize))
    }

    /// The bytes of a section, if they have the hash that was written with them.
    pub(super) fn checked(
        &self,
        file: &str,
        bytes: &Bytes,
        section: Section,
    ) -> Result<Bytes, EngineError> {
        let contents = self.unchecked(file, bytes, section)?;
        if blake3::hash(&contents).as_bytes() == &self.entry(file, section)?.hash {
            return Ok(contents);
        }
        Err(EngineError::Damaged {
            file: file.to_owned(),
            section: section.to_string(),
            reason: "it does not have the hash that was written with it".into(),
        })
    }

    /// Sections and their sizes.
    pub(super) fn entries(&self) -> impl Iterator<Item = (Section, u64)> + '_ {
        self.entries.iter().map(|entry| (entry.section, entry.n_bytes))
    }

    /// Hash of the directory.
    pub(super) fn hash(&self) -> String {
        blake3::Hash::from_bytes(self.hash).to_hex().to_string()
    }
}
