//! The assembler: runs `ptxas` on PTX text and reads what it says, and what it made.
//!
//! It needs no GPU. Some of its messages are of failures but come with exit code 0; these are errors
//! here. What it cannot see (misaligned vectors, addresses out of bounds, races) the executor finds.

pub mod cubin;
mod log;
mod opcodes;

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use eggine_ptx::PtxError;
use eggine_ptx::ast::Module;
use thiserror::Error;

pub use cubin::{CubinError, InstructionMix};
pub use log::Usage;

use crate::Target;

/// The version that `cargo xtask tools` installs: that of driver 580.
pub const PINNED_VERSION: &str = "13.0.88";

/// Messages about performance that come with exit code 0 and mean that the kernel is not what its PTX
/// says: `setmaxnreg` ignored, and waits or serialisation put into `wgmma` sequences.
pub const FATAL_DIAGNOSTICS: [&str; 4] = ["C7508", "C7510", "C7517", "C7519"];

/// A `ptxas` that runs.
#[derive(Clone, Debug)]
pub struct Assembler {
    path: PathBuf,
    version: String,
}

/// What became of a module.
#[derive(Clone, Debug, PartialEq)]
pub struct Assembled {
    /// What it was assembled for.
    pub target: Target,
    /// Resources of each kernel, in the order in which ptxas names them.
    pub usage: Vec<Usage>,
    /// Warnings, one line each.
    pub warnings: Vec<String>,
    /// The machine code, an ELF file.
    pub cubin: Vec<u8>,
}

/// Why there is no machine code.
#[derive(Debug, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum AssembleError {
    #[error("ptxas not found (looked for {}); `cargo xtask tools` installs it", list(.searched))]
    NotFound { searched: Vec<PathBuf> },
    #[error("cannot run `{}`", path.display())]
    Run { path: PathBuf, source: io::Error },
    #[error("ptxas refuses the module for {target}: {}", .diagnostics.join("; "))]
    Rejected { target: Target, diagnostics: Vec<String> },
    #[error("ptxas does not keep to the module for {target}: {diagnostic}")]
    Performance { target: Target, diagnostic: String },
    #[error("ptxas spills registers for {target}: {usage}")]
    Spills { target: Target, usage: Usage },
    #[error("cannot read what ptxas says about the module for {target}: {line}")]
    Log { target: Target, line: String },
    #[error("no target has the module")]
    NoTarget(#[source] PtxError),
}

fn list(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")
}

impl Assembler {
    /// The assembler at an explicit path; without one that which `cargo xtask tools` installs in the
    /// workspace, or else the one on the search path.
    ///
    /// # Errors
    ///
    /// [`AssembleError::NotFound`] if none of them runs.
    pub fn find(explicit: Option<&Path>, workspace: &Path) -> Result<Assembler, AssembleError> {
        let installed = workspace.join(format!("target/tools/ptxas-{PINNED_VERSION}/ptxas"));
        let searched = match explicit {
            Some(path) => vec![path.to_owned()],
            None => vec![installed, "ptxas".into()],
        };
        let found = searched.iter().find_map(|path| Some((path, version(path)?)));
        match found {
            Some((path, version)) => Ok(Assembler { path: path.clone(), version }),
            None => Err(AssembleError::NotFound { searched }),
        }
    }

    /// Its version, such as `13.0.88`.
    pub fn version(&self) -> &str {
        &self.version
    }

    /// Assembles PTX text, whose `.target` must be one that runs on `target`.
    ///
    /// # Errors
    ///
    /// [`AssembleError`] if ptxas refuses the text, or accepts it with one of [`FATAL_DIAGNOSTICS`].
    /// Spills are not an error: see [`Assembled::require_no_spills`].
    pub fn assemble(&self, ptx: &str, target: Target) -> Result<Assembled, AssembleError> {
        let run_error = |source| AssembleError::Run { path: self.path.clone(), source };
        let dir = tempfile::tempdir().map_err(run_error)?;
        let (input, output) = (dir.path().join("kernel.ptx"), dir.path().join("kernel.cubin"));
        fs::write(&input, ptx).map_err(run_error)?;
        let mut command = Command::new(&self.path);
        command
            .args(["-v", "-arch", target.name(), "kernel.ptx", "-o", "kernel.cubin"])
            .current_dir(dir.path());
        let run = command.stdin(Stdio::null()).output().map_err(run_error)?;
        let text = String::from_utf8_lossy(&run.stderr);
        if !run.status.success() {
            return Err(AssembleError::Rejected { target, diagnostics: log::errors(&text) });
        }
        if let Some(diagnostic) = log::fatal(&text) {
            return Err(AssembleError::Performance { target, diagnostic });
        }
        let usage = log::usage(&text).map_err(|line| AssembleError::Log { target, line })?;
        let cubin = fs::read(&output).map_err(run_error)?;
        Ok(Assembled { target, usage, warnings: log::warnings(&text), cubin })
    }

    /// Assembles a module for one target of each generation ([`Target::GENERATIONS`]) that has its
    /// instructions, and requires that no kernel spills. This is what every PTX snapshot must pass.
    ///
    /// # Errors
    ///
    /// The first [`AssembleError`]; [`AssembleError::NoTarget`] if no target has the instructions.
    pub fn assemble_for_generations(
        &self,
        module: &Module,
    ) -> Result<Vec<Assembled>, AssembleError> {
        let mut assembled = Vec::new();
        let mut refused = None;
        for target in Target::GENERATIONS {
            match module.retarget(target.name()) {
                Ok(module) => {
                    let for_target = self.assemble(&module.to_string(), target)?;
                    for_target.require_no_spills()?;
                    assembled.push(for_target);
                }
                Err(err) => refused = Some(err),
            }
        }
        match refused {
            Some(err) if assembled.is_empty() => Err(AssembleError::NoTarget(err)),
            _ => Ok(assembled),
        }
    }
}

impl Assembled {
    /// Fails if a kernel keeps registers in memory.
    ///
    /// # Errors
    ///
    /// [`AssembleError::Spills`].
    pub fn require_no_spills(&self) -> Result<(), AssembleError> {
        match self.usage.iter().find(|usage| usage.spills()) {
            Some(usage) => Err(AssembleError::Spills { target: self.target, usage: usage.clone() }),
            None => Ok(()),
        }
    }

    /// Machine instructions of each kernel, by name.
    ///
    /// # Errors
    ///
    /// [`CubinError`] if the file is not an ELF file with code as we know it.
    pub fn instruction_mix(&self) -> Result<Vec<(String, InstructionMix)>, CubinError> {
        cubin::instruction_mix(&self.cubin)
    }
}

/// The version that `path --version` prints, after `V`.
fn version(path: &Path) -> Option<String> {
    let output = Command::new(path).arg("--version").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let version = text.split(['\n', ' ']).find_map(|word| word.strip_prefix('V'))?;
    version.starts_with(|first: char| first.is_ascii_digit()).then(|| version.to_owned())
}
