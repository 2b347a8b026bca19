//! Livepatches take a function away as a whole: its entry leads to another one, and
//! what stands in it, a probe included, is not reached. The kernel says which in
//! `/sys/kernel/livepatch/PATCH/OBJECT/FUNCTION,POSITION`.

use std::fs;
use std::path::Path;

const FOLDER: &str = "/sys/kernel/livepatch";

/// A function that a livepatch has replaced.
#[derive(Debug, PartialEq, Eq)]
struct Replaced {
    patch: String,
    /// `None` for vmlinux.
    module: Option<String>,
    function: String,
    /// Which of the functions of that name, in the order of `/proc/kallsyms`, from 1.
    position: usize,
}

/// Everything that livepatches have replaced.
#[derive(Debug, Default)]
pub(crate) struct Livepatches(Vec<Replaced>);

impl Livepatches {
    /// What the kernel says now. What goes while it is read is not there.
    pub(crate) fn read() -> Self {
        Self::read_in(Path::new(FOLDER))
    }

    fn read_in(folder: &Path) -> Self {
        let mut replaced = Vec::new();
        for patch in names(folder) {
            for object in names(&folder.join(&patch)) {
                let place = folder.join(&patch).join(&object);
                // Not yet, or not any more, as its module is not loaded.
                if fs::read_to_string(place.join("patched")).map_or(true, |text| text.trim() != "1") {
                    continue;
                }
                replaced.extend(names(&place).iter().filter_map(|name| {
                    let (function, position) = name.rsplit_once(',')?;
                    Some(Replaced {
                        patch: patch.clone(),
                        module: (object != "vmlinux").then(|| object.clone()),
                        function: function.to_owned(),
                        position: position.parse().ok()?,
                    })
                }));
            }
        }
        Self(replaced)
    }

    /// The livepatch that has replaced the function `symbol` of `module` at `start`.
    pub(crate) fn around(&self, symbol: &str, module: Option<&str>, start: u64) -> Option<&str> {
        self.around_with(symbol, module, start, || fs::read_to_string("/proc/kallsyms").unwrap_or_default())
    }

    /// `symbols` takes long, so it is called only if several functions have this name.
    fn around_with(
        &self,
        symbol: &str,
        module: Option<&str>,
        start: u64,
        symbols: impl Fn() -> String,
    ) -> Option<&str> {
        let is_it = |replaced: &&Replaced| {
            if replaced.function != symbol || replaced.module.as_deref() != module {
                return false;
            }
            let symbols = symbols();
            let all = addresses(&symbols, symbol, module);
            // Without symbols, functions of one name are not told apart: a false report is better than none.
            all.len() < 2 || all.get(replaced.position.wrapping_sub(1)) == Some(&start)
        };
        self.0.iter().find(is_it).map(|replaced| replaced.patch.as_str())
    }
}

/// The folders in a folder; none if it is not there.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    entries.filter(|entry| entry.path().is_dir()).filter_map(|entry| entry.file_name().into_string().ok()).collect()
}

/// Where the functions of this name are, in the kernel's order.
fn addresses(symbols: &str, name: &str, module: Option<&str>) -> Vec<u64> {
    let address = |line: &str| {
        let mut words = line.split_whitespace();
        let (address, _, symbol) = (words.next()?, words.next()?, words.next()?);
        let of = words.next().map(|word| word.trim_matches(['[', ']']));
        (symbol == name && of == module).then(|| u64::from_str_radix(address, 16).ok())?
    };
    symbols.lines().filter_map(address).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn replaced_functions_are_known() {
        let folder = tempfile::tempdir().unwrap();
        for (object, patched) in [("one/vmlinux", "1"), ("one/tcp_cubic", "1"), ("two/vmlinux", "0")] {
            for function in ["read,2", "open,1"] {
                fs::create_dir_all(folder.path().join(object).join(function)).unwrap();
            }
            fs::write(folder.path().join(object).join("patched"), format!("{patched}\n")).unwrap();
        }
        let patches = Livepatches::read_in(folder.path());
        assert_eq!(patches.0.len(), 4);
        let symbols = "1000 t read\n2000 t read\n3000 t read [other]\n4000 T open\n5000 t read [tcp_cubic]\n";
        let around = |symbol, module, address: u64| {
            let start = address.checked_sub(5)?;
            patches.around_with(symbol, module, start, || symbols.to_owned()).map(str::to_owned)
        };
        let one = Some("one".to_owned());
        assert_eq!(around("open", None, 0x4005), one);
        assert_eq!((around("read", None, 0x2005), around("read", None, 0x1005)), (one.clone(), None));
        assert_eq!((around("read", Some("tcp_cubic"), 0x5005), around("read", Some("other"), 0x3005)), (one, None));
        // Nothing is known of one that waits for its module.
        assert_eq!((around("write", None, 0x4005), around("open", None, 0)), (None, None));
        assert!(Livepatches::read_in(&folder.path().join("none")).0.is_empty());
    }
}
