//! Addresses, loads and stores.
//!
//! A pointer is computed where its index is defined, once for all accesses of the buffer at constant
//! offsets from it. Where the index is `base + counter·k` of the loop that defines it, the pointer starts
//! before the loop and steps by addition. That is right if the index does not wrap, which is checked.

use super::{EmitError, Emitter, Place, int, reg};
use crate::kir::{BinaryOp, Buffer, Expr, Operand, Space, Val, fold};
use eggine_ir::DType;
use eggine_ptx::ast::{self, Base, Guard, Reg, RegClass};
use eggine_ptx::table::Op;

/// A unit of memory access.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Unit {
    F32,
    F64,
    U32,
    U64,
    B16,
    U8,
    S8,
}

impl Unit {
    fn of(dtype: DType) -> Option<Unit> {
        Some(match dtype {
            DType::F32 => Unit::F32,
            DType::F64 => Unit::F64,
            DType::I32 | DType::U32 => Unit::U32,
            DType::I64 | DType::U64 => Unit::U64,
            DType::F16 | DType::BF16 | DType::I16 | DType::U16 => Unit::B16,
            DType::U8 | DType::Bool => Unit::U8,
            DType::F8E4M3
            | DType::F8E5M2
            | DType::F8E4M3FNUZ
            | DType::F8E5M2FNUZ
            | DType::F8E8M0 => Unit::U8,
            DType::I8 => Unit::S8,
            DType::F4E2M1 | DType::I4 | DType::U4 | DType::I2 | DType::U2 => return None,
        })
    }

    /// The register that holds one, before conversion.
    fn class(self) -> RegClass {
        match self {
            Unit::F32 => RegClass::F32,
            Unit::F64 => RegClass::F64,
            Unit::U32 | Unit::U8 | Unit::S8 => RegClass::B32,
            Unit::U64 => RegClass::B64,
            Unit::B16 => RegClass::B16,
        }
    }
}

fn load_op(shared: bool, cached: bool, unit: Unit, n: usize) -> Option<Op> {
    Some(match (shared, unit, n) {
        (false, Unit::F32, 1) if cached => Op::LdGlobalNcF32,
        (false, Unit::F32, 2) if cached => Op::LdGlobalNcV2F32,
        (false, Unit::F32, 4) if cached => Op::LdGlobalNcV4F32,
        (false, Unit::U32, 1) if cached => Op::LdGlobalNcU32,
        (false, Unit::F32, 1) => Op::LdGlobalF32,
        (false, Unit::F32, 2) => Op::LdGlobalV2F32,
        (false, Unit::F32, 4) => Op::LdGlobalV4F32,
        (false, Unit::U32, 1) => Op::LdGlobalU32,
        (false, Unit::U32, 2) => Op::LdGlobalV2U32,
        (false, Unit::U32, 4) => Op::LdGlobalV4U32,
        (false, Unit::U64, 1) => Op::LdGlobalU64,
        (false, Unit::U64, 2) => Op::LdGlobalV2U64,
        (false, Unit::F64, 1) => Op::LdGlobalF64,
        (false, Unit::F64, 2) => Op::LdGlobalV2F64,
        (false, Unit::B16, 1) => Op::LdGlobalB16,
        (false, Unit::B16, 2) => Op::LdGlobalV2B16,
        (false, Unit::B16, 4) => Op::LdGlobalV4B16,
        (false, Unit::U8, 1) => Op::LdGlobalU8,
        (false, Unit::S8, 1) => Op::LdGlobalS8,
        (true, Unit::F32, 1) => Op::LdSharedF32,
        (true, Unit::F32, 2) => Op::LdSharedV2F32,
        (true, Unit::F32, 4) => Op::LdSharedV4F32,
        (true, Unit::U32, 1) => Op::LdSharedU32,
        (true, Unit::U32, 2) => Op::LdSharedV2U32,
        (true, Unit::U32, 4) => Op::LdSharedV4U32,
        (true, Unit::U64, 1) => Op::LdSharedU64,
        (true, Unit::F64, 1) => Op::LdSharedF64,
        (true, Unit::B16, 1) => Op::LdSharedB16,
        (true, Unit::U8, 1) => Op::LdSharedU8,
        (true, Unit::S8, 1) => Op::LdSharedS8,
        _ => return None,
    })
}

fn store_op(shared: bool, unit: Unit, n: usize) -> Option<Op> {
    Some(match (shared, unit, n) {
        (false, Unit::F32, 1) => Op::StGlobalF32,
        (false, Unit::F32, 2) => Op::StGlobalV2F32,
        (false, Unit::F32, 4) => Op::StGlobalV4F32,
        (false, Unit::U32, 1) => Op::StGlobalU32,
        (false, Unit::U32, 2) => Op::StGlobalV2U32,
        (false, Unit::U32, 4) => Op::StGlobalV4U32,
        (false, Unit::U64, 1) => Op::StGlobalU64,
        (false, Unit::U64, 2) => Op::StGlobalV2U64,
        (false, Unit::F64, 1) => Op::StGlobalF64,
        (false, Unit::F64, 2) => Op::StGlobalV2F64,
        (false, Unit::B16, 1) => Op::StGlobalB16,
        (false, Unit::B16, 2) => Op::StGlobalV2B16,
        (false, Unit::B16, 4) => Op::StGlobalV4B16,
        (false, Unit::U8 | Unit::S8, 1) => Op::StGlobalU8,
        (true, Unit::F32, 1) => Op::StSharedF32,
        (true, Unit::F32, 2) => Op::StSharedV2F32,
        (true, Unit::F32, 4) => Op::StSharedV4F32,
        (true, Unit::U32, 1) => Op::StSharedU32,
        (true, Unit::U32, 2) => Op::StSharedV2U32,
        (true, Unit::U32, 4) => Op::StSharedV4U32,
        (true, Unit::U64, 1) => Op::StSharedU64,
        (true, Unit::F64, 1) => Op::StSharedF64,
        (true, Unit::B16, 1) => Op::StSharedB16,
        (true, Unit::U8 | Unit::S8, 1) => Op::StSharedU8,
        _ => return None,
    })
}

/// The widest access of at most `n` elements that there is an instruction for.
fn widest(n: usize, op: impl Fn(usize) -> Option<Op>) -> (usize, Op) {
    [4, 2, 1]
        .into_iter()
        .filter(|&width| width <= n)
        .find_map(|width| op(width).map(|op| (width, op)))
        .expect("every unit can be accessed one by one")
}

/// `base + counter·factor + constant`
struct Affine {
    base: Option<Val>,
    factor: i64,
    constant: i64,
}

impl Emitter<'_> {
    fn element(&self, buffer: Buffer) -> Result<(DType, Unit, u32), EmitError> {
        let dtype = self.kernel.buffers[buffer].dtype;
        let unit = Unit::of(dtype).ok_or_else(|| {
            let kernel = self.kernel.name.clone();
            EmitError::StoredPart { kernel, buffer, dtype }
        })?;
        Ok((dtype, unit, (dtype.bits() / 8) as u32))
    }

    fn is_shared(&self, buffer: Buffer) -> bool {
        self.kernel.buffers[buffer].space == Space::Shared
    }

    // Addresses.

    /// Base register and byte offset of an element.
    fn address(
        &mut self,
        buffer: Buffer,
        index: Val,
        offset: i32,
    ) -> Result<(Base, i64), EmitError> {
        let (_, _, n_bytes) = self.element(buffer)?;
        let mut offset = i64::from(offset) * i64::from(n_bytes);
        let place = if self.is_shared(buffer) {
            offset += i64::from(self.shared_offsets[&buffer]);
            Place::Shared(n_bytes)
        } else {
            Place::Global(buffer)
        };
        if let Some(bits) = self.constant(index) {
            let base = match place {
                Place::Global(buffer) => Base::Reg(self.params[&buffer].1),
                Place::Shared(_) => Base::Shared(0),
            };
            return Ok((base, offset + i64::from(fold::as_i32(bits)) * i64::from(n_bytes)));
        }
        Ok((Base::Reg(self.pointer(place, index, n_bytes)?), offset))
    }

    /// The register that a place starts at.
    fn origin(&self, place: Place) -> Reg {
        match place {
            Place::Global(buffer) => self.params[&buffer].1,
            Place::Shared(_) => {
                self.shared_base.expect("a kernel with shared arrays has their base")
            }
        }
    }

    /// A register that points to the element `index` of a place.
    fn pointer(&mut self, place: Place, index: Val, n_bytes: u32) -> Result<Reg, EmitError> {
        let key = (place, index);
        if let Some(&pointer) = self.scopes.iter().find_map(|scope| scope.pointers.get(&key)) {
            return Ok(pointer);
        }
        let depth = self.depths[index];
        let pointer = match self.stepping_pointer(place, index, n_bytes)? {
            Some(pointer) => pointer,
            None => {
                let (src, origin) = (self.src(index)?, reg(self.origin(place)));
                let (op, class) = match place {
                    Place::Global(_) => (Op::MadWideS32, RegClass::B64),
                    Place::Shared(_) => (Op::MadLoS32, RegClass::B32),
                };
                let pointer = self.fresh(class);
                self.inst_at(depth, op, vec![reg(pointer), src, int(n_bytes), origin]);
                pointer
            }
        };
        self.scopes[depth].pointers.insert(key, pointer);
        Ok(pointer)
    }

    /// A pointer that steps with the loop that defines the index, if the index is affine in its counter.
    fn stepping_pointer(
        &mut self,
        place: Place,
        index: Val,
        n_bytes: u32,
    ) -> Result<Option<Reg>, EmitError> {
        let depth = self.depths[index];
        let Some((counter, from, step)) = self.scopes[depth].counter else { return Ok(None) };
        let Some(affine) = self.affine(index, counter, depth) else { return Ok(None) };
        if affine.factor == 0 || !self.is_exact(&affine, counter) {
            return Ok(None);
        }
        let factor = affine.factor * i64::from(n_bytes);
        let increment =
            factor.checked_mul(i64::from(step)).and_then(|increment| i32::try_from(increment).ok());
        let (Some(increment), Ok(factor)) = (increment, i32::try_from(factor)) else {
            return Ok(None);
        };
        let base = match affine.base {
            Some(base) => self.pointer(place, base, n_bytes)?,
            None => self.origin(place),
        };
        let (add, mad, class) = match place {
            Place::Global(_) => (Op::AddS64, Op::MadWideS32, RegClass::B64),
            Place::Shared(_) => (Op::AddS32, Op::MadLoS32, RegClass::B32),
        };
        let pointer = self.fresh(class);
        let parent = depth - 1;
        let mut start = affine.constant * i64::from(n_bytes);
        let mut base = reg(base);
        let from = match from {
            Operand::Const(value) => Err(value),
            Operand::Val(val) => match self.constant(val) {
                Some(bits) => Err(fold::as_i32(bits)),
                None => Ok(val),
            },
        };
        match from {
            Err(value) => start += i64::from(value) * i64::from(factor),
            Ok(val) => {
                let src = self.src(val)?;
                self.inst_at(parent, mad, vec![reg(pointer), src, int(factor), base]);
                base = reg(pointer);
            }
        }
        if start != 0 {
            self.inst_at(parent, add, vec![reg(pointer), base, int(start)]);
        } else if base != reg(pointer) {
            self.inst_at(parent, super::mov_op(class), vec![reg(pointer), base]);
        }
        self.scopes[depth].increments.push((pointer, i64::from(increment)));
        Ok(Some(pointer))
    }

    /// The form of a value in a loop's counter, with a base that is defined outside of the loop.
    fn affine(&self, val: Val, counter: Val, depth: usize) -> Option<Affine> {
        if val == counter {
            return Some(Affine { base: None, factor: 1, constant: 0 });
        }
        if let Some(bits) = self.constant(val) {
            return Some(Affine { base: None, factor: 0, constant: i64::from(fold::as_i32(bits)) });
        }
        if self.depths[val] < depth {
            return Some(Affine { base: Some(val), factor: 0, constant: 0 });
        }
        let Some(Expr::Binary(op, a, b)) = self.plan.exprs[val] else { return None };
        let (x, y) = (self.affine(a, counter, depth)?, self.affine(b, counter, depth)?);
        match op {
            BinaryOp::Add if x.base.is_none() || y.base.is_none() => Some(Affine {
                base: x.base.or(y.base),
                factor: x.factor.checked_add(y.factor)?,
                constant: x.constant.checked_add(y.constant)?,
            }),
            BinaryOp::Sub if y.base.is_none() => Some(Affine {
                base: x.base,
                factor: x.factor.checked_sub(y.factor)?,
                constant: x.constant.checked_sub(y.constant)?,
            }),
            BinaryOp::Mul if x.base.is_none() && y.base.is_none() && y.factor == 0 => {
                Some(Affine {
                    base: None,
                    factor: x.factor.checked_mul(y.constant)?,
                    constant: x.constant.checked_mul(y.constant)?,
                })
            }
            _ => None,
        }
    }

    /// Whether an affine index, computed over the integers, is an `i32` throughout the loop.
    fn is_exact(&self, affine: &Affine, counter: Val) -> bool {
        let wide = |(lo, hi): (i64, i64)| (i128::from(lo), i128::from(hi));
        let (lo, hi) = wide(affine.base.map_or((0, 0), |base| self.plan.ranges[base]));
        let (first, last) = wide(self.plan.ranges[counter]);
        let factor = i128::from(affine.factor);
        let steps = ((first * factor).min(last * factor), (first * factor).max(last * factor));
        let constant = i128::from(affine.constant);
        lo + steps.0 + constant >= i128::from(i32::MIN)
            && hi + steps.1 + constant <= i128::from(i32::MAX)
    }

    // Accesses.

    fn mask(&mut self, mask: Option<Val>) -> Result<Option<Guard>, EmitError> {
        mask.map(|mask| self.guard_of(mask)).transpose()
    }

    pub(super) fn load(
        &mut self,
        dsts: &[Val],
        buffer: Buffer,
        index: Val,
        offset: i32,
        mask: Option<Val>,
    ) -> Result<(), EmitError> {
        if self.kernel.buffers[buffer].dtype.bits() < 8 && !self.is_shared(buffer) {
            return self.load_parts(dsts, buffer, index, offset, mask);
        }
        let (dtype, unit, n_bytes) = self.element(buffer)?;
        let shared = self.is_shared(buffer);
        let cached = self.kernel.buffers[buffer].space == Space::Global { writable: false };
        let guard = self.mask(mask)?;
        let (base, mut at) = self.address(buffer, index, offset)?;
        let depth = self.depth();
        let mut rest = dsts;
        while !rest.is_empty() {
            let (n, op) = widest(rest.len(), |n| load_op(shared, cached, unit, n));
            let raw: Vec<Reg> = rest[..n].iter().map(|_| self.fresh(unit.class())).collect();
            if guard.is_some() {
                for &dst in &raw {
                    self.inst(
                        super::mov_op(dst.class),
                        vec![reg(dst), super::immediate(dst.class, 0)],
                    );
                }
            }
            let dst = if n == 1 { reg(raw[0]) } else { ast::Operand::Regs(raw.clone()) };
            self.guarded(guard, op, vec![dst, ast::Operand::Address { base, offset: at }]);
            for (&val, &raw) in rest[..n].iter().zip(&raw) {
                self.depths[val] = depth;
                self.regs[val] = Some(self.widen(dtype, raw));
            }
            at += i64::from(n_bytes) * n as i64;
            rest = &rest[n..];
        }
        Ok(())
    }

    /// Loads elements of 4 or 2 bits, the first of a byte in its lowest bits.
    fn load_parts(
        &mut self,
        dsts: &[Val],
        buffer: Buffer,
        index: Val,
        offset: i32,
        mask: Option<Val>,
    ) -> Result<(), EmitError> {
        let guard = self.mask(mask)?;
        let (depth, origin) = (self.depth(), self.params[&buffer].1);
        let dtype = self.kernel.buffers[buffer].dtype;
        // A byte has 2^scale elements of 2^width bits.
        let width = dtype.bits().trailing_zeros() as i32;
        let (n_bits, scale) = (1 << width, 3 - width);
        let last = (1 << scale) - 1;
        for (i, &val) in dsts.iter().enumerate() {
            let offset = offset + i as i32;
            let raw = self.fresh(RegClass::B32);
            if guard.is_some() {
                self.inst(Op::MovU32, vec![reg(raw), int(0)]);
            }
            // Position in the byte, in bits.
            let (address, shift) = match self.constant(index) {
                Some(bits) => {
                    let at = fold::as_i32(bits).wrapping_add(offset);
                    let address = ast::Operand::Address {
                        base: Base::Reg(origin),
                        offset: i64::from(at >> scale),
                    };
                    (address, int(n_bits * (at & last)))
                }
                None => {
                    let mut at = self.src(index)?;
                    if offset != 0 {
                        let sum = self.fresh(RegClass::B32);
                        self.inst(Op::AddS32, vec![reg(sum), at, int(offset)]);
                        at = reg(sum);
                    }
                    let (byte, part, bits) = (
                        self.fresh(RegClass::B32),
                        self.fresh(RegClass::B32),
                        self.fresh(RegClass::B32),
                    );
                    self.inst(Op::ShrS32, vec![reg(byte), at.clone(), int(scale)]);
                    self.inst(Op::AndB32, vec![reg(part), at, int(last)]);
                    self.inst(Op::ShlB32, vec![reg(bits), reg(part), int(width)]);
                    let pointer = self.fresh(RegClass::B64);
                    self.inst(Op::MadWideS32, vec![reg(pointer), reg(byte), int(1), reg(origin)]);
                    (ast::Operand::Address { base: Base::Reg(pointer), offset: 0 }, reg(bits))
                }
            };
            self.guarded(guard, Op::LdGlobalU8, vec![reg(raw), address]);
            let (shifted, dst) = (self.fresh(RegClass::B32), self.fresh(RegClass::B32));
            self.inst(Op::ShrU32, vec![reg(shifted), reg(raw), shift]);
            if matches!(dtype, DType::I4 | DType::I2) {
                let up = self.fresh(RegClass::B32);
                self.inst(Op::ShlB32, vec![reg(up), reg(shifted), int(32 - n_bits)]);
                self.inst(Op::ShrS32, vec![reg(dst), reg(up), int(32 - n_bits)]);
            } else {
                self.inst(Op::AndB32, vec![reg(dst), reg(shifted), int((1 << n_bits) - 1)]);
            }
            self.depths[val] = depth;
            self.regs[val] = Some(dst);
        }
        Ok(())
    }

    /// An element as it is in memory to the scalar that kernels compute with.
    fn widen(&mut self, dtype: DType, raw: Reg) -> Reg {
        match dtype {
            DType::F16 => {
                let dst = self.fresh(RegClass::F32);
                self.inst(Op::CvtF32F16, vec![reg(dst), reg(raw)]);
                dst
            }
            DType::BF16 => {
                // The upper half of an `f32`; `cvt.f32.bf16` needs sm_90.
                let (wide, shifted) = (self.fresh(RegClass::B32), self.fresh(RegClass::B32));
                let dst = self.fresh(RegClass::F32);
                self.inst(Op::CvtU32U16, vec![reg(wide), reg(raw)]);
                self.inst(Op::ShlB32, vec![reg(shifted), reg(wide), int(16)]);
                self.inst(Op::MovB32, vec![reg(dst), reg(shifted)]);
                dst
            }
            DType::I16 | DType::U16 => {
                let dst = self.fresh(RegClass::B32);
                let op = if dtype == DType::I16 { Op::CvtS32S16 } else { Op::CvtU32U16 };
                self.inst(op, vec![reg(dst), reg(raw)]);
                dst
            }
            DType::U32 => {
                let dst = self.fresh(RegClass::B64);
                self.inst(Op::CvtU64U32, vec![reg(dst), reg(raw)]);
                dst
            }
            _ => raw,
        }
    }

    pub(super) fn store(
        &mut self,
        buffer: Buffer,
        index: Val,
        offset: i32,
        srcs: &[Val],
        mask: Option<Val>,
    ) -> Result<(), EmitError> {
        let (dtype, unit, n_bytes) = self.element(buffer)?;
        let shared = self.is_shared(buffer);
        let guard = self.mask(mask)?;
        let (base, mut at) = self.address(buffer, index, offset)?;
        let mut raw = Vec::new();
        for &src in srcs {
            let src = self.reg(src)?;
            raw.push(self.narrow(dtype, src));
        }
        let mut rest = &raw[..];
        while !rest.is_empty() {
            let (n, op) = widest(rest.len(), |n| store_op(shared, unit, n));
            let src = if n == 1 { reg(rest[0]) } else { ast::Operand::Regs(rest[..n].to_vec()) };
            self.guarded(guard, op, vec![ast::Operand::Address { base, offset: at }, src]);
            at += i64::from(n_bytes) * n as i64;
            rest = &rest[n..];
        }
        Ok(())
    }

    fn narrow(&mut self, dtype: DType, src: Reg) -> Reg {
        let (op, class) = match dtype {
            DType::F16 => (Op::CvtRnF16F32, RegClass::B16),
            DType::BF16 => (Op::CvtRnBf16F32, RegClass::B16),
            DType::I16 | DType::U16 => (Op::CvtU16U32, RegClass::B16),
            DType::U32 => (Op::CvtU32U64, RegClass::B32),
            _ => return src,
        };
        let dst = self.fresh(class);
        self.inst(op, vec![reg(dst), reg(src)]);
        dst
    }

    pub(super) fn copy_async(
        &mut self,
        dst: (Buffer, Val, i32),
        src: (Buffer, Val, i32),
        n_elems: u32,
        mask: Option<Val>,
    ) -> Result<(), EmitError> {
        let (dtype, _, _) = self.element(dst.0)?;
        let n_bytes = dtype.bytes_for(n_elems as usize);
        let op = match n_bytes {
            4 | 8 => Op::CpAsyncCa,
            16 => Op::CpAsyncCg,
            _ => return Err(EmitError::CopySize { kernel: self.kernel.name.clone(), n_bytes }),
        };
        let guard = self.mask(mask)?;
        let (dst_base, dst_at) = self.address(dst.0, dst.1, dst.2)?;
        let (src_base, src_at) = self.address(src.0, src.1, src.2)?;
        let to = ast::Operand::Address { base: dst_base, offset: dst_at };
        let from = ast::Operand::Address { base: src_base, offset: src_at };
        self.guarded(guard, op, vec![to.clone(), from, int(n_bytes as i64)]);
        if let Some(guard) = guard {
            let zero = self.const_reg(RegClass::B32, 0);
            let (op, zeros) = match n_bytes {
                4 => (Op::StSharedU32, reg(zero)),
                8 => (Op::StSharedV2U32, ast::Operand::Regs(vec![zero; 2])),
                _ => (Op::StSharedV4U32, ast::Operand::Regs(vec![zero; 4])),
            };
            self.guarded(Some(Guard { negated: !guard.negated, ..guard }), op, vec![to, zeros]);
        }
        Ok(())
    }
}
