//! The parser of the text format.

use miette::{Diagnostic, SourceSpan};

use super::lexer::{Token, TokenKind, token, unescape};
use super::literal::{Literal, parse_literal, splat_of, tensor_of};
use crate::dtype::UnknownDType;
use crate::graph::{Attr, AttrKind, Attrs, Graph, Node, NodeKind, Op, UnknownOp, Value, infer};
use crate::{DType, Dim, Shape, Tensor, TensorType};
use cranelift_entity::EntityRef;

/// No constant in a text is larger.
const MAX_CONST_BYTES: usize = 1 << 32;

/// Elements of all constants of a text that are said once for all (`splat`): a short text must not fill the
/// memory.
const MAX_SPLAT_ELEMS: usize = 1 << 24;

/// Why a text is not a graph, with the place in the text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, Diagnostic)]
#[error("{kind}")]
#[diagnostic(code(ir::parse))]
pub struct ParseError {
    /// What is wrong.
    pub kind: ParseErrorKind,
    /// Where.
    #[label("here")]
    pub span: SourceSpan,
}

/// What is wrong with a text.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ParseErrorKind {
    /// Something else should stand here.
    #[error("expected {expected}, found {}", found_text(found))]
    Expected {
        /// What should.
        expected: String,
        /// What does; empty at the end of the text.
        found: String,
    },
    /// Values are numbered in order of definition.
    #[error("expected the definition of {0}")]
    Definition(Value),
    /// No such operator.
    #[error(transparent)]
    Op(#[from] UnknownOp),
    /// No such element type.
    #[error(transparent)]
    DType(#[from] UnknownDType),
    /// A constant has another number of elements than its type.
    #[error("constant has {found} elements, its type has {expected}")]
    Elements {
        /// Elements of the type.
        expected: usize,
        /// Elements listed.
        found: usize,
    },
    /// A constant is too large.
    #[error("constant of more than {limit} bytes")]
    ConstTooLarge {
        /// The most bytes that a constant may have.
        limit: usize,
    },
    /// Only some of the outputs are named.
    #[error("either all outputs are named or none")]
    OutputNames,
}

fn found_text(found: &str) -> String {
    if found.is_empty() { "the end".into() } else { format!("`{found}`") }
}

type Result<T> = std::result::Result<T, ParseError>;

/// Parses one graph.
///
/// # Errors
///
/// The first syntax error. A graph that parses may still be ill-formed: see
/// [`verify`](crate::graph::verify()).
pub fn parse(text: &str) -> Result<Graph> {
    let mut parser = Parser::new(text);
    let graph = parser.graph()?;
    parser.end()?;
    Ok(graph)
}

impl std::str::FromStr for Graph {
    type Err = ParseError;

    fn from_str(text: &str) -> Result<Self> {
        parse(text)
    }
}

/// Parses a text that starts with a graph.
pub(crate) struct Parser<'a> {
    text: &'a str,
    next: Token<'a>,
    /// Elements that constants may still have without being written out.
    splat_elems: usize,
}

impl<'a> Parser<'a> {
    pub(crate) fn new(text: &'a str) -> Self {
        Self { text, next: token(text, 0), splat_elems: MAX_SPLAT_ELEMS }
    }

    pub(crate) fn graph(&mut self) -> Result<Graph> {
        self.expect("graph")?;
        self.expect("@")?;
        let name = match self.next.kind {
            TokenKind::String { .. } => self.string()?,
            _ => self.word("a name")?.text.to_owned(),
        };
        let mut graph = Graph::new(name);
        self.expect("(")?;
        while !self.eat(")") {
            self.definition(&graph)?;
            self.expect(":")?;
            let node = self.input()?;
            graph.nodes.push(node);
            if !self.eat(",") {
                self.expect(")")?;
                break;
            }
        }
        self.expect("{")?;
        while !self.eat("return") {
            self.definition(&graph)?;
            self.expect("=")?;
            let node = self.node(&graph)?;
            graph.nodes.push(node);
        }
        self.outputs(&mut graph)?;
        Ok(graph)
    }

    /// Checks that nothing follows.
    pub(crate) fn end(&mut self) -> Result<()> {
        match self.next.kind {
            TokenKind::End => Ok(()),
            _ => Err(self.expected("the end")),
        }
    }

    fn outputs(&mut self, graph: &mut Graph) -> Result<()> {
        if self.eat("}") {
            return Ok(());
        }
        loop {
            graph.outputs.push(self.value()?);
            let at = self.next;
            if let TokenKind::String { .. } = at.kind {
                graph.output_names.push(self.string()?);
            }
            if ![0, graph.outputs.len()].contains(&graph.output_names.len()) {
                return Err(error_at(at, ParseErrorKind::OutputNames));
            }
            if !self.eat(",") {
                return self.expect("}");
            }
        }
    }

    fn input(&mut self) -> Result<Node> {
        let weight = self.eat("weight");
        let ty = self.ty()?;
        let name = match self.next.kind {
            TokenKind::String { .. } => self.string()?,
            _ => String::new(),
        };
        Ok(Node { kind: NodeKind::Input { name, weight }, ty, sources: self.sources()? })
    }

    fn node(&mut self, graph: &Graph) -> Result<Node> {
        if self.eat("input") {
            return self.input();
        }
        if self.eat("const") {
            let tensor = self.tensor()?;
            let (ty, sources) = (tensor.ty(), self.sources()?);
            return Ok(Node { kind: NodeKind::Const(tensor), ty, sources });
        }
        let word = self.word("an operator")?;
        let op: Op = word.text.parse().map_err(|err: UnknownOp| error_at(word, err.into()))?;
        let mut args = Vec::new();
        if self.next.kind == TokenKind::Word && self.next.text.starts_with('v') {
            args.push(self.value()?);
            while self.eat(",") {
                args.push(self.value()?);
            }
        }
        let attrs = self.attrs(op)?;
        let types: Option<Vec<&TensorType>> =
            args.iter().map(|&arg| graph.nodes.get(arg).map(|node| &node.ty)).collect();
        let ty = types.and_then(|types| infer::infer(op, &attrs, &types).ok());
        let placeholder = || TensorType {
            dtype: DType::F32,
            shape: Shape(vec![Dim::Symbolic("unknown".into())]),
        };
        let ty = ty.unwrap_or_else(placeholder);
        Ok(Node { kind: NodeKind::Apply(op, attrs, args), ty, sources: self.sources()? })
    }

    fn attrs(&mut self, op: Op) -> Result<Attrs> {
        let mut attrs = Vec::new();
        if !op.spec().attrs.is_empty() {
            self.expect("{")?;
            for (i, &(name, kind)) in op.spec().attrs.iter().enumerate() {
                if i > 0 {
                    self.expect(",")?;
                }
                self.expect(name)?;
                self.expect("=")?;
                attrs.push(self.attr(kind)?);
            }
            self.expect("}")?;
        }
        Ok(Attrs(attrs))
    }

    fn attr(&mut self, kind: AttrKind) -> Result<Attr> {
        Ok(match kind {
            AttrKind::Int => Attr::Int(self.number("a number")?),
            AttrKind::Ints => {
                let mut list = Vec::new();
                self.list(|parser| {
                    list.push(parser.number("a number")?);
                    Ok(())
                })?;
                Attr::Ints(list)
            }
            AttrKind::Float => Attr::float(self.number("a float")?),
            AttrKind::DType => Attr::DType(self.dtype()?),
            AttrKind::Word => Attr::Word(self.word("a word")?.text.to_owned()),
        })
    }

    /// `[a, b, …]`
    pub(crate) fn list(&mut self, mut member: impl FnMut(&mut Self) -> Result<()>) -> Result<()> {
        self.expect("[")?;
        while !self.eat("]") {
            member(self)?;
            if !self.eat(",") {
                return self.expect("]");
            }
        }
        Ok(())
    }

    fn sources(&mut self) -> Result<Vec<String>> {
        let mut sources = Vec::new();
        if self.eat("from") {
            sources.push(self.string()?);
            while let TokenKind::String { .. } = self.next.kind {
                sources.push(self.string()?);
            }
        }
        Ok(sources)
    }

    fn ty(&mut self) -> Result<TensorType> {
        let dtype = self.dtype()?;
        let mut dims = Vec::new();
        self.list(|parser| {
            let word = parser.word("an extent")?;
            dims.push(match word.text.parse() {
                Ok(extent) => Dim::Fixed(extent),
                Err(_) if word.text.starts_with(|c: char| c.is_ascii_alphabetic()) => {
                    Dim::Symbolic(word.text.to_owned())
                }
                Err(_) => return Err(expected_at(word, "an extent")),
            });
            Ok(())
        })?;
        Ok(TensorType { dtype, shape: Shape(dims) })
    }

    fn dtype(&mut self) -> Result<DType> {
        let word = self.word("an element type")?;
        word.text.parse().map_err(|err: UnknownDType| error_at(word, err.into()))
    }

    fn tensor(&mut self) -> Result<Tensor> {
        let at = self.next;
        let ty = self.ty()?;
        let extents = ty.shape.extents().ok_or_else(|| expected_at(at, "fixed extents"))?;
        let n_elems = extents.iter().try_fold(1usize, |acc, &extent| acc.checked_mul(extent));
        let n_elems = match n_elems.filter(|n_elems| n_elems.saturating_mul(8) <= MAX_CONST_BYTES) {
            Some(n_elems) => n_elems,
            None => {
                return Err(error_at(at, ParseErrorKind::ConstTooLarge { limit: MAX_CONST_BYTES }));
            }
        };
        if self.eat("splat") {
            let Some(left) = self.splat_elems.checked_sub(n_elems) else {
                let limit = MAX_SPLAT_ELEMS * ty.dtype.bits() / 8;
                return Err(error_at(at, ParseErrorKind::ConstTooLarge { limit }));
            };
            self.splat_elems = left;
            let literal = self.literal(ty.dtype)?;
            return Ok(splat_of(ty.dtype, &extents, n_elems, literal));
        }
        let at = self.next;
        let literals = if extents.is_empty() && self.next.text != "[" {
            vec![self.literal(ty.dtype)?]
        } else {
            let mut literals = Vec::new();
            self.list(|parser| {
                literals.push(parser.literal(ty.dtype)?);
                Ok(())
            })?;
            literals
        };
        if literals.len() != n_elems {
            let kind = ParseErrorKind::Elements { expected: n_elems, found: literals.len() };
            return Err(error_at(at, kind));
        }
        Ok(tensor_of(ty.dtype, &extents, &literals))
    }

    fn literal(&mut self, dtype: DType) -> Result<Literal> {
        let word = self.word("an element")?;
        parse_literal(dtype, word.text).map_err(|expected| expected_at(word, expected))
    }

    /// Values are numbered in order of definition, so that text and memory agree.
    fn definition(&mut self, graph: &Graph) -> Result<()> {
        let (at, expected) = (self.next, graph.nodes.next_key());
        match self.value()? == expected {
            true => Ok(()),
            false => Err(error_at(at, ParseErrorKind::Definition(expected))),
        }
    }

    pub(crate) fn value(&mut self) -> Result<Value> {
        let at = self.next;
        let index = self.word("a value such as v0")?.text.strip_prefix('v');
        // All ones is the reserved entity.
        let index = index.and_then(|digits| digits.parse::<u32>().ok()).filter(|&i| i < u32::MAX);
        match index {
            Some(index) => Ok(Value::new(index as usize)),
            None => Err(expected_at(at, "a value such as v0")),
        }
    }

    pub(crate) fn number<T: std::str::FromStr>(&mut self, expected: &str) -> Result<T> {
        let word = self.word(expected)?;
        word.text.parse().map_err(|_| expected_at(word, expected))
    }

    fn string(&mut self) -> Result<String> {
        let at = self.next;
        let string = match at.kind {
            TokenKind::String { closed: true } => unescape(at.text),
            _ => None,
        };
        self.advance();
        string.ok_or_else(|| expected_at(at, "a string"))
    }

    fn word(&mut self, expected: &str) -> Result<Token<'a>> {
        match self.next.kind {
            TokenKind::Word => Ok(self.advance()),
            _ => Err(self.expected(expected)),
        }
    }

    fn advance(&mut self) -> Token<'a> {
        let end = self.next.start + self.next.text.len();
        std::mem::replace(&mut self.next, token(self.text, end))
    }

    pub(crate) fn eat(&mut self, text: &str) -> bool {
        let found = self.next.text == text && self.next.kind != TokenKind::End;
        if found {
            self.advance();
        }
        found
    }

    pub(crate) fn expect(&mut self, text: &str) -> Result<()> {
        match self.eat(text) {
            true => Ok(()),
            false => Err(self.expected(&format!("`{text}`"))),
        }
    }

    pub(crate) fn expected(&self, expected: &str) -> ParseError {
        expected_at(self.next, expected)
    }
}

fn expected_at(at: Token<'_>, expected: &str) -> ParseError {
    let found = at.text.to_owned();
    error_at(at, ParseErrorKind::Expected { expected: expected.to_owned(), found })
}

fn error_at(at: Token<'_>, kind: ParseErrorKind) -> ParseError {
    ParseError { kind, span: (at.start, at.text.len()).into() }
}
