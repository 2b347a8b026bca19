//! Attachments that outlive their process, their module, or need no `xk`.

use xk_testing::guest::file;

use super::*;

/// The commands themselves write, too; but not between their last look and the end of the program.
pub fn attached_programs_outlive_the_command() {
    let _ = std::fs::remove_dir_all("/var/lib/xk/history");
    let document = json(&["probe", "attach", &object("counts"), "--json"]);
    let id = document["attached"][0]["id"].to_string();
    assert_eq!(document["attached"][0]["jumps"], 1, "{document:#}");
    write(600, 1);
    let probe = &json(&["probe", "list", "--json"])["probes"][0];
    assert_eq!((&probe["kept"], &probe["lease_s"]), (&true.into(), &Value::Null), "{probe:#}");
    contains(&xk(0, &["status"]), &["count_writes of counts.bpf.o", "xk probe detach"]);
    let total = json(&["probe", "maps", &id, "--json"])["bss"]["total"].as_u64().unwrap();
    assert!((600..800).contains(&total), "{total}");
    contains(&xk(1, &["probe", "detach", &id, "9999"]), &["no probes have the number 9999"]);
    assert_eq!(attachments(), 1, "a wrong number detaches nothing");
    let detached = &json(&["probe", "detach", &id, "--json"])["detached"][0];
    let (hits, maps) = (hits(detached), &detached["maps"]);
    assert!((total..800).contains(&hits), "{detached:#}");
    assert_eq!((&maps["bss"]["total"], &maps["counts"]["entries"][0]["sum"]), (&hits.into(), &hits.into()));
    assert_eq!(attachments(), 0);
    contains(&xk(0, &["probe", "detach", "--all"]), &["no probes outlived their process"]);
    let history = json(&["history", "--json"]);
    let told = history["entries"].as_array().unwrap().iter().filter(|entry| entry["kind"] == "probe");
    let told = told.map(|entry| [&entry["name"], &entry["action"]].map(|word| word.as_str().unwrap().to_owned()));
    let expected = ["attach", "revert"].map(|action| ["count_writes of counts.bpf.o".to_owned(), action.to_owned()]);
    assert_eq!(told.collect::<Vec<_>>(), expected, "{history:#}");
}

pub fn a_lease_detaches_a_program() {
    let counter = Prober::start(&["count", &body(), "--json"]);
    let text = xk(0, &["probe", "attach", &object("counts"), "--for", "3s"]);
    contains(&text, &["attached for 3 s, until `xk probe detach 2`"]);
    wait_for("the lease ends", || attachments() == 1);
    contains(&xk(1, &["probe", "maps", "1"]), &["probes 1 only count"]);
    contains(&xk(1, &["probe", "detach", "1"]), &["belong to process"]);
    let before = attachments();
    contains(&xk(0, &["probe", "detach", "--all"]), &["no probes outlived their process"]);
    assert_eq!(attachments(), before);
    write(5, 1);
    assert!(hits(&counter.end_json()["places"][0]) >= 5, "the other attachment goes on");
}

/// What the tracked functions did for each read is done again, and counted again, after the module has come back.
pub fn a_probed_module_may_go_and_come_back() {
    const READS: u64 = 64;
    let read = || {
        let words = ["if=/dev/nullb0", "of=/dev/null", "bs=4k", "count=64", "iflag=direct"];
        assert!(run("dd", &words));
    };
    let each = || json(&["probe", "list", "--places", "--json"])["probes"][0]["each"].as_array().unwrap().clone();
    let by = |word: &str| each().iter().filter(|place| place["by"] == word).count();
    assert!(run("modprobe", &["null_blk"]));
    let counter = Prober::start(&["count", "null_blk:*@body", "null_blk:*@entry", "--json"]);
    read();
    let first = each();
    let busy: Vec<usize> = (0..first.len()).filter(|at| hits(&first[*at]) >= READS).collect();
    assert!(busy.len() > 2, "{first:#?}");
    assert!(run("rmmod", &["null_blk"]));
    assert_eq!(by("waiting"), first.len());
    assert!(run("modprobe", &["null_blk"]));
    assert_eq!((by("waiting"), by("jump")), (0, 0), "every function is found again: {:#?}", each());
    let before = each();
    read();
    let after = each();
    for at in busy {
        assert!(hits(&after[at]) >= hits(&before[at]) + READS, "{:#} {:#}", before[at], after[at]);
    }
    let document = counter.end_json();
    assert_eq!(document["places"].as_array().unwrap().len(), first.len(), "{document:#}");
    assert!(run("rmmod", &["null_blk"]));
}

/// It writes nothing between its look at the counts and the end of its own output.
pub fn the_example_in_c_counts() {
    let window = std::env::var(WINDOW).unwrap();
    let mut command = Command::new(file(OBJECTS).join("count"));
    let child = command.args([&body(), "5", &window]).stdout(Stdio::piped()).spawn().unwrap();
    wait_for("it is attached", || attachments() == 1);
    write(300, 1);
    let output = child.wait_with_output().unwrap();
    assert_eq!(String::from_utf8_lossy(&output.stdout), "300 executions, by a jump\n");
    assert_eq!(attachments(), 0);
}
