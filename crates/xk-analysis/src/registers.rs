//! Whether callers in a unit may rely on registers that a callee happens to leave alone.
//!
//! In: the compiler's arguments of a unit. Refused: a unit whose arguments let GCC's
//! `-fipa-ra` work. The comparison and the liveness of registers rest on the calling
//! convention: after a call, no caller-saved register holds what it held before. With
//! `-fipa-ra`, which `-O1` and more switch on, a caller knows what a function of its unit
//! writes, and keeps values in the other registers. GCC switches it off where code is put
//! at the start of functions, by `-pg` or `-fpatchable-function-entry`, whatever else the
//! arguments say (gcc/toplev.cc, `process_options`).

use xk_table::Refusal;

/// Refuses `unit` if callers that are compiled with `arguments` may rely on more than the
/// calling convention.
///
/// # Errors
/// [`Refusal::RegisterAllocation`].
pub fn by_convention(unit: &str, arguments: &[String]) -> Result<(), Refusal> {
    let (mut instrumented, mut padding, mut refined) = (false, 0, true);
    for argument in arguments {
        match argument.as_str() {
            "-pg" | "-p" => instrumented = true,
            "-fipa-ra" => refined = true,
            "-fno-ipa-ra" => refined = false,
            other => {
                if let Some(size) = other.strip_prefix("-fpatchable-function-entry=") {
                    // The last one counts; what is no number is not taken for one.
                    padding = size.split(',').next().and_then(|size| size.parse::<u32>().ok()).unwrap_or(0);
                }
            }
        }
    }
    if instrumented || padding > 0 || !refined {
        return Ok(());
    }
    Err(Refusal::RegisterAllocation { unit: unit.into() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_switches_it_off_is_accepted() {
        let accepted = |arguments: &str| {
            let words: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
            by_convention("a.c", &words).is_ok()
        };
        for arguments in [
            "-O2 -pg -mrecord-mcount -mfentry",
            "-O2 -fpatchable-function-entry=16,16",
            "-O2 -fpatchable-function-entry=5",
            "-O2 -fpatchable-function-entry=16,16 -fipa-ra",
            "-O2 -fno-ipa-ra",
            "-O2 -fipa-ra -fno-ipa-ra",
        ] {
            assert!(accepted(arguments), "{arguments}");
        }
        for arguments in [
            "-O2",
            "-O2 -mfentry -mrecord-mcount",
            "-O2 -DX=-pg",
            "-O2 -fpatchable-function-entry=16,16 -fpatchable-function-entry=0,0",
            "-O2 -fno-ipa-ra -fipa-ra",
        ] {
            assert!(!accepted(arguments), "{arguments}");
        }
    }

    /// What GCC does with these arguments: a caller that relies on its callee saves nothing.
    #[test]
    fn the_compiler_agrees() {
        const SOURCE: &str = "int shared; static __attribute__((noinline)) void callee(void) { shared++; }\n\
             int f(int a, int b, int c) { callee(); return a + b + c; }\n";
        let folder = tempfile::tempdir().unwrap();
        let source = folder.path().join("a.c");
        std::fs::write(&source, SOURCE).unwrap();
        for arguments in [
            "-O2",
            "-O2 -pg -mfentry",
            "-O2 -fpatchable-function-entry=16,16",
            "-O2 -fpatchable-function-entry=0",
            "-O2 -fpatchable-function-entry=16,16 -fipa-ra",
            "-O2 -fno-ipa-ra",
        ] {
            let words: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
            let mut gcc = std::process::Command::new("gcc-12");
            gcc.args(["-fno-pie", "-mcmodel=kernel", "-S", "-o", "-"]).args(&words).arg(&source);
            let text =
                String::from_utf8(gcc.output().expect("gcc-12 is needed: apt-get install gcc-12").stdout).unwrap();
            assert!(text.contains("callee"), "{arguments}");
            assert_eq!(text.contains("push"), by_convention("a.c", &words).is_ok(), "{arguments}");
        }
    }
}
