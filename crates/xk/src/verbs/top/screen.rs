//! A terminal that shows one text after the other, each in place of the one before, cut to its size. The terminal is
//! restored on drop.

use std::io::{self, IsTerminal, Read, Write};
use std::os::fd::AsFd;
use std::time::{Duration, Instant};

use rustix::event::{poll, PollFd, PollFlags, Timespec};
use rustix::termios::{tcgetattr, tcgetwinsize, tcsetattr, LocalModes, OptionalActions, Termios};

use crate::exit::{Failure, Result};
use crate::signals;

/// Switches to the alternate screen without a cursor, and back.
const ENTER: &str = "\x1b[?1049h\x1b[?25l";
const LEAVE: &str = "\x1b[?25h\x1b[?1049l";
/// Moves to the first cell; clears the rest of the line; clears the rest of the screen.
const HOME: &str = "\x1b[H";
const CLEAR_LINE: &str = "\x1b[K\r\n";
const CLEAR_BELOW: &str = "\x1b[J";
/// The size of a terminal that does not report its size.
const SIZE: (usize, usize) = (80, 24);
/// Time after which a signal is noticed.
const GLANCE: Duration = Duration::from_millis(200);

/// The terminal.
pub struct Screen {
    before: Termios,
}

impl Screen {
    /// Takes over the terminal.
    ///
    /// # Errors
    /// There is no terminal.
    pub fn open() -> Result<Self> {
        if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
            return Err(Failure::usage("not a terminal: use --batch"));
        }
        let before = tcgetattr(io::stdin()).map_err(failed)?;
        let mut keys = before.clone();
        // Keys are read one by one and not shown; Ctrl-C is a key, too, because the terminal must be restored.
        signals::hold_back();
        keys.local_modes.remove(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
        tcsetattr(io::stdin(), OptionalActions::Now, &keys).map_err(failed)?;
        let screen = Self { before };
        write(ENTER)?;
        Ok(screen)
    }

    /// Shows a text.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn show(&mut self, text: &str) -> Result {
        let size = tcgetwinsize(io::stdout()).ok().filter(|size| size.ws_col > 0 && size.ws_row > 1);
        let (columns, rows) = size.map_or(SIZE, |size| (size.ws_col.into(), size.ws_row.into()));
        write(&frame(text, columns, rows))
    }

    /// Waits. Returns whether the user quit meanwhile.
    ///
    /// # Errors
    /// The terminal is gone.
    pub fn ended_within(&mut self, time: Duration) -> Result<bool> {
        let end = Instant::now() + time;
        loop {
            let left = end.saturating_duration_since(Instant::now());
            if signals::came() {
                return Ok(true);
            }
            let stdin = io::stdin();
            let mut ready = [PollFd::from_borrowed_fd(stdin.as_fd(), PollFlags::IN)];
            let timeout = Timespec::try_from(left.min(GLANCE)).map_err(|_| Failure::usage("-d: too long"))?;
            match poll(&mut ready, Some(&timeout)) {
                Ok(0) if left <= GLANCE => return Ok(false),
                Ok(0) => continue,
                Ok(_) => {}
                Err(rustix::io::Errno::INTR) => continue,
                Err(error) => return Err(failed(error)),
            }
            let mut keys = [0; 64];
            let read = io::stdin().read(&mut keys).map_err(|error| Failure::error(error.to_string()))?;
            if read == 0 || ends(&keys[..read]) {
                return Ok(true);
            }
        }
    }
}

impl Drop for Screen {
    fn drop(&mut self) {
        // The process ends; nothing can be done if the terminal cannot be restored.
        let _ = tcsetattr(io::stdin(), OptionalActions::Now, &self.before);
        let _ = write(LEAVE);
    }
}

/// Whether one of the keys quits: `q`, Ctrl-C or Ctrl-D.
fn ends(keys: &[u8]) -> bool {
    keys.iter().any(|key| matches!(key, b'q' | b'Q' | 3 | 4))
}

/// The bytes that show a text on a terminal of this size.
fn frame(text: &str, columns: usize, rows: usize) -> String {
    let lines = text.lines().take(rows - 1);
    let cut = lines.map(|line| line.chars().take(columns).collect::<String>() + CLEAR_LINE);
    format!("{HOME}{}{CLEAR_BELOW}", cut.collect::<String>())
}

fn write(text: &str) -> Result {
    let mut out = io::stdout().lock();
    let written = out.write_all(text.as_bytes()).and_then(|()| out.flush());
    written.map_err(|error| Failure::error(error.to_string()))
}

fn failed(error: rustix::io::Errno) -> Failure {
    Failure::error(format!("the terminal: {error}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_cut_to_the_terminal() {
        assert_eq!(frame("abcdef\nghi\njkl\n", 4, 3), "\x1b[Habcd\x1b[K\r\nghi\x1b[K\r\n\x1b[J");
        assert_eq!(frame("", 4, 3), "\x1b[H\x1b[J");
    }

    #[test]
    fn some_keys_end_it() {
        assert!(ends(b"xq") && ends(&[3]) && ends(&[4]));
        assert!(!ends(b"x \x1b[A"));
    }
}
