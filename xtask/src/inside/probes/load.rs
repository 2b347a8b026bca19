//! Work for the kernel.

use std::process::{Command, Stdio};

use anyhow::{ensure, Context, Result};

/// Files, processes, pipes, signals, sockets, memory, timers, disks.
const PARTS: [(&str, &str); 10] = [
    ("files", "mkdir -p /tmp/load && tar -cf /tmp/load/etc.tar /etc 2>/dev/null; tar -xf /tmp/load/etc.tar -C /tmp/load"),
    ("list", "ls -lR /etc /sys/kernel/mm /proc/self >/tmp/load/list 2>/dev/null; sort -r /tmp/load/list | uniq -c | wc"),
    ("copy", "dd if=/dev/zero of=/tmp/load/zero bs=4k count=512 2>/dev/null; cat /tmp/load/zero | cat | md5sum"),
    ("proc", "cat /proc/*/stat /proc/*/status /proc/*/maps /proc/meminfo /proc/vmstat /proc/interrupts 2>/dev/null | wc"),
    ("forks", "i=0; while [ $i -lt 20 ]; do /bin/true & i=$((i+1)); done; wait"),
    ("signals", "i=0; while [ $i -lt 10 ]; do sleep 10 & kill -STOP $!; kill -CONT $!; kill $!; wait $!; i=$((i+1)); done; true"),
    ("timers", "sleep 0.01; sleep 0.02; timeout 0.05 sleep 1; nice -n 5 true"),
    ("python", "python3 -c \"$PROGRAM\""),
    ("memory", "mount -t tmpfs -o size=8m none /mnt && dd if=/dev/urandom of=/mnt/a bs=64k count=64 2>/dev/null; mv /mnt/a /mnt/b; rm /mnt/b; umount /mnt"),
    ("disk", "fio --name=x --filename=/tmp/load/fio --size=2m --rw=randrw --ioengine=psync --number_ios=200 --fsync=16 --minimal"),
];

/// Sockets, polling, threads, maps of memory, locks.
const PROGRAM: &str = r#"
import mmap, os, select, signal, socket, threading, time, fcntl, resource
def serve(s):
    c, _ = s.accept()
    while (d := c.recv(4096)):
        c.sendall(d)
    c.close()
for family, where in ((socket.AF_INET, ("127.0.0.1", 0)), (socket.AF_UNIX, "/tmp/load/socket")):
    s = socket.socket(family); s.bind(where); s.listen()
    t = threading.Thread(target=serve, args=(s,)); t.start()
    c = socket.socket(family); c.connect(s.getsockname())
    for n in (1, 100, 4000):
        c.sendall(b"x" * n); got = 0
        while got < n: got += len(c.recv(4096))
    c.close(); t.join(); s.close()
os.unlink("/tmp/load/socket")
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(("127.0.0.1", 0)); u.sendto(b"y", u.getsockname()); u.recv(9)
r, w = os.pipe(); e = select.epoll(); e.register(r, select.EPOLLIN); os.write(w, b"z"); e.poll(1); select.select([r], [w], [], 0); p = select.poll(); p.register(r); p.poll(0)
m = mmap.mmap(-1, 1 << 20); m[::4096] = b"m" * 256; m.close()
signal.signal(signal.SIGALRM, lambda *_: None); signal.setitimer(signal.ITIMER_REAL, 0.01); time.sleep(0.03)
f = open("/tmp/load/lock", "w"); fcntl.flock(f, fcntl.LOCK_EX); fcntl.lockf(f, fcntl.LOCK_EX); f.truncate(10000); f.close(); os.rename("/tmp/load/lock", "/tmp/load/other"); os.link("/tmp/load/other", "/tmp/load/link"); os.unlink("/tmp/load/link"); os.symlink("/x", "/tmp/load/s"); os.unlink("/tmp/load/s")
for _ in range(3):
    if (pid := os.fork()) == 0: os._exit(0)
    os.waitpid(pid, 0)
os.sched_yield(); resource.getrusage(0); os.sched_setaffinity(0, {0}); os.sync()
"#;

/// Executes all parts, one after the other.
///
/// # Errors
/// When one of them fails.
pub fn run_all() -> Result<()> {
    PARTS.iter().try_for_each(|(name, script)| run(name, script))
}

fn run(name: &str, script: &str) -> Result<()> {
    let mut shell = Command::new("sh");
    shell.args(["-c", script]).env("PROGRAM", PROGRAM).stdin(Stdio::null()).stdout(Stdio::null());
    let output = shell.stderr(Stdio::piped()).output().with_context(|| format!("load: {name}"))?;
    ensure!(output.status.success(), "load: {name}: {}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
