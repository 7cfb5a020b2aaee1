//! Structures, field by field.

/// A field: offset, bytes, name.
pub(super) type Field<'a> = (usize, &'a [u8], &'a str);

/// Every field is as it should be, and everything between them is zero.
#[track_caller]
pub(super) fn assert_fields(bytes: &[u8], fields: &[Field<'_>]) {
    let mut rest = bytes.to_vec();
    for &(at, expected, name) in fields {
        let got = &mut rest[at..at + expected.len()];
        assert_eq!(got, expected, "{name} at {at}");
        got.fill(0);
    }
    let stray: Vec<(usize, u8)> = rest.into_iter().enumerate().filter(|(_, b)| *b != 0).collect();
    assert_eq!(stray, [], "bytes outside of the fields");
}

/// `text` padded with `with`.
pub(super) fn padded(text: &str, len: usize, with: u8) -> Vec<u8> {
    let mut field = text.as_bytes().to_vec();
    field.resize(len, with);
    field
}
