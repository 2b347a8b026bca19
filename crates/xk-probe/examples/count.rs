//! Counts for a second how often the functions of vmlinux are called whose names match a pattern.
//!
//!     cargo run -p xk-probe --example count -- 'vfs_*'
//!
//! It needs root, and xk.ko. It reads the boot image of the running kernel from `/boot`.

use std::error::Error;
use std::time::Duration;

use xk_kernel::KernelChoice;
use xk_probe::{Class, Live, Place, Resolver};
use xk_runtime::{Attachment, Device, ProbePlace};

fn main() -> Result<(), Box<dyn Error>> {
    let pattern = std::env::args().nth(1).ok_or("usage: count PATTERN")?;
    // The first instruction after the entry code: a jump can reach it.
    let places = [Place::parse(&pattern, Some(&Class::Body))?];
    let resolver = Resolver::new(&KernelChoice::booted()?, &places, Some(Live::read()?))?;
    let (found, left_out) = resolver.all(&places)?;
    let functions = resolver.functions(&found);
    let places: Vec<ProbePlace> = found.iter().map(|(found, _)| found.probe(0)).collect();

    let device = Device::open()?;
    let wanted = Attachment { name: "examples/count", places: &places, functions: &functions, ..Attachment::default() };
    let attached = device.attach(&wanted)?;
    println!("{} functions, {} by a jump; {left_out} cannot be probed", places.len(), attached.jumps);
    std::thread::sleep(Duration::from_secs(1));
    let mut counted = device.probe_places(attached.id)?;
    device.detach_probes(attached.id)?;

    counted.sort_by_key(|place| std::cmp::Reverse(place.hits));
    for place in counted.iter().filter(|place| place.hits > 0) {
        let known = found.iter().find(|(found, _)| found.address == place.address);
        println!("{:>10}  {}", place.hits, known.map_or_else(String::new, |(found, _)| found.name()));
    }
    Ok(())
}
