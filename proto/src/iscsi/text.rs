//! The text format of login and text PDUs: `key=value` pairs, each ended by a NUL (6.1).

use std::fmt;

use nom::bytes::complete::{tag, take_till, take_while_m_n, take_while1};
use nom::combinator::{all_consuming, map_res, recognize, verify};
use nom::sequence::{separated_pair, terminated};
use nom::{IResult, Parser};

/// Most bytes of one logical text data segment: what long authentication items need (6.1). At least 8192 is required.
pub(super) const MAX_TEXT: usize = 64 << 10;

/// Longest key (6.1, standard-label).
const MAX_KEY: usize = 63;

/// Longest value, unless the key says otherwise (6.1).
pub(super) const MAX_VALUE: usize = 255;

/// How text is malformed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct TextError {
    /// Where the bad pair starts.
    pub(super) at: usize,
}

impl fmt::Display for TextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "text is malformed at byte {}", self.at)
    }
}

/// The pairs of a complete logical text data segment, in order.
pub(super) fn parse(text: &[u8]) -> Result<Vec<(&str, &str)>, TextError> {
    let mut pairs = Vec::new();
    let mut rest = text;
    while !rest.is_empty() {
        let (after, pair) = pair(rest).map_err(|_| TextError { at: text.len() - rest.len() })?;
        pairs.push(pair);
        rest = after;
    }
    Ok(pairs)
}

fn pair(text: &[u8]) -> IResult<&[u8], (&str, &str)> {
    terminated(separated_pair(key, tag("="), value), tag("\0")).parse(text)
}

/// standard-label; and two keys that are none: X#NodeArchitecture (13.26) has a `#`, and iSCSIProtocolLevel (RFC 7144
/// 7.1.1) does not begin with a capital letter.
fn key(text: &[u8]) -> IResult<&[u8], &str> {
    let first = take_while_m_n(1, 1, |b: u8| b.is_ascii_uppercase());
    let label =
        recognize((first.or(tag("iSCSIP")), take_till(|b: u8| !(b.is_ascii_alphanumeric() || b".-+@_#".contains(&b)))));
    map_res(verify(label, |l: &[u8]| l.len() <= MAX_KEY), std::str::from_utf8).parse(text)
}

/// Any UTF-8 without control characters; what is allowed beyond that depends on the key.
fn value(text: &[u8]) -> IResult<&[u8], &str> {
    let printable =
        verify(take_till(|b| b == 0), |v: &[u8]| v.len() <= MAX_VALUE && !v.iter().any(u8::is_ascii_control));
    map_res(printable, std::str::from_utf8).parse(text)
}

/// A numerical-value (6.1): decimal without leading zeroes or hexadecimal, less than 2^64.
pub(super) fn number(value: &str) -> Option<u64> {
    fn hex(text: &str) -> IResult<&str, u64> {
        let digits = take_while1(|c: char| c.is_ascii_hexdigit());
        map_res((tag_hex, digits), |(_, d)| u64::from_str_radix(d, 16)).parse(text)
    }
    fn tag_hex(text: &str) -> IResult<&str, &str> {
        tag::<_, _, nom::error::Error<&str>>("0x").or(tag("0X")).parse(text)
    }
    fn decimal(text: &str) -> IResult<&str, u64> {
        let digits = verify(take_while1(|c: char| c.is_ascii_digit()), |d: &str| d == "0" || !d.starts_with('0'));
        map_res(digits, str::parse).parse(text)
    }
    all_consuming(hex.or(decimal)).parse(value).ok().map(|(_, n)| n)
}

/// A boolean-value (6.1).
pub(super) fn boolean(value: &str) -> Option<bool> {
    match value {
        "Yes" => Some(true),
        "No" => Some(false),
        _ => None,
    }
}

/// Appends one pair.
pub(super) fn push(text: &mut Vec<u8>, key: &str, value: impl fmt::Display) {
    use std::io::Write;
    write!(text, "{key}={value}\0").expect("writing to memory does not fail");
}

/// How many bytes of `text` to send in one PDU of at most `max`: whole pairs, if one fits (11.11.2).
pub(super) fn cut(text: &[u8], max: usize) -> usize {
    if text.len() <= max {
        return text.len();
    }
    text[..max].iter().rposition(|&b| b == 0).map_or(max, |nul| nul + 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pairs_come_in_order_and_values_may_hold_equal_signs_and_utf8() {
        let text = "A=1\0Bc-2.x=a=b\0X#NodeArchitecture=\0iSCSIProtocolLevel=1\0InitiatorAlias=h\u{e9}\0".as_bytes();
        assert_eq!(
            parse(text).unwrap(),
            [
                ("A", "1"),
                ("Bc-2.x", "a=b"),
                ("X#NodeArchitecture", ""),
                ("iSCSIProtocolLevel", "1"),
                ("InitiatorAlias", "h\u{e9}")
            ]
        );
        assert_eq!(parse(b"").unwrap(), []);
    }

    #[test]
    fn l14_malformed_pairs_are_refused() {
        let long_key = format!("A{}=1\0", "b".repeat(63));
        let long_value = format!("A={}\0", "b".repeat(256));
        let bad: [&[u8]; 10] = [
            b"A\0",
            b"=1\0",
            b"a=1\0",
            b"1=1\0",
            b"A=1",
            b"\0",
            b"A b=1\0",
            b"A=\xff\0",
            long_key.as_bytes(),
            long_value.as_bytes(),
        ];
        for text in bad {
            assert_eq!(parse(text), Err(TextError { at: 0 }), "{text:?}");
        }
        assert_eq!(parse(b"A=1\0B\0"), Err(TextError { at: 4 }));
        assert!(parse(format!("A{}={}\0", "b".repeat(62), "c".repeat(255)).as_bytes()).is_ok(), "the longest");
    }

    #[test]
    fn l16_numbers_are_decimal_or_hexadecimal_and_never_wrap() {
        for (text, expected) in [
            ("0", Some(0)),
            ("512", Some(512)),
            ("0x200", Some(512)),
            ("0X200", Some(512)),
            ("18446744073709551615", Some(u64::MAX)),
            ("18446744073709551616", None),
            ("0xffffffffffffffff", Some(u64::MAX)),
            ("0x10000000000000000", None),
            ("-1", None),
            ("+1", None),
            ("1e6", None),
            ("007", None),
            ("0x", None),
            ("", None),
            (" 1", None),
            ("1~2", None),
        ] {
            assert_eq!(number(text), expected, "{text:?}");
        }
    }

    #[test]
    fn text_is_cut_after_whole_pairs() {
        let text = b"A=1\0B=2\0";
        assert_eq!(cut(text, 8), 8);
        assert_eq!(cut(text, 7), 4);
        assert_eq!(cut(text, 3), 3, "a pair that does not fit is cut inside");
    }
}
