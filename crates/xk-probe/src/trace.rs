//! What programs print with `bpf_printk()`: lines of the kernel's trace.

use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;

/// `O_NONBLOCK` of Linux on x86.
const NONBLOCK: i32 = 0o4000;
const PIPES: [&str; 2] = ["/sys/kernel/tracing/trace_pipe", "/sys/kernel/debug/tracing/trace_pipe"];
/// What the kernel writes before the text of `bpf_printk()`.
const MARK: &str = ": bpf_trace_printk: ";

/// The kernel's trace. What is read from it is gone for other readers.
#[derive(Debug)]
pub struct Trace {
    pipe: File,
    rest: Vec<u8>,
}

impl Trace {
    /// Opens it.
    ///
    /// # Errors
    /// What the operating system said; tracefs may not be mounted.
    pub fn open() -> io::Result<Self> {
        let open = |path: &str| std::fs::OpenOptions::new().read(true).custom_flags(NONBLOCK).open(path);
        let pipe = open(PIPES[0]).or_else(|error| open(PIPES[1]).map_err(|_| error))?;
        Ok(Self { pipe, rest: Vec::new() })
    }

    /// The texts that were printed since the last call. Does not wait.
    ///
    /// # Errors
    /// What the operating system said.
    pub fn texts(&mut self) -> io::Result<Vec<String>> {
        let mut buffer = [0; 65536];
        loop {
            match self.pipe.read(&mut buffer) {
                Ok(0) => break,
                Ok(length) => self.rest.extend(&buffer[..length]),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(texts(&mut self.rest))
    }
}

/// Takes the whole lines, and returns what programs printed in them.
fn texts(rest: &mut Vec<u8>) -> Vec<String> {
    let end = rest.iter().rposition(|byte| *byte == b'\n').map_or(0, |at| at + 1);
    let lines: Vec<u8> = rest.drain(..end).collect();
    let lines = String::from_utf8_lossy(&lines);
    lines.lines().filter_map(|line| Some(line.split_once(MARK)?.1.to_owned())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_programs_print_is_returned_and_lines_are_whole() {
        let mut rest = b"  sh-7 [000] ...21 1.5: bpf_trace_printk: wrote 5\n  sh-7 [000] 1.6: sched_switch: x\n\
                         sh-7 [000] 1.7: bpf_trace_printk: half"
            .to_vec();
        assert_eq!(texts(&mut rest), ["wrote 5"]);
        rest.extend(b" a line\n");
        assert_eq!(texts(&mut rest), ["half a line"]);
        assert!(rest.is_empty());
    }
}
