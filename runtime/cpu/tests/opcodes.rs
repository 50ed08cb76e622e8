//! Every register instruction of the table, at every SIMD level, against scalar reference values on special
//! and random operands, with all lanes active and with some.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use std::fmt::Write as _;

use eggine_cpu::{LaunchConfig, Memory, Module, Options, Param, Simd, launch};
use eggine_ptx::ast::RegClass;
use eggine_ptx::table::{Classes, Op, Slot};

/// What a lane must give.
#[derive(Clone, Copy, Debug)]
enum Expected {
    /// These bits (for floats any NaN for any NaN).
    Bits(u64),
    /// An f32 within so many ulps of the f64, or within so much of it.
    Near(f64, f64, f64),
    /// Not tested.
    Anything,
}
use Expected::{Anything, Bits, Near};

const N: usize = 4096;

fn class(slot: &Slot) -> RegClass {
    match *slot {
        Slot::Dst(Classes::One(c) | Classes::Either(c, _) | Classes::Vector(c, _))
        | Slot::Src(Classes::One(c) | Classes::Either(c, _) | Classes::Vector(c, _))
        | Slot::Imm(c)
        | Slot::Any(c) => c,
        ref other => panic!("no class: {other:?}"),
    }
}

/// Instructions that read registers and write one.
fn is_register_only(op: Op) -> bool {
    let spec = op.spec();
    matches!(spec.signature.first(), Some(Slot::Dst(_)))
        && spec
            .signature
            .iter()
            .all(|s| matches!(s, Slot::Dst(_) | Slot::Src(_) | Slot::Imm(_) | Slot::Any(_)))
        && op != Op::ActivemaskB32
}

fn kernel(op: Op) -> String {
    let spec = op.spec();
    let sources = &spec.signature[1..];
    let mut s = String::from(
        ".version 7.8\n.target sm_90\n.address_size 64\n\n.visible .entry k(\n    .param .u64 out",
    );
    for i in 0..sources.len() {
        write!(s, ",\n    .param .u64 in{i}").unwrap();
    }
    s += "\n)\n{\n    .reg .pred %p<8>;\n    .reg .b16 %h<8>;\n    .reg .b32 %r<16>;\n    .reg .b64 %rd<24>;\n    .reg .f32 %f<8>;\n    .reg .f64 %fd<8>;\n";
    s += "    mov.u32 %r0, %tid.x;\n    mov.u32 %r1, %ctaid.x;\n    mov.u32 %r2, %ntid.x;\n    mad.lo.s32 %r3, %r1, %r2, %r0;\n    mul.wide.u32 %rd0, %r3, 8;\n";
    let name = |class: RegClass, i: usize| format!("%{}{i}", class.prefix());
    let mut operands = Vec::new();
    for (i, slot) in sources.iter().enumerate() {
        let c = class(slot);
        let n = i + 4;
        writeln!(s, "    ld.param.u64 %rd{}, [in{i}];\n    add.s64 %rd{}, %rd{}, %rd0;\n    ld.global.u64 %rd{}, [%rd{}];", i + 10, i + 10, i + 10, i + 4, i + 10).unwrap();
        match c {
            RegClass::B64 => {}
            RegClass::F64 => writeln!(s, "    mov.b64 %fd{n}, %rd{n};").unwrap(),
            RegClass::B32 => writeln!(s, "    cvt.u32.u64 %r{n}, %rd{n};").unwrap(),
            RegClass::F32 => writeln!(s, "    cvt.u32.u64 %r{n}, %rd{n};\n    mov.b32 %f{n}, %r{n};").unwrap(),
            RegClass::B16 => writeln!(s, "    cvt.u32.u64 %r{n}, %rd{n};\n    cvt.u16.u32 %h{n}, %r{n};").unwrap(),
            RegClass::Pred => writeln!(s, "    cvt.u32.u64 %r{n}, %rd{n};\n    and.b32 %r{n}, %r{n}, 1;\n    setp.ne.s32 %p{n}, %r{n}, 0;").unwrap(),
        }
        operands.push(name(c, n));
    }
    let c = class(&spec.signature[0]);
    // The destination begins as all ones or zero.
    match c {
        RegClass::B64 => s += "    mov.u64 %rd3, -1;\n",
        RegClass::F64 => s += "    mov.u64 %rd3, -1;\n    mov.b64 %fd3, %rd3;\n",
        RegClass::B32 => s += "    mov.u32 %r9, -1;\n    mov.u32 %r10, %r9;\n",
        RegClass::F32 => s += "    mov.u32 %r9, -1;\n    mov.b32 %f3, %r9;\n",
        RegClass::B16 => s += "    mov.u32 %r9, -1;\n    cvt.u16.u32 %h3, %r9;\n",
        RegClass::Pred => s += "    setp.eq.s32 %p3, %r0, %r0;\n",
    }
    let dst = if c == RegClass::B32 { "%r10".to_owned() } else { name(c, 3) };
    // Odd blocks execute under a guard that leaves out every third thread.
    s += "    and.b32 %r11, %r1, 1;\n    setp.eq.s32 %p0, %r11, 0;\n    rem.u32 %r12, %r0, 3;\n    setp.ne.s32 %p1, %r12, 0;\n    or.pred %p2, %p0, %p1;\n";
    writeln!(s, "    @%p2 {} {dst}, {};", spec.mnemonic, operands.join(", ")).unwrap();
    match c {
        RegClass::B64 => {}
        RegClass::F64 => s += "    mov.b64 %rd3, %fd3;\n",
        RegClass::B32 => s += "    cvt.u64.u32 %rd3, %r10;\n",
        RegClass::F32 => s += "    mov.b32 %r10, %f3;\n    cvt.u64.u32 %rd3, %r10;\n",
        RegClass::B16 => s += "    cvt.u32.u16 %r10, %h3;\n    cvt.u64.u32 %rd3, %r10;\n",
        RegClass::Pred => {
            s += "    mov.u32 %r13, 1;\n    mov.u32 %r14, 0;\n    selp.b32 %r10, %r13, %r14, %p3;\n    cvt.u64.u32 %rd3, %r10;\n"
        }
    }
    s += "    ld.param.u64 %rd1, [out];\n    add.s64 %rd1, %rd1, %rd0;\n    st.global.u64 [%rd1], %rd3;\n    ret;\n}\n";
    s
}

fn random(state: &mut u64) -> u64 {
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    state.wrapping_mul(0x2545_f491_4f6c_dd1d)
}

/// Operands of a class: special values in all combinations, then random ones of several magnitudes.
fn inputs(class: RegClass, position: usize, seed: u64) -> Vec<u64> {
    let ints: [u64; 16] = [
        0,
        1,
        2,
        3,
        7,
        31,
        32,
        33,
        63,
        64,
        65,
        0x7fff_ffff,
        0x8000_0000,
        0xffff_ffff,
        0x7fff_ffff_ffff_ffff,
        0x8000_0000_0000_0000,
    ];
    let f32s = [
        0.0f32,
        -0.0,
        1.0,
        -1.0,
        0.5,
        1.5,
        2.5,
        -2.5,
        f32::INFINITY,
        f32::NEG_INFINITY,
        f32::NAN,
        f32::MAX,
        f32::MIN_POSITIVE,
        1e-40,
        65520.0,
        3e9,
    ];
    let special = |i: usize| match class {
        RegClass::F32 => u64::from(f32s[i].to_bits()),
        RegClass::F64 => f64::from(f32s[i]).to_bits(),
        RegClass::B16 => [
            0u64, 0x8000, 1, 0x3ff, 0x400, 0x3c00, 0x7bff, 0x7c00, 0x7c01, 0xfc00, 0x7fff, 0xffff,
            0x0080, 0x7f80, 0x7f81, 0x3f80,
        ][i],
        RegClass::Pred => i as u64,
        _ => ints[i],
    };
    let mut state = seed | 1;
    (0..N)
        .map(|i| {
            if i < 2048 {
                return special(i >> (4 * (position % 3)) & 15);
            }
            let r = random(&mut state);
            match class {
                RegClass::F32 => match i % 4 {
                    0 => r & 0xffff_ffff,
                    1 => u64::from((((r >> 40) as f32 / 8_388_608.0 - 1.0) * 4.0).to_bits()),
                    2 => u64::from((((r >> 40) as f32 / 8_388_608.0 - 1.0) * 130.0).to_bits()),
                    _ => u64::from((((r >> 40) as f32 / 8_388_608.0 - 1.0) * 7e4).to_bits()),
                },
                RegClass::F64 => match i % 3 {
                    0 => r,
                    1 => ((r >> 11) as f64 / 1e12 - 4e3).to_bits(),
                    _ => (((r >> 11) as f64 - 4.5e15) * 1e4).to_bits(),
                },
                RegClass::B32 | RegClass::B64 => r >> (r & 63).min(if i % 2 == 0 { 63 } else { 0 }),
                _ => r,
            }
        })
        .collect()
}

fn f(x: u64) -> f32 {
    f32::from_bits(x as u32)
}
fn g(x: u64) -> f64 {
    f64::from_bits(x)
}
fn bf(x: f32) -> Expected {
    Bits(u64::from(x.to_bits()))
}
fn bg(x: f64) -> Expected {
    Bits(x.to_bits())
}
fn b32(x: i64) -> Expected {
    Bits(u64::from(x as u32))
}

/// Truncates to an integer of so many bits, saturating.
fn saturate(x: f64, low: i128, high: i128, nan: i128, n_bits: u32) -> Expected {
    let value = if x.is_nan() { nan } else { (x as i128).clamp(low, high) };
    Bits(value as u64 & (u64::MAX >> (64 - n_bits)))
}

fn min_max<T: PartialOrd + Copy>(
    x: T,
    y: T,
    is_nan: fn(T) -> bool,
    negative: fn(T) -> bool,
    is_max: bool,
    propagate: bool,
    nan: T,
) -> T {
    match (is_nan(x), is_nan(y)) {
        (true, true) => nan,
        (true, false) => {
            if propagate {
                nan
            } else {
                y
            }
        }
        (false, true) => {
            if propagate {
                nan
            } else {
                x
            }
        }
        _ if x == y => {
            if negative(x) == is_max {
                y
            } else {
                x
            }
        }
        _ => {
            if (x < y) == is_max {
                y
            } else {
                x
            }
        }
    }
}

fn reference(op: Op, x: [u64; 3]) -> Expected {
    let [a, b, c] = x;
    let name = op.spec().mnemonic;
    let parts: Vec<&str> = name.split('.').collect();
    let ty = *parts.last().unwrap();
    let is_64 = ty.ends_with("64");
    let signed = ty.starts_with('s');
    let n_bits = if is_64 { 64u32 } else { 32 };
    // Integers of the instruction's type.
    let int = |v: u64| -> i128 {
        match (signed, is_64) {
            (true, true) => i128::from(v as i64),
            (true, false) => i128::from(v as u32 as i32),
            (false, true) => i128::from(v),
            (false, false) => i128::from(v as u32),
        }
    };
    let out = |v: i128| Bits(v as u64 & (u64::MAX >> (64 - n_bits)));
    let amount = b as u32;
    let head = parts[0];
    if head == "setp" {
        let (lt, eq, nan) = match ty {
            "f32" => (f(a) < f(b), f(a) == f(b), f(a).is_nan() || f(b).is_nan()),
            "f64" => (g(a) < g(b), g(a) == g(b), g(a).is_nan() || g(b).is_nan()),
            _ => (int(a) < int(b), int(a) == int(b), false),
        };
        let gt = !lt && !eq && !nan;
        let holds = match parts[1] {
            "eq" => eq,
            "ne" => lt || gt,
            "lt" => lt,
            "le" => lt || eq,
            "gt" => gt,
            "ge" => gt || eq,
            "neu" => lt || gt || nan,
            "ltu" => lt || nan,
            "leu" => lt || eq || nan,
            "gtu" => gt || nan,
            "geu" => gt || eq || nan,
            "num" => !nan,
            _ => nan,
        };
        return Bits(u64::from(holds));
    }
    match (head, ty) {
        ("mov" | "and" | "or" | "xor" | "not", "pred") => Bits(
            match head {
                "mov" => a,
                "and" => a & b,
                "or" => a | b,
                "xor" => a ^ b,
                _ => !a,
            } & 1,
        ),
        ("mov", "b16") => Bits(a & 0xffff),
        ("mov", _) => {
            if is_64 {
                Bits(a)
            } else {
                Bits(a & 0xffff_ffff)
            }
        }
        ("selp", _) => {
            let v = if c & 1 != 0 { a } else { b };
            Bits(
                v & match ty {
                    "b16" => 0xffff,
                    _ if is_64 => !0,
                    _ => 0xffff_ffff,
                },
            )
        }
        (_, "f32") if parts.len() > 2 && head == "cvt" && parts[parts.len() - 2] == "f32" => {
            bf(match parts[1] {
                "rni" => f(a).round_ties_even(),
                "rmi" => f(a).floor(),
                "rpi" => f(a).ceil(),
                _ => f(a).trunc(),
            })
        }
        (_, "f64") if head == "cvt" && parts[parts.len() - 2] == "f64" && parts.len() == 4 => {
            bg(match parts[1] {
                "rni" => g(a).round_ties_even(),
                "rmi" => g(a).floor(),
                "rpi" => g(a).ceil(),
                _ => g(a).trunc(),
            })
        }
        ("cvt", from) => {
            let to = parts[parts.len() - 2];
            match (to, from) {
                ("u32" | "s32", "u64" | "s64") => Bits(a & 0xffff_ffff),
                ("u64" | "s64", "u32") => Bits(a & 0xffff_ffff),
                ("s64", "s32") => Bits(i64::from(a as i32) as u64),
                ("f32", "s32") => bf(a as i32 as f32),
                ("f32", "u32") => bf(a as u32 as f32),
                ("f32", "s64") => bf(a as i64 as f32),
                ("f32", "u64") => bf(a as f32),
                ("f64", "s32") => bg(f64::from(a as i32)),
                ("f64", "u32") => bg(f64::from(a as u32)),
                ("f64", "s64") => bg(a as i64 as f64),
                ("f64", "f32") => bg(f64::from(f(a))),
                ("f32", "f64") => bf(g(a) as f32),
                ("s32", "f32") => {
                    let v = f64::from(f(a));
                    let v = match parts[1] {
                        "rni" => v.round_ties_even(),
                        "rmi" => v.floor(),
                        _ => v,
                    };
                    saturate(v, i32::MIN.into(), i32::MAX.into(), 0, 32)
                }
                ("u32", "f32") => saturate(f64::from(f(a)), 0, u32::MAX.into(), 0, 32),
                ("s64", "f32") => {
                    saturate(f64::from(f(a)), i64::MIN.into(), i64::MAX.into(), i64::MIN.into(), 64)
                }
                ("u64", "f32") => saturate(f64::from(f(a)), 0, u64::MAX.into(), 1 << 63, 64),
                ("s32", "f64") => {
                    saturate(g(a), i32::MIN.into(), i32::MAX.into(), i32::MIN.into(), 32)
                }
                ("s64", "f64") => {
                    saturate(g(a), i64::MIN.into(), i64::MAX.into(), i64::MIN.into(), 64)
                }
                ("f32", "f16") => bf(half::f16::from_bits(a as u16).to_f32()),
                ("f32", "bf16") => bf(half::bf16::from_bits(a as u16).to_f32()),
                ("f16", "f32") if f(a).is_nan() => Bits(0x7fff),
                ("bf16", "f32") if f(a).is_nan() => Bits(0x7fff),
                ("f16", "f32") => Bits(half::f16::from_f32(f(a)).to_bits().into()),
                ("bf16", "f32") => Bits(half::bf16::from_f32(f(a)).to_bits().into()),
                ("u32", "u16") | ("u16", "u32") => Bits(a & 0xffff),
                ("s32", "s16") => b32(i64::from(a as i16)),
                ("u32", "u8") | ("u8", "u32") => Bits(a & 0xff),
                ("s32", "s8") | ("s8", "s32") => b32(i64::from(a as i8)),
                other => panic!("no reference for {other:?}"),
            }
        }
        (_, "f32") => {
            let (p, q, r) = (f(a), f(b), f(c));
            let wide = f64::from(p);
            match (head, parts[1]) {
                ("add", _) => bf(p + q),
                ("sub", _) => bf(p - q),
                ("mul", _) => bf(p * q),
                ("fma", _) => bf(p.mul_add(q, r)),
                ("div", _) => bf(p / q),
                ("sqrt", "rn") => bf(p.sqrt()),
                ("rcp", "rn") => bf(1.0 / p),
                ("neg", _) => bf(-p),
                ("abs", _) => bf(p.abs()),
                ("copysign", _) => bf(q.copysign(p)),
                ("min" | "max", m) => bf(min_max(
                    p,
                    q,
                    f32::is_nan,
                    f32::is_sign_negative,
                    head == "max",
                    m == "NaN",
                    f32::NAN,
                )),
                ("ex2", _) => Near(wide.exp2(), 2.0, 0.0),
                ("lg2", _) => {
                    Near(wide.log2(), 2.0, if (0.5..=2.0).contains(&p) { 2.4e-7 } else { 0.0 })
                }
                ("rcp", _) => Near(1.0 / wide, 1.0, 0.0),
                ("rsqrt", _) => Near(1.0 / wide.sqrt(), 2.0, 0.0),
                ("sqrt", _) => Near(wide.sqrt(), 1.0, 0.0),
                ("sin" | "cos", _) if p.is_finite() && p.abs() > 1e5 => Anything,
                ("sin", _) => Near(wide.sin(), 2.0, 1e-7),
                ("cos", _) => Near(wide.cos(), 2.0, 1e-7),
                ("tanh", _) => Near(wide.tanh(), 4.0, 0.0),
                other => panic!("no reference for {other:?}"),
            }
        }
        (_, "f64") => {
            let (p, q, r) = (g(a), g(b), g(c));
            match head {
                "add" => bg(p + q),
                "sub" => bg(p - q),
                "mul" => bg(p * q),
                "fma" => bg(p.mul_add(q, r)),
                "div" => bg(p / q),
                "sqrt" => bg(p.sqrt()),
                "rcp" => bg(1.0 / p),
                "neg" => bg(-p),
                "abs" => bg(p.abs()),
                "copysign" => bg(q.copysign(p)),
                "min" | "max" => bg(min_max(
                    p,
                    q,
                    f64::is_nan,
                    f64::is_sign_negative,
                    head == "max",
                    false,
                    f64::NAN,
                )),
                other => panic!("no reference for {other}"),
            }
        }
        _ => {
            let (p, q, r) = (int(a), int(b), int(c));
            match (head, parts[1]) {
                ("add", _) => out(p + q),
                ("sub", _) => out(p - q),
                ("mul", "lo") => out(p.wrapping_mul(q)),
                ("mad", "lo") => out(p.wrapping_mul(q).wrapping_add(r)),
                ("mul", "hi") => out((p * q) >> 32),
                ("mul", "wide") => Bits((p * q) as u64),
                ("mad", "wide") => Bits(((p * q) as u64).wrapping_add(c)),
                ("div", _) => out(if q == 0 { -1 } else { p / q }),
                ("rem", _) => out(if q == 0 { p } else { p % q }),
                ("min", _) => out(p.min(q)),
                ("max", _) => out(p.max(q)),
                ("neg", _) => out(-p),
                ("abs", _) => out(p.abs()),
                ("shr", _) => out(p >> amount.min(n_bits)),
                ("shl", _) => out(if amount >= n_bits { 0 } else { p << amount }),
                ("and", _) => out(p & q),
                ("or", _) => out(p | q),
                ("xor", _) => out(p ^ q),
                ("not", _) => out(!p),
                other => panic!("no reference for {other:?}"),
            }
        }
    }
}

fn agrees(expected: Expected, found: u64, class: RegClass) -> bool {
    match (expected, class) {
        (Anything, _) => true,
        (Bits(bits), RegClass::F32) => bits == found || f(bits).is_nan() && f(found).is_nan(),
        (Bits(bits), RegClass::F64) => bits == found || g(bits).is_nan() && g(found).is_nan(),
        (Bits(bits), _) => bits == found,
        (Near(value, ulps, distance), _) => {
            let (found, nearest) = (f(found), value as f32);
            if nearest.is_nan() || found.is_nan() {
                return nearest.is_nan() && found.is_nan();
            }
            if found == nearest {
                return true;
            }
            let ulp =
                f64::from(f32::from_bits(nearest.abs().to_bits() + 1)) - f64::from(nearest.abs());
            nearest.is_finite() && (f64::from(found) - value).abs() <= (ulps * ulp).max(distance)
                || nearest.is_infinite() && found == f32::MAX.copysign(nearest)
        }
    }
}

fn check(op: Op, expect: impl Fn(Op, [u64; 3]) -> Expected) -> Vec<String> {
    let mut failures = Vec::new();
    let spec = op.spec();
    let module = Module::load(&kernel(op))
        .unwrap_or_else(|e| panic!("{}: {e}\n{}", spec.mnemonic, kernel(op)));
    let operands: Vec<Vec<u64>> = spec.signature[1..]
        .iter()
        .enumerate()
        .map(|(i, slot)| inputs(class(slot), i, 77 + i as u64))
        .collect();
    let dst = class(&spec.signature[0]);
    for simd in Simd::ALL.into_iter().filter(|s| s.is_available()) {
        let mut memory = Memory::new();
        let out = memory.alloc(8 * N).unwrap();
        let mut params = vec![Param::U64(out)];
        for values in &operands {
            let buffer = memory.alloc(8 * N).unwrap();
            let bytes: Vec<u8> = values.iter().flat_map(|v| v.to_le_bytes()).collect();
            memory.write(buffer, &bytes).unwrap();
            params.push(Param::U64(buffer));
        }
        let config =
            LaunchConfig { grid: [(N / 64) as u32, 1, 1], block: [64, 1, 1], params: &params };
        launch(&module, "k", &memory, &config, &Options { simd: Some(simd), ..Options::default() })
            .unwrap();
        let mut bytes = vec![0u8; 8 * N];
        memory.read(out, &mut bytes).unwrap();
        for i in 0..N {
            let found = u64::from_le_bytes(bytes[8 * i..8 * i + 8].try_into().unwrap());
            let x = [0, 1, 2].map(|k| operands.get(k).map_or(0, |v| v[i]));
            let is_active = (i / 64) % 2 == 0 || (i % 64) % 3 != 0;
            let untouched = match dst {
                RegClass::B64 | RegClass::F64 => !0,
                RegClass::B32 | RegClass::F32 => 0xffff_ffff,
                RegClass::B16 => 0xffff,
                RegClass::Pred => 1,
            };
            let expected = if is_active { expect(op, x) } else { Bits(untouched) };
            if !agrees(expected, found, dst) {
                failures.push(format!("{} at {simd:?}, element {i}, operands {x:x?}: expected {expected:x?}, found {found:x}", spec.mnemonic));
                break;
            }
        }
    }
    failures
}

#[test]
fn every_register_instruction_agrees_with_its_reference() {
    let mut n_tested = 0;
    let mut failures = Vec::new();
    for &op in Op::ALL {
        if is_register_only(op) {
            failures.extend(check(op, reference));
            n_tested += 1;
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(n_tested > 150, "only {n_tested} instructions tested");
}

#[test]
fn a_wrong_reference_is_noticed() {
    let wrong = |op, [a, b, c]: [u64; 3]| match reference(op, [a, b, c]) {
        Bits(x) if b == 33 => Bits(x ^ 1),
        other => other,
    };
    assert!(!check(Op::ShlB32, wrong).is_empty());
    assert!(!check(Op::AddRnF32, |op, [a, b, c]| reference(op, [b, a ^ 1, c])).is_empty());
}

#[test]
fn every_instruction_can_be_decoded() {
    // Instructions that are not covered above are in programs.rs.
    for &op in Op::ALL {
        let text = eggine_ptx_line(op);
        Module::load(&text).unwrap_or_else(|e| panic!("{}: {e}\n{text}", op.spec().mnemonic));
    }
}

/// A kernel with just this instruction, whose registers are not meaningful.
fn eggine_ptx_line(op: Op) -> String {
    let register = |classes: Classes| match classes {
        Classes::One(c) | Classes::Either(c, _) => format!("%{}1", c.prefix()),
        Classes::Vector(c, n) => {
            format!(
                "{{{}}}",
                (0..n).map(|i| format!("%{}{i}", c.prefix())).collect::<Vec<_>>().join(", ")
            )
        }
    };
    let operands: Vec<String> = op
        .spec()
        .signature
        .iter()
        .map(|slot| match *slot {
            Slot::Dst(c) | Slot::Src(c) => register(c),
            Slot::Imm(c) | Slot::Any(c) => register(Classes::One(c)),
            Slot::Param => match op {
                Op::LdParamU32 => "[b]".into(),
                Op::LdParamF32 => "[c]".into(),
                _ => "[a]".into(),
            },
            Slot::Global => "[%rd2+16]".into(),
            Slot::Shared => "[s+16]".into(),
            Slot::Label => "$L0".into(),
            Slot::Int => {
                if op.spec().mnemonic.starts_with("cp.async.c")
                    && !op.spec().mnemonic.contains("commit")
                {
                    "16".into()
                } else {
                    "0".into()
                }
            }
        })
        .collect();
    format!(
        ".version 7.8\n.target sm_90\n.address_size 64\n\n.visible .entry k(\n    .param .u64 a,\n    .param .u32 b,\n    .param .f32 c\n)\n{{\n    .reg .pred %p<4>;\n    .reg .b16 %h<4>;\n    .reg .b32 %r<4>;\n    .reg .b64 %rd<4>;\n    .reg .f32 %f<4>;\n    .reg .f64 %fd<4>;\n    .shared .align 16 .b8 s[64];\n    {} {};\n$L0:\n    ret;\n}}\n",
        op.spec().mnemonic,
        operands.join(", ")
    )
}
