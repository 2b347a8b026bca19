//! What `xk apply` does, what it refuses, and what `xk top` shows.

use crate::*;

pub fn what_is_declared_is_in_force_and_stays() {
    declare("10-block.toml", &set(&[(BLK, 128)]));
    declare("20-memory.toml", &set(&[(SHRINK, 256), (PIE, 8192)]));
    let seen = events(|| {
        contains(
            &apply(0),
            &[
                "+  BLK_MAX_REQUEST_COUNT = 128 (was 32, its default)",
                "/tmp/xk.d/10-block.toml:3",
                "+  QUEUE_THRESHOLD = 8192 (was 16384, its default)",
                "/tmp/xk.d/20-memory.toml:4",
                "3 changed, 0 in force as declared",
                "all threads switched in",
            ],
        );
    });
    // One transaction: all have started before one is in force.
    let names = names(&seen);
    let first_flip = names.iter().position(|&name| name == "xk_flip").unwrap();
    let last_start = names.iter().rposition(|&name| name == "xk_transition_start").unwrap();
    assert!(last_start < first_flip, "{names:?}");
    assert_eq!(names.iter().filter(|&&name| name == "xk_transition_start").count(), 3, "{names:?}");
    assert_eq!((of(BLK), of(SHRINK), of(PIE), depth()), (Some(128), Some(256), Some(8192), 128));
    let before = state();
    let again = events(|| contains(&apply(0), &["nothing to change, 3 in force as declared"]));
    assert_eq!(again, []);
    assert_eq!((state(), depth()), (before, 128));
    let document = json(&["apply", FOLDER, "--json"]);
    assert_eq!((&document["applied"], document["changes"].as_array().unwrap().len()), (&true.into(), 3));
    assert_eq!(document["changes"][0]["action"], "keep");
    // What somebody changed by hand is as declared again.
    xk(0, &["set", "BLK_MAX_REQUEST_COUNT=64"]);
    contains(&apply(0), &["~  BLK_MAX_REQUEST_COUNT = 128 (was 64)", "1 changed, 2 in force"]);
    xk(0, &["unset", SHRINK]);
    contains(&apply(0), &["+  SHRINK_BATCH = 256", "1 changed, 2 in force"]);
    assert_eq!((of(BLK), of(SHRINK), depth()), (Some(128), Some(256), 128));
}

pub fn a_dry_run_changes_nothing() {
    declare("a.toml", &set(&[(BLK, 128)]));
    let dry = |code: i32| xk(code, &["apply", FOLDER, "--dry-run"]);
    let seen = events(|| contains(&dry(7), &["+  BLK_MAX_REQUEST_COUNT = 128", "1 would change"]));
    assert_eq!((seen, values(), depth()), (vec![], vec![], 32));
    apply(0);
    contains(&dry(0), &["nothing to change, 1 in force"]);
    declare("a.toml", &set(&[(BLK, 100), (SHRINK, 256)]));
    let seen = events(|| contains(&dry(7), &["~  BLK_MAX_REQUEST_COUNT = 100 (was 128)", "+  SHRINK_BATCH"]));
    assert_eq!((seen, values(), depth()), (vec![], vec![(BLK.to_owned(), 128)], 128));
    let document: Value = serde_json::from_str(&xk(7, &["apply", FOLDER, "--dry-run", "--json"])).unwrap();
    assert_eq!(document["applied"], false);
    assert_eq!(document["changes"][0]["from"], "128");
}

pub fn what_is_declared_no_more_has_its_default() {
    declare("a.toml", &set(&[(BLK, 128), (SHRINK, 256)]));
    declare("b.toml", &set(&[(PIE, 8192)]));
    apply(0);
    declare("a.toml", &set(&[(SHRINK, 256)]));
    let seen = events(|| {
        contains(&apply(0), &["-  BLK_MAX_REQUEST_COUNT = 32, its default (was 128)", "from /tmp/xk.d/a.toml:3"]);
    });
    assert!(names(&seen).contains(&"xk_unload"), "{seen:?}");
    assert_eq!((of(BLK), of(SHRINK), of(PIE), depth()), (None, Some(256), Some(8192), 32));
    fs::remove_file("/tmp/xk.d/a.toml").unwrap();
    contains(&apply(0), &["-  SHRINK_BATCH = 128, its default"]);
    assert_eq!(values(), [(PIE.to_owned(), 8192)]);
    // One file speaks for itself only.
    let c = declare("c.toml", &set(&[(BLK, 64)]));
    contains(&xk(0, &["apply", c.to_str().unwrap()]), &["+  BLK_MAX_REQUEST_COUNT = 64", "1 changed, 0 in force"]);
    assert_eq!((of(PIE), depth()), (Some(8192), 64));
    fs::remove_file(&c).unwrap();
    contains(&xk(0, &["apply", "--remove", c.to_str().unwrap()]), &["-  BLK_MAX_REQUEST_COUNT = 32, its default"]);
    assert_eq!((values(), depth()), (vec![(PIE.to_owned(), 8192)], 32));
    contains(&xk(0, &["apply", "--remove"]), &["-  QUEUE_THRESHOLD"]);
    assert_eq!(values(), []);
    contains(&xk(0, &["apply", "--remove"]), &["nothing to change"]);
}

pub fn what_is_wrong_changes_nothing() {
    declare("a.toml", &set(&[(BLK, 64)]));
    apply(0);
    let wrong = |code: i32, text: &str, words: &[&str]| {
        declare("b.toml", text);
        changes_nothing(code, words, apply);
    };
    let shrink = set(&[(SHRINK, 256)]);
    wrong(1, &format!("{shrink}{}", set(&[("NO_SUCH", 1)])), &["b.toml:6: no scope table for NO_SUCH"]);
    wrong(3, &format!("{shrink}{}", set(&[(PIE, -1)])), &["b.toml:6: QUEUE_THRESHOLD: -1 is outside the proved"]);
    wrong(1, &format!("{shrink}[[tune]\n"), &["b.toml:4: "]);
    wrong(1, &format!("{shrink}value = 1.5\n"), &["b.toml:4: ", "whole number"]);
    wrong(1, &set(&[(SHRINK, 256), (BLK, 32)]), &["b.toml:4: BLK_MAX_REQUEST_COUNT is declared at ", "a.toml:3"]);
    wrong(1, "[[tune]]\nset = { SHRINK_BATCH = 256 }\nmood = \"now\"\n", &["b.toml:3: unknown field `mood`"]);
    wrong(1, "[[tune]]\npolicy = \"no.bpf.o\"\n", &["b.toml:1: ", "no.bpf.o", "No such file"]);
    let objects = std::env::var(OBJECTS).unwrap();
    let policy = format!("{shrink}[[tune]]\npolicy = \"{objects}/registers.bpf.o\"\n");
    fs::remove_file("/tmp/xk.d/a.toml").unwrap();
    // What goes because of a file that is gone does not go either.
    wrong(3, &policy, &["b.toml:4: ", "verifier", "ctx->ax = 1;"]);
    contains(&xk(1, &["apply", "/tmp/no-such-folder"]), &["/tmp/no-such-folder"]);
    assert_eq!(depth(), 64);
}

pub fn the_fourth_of_five_fails() {
    declare("a.toml", &set(&[(BLK, 64)]));
    apply(0);
    let five = [(BLK, 100), (SHRINK, 256), (PIE, 8192), (SOFTIRQ, 20), (SHARE, 4)];
    declare("a.toml", &set(&five));
    // The kernel itself refuses the fourth, when the others are loaded.
    let store = altered_tables(|table| {
        if table["constant"]["name"] == SOFTIRQ {
            alter_a_byte(table);
        }
    });
    changes_nothing(4, &["a.toml:6: MAX_SOFTIRQ_RESTART", "expected ", "nothing was changed"], |code| {
        let output = Command::new(env!("CARGO_BIN_EXE_xk"))
            .args(["apply", FOLDER])
            .env("XK_STORE", store.path())
            .output()
            .unwrap();
        let text = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(code), "{text}");
        text
    });
    assert_eq!(depth(), 64);
    contains(&apply(0), &["~  BLK_MAX_REQUEST_COUNT = 100 (was 64)", "5 changed"]);
    assert_eq!((values().len(), depth()), (5, 100));
}

pub fn what_would_not_come_into_force_changes_nothing() {
    declare("a.toml", &set(&[(BLK, 64)]));
    apply(0);
    // A probe that is disarmed is found before anything is loaded.
    fs::write("/sys/kernel/debug/kprobes/enabled", "0").unwrap();
    declare("a.toml", &set(&[(SHRINK, 256), (BLK, 100)]));
    let before = state().len();
    contains(&apply(1), &["a.toml:4: BLK_MAX_REQUEST_COUNT: the probe at ", "disarmed"]);
    assert_eq!((state().len(), of(BLK)), (before, Some(64)));
    fs::write("/sys/kernel/debug/kprobes/enabled", "1").unwrap();
    assert_eq!(depth(), 64);
    contains(&apply(0), &["2 changed"]);
    assert_eq!((of(SHRINK), depth()), (Some(256), 100));
}

pub fn what_others_tuned_is_left_alone() {
    xk(0, &["set", "BLK_MAX_REQUEST_COUNT=64"]);
    declare("a.toml", &set(&[(SHRINK, 256)]));
    contains(&apply(0), &["1 changed"]);
    fs::remove_file("/tmp/xk.d/a.toml").unwrap();
    contains(&apply(0), &["-  SHRINK_BATCH", "1 changed"]);
    assert_eq!(values(), [(BLK.to_owned(), 64)]);
    declare("a.toml", &set(&[(SHRINK, 256), (BLK, 128)]));
    changes_nothing(
        1,
        &["a.toml:4: BLK_MAX_REQUEST_COUNT is tuned to 64 already", "`xk unset BLK_MAX_REQUEST_COUNT`"],
        apply,
    );
    xk(0, &["unset", BLK]);
    apply(0);
    assert_eq!((of(SHRINK), depth()), (Some(256), 128));
    let other = Path::new("/tmp/other.toml");
    fs::write(other, set(&[(BLK, 16)])).unwrap();
    changes_nothing(1, &["other.toml:3: BLK_MAX_REQUEST_COUNT is declared at /tmp/xk.d/a.toml:4"], |code| {
        xk(code, &["apply", other.to_str().unwrap()])
    });
    // A number of a tune begins anew with the module: it is not ours for that.
    xk(0, &["unset", "--all"]);
    assert!(run("rmmod", &["xk"]));
    insmod(XK_KO);
    xk(0, &["set", "SHRINK_BATCH=300"]);
    contains(&xk(0, &["apply", "--remove"]), &["nothing to change"]);
    assert_eq!(values(), [(SHRINK.to_owned(), 300)]);
}

fn policy(name: &str) -> String {
    format!("[[tune]]\npolicy = \"{}/{name}.bpf.o\"\nname = \"plugs\"\n", std::env::var(OBJECTS).unwrap())
}

fn program() -> u64 {
    let tunes = tunes();
    let tune = tunes.iter().find(|tune| tune["name"] == BLK).unwrap();
    tune["policy"]["program"].as_u64().unwrap()
}

pub fn policies_are_declared() {
    declare("a.toml", &format!("{}{}", policy("same64"), set(&[(SHRINK, 256)])));
    contains(&apply(0), &["+  BLK_MAX_REQUEST_COUNT = decided by plugs (was 32, its default)", "2 changed"]);
    assert_eq!((depth(), of(SHRINK)), (64, Some(256)));
    let first = program();
    contains(&apply(0), &["nothing to change, 2 in force"]);
    assert_eq!((program(), depth()), (first, 64));
    contains(&xk(0, &["status"]), &["decided by same of plugs"]);
    declare("a.toml", &format!("{}{}", policy("same16"), set(&[(SHRINK, 256)])));
    contains(&apply(0), &["~  BLK_MAX_REQUEST_COUNT = decided by plugs (was decided by plugs)", "1 changed, 1 in"]);
    assert_eq!(depth(), 16);
    assert_ne!(program(), first);
    // From a policy to a value, and back, on the way.
    declare("a.toml", &set(&[(BLK, 100), (SHRINK, 256)]));
    contains(&apply(0), &["~  BLK_MAX_REQUEST_COUNT = 100 (was decided by plugs)"]);
    assert_eq!(depth(), 100);
    assert!(!Path::new("/run/xk/policies/plugs.json").exists());
    declare("a.toml", &policy("same64"));
    contains(&apply(0), &["= decided by plugs (was 100)", "-  SHRINK_BATCH"]);
    assert_eq!((depth(), of(SHRINK)), (64, None));
    // A policy that somebody else loaded is nobody's to change.
    xk(0, &["apply", "--remove"]);
    assert_eq!((values(), depth()), (vec![], 32));
    let object = format!("{}/same16.bpf.o", std::env::var(OBJECTS).unwrap());
    xk(0, &["load", "--name", "plugs", &object]);
    changes_nothing(1, &["a.toml:1: BLK_MAX_REQUEST_COUNT is decided by the policies plugs"], apply);
    xk(0, &["unload", "plugs"]);
}

pub fn a_value_is_declared_for_one_process() {
    let [reader, other] = [Reader::new(512), Reader::new(512)];
    let text = format!("[[tune]]\nset = {{ {BLK} = 64 }}\npid = {}\nuid = [0, 1]\n", reader.thread());
    declare("a.toml", &text);
    contains(&apply(0), &["+  BLK_MAX_REQUEST_COUNT = decided by BLK_MAX_REQUEST_COUNT", "a.toml:2"]);
    let first = program();
    contains(&apply(0), &["nothing to change"]);
    assert_eq!(program(), first);
    assert_eq!((reader.read().0, other.read().0), (64, 32));
    xk(0, &["apply", "--remove", FOLDER]);
    assert_eq!((values(), depth()), (vec![], 32));
}

pub fn a_lease_is_renewed() {
    let lease = || tunes()[0]["lease_s"].as_f64();
    let leased = |time: &str| format!("[[tune]]\nset = {{ SHRINK_BATCH = 300 }}\nlease = \"{time}\"\n");
    declare("a.toml", &leased("1h"));
    apply(0);
    assert!(lease().unwrap() > 3000.0);
    declare("a.toml", &leased("2h"));
    let seen = events(|| contains(&apply(0), &["nothing to change, 1 in force"]));
    assert_eq!(seen, []);
    assert!(lease().unwrap() > 4000.0);
    declare("a.toml", &set(&[(SHRINK, 300)]));
    apply(0);
    assert_eq!((lease(), of(SHRINK)), (None, Some(300)));
}

/// What systemd would run.
pub fn the_service_applies_and_removes() {
    let unit = fs::read_to_string(repository().join("packaging/xk.service")).unwrap();
    let command = |key: &str| {
        let line = unit.lines().find_map(|line| line.strip_prefix(key)).unwrap();
        let words: Vec<String> = line.split(' ').map(str::to_owned).collect();
        assert_eq!(words[0], "/usr/bin/xk");
        words[1..].to_vec()
    };
    let run = |key: &str| xk(0, &command(key).iter().map(String::as_str).collect::<Vec<_>>());
    // A machine that declares nothing.
    contains(&run("ExecStart="), &["nothing to change"]);
    fs::create_dir("/etc/xk.d").unwrap();
    fs::write("/etc/xk.d/block.toml", set(&[(BLK, 128)])).unwrap();
    contains(&run("ExecStart="), &["+  BLK_MAX_REQUEST_COUNT = 128", "/etc/xk.d/block.toml:3"]);
    assert_eq!(depth(), 128);
    fs::write("/etc/xk.d/block.toml", set(&[(BLK, 64)])).unwrap();
    run("ExecReload=");
    assert_eq!(depth(), 64);
    run("ExecStop=");
    assert_eq!((values(), depth()), (vec![], 32));
    fs::remove_dir_all("/etc/xk.d").unwrap();
}

/// One look of `xk top --batch`: how long since the one before, and its lines.
fn look(lines: &mut impl BufRead) -> (f64, Vec<String>) {
    let mut look = Vec::new();
    for line in lines.lines().map(Result::unwrap) {
        if line.is_empty() {
            break;
        }
        look.push(line);
    }
    let seconds = look[0].split(", ").nth(1).unwrap().split(' ').next().unwrap();
    (seconds.parse().unwrap(), look)
}

/// What stands behind the site in its line: by, hits, per second, missed, instructions, values.
fn cells(look: &[String], site: &str) -> Vec<String> {
    let line = look.iter().find(|line| line.contains(site)).unwrap();
    line.split_whitespace().skip_while(|word| !word.starts_with(site)).skip(1).map(str::to_owned).collect()
}

/// What the table of costs in `docs/results.md` says in this column.
fn measured(row: &str, column: usize) -> String {
    let page = fs::read_to_string(repository().join("docs/results.md")).unwrap();
    let row = page.lines().find(|line| line.starts_with(&format!("| {row} |"))).unwrap();
    row.split('|').nth(column).unwrap().trim().split(' ').next().unwrap().to_owned()
}

pub fn what_is_watched_is_what_happened() {
    xk(0, &["set", "SHRINK_BATCH=256"]);
    xk(0, &["load", &format!("{}/same64.bpf.o", std::env::var(OBJECTS).unwrap())]);
    let mut top = Command::new(env!("CARGO_BIN_EXE_xk"))
        .args(["top", "--batch", "-n", "2", "-d", "25s"])
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut lines = BufReader::new(top.stdout.take().unwrap());
    let (_, first) = look(&mut lines);
    assert_eq!(depth(), 64);
    assert!(top.try_wait().unwrap().is_none(), "the workload took longer than the time between two looks");
    let (seconds, second) = look(&mut lines);
    assert!(top.wait().unwrap().success());

    let site = "blk_add_rq_to_plug+";
    let [before, after] = [&first, &second].map(|look| cells(look, site));
    let number = |cells: &[String], at: usize| cells[at].parse::<u64>().unwrap();
    let new = number(&after, 1) - number(&before, 1);
    // The workload adds 512 requests to a plug, the first of them to an empty one.
    assert!((511..600).contains(&new), "{first:?} {second:?}");
    let rate = number(&after, 2) as f64;
    assert!((rate * seconds - new as f64).abs() <= seconds, "{rate}/s for {seconds} s: {new}");
    assert_eq!(number(&before, 2), 0);

    // The module says the same.
    let status = tunes();
    let tune = status.iter().find(|tune| tune["name"] == BLK).unwrap();
    let index = tune["sites"].as_array().unwrap().iter().position(|site| site["symbol"] == "blk_add_rq_to_plug");
    let (told, did) = (&tune["sites"][index.unwrap()], &tune["policy"]["sites"][index.unwrap()]);
    assert_eq!(told["hits"], number(&after, 1));
    assert_eq!(told["missed"], number(&after, 3));
    assert_eq!(after[5..].join(" "), format!("64..127: {}", did["set"]));
    assert_eq!(did["set"], did["histogram"][7]);
    contains(&second.join("\n"), &["2 tunes", "INSNS: an estimate, from docs/results.md"]);
    let shrink = cells(&second, "do_shrink_slab+");
    let probe = if shrink[0] == "jump" { 2 } else { 3 };
    assert_eq!(shrink[4], format!("~{}", measured("`xk`, update depends on V alone", probe)), "{second:?}");
    contains(second.iter().find(|line| line.starts_with(SHRINK)).unwrap(), &[" 256 "]);
    contains(&xk(0, &["status"]), &[&format!("64..127: {}", did["set"])]);
    xk(0, &["unload", "same64"]);
}

pub fn a_terminal_is_left_as_it_was() {
    xk(0, &["set", "SHRINK_BATCH=256"]);
    contains(&xk(2, &["top"]), &["not a terminal", "--batch"]);
    contains(&xk(2, &["top", "--batch", "-d", "0"]), &["-d 0"]);
    let on_terminal = |options: &str, keys: &[u8]| {
        let mut child = Command::new("script")
            .args(["-qec", &format!("{} top {options}; stty -a", env!("CARGO_BIN_EXE_xk")), "/dev/null"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut stdin = child.stdin.take().unwrap();
        std::thread::sleep(Duration::from_secs(2));
        stdin.write_all(keys).unwrap();
        let output = child.wait_with_output().unwrap();
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    let (enter, leave) = ("\x1b[?1049h", "\x1b[?1049l");
    contains(&on_terminal("-n 1 -d 1s", b""), &[enter, "SHRINK_BATCH", " 256 ", leave, " icanon", " echo "]);
    contains(&on_terminal("-d 1h", b"q"), &[enter, leave, " icanon", " echo "]);
}

/// A process whose stack no unwinder can read to its end. It is in no span.
struct Hidden(Child);

impl Hidden {
    fn new() -> Self {
        let child = Command::new("sh").args(["-c", "echo hide 0 >/proc/xk_atomic"]).spawn().unwrap();
        let stack = format!("/proc/{}/stack", child.id());
        wait_for("it hides", || fs::read_to_string(&stack).unwrap().contains("xk_atomic_rest"));
        Self(child)
    }

    fn thread(&self) -> String {
        self.0.id().to_string()
    }

    fn release(mut self) {
        fs::write("/proc/xk_atomic", "release").unwrap();
        self.0.wait().unwrap();
    }
}

/// It blocks everything until it is named, and then nothing.
pub fn a_thread_whose_stack_cannot_be_read_is_named() {
    insmod(ATOMIC_KO);
    let hidden = Hidden::new();
    let thread = hidden.thread();
    let without = format!("--ignore-unreadable={thread}");
    let blocked = format!("{thread} (sh): its stack cannot be read");
    let warning = format!("warning: thread {thread} is not waited for, as its stack cannot be read");
    declare("a.toml", &format!("[[tune]]\nbackend = \"kprobe\"\nset = {{ {BLK} = 64 }}\n"));
    let set = ["set", "BLK_MAX_REQUEST_COUNT=64", "--backend", "kprobe"];
    let brief = ["--timeout", "500ms"];
    for (command, end) in [(&["apply", FOLDER][..], &["apply", "--remove"][..]), (&set, &["unset", BLK])] {
        contains(&xk(6, &[command, &brief].concat()), &[&blocked]);
        assert_eq!(depth(), 32);
        assert_eq!(values(), []);
        contains(&xk(0, &[command, &[&without]].concat()), &[&warning]);
        assert_eq!((of(BLK), depth()), (Some(64), 64));
        assert_eq!(tunes()[0]["ignored"], serde_json::json!([hidden.0.id()]));
        // It is remembered.
        contains(&xk(0, end), &["BLK_MAX_REQUEST_COUNT = 32"]);
        assert_eq!((of(BLK), depth()), (None, 32));
    }

    // Nobody else is left out, and a refusal changes nothing.
    xk(0, &[&set[..], &[&without]].concat());
    declare("a.toml", &format!("[[tune]]\nbackend = \"kprobe\"\nset = {{ {SHRINK} = 256 }}\n"));
    changes_nothing(1, &["the stack of thread 1 (", "can be read"], |code| {
        xk(code, &["apply", FOLDER, "--ignore-unreadable=1"])
    });
    xk(0, &["unset", BLK]);
    hidden.release();
    assert!(run("rmmod", &["xk_atomic"]));
}

/// Without a process, a tune waits for it, too.
pub fn what_waits_for_an_unreadable_stack_may_end() {
    insmod(ATOMIC_KO);
    declare("a.toml", &format!("[[tune]]\nbackend = \"kprobe\"\nset = {{ {BLK} = 100 }}\n"));
    let set = ["set", "BLK_MAX_REQUEST_COUNT=64", "--hold", "--backend", "kprobe"];
    let mut holder = Command::new(env!("CARGO_BIN_EXE_xk")).args(set).stdout(Stdio::null()).spawn().unwrap();
    wait_for("it holds", || of(BLK) == Some(64));
    let hidden = Hidden::new();
    holder.kill().unwrap();
    holder.wait().unwrap();
    wait_for("it goes", || tunes().iter().any(|tune| tune["state"] == "unloading"));
    contains(&apply(1), &["BLK_MAX_REQUEST_COUNT is tuned to 64 already"]);
    xk(0, &["apply", FOLDER, "--ignore-unreadable", &hidden.thread()]);
    assert_eq!((of(BLK), depth()), (Some(100), 100));
    // A table that is gone cannot say whether that is sound.
    let empty = tempfile::tempdir().unwrap();
    for option in [format!("--ignore-unreadable={}", hidden.thread()), "--mode=now".into()] {
        let mut remove = Command::new(env!("CARGO_BIN_EXE_xk"));
        let output = remove.args(["apply", "--remove", &option]).env("XK_STORE", empty.path()).output().unwrap();
        let text = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{text}");
        contains(&text, &["is gone: leave out", "nothing was changed"]);
    }
    assert_eq!(of(BLK), Some(100));
    xk(0, &["apply", "--remove"]);
    hidden.release();
    assert!(run("rmmod", &["xk_atomic"]));
}
