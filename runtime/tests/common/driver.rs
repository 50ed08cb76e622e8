//! Tests on the driver of ours run in a process of their own, since a process has one driver.
#![allow(dead_code, reason = "each test file uses a part")]

use std::fs::File;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use libloading::Library;

/// Set in a child.
const CHILD: &str = "EGGINE_CUDA_CHILD";
/// A child that takes longer hangs.
const LIMIT: Duration = Duration::from_secs(300);

/// The library that cargo built beside this test.
pub(crate) fn library() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let folder = exe.parent().unwrap();
    let candidates =
        [folder.join("libeggine_cuda_driver.so"), folder.join("../libeggine_cuda_driver.so")];
    candidates.into_iter().find(|it| it.exists()).expect("cargo builds the driver for its tests")
}

/// A folder with the driver under the names that clients look for.
pub(crate) fn driver_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    for name in ["libcuda.so.1", "libcuda.so"] {
        std::os::unix::fs::symlink(library(), folder.path().join(name)).unwrap();
    }
    folder
}

/// Runs a program with a time limit; its output, and whether it succeeded.
pub(crate) fn run(command: &mut Command, folder: &Path) -> (bool, String) {
    let path = folder.join("output.txt");
    let file = File::create(&path).unwrap();
    let mut child = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if started.elapsed() > LIMIT {
            child.kill().unwrap();
            let output = std::fs::read_to_string(&path).unwrap_or_default();
            panic!("the child hangs:\n{output}");
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    (status.success(), String::from_utf8_lossy(&std::fs::read(&path).unwrap()).into_owned())
}

/// Whether this is the child; if not, runs the test `name` in one with the driver on its path.
pub(crate) fn in_child(name: &str, environment: &[(&str, &str)]) -> bool {
    let folder = driver_folder();
    let path = folder.path().to_str().unwrap().to_owned();
    in_child_with(name, &[&[("LD_LIBRARY_PATH", path.as_str())], environment].concat())
}

/// As [`in_child`], with nothing put on the path.
pub(crate) fn in_child_with(name: &str, environment: &[(&str, &str)]) -> bool {
    if std::env::var_os(CHILD).is_some() {
        return true;
    }
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([name, "--exact", "--nocapture"]).env(CHILD, "1");
    command.envs(environment.iter().copied());
    let (success, output) = run(&mut command, folder.path());
    assert!(success, "{output}");
    assert!(output.contains("1 passed"), "the child runs `{name}`:\n{output}");
    // What the test says; the rest is the harness.
    let own = |line: &&str| {
        !line.is_empty() && !["running", "test "].iter().any(|it| line.starts_with(it))
    };
    output.lines().filter(own).for_each(|line| println!("{name}: {line}"));
    false
}

/// Counts of the driver, as `docs/driver.md` lists them.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Stats {
    pub(crate) n_calls: u64,
    pub(crate) n_injected: u64,
    pub(crate) n_allocations: u64,
    pub(crate) n_host_allocations: u64,
    pub(crate) n_copies_to_device: u64,
    pub(crate) bytes_to_device: u64,
    pub(crate) n_copies_to_host: u64,
    pub(crate) bytes_to_host: u64,
    pub(crate) n_launches: u64,
    pub(crate) n_graph_launches: u64,
    pub(crate) n_synchronisations: u64,
    pub(crate) n_live_allocations: u64,
    pub(crate) live_bytes: u64,
    pub(crate) n_live_objects: u64,
}

/// What the driver offers beside the driver API.
pub(crate) struct Extra(Library);

impl Extra {
    pub(crate) fn open() -> Self {
        // SAFETY: it is the library that the device under test uses, and stays loaded.
        Self(unsafe { Library::new("libcuda.so.1") }.unwrap())
    }

    pub(crate) fn stats(&self) -> Stats {
        let mut stats = Stats::default();
        // SAFETY: the function takes a pointer to the structure.
        unsafe {
            let read = self.0.get::<unsafe extern "C" fn(*mut Stats)>(b"eggineDriverStats");
            read.unwrap()(&mut stats);
        }
        stats
    }

    pub(crate) fn reset(&self) {
        // SAFETY: the function takes nothing.
        unsafe { self.0.get::<unsafe extern "C" fn()>(b"eggineDriverReset").unwrap()() }
    }

    pub(crate) fn fail(&self, n: u64, code: u32) {
        // SAFETY: the function takes two numbers.
        unsafe {
            self.0.get::<unsafe extern "C" fn(u64, u32)>(b"eggineDriverFail").unwrap()(n, code);
        }
    }
}
