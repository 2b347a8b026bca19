//! `src/abi/probe.rs` against `kernel/xk/uapi/xk_probe.h`.

use xk_runtime::abi;

use super::Facts;

/// Probes of eBPF programs.
pub fn structures(f: &mut Facts) {
    structure!(
        f,
        "xk_probe_place",
        abi::ProbePlace,
        address,
        cookie,
        window,
        window_lead,
        host,
        host_window,
        program,
        pad
    );
    structure!(
        f,
        "xk_probe_attach",
        abi::ProbeAttach,
        size,
        nr_programs,
        flags,
        nr_places,
        programs,
        places,
        functions,
        nr_functions,
        pad,
        name,
        id,
        nr_jumps,
        stops,
        refused,
        error
    );
    structure!(f, "xk_probe_detach", abi::ProbeDetach, id, stops, error);
    structure!(f, "xk_probe_lease", abi::ProbeLease, id, flags, ns, error);
    structure!(
        f,
        "xk_probe_info",
        abi::ProbeInfo,
        index,
        id,
        name,
        program,
        nr_places,
        nr_jumps,
        owner_pid,
        hits,
        skipped,
        age_ns,
        memory,
        lease_ns,
        flags,
        nr_programs
    );
    structure!(f, "xk_probe_function", abi::ProbeFunction, address, symbol, module, text_len, pad, text, mask);
    structure!(f, "xk_probe_place_info", abi::ProbePlaceInfo, requested, address, hits, missed, flags, pad, note);
    structure!(f, "xk_probe_places", abi::ProbePlaces, id, first, nr, pad, places);
}

/// Numbers of probes.
pub fn numbers(f: &mut Facts) {
    for (name, value) in [
        ("XK_MAX_PROBE_PLACES", abi::MAX_PROBE_PLACES as u64),
        ("XK_MAX_PROBE_PROGRAMS", abi::MAX_PROBE_PROGRAMS as u64),
        ("XK_MAX_PROBE_FUNCTIONS", abi::MAX_PROBE_FUNCTIONS as u64),
        ("XK_PROBE_WAITING", u64::from(abi::PROBE_WAITING)),
        ("XK_PROBE_JUMPS_ONLY", u64::from(abi::PROBE_JUMPS_ONLY)),
        ("XK_PROBE_JUMP", u64::from(abi::PROBE_JUMP)),
        ("XK_PROBE_TRACER", u64::from(abi::PROBE_TRACER)),
        ("XK_PROBE_KEEP", u64::from(abi::PROBE_KEEP)),
        ("XK_PROBE_KEPT", u64::from(abi::PROBE_KEPT)),
        ("XK_IOC_PROBE_LEASE", u64::from(abi::IOC_PROBE_LEASE)),
        ("XK_IOC_PROBE_ATTACH", u64::from(abi::IOC_PROBE_ATTACH)),
        ("XK_IOC_PROBE_DETACH", u64::from(abi::IOC_PROBE_DETACH)),
        ("XK_IOC_PROBE_INFO", u64::from(abi::IOC_PROBE_INFO)),
        ("XK_IOC_PROBE_PLACES", u64::from(abi::IOC_PROBE_PLACES)),
    ] {
        f.add(name, value);
    }
}
