//! What `ptxas -v` prints, read.

use std::fmt;

use super::FATAL_DIAGNOSTICS;

/// Resources of one kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Name of the kernel.
    pub kernel: String,
    /// Registers per thread.
    pub n_regs: u32,
    /// Barriers per block.
    pub n_barriers: u32,
    /// Static shared memory per block.
    pub shared_bytes: u32,
    /// Local memory per thread.
    pub stack_bytes: u32,
    /// Stored per thread because registers do not suffice.
    pub spill_stores_bytes: u32,
    /// Loaded per thread because registers do not suffice.
    pub spill_loads_bytes: u32,
}

impl Usage {
    /// Whether registers did not suffice.
    pub fn spills(&self) -> bool {
        self.spill_stores_bytes > 0 || self.spill_loads_bytes > 0
    }
}

impl fmt::Display for Usage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Usage {
            kernel,
            n_regs,
            n_barriers,
            shared_bytes,
            stack_bytes,
            spill_stores_bytes,
            spill_loads_bytes,
        } = self;
        write!(
            f,
            "`{kernel}`: {n_regs} registers, {n_barriers} barriers, {shared_bytes} B shared, "
        )?;
        write!(
            f,
            "{stack_bytes} B stack, spills {spill_stores_bytes} B stores and {spill_loads_bytes} B loads"
        )
    }
}

/// The number before `unit` among comma-separated parts such as `64 bytes smem`; 0 if no part has it.
fn quantity(line: &str, unit: &str) -> Result<u32, String> {
    let part = line.split(',').map(str::trim).find_map(|part| part.strip_suffix(unit));
    let Some(part) = part else { return Ok(0) };
    let number = part.trim().rsplit(' ').next().unwrap_or_default();
    number.parse().map_err(|_| line.to_owned())
}

/// Usage of each kernel.
///
/// # Errors
///
/// The line that is not as expected.
pub(super) fn usage(text: &str) -> Result<Vec<Usage>, String> {
    let mut kernels: Vec<Usage> = Vec::new();
    for line in text.lines() {
        let info = line
            .strip_prefix("ptxas info")
            .map_or(line, |rest| rest.trim_start_matches([' ', ':']));
        if let Some(rest) = info.strip_prefix("Compiling entry function '") {
            let kernel = rest.split('\'').next().unwrap_or_default().to_owned();
            kernels.push(Usage { kernel, ..Usage::default() });
        } else if let Some(kernel) = kernels.last_mut() {
            if line.contains("bytes stack frame") {
                kernel.stack_bytes = quantity(line, "bytes stack frame")?;
                kernel.spill_stores_bytes = quantity(line, "bytes spill stores")?;
                kernel.spill_loads_bytes = quantity(line, "bytes spill loads")?;
            } else if info.starts_with("Used ") {
                kernel.n_regs = quantity(info, "registers")?;
                kernel.n_barriers = quantity(info, "barriers")?;
                kernel.shared_bytes = quantity(info, "bytes smem")?;
            }
        }
    }
    match kernels.iter().find(|kernel| kernel.n_regs == 0) {
        Some(kernel) => Err(format!("no registers given for `{}`", kernel.kernel)),
        None => Ok(kernels),
    }
}

/// Lines such as `ptxas a.ptx, line 19; error   : …` or `ptxas fatal   : …`.
fn with_severity(text: &str, severity: &str) -> Vec<String> {
    let is = |line: &&str| {
        let Some(message) = line.strip_prefix("ptxas ") else { return false };
        let message = message.split_once("; ").map_or(message, |(_place, message)| message);
        message.strip_prefix(severity).is_some_and(|rest| rest.trim_start().starts_with(':'))
    };
    text.lines().filter(is).map(str::to_owned).collect()
}

/// Lines that are errors; the whole text if no line is one.
pub(super) fn errors(text: &str) -> Vec<String> {
    let mut errors = with_severity(text, "error");
    if errors.is_empty() {
        errors = with_severity(text, "fatal");
    }
    if errors.is_empty() { vec![text.trim().to_owned()] } else { errors }
}

/// Lines that are warnings.
pub(super) fn warnings(text: &str) -> Vec<String> {
    with_severity(text, "warning")
}

/// The first line with one of [`FATAL_DIAGNOSTICS`].
pub(super) fn fatal(text: &str) -> Option<String> {
    let has =
        |line: &&str| FATAL_DIAGNOSTICS.iter().any(|code| line.contains(&format!("({code})")));
    text.lines().find(has).map(str::to_owned)
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOG: &str = "\
ptxas info    : 0 bytes gmem
ptxas info    : Compiling entry function 'a' for 'sm_120'
ptxas info    : Function properties for a
    24 bytes stack frame, 20 bytes spill stores, 28 bytes spill loads
ptxas info    : Used 255 registers, used 1 barriers, 24 bytes cumulative stack size, 4096 bytes smem
ptxas info    : Compile time = 1.438 ms
ptxas info    : Compiling entry function 'b' for 'sm_120'
ptxas info    : Function properties for b
    0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads
ptxas info    : Used 8 registers, used 0 barriers
";

    #[test]
    fn usage_is_read_per_kernel() {
        let read: Vec<String> = usage(LOG).unwrap().iter().map(Usage::to_string).collect();
        insta::assert_snapshot!(read.join("\n"), @r"
        `a`: 255 registers, 1 barriers, 4096 B shared, 24 B stack, spills 20 B stores and 28 B loads
        `b`: 8 registers, 0 barriers, 0 B shared, 0 B stack, spills 0 B stores and 0 B loads
        ");
        assert_eq!(
            usage(LOG).unwrap().iter().map(Usage::spills).collect::<Vec<_>>(),
            [true, false]
        );
    }

    #[test]
    fn a_log_without_registers_is_an_error() {
        let cut = LOG.replace("Used 8", "Us 8");
        assert_eq!(usage(&cut), Err("no registers given for `b`".to_owned()));
    }

    #[test]
    fn severities_are_told_apart() {
        let text = "ptxas a.ptx, line 19; error   : Unknown modifier '.sink'\n\
                    ptxas a.ptx, line 2; warning : an error : here\n\
                    ptxas fatal   : Ptx assembly aborted due to errors\n\
                    ptxas info    : (C7510) Potential Performance Loss: wgmma is serialized";
        assert_eq!(errors(text), text.lines().take(1).collect::<Vec<_>>());
        assert_eq!(errors("ptxas fatal   : gone"), ["ptxas fatal   : gone"]);
        assert_eq!(warnings(text).len(), 1);
        assert!(fatal(text).unwrap().contains("wgmma"));
        assert_eq!(fatal("ptxas info : (C7511) other"), None);
    }
}
