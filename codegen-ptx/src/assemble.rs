//! The assembler: PTX text to machine code, and what the assembler says and makes.
//!
//! Best first: nvPTXCompiler in this process, nvJitLink in this process, `ptxas` as a process, or none, so
//! that the driver compiles the text when it loads it. The first and the third are the same
//! compiler and give the same code. None needs a GPU. Some messages are of failures but come with success; these are errors here.
//! What the assembler cannot see (misaligned vectors, addresses out of bounds, races) the executor finds.

pub mod cubin;
mod library;
mod linker;
mod log;
mod opcodes;

use std::fmt;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;

use eggine_ptx::PtxError;
use eggine_ptx::ast::Module;
use thiserror::Error;

pub use cubin::{CubinError, InstructionMix, KernelCode, Part};
pub use log::Usage;

use crate::Target;
use library::Library;
use linker::JitLink;

/// The version that `cargo xtask tools` installs: that of driver 580.
pub const PINNED_VERSION: &str = "13.0.88";

/// Messages about performance that come with success and mean that the kernel is not what its PTX
/// says: `setmaxnreg` ignored, and waits or serialisation put into `wgmma` sequences.
pub const FATAL_DIAGNOSTICS: [&str; 4] = ["C7508", "C7510", "C7517", "C7519"];

/// Who makes machine code.
#[derive(Clone, Debug)]
pub struct Assembler {
    backend: Backend,
}

#[derive(Clone, Debug)]
enum Backend {
    /// nvPTXCompiler, loaded into this process; may be used by many threads at once.
    Library(Arc<Library>),
    /// nvJitLink, likewise.
    Linker(Arc<JitLink>),
    /// A `ptxas` that runs.
    Process { path: PathBuf, version: String },
    /// Nobody here: the driver compiles the text.
    Driver { why: String },
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
    #[error("no assembler found (looked for {}); `cargo xtask tools` installs it", list(.searched))]
    NotFound { searched: Vec<PathBuf> },
    #[error("`{}` is not {library}: {reason}", path.display())]
    Library { path: PathBuf, library: &'static str, reason: String },
    #[error("the assembler fails in {call} with status {status}")]
    Internal { call: &'static str, status: i32 },
    #[error("machine code is left to the driver: {why}")]
    LeftToDriver { why: String },
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
    /// The assembler at an explicit path (a library if its name has `.so` in it, nvJitLink if it has that,
    /// else a `ptxas`); without one the libraries that `cargo xtask tools` installs in the workspace, then
    /// its `ptxas`, then what the system has of each.
    ///
    /// # Errors
    ///
    /// [`AssembleError::NotFound`] if none of them runs.
    pub fn find(explicit: Option<&Path>, workspace: &Path) -> Result<Assembler, AssembleError> {
        let candidates = match explicit {
            Some(path) => vec![path.to_owned()],
            None => Self::candidates(workspace),
        };
        let found = candidates.iter().find_map(|path| Self::at(path));
        found.ok_or(AssembleError::NotFound { searched: candidates })
    }

    /// Every assembler that runs here, best first.
    pub fn all(workspace: &Path) -> Vec<Assembler> {
        Self::candidates(workspace).iter().filter_map(|path| Self::at(path)).collect()
    }

    /// As [`find`](Self::find); without one, the driver's.
    pub fn find_or_driver(explicit: Option<&Path>, workspace: &Path) -> Assembler {
        Self::find(explicit, workspace)
            .unwrap_or_else(|err| Assembler { backend: Backend::Driver { why: err.to_string() } })
    }

    fn candidates(workspace: &Path) -> Vec<PathBuf> {
        let tools = workspace.join("target/tools");
        vec![
            tools.join(format!("nvptxcompiler-{PINNED_VERSION}/libnvptxcompiler.so")),
            tools.join(format!("nvjitlink-{PINNED_VERSION}/libnvJitLink.so.13")),
            tools.join(format!("ptxas-{PINNED_VERSION}/ptxas")),
            "libnvptxcompiler.so".into(),
            "libnvJitLink.so.13".into(),
            "libnvJitLink.so.12".into(),
            "ptxas".into(),
        ]
    }

    fn at(path: &Path) -> Option<Assembler> {
        let name = path.file_name()?.to_string_lossy();
        let backend = if name.contains("nvJitLink") {
            Backend::Linker(Arc::new(JitLink::open(path).ok()?))
        } else if name.contains(".so") {
            Backend::Library(Arc::new(Library::open(path).ok()?))
        } else {
            Backend::Process { path: path.to_owned(), version: version(path)? }
        };
        Some(Assembler { backend })
    }

    /// Its name: `nvPTXCompiler`, `nvJitLink`, `ptxas` or `driver`.
    pub fn name(&self) -> &'static str {
        match &self.backend {
            Backend::Library(_) => "nvPTXCompiler",
            Backend::Linker(_) => "nvJitLink",
            Backend::Process { .. } => "ptxas",
            Backend::Driver { .. } => "driver",
        }
    }

    /// Its version, such as `13.0.88`; libraries tell the first two parts only, the driver none.
    pub fn version(&self) -> &str {
        match &self.backend {
            Backend::Library(library) => library.version(),
            Backend::Linker(library) => library.version(),
            Backend::Process { version, .. } => version,
            Backend::Driver { .. } => "",
        }
    }

    /// Whether there is machine code to be had.
    pub fn makes_code(&self) -> bool {
        !matches!(self.backend, Backend::Driver { .. })
    }

    /// Assembles PTX text, whose `.target` must be one that runs on `target`.
    ///
    /// # Errors
    ///
    /// [`AssembleError`] if the text is refused, or accepted with one of [`FATAL_DIAGNOSTICS`].
    /// Spills are not an error: see [`Assembled::require_no_spills`].
    pub fn assemble(&self, ptx: &str, target: Target) -> Result<Assembled, AssembleError> {
        let (log, cubin) = match &self.backend {
            Backend::Library(library) => library.compile(ptx, target)?,
            Backend::Linker(library) => library.compile(ptx, target)?,
            Backend::Process { path, .. } => run(path, ptx, target)?,
            Backend::Driver { why } => {
                return Err(AssembleError::LeftToDriver { why: why.clone() });
            }
        };
        let Some(cubin) = cubin else {
            return Err(AssembleError::Rejected { target, diagnostics: log::errors(&log) });
        };
        if let Some(diagnostic) = log::fatal(&log) {
            return Err(AssembleError::Performance { target, diagnostic });
        }
        let usage = log::usage(&log).map_err(|line| AssembleError::Log { target, line })?;
        Ok(Assembled { target, usage, warnings: log::warnings(&log), cubin })
    }

    /// Assembles PTX text that was made for another target, with the version that `target` needs.
    ///
    /// # Errors
    ///
    /// As [`assemble`](Self::assemble); [`AssembleError::NoTarget`] if the target lacks an instruction.
    pub fn assemble_for(&self, ptx: &str, target: Target) -> Result<Assembled, AssembleError> {
        let unreadable = |err: eggine_ptx::ParseError| AssembleError::Rejected {
            target,
            diagnostics: vec![err.to_string()],
        };
        let module = eggine_ptx::parse(ptx).map_err(unreadable)?;
        let module = module.retarget(target.name()).map_err(AssembleError::NoTarget)?;
        self.assemble(&module.to_string(), target)
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

    /// Machine code of each kernel, by name, split at its loops.
    ///
    /// # Errors
    ///
    /// As [`instruction_mix`](Self::instruction_mix), or if its branches are of another form.
    pub fn kernel_codes(&self) -> Result<Vec<(String, KernelCode)>, CubinError> {
        cubin::kernel_codes(&self.cubin)
    }
}

impl fmt::Display for Assembler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.backend {
            Backend::Library(library) => {
                write!(f, "nvPTXCompiler {} in this process", library.version())
            }
            Backend::Linker(library) => {
                write!(f, "nvJitLink {} in this process", library.version())
            }
            Backend::Process { version, .. } => write!(f, "ptxas {version}"),
            Backend::Driver { why } => write!(f, "the driver ({why})"),
        }
    }
}

/// Runs `ptxas`: what it prints, and the machine code unless it refuses.
fn run(path: &Path, ptx: &str, target: Target) -> Result<(String, Option<Vec<u8>>), AssembleError> {
    let run_error = |source| AssembleError::Run { path: path.to_owned(), source };
    let dir = tempfile::tempdir().map_err(run_error)?;
    let (input, output) = (dir.path().join("kernel.ptx"), dir.path().join("kernel.cubin"));
    fs::write(&input, ptx).map_err(run_error)?;
    let mut command = Command::new(path);
    command
        .args(["-v", "-arch", target.name(), "kernel.ptx", "-o", "kernel.cubin"])
        .current_dir(dir.path());
    let run = command.stdin(Stdio::null()).output().map_err(run_error)?;
    let log = String::from_utf8_lossy(&run.stderr).into_owned();
    let cubin =
        if run.status.success() { Some(fs::read(&output).map_err(run_error)?) } else { None };
    Ok((log, cubin))
}

/// The version that `path --version` prints, after `V`.
fn version(path: &Path) -> Option<String> {
    let output = Command::new(path).arg("--version").stdin(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    let version = text.split(['\n', ' ']).find_map(|word| word.strip_prefix('V'))?;
    version.starts_with(|first: char| first.is_ascii_digit()).then(|| version.to_owned())
}
