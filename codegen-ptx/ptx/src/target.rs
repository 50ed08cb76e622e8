//! Targets, the lowest `.version` that has each, and what makes a module one that assembles for it.
//!
//! A module carries the lowest version that has its target and its instructions, because a driver
//! refuses versions that are newer than itself.

use thiserror::Error;

use crate::ast::{Base, Entry, Label, Module, Operand, Reg, RegClass, Stmt};
use crate::table::{Op, Slot};

/// Targets and their lowest `.version`. Source: PTX ISA 9.0, release notes; sm_80 and later checked
/// with ptxas 13.0.88.
#[rustfmt::skip] // One target per row.
const TARGETS: &[(&str, u32, (u32, u32))] = &[
    ("sm_70",    70, (6, 0)),
    ("sm_75",    75, (6, 3)),
    ("sm_80",    80, (7, 0)),
    ("sm_86",    86, (7, 1)),
    ("sm_89",    89, (7, 8)),
    ("sm_90",    90, (7, 8)),
    ("sm_90a",   90, (8, 0)),
    ("sm_100",  100, (8, 6)),
    ("sm_100a", 100, (8, 6)),
    ("sm_120",  120, (8, 7)),
    ("sm_120a", 120, (8, 7)),
];

/// Why entries are not a module for a target.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum PtxError {
    #[error("unknown target `{target}`")]
    UnknownTarget { target: String },
    #[error("kernel `{kernel}`: `{op}` needs sm_{needs}, the target is {target}")]
    TooNew { kernel: String, op: Op, needs: u32, target: String },
    #[error("kernel `{kernel}`: label `{label}` is used but not bound")]
    UnboundLabel { kernel: String, label: Label },
    #[error("kernel `{kernel}`: label `{label}` is bound twice")]
    LabelBoundTwice { kernel: String, label: Label },
    #[error("kernel `{kernel}`: two parameters, arrays or kernels are called `{name}`")]
    DuplicateName { kernel: String, name: String },
    #[error("kernel `{kernel}`: `{op}` takes {expected} operands, found {found}")]
    OperandCount { kernel: String, op: Op, expected: usize, found: usize },
    #[error("kernel `{kernel}`: operand {position} of `{op}` is {expected}")]
    Operand { kernel: String, op: Op, position: usize, expected: Slot },
    #[error("kernel `{kernel}`: `{op}` names a register, parameter or array that is not declared")]
    Undeclared { kernel: String, op: Op },
    #[error("kernel `{kernel}`: the guard `{guard}` of `{op}` is not a declared predicate")]
    Guard { kernel: String, op: Op, guard: Reg },
}

fn find_target(target: &str) -> Result<(u32, (u32, u32)), PtxError> {
    let found = TARGETS.iter().find(|(name, _, _)| *name == target);
    found
        .map(|&(_, sm, isa)| (sm, isa))
        .ok_or_else(|| PtxError::UnknownTarget { target: target.to_owned() })
}

/// The lowest `.version` that has the target, such as `sm_90a`.
///
/// # Errors
///
/// [`PtxError::UnknownTarget`].
pub fn lowest_version(target: &str) -> Result<(u32, u32), PtxError> {
    find_target(target).map(|(_, isa)| isa)
}

impl Module {
    /// A module of entries for a target, with the lowest `.version` that has target and instructions.
    ///
    /// # Errors
    ///
    /// [`PtxError`]: an instruction that the target lacks, or one that is not as its table row says.
    pub fn new(target: &str, entries: Vec<Entry>) -> Result<Module, PtxError> {
        let (sm, mut version) = find_target(target)?;
        for (i, entry) in entries.iter().enumerate() {
            if entries[..i].iter().any(|other| other.name == entry.name) {
                let name = entry.name.clone();
                return Err(PtxError::DuplicateName { kernel: entry.name.clone(), name });
            }
            check(entry)?;
            for inst in entry.insts() {
                let spec = inst.op.spec();
                if spec.sm > sm {
                    let (kernel, target) = (entry.name.clone(), target.to_owned());
                    return Err(PtxError::TooNew { kernel, op: inst.op, needs: spec.sm, target });
                }
                version = version.max(spec.isa);
            }
        }
        Ok(Module { version, target: target.to_owned(), entries })
    }

    /// The same entries for another target.
    ///
    /// # Errors
    ///
    /// As [`Module::new`].
    pub fn retarget(&self, target: &str) -> Result<Module, PtxError> {
        Module::new(target, self.entries.clone())
    }
}

impl Entry {
    /// The instructions of the body, in order.
    pub fn insts(&self) -> impl Iterator<Item = &crate::ast::Inst> {
        self.body.iter().filter_map(|stmt| match stmt {
            Stmt::Inst(inst) => Some(inst),
            Stmt::Label(_) => None,
        })
    }
}

/// What the parser checks of text, for an entry that was built.
fn check(entry: &Entry) -> Result<(), PtxError> {
    let kernel = || entry.name.clone();
    let names: Vec<&String> = entry
        .params
        .iter()
        .map(|param| &param.name)
        .chain(entry.shared.iter().map(|array| &array.name))
        .collect();
    for (i, name) in names.iter().enumerate() {
        if names[..i].contains(name) {
            return Err(PtxError::DuplicateName { kernel: kernel(), name: (*name).clone() });
        }
    }
    let mut n_regs = [0; RegClass::ALL.len()];
    for &(class, n) in &entry.n_regs {
        n_regs[class as usize] = n;
    }
    let mut bound = vec![false; entry.n_labels as usize];
    for stmt in &entry.body {
        let Stmt::Label(label) = *stmt else { continue };
        match bound.get_mut(label.0 as usize) {
            Some(slot) if !*slot => *slot = true,
            Some(_) => return Err(PtxError::LabelBoundTwice { kernel: kernel(), label }),
            None => return Err(PtxError::UnboundLabel { kernel: kernel(), label }),
        }
    }
    let declared = |reg: Reg| reg.idx < n_regs[reg.class as usize];
    for inst in entry.insts() {
        let op = inst.op;
        if let Some(guard) = inst.guard
            && (guard.pred.class != RegClass::Pred || !declared(guard.pred))
        {
            return Err(PtxError::Guard { kernel: kernel(), op, guard: guard.pred });
        }
        let signature = op.spec().signature;
        if signature.len() != inst.operands.len() {
            let (expected, found) = (signature.len(), inst.operands.len());
            return Err(PtxError::OperandCount { kernel: kernel(), op, expected, found });
        }
        for (i, (&slot, operand)) in signature.iter().zip(&inst.operands).enumerate() {
            if !slot.accepts(operand) {
                return Err(PtxError::Operand {
                    kernel: kernel(),
                    op,
                    position: i + 1,
                    expected: slot,
                });
            }
            let known = match operand {
                Operand::Reg(reg) | Operand::Address { base: Base::Reg(reg), .. } => declared(*reg),
                Operand::Regs(regs) => regs.iter().all(|&reg| declared(reg)),
                Operand::Address { base: Base::Param(idx), .. } => {
                    (*idx as usize) < entry.params.len()
                }
                Operand::Address { base: Base::Shared(idx), .. } | Operand::Symbol(idx) => {
                    (*idx as usize) < entry.shared.len()
                }
                Operand::Label(label) => {
                    if !bound.get(label.0 as usize).copied().unwrap_or(false) {
                        return Err(PtxError::UnboundLabel { kernel: kernel(), label: *label });
                    }
                    true
                }
                Operand::Int(_) | Operand::F32(_) | Operand::F64(_) | Operand::Special(_) => true,
            };
            if !known {
                return Err(PtxError::Undeclared { kernel: kernel(), op });
            }
        }
    }
    Ok(())
}
