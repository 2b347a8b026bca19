//! What helpers and functions of the kernel acquire and release.

/// Registers that a call overwrites: r0 to r5.
pub const HELPER: u16 = 0b11_1111;

/// The effect of a call on what is held.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// None that is known.
    Nothing,
    /// r0 is a reference, or NULL.
    Acquire,
    /// The reference in this register is released.
    Release(u8),
    /// The reference in this register is given away, and r0 is another, or NULL.
    Exchange(u8),
    /// A lock or region of this kind begins.
    Enter(&'static str),
    /// One ends.
    Leave(&'static str),
}

/// Names of the helpers below, and their effects.
const HELPERS: [(i32, &str, Effect); 13] = [
    (84, "bpf_sk_lookup_tcp", Effect::Acquire),
    (85, "bpf_sk_lookup_udp", Effect::Acquire),
    (86, "bpf_sk_release", Effect::Release(1)),
    (93, "bpf_spin_lock", Effect::Enter("spin lock")),
    (94, "bpf_spin_unlock", Effect::Leave("spin lock")),
    (99, "bpf_skc_lookup_tcp", Effect::Acquire),
    (131, "bpf_ringbuf_reserve", Effect::Acquire),
    (132, "bpf_ringbuf_submit", Effect::Release(1)),
    (133, "bpf_ringbuf_discard", Effect::Release(1)),
    (194, "bpf_kptr_xchg", Effect::Exchange(2)),
    (198, "bpf_ringbuf_reserve_dynptr", Effect::Enter("ring buffer")),
    (199, "bpf_ringbuf_submit_dynptr", Effect::Leave("ring buffer")),
    (200, "bpf_ringbuf_discard_dynptr", Effect::Leave("ring buffer")),
];

/// Exact names of functions of the kernel.
const KFUNCS: [(&str, Effect); 16] = [
    ("bpf_rcu_read_lock", Effect::Enter("RCU")),
    ("bpf_rcu_read_unlock", Effect::Leave("RCU")),
    ("bpf_preempt_disable", Effect::Enter("preemption")),
    ("bpf_preempt_enable", Effect::Leave("preemption")),
    ("bpf_local_irq_save", Effect::Enter("interrupts")),
    ("bpf_local_irq_restore", Effect::Leave("interrupts")),
    ("bpf_res_spin_lock", Effect::Enter("spin lock")),
    ("bpf_res_spin_unlock", Effect::Leave("spin lock")),
    ("bpf_obj_drop_impl", Effect::Release(1)),
    ("bpf_percpu_obj_drop_impl", Effect::Release(1)),
    ("bpf_put_file", Effect::Release(1)),
    ("bpf_list_push_front_impl", Effect::Release(2)),
    ("bpf_list_push_back_impl", Effect::Release(2)),
    ("bpf_rbtree_add_impl", Effect::Release(2)),
    ("bpf_rbtree_remove", Effect::Acquire),
    ("bpf_get_task_exe_file", Effect::Acquire),
];

/// Parts of names of functions that return a reference.
const ACQUIRE: [&str; 10] = [
    "_acquire",
    "_from_pid",
    "_from_vpid",
    "_from_id",
    "_ancestor",
    "_create",
    "bpf_obj_new",
    "bpf_percpu_obj_new",
    "bpf_list_pop_",
    "bpf_lookup_",
];

/// The name of a helper that matters here.
#[must_use]
pub fn helper_name(number: i32) -> Option<&'static str> {
    HELPERS.iter().find(|(other, ..)| *other == number).map(|(_, name, _)| *name)
}

/// The effect of a helper.
#[must_use]
pub fn helper(number: i32) -> Effect {
    HELPERS.iter().find(|(other, ..)| *other == number).map_or(Effect::Nothing, |(.., effect)| effect.clone())
}

/// The effect of a function of the kernel. One that is not known has none: if it acquires something that is held in
/// a loop, the verifier refuses the object that is written.
#[must_use]
pub fn kfunc(name: &str) -> Effect {
    let name = name.split("___").next().unwrap_or(name);
    if let Some((_, effect)) = KFUNCS.iter().find(|(other, _)| *other == name) {
        return effect.clone();
    }
    match name {
        _ if name.starts_with("bpf_iter_") && name.ends_with("_new") => Effect::Enter("iterator"),
        _ if name.starts_with("bpf_iter_") && name.ends_with("_destroy") => Effect::Leave("iterator"),
        _ if name.ends_with("_release") => Effect::Release(1),
        _ if ACQUIRE.iter().any(|part| name.contains(part))
            || name.contains("_ct_lookup")
            || name.contains("_ct_alloc") =>
        {
            Effect::Acquire
        }
        _ => Effect::Nothing,
    }
}
