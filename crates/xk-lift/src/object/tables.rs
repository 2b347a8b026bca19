//! The tables beside the code of an object: what the kernel patches, where
//! faults and warnings go on, what must not be probed.

use super::{Bug, Object, PatchSite, RelocTarget};
use crate::insn::Node;

impl Object {
    pub(super) fn entries(&self, name: &str, size: u64) -> Vec<(usize, u64)> {
        self.sections
            .iter()
            .enumerate()
            .filter(|(_, s)| s.name == name)
            .flat_map(|(i, s)| (0..s.data.len() as u64 / size).map(move |n| (i, n * size)))
            .collect()
    }

    pub(super) fn place(&self, section: usize, offset: u64) -> Option<Node> {
        match &self.sections.get(section)?.relocations.get(&offset)?.target {
            RelocTarget::Section { section, offset } => Some(Node { section: *section, offset: *offset as u64 }),
            RelocTarget::Symbol(_) => None,
        }
    }

    pub(super) fn word<const N: usize>(&self, section: usize, offset: u64) -> Option<[u8; N]> {
        let bytes = self.sections.get(section)?.data.get(offset as usize..offset as usize + N)?;
        bytes.try_into().ok()
    }

    pub(super) fn read_tables(&mut self) {
        // include/linux/jump_label.h: s32 code, s32 target, long key.
        for (section, at) in self.entries("__jump_table", 16) {
            if let (Some(code), Some(target)) = (self.place(section, at), self.place(section, at + 4)) {
                let key = self.sections[section].relocations.get(&(at + 8));
                let key = key.map_or_else(String::new, |r| format!("{:?}", self.symbol_ref(&r.target)));
                self.jump_labels.insert(code, (target, key));
            }
        }
        // arch/x86/include/asm/extable.h: int insn, fixup, data.
        for (section, at) in self.entries("__ex_table", 12) {
            if let (Some(insn), Some(fixup)) = (self.place(section, at), self.place(section, at + 4)) {
                self.handlers.insert(insn, self.word(section, at + 8).unwrap_or_default());
                self.fixups.insert(insn, fixup);
            }
        }
        // include/asm-generic/bug.h with relative pointers and file names:
        // s32 address, s32 file, u16 line, u16 flags; BUGFLAG_WARNING is bit 0.
        for (section, at) in self.entries("__bug_table", 12) {
            let half = |offset| self.word(section, at + offset).map_or(0, u16::from_le_bytes);
            let (line, flags) = (half(8), half(10));
            let file = self.sections[section].relocations.get(&(at + 4)).map(|r| self.symbol_ref(&r.target));
            if let Some(code) = self.place(section, at) {
                self.bugs.insert(code, Bug { file, line, flags });
                if flags & 1 == 1 {
                    self.warnings.insert(code);
                }
            }
        }
        // arch/x86/include/asm/alternative.h: s32 instr, s32 repl, u32 feature
        // and flags, u8 instrlen, u8 replacementlen.
        for (section, at) in self.entries(".altinstructions", 14) {
            if let (Some(code), Some([len])) = (self.place(section, at), self.word::<1>(section, at + 12)) {
                self.alternatives.push(PatchSite { at: code, len: u64::from(len) });
                self.choices.entry(code).or_default().push((section, at));
            }
        }
        self.read_runtime_constants();
        for site in &self.alternatives {
            let end = Node { section: site.at.section, offset: site.at.offset.saturating_add(site.len) };
            self.in_alternative.extend(self.insns.range(site.at..end).map(|(node, _)| *node));
        }
        // arch/x86/include/asm/alternative.h, LOCK_PREFIX: s32 address.
        self.lock_prefixes =
            self.entries(".smp_locks", 4).into_iter().filter_map(|(section, at)| self.place(section, at)).collect();
        let blacklist: Vec<String> = self
            .entries("_kprobe_blacklist", 8)
            .into_iter()
            .filter_map(|(section, at)| self.function_at(self.place(section, at)?).map(|f| f.name.clone()))
            .collect();
        self.blacklist.extend(blacklist);
    }

    /// Constants that the kernel writes into its own code at boot
    /// (arch/x86/include/asm/runtime-const.h): pointers of eight bytes and
    /// shift counts of one. What runs there is not what the object says.
    fn read_runtime_constants(&mut self) {
        let (mut found, mut names) = (Vec::new(), Vec::new());
        for (index, section) in self.sections.iter().enumerate() {
            let len = match section.name.split_once("runtime_") {
                Some(("", rest)) if rest.starts_with("ptr_") => 8,
                Some(("", rest)) if rest.starts_with("shift_") => 1,
                _ => continue,
            };
            let places = (0..section.size / 4).filter_map(|n| self.place(index, 4 * n));
            found.extend(places.map(|at| PatchSite { at, len }));
            names.resize(found.len(), section.name.clone());
        }
        for site in &found {
            let holder = self.insns.range(..=site.at).next_back().map(|(node, _)| *node);
            self.in_alternative.extend(holder.filter(|node| node.section == site.at.section));
        }
        self.runtime_constants = found;
        self.runtime_names = names;
    }

    /// Places in code that replacement instructions of alternatives refer to:
    /// control may arrive there once the kernel has patched itself.
    #[must_use]
    pub fn alternative_targets(&self) -> Vec<Node> {
        let replacements = self.sections.iter().filter(|s| s.name == ".altinstr_replacement");
        replacements
            .flat_map(|s| s.relocations.iter())
            .filter_map(|(_, relocation)| match &relocation.target {
                // Jumps are relative to the end of their four-byte field.
                RelocTarget::Section { section, offset } => {
                    Some(Node { section: *section, offset: offset.wrapping_add(4) as u64 })
                }
                RelocTarget::Symbol(_) => None,
            })
            .filter(|node| self.insns.contains_key(node))
            .collect()
    }
}
