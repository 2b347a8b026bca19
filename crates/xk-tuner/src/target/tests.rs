use std::io::{Read, Write};
use std::net::TcpListener;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::thread;

use super::*;

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
    target.run(Duration::from_secs(30), &mut Nobody { stop: false })
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
    let error = target.run(Duration::from_secs(1), &mut Nobody { stop: false }).unwrap_err();
    assert_eq!(error, TargetError::Timeout(Duration::from_secs(1)));
    let child: u32 = std::fs::read_to_string(pid).unwrap().trim().parse().unwrap();
    let gone = || match std::fs::read_to_string(format!("/proc/{child}/stat")) {
        Ok(stat) => stat.contains(") Z"),
        Err(_) => true,
    };
    for _ in 0..100 {
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
    assert_eq!(target.run(target.timeout, &mut Nobody { stop: true }), Err(TargetError::Interrupted));
}

#[test]
fn output_that_stays_open_does_not_hold_it_up() {
    assert_eq!(run("sleep 1000 & echo 7").map(|reading| reading.value), Ok(7.0));
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

/// A server that gives these answers, one after the other, and holds connections open afterwards.
fn serve(answers: &[&str]) -> Endpoint {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let endpoint = Endpoint::http(&format!("http://{}/metrics", listener.local_addr().unwrap())).unwrap();
    let answers: Vec<String> = answers.iter().map(|answer| (*answer).to_owned()).collect();
    thread::spawn(move || {
        let mut open = Vec::new();
        let mut answers = answers.into_iter();
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut asked = [0; 4096];
            let length = stream.read(&mut asked).unwrap_or(0);
            assert!(asked[..length].starts_with(b"GET /metrics HTTP/1.0\r\nHost: 127.0.0.1:"));
            match answers.next() {
                Some(answer) => stream.write_all(answer.as_bytes()).unwrap(),
                None => open.push(stream),
            }
        }
    });
    endpoint
}

fn asked(endpoint: Endpoint, metric: Option<&str>, quantity: Quantity) -> Target {
    let metric = metric.map(|metric| Selector::parse(metric).unwrap());
    let probe = Probe { name: "work".into(), endpoint, metric, quantity };
    let time = Work::Time(Duration::from_millis(100));
    Target { name: "work".into(), probes: vec![probe], ..target(time, Lead::Named("work".into())) }
}

fn window(target: &Target) -> Result<Reading, TargetError> {
    target.run(Duration::from_secs(30), &mut Nobody { stop: false })
}

const METRICS: &str = "HTTP/1.0 200 OK\r\n\r\n# TYPE work_total counter\nwork_total{queue=\"a\"} 1000\nwork_total{queue=\"b\"} 9\nlag 0.25\n";

#[test]
fn a_metric_is_read_at_the_end_of_a_window() {
    let target = asked(serve(&[METRICS]), Some("work_total{queue=\"a\"}"), Quantity::Number);
    assert_eq!(window(&target).map(|reading| reading.value), Ok(1000.0));
}

#[test]
fn a_rate_is_what_a_counter_grew_by_per_second() {
    let later = METRICS.replace("1000", "1500");
    let target = asked(serve(&[METRICS, &later]), Some("work_total{queue=\"a\"}"), Quantity::Rate);
    let reading = window(&target).unwrap();
    // 500 in the window, which took as long as it took.
    let seconds = 500.0 / reading.value;
    assert!(seconds >= 0.1 && seconds <= reading.took.as_secs_f64(), "{reading:?}");
    let target = asked(serve(&[&later, METRICS]), Some("work_total{queue=\"a\"}"), Quantity::Rate);
    let told = window(&target).unwrap_err().to_string();
    assert!(told.contains("went back from 1500 to 1000"), "{told}");
}

#[test]
fn one_answer_serves_all_that_is_wanted_of_an_endpoint() {
    // The server has one answer only.
    let mut target = asked(serve(&[METRICS]), Some("work_total{queue=\"a\"}"), Quantity::Number);
    let lag = Probe { name: "lag".into(), metric: Some(Selector::parse("lag").unwrap()), ..target.probes[0].clone() };
    target.probes.push(lag);
    target.others.push(Objective { name: "lag".into(), goal: Goal::Minimise });
    assert_eq!(window(&target).unwrap().named["lag"], 0.25);
}

#[test]
fn endpoints_that_fail_are_told() {
    for (answer, words) in [
        ("HTTP/1.0 503 Service Unavailable\r\n\r\n", "`503 Service Unavailable`"),
        ("HTTP/1.0 200 OK\r\n\r\n<html>it works</html>", "line 1 is not a sample"),
        ("HTTP/1.0 200 OK\r\n\r\nother 5\n", "there is no series work_total{queue=\"a\"}"),
        ("HTTP/1.0 200 OK\r\nContent-Length: 900\r\n\r\nwork_total{queue=\"a\"} 5", "cut off"),
        ("HTTP/1.0 200 OK\r\n\r\nwork_total{queue=\"a\"} NaN\n", "it says NaN"),
        ("HTTP/1.0 200 OK\r\n\r\nwork_total{queue=\"a\"} -1\n", "only numbers of 0 or more"),
        ("", "not HTTP"),
    ] {
        let target = asked(serve(&[answer]), Some("work_total{queue=\"a\"}"), Quantity::Number);
        let told = window(&target).unwrap_err().to_string();
        assert!(told.contains(words), "{words}: {told}");
    }
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let nobody = Endpoint::http(&format!("http://{free}/")).unwrap();
    let told = window(&asked(nobody, Some("work"), Quantity::Number)).unwrap_err().to_string();
    assert!(told.contains("does not answer: Connection refused"), "{told}");
}

#[test]
fn endpoints_that_hang_are_given_up() {
    for answer in [&[][..], &["HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\n"]] {
        let hangs = asked(serve(answer), Some("work"), Quantity::Rate);
        let error = hangs.run(Duration::from_millis(300), &mut Nobody { stop: false }).unwrap_err();
        let told = error.to_string();
        let ended = answer.len() == 1 && told.contains("cut off");
        assert!(ended || told.contains("has not answered in full within 0."), "{told}");
        assert!(matches!(error, TargetError::Endpoint(_)));
    }
    let hangs = asked(serve(&[]), Some("work"), Quantity::Number);
    assert_eq!(hangs.run(hangs.timeout, &mut Nobody { stop: true }), Err(TargetError::Interrupted));
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
    let told = silent.run(Duration::from_millis(300), &mut Nobody { stop: false }).unwrap_err().to_string();
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
    assert_eq!(run("echo 0").map(|reading| reading.value), Ok(0.0));
}
