//! Attaching the programs of an object.

use libbpf_rs::{Link, Object as Loader, ProgramType};

use crate::elf::HEAP_FAULT;
use crate::Error;

/// Whether a program is part of a heap (`bpf/xk_fault.bpf.h`), and none of those that use it.
#[must_use]
pub fn is_of_heap(program: &str) -> bool {
    program == HEAP_FAULT
}

/// Attaches all programs of an object that are loaded, by their sections; those of type XDP to this interface. What is
/// returned keeps them attached. What counts the faults of a heap is attached first and returned last, so that it counts as
/// long as the others run.
///
/// # Errors
/// [`Error::Attach`]: one cannot be attached. None is then.
pub fn attach(object: &Loader, interface: Option<i32>) -> Result<Vec<(String, Link)>, Error> {
    let mut links = Vec::new();
    let mut programs: Vec<_> = object.progs_mut().filter(|program| program.autoload()).collect();
    programs.sort_by_key(|program| !is_of_heap(&program.name().to_string_lossy()));
    for program in programs {
        let (name, section) = (program.name().to_string_lossy().into_owned(), program.section().to_string_lossy());
        let failed = |reason: String| Error::Attach { program: format!("{name} (section {section})"), reason };
        let (link, said) = xk_policy::listening(|| match (program.prog_type(), interface) {
            (ProgramType::Xdp, Some(interface)) => Ok(program.attach_xdp(interface)),
            (ProgramType::Xdp, None) => Err("name the interface (--dev)"),
            (ProgramType::SchedCls | ProgramType::SkSkb | ProgramType::SkMsg, _) => {
                Err("other tools attach programs of this type: write the object with xk flex build")
            }
            _ => Ok(program.attach()),
        });
        let link = link.map_err(|reason| failed(reason.into()))?;
        let link = link.map_err(|error| failed(if said.is_empty() { error.to_string() } else { said }))?;
        links.push((name, link));
    }
    links.sort_by_key(|(name, _)| is_of_heap(name));
    Ok(links)
}
