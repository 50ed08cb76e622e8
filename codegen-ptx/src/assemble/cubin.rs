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
    let names: Vec<Option<&str>> = opcodes.clone().map(name).collect();
    let n_used = names.iter().rposition(|&name| name != Some("NOP")).map_or(0, |last| last + 1);
    let mut mix = InstructionMix::default();
    for (opcode, name) in opcodes.zip(names).take(n_used) {
        let name = name.map_or_else(|| format!("0x{opcode:03x}"), str::to_owned);
        *mix.counts.entry(name).or_default() += 1;
        mix.n_instructions += 1;
    }
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

    #[test]
    fn broken_files_are_errors() {
        assert_eq!(instruction_mix(b"text"), Err(CubinError::Magic));
        let mut file = b"\x7fELF\x02\x01".to_vec();
        file.resize(64, 0xFF);
        assert!(matches!(instruction_mix(&file), Err(CubinError::Truncated { .. })));
    }
}
