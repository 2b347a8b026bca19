//! What matters in the words of libbpf and of the kernel's verifier.

use crate::Error;

const BEGIN: &str = "-- BEGIN PROG LOAD LOG --";
const END: &str = "-- END PROG LOAD LOG --";
/// Lines of the log that are shown.
const SHOWN: usize = 12;

/// From what libbpf said while it loaded an object.
#[must_use]
pub fn explain(said: &str) -> Error {
    if let Some(function) = missing_function(said) {
        return match function {
            "xk_set" | "xk_default" | "xk_value" | "xk_transition_done" | "xk_in_task" | "xk_site" => {
                Error::NoFunctions
            }
            _ => Error::Load {
                what: "the program".into(),
                reason: format!("it calls {function}(), which this kernel does not have"),
            },
        };
    }
    refusal(said).unwrap_or_else(|| {
        let (what, reason) = ("the kernel did not take the program".into(), last(said));
        match said.contains("Operation not permitted") {
            true => Error::Forbidden { what, reason },
            false => Error::Load { what, reason },
        }
    })
}

/// `extern (func ksym) 'name': not found in kernel or module BTFs`
fn missing_function(said: &str) -> Option<&str> {
    let line = said.lines().find(|line| line.contains("(func ksym)") && line.contains("not found"))?;
    line.split('\'').nth(1)
}

/// libbpf's last words, without its name.
fn last(said: &str) -> String {
    let line = said.lines().rev().find(|line| !line.trim().is_empty()).unwrap_or("it gave no reason");
    line.trim_start_matches("libbpf: ").to_owned()
}

fn refusal(said: &str) -> Option<Error> {
    let (before, rest) = said.split_once(BEGIN)?;
    let log = rest.split_once(END).map_or(rest, |(log, _)| log);
    let program = before.rsplit("prog '").next()?.split('\'').next()?.to_owned();
    let lines: Vec<&str> = log.lines().map(str::trim_end).filter(|line| !is_noise(line)).collect();
    let reason = (*lines.last()?).to_owned();
    let start = lines.len().saturating_sub(SHOWN);
    // From a line of the source on, if there is one.
    let start = lines[start..].iter().position(|line| is_source(line)).map_or(start, |at| start + at);
    Some(Error::Verifier {
        program,
        place: lines.iter().rev().find_map(|line| place(line)),
        reason,
        log: lines[start..].iter().map(|line| format!("    {line}\n")).collect::<String>().trim_end().to_owned(),
    })
}

fn is_source(line: &str) -> bool {
    line.starts_with("; ")
}

/// Statistics, and what introduces the log.
fn is_noise(line: &str) -> bool {
    line.is_empty()
        || ["processed ", "verification time", "stack depth", "libbpf: ", "mark_precise", "arg#"]
            .iter()
            .any(|noise| line.starts_with(noise))
}

/// `; source @ file.c:12`
fn place(line: &str) -> Option<String> {
    let (_, place) = line.strip_prefix("; ")?.rsplit_once(" @ ")?;
    Some(place.to_owned())
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    const LOG: &str = "libbpf: prog 'small': BPF program load failed: Permission denied\n\
        libbpf: prog 'small': -- BEGIN PROG LOAD LOG --\n\
        0: R1=ctx() R10=fp0\n\
        ; int *hint = bpf_map_lookup_elem(&hints, &pid); @ a.bpf.c:11\n\
        5: (85) call bpf_map_lookup_elem#1\n\
        ; xk_set(xk_ctx, *hint); @ a.bpf.c:12\n\
        9: (61) r2 = *(u32 *)(r0 +0)\n\
        R0 invalid mem access 'map_value_or_null'\n\
        processed 10 insns (limit 1000000) max_states_per_insn 0 total_states 0 peak_states 0 mark_read 0\n\
        -- END PROG LOAD LOG --\n\
        libbpf: prog 'small': failed to load: -13\n";

    #[test]
    fn the_line_and_the_reason_are_found() {
        let message = explain(LOG).to_string();
        let head = "small: the kernel's verifier refuses it at a.bpf.c:12: R0 invalid mem access 'map_value_or_null'\n";
        assert!(message.starts_with(head), "{message}");
        assert!(message.contains("    ; xk_set(xk_ctx, *hint); @ a.bpf.c:12"), "{message}");
        assert!(!message.contains("processed"), "{message}");
    }

    #[test]
    fn a_missing_function_is_named() {
        let said = |name: &str| format!("libbpf: extern (func ksym) '{name}': not found in kernel or module BTFs\n");
        assert!(matches!(explain(&said("xk_set")), Error::NoFunctions));
        assert!(explain(&said("other")).to_string().contains("other()"));
    }

    #[test]
    fn what_nobody_may_is_told_from_what_is_wrong() {
        let said = "libbpf: prog 'small': BPF program load failed: Operation not permitted\n\
                    libbpf: prog 'small': failed to load: -1\n";
        assert!(matches!(explain(said), Error::Forbidden { .. }));
        assert!(matches!(explain("libbpf: prog 'small': failed to load: -12\n"), Error::Load { .. }));
        assert!(matches!(explain(LOG), Error::Verifier { .. }), "the verifier's own word is another");
    }

    #[test]
    fn other_words_are_kept() {
        assert!(explain("libbpf: failed to find valid kernel BTF\n")
            .to_string()
            .ends_with("failed to find valid kernel BTF"));
        assert!(explain("").to_string().ends_with("it gave no reason"));
    }
}
