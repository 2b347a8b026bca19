//! Loads each program of an object by itself, as `veristat` of the kernel does.

use std::fs;
use std::io::Write;
use std::mem::size_of_val;
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};

use anyhow::{ensure, Context, Result};
use libbpf_rs::btf::{types, Btf, BtfType};
use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::{MapType, Object, ObjectBuilder, OpenObject, ProgramAttachType as Attach, ProgramType as Type};
use xk_policy::listening;

use super::{Message, Verdict};

/// Only statistics, and why a program is refused.
const STATISTICS: u32 = 4;
/// Lines of the verifier that are kept.
const KEPT: usize = 6;

/// Arguments of `inside objects-worker`.
#[derive(Debug, clap::Args)]
pub struct Worker {
    /// The object
    #[arg(long)]
    object: PathBuf,
    /// Number of the first program
    #[arg(long)]
    first: usize,
}

/// Loads the programs, and prints a message for each.
///
/// # Errors
/// When nobody listens.
pub fn worker(arguments: &Worker) -> Result<()> {
    let bytes = fs::read(&arguments.object)?;
    let pins = Pins::new()?;
    let (names, said) = listening(|| names(&bytes, &pins));
    let names = match names {
        Ok(names) => names,
        Err(error) => return say(&Message::Unopened(last(&said).unwrap_or_else(|| error.to_string()))),
    };
    say(&Message::Programs(names.clone()))?;
    for name in names.iter().skip(arguments.first) {
        say(&Message::Verdict(verdict(&bytes, name, &pins)))?;
        pins.clear()?;
    }
    Ok(())
}

fn say(message: &Message) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{}", serde_json::to_string(message)?)?;
    Ok(output.flush()?)
}

/// A folder for maps that are pinned by their names, so that objects do not meet.
struct Pins(PathBuf);

impl Pins {
    fn new() -> Result<Self> {
        let folder = Path::new("/sys/fs/bpf").join(format!("xk-{}", std::process::id()));
        fs::create_dir_all(&folder)?;
        Ok(Self(folder))
    }

    fn clear(&self) -> Result<()> {
        for entry in fs::read_dir(&self.0)? {
            fs::remove_file(entry?.path())?;
        }
        Ok(())
    }
}

impl Drop for Pins {
    fn drop(&mut self) {
        // The guest ends soon.
        let _ = self.clear().and_then(|()| Ok(fs::remove_dir(&self.0)?));
    }
}

fn open(bytes: &[u8], pins: &Pins) -> Result<OpenObject> {
    Ok(ObjectBuilder::default().pin_root_path(&pins.0)?.open_memory(bytes)?)
}

fn names(bytes: &[u8], pins: &Pins) -> Result<Vec<String>> {
    let object = open(bytes, pins)?;
    Ok(object.progs().map(|program| program.name().to_string_lossy().into_owned()).collect())
}

fn verdict(bytes: &[u8], name: &str, pins: &Pins) -> Verdict {
    let (loaded, said) = listening(|| load(bytes, name, pins));
    let error = match loaded {
        Ok(insns) => return Verdict::Accepted { insns },
        Err(error) => error,
    };
    let refused = said.lines().rev().find_map(|line| line.split_once("BPF program load failed: "));
    let log = said.rsplit_once("-- BEGIN PROG LOAD LOG --").map(|(_, rest)| rest.split("-- END PROG").next());
    match (refused, log.flatten()) {
        (Some((_, errno)), Some(log)) => {
            let is_statistic = |line: &&str| !line.starts_with("verification time") && !line.starts_with("stack depth");
            let lines: Vec<&str> = log.lines().filter(|line| !line.is_empty()).filter(is_statistic).collect();
            let insns =
                lines.iter().rev().find_map(|line| line.strip_prefix("processed ")?.split(' ').next()?.parse().ok());
            let words: Vec<&&str> = lines.iter().filter(|line| !line.starts_with("processed ")).collect();
            let words = words[words.len().saturating_sub(KEPT)..].iter().map(|line| (**line).to_owned()).collect();
            Verdict::Refused { errno: errno.to_owned(), words, insns: insns.unwrap_or(0) }
        }
        (Some((_, errno)), None) => Verdict::Untried(format!("the kernel does not begin to verify it: {errno}")),
        (None, _) => Verdict::Untried(last(&said).unwrap_or_else(|| error.to_string())),
    }
}

/// The first complaint of libbpf, without its name. Those that follow say that it gives up.
fn last(said: &str) -> Option<String> {
    let line = said.lines().find(|line| !line.trim().is_empty())?;
    Some(line.trim_start_matches("libbpf: ").to_owned())
}

fn load(bytes: &[u8], name: &str, pins: &Pins) -> Result<u32> {
    let mut object = open(bytes, pins)?;
    let btf = Btf::from_raw("object", bytes)?;
    let mut of_operations = false;
    for mut program in object.progs_mut() {
        let wanted = program.name() == name;
        program.set_autoload(wanted);
        if !wanted {
            continue;
        }
        program.set_log_level(STATISTICS);
        of_operations = program.prog_type() == Type::StructOps;
        if matches!(program.prog_type(), Type::Ext | Type::Unspec) {
            if let Some((kind, attach)) = btf.as_ref().and_then(|btf| context(btf, name)).and_then(|name| guess(&name))
            {
                program.set_prog_type(kind);
                program.set_attach_type(attach);
            }
        }
    }
    for mut map in object.maps_mut() {
        match map.map_type() {
            MapType::SkStorage
            | MapType::TaskStorage
            | MapType::InodeStorage
            | MapType::CGrpStorage
            | MapType::CgroupStorage => {}
            // libbpf loads all programs of such a map.
            MapType::StructOps => map.set_autocreate(of_operations)?,
            _ if map.max_entries() == 0 => map.set_max_entries(1)?,
            _ => {}
        }
    }
    verified(&object.load()?, name)
}

/// How many instructions the verifier followed.
fn verified(object: &Object, name: &str) -> Result<u32> {
    let program = object.progs().find(|program| program.name() == name).context("the program is gone")?;
    let mut info = sys::bpf_prog_info::default();
    let mut len = u32::try_from(size_of_val(&info))?;
    let descriptor = program.as_fd().as_raw_fd();
    // SAFETY: the kernel writes at most `len` bytes to `info`, in which all arrays are empty.
    let result = unsafe { sys::bpf_obj_get_info_by_fd(descriptor, std::ptr::from_mut(&mut info).cast(), &raw mut len) };
    ensure!(result == 0, "bpf_obj_get_info_by_fd(): {result}");
    Ok(info.verified_insns)
}

/// The type to which the only argument of a program points.
fn context(btf: &Btf<'_>, name: &str) -> Option<String> {
    let function: types::Func<'_> = btf.type_by_name(name)?;
    let prototype = types::FuncProto::try_from(function.next_type()?).ok()?;
    let mut parameters = prototype.iter();
    let (only, None) = (parameters.next()?, parameters.next()) else { return None };
    let without_modifiers = |mut found: BtfType<'_>| {
        while found.is_mod() {
            found = found.next_type()?;
        }
        Some(found.type_id())
    };
    let pointer = without_modifiers(btf.type_by_id(only.ty)?)?;
    let pointer: types::Ptr<'_> = btf.type_by_id(pointer)?;
    let target: BtfType<'_> = btf.type_by_id(without_modifiers(pointer.next_type()?)?)?;
    Some(target.name()?.to_string_lossy().into_owned())
}

/// `guess_prog_type_by_ctx_name()` of `tools/testing/selftests/bpf/veristat.c`.
fn guess(context: &str) -> Option<(Type, Attach)> {
    Some(match context {
        "__sk_buff" | "sk_buff" => (Type::SchedCls, Attach::CgroupInetIngress),
        "bpf_sock" | "sock" => (Type::CgroupSock, Attach::CgroupInet4PostBind),
        "bpf_sock_addr" | "bpf_sock_addr_kern" => (Type::CgroupSockAddr, Attach::CgroupInet4Bind),
        "bpf_sock_ops" | "bpf_sock_ops_kern" => (Type::SockOps, Attach::CgroupSockOps),
        "sk_msg_md" | "sk_msg" => (Type::SkMsg, Attach::SkMsgVerdict),
        "bpf_cgroup_dev_ctx" => (Type::CgroupDevice, Attach::CgroupDevice),
        "bpf_sysctl" | "bpf_sysctl_kern" => (Type::CgroupSysctl, Attach::CgroupSysctl),
        "bpf_sockopt" | "bpf_sockopt_kern" => (Type::CgroupSockopt, Attach::CgroupSetsockopt),
        "sk_reuseport_md" | "sk_reuseport_kern" => (Type::SkReuseport, Attach::SkReuseportSelectOrMigrate),
        "bpf_sk_lookup" | "bpf_sk_lookup_kern" => (Type::SkLookup, Attach::SkLookup),
        "xdp_md" | "xdp_buff" => (Type::Xdp, Attach::Xdp),
        "bpf_user_pt_regs_t" | "pt_regs" => (Type::Kprobe, Attach::CgroupInetIngress),
        "bpf_perf_event_data" | "bpf_perf_event_data_kern" => (Type::PerfEvent, Attach::CgroupInetIngress),
        "bpf_raw_tracepoint_args" => (Type::RawTracepoint, Attach::CgroupInetIngress),
        _ => return None,
    })
}
