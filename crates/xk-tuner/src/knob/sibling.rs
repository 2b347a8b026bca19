//! Files of the kernel of which only one is in force: setting one resets the other to 0.
//!
//! In: a file. Out: the other file, if that is in force. A knob whose 0 means "the other is in force" must not be tuned: when
//! its 0 is written back, the kernel refuses it (`vm.dirty_bytes`), or takes it and leaves both at 0. The handlers of these
//! files are in mm/page-writeback.c and mm/util.c of Linux.

use std::fs;
use std::path::{Path, PathBuf};

/// The pairs.
const PAIRS: [[&str; 2]; 3] = [
    ["/proc/sys/vm/dirty_bytes", "/proc/sys/vm/dirty_ratio"],
    ["/proc/sys/vm/dirty_background_bytes", "/proc/sys/vm/dirty_background_ratio"],
    ["/proc/sys/vm/overcommit_kbytes", "/proc/sys/vm/overcommit_ratio"],
];

/// The file that is in force instead of `path`, and its value.
pub fn in_force_instead_of(path: &Path) -> Option<(PathBuf, String)> {
    let number = |path: &Path| fs::read_to_string(path).map(|text| text.trim().to_owned()).ok();
    let other = other(path)?;
    let value = number(other).filter(|value| value != "0")?;
    (number(path)? == "0").then(|| (other.to_owned(), value))
}

fn other(path: &Path) -> Option<&'static Path> {
    let is = |name: &str| Path::new(name) == path;
    let found = PAIRS.iter().find_map(|[a, b]| is(a).then_some(b).or_else(|| is(b).then_some(a)))?;
    Some(Path::new(*found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_each_pair_one_file_is_in_force() {
        for pair in PAIRS {
            let [a, b] = pair.map(Path::new);
            assert_eq!((other(a), other(b)), (Some(b), Some(a)));
            // On any Linux, at most one of both is 0 because of the other.
            let shadowed = [a, b].iter().filter(|path| in_force_instead_of(path).is_some()).count();
            assert_eq!(shadowed, usize::from(a.exists()), "{pair:?}");
        }
        assert_eq!(other(Path::new("/proc/sys/vm/swappiness")), None);
    }
}
