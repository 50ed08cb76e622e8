//! The file of a program: a manifest, the model, and engines by key.
//!
//! | bytes | what |
//! |---|---|
//! | 0..8 | magic |
//! | 8..12 | format version |
//! | 12..16 | zero |
//! | 16..24 | length of the manifest |
//! | 24..56 | blake3 of the manifest |
//! | 56.. | manifest, as JSON: what the sections are, where, and their hashes |
//! | … | weights, each 256-byte aligned, then sections, each 4096-byte aligned; the padding is zero |
//!
//! Numbers are little-endian; offsets count from the end of the manifest, 4096-byte aligned. Equal contents
//! give equal bytes. Weights of engines are stored by their contents: what several engines have is there
//! once (from format 2 on; in format 1 each engine is a whole engine file).

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::Path;

use bytes::Bytes;
use eggine_ir::onnx::ImportError;
use eggine_ir::onnx::part::Model;
use serde::{Deserialize, Serialize};

use super::range::InputRange;
use super::wide::WideRecord;
use crate::engine::{Engine, EngineError, Piece, write_atomically};
use crate::plan::ARENA_ALIGN_BYTES;

const MAGIC: [u8; 8] = *b"\x8eEGGPRG\n";
/// The newest that is read, and what is written.
const FORMAT_VERSION: u32 = 2;
const HEADER_BYTES: usize = 56;
const ALIGN_BYTES: usize = 4096;
/// As far apart as tensors in the weights of one engine.
const BLOB_ALIGN_BYTES: usize = ARENA_ALIGN_BYTES as usize;

/// What a program is and how it was made.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgramManifest {
    /// Name of the model.
    pub model: String,
    /// Version of Eggine that made it.
    pub eggine_version: String,
    /// PTX target of its engines, such as `sm_80`.
    pub target: String,
    /// Options of the compilation, by name.
    pub options: BTreeMap<String, String>,
    /// Shapes that it serves; an input that is not here may have any that the model takes.
    pub ranges: Vec<InputRange>,
    /// Shapes that engines were made for, in words.
    pub points: Vec<String>,
    /// What a run on the first point does, a line a stage or host step.
    pub trace: Vec<String>,
    /// Names of nodes that the host computes or decides in that run, with the reason.
    pub host_steps: Vec<String>,
    /// Engines that serve ranges of shapes.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub wide: Vec<WideRecord>,
    /// Where the sections are.
    sections: Vec<Record>,
    /// Where weights are.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    blobs: Vec<Blob>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Record {
    /// `model`, or the key of an engine.
    name: String,
    offset: u64,
    n_bytes: u64,
    blake3: String,
    /// Offsets in the weights of an engine, and which blob is there; `None` if the section has them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    weights: Option<Vec<(u64, usize)>>,
}

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
struct Blob {
    offset: u64,
    n_bytes: u64,
    blake3: String,
}

/// A program in memory or mapped from a file. Cloning shares the bytes.
#[derive(Clone, Debug)]
pub struct Program {
    /// What it is and how it was made.
    pub manifest: ProgramManifest,
    model: Model,
    engines: BTreeMap<String, Engine>,
}

/// A program that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ProgramError {
    /// The operating system refuses.
    #[error("cannot read `{file}`: {source}")]
    Read {
        /// Path.
        file: String,
        /// Why.
        source: io::Error,
    },
    /// The operating system refuses, or the disk is full. The file is as it was before.
    #[error("cannot write `{file}`: {source}; nothing was left behind")]
    Write {
        /// Path.
        file: String,
        /// Why.
        source: io::Error,
    },
    /// Made by a later Eggine.
    #[error(
        "`{file}` has program format {found}; this Eggine reads format {FORMAT_VERSION}: use a newer Eggine, or compile the model again"
    )]
    Newer {
        /// Path.
        file: String,
        /// Its version.
        found: u32,
    },
    /// Cut off, or changed after it was written.
    #[error("program `{file}` is damaged: {reason}")]
    Damaged {
        /// Path.
        file: String,
        /// What is wrong.
        reason: String,
    },
    /// Its model.
    #[error(transparent)]
    Model(#[from] ImportError),
    /// One of its engines.
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// Whether a file says that it is a program. What cannot be read is none.
pub fn is_program(path: &Path) -> bool {
    let mut head = [0; 8];
    File::open(path).and_then(|mut file| io::Read::read_exact(&mut file, &mut head)).is_ok()
        && head == MAGIC
}

impl Program {
    /// A program of a model, without engines.
    pub fn new(model: Model, manifest: ProgramManifest) -> Self {
        Self { manifest, model, engines: BTreeMap::new() }
    }

    /// The model.
    pub fn model(&self) -> &Model {
        &self.model
    }

    /// The engine of a key.
    pub fn engine(&self, key: &str) -> Option<Engine> {
        self.engines.get(key).cloned()
    }

    /// Engines by key.
    pub fn engines(&self) -> &BTreeMap<String, Engine> {
        &self.engines
    }

    /// Adds engines.
    pub fn extend(&mut self, engines: BTreeMap<String, Engine>) {
        self.engines.extend(engines);
    }

    /// Writes the file. A reader sees either the file that was there before or the new one.
    ///
    /// # Errors
    ///
    /// If the model's tensors or the place cannot be used; then nothing is left behind.
    pub fn write(&self, path: &Path) -> Result<(), ProgramError> {
        let mut manifest = self.manifest.clone();
        (manifest.sections, manifest.blobs) = (Vec::new(), Vec::new());
        let mut offset = 0usize;
        let mut chunks: Vec<(usize, Bytes)> = Vec::new();
        let mut place = |bytes: &Bytes, align: usize| {
            let at = offset.next_multiple_of(align);
            chunks.push((at - offset, bytes.clone()));
            offset = at + bytes.len();
            at as u64
        };
        let mut seen: BTreeMap<[u8; 32], usize> = BTreeMap::new();
        let mut sections = vec![("model", Bytes::from(self.model.to_bytes()?), None)];
        for (key, engine) in &self.engines {
            let mut weights = Vec::new();
            for (at, bytes) in engine.pieces() {
                let hash = blake3::hash(&bytes);
                let blob = *seen.entry(*hash.as_bytes()).or_insert_with(|| {
                    manifest.blobs.push(Blob {
                        offset: place(&bytes, BLOB_ALIGN_BYTES),
                        n_bytes: bytes.len() as u64,
                        blake3: hash.to_hex().to_string(),
                    });
                    manifest.blobs.len() - 1
                });
                weights.push((at, blob));
            }
            sections.push((key, Bytes::from(engine.without_weights()), Some(weights)));
        }
        for (name, bytes, weights) in sections {
            manifest.sections.push(Record {
                name: name.to_owned(),
                offset: place(&bytes, ALIGN_BYTES),
                n_bytes: bytes.len() as u64,
                blake3: blake3::hash(&bytes).to_hex().to_string(),
                weights,
            });
        }
        let json = serde_json::to_vec(&manifest).expect("a manifest serialises");
        let mut head = Vec::with_capacity(HEADER_BYTES + json.len());
        head.extend(MAGIC);
        head.extend(FORMAT_VERSION.to_le_bytes());
        head.extend([0; 4]);
        head.extend((json.len() as u64).to_le_bytes());
        head.extend(blake3::hash(&json).as_bytes());
        head.extend(&json);
        head.resize(head.len().next_multiple_of(ALIGN_BYTES), 0);
        write_atomically(path, |file| {
            file.write_all(&head)?;
            for (padding, bytes) in &chunks {
                file.write_all(&vec![0; *padding])?;
                file.write_all(bytes)?;
            }
            Ok(())
        })
        .map_err(|source| ProgramError::Write { file: path.display().to_string(), source })
    }

    /// Maps a file and checks all of it.
    ///
    /// # Errors
    ///
    /// If it cannot be read, is no program, is of a newer format, or is damaged.
    pub fn open(path: &Path) -> Result<Self, ProgramError> {
        let file = path.display().to_string();
        let read = |source| ProgramError::Read { file: file.clone(), source };
        let opened = File::open(path).map_err(read)?;
        // SAFETY: the map is read-only, and these files are replaced, never changed in place.
        let bytes = unsafe { memmap2::Mmap::map(&opened) }.map_err(read)?;
        Self::from_bytes(&file, Bytes::from_owner(bytes))
    }

    /// As [`open`](Self::open), of a file's bytes; `file` is for messages.
    ///
    /// # Errors
    ///
    /// If it is no program, is of a newer format, or is damaged.
    pub fn from_bytes(file: &str, bytes: Bytes) -> Result<Self, ProgramError> {
        let damaged =
            |reason: &str| ProgramError::Damaged { file: file.to_owned(), reason: reason.into() };
        if bytes.len() < HEADER_BYTES || bytes[..8] != MAGIC {
            return Err(damaged("it does not start as one"));
        }
        let found = u32::from_le_bytes(bytes[8..12].try_into().expect("four bytes"));
        if found > FORMAT_VERSION {
            return Err(ProgramError::Newer { file: file.to_owned(), found });
        }
        let length = u64::from_le_bytes(bytes[16..24].try_into().expect("eight bytes"));
        let end = usize::try_from(length).ok().and_then(|n| HEADER_BYTES.checked_add(n));
        let end = end.filter(|&end| end <= bytes.len()).ok_or_else(|| damaged("it is cut off"))?;
        let json = &bytes[HEADER_BYTES..end];
        if blake3::hash(json).as_bytes() != &bytes[24..HEADER_BYTES] {
            return Err(damaged("its manifest was changed"));
        }
        let manifest: ProgramManifest = serde_json::from_slice(json)
            .map_err(|err| damaged(&format!("its manifest cannot be read: {err}")))?;
        let first = end.next_multiple_of(ALIGN_BYTES);
        let (mut model, mut engines) = (None, BTreeMap::new());
        let section = |what: &str, offset: u64, n_bytes: u64, hash: &str| {
            let place = usize::try_from(offset).ok().and_then(|n| first.checked_add(n));
            let place = place.and_then(|from| {
                let to = from.checked_add(usize::try_from(n_bytes).ok()?)?;
                (to <= bytes.len()).then_some(from..to)
            });
            let section = bytes.slice(place.ok_or_else(|| damaged("it is cut off"))?);
            match blake3::hash(&section).to_hex().as_str() == hash {
                true => Ok(section),
                false => Err(damaged(&format!("{what} was changed"))),
            }
        };
        let mut blobs = Vec::with_capacity(manifest.blobs.len());
        for (nth, blob) in manifest.blobs.iter().enumerate() {
            let what = format!("weight {nth}");
            blobs.push(section(&what, blob.offset, blob.n_bytes, &blob.blake3)?);
        }
        for record in &manifest.sections {
            let what = format!("section `{}`", record.name);
            let bytes = section(&what, record.offset, record.n_bytes, &record.blake3)?;
            let engine = match &record.weights {
                _ if record.name == "model" => {
                    model = Some(Model::from_bytes(file, bytes)?);
                    continue;
                }
                None => Engine::from_bytes(bytes)?,
                Some(weights) => {
                    let piece = |&(at, blob): &(u64, usize)| Some((at, blobs.get(blob)?.clone()));
                    let pieces: Option<Vec<Piece>> = weights.iter().map(piece).collect();
                    let lacks = || damaged(&format!("{what} has weights that are not there"));
                    Engine::with_pieces(bytes, pieces.ok_or_else(lacks)?)?
                }
            };
            engines.insert(record.name.clone(), engine);
        }
        let model = model.ok_or_else(|| damaged("it has no model"))?;
        Ok(Self { manifest, model, engines })
    }
}
