//! Text keys (RFC 7143 6.1) and the rules by which an answer follows from an offer (6.2, 13).

use super::{Result, require};

/// Key and value, in the order in which they stand in the text.
pub type Pairs = Vec<(String, String)>;

/// `Key=Value` pairs as they stand in a data segment: each ends with a zero byte.
pub fn encode<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> Vec<u8> {
    let mut text = Vec::new();
    for (key, value) in pairs {
        text.extend_from_slice(format!("{key}={value}\0").as_bytes());
    }
    text
}

/// The pairs of a complete text.
pub fn decode(text: &[u8]) -> Result<Pairs> {
    let Some(text) = text.strip_suffix(&[0]) else {
        require(text.is_empty(), || "text does not end with a zero byte (6.1)".into())?;
        return Ok(Vec::new());
    };
    let pairs = text.split(|b| *b == 0).map(|pair| {
        let pair = std::str::from_utf8(pair).unwrap_or("");
        let Some((key, value)) = pair.split_once('=') else {
            return require(false, || format!("`{pair}` is not Key=Value (6.1)")).map(|()| unreachable!());
        };
        require(!key.is_empty() && key.len() <= 63, || format!("key name `{key}` (6.1)"))?;
        Ok((key.to_owned(), value.to_owned()))
    });
    pairs.collect()
}

/// The value of `key`; a key that stands there twice is a violation (6.3).
pub fn find<'a>(pairs: &'a Pairs, key: &str) -> Result<Option<&'a str>> {
    let mut values = pairs.iter().filter(|(k, _)| k == key).map(|(_, v)| v.as_str());
    let value = values.next();
    require(values.next().is_none(), || format!("{key} twice (6.3)"))?;
    Ok(value)
}

/// The value of a numeric key in `range`; decimal or hex (6.1). `None` if it is not in the text.
pub fn number(pairs: &Pairs, key: &str, range: std::ops::RangeInclusive<u32>) -> Result<Option<u32>> {
    let Some(text) = find(pairs, key)? else { return Ok(None) };
    let value = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => u32::from_str_radix(hex, 16),
        None => text.parse(),
    };
    let value = value.ok().filter(|v| range.contains(v));
    require(value.is_some(), || format!("{key}={text} is not a number in {range:?} (13)"))?;
    Ok(value)
}

/// The value of a boolean key.
pub fn boolean(pairs: &Pairs, key: &str) -> Result<Option<bool>> {
    match find(pairs, key)? {
        None => Ok(None),
        Some("Yes") => Ok(Some(true)),
        Some("No") => Ok(Some(false)),
        Some(other) => require(false, || format!("{key}={other} is neither Yes nor No (6.2.2)")).map(|()| None),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_encoded_is_decoded() {
        let text = encode([("A", "1"), ("B", "x=y")]);
        assert_eq!(text, b"A=1\0B=x=y\0");
        assert_eq!(decode(&text).unwrap(), [("A".into(), "1".into()), ("B".into(), "x=y".into())]);
        assert_eq!(decode(b"").unwrap(), []);
    }

    #[test]
    fn text_of_a_broken_target_is_a_violation() {
        for text in [&b"A=1"[..], b"A\0", b"=1\0", b"A=1\0\0"] {
            assert!(decode(text).is_err(), "{text:?}");
        }
        let twice = decode(b"A=1\0A=2\0").unwrap();
        assert!(find(&twice, "A").is_err());
        let values = decode(b"N=0x200\0M=511\0B=yes\0").unwrap();
        assert_eq!(number(&values, "N", 512..=1024).unwrap(), Some(512));
        assert!(number(&values, "M", 512..=1024).is_err());
        assert!(boolean(&values, "B").is_err());
    }
}
