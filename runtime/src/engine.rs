//! The engine file: everything that running a compiled model needs, and the record of how it was made.
//!
//! One file of named sections, each with its own hash: manifest, launch plan, PTX texts, packed
//! weights, error report, evidence, the map from the model's nodes to launches, and machine code for as
//! many targets as were asked for. Equal contents
//! give equal bytes. Nothing of a file is used before its hash was checked; the weights, which are
//! most of the file, are mapped and never copied.

mod format;
mod manifest;
mod pieces;
mod weights;
mod write;

pub use format::FORMAT_VERSION;
pub use manifest::{
    AgentRecord, ArenaRecord, CodeRecord, GraphAgentRecord, KernelRecord, Manifest,
};
pub use pieces::Piece;
pub use weights::WeightsBuilder;
pub use write::write_atomically;

use std::collections::BTreeMap;
use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use bytes::Bytes;
use serde::de::DeserializeOwned;

use crate::plan::{IoSpec, Plan, PlanError};
use crate::verify::Verification;
use format::{Directory, Section};

/// What an engine is made of.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct EngineParts {
    /// What it is and how it was made; one record a kernel, in the plan's order.
    pub manifest: Manifest,
    /// What is executed.
    pub plan: Plan,
    /// PTX text of each kernel of the plan.
    pub ptx: Vec<String>,
    /// The weights section, as [`WeightsBuilder`] makes it.
    pub weights: Bytes,
    /// How each kernel was verified, in the plan's order; empty if none was.
    pub report: Vec<Verification>,
    /// Ids of the evidence that the choices rest on, in the words of the evidence database.
    pub evidence: Vec<String>,
    /// Machine code: for each of the manifest's code records, the cubin of each kernel.
    pub code: Vec<Vec<Bytes>>,
}

/// An engine in memory or mapped from a file. Cloning shares the bytes.
#[derive(Clone, Debug)]
pub struct Engine {
    /// What it is and how it was made.
    pub manifest: Manifest,
    /// What is executed.
    pub plan: Plan,
    name: String,
    ptx: Vec<String>,
    code: Vec<Vec<Bytes>>,
    weights: OnceLock<Bytes>,
    /// Where the weights are, if they are not in `bytes`.
    pieces: Option<Vec<Piece>>,
    bytes: Bytes,
    directory: Directory,
}

/// An engine that cannot be read or written.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum EngineError {
    /// The operating system refuses.
    #[error("cannot read engine `{file}`: {source}")]
    Read {
        /// Path.
        file: String,
        /// Why.
        source: io::Error,
    },
    /// The operating system refuses, or the disk is full. The file is as it was before.
    #[error("cannot write engine `{file}`: {source}; nothing was left behind")]
    Write {
        /// Path.
        file: String,
        /// Why.
        source: io::Error,
    },
    /// Something else.
    #[error("`{file}` is not an Eggine engine: {looks}")]
    Foreign {
        /// Path.
        file: String,
        /// What it seems to be.
        looks: &'static str,
    },
    /// Made by a later Eggine.
    #[error(
        "`{file}` has engine format {found}; this Eggine reads format {supported}: use a newer Eggine, or compile the model again"
    )]
    Newer {
        /// Path.
        file: String,
        /// Its version.
        found: u32,
        /// Ours.
        supported: u32,
    },
    /// Cut off, or something was appended.
    #[error("engine `{file}` is damaged: it has {has_bytes} bytes and should have {needs_bytes}")]
    Length {
        /// Path.
        file: String,
        /// Length of the file.
        has_bytes: u64,
        /// Length that its header tells.
        needs_bytes: u64,
    },
    /// Changed after it was written.
    #[error("engine `{file}` is damaged: {section}: {reason}")]
    Damaged {
        /// Path.
        file: String,
        /// Which section.
        section: String,
        /// What is wrong with it.
        reason: String,
    },
    /// Parts that do not belong together. Only when writing.
    #[error("inconsistent engine: {reason}")]
    Inconsistent {
        /// What does not fit.
        reason: String,
    },
    /// A plan that cannot be executed. Only when writing.
    #[error("inconsistent engine: {0}")]
    Plan(#[from] PlanError),
}

impl Engine {
    /// The bytes of an engine file. Equal parts give equal bytes.
    ///
    /// # Errors
    ///
    /// If the parts do not belong together.
    pub fn to_bytes(parts: &EngineParts) -> Result<Vec<u8>, EngineError> {
        let mut bytes = Vec::new();
        for chunk in chunks(parts)? {
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    /// Writes an engine file. A reader sees either the file that was there before or the new one.
    ///
    /// # Errors
    ///
    /// If the parts do not belong together, or the file cannot be written; then nothing is left behind.
    pub fn write(path: &Path, parts: &EngineParts) -> Result<(), EngineError> {
        let chunks = chunks(parts)?;
        write_atomically(path, |file| chunks.iter().try_for_each(|chunk| file.write_all(chunk)))
            .map_err(|source| EngineError::Write { file: path.display().to_string(), source })
    }

    /// Maps an engine file and checks all of it.
    ///
    /// The file must not be changed in place while the engine is in use; [`Engine::write`] never does.
    ///
    /// # Errors
    ///
    /// If it cannot be read, is no engine, is of a newer format, or any section of it is damaged.
    pub fn open(path: &Path) -> Result<Self, EngineError> {
        let engine = Self::open_unchecked_weights(path)?;
        engine.check_weights()?;
        Ok(engine)
    }

    /// As [`open`](Self::open), but without reading the weights: for looking at an engine.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn open_unchecked_weights(path: &Path) -> Result<Self, EngineError> {
        let name = path.display().to_string();
        let read = |source| EngineError::Read { file: name.clone(), source };
        let file = File::open(path).map_err(read)?;
        let metadata = file.metadata().map_err(read)?;
        if metadata.is_dir() {
            return Err(EngineError::Foreign { file: name, looks: "it is a folder" });
        }
        // A file of no bytes cannot be mapped everywhere.
        let bytes = if metadata.len() == 0 {
            Bytes::new()
        } else {
            // SAFETY: the map is read-only, and engine files are replaced, never changed in place.
            Bytes::from_owner(unsafe { memmap2::Mmap::map(&file) }.map_err(read)?)
        };
        Self::parse(name, bytes, None)
    }

    /// An engine from bytes in memory, all of it checked.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    pub fn from_bytes(bytes: impl Into<Bytes>) -> Result<Self, EngineError> {
        let engine = Self::parse("(memory)".into(), bytes.into(), None)?;
        engine.check_weights()?;
        Ok(engine)
    }

    /// An engine whose weights are elsewhere: `bytes` are those of [`without_weights`](Self::without_weights),
    /// `pieces` those of [`pieces`](Self::pieces), whose contents are the caller's to check.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open), and if the pieces are not what the plan needs.
    pub fn with_pieces(bytes: Bytes, pieces: Vec<Piece>) -> Result<Self, EngineError> {
        Self::parse("(memory)".into(), bytes, Some(pieces))
    }

    fn parse(name: String, bytes: Bytes, pieces: Option<Vec<Piece>>) -> Result<Self, EngineError> {
        let directory = Directory::read(&name, &bytes)?;
        let manifest: Manifest = json(&name, &bytes, &directory, Section::Manifest)?;
        let plan: Plan = json(&name, &bytes, &directory, Section::Plan)?;
        let damaged = |section: Section, reason: String| EngineError::Damaged {
            file: name.clone(),
            section: section.to_string(),
            reason,
        };
        plan.verify().map_err(|err| damaged(Section::Plan, err.to_string()))?;
        let mut ptx = Vec::with_capacity(plan.kernels.len());
        for kernel in 0..plan.kernels.len() {
            let section = Section::Ptx(kernel);
            let text = directory.checked(&name, &bytes, section)?;
            let text =
                std::str::from_utf8(&text).map_err(|err| damaged(section, err.to_string()))?;
            ptx.push(text.to_owned());
        }
        let mut code = Vec::with_capacity(manifest.code.len());
        for (target, record) in manifest.code.iter().enumerate() {
            let all = directory.checked(&name, &bytes, Section::Code(target))?;
            let cubins = split(&all, &record.cubin_bytes, plan.kernels.len());
            code.push(cubins.ok_or_else(|| {
                let reason = "the manifest has other sizes of its kernels".to_owned();
                damaged(Section::Code(target), reason)
            })?);
        }
        for section in [Section::Sources, Section::Report, Section::Evidence] {
            directory.checked(&name, &bytes, section)?;
        }
        let section = directory.unchecked(&name, &bytes, Section::Weights)?;
        let weights = OnceLock::new();
        match &pieces {
            None if section.len() as u64 == plan.weights_bytes => {
                weights.get_or_init(|| section);
            }
            None => {
                let (has, needs) = (section.len(), plan.weights_bytes);
                let reason = format!("has {has} bytes, the plan needs {needs}");
                return Err(damaged(Section::Weights, reason));
            }
            Some(pieces) => pieces::check(&plan, pieces)
                .map_err(|reason| damaged(Section::Weights, reason.to_owned()))?,
        }
        Ok(Self { manifest, plan, name, ptx, code, weights, pieces, bytes, directory })
    }

    /// The bytes of an engine file with the same sections but no weights, for
    /// [`with_pieces`](Self::with_pieces). It is no engine of its own.
    pub fn without_weights(&self) -> Vec<u8> {
        let of = |(section, _)| match section {
            Section::Weights => (section, Bytes::new()),
            other => {
                let bytes = self.directory.unchecked(&self.name, &self.bytes, other);
                (other, bytes.expect("it is in the directory"))
            }
        };
        let sections: Vec<(Section, Bytes)> = self.directory.entries().map(of).collect();
        format::lay_out(&sections, format::version(&self.bytes)).concat()
    }

    /// The weights without what lies between the tensors: offsets in the section, in order. Nothing is
    /// copied.
    pub fn pieces(&self) -> Vec<Piece> {
        match &self.pieces {
            Some(pieces) => pieces.clone(),
            None => pieces::cut(&self.plan, self.weights()),
        }
    }

    /// Whether the weights are in pieces that other engines may have too.
    pub fn is_in_pieces(&self) -> bool {
        self.pieces.is_some()
    }

    /// Checks the hash of the weights.
    ///
    /// # Errors
    ///
    /// [`EngineError::Damaged`].
    pub fn check_weights(&self) -> Result<(), EngineError> {
        self.directory.checked(&self.name, &self.bytes, Section::Weights).map(drop)
    }

    /// The inputs, in the model's order.
    pub fn inputs(&self) -> &[IoSpec] {
        &self.plan.inputs
    }

    /// The outputs, in the model's order.
    pub fn outputs(&self) -> &[IoSpec] {
        &self.plan.outputs
    }

    /// PTX text of a kernel of the plan.
    pub fn ptx(&self, kernel: usize) -> &str {
        &self.ptx[kernel]
    }

    /// Which of the manifest's code records is for exactly this compute capability (90 for 9.0), if any.
    pub fn code_for(&self, sm: u32) -> Option<usize> {
        self.manifest.code.iter().position(|record| sm_of(&record.target) == Some(sm))
    }

    /// Machine code of a kernel of the plan, from one of the manifest's code records.
    pub fn cubin(&self, code: usize, kernel: usize) -> &Bytes {
        &self.code[code][kernel]
    }

    /// The weights section, mapped: 4096-byte aligned in the file. Of an engine in pieces it is put together
    /// when it is first asked for.
    pub fn weights(&self) -> &Bytes {
        self.weights.get_or_init(|| pieces::join(self.pieces.as_deref().unwrap_or_default()))
    }

    /// How each kernel was verified, in the plan's order; empty if none was.
    ///
    /// # Errors
    ///
    /// [`EngineError::Damaged`].
    pub fn report(&self) -> Result<Vec<Verification>, EngineError> {
        json(&self.name, &self.bytes, &self.directory, Section::Report)
    }

    /// Ids of the evidence that the choices rest on.
    ///
    /// # Errors
    ///
    /// [`EngineError::Damaged`].
    pub fn evidence(&self) -> Result<Vec<String>, EngineError> {
        json(&self.name, &self.bytes, &self.directory, Section::Evidence)
    }

    /// Which steps compute a node of the model, by its name. A node that was folded has no steps.
    ///
    /// # Errors
    ///
    /// [`EngineError::Damaged`].
    pub fn steps_of_sources(&self) -> Result<BTreeMap<String, Vec<usize>>, EngineError> {
        json(&self.name, &self.bytes, &self.directory, Section::Sources)
    }

    /// Sections with their sizes, in the order of the file.
    pub fn section_bytes(&self) -> Vec<(String, u64)> {
        self.directory.entries().map(|(section, n_bytes)| (section.to_string(), n_bytes)).collect()
    }

    /// Size of the file.
    pub fn file_bytes(&self) -> u64 {
        self.bytes.len() as u64
    }

    /// Hash of the whole engine: of the directory, which holds the hashes of the sections. Weights in pieces
    /// are not in it.
    pub fn hash(&self) -> String {
        self.directory.hash()
    }

    /// Where it came from, for messages.
    pub fn path(&self) -> PathBuf {
        PathBuf::from(&self.name)
    }
}

/// Compute capability of a target: 90 for `sm_90a`.
pub fn sm_of(target: &str) -> Option<u32> {
    let digits = target.strip_prefix("sm_")?.trim_end_matches(|c: char| c.is_ascii_lowercase());
    digits.parse().ok()
}

/// Consecutive parts of so many bytes, if they are as many as the kernels and make up the whole.
fn split(all: &Bytes, sizes: &[u64], n_kernels: usize) -> Option<Vec<Bytes>> {
    let mut parts = Vec::with_capacity(sizes.len());
    let mut at = 0usize;
    for &size in sizes {
        let end = at.checked_add(usize::try_from(size).ok()?).filter(|&end| end <= all.len())?;
        parts.push(all.slice(at..end));
        at = end;
    }
    (at == all.len() && parts.len() == n_kernels).then_some(parts)
}

fn json<T: DeserializeOwned>(
    file: &str,
    bytes: &Bytes,
    directory: &Directory,
    section: Section,
) -> Result<T, EngineError> {
    let text = directory.checked(file, bytes, section)?;
    serde_json::from_slice(&text).map_err(|err| EngineError::Damaged {
        file: file.to_owned(),
        section: section.to_string(),
        reason: err.to_string(),
    })
}

/// The pieces of the file, in order: header, directory, sections and the padding between them.
fn chunks(parts: &EngineParts) -> Result<Vec<Bytes>, EngineError> {
    let EngineParts { manifest, plan, ptx, weights, report, evidence, code } = parts;
    plan.verify()?;
    let inconsistent = |reason: String| Err(EngineError::Inconsistent { reason });
    let n_kernels = plan.kernels.len();
    if ptx.len() != n_kernels || manifest.kernels.len() != n_kernels {
        let (texts, records) = (ptx.len(), manifest.kernels.len());
        return inconsistent(format!(
            "{n_kernels} kernels in the plan, {texts} PTX texts, {records} records"
        ));
    }
    if !report.is_empty() && report.len() != n_kernels {
        return inconsistent(format!("{n_kernels} kernels, {} verifications", report.len()));
    }
    if weights.len() as u64 != plan.weights_bytes {
        return inconsistent(format!(
            "{} bytes of weights, the plan needs {}",
            weights.len(),
            plan.weights_bytes
        ));
    }
    for (record, (kernel, text)) in manifest.kernels.iter().zip(plan.kernels.iter().zip(ptx)) {
        if record.name != kernel.entry {
            return inconsistent(format!(
                "kernel `{}` has the record of `{}`",
                kernel.entry, record.name
            ));
        }
        if record.ptx_hash != hash_text(text) {
            return inconsistent(format!(
                "the record of kernel `{}` is of another PTX text",
                record.name
            ));
        }
    }
    let sizes =
        |cubins: &Vec<Bytes>| -> Vec<u64> { cubins.iter().map(|it| it.len() as u64).collect() };
    let told = manifest.code.iter().map(|record| record.cubin_bytes.clone());
    if !told.eq(code.iter().map(sizes)) || code.iter().any(|cubins| cubins.len() != n_kernels) {
        return inconsistent("the records of machine code are of other machine code".into());
    }
    let mut sources: BTreeMap<&str, Vec<usize>> = BTreeMap::new();
    for (index, step) in plan.steps.iter().enumerate() {
        for source in &step.sources {
            sources.entry(source).or_default().push(index);
        }
    }
    fn to_json(value: &impl serde::Serialize) -> Result<Bytes, EngineError> {
        serde_json::to_vec(value)
            .map(Bytes::from)
            .map_err(|err| EngineError::Inconsistent { reason: err.to_string() })
    }
    let mut sections = vec![
        (Section::Manifest, to_json(manifest)?),
        (Section::Plan, to_json(plan)?),
        (Section::Sources, to_json(&sources)?),
        (Section::Report, to_json(report)?),
        (Section::Evidence, to_json(evidence)?),
    ];
    sections.extend(
        ptx.iter().enumerate().map(|(i, text)| (Section::Ptx(i), Bytes::from(text.clone()))),
    );
    sections.push((Section::Weights, weights.clone()));
    sections.extend(
        code.iter().enumerate().map(|(i, cubins)| (Section::Code(i), Bytes::from(cubins.concat()))),
    );
    let has_attributes = plan.kernels.iter().any(|kernel| !kernel.attributes.is_plain());
    Ok(format::lay_out(&sections, if has_attributes { 3 } else { 1 }))
}

/// Hash of a PTX (or any other) text, as records carry it.
pub fn hash_text(text: &str) -> String {
    blake3::hash(text.as_bytes()).to_hex().to_string()
}
