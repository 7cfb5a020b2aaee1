//! Sizes in the configuration: a whole number and a unit, exactly, or a plain number of bytes.
//!
//! `KiB MiB GiB TiB PiB` are powers of 1024, `kB MB GB TB PB` powers of 1000. Nothing else is a unit: `10G` is refused
//! rather than guessed.

use nom::character::complete::{alpha0, digit1, space0};
use nom::combinator::{all_consuming, map_res};
use nom::{IResult, Parser};
use serde::Deserialize;
use serde::de::{self, Deserializer, Visitor};
use std::fmt;

/// A number of bytes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Size(pub(crate) u64);

impl Size {
    /// Reads a size as it stands in the file.
    pub(crate) fn parse(text: &str) -> Result<Self, String> {
        let (_, (number, unit)) = parts(text).map_err(|_| {
            format!("`{text}` is not a size: expected a whole number and a unit, such as 10GiB or 512MB")
        })?;
        let factor = factor(unit).ok_or_else(|| {
            format!("`{unit}` is not a unit: expected KiB, MiB, GiB, TiB, PiB (1024) or kB, MB, GB, TB, PB (1000)")
        })?;
        match number.checked_mul(factor) {
            Some(bytes) if bytes <= i64::MAX as u64 => Ok(Self(bytes)),
            _ => Err(format!("`{text}` is larger than the {} bytes that a file or disk can have", i64::MAX)),
        }
    }
}

fn parts(text: &str) -> IResult<&str, (u64, &str)> {
    let number = map_res(digit1, str::parse::<u64>);
    let (rest, (number, _, unit)) = all_consuming((number, space0, alpha0)).parse(text)?;
    Ok((rest, (number, unit)))
}

fn factor(unit: &str) -> Option<u64> {
    const UNITS: [(&str, u64); 12] = [
        ("", 1),
        ("B", 1),
        ("KiB", 1 << 10),
        ("MiB", 1 << 20),
        ("GiB", 1 << 30),
        ("TiB", 1 << 40),
        ("PiB", 1 << 50),
        ("kB", 1_000),
        ("MB", 1_000_000),
        ("GB", 1_000_000_000),
        ("TB", 1_000_000_000_000),
        ("PB", 1_000_000_000_000_000),
    ];
    UNITS.iter().find(|(name, _)| *name == unit).map(|(_, factor)| *factor)
}

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct SizeVisitor;
        impl Visitor<'_> for SizeVisitor {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a size such as 10GiB, or a number of bytes")
            }

            fn visit_str<E: de::Error>(self, text: &str) -> Result<Size, E> {
                Size::parse(text).map_err(E::custom)
            }

            fn visit_u64<E: de::Error>(self, bytes: u64) -> Result<Size, E> {
                Size::parse(&bytes.to_string()).map_err(E::custom)
            }

            fn visit_i64<E: de::Error>(self, bytes: i64) -> Result<Size, E> {
                Size::parse(&bytes.to_string()).map_err(E::custom)
            }
        }
        deserializer.deserialize_any(SizeVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_exact_and_never_guessed() {
        assert_eq!(Size::parse("10GiB"), Ok(Size(10 << 30)));
        assert_eq!(Size::parse("10 GB"), Ok(Size(10_000_000_000)));
        assert_eq!(Size::parse("4096"), Ok(Size(4096)));
        assert_eq!(Size::parse("0"), Ok(Size(0)));
        for wrong in ["10G", "10gib", "1.5GiB", "-1", "", "GiB", "1_000", "99999999PiB", "18446744073709551616"] {
            assert!(Size::parse(wrong).is_err(), "{wrong}");
        }
    }
}
