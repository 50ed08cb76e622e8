//! What only the assembler knows: that every row of the instruction table, and every PTX snapshot of
//! the workspace, is PTX; and that what we read from ptxas is so.
//!
//! Needs an assembler (`cargo xtask tools`). Without one each test is reported as ignored, by name; the
//! comparison of the library with the process needs both.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
#![allow(clippy::print_stderr, reason = "the harness says why it ignores")]

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use eggine_codegen_ptx::assemble::{AssembleError, Assembled, Assembler, cubin};
use eggine_codegen_ptx::kir::Kernel;
use eggine_codegen_ptx::predict;
use eggine_codegen_ptx::predict::pipeline::assembled::predict_assembled;
use eggine_codegen_ptx::{Target, emit, first_choices, lower};
use eggine_ir::{Graph, Region, Schedule};
use eggine_ptx::PtxError;
use eggine_ptx::ast::{
    Base, Entry, Inst, Label, Module, Operand, Param, ParamType, Reg, RegClass, Shared, Special,
    Stmt,
};
use eggine_ptx::builder::{Builder, F32};
use eggine_ptx::table::{Classes, Op, Slot};
use libtest_mimic::{Arguments, Failed, Trial};

type Outcome = Result<(), Failed>;
type Test = fn(&Assembler) -> Outcome;

#[rustfmt::skip] // One test per row.
const TESTS: &[(&str, Test)] = &[
    ("a_row_that_is_wrong_is_found",          wrong_row_is_found),
    ("swapped_operands_are_rejected",         swapped_operands_are_rejected),
    ("too_new_instruction_is_rejected_by_both", too_new_is_rejected_by_both),
    ("version_is_the_least",                  version_is_the_least),
    ("ignored_setmaxnreg_is_an_error",        ignored_setmaxnreg_is_an_error),
    ("spills_are_seen",                       spills_are_seen),
    ("usage_and_mix_are_those_of_the_kernel", usage_and_mix),
    ("loops_are_those_of_the_kernel",         loops_are_those_of_the_kernel),
    ("predictions_follow_the_machine_code",   predictions_follow_the_machine_code),
];

fn main() -> ExitCode {
    let mut args = Arguments::from_args();
    args.test_threads.get_or_insert(2); // Each runs a process that uses one core.
    let assembler = Assembler::find(None, &workspace());
    if let Err(err) = &assembler {
        eprintln!("every test is ignored: {err}");
    }
    let assembler = Arc::new(assembler);
    let all = Assembler::all(&workspace());
    let pair = all
        .iter()
        .find(|it| it.name() == "nvPTXCompiler")
        .cloned()
        .zip(all.iter().find(|it| it.name() == "ptxas").cloned());
    if pair.is_none() {
        eprintln!("library_and_process_make_the_same_code is ignored: there is only one of them");
    }
    let trial = |name: String, test: Box<dyn Fn(&Assembler) -> Outcome + Send>| {
        let is_ignored = assembler.is_err();
        let assembler = Arc::clone(&assembler);
        let run =
            move || test(assembler.as_ref().as_ref().map_err(|err| Failed::from(err.to_string()))?);
        Trial::test(name, run).with_ignored_flag(is_ignored)
    };
    let mut trials: Vec<Trial> =
        TESTS.iter().map(|&(name, test)| trial(name.to_owned(), Box::new(test))).collect();
    for &target in Target::ALL {
        let name = format!("every_row_assembles_for_{target}");
        trials.push(trial(name, Box::new(move |assembler| every_row_assembles(assembler, target))));
    }
    let is_ignored = pair.is_none();
    let same =
        move || pair.as_ref().map_or(Ok(()), |(library, process)| same_code(library, process));
    let name = "library_and_process_make_the_same_code";
    trials.push(Trial::test(name, same).with_ignored_flag(is_ignored));
    let linker = all.iter().find(|it| it.name() == "nvJitLink").cloned();
    if linker.is_none() {
        eprintln!("linker_makes_the_same_kernels is ignored: there is no nvJitLink");
    }
    let is_ignored = linker.is_none() || all.len() < 2;
    let other = all.iter().find(|it| it.name() != "nvJitLink").cloned();
    let linked = move || {
        linker.as_ref().zip(other.as_ref()).map_or(Ok(()), |(a, b)| linker_is_the_same(a, b))
    };
    let name = "linker_makes_the_same_kernels";
    trials.push(Trial::test(name, linked).with_ignored_flag(is_ignored));
    for path in snapshots(&workspace()) {
        let name = path.strip_prefix(workspace()).unwrap_or(&path).display().to_string();
        let test = move |assembler: &Assembler| snapshot_assembles(assembler, &path);
        trials.push(trial(format!("snapshot {name}"), Box::new(test)));
    }
    libtest_mimic::run(&args, trials).exit_code()
}

fn workspace() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("..").canonicalize().unwrap()
}

/// Operand of a slot: registers, or immediates where there may be one.
fn operand(op: Op, slot: Slot, position: usize, immediate: bool) -> Operand {
    let reg = |class| Reg { class, idx: u32::try_from(4 * position).unwrap() };
    match slot {
        Slot::Dst(classes) | Slot::Src(classes) => match classes {
            Classes::One(class) => Operand::Reg(reg(class)),
            Classes::Either(a, b) => Operand::Reg(reg(if immediate { a } else { b })),
            Classes::Vector(class, n) => {
                let first = reg(class).idx;
                Operand::Regs(
                    (0..u32::try_from(n).unwrap()).map(|i| Reg { class, idx: first + i }).collect(),
                )
            }
        },
        Slot::Imm(class) | Slot::Any(class) if !immediate => Operand::Reg(reg(class)),
        Slot::Imm(class) | Slot::Any(class) => match class {
            RegClass::Pred | RegClass::B16 | RegClass::B32 => Operand::Int(1),
            RegClass::B64 => Operand::Int(1 << 40),
            RegClass::F32 => Operand::F32(0x3F80_0000),
            RegClass::F64 => Operand::F64(0x3FF0_0000_0000_0000),
        },
        Slot::Param => {
            Operand::Address { base: Base::Param(u32::from(op != Op::LdParamU64)), offset: 0 }
        }
        Slot::Global => Operand::Address { base: Base::Reg(reg(RegClass::B64)), offset: -16 },
        Slot::Shared if immediate => Operand::Address { base: Base::Shared(0), offset: 16 },
        Slot::Shared => Operand::Address { base: Base::Reg(reg(RegClass::B32)), offset: 32 },
        Slot::Label => Operand::Label(Label(0)),
        Slot::Int => Operand::Int(match (op, position) {
            (Op::CpAsyncCa, _) => 4,
            (Op::CpAsyncCg, _) => 16,
            (Op::VoteBallotB32, _) | (_, 4) => -1,
            (_, 3) => 31,
            _ => 0,
        }),
    }
}

/// Where [`kernel_of`] keeps the pointer, and a word that it computes predicates with.
const POINTER: Reg = Reg { class: RegClass::B64, idx: 30 };
const WORD: Reg = Reg { class: RegClass::B32, idx: 30 };

/// A kernel that has the row twice, with registers and with immediates where they may stand, between
/// loads of what it reads and stores of what it writes, so that none is optimised away.
fn kernel_of(op: Op) -> Entry {
    let param = |name: &str, ty| Param { name: name.to_owned(), ty };
    let mut body = vec![inst(Op::LdParamU64, [Operand::Reg(POINTER), param_address()])];
    let mut offset = 0;
    for immediate in [false, true] {
        let signature = op.spec().signature;
        let operands: Vec<Operand> = (0..)
            .zip(signature)
            .map(|(position, &slot)| operand(op, slot, position, immediate))
            .collect();
        let mut after = Vec::new();
        for (&slot, operand) in signature.iter().zip(&operands) {
            let regs = match operand {
                Operand::Reg(reg) | Operand::Address { base: Base::Reg(reg), .. } => vec![*reg],
                Operand::Regs(regs) => regs.clone(),
                _ => Vec::new(),
            };
            for reg in regs {
                offset += 8;
                match slot {
                    Slot::Dst(_) => after.extend(store(reg, offset)),
                    _ => body.extend(load(reg, offset)),
                }
            }
        }
        body.push(Stmt::Inst(Inst { guard: None, op, operands }));
        body.extend(after);
    }
    body.push(Stmt::Label(Label(0)));
    body.push(inst(Op::Ret, []));
    Entry {
        name: format!("{op:?}"),
        params: vec![param("x", ParamType::U64), param("n", ParamType::U32)],
        reqntid: Some([128, 1, 1]),
        minnctapersm: None,
        n_regs: RegClass::ALL.into_iter().map(|class| (class, 31)).collect(),
        shared: vec![Shared { name: "tile".to_owned(), align_bytes: 16, n_bytes: 64 }],
        n_labels: 1,
        body,
    }
}

fn inst<const N: usize>(op: Op, operands: [Operand; N]) -> Stmt {
    Stmt::Inst(Inst { guard: None, op, operands: operands.to_vec() })
}

fn param_address() -> Operand {
    Operand::Address { base: Base::Param(0), offset: 0 }
}

fn load(reg: Reg, offset: i64) -> Vec<Stmt> {
    let at = || Operand::Address { base: Base::Reg(POINTER), offset };
    let op = match reg.class {
        RegClass::Pred => {
            let word = inst(Op::LdGlobalU32, [Operand::Reg(WORD), at()]);
            return vec![
                word,
                inst(Op::SetpNeS32, [Operand::Reg(reg), Operand::Reg(WORD), Operand::Int(0)]),
            ];
        }
        RegClass::B16 => Op::LdGlobalB16,
        RegClass::B32 => Op::LdGlobalU32,
        RegClass::B64 => Op::LdGlobalU64,
        RegClass::F32 => Op::LdGlobalF32,
        RegClass::F64 => Op::LdGlobalF64,
    };
    vec![inst(op, [Operand::Reg(reg), at()])]
}

fn store(reg: Reg, offset: i64) -> Vec<Stmt> {
    let at = || Operand::Address { base: Base::Reg(POINTER), offset };
    let op = match reg.class {
        RegClass::Pred => {
            let bits = [Operand::Reg(WORD), Operand::Int(1), Operand::Int(0), Operand::Reg(reg)];
            return vec![
                inst(Op::SelpB32, bits),
                inst(Op::StGlobalU32, [at(), Operand::Reg(WORD)]),
            ];
        }
        RegClass::B16 => Op::StGlobalB16,
        RegClass::B32 => Op::StGlobalU32,
        RegClass::B64 => Op::StGlobalU64,
        RegClass::F32 => Op::StGlobalF32,
        RegClass::F64 => Op::StGlobalF64,
    };
    vec![inst(op, [at(), Operand::Reg(reg)])]
}

/// All rows that the target has, one kernel each, in one module: 2 ms a kernel instead of 13.
fn all_rows(target: Target) -> Module {
    let ops = Op::ALL.iter().filter(|op| op.spec().sm <= target.spec().sm);
    let mut entries: Vec<Entry> = ops.map(|&op| kernel_of(op)).collect();
    entries.push(special_registers());
    Module::new(target.name(), entries).unwrap()
}

/// A kernel that reads every special register and the address of an array.
fn special_registers() -> Entry {
    let mut b = Builder::new("special_registers");
    for special in Special::ALL {
        b.mov_u32(special);
    }
    let tile = b.shared("tile", 128, 1024);
    b.mov_u32(tile);
    let zero = b.mov_u32(0);
    let pred = b.setp_eq_s32(zero, 0);
    b.guarded(!pred, |b| b.bar_sync(0));
    b.ret();
    b.entry()
}

fn every_row_assembles(assembler: &Assembler, target: Target) -> Outcome {
    let module = all_rows(target);
    let assembled = assembler.assemble(&module.to_string(), target)?;
    assert_eq!(assembled.usage.len(), module.entries.len());
    assert_eq!(assembled.warnings, Vec::<String>::new());
    for (kernel, mix) in assembled.instruction_mix()? {
        assert!(mix.counts.keys().all(|name| !name.starts_with("0x")), "`{kernel}`: {mix:?}");
    }
    Ok(())
}

/// The diagnostics of ptxas for the text; panics if there are none.
fn rejection(assembler: &Assembler, ptx: &str, target: Target) -> Vec<String> {
    match assembler.assemble(ptx, target) {
        Err(AssembleError::Rejected { diagnostics, .. }) => diagnostics,
        other => panic!("expected a rejection, got {:?}", other.map(|assembled| assembled.usage)),
    }
}

/// The same sections, byte for byte, but the one in which the assembler names itself; the same verdicts, and
/// from many threads at once.
fn same_code(library: &Assembler, process: &Assembler) -> Outcome {
    std::thread::scope(|scope| {
        let of_target = |&target: &Target| {
            scope.spawn(move || -> Result<(), String> {
                let text = all_rows(target).to_string();
                let both = [library, process].map(|it| it.assemble(&text, target));
                let [Ok(a), Ok(b)] = both else { return Err(format!("{both:?}")) };
                if (&a.usage, &a.warnings) != (&b.usage, &b.warnings) {
                    return Err(format!("{target}: {:?} and {:?}", a.usage, b.usage));
                }
                let different =
                    cubin::differences(&a.cubin, &b.cubin).map_err(|it| it.to_string())?;
                if different != [cubin::TOOL_NOTE] {
                    return Err(format!("{target}: sections {different:?} differ"));
                }
                let refusals =
                    [library, process].map(|it| rejection(it, &text.replace("fma", "mfa"), target));
                if refusals[0].is_empty() || refusals[1].is_empty() {
                    return Err(format!("{refusals:?}"));
                }
                Ok(())
            })
        };
        let running: Vec<_> = Target::ALL.iter().map(of_target).collect();
        running
            .into_iter()
            .try_for_each(|it| it.join().map_err(|_| "a thread panics".to_owned())?)
    })?;
    // The comparison can fail: other code is told by its section.
    let [a, b] = [Op::AddS32, Op::SubS32].map(|op| {
        let text = Module::new("sm_80", vec![kernel_of(op)]).unwrap().to_string();
        library.assemble(&text.replace(&format!("{op:?}"), "k"), Target::Sm80).unwrap().cubin
    });
    let different = cubin::differences(&a, &b)?;
    assert!(different.iter().any(|name| name == ".text.k"), "{different:?}");
    Ok(())
}

/// The linker keeps other sections, and subroutines (of divisions and the like) in sections of their own. It
/// makes every kernel, some with the very same instructions and registers, and its verdicts are the same.
fn linker_is_the_same(linker: &Assembler, other: &Assembler) -> Outcome {
    for &target in Target::ALL {
        let text = all_rows(target).to_string();
        let (a, b) = (linker.assemble(&text, target)?, other.assemble(&text, target)?);
        let (ours, theirs) = (a.kernel_codes()?, b.kernel_codes()?);
        let mut n_same = 0;
        for (name, code) in &theirs {
            let found = ours.iter().find(|it| it.0 == *name);
            let (_, found) = found.ok_or_else(|| format!("{target}: no kernel `{name}`"))?;
            let usage = |of: &Assembled| of.usage.iter().find(|it| it.kernel == *name).cloned();
            n_same += usize::from(found == code && usage(&a) == usage(&b));
        }
        assert!(n_same > 0, "{target}: none of {} is the same", theirs.len());
        let refusal = rejection(linker, &text.replace("fma", "mfa"), target);
        assert!(refusal[0].contains("line") && refusal[0].contains("mfa"), "{refusal:?}");
    }
    Ok(())
}

/// Lowered and assembled.
fn assembled_of(
    assembler: &Assembler,
    region: &Region,
    schedule: &Schedule,
    target: Target,
) -> (Kernel, Assembled) {
    let kernel = lower(region, schedule).unwrap().kernel;
    let text = emit(&kernel, Target::Sm80).unwrap();
    let assembled = assembler.assemble_for(&text, target).unwrap();
    (kernel, assembled)
}

const PRODUCT: &str =
    "graph @g(v0: f32[512,512], v1: f32[512,512]) {\n v2 = matmul v0, v1\n return v2\n}\n";

fn loops_are_those_of_the_kernel(assembler: &Assembler) -> Outcome {
    let region = Region::contiguous(PRODUCT.parse::<Graph>()?);
    let schedule =
        "contraction(m=64,n=64,k=16,tm=8,tn=8,stages=1,pack_lhs=0,pack_rhs=0,swap=0,vector=4)";
    let schedule: Schedule = schedule.parse().unwrap();
    for &target in Target::ALL {
        let (kernel, assembled) = assembled_of(assembler, &region, &schedule, target);
        let codes = assembled.kernel_codes()?;
        let (name, code) = &codes[0];
        assert_eq!((name.as_str(), code.n_loops), (kernel.name.as_str(), 1), "{target}");
        // 16 steps of 8 by 8 products, once or unrolled.
        let n_fmas = code.inside.mix.count("FFMA");
        assert!(n_fmas > 0 && n_fmas.is_multiple_of(1024), "{target}: {n_fmas} in the loop");
        assert_eq!(code.outside.mix.count("FFMA"), 0, "{target}: {:?}", code.outside.mix);
        assert!(code.inside.stall_clk >= n_fmas, "{target}: a clock an instruction at least");
        let all = &assembled.instruction_mix()?[0].1;
        let parts = [&code.inside, &code.outside].map(|part| part.mix.n_instructions);
        assert_eq!(parts[0] + parts[1], all.n_instructions, "{target}");
    }
    Ok(())
}

/// Near what the schedule alone leads to, and slower if the machine code is worse.
fn predictions_follow_the_machine_code(assembler: &Assembler) -> Outcome {
    let (chip, gpu) = (predict::H200, predict::chips::H200);
    let product = Region::contiguous(PRODUCT.parse::<Graph>()?);
    let (mut n, mut n_unknown, mut logs) = (0, 0, 0.0);
    for region in common::regions().into_iter().chain([product]) {
        for (_, schedule, plain) in first_choices(&region, &chip) {
            let (kernel, assembled) = assembled_of(assembler, &region, &schedule, gpu.target);
            let found = predict_assembled(&region, &schedule, &kernel, &assembled, &gpu);
            let Some(found) = found else {
                n_unknown += 1;
                continue;
            };
            n += 1;
            logs += (found.ns / plain.ns).ln();
            let ratio = found.ns / plain.ns;
            assert!((0.3..4.0).contains(&ratio), "{schedule}: {} for {}", found.ns, plain.ns);
            assert_eq!((found.flops, found.bytes), (plain.flops, plain.bytes));
            // Registers for one block of a multiprocessor, where there were more.
            let mut worse = assembled.clone();
            worse.usage.iter_mut().for_each(|usage| usage.n_regs = 255);
            let slower = predict_assembled(&region, &schedule, &kernel, &worse, &gpu).unwrap();
            assert!(slower.ns >= found.ns, "{schedule}");
            worse.usage[0].kernel.push('x');
            assert_eq!(predict_assembled(&region, &schedule, &kernel, &worse, &gpu), None);
        }
    }
    eprintln!(
        "{n} kernels: with the machine code {:.2} times the prediction from the schedule; {n_unknown} not countable",
        f64::exp(logs / f64::from(n))
    );
    assert!(n > 40 && n_unknown * 5 < n, "{n} predicted, {n_unknown} not");
    Ok(())
}

fn wrong_row_is_found(assembler: &Assembler) -> Outcome {
    let right = all_rows(Target::Sm80).to_string();
    for (from, to) in [
        ("fma.rn.f32", "fma.rn.s32"),
        ("setp.ltu.f32", "setp.ult.f32"),
        ("ex2.approx", "exp2.approx"),
    ] {
        assert!(right.contains(from));
        let diagnostics = rejection(assembler, &right.replace(from, to), Target::Sm80);
        assert!(diagnostics[0].contains("line"), "{diagnostics:?}");
    }
    Ok(())
}

fn swapped_operands_are_rejected(assembler: &Assembler) -> Outcome {
    let right = Module::new("sm_80", vec![kernel_of(Op::StGlobalF32)])?.to_string();
    let wrong = right.replace("[%rd0+-16], %f4", "%f4, [%rd0+-16]");
    assert_ne!(right, wrong);
    assembler.assemble(&right, Target::Sm80)?;
    rejection(assembler, &wrong, Target::Sm80);
    Ok(())
}

fn too_new_is_rejected_by_both(assembler: &Assembler) -> Outcome {
    let entry = kernel_of(Op::CpAsyncCommit);
    let err = Module::new("sm_75", vec![entry.clone()]).unwrap_err();
    assert!(matches!(err, PtxError::TooNew { op: Op::CpAsyncCommit, needs: 80, .. }), "{err}");
    let forced = Module { version: (7, 0), target: "sm_75".to_owned(), entries: vec![entry] };
    let diagnostics = rejection(assembler, &forced.to_string(), Target::Sm80);
    assert!(diagnostics[0].contains("requires .target sm_80 or higher"), "{diagnostics:?}");
    Ok(())
}

/// The version of a module is the least: one less is rejected, for the target or for the instruction.
fn version_is_the_least(assembler: &Assembler) -> Outcome {
    for (op, target) in
        [(Op::CvtF32Bf16, Target::Sm80), (Op::AddS32, Target::Sm90a), (Op::AddS32, Target::Sm120)]
    {
        let least = Module::new(target.name(), vec![kernel_of(op)])?;
        assembler.assemble(&least.to_string(), target)?;
        let (major, minor) = least.version;
        let version = if minor == 0 { (major - 1, 8) } else { (major, minor - 1) };
        let diagnostics = rejection(assembler, &Module { version, ..least }.to_string(), target);
        assert!(diagnostics[0].contains("ersion"), "{diagnostics:?}");
    }
    Ok(())
}

/// ptxas says so with exit code 0: registers cannot be given to a warp group of a block of unknown size.
fn ignored_setmaxnreg_is_an_error(assembler: &Assembler) -> Outcome {
    let ptx = "\
.version 8.0
.target sm_90a
.address_size 64
.visible .entry k()
{
    setmaxnreg.inc.sync.aligned.u32 232;
    ret;
}
";
    match assembler.assemble(ptx, Target::Sm90a) {
        Err(AssembleError::Performance { diagnostic, .. }) => {
            assert!(diagnostic.contains("C7508"), "{diagnostic}")
        }
        other => panic!("expected a performance diagnostic, got {other:?}"),
    }
    Ok(())
}

/// A kernel that keeps `n_values` values alive, and bounds registers to `65536 / (1024 · n_blocks)`.
fn pressure(n_values: usize, n_blocks: u32) -> Builder {
    let mut b = Builder::new("pressure");
    b.block([1024, 1, 1]);
    b.min_blocks(n_blocks);
    let x = b.param("x", ParamType::U64);
    let x = b.ld_param_u64(x);
    let thread = b.mov_u32(Special::TidX);
    let at = b.mad_wide_u32(thread, 4, x);
    let offset = |i: usize| i64::try_from(4096 * i).unwrap();
    let values: Vec<_> = (0..n_values).map(|i| b.ld_global_f32((at, offset(i)))).collect();
    b.bar_sync(0);
    for (i, &value) in values.iter().enumerate() {
        let next = b.fma_rn_f32(value, values[(i + 1) % n_values], values[(i * 7) % n_values]);
        b.st_global_f32((at, offset(i)), next);
    }
    b.ret();
    b
}

fn spills_are_seen(assembler: &Assembler) -> Outcome {
    let fits = pressure(16, 1).finish("sm_80")?;
    assembler.assemble_for_generations(&fits)?;
    let spills = pressure(100, 1).finish("sm_80")?;
    match assembler.assemble_for_generations(&spills) {
        Err(AssembleError::Spills { target: Target::Sm80, usage }) => {
            assert!(usage.n_regs <= 64, "{usage}")
        }
        other => panic!("expected spills, got {other:?}"),
    }
    Ok(())
}

fn usage_and_mix(assembler: &Assembler) -> Outcome {
    for target in Target::GENERATIONS {
        let mut b = pressure(16, 1);
        let array = b.shared("tile", 16, 2048);
        let value = b.reg::<F32>();
        b.to(value).ld_shared_f32(array);
        let assembled = assembler.assemble(&b.finish(target.name())?.to_string(), target)?;
        let usage = &assembled.usage[0];
        assert_eq!(
            (usage.kernel.as_str(), usage.n_barriers, usage.stack_bytes),
            ("pressure", 1, 0)
        );
        assert!((16..=64).contains(&usage.n_regs), "{usage}");
        let mixes = assembled.instruction_mix()?;
        let (name, mix) = &mixes[0];
        assert_eq!(name, "pressure");
        let counts = ["FFMA", "LDG", "STG", "BAR"].map(|inst| mix.count(inst));
        assert_eq!(counts, [16, 16, 16, 1], "{target}: {mix:?}");
    }
    Ok(())
}

/// Snapshots of the workspace that are PTX.
fn snapshots(workspace: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut pending = vec![workspace.to_owned()];
    while let Some(dir) = pending.pop() {
        for entry in fs::read_dir(&dir).unwrap().map(Result::unwrap) {
            let (path, name) = (entry.path(), entry.file_name());
            let name = name.to_string_lossy();
            if path.is_dir()
                && !name.starts_with('.')
                && !["target", "shared"].contains(&name.as_ref())
            {
                pending.push(path);
            } else if name.ends_with(".snap") && ptx_of(&path).is_some() {
                found.push(path);
            }
        }
    }
    found.sort();
    found
}

/// The PTX of a snapshot file: what follows its header, if it begins as modules do.
fn ptx_of(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let (_, body) = text.strip_prefix("---\n")?.split_once("\n---\n")?;
    body.starts_with(".version ").then(|| body.to_owned())
}

fn snapshot_assembles(assembler: &Assembler, path: &Path) -> Outcome {
    let module = eggine_ptx::parse(&ptx_of(path).ok_or("not PTX")?)?;
    assembler.assemble_for_generations(&module)?;
    Ok(())
}
