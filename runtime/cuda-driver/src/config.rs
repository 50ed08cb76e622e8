//! What the environment sets, read once, when the driver is first called.

use std::fs::File;
use std::path::PathBuf;

/// See `docs/driver.md` for the variables.
pub(crate) struct Config {
    /// `EGGINE_DRIVER_DEVICES`: how many devices there are.
    pub(crate) n_devices: usize,
    /// `EGGINE_DRIVER_THREADS`: threads over which blocks are spread.
    pub(crate) n_threads: usize,
    /// `EGGINE_DRIVER_CHECK`: checking mode.
    pub(crate) checking: bool,
    /// `EGGINE_DRIVER_SM`: compute capability, 90 for 9.0.
    pub(crate) sm: u32,
    /// `EGGINE_DRIVER_MEMORY`: bytes of memory of a device.
    pub(crate) memory_bytes: usize,
    /// `EGGINE_DRIVER_VERSION`: what `cuDriverGetVersion` says.
    pub(crate) version: i32,
    /// `EGGINE_DRIVER_FAIL`: the call that fails, counted from 1, and its code.
    pub(crate) fail: Option<(u64, u32)>,
    /// `EGGINE_DRIVER_LOG`: a file that gets a line for every call.
    pub(crate) log: Option<File>,
}

impl Config {
    pub(crate) fn from_environment() -> Self {
        let n_threads = std::thread::available_parallelism().map_or(1, usize::from);
        let log = std::env::var_os("EGGINE_DRIVER_LOG").map(PathBuf::from);
        Self {
            n_devices: number("EGGINE_DRIVER_DEVICES").unwrap_or(1),
            n_threads: number("EGGINE_DRIVER_THREADS").unwrap_or(n_threads).max(1),
            checking: number("EGGINE_DRIVER_CHECK").is_some_and(|it: u8| it != 0),
            sm: number("EGGINE_DRIVER_SM").unwrap_or(90),
            memory_bytes: number("EGGINE_DRIVER_MEMORY").unwrap_or(16 << 30),
            version: number("EGGINE_DRIVER_VERSION").unwrap_or(13000),
            fail: std::env::var("EGGINE_DRIVER_FAIL").ok().and_then(|text| parse_fail(&text)),
            log: log.and_then(|path| File::options().create(true).append(true).open(path).ok()),
        }
    }
}

fn number<T: std::str::FromStr>(name: &str) -> Option<T> {
    std::env::var(name).ok()?.trim().parse().ok()
}

/// `12:700`.
fn parse_fail(text: &str) -> Option<(u64, u32)> {
    let (call, code) = text.split_once(':')?;
    Some((call.trim().parse().ok()?, code.trim().parse().ok()?))
}
