//! Tokens of the text format.
//!
//! A word is a longest run of letters, digits and `_.+-`: values, operators, types and numbers are
//! words. A string is in double quotes. Every other character is a token of its own.

/// A token and the bytes that it covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Token<'a> {
    pub(crate) text: &'a str,
    pub(crate) start: usize,
    pub(crate) kind: TokenKind,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TokenKind {
    Word,
    /// With its quotes; `closed` is false if the text ends before the second one.
    String {
        closed: bool,
    },
    Punctuation,
    End,
}

fn is_word_char(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '_' | '.' | '+' | '-')
}

/// Whether `text` is one word.
pub(super) fn is_word(text: &str) -> bool {
    !text.is_empty() && text.chars().all(is_word_char)
}

/// The token at or behind byte `pos` of `text`.
pub(super) fn token(text: &str, mut pos: usize) -> Token<'_> {
    loop {
        let rest = &text[pos..];
        pos += rest.len() - rest.trim_start().len();
        if !text[pos..].starts_with(';') {
            break;
        }
        pos += text[pos..].find('\n').unwrap_or(text.len() - pos);
    }
    let rest = &text[pos..];
    let (len, kind) = match rest.chars().next() {
        None => (0, TokenKind::End),
        Some('"') => match string_len(rest) {
            Some(len) => (len, TokenKind::String { closed: true }),
            None => (rest.len(), TokenKind::String { closed: false }),
        },
        Some(c) if is_word_char(c) => {
            (rest.find(|c| !is_word_char(c)).unwrap_or(rest.len()), TokenKind::Word)
        }
        Some(c) => (c.len_utf8(), TokenKind::Punctuation),
    };
    Token { text: &rest[..len], start: pos, kind }
}

fn string_len(text: &str) -> Option<usize> {
    let mut escaped = true; // The opening quote does not end the string.
    for (at, c) in text.char_indices() {
        match c {
            '"' if !escaped => return Some(at + 1),
            '\\' => escaped = !escaped,
            _ => escaped = false,
        }
    }
    None
}

/// What a string token with its quotes stands for, or `None` if an escape is not one of Rust's.
pub(super) fn unescape(quoted: &str) -> Option<String> {
    let inner = quoted.strip_prefix('"')?.strip_suffix('"')?;
    let mut result = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        let unescaped = match c {
            '\\' => match chars.next()? {
                'n' => '\n',
                'r' => '\r',
                't' => '\t',
                '0' => '\0',
                c @ ('"' | '\'' | '\\') => c,
                'u' => {
                    let (hex, rest) = chars.as_str().strip_prefix('{')?.split_once('}')?;
                    chars = rest.chars();
                    char::from_u32(u32::from_str_radix(hex, 16).ok()?)?
                }
                _ => return None,
            },
            c => c,
        };
        result.push(unescaped);
    }
    Some(result)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_string_survives_quoting() {
        for text in
            ["", "a", "\"", "\\", "\\\"", "a\n\t\r\0'b", "layer.0/é\u{301}\u{7f}", "; no comment"]
        {
            let quoted = format!("{text:?}");
            let token = token(&quoted, 0);
            assert_eq!((token.text, token.kind), (&quoted[..], TokenKind::String { closed: true }));
            assert_eq!(unescape(&quoted).as_deref(), Some(text));
        }
    }

    #[test]
    fn bad_escapes_are_refused() {
        for quoted in [r#""\q""#, r#""\u{110000}""#, r#""\u{zz}""#, r#""\u41""#] {
            assert_eq!(unescape(quoted), None, "{quoted}");
        }
        assert_eq!(token("\"open", 0).kind, TokenKind::String { closed: false });
    }
}
