//! Which program of an object is the policy of which constant: the section that
//! `XK_TUNE` of `bpf/xk.bpf.h` writes.

use object::{Object as _, ObjectSection};
use sha2::{Digest, Sha256};

use crate::Error;

const SECTION: &str = ".xk.tunes";

/// One `XK_TUNE`: `struct xk_tune_entry`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Name of the program.
    pub program: String,
    /// The constant, as the author names it.
    pub constant: String,
    /// Where the author wrote it.
    pub file: String,
    /// Line of the file.
    pub line: u32,
    /// Build-id of the kernel that it is for; empty: any.
    pub build_id: String,
    /// It decides at each place, even where values may meet.
    pub each: bool,
}

const PROGRAM: usize = 64;
const TEXT: usize = 256;
const BUILD_ID: usize = 64;
const SIZE: usize = PROGRAM + 2 * TEXT + BUILD_ID + 8;

impl Entry {
    fn read(bytes: &[u8]) -> Option<Self> {
        let (program, rest) = bytes.split_at_checked(PROGRAM)?;
        let (constant, rest) = rest.split_at_checked(TEXT)?;
        let (file, rest) = rest.split_at_checked(TEXT)?;
        let (build_id, rest) = rest.split_at_checked(BUILD_ID)?;
        let (line, each) = rest.split_at_checked(4)?;
        let number = |bytes: &[u8]| Some(u32::from_le_bytes(bytes.try_into().ok()?));
        let (line, each) = (number(line)?, number(each)? != 0);
        let [program, constant, file] =
            [program, constant, file].map(|field| text(field).filter(|text| !text.is_empty()));
        Some(Self { program: program?, constant: constant?, file: file?, build_id: text(build_id)?, line, each })
    }

    /// `file:line`
    #[must_use]
    pub fn place(&self) -> String {
        format!("{}:{}", self.file, self.line)
    }
}

fn text(field: &[u8]) -> Option<String> {
    let end = field.iter().position(|&byte| byte == 0)?;
    String::from_utf8(field[..end].to_vec()).ok()
}

/// The policies of an object, in the order of the file.
///
/// # Errors
/// [`Error::Object`]: no object for eBPF, no policy in it, two for one constant.
pub fn entries(object: &[u8]) -> Result<Vec<Entry>, Error> {
    let wrong = |reason: &str| Error::Object(format!("not an object with policies: {reason}"));
    let file = object::File::parse(object).map_err(|error| wrong(&error.to_string()))?;
    if file.architecture() != object::Architecture::Bpf {
        return Err(wrong("it is not compiled for eBPF (clang -target bpf)"));
    }
    let section = file.section_by_name(SECTION).ok_or_else(|| wrong("it contains no XK_TUNE"))?;
    let data = section.data().map_err(|error| wrong(&error.to_string()))?;
    if data.is_empty() || data.len() % SIZE != 0 {
        return Err(wrong("its XK_TUNEs are of another version of xk.bpf.h: compile it again"));
    }
    let damaged = || wrong("an XK_TUNE is empty, too long or damaged");
    let entries = data.chunks(SIZE).map(Entry::read).collect::<Option<Vec<_>>>().ok_or_else(damaged)?;
    for (index, entry) in entries.iter().enumerate() {
        if let Some(other) = entries[..index].iter().find(|other| other.constant == entry.constant) {
            return Err(Error::Object(format!(
                "{}: {} has a policy already, `{}` at {}",
                entry.place(),
                entry.constant,
                other.program,
                other.place()
            )));
        }
    }
    Ok(entries)
}

/// A number for what an object does: the same for the same program, wherever and whenever
/// it was compiled. What only debuggers read is not part of it.
///
/// # Errors
/// [`Error::Object`]: no object.
pub fn digest(object: &[u8]) -> Result<String, Error> {
    let wrong = |error: object::Error| Error::Object(format!("not an object with policies: {error}"));
    let file = object::File::parse(object).map_err(wrong)?;
    let mut sum = Sha256::new();
    for section in file.sections() {
        let name = section.name().map_err(wrong)?;
        if [".debug", ".rel.debug", ".symtab", ".strtab", ".llvm"].iter().any(|kind| name.starts_with(kind)) {
            continue;
        }
        let data = section.data().map_err(wrong)?;
        sum.update(format!("{name} {} ", data.len()));
        sum.update(data);
    }
    Ok(format!("{:x}", sum.finalize()))
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn entries_are_read_with_their_place() {
        let mut bytes = vec![0; SIZE];
        bytes[..4].copy_from_slice(b"tune");
        bytes[PROGRAM..PROGRAM + 3].copy_from_slice(b"ABC");
        bytes[PROGRAM + TEXT..PROGRAM + TEXT + 3].copy_from_slice(b"a.c");
        bytes[SIZE - 8] = 7;
        let entry = Entry::read(&bytes).unwrap();
        assert_eq!((entry.program.as_str(), entry.constant.as_str(), &*entry.place()), ("tune", "ABC", "a.c:7"));
        bytes[PROGRAM..PROGRAM + TEXT].fill(b'x');
        assert_eq!(Entry::read(&bytes), None, "not terminated");
        assert_eq!(Entry::read(&bytes[..SIZE - 1]), None);
    }

    #[test]
    fn what_is_no_object_is_refused() {
        for bytes in [&b""[..], b"\x7fELF", &[0; 4096]] {
            let message = entries(bytes).unwrap_err().to_string();
            assert!(message.starts_with("not an object with policies: "), "{message}");
        }
    }
}
