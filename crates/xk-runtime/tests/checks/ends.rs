//! What ends a tune while somebody is inside: unloading, death of the owner, the
//! end of a lease, removal of a module.

use crate::*;

pub fn an_unload_waits_for_who_is_inside() {
    let tune = tuned("HOLD");
    let holder = Holder::new();
    let (_, _, report) = blocked(tune.go(Destination::Unload, Mode::Task, BRIEF));
    names(&report, holder.pid());
    let status = tune.status().unwrap();
    assert_eq!((outside(), status.value, status.state), (TUNED, TUNED, State::Stable));
    let (_, _, report) = blocked(tune.go(Destination::Unload, Mode::Global, BRIEF));
    names(&report, holder.pid());
    assert_eq!(holder.release(), [TUNED; 2]);
    tune.go(Destination::Unload, Mode::Task, LONG).unwrap();
    assert_eq!(outside(), DEFAULT);
    assert!(only_tune().is_none());
}

/// The process of [`own`], when its value is in force.
fn owner() -> Child {
    let child = Command::new(std::env::current_exe().unwrap())
        .args(["--ignored", "--exact", "own", "--nocapture"])
        .env("XK_TEST_OWN", "1")
        .stdout(Stdio::null())
        .spawn()
        .unwrap();
    wait_for("the owner's value", || outside() == TUNED);
    child
}

pub fn sigkill_of_the_owner_while_a_thread_is_inside() {
    let mut owner = owner();
    let holder = Holder::new();
    owner.kill().unwrap();
    owner.wait().unwrap();
    wait_for("the default is back for who is not inside", || outside() == DEFAULT);
    let status = only_tune().unwrap();
    assert_eq!((status.state, status.blocking), (State::Unloading, 1));
    names(&status.blockers, holder.pid());
    assert_eq!(holder.release(), [TUNED; 2]);
    wait_for("the tune is gone", || only_tune().is_none());
    assert_eq!(outside(), DEFAULT);
    // The original bytes are back, too.
    load("HOLD");
}

/// A tune of nobody.
fn detached() -> u32 {
    tuned("HOLD").detach().unwrap()
}

pub fn a_lease_ends() {
    let id = detached();
    let device = Device::open().unwrap();
    device.lease(id, Some(Duration::from_secs(600))).unwrap();
    assert!(only_tune().unwrap().lease.unwrap() > Duration::from_secs(60));
    assert_eq!(outside(), TUNED);
    device.lease(id, Some(BRIEF)).unwrap();
    wait_for("the lease is over", || only_tune().is_none());
    assert_eq!(outside(), DEFAULT);
    assert!(matches!(device.lease(id, None), Err(Error::NoSuchTune(gone)) if gone == id));
}

pub fn a_renewed_lease_lasts() {
    let id = detached();
    let device = Device::open().unwrap();
    for renewed in [Some(LONG), None] {
        device.lease(id, Some(Duration::from_secs(5))).unwrap();
        device.lease(id, renewed).unwrap();
        assert_eq!(only_tune().unwrap().lease.is_some(), renewed.is_some());
        std::thread::sleep(Duration::from_secs(6));
        assert_eq!(outside(), TUNED);
    }
    device.lease(id, Some(BRIEF)).unwrap();
    wait_for("the lease is over", || only_tune().is_none());
}

/// Also while the process that could have renewed it is there, and by who owns it.
pub fn a_lease_ends_after_its_process() {
    let id = detached();
    let mut process = Command::new("sh").args(["-c", "exec 3<>/dev/xk; sleep 600"]).spawn().unwrap();
    Device::open().unwrap().lease(id, Some(Duration::from_secs(1))).unwrap();
    process.kill().unwrap();
    process.wait().unwrap();
    wait_for("the lease is over", || only_tune().is_none());
    assert_eq!(outside(), DEFAULT);
    let tune = tuned("HOLD");
    assert!(matches!(Device::open().unwrap().lease(tune.id(), None), Err(Error::Owned(_))));
}

pub fn a_lease_that_ends_while_a_thread_is_inside() {
    for mode in [Mode::Task, Mode::Global] {
        let tune = load("HOLD");
        tune.go(Destination::Value(TUNED), mode, LONG).unwrap();
        let id = tune.detach().unwrap();
        let holder = Holder::new();
        Device::open().unwrap().lease(id, Some(BRIEF)).unwrap();
        wait_for("the lease is over", || state() == Some(State::Unloading));
        wait_for("it was looked at", || only_tune().is_some_and(|tune| tune.blocking == 1));
        names(&only_tune().unwrap().blockers, holder.pid());
        // In the mode in which it was set.
        assert_eq!(outside(), if mode == Mode::Task { DEFAULT } else { TUNED });
        assert_eq!(holder.release(), [TUNED; 2]);
        wait_for("the tune is gone", || only_tune().is_none());
        assert_eq!(outside(), DEFAULT);
    }
}

pub fn a_busy_module_can_be_removed() {
    let tune = load("BALANCE");
    Atomic.start(8, Atomic::mask(&["balance"])).unwrap();
    tune.go(Destination::Value(TUNED), Mode::Task, LONG).unwrap();
    assert!(run("rmmod", &["xk_atomic"]));
    let status = tune.status().unwrap();
    assert_eq!((status.state, status.broken, status.value), (State::Stable, false, TUNED));
    // With nobody there, nobody is waited for.
    assert_eq!(tune.go(Destination::Value(78), Mode::Global, BRIEF).unwrap().stops, 1);
    insmod(ATOMIC_KO);
    Atomic.start(8, Atomic::mask(&["balance"])).unwrap();
    let sites = || tune.status().unwrap().sites;
    wait_for("the sites are reached again", || sites().iter().all(|site| site.hits > 1000));
    tune.go(Destination::Value(79), Mode::Global, LONG).unwrap();
    tune.go(Destination::Unload, Mode::Task, LONG).unwrap();
    Atomic.stop().unwrap();
    assert_eq!(Atomic.counts().unwrap().violations(), 0);
}

pub fn xk_is_removed_when_threads_have_left() {
    detached();
    let holder = Holder::new();
    let mut removal = Command::new("rmmod").arg("xk").spawn().unwrap();
    wait_for("the default is on its way back", || !Path::new("/dev/xk").exists());
    std::thread::sleep(BRIEF);
    assert!(removal.try_wait().unwrap().is_none(), "a thread is inside");
    assert_eq!(holder.release(), [TUNED; 2]);
    assert!(removal.wait().unwrap().success());
    assert_eq!(outside(), DEFAULT);
    // Under load.
    insmod(XK_KO);
    let tune = load("RECURSE");
    Atomic.start(8, Atomic::mask(&["recurse"])).unwrap();
    tune.go(Destination::Value(TUNED), Mode::Task, LONG).unwrap();
    tune.detach().unwrap();
    assert!(run("rmmod", &["xk"]));
    Atomic.stop().unwrap();
    assert_eq!(Atomic.counts().unwrap().violations(), 0);
}
