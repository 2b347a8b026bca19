//! `xk sched status`: whether policies decide, and why some were ejected.

use serde_json::json;
use xk_sched::{Device, Report, Status};

use crate::exit::Result;
use crate::output::{count, print_json, to_json, Paint};

/// Arguments of `xk sched status`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// JSON
    #[arg(long)]
    pub json: bool,
}

/// Prints it.
pub fn run(args: &Args) -> Result {
    let device = Device::open_to_read()?;
    let (status, reports) = (device.status()?, device.reports()?);
    if args.json {
        print_json(json!({ "status": to_json(&status), "ejected": to_json(&reports) }));
    } else {
        println!("{}", headline(&status));
        for policy in device.policies()?.iter().filter(|policy| policy.stranded) {
            println!("{} none of the CPUs {} is online: it has all", policy.name, policy.cpus);
        }
        for report in &reports {
            println!("{} {}", Paint::stdout().bad("ejected:"), sentence(report));
        }
    }
    Ok(())
}

fn headline(status: &Status) -> String {
    let decide = match &status.ended {
        None => "active".to_owned(),
        Some(why) => format!("not active: {why}: remove the modules of policies and xk_sched, and load them again"),
    };
    let threads = count(status.threads as usize, "thread");
    let policies = if status.policies == 1 { "1 policy".to_owned() } else { format!("{} policies", status.policies) };
    format!("{decide}; {threads} in {policies}; {} ejected so far", status.ejected)
}

/// Why a policy was ejected.
pub(in crate::verbs) fn sentence(report: &Report) -> String {
    let place = report.core.map_or(String::new(), |core| format!(" on core {core}"));
    let thread = report.thread.as_ref().map_or(String::new(), |thread| {
        format!(" of {}[{}], {} -> {}", thread.name, thread.pid, thread.from, thread.to)
    });
    format!("{}: {}{thread}{place}: {}", report.policy, report.event, report.reason)
}

#[cfg(test)]
mod tests {
    use xk_sched::ReportedThread;

    use super::*;

    #[test]
    fn a_report_names_policy_event_thread_and_states() {
        let thread = ReportedThread { pid: 7, name: "sh".into(), from: "RUNNING".into(), to: "READY".into() };
        let mut report = Report {
            policy: "faulty".into(),
            event: "block".into(),
            thread: Some(thread),
            core: Some(2),
            reason: "why".into(),
        };
        assert_eq!(sentence(&report), "faulty: block of sh[7], RUNNING -> READY on core 2: why");
        (report.thread, report.core) = (None, None);
        assert_eq!(sentence(&report), "faulty: block: why");
    }

    #[test]
    fn the_headline_says_whether_policies_decide() {
        let mut status = Status { ended: None, policies: 1, threads: 2, ejected: 0 };
        assert_eq!(headline(&status), "active; 2 threads in 1 policy; 0 ejected so far");
        status.ended = Some("sched_ext ended it".into());
        assert!(headline(&status).starts_with("not active: sched_ext ended it: remove"), "{}", headline(&status));
    }
}
