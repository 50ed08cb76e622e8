//! The cursor: a position in the text, moved by tokens. White space and comments before a token are
//! skipped; "adjacent" tokens must follow without any.

use super::{ParseError, ParseErrorKind};

pub(super) struct Cursor<'t> {
    text: &'t str,
    bytes: &'t [u8],
    at: usize,
    line: u32,
}

impl<'t> Cursor<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Cursor { text, bytes: text.as_bytes(), at: 0, line: 1 }
    }

    /// Skips white space, `// …` and `/* … */`; an open comment ends with the text.
    fn skip(&mut self) {
        while let Some(&byte) = self.bytes.get(self.at) {
            match byte {
                b'\n' => {
                    self.line += 1;
                    self.at += 1;
                }
                b' ' | b'\t' | b'\r' => self.at += 1,
                b'/' if self.bytes.get(self.at + 1) == Some(&b'/') => {
                    while self.bytes.get(self.at).is_some_and(|&byte| byte != b'\n') {
                        self.at += 1;
                    }
                }
                b'/' if self.bytes.get(self.at + 1) == Some(&b'*') => {
                    self.at += 2;
                    while self.at < self.bytes.len() && !self.bytes[self.at..].starts_with(b"*/") {
                        self.line += u32::from(self.bytes[self.at] == b'\n');
                        self.at += 1;
                    }
                    self.at = (self.at + 2).min(self.bytes.len());
                }
                _ => return,
            }
        }
    }

    /// Where the next token begins.
    pub(super) fn position(&mut self) -> usize {
        self.skip();
        self.at
    }

    /// Line on which the next token begins, from 1.
    pub(super) fn line(&mut self) -> u32 {
        self.skip();
        self.line
    }

    pub(super) fn peek(&mut self) -> Option<u8> {
        self.skip();
        self.bytes.get(self.at).copied()
    }

    pub(super) fn at_end(&mut self) -> bool {
        self.peek().is_none()
    }

    /// Moves past the byte that `peek` returned.
    pub(super) fn bump(&mut self) {
        self.at += 1;
    }

    pub(super) fn eat(&mut self, byte: u8) -> bool {
        self.skip();
        self.eat_adjacent(byte)
    }

    pub(super) fn eat_adjacent(&mut self, byte: u8) -> bool {
        let found = self.bytes.get(self.at) == Some(&byte);
        self.at += usize::from(found);
        found
    }

    pub(super) fn punctuation(
        &mut self,
        byte: u8,
        expected: &'static str,
    ) -> Result<(), ParseError> {
        if self.eat(byte) { Ok(()) } else { Err(self.expected_at(self.at, expected)) }
    }

    /// Bytes from here on that satisfy `belongs`, which only ASCII bytes do.
    fn run(&mut self, belongs: impl Fn(u8) -> bool) -> &'t str {
        let start = self.at;
        while self.bytes.get(self.at).is_some_and(|&byte| belongs(byte)) {
            self.at += 1;
        }
        &self.text[start..self.at]
    }

    /// A word such as `64`, or a directive with its dot such as `.target`.
    pub(super) fn keyword(&mut self, expected: &'static str) -> Result<(), ParseError> {
        self.skip();
        let start = self.at;
        self.eat_adjacent(b'.');
        self.word();
        if &self.text[start..self.at] == expected {
            Ok(())
        } else {
            Err(self.expected_at(start, expected))
        }
    }

    /// A dot and a word, or nothing.
    pub(super) fn directive(&mut self) -> &'t str {
        self.skip();
        let start = self.at;
        if self.eat_adjacent(b'.') {
            self.word();
        }
        &self.text[start..self.at]
    }

    pub(super) fn word(&mut self) -> &'t str {
        self.run(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    }

    pub(super) fn letters(&mut self) -> &'t str {
        self.run(|byte| byte.is_ascii_lowercase())
    }

    /// What follows the letters of a special register's name.
    pub(super) fn rest_of_special(&mut self) {
        self.run(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.');
    }

    pub(super) fn mnemonic(&mut self) -> &'t str {
        self.skip();
        self.run(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.')
    }

    pub(super) fn identifier(&mut self, expected: &'static str) -> Result<&'t str, ParseError> {
        self.skip();
        let start = self.at;
        let name = self.run(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'$');
        match name.as_bytes().first() {
            Some(first) if first.is_ascii_alphabetic() || *first == b'_' => Ok(name),
            _ => Err(self.expected_at(start, expected)),
        }
    }

    pub(super) fn number(&mut self, expected: &'static str) -> Result<u32, ParseError> {
        self.skip();
        self.adjacent_number(u32::MAX, expected)
    }

    pub(super) fn below(&mut self, bound: u32, expected: &'static str) -> Result<u32, ParseError> {
        self.skip();
        self.adjacent_number(bound, expected)
    }

    pub(super) fn positive(&mut self, expected: &'static str) -> Result<u32, ParseError> {
        let start = self.position();
        match self.number(expected)? {
            0 => Err(self.expected_at(start, expected)),
            number => Ok(number),
        }
    }

    /// A decimal number below the bound, without leading zeros: `%r01` and `%r1` differ in PTX.
    pub(super) fn adjacent_number(
        &mut self,
        bound: u32,
        expected: &'static str,
    ) -> Result<u32, ParseError> {
        let start = self.at;
        let digits = self.run(|byte| byte.is_ascii_digit());
        if digits.is_empty() || (digits.len() > 1 && digits.starts_with('0')) {
            return Err(self.expected_at(start, expected));
        }
        match digits.parse() {
            Ok(number) if number < bound => Ok(number),
            _ => {
                Err(self
                    .error_at(start, ParseErrorKind::Range { text: digits.to_owned(), expected }))
            }
        }
    }

    /// A decimal integer of 64 bits without leading zeros, which would make it octal.
    pub(super) fn integer(&mut self, expected: &'static str) -> Result<i64, ParseError> {
        self.skip();
        let start = self.at;
        self.eat_adjacent(b'-');
        let digits = self.run(|byte| byte.is_ascii_digit());
        let next_is_letter = self.bytes.get(self.at).is_some_and(|byte| byte.is_ascii_alphabetic());
        let text = &self.text[start..self.at];
        if digits.is_empty()
            || (digits.len() > 1 && digits.starts_with('0'))
            || text == "-0"
            || next_is_letter
        {
            return Err(self.expected_at(start, expected));
        }
        text.parse().map_err(|_| {
            let text = text.to_owned();
            self.error_at(start, ParseErrorKind::Range { text, expected: "64 bits with sign" })
        })
    }

    /// The bits of a float literal such as `0f3F800000`, if one stands here.
    pub(super) fn hex_float(
        &mut self,
        prefix: &str,
        n_digits: usize,
    ) -> Result<Option<u64>, ParseError> {
        self.skip();
        let start = self.at;
        if !self.bytes[start..].starts_with(prefix.as_bytes()) {
            return Ok(None);
        }
        self.at += prefix.len();
        let digits = self.word();
        match u64::from_str_radix(digits, 16) {
            Ok(bits) if digits.len() == n_digits => Ok(Some(bits)),
            _ => Err(self.expected_at(start, "0f and 8, or 0d and 16 hexadecimal digits")),
        }
    }

    pub(super) fn text_since(&self, start: usize) -> &'t str {
        &self.text[start..self.at]
    }

    pub(super) fn expected_at(&self, start: usize, expected: &'static str) -> ParseError {
        let found = match self.text[start..].split_whitespace().next() {
            Some(found) => format!("`{}`", found.chars().take(32).collect::<String>()),
            None => "the end".to_owned(),
        };
        self.error_at(start, ParseErrorKind::Expected { expected, found })
    }

    /// An error from `start` to where the cursor is.
    pub(super) fn error_at(&self, start: usize, kind: ParseErrorKind) -> ParseError {
        let before = &self.bytes[..start];
        let line_start =
            before.iter().rposition(|&byte| byte == b'\n').map_or(0, |newline| newline + 1);
        let line = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
        let number = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        ParseError {
            kind,
            line: number(line),
            column: number(start - line_start + 1),
            span: (start, self.at.saturating_sub(start)).into(),
        }
    }
}
