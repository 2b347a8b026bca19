//! A policy for the work that is done for one device, where a variable of the kernel's source identifies the device.
//!
//! In: names of devices, and the variables at every site of the constant. Out: a condition in C. Refuses a constant with
//! a site at which no variable identifies the device: there the value would apply to every device.

use std::ffi::CString;
use std::fs;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use thiserror::Error;

use crate::variables::{read, AtSite};

/// Why a device cannot be told from others.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum DeviceError {
    /// A name does not mean a device.
    #[error("--dev {name}: {fault}")]
    Name {
        /// The name.
        name: String,
        /// Why.
        fault: NameFault,
    },
    /// Interfaces and disks were named together.
    #[error("--dev: network interfaces and disks are not used at the same place")]
    Mixed,
    /// The constant is not used in code.
    #[error("{constant} has no site in code")]
    NoSite {
        /// The constant.
        constant: String,
    },
    /// No variable identifies the device at every site.
    #[error(
        "{constant} cannot be set for one {}: {} (it would be a {}). A policy may decide by something else: `xk gen` \
         lists what can be read",
        if *is_for_net { "network interface" } else { "disk" },
        silence(silent),
        wanted.join(", ")
    )]
    Unidentified {
        /// The constant.
        constant: String,
        /// A network interface was named, not a disk.
        is_for_net: bool,
        /// Sites without such a variable; empty if no single variable exists at all of them.
        silent: Vec<String>,
        /// The types of variables that identify a device.
        wanted: Vec<&'static str>,
    },
}

/// Why a name does not mean a device.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NameFault {
    /// It is empty or a path.
    #[error("not the name of a network interface or of a disk")]
    Shape,
    /// An interface and a disk have it.
    #[error("an interface and a disk have this name; /dev/{disk} is the disk")]
    Ambiguous {
        /// The name.
        disk: String,
    },
    /// It is that of a partition.
    #[error("this is a partition; the code that reads the value knows only the disk: name the disk")]
    Partition,
    /// The kernel does not tell its numbers.
    #[error("{0}")]
    Io(#[from] io::Error),
    /// The kernel tells other numbers than expected.
    #[error("its numbers are `{text}`")]
    Numbers {
        /// The text of the kernel.
        text: String,
    },
    /// No device has it.
    #[error("no such network interface, and no such disk")]
    Missing,
}

fn silence(silent: &[String]) -> String {
    match silent {
        [] => "no single variable identifies it at all of its sites".to_owned(),
        _ => format!("no variable identifies it at {}", silent.join(", ")),
    }
}

/// A device, as the kernel knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Device {
    /// Numbers of the interface and of its network namespace.
    Net(u32, u64),
    /// Numbers of the first block device of a disk.
    Disk(u32, u32),
}

/// A type of variable that identifies the device, and how: an expression for `struct net_device *` or `struct gendisk *`.
struct Way {
    type_name: &'static str,
    net: bool,
    to: &'static str,
}

const fn net(type_name: &'static str, to: &'static str) -> Way {
    Way { type_name, net: true, to }
}

const fn disk(type_name: &'static str, to: &'static str) -> Way {
    Way { type_name, net: false, to }
}

/// The types that are nearest to the device come first. Late in its life, a packet has other data in place of its device;
/// these data do not have both numbers of a device.
const WAYS: [Way; 8] = [
    net("struct net_device *", "it"),
    net("struct napi_struct *", "BPF_CORE_READ(it, dev)"),
    net("struct sk_buff *", "BPF_CORE_READ(it, dev)"),
    disk("struct gendisk *", "it"),
    disk("struct request_queue *", "BPF_CORE_READ(it, disk)"),
    disk("struct blk_mq_hw_ctx *", "BPF_CORE_READ(it, queue, disk)"),
    disk("struct request *", "BPF_CORE_READ(it, q, disk)"),
    disk("struct bio *", "BPF_CORE_READ(it, bi_bdev, bd_disk)"),
];

/// Conditions for `names`, for the constant that has `sites`: declarations, and an expression.
///
/// # Errors
/// There is no such device, or no variable identifies it.
pub(crate) fn condition(names: &[String], constant: &str, sites: &[AtSite]) -> Result<(String, String), DeviceError> {
    let devices = names.iter().map(|name| device(name, Path::new("/sys"))).collect::<Result<Vec<_>, _>>()?;
    identified(&devices, constant, sites)
}

fn device(name: &str, sys: &Path) -> Result<Device, DeviceError> {
    numbers(name, sys).map_err(|fault| DeviceError::Name { name: name.to_owned(), fault })
}

fn numbers(name: &str, sys: &Path) -> Result<Device, NameFault> {
    let short = name.strip_prefix("/dev/").unwrap_or(name);
    if short.is_empty() || short.contains('/') {
        return Err(NameFault::Shape);
    }
    let block = sys.join("class/block").join(short);
    let interface = if short == name { interface(short) } else { None };
    match (interface, block.exists()) {
        (Some(_), true) => Err(NameFault::Ambiguous { disk: short.to_owned() }),
        (Some(index), false) => Ok(Device::Net(index, fs::metadata("/proc/self/ns/net")?.ino())),
        (None, true) if block.join("partition").exists() => Err(NameFault::Partition),
        (None, true) => {
            let text = fs::read_to_string(block.join("dev"))?;
            let numbers = text
                .trim()
                .split_once(':')
                .and_then(|(major, minor)| Some(Device::Disk(major.parse().ok()?, minor.parse().ok()?)));
            numbers.ok_or_else(|| NameFault::Numbers { text: text.trim().to_owned() })
        }
        (None, false) => Err(NameFault::Missing),
    }
}

/// The number of an interface, in the network namespace of this process.
fn interface(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: the name ends with NUL, and is only read.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}

fn identified(devices: &[Device], constant: &str, sites: &[AtSite]) -> Result<(String, String), DeviceError> {
    let is_net = |device: &Device| matches!(device, Device::Net(..));
    let is_for_net = devices.iter().any(is_net);
    if is_for_net && !devices.iter().all(is_net) {
        return Err(DeviceError::Mixed);
    }
    let ways = || WAYS.iter().filter(|way| way.net == is_for_net);
    let of = |site: &AtSite, way: &Way, name: &str| {
        site.variables.iter().any(|v| v.type_name == way.type_name && v.name == name && read(v).is_ok())
    };
    let (first, others) = sites.split_first().ok_or_else(|| DeviceError::NoSite { constant: constant.to_owned() })?;
    let found = ways().find_map(|way| {
        let here = first.variables.iter().filter(|v| of(first, way, &v.name));
        let everywhere = here.into_iter().find(|v| others.iter().all(|site| of(site, way, &v.name)));
        Some((way, everywhere?.name.clone()))
    });
    let Some((way, name)) = found else { return Err(unidentified(constant, sites, is_for_net)) };
    let any = devices.iter().map(|device| match device {
        Device::Net(index, space) => {
            format!("(BPF_CORE_READ(dev, ifindex) == {index} && BPF_CORE_READ(dev, nd_net.net, ns.inum) == {space}U)")
        }
        Device::Disk(major, minor) => {
            format!("(BPF_CORE_READ(dev, major) == {major} && BPF_CORE_READ(dev, first_minor) == {minor})")
        }
    });
    let target = if is_for_net { "net_device" } else { "gendisk" };
    let declared =
        format!("\t{}it = XK_VAR({name});\n\tstruct {target} *dev = it ? {} : NULL;\n", way.type_name, way.to);
    Ok((declared, format!("dev && ({})", any.collect::<Vec<_>>().join(" || "))))
}

fn unidentified(constant: &str, sites: &[AtSite], is_for_net: bool) -> DeviceError {
    let wanted: Vec<&str> = WAYS.iter().filter(|way| way.net == is_for_net).map(|way| way.type_name).collect();
    let identifies =
        |site: &AtSite| site.variables.iter().any(|v| wanted.contains(&v.type_name.as_str()) && read(v).is_ok());
    let silent = sites.iter().filter(|site| !identifies(site)).map(|site| site.place.clone()).collect();
    DeviceError::Unidentified { constant: constant.to_owned(), is_for_net, silent, wanted }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;
    use xk_const::{Location, Variable};

    fn variable(name: &str, type_name: &str, location: Location) -> Variable {
        Variable { name: name.into(), type_name: type_name.into(), size: 8, location }
    }

    fn site(place: &str, variables: &[(&str, &str)]) -> AtSite {
        let variables = variables.iter().map(|(name, kind)| variable(name, kind, Location::Register(3))).collect();
        AtSite { place: place.into(), variables }
    }

    #[test]
    fn the_nearest_variable_that_every_site_has_is_used() {
        let packet = ("skb", "struct sk_buff *");
        let sites = [site("f+0x1", &[("napi", "struct napi_struct *"), packet]), site("g+0x2", &[packet])];
        let (declared, condition) = identified(&[Device::Net(7, 99), Device::Net(8, 99)], "A", &sites).unwrap();
        assert!(declared.contains("struct sk_buff *it = XK_VAR(skb);"), "{declared}");
        assert!(condition.contains("ifindex) == 7 &&") && condition.contains("ns.inum) == 99U) || ("), "{condition}");
        let (declared, _) = identified(&[Device::Net(7, 99)], "A", &sites[..1]).unwrap();
        assert!(declared.contains("= XK_VAR(napi);"), "{declared}");
    }

    #[test]
    fn a_site_without_such_a_variable_is_named() {
        let gone = AtSite {
            place: "g+0x2".into(),
            variables: vec![variable("rq", "struct request *", Location::Gone("optimised away"))],
        };
        let sites = [site("f+0x1", &[("rq", "struct request *")]), gone];
        let message = identified(&[Device::Disk(8, 0)], "A", &sites).unwrap_err().to_string();
        assert!(
            message.contains("for one disk: no variable identifies it at g+0x2 (it would be a struct gendisk *"),
            "{message}"
        );
        assert!(identified(&[Device::Disk(8, 0)], "A", &sites[..1]).is_ok());
        assert!(identified(&[Device::Net(7, 99)], "A", &sites[..1]).is_err(), "a disk is no interface");
        assert!(identified(&[Device::Net(7, 99), Device::Disk(8, 0)], "A", &sites[..1]).is_err());
        assert!(identified(&[Device::Disk(8, 0)], "A", &[]).is_err());
    }

    #[test]
    fn names_mean_devices() {
        let root = tempfile::tempdir().unwrap();
        let block = root.path().join("class/block");
        for (name, file, text) in [("sdx", "dev", "8:160\n"), ("sdx1", "partition", "1\n"), ("lo", "dev", "7:0\n")] {
            fs::create_dir_all(block.join(name)).unwrap();
            fs::write(block.join(name).join(file), text).unwrap();
        }
        let of = |name: &str| device(name, root.path()).map_err(|error| error.to_string());
        assert_eq!(of("sdx"), Ok(Device::Disk(8, 160)));
        assert_eq!(of("/dev/sdx"), Ok(Device::Disk(8, 160)));
        assert!(of("sdx1").unwrap_err().contains("partition"));
        assert!(of("lo").unwrap_err().contains("/dev/lo is the disk"));
        assert_eq!(of("/dev/lo"), Ok(Device::Disk(7, 0)));
        assert!(matches!(device("lo", Path::new("/nowhere")), Ok(Device::Net(1, _))));
        assert!(of("nosuchdevice").unwrap_err().contains("no such network interface"));
        assert!(of("a/b").is_err());
    }
}
