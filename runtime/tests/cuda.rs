//! The cuda device on the driver of ours: the same results as the cpu device's, what it asks of the
//! driver, and what it says when the driver fails.
#![cfg(target_os = "linux")]
#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a panic is how a test fails, a skip is said aloud"
)]

mod common;
#[path = "common/driver.rs"]
mod driver;

use common::relu_ptx;
use driver::{Extra, in_child, in_child_with};
use eggine_ir::{DType, Tensor};
use eggine_runtime::device::cuda::{Swizzle, TensorMapSpec, cuda_report};
use eggine_runtime::device::{CpuOptions, Device, DeviceSpec, open};
use eggine_runtime::engine::{KernelRecord, WeightsBuilder, hash_text};
use eggine_runtime::{
    Arg, CpuDevice, CudaDevice, DeviceError, DevicePtr, Engine, EngineParts, IoSpec, KernelPlan,
    Launch, LaunchAttributes, Manifest, Plan, RunError, Session, Step,
};

const N: usize = 1000;

/// PTX of `z[i] = x[i] + y[i]`.
fn add_ptx() -> String {
    relu_ptx("add", N, "")
        .replace(".param .u64 p1\n", ".param .u64 p1,\n    .param .u64 p2\n")
        .replace(".reg .b64 %rd<4>", ".reg .b64 %rd<6>")
        .replace(".reg .f32 %f<2>", ".reg .f32 %f<3>")
        .replace("[p1];\n", "[p1];\n    ld.param.u64 %rd4, [p2];\n")
        .replace("    @!%p0 bra", "    mad.wide.s32 %rd5, %r2, 4, %rd4;\n    @!%p0 bra")
        .replace(
            "max.f32 %f1, %f0, 0f00000000",
            "ld.global.f32 %f2, [%rd3];\n    add.rn.f32 %f1, %f0, %f2",
        )
        .replace("st.global.f32 [%rd3]", "st.global.f32 [%rd5]")
}

fn engine_of(kernels: &[(&str, String)], plan: Plan, weights: WeightsBuilder) -> Engine {
    let record = |(name, ptx): &(&str, String)| KernelRecord {
        name: (*name).into(),
        ptx_hash: hash_text(ptx),
        ..KernelRecord::default()
    };
    let manifest = Manifest {
        model: "test".into(),
        kernels: kernels.iter().map(record).collect(),
        ..Manifest::default()
    };
    let parts = EngineParts {
        manifest,
        plan: Plan { weights_bytes: weights.n_bytes(), ..plan },
        ptx: kernels.iter().map(|(_, ptx)| ptx.clone()).collect(),
        weights: weights.finish(),
        ..EngineParts::default()
    };
    Engine::from_bytes(Engine::to_bytes(&parts).unwrap()).unwrap()
}

fn spec(name: &str) -> IoSpec {
    IoSpec { name: name.into(), dtype: DType::F32, extents: vec![N] }
}

/// `y = relu(x + w)`.
fn engine() -> Engine {
    let mut weights = WeightsBuilder::default();
    let values: Vec<f32> = (0..N).map(|i| (i as f32 * 0.7).sin()).collect();
    let w = weights.push(&Tensor::f32(&[N], &values));
    let between = Arg::Arena { offset_bytes: 256, n_bytes: 4 * N as u64 };
    let kernel = |entry: &str, n_params| KernelPlan {
        entry: entry.into(),
        grid: [8, 1, 1],
        block: [128, 1, 1],
        n_params,
        attributes: LaunchAttributes::default(),
    };
    let step = |kernel, args: &[Arg]| Step { kernel, args: args.to_vec(), sources: vec![] };
    let plan = Plan {
        inputs: vec![spec("x")],
        outputs: vec![spec("y")],
        kernels: vec![kernel("add", 3), kernel("relu", 2)],
        steps: vec![step(0, &[Arg::Input(0), w, between]), step(1, &[between, Arg::Output(0)])],
        aliases: vec![],
        arena_bytes: 8192,
        weights_bytes: 0,
    };
    engine_of(&[("add", add_ptx()), ("relu", relu_ptx("relu", N, ""))], plan, weights)
}

fn input(seed: usize) -> Tensor {
    let values: Vec<f32> = (0..N).map(|i| ((i * 31 + seed * 17) as f32 * 0.37).cos()).collect();
    Tensor::f32(&[N], &values)
}

fn cuda() -> Box<dyn Device> {
    open(&DeviceSpec::Cuda(0)).unwrap()
}

fn expected(x: &Tensor) -> Vec<Tensor> {
    let mut session = Session::new(Box::new(CpuDevice::default()), &engine()).unwrap();
    session.run(std::slice::from_ref(x)).unwrap()
}

#[test]
fn an_engine_runs_as_on_the_cpu_device() {
    if !in_child("an_engine_runs_as_on_the_cpu_device", &[("EGGINE_DRIVER_CHECK", "1")]) {
        return;
    }
    let mut session = Session::new(cuda(), &engine()).unwrap();
    assert!(session.device().info().name.contains("cuda:0"), "{:?}", session.device().info());
    for seed in 0..3 {
        let x = input(seed);
        assert_eq!(session.run(std::slice::from_ref(&x)).unwrap(), expected(&x));
    }
    let samples = session.time(3).unwrap();
    assert!(samples.len() == 3 && samples.iter().all(|sample| sample.total_ns > 0));
    let samples = session.time_steps(3).unwrap();
    assert!(samples.iter().all(|it| it.step_ns.len() == 2 && it.step_ns.iter().all(|&ns| ns > 0)));
    let stats = Extra::open().stats();
    assert_eq!((stats.n_graph_launches, stats.n_launches), (6, 18));
    drop(session.into_device().unwrap());
    let stats = Extra::open().stats();
    assert_eq!((stats.n_live_allocations, stats.n_live_objects), (0, 0), "{stats:?}");
}

#[test]
fn an_input_on_the_device_is_bound_without_a_copy() {
    if !in_child("an_input_on_the_device_is_bound_without_a_copy", &[]) {
        return;
    }
    for device in [cuda(), Box::new(CpuDevice::default())] {
        let mut device = device;
        let (a, b) = (input(1), input(2));
        let place = device.alloc(b.bytes.len()).unwrap();
        device.write(place, &b.bytes).unwrap();
        let mut session = Session::new(device, &engine()).unwrap();
        assert_eq!(session.run(std::slice::from_ref(&a)).unwrap(), expected(&a));
        session.bind_input(0, place).unwrap();
        session.launch().unwrap();
        assert_eq!(session.read_outputs().unwrap(), expected(&b));
    }
}

#[test]
fn the_steady_loop_allocates_nothing_and_waits_once() {
    if !in_child("the_steady_loop_allocates_nothing_and_waits_once", &[]) {
        return;
    }
    let extra = Extra::open();
    let mut session = Session::new(cuda(), &engine()).unwrap();
    let x = input(0);
    session.run(std::slice::from_ref(&x)).unwrap();
    extra.reset();
    let n_runs = 10;
    for _ in 0..n_runs {
        session.run(std::slice::from_ref(&x)).unwrap();
    }
    let stats = extra.stats();
    let io_bytes = 4 * N as u64 * n_runs;
    assert_eq!((stats.n_allocations, stats.n_host_allocations), (0, 0), "{stats:?}");
    assert_eq!((stats.bytes_to_device, stats.bytes_to_host), (io_bytes, io_bytes), "{stats:?}");
    assert_eq!((stats.n_synchronisations, stats.n_graph_launches), (n_runs, n_runs), "{stats:?}");
    // The counters can tell: a loop that loads the engine each time allocates and copies weights.
    extra.reset();
    Session::new(cuda(), &engine()).unwrap().run(std::slice::from_ref(&x)).unwrap();
    let stats = extra.stats();
    assert!(stats.n_allocations > 0 && stats.bytes_to_device > 4 * N as u64, "{stats:?}");
}

/// Opens, loads, runs twice, times, reads and closes.
fn life() -> Result<Vec<Tensor>, RunError> {
    let mut device = open(&DeviceSpec::Cuda(0))?;
    let scratch = device.alloc(64)?;
    device.fill(scratch, 64, 7)?;
    device.free(scratch)?;
    let mut session = Session::new(device, &engine())?;
    let x = input(5);
    session.run(std::slice::from_ref(&x))?;
    session.time_steps(1)?;
    let outputs = session.run(&[x])?;
    drop(session.into_device()?);
    Ok(outputs)
}

#[test]
fn every_call_may_fail_and_nothing_leaks() {
    if !in_child("every_call_may_fail_and_nothing_leaks", &[("EGGINE_DRIVER_THREADS", "1")]) {
        return;
    }
    let extra = Extra::open();
    let want = expected(&input(5));
    assert_eq!(life().unwrap(), want);
    let n_calls = extra.stats().n_calls;
    assert!(n_calls > 50, "{n_calls} calls");
    let (mut n_errors, mut n_survived) = (0, 0);
    // Invalid value, out of memory, lost device, bad PTX, illegal address, launch failure.
    for code in [1, 2, 46, 218, 700, 719] {
        for n in 1..=n_calls {
            extra.reset();
            extra.fail(n, code);
            let result = life();
            assert_eq!(extra.stats().n_injected, 1, "call {n} of {n_calls} with {code}");
            match result {
                // What fails is given back twice, and a hint may be refused.
                Ok(outputs) => {
                    assert_eq!(outputs, want);
                    n_survived += 1;
                }
                Err(err) => {
                    let message = err.to_string();
                    // The call or the kernel, and the code by name; or how much memory there was not.
                    let names = message.contains("CUDA_ERROR_")
                        && (message.contains("cu") || message.contains("kernel `"));
                    let clear = names || message.contains("bytes of memory left");
                    assert!(clear && message.len() < 600, "call {n} with {code}: {message}");
                    n_errors += 1;
                }
            }
            let stats = extra.stats();
            let live = (stats.n_live_allocations, stats.n_live_objects);
            assert_eq!(live, (0, 0), "call {n} with {code} leaks: {stats:?}");
            assert_eq!(life().unwrap(), want, "the run after call {n} failed with {code}");
        }
    }
    println!("{n_calls} calls, 6 codes: {n_errors} clear errors, {n_survived} runs unharmed");
    assert!(n_errors > 4 * n_survived, "{n_errors} errors, {n_survived} survived");
}

/// A kernel that reads 4 KiB behind its input.
fn stray_ptx() -> String {
    relu_ptx("stray", N, "    add.s64 %rd2, %rd2, 4096;\n")
}

fn launch(module: eggine_runtime::ModuleId, entry: &str, params: &[DevicePtr]) -> Launch {
    let params = params.iter().map(|ptr| ptr.0).collect();
    let attributes = LaunchAttributes::default();
    Launch { module, entry: entry.into(), grid: [8, 1, 1], block: [128, 1, 1], params, attributes }
}

#[test]
fn a_stray_access_names_the_kernel_and_the_device_stays_usable() {
    if !in_child("a_stray_access_names_the_kernel_and_the_device_stays_usable", &[]) {
        return;
    }
    let mut device = cuda();
    let mut other = Session::new(cuda(), &engine()).unwrap();
    let module = device.load(&stray_ptx()).unwrap();
    let (x, y) = (device.alloc(4 * N).unwrap(), device.alloc(4 * N).unwrap());
    device.fill(x, 4 * N, 0).unwrap();
    device.launch(&launch(module, "stray", &[x, y])).unwrap();
    let err = device.synchronize().unwrap_err();
    let DeviceError::Fault { entry, reason } = &err else { panic!("{err}") };
    assert_eq!(entry, "stray");
    assert!(reason.contains("CUDA_ERROR_ILLEGAL_ADDRESS (700)"), "{reason}");
    assert!(reason.contains("line ") && reason.contains("out of bounds"), "{reason}");
    // Until something new begins, everything is lost, and freeing it is no error.
    assert!(matches!(device.fill(x, 4, 0), Err(DeviceError::Lost { .. })));
    device.free(x).unwrap();
    device.unload(module);
    let z = device.alloc(16).unwrap();
    device.write(z, &[1; 16]).unwrap();
    let mut bytes = [0; 16];
    device.read(z, &mut bytes).unwrap();
    assert_eq!(bytes, [1; 16]);
    // Whoever shared the context is told.
    let err = other.run(&[input(0)]).unwrap_err().to_string();
    assert!(err.contains("load the engine again"), "{err}");
    drop(other);
    let mut again = Session::new(device, &engine()).unwrap();
    assert_eq!(again.run(&[input(0)]).unwrap(), expected(&input(0)));
}

#[test]
fn what_a_kernel_must_not_is_told_of_the_kernel() {
    if !in_child(
        "what_a_kernel_must_not_is_told_of_the_kernel",
        &[("EGGINE_DRIVER_MEMORY", "100000")],
    ) {
        return;
    }
    let mut device = CudaDevice::open(0).unwrap();
    let refused = |device: &mut CudaDevice, ptx: &str| {
        let DeviceError::Load { reason } = device.load(ptx).unwrap_err() else {
            panic!("not Load")
        };
        reason
    };
    let reason = refused(&mut device, "this is no PTX");
    assert!(
        reason.contains("CUDA_ERROR_INVALID_PTX (218)") && reason.contains("no .version"),
        "{reason}"
    );
    let reason = refused(&mut device, &relu_ptx("relu", N, "").replace("max.f32", "mix.f32"));
    assert!(reason.contains("mix.f32"), "{reason}");
    let reason = refused(&mut device, &relu_ptx("relu", N, "").replace("sm_80", "sm_100"));
    assert!(reason.contains("sm_100") && reason.contains("sm_90"), "{reason}");
    let reason =
        refused(&mut device, &relu_ptx("relu", N, "").replace(".version 7.0", ".version 9.9"));
    assert!(reason.contains("9.9") && reason.contains("9.0"), "{reason}");
    let DeviceError::Load { reason } = device.load_cubin(b"\x7fELF\x02\x01\x01\0").unwrap_err()
    else {
        panic!("machine code is refused")
    };
    assert!(
        reason.contains("CUDA_ERROR_NO_BINARY_FOR_GPU") && reason.contains("--target"),
        "{reason}"
    );

    let module = device.load(&relu_ptx("relu", N, "")).unwrap();
    let x = device.alloc(4 * N).unwrap();
    let missing = device.launch(&launch(module, "other", &[x, x])).unwrap_err();
    assert_eq!(missing, DeviceError::NoSuchKernel { entry: "other".into() });
    let wide = Launch { block: [64, 1, 1], ..launch(module, "relu", &[x, x]) };
    let err = device.launch(&wide).unwrap_err().to_string();
    assert!(err.contains("kernel `relu`") && err.contains("[64, 1, 1]"), "{err}");
    let err = device.alloc(1 << 20).unwrap_err();
    assert_eq!(err, DeviceError::OutOfMemory { n_bytes: 1 << 20 });
    assert_eq!(
        device.write(x.plus(8), &[0; 4 * N]).unwrap_err(),
        DeviceError::BadAddress { address: x.0 + 8, n_bytes: 4 * N }
    );
    // None of these did any harm.
    device.launch(&launch(module, "relu", &[x, x])).unwrap();
    device.synchronize().unwrap();
}

#[test]
fn a_code_that_nobody_knows_is_a_number() {
    if !in_child("a_code_that_nobody_knows_is_a_number", &[]) {
        return;
    }
    let extra = Extra::open();
    let mut device = cuda();
    for code in [4242, u32::MAX] {
        extra.fail(1, code);
        let err = device.alloc(64).unwrap_err();
        let DeviceError::Driver { code: told, .. } = &err else { panic!("{err}") };
        assert_eq!(*told, code);
        assert!(err.to_string().contains(&format!("failed: error {code}; ")), "{err}");
    }
    device.alloc(64).unwrap();
}

#[test]
fn modules_are_loaded_at_the_same_time_all_or_none() {
    if !in_child("modules_are_loaded_at_the_same_time_all_or_none", &[]) {
        return;
    }
    let extra = Extra::open();
    let mut device = cuda();
    let texts: Vec<String> = (0..9).map(|at| relu_ptx(&format!("relu{at}"), N, "")).collect();
    let texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    let n_before = extra.stats().n_live_objects;
    let modules = device.load_all(&texts).unwrap();
    assert_eq!(extra.stats().n_live_objects, n_before + 9);
    let x = device.alloc(4 * N).unwrap();
    for (at, &module) in modules.iter().enumerate() {
        // Each module has the kernel of its own text.
        device.launch(&launch(module, &format!("relu{at}"), &[x, x])).unwrap();
        device.unload(module);
    }
    let mut with_bad = texts.clone();
    (with_bad[3], with_bad[7]) = ("first bad", "second bad");
    let zero = texts[1].replace("ret;", "ret;\0");
    let err = device.load_all(&with_bad).unwrap_err().to_string();
    assert!(err.contains("CUDA_ERROR_INVALID_PTX"), "{err}");
    with_bad[1] = &zero;
    let err = device.load_all(&with_bad).unwrap_err().to_string();
    assert!(err.contains("zero byte"), "the first is told of: {err}");
    assert_eq!(extra.stats().n_live_objects, n_before);
}

/// Blocks of 32 threads write their numbers, wait for all blocks, and read those of the block opposite.
fn meet_ptx(n_blocks: u32) -> String {
    format!(
        ".version 7.0
.target sm_80
.address_size 64

.visible .entry meet(
    .param .u64 p0,
    .param .u64 p1
)
.reqntid 32, 1, 1
{{
    .reg .pred %p<1>;
    .reg .b32 %r<9>;
    .reg .b64 %rd<4>;

    ld.param.u64 %rd0, [p0];
    ld.param.u64 %rd1, [p1];
    mov.u32 %r0, %ctaid.x;
    mov.u32 %r1, %tid.x;
    mad.lo.s32 %r2, %r0, 32, %r1;
    mad.wide.s32 %rd2, %r2, 4, %rd1;
    add.s32 %r3, %r2, 7;
    st.global.u32 [%rd2], %r3;
    bar.sync 0;
    setp.ne.u32 %p0, %r1, 0;
    @%p0 bra $L1;
    membar.gl;
    mov.u32 %r5, 1;
    mov.u32 %r6, 0;
    atom.global.add.u32 %r4, [%rd0], %r5;
$L0:
    atom.global.add.u32 %r4, [%rd0], %r6;
    setp.lt.u32 %p0, %r4, {n_blocks};
    @%p0 bra $L0;
$L1:
    bar.sync 0;
    mov.u32 %r7, {last};
    sub.s32 %r7, %r7, %r2;
    mad.wide.s32 %rd3, %r7, 4, %rd1;
    ld.global.u32 %r8, [%rd3];
    st.global.u32 [%rd2+{half_bytes}], %r8;
    ret;
}}
",
        last = 32 * n_blocks - 1,
        half_bytes = 4 * 32 * n_blocks
    )
}

/// What `meet` leaves behind its own numbers.
fn met(n_blocks: u32) -> Vec<u8> {
    let n = 32 * n_blocks;
    (0..2 * n).flat_map(|i| (if i < n { i } else { 2 * n - 1 - i } + 7).to_le_bytes()).collect()
}

fn meet_engine(n_blocks: u32) -> Engine {
    let attributes =
        LaunchAttributes { cooperative: true, cluster: Some([2, 1, 1]), shared_bytes: 0 };
    let kernel = KernelPlan {
        entry: "meet".into(),
        grid: [n_blocks, 1, 1],
        block: [32, 1, 1],
        n_params: 2,
        attributes,
    };
    let io =
        |name: &str, n: usize| IoSpec { name: name.into(), dtype: DType::I32, extents: vec![n] };
    let plan = Plan {
        inputs: vec![io("count", 1)],
        outputs: vec![io("numbers", 64 * n_blocks as usize)],
        kernels: vec![kernel],
        steps: vec![Step { kernel: 0, args: vec![Arg::Input(0), Arg::Output(0)], sources: vec![] }],
        ..Plan::default()
    };
    engine_of(&[("meet", meet_ptx(n_blocks))], plan, WeightsBuilder::default())
}

#[test]
fn blocks_of_a_cooperative_launch_meet() {
    if !in_child("blocks_of_a_cooperative_launch_meet", &[("EGGINE_DRIVER_THREADS", "1")]) {
        return;
    }
    let n_blocks = 12;
    let zero = Tensor::new(DType::I32, &[1], vec![0; 4]);
    let wanted = met(n_blocks);
    let one_thread = CpuOptions { n_threads: 1, ..CpuOptions::default() };
    for device in [cuda(), Box::new(CpuDevice::new(one_thread))] {
        // As a graph where there is one, and as a launch.
        let mut session = Session::new(device, &meet_engine(n_blocks)).unwrap();
        for _ in 0..2 {
            let outputs = session.run(std::slice::from_ref(&zero)).unwrap();
            assert_eq!(outputs[0].bytes, wanted);
        }
        let mut device = session.into_device().unwrap();
        let module = device.load(&meet_ptx(n_blocks)).unwrap();
        let (count, numbers) = (device.alloc(4).unwrap(), device.alloc(wanted.len()).unwrap());
        device.fill(count, 4, 0).unwrap();
        let cooperative = LaunchAttributes { cooperative: true, ..LaunchAttributes::default() };
        let mut launch = Launch {
            module,
            entry: "meet".into(),
            grid: [n_blocks, 1, 1],
            block: [32, 1, 1],
            params: vec![count.0, numbers.0],
            attributes: cooperative,
        };
        device.launch(&launch).unwrap();
        let mut bytes = vec![0; wanted.len()];
        device.read(numbers, &mut bytes).unwrap();
        assert_eq!(bytes, wanted);
        // One part of the device holds 32 blocks of 32 threads.
        launch.grid = [33, 1, 1];
        let err = device.launch(&launch).unwrap_err().to_string();
        assert!(err.contains("kernel `meet`") && err.contains("cooperative"), "{err}");
    }
    let err = Session::new(cuda(), &meet_engine(34)).err().unwrap().to_string();
    let names = err.contains("COOPERATIVE_LAUNCH_TOO_LARGE (720)") && err.contains("kernel `meet`");
    assert!(names, "a graph is refused when it is made: {err}");
}

#[test]
fn clusters_are_taken_as_a_gpu_takes_them() {
    let name = "clusters_are_taken_as_a_gpu_takes_them";
    if !in_child(name, &[]) {
        return;
    }
    let mut device = cuda();
    let module = device.load(&relu_ptx("relu", N, "")).unwrap();
    let x = device.alloc(4 * N).unwrap();
    let of = |cluster| Launch {
        attributes: LaunchAttributes { cluster: Some(cluster), ..LaunchAttributes::default() },
        ..launch(module, "relu", &[x, x])
    };
    device.launch(&of([4, 1, 1])).unwrap();
    device.synchronize().unwrap();
    for (cluster, code) in [
        ([3, 1, 1], "CUDA_ERROR_INVALID_VALUE"),
        ([16, 1, 1], "CUDA_ERROR_INVALID_CLUSTER_SIZE"),
        ([0, 1, 1], "CUDA_ERROR_INVALID_CLUSTER_SIZE"),
    ] {
        let err = device.launch(&of(cluster)).unwrap_err().to_string();
        assert!(err.contains(code) && err.contains(&format!("clusters of {cluster:?}")), "{err}");
        let mut cpu = CpuDevice::default();
        let module = cpu.load(&relu_ptx("relu", N, "")).unwrap();
        let err = cpu.launch(&Launch { module, ..of(cluster) }).unwrap_err().to_string();
        assert!(err.contains(&format!("{cluster:?} blocks")), "{err}");
    }
}

#[test]
fn shared_memory_beyond_48_kib_is_asked_for() {
    if !in_child("shared_memory_beyond_48_kib_is_asked_for", &[]) {
        return;
    }
    for device in [cuda(), Box::new(CpuDevice::default())] {
        let mut device = device;
        let module = device.load(&relu_ptx("relu", N, "")).unwrap();
        let x = device.alloc(4 * N).unwrap();
        let of = |shared_bytes| Launch {
            attributes: LaunchAttributes { shared_bytes, ..LaunchAttributes::default() },
            ..launch(module, "relu", &[x, x])
        };
        // The driver refuses a launch with more than was asked for before.
        for shared_bytes in [1024, 100 << 10, 50 << 10, LaunchAttributes::MOST_SHARED_BYTES] {
            device.launch(&of(shared_bytes)).unwrap();
            if let Some(graph) = device.record(&[of(shared_bytes)]).unwrap() {
                device.replay(graph).unwrap();
            }
        }
        device.synchronize().unwrap();
        let err = device.launch(&of(LaunchAttributes::MOST_SHARED_BYTES + 4)).unwrap_err();
        let err = err.to_string();
        assert!(err.contains("kernel `relu`") && err.contains("232452 bytes of shared"), "{err}");
    }
}

#[test]
fn an_old_device_has_no_clusters() {
    if !in_child("an_old_device_has_no_clusters", &[("EGGINE_DRIVER_SM", "80")]) {
        return;
    }
    let err = Session::new(cuda(), &meet_engine(2)).err().unwrap().to_string();
    assert!(
        err.contains("CUDA_ERROR_NOT_SUPPORTED") && err.contains("clusters of [2, 1, 1]"),
        "{err}"
    );
}

#[test]
fn tensor_maps_are_encoded_or_refused() {
    if !in_child("tensor_maps_are_encoded_or_refused", &[]) {
        return;
    }
    let mut device = CudaDevice::open(0).unwrap();
    let address = device.alloc(1 << 20).unwrap();
    let good = TensorMapSpec {
        dtype: DType::BF16,
        address,
        extents: vec![512, 1024],
        strides_bytes: vec![1024],
        box_extents: vec![64, 128],
        swizzle: Swizzle::Bytes128,
    };
    let map = device.encode_tensor_map(&good).unwrap();
    let other =
        device.encode_tensor_map(&TensorMapSpec { extents: vec![512, 1000], ..good.clone() });
    assert_ne!(map, other.unwrap());
    for bad in [
        TensorMapSpec { address: address.plus(8), ..good.clone() },
        TensorMapSpec { strides_bytes: vec![1000], ..good.clone() },
        TensorMapSpec { box_extents: vec![128, 64], ..good.clone() },
        TensorMapSpec { box_extents: vec![64, 257], ..good.clone() },
    ] {
        let err = device.encode_tensor_map(&bad).unwrap_err().to_string();
        assert!(err.contains("cuTensorMapEncodeTiled") && err.contains("box"), "{err}");
    }
    let err =
        device.encode_tensor_map(&TensorMapSpec { box_extents: vec![64], ..good }).unwrap_err();
    assert!(err.to_string().contains("different ranks"), "{err}");
}

#[test]
fn the_peak_follows_from_what_the_driver_tells() {
    let name = "the_peak_follows_from_what_the_driver_tells";
    if !in_child(name, &[("EGGINE_DRIVER_THREADS", "3"), ("EGGINE_DRIVER_SM", "80")]) {
        return;
    }
    // 3 parts at 6 GHz: 64 fused multiply-adds and 256 bytes a clock each.
    let peak = CudaDevice::open(0).unwrap().peak();
    assert_eq!((peak.flops_per_ns, peak.bytes_per_ns), (2.0 * 64.0 * 18.0, 256.0 * 18.0));
}

#[test]
fn two_devices_are_two() {
    if !in_child(
        "two_devices_are_two",
        &[("EGGINE_DRIVER_DEVICES", "2"), ("EGGINE_DRIVER_SM", "80")],
    ) {
        return;
    }
    let report = cuda_report().unwrap();
    assert_eq!(report.devices.len(), 2);
    let second = report.devices[1].as_ref().unwrap();
    assert!(second.starts_with("cuda:1 ") && second.contains("sm_80"), "{second}");
    let x = input(3);
    for ordinal in 0..2 {
        let device = open(&DeviceSpec::Cuda(ordinal)).unwrap();
        let outputs = Session::new(device, &engine()).unwrap().run(std::slice::from_ref(&x));
        assert_eq!(outputs.unwrap(), expected(&x));
    }
    let err = open(&DeviceSpec::Cuda(2)).err().unwrap().to_string();
    assert_eq!(err, "there is no device cuda:2: this machine has 2 CUDA devices, cuda:0 to cuda:1");
}

#[test]
fn an_old_driver_is_one_sentence() {
    if !in_child("an_old_driver_is_one_sentence", &[("EGGINE_DRIVER_VERSION", "12040")]) {
        return;
    }
    let err = open(&DeviceSpec::Cuda(0)).err().unwrap().to_string();
    let want = "the CUDA driver is of version 12.4, Eggine needs 12.8: install NVIDIA's driver 570 or later, or use `--device cpu`";
    assert_eq!(err, want);
    assert_eq!(cuda_report().unwrap_err().to_string(), want);
}

#[test]
fn a_driver_without_devices_is_one_sentence() {
    if !in_child("a_driver_without_devices_is_one_sentence", &[("EGGINE_DRIVER_DEVICES", "0")]) {
        return;
    }
    let err = open(&DeviceSpec::Cuda(0)).err().unwrap().to_string();
    assert!(err.starts_with("cuInit failed: CUDA_ERROR_NO_DEVICE (100)"), "{err}");
    assert!(err.ends_with("no GPU is visible: see `nvidia-smi` and CUDA_VISIBLE_DEVICES"), "{err}");
}

#[test]
fn no_driver_is_one_sentence() {
    if !in_child_with("no_driver_is_one_sentence", &[("LD_LIBRARY_PATH", "")]) {
        return;
    }
    match open(&DeviceSpec::Cuda(0)) {
        Ok(_) => println!("skipped: this machine has a CUDA driver"),
        Err(err) => {
            let err = err.to_string();
            assert!(err.starts_with("no CUDA driver was found (libcuda.so.1"), "{err}");
            assert!(err.contains("--device cpu"), "{err}");
        }
    }
}

#[test]
fn devices_are_named_in_one_way() {
    for text in ["cpu", "cuda:0", "cuda:13"] {
        assert_eq!(text.parse::<DeviceSpec>().unwrap().to_string(), text);
    }
    assert_eq!("cuda".parse(), Ok(DeviceSpec::Cuda(0)));
    for text in ["", "gpu", "cuda:", "cuda:-1", "cuda:x", "CUDA:0"] {
        let err = text.parse::<DeviceSpec>().unwrap_err().to_string();
        assert!(err.contains(&format!("`{text}`")) && err.contains("cuda:N"), "{err}");
    }
}
