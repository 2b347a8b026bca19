//! `xk history` on a stock kernel: each change is told once, with who made it and from what to what, also those that nobody
//! makes: the end of a lease, and of a process. One guest boots and runs the checks of `inside`.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

#[macro_use]
mod support;

use std::fs;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::OnceLock;

use scraper::{Html, Selector};
use serde_json::Value;
use support::{build, contains, fresh_xk, json, xk, BLK, SHRINK};
use xk_testing::guest::{boot, modules, passed, run, wait_for, XK_KO};

const FOLDER: &str = "/var/lib/xk/history";

xk_testing::guest_tests! {
    each_change_is_told,
    what_ends_by_itself_is_told,
    a_refused_command_is_told,
    a_change_that_the_disk_does_not_take_is_made,
    half_an_entry_is_left_out,
    the_journal_of_the_system_has_it_too,
    the_report_shows_what_is_in_force,
}

/// What the tests in the guest printed, in one boot.
fn guest_output() -> &'static str {
    static OUTPUT: OnceLock<String> = OnceLock::new();
    OUTPUT.get_or_init(|| {
        let store = tempfile::tempdir().unwrap();
        build(store.path(), &[BLK, SHRINK]);
        let modules = modules(&[(XK_KO, "kernel/xk")]);
        boot(900, &format!("{modules} XK_STORE={}", store.path().display()))
    })
}

fn report(name: &str) {
    passed(guest_output(), name);
}

/// A fresh module, and no history.
fn prepare() {
    fresh_xk();
    let _ = fs::remove_dir_all(FOLDER);
}

fn entries(arguments: &[&str]) -> Vec<Value> {
    json(&[&["history", "--json"], arguments].concat())["entries"].as_array().unwrap().clone()
}

/// Title, action and states of each entry.
fn told(arguments: &[&str]) -> Vec<String> {
    let words = |entry: &Value| {
        let state = |name: &str| entry[name].to_string();
        format!(
            "{} {} {} {}",
            entry["title"].as_str().unwrap(),
            entry["action"].as_str().unwrap(),
            state("from"),
            state("to")
        )
    };
    entries(arguments).iter().map(words).collect()
}

mod checks {
    use super::*;

    pub fn each_change_is_told() {
        xk(0, &["set", "BLK_MAX_REQUEST_COUNT=128", "SHRINK_BATCH=256"]);
        xk(0, &["set", "SHRINK_BATCH=256"]);
        xk(0, &["set", "SHRINK_BATCH=64"]);
        xk(0, &["unset", "--all"]);
        let all = told(&[]);
        let expected = [
            format!("{BLK} set 32 128"),
            format!("{SHRINK} set 128 256"),
            format!("{SHRINK} set 256 64"),
            format!("{BLK} revert 128 32"),
            format!("{SHRINK} revert 64 128"),
        ];
        assert_eq!(all, expected, "the same value again is no change");
        assert_eq!(told(&["--name", BLK]), [&*expected[0], &*expected[3]]);
        assert_eq!(told(&["--name", SHRINK, "--since", "1h"]).len(), 3);
        assert!(told(&["--since", "2100-01-01"]).is_empty());
        let first = &entries(&[])[0];
        assert_eq!((&first["uid"], &first["user"]), (&0.into(), &"root".into()), "{first:#}");
        assert_eq!(first["command"], "xk set BLK_MAX_REQUEST_COUNT=128 SHRINK_BATCH=256");
        let shown = xk(0, &["history"]);
        contains(&shown, &["root", "128 -> 256", "`xk unset --all`"]);
    }

    pub fn what_ends_by_itself_is_told() {
        xk(0, &["set", "SHRINK_BATCH=300", "--for", "2s"]);
        wait_for("the lease ends", || xk(0, &["status"]).contains("nothing is tuned"));
        let last = entries(&[]).pop().unwrap();
        assert_eq!((&last["action"], &last["from"]), (&"ended".into(), &300.into()), "{last:#}");
        assert_eq!(last["note"], "its lease has ended");
        let number = entries(&[]).len();
        let mut holder = Command::new(env!("CARGO_BIN_EXE_xk"))
            .args(["set", "SHRINK_BATCH=512", "--hold"])
            .stdout(Stdio::null())
            .spawn()
            .unwrap();
        wait_for("it is held", || xk(0, &["get", SHRINK]).trim() == "512");
        wait_for("it is recorded", || entries(&[]).len() == number + 1);
        holder.kill().unwrap();
        holder.wait().unwrap();
        wait_for("it has ended", || xk(0, &["status"]).contains("nothing is tuned"));
        let all = entries(&[]);
        assert_eq!(all.len(), number + 2);
        contains(all[number + 1]["note"].as_str().unwrap(), &["its process has ended"]);
        assert_eq!(entries(&[]).len(), number + 2, "it is told once");
    }

    pub fn a_refused_command_is_told() {
        xk(3, &["set", "--no-compile", "BLK_MAX_REQUEST_COUNT=-1"]);
        xk(2, &["set", "BLK_MAX_REQUEST_COUNT"]);
        let all = entries(&["--name", BLK]);
        assert_eq!(all.len(), 1, "{all:#?}");
        contains(all[0]["note"].as_str().unwrap(), &["refused: ", "outside the proved range"]);
        contains(all[0]["command"].as_str().unwrap(), &["--no-compile"]);
    }

    pub fn a_change_that_the_disk_does_not_take_is_made() {
        fs::create_dir_all(FOLDER).unwrap();
        assert!(run("mount", &["-t", "tmpfs", "-o", "size=4k", "tmpfs", FOLDER]));
        // The last byte of the disk.
        fs::write(Path::new(FOLDER).join("filler"), vec![0; 4096]).unwrap();
        let set = xk(0, &["set", "SHRINK_BATCH=64"]);
        contains(&set, &["SHRINK_BATCH = 64 (was 128)", "warning: a change was made, but is not in the history: /var"]);
        contains(&set, &["No space left"]);
        assert_eq!(xk(0, &["get", SHRINK]).trim(), "64");
        fs::remove_file(Path::new(FOLDER).join("filler")).unwrap();
        // It is found in force as soon as there is room.
        assert_eq!(told(&[]), [format!("{SHRINK} found null 64")]);
        assert!(run("mount", &["-o", "remount,ro", FOLDER]));
        contains(&xk(0, &["unset", SHRINK]), &["= 128 (its default)", "warning: ", "Read-only file system"]);
        assert!(run("umount", &[FOLDER]));
    }

    /// Where systemd runs, its journal listens here.
    pub fn the_journal_of_the_system_has_it_too() {
        let path = Path::new("/run/systemd/journal/socket");
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let _ = fs::remove_file(path);
        let journal = UnixDatagram::bind(path).unwrap();
        xk(0, &["set", "SHRINK_BATCH=64"]);
        let mut bytes = [0; 4096];
        let length = journal.recv(&mut bytes).unwrap();
        let text = String::from_utf8_lossy(&bytes[..length]).into_owned();
        let fields = ["SYSLOG_IDENTIFIER=xk\n", "XK_ACTION=set\n", "XK_FROM=128\n", "XK_TO=64\n", "XK_USER=root\n"];
        contains(&text, &fields);
        contains(&text, &["XK_COMMAND=xk set SHRINK_BATCH=64\n", "MESSAGE=mm/shrinker.c", " set 128 -> 64, by root"]);
        fs::remove_file(path).unwrap();
    }

    /// As `xk status` does, and nothing that tells where the kernel is.
    pub fn the_report_shows_what_is_in_force() {
        xk(0, &["set", "BLK_MAX_REQUEST_COUNT=128", "SHRINK_BATCH=64"]);
        xk(0, &["report", "/tmp/page.html"]);
        let text = fs::read_to_string("/tmp/page.html").unwrap();
        let page = Html::parse_document(&text);
        assert!(page.errors.is_empty(), "{:?}", page.errors);
        let texts = |selector: &str| -> Vec<String> {
            let selector = Selector::parse(selector).unwrap();
            page.select(&selector).map(|element| element.text().collect::<String>().trim().to_owned()).collect()
        };
        assert_eq!(texts("section.tune h3"), ["BLK_MAX_REQUEST_COUNT = 128", "SHRINK_BATCH = 64"]);
        let status = json(&["status", "--json"]);
        let sites: Vec<&Value> =
            status["tunes"].as_array().unwrap().iter().flat_map(|tune| tune["sites"].as_array().unwrap()).collect();
        let places = sites
            .iter()
            .map(|site| format!("{}+{:#x}", site["symbol"].as_str().unwrap(), site["offset"].as_u64().unwrap()));
        assert_eq!(texts("section.tune tr td:first-child"), places.collect::<Vec<_>>());
        for site in sites {
            let address = site["address"].as_str().unwrap().trim_start_matches("0x");
            assert!(address.len() > 8 && !text.contains(address), "{address}");
        }
        assert_eq!(texts("svg circle").len(), 2, "the two changes");
    }

    pub fn half_an_entry_is_left_out() {
        xk(0, &["set", "SHRINK_BATCH=64"]);
        let file = Path::new(FOLDER).join("changes.jsonl");
        let whole = fs::read(&file).unwrap();
        fs::write(&file, [&whole[..], &whole[..whole.len() / 2]].concat()).unwrap();
        xk(0, &["unset", SHRINK]);
        assert_eq!(told(&[]), [format!("{SHRINK} set 128 64"), format!("{SHRINK} revert 64 128")]);
        contains(&xk(0, &["history"]), &["1 line cannot be read"]);
    }
}
