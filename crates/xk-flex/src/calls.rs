//! What helpers and functions of the kernel acquire and release.

/// Registers that a call overwrites: r0 to r5.
pub const HELPER: u16 = 0b11_1111;

/// `bpf_map_lookup_elem()`. In a map that holds sockets, it acquires one.
pub const LOOKUP: i32 = 1;

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
const HELPERS: [(i32, &str, Effect); 14] = [
    (LOOKUP, "bpf_map_lookup_elem", Effect::Nothing),
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
const KFUNCS: [(&str, Effect); 19] = [
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
    ("bpf_key_put", Effect::Release(1)),
    ("bpf_task_get_cgroup1", Effect::Acquire),
    ("bpf_list_push_front_impl", Effect::Release(2)),
    ("bpf_list_push_back_impl", Effect::Release(2)),
    ("bpf_rbtree_add_impl", Effect::Release(2)),
    ("bpf_rbtree_remove", Effect::Acquire),
    ("bpf_get_task_exe_file", Effect::Acquire),
    ("xk_stream_done", Effect::Release(1)),
];

/// What a releasing call is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Told {
    /// The reference.
    Reference,
    /// The address that the acquiring call was told in this register.
    Address(u8),
    /// Nothing.
    Nothing,
}

/// A call that releases.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Release {
    /// A helper.
    Helper(i32),
    /// A function of the kernel.
    Kfunc(String),
}

/// Functions of the kernel, and what releases what they acquire. Sources: the `KF_ACQUIRE` and `KF_RELEASE` functions
/// of kernel/bpf/helpers.c, cpumask.c, crypto.c, and fs/bpf_fs_kfuncs.c in 6.12; and kernel/xk/stream/stream.c here.
const RELEASES: [(&str, &str); 22] = [
    ("bpf_task_acquire", "bpf_task_release"),
    ("bpf_task_from_pid", "bpf_task_release"),
    ("bpf_task_from_vpid", "bpf_task_release"),
    ("bpf_cgroup_acquire", "bpf_cgroup_release"),
    ("bpf_cgroup_ancestor", "bpf_cgroup_release"),
    ("bpf_cgroup_from_id", "bpf_cgroup_release"),
    ("bpf_task_get_cgroup1", "bpf_cgroup_release"),
    ("bpf_cpumask_create", "bpf_cpumask_release"),
    ("bpf_cpumask_acquire", "bpf_cpumask_release"),
    ("bpf_crypto_ctx_create", "bpf_crypto_ctx_release"),
    ("bpf_crypto_ctx_acquire", "bpf_crypto_ctx_release"),
    ("bpf_get_task_exe_file", "bpf_put_file"),
    ("bpf_lookup_user_key", "bpf_key_put"),
    ("bpf_lookup_system_key", "bpf_key_put"),
    ("bpf_obj_new_impl", "bpf_obj_drop_impl"),
    ("bpf_percpu_obj_new_impl", "bpf_percpu_obj_drop_impl"),
    ("bpf_skb_ct_lookup", "bpf_ct_release"),
    ("bpf_xdp_ct_lookup", "bpf_ct_release"),
    ("xk_stream_acquire", "xk_stream_release"),
    ("bpf_rcu_read_lock", "bpf_rcu_read_unlock"),
    ("bpf_preempt_disable", "bpf_preempt_enable"),
    ("bpf_local_irq_save", "bpf_local_irq_restore"),
];

/// What releases what a helper acquires; nothing if it is not known, or not possible where a run is ended.
#[must_use]
pub fn helper_release(number: i32) -> Option<(Release, Told)> {
    match number {
        LOOKUP | 84 | 85 | 99 => Some((Release::Helper(86), Told::Reference)),
        131 => Some((Release::Helper(133), Told::Reference)),
        198 => Some((Release::Helper(200), Told::Address(4))),
        _ => None,
    }
}

/// What releases what a function of the kernel acquires; nothing as above.
#[must_use]
pub fn kfunc_release(name: &str) -> Option<(Release, Told)> {
    let name = plain(name);
    if let Some(kind) = name.strip_prefix("bpf_iter_").and_then(|name| name.strip_suffix("_new")) {
        return Some((Release::Kfunc(format!("bpf_iter_{kind}_destroy")), Told::Address(1)));
    }
    let (_, release) = RELEASES.iter().find(|(acquire, _)| *acquire == name)?;
    let told = match kfunc(name) {
        Effect::Acquire => Told::Reference,
        _ if name == "bpf_local_irq_save" => Told::Address(1),
        _ => Told::Nothing,
    };
    Some((Release::Kfunc((*release).to_owned()), told))
}

/// A name without the flavour that CO-RE allows.
#[must_use]
pub fn plain(name: &str) -> &str {
    name.split("___").next().unwrap_or(name)
}

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
    let name = plain(name);
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
