//! What one execution costs: the extra instructions of a one-byte write to `/dev/null`, by what
//! runs in it.

use std::collections::BTreeMap;
use std::path::Path;
use std::thread::sleep;
use std::time::Duration;

use anyhow::{bail, ensure, Context, Result};
use serde::Serialize;
use xk_bench_trigger::measure::{Writer, ROUNDS, WRITES};
use xk_bench_trigger::tracer::{counting, Attachment, Program};
use xk_kernel::Image;
use xk_runtime::{Device, ProbePlace, ReachedBy};

use crate::places::{Kind, Place, Places};

/// First bytes of instructions.
const JUMP: u8 = 0xe9;
const INT3: u8 = 0xcc;
/// The kernel's optimiser works in the background, some milliseconds later.
const POLL: Duration = Duration::from_millis(50);
const OPTIMISED_WITHIN: u32 = 100;
/// A breakpoint is one if it still is after this many polls.
const STILL_BREAKPOINT: u32 = 20;

/// At an instruction where a kprobe is a jump, and where it is one of two kinds of breakpoints.
#[derive(Debug, Serialize)]
pub struct Three {
    jump: f64,
    emulated: f64,
    stepped: f64,
}

/// Extra instructions per write.
#[derive(Debug, Serialize)]
pub struct Costs {
    /// Counts, without a program.
    probe_count: Three,
    probe_empty: Three,
    /// At the beginning of the function's body, as all that follow but the last.
    probe_reads_args: f64,
    probe_map_counter: f64,
    fentry_empty: f64,
    fentry_map_counter: f64,
    kprobe_multi_empty: f64,
    perf_kprobe_empty: Three,
    /// The probed instructions.
    places: BTreeMap<&'static str, String>,
    /// Writes that each probe was reached by; all that were made.
    checked_writes: u64,
}

/// Writes of one measurement.
fn all_writes() -> u64 {
    u64::from(WRITES) * ROUNDS as u64
}

/// What measures.
pub struct Bench<'a> {
    writer: &'a Writer,
    device: &'a Device,
    objects: &'a Path,
    function: &'a str,
    /// The running kernel.
    image: Image,
    baseline: f64,
    jump: &'a Place,
    emulated: &'a Place,
    stepped: &'a Place,
    body: &'a Place,
}

impl<'a> Bench<'a> {
    /// Chooses instructions that every write executes once.
    ///
    /// # Errors
    /// When the function has none of a kind, or the kernel takes no probes.
    pub fn new(
        writer: &'a Writer,
        device: &'a Device,
        objects: &'a Path,
        places: &'a Places,
        baseline: f64,
    ) -> Result<Self> {
        let executed = executed(writer, device, &places.all)?;
        let first = |kind: Option<Kind>| {
            let found = executed.iter().find(|place| kind.is_none_or(|kind| place.kind == kind));
            found.copied().with_context(|| format!("no instruction of kind {kind:?} is executed by every write"))
        };
        Ok(Self {
            writer,
            device,
            objects,
            function: &places.function,
            image: Image::live()?,
            baseline,
            jump: first(Some(Kind::Jump))?,
            emulated: first(Some(Kind::Emulated))?,
            stepped: first(Some(Kind::Stepped))?,
            body: first(None)?,
        })
    }

    /// Everything.
    ///
    /// # Errors
    /// When a mechanism did not run, or another one did.
    pub fn costs(&self) -> Result<Costs> {
        let costs = Costs {
            probe_count: self.three(|place| self.ours(None, place))?,
            probe_empty: self.three(|place| self.ours(Some("empty"), place))?,
            probe_reads_args: self.ours(Some("args"), self.body)?,
            probe_map_counter: self.ours(Some("counter"), self.body)?,
            fentry_empty: self.by_itself("fentry")?,
            fentry_map_counter: self.by_itself("fentry_counter")?,
            kprobe_multi_empty: self.by_itself("multi")?,
            perf_kprobe_empty: self.three(|place| self.perf("empty", place))?,
            places: BTreeMap::from([
                ("jump", self.named(self.jump)),
                ("emulated", self.named(self.emulated)),
                ("stepped", self.named(self.stepped)),
                ("body", self.named(self.body)),
            ]),
            checked_writes: all_writes(),
        };
        // Both are breakpoints. What is stepped has another exception, after its copy.
        let Three { emulated, stepped, .. } = costs.perf_kprobe_empty;
        ensure!(
            stepped > emulated + 100.0,
            "a kprobe that is stepped costs {stepped}, one that is emulated {emulated}"
        );
        Ok(costs)
    }

    fn three(&self, measure: impl Fn(&Place) -> Result<f64>) -> Result<Three> {
        Ok(Three { jump: measure(self.jump)?, emulated: measure(self.emulated)?, stepped: measure(self.stepped)? })
    }

    fn named(&self, place: &Place) -> String {
        format!("{}+{:#x}: {}", self.function, place.offset, place.text)
    }

    fn program(&self, object: &str) -> Result<Program> {
        Program::load(&self.objects.join(format!("{object}.bpf.o")))
    }

    /// A probe of xk.ko.
    fn ours(&self, object: Option<&str>, place: &Place) -> Result<f64> {
        let program = object.map(|object| self.program(object)).transpose()?;
        let fd = program.as_ref().map(Program::fd).transpose()?;
        let id = self.device.attach_probes("bench", fd, &[place.probe], true)?.id;
        let count = || -> Result<[u64; 2]> {
            let known = self.device.probes()?.into_iter().find(|known| known.id == id).context("it is gone")?;
            ensure!(known.jumps == 1, "the probe is no jump");
            Ok([known.hits, known.skipped])
        };
        let before = count()?;
        let cost = self.writer.median()? - self.baseline;
        let after = count()?;
        ensure!(
            after[0] - before[0] == all_writes() && after[1] == before[1],
            "{} hits, {} skipped for {} writes",
            after[0] - before[0],
            after[1] - before[1],
            all_writes()
        );
        if let Some(program) = &program {
            let before = program.runs()?;
            // Asked while it counts: to stop counting is a write.
            let ran = counting(|| self.writer.median().and_then(|_| program.runs()))? - before;
            ensure!(ran == all_writes(), "the program ran {ran} times for {} writes", all_writes());
        }
        self.device.detach_probes(id)?;
        Ok(cost)
    }

    /// A program that knows its function.
    fn by_itself(&self, object: &str) -> Result<f64> {
        let program = self.program(object)?;
        let attachment = program.attach_by_section().with_context(|| object.to_owned())?;
        self.attached(&attachment)
    }

    /// An eBPF kprobe through perf.
    fn perf(&self, object: &str, place: &Place) -> Result<f64> {
        let program = self.program(object)?;
        let attachment = program.attach(self.function, place.offset)?;
        let jump = place.kind == Kind::Jump;
        self.wait_for_kind(place, jump)?;
        let cost = self.attached(&attachment)?;
        ensure!(self.is_jump(place)? == jump, "the kernel changed the probe while it was measured");
        Ok(cost)
    }

    fn attached(&self, attachment: &Attachment<'_>) -> Result<f64> {
        let cost = self.writer.median()? - self.baseline;
        let runs = attachment.count(|| self.writer.median().map(drop))?;
        ensure!(runs == all_writes(), "the program ran {runs} times for {} writes", all_writes());
        Ok(cost)
    }

    /// Waits until the kprobe is a jump, or long enough to know that it stays a breakpoint. The list of kprobes is of no
    /// help: it calls a kprobe optimised as soon as it is to become a jump.
    fn wait_for_kind(&self, place: &Place, jump: bool) -> Result<()> {
        for _ in 0..if jump { OPTIMISED_WITHIN } else { STILL_BREAKPOINT } {
            sleep(POLL);
            match (jump, self.is_jump(place)?) {
                (true, true) => return Ok(()),
                (false, true) => bail!("the kprobe became a jump where a breakpoint was to be measured"),
                _ => {}
            }
        }
        ensure!(!jump, "the kprobe is still a breakpoint where a jump was to be measured");
        Ok(())
    }

    /// By the running text: a jump, or else a breakpoint.
    fn is_jump(&self, place: &Place) -> Result<bool> {
        match self.image.read(place.probe.address, 1)?[..] {
            [JUMP] => Ok(true),
            [INT3] => Ok(false),
            ref other => bail!("{} begins with {other:x?}", self.named(place)),
        }
    }
}

/// The instructions that every write executes once, and that a jump reaches.
fn executed<'a>(writer: &Writer, device: &Device, all: &'a [Place]) -> Result<Vec<&'a Place>> {
    let probes: Vec<ProbePlace> = all.iter().map(|place| place.probe).collect();
    let id = device.attach_probes("choose", None, &probes, false)?.id;
    let before = device.probe_places(id)?;
    writer.median()?;
    let after = device.probe_places(id)?;
    device.detach_probes(id)?;
    let mut found = Vec::new();
    for place in all {
        let at = |known: &&xk_runtime::PlaceStatus| known.address == place.probe.address;
        let (before, after) = before.iter().find(at).zip(after.iter().find(at)).context("a place is gone")?;
        if after.by == ReachedBy::Jump && after.hits - before.hits == all_writes() {
            found.push(place);
        }
    }
    Ok(found)
}
