//! Probes on a stock kernel, by the whole command. One guest boots and runs every check of `inside`, one after the other;
//! the tests out here report them one by one. Programs are compiled and places are found on this machine; the guest finds
//! them again.
//!
//! The effect is the number of writes that a check makes: nothing else in the guest writes meanwhile.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

#[macro_use]
mod support;

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::OnceLock;
use std::time::Duration;

use serde_json::Value;
use support::{cache, contains, have_source, json, xk, CACHE, OBJECTS};
use xk_policy::{compile, Headers};
use xk_runtime::Device;
use xk_testing::guest::{boot, info, insmod, modules, passed, repository, run, wait_for, XK_KO};

/// The first instruction of `vfs_write` that a jump reaches. Set in the guest only.
const BODY: &str = "XK_TEST_BODY";
/// Bytes that this jump replaces. Set in the guest only.
const WINDOW: &str = "XK_TEST_WINDOW";
/// Finding a place takes long where instructions are emulated.
const LONG: usize = 300;

xk_testing::guest_tests! {
    every_execution_is_counted,
    status_and_top_show_an_attachment,
    all_instructions_of_a_function_are_counted,
    the_entry_is_counted_without_a_jump,
    a_program_counts_the_same,
    a_program_prints,
    attached_programs_outlive_the_command,
    a_lease_detaches_a_program,
    the_example_in_c_counts,
    the_kernel_refuses_what_no_jump_reaches,
    a_module_is_probed_where_it_was_loaded,
    a_probed_module_may_go_and_come_back,
    sigkill_ends_an_attachment,
    indirect_calls_reach_functions_whose_address_is_taken,
    a_call_of_an_unknown_function_is_reported,
    every_request_is_in_the_histogram_of_its_wait,
    a_line_is_counted_where_its_instruction_is,
    a_line_is_counted_in_every_function_that_inlines_it,
    the_guest_refuses_lines_without_code,
    variables_have_the_values_of_the_workload,
    a_variable_is_the_same_at_every_instruction,
    variables_are_read_where_they_were_compiled_for,
}

/// Programs, by the names of their files.
const PROGRAMS: [(&str, &str); 2] = [
    (
        "counts",
        "struct {\n\t__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);\n\t__uint(max_entries, 1);\n\t__type(key, u32);\n\
         \t__type(value, u64);\n} counts SEC(\".maps\");\n\nu64 total;\n\n\
         SEC(\"xk/vfs_write@body\")\nint count_writes(struct pt_regs *ctx)\n{\n\tu32 key = 0;\n\
         \tu64 *value = bpf_map_lookup_elem(&counts, &key);\n\n\tif (value)\n\t\t*value += 1;\n\
         \t__sync_fetch_and_add(&total, 1);\n\treturn 0;\n}\n",
    ),
    (
        "prints",
        "SEC(\"xk/vfs_write@body\")\nint print_sizes(struct pt_regs *ctx)\n{\n\tif (PT_REGS_PARM3(ctx) == 4321)\n\
         \t\tbpf_printk(\"wrote %d, place %d\", (int)PT_REGS_PARM3(ctx), (int)bpf_get_attach_cookie(ctx));\n\
         \treturn 0;\n}\n",
    ),
];

const HEAD: &str = "#include \"vmlinux.h\"\n#include <bpf/bpf_helpers.h>\n#include <bpf/bpf_tracing.h>\n\n";
const LICENCE: &str = "\nchar LICENSE[] SEC(\"license\") = \"GPL\";\n";

/// Compiles the programs into a folder.
fn compile_programs(folder: &Path) {
    let types = format!("{}/usr/src/linux-headers-{}/vmlinux", info("root"), info("release"));
    let headers = Headers::new(Path::new(&types), folder, "given").unwrap();
    for (name, text) in PROGRAMS {
        let source = folder.join(format!("{name}.bpf.c"));
        fs::write(&source, format!("{HEAD}{text}{LICENCE}")).unwrap();
        let object = compile(&source, &headers).unwrap_or_else(|error| panic!("{error}"));
        fs::write(source.with_extension("o"), object).unwrap();
    }
}

/// Compiles the programs of a case into a folder.
fn compile_case(name: &str, folder: &Path) {
    let types = format!("{}/usr/src/linux-headers-{}/vmlinux", info("root"), info("release"));
    let headers = Headers::new(Path::new(&types), folder, "given").unwrap();
    for entry in fs::read_dir(repository().join("cases").join(name)).unwrap() {
        let source = entry.unwrap().path();
        let Some(program) = source.file_name().unwrap().to_str().unwrap().strip_suffix(".bpf.c") else { continue };
        let object = compile(&source, &headers).unwrap_or_else(|error| panic!("{error}"));
        fs::write(folder.join(format!("{name}-{program}.bpf.o")), object).unwrap();
    }
}

/// Compiles the example in C into a folder.
fn compile_example(folder: &Path) {
    let (include, source) = (repository().join("kernel/xk/uapi"), repository().join("examples/count.c"));
    let mut gcc = Command::new("gcc");
    gcc.args(["-Wall", "-Wextra", "-Werror", "-I"]).arg(include).arg("-o").arg(folder.join("count")).arg(source);
    assert!(gcc.status().unwrap().success());
}

/// The instructions of a class in `vfs_write`, as `xk probe sites` lists them.
fn sites(class: &str) -> Vec<Value> {
    let document = json(&["probe", "sites", "vfs_write", "--class", class, "--root", &info("root"), "--json"]);
    document["sites"].as_array().unwrap().clone()
}

/// What the tests in the guest printed, in one boot.
fn guest_output() -> &'static str {
    static OUTPUT: OnceLock<String> = OnceLock::new();
    OUTPUT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        compile_programs(folder.path());
        compile_case("cfi", folder.path());
        compile_case("latency", folder.path());
        source::prepare_guest(folder.path());
        compile_example(folder.path());
        let body = sites("body")[0].clone();
        let (place, window) = (body["place"].as_str().unwrap(), &body["window"]["length"]);
        let variables = format!(
            "{} {OBJECTS}={} {BODY}={place} {WINDOW}={window} XK_CACHE=/tmp/xk-test-cache {CACHE}={}",
            modules(&[(XK_KO, "kernel/xk")]),
            folder.path().display(),
            cache().display()
        );
        boot(2400, &variables)
    })
}

fn report(name: &str) {
    passed(guest_output(), name);
}

/// A fresh module for each check, whatever the one before left behind.
fn prepare() {
    if Path::new("/dev/xk").exists() {
        assert!(run("rmmod", &["xk"]));
    }
    insmod(XK_KO);
}

/// Not in the guest: an image is enough.
#[test]
fn an_instruction_is_explained_without_the_kernel() {
    let root = info("root");
    let explain = |code: i32, place: &str| xk(code, &["probe", "explain", place, "--root", &root]);
    let all = sites("any");
    let body = sites("body")[0].clone();
    let name = |site: &Value| site["place"].as_str().unwrap().to_owned();
    let text = explain(0, &name(&body));
    contains(&text, &[&name(&body), "in the image", body["instruction"].as_str().unwrap(), "a jump in place of"]);
    contains(&explain(0, "vfs_write"), &["the function tracer; no jump: the function tracer", &name(&body)]);
    let long = all.iter().find(|site| site["length"].as_u64().unwrap() > 1).unwrap();
    let middle = format!("vfs_write+{:#x}", long["offset"].as_u64().unwrap() + 1);
    contains(&explain(1, &middle), &["in the middle of an instruction", &name(long)]);
    contains(&explain(0, "exc_int3"), &["nothing: section"]);
    contains(&xk(4, &["probe", "count", "vfs_write", "--root", &root]), &["does not run here"]);
    let document = json(&["probe", "explain", &name(&body), "--root", &root, "--json"]);
    assert_eq!((&document["by"], &document["window"]["lead"]), (&"jump".into(), &0.into()));
}

/// A process of `xk probe` that is attached. It does not outlive the check that started it.
struct Prober(Option<Child>);

impl Drop for Prober {
    fn drop(&mut self) {
        if let Some(mut child) = self.0.take() {
            // Fails if the check has killed it already.
            _ = child.kill();
            _ = child.wait();
        }
    }
}

impl Prober {
    fn start(arguments: &[&str]) -> Self {
        Self::of(Command::new(env!("CARGO_BIN_EXE_xk")), arguments, 1)
    }

    /// Waits until this number of programs is attached, one after the other.
    fn of(mut command: Command, arguments: &[&str], programs: usize) -> Self {
        let wanted = attachments() + programs;
        command.arg("probe").args(arguments).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        for _ in 0..10 * LONG {
            if attachments() >= wanted {
                return Self(Some(child));
            }
            if child.try_wait().unwrap().is_some() {
                let output = child.wait_with_output().unwrap();
                panic!("xk probe {arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
            }
            std::thread::sleep(Duration::from_millis(100));
        }
        panic!("xk probe {arguments:?} is not attached");
    }

    /// Ends it as ^C does; what it printed.
    fn end(mut self) -> String {
        let child = self.0.take().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        // SAFETY: the child was not waited for, so that the number is its own.
        assert_eq!(unsafe { libc::kill(pid, libc::SIGINT) }, 0);
        let output = child.wait_with_output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(output.status.success(), "{text}{}", String::from_utf8_lossy(&output.stderr));
        text
    }

    fn end_json(self) -> Value {
        serde_json::from_str(&self.end()).unwrap()
    }
}

/// How many attachments there are. Asking writes nothing.
fn attachments() -> usize {
    Device::open_to_read().unwrap().probes().unwrap().len()
}

/// Makes this number of calls of `vfs_write`.
fn write(number: usize, bytes: usize) {
    let mut file = fs::OpenOptions::new().write(true).open("/dev/null").unwrap();
    let text = vec![b'x'; bytes];
    for _ in 0..number {
        assert_eq!(file.write(&text).unwrap(), bytes);
    }
}

fn body() -> String {
    std::env::var(BODY).unwrap()
}

fn object(name: &str) -> String {
    let folder: PathBuf = std::env::var_os(OBJECTS).unwrap().into();
    folder.join(format!("{name}.bpf.o")).display().to_string()
}

fn hits(place: &Value) -> u64 {
    place["hits"].as_u64().unwrap()
}

#[path = "checks/probe_kept.rs"]
mod kept;
#[path = "checks/probe_source.rs"]
mod source;

mod checks {
    pub use super::kept::{
        a_lease_detaches_a_program, a_probed_module_may_go_and_come_back, attached_programs_outlive_the_command,
        the_example_in_c_counts,
    };
    pub use super::source::checks::{
        a_line_is_counted_in_every_function_that_inlines_it, a_line_is_counted_where_its_instruction_is,
        a_variable_is_the_same_at_every_instruction, the_guest_refuses_lines_without_code,
        variables_are_read_where_they_were_compiled_for, variables_have_the_values_of_the_workload,
    };
    use super::*;

    /// The commands themselves write, too.
    pub fn status_and_top_show_an_attachment() {
        let counter = Prober::start(&["count", &body(), "--json"]);
        write(1000, 1);
        let status = json(&["status", "--json"]);
        let probe = &status["probes"][0];
        assert!((1000..1200).contains(&hits(probe)), "{status:#}");
        assert_eq!((&probe["places"], &probe["jumps"]), (&1.into(), &1.into()), "{status:#}");
        let name = probe["name"].as_str().unwrap();
        contains(&xk(0, &["status"]), &["probes:", name]);
        contains(&xk(0, &["top", "--batch", "-n", "1", "-d", "100ms"]), &["1 attachment", name]);
        counter.end_json();
        assert_eq!(json(&["status", "--json"])["probes"], serde_json::json!([]));
    }

    pub fn every_execution_is_counted() {
        for number in [1000, 0, 7] {
            let counter = Prober::start(&["count", &body(), "--json"]);
            write(number, 1);
            let document = counter.end_json();
            let [place] = &document["places"].as_array().unwrap()[..] else { panic!("{document:#}") };
            assert_eq!(hits(place), number as u64, "{document:#}");
            assert_eq!((&place["by"], &place["place"]), (&"jump".into(), &body().into()), "{document:#}");
            assert_eq!(attachments(), 0, "the next one finds the text as it was");
        }
        contains(&xk(0, &["probe", "list"]), &["nothing is probed"]);
    }

    pub fn all_instructions_of_a_function_are_counted() {
        let counter = Prober::start(&["count", "vfs_write@any", "--json"]);
        write(500, 1);
        let document = counter.end_json();
        let places = document["places"].as_array().unwrap();
        let jumps = places.iter().filter(|place| place["by"] == "jump").count();
        assert_eq!(document["jumps"], jumps as u64);
        assert!(jumps * 2 > places.len(), "{document:#}");
        let count = |name: &str| places.iter().find(|place| place["place"] == name).map(hits);
        assert_eq!(count(&body()), Some(500), "{document:#}");
        let returns: u64 = places.iter().filter(|p| p["instruction"].as_str().unwrap().contains("ret")).map(hits).sum();
        assert_eq!(returns, 500, "every call returns: {document:#}");
        assert!(places.iter().all(|place| hits(place) <= 500), "{document:#}");
    }

    pub fn the_entry_is_counted_without_a_jump() {
        let counter = Prober::start(&["count", "vfs_write", "--json"]);
        write(300, 1);
        let document = counter.end_json();
        let place = &document["places"][0];
        assert_eq!((hits(place), &place["by"]), (300, &"tracer".into()), "{document:#}");
    }

    pub fn a_program_counts_the_same() {
        let running = Prober::start(&["run", &object("counts"), "--json"]);
        write(800, 1);
        let document = running.end_json();
        assert_eq!(document["programs"][0]["hits"], 800, "{document:#}");
        assert_eq!(document["programs"][0]["skipped"], 0, "{document:#}");
        assert_eq!(document["maps"]["counts"]["entries"][0]["sum"], 800, "{document:#}");
        assert_eq!(document["maps"]["bss"]["total"], 800, "{document:#}");
        let elsewhere = Prober::start(&["run", &object("counts"), "--at", "vfs_read@body", "--json"]);
        write(100, 1);
        let document = elsewhere.end_json();
        let places = document["programs"][0]["places"].as_array().unwrap();
        assert!(places.iter().all(|place| place["function"] == "vfs_read"), "{document:#}");
    }

    pub fn a_program_prints() {
        let running = Prober::start(&["run", &object("prints")]);
        write(1, 4321);
        let text = running.end();
        contains(&text, &["wrote 4321, place 0", "print_sizes: "]);
    }

    pub fn the_kernel_refuses_what_no_jump_reaches() {
        let text = xk(3, &["probe", "count", "vfs_write", "--jumps-only", "--for", "1s"]);
        contains(&text, &["vfs_write"]);
        assert_eq!(attachments(), 0);
        contains(&xk(3, &["probe", "count", "exc_int3", "--for", "1s"]), &["cannot be probed"]);
        contains(&xk(5, &["probe", "count", "sch_pie:pie_drop_early"]), &["not loaded", "modprobe sch_pie"]);
    }

    pub fn a_module_is_probed_where_it_was_loaded() {
        assert!(run("modprobe", &["sch_pie"]));
        let counter = Prober::start(&["count", "sch_pie:*@body", "--json"]);
        let document = counter.end_json();
        let places = document["places"].as_array().unwrap();
        assert!(places.len() > 3 && places.iter().all(|place| place["module"] == "sch_pie"), "{document:#}");
        assert!(run("rmmod", &["sch_pie"]), "nothing holds the module any more");
    }

    /// Work that calls by many pointers.
    fn work() {
        write(200, 1);
        for words in
            [&["-c", "ls -lR /proc/sys > /dev/null; cat /etc/passwd | sort > /tmp/sorted"][..], &["-c", "true"]]
        {
            assert!(run("sh", words));
        }
        let server = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let mut client = std::net::TcpStream::connect(server.local_addr().unwrap()).unwrap();
        client.write_all(b"x").unwrap();
        std::thread::sleep(Duration::from_secs(1));
    }

    /// Site and target of each unknown call, with their number.
    fn unknown_calls(document: &Value) -> Vec<(u64, u64, u64)> {
        let number = |hex: &str| u64::from_str_radix(hex, 16).unwrap().swap_bytes();
        let entries = document["maps"]["unknown_calls"]["entries"].as_array().unwrap();
        let call = |entry: &Value| {
            let key = entry["key"].as_str().unwrap();
            (number(&key[..16]), number(&key[16..]), entry["value"].as_u64().unwrap())
        };
        entries.iter().map(call).collect()
    }

    pub fn indirect_calls_reach_functions_whose_address_is_taken() {
        assert!(run("modprobe", &["sch_pie"]));
        let running = Prober::start(&["run", &object("cfi-report"), "--json"]);
        work();
        assert!(!run("rmmod", &["sch_pie"]), "the program knows addresses of its functions");
        let document = running.end_json();
        let program = &document["programs"][0];
        println!(
            "cfi: {} hits, {} skipped, {} jumps, {} left out, {} places",
            program["hits"],
            program["skipped"],
            program["jumps"],
            program["left_out"],
            program["places"].as_array().unwrap().len()
        );
        let places = program["places"].as_array().unwrap();
        assert!(places.len() > 5000 && hits(program) > 10_000, "{}", places.len());
        assert!(places.iter().any(|place| place["module"] == "sch_pie"));
        assert!(run("rmmod", &["sch_pie"]));
        let symbols = fs::read_to_string("/proc/kallsyms").unwrap();
        for (site, target, number) in unknown_calls(&document) {
            println!("cfi: {site:x} {target:x} {number} {:?}", nearest(&symbols, target));
        }
        assert_eq!(unknown_calls(&document), [], "no call of an unknown function");
        assert_eq!(document["maps"]["bss"]["lost"], 0);
    }

    /// The symbol at or before an address.
    fn nearest(symbols: &str, address: u64) -> Option<String> {
        let at = |line: &str| u64::from_str_radix(line.split(' ').next()?, 16).ok();
        let before = symbols.lines().filter(|line| at(line).is_some_and(|at| at <= address));
        before.max_by_key(|line| at(line)).map(str::to_owned)
    }

    pub fn a_call_of_an_unknown_function_is_reported() {
        let running = Prober::start(&["run", &object("cfi-report"), "--distrust", "write_null"]);
        write(300, 1);
        let text = running.end();
        contains(&text, &["vfs_write+0x", " calls write_null+0x0", "whose address nothing takes"]);
        let counting = Prober::start(&["run", &object("cfi-count"), "--distrust", "write_null", "--json"]);
        write(300, 1);
        let document = counting.end_json();
        let calls = unknown_calls(&document);
        let [(site, target, 300)] = calls[..] else { panic!("{calls:x?}") };
        let symbols = fs::read_to_string("/proc/kallsyms").unwrap();
        assert!(nearest(&symbols, target).unwrap().ends_with(" write_null"), "{target:x}");
        assert!(nearest(&symbols, site).unwrap().ends_with(" vfs_write"), "{site:x}");
    }

    /// Reads that the kernel says a disk has completed.
    fn reads(disk: &str) -> u64 {
        let text = fs::read_to_string(format!("/sys/block/{disk}/stat")).unwrap();
        text.split_whitespace().next().unwrap().parse().unwrap()
    }

    pub fn every_request_is_in_the_histogram_of_its_wait() {
        assert!(run("modprobe", &["mq-deadline"]) && run("modprobe", &["null_blk", "nr_devices=1", "gb=1"]));
        fs::write("/sys/block/nullb0/queue/scheduler", "mq-deadline").unwrap();
        let read = |number: u32| {
            let count = format!("count={number}");
            assert!(run("dd", &["if=/dev/nullb0", "of=/dev/null", "bs=4k", "iflag=direct", &count]));
        };
        for number in [300, 7] {
            let running = Prober::start(&["run", &object("latency-requests"), "--json"]);
            let before = reads("nullb0");
            read(number);
            let reported = reads("nullb0") - before;
            let document = running.end_json();
            let slots = document["maps"]["histogram"]["entries"].as_array().unwrap();
            let counted: u64 = slots.iter().map(|slot| slot["sum"].as_u64().unwrap()).sum();
            println!("latency: {reported} requests, {slots:?}");
            assert_eq!((counted, reported), (reported, u64::from(number)), "{document:#}");
            assert!(slots.iter().all(|slot| (6..40).contains(&slot["key"].as_u64().unwrap())), "{slots:?}");
            assert_eq!(document["maps"]["bss"]["lost"], 0);
            assert_eq!(document["maps"]["waiting"]["entries"], serde_json::json!([]), "nothing waits any more");
        }
        assert!(run("rmmod", &["null_blk"]));
    }

    pub fn sigkill_ends_an_attachment() {
        let counter = Prober::start(&["count", &body()]);
        let list = json(&["probe", "list", "--places", "--json"]);
        let [probe] = &list["probes"].as_array().unwrap()[..] else { panic!("{list:#}") };
        assert_eq!((&probe["places"], &probe["jumps"]), (&1.into(), &1.into()), "{list:#}");
        assert_eq!(probe["owner_pid"], counter.0.as_ref().unwrap().id());
        assert_eq!(probe["each"][0]["by"], "jump", "{list:#}");
        contains(&xk(0, &["probe", "list"]), &[&format!("count {}", body())]);
        drop(counter); // by SIGKILL
        wait_for("the attachment ends", || attachments() == 0);
        assert!(run("rmmod", &["xk"]), "nothing holds the module");
    }
}
