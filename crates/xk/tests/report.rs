//! `xk report` on this machine, where nothing is tuned: the page shows a search over files, and the changes that the history
//! has. What is in force is seen in a guest (docs/tutorial.md), and by the tests of the page.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

mod tuning;

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use scraper::{Html, Selector};
use tuning::{FileSearch, SCORE};

/// A page about a search that was made and reverted.
fn page(bench: &FileSearch) -> PathBuf {
    bench.run(0, &mut bench.tune());
    bench.run(0, &mut bench.command(&["revert"]));
    let file = bench.path("page.html");
    let mut report = Command::new(env!("CARGO_BIN_EXE_xk"));
    report.arg("report").arg(&file).arg("--state").arg(bench.path("state")).env("XK_HISTORY", bench.path("history"));
    bench.run(0, &mut report);
    file
}

fn texts(page: &Html, selector: &str) -> Vec<String> {
    let selector = Selector::parse(selector).unwrap();
    page.select(&selector).map(|element| element.text().collect::<String>().trim().to_owned()).collect()
}

#[test]
fn a_search_is_there_with_its_plot_and_what_it_kept_is_in_the_history() {
    let bench = FileSearch::new(SCORE, "");
    let page = Html::parse_document(&fs::read_to_string(page(&bench)).unwrap());
    assert!(page.errors.is_empty(), "{:?}", page.errors);
    let heading = &texts(&page, "section.search h3")[..];
    assert!(matches!(heading, [only] if only.starts_with("xk tune: ")), "{heading:?}");
    assert!(texts(&page, "section.search svg circle").len() > 6, "a mark for each trial");
    let rows = texts(&page, "tr");
    for states in ["128 -> 1024", "1024 -> 128", "slow -> fast"] {
        assert!(rows.iter().any(|row| row.contains(states)), "{states}: {rows:#?}");
    }
    let names = texts(&page, "h2 ~ svg > text");
    assert!(["ahead", "mode"].iter().all(|name| names.iter().any(|text| text == name)), "{names:?}");
}

#[test]
fn what_cannot_be_written_leaves_the_page_before() {
    let bench = FileSearch::new(SCORE, "");
    let mut report = Command::new(env!("CARGO_BIN_EXE_xk"));
    report.args(["report", "/nonexistent/page.html"]).env("XK_HISTORY", bench.path("history"));
    let output = report.env("XK_TUNER", bench.path("state")).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.code() == Some(1) && told.contains("/nonexistent/page.html: "), "{told}");
    assert!(!bench.path("state").exists(), "a report creates no database");
}

/// Takes a browser, which is large: `make test-all` installs it.
#[test]
fn a_browser_shows_and_prints_the_page() {
    let bench = FileSearch::new(SCORE, "");
    let file = page(&bench);
    let browse = |arguments: &[String]| {
        let mut chromium = Command::new("chromium");
        chromium.args(["--headless", "--no-sandbox", "--disable-gpu", "--virtual-time-budget=5000"]);
        chromium.arg(format!("--user-data-dir={}", bench.path("browser").display()));
        // Whatever the page asked for would fail.
        chromium.arg("--host-resolver-rules=MAP * ~NOTFOUND").args(arguments).arg(format!("file://{}", file.display()));
        let output = chromium.output().expect("chromium: run `scripts/setup browser`");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    };
    let shown = browse(&["--dump-dom".into()]);
    let (page, written) = (Html::parse_document(&shown), Html::parse_document(&fs::read_to_string(&file).unwrap()));
    for selector in ["h1, h2, h3", "tr", "svg circle"] {
        assert_eq!(texts(&page, selector), texts(&written, selector), "{selector}");
    }
    let printed = bench.path("page.pdf");
    browse(&[format!("--print-to-pdf={}", printed.display())]);
    let pdf = fs::read(&printed).unwrap();
    assert!(pdf.starts_with(b"%PDF-") && pdf.len() > 10_000, "{} bytes", pdf.len());
}
