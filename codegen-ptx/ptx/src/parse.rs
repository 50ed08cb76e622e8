//! The parser: reads what the printer writes, with free white space and comments.
//!
//! It checks what the text alone decides: operands against the table row, declared registers, known
//! names, defined labels. Anything outside the printed subset of PTX is an error with its place; no
//! input panics.

mod cursor;

use miette::{Diagnostic, SourceSpan};
use thiserror::Error;

use crate::ast::{
    Base, Entry, Guard, Inst, Label, Module, Operand, Param, ParamType, Reg, RegClass, Shared,
    Special, Stmt,
};
use crate::table::{Op, Slot};
use cursor::Cursor;

/// Bound of register counts and label numbers, so that a typo does not make a reader allocate gigabytes.
const MAX_NUMBER: u32 = 1 << 20;

/// Why text is not a module, and where.
#[derive(Clone, Debug, PartialEq, Eq, Error, Diagnostic)]
#[error("line {line}, column {column}: {kind}")]
pub struct ParseError {
    /// What is wrong.
    pub kind: ParseErrorKind,
    /// Line, from 1.
    pub line: u32,
    /// Byte in the line, from 1.
    pub column: u32,
    /// Bytes of the text.
    #[label("here")]
    pub span: SourceSpan,
}

/// What is wrong at the place of a [`ParseError`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum ParseErrorKind {
    #[error("expected {expected}, found {found}")]
    Expected { expected: &'static str, found: String },
    #[error("unknown instruction `{mnemonic}`")]
    UnknownInstruction { mnemonic: String },
    #[error("operand {position} of `{op}` is {expected}, found `{found}`")]
    Operand { op: Op, position: usize, expected: Slot, found: String },
    #[error("register `{name}` is not declared")]
    UndeclaredRegister { name: String },
    #[error("no parameter and no shared array is called `{name}`")]
    UnknownName { name: String },
    #[error("`{name}` is declared twice")]
    Duplicate { name: String },
    #[error("label `{label}` is not defined", label = Label(*.0))]
    UndefinedLabel(u32),
    #[error("`{text}` is out of range: {expected}")]
    Range { text: String, expected: &'static str },
}

/// A module and the lines of its statements.
#[derive(Clone, Debug, PartialEq)]
pub struct Parsed {
    /// The module.
    pub module: Module,
    /// For each entry, for each statement of its body: the line on which it begins, from 1.
    pub lines: Vec<Vec<u32>>,
}

/// Parses a module.
///
/// # Errors
///
/// [`ParseError`] at the first place that is not of the printed subset of PTX.
pub fn parse(text: &str) -> Result<Module, ParseError> {
    parse_with_lines(text).map(|parsed| parsed.module)
}

/// Parses a module, and says on which line each statement begins.
///
/// # Errors
///
/// As [`parse`].
pub fn parse_with_lines(text: &str) -> Result<Parsed, ParseError> {
    let mut parser = Parser { cursor: Cursor::new(text) };
    parser.module()
}

struct Parser<'t> {
    cursor: Cursor<'t>,
}

/// What the parser knows of the entry that it is in.
struct Scope {
    entry: Entry,
    /// Declared registers, by class.
    n_regs: [u32; RegClass::ALL.len()],
    /// Labels that are defined, by number.
    defined: Vec<bool>,
    /// Labels that are used, and where.
    used: Vec<(u32, usize)>,
}

impl<'t> Parser<'t> {
    fn module(&mut self) -> Result<Parsed, ParseError> {
        self.cursor.keyword(".version")?;
        let major = self.cursor.number("a version such as 7.0")?;
        self.cursor.punctuation(b'.', "`.`")?;
        let minor = self.cursor.number("a version such as 7.0")?;
        self.cursor.keyword(".target")?;
        let target = self.cursor.identifier("a target such as sm_80")?.to_owned();
        self.cursor.keyword(".address_size")?;
        self.cursor.keyword("64")?;
        let mut module = Module { version: (major, minor), target, entries: Vec::new() };
        let mut lines = Vec::new();
        while !self.cursor.at_end() {
            let start = self.cursor.position();
            let (entry, entry_lines) = self.entry()?;
            if module.entries.iter().any(|other| other.name == entry.name) {
                let name = entry.name;
                return Err(self.cursor.error_at(start, ParseErrorKind::Duplicate { name }));
            }
            module.entries.push(entry);
            lines.push(entry_lines);
        }
        Ok(Parsed { module, lines })
    }

    fn entry(&mut self) -> Result<(Entry, Vec<u32>), ParseError> {
        self.cursor.keyword(".visible")?;
        self.cursor.keyword(".entry")?;
        let name = self.cursor.identifier("a kernel's name")?.to_owned();
        let entry = Entry {
            name,
            params: Vec::new(),
            reqntid: None,
            minnctapersm: None,
            n_regs: Vec::new(),
            shared: Vec::new(),
            n_labels: 0,
            body: Vec::new(),
        };
        let mut scope = Scope { entry, n_regs: [0; 6], defined: Vec::new(), used: Vec::new() };
        self.params(&mut scope)?;
        self.performance_directives(&mut scope.entry)?;
        self.cursor.punctuation(b'{', "`{`")?;
        self.declarations(&mut scope)?;
        let lines = self.body(&mut scope)?;
        for &(label, position) in &scope.used {
            if !scope.defined.get(label as usize).copied().unwrap_or(false) {
                return Err(self.cursor.error_at(position, ParseErrorKind::UndefinedLabel(label)));
            }
        }
        scope.entry.n_labels =
            u32::try_from(scope.defined.len()).expect("labels are below MAX_NUMBER");
        Ok((scope.entry, lines))
    }

    fn params(&mut self, scope: &mut Scope) -> Result<(), ParseError> {
        self.cursor.punctuation(b'(', "`(`")?;
        if self.cursor.eat(b')') {
            return Ok(());
        }
        loop {
            self.cursor.keyword(".param")?;
            let start = self.cursor.position();
            let ty = match self.cursor.directive() {
                ".u32" => ParamType::U32,
                ".u64" => ParamType::U64,
                ".f32" => ParamType::F32,
                _ => return Err(self.cursor.expected_at(start, "`.u32`, `.u64` or `.f32`")),
            };
            let name = self.new_name(scope, "a parameter's name")?;
            scope.entry.params.push(Param { name, ty });
            if self.cursor.eat(b')') {
                return Ok(());
            }
            self.cursor.punctuation(b',', "`,` or `)`")?;
        }
    }

    fn new_name(&mut self, scope: &Scope, what: &'static str) -> Result<String, ParseError> {
        let start = self.cursor.position();
        let name = self.cursor.identifier(what)?.to_owned();
        let known = scope.entry.params.iter().map(|param| &param.name);
        if known
            .chain(scope.entry.shared.iter().map(|array| &array.name))
            .any(|other| *other == name)
        {
            return Err(self.cursor.error_at(start, ParseErrorKind::Duplicate { name }));
        }
        Ok(name)
    }

    fn performance_directives(&mut self, entry: &mut Entry) -> Result<(), ParseError> {
        loop {
            let start = self.cursor.position();
            if self.cursor.peek() != Some(b'.') {
                return Ok(());
            }
            match self.cursor.directive() {
                ".reqntid" if entry.reqntid.is_none() => {
                    let mut dims = [1; 3];
                    dims[0] = self.cursor.positive("a number of threads")?;
                    for dim in &mut dims[1..] {
                        if !self.cursor.eat(b',') {
                            break;
                        }
                        *dim = self.cursor.positive("a number of threads")?;
                    }
                    entry.reqntid = Some(dims);
                }
                ".minnctapersm" if entry.minnctapersm.is_none() => {
                    entry.minnctapersm = Some(self.cursor.positive("a number of blocks")?);
                }
                name @ (".reqntid" | ".minnctapersm") => {
                    let name = name.to_owned();
                    return Err(self.cursor.error_at(start, ParseErrorKind::Duplicate { name }));
                }
                _ => {
                    return Err(self
                        .cursor
                        .expected_at(start, "`.reqntid`, `.minnctapersm` or `{`"));
                }
            }
        }
    }

    fn declarations(&mut self, scope: &mut Scope) -> Result<(), ParseError> {
        while self.cursor.peek() == Some(b'.') {
            let start = self.cursor.position();
            match self.cursor.directive() {
                ".reg" => self.registers(scope)?,
                ".shared" => self.shared(scope)?,
                _ => {
                    return Err(self.cursor.expected_at(start, "`.reg`, `.shared` or a statement"));
                }
            }
            self.cursor.punctuation(b';', "`;`")?;
        }
        Ok(())
    }

    fn registers(&mut self, scope: &mut Scope) -> Result<(), ParseError> {
        let start = self.cursor.position();
        let name = self.cursor.directive();
        let Some(class) = RegClass::ALL.into_iter().find(|class| class.type_name() == name) else {
            return Err(self.cursor.expected_at(start, "a register type such as `.b32`"));
        };
        if scope.n_regs[class as usize] != 0 {
            return Err(self
                .cursor
                .error_at(start, ParseErrorKind::Duplicate { name: name.to_owned() }));
        }
        let start = self.cursor.position();
        self.cursor.punctuation(b'%', "a register name such as `%r<2>`")?;
        if self.cursor.word() != class.prefix() {
            return Err(self
                .cursor
                .expected_at(start, "the class's register name, such as `%r` for `.b32`"));
        }
        self.cursor.punctuation(b'<', "`<`")?;
        let n = self.cursor.below(MAX_NUMBER, "1 to 1048575 registers")?;
        if n == 0 {
            return Err(self.cursor.expected_at(start, "at least one register"));
        }
        self.cursor.punctuation(b'>', "`>`")?;
        scope.n_regs[class as usize] = n;
        scope.entry.n_regs.push((class, n));
        Ok(())
    }

    fn shared(&mut self, scope: &mut Scope) -> Result<(), ParseError> {
        self.cursor.keyword(".align")?;
        let start = self.cursor.position();
        let align_bytes = self.cursor.positive("an alignment")?;
        if !align_bytes.is_power_of_two() {
            return Err(self.cursor.expected_at(start, "a power of two"));
        }
        self.cursor.keyword(".b8")?;
        let name = self.new_name(scope, "an array's name")?;
        self.cursor.punctuation(b'[', "`[`")?;
        let n_bytes = self.cursor.positive("a number of bytes")?;
        self.cursor.punctuation(b']', "`]`")?;
        scope.entry.shared.push(Shared { name, align_bytes, n_bytes });
        Ok(())
    }

    /// Statements up to the closing brace, and their lines.
    fn body(&mut self, scope: &mut Scope) -> Result<Vec<u32>, ParseError> {
        let mut lines = Vec::new();
        loop {
            let next = self.cursor.peek();
            if next == Some(b'}') {
                self.cursor.bump();
                return Ok(lines);
            }
            lines.push(self.cursor.line());
            let stmt = if next == Some(b'$') {
                let start = self.cursor.position();
                let label = self.label()?;
                self.cursor.punctuation(b':', "`:`")?;
                self.define(scope, label, start)?;
                Stmt::Label(label)
            } else {
                Stmt::Inst(self.inst(scope)?)
            };
            scope.entry.body.push(stmt);
        }
    }

    fn define(&mut self, scope: &mut Scope, label: Label, start: usize) -> Result<(), ParseError> {
        let idx = label.0 as usize;
        if scope.defined.len() <= idx {
            scope.defined.resize(idx + 1, false);
        }
        if std::mem::replace(&mut scope.defined[idx], true) {
            return Err(self
                .cursor
                .error_at(start, ParseErrorKind::Duplicate { name: label.to_string() }));
        }
        Ok(())
    }

    fn label(&mut self) -> Result<Label, ParseError> {
        let start = self.cursor.position();
        self.cursor.punctuation(b'$', "a label such as `$L0`")?;
        if !self.cursor.eat_adjacent(b'L') {
            return Err(self.cursor.expected_at(start, "a label such as `$L0`"));
        }
        Ok(Label(self.cursor.adjacent_number(MAX_NUMBER, "a label number below 1048576")?))
    }

    fn inst(&mut self, scope: &mut Scope) -> Result<Inst, ParseError> {
        let guard = if self.cursor.eat(b'@') {
            let negated = self.cursor.eat(b'!');
            let start = self.cursor.position();
            match self.percent(scope)? {
                Operand::Reg(pred) if pred.class == RegClass::Pred => Some(Guard { pred, negated }),
                _ => return Err(self.cursor.expected_at(start, "a predicate register")),
            }
        } else {
            None
        };
        let start = self.cursor.position();
        let mnemonic = self.cursor.mnemonic();
        if mnemonic.is_empty() {
            return Err(self.cursor.expected_at(start, "an instruction, a label or `}`"));
        }
        let Some(op) = Op::from_mnemonic(mnemonic) else {
            let mnemonic = mnemonic.to_owned();
            return Err(self
                .cursor
                .error_at(start, ParseErrorKind::UnknownInstruction { mnemonic }));
        };
        let signature = op.spec().signature;
        let mut operands = Vec::with_capacity(signature.len());
        for (i, &slot) in signature.iter().enumerate() {
            if i > 0 {
                self.cursor.punctuation(b',', "`,`")?;
            }
            let start = self.cursor.position();
            let operand = self.operand(scope)?;
            if !slot.accepts(&operand) {
                let found = self.cursor.text_since(start).to_owned();
                let kind = ParseErrorKind::Operand { op, position: i + 1, expected: slot, found };
                return Err(self.cursor.error_at(start, kind));
            }
            operands.push(operand);
        }
        self.cursor.punctuation(b';', "`;`")?;
        Ok(Inst { guard, op, operands })
    }

    fn operand(&mut self, scope: &mut Scope) -> Result<Operand, ParseError> {
        let start = self.cursor.position();
        match self.cursor.peek() {
            Some(b'%') => self.percent(scope),
            Some(b'[') => self.address(scope),
            Some(b'{') => self.vector(scope),
            Some(b'$') => {
                let label = self.label()?;
                scope.used.push((label.0, start));
                Ok(Operand::Label(label))
            }
            Some(b'-' | b'0'..=b'9') => self.literal(),
            Some(b'a'..=b'z' | b'A'..=b'Z' | b'_') => match self.name(scope)? {
                Base::Shared(idx) => Ok(Operand::Symbol(idx)),
                Base::Param(_) | Base::Reg(_) => {
                    Err(self.cursor.expected_at(start, "a shared array"))
                }
            },
            _ => Err(self.cursor.expected_at(start, "an operand")),
        }
    }

    /// A register or a special register.
    fn percent(&mut self, scope: &Scope) -> Result<Operand, ParseError> {
        let start = self.cursor.position();
        self.cursor.punctuation(b'%', "a register")?;
        let prefix = self.cursor.letters();
        let class = match prefix {
            "f" => Some(RegClass::F32),
            "r" => Some(RegClass::B32),
            "rd" => Some(RegClass::B64),
            "p" => Some(RegClass::Pred),
            "fd" => Some(RegClass::F64),
            "h" => Some(RegClass::B16),
            _ => None,
        };
        let Some(class) = class else {
            self.cursor.rest_of_special();
            let name = self.cursor.text_since(start);
            return match Special::ALL.into_iter().find(|special| special.name() == &name[1..]) {
                Some(special) => Ok(Operand::Special(special)),
                None => Err(self
                    .cursor
                    .error_at(start, ParseErrorKind::UndeclaredRegister { name: name.to_owned() })),
            };
        };
        let idx = self.cursor.adjacent_number(MAX_NUMBER, "a register number below 1048576")?;
        if idx >= scope.n_regs[class as usize] {
            let name = self.cursor.text_since(start).to_owned();
            return Err(self.cursor.error_at(start, ParseErrorKind::UndeclaredRegister { name }));
        }
        Ok(Operand::Reg(Reg { class, idx }))
    }

    fn register(&mut self, scope: &Scope) -> Result<Reg, ParseError> {
        let start = self.cursor.position();
        match self.percent(scope)? {
            Operand::Reg(reg) => Ok(reg),
            _ => Err(self.cursor.expected_at(start, "a register")),
        }
    }

    fn vector(&mut self, scope: &Scope) -> Result<Operand, ParseError> {
        self.cursor.punctuation(b'{', "`{`")?;
        let mut regs = vec![self.register(scope)?];
        while self.cursor.eat(b',') {
            regs.push(self.register(scope)?);
        }
        self.cursor.punctuation(b'}', "`,` or `}`")?;
        Ok(Operand::Regs(regs))
    }

    fn address(&mut self, scope: &Scope) -> Result<Operand, ParseError> {
        self.cursor.punctuation(b'[', "`[`")?;
        let base = match self.cursor.peek() {
            Some(b'%') => Base::Reg(self.register(scope)?),
            _ => self.name(scope)?,
        };
        let offset =
            if self.cursor.eat(b'+') { self.cursor.integer("an offset in bytes")? } else { 0 };
        self.cursor.punctuation(b']', "`+` or `]`")?;
        Ok(Operand::Address { base, offset })
    }

    /// A parameter or a shared array.
    fn name(&mut self, scope: &Scope) -> Result<Base, ParseError> {
        let start = self.cursor.position();
        let name = self.cursor.identifier("a name or a register")?;
        let index = |found: usize| u32::try_from(found).expect("fewer names than bytes of text");
        if let Some(found) = scope.entry.shared.iter().position(|array| array.name == name) {
            return Ok(Base::Shared(index(found)));
        }
        match scope.entry.params.iter().position(|param| param.name == name) {
            Some(found) => Ok(Base::Param(index(found))),
            None => {
                let name = name.to_owned();
                Err(self.cursor.error_at(start, ParseErrorKind::UnknownName { name }))
            }
        }
    }

    fn literal(&mut self) -> Result<Operand, ParseError> {
        if let Some(digits) = self.cursor.hex_float("0f", 8)? {
            return Ok(Operand::F32(u32::try_from(digits).expect("eight hexadecimal digits")));
        }
        if let Some(digits) = self.cursor.hex_float("0d", 16)? {
            return Ok(Operand::F64(digits));
        }
        Ok(Operand::Int(self.cursor.integer("an integer in decimal")?))
    }
}
