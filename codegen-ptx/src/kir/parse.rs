//! The parser of the `.kir` format. Syntax, names and the types of values are its matter, with spans;
//! whether the kernel is well formed is the verifier's.

use crate::kir::{
    BinaryOp, Buffer, BufferDecl, CompareOp, Expr, Kernel, Operand, Scalar, Space, Special, Stmt,
    UnaryOp, Val, Var, fold,
};
use cranelift_entity::{EntityRef, PrimaryMap};
use eggine_ir::DType;
use miette::{Diagnostic, SourceSpan};
use thiserror::Error;

/// A text that is no kernel.
#[derive(Clone, Debug, PartialEq, Eq, Error, Diagnostic)]
#[error("{kind}")]
pub struct ParseError {
    /// What is wrong.
    pub kind: ParseErrorKind,
    /// Where.
    #[label("here")]
    pub span: SourceSpan,
}

/// Kinds of [`ParseError`].
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the messages say what the fields are")]
pub enum ParseErrorKind {
    #[error("expected {expected}, found `{found}`")]
    Expected { expected: &'static str, found: String },
    #[error("expected `{expected}`: they are numbered in order of definition")]
    Numbering { expected: String },
    #[error("`{name}` is not declared")]
    Undeclared { name: String },
    #[error("`{name}` is not defined before")]
    Undefined { name: String },
    #[error("`{name}` is no operation")]
    UnknownOperation { name: String },
    #[error("`{text}` is no constant of type {ty}")]
    Constant { text: String, ty: Scalar },
}

/// The kernel that a text describes.
///
/// # Errors
///
/// [`ParseError`]: the first thing that the format does not allow.
pub fn parse(text: &str) -> Result<Kernel, ParseError> {
    let tokens = lex(text);
    let mut parser = Parser { tokens, at: 0, end: text.len(), kernel: empty() };
    parser.kernel()?;
    Ok(parser.kernel)
}

fn empty() -> Kernel {
    Kernel {
        name: String::new(),
        grid: [1; 3],
        n_threads: 1,
        min_blocks: None,
        buffers: PrimaryMap::new(),
        vals: PrimaryMap::new(),
        vars: PrimaryMap::new(),
        body: Vec::new(),
    }
}

#[derive(Clone, Copy)]
struct Token<'t> {
    text: &'t str,
    start: usize,
}

/// Words (names, numbers with their sign and exponent) and single characters; `..` is one token.
fn lex(text: &str) -> Vec<Token<'_>> {
    let mut tokens = Vec::new();
    let bytes = text.as_bytes();
    let mut at = 0;
    while at < bytes.len() {
        let start = at;
        let is_word = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_';
        match bytes[at] {
            b';' => {
                at +=
                    bytes[at..].iter().position(|&byte| byte == b'\n').unwrap_or(bytes.len() - at);
                continue;
            }
            byte if byte.is_ascii_whitespace() => {
                at += 1;
                continue;
            }
            b'.' if bytes.get(at + 1) == Some(&b'.') => at += 2,
            byte if is_word(byte)
                || (byte == b'-' && bytes.get(at + 1).is_some_and(u8::is_ascii_digit)) =>
            {
                at += 1;
                while at < bytes.len() {
                    let exponent = matches!(bytes[at], b'-' | b'+')
                        && bytes[at - 1] == b'e'
                        && (bytes[start].is_ascii_digit() || bytes[start] == b'-');
                    let point = bytes[at] == b'.' && bytes.get(at + 1) != Some(&b'.');
                    if !is_word(bytes[at]) && !exponent && !point {
                        break;
                    }
                    at += 1;
                }
            }
            byte => {
                at += if byte.is_ascii() {
                    1
                } else {
                    text[at..].chars().next().map_or(1, char::len_utf8)
                }
            }
        }
        tokens.push(Token { text: &text[start..at], start });
    }
    tokens
}

struct Parser<'t> {
    tokens: Vec<Token<'t>>,
    at: usize,
    end: usize,
    kernel: Kernel,
}

type Parsed<T> = Result<T, ParseError>;

impl<'t> Parser<'t> {
    fn peek(&self) -> &'t str {
        self.tokens.get(self.at).map_or("end of text", |token| token.text)
    }

    fn error<T>(&self, at: usize, kind: ParseErrorKind) -> Parsed<T> {
        let (start, len) =
            self.tokens.get(at).map_or((self.end, 0), |token| (token.start, token.text.len()));
        Err(ParseError { kind, span: (start, len).into() })
    }

    fn expected<T>(&self, expected: &'static str) -> Parsed<T> {
        self.error(self.at, ParseErrorKind::Expected { expected, found: self.peek().to_owned() })
    }

    fn is(&mut self, text: &str) -> bool {
        let found = self.peek() == text && self.at < self.tokens.len();
        self.at += usize::from(found);
        found
    }

    fn token(&mut self, text: &'static str) -> Parsed<()> {
        if self.is(text) { Ok(()) } else { self.expected(text) }
    }

    fn word(&mut self, expected: &'static str) -> Parsed<&'t str> {
        let text = self.peek();
        let is_word = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-');
        if self.at < self.tokens.len() && text.starts_with(is_word) {
            self.at += 1;
            Ok(text)
        } else {
            self.expected(expected)
        }
    }

    fn number<T: std::str::FromStr>(&mut self, expected: &'static str) -> Parsed<T> {
        match self.peek().parse() {
            Ok(number) => {
                self.at += 1;
                Ok(number)
            }
            Err(_) => self.expected(expected),
        }
    }

    /// The index of `prefix` followed by a number.
    fn index(&mut self, prefix: char, expected: &'static str) -> Parsed<usize> {
        let number = self.peek().strip_prefix(prefix).and_then(|number| number.parse::<u32>().ok());
        // The largest is reserved by the tables.
        match number.filter(|&index| index < u32::MAX).map(|index| index as usize) {
            Some(index) => {
                self.at += 1;
                Ok(index)
            }
            None => self.expected(expected),
        }
    }

    fn val(&mut self) -> Parsed<Val> {
        let index = self.index('v', "a value")?;
        let val = Val::new(index);
        if index < self.kernel.vals.len() {
            return Ok(val);
        }
        self.error(self.at - 1, ParseErrorKind::Undefined { name: val.to_string() })
    }

    fn var(&mut self) -> Parsed<Var> {
        let index = self.index('r', "a variable")?;
        let var = Var::new(index);
        if index < self.kernel.vars.len() {
            return Ok(var);
        }
        self.error(self.at - 1, ParseErrorKind::Undeclared { name: var.to_string() })
    }

    fn scalar(&mut self) -> Parsed<Scalar> {
        match Scalar::NAMES.iter().find(|(_, name)| *name == self.peek()) {
            Some(&(scalar, _)) => {
                self.at += 1;
                Ok(scalar)
            }
            None => self.expected("a scalar type"),
        }
    }

    fn kernel(&mut self) -> Parsed<()> {
        self.token("kernel")?;
        self.token("@")?;
        self.kernel.name = self.word("a name")?.to_owned();
        self.token("grid")?;
        self.token("(")?;
        for axis in 0..3 {
            if axis > 0 {
                self.token(",")?;
            }
            self.kernel.grid[axis] = self.number("a number of blocks")?;
        }
        self.token(")")?;
        self.token("block")?;
        self.token("(")?;
        self.kernel.n_threads = self.number("a number of threads")?;
        self.token(")")?;
        if self.is("min_blocks") {
            self.token("(")?;
            self.kernel.min_blocks = Some(self.number("a number of blocks")?);
            self.token(")")?;
        }
        self.token("{")?;
        self.declarations()?;
        self.kernel.body = self.stmts()?;
        self.token("}")?;
        if self.at < self.tokens.len() { self.expected("end of text") } else { Ok(()) }
    }

    fn declarations(&mut self) -> Parsed<()> {
        while self.tokens.get(self.at + 1).is_some_and(|token| token.text == ":") {
            if self.peek().starts_with('b') {
                let index = self.index('b', "a buffer")?;
                if index != self.kernel.buffers.len() {
                    let expected = self.kernel.buffers.next_key().to_string();
                    return self.error(self.at - 1, ParseErrorKind::Numbering { expected });
                }
                self.token(":")?;
                let decl = self.buffer_decl()?;
                self.kernel.buffers.push(decl);
            } else {
                let index = self.index('r', "a buffer or variable")?;
                if index != self.kernel.vars.len() {
                    let expected = self.kernel.vars.next_key().to_string();
                    return self.error(self.at - 1, ParseErrorKind::Numbering { expected });
                }
                self.token(":")?;
                let ty = self.scalar()?;
                self.kernel.vars.push(ty);
            }
        }
        Ok(())
    }

    fn buffer_decl(&mut self) -> Parsed<BufferDecl> {
        let space = if self.is("shared") {
            Space::Shared
        } else if self.is("global") {
            Space::Global { writable: self.is("mut") }
        } else {
            return self.expected("`global` or `shared`");
        };
        let Some(&dtype) = DType::ALL.iter().find(|dtype| dtype.name() == self.peek()) else {
            return self.expected("an element type");
        };
        self.at += 1;
        self.token("[")?;
        let n_elems = self.number("a number of elements")?;
        self.token("]")?;
        self.token("align")?;
        let align_bytes = self.number("a number of bytes")?;
        Ok(BufferDecl { space, dtype, n_elems, align_bytes })
    }

    fn stmts(&mut self) -> Parsed<Vec<Stmt>> {
        let mut stmts = Vec::new();
        while self.peek() != "}" && self.at < self.tokens.len() {
            stmts.push(self.stmt()?);
        }
        Ok(stmts)
    }

    fn block(&mut self) -> Parsed<Vec<Stmt>> {
        self.token("{")?;
        let stmts = self.stmts()?;
        self.token("}")?;
        Ok(stmts)
    }

    fn mask(&mut self) -> Parsed<Option<Val>> {
        if self.is("where") { Ok(Some(self.val()?)) } else { Ok(None) }
    }

    /// `b0[v1 + 4]`
    fn place(&mut self) -> Parsed<(Buffer, Val, i32)> {
        let index = self.index('b', "a buffer")?;
        let buffer = Buffer::new(index);
        if index >= self.kernel.buffers.len() {
            return self
                .error(self.at - 1, ParseErrorKind::Undeclared { name: buffer.to_string() });
        }
        self.token("[")?;
        let index = self.val()?;
        let offset = if self.is("+") {
            self.number("an offset")?
        } else if self.is("-") {
            let magnitude: i64 = self.number("an offset")?;
            match magnitude.checked_neg().and_then(|offset| i32::try_from(offset).ok()) {
                Some(offset) => offset,
                None => {
                    self.at -= 1;
                    return self.expected("an offset");
                }
            }
        } else {
            0
        };
        self.token("]")?;
        Ok((buffer, index, offset))
    }

    fn bound(&mut self) -> Parsed<Operand> {
        if self.peek().starts_with('v') {
            Ok(Operand::Val(self.val()?))
        } else {
            Ok(Operand::Const(self.number("a loop bound")?))
        }
    }

    /// Defines the next value, which the text must call by its number.
    fn define(&mut self, ty: Scalar, at: usize) -> Parsed<Val> {
        let expected = self.kernel.vals.next_key().to_string();
        if self.tokens.get(at).is_none_or(|token| token.text != expected) {
            return self.error(at, ParseErrorKind::Numbering { expected });
        }
        Ok(self.kernel.vals.push(ty))
    }

    fn stmt(&mut self) -> Parsed<Stmt> {
        let start = self.at;
        Ok(match self.peek() {
            "set" => {
                self.at += 1;
                let var = self.var()?;
                self.token(",")?;
                Stmt::Set(var, self.val()?)
            }
            "store" => {
                self.at += 1;
                let (buffer, index, offset) = self.place()?;
                self.token(",")?;
                let mut srcs = vec![self.val()?];
                while self.is(",") {
                    srcs.push(self.val()?);
                }
                Stmt::Store { buffer, index, offset, srcs, mask: self.mask()? }
            }
            "copy.async" => {
                self.at += 1;
                let (dst, dst_index, dst_offset) = self.place()?;
                self.token(",")?;
                let (src, src_index, src_offset) = self.place()?;
                self.token(",")?;
                let n_elems = self.number("a number of elements")?;
                let mask = self.mask()?;
                Stmt::CopyAsync {
                    dst,
                    dst_index,
                    dst_offset,
                    src,
                    src_index,
                    src_offset,
                    n_elems,
                    mask,
                }
            }
            "copy.commit" => {
                self.at += 1;
                Stmt::CopyCommit
            }
            "copy.wait" => {
                self.at += 1;
                Stmt::CopyWait(self.number("a number of groups")?)
            }
            "barrier" => {
                self.at += 1;
                Stmt::Barrier
            }
            "for" => {
                self.at += 2;
                self.token("in")?;
                let from = self.bound()?;
                self.token("..")?;
                let to = self.bound()?;
                self.token("step")?;
                let step = self.number("a step")?;
                let counter = self.define(Scalar::I32, start + 1)?;
                Stmt::For { counter, from, to, step, body: self.block()? }
            }
            "if" => {
                self.at += 1;
                let cond = self.val()?;
                let then = self.block()?;
                let otherwise = if self.is("else") { self.block()? } else { Vec::new() };
                Stmt::If { cond, then, otherwise }
            }
            word if word.starts_with('v') => self.definition(start)?,
            _ => return self.expected("a statement"),
        })
    }

    fn definition(&mut self, start: usize) -> Parsed<Stmt> {
        let mut names = vec![start];
        self.index('v', "a value")?;
        while self.is(",") {
            names.push(self.at);
            self.index('v', "a value")?;
        }
        self.token("=")?;
        if self.is("load") {
            let (buffer, index, offset) = self.place()?;
            let mask = self.mask()?;
            let ty = Scalar::of(self.kernel.buffers[buffer].dtype);
            let dsts =
                names.into_iter().map(|at| self.define(ty, at)).collect::<Parsed<Vec<_>>>()?;
            return Ok(Stmt::Load { dsts, buffer, index, offset, mask });
        }
        if names.len() > 1 {
            return self.expected("load");
        }
        let (ty, expr) = self.expr()?;
        Ok(Stmt::Let(self.define(ty, start)?, expr))
    }

    /// Operands separated by commas.
    fn vals<const N: usize>(&mut self) -> Parsed<[Val; N]> {
        let mut vals = [Val::new(0); N];
        for (i, val) in vals.iter_mut().enumerate() {
            if i > 0 {
                self.token(",")?;
            }
            *val = self.val()?;
        }
        Ok(vals)
    }

    fn expr(&mut self) -> Parsed<(Scalar, Expr)> {
        let at = self.at;
        let name = self.word("an operation")?;
        fn find<T: Copy>(names: &[(T, &str)], name: &str) -> Option<T> {
            names.iter().find(|entry| entry.1 == name).map(|entry| entry.0)
        }
        if let Some(special) = find(Special::NAMES, name) {
            return Ok((Scalar::I32, Expr::Special(special)));
        }
        if let Some(op) = find(UnaryOp::NAMES, name) {
            let [a] = self.vals()?;
            return Ok((self.kernel.vals[a], Expr::Unary(op, a)));
        }
        if let Some(op) = find(BinaryOp::NAMES, name) {
            let [a, b] = self.vals()?;
            return Ok((self.kernel.vals[a], Expr::Binary(op, a, b)));
        }
        if let Some(op) = find(CompareOp::NAMES, name) {
            let [a, b] = self.vals()?;
            return Ok((Scalar::Pred, Expr::Compare(op, a, b)));
        }
        Ok(match name {
            "const" => {
                let ty = self.scalar()?;
                let bits = self.constant(ty)?;
                (ty, Expr::Const(bits))
            }
            "get" => {
                let var = self.var()?;
                (self.kernel.vars[var], Expr::Get(var))
            }
            "fma" => {
                let [a, b, c] = self.vals()?;
                (self.kernel.vals[a], Expr::Fma(a, b, c))
            }
            "select" => {
                let [cond, a, b] = self.vals()?;
                (self.kernel.vals[a], Expr::Select { cond, a, b })
            }
            "convert" => {
                let ty = self.scalar()?;
                let [a] = self.vals()?;
                (ty, Expr::Convert(a))
            }
            "bits" => {
                let ty = self.scalar()?;
                let [a] = self.vals()?;
                (ty, Expr::Bits(a))
            }
            "shuffle.xor" => {
                let [a] = self.vals()?;
                self.token(",")?;
                let mask = self.number("a mask")?;
                (self.kernel.vals[a], Expr::ShuffleXor(a, mask))
            }
            _ => return self.error(at, ParseErrorKind::UnknownOperation { name: name.to_owned() }),
        })
    }

    fn constant(&mut self, ty: Scalar) -> Parsed<u64> {
        let text = self.word("a constant")?;
        let bits = match text.strip_prefix("0x") {
            Some(hex) => u64::from_str_radix(hex, 16).ok(),
            None => match ty {
                Scalar::I32 => text.parse().ok().map(fold::i32_bits),
                Scalar::I64 => text.parse().ok().map(|value: i64| value as u64),
                Scalar::F32 => text.parse().ok().map(|value: f32| u64::from(value.to_bits())),
                Scalar::F64 => text.parse().ok().map(|value: f64| value.to_bits()),
                Scalar::Pred => text.parse().ok().map(|value: bool| u64::from(value)),
            },
        };
        match bits {
            Some(bits) => Ok(bits),
            None => self.error(self.at - 1, ParseErrorKind::Constant { text: text.to_owned(), ty }),
        }
    }
}
