//! Constants of an object that are set before the kernel verifies it.

use object::{Object as _, ObjectSection, ObjectSymbol};

/// The section of constants, and how the name of its map ends.
pub(crate) const CONSTANTS: &str = ".rodata";

/// Sets an element of eight bytes of a constant.
pub(crate) fn set(object: &[u8], bytes: &mut [u8], name: &str, index: usize, value: u64) -> Result<(), String> {
    let missing = || format!("the object has no constant {name}: include the headers of xk as they are");
    let file = object::File::parse(object).map_err(|error| error.to_string())?;
    let section = file.section_by_name(CONSTANTS).ok_or_else(missing)?.index();
    let here = |symbol: &object::Symbol<'_, '_>| symbol.section_index() == Some(section) && symbol.name() == Ok(name);
    let at = file.symbols().find(here).ok_or_else(missing)?.address() as usize;
    let at = index.checked_mul(8).and_then(|offset| offset.checked_add(at)).ok_or_else(missing)?;
    let field = at.checked_add(8).and_then(|end| bytes.get_mut(at..end)).ok_or_else(missing)?;
    field.copy_from_slice(&value.to_ne_bytes());
    Ok(())
}
