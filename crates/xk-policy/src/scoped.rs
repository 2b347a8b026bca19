//! A policy that sets values for some processes or devices only, written from a description of them.
//!
//! In: constants with values, and whom they are for. Out: the policy in C. Refuses a description that means no process
//! and no device.

use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use thiserror::Error;

use crate::devices::{self, DeviceError};
use crate::source::{SourceCompiler, SourceError};
use crate::variables::AtSite;

const CGROUPS: &str = "/sys/fs/cgroup";
/// Length of the name of a thread, with its NUL.
const COMM: usize = 16;

/// Whom a value is for. Several of one kind are alternatives; different kinds are combined.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Whom {
    /// Threads of these processes.
    pub pid: Vec<u32>,
    /// Threads with these names.
    pub comm: Vec<String>,
    /// Threads of these users.
    pub uid: Vec<u32>,
    /// Threads in these control groups (below /sys/fs/cgroup), or in groups below them.
    pub cgroup: Vec<PathBuf>,
    /// Threads in these network namespaces.
    pub netns: Vec<PathBuf>,
    /// Work for these network interfaces or disks, including interrupts.
    pub dev: Vec<String>,
}

/// Why there is no policy for a description.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ScopedError {
    /// No thread can have the name.
    #[error("`{name}`: the kernel keeps 1 to {} bytes of a name", COMM - 1)]
    Comm {
        /// The name.
        name: String,
    },
    /// The control group does not exist.
    #[error("--cgroup {}: {error}", path.display())]
    Cgroup {
        /// Its path.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The path is not that of a control group.
    #[error("--cgroup {}: it is not below {CGROUPS}", path.display())]
    NotCgroup {
        /// The path.
        path: PathBuf,
    },
    /// The network namespace does not exist.
    #[error("--netns {}: {error}", path.display())]
    Netns {
        /// Its file.
        path: PathBuf,
        /// The error of the operating system.
        error: io::Error,
    },
    /// The device cannot be told from others.
    #[error(transparent)]
    Device(#[from] DeviceError),
    /// The variables at the sites of the constant are not known.
    #[error(transparent)]
    Sites(Box<SourceError>),
}

impl From<SourceError> for ScopedError {
    fn from(error: SourceError) -> Self {
        Self::Sites(Box::new(error))
    }
}

/// Returns the variables at the sites of a constant.
pub type Sites<'a> = &'a dyn Fn(&str) -> Result<Vec<AtSite>, SourceError>;

impl Whom {
    /// Whether the value is for everybody.
    #[must_use]
    pub fn is_everybody(&self) -> bool {
        self.is_any_thread() && self.dev.is_empty()
    }

    fn is_any_thread(&self) -> bool {
        self.pid.is_empty()
            && self.comm.is_empty()
            && self.uid.is_empty()
            && self.cgroup.is_empty()
            && self.netns.is_empty()
    }

    /// The conditions on threads, in C.
    fn conditions(&self) -> Result<Vec<String>, ScopedError> {
        let any = |terms: Vec<String>| (!terms.is_empty()).then(|| terms.join(" || "));
        let comms = self.comm.iter().map(|name| comm(name)).collect::<Result<_, _>>()?;
        let groups = self.cgroup.iter().map(|path| cgroup(path, Path::new(CGROUPS))).collect::<Result<_, _>>()?;
        let spaces = self.netns.iter().map(|path| netns(path)).collect::<Result<_, _>>()?;
        let kinds = [
            any(self.pid.iter().map(|pid| format!("bpf_get_current_pid_tgid() >> 32 == {pid}U")).collect()),
            any(comms),
            any(self.uid.iter().map(|uid| format!("(u32)bpf_get_current_uid_gid() == {uid}U")).collect()),
            any(groups),
            any(spaces),
        ];
        Ok(kinds.into_iter().flatten().collect())
    }
}

/// A name is compared byte by byte, including its NUL.
fn comm(name: &str) -> Result<String, ScopedError> {
    if name.is_empty() || name.len() >= COMM {
        return Err(ScopedError::Comm { name: name.to_owned() });
    }
    let bytes = name.bytes().chain([0]).enumerate();
    let terms: Vec<String> = bytes.map(|(at, byte)| format!("(u8)comm[{at}] == {byte}")).collect();
    Ok(format!("({})", terms.join(" && ")))
}

/// A control group is identified by its inode and its distance from the root.
fn cgroup(path: &Path, root: &Path) -> Result<String, ScopedError> {
    let wrong = |error| ScopedError::Cgroup { path: path.to_owned(), error };
    let full = fs::canonicalize(root.join(path)).map_err(wrong)?;
    let below = full.strip_prefix(root).map_err(|_| ScopedError::NotCgroup { path: path.to_owned() })?;
    let inode = fs::metadata(&full).map_err(wrong)?.ino();
    Ok(format!("bpf_get_current_ancestor_cgroup_id({}) == {inode}ULL", below.components().count()))
}

fn netns(path: &Path) -> Result<String, ScopedError> {
    let metadata = fs::metadata(path).map_err(|error| ScopedError::Netns { path: path.to_owned(), error })?;
    Ok(format!("(task->nsproxy && task->nsproxy->net_ns->ns.inum == {}U)", metadata.ino()))
}

/// The policy for values of constants, in C.
///
/// # Errors
/// `whom` names no one, or no variable identifies the device.
pub fn scoped_source(values: &[(String, i64)], whom: &Whom, sites: Sites<'_>) -> Result<String, ScopedError> {
    let conditions = whom.conditions()?;
    let mut text = String::from("#include \"xk.bpf.h\"\n");
    for (index, (constant, value)) in values.iter().enumerate() {
        let device = match whom.dev.is_empty() {
            true => None,
            false => Some(devices::condition(&whom.dev, constant, &sites(constant)?)?),
        };
        let constant = constant.replace('\\', "\\\\").replace('"', "\\\"");
        text += &format!("\nXK_TUNE(scoped{index}, \"{constant}\")\n{{\n");
        if !whom.comm.is_empty() {
            text += &format!("\tchar comm[{COMM}] = {{}};\n");
        }
        if !whom.netns.is_empty() {
            text += "\tstruct task_struct *task = bpf_get_current_task_btf();\n";
        }
        if let Some((declarations, _)) = &device {
            text += declarations;
        }
        text += "\n";
        if !whom.is_any_thread() {
            // An interrupt that runs on top of a thread works for any thread.
            text += "\tif (!xk_in_task(xk_ctx))\n\t\treturn 0;\n";
        }
        if !whom.comm.is_empty() {
            text += "\tbpf_get_current_comm(comm, sizeof(comm));\n";
        }
        for condition in conditions.iter().chain(device.as_ref().map(|(_, condition)| condition)) {
            text += &format!("\tif (!({condition}))\n\t\treturn 0;\n");
        }
        text += &format!("\txk_set(xk_ctx, {value}LL);\n\treturn 0;\n}}\n");
    }
    Ok(text)
}

/// The object of such a policy.
///
/// # Errors
/// [`SourceError`].
pub fn compile_scoped(text: &str, compiler: &SourceCompiler<'_>) -> Result<Vec<u8>, SourceError> {
    compiler.compile_text(text)
}

/// The name of the policies for the constant with this title.
#[must_use]
pub fn scoped_name(title: &str) -> String {
    title.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(60).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn conditions_are_combined() {
        let whom = Whom { pid: vec![7, 8], uid: vec![0], comm: vec!["a\"".into()], ..Whom::default() };
        let text = scoped_source(&[("block/blk.h:L335:32:0".into(), 64)], &whom, &|_| unreachable!()).unwrap();
        for part in [
            "XK_TUNE(scoped0, \"block/blk.h:L335:32:0\")",
            "if (!(bpf_get_current_pid_tgid() >> 32 == 7U || bpf_get_current_pid_tgid() >> 32 == 8U))",
            "if (!((u32)bpf_get_current_uid_gid() == 0U))",
            "if (!(((u8)comm[0] == 97 && (u8)comm[1] == 34 && (u8)comm[2] == 0)))",
            "if (!xk_in_task(xk_ctx))",
            "xk_set(xk_ctx, 64LL);",
        ] {
            assert!(text.contains(part), "no {part} in {text}");
        }
        assert!(Whom::default().is_everybody() && !whom.is_everybody());
    }

    #[test]
    fn a_device_is_also_that_of_interrupts() {
        let variable = xk_const::Variable {
            name: "packet".into(),
            type_name: "struct sk_buff *".into(),
            size: 8,
            location: xk_const::Location::Register(3),
        };
        let sites = |_: &str| Ok(vec![AtSite { place: "f+0x1".into(), variables: vec![variable.clone()] }]);
        let device = Whom { dev: vec!["lo".into()], ..Whom::default() };
        let text = scoped_source(&[("A".into(), 1)], &device, &sites).unwrap();
        assert!(text.contains("XK_VAR(packet)") && text.contains("ifindex) == 1 &&"), "{text}");
        assert!(!text.contains("xk_in_task") && !device.is_everybody(), "{text}");
        let both = Whom { uid: vec![0], ..device };
        let text = scoped_source(&[("A".into(), 1)], &both, &sites).unwrap();
        assert!(text.contains("xk_in_task") && text.contains("uid_gid") && text.contains("ifindex"), "{text}");
    }

    #[test]
    fn what_names_nobody_is_refused() {
        let of = |whom: Whom| scoped_source(&[("A".into(), 1)], &whom, &|_| unreachable!());
        let named = |name: &str| of(Whom { comm: vec![name.into()], ..Whom::default() });
        assert!(named("").is_err() && named("sixteen_bytes_ab").is_err() && named("fifteen_bytes_a").is_ok());
        let group = |path: &str| of(Whom { cgroup: vec![path.into()], ..Whom::default() });
        assert!(group("no/such/group").is_err());
        assert!(of(Whom { netns: vec!["/no/such/file".into()], ..Whom::default() }).is_err());
    }

    #[test]
    fn groups_are_told_by_inode_and_depth() {
        let root = tempfile::tempdir().unwrap();
        let path = fs::canonicalize(root.path()).unwrap();
        fs::create_dir_all(path.join("a/b")).unwrap();
        let inode = fs::metadata(path.join("a/b")).unwrap().ino();
        let text = cgroup(Path::new("a/b"), &path).unwrap();
        assert_eq!(text, format!("bpf_get_current_ancestor_cgroup_id(2) == {inode}ULL"));
        assert!(cgroup(Path::new("/"), &path).is_err());
    }
}
