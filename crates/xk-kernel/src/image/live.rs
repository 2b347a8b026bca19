//! The running kernel: its files under `/proc` and `/sys`.

use std::fs;
use std::io::Read;
use std::path::Path;
use std::sync::Mutex;

use super::fault::ModuleFault;
use super::kcore::Kcore;
use super::symbols::Symbols;
use super::{Image, ImageError, Memory, Module};
use crate::bundle::{Bundle, BundleExtras, LoadedModule, LoadedSection};
use crate::id::{build_id, KernelId};

pub(crate) const BTF: &str = "/sys/kernel/btf/vmlinux";
pub(crate) const KALLSYMS: &str = "/proc/kallsyms";
const MODULES: &str = "/proc/modules";
const KCORE: &str = "/proc/kcore";
const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

impl Image {
    /// The running kernel. Needs root.
    pub fn live() -> Result<Self, ImageError> {
        let id = KernelId::live()?;
        let text = fs::read(KALLSYMS).map_err(ImageError::read(Path::new(KALLSYMS)))?;
        let symbols = Symbols::parse(&String::from_utf8_lossy(&text))
            .map_err(|error| ImageError::Symbols { origin: KALLSYMS.to_owned(), error })?;
        let kcore = Kcore::open(Path::new(KCORE), &lockdown_remedy())?;
        let modules = Path::new("/lib/modules").join(&id.release);
        Ok(Self { id, memory: Memory::Kcore(kcore), symbols, modules, last: Mutex::default() })
    }
}

impl Bundle {
    /// Saves the running kernel. Needs root; takes a few seconds and about 15 MB.
    pub fn save_live(path: &Path) -> Result<(), ImageError> {
        let image = Image::live()?;
        let extras = live_extras(&image)?;
        Ok(Self::of_image(&image, &extras)?.save(path)?)
    }

    /// The bundle of an image.
    pub fn of_image(image: &Image, extras: &BundleExtras) -> Result<Self, ImageError> {
        let text = image.text_range();
        let bytes = image.read(text.start, (text.end - text.start) as usize)?;
        let mut memory = vec![("text".to_owned(), text.start, bytes)];
        for module in &extras.modules {
            for (at, &(address, length)) in module.text.iter().enumerate() {
                memory.push((format!("modules/{}/text{at}", module.name), address, image.read(address, length)?));
            }
        }
        Ok(Self::new(image.id().clone(), image.btf(), memory, extras))
    }
}

/// The mode that is in force, from `none [integrity] confidentiality`.
pub(crate) fn lockdown_mode(text: &str) -> Option<&str> {
    text.split_whitespace().find_map(|word| word.strip_prefix('[')?.strip_suffix(']'))
}

fn lockdown_remedy() -> String {
    let text = fs::read_to_string(LOCKDOWN).unwrap_or_default();
    match lockdown_mode(&text) {
        None | Some("none") => String::new(),
        Some(mode) => format!(", and kernel lockdown is '{mode}': boot without lockdown= and with Secure Boot off, or analyse the vmlinuz instead"),
    }
}

/// What a bundle of the running kernel holds besides its text: symbols, configuration, modules.
fn live_extras(image: &Image) -> Result<BundleExtras, ImageError> {
    let kallsyms = fs::read(KALLSYMS).map_err(ImageError::read(Path::new(KALLSYMS)))?;
    let list = fs::read_to_string(MODULES).map_err(ImageError::read(Path::new(MODULES)))?;
    let mut modules = Vec::new();
    for name in list.lines().filter_map(|line| line.split_whitespace().next()) {
        // A module may have gone since the list was read.
        let Some(sections) = module_sections(name)? else { continue };
        modules.push(loaded_module(image, name, sections));
    }
    let kallsyms = String::from_utf8_lossy(&kallsyms).into_owned();
    Ok(BundleExtras { kallsyms, config: live_config(&image.id().release), modules })
}

/// The code of a loaded module. The kernel does not say how long a section is, the module's file
/// does; without the file (a module from elsewhere) the bundle knows addresses only.
fn loaded_module(image: &Image, name: &str, sections: Vec<LoadedSection>) -> LoadedModule {
    let length = |file: &Module, section: &LoadedSection| {
        let found = file.sections.iter().find(|other| other.name == section.name)?;
        (found.executable && !section.name.starts_with(".init") && found.size > 0)
            .then_some((section.address, found.size as usize))
    };
    let text = image
        .module(name)
        .map(|file| sections.iter().filter_map(|section| length(&file, section)).collect())
        .unwrap_or_default();
    LoadedModule { name: kernel_spelling(name), sections, text }
}

/// The running kernel's configuration, from itself or from the distribution's file.
fn live_config(release: &str) -> Option<String> {
    let own = fs::File::open("/proc/config.gz").ok().and_then(|file| {
        let mut text = String::new();
        flate2::read::GzDecoder::new(file).read_to_string(&mut text).ok()?;
        Some(text)
    });
    own.or_else(|| fs::read_to_string(format!("/boot/config-{release}")).ok())
}

/// The name of a module as the kernel spells it.
fn kernel_spelling(name: &str) -> String {
    name.replace('-', "_")
}

/// The sections of a loaded module; `None` when it is not loaded.
pub(super) fn module_sections(name: &str) -> Result<Option<Vec<LoadedSection>>, ImageError> {
    sections_in(&Path::new("/sys/module").join(kernel_spelling(name)).join("sections"))
}

fn sections_in(folder: &Path) -> Result<Option<Vec<LoadedSection>>, ImageError> {
    let Ok(entries) = fs::read_dir(folder) else { return Ok(None) };
    let mut sections = Vec::new();
    for entry in entries {
        let path = entry.map_err(ImageError::read(folder))?.path();
        let text = fs::read_to_string(&path).map_err(ImageError::read(&path))?;
        let address = text.trim().strip_prefix("0x").and_then(|digits| u64::from_str_radix(digits, 16).ok());
        let fault = ModuleFault::HiddenAddress;
        let address =
            address.filter(|&address| address != 0).ok_or(ImageError::Module { path: path.clone(), fault })?;
        let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
        sections.push(LoadedSection { name, address });
    }
    sections.sort_by_key(|section| section.address);
    Ok(Some(sections))
}

/// Refuses a module file that was replaced after the module had been loaded.
pub(super) fn check_same_build(module: &Module) -> Result<(), ImageError> {
    let path = Path::new("/sys/module").join(kernel_spelling(&module.name)).join("notes/.note.gnu.build-id");
    let Ok(note) = fs::read(path) else { return Ok(()) };
    if build_id(&note).map(<[u8]>::to_vec) == module.build_id() {
        return Ok(());
    }
    Err(ImageError::Module { path: module.path.clone(), fault: ModuleFault::BuildId })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_lockdown_mode_is_the_one_in_brackets() {
        assert_eq!(lockdown_mode("none [integrity] confidentiality\n"), Some("integrity"));
        assert_eq!(lockdown_mode("[none] integrity confidentiality"), Some("none"));
        assert_eq!(lockdown_mode(""), None);
    }

    #[test]
    fn section_addresses_are_read_and_hidden_ones_refused() {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join(".text"), "0xffffffffc0001000\n").unwrap();
        fs::write(folder.path().join(".data"), "0xffffffffc0000000\n").unwrap();
        let sections = sections_in(folder.path()).unwrap().unwrap();
        assert_eq!(sections[1], LoadedSection { name: ".text".to_owned(), address: 0xffff_ffff_c000_1000 });
        for hidden in ["0x0000000000000000\n", "", "garbage"] {
            fs::write(folder.path().join(".text"), hidden).unwrap();
            assert!(matches!(sections_in(folder.path()), Err(ImageError::Module { .. })), "{hidden}");
        }
        assert_eq!(sections_in(&folder.path().join("absent")).unwrap(), None);
    }
}
