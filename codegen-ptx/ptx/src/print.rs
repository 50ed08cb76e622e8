//! The printer: one form per module, which [`crate::parse()`] reads back to the same value.

use std::fmt::{self, Display, Formatter};

use crate::ast::{
    Base, Entry, Inst, Label, Module, Operand, ParamType, Reg, RegClass, Special, Stmt,
};

impl RegClass {
    /// All classes, in the order in which the builder declares them.
    pub const ALL: [RegClass; 6] =
        [RegClass::Pred, RegClass::B16, RegClass::B32, RegClass::B64, RegClass::F32, RegClass::F64];

    /// The type in the `.reg` declaration.
    pub const fn type_name(self) -> &'static str {
        match self {
            RegClass::Pred => ".pred",
            RegClass::B16 => ".b16",
            RegClass::B32 => ".b32",
            RegClass::B64 => ".b64",
            RegClass::F32 => ".f32",
            RegClass::F64 => ".f64",
        }
    }

    /// What register names of the class begin with, after the `%`.
    pub const fn prefix(self) -> &'static str {
        match self {
            RegClass::Pred => "p",
            RegClass::B16 => "h",
            RegClass::B32 => "r",
            RegClass::B64 => "rd",
            RegClass::F32 => "f",
            RegClass::F64 => "fd",
        }
    }
}

impl Special {
    /// All special registers.
    pub const ALL: [Special; 14] = [
        Special::TidX,
        Special::TidY,
        Special::TidZ,
        Special::NtidX,
        Special::NtidY,
        Special::NtidZ,
        Special::CtaidX,
        Special::CtaidY,
        Special::CtaidZ,
        Special::NctaidX,
        Special::NctaidY,
        Special::NctaidZ,
        Special::Laneid,
        Special::Warpid,
    ];

    /// The name, without the `%`.
    pub const fn name(self) -> &'static str {
        match self {
            Special::TidX => "tid.x",
            Special::TidY => "tid.y",
            Special::TidZ => "tid.z",
            Special::NtidX => "ntid.x",
            Special::NtidY => "ntid.y",
            Special::NtidZ => "ntid.z",
            Special::CtaidX => "ctaid.x",
            Special::CtaidY => "ctaid.y",
            Special::CtaidZ => "ctaid.z",
            Special::NctaidX => "nctaid.x",
            Special::NctaidY => "nctaid.y",
            Special::NctaidZ => "nctaid.z",
            Special::Laneid => "laneid",
            Special::Warpid => "warpid",
        }
    }
}

impl ParamType {
    /// The type in the declaration.
    pub const fn type_name(self) -> &'static str {
        match self {
            ParamType::U32 => ".u32",
            ParamType::U64 => ".u64",
            ParamType::F32 => ".f32",
        }
    }
}

impl Display for RegClass {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        f.write_str(self.type_name())
    }
}

impl Display for Reg {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "%{}{}", self.class.prefix(), self.idx)
    }
}

impl Display for Label {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "$L{}", self.0)
    }
}

impl Display for Special {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, "%{}", self.name())
    }
}

impl Display for Module {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let (major, minor) = self.version;
        writeln!(f, ".version {major}.{minor}")?;
        writeln!(f, ".target {}", self.target)?;
        writeln!(f, ".address_size 64")?;
        self.entries.iter().try_for_each(|entry| write!(f, "\n{entry}"))
    }
}

impl Display for Entry {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        write!(f, ".visible .entry {}(", self.name)?;
        for (i, param) in self.params.iter().enumerate() {
            let comma = if i == 0 { "" } else { "," };
            write!(f, "{comma}\n    .param {} {}", param.ty.type_name(), param.name)?;
        }
        f.write_str(if self.params.is_empty() { ")\n" } else { "\n)\n" })?;
        if let Some([x, y, z]) = self.reqntid {
            writeln!(f, ".reqntid {x}, {y}, {z}")?;
        }
        if let Some(n_blocks) = self.minnctapersm {
            writeln!(f, ".minnctapersm {n_blocks}")?;
        }
        f.write_str("{\n")?;
        for (class, n) in &self.n_regs {
            writeln!(f, "    .reg {class} %{}<{n}>;", class.prefix())?;
        }
        for array in &self.shared {
            writeln!(
                f,
                "    .shared .align {} .b8 {}[{}];",
                array.align_bytes, array.name, array.n_bytes
            )?;
        }
        let has_declarations = !self.n_regs.is_empty() || !self.shared.is_empty();
        if has_declarations && !self.body.is_empty() {
            f.write_str("\n")?;
        }
        for stmt in &self.body {
            match stmt {
                Stmt::Label(label) => writeln!(f, "{label}:")?,
                Stmt::Inst(inst) => {
                    f.write_str("    ")?;
                    inst.print(self, f)?;
                    f.write_str("\n")?;
                }
            }
        }
        f.write_str("}\n")
    }
}

impl Inst {
    /// The instruction as a line of PTX, without indentation: `@%p0 add.s32 %r0, %r1, 4;`. Parameters
    /// and shared arrays have the names that `entry` gives them.
    pub fn display<'a>(&'a self, entry: &'a Entry) -> impl Display + 'a {
        struct Line<'a>(&'a Inst, &'a Entry);
        impl Display for Line<'_> {
            fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
                self.0.print(self.1, f)
            }
        }
        Line(self, entry)
    }

    fn print(&self, entry: &Entry, f: &mut Formatter<'_>) -> fmt::Result {
        if let Some(guard) = self.guard {
            write!(f, "@{}{} ", if guard.negated { "!" } else { "" }, guard.pred)?;
        }
        f.write_str(self.op.spec().mnemonic)?;
        for (i, operand) in self.operands.iter().enumerate() {
            f.write_str(if i == 0 { " " } else { ", " })?;
            print_operand(operand, entry, f)?;
        }
        f.write_str(";")
    }
}

fn print_operand(operand: &Operand, entry: &Entry, f: &mut Formatter<'_>) -> fmt::Result {
    match operand {
        Operand::Reg(reg) => reg.fmt(f),
        Operand::Regs(regs) => {
            for (i, reg) in regs.iter().enumerate() {
                write!(f, "{}{reg}", if i == 0 { "{" } else { ", " })?;
            }
            f.write_str("}")
        }
        Operand::Int(value) => value.fmt(f),
        Operand::F32(bits) => write!(f, "0f{bits:08X}"),
        Operand::F64(bits) => write!(f, "0d{bits:016X}"),
        Operand::Special(special) => special.fmt(f),
        Operand::Address { base, offset } => {
            f.write_str("[")?;
            match *base {
                Base::Reg(reg) => reg.fmt(f)?,
                Base::Param(idx) => f.write_str(param_name(entry, idx))?,
                Base::Shared(idx) => f.write_str(shared_name(entry, idx))?,
            }
            match offset {
                0 => f.write_str("]"),
                _ => write!(f, "+{offset}]"),
            }
        }
        Operand::Symbol(idx) => f.write_str(shared_name(entry, *idx)),
        Operand::Label(label) => label.fmt(f),
    }
}

/// A dangling index prints as what no parser accepts, rather than panic in a message.
fn param_name(entry: &Entry, idx: u32) -> &str {
    entry.params.get(idx as usize).map_or("<no such parameter>", |param| &param.name)
}

fn shared_name(entry: &Entry, idx: u32) -> &str {
    entry.shared.get(idx as usize).map_or("<no such array>", |array| &array.name)
}
