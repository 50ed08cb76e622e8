//! Calls every method of the builder: what each pushes is what its row says.

use super::*;

/// An argument for each kind of operand.
macro_rules! argument {
    ($b:ident src RF) => {
        $b.reg::<F32>()
    };
    ($b:ident src DG) => {
        $b.reg::<F64>()
    };
    ($b:ident src $class:ident) => {
        <dst_type!($class)>::new(&mut $b)
    };
    ($b:ident any $class:ident) => {
        argument!($b imm $class)
    };
    ($b:ident imm P) => {
        true
    };
    ($b:ident imm H) => {
        7_u16
    };
    ($b:ident imm F) => {
        0.5_f32
    };
    ($b:ident imm G) => {
        0.5_f64
    };
    ($b:ident imm $class:ident) => {
        <dst_type!($class)>::new(&mut $b)
    };
    ($b:ident param) => {
        ParamRef(0)
    };
    ($b:ident global) => {
        ($b.reg::<B64>(), 16)
    };
    ($b:ident shared) => {
        Array(0)
    };
    ($b:ident label) => {
        Label(0)
    };
    ($b:ident int) => {
        4
    };
}

macro_rules! call_all {
    ($($op:ident $method:ident $mnemonic:literal ($($signature:tt)*) $sm:literal ($major:literal, $minor:literal);)+) => {
        fn build_all() -> Builder {
            let mut b = Builder::new("every_row");
            b.param("x", ParamType::U64);
            b.shared("tile", 16, 64);
            let label = b.label();
            b.bind(label);
            $(call!(b $method [] $($signature)*);)+
            b
        }
    };
}

/// Evaluates the arguments first: they borrow the builder.
macro_rules! call {
    ($b:ident $method:ident [] dst RF $(, $($rest:tt)*)?) => { call!($b $method [_into] $($($rest)*)?) };
    ($b:ident $method:ident [] dst DG $(, $($rest:tt)*)?) => { call!($b $method [_into64] $($($rest)*)?) };
    ($b:ident $method:ident [] dst $class:ident $(, $($rest:tt)*)?) => { call!($b $method [_new] $($($rest)*)?) };
    ($b:ident $method:ident [$($mode:ident)?] $($kind:ident $($class:ident)?),*) => {
        call!(@ $b $method [$($mode)?] [] [$($kind $($class)?,)*] [w x y z])
    };
    (@ $b:ident $method:ident $mode:tt [$($done:tt)*] [$kind:ident $($class:ident)?, $($rest:tt)*] [$name:ident $($names:ident)*]) => {
        let $name = argument!($b $kind $($class)?);
        call!(@ $b $method $mode [$($done)* $name,] [$($rest)*] [$($names)*])
    };
    (@ $b:ident $method:ident [_into] [$($args:ident,)*] [] $names:tt) => {
        let dst = $b.reg::<F32>();
        $b.to(dst).$method($($args),*);
    };
    (@ $b:ident $method:ident [_into64] [$($args:ident,)*] [] $names:tt) => {
        let dst = $b.reg::<F64>();
        $b.to(dst).$method($($args),*);
    };
    (@ $b:ident $method:ident [$($mode:ident)?] [$($args:ident,)*] [] $names:tt) => {
        let _ = $b.$method($($args),*);
    };
}

with_insts!(call_all);

#[test]
fn every_method_pushes_its_row() {
    let module = build_all().finish("sm_120a").unwrap();
    let ops: Vec<Op> = module.entries[0].insts().map(|inst| inst.op).collect();
    assert_eq!(ops, Op::ALL);
    assert_eq!(crate::parse(&module.to_string()), Ok(module));
}
