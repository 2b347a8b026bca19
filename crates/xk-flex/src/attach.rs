//! Attaching the programs of an object.

use libbpf_rs::{Link, Object as Loader, ProgramType};

use crate::Error;

/// Attaches all programs of an object that are loaded, by their sections; those of type XDP to this interface. What is
/// returned keeps them attached.
///
/// # Errors
/// [`Error::Attach`]: one cannot be attached. None is then.
pub fn attach(object: &Loader, interface: Option<i32>) -> Result<Vec<(String, Link)>, Error> {
    let mut links = Vec::new();
    for program in object.progs_mut().filter(|program| program.autoload()) {
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
    Ok(links)
}
