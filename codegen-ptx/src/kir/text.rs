//! The text format `.kir`: one printed form, which [`parse`](super::parse::parse) reads back to the same
//! kernel if values are numbered in order of definition, as the builder and the parser number them.
//!
//! ```text
//! kernel @scale grid(4, 1, 1) block(64) {
//!     b0: global f32[250] align 16
//!     b1: global mut f32[250] align 16
//!     v0 = block.x
//!     v1 = const i32 64
//!     v2 = thread.x
//!     v3 = fma v0, v1, v2
//!     v4 = const i32 250
//!     v5 = lt v3, v4
//!     if v5 {
//!         v6 = load b0[v3]
//!         v7 = add v6, v6
//!         store b1[v3], v7
//!     }
//! }
//! ```
//!
//! Variables are declared as `r0: f32`; a mask follows `where`; loads of several elements define several
//! values; offsets stand behind the index (`b0[v3 + 4]`). Constants and conversions name their type, other
//! types follow. Comments start with `;`.

use crate::kir::{
    BinaryOp, Buffer, CompareOp, Expr, Kernel, Operand, Scalar, Space, Special, Stmt, UnaryOp, Val,
    fold,
};
use std::fmt::{self, Display, Formatter};

macro_rules! names {
    ($ty:ident { $($variant:ident $name:literal),+ $(,)? }) => {
        impl $ty {
            /// All of them, with their names in the text format.
            pub(super) const NAMES: &[($ty, &str)] = &[$(($ty::$variant, $name)),+];

            /// Name in the text format.
            pub const fn name(self) -> &'static str {
                match self { $($ty::$variant => $name),+ }
            }
        }

        impl Display for $ty {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                f.write_str(self.name())
            }
        }
    };
}

names!(Scalar { I32 "i32", I64 "i64", F32 "f32", F64 "f64", Pred "pred" });
names!(Special { ThreadX "thread.x", BlockX "block.x", BlockY "block.y", BlockZ "block.z" });
names!(UnaryOp {
    Neg "neg",
    Abs "abs",
    Not "not",
    Floor "floor",
    Ceil "ceil",
    Round "round",
    Sqrt "sqrt",
    Recip "recip",
    RsqrtApprox "rsqrt.approx",
    Exp2Approx "exp2.approx",
    Log2Approx "log2.approx",
    SinApprox "sin.approx",
    CosApprox "cos.approx",
});
names!(BinaryOp {
    Add "add",
    Sub "sub",
    Mul "mul",
    Div "div",
    Rem "rem",
    Min "min",
    Max "max",
    And "and",
    Or "or",
    Xor "xor",
    Shl "shl",
    Shr "shr",
});
names!(CompareOp { Eq "eq", Ne "ne", Lt "lt", Le "le" });

impl Display for Kernel {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let [x, y, z] = self.grid;
        write!(f, "kernel @{} grid({x}, {y}, {z}) block({})", self.name, self.n_threads)?;
        if let Some(n) = self.min_blocks {
            write!(f, " min_blocks({n})")?;
        }
        f.write_str(" {\n")?;
        for (buffer, decl) in &self.buffers {
            let space = match decl.space {
                Space::Global { writable: false } => "global",
                Space::Global { writable: true } => "global mut",
                Space::Shared => "shared",
            };
            let (dtype, n_elems, align) = (decl.dtype, decl.n_elems, decl.align_bytes);
            writeln!(f, "    {buffer}: {space} {dtype}[{n_elems}] align {align}")?;
        }
        for (var, ty) in &self.vars {
            writeln!(f, "    {var}: {ty}")?;
        }
        print_stmts(self, &self.body, 1, f)?;
        f.write_str("}\n")
    }
}

fn print_stmts(
    kernel: &Kernel,
    stmts: &[Stmt],
    depth: usize,
    f: &mut Formatter<'_>,
) -> fmt::Result {
    for stmt in stmts {
        writeln!(f, "{:indent$}{}", "", head(kernel, stmt), indent = depth * 4)?;
        match stmt {
            Stmt::For { body, .. } => print_stmts(kernel, body, depth + 1, f)?,
            Stmt::If { then, otherwise, .. } => {
                print_stmts(kernel, then, depth + 1, f)?;
                if !otherwise.is_empty() {
                    writeln!(f, "{:indent$}}} else {{", "", indent = depth * 4)?;
                    print_stmts(kernel, otherwise, depth + 1, f)?;
                }
            }
            _ => continue,
        }
        writeln!(f, "{:indent$}}}", "", indent = depth * 4)?;
    }
    Ok(())
}

/// The line of a statement: that of a loop or branch ends with `{`.
pub fn head(kernel: &Kernel, stmt: &Stmt) -> String {
    let place = |buffer: &Buffer, index: &Val, offset: i32| match offset {
        0 => format!("{buffer}[{index}]"),
        1.. => format!("{buffer}[{index} + {offset}]"),
        _ => format!("{buffer}[{index} - {}]", offset.unsigned_abs()),
    };
    let mask = |mask: &Option<Val>| mask.map_or(String::new(), |mask| format!(" where {mask}"));
    let list = |vals: &[Val]| vals.iter().map(Val::to_string).collect::<Vec<_>>().join(", ");
    let bound = |operand: &Operand| match operand {
        Operand::Const(value) => value.to_string(),
        Operand::Val(val) => val.to_string(),
    };
    match stmt {
        Stmt::Let(val, expr) => format!("{val} = {}", expression(kernel, *val, expr)),
        Stmt::Set(var, val) => format!("set {var}, {val}"),
        Stmt::Load { dsts, buffer, index, offset, mask: on } => {
            format!("{} = load {}{}", list(dsts), place(buffer, index, *offset), mask(on))
        }
        Stmt::Store { buffer, index, offset, srcs, mask: on } => {
            format!("store {}, {}{}", place(buffer, index, *offset), list(srcs), mask(on))
        }
        Stmt::CopyAsync {
            dst,
            dst_index,
            dst_offset,
            src,
            src_index,
            src_offset,
            n_elems,
            mask: on,
        } => format!(
            "copy.async {}, {}, {n_elems}{}",
            place(dst, dst_index, *dst_offset),
            place(src, src_index, *src_offset),
            mask(on)
        ),
        Stmt::CopyCommit => "copy.commit".to_owned(),
        Stmt::CopyWait(n) => format!("copy.wait {n}"),
        Stmt::For { counter, from, to, step, .. } => {
            format!("for {counter} in {}..{} step {step} {{", bound(from), bound(to))
        }
        Stmt::If { cond, .. } => format!("if {cond} {{"),
        Stmt::Barrier => "barrier".to_owned(),
    }
}

fn expression(kernel: &Kernel, val: Val, expr: &Expr) -> String {
    let ty = kernel.vals[val];
    match *expr {
        Expr::Const(bits) => format!("const {ty} {}", constant(ty, bits)),
        Expr::Special(special) => special.to_string(),
        Expr::Get(var) => format!("get {var}"),
        Expr::Unary(op, a) => format!("{op} {a}"),
        Expr::Binary(op, a, b) => format!("{op} {a}, {b}"),
        Expr::Compare(op, a, b) => format!("{op} {a}, {b}"),
        Expr::Fma(a, b, c) => format!("fma {a}, {b}, {c}"),
        Expr::Select { cond, a, b } => format!("select {cond}, {a}, {b}"),
        Expr::Convert(a) => format!("convert {ty} {a}"),
        Expr::Bits(a) => format!("bits {ty} {a}"),
        Expr::ShuffleXor(a, mask) => format!("shuffle.xor {a}, {mask}"),
    }
}

/// Finite floats in the shortest form that reads back, others as their bits.
fn constant(ty: Scalar, bits: u64) -> String {
    let in_hex = || format!("0x{bits:x}");
    match ty {
        Scalar::I32 if fold::i32_bits(fold::as_i32(bits)) == bits => fold::as_i32(bits).to_string(),
        Scalar::I64 => (bits as i64).to_string(),
        Scalar::F32 if bits >> 32 == 0 && fold::as_f32(bits).is_finite() => {
            format!("{:?}", fold::as_f32(bits))
        }
        Scalar::F64 if fold::as_f64(bits).is_finite() => format!("{:?}", fold::as_f64(bits)),
        Scalar::Pred if bits <= 1 => (bits == 1).to_string(),
        _ => in_hex(),
    }
}
