//! Execution: a plan runs as it says, on the fake and on the cpu device, and wrong inputs are refused in
//! the model's words.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use common::relu_ptx;
use eggine_ir::{DType, Tensor};
use eggine_runtime::device::{CpuDevice, CpuOptions, Device, FakeDevice};
use eggine_runtime::engine::{KernelRecord, WeightsBuilder, hash_text};
use eggine_runtime::plan::OutputAlias;
use eggine_runtime::{
    Arg, Engine, EngineParts, IoSpec, KernelPlan, LaunchAttributes, Manifest, Plan, Session, Step,
};

fn spec(name: &str, extents: &[usize]) -> IoSpec {
    IoSpec { name: name.into(), dtype: DType::F32, extents: extents.to_vec() }
}

fn engine(plan: Plan, ptx: Vec<String>, weights: WeightsBuilder) -> Engine {
    let record = |(kernel, ptx): (&KernelPlan, &String)| KernelRecord {
        name: kernel.entry.clone(),
        ptx_hash: hash_text(ptx),
        ..KernelRecord::default()
    };
    let kernels = plan.kernels.iter().zip(&ptx).map(record).collect();
    let manifest = Manifest { model: "test".into(), kernels, ..Manifest::default() };
    let plan = Plan { weights_bytes: weights.n_bytes(), ..plan };
    let parts =
        EngineParts { manifest, plan, ptx, weights: weights.finish(), ..EngineParts::default() };
    Engine::from_bytes(Engine::to_bytes(&parts).unwrap()).unwrap()
}

fn kernel(entry: &str, n_params: usize) -> KernelPlan {
    let attributes = LaunchAttributes::default();
    KernelPlan { entry: entry.into(), grid: [1, 1, 1], block: [128, 1, 1], n_params, attributes }
}

fn step(kernel: usize, args: &[Arg]) -> Step {
    Step { kernel, args: args.to_vec(), sources: vec![] }
}

/// `y = relu(x + w)` in two steps, `z = x`, and `y` written in two halves.
fn two_steps() -> Engine {
    let mut weights = WeightsBuilder::default();
    let w = weights.push(&Tensor::f32(&[8], &[-3.0, -2.0, -1.0, 0.0, 1.0, 2.0, 3.0, 4.0]));
    let between = |offset_bytes, n_bytes| Arg::Arena { offset_bytes, n_bytes };
    let half = |offset_bytes| Arg::OutputPart { index: 0, offset_bytes, n_bytes: 16 };
    let plan = Plan {
        inputs: vec![spec("x", &[2, 4])],
        outputs: vec![spec("y", &[8]), spec("z", &[8])],
        kernels: vec![kernel("add", 3), kernel("relu", 2)],
        steps: vec![
            step(0, &[Arg::Input(0), w, between(256, 32)]),
            step(1, &[between(256, 16), half(0)]),
            step(1, &[between(272, 16), half(16)]),
        ],
        aliases: vec![OutputAlias { output: 1, source: Arg::Input(0) }],
        arena_bytes: 512,
        weights_bytes: 0,
    };
    engine(plan, vec!["// add".into(), "// relu".into()], weights)
}

fn fake() -> FakeDevice {
    let mut device = FakeDevice::new();
    device.kernel("add", |memory, params, _| {
        let (x, w) = (memory.read_f32(params[0], 8)?, memory.read_f32(params[1], 8)?);
        memory.write_f32(params[2], &x.iter().zip(&w).map(|(x, w)| x + w).collect::<Vec<_>>())
    });
    device.kernel("relu", |memory, params, _| {
        let x = memory.read_f32(params[0], 4)?;
        memory.write_f32(params[1], &x.iter().map(|x| x.max(0.0)).collect::<Vec<_>>())
    });
    device
}

#[test]
fn a_plan_runs_as_it_says() {
    let mut session = Session::new(Box::new(fake()), &two_steps()).unwrap();
    for scale in [1.0, -1.0] {
        let x = Tensor::f32(&[2, 4], &[scale; 8]);
        let outputs = session.run(std::slice::from_ref(&x)).unwrap();
        let want: Vec<f32> = (0..8).map(|i| (scale + i as f32 - 3.0).max(0.0)).collect();
        assert_eq!(outputs, [Tensor::f32(&[8], &want), Tensor::f32(&[8], &[scale; 8])]);
    }
    let samples = session.time(5).unwrap();
    assert!(samples.len() == 5 && samples.iter().all(|sample| sample.total_ns > 0));
    let samples = session.time_steps(3).unwrap();
    assert!(samples.iter().all(|sample| sample.step_ns == [1000, 1000, 1000]));
}

#[test]
fn wrong_inputs_are_refused_in_the_models_words() {
    let mut session = Session::new(Box::new(fake()), &two_steps()).unwrap();
    let mut message = |inputs: &[Tensor]| session.run(inputs).unwrap_err().to_string();
    insta::assert_snapshot!(message(&[]), @"the model takes 1 inputs (`x`), 0 were given");
    insta::assert_snapshot!(message(&[Tensor::f32(&[8], &[0.0; 8])]), @"input 0 (`x`) is f32[8], the engine was compiled for f32[2,4]");
    insta::assert_snapshot!(message(&[Tensor::i64(&[2, 4], &[0; 8])]), @"input 0 (`x`) is i64[2,4], the engine was compiled for f32[2,4]");
}

#[test]
fn a_fault_names_the_step() {
    let mut device = fake();
    device.kernel("relu", |memory, _, _| memory.write(0, &[1]));
    let mut session = Session::new(Box::new(device), &two_steps()).unwrap();
    let message = session.run(&[Tensor::f32(&[2, 4], &[0.0; 8])]).unwrap_err().to_string();
    assert!(message.starts_with("step 1 of the engine: kernel `relu`: "), "{message}");
}

#[test]
fn everything_is_given_back() {
    let device = Session::new(Box::new(fake()), &two_steps()).unwrap().into_device().unwrap();
    drop(device);
    let mut device = fake();
    let before = device.alloc(1).unwrap();
    device.free(before).unwrap();
    let mut session = Session::new(Box::new(device), &two_steps()).unwrap();
    session.run(&[Tensor::f32(&[2, 4], &[0.0; 8])]).unwrap();
    let mut device = session.into_device().unwrap();
    // A fresh session fits on the same device.
    device.synchronize().unwrap();
    Session::new(device, &two_steps()).unwrap().run(&[Tensor::f32(&[2, 4], &[0.0; 8])]).unwrap();
}

#[test]
fn an_engine_file_runs_on_the_cpu_device() {
    let ptx = vec![relu_ptx("relu", 300, "")];
    let mut weights = WeightsBuilder::default();
    let data: Vec<f32> = (0..300).map(|i| (i as f32 - 150.0) / 8.0).collect();
    let constant = weights.push(&Tensor::f32(&[300], &data));
    let plan = Plan {
        inputs: vec![spec("x", &[300])],
        outputs: vec![spec("y", &[300]), spec("c", &[300])],
        kernels: vec![KernelPlan { grid: [3, 1, 1], ..kernel("relu", 2) }],
        steps: vec![
            step(0, &[Arg::Input(0), Arg::Output(0)]),
            step(0, &[constant, Arg::Output(1)]),
        ],
        ..Plan::default()
    };
    let made = engine(plan, ptx, weights);
    let parts = EngineParts {
        manifest: made.manifest.clone(),
        plan: made.plan.clone(),
        ptx: vec![made.ptx(0).to_owned()],
        weights: made.weights().clone(),
        ..EngineParts::default()
    };
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("relu.eggine");
    Engine::write(&path, &parts).unwrap();
    let engine = Engine::open(&path).unwrap();
    for n_threads in [1, 2] {
        let device = CpuDevice::new(CpuOptions { n_threads, ..CpuOptions::default() });
        let mut session = Session::new(Box::new(device), &engine).unwrap();
        let x: Vec<f32> = data.iter().map(|x| -x).collect();
        let relu = |data: &[f32]| {
            Tensor::f32(&[300], &data.iter().map(|x| x.max(0.0)).collect::<Vec<_>>())
        };
        let outputs = session.run(&[Tensor::f32(&[300], &x)]).unwrap();
        assert_eq!(outputs, [relu(&x), relu(&data)]);
        assert!(session.time_steps(2).unwrap().iter().all(|sample| sample.step_ns.len() == 2));
    }
}
