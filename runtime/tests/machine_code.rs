//! Which of an engine's kernels a device gets: machine code for exactly its architecture, else the text, else
//! one message that names both sides.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::sync::{Arc, Mutex};

use eggine_runtime::device::{DeviceInfo, FakeDevice};
use eggine_runtime::engine::{CodeRecord, KernelRecord, hash_text};
use eggine_runtime::{
    Device, DeviceError, DevicePtr, Engine, EngineParts, KernelPlan, Launch, LaunchAttributes,
    Manifest, ModuleId, Plan, Session,
};

/// A device of some architecture that keeps what it was given to load.
struct Gpu {
    fake: FakeDevice,
    sm: u32,
    loaded: Arc<Mutex<Vec<String>>>,
}

impl Device for Gpu {
    fn info(&self) -> DeviceInfo {
        self.fake.info()
    }
    fn architecture(&self) -> Option<u32> {
        Some(self.sm)
    }
    fn alloc(&mut self, n_bytes: usize) -> Result<DevicePtr, DeviceError> {
        self.fake.alloc(n_bytes)
    }
    fn free(&mut self, ptr: DevicePtr) -> Result<(), DeviceError> {
        self.fake.free(ptr)
    }
    fn write(&mut self, ptr: DevicePtr, bytes: &[u8]) -> Result<(), DeviceError> {
        self.fake.write(ptr, bytes)
    }
    fn read(&mut self, ptr: DevicePtr, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.fake.read(ptr, bytes)
    }
    fn fill(&mut self, ptr: DevicePtr, n_bytes: usize, byte: u8) -> Result<(), DeviceError> {
        self.fake.fill(ptr, n_bytes, byte)
    }
    fn load(&mut self, ptx: &str) -> Result<ModuleId, DeviceError> {
        self.loaded.lock().unwrap().push(ptx.to_owned());
        self.fake.load(ptx)
    }
    fn load_cubin(&mut self, cubin: &[u8]) -> Result<ModuleId, DeviceError> {
        let code = String::from_utf8(cubin.to_vec()).unwrap();
        self.loaded.lock().unwrap().push(code.clone());
        // Code for sm_89 is refused, as a driver refuses an image that it does not know.
        self.fake.load(if code == "sm_89" { "error: no image" } else { "" })
    }
    fn unload(&mut self, module: ModuleId) {
        self.fake.unload(module);
    }
    fn launch(&mut self, launch: &Launch) -> Result<(), DeviceError> {
        self.fake.launch(launch)
    }
    fn synchronize(&mut self) -> Result<(), DeviceError> {
        self.fake.synchronize()
    }
    fn time(&mut self, launches: &[Launch], elapsed_ns: &mut Vec<u64>) -> Result<(), DeviceError> {
        self.fake.time(launches, elapsed_ns)
    }
}

fn engine(target: &str, code: &[&str]) -> Engine {
    let ptx = "text".to_owned();
    let kernel = KernelPlan {
        entry: "k".into(),
        grid: [1, 1, 1],
        block: [32, 1, 1],
        n_params: 0,
        attributes: LaunchAttributes::default(),
    };
    let record =
        KernelRecord { name: "k".into(), ptx_hash: hash_text(&ptx), ..KernelRecord::default() };
    let of = |target: &&str| CodeRecord {
        target: (*target).to_owned(),
        assembler: "by hand".into(),
        cubin_bytes: vec![target.len() as u64],
    };
    let manifest = Manifest {
        target: target.into(),
        kernels: vec![record],
        code: code.iter().map(of).collect(),
        ..Manifest::default()
    };
    let parts = EngineParts {
        manifest,
        plan: Plan { kernels: vec![kernel], ..Plan::default() },
        ptx: vec![ptx],
        code: code.iter().map(|target| vec![target.as_bytes().to_vec().into()]).collect(),
        ..EngineParts::default()
    };
    Engine::from_bytes(Engine::to_bytes(&parts).unwrap()).unwrap()
}

fn loaded(engine: &Engine, sm: u32) -> Result<Vec<String>, DeviceError> {
    let loaded = Arc::new(Mutex::new(Vec::new()));
    let gpu = Gpu { fake: FakeDevice::default(), sm, loaded: Arc::clone(&loaded) };
    Session::new(Box::new(gpu), engine)?;
    let loaded = loaded.lock().unwrap().clone();
    Ok(loaded)
}

#[test]
fn exact_code_goes_before_text() {
    let both = engine("sm_80", &["sm_90a", "sm_80"]);
    assert_eq!(loaded(&both, 90).unwrap(), ["sm_90a"]);
    assert_eq!(loaded(&both, 80).unwrap(), ["sm_80"]);
    // A later device without code of its own: the driver compiles the text.
    assert_eq!(loaded(&both, 100).unwrap(), ["text"]);
}

#[test]
fn refused_code_is_followed_by_the_text() {
    assert_eq!(loaded(&engine("sm_80", &["sm_89"]), 89).unwrap(), ["sm_89", "text"]);
}

#[test]
fn a_mismatch_names_both_sides() {
    let err = loaded(&engine("sm_80", &["sm_90a"]), 75).unwrap_err().to_string();
    for word in ["sm_80", "sm_90a", "sm_75", "--target"] {
        assert!(err.contains(word), "{err}");
    }
    // Text for an `a` target runs on that architecture alone.
    let exact = engine("sm_90a", &[]);
    assert_eq!(loaded(&exact, 90).unwrap(), ["text"]);
    assert!(loaded(&exact, 100).is_err());
}

#[test]
fn a_device_that_executes_text_says_so() {
    let err = FakeDevice::default().load_cubin(b"x").unwrap_err().to_string();
    assert!(err.contains("fake executes PTX text"), "{err}");
}
