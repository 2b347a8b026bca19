//! xk.ko on a running kernel. One guest boots and runs every check of
//! `inside`, one after the other; the tests out here report them one by one.
//!
//! Effects are what `/proc/xk_target` prints: the return values of functions
//! that contain a constant of 32, not the counters of xk.ko.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

mod support;

use std::fs;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use object::{Object, ObjectSection, ObjectSymbol};
use support::{op, raw, set_register, table, Loaded, Site, MODULE, RAX, RDI, RSI};
use xk_runtime::{abi, Device, Error, Probe, SiteStatus, Tune};
use xk_table::{Fit, Op, OpCode, ScopeTable, When};

/// Set in the guest only: nothing in `inside` may run anywhere else.
const XK_KO: &str = "XK_TEST_MODULE";
const TARGET_KO: &str = "XK_TEST_TARGET";

macro_rules! guest_tests {
    ($($name:ident),* $(,)?) => {
        $(#[test] fn $name() { report(stringify!($name)); })*

        mod inside {
            $(#[test] #[ignore = "runs in a guest, started by the test of the same name"]
            fn $name() { super::prepare(); super::checks::$name(); })*

            /// Not a test: a process that holds a tune until it is killed.
            #[test]
            #[ignore = "started by other tests"]
            fn hold() {
                if std::env::var_os("XK_TEST_HOLD").is_some() {
                    super::hold_tune();
                }
            }
        }
    };
}

guest_tests! {
    a_value_changes_and_returns,
    two_sites_change_together,
    flags_of_a_comparison_are_recomputed,
    memory_operand_is_compared,
    a_fault_leaves_the_default_and_is_counted,
    a_store_changes_memory,
    a_select_is_recomputed,
    an_update_can_follow_an_instruction,
    an_update_can_replace_an_instruction,
    a_site_can_be_a_jump,
    sigkill_of_the_owner_returns_the_default,
    a_detached_tune_survives_its_owner,
    an_owned_tune_is_nobody_elses,
    the_same_constant_twice_is_busy,
    the_same_instruction_twice_is_busy,
    two_tunes_share_a_function,
    an_altered_byte_is_refused,
    a_foreign_probe_is_refused,
    another_name_of_a_function_is_accepted,
    a_wrong_place_is_refused,
    a_malformed_program_is_refused,
    garbage_is_refused,
    another_interface_version_is_refused,
    all_sites_or_none,
    out_of_range_is_refused,
    kprobes_disabled_arms_nothing,
    kprobes_disabled_later_is_visible,
    removing_the_module_returns_defaults,
    opening_the_device_explains_itself,
    a_global_variable_is_read,
    a_global_variable_is_compared,
    an_array_is_read,
    per_cpu_data_are_those_of_this_cpu,
    a_field_is_read_through_a_probe,
    a_field_without_an_instruction_is_refused,
    a_reloaded_module_is_linked_again,
    every_form_of_a_value_is_computed,
    only_powers_of_two_are_set,
    many_sites_change_together,
    a_site_waits_for_its_module,
    a_reloaded_module_is_armed_again,
    a_module_with_other_code_is_left_alone,
    a_function_is_found_by_its_bytes,
    a_module_without_the_function_is_left_alone,
    the_same_instruction_twice_is_left_alone,
    xk_can_be_removed_while_a_site_waits,
    an_object_is_set_and_put_back,
    an_object_holds_the_transformed_value,
    what_somebody_else_wrote_stays,
    an_object_waits_for_its_module,
    an_object_that_is_none_is_refused,
    an_object_of_the_kernel_is_set_and_put_back,
    the_rest_is_in_force_while_a_site_waits,
}

fn repository() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..").canonicalize().unwrap()
}

fn output_of(command: &mut Command) -> String {
    let output = command.current_dir(repository()).stderr(Stdio::inherit()).output().unwrap();
    assert!(output.status.success(), "{command:?}: {}", output.status);
    String::from_utf8(output.stdout).unwrap()
}

/// What the tests in the guest printed, in one boot.
fn guest_output() -> &'static str {
    static OUTPUT: OnceLock<String> = OnceLock::new();
    OUTPUT.get_or_init(|| {
        let release = output_of(Command::new("lab/lab").args(["info", "amd64", "release"]));
        let module = |folder| output_of(Command::new("scripts/build-module").args([release.trim(), folder]));
        let script = format!(
            "export {XK_KO}={} {TARGET_KO}={}; exec {} --ignored --test-threads=1 inside:: 2>&1",
            module("kernel/xk").trim(),
            module("kernel/test").trim(),
            std::env::current_exe().unwrap().display(),
        );
        let output = Command::new("lab/lab")
            .args(["run", "--timeout", "300", &script])
            .current_dir(repository())
            .output()
            .unwrap();
        format!(
            "{}{}lab: {}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr),
            output.status
        )
    })
}

/// Fails unless the test of this name passed in the guest, and the guest's
/// kernel had nothing to complain about.
fn report(name: &str) {
    let output = guest_output();
    let passed = output.contains(&format!("test inside::{name} ... ok"));
    // 101: a test of the guest failed, which is for that test to say.
    let healthy = output.ends_with("exit status: 0") || output.ends_with("exit status: 101");
    assert!(passed && healthy, "{output}");
}

fn target_module() -> PathBuf {
    std::env::var_os(TARGET_KO).expect("this test runs in a guest only").into()
}

fn run(program: &str, arguments: &[&str]) -> bool {
    // Its words would come between the lines of the test harness.
    Command::new(program).args(arguments).output().unwrap().status.success()
}

fn insmod_xk() {
    assert!(run("insmod", &[&std::env::var(XK_KO).unwrap()]));
}

/// Fresh modules for each check, whatever the one before left behind.
fn prepare() {
    let target = target_module();
    if Path::new("/proc/xk_target").exists() {
        assert!(run("rmmod", &[MODULE]));
    }
    if Path::new("/dev/xk").exists() {
        assert!(run("rmmod", &["xk"]));
    }
    assert!(run("insmod", &[target.to_str().unwrap()]));
    insmod_xk();
}

/// What the function whose line starts with `name` returned.
fn target(name: &str) -> String {
    let text = fs::read_to_string("/proc/xk_target").unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix(name)).expect(name);
    line.trim().to_owned()
}

fn value_table() -> ScopeTable {
    table(&target_module(), "VALUE", vec![Site::new("xk_target_value", 5, 2, set_register(RAX))])
}

fn load(table: &ScopeTable, value: i64) -> Result<Tune, Error> {
    Device::open().unwrap().load(table, value, &Loaded)
}

fn message(result: Result<Tune, Error>) -> String {
    result.expect_err("the kernel should have refused").to_string()
}

fn only_site(tune: &Tune) -> SiteStatus {
    tune.status().unwrap().sites.remove(0)
}

/// The optimiser works in the background.
fn wait_for(what: &str, mut condition: impl FnMut() -> bool) {
    for _ in 0..100 {
        if condition() {
            return;
        }
        std::thread::sleep(Duration::from_millis(100));
    }
    panic!("not within ten seconds: {what}");
}

fn hold_tune() {
    let device = Device::open().unwrap();
    let _tune = device.load(&value_table(), 99, &Loaded).unwrap();
    std::thread::sleep(Duration::from_secs(600));
}

/// A process that has set VALUE to 99.
fn holder() -> std::process::Child {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "inside::hold", "--nocapture"])
        .env("XK_TEST_HOLD", "1")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the holder's value", || target("value") == "99");
    child
}

fn write(path: &str, text: &str) {
    fs::write(path, text).unwrap_or_else(|error| panic!("{path}: {error}"));
}

fn append(path: &str, text: &str) {
    fs::OpenOptions::new().append(true).open(path).unwrap().write_all(text.as_bytes()).unwrap();
}

/// flags = memory or register `register` compared with V
fn compare(register: u8, memory: bool) -> Vec<Op> {
    let mut ops = if memory {
        vec![Op { a: register, ..op(OpCode::Reg, 8) }, op(OpCode::Load, 4)]
    } else {
        vec![Op { a: register, ..op(OpCode::Reg, 4) }]
    };
    ops.push(Op { dst: 1, ..op(OpCode::Iv, 4) });
    ops.push(Op { dst: 2, b: 1, ..op(OpCode::FlagsSub, 4) });
    ops.push(Op { a: 2, imm: 0x8d5, ..op(OpCode::SetFlags, 8) });
    ops
}

/// The module with one byte of a symbol changed; its path.
fn altered(symbol: &str, at: u64, byte: u8) -> PathBuf {
    let mut data = fs::read(target_module()).unwrap();
    let place = {
        let file = object::File::parse(&*data).unwrap();
        let found = file.symbols().find(|s| s.name() == Ok(symbol)).unwrap();
        let section = file.section_by_index(found.section_index().unwrap()).unwrap();
        section.file_range().unwrap().0 + found.address() + at
    };
    data[place as usize] = byte;
    let path = PathBuf::from("/tmp/xk_target_altered.ko");
    fs::write(&path, data).unwrap();
    path
}

mod checks {
    mod addresses;
    mod data;
    mod modules;

    pub use addresses::{
        a_field_is_read_through_a_probe, a_field_without_an_instruction_is_refused, a_global_variable_is_compared,
        a_global_variable_is_read, a_reloaded_module_is_linked_again, an_array_is_read,
        every_form_of_a_value_is_computed, many_sites_change_together, only_powers_of_two_are_set,
        per_cpu_data_are_those_of_this_cpu,
    };
    pub use data::{
        an_object_holds_the_transformed_value, an_object_is_set_and_put_back,
        an_object_of_the_kernel_is_set_and_put_back, an_object_that_is_none_is_refused, an_object_waits_for_its_module,
        the_rest_is_in_force_while_a_site_waits, what_somebody_else_wrote_stays,
    };
    pub use modules::{
        a_function_is_found_by_its_bytes, a_module_with_other_code_is_left_alone,
        a_module_without_the_function_is_left_alone, a_reloaded_module_is_armed_again, a_site_waits_for_its_module,
        the_same_instruction_twice_is_left_alone, xk_can_be_removed_while_a_site_waits,
    };

    use super::*;

    pub fn a_value_changes_and_returns() {
        assert_eq!(target("value"), "32");
        let tune = load(&value_table(), 128).unwrap();
        assert_eq!(target("value"), "128");
        tune.set(7).unwrap();
        assert_eq!(target("value"), "7");
        let status = tune.status().unwrap();
        assert_eq!((status.value, status.default, status.broken), (7, 32, false));
        assert_eq!(status.sites[0].hits, 2);
        assert_eq!(status.sites[0].applied, 2);
        tune.unload().unwrap();
        assert_eq!(target("value"), "32");
        assert!(Device::open().unwrap().tunes().unwrap().is_empty());
        // Only possible if the original bytes are back.
        load(&value_table(), 5).unwrap().unload().unwrap();
    }

    fn twice_table() -> ScopeTable {
        let sites = vec![
            Site::new("xk_target_twice", 5, 5, set_register(RAX)),
            Site::new("xk_target_twice", 10, 2, set_register(1)),
        ];
        table(&target_module(), "TWICE", sites)
    }

    pub fn two_sites_change_together() {
        assert_eq!(target("twice"), "64");
        let tune = load(&twice_table(), 100).unwrap();
        assert_eq!(target("twice"), "200");
        assert_eq!(tune.status().unwrap().sites.len(), 2);
        tune.unload().unwrap();
        assert_eq!(target("twice"), "64");
    }

    fn changes(name: &str, sites: Vec<Site>, value: i64, default: &str, tuned: &str) {
        assert_eq!(target(name), default);
        let tune = load(&table(&target_module(), name, sites), value).unwrap();
        assert_eq!(target(name), tuned);
        assert_eq!(only_site(&tune).faults, 0);
        tune.unload().unwrap();
        assert_eq!(target(name), default);
    }

    pub fn flags_of_a_comparison_are_recomputed() {
        changes("compare", vec![Site::new("xk_target_compare", 5, 3, compare(RDI, false))], 50, "1", "0");
        changes("compare", vec![Site::new("xk_target_compare", 5, 3, compare(RDI, false))], 39, "1", "1");
    }

    pub fn memory_operand_is_compared() {
        changes("memory", vec![Site::new("xk_target_memory", 5, 3, compare(RDI, true))], 50, "1", "0");
    }

    pub fn a_fault_leaves_the_default_and_is_counted() {
        let sites = vec![Site::new("xk_target_memory", 5, 3, compare(RSI, true))];
        let tune = load(&table(&target_module(), "memory", sites), 50).unwrap();
        assert_eq!(target("memory"), "0");
        write("/proc/xk_target", "bad");
        assert_eq!(target("memory"), "1");
        let site = only_site(&tune);
        assert_eq!((site.hits, site.applied, site.faults), (2, 1, 1));
        write("/proc/xk_target", "good");
        assert_eq!(target("memory"), "0");
        tune.unload().unwrap();
    }

    pub fn a_store_changes_memory() {
        let ops = vec![
            Op { a: RDI, ..op(OpCode::Reg, 8) },
            Op { dst: 1, ..op(OpCode::Iv, 4) },
            Op { b: 1, ..op(OpCode::Store, 4) },
        ];
        changes("store", vec![Site::new("xk_target_store", 6, 2, ops)], 500, "32", "500");
    }

    pub fn a_select_is_recomputed() {
        let ops = vec![
            Op { a: RDI, ..op(OpCode::Reg, 1) },
            Op { dst: 1, ..op(OpCode::Imm, 1) },
            Op { dst: 2, a: 0, b: 1, ..op(OpCode::Eq, 1) },
            Op { dst: 3, imm: 1, ..op(OpCode::Iv, 4) },
            Op { dst: 4, imm: 0, ..op(OpCode::Iv, 4) },
            Op { dst: 5, a: 2, b: 3, c: 4, ..op(OpCode::Select, 4) },
            Op { dst: RAX, a: 5, ..op(OpCode::SetReg, 4) },
        ];
        let mut site = Site::new("xk_target_select", 12, 2, ops);
        site.ivs.push(Fit::linear(2, 0, 4));
        changes("select", vec![site], 50, "32 64", "50 100");
    }

    pub fn an_update_can_follow_an_instruction() {
        let mut site = Site::new("xk_target_value", 0, 5, set_register(RAX));
        site.when = When::After;
        changes("value", vec![site], 77, "32", "77");
    }

    /// `and $32,%eax` destroys what the new result is made of.
    pub fn an_update_can_replace_an_instruction() {
        let mut site = Site::new(
            "xk_target_select",
            6,
            3,
            vec![
                Op { a: RAX, ..op(OpCode::Reg, 4) },
                Op { dst: 1, ..op(OpCode::Iv, 4) },
                Op { dst: 2, a: 0, b: 1, ..op(OpCode::And, 4) },
                Op { dst: RAX, a: 2, ..op(OpCode::SetReg, 4) },
            ],
        );
        site.when = When::Instead;
        assert_eq!(target("select"), "32 64");
        let tune = load(&table(&target_module(), "INSTEAD", vec![site]), 65).unwrap();
        assert_eq!(target("select"), "32 97");
        let site = only_site(&tune);
        assert_eq!((site.probe, site.hits, site.applied), (Probe::Int3, 2, 2));
        // Not even when the optimiser has been here.
        let other = load(&value_table(), 64).unwrap();
        wait_for("optimisation", || only_site(&other).probe == Probe::Jump);
        assert_eq!(only_site(&tune).probe, Probe::Int3);
        assert_eq!(target("select"), "32 97");
        tune.unload().unwrap();
        assert_eq!(target("select"), "32 64");

        // Instead of `mov %eax,%edx`; when memory faults, that runs.
        let ops = vec![
            Op { a: RSI, ..op(OpCode::Reg, 8) },
            Op { dst: 1, ..op(OpCode::Load, 4) },
            Op { dst: 2, a: 1, ..op(OpCode::SetReg, 4) },
        ];
        let mut site = Site::new("xk_target_memory", 8, 2, ops);
        site.when = When::Instead;
        let tune = load(&table(&target_module(), "INSTEAD", vec![site]), 65).unwrap();
        assert_eq!(target("memory"), "40");
        write("/proc/xk_target", "bad");
        assert_eq!(target("memory"), "1");
        let site = only_site(&tune);
        assert_eq!((site.hits, site.applied, site.faults), (2, 1, 1));
        write("/proc/xk_target", "good");
        tune.unload().unwrap();
    }

    pub fn a_site_can_be_a_jump() {
        let tune = load(&value_table(), 64).unwrap();
        wait_for("optimisation", || only_site(&tune).probe == Probe::Jump);
        assert_eq!(target("value"), "64");
        tune.set(65).unwrap();
        assert_eq!(target("value"), "65");
        write("/proc/sys/debug/kprobes-optimization", "0");
        assert_eq!(only_site(&tune).probe, Probe::Int3);
        assert_eq!(target("value"), "65");
        write("/proc/sys/debug/kprobes-optimization", "1");
        wait_for("optimisation", || only_site(&tune).probe == Probe::Jump);
        tune.unload().unwrap();
        // The jump covered three instructions; all of them are back.
        load(&value_table(), 33).unwrap();
        assert_eq!(target("value"), "32");
    }

    pub fn sigkill_of_the_owner_returns_the_default() {
        let mut owner = holder();
        owner.kill().unwrap();
        owner.wait().unwrap();
        assert_eq!(target("value"), "32");
        assert!(Device::open().unwrap().tunes().unwrap().is_empty());
    }

    pub fn a_detached_tune_survives_its_owner() {
        let id = load(&value_table(), 41).unwrap().detach().unwrap();
        assert_eq!(target("value"), "41");
        let device = Device::open().unwrap();
        assert!(device.tunes().unwrap()[0].detached);
        device.set(id, 42).unwrap();
        assert_eq!(target("value"), "42");
        device.unload(id).unwrap();
        assert_eq!(target("value"), "32");
        assert!(matches!(device.unload(id), Err(Error::NoSuchTune(gone)) if gone == id));
    }

    pub fn an_owned_tune_is_nobody_elses() {
        let tune = load(&value_table(), 41).unwrap();
        let other = Device::open().unwrap();
        assert!(matches!(other.unload(tune.id()), Err(Error::Owned(_))));
        assert!(matches!(other.set(tune.id(), 1), Err(Error::Owned(_))));
        assert!(matches!(other.detach(tune.id()), Err(Error::Owned(_))));
        assert_eq!(other.tunes().unwrap()[0].owner_pid, std::process::id() as i32);
        assert_eq!(target("value"), "41");
    }

    pub fn the_same_constant_twice_is_busy() {
        let _tune = load(&value_table(), 41).unwrap();
        let again = load(&value_table(), 42);
        assert!(matches!(&again, Err(Error::Busy(text)) if text.contains("VALUE") && text.contains("41")), "{again:?}");
        assert_eq!(target("value"), "41");
    }

    pub fn the_same_instruction_twice_is_busy() {
        let _tune = load(&value_table(), 41).unwrap();
        let mut thief = value_table();
        thief.constant.id = "elsewhere.c:L1:32:0".into();
        let refused = load(&thief, 42);
        assert!(
            matches!(&refused, Err(Error::Busy(text)) if text.contains("xk_target_value+0x5") && text.contains("VALUE")),
            "{refused:?}"
        );
        assert_eq!(target("value"), "41");
    }

    /// The second is verified while the first has a jump over three of the
    /// function's instructions.
    pub fn two_tunes_share_a_function() {
        let first = load(&value_table(), 64).unwrap();
        wait_for("optimisation", || only_site(&first).probe == Probe::Jump);
        let mut second =
            table(&target_module(), "SECOND", vec![Site::new("xk_target_value", 10, 2, set_register(RAX))]);
        let tune = load(&second, 700).unwrap();
        assert_eq!(target("value"), "64");
        tune.unload().unwrap();
        assert_eq!(target("value"), "64");
        // Looking through the jump does not mean looking away from what it hides.
        second.functions[0].bytes.replace_range(12..14, "90");
        assert!(message(load(&second, 700)).contains("xk_target_value+0x6: expected 90, running c2"));
    }

    pub fn an_altered_byte_is_refused() {
        let mut table = value_table();
        table.functions[0].bytes.replace_range(2..4, "21");
        let refused = load(&table, 5);
        assert!(
            matches!(&refused, Err(Error::Drift(text)) if text == "xk_target_value+0x1: expected 21, running 20"),
            "{refused:?}"
        );
        assert_eq!(target("value"), "32");
    }

    pub fn a_foreign_probe_is_refused() {
        const EVENTS: &str = "/sys/kernel/tracing/kprobe_events";
        const ENABLE: &str = "/sys/kernel/tracing/events/kprobes/foreign/enable";
        let site = Site::new("xk_target_traced", 5, 2, set_register(RDI));
        let table = table(&target_module(), "TRACED", vec![site]);
        append(EVENTS, "p:foreign xk_target:xk_target_traced+5\n");
        write(ENABLE, "1");
        let refused = load(&table, 5);
        assert!(
            matches!(&refused, Err(Error::Drift(text))
                if text.starts_with("xk_target_traced+0x5: expected 89, running") && text.contains("another probe")),
            "{refused:?}"
        );
        write(ENABLE, "0");
        append(EVENTS, "-:foreign\n");
        wait_for("the foreign probe to go", || load(&table, 5).is_ok());
    }

    /// Whichever of the two names the kernel itself would print.
    pub fn another_name_of_a_function_is_accepted() {
        for name in ["xk_target_value", "xk_target_alias"] {
            let site = Site::new(name, 5, 2, set_register(RAX));
            let tune = load(&table(&target_module(), "ALIAS", vec![site]), 3).unwrap();
            assert_eq!(target("value"), "3");
            tune.unload().unwrap();
        }
    }

    pub fn a_wrong_place_is_refused() {
        let mut wrong = value_table();
        wrong.functions[0].module = Some("xk".into());
        struct Fixed(u64);
        impl xk_runtime::AddressOf for Fixed {
            fn address(&self, _: &xk_table::Function) -> Result<Option<u64>, String> {
                Ok(Some(self.0))
            }
            fn data_address(&self, _: &xk_table::DataSite) -> Result<Option<u64>, String> {
                Ok(Some(self.0))
            }
        }
        use xk_runtime::AddressOf;
        let right = Loaded.address(&value_table().functions[0]).unwrap().unwrap();
        let refused = |table: &ScopeTable, address| message(Device::open().unwrap().load(table, 5, &Fixed(address)));
        assert!(refused(&wrong, right).contains("lies in xk_target, not in xk"));
        assert!(refused(&value_table(), right + 1).contains("is xk_target_value+0x1"));
        assert!(refused(&value_table(), 0x1000).contains("not in the kernel's text"));
        wrong = value_table();
        wrong.functions[0].symbol = "xk_target_twice".into();
        assert!(refused(&wrong, right).contains("is xk_target_value+0"));
        // In the middle of an instruction.
        wrong = value_table();
        wrong.spans[0].indirection.offset = 2;
        assert!(refused(&wrong, right).contains("xk_target_value+0x2: not the start of an instruction"));
        wrong = value_table();
        wrong.spans[0].indirection.insn_len = 3;
        assert!(refused(&wrong, right).contains("another length"));
        // The return, which the kernel patches.
        wrong = value_table();
        wrong.spans[0].indirection.offset = 12;
        wrong.spans[0].indirection.insn_len = 5;
        assert!(
            refused(&wrong, right).contains("the kernel patches this instruction itself"),
            "{}",
            refused(&wrong, right)
        );
        assert_eq!(target("value"), "32");
    }

    /// `Program::check` refuses it before the kernel is asked; the kernel's own
    /// check is the subject of the tests of ops.c.
    pub fn a_malformed_program_is_refused() {
        let mut wrong = value_table();
        wrong.spans[0].indirection.program.ops[1].dst = 4;
        assert!(matches!(load(&wrong, 5), Err(Error::Table { .. })));
    }

    /// Valid requests with some bytes changed, past the checks of this crate.
    pub fn garbage_is_refused() {
        use xk_runtime::AddressOf;
        let table = value_table();
        let text = table.functions[0].text().unwrap();
        let mask = table.functions[0].text_mask().unwrap();
        let address = Loaded.address(&table.functions[0]).unwrap().unwrap();
        let device = std::fs::File::options().read(true).write(true).open("/dev/xk").unwrap();
        let mut random = 0x9e37_79b9_7f4a_7c15_u64;
        let mut next = || {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random
        };
        let mut refused = 0;
        for _ in 0..150 {
            let mut site = raw::site(address, &text, &mask, &table.spans[0]);
            let mut load = raw::load(&site);
            for _ in 0..=next() % 8 {
                if next() % 4 == 0 {
                    raw::scribble(&mut load, next(), next());
                } else {
                    raw::scribble(&mut site, next(), next());
                }
            }
            match raw::ioctl(&device, abi::IOC_LOAD, &mut load) {
                Ok(()) => raw::ioctl(&device, abi::IOC_UNLOAD, &mut load.id).unwrap(),
                Err(_) => refused += 1,
            }
        }
        // Another name of the module is accepted: such a module may come.
        assert!(refused > 30 && refused < 150, "{refused}");
        assert_eq!(target("value"), "32");
        load(&value_table(), 5).unwrap();
    }

    pub fn another_interface_version_is_refused() {
        let table = value_table();
        let text = table.functions[0].text().unwrap();
        let site = raw::site(0, &text, &text, &table.spans[0]);
        let device = std::fs::File::options().read(true).write(true).open("/dev/xk").unwrap();
        for change in [|load: &mut abi::Load| load.abi += 1, |load: &mut abi::Load| load.size -= 8] {
            let mut load = raw::load(&site);
            change(&mut load);
            let error = raw::ioctl(&device, abi::IOC_LOAD, &mut load).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EPROTO));
        }
    }

    pub fn all_sites_or_none() {
        let sites = vec![
            Site::new("xk_target_value", 5, 2, set_register(RAX)),
            Site::new("xk_target_compare", 5, 2, compare(RDI, false)),
        ];
        let refused = load(&table(&target_module(), "BOTH", sites), 5);
        assert!(message(refused).contains("xk_target_compare+0x5"));
        assert_eq!(target("value"), "32");
        load(&value_table(), 6).unwrap();
    }

    pub fn out_of_range_is_refused() {
        assert!(matches!(load(&value_table(), 1001), Err(Error::OutOfRange { .. })));
        let tune = load(&value_table(), 1000).unwrap();
        let refused = tune.set(-1);
        assert!(
            matches!(&refused, Err(Error::OutOfRange { value: -1, range, .. }) if range.max == 1000),
            "{refused:?}"
        );
        assert_eq!(target("value"), "1000");
    }

    const ENABLED: &str = "/sys/kernel/debug/kprobes/enabled";

    pub fn kprobes_disabled_arms_nothing() {
        write(ENABLED, "0");
        let refused = load(&value_table(), 5);
        write(ENABLED, "1");
        assert!(message(refused).contains("kprobes/enabled"));
        assert_eq!(target("value"), "32");
        load(&value_table(), 5).unwrap();
    }

    pub fn kprobes_disabled_later_is_visible() {
        let tune = load(&value_table(), 64).unwrap();
        write(ENABLED, "0");
        assert_eq!(target("value"), "32");
        let status = tune.status().unwrap();
        assert!(status.broken);
        assert_eq!(status.sites[0].probe, Probe::Disarmed);
        write(ENABLED, "1");
        assert_eq!(target("value"), "64");
        assert!(!tune.status().unwrap().broken);
        write(ENABLED, "0");
        tune.unload().unwrap();
        write(ENABLED, "1");
        assert_eq!(target("value"), "32");
    }

    pub fn removing_the_module_returns_defaults() {
        let tune = load(&value_table(), 64).unwrap();
        assert!(!run("rmmod", &["xk"]), "an open descriptor holds the module");
        tune.detach().unwrap();
        assert_eq!(target("value"), "64");
        assert!(run("rmmod", &["xk"]));
        assert_eq!(target("value"), "32");
        assert!(matches!(Device::open(), Err(Error::NotLoaded)));
    }

    pub fn opening_the_device_explains_itself() {
        // By its link: nobody may not search the folders that lead to it.
        let status = Command::new("/proc/self/exe")
            .args(["--ignored", "--exact", "inside::hold"])
            .env("XK_TEST_HOLD", "1")
            .uid(65534)
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&status.stdout).into_owned() + &String::from_utf8_lossy(&status.stderr);
        assert!(text.contains("NotRoot"), "{text}");
        let (version, module) = Device::open().unwrap().version().unwrap();
        assert_eq!((version, module.as_str()), (abi::ABI_VERSION, "0.1.0"));
    }
}
