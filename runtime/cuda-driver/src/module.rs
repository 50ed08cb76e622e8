//! Modules: PTX text is parsed and decoded by the executor; machine code of a GPU is refused.

use std::collections::BTreeMap;
use std::ffi::{CStr, c_char, c_uint, c_void};
use std::sync::Arc;

use eggine_cpu::Module;

use crate::call::{Export, Needs, bytes, bytes_mut, enter_apart, get, put, text};
use crate::result::{Code, Done};
use crate::state::{Function, Handle, LoadedModule, Owned, State, to_handle, to_id};

/// `CU_JIT_INFO_LOG_BUFFER` and `CU_JIT_ERROR_LOG_BUFFER`; the size of each has the next number.
const INFO_LOG: c_uint = 3;
const ERROR_LOG: c_uint = 5;

/// The PTX version that a driver of this version of CUDA compiles: 9.0 for 13.0, 8.x for 12.y.
fn newest_ptx(driver_version: i32) -> (u32, u32) {
    let (major, minor) = ((driver_version / 1000) as u32, (driver_version % 1000 / 10) as u32);
    match major {
        13.. => (9, minor),
        // 12.0 to 12.9; from 12.6 on the minor versions of the two differ by one.
        12 => (8, if minor >= 6 { minor - 1 } else { minor }),
        _ => (7, minor),
    }
}

/// Why a text is refused, and what a log says about it.
struct Refused(Code, String);

/// What a driver of this version and a device of this compute capability take.
#[derive(Clone, Copy)]
struct Limits {
    version: i32,
    sm: u32,
}

impl Limits {
    fn of(s: &State) -> Self {
        Self { version: s.config.version, sm: s.config.sm }
    }
}

fn load(limits: Limits, image: &[u8]) -> Result<LoadedModule, Refused> {
    if image.starts_with(b"\x7fELF") || image.starts_with(&[0x50, 0xed, 0x55, 0xba]) {
        let reason = "machine code of a GPU: this driver executes PTX text only";
        return Err(Refused(Code::NO_BINARY_FOR_GPU, reason.into()));
    }
    let invalid = |reason: String| Refused(Code::INVALID_PTX, reason);
    let ptx = std::str::from_utf8(image).map_err(|err| invalid(err.to_string()))?;
    let directive = |name: &str| {
        let mut lines = ptx.lines().map(str::trim);
        lines.find_map(|line| line.strip_prefix(name)?.strip_prefix([' ', '\t'])).map(str::trim)
    };
    let version = directive(".version").and_then(|it| it.split_once('.'));
    let version = version.and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
    let (major, minor): (u32, u32) = version.ok_or_else(|| invalid("no .version".into()))?;
    let newest = newest_ptx(limits.version);
    if (major, minor) > newest {
        let reason = format!(
            "PTX version {major}.{minor}; a driver of CUDA {}.{} compiles up to {}.{}",
            limits.version / 1000,
            limits.version % 1000 / 10,
            newest.0,
            newest.1
        );
        return Err(Refused(Code::UNSUPPORTED_PTX, reason));
    }
    let target = directive(".target").unwrap_or_default();
    let target = target.split(',').next().unwrap_or_default().trim();
    let digits = target.trim_start_matches("sm_").trim_end_matches(['a', 'f']);
    let sm: u32 = digits.parse().map_err(|_| invalid(format!("no .target: `{target}`")))?;
    let fits = if target.ends_with('a') { sm == limits.sm } else { sm <= limits.sm };
    if !fits {
        return Err(invalid(format!(".target {target}; the device is sm_{}", limits.sm)));
    }
    let module = Module::load(ptx).map_err(|err| invalid(err.to_string()))?;
    let ptx_version = (major * 10 + minor) as i32;
    Ok(LoadedModule { module: Arc::new(module), ptx_version, functions: BTreeMap::new() })
}

/// Bytes of an image: a text to its end, or enough of machine code to be recognised.
fn image_bytes<'a>(image: *const c_void) -> Done<&'a [u8]> {
    if image.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the driver API asks for a text that ends with a zero, or for machine code, whose header
    // has zeros within the first bytes.
    Ok(unsafe { CStr::from_ptr(image.cast()) }.to_bytes())
}

fn insert(s: &mut State, module: *mut Handle, loaded: LoadedModule) -> Done {
    let (ctx, id) = (s.current()?, s.new_id());
    put(module, to_handle(id))?;
    s.modules.insert(id, Owned { ctx, it: loaded });
    Ok(())
}

/// As [`export!`] would declare it, but that the image is read without the lock.
#[allow(non_snake_case, reason = "the driver's names")]
#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadData(module: *mut Handle, image: *const c_void) -> u32 {
    let read = |limits| load(limits, image_bytes(image)?).map_err(|refused| refused.0);
    let keep = |s: &mut State, loaded: Done<LoadedModule>| insert(s, module, loaded?);
    enter_apart("cuModuleLoadData", Needs::Context, Limits::of, read, keep)
}

/// As [`cuModuleLoadData`], with logs.
#[allow(non_snake_case, reason = "the driver's names")]
#[unsafe(no_mangle)]
extern "C" fn cuModuleLoadDataEx(
    module: *mut Handle,
    image: *const c_void,
    n_options: c_uint,
    options: *const c_uint,
    values: *mut *mut c_void,
) -> u32 {
    let read = |limits| Ok(load(limits, image_bytes(image)?));
    let keep = |s: &mut State, result: Done<Result<LoadedModule, Refused>>| {
        let result = result?;
        let log = result.as_ref().err().map_or("", |refused| refused.1.as_str());
        write_logs(n_options as usize, options, values, log)?;
        insert(s, module, result.map_err(|refused| refused.0)?)
    };
    enter_apart("cuModuleLoadDataEx", Needs::Context, Limits::of, read, keep)
}

/// The two.
pub(crate) const LOADS: &[Export] = &[
    Export {
        base: "cuModuleLoadData",
        symbol: "cuModuleLoadData",
        since: 2000,
        address: cuModuleLoadData as *const (),
    },
    Export {
        base: "cuModuleLoadDataEx",
        symbol: "cuModuleLoadDataEx",
        since: 2010,
        address: cuModuleLoadDataEx as *const (),
    },
];

export! { TABLE;
    Context "cuModuleLoad" 2000 cuModuleLoad(s, module: *mut Handle, path: *const c_char) {
        let image = std::fs::read(text(path)?).map_err(|_| Code::FILE_NOT_FOUND)?;
        let loaded = load(Limits::of(s), &image).map_err(|refused| refused.0)?;
        insert(s, module, loaded)?;
    }
    Context "cuModuleUnload" 2000 cuModuleUnload(s, module: Handle) {
        let module = s.modules.remove(&to_id(module)).ok_or(Code::INVALID_HANDLE)?;
        for id in module.it.functions.values() {
            s.functions.remove(id);
        }
    }
    Context "cuModuleGetLoadingMode" 11070 cuModuleGetLoadingMode(_s, mode: *mut c_uint) {
        put(mode, 1)?; // Eager.
    }
    Context "cuModuleGetFunction" 2000 cuModuleGetFunction(s, function: *mut Handle, module: Handle, name: *const c_char) {
        let name = text(name)?;
        let new_id = s.new_id();
        let State { modules, functions, .. } = s;
        let owned = modules.get_mut(&to_id(module)).ok_or(Code::INVALID_HANDLE)?;
        if owned.it.module.entry(name).is_none() {
            return Err(Code::NOT_FOUND);
        }
        let id = *owned.it.functions.entry(name.to_owned()).or_insert(new_id);
        let module = &owned.it.module;
        functions.entry(id).or_insert_with(|| Owned {
            ctx: owned.ctx,
            it: Function {
                module: Arc::clone(module),
                entry: name.to_owned(),
                dynamic_shared_bytes: 0,
                carveout: -1,
            },
        });
        put(function, to_handle(id))?;
    }
    Context "cuModuleGetFunctionCount" 12040 cuModuleGetFunctionCount(s, count: *mut c_uint, module: Handle) {
        let module = s.modules.get(&to_id(module)).ok_or(Code::INVALID_HANDLE)?;
        put(count, module.it.module.entries().count() as c_uint)?;
    }
    Context "cuModuleGetGlobal" 3020 cuModuleGetGlobal_v2(s, _ptr: *mut u64, _n_bytes: *mut usize, module: Handle, _name: *const c_char) {
        // Our PTX has no variables.
        s.modules.get(&to_id(module)).ok_or(Code::INVALID_HANDLE)?;
        return Err(Code::NOT_FOUND);
    }
}

/// Writes the log into the buffers that the options name.
fn write_logs(
    n_options: usize,
    options: *const c_uint,
    values: *mut *mut c_void,
    log: &str,
) -> Done {
    let find = |wanted: c_uint| -> Done<Option<*mut c_void>> {
        for index in 0..n_options {
            if get(options.wrapping_add(index))? == wanted {
                return get(values.wrapping_add(index)).map(Some);
            }
        }
        Ok(None)
    };
    for (option, text) in [(INFO_LOG, ""), (ERROR_LOG, log)] {
        let (Some(buffer), Some(size)) = (find(option)?, find(option + 1)?) else { continue };
        // A size is passed in the place of its pointer.
        let Ok(size) = u32::try_from(size as usize) else { continue };
        let place = bytes_mut(buffer.cast(), size as usize)?;
        let n_bytes = text.len().min(place.len().saturating_sub(1));
        place[..n_bytes].copy_from_slice(&bytes(text.as_ptr(), text.len())?[..n_bytes]);
        place[n_bytes..].fill(0);
    }
    Ok(())
}
