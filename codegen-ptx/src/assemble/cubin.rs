//! Machine code of a cubin: which instructions, how often. Static counts, not executed ones.
//!
//! A cubin is an ELF64 file, little-endian; the code of kernel `k` is section `.text.k`, 16 bytes an
//! instruction, whose lowest 12 bits are the opcode with the kinds of its operands.
//! Decoding takes microseconds; nvdisasm takes 0.4 s.

use std::collections::BTreeMap;

use thiserror::Error;

use super::opcodes::OPCODES;

/// Bytes of an instruction, since sm_70.
const INSTRUCTION_BYTES: usize = 16;

/// Bits of the first word that tell instructions apart.
const OPCODE_MASK: u16 = 0xFFF;

/// How often each machine instruction stands in a kernel.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct InstructionMix {
    /// By name, such as `FFMA`; an opcode that has no name here is written `0x123`.
    pub counts: BTreeMap<String, u32>,
    /// All, without the `NOP`s that pad the end.
    pub n_instructions: u32,
}

impl InstructionMix {
    /// How often an instruction stands in the kernel.
    pub fn count(&self, name: &str) -> u32 {
        self.counts.get(name).copied().unwrap_or(0)
    }

    fn count_one(&mut self, opcode: u16) {
        let name = name(opcode).map_or_else(|| format!("0x{opcode:03x}"), str::to_owned);
        *self.counts.entry(name).or_default() += 1;
        self.n_instructions += 1;
    }
}

/// A part of a kernel's code.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Part {
    /// Which instructions, how often.
    pub mix: InstructionMix,
    /// Clocks that a warp waits by itself before it issues them, together: the time of one pass without
    /// waits for memory.
    pub stall_clk: u32,
}

/// A kernel's code, split at its loops: what of it a thread passes once, and what it may repeat.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct KernelCode {
    /// Not in a loop.
    pub outside: Part,
    /// In a loop, each instruction once.
    pub inside: Part,
    /// Loops: backward branches before the end of the main path.
    pub n_loops: u32,
}

/// Why a file is not a cubin as we know it.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CubinError {
    /// Its beginning is another.
    #[error("not an ELF64 little-endian file")]
    Magic,
    /// A header points outside the file.
    #[error("the file of {n_bytes} bytes ends before offset {offset}")]
    Truncated {
        /// Where something should be.
        offset: usize,
        /// Size of the file.
        n_bytes: usize,
    },
    /// Code that is not whole instructions.
    #[error("section `{section}` has {n_bytes} bytes, which are not whole instructions")]
    Code {
        /// Name of the section.
        section: String,
        /// Its size.
        n_bytes: usize,
    },
    /// Branches that lead nowhere, however they are read.
    #[error("section `{section}`: the branches cannot be read")]
    Branches {
        /// Name of the section.
        section: String,
    },
}

/// The instruction mix of each kernel, in the order of the file.
///
/// # Errors
///
/// [`CubinError`].
pub fn instruction_mix(cubin: &[u8]) -> Result<Vec<(String, InstructionMix)>, CubinError> {
    let mut kernels = Vec::new();
    for section in sections(cubin)? {
        let Some(kernel) = section.name.strip_prefix(".text.") else { continue };
        if section.bytes.len() % INSTRUCTION_BYTES != 0 {
            return Err(CubinError::Code {
                section: section.name.clone(),
                n_bytes: section.bytes.len(),
            });
        }
        kernels.push((kernel.to_owned(), mix(section.bytes)));
    }
    Ok(kernels)
}

/// The code of each kernel, split at its loops, in the order of the file.
///
/// # Errors
///
/// [`CubinError`].
pub fn kernel_codes(cubin: &[u8]) -> Result<Vec<(String, KernelCode)>, CubinError> {
    let mut kernels = Vec::new();
    for section in sections(cubin)? {
        let Some(kernel) = section.name.strip_prefix(".text.") else { continue };
        let n_bytes = section.bytes.len();
        if n_bytes % INSTRUCTION_BYTES != 0 {
            return Err(CubinError::Code { section: section.name.clone(), n_bytes });
        }
        let insts: Vec<Inst> =
            section.bytes.chunks_exact(INSTRUCTION_BYTES).map(Inst::read).collect();
        let code = split(&insts);
        let code = code.ok_or_else(|| CubinError::Branches { section: section.name.clone() })?;
        kernels.push((kernel.to_owned(), code));
    }
    Ok(kernels)
}

/// An instruction's two words.
#[derive(Clone, Copy)]
struct Inst {
    low: u64,
    high: u64,
}

impl Inst {
    fn read(bytes: &[u8]) -> Self {
        let word =
            |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"));
        Inst { low: word(0), high: word(8) }
    }

    fn opcode(self) -> u16 {
        self.low as u16 & OPCODE_MASK
    }

    /// Bits 41 to 44 of the second word.
    fn stall_clk(self) -> u32 {
        (self.high >> 41 & 15) as u32
    }

    /// Whether it has no guard.
    fn is_always(self) -> bool {
        self.low >> 12 & 15 == 7
    }

    /// Where a branch leads, in instructions from this one. The distance is in words of 4 bytes from the
    /// next instruction: bits 34 to 81, and from sm_90 on with eight lower bits at 16 to 23.
    fn target(self, has_low_bits: bool) -> Option<i64> {
        let high = ((u128::from(self.high) << 64 | u128::from(self.low)) >> 34) as i64;
        let distance = high << 16 >> 16;
        let words = match has_low_bits {
            true => distance.checked_mul(256)? | (self.low >> 16 & 0xFF) as i64,
            false => distance,
        };
        let words_of_an_instruction = (INSTRUCTION_BYTES / 4) as i64;
        (words % words_of_an_instruction == 0).then_some(words / words_of_an_instruction + 1)
    }
}

/// Opcodes of relative branches: with a predicate, and with one that is the same for the warp.
const BRANCHES: [u16; 2] = [0x947, 0x547];
const EXIT: u16 = 0x94d;

/// Splits code at its loops; `None` if its branches cannot be read in either form. They can if all lead
/// to instructions, and the last is the endless loop to itself with which ptxas ends a kernel.
fn split(insts: &[Inst]) -> Option<KernelCode> {
    let branches: Vec<usize> =
        (0..insts.len()).filter(|&at| BRANCHES.contains(&insts[at].opcode())).collect();
    let targets = |has_low_bits: bool| -> Option<Vec<usize>> {
        let target = |&at: &usize| {
            let to = insts[at].target(has_low_bits)?.checked_add(at as i64)?;
            usize::try_from(to).ok().filter(|&to| to < insts.len())
        };
        let targets: Vec<usize> = branches.iter().map(target).collect::<Option<_>>()?;
        (targets.last() == branches.last()).then_some(targets)
    };
    let targets = targets(false).or_else(|| targets(true))?;
    // Code behind the end of the main path is of rare cases, and comes back from there.
    let is_end = |inst: &Inst| inst.opcode() == EXIT && inst.is_always();
    let end = insts.iter().rposition(|inst| inst.opcode() == EXIT).unwrap_or(insts.len());
    let end = insts.iter().position(is_end).unwrap_or(end);
    let mut is_inside = vec![false; insts.len()];
    let mut code = KernelCode::default();
    for (&at, &to) in branches.iter().zip(&targets) {
        if to < at && at < end {
            code.n_loops += 1;
            is_inside[to..=at].fill(true);
        }
    }
    let is_nop = |inst: &Inst| name(inst.opcode()) == Some("NOP");
    let n_used = insts.iter().rposition(|inst| !is_nop(inst)).map_or(0, |last| last + 1);
    for (inst, is_inside) in insts.iter().zip(is_inside).take(n_used) {
        let part = if is_inside { &mut code.inside } else { &mut code.outside };
        part.mix.count_one(inst.opcode());
        part.stall_clk += inst.stall_clk();
    }
    Some(code)
}

/// The section in which an assembler names itself and its command line.
pub const TOOL_NOTE: &str = ".note.nv.tkinfo";

/// Names of the sections that differ between two cubins, in the order of the first file.
///
/// The same compiler as a process and as a library makes the same sections but [`TOOL_NOTE`].
///
/// # Errors
///
/// [`CubinError`] of either file.
pub fn differences(a: &[u8], b: &[u8]) -> Result<Vec<String>, CubinError> {
    let (a, b) = (sections(a)?, sections(b)?);
    let mut different = Vec::new();
    for section in &a {
        let same = b.iter().any(|it| it.name == section.name && it.bytes == section.bytes);
        if !same && !different.contains(&section.name) {
            different.push(section.name.clone());
        }
    }
    let new = b.iter().filter(|it| !a.iter().any(|other| other.name == it.name));
    different.extend(new.map(|it| it.name.clone()));
    Ok(different)
}

fn mix(code: &[u8]) -> InstructionMix {
    let opcodes = code
        .chunks_exact(INSTRUCTION_BYTES)
        .map(|inst| u16::from_le_bytes([inst[0], inst[1]]) & OPCODE_MASK);
    let n_padding = opcodes.clone().rev().take_while(|&it| name(it) == Some("NOP")).count();
    let n_used = opcodes.len() - n_padding;
    let mut mix = InstructionMix::default();
    opcodes.take(n_used).for_each(|opcode| mix.count_one(opcode));
    mix
}

fn name(opcode: u16) -> Option<&'static str> {
    OPCODES.binary_search_by_key(&opcode, |row| row.0).ok().map(|found| OPCODES[found].1)
}

struct Section<'c> {
    name: String,
    bytes: &'c [u8],
}

/// ELF64: offset, size and count of the section headers are at 0x28, 0x3A, 0x3C of the file header, the
/// index of the names' section at 0x3E. Source: System V ABI, chapter 4.
fn sections(file: &[u8]) -> Result<Vec<Section<'_>>, CubinError> {
    if file.get(..6) != Some(b"\x7fELF\x02\x01") {
        return Err(CubinError::Magic);
    }
    let headers = offset(file, 0x28)?;
    let header_bytes = usize::from(half(file, 0x3A)?);
    let n_sections = usize::from(half(file, 0x3C)?);
    let at = |idx: usize| headers.saturating_add(idx * header_bytes);
    let body = |idx: usize| {
        slice(
            file,
            offset(file, at(idx).saturating_add(0x18))?,
            offset(file, at(idx).saturating_add(0x20))?,
        )
    };
    let names = body(usize::from(half(file, 0x3E)?))?;
    let mut sections = Vec::with_capacity(n_sections);
    for idx in 0..n_sections {
        const NOBITS: u32 = 8; // Has a size, but no bytes in the file.
        let name_at = word(file, at(idx))? as usize;
        let name = names
            .get(name_at..)
            .unwrap_or_default()
            .split(|&byte| byte == 0)
            .next()
            .unwrap_or_default();
        let is_empty = word(file, at(idx).saturating_add(4))? == NOBITS;
        let bytes = if is_empty { &[] } else { body(idx)? };
        sections.push(Section { name: String::from_utf8_lossy(name).into_owned(), bytes });
    }
    Ok(sections)
}

fn slice(file: &[u8], offset: usize, n_bytes: usize) -> Result<&[u8], CubinError> {
    let end = offset.saturating_add(n_bytes);
    file.get(offset..end).ok_or(CubinError::Truncated { offset: end, n_bytes: file.len() })
}

fn half(file: &[u8], at: usize) -> Result<u16, CubinError> {
    slice(file, at, 2).map(|bytes| u16::from_le_bytes(bytes.try_into().expect("two bytes")))
}

fn word(file: &[u8], at: usize) -> Result<u32, CubinError> {
    slice(file, at, 4).map(|bytes| u32::from_le_bytes(bytes.try_into().expect("four bytes")))
}

fn offset(file: &[u8], at: usize) -> Result<usize, CubinError> {
    let bytes = slice(file, at, 8)?;
    let value = u64::from_le_bytes(bytes.try_into().expect("eight bytes"));
    Ok(usize::try_from(value).unwrap_or(usize::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn opcodes_are_sorted() {
        assert!(OPCODES.windows(2).all(|pair| pair[0].0 < pair[1].0));
    }

    #[test]
    fn padding_is_not_counted() {
        let nop = OPCODES.iter().find(|row| row.1 == "NOP").unwrap().0;
        let ffma = OPCODES.iter().find(|row| row.1 == "FFMA").unwrap().0;
        let code: Vec<u8> = [ffma, nop, ffma, nop, nop]
            .iter()
            .flat_map(|opcode| {
                let mut inst = [0_u8; INSTRUCTION_BYTES];
                inst[..2].copy_from_slice(&(opcode | 0xF000).to_le_bytes());
                inst
            })
            .collect();
        let mix = mix(&code);
        assert_eq!((mix.count("FFMA"), mix.count("NOP"), mix.n_instructions), (2, 1, 3));
    }

    /// An instruction with a guard (7: none), a stall of two clocks and, if it is a branch, a distance in
    /// instructions from itself.
    fn inst(opcode: u16, guard: u64, distance: Option<(i64, bool)>) -> Inst {
        let mut bits = u128::from(opcode) | u128::from(guard) << 12 | 2 << (64 + 41);
        if let Some((instructions, has_low_bits)) = distance {
            let words = (instructions - 1) * 4;
            let (high, low) = if has_low_bits { (words >> 8, words & 0xFF) } else { (words, 0) };
            bits |= (high as u128 & ((1 << 48) - 1)) << 34 | (low as u128) << 16;
        }
        Inst { low: bits as u64, high: (bits >> 64) as u64 }
    }

    #[test]
    fn loops_are_found_in_both_forms_of_branches() {
        let ffma = OPCODES.iter().find(|row| row.1 == "FFMA").unwrap().0;
        let mov = OPCODES.iter().find(|row| row.1 == "MOV").unwrap().0;
        for has_low_bits in [false, true] {
            let code = |to: i64| {
                [
                    inst(mov, 7, None),
                    inst(ffma, 7, None),
                    inst(ffma, 7, None),
                    inst(0x947, 0, Some((to, has_low_bits))),
                    inst(EXIT, 7, None),
                    // A rare case, which comes back.
                    inst(mov, 7, None),
                    inst(0x947, 7, Some((-2, has_low_bits))),
                    inst(0x947, 7, Some((0, has_low_bits))),
                ]
            };
            let split_up = split(&code(-2)).unwrap();
            assert_eq!((split_up.n_loops, split_up.inside.mix.count("FFMA")), (1, 2));
            assert_eq!((split_up.inside.mix.n_instructions, split_up.inside.stall_clk), (3, 6));
            assert_eq!(split_up.outside.mix.n_instructions, 5);
            assert_eq!(split(&code(2)).unwrap().n_loops, 0, "a branch forwards is no loop");
            assert_eq!(split(&code(-20)), None, "there is nothing before the beginning");
            assert_eq!(split(&code(-2)[..7]), None, "the end is missing");
        }
    }

    #[test]
    fn broken_files_are_errors() {
        assert_eq!(instruction_mix(b"text"), Err(CubinError::Magic));
        let mut file = b"\x7fELF\x02\x01".to_vec();
        file.resize(64, 0xFF);
        assert!(matches!(instruction_mix(&file), Err(CubinError::Truncated { .. })));
    }
}
