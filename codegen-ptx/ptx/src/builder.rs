//! The builder: one method per table row, with registers typed by class.
//!
//! A method makes a new destination register and returns it; [`Builder::to`] writes an existing one
//! (an accumulator). A wrong class does not compile:
//!
//! ```compile_fail
//! # use eggine_ptx::builder::Builder;
//! let mut b = Builder::new("k");
//! let x = b.mov_f32(1.0_f32);
//! let sum = b.add_s32(x, 1); // A `.f32` register where `.b32` is needed.
//! ```
//!
//! ```
//! # use eggine_ptx::{ast::ParamType, ast::Special, builder::Builder};
//! let mut b = Builder::new("add_one");
//! b.block([128, 1, 1]);
//! let x = b.param("x", ParamType::U64);
//! let base = b.ld_param_u64(x);
//! let thread = b.mov_u32(Special::TidX);
//! let at = b.mad_wide_u32(thread, 4, base);
//! let value = b.ld_global_f32(at);
//! let sum = b.add_rn_f32(value, 1.0);
//! b.st_global_f32(at, sum);
//! b.ret();
//! let module = b.finish("sm_80")?;
//! assert!(module.to_string().contains("add.rn.f32 %f1, %f0, 0f3F800000;"));
//! # Ok::<(), eggine_ptx::PtxError>(())
//! ```

mod operand;

use crate::ast::{
    self, Entry, Guard, Inst, Label, Module, Param, ParamType, RegClass, Shared, Stmt,
};
use crate::table::{Op, with_insts};
use crate::target::PtxError;

pub use operand::{
    AnyB32, Array, B16, B32, B64, Bits32, Bits64, Class, Destination, F32, F64, GlobalAddress, Imm,
    ParamRef, Pred, Reg, SharedAddress,
};

/// Builds one kernel.
#[derive(Clone, Debug)]
pub struct Builder {
    entry: Entry,
    n_regs: [u32; RegClass::ALL.len()],
    guard: Option<Guard>,
}

/// Writes an existing destination: see [`Builder::to`].
#[derive(Debug)]
pub struct To<'b, D> {
    builder: &'b mut Builder,
    dst: D,
}

impl Builder {
    /// A kernel without parameters and instructions.
    pub fn new(name: &str) -> Self {
        let entry = Entry {
            name: name.to_owned(),
            params: Vec::new(),
            reqntid: None,
            minnctapersm: None,
            n_regs: Vec::new(),
            shared: Vec::new(),
            n_labels: 0,
            body: Vec::new(),
        };
        Builder { entry, n_regs: [0; RegClass::ALL.len()], guard: None }
    }

    /// Fixes the block's shape, in threads (`.reqntid`).
    pub fn block(&mut self, n_threads: [u32; 3]) {
        self.entry.reqntid = Some(n_threads);
    }

    /// Asks for registers few enough that so many blocks fit on a multiprocessor (`.minnctapersm`).
    pub fn min_blocks(&mut self, n_blocks: u32) {
        self.entry.minnctapersm = Some(n_blocks);
    }

    /// Declares the next parameter.
    pub fn param(&mut self, name: &str, ty: ParamType) -> ParamRef {
        self.entry.params.push(Param { name: name.to_owned(), ty });
        ParamRef(index(self.entry.params.len() - 1))
    }

    /// Declares an array in shared memory.
    pub fn shared(&mut self, name: &str, align_bytes: u32, n_bytes: u32) -> Array {
        self.entry.shared.push(Shared { name: name.to_owned(), align_bytes, n_bytes });
        Array(index(self.entry.shared.len() - 1))
    }

    /// A new register, without a value.
    pub fn reg<C: Class>(&mut self) -> Reg<C> {
        Reg::of(self.reg_of(C::CLASS)).expect("of the class that was asked for")
    }

    /// A new register of a class that is known only when the kernel is built.
    pub fn reg_of(&mut self, class: RegClass) -> ast::Reg {
        let n = &mut self.n_regs[class as usize];
        *n += 1;
        ast::Reg { class, idx: *n - 1 }
    }

    /// A new label; [`Builder::bind`] places it.
    pub fn label(&mut self) -> Label {
        self.entry.n_labels += 1;
        Label(self.entry.n_labels - 1)
    }

    /// Places the label before the next instruction.
    pub fn bind(&mut self, label: Label) {
        self.entry.body.push(Stmt::Label(label));
    }

    /// Guards the instructions that `build` makes: they act only in lanes where the predicate holds, or
    /// for `!p` does not.
    ///
    /// # Panics
    ///
    /// If called inside itself: an instruction has one guard.
    pub fn guarded<T>(
        &mut self,
        guard: impl Into<Guard>,
        build: impl FnOnce(&mut Builder) -> T,
    ) -> T {
        assert!(self.guard.is_none(), "an instruction has one guard");
        self.guard = Some(guard.into());
        let built = build(self);
        self.guard = None;
        built
    }

    /// Writes `dst` instead of a new register: `b.to(acc).fma_rn_f32(x, y, acc)`.
    pub fn to<D: Destination>(&mut self, dst: D) -> To<'_, D> {
        To { builder: self, dst }
    }

    /// Adds an instruction, given by its row and operands. [`Builder::finish`] checks them.
    ///
    /// # Panics
    ///
    /// In debug builds, if the operands are not as the row says.
    pub fn push(&mut self, op: Op, operands: Vec<ast::Operand>) {
        debug_assert!(op.accepts(&operands), "`{op}` with {operands:?}");
        self.entry.body.push(Stmt::Inst(Inst { guard: self.guard, op, operands }));
    }

    /// Number of statements so far.
    pub fn n_stmts(&self) -> usize {
        self.entry.body.len()
    }

    /// The kernel, unchecked: for a module of several, see [`Module::new`].
    pub fn entry(mut self) -> Entry {
        let classes = RegClass::ALL.into_iter().map(|class| (class, self.n_regs[class as usize]));
        self.entry.n_regs = classes.filter(|&(_, n)| n > 0).collect();
        self.entry
    }

    /// The kernel as a module for a target such as `sm_90a`, with the lowest `.version` that has it.
    ///
    /// # Errors
    ///
    /// [`PtxError`], such as: ``kernel `k`: `tanh.approx.f32` needs sm_75, the target is sm_70``.
    pub fn finish(self, target: &str) -> Result<Module, PtxError> {
        Module::new(target, vec![self.entry()])
    }
}

fn index(n: usize) -> u32 {
    u32::try_from(n).expect("fewer than 2^32 declarations")
}

macro_rules! dst_type {
    (P) => { Reg<Pred> };
    (H) => { Reg<B16> };
    (R) => { Reg<B32> };
    (D) => { Reg<B64> };
    (F) => { Reg<F32> };
    (G) => { Reg<F64> };
    (Fx2) => { [Reg<F32>; 2] };
    (Fx4) => { [Reg<F32>; 4] };
    (Rx2) => { [Reg<B32>; 2] };
    (Rx4) => { [Reg<B32>; 4] };
    (Gx2) => { [Reg<F64>; 2] };
    (Dx2) => { [Reg<B64>; 2] };
    (Hx2) => { [Reg<B16>; 2] };
    (Hx4) => { [Reg<B16>; 4] };
}

macro_rules! arg_type {
    (src RF) => { Reg<impl Bits32> };
    (src DG) => { Reg<impl Bits64> };
    (src $class:ident) => { dst_type!($class) };
    (any R) => { impl Into<AnyB32> };
    (any $class:ident) => { arg_type!(imm $class) };
    (imm P) => { impl Into<Imm<Pred>> };
    (imm H) => { impl Into<Imm<B16>> };
    (imm R) => { impl Into<Imm<B32>> };
    (imm D) => { impl Into<Imm<B64>> };
    (imm F) => { impl Into<Imm<F32>> };
    (imm G) => { impl Into<Imm<F64>> };
    (param) => { ParamRef };
    (global) => { impl Into<GlobalAddress> };
    (shared) => { impl Into<SharedAddress> };
    (label) => { Label };
    (int) => { i64 };
}

macro_rules! arg_operand {
    ($name:ident src $class:ident) => {
        Destination::operand($name)
    };
    ($name:ident any R) => {
        $name.into().0
    };
    ($name:ident any $class:ident) => {
        $name.into().0
    };
    ($name:ident imm $class:ident) => {
        $name.into().0
    };
    ($name:ident param) => {
        $name.operand()
    };
    ($name:ident global) => {
        $name.into().0
    };
    ($name:ident shared) => {
        $name.into().0
    };
    ($name:ident label) => {
        ast::Operand::Label($name)
    };
    ($name:ident int) => {
        ast::Operand::Int($name)
    };
}

/// Gives each source of a row a name, then calls `$with`.
macro_rules! name_args {
    ($with:ident $head:tt [$($done:tt)*] [] [$($names:ident)*]) => { $with! { $head [$($done)*] } };
    ($with:ident $head:tt [$($done:tt)*] [$kind:ident $($class:ident)? $(, $($rest:tt)*)?] [$name:ident $($names:ident)*]) => {
        name_args! { $with $head [$($done)* ($name $kind $($class)?)] [$($($rest)*)?] [$($names)*] }
    };
}

/// The methods of one row.
macro_rules! methods {
    ([$op:ident $method:ident $mnemonic:literal] dst RF $(, $($rest:tt)*)?) => {
        name_args! { either_methods [$op $method $mnemonic Bits32] [] [$($($rest)*)?] [a b c d] }
    };
    ([$op:ident $method:ident $mnemonic:literal] dst DG $(, $($rest:tt)*)?) => {
        name_args! { either_methods [$op $method $mnemonic Bits64] [] [$($($rest)*)?] [a b c d] }
    };
    ([$op:ident $method:ident $mnemonic:literal] dst $class:ident $(, $($rest:tt)*)?) => {
        name_args! { dst_methods [$op $method $mnemonic $class] [] [$($($rest)*)?] [a b c d] }
    };
    ([$op:ident $method:ident $mnemonic:literal] $($rest:tt)*) => {
        name_args! { plain_method [$op $method $mnemonic] [] [$($rest)*] [a b c d] }
    };
}

macro_rules! plain_method {
    ([$op:ident $method:ident $mnemonic:literal] [$(($name:ident $kind:ident $($class:ident)?))*]) => {
        impl Builder {
            #[doc = concat!("`", $mnemonic, "`")]
            pub fn $method(&mut self $(, $name: arg_type!($kind $($class)?))*) {
                self.push(Op::$op, vec![$(arg_operand!($name $kind $($class)?)),*]);
            }
        }
    };
}

macro_rules! dst_methods {
    ([$op:ident $method:ident $mnemonic:literal $dst:ident] [$(($name:ident $kind:ident $($class:ident)?))*]) => {
        impl Builder {
            #[doc = concat!("`", $mnemonic, "` to a new register")]
            pub fn $method(&mut self $(, $name: arg_type!($kind $($class)?))*) -> dst_type!($dst) {
                let dst = <dst_type!($dst)>::new(self);
                self.to(dst).$method($($name),*);
                dst
            }
        }

        impl To<'_, dst_type!($dst)> {
            #[doc = concat!("`", $mnemonic, "`")]
            pub fn $method(self $(, $name: arg_type!($kind $($class)?))*) {
                self.builder.push(Op::$op, vec![self.dst.operand() $(, arg_operand!($name $kind $($class)?))*]);
            }
        }
    };
}

macro_rules! either_methods {
    ([$op:ident $method:ident $mnemonic:literal $bits:ident] [$(($name:ident $kind:ident $($class:ident)?))*]) => {
        impl Builder {
            #[doc = concat!("`", $mnemonic, "` to a new register")]
            pub fn $method<T: $bits>(&mut self $(, $name: arg_type!($kind $($class)?))*) -> Reg<T> {
                let dst = Reg::new(self);
                self.to(dst).$method($($name),*);
                dst
            }
        }

        impl<T: $bits> To<'_, Reg<T>> {
            #[doc = concat!("`", $mnemonic, "`")]
            pub fn $method(self $(, $name: arg_type!($kind $($class)?))*) {
                self.builder.push(Op::$op, vec![self.dst.operand() $(, arg_operand!($name $kind $($class)?))*]);
            }
        }
    };
}

macro_rules! define_methods {
    ($($op:ident $method:ident $mnemonic:literal ($($signature:tt)*) $sm:literal ($major:literal, $minor:literal);)+) => {
        $(methods! { [$op $method $mnemonic] $($signature)* })+
    };
}

with_insts!(define_methods);

#[cfg(test)]
mod every_row; // After the macros that it uses.
