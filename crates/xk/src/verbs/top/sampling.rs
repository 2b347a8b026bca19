//! Samples that are shown one after the other, until the user quits.

use std::time::Duration;

use xk_apply::parse_time;

use super::screen::Screen;
use crate::exit::{Failure, Result};

/// How they are taken and shown.
#[derive(Debug, clap::Args)]
pub struct Sampling {
    /// Print plain text; no terminal needed
    #[arg(long)]
    batch: bool,
    /// Exit after this number of samples
    #[arg(short = 'n', value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    times: Option<u64>,
    /// Sampling interval
    #[arg(short = 'd', value_name = "TIME", default_value = "2s", value_parser = parse_time)]
    every: Duration,
}

impl Sampling {
    /// Shows the text of each sample, and of the one before.
    ///
    /// # Errors
    /// A sample cannot be taken, or there is no terminal.
    pub fn show<L>(&self, take: impl Fn() -> Result<L>, text: impl Fn(&L, &L) -> String) -> Result {
        if self.every.is_zero() {
            return Err(Failure::usage("-d 0: a rate needs time between two samples"));
        }
        let mut screen = match self.batch {
            true => None,
            false => Some(Screen::open()?),
        };
        let mut before = take()?;
        if let Some(screen) = &mut screen {
            screen.show("q quits; sampling …\n")?;
        }
        for shown in 0u64.. {
            if self.times.is_some_and(|times| shown >= times) {
                break;
            }
            let ended = match &mut screen {
                None => {
                    std::thread::sleep(self.every);
                    false
                }
                Some(screen) => screen.ended_within(self.every)?,
            };
            if ended {
                break;
            }
            let now = take()?;
            let text = text(&before, &now);
            match &mut screen {
                None => println!("{text}"),
                Some(screen) => screen.show(&text)?,
            }
            before = now;
        }
        Ok(())
    }
}
