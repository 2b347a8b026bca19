//! `xk flex check`: whether a file can be rewritten. The kernel is not asked.

use xk_flex::Done;

use crate::exit::Result;
use crate::output::count;

/// Arguments of `xk flex check`.
#[derive(Debug, clap::Args)]
pub struct Args {
    #[command(flatten)]
    input: super::Input,
}

/// Rewrites the file in memory only.
pub fn run(args: &Args) -> Result {
    let loops = args.input.rewritten()?.loops;
    let instrumented = loops.iter().filter(|found| found.done == Done::Instrumented).count();
    println!(
        "{}, {instrumented} to instrument; the verifier decides when the object is loaded",
        count(loops.len(), "loop")
    );
    Ok(())
}
