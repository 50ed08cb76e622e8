//! Models on the cuda device with the driver of ours, and NVIDIA's own Python client on it.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a panic is how a test fails, a skip is said aloud"
)]

#[path = "../../runtime/tests/common/driver.rs"]
mod driver;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use driver::{Extra, driver_folder, in_child};
use eggine::runtime::device::{DeviceSpec, open};
use eggine::search::{Budget, Job, compile};
use eggine::{Case, Engine, Session, compare_outputs, input_extents};
use eggine_codegen_ptx::{Target, emit, first_schedule, lower};
use eggine_ir::{Graph, Region};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap().to_owned()
}

/// Processor time of this process, all threads, to 10 ms.
fn process_cpu_ms() -> u64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The name of the program may hold spaces; user and system time are fields 14 and 15 of the line.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap().split_whitespace().collect();
    10 * (fields[11].parse::<u64>().unwrap() + fields[12].parse::<u64>().unwrap())
}

/// Compiles a model of the repository on the cuda device, and runs it on both.
fn agrees(model: &str, budget: Budget) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("model.engine");
    let onnx = root().join(format!("examples/models/{model}.onnx"));
    let case = Case::read(&root().join(format!("examples/models/{model}.case0.npz"))).unwrap();
    let shapes = input_extents(&onnx, &case).unwrap().into_iter().collect();
    let job = Job { shapes, budget, device: DeviceSpec::Cuda(0), ..Job::new(onnx) };
    compile(&job, &path, &AtomicBool::new(false)).unwrap();

    // From the file to the first result, as a server would start. Tests share the machine, so what is
    // bounded is processor time; the wall clock is only told.
    let mut least_cpu_ms = u64::MAX;
    let mut first = None;
    for _ in 0..3 {
        let (started, cpu_ms) = (Instant::now(), process_cpu_ms());
        let engine = Engine::open(&path).unwrap();
        let inputs = case.inputs(engine.inputs()).unwrap();
        let mut session = Session::new(open(&DeviceSpec::Cuda(0)).unwrap(), &engine).unwrap();
        let outputs = session.run(&inputs).unwrap();
        let spent_ms = process_cpu_ms() - cpu_ms;
        println!(
            "{model}: first result after {:.0} ms, {spent_ms} ms of processor time",
            started.elapsed().as_secs_f64() * 1e3
        );
        least_cpu_ms = least_cpu_ms.min(spent_ms);
        drop(first.replace((engine, inputs, session, outputs)));
    }
    assert!(least_cpu_ms < 150, "{least_cpu_ms} ms of processor time to the first result");
    let (engine, inputs, mut session, outputs) = first.unwrap();

    let cpu = open(&DeviceSpec::Cpu).unwrap();
    let want = Session::new(cpu, &engine).unwrap().run(&inputs).unwrap();
    assert_eq!(outputs, want, "{model}: bit for bit");
    let expected = case.expected(engine.outputs()).unwrap();
    let comparison = compare_outputs(engine.outputs(), &outputs, &expected, 1e-4);
    assert!(comparison.agrees, "{comparison:#?}");

    let extra = Extra::open();
    extra.reset();
    for _ in 0..3 {
        assert_eq!(session.run(&inputs).unwrap(), want);
    }
    let stats = extra.stats();
    assert_eq!((stats.n_allocations, stats.n_host_allocations), (0, 0), "{stats:?}");
    assert_eq!((stats.n_graph_launches, stats.n_synchronisations), (3, 3), "{stats:?}");
    let input_bytes: u64 = inputs.iter().map(|input| input.bytes.len() as u64).sum();
    assert_eq!(stats.bytes_to_device, 3 * input_bytes, "no weights are copied: {stats:?}");
    drop(session);
    let stats = extra.stats();
    assert_eq!((stats.n_live_allocations, stats.n_live_objects), (0, 0), "{stats:?}");
}

#[test]
fn resnet50_is_compiled_and_run_on_the_cuda_device() {
    if in_child("resnet50_is_compiled_and_run_on_the_cuda_device", &[]) {
        agrees("resnet50", Budget::First);
    }
}

#[test]
fn a_search_runs_on_the_cuda_device() {
    if in_child("a_search_runs_on_the_cuda_device", &[]) {
        agrees("bert_encoder", Budget::Measurements(12));
    }
}

/// Where `cargo xtask tools` installs `cuda.bindings`.
fn client() -> PathBuf {
    root().join("target/tools/cuda-bindings-13.5.0")
}

#[test]
fn an_unmodified_client_runs_a_kernel_of_ours() {
    let mut probe = Command::new("python3");
    probe.args(["-c", "import cuda.bindings.driver"]).env("PYTHONPATH", client());
    if !probe.output().is_ok_and(|output| output.status.success()) {
        println!("skipped: python3 has no cuda.bindings (`cargo xtask tools` installs it)");
        return;
    }
    const N: usize = 1000;
    let region = Region::contiguous(
        "graph @relu(v0: f32[1000]) {\n    v1 = relu v0\n    return v1\n}\n"
            .parse::<Graph>()
            .unwrap(),
    );
    let lowered = lower(&region, &first_schedule(&region).unwrap()).unwrap();
    let kernel = &lowered.kernel;
    let ptx = emit(kernel, Target::Sm80).unwrap();
    let folder = driver_folder();
    let path = folder.path().join("relu.ptx");
    std::fs::write(&path, ptx).unwrap();
    let mut command = Command::new("python3");
    command
        .arg(root().join("tests/clients/relu.py"))
        .arg(&path)
        .arg(&kernel.name)
        .arg(N.to_string());
    command.args([kernel.grid[0].to_string(), kernel.n_threads.to_string()]);
    command.env("PYTHONPATH", client()).env("LD_LIBRARY_PATH", folder.path());
    let (success, output) = driver::run(&mut command, folder.path());
    assert!(success, "{output}");
    assert!(output.contains("device Eggine CPU driver"), "it is our driver:\n{output}");
    assert!(output.contains("launch agrees") && output.contains("graph agrees"), "{output}");
}
