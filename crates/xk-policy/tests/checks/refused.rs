//! What a policy may not do, and what is no policy.

use super::*;

pub fn an_outsider_cannot_set_a_value() {
    let decided = Decided::new("outsider", DEFAULT, Mode::Now);
    ask_for_time(1);
    let answer = decided.programs.map("answers").unwrap().lookup(&0u32.to_ne_bytes(), MapFlags::ANY).unwrap().unwrap();
    assert_eq!(answer, (-i64::from(libc::EPERM)).to_ne_bytes());
    assert_eq!(outside(), DEFAULT);
}

fn refused(name: &str) -> String {
    match Programs::load(&object(name)) {
        Err(error) => error.to_string(),
        Ok(programs) => {
            let device = Device::open().unwrap();
            let tune = load(&device, &described("HOLD"));
            let program = programs.program(&programs.entries()[0]).unwrap();
            let policy = Policy::for_each_site(program);
            let error = device.give_policy(tune.id(), &policy).expect_err(name);
            // It is the program that is at fault, not who brings it.
            assert!(matches!(error, xk_runtime::Error::Refused { errno: libc::EINVAL, .. }), "{error:?}");
            error.to_string()
        }
    }
}

pub fn nothing_is_written_by_any_route() {
    run("rmmod", &["xk_bench"]);
    contains(&refused("foreign_function"), &["xk_bench_set_ax()", "does not have"]);
    insmod(BENCH_KO);
    contains(&refused("foreign_function"), &["it calls xk_bench_set_ax of module xk_bench", "could write anything"]);
    contains(
        &refused("write_registers"),
        &["writes:", "verifier refuses it at ", "write_registers.bpf.c:6", "ctx->ax = 77"],
    );
    contains(&refused("write_memory"), &["write_memory.bpf.c:8", "task->pid = 77"]);
    contains(&refused("override_return"), &["bpf_override_return"]);
    contains(&refused("tail_call"), &["tail call"]);
    assert!(run("rmmod", &["xk_bench"]));
}

pub fn what_is_no_policy_is_refused() {
    contains(&refused("endless"), &["endless:", "verifier refuses it at ", "endless.bpf.c:"]);
    let device = Device::open().unwrap();
    let tune = load(&device, &described("HOLD"));
    let null = fs::File::open("/dev/null").unwrap();
    let programs = programs("done");
    let none = || Policy::for_each_site(std::os::fd::AsFd::as_fd(&null));
    let message = |policy: &Policy<'_>| device.give_policy(tune.id(), policy).unwrap_err().to_string();
    contains(&message(&none()), &["no BPF program of type kprobe"]);
    let program = programs.program(&programs.entries()[0]).unwrap();
    let null_link = vec![std::os::fd::AsFd::as_fd(&null)];
    contains(&message(&Policy { program, links: null_link, ..none() }), &["is no BPF link"]);
    // A link is known by what it does, not by a name.
    let path = std::env::temp_dir().join("bpf_link");
    let named = fs::File::create(&path).unwrap();
    let named_link = vec![std::os::fd::AsFd::as_fd(&named)];
    contains(&message(&Policy { program, links: named_link, ..none() }), &["is no BPF link"]);
    fs::remove_file(path).unwrap();
    let ours = fs::File::open("/dev/xk").unwrap();
    let own_device = vec![std::os::fd::AsFd::as_fd(&ours)];
    contains(&message(&Policy { program, links: own_device, ..none() }), &["is no BPF link"]);
    contains(&message(&Policy { program, scopes: vec![99], sites: vec![0], ..none() }), &["no scope 99"]);
    contains(&message(&Policy { program, scopes: vec![0], sites: vec![99], ..none() }), &["no site 99"]);
    contains(&message(&Policy { program, sites: vec![0], ..none() }), &["invalid number of scopes (0) or sites (1)"]);
    assert!(device.give_policy(tune.id() + 1, &Policy { program, ..none() }).is_err());
    assert!(device.policy_status(tune.id()).unwrap().is_none());
    assert!(tune.go(Destination::Policy(DEFAULT), Mode::Now, LONG).is_err());
    let Err(Error::Object(text)) = Programs::load(b"not an object") else { panic!("it was loaded") };
    contains(&text, &["not an object with policies"]);
}
