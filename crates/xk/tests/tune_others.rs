//! What `xk tune` has to do with others: endpoints that are asked, metrics for who watches, machines that get what
//! one has learned, the service manager.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

mod tuning;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use tuning::{contains, FileSearch, SCORE};

/// Ends with the test, however that ends.
struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// A service that answers while it works: its counter grows by what `ahead` says, so the rate is that much. With 16 it
/// does not answer at all, with 1024 nonsense.
#[test]
fn a_prometheus_endpoint_is_a_target_and_one_that_fails_costs_the_trial() {
    // Seconds: long enough for every window that does not hang, on a busy host too.
    let bench = FileSearch::new("", "[search]\nabort_after = 50.0\n");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let ahead = bench.path("ahead");
    std::thread::spawn(move || {
        let (mut hanging, mut total, mut last) = (Vec::new(), 0.0, std::time::Instant::now());
        for mut stream in listener.incoming().map_while(std::io::Result::ok) {
            let mut request = [0; 1024];
            let _ = stream.read(&mut request);
            let value: f64 = fs::read_to_string(&ahead).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(128.0);
            total += value * last.elapsed().as_secs_f64();
            last = std::time::Instant::now();
            let answer = match value as u32 {
                1024 => "<html>".to_owned(),
                _ => format!("# HELP work_total x\nwork_total{{of=\"it\"}} {total}\nother 1\n"),
            };
            if value as u32 == 16 {
                hanging.push(stream);
                continue;
            }
            let _ = stream.write_all(format!("HTTP/1.0 200 OK\r\n\r\n{answer}").as_bytes());
        }
    });
    let file = bench.path("search.toml");
    let text = fs::read_to_string(&file).unwrap();
    let source = format!(
        "window = \"100ms\"\nprometheus = \"http://{address}/metrics\"\nmetric = 'work_total{{of=\"it\"}}'\nmeasure = \"rate\""
    );
    fs::write(&file, text.replace("command = \'\'\'\'\'\'\nmeasure = \"number\"", &source)).unwrap();
    contains(&bench.run(0, bench.tune().arg("--plan")), &["growth per second of work_total{of=\"it\"}"]);
    let text = bench.run(0, &mut bench.tune());
    contains(
        &text,
        &["/metrics: line 1 is not a sample", "/metrics has not answered in full within", "ahead = 512 (was 128)"],
    );
    assert_eq!(bench.knobs()[0], "512");
}

/// A limit of a service is watched while a window lasts. Without that, these windows would last until the test is killed.
#[test]
fn a_limit_that_can_be_queried_ends_a_window() {
    let bench = FileSearch::new("", "");
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let ahead = bench.path("ahead");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(std::io::Result::ok) {
            let _ = stream.read(&mut [0; 1024]);
            let ahead: f64 = fs::read_to_string(&ahead).ok().and_then(|text| text.trim().parse().ok()).unwrap_or(128.0);
            let _ = stream.write_all(format!("HTTP/1.0 200 OK\r\n\r\nlatency {}\n", ahead / 100.0).as_bytes());
        }
    });
    let limit = format!(
        "[[constraint]]\nname = \"latency\"\nprometheus = \"http://{address}/metrics\"\nmetric = \"latency\"\nat_most = \
         5.0\n[search]\nabort_after = 1e6\n"
    );
    bench.describe("a=$(cat FOLDER/ahead); [ $a -lt 512 ] || sleep 10000; echo $((100 + a))", &limit);
    let file = bench.path("search.toml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("timeout = \"20s\"", "timeout = \"20000s\"")).unwrap();
    let text = bench.run(0, &mut bench.tune());
    contains(
        &text,
        &["violates a constraint, reverted: latency = 5.12, at most 5 is allowed", "ahead = 256 (was 128)"],
    );
    assert_eq!(bench.knobs()[0], "256");
}

/// A service may do nothing in a window, with the default or with every setting.
#[test]
fn a_target_of_0_is_a_number() {
    let bench = FileSearch::new("[ $(cat FOLDER/mode) = fast ] && echo 5 || echo 0", "");
    contains(&bench.run(0, &mut bench.tune()), &["the default: 0\n", "mode = fast (was slow)"]);
    let bench = FileSearch::new("echo 0", "");
    let text = bench.run(0, &mut bench.tune());
    contains(&text, &["the default: 0\n", "Nothing was shown to be better"]);
    assert!(!text.contains("failed"), "{text}");
}

/// What a monitoring system sees: after each trial while a search runs, and at its end.
#[test]
fn metrics_follow_a_search() {
    let limited =
        "a=$(cat FOLDER/ahead); cp FOLDER/xk.prom FOLDER/seen.$a; echo latency = $((a / 100)); echo $((100 + a))";
    let bench = FileSearch::new(limited, "[[constraint]]\nname = \"latency\"\nat_most = 5.0\n");
    let file = bench.path("xk.prom");
    let value = |text: &str, series: &str| xk_tuner::target::Selector::parse(series).unwrap().find(text).unwrap();
    bench.run(0, bench.tune().args(["--metrics", file.to_str().unwrap()]));
    // As it was in the windows in which 512 was in force: at work, one knob changed, trials behind it.
    let seen = fs::read_to_string(bench.path("seen.512")).unwrap();
    assert_eq!(value(&seen, "xk_tuner_at_work"), 1.0);
    assert!(value(&seen, "xk_tuner_trials_total{end=\"measured\"}") > 5.0, "{seen}");
    let end = fs::read_to_string(&file).unwrap();
    let trials = bench.status()["trials"].as_f64().unwrap();
    for (series, right) in [
        ("xk_tuner_at_work", 0.0),
        ("xk_tuner_trials_total{end=\"violated\"}", 1.0),
        ("xk_tuner_trials_total{end=\"measured\"}", trials - 1.0),
        ("xk_tuner_search_trials{search=\"search\"}", trials),
        ("xk_tuner_search_open{search=\"search\"}", 0.0),
        ("xk_tuner_conclusions_total", 1.0),
        ("xk_tuner_knobs_kept", 1.0),
        ("xk_tuner_knobs_changed", 0.0),
        ("xk_tuner_memories", 1.0),
        ("xk_tuner_journal_intact", 1.0),
    ] {
        assert_eq!(value(&end, series), right, "{series}");
    }
    let ratio = value(&end, "xk_tuner_search_improvement_ratio{search=\"search\"}");
    assert!((ratio - 612.0 / 228.0).abs() < 1e-9, "{ratio}");
    assert_eq!(bench.run(0, &mut bench.command(&["metrics"])), end);
    // A folder that is not there is said, and holds nothing up.
    let text = bench.run(0, bench.tune().args(["--metrics", "/none/xk.prom"]));
    contains(&text, &["metrics: /none/xk.prom: No such file", "better than the default again"]);
}

/// What one machine has found serves another like it, if it is confirmed there, and it knows the key; and one that is not like it not.
#[test]
fn memories_go_to_another_machine() {
    let bench = FileSearch::new(SCORE, "");
    bench.run(0, &mut bench.tune());
    bench.run(0, &mut bench.command(&["revert"]));
    let (file, search) = (bench.path("memories.json"), bench.path("search.toml"));
    let (file, search) = (file.to_str().unwrap(), search.to_str().unwrap());
    contains(&bench.run(0, &mut bench.command(&["export", file])), &["1 memory, signed with"]);
    let key = bench.run(0, &mut bench.command(&["key"]));
    let other = |arguments: &[&str]| {
        let mut command = bench.command(arguments);
        command.env("XK_TUNER", bench.path("other")).env("XK_TUNE_KEYS", bench.path("keys"));
        command
    };
    contains(&bench.run(1, &mut other(&["import", file, search])), &["not trusted here", key.trim()]);
    fs::create_dir(bench.path("keys")).unwrap();
    fs::write(bench.path("keys/one.pub"), &key).unwrap();
    // The same search with other values is another one.
    let text = fs::read_to_string(search).unwrap();
    fs::write(search, text.replace("max = 1024", "max = 512")).unwrap();
    let told = bench.run(1, &mut other(&["import", file, search]));
    contains(
        &told,
        &["0 memories imported", "refused: search `search`: is of another description", "nothing in it applies to"],
    );
    fs::write(search, text).unwrap();
    contains(&bench.run(0, &mut other(&["import", file, search])), &["1 memory imported, 0 settings"]);
    let text = bench.run(0, &mut other(&[search]));
    contains(&text, &["remembered: ahead = 1024, mode = fast", "better than the default again", "(13 trials)"]);
    assert_eq!(bench.knobs(), ["1024", "fast"]);
    bench.run(0, &mut other(&["revert"]));
}

/// What systemd would run, and what it would hear: that it is ready, what it does, and that it is alive, as long as
/// it is.
#[test]
fn a_service_manager_hears_of_the_daemon() {
    let text =
        fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join("../../packaging/xk-tune@.service")).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("ExecStart=")).unwrap();
    assert_eq!(line, "/usr/bin/xk tune --daemon /etc/xk/tune/%i.toml");
    let bench = FileSearch::new(SCORE, "");
    let socket = UnixDatagram::bind(bench.path("manager")).unwrap();
    socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
    let hear = || {
        let mut bytes = [0; 4096];
        let length = socket.recv(&mut bytes).unwrap();
        // Each line assigns a variable.
        String::from_utf8_lossy(&bytes[..length]).trim_end().to_owned()
    };
    let child = bench
        .command(&["--daemon", bench.path("search.toml").to_str().unwrap()])
        .env("NOTIFY_SOCKET", bench.path("manager"))
        .env("WATCHDOG_USEC", "100000")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    let mut daemon = Daemon(child);
    assert_eq!(hear(), "READY=1");
    let mut heard = Vec::new();
    while !heard.iter().any(|line: &String| line.contains("is better than the default")) {
        heard.push(hear());
    }
    let alive = |heard: &[String]| heard.iter().filter(|line| *line == "WATCHDOG=1").count();
    assert!(heard.iter().any(|line| line.starts_with("STATUS=trial 1")) && alive(&heard) > 3, "{heard:?}");
    // Between two searches it is alive, too.
    let waiting: Vec<String> = (0..5).map(|_| hear()).collect();
    assert!(alive(&waiting) >= 4, "{waiting:?}");
    // One that does not get on says nothing.
    let pid = daemon.0.id().to_string();
    let signal = |name: &str| assert!(Command::new("kill").args([name, &pid]).status().unwrap().success());
    signal("-STOP");
    socket.set_read_timeout(Some(Duration::from_millis(500))).unwrap();
    let mut bytes = [0; 4096];
    while socket.recv(&mut bytes).is_ok() {}
    assert!(socket.recv(&mut bytes).is_err());
    signal("-CONT");
    signal("-TERM");
    assert!(daemon.0.wait().unwrap().success());
    assert_eq!(bench.knobs(), ["1024", "fast"], "what is proved better stays");
}
