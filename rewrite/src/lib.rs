//! Equality saturation: which equal forms a model has, and which of them to compute.
//!
//! Two levels of e-graph. In the first, terms are tensors and computations, fusion is the axiom
//! `load(store(e)) = e`, and extraction decides which tensors are materialised ([`optimise`]). In the
//! second, each kernel is a class whose e-nodes are its schedules ([`KernelSpace`]).
//!
//! Rules are rows of tables ([`rules`]); agents propose where to apply them ([`agent`]). This crate
//! knows no device and generates no code: what a kernel costs, and which there are, it asks of a
//! [`RegionCost`].

pub mod agent;
pub mod agents;
mod cost;
mod cover;
mod derivation;
mod extract;
mod facts;
mod kernel_egraph;
mod lang;
mod literal;
mod lower;
mod optimise;
mod rule;
pub mod rule_file;
pub mod rules;
mod saturate;
mod segment;
pub mod soundness;

pub use cost::{Fingerprint, RegionCost, fingerprint};
pub use cover::{Cover, RegionId, TensorDef, TensorId};
pub use derivation::{Claim, Derivation, ReplayError, SegmentProof};
pub use facts::{Conflict, EGraph, Facts, Sort, Typing, ValueFacts};
pub use kernel_egraph::{Considered, KernelId, KernelNode, KernelSpace, Moves, Open};
pub use lang::{ENode, has_attrs, parse_attrs, print_attrs};
pub use literal::{Literal, MAX_ELEMS as MAX_LITERAL_ELEMS, NotALiteral};
pub use lower::{Lowered, lower};
pub use optimise::{
    Optimiser, Options, RewriteError, SegmentStats, greedy_cover, optimise, random_cover,
};
pub use rule::{
    Binding, CompiledRule, DTypeSpec, Derive, Derived, Match, Rule, RuleError, Scope, Soundness,
    VarSpec, VarType, compile_all,
};
pub use saturate::{Action, Limits, Saturation, Step, Stop, saturate};
