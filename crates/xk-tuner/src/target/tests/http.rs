//! Endpoints that are queried by HTTP, with servers of the test.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use super::*;

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
            let request = String::from_utf8_lossy(&asked[..length]).into_owned();
            assert!(request.starts_with("GET /metrics HTTP/1.1\r\n") && request.ends_with("\r\n\r\n"), "{request}");
            for header in ["host: 127.0.0.1:", "user-agent: xk\r\n", "accept: text/plain", "connection: close\r\n"] {
                assert!(request.contains(&format!("\r\n{header}")), "{header}: {request}");
            }
            match answers.next() {
                Some(answer) => stream.write_all(answer.as_bytes()).unwrap(),
                None => open.push(stream),
            }
        }
    });
    endpoint
}

const METRICS: &str = "HTTP/1.0 200 OK\r\n\r\n# TYPE work_total counter\nwork_total{queue=\"a\"} 1000\nwork_total{queue=\"b\"} 9\nlag 0.25\n";

#[test]
fn a_metric_is_read_at_the_end_of_a_window() {
    let target = asked(serve(&[METRICS]), Some("work_total{queue=\"a\"}"), Quantity::Number);
    assert_eq!(window(&target).unwrap().value, 1000.0);
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
        ("", "without an answer"),
        ("SSH-2.0-x\r\n\r\n", "not HTTP"),
        ("HTTP/1.1 404 Not Found\r\n\r\nwork_total 1\n", "`404 Not Found`"),
        ("HTTP/1.1 200 OK\r\nContent-Length: -1\r\n\r\nwork_total 1\n", "not HTTP"),
        ("HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\n\r\n\u{1f}", "in gzip"),
        ("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nx 1\n", "cut off"),
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
        let error = hangs.run(Duration::from_millis(300), &[], &mut Nobody { stop: false }).unwrap_err();
        let told = error.to_string();
        let ended = answer.len() == 1 && told.contains("cut off");
        assert!(ended || told.contains("has not answered in full within 0."), "{told}");
        assert!(matches!(error, TargetError::Endpoint { .. }));
    }
    let hangs = asked(serve(&[]), Some("work"), Quantity::Number);
    let start = Instant::now();
    assert!(matches!(hangs.run(hangs.timeout, &[], &mut Nobody { stop: true }), Err(TargetError::Interrupted)));
    assert!(start.elapsed() < Duration::from_secs(10), "the timeout is {:?}", hangs.timeout);
}

/// A server that treats each connection, after its request, as `answer` does.
fn serve_by(answer: impl Fn(TcpStream, &str) + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut asked = [0; 4096];
            let length = stream.read(&mut asked).unwrap_or(0);
            let request = String::from_utf8_lossy(&asked[..length]).into_owned();
            answer(stream, request.split(' ').nth(1).unwrap_or_default());
        }
    });
    address
}

fn work_at(address: SocketAddr) -> Target {
    let endpoint = Endpoint::http(&format!("http://{address}/metrics")).unwrap();
    asked(endpoint, Some("work"), Quantity::Number)
}

#[test]
fn redirections_are_followed_but_not_forever() {
    let target = work_at(serve_by(|mut stream, path| {
        let answer = match path {
            "/metrics" => "HTTP/1.1 301 Moved Permanently\r\nLocation: /new\r\nContent-Length: 0\r\n\r\n",
            _ => "HTTP/1.1 200 OK\r\nContent-Length: 7\r\n\r\nwork 5\n",
        };
        stream.write_all(answer.as_bytes()).unwrap();
    }));
    assert_eq!(window(&target).unwrap().value, 5.0);
    let target = work_at(serve_by(|mut stream, _| {
        stream.write_all(b"HTTP/1.1 302 Found\r\nLocation: /metrics\r\nContent-Length: 0\r\n\r\n").unwrap();
    }));
    let told = window(&target).unwrap_err().to_string();
    assert!(told.contains("too many redirects"), "{told}");
}

#[test]
fn chunks_are_put_together() {
    let chunked =
        "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nwork \r\n8\r\n12\nlag 1\r\n1\r\n\n\r\n0\r\n\r\n";
    let target = asked(serve(&[chunked]), Some("work"), Quantity::Number);
    assert_eq!(window(&target).unwrap().value, 12.0);
}

#[test]
fn a_server_that_trickles_is_given_up_at_the_deadline() {
    let target = work_at(serve_by(|mut stream, _| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n");
        while stream.write_all(b"#").is_ok() {
            thread::sleep(Duration::from_millis(10));
        }
    }));
    let start = Instant::now();
    let told = target.run(Duration::from_millis(500), &[], &mut Nobody { stop: false }).unwrap_err().to_string();
    assert!(told.contains("has not answered in full within 0."), "{told}");
    assert!(start.elapsed() < Duration::from_secs(10));
}

#[test]
fn a_body_without_an_end_is_refused() {
    let target = work_at(serve_by(|mut stream, _| {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        while stream.write_all(&[b'#'; 1 << 16]).is_ok() {}
    }));
    let told = window(&target).unwrap_err().to_string();
    assert!(told.contains("longer than 16 MiB"), "{told}");
}

#[test]
fn one_query_is_outstanding_at_a_time() {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::sync::Arc;
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    let (inside, highest) = (now.clone(), most.clone());
    let address = serve_by(move |mut stream, _| {
        let (inside, highest) = (inside.clone(), highest.clone());
        thread::spawn(move || {
            highest.fetch_max(inside.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            thread::sleep(Duration::from_millis(50));
            inside.fetch_sub(1, Ordering::SeqCst);
            stream.write_all(b"HTTP/1.1 200 OK\r\n\r\nwork 5\nlag 1\n").unwrap();
        });
    });
    let mut target = work_at(address);
    target.probes[0].quantity = Quantity::Rate;
    let lag = Selector::parse("lag").unwrap();
    target.probes.push(Probe { name: "lag".into(), metric: Some(lag), ..target.probes[0].clone() });
    window(&target).unwrap();
    assert_eq!((now.load(Ordering::SeqCst), most.load(Ordering::SeqCst)), (0, 1));
}
