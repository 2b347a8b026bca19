//! A process of its own that changes the maps of policies while they decide: whatever is pinned now, again and again.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::{AsFd, AsRawFd};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Result;
use libbpf_rs::{MapCore, MapFlags, MapHandle, MapType, PerfBufferBuilder, RingBufferBuilder, UserRingBuffer};
use rustix::process::{getpid, pidfd_open, PidfdFlags};
use serde::{Deserialize, Serialize};

use super::PAUSE;

/// What is to be done.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Where maps are pinned
    #[arg(long)]
    maps: PathBuf,
    /// A control group
    #[arg(long)]
    cgroup: PathBuf,
    /// The file that says when it is over
    #[arg(long)]
    stop: PathBuf,
    /// How much longer everything takes on this kernel
    #[arg(long)]
    slowness: u32,
}

/// The maps of `xtask/bpf/soak.bpf.c`.
pub(super) const MAPS: [(&str, MapType); 20] = [
    ("hash", MapType::Hash),
    ("sparse_hash", MapType::Hash),
    ("array", MapType::Array),
    ("percpu_hash", MapType::PercpuHash),
    ("percpu_array", MapType::PercpuArray),
    ("lru_hash", MapType::LruHash),
    ("lru_percpu_hash", MapType::LruPercpuHash),
    ("lpm_trie", MapType::LpmTrie),
    ("queue", MapType::Queue),
    ("stack", MapType::Stack),
    ("bloom_filter", MapType::BloomFilter),
    ("ringbuf", MapType::RingBuf),
    ("user_ringbuf", MapType::UserRingBuf),
    ("perf_event_array", MapType::PerfEventArray),
    ("stack_trace", MapType::StackTrace),
    ("cgroup_array", MapType::CgroupArray),
    ("task_storage", MapType::TaskStorage),
    ("array_of_maps", MapType::ArrayOfMaps),
    ("hash_of_maps", MapType::HashOfMaps),
    ("inner_a", MapType::Array),
];
/// Of a map, before the next one.
const CHANGES: u64 = 20;
const ENTRIES: u64 = 64;
const SAMPLE: usize = 8;
const POLL: Duration = Duration::from_millis(50);

/// What was done, by type of map.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Changes {
    /// Changes; of a stream, what was received.
    pub done: BTreeMap<String, u64>,
    /// Types of which this kernel allocates nothing on this CPU.
    pub without_cx16: BTreeSet<String>,
}

/// Changes every map until it is over.
///
/// # Errors
/// When a map is there and cannot be used.
pub fn run(arguments: &Arguments) -> Result<Changes> {
    // What cannot be done here and now is nothing to tell.
    libbpf_rs::set_print(None);
    let mut done: BTreeMap<String, u64> = BTreeMap::new();
    let mut no_memory = BTreeSet::new();
    let mut round = 0;
    while !arguments.stop.exists() {
        for (name, kind) in MAPS {
            // It may be gone, or not be there yet.
            let Ok(map) = MapHandle::from_pinned_path(arguments.maps.join(name)) else {
                std::thread::sleep(PAUSE / 10);
                continue;
            };
            round += 1;
            match change(&map, round, &arguments.cgroup) {
                Ok(changed) => *done.entry(format!("{kind:?}")).or_default() += changed,
                Err(error) if is_out_of_memory(&error) => _ = no_memory.insert(format!("{kind:?}")),
                Err(error) => return Err(error.context(name)),
            }
            std::thread::sleep(PAUSE / 40 * arguments.slowness);
        }
    }
    no_memory.retain(|kind| !done.contains_key(kind));
    let without_cx16 = if has_cx16()? { BTreeSet::new() } else { no_memory };
    Ok(Changes { done, without_cx16 })
}

/// Whether the CPU has `cmpxchg16b`. Without it, `kmalloc_nolock()` of Linux 6.18 and later allocates nothing
/// (mm/slub.c), and task storage rests on it. The CPUs that the lab emulates have none (lab/README.md).
fn has_cx16() -> Result<bool> {
    Ok(std::fs::read_to_string("/proc/cpuinfo")?.split_whitespace().any(|flag| flag == "cx16"))
}

/// Whether the kernel had no memory for a change. The soak takes memory away, so that may happen; a map that never
/// changes fails the soak.
fn is_out_of_memory(error: &anyhow::Error) -> bool {
    error.downcast_ref::<libbpf_rs::Error>().is_some_and(|error| error.kind() == libbpf_rs::ErrorKind::OutOfMemory)
}

fn change(map: &MapHandle, round: u64, cgroup: &Path) -> Result<u64> {
    match map.map_type() {
        MapType::RingBuf => ring(map),
        MapType::PerfEventArray => Ok(perf(map)),
        MapType::UserRingBuf => user_ring(map, round),
        MapType::TaskStorage => {
            let own = pidfd_open(getpid(), PidfdFlags::empty())?;
            let key = own.as_raw_fd().to_ne_bytes();
            map.update(&key, &round.to_ne_bytes(), MapFlags::ANY)?;
            map.lookup(&key, MapFlags::ANY)?;
            Ok(1 + u64::from(map.delete(&key).is_ok()))
        }
        MapType::CgroupArray => {
            let folder = std::fs::File::open(cgroup)?;
            map.update(&0u32.to_ne_bytes(), &folder.as_raw_fd().to_ne_bytes(), MapFlags::ANY)?;
            Ok(1)
        }
        MapType::ArrayOfMaps | MapType::HashOfMaps => outer(map, round),
        _ => {
            let number = |n: u64| round.wrapping_mul(CHANGES).wrapping_add(n);
            Ok((0..CHANGES).map(|n| plain(map, number(n))).filter(|&changed| changed).count() as u64)
        }
    }
}

/// One value comes, and another one goes; a full map may refuse.
fn plain(map: &MapHandle, number: u64) -> bool {
    let value = number.to_ne_bytes();
    let key = ((number % ENTRIES) as u32).to_ne_bytes();
    match map.map_type() {
        MapType::Queue | MapType::Stack => {
            let _ = map.lookup_and_delete(&[]);
            map.update(&[], &value, MapFlags::ANY).is_ok()
        }
        MapType::BloomFilter => map.update(&[], &value, MapFlags::ANY).is_ok(),
        MapType::PercpuHash | MapType::PercpuArray | MapType::LruPercpuHash => {
            let processors = libbpf_rs::num_possible_cpus().unwrap_or(1);
            let changed = map.update_percpu(&key, &vec![value.to_vec(); processors], MapFlags::ANY).is_ok();
            delete_some(map, &key, number);
            changed
        }
        MapType::StackTrace => {
            let taken = map.keys().next();
            taken.is_some_and(|key| map.lookup(&key, MapFlags::ANY).is_ok() && map.delete(&key).is_ok())
        }
        MapType::LpmTrie => {
            let prefix = [(number % 33) as u32, number as u32].map(u32::to_ne_bytes).concat();
            let changed = map.update(&prefix, &value, MapFlags::ANY).is_ok();
            delete_some(map, &prefix, number);
            changed
        }
        _ => {
            let changed = map.update(&key, &value, MapFlags::ANY).is_ok();
            delete_some(map, &key, number);
            changed
        }
    }
}

/// Arrays keep everything; elsewhere what was put there may have gone already.
fn delete_some(map: &MapHandle, key: &[u8], number: u64) {
    if number % 3 == 0 {
        let _ = map.delete(key);
    }
}

/// Another map takes the place of an inner one.
fn outer(map: &MapHandle, round: u64) -> Result<u64> {
    let options = libbpf_rs::libbpf_sys::bpf_map_create_opts {
        sz: size_of::<libbpf_rs::libbpf_sys::bpf_map_create_opts>() as u64,
        ..Default::default()
    };
    let inner = MapHandle::create(MapType::Array, Some("xk_soak_inner"), 4, 8, 4, &options)?;
    let key = ((round % 2) as u32).to_ne_bytes();
    map.update(&key, &inner.as_fd().as_raw_fd().to_ne_bytes(), MapFlags::ANY)?;
    Ok(1)
}

fn ring(map: &MapHandle) -> Result<u64> {
    let received = std::cell::Cell::new(0);
    let mut builder = RingBufferBuilder::new();
    builder.add(map, |_| {
        received.set(received.get() + 1);
        0
    })?;
    builder.build()?.consume()?;
    Ok(received.get())
}

/// Its buffers are there for this moment only, so that they come and go.
fn perf(map: &MapHandle) -> u64 {
    let received = std::cell::Cell::new(0);
    let builder = PerfBufferBuilder::new(map).pages(2);
    let builder = builder.sample_cb(|_, _: &[u8]| received.set(received.get() + 1)).lost_cb(|_, _| {});
    // A processor may go meanwhile.
    if let Ok(buffer) = builder.build() {
        let _ = buffer.poll(POLL);
    }
    received.get()
}

fn user_ring(map: &MapHandle, round: u64) -> Result<u64> {
    let ring = UserRingBuffer::new(map)?;
    let mut sent = 0;
    while sent < CHANGES {
        // Full until a policy drains it.
        let Ok(mut sample) = ring.reserve(SAMPLE) else { break };
        sample.copy_from_slice(&round.to_ne_bytes());
        ring.submit(sample)?;
        sent += 1;
    }
    Ok(sent)
}
