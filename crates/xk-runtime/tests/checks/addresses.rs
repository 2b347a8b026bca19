//! Updates that read what the linker wrote, and per-CPU data.

use std::mem;

use crate::support::{op, set_register, table, SiteSpec, MODULE, RAX, RDI};
use crate::{insmod, load, message, only_site, run, target, target_module, wait_for, write, TARGET_KO};
use xk_runtime::{abi, Device, Error, Probe};
use xk_table::{Fit, Form, Op, OpCode, ScopeTable, Values};

/// t1 = the address in the field at `field`, which `behind` bytes follow.
fn address(field: i64, behind: u8) -> Op {
    Op { dst: 1, imm: field, b: 1, c: behind, ..op(OpCode::Text, 8) }
}

/// eax = V + what t1 points to
fn sum() -> [Op; 4] {
    [
        Op { dst: 2, a: 1, ..op(OpCode::Load, 4) },
        op(OpCode::Iv, 4),
        Op { dst: 3, a: 0, b: 2, ..op(OpCode::Add, 4) },
        Op { dst: RAX, a: 3, ..op(OpCode::SetReg, 4) },
    ]
}

fn global() -> ScopeTable {
    let ops = [vec![address(7, 0)], sum().to_vec()].concat();
    table(&target_module(), "GLOBAL", vec![SiteSpec::new("xk_target_global", 11, 2, ops)])
}

pub fn a_global_variable_is_read() {
    assert_eq!(target("global"), "72");
    let tune = load(&global(), 100).unwrap();
    assert_eq!(target("global"), "140");
    write("/proc/xk_target", "7");
    assert_eq!(target("global"), "107");
    tune.unload().unwrap();
    assert_eq!(target("global"), "39");
}

fn above(behind: u8) -> ScopeTable {
    let ops = vec![
        address(4, behind),
        Op { dst: 2, a: 1, ..op(OpCode::Load, 4) },
        op(OpCode::Iv, 4),
        Op { dst: 3, a: 2, b: 0, ..op(OpCode::FlagsSub, 4) },
        Op { a: 3, imm: 0x8d5, ..op(OpCode::SetFlags, 8) },
    ];
    table(&target_module(), "ABOVE", vec![SiteSpec::new("xk_target_above", 9, 3, ops)])
}

/// An immediate stands between the field and what the address is relative to.
pub fn a_global_variable_is_compared() {
    for (value, tuned) in [(39, "1"), (40, "0"), (41, "0")] {
        let tune = load(&above(1), value).unwrap();
        assert_eq!(target("above"), tuned, "40 above {value}");
        tune.unload().unwrap();
    }
    // The test would notice: one byte off it is another number.
    let tune = load(&above(0), 40).unwrap();
    assert_eq!(target("above"), "1");
    tune.unload().unwrap();
}

/// The field is an address, not a distance.
pub fn an_array_is_read() {
    let ops = [
        vec![
            Op { dst: 4, a: RDI, ..op(OpCode::Reg, 8) },
            Op { dst: 5, imm: 2, ..op(OpCode::Imm, 8) },
            Op { dst: 6, a: 4, b: 5, ..op(OpCode::Shl, 8) },
            Op { dst: 7, imm: 11, ..op(OpCode::Text, 8) },
            Op { dst: 1, a: 6, b: 7, ..op(OpCode::Add, 8) },
        ],
        sum().to_vec(),
    ]
    .concat();
    let tune = load(&table(&target_module(), "ARRAY", vec![SiteSpec::new("xk_target_array", 15, 2, ops)]), 5).unwrap();
    assert_eq!(target("array"), "1005 2005");
    tune.unload().unwrap();
    assert_eq!(target("array"), "1032 2032");
}

fn run_on(cpu: usize) {
    // SAFETY: a set of CPUs is plain bits, and `cpu` is one of the first.
    unsafe {
        let mut set: libc::cpu_set_t = mem::zeroed();
        libc::CPU_SET(cpu, &mut set);
        assert_eq!(libc::sched_setaffinity(0, mem::size_of_val(&set), &set), 0);
    }
}

pub fn per_cpu_data_are_those_of_this_cpu() {
    let ops = [
        vec![
            Op { dst: 4, ..address(8, 0) },
            Op { dst: 5, ..op(OpCode::PerCpu, 8) },
            Op { dst: 1, a: 4, b: 5, ..op(OpCode::Add, 8) },
        ],
        sum().to_vec(),
    ]
    .concat();
    let table = table(&target_module(), "PER_CPU", vec![SiteSpec::new("xk_target_per_cpu", 12, 2, ops)]);
    let tune = load(&table, 7).unwrap();
    for cpu in [0, 1, 0] {
        run_on(cpu);
        assert_eq!(target(&format!("cpu{cpu}")), (100 * (cpu + 1) + 7).to_string());
    }
    assert_eq!(only_site(&tune).faults, 0);
    tune.unload().unwrap();
    run_on(1);
    assert_eq!(target("cpu1"), "232");
}

/// The bytes that are read lie below a jump of another tune.
pub fn a_field_is_read_through_a_probe() {
    let other = table(&target_module(), "OTHER", vec![SiteSpec::new("xk_target_global", 5, 6, set_register(RAX))]);
    let first = load(&other, 64).unwrap();
    wait_for("optimisation", || only_site(&first).probe == Probe::Jump);
    let second = load(&global(), 100).unwrap();
    assert_eq!(target("global"), "140");
    drop(first);
    second.unload().unwrap();
}

/// A field that nobody compared may be anything.
pub fn a_field_without_an_instruction_is_refused() {
    let mut wrong = global();
    wrong.functions[0].mask.replace_range(12..14, "00");
    assert!(message(load(&wrong, 5)).contains("xk_target_global+0x7: XK_OP_TEXT reads from an instruction"));
    // Beyond the function, past the check of the table.
    let mut wrong = global();
    wrong.spans[0].indirection.program.ops[0].imm = wrong.functions[0].bytes.len() as i64 / 2 - 3;
    assert!(load(&wrong, 5).is_err());
}

/// The addresses are those of where the module is now.
pub fn a_reloaded_module_is_linked_again() {
    let tune = load(&global(), 100).unwrap();
    let before = only_site(&tune).address;
    assert!(run("rmmod", &[MODULE]));
    // Something takes its place.
    assert!(run("modprobe", &["sch_pie"]) && run("modprobe", &["sch_fq"]));
    insmod(TARGET_KO);
    assert_ne!(only_site(&tune).address, before, "loaded at the same place: the test says nothing");
    assert_eq!(target("global"), "140");
    assert!(run("rmmod", &["sch_pie"]) && run("rmmod", &["sch_fq"]));
    tune.unload().unwrap();
}

/// The kernel computes transformed values as the table does.
pub fn every_form_of_a_value_is_computed() {
    for (fit, value) in [
        (Fit { a: -3, b: 7, form: Form::Quotient(2), width: 4 }, 100),
        (Fit { a: 5, b: -2, form: Form::Quotient(7), width: 4 }, 999),
        (Fit { a: 6, b: 0, form: Form::Quotient(2), width: 4 }, 5),
        (Fit { a: -2, b: 1, form: Form::Log2, width: 4 }, 512),
        (Fit { a: 1, b: 0, form: Form::Log2, width: 4 }, 1),
        (Fit { a: 1, b: 0, form: Form::Power(0), width: 4 }, 20),
        (Fit { a: 3, b: -9, form: Form::Power(4), width: 4 }, 17),
        (Fit { a: 1, b: 11, form: Form::Power(0), width: 4 }, 63),
        (Fit { a: 429_496_729, b: 0, form: Form::Inverse, width: 4 }, 127),
        (Fit { a: 3_000_000_000, b: -5, form: Form::Inverse, width: 4 }, 999),
        (Fit { a: 1000, b: 3, form: Form::Inverse, width: 4 }, 1),
    ] {
        let mut site = SiteSpec::new("xk_target_value", 5, 2, set_register(RAX));
        site.ivs = vec![fit];
        let tune = load(&table(&target_module(), "FORM", vec![site]), value).unwrap();
        assert_eq!(target("value"), (fit.apply(value) as i32).to_string(), "{fit:?} of {value}");
        tune.unload().unwrap();
    }
    assert!(Device::open().unwrap().tunes().unwrap().is_empty());
}

fn compiled_table(values: Values) -> ScopeTable {
    let site = SiteSpec::new("xk_target_value", 5, 2, set_register(RAX));
    ScopeTable { values, ..table(&target_module(), "COMPILED", vec![site]) }
}

pub fn between_two_compiled_values_nothing_is_set() {
    let values = Values::compiled([-7, 32, 64, 128]);
    let table = compiled_table(values.clone());
    assert!(matches!(load(&table, 48), Err(Error::OutOfRange { value: 48, .. })));
    let tune = load(&table, 64).unwrap();
    assert_eq!(tune.status().unwrap().values, values);
    for refused in [i64::MIN, -8, -6, 0, 31, 33, 48, 63, 65, 96, 127, 129, i64::MAX] {
        assert!(matches!(tune.set(refused), Err(Error::OutOfRange { value, .. }) if value == refused), "{refused}");
        assert_eq!(target("value"), "64");
    }
    for accepted in [128, -7, 32, 64] {
        tune.set(accepted).unwrap();
        assert_eq!(target("value"), accepted.to_string());
    }
    tune.unload().unwrap();
}

pub fn compiled_values_stand_beside_proved_ones() {
    let values = Values { compiled: vec![-3, 200, 300], ..Values::proved(1, 100) };
    let tune = load(&compiled_table(values.clone()), 200).unwrap();
    assert_eq!((target("value"), tune.status().unwrap().values), ("200".into(), values));
    for refused in [-2, 0, 101, 150, 199, 201, 299, 301] {
        assert!(matches!(tune.set(refused), Err(Error::OutOfRange { value, .. }) if value == refused), "{refused}");
    }
    for accepted in [-3, 1, 50, 100, 300] {
        tune.set(accepted).unwrap();
        assert_eq!(target("value"), accepted.to_string());
    }
    tune.unload().unwrap();
    // As many as there may be, and each is found.
    let many: Vec<i64> = (0..abi::MAX_VALUES as i64).map(|index| 32 + 3 * index).collect();
    let tune = load(&compiled_table(Values::compiled(many.clone())), 32).unwrap();
    assert_eq!(tune.status().unwrap().values.compiled, many);
    for accepted in [many[1], many[2047], many[2048], many[4094], many[4095]] {
        tune.set(accepted).unwrap();
        assert!(tune.set(accepted - 1).is_err() && tune.set(accepted + 1).is_err());
        assert_eq!(target("value"), accepted.to_string());
    }
    tune.unload().unwrap();
}

pub fn many_sites_change_together() {
    let sites = |n: u32| (0..n).map(|i| SiteSpec::new("xk_target_many", 7 * i + 7, 2, set_register(2))).collect();
    assert_eq!(target("many"), "8192");
    let tune = load(&table(&target_module(), "MANY", sites(256)), 2).unwrap();
    assert_eq!(target("many"), "512");
    tune.set(3).unwrap();
    assert_eq!(target("many"), "768");
    assert_eq!(tune.status().unwrap().sites.len(), 256);
    tune.unload().unwrap();
    assert_eq!(target("many"), "8192");
    let mut one_more = table(&target_module(), "MANY", sites(256));
    one_more.spans.push(one_more.spans[0].clone());
    assert!(load(&one_more, 2).is_err());
}
