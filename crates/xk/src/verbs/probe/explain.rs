//! `xk probe explain`: an instruction, and how a probe would reach it.

use xk_probe::{Found, Place, Reach};

use crate::exit::{Failure, Result};
use crate::options::KernelArgs;
use crate::output::{count, print_json};

use super::{document, known};

/// Arguments of `xk probe explain`.
#[derive(Debug, clap::Args)]
pub struct Args {
    /// The instruction
    #[arg(value_name = "WHERE")]
    place: String,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
    #[command(flatten)]
    kernel: KernelArgs,
}

/// Explains it.
pub fn run(args: &Args) -> Result {
    let place = Place::parse(&args.place, None)?;
    let several = || Failure::usage(format!("{}: several instructions: `xk probe sites` lists them", args.place));
    if matches!(place, Place::Pattern { .. }) {
        return Err(several());
    }
    let (resolver, in_image) = known(&args.kernel, std::slice::from_ref(&place))?;
    let resolved = resolver.resolve(&place)?;
    let [found] = &resolved.found[..] else { return Err(several()) };
    if args.json {
        let mut document = document(found);
        document["running"] = in_image.is_none().into();
        document["after_endbr"] = found.after_endbr.into();
        print_json(document);
        return Ok(());
    }
    print!("{}", text(found, in_image.as_deref()));
    Ok(())
}

fn text(found: &Found, in_image: Option<&str>) -> String {
    let mut text = format!("{}\n", found.name());
    if found.after_endbr {
        text += "  endbr64       the function begins with it; the probe is at the instruction after it\n";
    }
    let where_ = in_image.map_or_else(String::new, |reason| format!(" in the image ({reason})"));
    text += &format!("  address       {:#x}{where_}\n", found.address);
    text += &format!("  instruction   {} ({})\n", found.text, count(found.length.into(), "byte"));
    text += &format!("  reached by    {}\n", way(found));
    text
}

/// How it is reached, in words.
fn way(found: &Found) -> String {
    let reason = found.no_jump().unwrap_or_default();
    match &found.reach {
        Reach::Jump(window) => {
            let lead = match window.lead {
                0 => String::new(),
                lead => format!(", which begin {} before it", count(lead.unsigned_abs().into(), "byte")),
            };
            let insns = count(window.insns.into(), "instruction");
            let padding = match window.padding {
                0 => String::new(),
                padding => format!(" and {} of padding", count(padding.into(), "byte")),
            };
            format!("a jump in place of {} ({insns}{padding}){lead}", count(window.len.into(), "byte"))
        }
        Reach::Short(window, hosts) => {
            let distance = hosts.first().map_or(0, |host| host.distance);
            let side = if distance < 0 { "before" } else { "after" };
            let bytes = count(distance.unsigned_abs().into(), "byte");
            format!(
                "a short jump in place of {}, to a jump in a window {bytes} {side} them",
                count(window.len.into(), "byte")
            )
        }
        Reach::Tracer(_) => format!("the function tracer; no jump: {reason}"),
        Reach::Kprobe(_) => format!("a kprobe; no jump: {reason}"),
        Reach::Nothing(_) => format!("nothing: {reason}"),
    }
}
