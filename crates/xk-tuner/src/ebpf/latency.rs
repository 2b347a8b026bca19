//! Measures the latency of a kernel function, by two eBPF programs and a histogram.
//!
//! In: the name of a function. Out: a histogram of the durations of its calls. The width of a bucket is at most 1/16 of its
//! value. It refuses what the kernel cannot trace, and names that several functions have. The programs are removed when
//! this is dropped, or when the process dies.

use std::ffi::{CStr, CString};
use std::fs;
use std::os::fd::OwnedFd;

use libbpf_rs::{MapHandle, MapType};
use libbpf_sys::{bpf_map_create_opts, BPF_F_KPROBE_MULTI_RETURN};

use super::insn::{
    add, at_function, call, count, insn, map, mov, set, store, store_word, sum, Insn, END, GET_CURRENT_PID_TGID,
    KTIME_GET_NS, MAP_DELETE, MAP_LOOKUP, MAP_UPDATE, NO_FUNCTION,
};
use super::{FunctionError, WatchError};

/// The largest number of threads inside the function at one time.
const MOST_INSIDE: u32 = 16384;
/// Below this many nanoseconds, buckets are 1 ns wide. Each power of two above has this many buckets.
const FINE: u64 = 16;
/// Enough buckets for all 64-bit numbers of nanoseconds.
const BUCKETS: usize = 61 * FINE as usize;
/// The element after the buckets: calls that were not measured, because too many threads were inside.
const LOST: usize = BUCKETS;

/// The attached programs.
#[derive(Debug)]
pub struct Latency {
    function: String,
    histogram: MapHandle,
    _links: [OwnedFd; 2],
}

/// The durations of the calls that have ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Histogram {
    buckets: Vec<u64>,
    /// The number of calls that were not measured.
    pub lost: u64,
}

impl Histogram {
    /// The number of calls that were measured.
    #[must_use]
    pub fn calls(&self) -> u64 {
        self.buckets.iter().sum()
    }

    /// This percentile of the durations, in ns, with a relative error of at most 1/32; `None` without calls.
    #[must_use]
    pub fn percentile(&self, percent: f64) -> Option<f64> {
        let calls = self.calls();
        let rank = (((percent / 100.0) * calls as f64).ceil() as u64).clamp(1, calls.max(1));
        let mut before = 0;
        let bucket = self.buckets.iter().position(|&count| {
            before += count;
            before >= rank
        })?;
        Some(middle(bucket))
    }
}

/// The nanoseconds in the middle of a bucket.
fn middle(bucket: usize) -> f64 {
    let bucket = bucket as u64;
    if bucket < FINE {
        return bucket as f64;
    }
    let scale = (bucket / FINE - 1) as i32;
    (((FINE + bucket % FINE) as f64) + 0.5) * 2f64.powi(scale) - 0.5
}

/// The program at the entry: stores the time for this thread.
fn entry(inside: &MapHandle, histogram: &MapHandle) -> Vec<Insn> {
    let mut program = vec![call(GET_CURRENT_PID_TGID), store(10, -8, 0), call(KTIME_GET_NS), store(10, -16, 0)];
    program.extend(map(1, inside));
    program.extend([
        mov(2, 10),
        add(2, -8),
        mov(3, 10),
        add(3, -16),
        set(4, 0),
        call(MAP_UPDATE),
        insn(0x55, 0, 0, 2, 0), // not stored: over the end
    ]);
    program.extend(END);
    program.extend([set(1, LOST as i32), store_word(10, -24, 1)]);
    program.extend(count(histogram));
    program
}

/// The program at the return: counts the time since then.
fn exit(inside: &MapHandle, histogram: &MapHandle) -> Vec<Insn> {
    let mut program = vec![call(GET_CURRENT_PID_TGID), store(10, -8, 0)];
    program.extend(map(1, inside));
    program.extend([
        mov(2, 10),
        add(2, -8),
        call(MAP_LOOKUP),
        insn(0x55, 0, 0, 2, 0), // its entry was stored: over the end
    ]);
    program.extend(END);
    program.extend([
        insn(0x79, 6, 0, 0, 0), // r6 = when
        call(KTIME_GET_NS),
        insn(0x1f, 0, 6, 0, 0), // r0 -= r6
        mov(7, 0),
    ]);
    program.extend(map(1, inside));
    program.extend([mov(2, 10), add(2, -8), call(MAP_DELETE), mov(1, 7), set(2, 0)]);
    // r2 = the number of the highest bit of r7
    for bits in [32, 16, 8, 4, 2, 1] {
        program.extend([
            mov(3, 1),
            insn(0x77, 3, 0, 0, bits), // r3 >>= bits
            insn(0x15, 3, 0, 2, 0),    // nothing left: it is further down
            add(2, bits),
            mov(1, 3),
        ]);
    }
    program.extend([
        mov(4, 7),
        insn(0xb5, 2, 0, 7, 3), // if r2 <= 3: the number is the bucket
        mov(3, 2),
        add(3, -4),
        insn(0x7f, 4, 3, 0, 0),  // r4 >>= r3
        insn(0x57, 4, 0, 0, 15), // r4 &= 15
        add(2, -3),
        insn(0x67, 2, 0, 0, 4), // r2 <<= 4
        insn(0x0f, 4, 2, 0, 0), // r4 += r2
        store_word(10, -24, 4),
    ]);
    program.extend(count(histogram));
    program
}

impl Latency {
    /// Measures the calls of a function of the running kernel, from now on.
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn watch(function: &str) -> Result<Self, WatchError> {
        let failed = |reason: String| WatchError { what: format!("the latency of {function}"), reason };
        let symbol = CString::new(function).map_err(|_| failed("the name contains a zero byte".into()))?;
        let make = |kind, name: &str, key, entries| {
            let opts = bpf_map_create_opts { sz: size_of::<bpf_map_create_opts>() as _, ..Default::default() };
            MapHandle::create(kind, Some(name), key, 8, entries, &opts).map_err(|error| failed(error.to_string()))
        };
        let inside = make(MapType::Hash, "xk_inside", 8, MOST_INSIDE)?;
        let histogram = make(MapType::PercpuArray, "xk_latency", 4, LOST as u32 + 1)?;
        let attach = |program: &[Insn], flags| {
            at_function(NAME, program, &symbol, flags).map_err(|refused| failed(refused.words(NO_FUNCTION)))
        };
        // The return first: calls without a stored entry are not counted.
        let end = attach(&exit(&inside, &histogram), BPF_F_KPROBE_MULTI_RETURN)?;
        let begin = attach(&entry(&inside, &histogram), 0)?;
        Ok(Self { function: function.to_owned(), histogram, _links: [end, begin] })
    }

    /// The histogram so far.
    ///
    /// # Errors
    /// [`WatchError`].
    pub fn read(&self) -> Result<Histogram, WatchError> {
        let failed = |reason| WatchError { what: format!("the latency of {}", self.function), reason };
        let mut buckets = Vec::with_capacity(LOST + 1);
        for bucket in 0..=LOST as u32 {
            buckets.push(sum(&self.histogram, bucket).map_err(|error| failed(error.to_string()))?);
        }
        let lost = buckets.pop().unwrap_or(0);
        Ok(Histogram { buckets, lost })
    }
}

const NAME: &CStr = c"xk_latency";

/// Checks that a name identifies one function of the running kernel.
///
/// # Errors
/// [`FunctionError`].
pub fn is_one_function(function: &str) -> Result<(), FunctionError> {
    let symbols = fs::read_to_string("/proc/kallsyms")?;
    match named(&symbols, function) {
        0 => Err(FunctionError::None(function.to_owned())),
        1 => Ok(()),
        number => Err(FunctionError::Several { name: function.to_owned(), number }),
    }
}

/// The number of functions of this name.
fn named(symbols: &str, function: &str) -> usize {
    let is_it = |line: &&str| {
        let mut words = line.split_whitespace().skip(1);
        words.next().is_some_and(|kind| matches!(kind, "t" | "T" | "w" | "W")) && words.next() == Some(function)
    };
    symbols.lines().filter(is_it).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As the program computes it.
    fn bucket(nanoseconds: u64) -> usize {
        let highest = 63 - nanoseconds.max(1).leading_zeros() as u64;
        match highest {
            0..=3 => nanoseconds as usize,
            _ => ((nanoseconds >> (highest - 4) & 15) + ((highest - 3) << 4)) as usize,
        }
    }

    #[test]
    fn the_middle_of_a_bucket_is_near_all_of_it() {
        for shift in 0..64 {
            for nanoseconds in [1u64 << shift, (1 << shift) + (1 << shift >> 1), (1 << shift) - 1] {
                let found = bucket(nanoseconds);
                assert!(found < BUCKETS, "{nanoseconds}");
                let off = (middle(found) - nanoseconds as f64).abs();
                assert!(off <= nanoseconds as f64 / 32.0, "{nanoseconds} is off by {off}");
            }
        }
    }

    #[test]
    fn percentiles_are_ranks() {
        let mut buckets = vec![0; BUCKETS];
        assert_eq!(Histogram { buckets: buckets.clone(), lost: 0 }.percentile(50.0), None);
        buckets[3] = 98;
        buckets[5] = 1;
        buckets[9] = 1;
        let histogram = Histogram { buckets, lost: 0 };
        let all = [0.0, 50.0, 98.0, 98.5, 99.0, 99.5, 100.0].map(|percent| histogram.percentile(percent));
        assert_eq!(all, [3.0, 3.0, 3.0, 5.0, 5.0, 9.0, 9.0].map(Some));
    }

    #[test]
    fn several_functions_may_have_one_name() {
        let symbols = "0 T one\n0 t two\n0 t two\t[mod]\n0 d data\n0 t one_more\n";
        let counts = ["one", "two", "data", "none"].map(|name| named(symbols, name));
        assert_eq!(counts, [1, 2, 0, 0]);
    }
}
