//! Identity: a function is touched only if its rebuilt bytes equal the
//! deployed ones. Masked are relocated fields and the sites that the kernel
//! patches by itself, nothing else.

mod whole;

pub use whole::whole_unit;

use thiserror::Error;
use xk_kernel::ImageError;
use xk_lift::insn::Node;
use xk_lift::object::{Function, Object};
use xk_lift::prototypes::Prototypes;
use xk_table::{hex, Function as TableFunction, Place, Refusal};

/// A function of the deployed kernel.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Candidate {
    /// Section of the module; `.text` for vmlinux.
    pub section: String,
    /// Offset from `_stext` (vmlinux) or from the start of the section.
    pub text_offset: u64,
    /// Whatever the source needs to read it.
    pub address: u64,
}

/// Why code of a deployed kernel is not known.
#[derive(Debug, Error)]
pub enum Unreadable {
    /// The kernel or the module cannot be read.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// The bytes are not all in the section.
    #[error("{module}: {section}+{offset:#x} lies outside the module")]
    Outside {
        /// The module.
        module: String,
        /// Its section.
        section: String,
        /// Offset of the first byte.
        offset: u64,
    },
    /// The field refers to nothing.
    #[error("{module}: nothing is relocated at {section}+{offset:#x}")]
    NotRelocated {
        /// The module.
        module: String,
        /// Its section.
        section: String,
        /// Offset of the field.
        offset: u64,
    },
}

impl From<Unreadable> for Refusal {
    fn from(unreadable: Unreadable) -> Self {
        Self::NotDeployed { detail: unreadable.to_string() }
    }
}

/// The code of a deployed kernel: a live one, a saved one, or an image file.
pub trait Deployed: Sync {
    /// Every function called `symbol` in `module` (`None`: vmlinux).
    ///
    /// # Errors
    /// When the module or the symbols cannot be read.
    fn candidates(&self, symbol: &str, module: Option<&str>) -> Result<Vec<Candidate>, Unreadable>;

    /// `len` bytes of a candidate.
    ///
    /// # Errors
    /// When they cannot be read.
    fn text(&self, candidate: &Candidate, module: Option<&str>, len: usize) -> Result<Vec<u8>, Unreadable>;

    /// Prototypes of the functions of vmlinux and of `modules`; none when they
    /// are not known.
    fn prototypes(&self, modules: &[&str]) -> Prototypes {
        let _ = modules;
        Prototypes::default()
    }

    /// What its code refers to, when that can be read.
    fn linked(&self) -> Option<&dyn Linked> {
        None
    }
}

/// What a relocated field of deployed code refers to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reference {
    /// A place; of vmlinux what counts is the address.
    Place(Candidate),
    /// A symbol that another module or vmlinux defines.
    Symbol {
        /// Its name.
        name: String,
        /// Offset from it, in bytes.
        offset: i64,
    },
}

/// Deployed code whose references can be read.
pub trait Linked {
    /// What the field at `field` refers to, of a relocation of this `kind` in an instruction that
    /// ends `end` bytes after the start of the field. `None` when nothing is known of it.
    ///
    /// # Errors
    /// When it cannot be read.
    fn reference(
        &self,
        field: &Candidate,
        kind: u32,
        end: u64,
        module: Option<&str>,
    ) -> Result<Option<Reference>, Unreadable>;

    /// A place, for a human.
    fn describe(&self, section: &str, address: u64, module: Option<&str>) -> String;
}

/// Finds `function` in the deployed kernel and checks that it is the same.
///
/// # Errors
/// [`Refusal::NotDeployed`] when there is no such function,
/// [`Refusal::IdentityMismatch`] with the first differing instruction of the
/// candidate that came closest.
pub fn locate(
    object: &Object,
    function: &Function,
    source: &str,
    module: Option<&str>,
    deployed: &dyn Deployed,
) -> Result<TableFunction, Refusal> {
    let not_deployed = |detail: String| Refusal::NotDeployed { detail };
    let owner = module.unwrap_or("vmlinux");
    let candidates = deployed.candidates(&function.name, module)?;
    let (text, mask) = object.text_and_mask(function);
    let mut best: Option<(usize, Vec<u8>)> = None;
    let mut matching = Vec::new();
    for candidate in candidates {
        let running = deployed.text(&candidate, module, text.len())?;
        match first_difference(&text, &mask, &running) {
            None => matching.push((candidate, running)),
            Some(at) if best.as_ref().is_none_or(|(found, _)| at > *found) => best = Some((at, running)),
            Some(_) => {}
        }
    }
    match (matching.len(), best) {
        (1, _) => {
            let (candidate, running) = matching.remove(0);
            Ok(TableFunction {
                symbol: function.name.clone(),
                // As the kernel spells it in /proc/kallsyms.
                module: module.map(|name| name.replace('-', "_")),
                text_offset: candidate.text_offset,
                section: candidate.section,
                bytes: hex(&running),
                mask: hex(&mask),
                source: source.into(),
            })
        }
        (0, Some((at, running))) => Err(mismatch(object, function, source, at, &running)),
        (0, None) => Err(not_deployed(format!("{owner} has no function {}", function.name))),
        (n, _) => Err(not_deployed(format!("{owner} has {n} identical functions {}", function.name))),
    }
}

/// Offset of the first byte that must be equal and is not.
pub(crate) fn first_difference(text: &[u8], mask: &[u8], running: &[u8]) -> Option<usize> {
    (0..text.len()).find(|&i| running.get(i).is_none_or(|&byte| (byte ^ text[i]) & mask[i] != 0))
}

fn mismatch(object: &Object, function: &Function, source: &str, at: usize, running: &[u8]) -> Refusal {
    let node = Node { section: function.start.section, offset: function.start.offset + at as u64 };
    let (start, len) = object
        .insns
        .range(function.start..=node)
        .next_back()
        .map_or((at, 1), |(n, insn)| ((n.offset - function.start.offset) as usize, insn.raw.len()));
    let (text, _) = object.text_and_mask(function);
    let cut = |bytes: &[u8]| hex(bytes.get(start..(start + len).min(bytes.len())).unwrap_or(&[]));
    Refusal::IdentityMismatch {
        place: Place { source: source.into(), function: function.name.clone(), offset: start as u32 },
        rebuilt: cut(&text),
        deployed: cut(running),
    }
}
