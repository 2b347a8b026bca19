//! Identity of a whole unit: every function that the object has is in the deployed kernel,
//! and refers there to what the object names.
//!
//! In: the rebuilt object and the deployed code. Out: how many functions were compared. The
//! linker keeps the sections of an object together: all functions of a section, and all
//! references to it, must agree on one place of it. What has a name must be where the
//! kernel's symbols say; literals that the linker merges are compared by content. Left out:
//! code that is gone after boot, and the sites that the kernel patches by itself.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use xk_lift::insn::{Insn, Node};
use xk_lift::object::{reloc, Function, Object, PatchSite, RelocTarget, Relocation, CONSTANT_POOL, LITERALS};
use xk_table::{Place, Refusal};

use super::{first_difference, mismatch, Candidate, Deployed, Linked, Reference};

/// Sections whose code is gone once the kernel runs, or that hold what it patches
/// (arch/x86/kernel/vmlinux.lds.S).
const NOT_COMPARED: [&str; 8] =
    [".init.", ".exit.", ".meminit", ".ref.", ".discard", ".altinstr", ".static_call", ".head.text"];

/// A place of the deployed kernel.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
struct DeployedPlace {
    /// The section of the module; empty for vmlinux.
    section: String,
    /// The offset in the section; for vmlinux the address.
    offset: u64,
}

/// Checks that every function of `object` is in the deployed kernel; returns how many there are.
///
/// # Errors
/// [`Refusal::NotDeployed`] when a function is not there, [`Refusal::IdentityMismatch`] when one
/// differs, or refers to something else.
pub fn whole_unit(
    object: &Object,
    source: &str,
    module: Option<&str>,
    deployed: &dyn Deployed,
) -> Result<usize, Refusal> {
    let compared = |function: &&Function| {
        let section = &object.sections[function.start.section];
        section.allocated && !NOT_COMPARED.iter().any(|prefix| section.name.starts_with(prefix))
    };
    let functions: Vec<&Function> = object.functions.values().filter(compared).collect();
    let unit = RebuiltUnit { object, source, module, deployed };
    let mut sections: BTreeMap<usize, Vec<&Function>> = BTreeMap::new();
    for &function in &functions {
        sections.entry(function.start.section).or_default().push(function);
    }
    let mut known = Known::default();
    let mut open = Vec::new();
    for (section, functions) in &sections {
        let bases = unit.bases(functions)?;
        match (bases.len(), deployed.linked()) {
            // All functions are weak, and others were linked instead.
            (0, _) => {}
            (_, None) => {}
            (1, Some(_)) => known.sections.extend(bases.into_iter().map(|base| (*section, base))),
            (_, Some(_)) => open.push((*section, bases)),
        }
    }
    let Some(linked) = deployed.linked() else {
        return Ok(functions.iter().filter(|function| !function.weak).count());
    };
    // Where code of the same bytes is in several places, what it refers to tells them apart.
    for (section, bases) in open {
        let fits = |base: &DeployedPlace| {
            let mut known = known.clone();
            known.sections.insert(section, base.clone());
            unit.references(&sections[&section], &mut known, linked)
        };
        let mut results: Vec<(DeployedPlace, Result<(), Refusal>)> =
            bases.into_iter().map(|base| (base.clone(), fits(&base))).collect();
        let at = results.iter().position(|(_, result)| result.is_ok()).unwrap_or(0);
        let (base, result) = results.swap_remove(at);
        result?;
        known.sections.insert(section, base);
    }
    let mut count = 0;
    for (section, functions) in &sections {
        if known.sections.contains_key(section) {
            unit.in_place(functions, &known)?;
            unit.references(functions, &mut known, linked)?;
            count += functions.len();
        }
    }
    unit.names(&known)?;
    Ok(count)
}

/// A unit that was built from its source, and the kernel that it is compared with.
struct RebuiltUnit<'a> {
    object: &'a Object,
    source: &'a str,
    module: Option<&'a str>,
    deployed: &'a dyn Deployed,
}

/// What was found of the unit in the deployed kernel.
#[derive(Clone, Default)]
struct Known {
    /// Where each section of the object is.
    sections: HashMap<usize, DeployedPlace>,
    /// Where each symbol is that the kernel does not list.
    symbols: HashMap<String, DeployedPlace>,
}

fn not_deployed(detail: String) -> Refusal {
    Refusal::NotDeployed { detail }
}

impl RebuiltUnit<'_> {
    fn owner(&self) -> &str {
        self.module.unwrap_or("vmlinux")
    }

    /// The place of `offset` bytes after `candidate`. A place of vmlinux is identified by its address alone.
    fn at(&self, candidate: &Candidate, offset: u64) -> DeployedPlace {
        let section = if self.module.is_some() { candidate.section.clone() } else { String::new() };
        DeployedPlace { section, offset: candidate.address.wrapping_add(offset) }
    }

    fn candidate(at: &DeployedPlace) -> Candidate {
        Candidate { section: at.section.clone(), text_offset: at.offset, address: at.offset }
    }

    /// Where the section that holds `functions` may be: where all of them are.
    fn bases(&self, functions: &[&Function]) -> Result<BTreeSet<DeployedPlace>, Refusal> {
        let mut common: Option<BTreeSet<DeployedPlace>> = None;
        for function in functions.iter().filter(|function| !function.weak) {
            let found = self.places(function)?;
            // Without addresses there is nothing that the others could agree on.
            let found: BTreeSet<DeployedPlace> = match self.deployed.linked() {
                Some(_) => found.iter().map(|c| self.at(c, function.start.offset.wrapping_neg())).collect(),
                None => BTreeSet::from([DeployedPlace { section: String::new(), offset: 0 }]),
            };
            let met = match common {
                Some(common) => common.intersection(&found).cloned().collect(),
                None => found,
            };
            if met.is_empty() {
                let detail = format!(
                    "{}: {} of {} is not where the other functions of its section are",
                    self.source,
                    function.name,
                    self.owner()
                );
                return Err(not_deployed(detail));
            }
            common = Some(met);
        }
        Ok(common.unwrap_or_default())
    }

    /// Every copy of `function` that is the same byte for byte.
    fn places(&self, function: &Function) -> Result<Vec<Candidate>, Refusal> {
        let candidates = self.deployed.candidates(&function.name, self.module)?;
        if candidates.is_empty() {
            return Err(not_deployed(format!("{} has no function {}", self.owner(), function.name)));
        }
        let (text, mask) = self.object.text_and_mask(function);
        let mut best: Option<(usize, Vec<u8>)> = None;
        let mut found = Vec::new();
        for candidate in candidates {
            let running = self.deployed.text(&candidate, self.module, text.len())?;
            match first_difference(&text, &mask, &running) {
                None => found.push(candidate),
                Some(at) if best.as_ref().is_none_or(|(other, _)| at > *other) => best = Some((at, running)),
                Some(_) => {}
            }
        }
        match best {
            Some((at, running)) if found.is_empty() => Err(mismatch(self.object, function, self.source, at, &running)),
            _ => Ok(found),
        }
    }

    /// Compares all functions of a section where it is; weak ones are there, too, whatever the
    /// kernel calls in their place.
    fn in_place(&self, functions: &[&Function], known: &Known) -> Result<(), Refusal> {
        for function in functions.iter().filter(|function| function.weak) {
            let Some(at) = known.place(function.start.section, function.start.offset) else { continue };
            let (text, mask) = self.object.text_and_mask(function);
            let running = self.deployed.text(&Self::candidate(&at), self.module, text.len())?;
            if let Some(at) = first_difference(&text, &mask, &running) {
                return Err(mismatch(self.object, function, self.source, at, &running));
            }
        }
        Ok(())
    }

    /// Checks what `functions` refer to.
    fn references(&self, functions: &[&Function], known: &mut Known, linked: &dyn Linked) -> Result<(), Refusal> {
        for function in functions {
            let patched = self.object.kernel_patched(function);
            let section = &self.object.sections[function.start.section];
            let (start, end) = (function.start.offset, function.start.offset + function.size);
            for (&offset, relocation) in section.relocations.range(start..end) {
                let node = Node { section: function.start.section, offset };
                let inside = |site: &&PatchSite| site.at <= node && node.offset < site.at.offset + site.len;
                let holder = self.object.insns.range(..=node).next_back().map(|(_, insn)| insn);
                let holder = holder.filter(|insn| insn.node.section == node.section && node < insn.next());
                if let (Some(insn), None) = (holder, patched.iter().find(inside)) {
                    self.reference(function, insn, offset, relocation, known, linked)?;
                }
            }
        }
        Ok(())
    }

    fn reference(
        &self,
        function: &Function,
        insn: &Insn,
        offset: u64,
        relocation: &Relocation,
        known: &mut Known,
        linked: &dyn Linked,
    ) -> Result<(), Refusal> {
        const CHECKED: [u32; 6] = [reloc::ABS64, reloc::PC32, reloc::PLT32, reloc::ABS32, reloc::ABS32S, reloc::PC64];
        let (section, end) = (function.start.section, insn.next().offset);
        let Some(target) = self.object.field(section, offset, end) else { return Ok(()) };
        let Some(field) = known.place(section, offset) else { return Ok(()) };
        if !CHECKED.contains(&relocation.kind) {
            return Ok(());
        }
        let found = linked.reference(&Self::candidate(&field), relocation.kind, end - offset, self.module);
        let Some(found) = found? else { return Ok(()) };
        if self.agrees(&target, &found, known)? {
            return Ok(());
        }
        let shown = match &found {
            Reference::Place(Candidate { section, address, .. }) => linked.describe(section, *address, self.module),
            Reference::Symbol { name, offset } => format!("{name}{offset:+#x}"),
        };
        let symbol = self.object.symbol_ref(&target);
        let offset = (insn.node.offset - function.start.offset) as u32;
        Err(Refusal::IdentityMismatch {
            place: Place { source: self.source.into(), function: function.name.clone(), offset },
            rebuilt: format!("`{}` refers to {}{:+#x}", insn.text(), symbol.name, symbol.offset),
            deployed: format!("to {shown}"),
        })
    }

    /// Whether what the deployed code refers to is what the object names; what is learnt from it
    /// holds for the references that follow.
    fn agrees(&self, target: &RelocTarget, found: &Reference, known: &mut Known) -> Result<bool, Refusal> {
        match (target, found) {
            (RelocTarget::Section { section, offset }, Reference::Place(place)) => {
                let name = self.object.sections.get(*section).map_or("", |s| s.name.as_str());
                if name.starts_with(LITERALS) || name.starts_with(CONSTANT_POOL) {
                    return Ok(self.same_literal(*section, *offset, place));
                }
                let base = self.at(place, (*offset as u64).wrapping_neg());
                Ok(*known.sections.entry(*section).or_insert_with(|| base.clone()) == base)
            }
            // A module's own section, named by a symbol that the linker made: there is none.
            (RelocTarget::Section { .. }, Reference::Symbol { .. }) => Ok(false),
            (RelocTarget::Symbol(symbol), Reference::Symbol { name, offset }) => {
                Ok(symbol.name == *name && symbol.offset == *offset)
            }
            (RelocTarget::Symbol(symbol), Reference::Place(place)) => {
                let start = self.at(place, (symbol.offset as u64).wrapping_neg());
                let named = self.deployed.candidates(&symbol.name, self.module)?;
                if named.is_empty() {
                    let first = known.symbols.entry(symbol.name.clone()).or_insert_with(|| start.clone());
                    return Ok(*first == start);
                }
                Ok(named.iter().any(|candidate| self.at(candidate, 0) == start))
            }
        }
    }

    /// Whether the deployed kernel holds the same literal; one that cannot be read is not compared.
    fn same_literal(&self, section: usize, offset: i64, place: &Candidate) -> bool {
        let holder = &self.object.sections[section];
        let Some(rest) = usize::try_from(offset).ok().and_then(|at| holder.data.get(at..)) else { return false };
        let len = match holder.name.strip_prefix(CONSTANT_POOL).and_then(|size| size.parse::<usize>().ok()) {
            Some(size) => size.min(rest.len()),
            None => rest.iter().position(|&byte| byte == 0).map_or(rest.len(), |end| end + 1),
        };
        match self.deployed.text(place, self.module, len) {
            Ok(bytes) => bytes == rest[..len],
            Err(_) => true,
        }
    }

    /// Named objects are where the kernel's symbols say.
    fn names(&self, known: &Known) -> Result<(), Refusal> {
        for (name, symbol) in self.object.data_symbols.iter().filter(|(_, symbol)| !symbol.weak) {
            let index = self.object.sections.iter().position(|s| s.allocated && s.name == symbol.section);
            let Some(at) = index.and_then(|index| known.place(index, symbol.offset)) else { continue };
            let named = self.deployed.candidates(name, self.module)?;
            if !named.is_empty() && !named.iter().any(|candidate| self.at(candidate, 0) == at) {
                let detail =
                    format!("{}: {} has no object {name} where the code refers to it", self.source, self.owner());
                return Err(not_deployed(detail));
            }
        }
        Ok(())
    }
}

impl Known {
    fn place(&self, section: usize, offset: u64) -> Option<DeployedPlace> {
        let base = self.sections.get(&section)?;
        Some(DeployedPlace { section: base.section.clone(), offset: base.offset.wrapping_add(offset) })
    }
}
