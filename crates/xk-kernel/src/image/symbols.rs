//! Symbols of a kernel and of its loaded modules.
//!
//! In: the text of `/proc/kallsyms` or of a System.map, or the decoded tables
//! of an image. Refuses text without addresses: an unprivileged reader of
//! `/proc/kallsyms` gets zeros, and Debian's System.map is a stub.

use std::collections::HashMap;

use thiserror::Error;

use super::kallsyms::Entry;

/// A symbol at its address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Symbol {
    /// The name; clones have suffixes such as `.constprop.0`, `.cold`, `.isra.0`. Names are not unique.
    pub name: String,
    /// Where it is.
    pub address: u64,
    /// Bytes to the next symbol of the same image or module: the size and the padding after it. 0 if there is none.
    pub size_hint: u64,
    /// The module that has it, as the kernel spells it (`tcp_bbr`); `None` for the image.
    pub module: Option<String>,
    /// The type letter: `t`/`T` text, `d`/`D` data, `r`/`R` read-only data, `W` weak, `A` absolute.
    pub kind: char,
}

impl Symbol {
    /// Whether the symbol is code.
    pub fn is_text(&self) -> bool {
        matches!(self.kind, 't' | 'T' | 'w' | 'W')
    }
}

/// Why a list of symbols cannot be used.
#[derive(Debug, Error, PartialEq, Eq)]
pub enum SymbolsError {
    /// A line is not `address type name [module]`.
    #[error("line {line} is not 'address type name': '{text}'")]
    Line {
        /// Counted from 1.
        line: usize,
        /// The beginning of the line.
        text: String,
    },
    /// All addresses are zero.
    #[error("every address is zero: reading /proc/kallsyms needs root and kernel.kptr_restrict below 2 (sysctl kernel.kptr_restrict=1)")]
    Hidden,
    /// The list has no `_stext`.
    #[error("there is no _stext among {0} symbols; Debian's System.map is only a stub, the real one is in the linux-image-<release>-dbg package")]
    NoText(usize),
}

/// Symbols by name and by address.
#[derive(Debug, Clone, Default)]
pub(crate) struct Symbols {
    /// By address.
    all: Vec<Symbol>,
    by_name: HashMap<String, Vec<usize>>,
}

impl Symbols {
    /// Parses `/proc/kallsyms` or a System.map.
    pub(crate) fn parse(text: &str) -> Result<Self, SymbolsError> {
        let mut symbols = Vec::new();
        for (at, line) in text.lines().enumerate().filter(|(_, line)| !line.trim().is_empty()) {
            let symbol = parse_line(line);
            let shown = || line.chars().take(60).collect();
            symbols.push(symbol.ok_or_else(|| SymbolsError::Line { line: at + 1, text: shown() })?);
        }
        if !symbols.is_empty() && symbols.iter().all(|symbol| symbol.address == 0) {
            return Err(SymbolsError::Hidden);
        }
        Self::new(symbols)
    }

    pub(crate) fn from_entries(entries: Vec<Entry>) -> Result<Self, SymbolsError> {
        let symbol = |Entry { kind, name, address }| Symbol { name, address, size_hint: 0, module: None, kind };
        Self::new(entries.into_iter().map(symbol).collect())
    }

    fn new(mut all: Vec<Symbol>) -> Result<Self, SymbolsError> {
        all.sort_by(|a, b| a.address.cmp(&b.address).then_with(|| a.name.cmp(&b.name)));
        let mut next: HashMap<Option<String>, (u64, u64)> = HashMap::new();
        for symbol in all.iter_mut().rev() {
            // The address after this one, in the same image or module.
            let (current, following) = next.get(&symbol.module).copied().unwrap_or((symbol.address, symbol.address));
            let following = if current > symbol.address { current } else { following };
            symbol.size_hint = following - symbol.address;
            match next.get_mut(&symbol.module) {
                Some(entry) => *entry = (symbol.address, following),
                None => {
                    next.insert(symbol.module.clone(), (symbol.address, following));
                }
            }
        }
        let mut by_name: HashMap<String, Vec<usize>> = HashMap::with_capacity(all.len());
        for (at, symbol) in all.iter().enumerate() {
            by_name.entry(symbol.name.clone()).or_default().push(at);
        }
        let symbols = Self { all, by_name };
        if symbols.image_address("_stext").is_none() {
            return Err(SymbolsError::NoText(symbols.all.len()));
        }
        Ok(symbols)
    }

    pub(crate) fn all(&self) -> &[Symbol] {
        &self.all
    }

    pub(crate) fn named(&self, name: &str) -> impl Iterator<Item = &Symbol> {
        self.by_name.get(name).into_iter().flatten().map(|&at| &self.all[at])
    }

    /// The address of a symbol of the image itself.
    pub(crate) fn image_address(&self, name: &str) -> Option<u64> {
        self.named(name).find(|symbol| symbol.module.is_none()).map(|symbol| symbol.address)
    }

    /// The code symbol that covers an address.
    pub(crate) fn text_at(&self, address: u64) -> Option<&Symbol> {
        let end = self.all.partition_point(|symbol| symbol.address <= address);
        let before = self.all[..end].iter().rev();
        before.take(64).find(|symbol| symbol.is_text() && address - symbol.address < symbol.size_hint)
    }
}

fn parse_line(line: &str) -> Option<Symbol> {
    let mut words = line.split_whitespace();
    let address = u64::from_str_radix(words.next()?, 16).ok()?;
    let mut kind = words.next()?.chars();
    let (kind, None) = (kind.next()?, kind.next()) else { return None };
    let name = words.next()?.to_owned();
    let module = match words.next() {
        Some(word) => Some(word.strip_prefix('[')?.strip_suffix(']')?.to_owned()),
        None => None,
    };
    Some(Symbol { name, address, size_hint: 0, module, kind })
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIST: &str = "ffffffff81000000 T _stext\n\
                        ffffffff81000000 T _text\n\
                        ffffffff81000040 t twice\n\
                        ffffffff81000060 t twice\n\
                        ffffffff81000060 T alias\n\
                        ffffffffc0000000 t bbr_main\t[tcp_bbr]\n\
                        ffffffffc0000010 t other_start\t[other]\n\
                        ffffffffc0000030 t bbr_init\t[tcp_bbr]\n";

    #[test]
    fn names_repeat_and_sizes_reach_the_next_address_of_the_same_module() {
        let symbols = Symbols::parse(LIST).unwrap();
        let twice: Vec<_> = symbols.named("twice").map(|s| (s.address & 0xff, s.size_hint)).collect();
        assert_eq!(twice, [(0x40, 0x20), (0x60, 0)]);
        assert_eq!(symbols.named("_stext").next().unwrap().size_hint, 0x40);
        let bbr = symbols.named("bbr_main").next().unwrap();
        assert_eq!((bbr.size_hint, bbr.module.as_deref()), (0x30, Some("tcp_bbr")));
        assert_eq!(symbols.named("absent").count(), 0);
    }

    #[test]
    fn code_is_found_by_address() {
        let symbols = Symbols::parse(LIST).unwrap();
        assert_eq!(symbols.text_at(0xffff_ffff_8100_0045).unwrap().name, "twice");
        assert_eq!(
            symbols.text_at(0xffff_ffff_c000_002f).unwrap().name,
            "other_start".replace("other_start", "bbr_main")
        );
        assert_eq!(symbols.text_at(0xffff_ffff_8000_0000), None);
        assert_eq!(symbols.text_at(u64::MAX), None);
    }

    #[test]
    fn hidden_addresses_and_stubs_are_refused() {
        let hidden = "0000000000000000 T _stext\n0000000000000000 T _text\n";
        assert_eq!(Symbols::parse(hidden).unwrap_err(), SymbolsError::Hidden);
        let stub = "ffffffffffffffff B The real System.map is in the linux-image-<version>-dbg package\n";
        assert!(Symbols::parse(stub).is_err());
        assert_eq!(Symbols::parse("").unwrap_err(), SymbolsError::NoText(0));
        assert!(matches!(Symbols::parse("\u{0}\u{1}garbage"), Err(SymbolsError::Line { line: 1, .. })));
        for end in 1..LIST.len() {
            let _ = Symbols::parse(&LIST[..end]);
        }
    }
}
