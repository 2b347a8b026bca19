//! The mirrors in `src/abi.rs` and `src/abi/`, and the numbers of `xk-table`, against
//! `kernel/xk/uapi/` and `kernel/tunable/uapi/xk_parameter.h`, as a C compiler sees them.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use std::fmt::Write as _;
use std::process::Command;

use xk_runtime::abi;
use xk_table::OpCode;

/// Pairs of a C expression and its value in Rust.
struct Facts(Vec<(String, u64)>);

impl Facts {
    fn add(&mut self, expression: impl Into<String>, value: u64) {
        self.0.push((expression.into(), value));
    }
}

macro_rules! structure {
    ($facts:expr, $c:literal, $rust:ty, $($field:ident),+) => {
        $facts.add(concat!("sizeof(struct ", $c, ")"), std::mem::size_of::<$rust>() as u64);
        $($facts.add(
            concat!("offsetof(struct ", $c, ", ", stringify!($field), ")"),
            std::mem::offset_of!($rust, $field) as u64,
        );)+
    };
}

#[path = "abi/probe.rs"]
mod probe;

/// Of parameters and meters of other modules.
fn parameters(f: &mut Facts) {
    structure!(f, "xk_parameter_version", abi::ParameterVersion, abi, pad, module);
    structure!(
        f,
        "xk_parameter_info",
        abi::ParameterInfo,
        index,
        id,
        module,
        subsystem,
        name,
        only_if,
        only_if_value,
        min,
        max,
        step,
        default_value,
        value,
        original,
        lease_ns,
        steps,
        flags,
        settle_ms,
        nr_choices,
        owner_pid,
        error,
        choices
    );
    structure!(f, "xk_parameter_change", abi::ParameterChange, size, id, op, pad, value, lease_ns, error);
    structure!(f, "xk_meter_info", abi::MeterInfo, index, role, module, subsystem, name, limit, of, per, flags, error);
    for (name, value) in [
        ("XK_PARAMETER_LEN", abi::PARAMETER_LEN as u64),
        ("XK_MAX_CHOICES", abi::MAX_CHOICES as u64),
        ("XK_CHOICE_LEN", abi::CHOICE_LEN as u64),
        ("XK_PARAMETER_LINEAR", u64::from(abi::PARAMETER_LINEAR)),
        ("XK_PARAMETER_EXPONENTIAL", u64::from(abi::PARAMETER_EXPONENTIAL)),
        ("XK_PARAMETER_CHOICE", u64::from(abi::PARAMETER_CHOICE)),
        ("XK_PARAMETER_REVERT", u64::from(abi::PARAMETER_REVERT)),
        ("XK_PARAMETER_HELD", u64::from(abi::PARAMETER_HELD)),
        ("XK_PARAMETER_OWN", u64::from(abi::PARAMETER_OWN)),
        ("XK_PARAMETER_SET", u64::from(abi::PARAMETER_SET)),
        ("XK_PARAMETER_LEASE", u64::from(abi::PARAMETER_LEASE)),
        ("XK_PARAMETER_KEEP", u64::from(abi::PARAMETER_KEEP)),
        ("XK_METER_IS_SENSOR", u64::from(abi::METER_IS_SENSOR)),
        ("XK_METER_IS_TARGET", u64::from(abi::METER_IS_TARGET)),
        ("XK_METER_IS_BOTTLENECK", u64::from(abi::METER_IS_BOTTLENECK)),
        ("XK_METER_HAS_RATE", u64::from(abi::METER_HAS_RATE)),
        ("XK_METER_LESS", u64::from(abi::METER_LESS)),
        ("XK_METER_HAS_PER", u64::from(abi::METER_HAS_PER)),
        ("XK_PARAMETER_ABI_VERSION", u64::from(abi::PARAMETER_ABI_VERSION)),
        ("XK_PARAMETER_ERROR_LEN", abi::PARAMETER_ERROR_LEN as u64),
        ("XK_IOC_PARAMETER_VERSION", u64::from(abi::IOC_PARAMETER_VERSION)),
        ("XK_IOC_PARAMETER_INFO", u64::from(abi::IOC_PARAMETER_INFO)),
        ("XK_IOC_PARAMETER_CHANGE", u64::from(abi::IOC_PARAMETER_CHANGE)),
        ("XK_IOC_METER_INFO", u64::from(abi::IOC_METER_INFO)),
    ] {
        f.add(name, value);
    }
}

/// Structures of a table, and of the request that loads it.
fn tables(f: &mut Facts) {
    structure!(f, "xk_op", abi::Op, code, width, dst, a, b, c, pad, imm);
    structure!(f, "xk_iv", abi::Iv, a, b, form, pad, by);
    structure!(
        f,
        "xk_site",
        abi::Site,
        address,
        symbol,
        module,
        offset,
        insn_len,
        when,
        nr_ops,
        nr_ivs,
        flags,
        text_len,
        start,
        window,
        window_lead,
        nr_patches,
        pad,
        text,
        mask,
        ivs,
        ops,
        patches
    );
    structure!(f, "xk_patch", abi::Patch, offset, insn_len, field, size, width, iv, pad);
    structure!(
        f,
        "xk_table",
        abi::Table,
        magic,
        abi,
        flags,
        name,
        default_value,
        min,
        max,
        mode,
        nr_values,
        nr_sites,
        nr_scopes
    );
    structure!(f, "xk_load", abi::Load, size, abi, table, signature, table_len, signature_len, flags, id, error);
    f.add("XK_MAX_TABLE", abi::MAX_TABLE as u64);
    f.add("XK_MAX_SIGNATURE", abi::MAX_SIGNATURE as u64);
    f.add("XK_TABLE_IN_PLACE", abi::TABLE_IN_PLACE.into());
    f.add("XK_VERSION_SIGNED", abi::VERSION_SIGNED.into());
    f.add("memcmp(XK_TABLE_MAGIC, \"xktable\", sizeof(XK_TABLE_MAGIC))", 0);
    f.add("sizeof(XK_TABLE_MAGIC)", abi::TABLE_MAGIC.len() as u64);
}

/// Structures of other requests.
fn requests(f: &mut Facts) {
    structure!(f, "xk_tune_values", abi::TuneValues, id, nr_values, values);
    structure!(f, "xk_stop_info", abi::StopInfo, nr, total_ns, longest_ns, since_ns, stacks);
    structure!(f, "xk_range", abi::Range, start, end);
    structure!(f, "xk_scope", abi::Scope, address, symbol, module, text_len, nr_ranges, text, mask, ranges);
    structure!(f, "xk_change", abi::Change, id, flags, value);
    structure!(
        f,
        "xk_transition",
        abi::Transition,
        size,
        mode,
        timeout_ms,
        nr_changes,
        changes,
        report,
        report_len,
        outcome,
        stops,
        pad,
        elapsed_ns,
        error
    );
    structure!(
        f,
        "xk_policy",
        abi::Policy,
        size,
        id,
        program,
        nr_scopes,
        scopes,
        sites,
        links,
        nr_sites,
        nr_links,
        error
    );
    structure!(
        f,
        "xk_policy_info",
        abi::PolicyInfo,
        id,
        index,
        program,
        nr_links,
        runs,
        chosen,
        refused,
        skipped,
        reused,
        unseen,
        last,
        histogram
    );
    structure!(f, "xk_lease", abi::Lease, id, pad, ns, error);
    structure!(f, "xk_detach", abi::Detach, id, pad, error);
    structure!(f, "xk_report", abi::Report, id, len, text);
    structure!(f, "xk_version", abi::Version, abi, flags, module, anchor);
}

/// Structures of the status.
fn status(f: &mut Facts) {
    structure!(
        f,
        "xk_tune_info",
        abi::TuneInfo,
        index,
        id,
        name,
        value,
        default_value,
        min,
        max,
        nr_sites,
        flags,
        owner_pid,
        nr_scopes,
        mode,
        state,
        blocking,
        nr_values,
        age_ns,
        lease_ns,
        nr_ignored,
        ignored,
        pad
    );
    structure!(f, "xk_ignore", abi::Ignore, id, thread, error);
    structure!(
        f,
        "xk_site_info",
        abi::SiteInfo,
        id,
        index,
        address,
        symbol,
        module,
        offset,
        flags,
        hits,
        applied,
        faults,
        missed,
        reason,
        note
    );
}

/// Limits, and numbers of tables and sites.
fn numbers_of_tables(f: &mut Facts) {
    for (name, value) in [
        ("XK_ABI_VERSION", u64::from(abi::ABI_VERSION)),
        ("XK_MAX_SITES", abi::MAX_SITES as u64),
        ("XK_MAX_TEXT", abi::MAX_TEXT as u64),
        ("XK_ERROR_LEN", abi::ERROR_LEN as u64),
        ("XK_MAX_OPS", xk_table::MAX_OPS as u64),
        ("XK_MAX_IVS", xk_table::MAX_IVS as u64),
        ("XK_MAX_PATCHES", xk_table::MAX_PATCHES as u64),
        ("XK_MAX_TEMPS", u64::from(xk_table::MAX_TEMPS)),
        ("XK_STATUS_FLAGS", xk_table::STATUS_FLAGS),
        ("XK_BEFORE", u64::from(abi::BEFORE)),
        ("XK_AFTER", u64::from(abi::AFTER)),
        ("XK_INSTEAD", u64::from(abi::INSTEAD)),
        ("XK_FORM_LINEAR", u64::from(abi::FORM_LINEAR)),
        ("XK_FORM_QUOTIENT", u64::from(abi::FORM_QUOTIENT)),
        ("XK_FORM_LOG2", u64::from(abi::FORM_LOG2)),
        ("XK_FORM_POWER", u64::from(abi::FORM_POWER)),
        ("XK_FORM_INVERSE", u64::from(abi::FORM_INVERSE)),
        ("XK_LOAD_DETOUR", u64::from(abi::LOAD_DETOUR)),
        ("XK_LOAD_DETOUR_ONLY", u64::from(abi::LOAD_DETOUR_ONLY)),
        ("XK_LOAD_PATCH", u64::from(abi::LOAD_PATCH)),
        ("XK_LOAD_PATCH_ONLY", u64::from(abi::LOAD_PATCH_ONLY)),
        ("XK_SITE_DETOUR", u64::from(abi::SITE_DETOUR)),
        ("XK_SITE_UNCOUNTED", u64::from(abi::SITE_UNCOUNTED)),
        ("XK_SITE_PATCH", u64::from(abi::SITE_PATCH)),
        ("XK_SITE_STORES", u64::from(abi::SITE_STORES)),
        ("XK_SITE_DATA", u64::from(abi::SITE_DATA)),
        ("XK_TUNE_DETACHED", u64::from(abi::TUNE_DETACHED)),
        ("XK_TUNE_BROKEN", u64::from(abi::TUNE_BROKEN)),
        ("XK_SITE_ARMED", u64::from(abi::SITE_ARMED)),
        ("XK_SITE_OPTIMISED", u64::from(abi::SITE_OPTIMISED)),
        ("XK_SITE_WAITING", u64::from(abi::SITE_WAITING)),
        ("XK_SITE_BROKEN", u64::from(abi::SITE_BROKEN)),
        ("XK_SITE_IN_DATA", u64::from(abi::SITE_IN_DATA)),
        ("XK_SITE_DRIFTED", u64::from(abi::SITE_DRIFTED)),
        ("XK_SITE_OPT_UNKNOWN", u64::from(abi::SITE_OPT_UNKNOWN)),
    ] {
        f.add(name, value);
    }
}

/// Numbers of requests, transitions and policies.
fn numbers_of_requests(f: &mut Facts) {
    for (name, value) in [
        ("XK_IOC_VERSION", u64::from(abi::IOC_VERSION)),
        ("XK_IOC_LOAD", u64::from(abi::IOC_LOAD)),
        ("XK_IOC_TRANSITION", u64::from(abi::IOC_TRANSITION)),
        ("XK_IOC_LEASE", u64::from(abi::IOC_LEASE)),
        ("XK_IOC_DETACH", u64::from(abi::IOC_DETACH)),
        ("XK_IOC_TUNE_INFO", u64::from(abi::IOC_TUNE_INFO)),
        ("XK_IOC_SITE_INFO", u64::from(abi::IOC_SITE_INFO)),
        ("XK_IOC_TUNE_VALUES", u64::from(abi::IOC_TUNE_VALUES)),
        ("XK_IOC_STOP_INFO", u64::from(abi::IOC_STOP_INFO)),
        ("XK_IOC_IGNORE", u64::from(abi::IOC_IGNORE)),
        ("XK_MAX_IGNORED", abi::MAX_IGNORED as u64),
        ("XK_MAX_VALUES", abi::MAX_VALUES as u64),
        ("XK_IOC_REPORT", u64::from(abi::IOC_REPORT)),
        ("XK_MAX_SCOPES", abi::MAX_SCOPES as u64),
        ("XK_MAX_RANGES", abi::MAX_RANGES as u64),
        ("XK_MAX_CHANGES", abi::MAX_CHANGES as u64),
        ("XK_MAX_TIMEOUT_MS", u64::from(abi::MAX_TIMEOUT_MS)),
        ("XK_MODE_NOW", u64::from(abi::MODE_NOW)),
        ("XK_MODE_TASK", u64::from(abi::MODE_TASK)),
        ("XK_MODE_GLOBAL", u64::from(abi::MODE_GLOBAL)),
        ("XK_CHANGE_UNLOAD", u64::from(abi::CHANGE_UNLOAD)),
        ("XK_CHANGE_POLICY", u64::from(abi::CHANGE_POLICY)),
        ("XK_TUNE_POLICY", u64::from(abi::TUNE_POLICY)),
        ("XK_MAX_LINKS", abi::MAX_LINKS as u64),
        ("XK_POLICY_BUCKETS", abi::POLICY_BUCKETS as u64),
        ("XK_IOC_POLICY", u64::from(abi::IOC_POLICY)),
        ("XK_IOC_POLICY_INFO", u64::from(abi::IOC_POLICY_INFO)),
        ("XK_OUTCOME_UNCHANGED", u64::from(abi::OUTCOME_UNCHANGED)),
        ("XK_OUTCOME_DONE", u64::from(abi::OUTCOME_DONE)),
        ("XK_OUTCOME_REVERTING", u64::from(abi::OUTCOME_REVERTING)),
        ("XK_STATE_STABLE", u64::from(abi::STATE_STABLE)),
        ("XK_STATE_CHANGING", u64::from(abi::STATE_CHANGING)),
        ("XK_STATE_REVERTING", u64::from(abi::STATE_REVERTING)),
        ("XK_STATE_UNLOADING", u64::from(abi::STATE_UNLOADING)),
    ] {
        f.add(name, value);
    }
}

/// Numbers of operations.
fn operations(f: &mut Facts) {
    use OpCode as C;
    for (name, code) in [
        ("IV", C::Iv),
        ("IMM", C::Imm),
        ("REG", C::Reg),
        ("FLAGS", C::Flags),
        ("LOAD", C::Load),
        ("ADD", C::Add),
        ("SUB", C::Sub),
        ("MUL", C::Mul),
        ("AND", C::And),
        ("OR", C::Or),
        ("XOR", C::Xor),
        ("SHL", C::Shl),
        ("SHR", C::Shr),
        ("SAR", C::Sar),
        ("NOT", C::Not),
        ("NEG", C::Neg),
        ("SEXT", C::Sext),
        ("EQ", C::Eq),
        ("ULT", C::Ult),
        ("SLT", C::Slt),
        ("SELECT", C::Select),
        ("FLAGS_ADD", C::FlagsAdd),
        ("FLAGS_SUB", C::FlagsSub),
        ("FLAGS_LOGIC", C::FlagsLogic),
        ("COND", C::Cond),
        ("SET_REG", C::SetReg),
        ("SET_FLAGS", C::SetFlags),
        ("STORE", C::Store),
        ("TEXT", C::Text),
        ("PER_CPU", C::PerCpu),
    ] {
        f.add(format!("XK_OP_{name}"), code as u64);
    }
}

fn facts() -> Vec<(String, u64)> {
    let mut f = Facts(Vec::new());
    for add in [
        tables,
        requests,
        status,
        probe::structures,
        probe::numbers,
        parameters,
        numbers_of_tables,
        numbers_of_requests,
        operations,
    ] {
        add(&mut f);
    }
    f.0
}

#[test]
fn mirrors_agree_with_the_header() {
    let facts = facts();
    let mut source = String::from(
        "#include <stddef.h>\n#include <stdio.h>\n#include <string.h>\n#include \"xk.h\"\n#include \"xk_probe.h\"\n\
         #include \"xk_parameter.h\"\nint main(void) {\n",
    );
    for (expression, _) in &facts {
        writeln!(source, "printf(\"%llu\\n\", (unsigned long long)({expression}));").unwrap();
    }
    source.push_str("}\n");

    let folder = tempfile::tempdir().unwrap();
    let (file, program) = (folder.path().join("facts.c"), folder.path().join("facts"));
    std::fs::write(&file, source).unwrap();
    let compiled = Command::new("gcc")
        .args(["-Wall", "-Werror"])
        .args(["xk", "tunable"].map(|module| format!("-I{}/../../kernel/{module}/uapi", env!("CARGO_MANIFEST_DIR"))))
        .arg("-o")
        .args([&program, &file])
        .status()
        .unwrap();
    assert!(compiled.success());

    let output = String::from_utf8(Command::new(&program).output().unwrap().stdout).unwrap();
    let values: Vec<u64> = output.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(values.len(), facts.len());
    for ((expression, rust), c) in facts.into_iter().zip(values) {
        assert_eq!(rust, c, "{expression}");
    }
}
