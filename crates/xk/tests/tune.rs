//! `xk tune` as a whole. Out here the knobs are ordinary files, and the target is made of them: what happens to a
//! search, and to what it has changed, when it is killed, stopped, disturbed or described wrongly. What it does to a
//! kernel is seen in a guest (`tune_vm.rs`).

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

mod tuning;

use std::fs;
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use serde_json::Value;
use tuning::{contains, wait_until, FileSearch, SCORE};

#[test]
fn what_is_better_is_found_confirmed_kept_and_remembered() {
    let bench = FileSearch::new(SCORE, "");
    let plan = bench.run(0, bench.tune().arg("--plan"));
    contains(&plan, &["ahead", "16 32 64 128 256 512 1024", "guardian", "nothing has been changed", "14 points"]);
    assert!(!bench.path("state").exists(), "a plan touches nothing");

    let report = bench.path("report.html");
    let text = bench.run(0, bench.tune().args(["--report", report.to_str().unwrap()]));
    contains(
        &text,
        &["is better than the default", "once in 4096 times", "ahead = 1024 (was 128)", "mode = fast (was slow)"],
    );
    assert_eq!(bench.knobs(), ["1024", "fast"]);
    contains(&fs::read_to_string(report).unwrap(), &["<svg", "Effect of each parameter", "ahead", "is better than"]);
    let kept = bench.status();
    assert_eq!((kept["kept"].as_array().unwrap().len(), kept["changed"].as_array().unwrap().len()), (2, 0));

    // Again: it is remembered, and tried first.
    contains(&bench.run(0, &mut bench.command(&["revert"])), &["ahead = 128 (restored)"]);
    let text = bench.run(0, &mut bench.tune());
    contains(&text, &["remembered: ahead = 1024, mode = fast", "better than the default again"]);
    assert_eq!(bench.knobs(), ["1024", "fast"]);
    contains(&bench.run(0, &mut bench.command(&["revert"])), &["ahead = 128 (restored)"]);
    assert_eq!(bench.knobs(), ["128", "slow"]);
    let events: Vec<String> =
        bench.entries().iter().map(|entry| entry["what"]["event"].as_str().unwrap().to_owned()).collect();
    assert_eq!(events.iter().filter(|event| *event == "concluded").count(), 2);
    assert_eq!(events.last().unwrap(), "reverted");
    // The history has what was kept and reverted, and none of the trials.
    let kept = ["ahead keep 128 1024", "mode keep slow fast"];
    let reverted = ["ahead revert 1024 128", "mode revert fast slow"];
    assert_eq!(bench.history(), [kept, reverted, kept, reverted].concat());
}

#[test]
fn a_search_without_effect_changes_nothing() {
    let bench = FileSearch::new("echo 100", "[search]\ntrials = 30\n");
    contains(&bench.run(0, &mut bench.tune()), &["Nothing was shown to be better"]);
    assert_eq!(bench.knobs(), ["128", "slow"]);
}

#[test]
fn a_search_that_found_nothing_is_not_made_again_unless_it_is_wanted() {
    let bench = FileSearch::new("echo 100", "");
    let first = bench.run(0, &mut bench.tune());
    contains(&first, &["Nothing was shown to be better"]);
    assert!(!first.contains("remembered"), "{first}");
    contains(&bench.run(0, &mut bench.tune()), &["remembered: nothing was better", "(0 trials)"]);
    let again = bench.run(0, bench.tune().arg("--afresh"));
    contains(&again, &["Nothing was shown to be better"]);
    assert!(!again.contains("(0 trials)"), "{again}");
    // That nothing was better than another default says nothing about this one.
    fs::write(bench.path("mode"), "fast\n").unwrap();
    let other = bench.run(0, &mut bench.tune());
    assert!(!other.contains("remembered") && !other.contains("(0 trials)"), "{other}");
}

#[test]
fn a_search_that_was_cut_short_or_failed_proves_nothing_to_remember() {
    let short = FileSearch::new("echo 100", "[search]\ntrials = 20\n");
    for _ in 0..2 {
        let text = short.run(0, &mut short.tune());
        assert!(!text.contains("remembered") && !text.contains("(0 trials)"), "{text}");
    }
    let failing = FileSearch::new("[ $(cat FOLDER/ahead) = 128 ] || exit 1; echo 100", "");
    for _ in 0..2 {
        let text = failing.run(0, &mut failing.tune());
        assert!(!text.contains("remembered") && !text.contains("(0 trials)"), "{text}");
    }
}

/// It is impossible on this machine, however often it is tried.
#[test]
fn a_value_that_a_knob_refuses_does_not_keep_a_search_from_ending() {
    let bench = FileSearch::new("echo 100", "");
    let folder = bench.folder.path().display().to_string();
    let picky = "[[parameter]]\nname = \"picky\"\nchoices = [1, 2, 3]\ncommand = { get = \"cat FOLDER/picky\", set = \
                 \"[ $VALUE != 3 ] && echo $VALUE > FOLDER/picky\" }\nsettle = \"0s\"\n[target]"
        .replace("FOLDER", &folder);
    fs::write(bench.path("picky"), "1\n").unwrap();
    let search = fs::read_to_string(bench.path("search.toml")).unwrap().replace("[target]", &picky);
    fs::write(bench.path("search.toml"), search).unwrap();
    contains(&bench.run(0, &mut bench.tune()), &["failed: picky", "does not take 3", "Nothing was shown to be better"]);
    contains(&bench.run(0, &mut bench.tune()), &["remembered: nothing was better", "(0 trials)"]);
}

/// What is proposed next does not depend on how often the tuner died.
#[test]
fn sigkill_at_any_point_loses_nothing_and_leaves_nothing() {
    let undisturbed = {
        let bench = FileSearch::new(SCORE, "");
        bench.run(0, &mut bench.tune());
        trials(&bench)
    };
    let bench = FileSearch::new(SCORE, "");
    for round in 0..12u64 {
        let mut child = bench.start(1);
        // Anywhere within a trial: 60 ms and more, in which both knobs change.
        std::thread::sleep(Duration::from_millis(7 * round % 61));
        child.kill().unwrap();
        child.wait().unwrap();
        wait_until("the guardian has put everything back", || bench.knobs() == ["128", "slow"]);
        let status = bench.status();
        assert_eq!(status["search"]["id"], 1, "one search goes on: {status:#}");
    }
    let text = bench.run(0, &mut bench.tune());
    contains(&text, &["resuming search 1", "is better than the default"]);
    assert_eq!(trials(&bench), undisturbed);
    assert_eq!(bench.knobs(), ["1024", "fast"]);
}

/// The trials of search 1, without what was measured.
fn trials(bench: &FileSearch) -> Vec<xk_tuner::history::Trial> {
    let store = xk_tuner::store::Store::open(&bench.path("state")).unwrap();
    store.history(1).unwrap().into_iter().map(|record| record.trial).collect()
}

/// Waits until the search has changed a knob, in a window that does not end by itself.
fn in_the_middle(bench: &FileSearch) -> Child {
    let hangs =
        "[ \"$(cat FOLDER/mode) $(cat FOLDER/ahead)\" = 'slow 128' ] || { touch FOLDER/changed; sleep 1000; }; echo 5";
    bench.describe(hangs, "[search]\nabort_after = 1000.0\n");
    let child = bench.start(1);
    wait_until("a knob is changed", || bench.path("changed").exists());
    assert_ne!(bench.knobs(), ["128", "slow"]);
    child
}

/// The guardian of a tuner.
fn guardian(tuner: &Child) -> String {
    let children = Command::new("pgrep").args(["-P", &tuner.id().to_string(), "-f", "tune guard"]).output().unwrap();
    String::from_utf8(children.stdout).unwrap().trim().to_owned()
}

#[test]
fn the_next_start_cleans_up_when_the_guardian_was_killed_too() {
    let bench = FileSearch::new("", "");
    let mut child = in_the_middle(&bench);
    let guard = guardian(&child);
    assert!(Command::new("kill").args(["-KILL", &guard]).status().unwrap().success());
    child.kill().unwrap();
    child.wait().unwrap();
    let left = bench.knobs();
    assert_ne!(left, ["128", "slow"], "nobody was left to put it back");
    // Whichever it is: sham switches have changed both, and a knob is recorded until the search ends.
    assert_eq!(bench.status()["changed"].as_array().unwrap().len(), 2);
    bench.describe("echo 100", "[search]\ntrials = 30\n");
    contains(&bench.run(0, &mut bench.tune()), &["left by a tuner that was killed", "(restored)"]);
    assert_eq!(bench.knobs(), ["128", "slow"]);
}

#[test]
fn without_its_guardian_a_tuner_changes_nothing_more() {
    let bench = FileSearch::new("", "");
    // Ends soon enough for the next change, and not before the guardian is gone.
    let waits =
        "[ \"$(cat FOLDER/mode) $(cat FOLDER/ahead)\" = 'slow 128' ] || { touch FOLDER/changed; sleep 1; }; echo 5";
    bench.describe(waits, "[search]\nabort_after = 1000.0\n");
    let mut child = bench.start(1);
    wait_until("a knob is changed", || bench.path("changed").exists());
    assert!(Command::new("kill").args(["-KILL", &guardian(&child)]).status().unwrap().success());
    assert_eq!(child.wait().unwrap().code(), Some(1));
    assert_eq!(bench.knobs(), ["128", "slow"], "the tuner itself put it back");
}

#[test]
fn what_something_else_sets_is_yielded() {
    let bench = FileSearch::new("", "");
    let disturbed = format!(
        "[ -e FOLDER/set ] || {{ [ $(cat FOLDER/ahead) = 1024 ] && {{ touch FOLDER/set; echo 77 > \
                             FOLDER/ahead; }}; }}; {SCORE}"
    );
    bench.describe(&disturbed, "");
    let text = bench.run(0, &mut bench.tune());
    contains(&text, &["ahead is 77, but the tuner had left 1024", "something else has set it", "yields"]);
    // The other parameter was tuned nevertheless.
    assert_eq!(bench.knobs(), ["77", "fast"]);
    let yielded: Vec<Value> = bench.entries().into_iter().filter(|entry| entry["what"]["event"] == "yielded").collect();
    assert_eq!(
        (yielded.len(), &yielded[0]["what"]["knob"], &yielded[0]["what"]["found"]),
        (1, &"ahead".into(), &77.into())
    );
}

#[test]
fn two_tuners_do_not_work_at_once_and_stop_ends_one() {
    let bench = FileSearch::new("", "");
    let mut first = in_the_middle(&bench);
    // The second waits for a guardian that might be cleaning up, and then says which tuner is running.
    contains(&bench.run(1, &mut bench.tune()), &["another tuner is running", &first.id().to_string(), "xk tune stop"]);
    assert_eq!(bench.status()["at_work"], true);
    contains(&bench.run(0, &mut bench.command(&["stop"])), &["no tuner is running"]);
    assert!(first.wait().unwrap().success());
    assert_eq!(bench.knobs(), ["128", "slow"]);
    contains(&bench.run(1, &mut bench.tune()), &["tuning is stopped", "xk tune resume"]);
    bench.run(0, &mut bench.command(&["resume"]));
    bench.describe("echo 100", "[search]\ntrials = 30\n");
    bench.run(0, &mut bench.tune());
}

#[test]
fn a_signal_ends_it_in_good_order() {
    for signal in ["-INT", "-TERM"] {
        let bench = FileSearch::new("", "");
        let mut child = in_the_middle(&bench);
        assert!(Command::new("kill").args([signal, &child.id().to_string()]).status().unwrap().success());
        assert!(child.wait().unwrap().success());
        assert_eq!(bench.knobs(), ["128", "slow"]);
        assert_eq!(bench.entries().last().unwrap()["what"]["event"], "interrupted");
    }
}

#[test]
fn a_violated_constraint_reverts_the_setting_and_is_remembered() {
    let limited = "a=$(cat FOLDER/ahead); echo $(cat FOLDER/mode) $a >> FOLDER/log; echo latency = $((a / 100)); echo $((100 + a))";
    let more = "[[constraint]]\nname = \"latency\"\nat_most = 5.0\n";
    let bench = FileSearch::new(limited, more);
    let text = bench.run(0, &mut bench.tune());
    contains(&text, &["violates a constraint, reverted: latency = 10, at most 5 is allowed", "ahead = 512 (was 128)"]);
    // In the very next window, the default was in force again.
    let log = fs::read_to_string(bench.path("log")).unwrap();
    let log: Vec<&str> = log.lines().collect();
    let crossed: Vec<usize> = (0..log.len()).filter(|&at| log[at].ends_with("1024")).collect();
    assert!(!crossed.is_empty());
    for at in &crossed {
        assert_eq!(log[at + 1], "slow 128");
    }
    // A search that remembers nothing else does not try such a setting again either.
    bench.describe(limited, &format!("{more}[search]\nengine = \"exhaustive\"\n"));
    bench.run(0, bench.tune().arg("--afresh"));
    let log = fs::read_to_string(bench.path("log")).unwrap();
    for setting in ["slow 1024", "fast 1024"] {
        assert_eq!(log.lines().filter(|line| *line == setting).count(), 1, "{setting}");
    }
}

/// More read ahead makes more work, and each piece later; what is better at the first target is set, the rest is told.
#[test]
fn of_several_targets_the_first_is_set_and_a_front_is_kept() {
    let two = "a=$(cat FOLDER/ahead); echo latency = $((10 + a / 16)); echo $((100 + a))";
    let more = "[[constraint]]\nname = \"latency\"\nat_most = 50\n";
    let bench = FileSearch::new(two, more);
    let file = bench.path("search.toml");
    let text = fs::read_to_string(&file).unwrap();
    let second = "[[targets]]\nname = \"latency\"\ngoal = \"minimise\"\n";
    let text = text
        .replace("[target]", "[[targets]]\nname = \"work\"")
        .replace("[[constraint]]", &format!("{second}[[constraint]]"));
    fs::write(&file, text).unwrap();
    let report = bench.path("report.html");
    let text = bench.run(0, bench.tune().args(["--report", report.to_str().unwrap()]));
    // 1024 would be better, and crosses the limit.
    contains(&text, &["violates a constraint, reverted: latency = 74, at most 50 is allowed", "ahead = 512 (was 128)"]);
    contains(
        &text,
        &[
            "  ahead = 512: work x 2.684, latency x 2.333",
            "  the default: work x 1.000",
            "  ahead = 16: work x 0.509, latency x 0.611",
        ],
    );
    assert!(!text.contains("  ahead = 1024: work"), "{text}");
    assert_eq!(bench.knobs()[0], "512");
    contains(&fs::read_to_string(report).unwrap(), &["The front", "<td>ahead = 512", "x 2.333", "<td>ahead = 16"]);
    contains(
        &bench.run(0, bench.command(&["history"]).env("TZ", "IST-5:30")),
        &[" +05:30  ", "on the front: ahead = 512: latency x 2.333, work x 2.684"],
    );
    let concluded = bench.entries().into_iter().find(|entry| entry["what"]["event"] == "concluded").unwrap();
    assert_eq!(concluded["what"]["front"][0]["setting"], "ahead = 512");
}

#[test]
fn bad_targets_are_told() {
    for (target, word) in [
        ("exit 7", "exit status: 7"),
        ("echo many", "`many`, which is not a number"),
        ("true", "printed nothing"),
        ("echo -5", "0 or more"),
    ] {
        let bench = FileSearch::new(target, "");
        contains(&bench.run(1, &mut bench.tune()), &["does not work with the default", word]);
        assert_eq!(bench.knobs(), ["128", "slow"]);
    }
    let bench = FileSearch::new("echo latency = 9; echo 5", "[[constraint]]\nname = \"latency\"\nat_most = 5.0\n");
    contains(&bench.run(1, &mut bench.tune()), &["the default itself violates", "latency = 9"]);
}

#[test]
fn a_sensor_that_cannot_be_read_is_named() {
    let sensor =
        |name: &str, counter: &str| format!("[[sensor]]\nname = \"{name}\"\nof = [\"{counter}\"]\nsimilar = 0.2\n");
    let more = sensor("typo", "/proc/vmstat:pgfualt") + &sensor("right", "/proc/vmstat:pgfault");
    let bench = FileSearch::new("echo 5", &more);
    let text = bench.run(0, &mut bench.tune());
    contains(&text, &["typo cannot be read here, right "]);
    assert!(!text.contains("right cannot"), "{text}");
}

#[test]
fn settings_under_which_the_target_fails_or_hangs_are_not_chosen() {
    let picky = "a=$(cat FOLDER/ahead); [ $a = 1024 ] && exit 3; [ $a = 16 ] && sleep 1000; echo $((100 + a))";
    // Long enough for every window that does not hang, on a busy host too.
    let bench = FileSearch::new(picky, "[search]\nabort_after = 1000.0\n");
    let text = bench.run(0, &mut bench.tune());
    contains(&text, &["failed: the target: it failed (exit status: 3)", "aborted after", "ahead = 512 (was 128)"]);
    assert_eq!(bench.knobs()[0], "512");
}

#[test]
fn bad_knobs_and_descriptions_are_told() {
    let bench = FileSearch::new(SCORE, "");
    let wrong = |from: &str, to: &str| {
        let file = bench.path("search.toml");
        let good = fs::read_to_string(&file).unwrap();
        assert!(good.contains(from));
        fs::write(&file, good.replace(from, to)).unwrap();
        let output = bench.tune().output().unwrap();
        fs::write(&file, good).unwrap();
        assert_ne!(output.status.code(), Some(0));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    contains(&wrong("/mode\"", "/nothing\""), &["mode", "nothing is not there"]);
    contains(&wrong("schema = 1", "schema = 1\nsubsystem = \"nine\""), &["search.toml:2", "no subsystem `nine`"]);
    contains(
        &wrong("min = 16", "min = 16\nonly_if = { mode = \"medium\" }"),
        &["search.toml:3", "which is not a value of mode"],
    );
    let both = |text: String| {
        text.replace("min = 16", "min = 16\nonly_if = { mode = \"slow\" }")
            .replace("choices =", "only_if = { ahead = 128 }\nchoices =")
    };
    let file = bench.path("search.toml");
    let good = fs::read_to_string(&file).unwrap();
    fs::write(&file, both(good)).unwrap();
    contains(&bench.run(2, &mut bench.tune()), &["guards depend on each other", "needs"]);
    assert_eq!(bench.knobs(), ["128", "slow"]);
}

#[test]
fn a_damaged_memory_is_told_and_nothing_is_changed() {
    let bench = FileSearch::new(SCORE, "");
    fs::create_dir(bench.path("state")).unwrap();
    fs::write(bench.path("state/tuner.sqlite"), vec![7; 8192]).unwrap();
    contains(&bench.run(1, &mut bench.tune()), &["tuner.sqlite", "move it away"]);
    assert_eq!(bench.knobs(), ["128", "slow"]);
    assert!(Path::new(&bench.path("state/tuner.sqlite")).exists());
}

/// Three subsystems with a knob each. Two of them hold the target up, one more than the other, until they are tuned.
#[test]
fn the_subsystem_that_limits_the_target_is_tuned_first() {
    let bench = FileSearch::new("", "");
    let folder = bench.folder.path().display().to_string();
    for (name, knob, values) in
        [("cpu", "mode", "\"slow\", \"fast\""), ("disk", "ahead", "128, 1024"), ("net", "window", "1, 2")]
    {
        let text = format!(
            "schema = 1\nsummary = \"{name}\"\nbottleneck = {{ of = [\"{folder}/waits:{name}\"], per = \
             [\"{folder}/waits:work\"], at_least = 1 }}\n[[parameter]]\nname = \"{knob}\"\nfile = \
             \"{folder}/{knob}\"\nchoices = [{values}]\nsettle = \"0s\"\n"
        );
        fs::write(bench.path(&format!("{name}.toml")), text).unwrap();
    }
    fs::write(bench.path("window"), "1\n").unwrap();
    fs::write(bench.path("waits"), "work 0\ncpu 0\ndisk 0\nnet 0\n").unwrap();
    let target = "cd FOLDER; { read _ w; read _ c; read _ d; } < waits; s=100
[ $(cat ahead) = 1024 ] && s=$((s * 2)) || d=$((d + 5))
[ $(cat mode) = fast ] && s=$((s * 3)) || c=$((c + 2))
printf 'work %s\\ncpu %s\\ndisk %s\\nnet 0\\n' $((w + 1)) $c $d > waits
echo $s";
    let search = format!(
        "schema = 1\nsubsystems = [\"cpu\", \"disk\", \"net\"]\n[target]\ncommand = \"\"\"{}\"\"\"\nmeasure = \
         \"number\"\ngoal = \"maximise\"\ntimeout = \"20s\"\n[search]\nabort_after = 1000.0\n",
        target.replace('\\', "\\\\")
    );
    fs::write(bench.path("search.toml"), search.replace("FOLDER", &folder)).unwrap();
    let tune = |arguments: &[&str]| {
        let mut command = bench.tune();
        command.args(arguments).env("XK_SUBSYSTEMS", &folder);
        command
    };
    contains(&bench.run(0, &mut tune(&["--plan"])), &["limit the target", "search/cpu", "search/disk", "search/net"]);
    let text = bench.run(0, &mut tune(&[]));
    let order: Vec<&str> = text.lines().filter(|line| line.contains("limits the target")).collect();
    assert_eq!(order.len(), 3, "{text}");
    contains(order[0], &["search/disk limits the target (search/cpu 2.00; search/disk 5.00; search/net 0.00"]);
    contains(order[1], &["search/cpu limits the target (search/cpu 2.00; search/disk 0.00, tuned"]);
    contains(order[2], &["no subsystem that can be tuned limits the target any more"]);
    assert_eq!(bench.knobs(), ["1024", "fast"]);
    assert_eq!(bench.status()["kept"].as_array().unwrap().len(), 2);
    assert!(!text.contains("window ="), "{text}");
    let chosen: Vec<Value> = bench
        .entries()
        .into_iter()
        .filter(|entry| entry["what"]["event"] == "bottleneck")
        .map(|entry| entry["what"]["chosen"].clone())
        .collect();
    assert_eq!(chosen, ["search/disk".into(), "search/cpu".into(), Value::Null]);
    // Again: each is compared with the default, with the other in force.
    let text = bench.run(0, &mut tune(&[]));
    assert_eq!(text.matches("better than the default again").count(), 2, "{text}");
    contains(&text, &["no subsystem that can be tuned limits the target any more (search/net 0.00"]);
    assert_eq!(bench.knobs(), ["1024", "fast"]);
    bench.run(0, &mut bench.command(&["revert"]));
    assert_eq!(bench.run(0, &mut tune(&[])).matches("remembered: ").count(), 2);
    bench.run(0, &mut bench.command(&["revert"]));
    assert_eq!(bench.knobs(), ["128", "slow"]);
}

/// A choice that the kernel lists itself, and a parameter of a choice that it does not list here.
fn choice_that_is_not_offered(folder: &str) -> String {
    format!(
        "[[parameter]]\nname = \"kind\"\nfile = \"{folder}/kind\"\nchoices = \"offered\"\nsettle = \"0s\"\n\
         [[parameter]]\nname = \"never\"\nfile = \"{folder}/window\"\nchoices = [1, 2]\nonly_if = {{ kind = \"other\" }}\n"
    )
}

/// A description is for many kernels: what this machine does not have must not cost the rest of a subsystem.
#[test]
fn a_missing_knob_of_a_subsystem_costs_only_itself() {
    let bench = FileSearch::new(SCORE, "");
    let folder = bench.folder.path().display().to_string();
    let subsystem = |own: &str| {
        let text = format!(
            "schema = 1\nsummary = \"a part\"\n{own}\n\
             [[parameter]]\nname = \"gone\"\nfile = \"{folder}/gone\"\nchoices = [\"a\", \"b\"]\nsettle = \"0s\"\n\
             [[parameter]]\nname = \"after\"\nfile = \"{folder}/window\"\nchoices = [1, 2]\nonly_if = {{ gone = \"a\" }}\n\
             [[parameter]]\nname = \"last\"\nfile = \"{folder}/window\"\nchoices = [1, 2]\nonly_if = {{ after = 2 }}\n\
             [[parameter]]\nname = \"fixed\"\nconst = \"NO_SUCH_CONSTANT\"\nchoices = [1, 2]\n"
        );
        fs::write(bench.path("part.toml"), text).unwrap();
    };
    let own = tuning::KNOBS.replace("FOLDER", &folder);
    subsystem(&format!("{own}{}", choice_that_is_not_offered(&folder)));
    fs::write(bench.path("window"), "1\n").unwrap();
    fs::write(bench.path("kind"), "[usual]\n").unwrap();
    let search = fs::read_to_string(bench.path("search.toml")).unwrap().replace(&own, "subsystem = \"part\"\n");
    fs::write(bench.path("search.toml"), &search).unwrap();
    let tune = |arguments: &[&str]| {
        let mut command = bench.tune();
        command.args(arguments).env("XK_SUBSYSTEMS", &folder);
        command
    };
    let left_out = [
        "left out: gone: ",
        "/gone is not there",
        "left out: after: it is active only with some values of gone, which is left out",
        "left out: last: it is active only with some values of after, which is left out",
        "left out: fixed: NO_SUCH_CONSTANT is not there: ",
        "left out: never: it is active only with kind = other, which this machine does not offer; it offers: usual",
    ];
    let plan = bench.run(0, &mut tune(&["--plan"]));
    contains(&plan, &left_out);
    contains(&plan, &["14 points"]);
    let text = bench.run(0, &mut tune(&[]));
    contains(&text, &left_out);
    contains(&text, &["ahead = 1024 (was 128)", "mode = fast (was slow)"]);
    assert_eq!(bench.knobs(), ["1024", "fast"]);
    assert_eq!(fs::read_to_string(bench.path("window")).unwrap(), "1\n");
    // The same search again: what is left out changes no memory.
    bench.run(0, &mut bench.command(&["revert"]));
    contains(&bench.run(0, &mut tune(&[])), &["remembered: ahead = 1024, mode = fast"]);
    bench.run(0, &mut bench.command(&["revert"]));

    // What the search itself names must be here.
    let named = search.replace("subsystem = \"part\"", "subsystem = \"part\"\nparameters = [\"ahead\", \"gone\"]");
    fs::write(bench.path("search.toml"), named).unwrap();
    contains(&bench.run(1, &mut tune(&[])), &["gone: ", "/gone is not there"]);

    // Nothing is left.
    fs::write(bench.path("search.toml"), &search).unwrap();
    subsystem("");
    for arguments in [&["--plan"][..], &[]] {
        let text = bench.run(1, &mut tune(arguments));
        contains(&text, &["search: no parameter is left to search: gone: ", "; fixed: ", "; after: "]);
    }
    assert_eq!(bench.knobs(), ["128", "slow"]);
}
