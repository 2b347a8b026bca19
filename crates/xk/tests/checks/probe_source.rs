//! Probes by lines of the kernel's source. Lines are looked for in the text of the source, as it is on this machine; the
//! guest has it, and the unit with its debug information, which takes minutes to compile there.

use xk_testing::kernels::tree;

use super::*;

/// The translation unit of reads and writes.
const UNIT: &str = "fs/read_write.c";
/// The file of lines, in the folder of objects.
const LINES: &str = "lines.json";

/// Lines by a name: a text of the source, after another one.
const WANTED: [(&str, &str, &str); 4] = [
    ("write", "ssize_t vfs_write(struct file *file", "ret = file->f_op->write(file, buf, count, pos);"),
    ("write_iter", "ssize_t vfs_write(struct file *file", "ret = new_sync_write(file, buf, count, pos);"),
    ("position", "static inline loff_t *file_ppos", "return file->f_mode & FMODE_STREAM"),
    ("brace", "ssize_t vfs_write(struct file *file", "ssize_t ret;"),
];

/// Finds the lines, and has the unit compiled.
pub fn prepare(folder: &Path) {
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

    pub fn the_guest_refuses_lines_without_code() {
        have_source();
        contains(&xk(3, &["probe", "count", &line("brace"), "--for", "1s"]), &["no code of this line", "(vfs_write)"]);
        contains(&xk(3, &["probe", "count", &format!("{UNIT}:1"), "--for", "1s"]), &["no code of this line"]);
        assert_eq!(attachments(), 0);
    }
}
