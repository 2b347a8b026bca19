//! Data that changes with the value: what no update of code can repair.
//!
//! In: two builds of a unit. Out: nothing, or the refusal. Tables that describe
//! code (unwinding, patching, line numbers) move with it and are covered by the
//! comparison of the code itself.

use xk_table::{Place, Refusal};

use crate::object::{Object, Section};

/// Sections that hold places in code, by prefix: they follow the code.
const DESCRIBE_CODE: [&str; 18] = [
    ".orc_",
    "__jump_table",
    "__ex_table",
    "__bug_table",
    ".altinstructions",
    ".altinstr_replacement",
    ".altinstr_aux",
    "__mcount_loc",
    "__patchable_function_entries",
    ".static_call",
    ".smp_locks",
    "_kprobe_blacklist",
    ".return_sites",
    ".retpoline_sites",
    ".call_sites",
    ".ibt_endbr_seal",
    ".discard",
    ".note",
];

/// Replacement instructions are code that no walk reaches: they must be the
/// same, byte for byte, under the same conditions.
fn alternatives(base: &Object, variant: &Object, unit: &str) -> Result<(), Refusal> {
    let bytes = |object: &Object, name: &str| -> Vec<u8> {
        object.sections.iter().filter(|s| s.name == name).flat_map(|s| s.data.clone()).collect()
    };
    let same = |name: &str| bytes(base, name) == bytes(variant, name);
    if same(".altinstructions") && same(".altinstr_replacement") {
        return Ok(());
    }
    let function = base.alternatives.first().and_then(|site| base.function_at(site.at).map(|f| (f, site.at)));
    let place = Place {
        source: unit.into(),
        function: function.map_or_else(String::new, |(f, _)| f.name.clone()),
        offset: function.map_or(0, |(f, at)| (at.offset - f.start.offset) as u32),
    };
    Err(Refusal::InlineAssembly { place })
}

/// Compares the data of `variant` with `base`.
///
/// # Errors
/// [`Refusal::LayoutChange`] when something has another size,
/// [`Refusal::ReadOnlyData`] when the same object holds another value.
pub fn compare(base: &Object, variant: &Object, unit: &str) -> Result<(), Refusal> {
    alternatives(base, variant, unit)?;
    let layout = |what: String| Err(Refusal::LayoutChange { unit: unit.into(), what });
    for (name, (section, size)) in &base.data_symbols {
        match variant.data_symbols.get(name) {
            Some((_, other)) if other == size => {}
            Some((_, other)) => return layout(format!("object {name} ({section}): {size} -> {other} bytes")),
            None => return layout(format!("object {name} ({section}) disappears")),
        }
    }
    if let Some(name) = variant.data_symbols.keys().find(|name| !base.data_symbols.contains_key(*name)) {
        return layout(format!("object {name} appears"));
    }
    let relevant = |s: &&Section| {
        s.allocated && !s.executable && s.size > 0 && !DESCRIBE_CODE.iter().any(|prefix| s.name.starts_with(prefix))
    };
    for section in base.sections.iter().filter(relevant) {
        let Some(other) = variant.sections.iter().find(|s| s.name == section.name && s.allocated) else {
            return layout(format!("section {} disappears", section.name));
        };
        if section.size != other.size {
            return layout(format!("section {}: {} -> {} bytes", section.name, section.size, other.size));
        }
        let changed = |offset| {
            let name = section.name.clone();
            Err(Refusal::ReadOnlyData { unit: unit.into(), section: name, offset })
        };
        if let Some(offset) = section.data.iter().zip(&other.data).position(|(a, b)| a != b) {
            return changed(offset as u64);
        }
        for ((at, ours), (other_at, theirs)) in section.relocations.iter().zip(&other.relocations) {
            if at != other_at || base.symbol_ref(&ours.target) != variant.symbol_ref(&theirs.target) {
                return changed(*at);
            }
        }
        if section.relocations.len() != other.relocations.len() {
            return changed(0);
        }
    }
    Ok(())
}
