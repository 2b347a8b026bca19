//! Attaching the programs of an object.

use std::fs::File;
use std::os::fd::{AsFd as _, AsRawFd as _};
use std::ptr::NonNull;

use libbpf_rs::{AsRawLibbpf as _, Link, Map, MapCore as _, MapType, Object as Loader, ProgramMut, ProgramType};

use crate::elf::HEAP_FAULT;
use crate::Error;

/// Whether a program is part of a heap (`bpf/xk_fault.bpf.h`), and none of those that use it.
#[must_use]
pub fn is_of_heap(program: &str) -> bool {
    program == HEAP_FAULT
}

/// Attaches all programs of an object that are loaded, by their sections; those of type XDP to this interface, those of
/// sockets to the object's only map of sockets, and those of socket operations to all control groups. What is returned
/// keeps them attached. What counts the faults of a heap is attached first and returned last, so that it counts as
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
            (ProgramType::Xdp, None) => Err("name the interface (--dev)".to_owned()),
            (ProgramType::SkSkb | ProgramType::SkMsg, _) => sockets(object).map(|map| to_sockets(&program, &map)),
            (ProgramType::SockOps, _) => all_groups().map(|folder| program.attach_cgroup(folder.as_raw_fd())),
            (ProgramType::SchedCls, _) => {
                Err("other tools attach programs of this type: write the object with xk flex build".to_owned())
            }
            _ => Ok(program.attach()),
        });
        let link = link.map_err(failed)?;
        let link = link.map_err(|error| failed(if said.is_empty() { error.to_string() } else { said }))?;
        links.push((name, link));
    }
    links.sort_by_key(|(name, _)| is_of_heap(name));
    Ok(links)
}

/// Where the control groups are.
const GROUPS: &str = "/sys/fs/cgroup";

/// The object's map of sockets.
fn sockets(object: &Loader) -> Result<Map<'_>, String> {
    let mut found = object.maps().filter(|map| matches!(map.map_type(), MapType::Sockmap | MapType::Sockhash));
    match (found.next(), found.next()) {
        (Some(map), None) => Ok(map),
        (None, _) => Err("the object has no map of sockets: declare one (BPF_MAP_TYPE_SOCKHASH)".into()),
        _ => Err("the object has several maps of sockets: attach it with another tool".into()),
    }
}

fn to_sockets(program: &ProgramMut<'_>, map: &Map<'_>) -> libbpf_rs::Result<Link> {
    // SAFETY: a program that is loaded, and a map that is open.
    let link = unsafe {
        libbpf_sys::bpf_program__attach_sockmap(program.as_libbpf_object().as_ptr(), map.as_fd().as_raw_fd())
    };
    match NonNull::new(link) {
        // SAFETY: libbpf has made it, and nothing else knows it.
        Some(link) => Ok(unsafe { Link::from_ptr(link) }),
        None => Err(std::io::Error::last_os_error().into()),
    }
}

fn all_groups() -> Result<File, String> {
    File::open(GROUPS).map_err(|error| format!("{GROUPS}: {error}: mount the control groups (cgroup2) there"))
}
