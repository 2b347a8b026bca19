//! `xk set NAME=V --pid …`: a value for some processes or devices only, by a policy that is
//! written for the occasion.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use super::devices;
use super::load::{install, Clock, Stay};
use crate::context::{Folders, Tables};
use crate::exit::{Failure, Result};
use crate::kernel::KernelOf;
use crate::output::Paint;
use xk_policy::variables::{at_sites, AtSite};

const CGROUPS: &str = "/sys/fs/cgroup";
/// Length of a process' name, with its NUL.
const COMM: usize = 16;

/// Whom a value is for. Several of one kind: any of them; of several kinds: all of them.
#[derive(Debug, Clone, Default, clap::Args)]
#[command(next_help_heading = "For some only (what interrupts do for threads is not theirs)")]
pub struct Whom {
    /// Threads of this process
    #[arg(long, value_name = "PID")]
    pub pid: Vec<u32>,
    /// Threads of this name
    #[arg(long, value_name = "NAME")]
    pub comm: Vec<String>,
    /// Threads of this user
    #[arg(long, value_name = "UID")]
    pub uid: Vec<u32>,
    /// Threads in this control group (below /sys/fs/cgroup), or in one below it
    #[arg(long, value_name = "PATH")]
    pub cgroup: Vec<PathBuf>,
    /// Threads in this network namespace (/run/netns/NAME, /proc/PID/ns/net)
    #[arg(long, value_name = "FILE")]
    pub netns: Vec<PathBuf>,
    /// Work for this network interface or disk, including interrupts
    #[arg(long, value_name = "DEVICE")]
    pub dev: Vec<String>,
}

/// The variables at the sites of a constant.
pub type Sites<'a> = &'a dyn Fn(&str) -> Result<Vec<AtSite>>;

impl Whom {
    /// Whether the value is for everybody.
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

    /// What threads have to be, in C.
    fn conditions(&self) -> Result<Vec<String>> {
        let any = |terms: Vec<String>| (!terms.is_empty()).then(|| terms.join(" || "));
        let comms = self.comm.iter().map(|name| comm(name)).collect::<Result<Vec<_>>>()?;
        let groups = self.cgroup.iter().map(|path| cgroup(path, Path::new(CGROUPS))).collect::<Result<Vec<_>>>()?;
        let spaces = self.netns.iter().map(|path| netns(path)).collect::<Result<Vec<_>>>()?;
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

/// Compared byte by byte, up to and with the NUL.
fn comm(name: &str) -> Result<String> {
    if name.is_empty() || name.len() >= COMM {
        return Err(Failure::usage(format!("`{name}`: the kernel keeps 1 to {} bytes of a name", COMM - 1)));
    }
    let bytes = name.bytes().chain([0]).enumerate();
    let terms: Vec<String> = bytes.map(|(at, byte)| format!("(u8)comm[{at}] == {byte}")).collect();
    Ok(format!("({})", terms.join(" && ")))
}

/// A control group is known by its inode, and how far from the root it is.
fn cgroup(path: &Path, root: &Path) -> Result<String> {
    let wrong = |reason: &str| Failure::usage(format!("--cgroup {}: {reason}", path.display()));
    let full = fs::canonicalize(root.join(path)).map_err(|error| wrong(&error.to_string()))?;
    let below = full.strip_prefix(root).map_err(|_| wrong("it is not below /sys/fs/cgroup"))?;
    let inode = fs::metadata(&full).map_err(|error| wrong(&error.to_string()))?.ino();
    Ok(format!("bpf_get_current_ancestor_cgroup_id({}) == {inode}ULL", below.components().count()))
}

fn netns(path: &Path) -> Result<String> {
    let metadata =
        fs::metadata(path).map_err(|error| Failure::usage(format!("--netns {}: {error}", path.display())))?;
    Ok(format!("(task->nsproxy && task->nsproxy->net_ns->ns.inum == {}U)", metadata.ino()))
}

/// What the source of the running kernel has at the sites of a constant.
pub fn sites_of_running(folders: &Folders, tables: &Tables, constant: &str) -> Result<Vec<AtSite>> {
    let kernel = KernelOf::default();
    let say = |line: &str| eprintln!("{}", Paint::stderr().dim(line));
    let tree = kernel.tree(&kernel.image()?, &folders.cache, &say)?;
    Ok(at_sites(tables.find(folders, constant)?, &tree, &folders.cache)?)
}

/// The policy for values of constants, in C.
pub fn source(values: &[(String, i64)], whom: &Whom, sites: Sites<'_>) -> Result<String> {
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
            // Above a thread, an interrupt works for anybody.
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

/// Sets values for some; `values` are ConstIDs with values in their ranges.
pub fn run(values: &[(String, i64)], title: &str, whom: &Whom, tables: &Tables, stay: &Stay<'_>) -> Result {
    let folders = Folders::new();
    let text = source(values, whom, &|constant| sites_of_running(&folders, tables, constant))?;
    let mut clock = Clock::new();
    let object = compiled(&text, &folders)?;
    clock.stage("compile");
    install(&object, &name_of(title), Path::new("xk set"), stay, clock)
}

/// The object of such a policy.
pub fn compiled(text: &str, folders: &Folders) -> Result<Vec<u8>> {
    let folder = tempfile::tempdir().map_err(|error| Failure::error(error.to_string()))?;
    let file = folder.path().join("scoped.bpf.c");
    fs::write(&file, text).map_err(|error| Failure::error(format!("{}: {error}", file.display())))?;
    super::compile::for_running(&file, folders)
}

/// What a policy for the constant of this title is called.
pub fn name_of(title: &str) -> String {
    title.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).take(60).collect()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    #[test]
    fn conditions_are_combined() {
        let whom = Whom { pid: vec![7, 8], uid: vec![0], comm: vec!["a\"".into()], ..Whom::default() };
        let text = source(&[("block/blk.h:L335:32:0".into(), 64)], &whom, &|_| unreachable!()).unwrap();
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
        let text = source(&[("A".into(), 1)], &device, &sites).unwrap();
        assert!(text.contains("XK_VAR(packet)") && text.contains("ifindex) == 1 &&"), "{text}");
        assert!(!text.contains("xk_in_task") && !device.is_everybody(), "{text}");
        let both = Whom { uid: vec![0], ..device };
        let text = source(&[("A".into(), 1)], &both, &sites).unwrap();
        assert!(text.contains("xk_in_task") && text.contains("uid_gid") && text.contains("ifindex"), "{text}");
    }

    #[test]
    fn what_names_nobody_is_refused() {
        let of = |whom: Whom| source(&[("A".into(), 1)], &whom, &|_| unreachable!()).map_err(|failure| failure.message);
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
