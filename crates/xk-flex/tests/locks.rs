//! Locks of the heap on a running kernel.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

mod compiled;

use std::fs;
use std::sync::OnceLock;

use libbpf_rs::ObjectBuilder;
use xk_flex::{rewrite, Choice};
use xk_testing::guest::{boot, file, passed};

use compiled::compiled;

const OBJECT: &str = "XK_TEST_OBJECT";

xk_testing::guest_tests! {
    each_program_is_accepted,
}

fn guest_output() -> &'static str {
    static OUTPUT: OnceLock<String> = OnceLock::new();
    OUTPUT.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let [locks] = compiled(folder.path(), ["locks"]);
        boot(400, &format!("{OBJECT}={locks}"))
    })
}

fn report(name: &str) {
    passed(guest_output(), name);
}

fn prepare() {}

mod checks {
    use super::*;

    pub fn each_program_is_accepted() {
        let bytes = rewrite(&fs::read(file(OBJECT)).unwrap(), &Choice { widen: std::env::var("XK_NARROW").is_err(), ..Choice::default() }).unwrap().bytes;
        let names: Vec<_> = {
            let open = ObjectBuilder::default().open_memory(&bytes).unwrap();
            open.progs().map(|program| program.name().to_string_lossy().into_owned()).collect()
        };
        let mut bad = 0;
        for name in &names {
            if std::env::var("XK_ONLY").is_ok_and(|only| !only.split(',').any(|one| one == name)) {
                continue;
            }
            let mut open = ObjectBuilder::default().open_memory(&bytes).unwrap();
            open.progs_mut().for_each(|mut program| {
                let own = program.name().to_string_lossy() == *name;
                program.set_autoload(own);
                program.set_log_level(if std::env::var("XK_LONG").is_ok() { 2 } else { 4 });
            });
            let start = std::time::Instant::now();
            let (loaded, said) = xk_policy::listening(|| open.load());
            let insns = said.lines().find(|line| line.starts_with("processed")).unwrap_or("").to_owned();
            println!("{name}: {:?} {} {insns} {}", start.elapsed(), loaded.is_ok(), if loaded.is_ok() { String::new() } else { said });
            bad += usize::from(loaded.is_err());
        }
        assert_eq!(bad, 0);
    }
}
