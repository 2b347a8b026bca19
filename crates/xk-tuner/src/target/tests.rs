use std::io::Write;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;

use super::*;

mod http;

struct Nobody {
    stop: bool,
}

impl Watch for Nobody {
    fn running(&mut self, _: Option<i32>) {}

    fn interrupted(&self) -> bool {
        self.stop
    }
}

fn target(work: Work, lead: Lead) -> Target {
    Target {
        work,
        lead,
        name: "target".into(),
        goal: Goal::Maximise,
        others: vec![],
        probes: vec![],
        timeout: Duration::from_secs(60),
    }
}

fn seconds_of(command: &str) -> Target {
    target(Work::Command(command.into()), Lead::Seconds)
}

fn run(command: &str) -> Result<Reading, TargetError> {
    let target = target(Work::Command(command.into()), Lead::Number);
    target.run(Duration::from_secs(30), &[], &mut Nobody { stop: false })
}

fn says(command: &str) -> String {
    run(command).unwrap_err().to_string()
}

#[test]
fn the_last_line_is_the_number() {
    let reading = run("echo warming up; echo p99 = 4.5; echo 1.5e3; echo").unwrap();
    assert_eq!((reading.value, reading.named["p99"]), (1500.0, 4.5));
}

#[test]
fn what_is_no_number_is_nonsense() {
    assert!(says("true").contains("printed nothing"));
    assert!(says("echo many").contains("`many`, which is not a number"));
    for text in ["-0.5", "-3", "nan", "inf"] {
        assert!(says(&format!("echo {text}")).contains("0 or more"), "{text}");
    }
    assert!(says("head -c 3000000 /dev/zero | tr '\\0' x").contains("is not a number"));
}

#[test]
fn a_failure_is_told_with_what_it_said() {
    assert_eq!(says("echo 5; echo no disk >&2; exit 3"), "it failed (exit status: 3): no disk");
    assert!(says("kill -SEGV $$").contains("signal 11"));
}

#[test]
fn what_hangs_is_killed_with_its_children() {
    let folder = tempfile::tempdir().unwrap();
    let pid = folder.path().join("pid");
    let target = seconds_of(&format!("sleep 1000 & echo $! > {}; wait", pid.display()));
    // Long enough for a shell to start.
    let error = target.run(Duration::from_secs(5), &[], &mut Nobody { stop: false }).unwrap_err();
    assert!(matches!(error, TargetError::Timeout(limit) if limit == Duration::from_secs(5)));
    let child: u32 = std::fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    let gone = || match std::fs::read_to_string(format!("/proc/{child}/stat")) {
        Ok(stat) => stat.contains(") Z"),
        Err(_) => true,
    };
    for _ in 0..3000 {
        if gone() {
            return;
        }
        thread::sleep(Duration::from_millis(20));
    }
    panic!("the child of the target still runs");
}

#[test]
fn what_is_no_longer_wanted_ends() {
    let target = seconds_of("sleep 1000");
    assert!(matches!(target.run(target.timeout, &[], &mut Nobody { stop: true }), Err(TargetError::Interrupted)));
}

#[test]
fn output_that_stays_open_does_not_hold_it_up() {
    assert_eq!(run("sleep 1000 & echo 7").unwrap().value, 7.0);
}

#[test]
fn limits_hold_or_are_named() {
    let reading = Reading { value: 10.0, named: [("p99".to_owned(), 4.5)].into(), took: Duration::ZERO };
    let limit = |name: &str, at_most, at_least| Constraint { name: name.into(), at_most, at_least };
    assert_eq!(limit("p99", Some(5.0), None).violation(&reading), None);
    assert_eq!(limit("target", None, Some(10.0)).violation(&reading), None);
    let told = limit("p99", Some(4.0), None).violation(&reading).unwrap();
    assert_eq!(told.to_string(), "p99 = 4.5, at most 4 is allowed");
    let missing = limit("p50", Some(4.0), None).violation(&reading).unwrap().to_string();
    assert!(missing.contains("did not print"), "{missing}");
    let nan = Reading { named: [("p99".to_owned(), f64::NAN)].into(), ..reading };
    assert!(limit("p99", Some(4.0), None).violation(&nan).is_some());
}

fn asked(endpoint: Endpoint, metric: Option<&str>, quantity: Quantity) -> Target {
    let metric = metric.map(|metric| Selector::parse(metric).unwrap());
    let probe = Probe { name: "work".into(), endpoint, metric, quantity };
    let time = Work::Time(Duration::from_millis(100));
    Target { name: "work".into(), probes: vec![probe], ..target(time, Lead::Named("work".into())) }
}

fn window(target: &Target) -> Result<Reading, TargetError> {
    target.run(Duration::from_secs(30), &[], &mut Nobody { stop: false })
}

/// Speaks once to everybody who comes, and leaves the connection open.
fn speak(path: &Path, words: &'static str) -> Endpoint {
    let listener = UnixListener::bind(path).unwrap();
    thread::spawn(move || {
        let mut open = Vec::new();
        for mut stream in listener.incoming().map_while(Result::ok) {
            stream.write_all(words.as_bytes()).unwrap();
            open.push(stream);
        }
    });
    Endpoint::socket(path.to_str().unwrap()).unwrap()
}

#[test]
fn a_program_says_its_number_through_a_socket() {
    let folder = tempfile::tempdir().unwrap();
    let endpoint = speak(&folder.path().join("app"), "p99 = 4.5\n1200\n");
    let reading = window(&asked(endpoint, None, Quantity::Number)).unwrap();
    assert_eq!((reading.value, reading.named["p99"]), (1200.0, 4.5));
    let endpoint = speak(&folder.path().join("nonsense"), "many\n");
    let told = window(&asked(endpoint, None, Quantity::Number)).unwrap_err().to_string();
    assert!(told.contains("nonsense: its last line is `many`"), "{told}");
    let endpoint = speak(&folder.path().join("silent"), "p99 = 4.5\n");
    let silent = asked(endpoint, None, Quantity::Number);
    let told = silent.run(Duration::from_millis(300), &[], &mut Nobody { stop: false }).unwrap_err().to_string();
    assert!(told.contains("silent has not answered in full"), "{told}");
    let told =
        window(&asked(Endpoint::Unix(folder.path().join("gone")), None, Quantity::Number)).unwrap_err().to_string();
    assert!(told.contains("does not answer: No such file"), "{told}");
}

#[test]
fn every_target_must_be_there_and_comparable() {
    let mut target =
        target(Work::Command("echo p99 = 4; echo errors = -1; echo lost = 0; echo 7".into()), Lead::Number);
    let others = |names: &[&str]| {
        names.iter().map(|name| Objective { name: (*name).into(), goal: Goal::Minimise }).collect::<Vec<_>>()
    };
    target.others = others(&["p99"]);
    let reading = window(&target).unwrap();
    assert_eq!((reading.value, reading.named["p99"], reading.named["target"]), (7.0, 4.0, 7.0));
    target.others = others(&["p99", "p50"]);
    assert!(window(&target).unwrap_err().to_string().contains("did not print `p50 = NUMBER`"));
    target.others = others(&["errors"]);
    assert!(window(&target).unwrap_err().to_string().contains("it says errors = -1"));
    target.others = others(&["lost"]);
    assert_eq!(window(&target).unwrap().named["lost"], 0.0);
    assert_eq!(run("echo 0").unwrap().value, 0.0);
}
