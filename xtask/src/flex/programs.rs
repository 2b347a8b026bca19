//! Programs that never end, and one that does.

use crate::inside::flex::Expected;

/// A program, as C.
#[derive(Debug)]
pub struct Program {
    /// Shape, what is held, and hook.
    pub name: String,
    /// The C source.
    pub source: String,
    /// It is attached; the kernel cannot run it by itself.
    pub attached: bool,
    /// It looks for the connection.
    pub finds_socket: bool,
    /// Why its runs end.
    pub expected: Expected,
    /// Locks that a run holds when it ends.
    pub locks: usize,
}

/// Where a program runs.
#[derive(Clone, Copy)]
struct Hook {
    name: &'static str,
    section: &'static str,
    context: &'static str,
    attached: bool,
    /// Kinds that its programs may hold.
    holds: &'static [&'static str],
}

const NETWORK: &[&str] =
    &["nothing", "socket", "record", "two", "rcu", "preemption", "iterator", "lock", "locks", "deadlock"];
const TRACING: &[&str] =
    &["nothing", "record", "rcu", "preemption", "iterator", "task", "mask", "object", "lock", "locks", "deadlock"];
const PROBES: &[&str] = &["nothing", "record", "lock", "locks", "deadlock"];

const HOOKS: [Hook; 5] = [
    Hook { name: "tc", section: "tc", context: "struct __sk_buff", attached: false, holds: NETWORK },
    Hook { name: "xdp", section: "xdp", context: "struct xdp_md", attached: false, holds: NETWORK },
    Hook { name: "fentry", section: "fentry/__x64_sys_getpgid", context: "__u64", attached: true, holds: TRACING },
    Hook {
        name: "kprobe",
        section: "kprobe/__x64_sys_getpgid",
        context: "struct pt_regs",
        attached: true,
        holds: PROBES,
    },
    Hook {
        name: "tracepoint",
        section: "tp/syscalls/sys_enter_getpgid",
        context: "void",
        attached: true,
        holds: PROBES,
    },
];

/// What is held: its name, declarations, what begins it, and what ends it.
const HELD: [(&str, &str, &str, &str); 13] = [
    ("nothing", "", "", ""),
    ("socket", SOCKET, "struct bpf_sock *sk = find(context);\n\tif (!sk)\n\t\treturn 1;", "bpf_sk_release(sk);"),
    (
        "record",
        RING,
        "__u64 *record = bpf_ringbuf_reserve(&ring, 64, 0);\n\tif (!record)\n\t\treturn 0;",
        "bpf_ringbuf_submit(record, 0);",
    ),
    (
        "two",
        "",
        "struct bpf_sock *sk = find(context);\n\t__u64 *record = bpf_ringbuf_reserve(&ring, 64, 0);\n\tif (record) {",
        "\tbpf_ringbuf_submit(record, 0);\n\t}\n\tif (sk)\n\t\tbpf_sk_release(sk);",
    ),
    (
        "rcu",
        "extern void bpf_rcu_read_lock(void) __ksym;\nextern void bpf_rcu_read_unlock(void) __ksym;\n",
        "bpf_rcu_read_lock();",
        "bpf_rcu_read_unlock();",
    ),
    (
        "preemption",
        "extern void bpf_preempt_disable(void) __ksym;\nextern void bpf_preempt_enable(void) __ksym;\n",
        "bpf_preempt_disable();",
        "bpf_preempt_enable();",
    ),
    (
        "iterator",
        "extern int bpf_iter_num_new(struct bpf_iter_num *it, int start, int end) __ksym;\n\
         extern int *bpf_iter_num_next(struct bpf_iter_num *it) __ksym;\n\
         extern void bpf_iter_num_destroy(struct bpf_iter_num *it) __ksym;\n",
        "struct bpf_iter_num it;\n\tbpf_iter_num_new(&it, 0, 9);\n\twhile (bpf_iter_num_next(&it)) {",
        "}\n\tbpf_iter_num_destroy(&it);",
    ),
    (
        "task",
        "extern struct task_struct *bpf_task_from_pid(s32 pid) __ksym;\n\
         extern void bpf_task_release(struct task_struct *task) __ksym;\n",
        "struct task_struct *task = bpf_task_from_pid(1);\n\tif (!task)\n\t\treturn 0;",
        "bpf_task_release(task);",
    ),
    (
        "mask",
        "extern struct bpf_cpumask *bpf_cpumask_create(void) __ksym;\n\
         extern void bpf_cpumask_release(struct bpf_cpumask *mask) __ksym;\n",
        "struct bpf_cpumask *mask = bpf_cpumask_create();\n\tif (!mask)\n\t\treturn 0;",
        "bpf_cpumask_release(mask);",
    ),
    (
        "object",
        "struct item {\n\t__u64 value;\n};\n\n\
         extern void *bpf_obj_new_impl(__u64 type, void *meta) __ksym;\n\
         extern void bpf_obj_drop_impl(void *object, void *meta) __ksym;\n",
        "struct item *item = bpf_obj_new_impl(bpf_core_type_id_local(struct item), NULL);\n\tif (!item)\n\t\treturn 0;",
        "bpf_obj_drop_impl(item, NULL);",
    ),
    ("lock", HEAP, LOCK, "xk_unlock(&held->first);"),
    ("locks", HEAP, LOCKS, "xk_read_unlock(&held->both);\n\txk_unlock(&held->second);\n\txk_unlock(&held->first);"),
    // It waits for itself, and does not come to its loop.
    ("deadlock", HEAP, DEADLOCK, "xk_unlock(&held->first);"),
];

/// Of objects that have locks.
const HEAP: &str = "#define HEAP\n#include \"flex/lock.h\"\n\nXK_HEAP(16384);\n\n\
    struct held {\n\tstruct xk_lock first, second;\n\tstruct xk_rwlock both;\n};\n\nstruct held __heap *held;\n";
const LOCK: &str =
    "if (!held)\n\t\theld = xk_calloc(1, sizeof(*held));\n\tif (!held)\n\t\treturn 0;\n\txk_lock(&held->first);";
const LOCKS: &str = "if (!held)\n\t\theld = xk_calloc(1, sizeof(*held));\n\tif (!held)\n\t\treturn 0;\n\t\
    xk_lock(&held->first);\n\txk_lock(&held->second);\n\txk_read_lock(&held->both);";
const DEADLOCK: &str = "if (!held)\n\t\theld = xk_calloc(1, sizeof(*held));\n\tif (!held)\n\t\treturn 0;\n\t\
    xk_lock(&held->first);\n\txk_lock(&held->first);";

const SOCKET: &str = "volatile struct bpf_sock_tuple connection;\n\n\
    static __always_inline struct bpf_sock *find(void *context)\n{\n\
    \tstruct bpf_sock_tuple tuple = {\n\
    \t\t.ipv4.saddr = connection.ipv4.saddr,\n\t\t.ipv4.daddr = connection.ipv4.daddr,\n\
    \t\t.ipv4.sport = connection.ipv4.sport,\n\t\t.ipv4.dport = connection.ipv4.dport,\n\t};\n\n\
    \treturn bpf_sk_lookup_tcp(context, &tuple, sizeof(tuple.ipv4), BPF_F_CURRENT_NETNS, 0);\n}\n";
const RING: &str =
    "struct {\n\t__uint(type, BPF_MAP_TYPE_RINGBUF);\n\t__uint(max_entries, 4096);\n} ring SEC(\".maps\");\n";

/// Endless loops: name, functions before the program, and statements. `never` is 0, so that an even number is never
/// `never - 1`.
const SHAPES: [(&str, &str, &str); 10] = [
    ("while", "", "while (at != never - 1)\n\t\tat += 2;"),
    ("do", "", "do {\n\t\tat += 2;\n\t\tif (at & 64)\n\t\t\tcontinue;\n\t\tat += 4;\n\t} while (at != never - 1);"),
    (
        "nested",
        "",
        "for (;;) {\n\t\t__u64 inner;\n\n\t\tfor (inner = never; inner < never + 9; inner++)\n\t\t\tat += 2;\n\
         \t\tif (at == never - 1)\n\t\t\tbreak;\n\t}",
    ),
    (
        "inner",
        "",
        "while (at != never - 1) {\n\t\tat += 2;\n\t\twhile (at != never - 1)\n\t\t\tat += 4;\n\t}",
    ),
    (
        "goto",
        "",
        "again:\n\tif (at & 2) {\n\t\tat += 2;\n\t\tgoto again;\n\t}\n\tat += 6;\n\tif (at != never - 1)\n\t\tgoto again;",
    ),
    (
        "slow",
        "",
        "while (at != never - 1) {\n\t\tat += 2;\n\t\tbpf_get_prandom_u32();\n\t\tat += bpf_ktime_get_ns() & 2;\n\t}",
    ),
    (
        "chase",
        "__u32 next[16] = { 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 0 };\n",
        "while (at != never + 99)\n\t\tat = next[at & 15];",
    ),
    (
        "subprogram",
        "static __noinline __u64 forever(__u64 at)\n{\n\twhile (at != never - 1)\n\t\tat += 2;\n\treturn at;\n}\n",
        "at += forever(never);",
    ),
    (
        "deep",
        "static __noinline __u64 innermost(__u64 at)\n{\n\t__u64 end = at + 40;\n\n\twhile (at < end)\n\t\tat += 2 - (never & 1);\n\
         \treturn at;\n}\n\n\
         static __noinline __u64 forever(__u64 at)\n{\n\twhile (at != never - 1)\n\t\tat = innermost(at);\n\treturn at;\n}\n",
        "at += forever(never);",
    ),
    // What is not there reads 0.
    (
        "fault",
        "#ifndef HEAP\n#include \"flex/base.h\"\n\nXK_HEAP(16384);\n#endif\n",
        "XK_USE_HEAP();\n\t\twhile (!*(volatile __u64 __heap *)(XK_HEAP_ADDRESS + (1000 << 16) + at))\n\t\t\tat = (at + 2) & 63;",
    ),
];

/// Every shape on every hook holding nothing, and every kind of thing that may be held there, with shapes in turn.
pub fn programs() -> Vec<Program> {
    let mut found = Vec::new();
    for hook in HOOKS {
        for shape in 0..SHAPES.len() {
            found.push(program(hook, shape, "nothing"));
        }
        for (number, held) in hook.holds.iter().skip(1).enumerate() {
            for shape in [number, number + 4, number + 7] {
                found.push(program(hook, shape % SHAPES.len(), held));
            }
        }
    }
    found
}

fn program(hook: Hook, shape: usize, held: &str) -> Program {
    let (shape, functions, statements) = SHAPES[shape];
    let (_, declarations, open, close) = HELD.iter().copied().find(|(name, ..)| *name == held).unwrap_or(HELD[0]);
    let declarations = if held == "two" { format!("{SOCKET}\n{RING}") } else { declarations.to_owned() };
    // Programs of fentry return 0.
    let returned = if hook.attached { "0" } else { "result & 1" };
    let body = format!("\t{open}\n\t{{\n\t{statements}\n\t}}\n\t{close}\n\tresult = at;\n\treturn {returned};");
    Program {
        name: format!("{}-{shape}-{held}", hook.name),
        source: source(hook.section, hook.context, &format!("{declarations}\n{functions}"), &body),
        attached: hook.attached,
        finds_socket: matches!(held, "socket" | "two"),
        expected: match (held, shape) {
            ("deadlock", _) => Expected::Deadlock,
            (_, "fault") => Expected::Fault,
            _ => Expected::Deadline,
        },
        locks: match held {
            "lock" => 1,
            // The one that it has, and the one for which it waits.
            "deadlock" => 2,
            "locks" => 3,
            _ => 0,
        },
    }
}

fn source(section: &str, context: &str, before: &str, body: &str) -> String {
    format!(
        "#include \"vmlinux.h\"\n#include <bpf/bpf_helpers.h>\n#include <bpf/bpf_core_read.h>\n#include \"xk_flex.bpf.h\"\n\n\
         char _license[] SEC(\"license\") = \"GPL\";\n\nvolatile __u64 never, result;\n\n{before}\n\
         SEC(\"{section}\")\nint program({context} *context)\n{{\n\t__u64 at = never;\n\n{body}\n}}\n"
    )
}

/// A program with loops that ends by itself.
pub fn correct() -> Program {
    let body = "\t__u64 end = at + 200, sum = 0, inner;\n\n\twhile (at < end) {\n\t\tat++;\n\
                \t\tfor (inner = never; inner < (at & 3); inner++)\n\t\t\tsum = (sum << 1) ^ inner;\n\t}\n\treturn sum == 200 ? 7 : 8;";
    Program {
        name: "correct".into(),
        source: source("tc", "struct __sk_buff", "", body),
        attached: false,
        finds_socket: false,
        expected: Expected::Deadline,
        locks: 0,
    }
}
