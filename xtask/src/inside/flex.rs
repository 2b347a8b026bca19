//! Runs that are ended: each program of a folder is run again and again, and what the kernel says afterwards is compared
//! with what it said before.

use std::fs;
use std::net::{SocketAddr, SocketAddrV4, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{bail, ensure, Context, Result};
use libbpf_rs::{MapCore, MapFlags, Object, ObjectBuilder, ProgramInput, ProgramMut, RingBufferBuilder};
use serde::{Deserialize, Serialize};
use xk_flex::{attach, take_ended, Control, Ended, Heap, Limits, Why};

const DEADLINE: Duration = Duration::from_millis(2);
/// Pages of a heap, if there is one.
const HEAP: Limits = Limits { most: 1 << 22, ready: 1 << 22 };
/// What the kernel runs without an event, it runs with this packet.
const PACKET: [u8; 64] = [0; 64];

/// Arguments of `inside flex`.
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// The folder with the objects
    #[arg(long)]
    folder: PathBuf,
    /// Runs of each
    #[arg(long)]
    runs: u32,
    /// Runs of the program that ends
    #[arg(long)]
    correct: u32,
    /// Runs have no deadline
    #[arg(long)]
    broken: bool,
}

/// A program, as the guest finds it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Prepared {
    /// Shape, what is held, and hook.
    pub name: String,
    /// Where it is attached; nothing if the kernel can run it by itself.
    pub attached: bool,
    /// It needs the connection.
    pub finds_socket: bool,
    /// Why its runs end.
    pub expected: Expected,
    /// Locks that a run holds when it ends.
    pub locks: usize,
    /// Where the connection is in the variables.
    pub connection: usize,
}

/// Why a run ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Expected {
    /// Its deadline.
    Deadline,
    /// Its deadline, when it waits for itself.
    Deadlock,
    /// It accesses the heap where no page is.
    Fault,
}

impl Expected {
    /// Whether the report of a run says that.
    fn is(self, ended: &Ended) -> bool {
        let is_deadlock = ended.locks.is_some_and(|locks| locks.is_deadlock());
        match self {
            Self::Deadline => ended.why == Why::Deadline && !is_deadlock,
            Self::Deadlock => ended.why == Why::Deadline && is_deadlock,
            Self::Fault => ended.why == Why::Fault && ended.fault.is_some(),
        }
    }
}

/// What became of the runs of a program.
#[derive(Debug, Default, Serialize, Deserialize)]
pub struct Cancelled {
    /// Its name.
    pub name: String,
    /// Runs that ended as expected.
    pub ended: u32,
    /// What else happened.
    pub fault: String,
    /// References that were held before and are held after all runs, as the kernel counts them.
    pub left: i64,
    /// Nanoseconds of the guest from the deadline to the end of each run.
    pub late_ns: Vec<i64>,
}

/// All programs.
#[derive(Debug, Serialize, Deserialize)]
pub struct Report {
    /// Those that do not end.
    pub programs: Vec<Cancelled>,
    /// Runs of the one that does,
    pub correct_runs: u32,
    /// and how many of them were ended.
    pub correct_cancelled: usize,
}

/// Runs them.
///
/// # Errors
/// When one cannot be loaded.
pub fn run(arguments: &Arguments) -> Result<Report> {
    ensure!(Command::new("ip").args(["link", "set", "lo", "up"]).status()?.success(), "lo is not up");
    let all: Vec<Prepared> = serde_json::from_slice(&fs::read(arguments.folder.join("programs.json"))?)?;
    let connection = Connection::new()?;
    let mut programs = Vec::new();
    for prepared in &all {
        programs.push(cancel(arguments, prepared, &connection).unwrap_or_else(|error| Cancelled {
            name: prepared.name.clone(),
            fault: format!("{error:#}"),
            ..Cancelled::default()
        }));
    }
    let object = load(&arguments.folder, "correct")?;
    Control::default().tell(&object)?;
    let input = ProgramInput { data_in: Some(&PACKET), repeat: arguments.correct, ..ProgramInput::default() };
    let returned = program(&object)?.test_run(input)?.return_value;
    ensure!(matches!(returned, 7 | 8), "the program that ends returned {returned}");
    Ok(Report { programs, correct_runs: arguments.correct, correct_cancelled: take_ended(&object)?.len() })
}

fn load(folder: &Path, name: &str) -> Result<Object> {
    let bytes = fs::read(folder.join(format!("{name}.bpf.o")))?;
    let (loaded, said) = xk_policy::listening(|| {
        let open = ObjectBuilder::default().open_memory(&bytes)?;
        open.load()
    });
    loaded.map_err(|error| if said.is_empty() { error.into() } else { xk_policy::explain(&said).into() })
}

fn program(object: &Object) -> Result<ProgramMut<'_>> {
    object.progs_mut().find(|program| program.name() == "program").context("the object has no program")
}

fn cancel(arguments: &Arguments, prepared: &Prepared, connection: &Connection) -> Result<Cancelled> {
    let object = load(&arguments.folder, &prepared.name)?;
    let deadline = if arguments.broken { None } else { Some(DEADLINE) };
    Control { deadline, ..Control::default() }.tell(&object)?;
    if prepared.finds_socket {
        connection.tell(&object, prepared.connection)?;
    }
    let mut done = Cancelled { name: prepared.name.clone(), ..Cancelled::default() };
    let _heap = Heap::of(&object, HEAP)?;
    let before = connection.holders()?;
    // A program that the kernel runs by itself is not attached; what counts faults is.
    let counts = object.progs_mut().find(|program| program.name() == "xk_heap_fault" && !prepared.attached);
    let _counts = counts.map(|program| program.attach()).transpose()?;
    let links = if prepared.attached { attach(&object, None)? } else { Vec::new() };
    for _ in 0..arguments.runs {
        let start = Instant::now();
        if prepared.attached {
            rustix::process::getpgid(None)?;
        } else {
            let returned =
                program(&object)?.test_run(ProgramInput { data_in: Some(&PACKET), ..ProgramInput::default() })?;
            if returned.return_value != 0 {
                done.fault = format!("a run returned {}", returned.return_value);
            }
        }
        let took = start.elapsed();
        match take_ended(&object)?[..] {
            [ended] if prepared.expected.is(&ended) => {
                done.ended += 1;
                // A lock that an earlier run kept would be waited for.
                let given = ended.locks.map_or(0, |locks| locks.released().len());
                if given != prepared.locks {
                    done.fault = format!("a run gave back {given} locks instead of {}", prepared.locks);
                }
                if prepared.expected != Expected::Fault {
                    done.late_ns.push(i64::try_from(took.as_nanos())? - i64::try_from(DEADLINE.as_nanos())?);
                }
            }
            [ended] => done.fault = format!("a run was ended by {}: {ended:?}", ended.why),
            ref other => done.fault = format!("{} runs were ended where one was expected", other.len()),
        }
        drain(&object)?;
    }
    drop(links);
    done.left = connection.holders()? - before;
    Ok(done)
}

/// Makes room in the ring buffer of a program: a record that is still held blocks it.
fn drain(object: &Object) -> Result<()> {
    let Some(ring) = object.maps().find(|map| map.name() == "ring") else { return Ok(()) };
    let mut builder = RingBufferBuilder::new();
    builder.add(&ring, |_| 0)?;
    builder.build()?.consume()?;
    Ok(())
}

/// A TCP connection in this guest.
struct Connection {
    local: SocketAddrV4,
    peer: SocketAddrV4,
    _open: [TcpStream; 2],
}

impl Connection {
    fn new() -> Result<Self> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let client = TcpStream::connect(listener.local_addr()?)?;
        let (server, peer) = listener.accept()?;
        match (server.local_addr()?, peer) {
            (SocketAddr::V4(local), SocketAddr::V4(peer)) => Ok(Self { local, peer, _open: [client, server] }),
            other => bail!("{other:?} are no addresses of IPv4"),
        }
    }

    /// Tells the programs which it is.
    fn tell(&self, object: &Object, at: usize) -> Result<()> {
        let map = object.maps().find(|map| map.name().to_string_lossy().ends_with(".bss"));
        let map = map.context("the object has no variables")?;
        let mut value = map.lookup(&0_u32.to_ne_bytes(), MapFlags::ANY)?.context("the map is empty")?;
        let addresses = [self.peer.ip().octets(), self.local.ip().octets()].concat();
        let ports = [self.peer.port().to_be_bytes(), self.local.port().to_be_bytes()].concat();
        let tuple = [addresses, ports].concat();
        value.get_mut(at..at + tuple.len()).context("the variable is outside")?.copy_from_slice(&tuple);
        Ok(map.update(&0_u32.to_ne_bytes(), &value, MapFlags::ANY)?)
    }

    /// How many hold its socket, as the kernel says.
    fn holders(&self) -> Result<i64> {
        let hex =
            |address: SocketAddrV4| format!("{:08X}:{:04X}", u32::from_ne_bytes(address.ip().octets()), address.port());
        let (table, pair) = (fs::read_to_string("/proc/net/tcp")?, format!("{} {}", hex(self.local), hex(self.peer)));
        let line = table.lines().find(|line| line.contains(&pair)).context("the connection is gone")?;
        // Its number, two addresses, state, queues, timer, retransmissions, user, timeouts, inode, holders.
        line.split_whitespace().nth(10).context("no number of holders")?.parse().context("holders")
    }
}
