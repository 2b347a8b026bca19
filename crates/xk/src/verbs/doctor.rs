//! `xk doctor`: what is missing on this machine, with remedies.

use std::path::PathBuf;

use serde_json::{json, Value};
use xk_kernel::{doctor, Check, DoctorOptions, HostEnv, SourceHints, Status};
use xk_runtime::Rules;

use crate::exit::{Exit, Failure, Result};
use crate::output::{count, print_json, to_json, Paint};

/// Checks whose failure no package can fix.
const PLATFORM: [&str; 7] = ["kernel", "architecture", "build-id", "btf", "lockdown", "module-signatures", "xk.ko"];

/// Arguments of `xk doctor`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    /// Folder with usr/src/ and boot/ of this kernel, if not /
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,
    /// Path of xk.ko, if modprobe does not find it
    #[arg(long, value_name = "FILE")]
    module: Option<PathBuf>,
}

/// Checks everything; fails if something that is needed is missing.
pub fn run(args: &Args) -> Result {
    let hints = args.root.as_ref().map_or_else(SourceHints::default, SourceHints::in_root);
    let mut checks = doctor(&HostEnv, &DoctorOptions { hints, module: args.module.clone() });
    checks.push(rules());
    let verdict = verdict(&checks);
    if args.json {
        print_json(document(&checks, &verdict));
        // An error object after the output would be a second document.
        return verdict.map_err(|failure| Failure::told(failure.exit));
    }
    print!("{}", text(&checks, Paint::stdout()));
    verdict
}

/// What the administrator forbids.
fn rules() -> Check {
    let (status, found, remedy) = match Rules::read() {
        Ok(rules) => (Status::Ok, rules.sentence().unwrap_or_else(|| "nothing is forbidden".into()), None),
        Err(failure) => {
            (Status::Fail, failure.to_string(), Some("fix or remove the file: nothing is loaded until then".into()))
        }
    };
    Check { name: "rules".into(), status, found, remedy }
}

fn verdict(checks: &[Check]) -> Result {
    let failed: Vec<&Check> = checks.iter().filter(|check| check.status == Status::Fail).collect();
    if failed.is_empty() {
        return Ok(());
    }
    let platform = failed.iter().any(|check| PLATFORM.contains(&check.name.as_str()));
    let exit = if platform { Exit::Unsupported } else { Exit::Error };
    let names: Vec<&str> = failed.iter().map(|check| check.name.as_str()).collect();
    Err(Failure::new(exit, format!("{} failed: {}", count(failed.len(), "check"), names.join(", "))))
}

fn text(checks: &[Check], paint: Paint) -> String {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for check in checks {
        let word = match check.status {
            Status::Ok => paint.good("ok  "),
            Status::Warn => paint.warning("warn"),
            Status::Fail => paint.bad("FAIL"),
        };
        text += &format!("{word}  {:width$}  {}\n", check.name, check.found);
        if let Some(remedy) = check.remedy.as_deref().filter(|remedy| !remedy.is_empty()) {
            text += &format!("      {:width$}  {} {remedy}\n", "", paint.dim("→"));
        }
    }
    text
}

fn document(checks: &[Check], verdict: &Result) -> Value {
    let exit = verdict.as_ref().err().map_or(0, |failure| failure.exit as u8);
    json!({ "checks": to_json(&checks), "ok": verdict.is_ok(), "exit": exit })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fixture;

    fn check(name: &str, status: Status, found: &str, remedy: Option<&str>) -> Check {
        Check { name: name.into(), status, found: found.into(), remedy: remedy.map(Into::into) }
    }

    #[test]
    fn golden() {
        let checks = [
            check("kernel", Status::Ok, "6.12.117+deb12-amd64", None),
            check("kprobes-optimization", Status::Warn, "0", Some("sysctl debug.kprobes-optimization=1")),
            check("solver", Status::Fail, "z3 does not run", Some("apt-get install z3")),
        ];
        fixture::golden("doctor.txt", &text(&checks, Paint::PLAIN));
        let verdict = verdict(&checks);
        fixture::golden("doctor.json", &format!("{:#}\n", document(&checks, &verdict)));
        assert_eq!(verdict.err().map(|failure| failure.exit), Some(Exit::Error));
    }

    #[test]
    fn what_no_package_fixes_is_unsupported() {
        let of = |checks: &[Check]| verdict(checks).err().map(|failure| failure.exit);
        assert_eq!(
            of(&[check("solver", Status::Fail, "", None), check("btf", Status::Fail, "", None)]),
            Some(Exit::Unsupported)
        );
        assert_eq!(of(&[check("kcore", Status::Warn, "", None)]), None);
    }
}
