//! How a table that is missing can be had, the quickest way first.

use std::process::{Command, Stdio};

use xk_kernel::{doctor, Check, DoctorOptions, HostEnv, KernelId, Status};
use xk_repository::Sources;

/// Checks of `xk doctor` that an analysis needs.
const NEEDED: [&str; 6] = ["source", "configuration", "compiler", "pahole", "build-tools", "solver"];

/// One line for each way to a table of `text` on the running kernel.
pub fn to_table(text: &str) -> String {
    let package = KernelId::live().ok().map(|kernel| format!("xk-tables-{}", kernel.release));
    let package = package.filter(|name| apt_knows(name));
    let repositories = Sources::read().map_err(|error| error.to_string());
    let checks = doctor(&HostEnv, &DoctorOptions::default());
    lines(text, package.as_deref(), repositories, &checks)
}

/// Whether the package can be installed.
fn apt_knows(package: &str) -> bool {
    let mut command = Command::new("apt-cache");
    let command = command.args(["show", "--no-all-versions", package]).stdin(Stdio::null());
    command.stdout(Stdio::null()).stderr(Stdio::null()).status().is_ok_and(|status| status.success())
}

fn lines(text: &str, package: Option<&str>, repositories: Result<Sources, String>, checks: &[Check]) -> String {
    let mut lines = Vec::new();
    if let Some(package) = package {
        lines.push(format!("apt-get install {package}: tables of this kernel, as a package"));
    }
    lines.push(match repositories {
        Ok(Sources { list, .. }) if !list.is_empty() => {
            let sources: Vec<String> = list.iter().map(ToString::to_string).collect();
            format!("xk tables fetch {text}: from {}", sources.join(", "))
        }
        Ok(Sources { file, .. }) => {
            format!("xk tables fetch {text} --from SOURCE: {} names no repository", file.display())
        }
        Err(error) => format!("xk tables fetch {text}: {error}"),
    });
    let missing: Vec<&str> = checks
        .iter()
        .filter(|check| check.status == Status::Fail && NEEDED.contains(&check.name.as_str()))
        .map(|check| check.name.as_str())
        .collect();
    lines.push(match missing[..] {
        [] => format!("xk build {text}: this machine has what it needs"),
        _ => format!("xk build {text}: it needs more ({}): see xk doctor", missing.join(", ")),
    });
    let lines: String = lines.iter().map(|line| format!("\n  {line}")).collect();
    format!(". Ways to a table, the quickest first:{lines}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(name: &str, status: Status) -> Check {
        Check { name: name.into(), status, found: String::new(), remedy: None }
    }

    #[test]
    fn the_quickest_way_comes_first() {
        let config = |sources: &[&str]| Sources {
            file: "/etc/xk/xk.toml".into(),
            list: sources.iter().filter_map(|source| source.parse().ok()).collect(),
        };
        let ready = [check("source", Status::Ok), check("xk.ko", Status::Fail)];
        assert_eq!(
            lines("A", Some("xk-tables-6.12"), Ok(config(&["/srv/t", "https://example.org"])), &ready),
            ". Ways to a table, the quickest first:\n  apt-get install xk-tables-6.12: tables of this kernel, as a package\n  xk tables fetch A: from /srv/t, \
             https://example.org\n  xk build A: this machine has what it needs"
        );
        let bare = [check("source", Status::Fail), check("solver", Status::Fail)];
        assert_eq!(
            lines("A", None, Ok(config(&[])), &bare),
            ". Ways to a table, the quickest first:\n  xk tables fetch A --from SOURCE: /etc/xk/xk.toml names no repository\n  xk build A: it needs more \
             (source, solver): see xk doctor"
        );
    }
}
