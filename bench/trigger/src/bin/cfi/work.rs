//! System calls in the manner of LEBench (Ren and others, SOSP 2019): each returns the instructions of so many operations.

use std::fs::{File, OpenOptions};
use std::io::{Read, Write};
use std::os::fd::{AsRawFd, RawFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixStream;
use std::ptr;

use anyhow::{ensure, Context, Result};
use xk_bench_trigger::measure::counter;

const PAGE: usize = 4096;
/// Of a large operation.
const PAGES: usize = 64;
const FEW: usize = 10;
const MANY: usize = 500;

/// A benchmark: its name, operations per round, and what measures them.
pub type Row = (&'static str, usize, fn(usize) -> Result<u64>);

/// All of them.
pub const ROWS: [Row; 25] = [
    ("getpid", 500, getpid),
    ("context_switch", 50, context_switch),
    ("small_read", 200, |n| read(n, 1)),
    ("big_read", 50, |n| read(n, PAGES)),
    ("small_write", 200, |n| write(n, 1)),
    ("big_write", 50, |n| write(n, PAGES)),
    ("small_mmap", 100, |n| maps(n, 1, Part::Map)),
    ("big_mmap", 100, |n| maps(n, PAGES, Part::Map)),
    ("small_munmap", 100, |n| maps(n, 1, Part::Unmap)),
    ("big_munmap", 20, |n| maps(n, PAGES, Part::Unmap)),
    ("small_page_fault", 100, |n| maps(n, 1, Part::Fault)),
    ("big_page_fault", 20, |n| maps(n, PAGES, Part::Fault)),
    ("fork", 5, |n| fork(n, 0)),
    ("big_fork", 5, |n| fork(n, 16 * PAGES)),
    ("thread_create", 20, threads),
    ("small_send", 100, |n| socket(n, 1, true)),
    ("big_send", 20, |n| socket(n, 8 * PAGE, true)),
    ("small_recv", 100, |n| socket(n, 1, false)),
    ("big_recv", 20, |n| socket(n, 8 * PAGE, false)),
    ("small_select", 100, |n| select(n, FEW)),
    ("big_select", 20, |n| select(n, MANY)),
    ("small_poll", 100, |n| poll(n, FEW)),
    ("big_poll", 20, |n| poll(n, MANY)),
    ("small_epoll", 100, |n| epoll(n, FEW)),
    ("big_epoll", 50, |n| epoll(n, MANY)),
];

fn timed(work: impl FnOnce() -> Result<()>) -> Result<u64> {
    let before = counter();
    work()?;
    Ok(counter() - before)
}

fn getpid(number: usize) -> Result<u64> {
    timed(|| {
        for _ in 0..number {
            // SAFETY: it has no arguments.
            unsafe { libc::syscall(libc::SYS_getpid) };
        }
        Ok(())
    })
}

/// Ends, and waits for, a process that was forked.
struct Child(libc::pid_t);

impl Child {
    /// Forks; the child does `work`, and ends.
    fn new(work: impl FnOnce()) -> Result<Self> {
        // SAFETY: this process has one thread; the child only makes system calls.
        match unsafe { libc::fork() } {
            -1 => Err(std::io::Error::last_os_error()).context("fork"),
            0 => {
                work();
                // SAFETY: the child ends without the parent's destructors.
                unsafe { libc::_exit(0) }
            }
            child => Ok(Self(child)),
        }
    }

    fn wait(self) -> Result<()> {
        // SAFETY: the status is not wanted.
        let waited = unsafe { libc::waitpid(self.0, ptr::null_mut(), 0) };
        ensure!(waited == self.0, "waitpid: {}", std::io::Error::last_os_error());
        Ok(())
    }
}

/// There and back through a pair of sockets.
fn context_switch(number: usize) -> Result<u64> {
    let (mut here, mut there) = UnixStream::pair()?;
    let child = Child::new(|| {
        let mut byte = [0];
        // If the parent is gone, so is what to answer.
        _ = (0..number).try_for_each(|_| there.read_exact(&mut byte).and_then(|()| there.write_all(&byte)));
    })?;
    let mut byte = [1];
    let time = timed(|| {
        for _ in 0..number {
            here.write_all(&byte)?;
            here.read_exact(&mut byte)?;
        }
        Ok(())
    })?;
    child.wait()?;
    Ok(time)
}

/// A file in memory with the pages of a large operation.
fn file() -> Result<File> {
    let path = "/dev/shm/xk-bench-cfi";
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path).context(path)?;
    file.write_all_at(&[1; PAGE * PAGES], 0)?;
    Ok(file)
}

fn read(number: usize, pages: usize) -> Result<u64> {
    let (file, mut buffer) = (file()?, vec![0; pages * PAGE]);
    timed(|| (0..number).try_for_each(|_| file.read_exact_at(&mut buffer, 0)).map_err(Into::into))
}

fn write(number: usize, pages: usize) -> Result<u64> {
    let (file, buffer) = (file()?, vec![2; pages * PAGE]);
    timed(|| (0..number).try_for_each(|_| file.write_all_at(&buffer, 0)).map_err(Into::into))
}

/// What of a mapping is measured.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Part {
    Map,
    Fault,
    Unmap,
}

fn maps(number: usize, pages: usize, part: Part) -> Result<u64> {
    let mut all: Vec<*mut u8> = Vec::with_capacity(number);
    let map = timed(|| {
        for _ in 0..number {
            let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_PRIVATE | libc::MAP_ANONYMOUS);
            // SAFETY: new memory, anywhere.
            let at = unsafe { libc::mmap(ptr::null_mut(), pages * PAGE, access, kind, -1, 0) };
            ensure!(at != libc::MAP_FAILED, "mmap: {}", std::io::Error::last_os_error());
            all.push(at.cast());
        }
        Ok(())
    })?;
    let fault = timed(|| {
        for at in &all {
            for page in 0..pages {
                // SAFETY: within the mapping.
                unsafe { at.add(page * PAGE).write_volatile(1) };
            }
        }
        Ok(())
    })?;
    let unmap = timed(|| {
        for at in &all {
            // SAFETY: mapped above, and not used any longer.
            ensure!(unsafe { libc::munmap(at.cast(), pages * PAGE) } == 0, "munmap");
        }
        Ok(())
    })?;
    Ok(match part {
        Part::Map => map,
        Part::Fault => fault,
        Part::Unmap => unmap,
    })
}

fn fork(number: usize, pages: usize) -> Result<u64> {
    let held = vec![1u8; pages * PAGE];
    let time = timed(|| (0..number).try_for_each(|_| Child::new(|| {})?.wait()))?;
    ensure!(held.iter().step_by(PAGE).all(|byte| *byte == 1), "memory changed");
    Ok(time)
}

fn threads(number: usize) -> Result<u64> {
    timed(|| {
        for _ in 0..number {
            std::thread::spawn(|| {}).join().map_err(|_| anyhow::anyhow!("a thread failed"))?;
        }
        Ok(())
    })
}

/// Sends, or receives.
fn socket(number: usize, bytes: usize, sends: bool) -> Result<u64> {
    let (mut here, mut there) = UnixStream::pair()?;
    let mut buffer = vec![3; bytes];
    let mut total = 0;
    for _ in 0..number {
        let send = timed(|| Ok(here.write_all(&buffer)?))?;
        let receive = timed(|| Ok(there.read_exact(&mut buffer)?))?;
        total += if sends { send } else { receive };
    }
    Ok(total)
}

/// Sockets, the last of which can be read.
fn sockets(number: usize) -> Result<Vec<(UnixStream, UnixStream)>> {
    let mut all = (0..number).map(|_| UnixStream::pair()).collect::<std::io::Result<Vec<_>>>()?;
    all.last_mut().context("no socket")?.1.write_all(b"x")?;
    Ok(all)
}

fn fds(all: &[(UnixStream, UnixStream)]) -> Vec<RawFd> {
    all.iter().map(|(one, _)| one.as_raw_fd()).collect()
}

fn select(number: usize, sockets_: usize) -> Result<u64> {
    let all = sockets(sockets_)?;
    let (fds, mut ready) = (fds(&all), 0);
    // select() knows descriptors up to 1023 only.
    let below: Vec<RawFd> = fds.iter().copied().filter(|fd| *fd < libc::FD_SETSIZE as RawFd).collect();
    let most = below.iter().max().context("no descriptor")? + 1;
    let last = *below.last().context("no descriptor")?;
    let time = timed(|| {
        for _ in 0..number {
            // SAFETY: a set of bits; zeros are the empty one.
            let mut set: libc::fd_set = unsafe { std::mem::zeroed() };
            for fd in &below {
                // SAFETY: below FD_SETSIZE.
                unsafe { libc::FD_SET(*fd, &mut set) };
            }
            let mut none = libc::timeval { tv_sec: 0, tv_usec: 0 };
            // SAFETY: the set and the time are valid.
            ready += unsafe { libc::select(most, &mut set, ptr::null_mut(), ptr::null_mut(), &mut none) };
        }
        Ok(())
    })?;
    let wanted = if last == fds[fds.len() - 1] { number as i32 } else { 0 };
    ensure!(ready == wanted, "select: {ready} ready instead of {wanted}");
    Ok(time)
}

fn poll(number: usize, sockets_: usize) -> Result<u64> {
    let all = sockets(sockets_)?;
    let mut polled: Vec<libc::pollfd> =
        fds(&all).into_iter().map(|fd| libc::pollfd { fd, events: libc::POLLIN, revents: 0 }).collect();
    let mut ready = 0;
    let time = timed(|| {
        for _ in 0..number {
            // SAFETY: as many as it is told.
            ready += unsafe { libc::poll(polled.as_mut_ptr(), polled.len() as libc::nfds_t, 0) };
        }
        Ok(())
    })?;
    ensure!(ready == number as i32, "poll: {ready} ready");
    Ok(time)
}

fn epoll(number: usize, sockets_: usize) -> Result<u64> {
    let all = sockets(sockets_)?;
    // SAFETY: no arguments but flags.
    let epoll = unsafe { libc::epoll_create1(libc::EPOLL_CLOEXEC) };
    ensure!(epoll >= 0, "epoll: {}", std::io::Error::last_os_error());
    for fd in fds(&all) {
        let mut event = libc::epoll_event { events: libc::EPOLLIN as u32, u64: 0 };
        // SAFETY: the event is valid.
        ensure!(unsafe { libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, fd, &mut event) } == 0, "epoll_ctl");
    }
    let (mut events, mut ready) = ([libc::epoll_event { events: 0, u64: 0 }; 16], 0);
    let time = timed(|| {
        for _ in 0..number {
            // SAFETY: as many as it is told.
            ready += unsafe { libc::epoll_wait(epoll, events.as_mut_ptr(), 16, 0) };
        }
        Ok(())
    })?;
    // SAFETY: opened above, and not used any longer.
    unsafe { libc::close(epoll) };
    ensure!(ready == number as i32, "epoll: {ready} ready");
    Ok(time)
}
