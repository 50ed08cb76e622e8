//! Printer and parser: inverse of each other on every row of the table, and no panic on garbage.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use eggine_ptx::ast::{
    Base, Entry, Guard, Inst, Label, Module, Operand, Param, ParamType, Reg, RegClass, Shared,
    Special, Stmt,
};
use eggine_ptx::table::{Classes, Op, Slot};
use eggine_ptx::{parse, parse_with_lines};
use proptest::prelude::*;

/// Draws numbers from a proptest seed (xorshift64*): a module has thousands of choices.
struct Draw(u64);

impl Draw {
    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_F491_4F6C_DD1D)
    }

    fn below(&mut self, n: u32) -> u32 {
        ((self.bits() >> 32) % u64::from(n)) as u32
    }

    fn chance(&mut self, one_in: u32) -> bool {
        self.below(one_in) == 0
    }
}

fn random_reg(draw: &mut Draw, entry: &Entry, class: RegClass) -> Reg {
    let n = entry.n_regs.iter().find(|(declared, _)| *declared == class).unwrap().1;
    Reg { class, idx: draw.below(n) }
}

fn random_offset(draw: &mut Draw) -> i64 {
    if draw.chance(2) { 0 } else { i64::from(draw.bits() as i32) }
}

fn random_immediate(draw: &mut Draw, class: RegClass) -> Operand {
    match class {
        RegClass::Pred => Operand::Int(i64::from(draw.below(2))),
        RegClass::B16 => Operand::Int(i64::from(draw.bits() as i16)),
        RegClass::B32 if draw.chance(2) => Operand::Int(i64::from(draw.bits() as u32)),
        RegClass::B32 => Operand::Int(i64::from(draw.bits() as i32)),
        RegClass::B64 => Operand::Int(draw.bits() as i64),
        RegClass::F32 => Operand::F32(draw.bits() as u32),
        RegClass::F64 => Operand::F64(draw.bits()),
    }
}

fn random_operand(draw: &mut Draw, entry: &Entry, slot: Slot) -> Operand {
    let shared = |draw: &mut Draw| draw.below(entry.shared.len() as u32);
    match slot {
        Slot::Dst(classes) | Slot::Src(classes) => match classes {
            Classes::One(class) => Operand::Reg(random_reg(draw, entry, class)),
            Classes::Either(a, b) => {
                let class = if draw.chance(2) { a } else { b };
                Operand::Reg(random_reg(draw, entry, class))
            }
            Classes::Vector(class, n) => {
                Operand::Regs((0..n).map(|_| random_reg(draw, entry, class)).collect())
            }
        },
        Slot::Any(RegClass::B32) if draw.chance(3) => {
            Operand::Special(Special::ALL[draw.below(Special::ALL.len() as u32) as usize])
        }
        Slot::Any(RegClass::B32) if draw.chance(3) => Operand::Symbol(shared(draw)),
        Slot::Imm(class) | Slot::Any(class) => {
            if draw.chance(2) {
                Operand::Reg(random_reg(draw, entry, class))
            } else {
                random_immediate(draw, class)
            }
        }
        Slot::Param => {
            let base = Base::Param(draw.below(entry.params.len() as u32));
            Operand::Address { base, offset: random_offset(draw) }
        }
        Slot::Global => {
            let base = Base::Reg(random_reg(draw, entry, RegClass::B64));
            Operand::Address { base, offset: random_offset(draw) }
        }
        Slot::Shared if draw.chance(2) => {
            Operand::Address { base: Base::Shared(shared(draw)), offset: random_offset(draw) }
        }
        Slot::Shared => {
            let base = Base::Reg(random_reg(draw, entry, RegClass::B32));
            Operand::Address { base, offset: random_offset(draw) }
        }
        Slot::Label => Operand::Label(Label(draw.below(entry.n_labels))),
        Slot::Int => random_immediate(draw, RegClass::B32),
    }
}

/// An entry that has every instruction of the table once, in random order.
fn random_entry(draw: &mut Draw, name: String) -> Entry {
    let n_labels = 1 + draw.below(4);
    let param_types = [ParamType::U32, ParamType::U64, ParamType::F32];
    let mut entry = Entry {
        name,
        params: (0..1 + draw.below(3))
            .map(|i| Param { name: format!("p{i}"), ty: param_types[draw.below(3) as usize] })
            .collect(),
        reqntid: draw.chance(2).then(|| [1 + draw.below(1024), 1 + draw.below(4), 1]),
        minnctapersm: draw.chance(2).then(|| 1 + draw.below(8)),
        n_regs: RegClass::ALL.into_iter().map(|class| (class, 1 + draw.below(300))).collect(),
        shared: (0..1 + draw.below(3))
            .map(|i| Shared {
                name: format!("smem_{i}"),
                align_bytes: 1 << draw.below(8),
                n_bytes: 1 + draw.below(9999),
            })
            .collect(),
        n_labels,
        body: Vec::new(),
    };
    for &op in Op::ALL {
        let guard = draw.chance(4).then(|| Guard {
            pred: random_reg(draw, &entry, RegClass::Pred),
            negated: draw.chance(2),
        });
        let operands =
            op.spec().signature.iter().map(|&slot| random_operand(draw, &entry, slot)).collect();
        let at = draw.below(entry.body.len() as u32 + 1) as usize;
        entry.body.insert(at, Stmt::Inst(Inst { guard, op, operands }));
    }
    for label in 0..n_labels {
        let at = draw.below(entry.body.len() as u32 + 1) as usize;
        entry.body.insert(at, Stmt::Label(Label(label)));
    }
    entry
}

fn random_module(seed: u64) -> Module {
    let mut draw = Draw(seed | 1);
    let targets = ["sm_80", "sm_90a", "sm_120"];
    Module {
        version: (7 + draw.below(3), draw.below(10)),
        target: targets[draw.below(3) as usize].to_owned(),
        entries: (0..1 + draw.below(3))
            .map(|i| random_entry(&mut draw, format!("kernel_{i}")))
            .collect(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 64, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn printed_module_parses_to_itself(seed: u64) {
        let module = random_module(seed);
        let text = module.to_string();
        let parsed = parse(&text).map_err(|err| TestCaseError::fail(err.to_string()))?;
        prop_assert_eq!(&parsed, &module);
        prop_assert_eq!(parsed.to_string(), text);
    }

    #[test]
    fn mutated_text_does_not_panic(seed: u64, edits in prop::collection::vec((any::<u32>(), 0..6_u32, any::<char>()), 1..8)) {
        let mut text: Vec<char> = random_module(seed).to_string().chars().collect();
        for (at, kind, drawn) in edits {
            let n_chars = text.len();
            if n_chars == 0 {
                break;
            }
            let at = at as usize % n_chars;
            match kind {
                0 => { text.remove(at); }
                1 => text.insert(at, drawn),
                2 => text.truncate(at + 1),
                3 => text[at] = '0',
                4 => text.insert(at, '/'),
                _ => text.swap(at, drawn as usize % n_chars),
            }
        }
        let text: String = text.into_iter().collect();
        // Where it still parses, it prints to what parses to the same.
        if let Ok(module) = parse(&text) {
            prop_assert_eq!(parse(&module.to_string()), Ok(module));
        }
    }

    #[test]
    fn garbage_does_not_panic(text in "(\\.|[a-z%$L0-9{}\\[\\];:, @!+/*-]|\\PC|\n|\\.reg|\\.version 7\\.0\n){0,200}") {
        let head = ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k()\n{\n.reg .b32 %r<4>;\n";
        prop_assert!(parse(&text).is_err());
        let _ = parse(&format!("{head}{text}"));
    }
}

const KERNEL: &str = "\
.version 7.0
.target sm_80
.address_size 64

.visible .entry scale(
    .param .u64 x,
    .param .f32 by
)
.reqntid 128, 1, 1
{
    .reg .pred %p<1>;
    .reg .b32 %r<2>;
    .reg .b64 %rd<2>;
    .reg .f32 %f<3>;
    .shared .align 16 .b8 tile[512];

    ld.param.u64 %rd0, [x];
    ld.param.f32 %f0, [by];
    mov.u32 %r0, %tid.x;
    setp.lt.s32 %p0, %r0, 100;
    @!%p0 bra $L0;
    mad.wide.u32 %rd1, %r0, 4, %rd0;
    ld.global.f32 %f1, [%rd1+-8];
    fma.rn.f32 %f2, %f1, %f0, 0f3F800000;
    st.shared.f32 [tile+16], %f2;
    mov.u32 %r1, tile;
$L0:
    ret;
}
";

#[test]
fn canonical_text_prints_as_it_was() {
    assert_eq!(parse(KERNEL).unwrap().to_string(), KERNEL);
}

#[test]
fn lines_are_those_of_the_statements() {
    let parsed = parse_with_lines(KERNEL).unwrap();
    let text: Vec<&str> = KERNEL.lines().collect();
    let entry = &parsed.module.entries[0];
    assert_eq!(parsed.lines[0].len(), entry.body.len());
    for (stmt, &line) in entry.body.iter().zip(&parsed.lines[0]) {
        let printed = match stmt {
            Stmt::Label(label) => format!("{label}:"),
            Stmt::Inst(inst) => inst.display(entry).to_string(),
        };
        assert_eq!(text[line as usize - 1].trim(), printed);
    }
}

#[test]
fn comments_and_white_space_are_free() {
    let spaced = KERNEL.replace(", ", " , ").replace("    ret;", "// end\n /* of\nit */ ret ;");
    assert_eq!(parse(&spaced), parse(KERNEL));
    let lines = parse_with_lines(&spaced).unwrap().lines;
    assert_eq!(lines[0].last(), Some(&(KERNEL.lines().count() as u32 + 1)));
}

/// The message for the kernel with one replacement.
fn message(from: &str, to: &str) -> String {
    assert!(KERNEL.contains(from), "{from}");
    parse(&KERNEL.replacen(from, to, 1)).unwrap_err().to_string()
}

#[test]
fn errors_name_the_place() {
    insta::assert_snapshot!(message("mad.wide", "mad.wild"), @"line 22, column 5: unknown instruction `mad.wild.u32`");
    insta::assert_snapshot!(message("%r0, 4, %rd0", "%r0, 4, %r1"), @"line 22, column 32: operand 4 of `mad.wide.u32` is a .b64 register or immediate, found `%r1`");
    insta::assert_snapshot!(message("%r0, 4, %rd0", "%r0, 4"), @"line 22, column 30: expected `,`, found `;`");
    insta::assert_snapshot!(message("0f3F800000", "1.0"), @"line 24, column 31: operand 4 of `fma.rn.f32` is a .f32 register or immediate, found `1`");
    insta::assert_snapshot!(message("0f3F800000", "0f3F80000"), @"line 24, column 31: expected 0f and 8, or 0d and 16 hexadecimal digits, found `0f3F80000;`");
    insta::assert_snapshot!(message("%f2, %f1", "%f3, %f1"), @"line 24, column 16: register `%f3` is not declared");
    insta::assert_snapshot!(message("[x]", "[y]"), @"line 17, column 25: no parameter and no shared array is called `y`");
    insta::assert_snapshot!(message("[x]", "[%rd0]"), @"line 17, column 24: operand 2 of `ld.param.u64` is a parameter in brackets, found `[%rd0]`");
    insta::assert_snapshot!(message("[%rd1+-8]", "[%r1+-8]"), @"line 23, column 24: operand 2 of `ld.global.f32` is a global address, [%rd+offset], found `[%r1+-8]`");
    insta::assert_snapshot!(message("$L0:", "$L1:"), @"line 21, column 15: label `$L0` is not defined");
    insta::assert_snapshot!(message("mov.u32 %r1", "$L0: mov.u32 %r1"), @"line 27, column 1: `$L0` is declared twice");
    insta::assert_snapshot!(message("%tid.x", "%tid.w"), @"line 19, column 18: register `%tid.w` is not declared");
    insta::assert_snapshot!(message("%r0, 100", "%r0, 4294967296"), @"line 20, column 27: operand 3 of `setp.lt.s32` is a .b32 register or immediate, found `4294967296`");
    insta::assert_snapshot!(message("%r0, 100", "%r0, 0100"), @"line 20, column 27: expected an integer in decimal, found `0100;`");
    insta::assert_snapshot!(message(".align 16", ".align 12"), @"line 15, column 20: expected a power of two, found `12`");
    insta::assert_snapshot!(message("    ret;\n}", "    ret;"), @"line 29, column 1: expected an instruction, a label or `}`, found the end");
}

#[test]
fn report_points_into_the_text() {
    let text = KERNEL.replacen("mad.wide", "mad.wild", 1);
    let err = parse(&text).unwrap_err();
    let report =
        miette::Report::new(err).with_source_code(miette::NamedSource::new("scale.ptx", text));
    let mut rendered = String::new();
    miette::NarratableReportHandler::new().render_report(&mut rendered, report.as_ref()).unwrap();
    insta::assert_snapshot!(rendered);
}
