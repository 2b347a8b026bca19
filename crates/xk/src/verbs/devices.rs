//! `--dev`: a value for what is done for one device, where a variable of the kernel's source tells the device.
//!
//! In: names of devices, and the variables at every site of the constant. Out: a condition in C. Refused is a
//! constant that has a site at which no variable tells; a value there would be for any device.

use std::ffi::CString;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use crate::exit::{Exit, Failure, Result};
use xk_policy::variables::{read, AtSite};

/// A device, as the kernel knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Device {
    /// Numbers of the interface and of its network namespace.
    Net(u32, u64),
    /// Numbers of the first block device of a disk.
    Disk(u32, u32),
}

/// A type of variable that tells the device, and how: an expression for `struct net_device *` or `struct gendisk *`.
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

/// Those that are nearest to the device come first. Later in its life a packet has something else where its
/// device was; no device has both numbers then.
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
/// There is no such device, or no variable tells it.
pub fn condition(names: &[String], constant: &str, sites: &[AtSite]) -> Result<(String, String)> {
    let devices = names.iter().map(|name| device(name, Path::new("/sys"))).collect::<Result<Vec<_>>>()?;
    told(&devices, constant, sites)
}

fn device(name: &str, sys: &Path) -> Result<Device> {
    let short = name.strip_prefix("/dev/").unwrap_or(name);
    let wrong = |why: String| Failure::usage(format!("--dev {name}: {why}"));
    if short.is_empty() || short.contains('/') {
        return Err(wrong("neither a network interface nor a disk has such a name".into()));
    }
    let block = sys.join("class/block").join(short);
    let interface = if short == name { interface(short) } else { None };
    match (interface, block.exists()) {
        (Some(_), true) => Err(wrong(format!("an interface and a disk have this name; /dev/{short} is the disk"))),
        (Some(index), false) => {
            let space = fs::metadata("/proc/self/ns/net").map_err(|error| wrong(error.to_string()))?.ino();
            Ok(Device::Net(index, space))
        }
        (None, true) if block.join("partition").exists() => {
            Err(wrong("it is a partition; what reads the value knows its disk only: name that".into()))
        }
        (None, true) => {
            let text = fs::read_to_string(block.join("dev")).map_err(|error| wrong(error.to_string()))?;
            let numbers = text
                .trim()
                .split_once(':')
                .and_then(|(major, minor)| Some(Device::Disk(major.parse().ok()?, minor.parse().ok()?)));
            numbers.ok_or_else(|| wrong(format!("its numbers are `{}`", text.trim())))
        }
        (None, false) => Err(wrong("there is no such network interface here, and no such disk".into())),
    }
}

/// Its number, in the network namespace of this process.
fn interface(name: &str) -> Option<u32> {
    let name = CString::new(name).ok()?;
    // SAFETY: the name ends with NUL, and is only read.
    let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
    (index != 0).then_some(index)
}

fn told(devices: &[Device], constant: &str, sites: &[AtSite]) -> Result<(String, String)> {
    let is_net = |device: &Device| matches!(device, Device::Net(..));
    let is_for_net = devices.iter().any(is_net);
    if is_for_net && !devices.iter().all(is_net) {
        return Err(Failure::usage("--dev: network interfaces and disks are not used at the same place"));
    }
    let ways = || WAYS.iter().filter(|way| way.net == is_for_net);
    let of = |site: &AtSite, way: &Way, name: &str| {
        site.variables.iter().any(|v| v.type_name == way.type_name && v.name == name && read(v).is_ok())
    };
    let (first, others) =
        sites.split_first().ok_or_else(|| Failure::error(format!("{constant} has no site in code")))?;
    let found = ways().find_map(|way| {
        let here = first.variables.iter().filter(|v| of(first, way, &v.name));
        let everywhere = here.into_iter().find(|v| others.iter().all(|site| of(site, way, &v.name)));
        Some((way, everywhere?.name.clone()))
    });
    let Some((way, name)) = found else { return Err(untold(constant, sites, is_for_net)) };
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

fn untold(constant: &str, sites: &[AtSite], is_for_net: bool) -> Failure {
    let wanted: Vec<&str> = WAYS.iter().filter(|way| way.net == is_for_net).map(|way| way.type_name).collect();
    let tells =
        |site: &AtSite| site.variables.iter().any(|v| wanted.contains(&v.type_name.as_str()) && read(v).is_ok());
    let silent: Vec<&str> = sites.iter().filter(|site| !tells(site)).map(|site| site.place.as_str()).collect();
    let place = match silent[..] {
        [] => "no one variable tells it at all of its sites".to_owned(),
        _ => format!("no variable tells it at {}", silent.join(", ")),
    };
    Failure::new(
        Exit::Refused,
        format!(
            "{constant} cannot be set for one {}: {place} (it would be a {}). A policy may decide by something else: \
             `xk gen` lists what can be read",
            if is_for_net { "network interface" } else { "disk" },
            wanted.join(", ")
        ),
    )
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
    fn the_nearest_that_is_everywhere_tells() {
        let packet = ("skb", "struct sk_buff *");
        let sites = [site("f+0x1", &[("napi", "struct napi_struct *"), packet]), site("g+0x2", &[packet])];
        let (declared, condition) = told(&[Device::Net(7, 99), Device::Net(8, 99)], "A", &sites).unwrap();
        assert!(declared.contains("struct sk_buff *it = XK_VAR(skb);"), "{declared}");
        assert!(condition.contains("ifindex) == 7 &&") && condition.contains("ns.inum) == 99U) || ("), "{condition}");
        let (declared, _) = told(&[Device::Net(7, 99)], "A", &sites[..1]).unwrap();
        assert!(declared.contains("= XK_VAR(napi);"), "{declared}");
    }

    #[test]
    fn a_site_that_does_not_tell_is_named() {
        let gone = AtSite {
            place: "g+0x2".into(),
            variables: vec![variable("rq", "struct request *", Location::Gone("optimised away"))],
        };
        let sites = [site("f+0x1", &[("rq", "struct request *")]), gone];
        let message = told(&[Device::Disk(8, 0)], "A", &sites).unwrap_err().message;
        assert!(
            message.contains("for one disk: no variable tells it at g+0x2 (it would be a struct gendisk *"),
            "{message}"
        );
        assert!(told(&[Device::Disk(8, 0)], "A", &sites[..1]).is_ok());
        assert!(told(&[Device::Net(7, 99)], "A", &sites[..1]).is_err(), "a disk is no interface");
        assert!(told(&[Device::Net(7, 99), Device::Disk(8, 0)], "A", &sites[..1]).is_err());
        assert!(told(&[Device::Disk(8, 0)], "A", &[]).is_err());
    }

    #[test]
    fn names_of_devices() {
        let root = tempfile::tempdir().unwrap();
        let block = root.path().join("class/block");
        for (name, file, text) in [("sdx", "dev", "8:160\n"), ("sdx1", "partition", "1\n"), ("lo", "dev", "7:0\n")] {
            fs::create_dir_all(block.join(name)).unwrap();
            fs::write(block.join(name).join(file), text).unwrap();
        }
        let of = |name: &str| device(name, root.path()).map_err(|failure| failure.message);
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
