//! Machine code of an engine: which targets, assembled by whom.

use bytes::Bytes;
use eggine_codegen_ptx::Target;
use eggine_codegen_ptx::assemble::{AssembleError, Assembler};
use eggine_codegen_ptx::target::UnknownTarget;
use eggine_runtime::EngineParts;
use eggine_runtime::engine::CodeRecord;
use rayon::prelude::*;

/// The targets of a list such as `sm_90a,sm_80`, each once, in its order.
///
/// # Errors
///
/// [`UnknownTarget`].
pub fn parse_targets(text: &str) -> Result<Vec<Target>, UnknownTarget> {
    let mut targets = Vec::new();
    for name in text.split(',').map(str::trim) {
        let target: Target = name.parse()?;
        if !targets.contains(&target) {
            targets.push(target);
        }
    }
    Ok(targets)
}

/// The target whose text runs on most of a list: the oldest.
pub fn oldest(targets: &[Target]) -> Option<Target> {
    targets.iter().copied().min_by_key(|target| (target.spec().sm, target.name().len()))
}

/// Puts machine code for each target into an engine: all kernels of all targets are assembled in parallel.
/// With no assembler here the engine stays as it is, and the driver compiles its text.
///
/// # Errors
///
/// [`AssembleError`] of the first kernel that is refused.
pub fn add_code(
    parts: &mut EngineParts,
    targets: &[Target],
    assembler: &Assembler,
) -> Result<(), AssembleError> {
    if !assembler.makes_code() {
        return Ok(());
    }
    let jobs: Vec<(Target, &str)> = targets
        .iter()
        .flat_map(|&target| parts.ptx.iter().map(move |text| (target, text.as_str())))
        .collect();
    let cubins: Vec<Bytes> = jobs
        .into_par_iter()
        .map(|(target, text)| Ok(Bytes::from(assembler.assemble_for(text, target)?.cubin)))
        .collect::<Result<_, AssembleError>>()?;
    let n_kernels = parts.ptx.len();
    let mut cubins = cubins.into_iter();
    for target in targets {
        let of_target: Vec<Bytes> = cubins.by_ref().take(n_kernels).collect();
        parts.manifest.code.push(CodeRecord {
            target: target.name().to_owned(),
            assembler: format!("{} {}", assembler.name(), assembler.version()),
            cubin_bytes: of_target.iter().map(|cubin| cubin.len() as u64).collect(),
        });
        parts.code.push(of_target);
    }
    Ok(())
}
