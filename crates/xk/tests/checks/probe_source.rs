//! Probes by lines of the kernel's source. Lines are looked for in the text of the source, as it is on this machine; the
//! guest has it, and the unit with its debug information, which takes minutes to compile there.

use xk_testing::kernels::tree;

use super::*;

/// The translation unit of reads and writes.
const UNIT: &str = "fs/read_write.c";
/// The file of lines, in the folder of objects.
const LINES: &str = "lines.json";

/// Lines by a name: a text of the source, after another one.
const WANTED: [(&str, &str, &str); 5] = [
    ("write", "ssize_t vfs_write(struct file *file", "ret = file->f_op->write(file, buf, count, pos);"),
    ("write_iter", "ssize_t vfs_write(struct file *file", "ret = new_sync_write(file, buf, count, pos);"),
    ("position", "static inline loff_t *file_ppos", "return file->f_mode & FMODE_STREAM"),
    ("written", "ssize_t ksys_write(unsigned int fd", "fd_file(f)->f_pos = pos;"),
    ("brace", "ssize_t vfs_write(struct file *file", "ssize_t ret;"),
];

/// Reads `count` in a register at a line, at the entry and by an offset, and `pos` on the stack.
const VARIABLES: &str = "u64 calls, at_line, at_entry, at_body, positions;\n\n\
    SEC(\"xk/WRITE\")\nint line(struct pt_regs *ctx)\n{\n\tcalls += 1;\n\tat_line += XK_VAR(count);\n\treturn 0;\n}\n\n\
    SEC(\"xk/vfs_write\")\nint entry(struct pt_regs *ctx)\n{\n\tat_entry += XK_VAR(count);\n\treturn 0;\n}\n\n\
    SEC(\"xk/vfs_write@body\")\nint body(struct pt_regs *ctx)\n{\n\tat_body += XK_VAR(count);\n\treturn 0;\n}\n\n\
    SEC(\"xk/WRITTEN\")\nint written(struct pt_regs *ctx)\n{\n\tpositions += XK_VAR(pos);\n\treturn 0;\n}\n";
/// The same at one place only.
const ALONE: &str =
    "u64 sum;\n\nSEC(\"xk/WRITE\")\nint alone(struct pt_regs *ctx)\n{\n\tsum += XK_VAR(count);\n\treturn 0;\n}\n";

/// Compares `count` with that at the entry, at instructions in place of `MANY`.
const EVERYWHERE: &str =
    "u64 same, others;\n\nstruct {\n\t__uint(type, BPF_MAP_TYPE_HASH);\n\t__uint(max_entries, 1024);\n\
    \t__type(key, u64);\n\t__type(value, u64);\n} sizes SEC(\".maps\");\n\n\
    SEC(\"xk/vfs_write\")\nint entry(struct pt_regs *ctx)\n{\n\
    \tu64 key = bpf_get_current_pid_tgid(), value = XK_VAR(count);\n\n\
    \tbpf_map_update_elem(&sizes, &key, &value, BPF_ANY);\n\treturn 0;\n}\n\n\
    SEC(\"xk/MANY\")\nint everywhere(struct pt_regs *ctx)\n{\n\tu64 key = bpf_get_current_pid_tgid();\n\
    \tu64 *known = bpf_map_lookup_elem(&sizes, &key);\n\n\tif (known && *known == XK_VAR(count))\n\t\tsame += 1;\n\
    \telse if (known)\n\t\tothers += 1;\n\treturn 0;\n}\n";

/// Compiles it for all instructions of `vfs_write` at which `count` can be read.
fn compile_everywhere(folder: &Path) {
    let mut places: Vec<String> = sites("any").iter().map(text_of("place")).collect();
    let all = places.len();
    loop {
        let output = compiler(folder, "everywhere", &EVERYWHERE.replace("MANY", &places.join(","))).output().unwrap();
        if output.status.success() {
            break;
        }
        let text = String::from_utf8(output.stderr).unwrap();
        let refused = text.split("`count` cannot be read at ").nth(1).and_then(|rest| rest.split(": ").next());
        let refused = refused.unwrap_or_else(|| panic!("{text}")).to_owned();
        places.retain(|place| *place != refused);
    }
    assert!(places.len() * 2 > all, "{} of {all}", places.len());
}

/// Writes a source with these lines, and compiles it.
fn compile(folder: &Path, name: &str, text: &str, code: i32) -> String {
    let output = compiler(folder, name, text).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert_eq!(output.status.code(), Some(code), "{name}: {text}");
    text
}

/// The command that compiles a source.
fn compiler(folder: &Path, name: &str, text: &str) -> Command {
    let text = text.replace("WRITTEN", &line_in(folder, "written")).replace("WRITE", &line_in(folder, "write"));
    let source = folder.join(format!("{name}.bpf.c"));
    fs::write(&source, format!("{HEAD}#include \"xk_probe.bpf.h\"\n\n{text}{LICENCE}")).unwrap();
    let (root, release) = (info("root"), info("release"));
    let types = format!("{root}/usr/src/linux-headers-{release}/vmlinux");
    let mut command = Command::new(env!("CARGO_BIN_EXE_xk"));
    command.args(["compile", "--root", &root, "--btf", &types]).arg(source);
    command
}

/// Not in the guest, where compiling takes a minute.
#[test]
fn a_variable_that_is_not_there_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    let refused = |name: &str, words: &[&str]| {
        let text = compile(folder.path(), "refused", &ALONE.replace("XK_VAR(count)", &format!("XK_VAR({name})")), 3);
        contains(&text, words);
        contains(&text, &["refused.bpf.c:", &format!("`{name}` cannot be read at vfs_write+0x"), "what can be: "]);
    };
    refused("ret", &["optimised away here"]);
    refused("nothing", &["the source has no such variable there"]);
    let outside = ALONE.replace("u64 sum;", "static int f(void *ctx)\n{\n\treturn XK_VAR(count);\n}\n\nu64 sum;");
    contains(
        &compile(folder.path(), "outside", &outside, 1),
        &["outside every XK_TUNE and every program of a section"],
    );
    let none = ALONE.replace("xk/WRITE", "xk/no_such_function");
    contains(&compile(folder.path(), "none", &none, 1), &["has no function no_such_function"]);
    contains(&compile(folder.path(), "alone", ALONE, 0), &["alone runs at ", "alone.bpf.o"]);
}

/// Finds the lines, and has the unit and the programs compiled.
pub fn prepare_guest(folder: &Path) {
    prepare(folder);
    compile(folder, "variables", VARIABLES, 0);
    compile(folder, "alone", ALONE, 0);
    compile_everywhere(folder);
}

/// Finds the lines, and has the unit compiled.
fn prepare(folder: &Path) {
    let text = fs::read_to_string(tree().root().join(UNIT)).unwrap();
    let number = |(name, after, wanted): (&str, &str, &str)| {
        let mut lines = text.lines().enumerate().skip_while(|(_, line)| !line.starts_with(after));
        let (index, _) = lines.find(|(_, line)| line.contains(wanted)).unwrap_or_else(|| panic!("no {wanted}"));
        (name.to_owned(), Value::from(format!("{UNIT}:{}", index + 1)))
    };
    let lines: serde_json::Map<String, Value> = WANTED.into_iter().map(number).collect();
    let first = lines["write"].as_str().unwrap().to_owned();
    fs::write(folder.join(LINES), Value::from(lines).to_string()).unwrap();
    json(&["probe", "sites", &first, "--root", &info("root"), "--json"]);
}

/// A line in the folder.
fn line_in(folder: &Path, name: &str) -> String {
    let lines: Value = serde_json::from_str(&fs::read_to_string(folder.join(LINES)).unwrap()).unwrap();
    lines[name].as_str().unwrap().to_owned()
}

fn line(name: &str) -> String {
    line_in(&PathBuf::from(std::env::var_os(OBJECTS).unwrap()), name)
}

/// Not in the guest: an image and the source are enough.
#[test]
fn a_line_is_found_without_the_kernel() {
    let folder = tempfile::tempdir().unwrap();
    prepare(folder.path());
    let root = info("root");
    let list = |name: &str, class: &str| {
        json(&["probe", "sites", &line_in(folder.path(), name), "--class", class, "--root", &root, "--json"])
    };
    let functions = |document: &Value| {
        let mut names: Vec<String> = document["sites"].as_array().unwrap().iter().map(text_of("function")).collect();
        names.dedup();
        names
    };
    let all = list("write", "any");
    assert_eq!(functions(&all), ["vfs_write"], "{all:#}");
    let calls = list("write", "indirect-call");
    assert_eq!(calls["sites"].as_array().unwrap().len(), 1, "{calls:#}");
    assert!(all["sites"].as_array().unwrap().contains(&calls["sites"][0]), "{calls:#}");
    let inlined = functions(&list("position", "any"));
    for function in ["ksys_read", "ksys_write"] {
        assert!(inlined.iter().any(|name| name == function), "{inlined:?}");
    }
    let explain = |code: i32, place: &str| xk(code, &["probe", "explain", place, "--root", &root]);
    contains(&explain(2, &line_in(folder.path(), "position")), &["several instructions"]);
    contains(&explain(0, &line_in(folder.path(), "write")), &["vfs_write+0x", "a jump in place of"]);
    contains(&explain(3, &format!("{UNIT}:1")), &["no code of this line", "the nearest lines that have code: "]);
    contains(&explain(3, &line_in(folder.path(), "brace")), &["no code of this line", "(vfs_write)"]);
    contains(&explain(1, "include/linux/fs.h:1"), &["UNIT.c:include/linux/fs.h:1"]);
    contains(&explain(1, "read_write.c:1"), &["no translation unit", "similar: ", UNIT]);
    contains(&explain(2, &format!("{UNIT}:x")), &["is not a line of the source"]);
    contains(&explain(3, &format!("{UNIT}:include/linux/fs.h:1")), &["no code of this line"]);
}

fn text_of(key: &'static str) -> impl Fn(&Value) -> String {
    move |value| value[key].as_str().unwrap().to_owned()
}

pub mod checks {
    use super::*;

    /// The instruction by its offset, in another process; and a line of the other branch.
    pub fn a_line_is_counted_where_its_instruction_is() {
        have_source();
        let by_line = Prober::start(&["count", &line("write"), "--json"]);
        let list = json(&["probe", "list", "--places", "--json"]);
        let address = text_of("address")(&list["probes"][0]["each"][0]);
        let by_address = Prober::start(&["count", &address, "--json"]);
        let other = Prober::start(&["count", &line("write_iter"), "--json"]);
        write(300, 1);
        let (other, by_address, by_line) = (other.end_json(), by_address.end_json(), by_line.end_json());
        let place = &by_line["places"][0];
        assert!(text_of("place")(place).starts_with("vfs_write+0x"), "{by_line:#}");
        assert_eq!((hits(place), hits(&by_address["places"][0])), (300, 300), "{by_line:#}{by_address:#}");
        assert_eq!(place["place"], by_address["places"][0]["place"]);
        let executed: u64 = other["places"].as_array().unwrap().iter().map(hits).sum();
        assert_eq!(executed, 0, "/dev/null has a write of its own: {other:#}");
    }

    pub fn a_line_is_counted_in_every_function_that_inlines_it() {
        have_source();
        let counter = Prober::start(&["count", &line("position"), "--json"]);
        write(200, 1);
        let document = counter.end_json();
        let places = document["places"].as_array().unwrap();
        let of = |name: &str| places.iter().filter(|place| place["function"] == name).map(hits).collect::<Vec<_>>();
        assert_eq!(of("ksys_write"), [200], "{document:#}");
        assert!(places.len() > 2 && of("ksys_read").len() == 1, "{document:#}");
        let text = xk(0, &["probe", "count", &line("position"), "--for", "1s"]);
        let number = places.len();
        contains(
            &text,
            &[&format!("{}: {number} instructions in {number} functions: ", line("position")), "ksys_write+0x"],
        );
    }

    /// Writes of 1 to 40 bytes to /dev/null, and three to a file.
    fn write_sizes() {
        for size in 1..=40 {
            write(1, size);
        }
        let mut file = fs::File::create("/tmp/xk-written").unwrap();
        for _ in 0..3 {
            assert_eq!(file.write(&[b'x'; 4321]).unwrap(), 4321);
        }
    }

    /// By jumps and the function tracer, then by kprobes and the function tracer.
    pub fn variables_have_the_values_of_the_workload() {
        let null: u64 = (1..=40).sum();
        let rules = "/tmp/xk-no-jumps.toml";
        fs::write(rules, "[backend]\nforbid = [\"detour\"]\n").unwrap();
        for (by, config) in [("jump", "/nonexistent"), ("kprobe", rules)] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_xk"));
            command.env("XK_CONFIG", config);
            have_source();
            let running = Prober::of(command, &["run", &object("variables"), "--json"], 4);
            write_sizes();
            let document = running.end_json();
            let ways = |program: &Value| {
                let places = program["places"].as_array().unwrap();
                places.iter().map(text_of("by")).collect::<std::collections::BTreeSet<_>>()
            };
            let programs = document["programs"].as_array().unwrap();
            let reached: Vec<_> = programs.iter().map(ways).collect();
            for (program, ways) in programs.iter().zip(&reached) {
                let expected = if program["program"] == "entry" { "tracer" } else { by };
                assert_eq!(ways.iter().collect::<Vec<_>>(), [expected], "{document:#}");
            }
            let value = |name: &str| document["maps"]["bss"][name].as_u64().unwrap();
            println!("variables: {by} {}", document["maps"]);
            assert_eq!((value("calls"), value("at_line")), (40, null), "{document:#}");
            assert_eq!((value("at_entry"), value("at_body")), (null + 3 * 4321, null + 3 * 4321), "{document:#}");
            assert!(value("positions") > 0, "{document:#}");
            // `pos` is read at each instruction at which its line begins.
            let begins = programs.iter().find(|program| program["program"] == "written").unwrap();
            let begins = begins["places"].as_array().unwrap().iter().filter(|place| hits(place) > 0).count() as u64;
            assert_eq!(value("positions"), begins * (1 + 2 + 3) * 4321, "{document:#}");
        }
    }

    /// Wherever the compiler keeps it: in registers, and on the stack.
    pub fn a_variable_is_the_same_at_every_instruction() {
        have_source();
        let rules = "/tmp/xk-no-jumps.toml";
        fs::write(rules, "[backend]\nforbid = [\"detour\"]\n").unwrap();
        for config in ["/nonexistent", rules] {
            let mut command = Command::new(env!("CARGO_BIN_EXE_xk"));
            command.env("XK_CONFIG", config);
            let running = Prober::of(command, &["run", &object("everywhere"), "--json"], 2);
            write_sizes();
            let document = running.end_json();
            let value = |name: &str| document["maps"]["bss"][name].as_u64().unwrap();
            println!(
                "everywhere: {} same, {} others, {}",
                value("same"),
                value("others"),
                document["programs"][1]["jumps"]
            );
            assert_eq!(value("others"), 0, "{document:#}");
            assert!(value("same") > 43 * 20, "{document:#}");
        }
    }

    pub fn variables_are_read_where_they_were_compiled_for() {
        have_source();
        let text = xk(3, &["probe", "run", &object("alone"), "--at", "vfs_read@body", "--for", "1s"]);
        contains(&text, &["alone reads variables, and was not compiled for vfs_read+0x"]);
        let mut bytes = fs::read(object("alone")).unwrap();
        let build = xk_kernel::KernelId::live().unwrap().build_id;
        let at = bytes.windows(build.len()).position(|window| window == build.as_bytes()).unwrap();
        bytes[at] = if bytes[at] == b'0' { b'1' } else { b'0' };
        fs::write("/tmp/other.bpf.o", bytes).unwrap();
        contains(&xk(4, &["probe", "run", "/tmp/other.bpf.o", "--for", "1s"]), &["compile it again"]);
        assert_eq!(attachments(), 0);
    }

    pub fn the_guest_refuses_lines_without_code() {
        have_source();
        contains(&xk(3, &["probe", "count", &line("brace"), "--for", "1s"]), &["no code of this line", "(vfs_write)"]);
        contains(&xk(3, &["probe", "count", &format!("{UNIT}:1"), "--for", "1s"]), &["no code of this line"]);
        assert_eq!(attachments(), 0);
    }
}
