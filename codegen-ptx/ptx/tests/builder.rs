//! The builder: what it prints, and what it refuses.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use eggine_ptx::ast::{self, Base, Operand, ParamType, RegClass, Special};
use eggine_ptx::builder::{B32, Builder, F32};
use eggine_ptx::table::Op;
use eggine_ptx::{PtxError, lowest_version, parse};

/// `y[i] = Σ x[4i..4i+4] · by`, with a loop, a guard and a shared array.
fn kernel() -> Builder {
    let mut b = Builder::new("sum4");
    b.block([128, 1, 1]);
    b.min_blocks(2);
    let (x, y, by) =
        (b.param("x", ParamType::U64), b.param("y", ParamType::U64), b.param("by", ParamType::F32));
    let tile = b.shared("tile", 16, 2048);
    let (x, y, by) = (b.ld_param_u64(x), b.ld_param_u64(y), b.ld_param_f32(by));
    let thread = b.mov_u32(Special::TidX);
    let shared = b.mov_u32(tile);
    let at_tile = b.mad_lo_s32(thread, 16, shared);
    let at_x = b.mad_wide_u32(thread, 16, x);
    let four = b.ld_global_nc_v4_f32(at_x);
    b.st_shared_v4_f32(at_tile, four);
    b.bar_sync(0);
    let acc = b.reg::<F32>();
    b.to(acc).mov_f32(0.0);
    let i = b.reg::<B32>();
    b.to(i).mov_u32(0);
    let again = b.label();
    b.bind(again);
    let value = b.ld_shared_f32((at_tile, 0));
    b.to(acc).fma_rn_f32(value, by, acc);
    b.to(i).add_s32(i, 1);
    let more = b.setp_lt_s32(i, 4);
    b.guarded(more, |b| b.bra(again));
    let bits = b.mov_b32::<B32>(acc);
    let zero = b.setp_eq_s32(bits, 0);
    let at_y = b.mad_wide_u32(thread, 4, y);
    b.guarded(!zero, |b| b.st_global_f32((at_y, -4), acc));
    b.ret();
    b
}

#[test]
fn kernel_prints() {
    let module = kernel().finish("sm_80").unwrap();
    insta::assert_snapshot!(module);
    assert_eq!(parse(&module.to_string()), Ok(module));
}

#[test]
fn version_is_the_lowest_that_has_target_and_instructions() {
    let version = |target| kernel().finish(target).unwrap().version;
    assert_eq!([version("sm_80"), version("sm_90a"), version("sm_120")], [(7, 0), (8, 0), (8, 7)]);
    assert_eq!(lowest_version("sm_75"), Ok((6, 3)));
    let mut b = Builder::new("k");
    let x = b.mov_f32(1.0);
    b.tanh_approx_f32(x);
    assert_eq!(b.finish("sm_75").unwrap().version, (7, 0));
}

#[test]
fn too_new_an_instruction_is_an_error() {
    let mut b = Builder::new("k");
    let x = b.mov_f32(1.0);
    b.tanh_approx_f32(x);
    let err = b.clone().finish("sm_70").unwrap_err();
    insta::assert_snapshot!(err, @"kernel `k`: `tanh.approx.f32` needs sm_75, the target is sm_70");
    assert!(matches!(b.finish("sm_1"), Err(PtxError::UnknownTarget { .. })));
}

#[test]
fn what_the_types_cannot_say_is_checked_at_the_end() {
    let mut b = Builder::new("k");
    let label = b.label();
    b.bra(label);
    let mut twice = b.clone();
    insta::assert_snapshot!(b.finish("sm_80").unwrap_err(), @"kernel `k`: label `$L0` is used but not bound");
    twice.bind(label);
    twice.bind(label);
    insta::assert_snapshot!(twice.finish("sm_80").unwrap_err(), @"kernel `k`: label `$L0` is bound twice");

    let mut b = Builder::new("k");
    b.param("x", ParamType::U64);
    b.shared("x", 4, 4);
    insta::assert_snapshot!(b.finish("sm_80").unwrap_err(), @"kernel `k`: two parameters, arrays or kernels are called `x`");

    let reg = Operand::Reg(ast::Reg { class: RegClass::B32, idx: 7 });
    let mut b = Builder::new("k");
    b.push(Op::NegS32, vec![reg.clone(), reg.clone()]);
    insta::assert_snapshot!(b.finish("sm_80").unwrap_err(), @"kernel `k`: `neg.s32` names a register, parameter or array that is not declared");

    let mut module = kernel().finish("sm_80").unwrap();
    let ast::Stmt::Inst(inst) = &mut module.entries[0].body[0] else {
        panic!("the first statement is a load")
    };
    inst.operands[1] = Operand::Address { base: Base::Shared(0), offset: 0 };
    insta::assert_snapshot!(module.retarget("sm_80").unwrap_err(), @"kernel `sum4`: operand 2 of `ld.param.u64` is a parameter in brackets");
    inst_pop(&mut module);
    insta::assert_snapshot!(module.retarget("sm_80").unwrap_err(), @"kernel `sum4`: `ld.param.u64` takes 2 operands, found 1");
}

fn inst_pop(module: &mut ast::Module) {
    if let ast::Stmt::Inst(inst) = &mut module.entries[0].body[0] {
        inst.operands.pop();
    }
}

#[test]
fn raw_path_makes_the_same_instruction() {
    let mut typed = Builder::new("k");
    let x = typed.reg::<F32>();
    let sum = typed.add_rn_f32(x, 1.0);
    typed.to(sum).neg_f32(sum);
    let mut raw = Builder::new("k");
    let x = raw.reg_of(RegClass::F32);
    let sum = Operand::Reg(raw.reg_of(RegClass::F32));
    raw.push(Op::AddRnF32, vec![sum.clone(), Operand::Reg(x), Operand::F32(1.0_f32.to_bits())]);
    raw.push(Op::NegF32, vec![sum.clone(), sum]);
    assert_eq!(typed.finish("sm_80"), raw.finish("sm_80"));
}
