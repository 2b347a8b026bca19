//! The command `xk`: changes performance constants of the running kernel.
//!
//! In: the command line. Out: text for people, or JSON, and an exit code. Other crates do everything else.

mod exit;
mod extend;
mod failures;
#[cfg(test)]
mod fixture;
mod install;
mod notify;
mod options;
mod output;
mod progress;
mod recording;
mod scopes;
mod signals;
mod sites;
mod verbs;
mod ways;
mod words;

use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::Parser;

use exit::{Exit, Failure};
use verbs::Verb;

/// Change performance constants of a stock, running Linux kernel
#[derive(Debug, Parser)]
#[command(name = "xk", version, max_term_width = 100, after_help = CODES)]
struct Cli {
    #[command(subcommand)]
    verb: Verb,
}

const CODES: &str = "\
A NAME is a macro or variable (SHRINK_BATCH), a file and line (net/ipv4/tcp.c:1162), or a full ID
(block/blk.h:L335:32:0).

Exit codes: 0 done, 1 error, 2 wrong usage, 3 refused (not soundly possible, or a value that is
not accepted), 4 drift (another kernel, or altered code), 5 unsupported here (xk.ko missing, no BTF, ...),
6 blocked (by threads inside safe spans), 7 something would change (apply --dry-run).";

fn main() -> ExitCode {
    signals::end_on_closed_pipe();
    if xk_lift::BROKEN_RULE {
        eprintln!("error: this xk was built with the feature broken-rule, and its proofs are wrong: build it without this feature");
        return ExitCode::FAILURE;
    }
    recording::keep();
    let (json, result) = match Cli::try_parse() {
        Ok(cli) => {
            let (json, changes) = (cli.verb.json(), cli.verb.changes());
            let result = cli.verb.run();
            if let Some(failure) = result.as_ref().err().filter(|_| changes) {
                recording::refused(failure);
            }
            (json, result)
        }
        Err(error) if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) => {
            print!("{}", error.render());
            return ExitCode::SUCCESS;
        }
        Err(error) => {
            // clap's message begins with "error: ", which is printed below.
            let text = error.render().to_string();
            let text = text.trim_start_matches("error: ").trim_end();
            (std::env::args().any(|argument| argument == "--json"), Err(Failure::usage(text)))
        }
    };
    let Err(failure) = result else { return ExitCode::SUCCESS };
    if failure.message.is_empty() {
        // Told already.
    } else if json {
        println!("{:#}", failure.json());
    } else {
        let word = match failure.exit {
            Exit::Error | Exit::Usage => "error",
            exit => exit.word(),
        };
        eprintln!("{} {}", output::Paint::stderr().bad(&format!("{word}:")), failure.message);
    }
    ExitCode::from(failure.exit as u8)
}
