//! What policies do, what is refused, and that nothing is left of it.

use crate::*;

pub fn an_application_gives_hints() {
    let text = xk(0, &["load", &example("hints")]);
    contains(&text, &["BLK_MAX_REQUEST_COUNT decided by hints", "all threads switched in", "xk unload hints"]);
    let map = MapHandle::from_pinned_path("/sys/fs/bpf/xk/hints/hint_map").unwrap();
    assert_eq!(depth(), 32, "nobody has given a hint");
    assert_eq!(did("set"), 0);
    let [small, large, other] = [Reader::new(512), Reader::new(512), Reader::new(512)];
    for (reader, hint) in [(&small, 12u32), (&large, 100)] {
        map.update(&reader.thread().to_ne_bytes(), &hint.to_ne_bytes(), MapFlags::ANY).unwrap();
    }
    assert_eq!([small.read().0, large.read().0, other.read().0], [12, 100, 32]);
    contains(&xk(0, &["status"]), &["decided by hints of hints", "8..15:", "64..127:"]);
    contains(&xk(0, &["unload", "hints"]), &["BLK_MAX_REQUEST_COUNT = 32 (its default)"]);
    assert_eq!(depth(), 32);
    assert!(!Path::new("/sys/fs/bpf/xk/hints").exists());
    assert!(tunes().is_empty());
}

pub fn what_cannot_be_merged_is_noticed() {
    contains(&xk(0, &["load", &example("merge_failures")]), &["companions: merged"]);
    let (deepest, _) = Reader::new(11).read();
    assert_eq!((deepest, did("set")), (11, 0), "not often enough to be noticed");
    let (deepest, depths) = Reader::new(512).read();
    assert!((10..=17).contains(&deepest), "{deepest}: {depths}");
    assert!(did("set") > 100, "{}", did("set"));
    let (deepest, _) = Reader::new(11).read();
    assert_eq!(deepest, 11, "another thread has its own history");
    xk(0, &["unload", BLK]);
    assert_eq!(depth(), 32);
}

pub fn a_value_grows() {
    xk(0, &["load", &example("growing")]);
    let (deepest, depths) = Reader::new(512).read();
    assert_eq!(deepest, 128, "{depths}");
    let histogram = &tunes()[0]["policy"]["sites"][1]["histogram"];
    for power in 5..=8 {
        assert!(histogram[power].as_u64().unwrap() > 0, "2^{}: {histogram}", power - 1);
    }
    assert_eq!(histogram[9], 0, "beyond its limit: {histogram}");
    xk(0, &["unload", "--all"]);
    assert_eq!(depth(), 32);
}

pub fn a_policy_is_compiled_and_reloaded() {
    let file = "/tmp/same.bpf.c";
    fs::write(file, with_header(&setting("same", BLK, "64"))).unwrap();
    contains(&xk(0, &["load", file, "--backend", "auto"]), &["decided by same (/tmp/same.bpf.c:2)", "compile "]);
    assert_eq!(depth(), 64);
    assert!(places().iter().all(|probe| probe == "detour"), "{:?}", tunes());
    let reload = |code: i32, name: &str| xk(code, &["reload", "--name", "same", &example(name)]);
    contains(&reload(0, "same16"), &["decided by same"]);
    assert_eq!(depth(), 16);
    contains(
        &reload(1, "same_shrink"),
        &["same_shrink.bpf.c:2: SHRINK_BATCH is not decided by the loaded policies same"],
    );
    contains(&reload(1, "both"), &["SHRINK_BATCH is not decided by the loaded policies same"]);
    contains(&reload(1, "refused"), &["SHRINK_BATCH is not decided by the loaded policies"]);
    assert_eq!(depth(), 16, "the one from before is in force");
    contains(&xk(1, &["load", &example("hints")]), &["belongs to the policies same"]);
    contains(
        &xk(1, &["load", "--name", "same", &example("same64")]),
        &["policies called same are loaded", "xk reload"],
    );
    xk(0, &["unload", "same"]);
    contains(&reload(1, "same64"), &["no policy called same"]);
    contains(&xk(1, &["unload", "same"]), &["no policy called same"]);
    assert_eq!(depth(), 32);
}

pub fn a_constant_belongs_to_one_transaction() {
    xk(0, &["set", "BLK_MAX_REQUEST_COUNT=64"]);
    contains(&xk(1, &["load", &example("hints")]), &[BLK, "is tuned to 64", "xk unset", "nothing was loaded"]);
    assert_eq!(depth(), 64);
    xk(0, &["unset", BLK]);
    xk(0, &["load", &example("hints")]);
    contains(&xk(1, &["load", &example("growing")]), &["belongs to the policies hints", "xk unload hints"]);
    contains(&xk(1, &["set", "BLK_MAX_REQUEST_COUNT=64"]), &["decided by a policy", "xk unload"]);
    contains(&xk(1, &["unset", BLK]), &["decided by a policy", "nothing was changed"]);
    xk(0, &["unload", "hints"]);
}

pub fn several_of_which_one_fails_leave_nothing() {
    xk(0, &["load", &example("both")]);
    assert_eq!((tunes().len(), depth()), (2, 64));
    xk(0, &["unload", SHRINK]);
    assert!(tunes().is_empty(), "they go together");
    contains(&xk(1, &["load", &example("unknown")]), &["unknown.bpf.c:12: ", "NO_SUCH_CONSTANT"]);
    // The kernel itself refuses the last one, when the others are loaded.
    contains(&xk(1, &["load", &example("refused")]), &["nowhere cannot be attached", "no_such_function"]);
    contains(&xk(3, &["load", &example("jumps")]), &["jumps.bpf.c:13: jumps: ", "tail call"]);
    assert!(tunes().is_empty());
    assert_eq!(depth(), 32);
}

pub fn messages_show_the_authors_line() {
    contains(&xk(3, &["load", &example("registers")]), &["verifier refuses it at registers.bpf.c:4", "ctx->ax = 1;"]);
    contains(&xk(3, &["load", &example("endless")]), &["wrong: the kernel's verifier", "endless.bpf.c:"]);
    contains(
        &xk(1, &["load", &example("aliases")]),
        &["aliases.bpf.c:7: BLK_MAX_REQUEST_COUNT has a policy already", "`wrong` at "],
    );
    contains(&xk(1, &["load", "/tmp/no_such_file.bpf.c"]), &["/tmp/no_such_file.bpf.c", "No such file"]);
    contains(&xk(1, &["load", "/bin/true"]), &["not compiled for eBPF"]);
    contains(&xk(2, &["load", "/tmp/a b.bpf.c"]), &["cannot be a name"]);
    // What is not proved is refused when it is set, and counted.
    xk(0, &["load", &example("far")]);
    assert_eq!(depth(), 32);
    assert!(did("refused") > 0 && did("set") == 0);
    xk(0, &["unload", "far"]);
    assert!(tunes().is_empty());
}

pub fn a_held_policy_ends_with_its_process() {
    let file = example("same64");
    for signal in ["-TERM", "-KILL"] {
        let mut child = Command::new(env!("CARGO_BIN_EXE_xk"))
            .args(["load", "--hold", &file])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        wait_for("it holds a policy", || tunes().iter().any(|tune| tune["policy"] != Value::Null));
        wait_for("it is in force", || depth() == 64);
        contains(&xk(1, &["unload", "same64"]), &["held by process", "nothing was changed"]);
        assert!(run("kill", &[signal, &child.id().to_string()]));
        child.wait().unwrap();
        wait_until_nothing_is_tuned();
        assert_eq!(depth(), 32);
    }
}

pub fn a_lease_ends_a_policy() {
    let companions = || {
        let probes = fs::read_to_string("/sys/kernel/debug/kprobes/list").unwrap();
        probes.lines().filter(|line| line.contains("blk_attempt_plug_merge")).count()
    };
    // Longer, until asking takes less time.
    let in_time = [3, 12, 48, 192].into_iter().find(|seconds| {
        xk(0, &["load", &example("merge_failures"), "--for", &format!("{seconds}s")]);
        let there = (companions(), tunes().len());
        wait_until_nothing_is_tuned();
        wait_for("its companion goes", || companions() == 0);
        there.0 > 0 && there.1 == 1
    });
    assert!(in_time.is_some(), "it never was in force");
    assert_eq!(depth(), 32);
    xk(0, &["load", &example("merge_failures")]);
    xk(0, &["unload", "--all"]);
}

/// What a case's observation says.
fn observed(case: &str) -> i64 {
    let output = Command::new(repository().join("cases").join(case).join("observe")).output().unwrap();
    let [text, notes] = [output.stdout, output.stderr].map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    assert!(output.status.success(), "{text}{notes}");
    let last: Value = serde_json::from_str(text.lines().last().unwrap()).unwrap();
    last["value"].as_i64().unwrap()
}

pub fn a_shrinker_is_told_by_a_variable() {
    assert!(run("modprobe", &["ext4"]));
    assert_eq!(observed("shrink_batch"), 128);
    xk(0, &["load", &example("zswap")]);
    assert_eq!((observed("shrink_batch"), did("set")), (128, 0), "it is not zswap's");
    assert!(did("asked") > 0);
    xk(0, &["unload", "zswap"]);
    xk(0, &["load", &example("extents")]);
    assert_eq!(observed("shrink_batch"), 24);
    assert!(did("set") > 0 && did("asked") > did("set"), "the others keep theirs: {:?}", tunes());
    xk(0, &["unload", "extents"]);
    assert_eq!(observed("shrink_batch"), 128);
}

pub fn a_flow_is_told_by_its_round_trip() {
    assert!(run("modprobe", &["tcp_cubic"]));
    xk(0, &["load", &example("longer_paths")]);
    assert_eq!((observed("hystart_delay_shift"), did("set")), (20, 0), "112 ms are not long");
    assert!(did("asked") > 0);
    xk(0, &["unload", "longer_paths"]);
    xk(0, &["load", &example("long_paths")]);
    assert_eq!(observed("hystart_delay_shift"), 9, "112 ms are");
    assert!(did("set") > 0);
    xk(0, &["unload", "long_paths"]);
}

pub fn a_value_is_set_for_one_process() {
    let [reader, other] = [Reader::new(512), Reader::new(512)];
    let text = xk(0, &["set", "BLK_MAX_REQUEST_COUNT=64", "--pid", &reader.thread().to_string(), "--uid", "0"]);
    contains(&text, &["BLK_MAX_REQUEST_COUNT decided by", "xk unload BLK_MAX_REQUEST_COUNT"]);
    assert_eq!((reader.read().0, other.read().0), (64, 32));
    xk(0, &["unload", BLK]);
    assert_eq!(depth(), 32);
    let [reader, other] = [Reader::new(512), Reader::new(512)];
    let name = reader.thread().to_string();
    xk(0, &["set", "BLK_MAX_REQUEST_COUNT=64", "--pid", &name, "--backend", "detour"]);
    assert_eq!((reader.read().0, other.read().0), (64, 32));
    assert!(places().iter().all(|probe| probe == "detour"), "{:?}", tunes());
    xk(0, &["unload", BLK]);
    assert_eq!(depth(), 32);
    let patch = ["set", "BLK_MAX_REQUEST_COUNT=64", "--pid", &name, "--backend", "patch"];
    contains(&xk(2, &patch), &["instructions that hold the value cannot run a policy"]);
    contains(&xk(2, &["set", "SHRINK_BATCH=64", "--cgroup", "no/such/group"]), &["--cgroup no/such/group"]);
    assert!(tunes().is_empty());
}

/// Packets of one segment, and of two, that eight flows of two segments are for the kernel.
fn received(near: &str, far: &str) -> [u64; 2] {
    let script = repository().join("crates/xk/tests/support/gro.py");
    let text = output_of(Command::new("python3").arg(script).args([near, far]));
    let numbers: Vec<u64> = text.split_whitespace().map(|word| word.parse().unwrap()).collect();
    numbers.try_into().unwrap()
}

pub fn a_value_is_set_for_one_device() {
    have_source();
    let here = || received("xka0", "xka1");
    let there = || received("xkb0", "xkb1");
    assert_eq!([here(), there()], [[0, 8]; 2], "eight flows are held at once");
    let text = xk(0, &["set", "MAX_GRO_SKBS=4", "--dev", "xka1"]);
    contains(&text, &["MAX_GRO_SKBS decided by", "xk unload MAX_GRO_SKBS"]);
    assert_eq!([here(), there()], [[16, 0], [0, 8]]);
    assert!(did("set") > 0 && did("asked") > did("set"), "{:?}", tunes());
    xk(0, &["unload", GRO]);
    assert_eq!([here(), there()], [[0, 8]; 2]);
    let text = xk(3, &["set", "SHRINK_BATCH=64", "--dev", "xka1"]);
    contains(&text, &["cannot be set for one network interface: no variable identifies it at do_shrink_slab"]);
    contains(&xk(2, &["set", "MAX_GRO_SKBS=4", "--dev", "xkc1"]), &["--dev xkc1: no such"]);
    assert!(tunes().is_empty());
}

/// By the command, and by a file.
pub fn a_value_is_set_for_one_disk() {
    have_source();
    assert!(run("modprobe", &["null_blk", "nr_devices=2", "queue_mode=2", "hw_queue_depth=1024"]));
    let depths = || ["nullb0", "nullb1"].map(|disk| Reader::from_disk(disk).read().0);
    assert_eq!(depths(), [32; 2]);
    // Whatever a request has, it is enough to flush the plug that it is in.
    let text = xk(0, &["set", "BLK_PLUG_FLUSH_SIZE=512", "--dev", "nullb0"]);
    contains(&text, &["BLK_PLUG_FLUSH_SIZE decided by", "xk unload BLK_PLUG_FLUSH_SIZE"]);
    assert_eq!(depths(), [1, 32]);
    assert!(did("set") > 0 && did("asked") > did("set"), "{:?}", tunes());
    xk(0, &["unload", FLUSH]);
    let file = "/tmp/disks.toml";
    fs::write(file, "[[tune]]\nset = { BLK_PLUG_FLUSH_SIZE = 512 }\ndev = \"/dev/nullb1\"\n").unwrap();
    contains(&xk(0, &["apply", file]), &["+  BLK_PLUG_FLUSH_SIZE = decided by", "disks.toml:2"]);
    assert_eq!(depths(), [32, 1]);
    contains(&xk(0, &["apply", file]), &["nothing to change"]);
    xk(0, &["apply", "--remove", file]);
    assert_eq!(depths(), [32; 2]);
    // A plug is not for one disk.
    let text = xk(3, &["set", "BLK_MAX_REQUEST_COUNT=64", "--dev", "nullb0"]);
    contains(&text, &["cannot be set for one disk: no variable identifies it at blk_start_plug_nr_ios"]);
    fs::write(file, "[[tune]]\nset = { BLK_PLUG_FLUSH_SIZE = 512 }\ndev = \"nullb2\"\n").unwrap();
    contains(&xk(2, &["apply", file]), &["disks.toml:1: ", "--dev nullb2: no such"]);
    assert!(tunes().is_empty());
    assert!(run("modprobe", &["-r", "null_blk"]));
}

pub fn the_fourth_of_five_fails() {
    let probes = || fs::read_to_string("/sys/kernel/debug/kprobes/list").unwrap();
    let text = xk(3, &["load", &example("fourth_of_five")]);
    // xk.ko says so, when it has the three before.
    contains(&text, &["fourth_of_five.bpf.c:23: four: ", "tail call"]);
    assert!(tunes().is_empty(), "{:?}", tunes());
    assert_eq!((probes().as_str(), depth()), ("", 32));
    assert!(!Path::new("/sys/fs/bpf/xk/fourth_of_five").exists());
    // It is the fourth that they fail for.
    xk(0, &["load", &example("five")]);
    assert_eq!((tunes().len(), depth()), (5, 64));
    assert!(tunes().iter().all(|tune| tune["policy"] != Value::Null), "{:?}", tunes());
    xk(0, &["unload", "five"]);
    assert!(tunes().is_empty());
    assert_eq!((probes().as_str(), depth()), ("", 32));
}

/// The first update of one acts before the first instruction of the other's proof.
pub fn the_three_of_hystart_are_one_transaction() {
    assert!(run("modprobe", &["tcp_cubic"]));
    xk(0, &["load", "--name", "hystart3", &example("least4")]);
    assert_eq!((tunes().len(), observed("hystart_delay_shift")), (3, 9), "{:?}", tunes());
    xk(0, &["reload", "--name", "hystart3", &example("least12")]);
    assert_eq!(observed("hystart_delay_shift"), 20, "only the lower limit is another");
    for tune in tunes() {
        assert!(tune["policy"]["sites"][0]["set"].as_u64().unwrap() > 0, "{tune}");
    }
    xk(0, &["unload", "hystart3"]);
    assert!(tunes().is_empty());
}

fn wait_until_nothing_is_tuned() {
    wait_for("nothing is tuned", || tunes().is_empty());
}
