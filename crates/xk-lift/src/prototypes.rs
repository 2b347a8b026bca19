//! How many registers a call passes, from the deployed kernel's BTF.
//!
//! In: the bytes of a `.BTF` section. Out: for each function name the number of
//! argument registers. Left out, so that nothing is assumed: functions with
//! several different prototypes, variadic ones, and those that take a structure
//! or a 128-bit integer by value. Format: Documentation/bpf/btf.rst.

mod format;

pub use format::conversions;

use std::collections::{HashMap, HashSet};
use std::hash::Hash;
use std::sync::Arc;

/// What calls pass, by function name.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Prototypes {
    /// To what the BTF of modules refers.
    base: Arc<Base>,
    functions: HashMap<String, Known>,
    /// Names that several functions have: BTF may describe any of them.
    ambiguous: HashSet<String>,
    /// How many arguments the entries of `pv_ops` take, by their offset.
    paravirtual: HashMap<u32, usize>,
}

/// What BTF says of the functions of one name.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Known {
    passed: Passed,
    /// Width of the result in bits, 0 if there is none; `None` when it may need more than
    /// one register, or functions differ.
    result: Option<u8>,
}

/// What a call passes in registers.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Passed {
    /// Arguments of these widths.
    Exactly(Vec<u8>),
    /// This many and more: a variadic function.
    AtLeast(usize),
    /// Not certain.
    Unknown,
}

/// What a function takes and returns, each in one register at most. The bits above the
/// width are not defined (System V ABI, 3.2.3); of an argument 32 are at least, since
/// callers extend narrower ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Signature {
    /// Width of each argument in bits, also of those on the stack.
    pub arguments: Vec<u8>,
    /// Width of the result in bits; 0 if there is none.
    pub result: u8,
}

const INT: u32 = 1;
const POINTER: u32 = 2;
const STRUCT: u32 = 4;
const UNION: u32 = 5;
const ENUM: u32 = 6;
const FUNC: u32 = 12;
const FUNC_PROTO: u32 = 13;
const ENUM64: u32 = 19;

/// The types of vmlinux: those of a module are numbered after them.
#[derive(Debug, Default, PartialEq, Eq)]
struct Base {
    types: Vec<Type>,
    strings: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Type {
    name: u32,
    kind: u32,
    vlen: usize,
    /// Size, or the type that it refers to.
    size: u32,
    /// Offset of what follows.
    extra: usize,
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(data.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Bytes after a type of this kind.
fn extra_len(kind: u32, vlen: usize) -> Option<usize> {
    Some(match kind {
        2 | 7..=12 | 16 | 18 => 0,
        INT | 14 | 17 => 4,
        3 => 12,
        STRUCT | UNION | 15 | 19 => 12 * vlen,
        6 | FUNC_PROTO => 8 * vlen,
        _ => return None,
    })
}

impl Prototypes {
    /// The same, where the functions called `names` are several: nothing is assumed of them.
    #[must_use]
    pub fn without(mut self, names: impl IntoIterator<Item = String>) -> Self {
        self.ambiguous.extend(names);
        self
    }

    fn known(&self, function: &str) -> Option<&Known> {
        self.functions.get(function).filter(|_| !self.ambiguous.contains(function))
    }

    /// What `function` takes and returns, if that is certain.
    #[must_use]
    pub fn signature(&self, function: &str) -> Option<Signature> {
        // A tracepoint's static call goes to what its iterator would call
        // (include/linux/tracepoint.h, DECLARE_TRACE); the first argument of
        // both is the private data.
        if let Some(event) = function.strip_prefix("__SCT__tp_func_") {
            return self.signature(&format!("__traceiter_{event}"));
        }
        // include/linux/kernel.h, sched.h: static calls of __cond_resched().
        let function = match function {
            "__SCT__cond_resched" | "__SCT__might_resched" => "__cond_resched",
            other => other,
        };
        match self.known(function)? {
            Known { passed: Passed::Exactly(arguments), result: Some(result) } => {
                Some(Signature { arguments: arguments.clone(), result: *result })
            }
            _ => None,
        }
    }

    /// How many registers a call of `function` passes, if that is certain.
    #[must_use]
    pub fn arguments(&self, function: &str) -> Option<usize> {
        self.signature(function).map(|signature| signature.arguments.len().min(6))
    }

    /// How many arguments the variadic `function` names before the others.
    #[must_use]
    pub fn variadic(&self, function: &str) -> Option<usize> {
        match self.known(function)?.passed {
            Passed::AtLeast(count) => Some(count),
            _ => None,
        }
    }

    /// How many arguments the function takes to which `pv_ops` refers at `offset`
    /// (arch/x86/include/asm/paravirt_types.h).
    #[must_use]
    pub fn paravirtual(&self, offset: u32) -> Option<usize> {
        self.paravirtual.get(&offset).copied()
    }

    /// Whether `function` is a C function of the kernel, so that the calling
    /// convention holds for it.
    #[must_use]
    pub fn is_function(&self, function: &str) -> bool {
        self.known(function).is_some()
    }

    /// The width of the result of `function` in bits, 0 if it has none, if that is certain.
    #[must_use]
    pub fn result(&self, function: &str) -> Option<u8> {
        self.known(function)?.result
    }

    /// Whether it is certain that the result of `function` is in rax alone.
    #[must_use]
    pub fn returns_in_rax(&self, function: &str) -> bool {
        self.result(function).is_some()
    }

    /// Whether it is certain that `function` has no result.
    #[must_use]
    pub fn returns_nothing(&self, function: &str) -> bool {
        self.result(function) == Some(0)
    }

    /// Reads a `.BTF` section; what is damaged is left out.
    #[must_use]
    pub fn of_btf(data: &[u8]) -> Self {
        Self::default().parse(data).unwrap_or_default()
    }

    /// The same with the functions of a module, whose `.BTF` section refers to
    /// that of vmlinux.
    #[must_use]
    pub fn with_module(&self, data: &[u8]) -> Self {
        if self.base.types.is_empty() {
            return self.clone();
        }
        self.parse(data).unwrap_or_else(|| self.clone())
    }

    fn parse(&self, data: &[u8]) -> Option<Self> {
        if data.get(..2)? != [0x9f, 0xeb] {
            return None;
        }
        let header = word(data, 4)? as usize;
        let section = |at: usize| Some((header.checked_add(word(data, at)? as usize)?, word(data, at + 4)? as usize));
        let ((types_at, types_len), (strings_at, strings_len)) = (section(8)?, section(16)?);
        let strings = data.get(strings_at..strings_at.checked_add(strings_len)?)?;
        let own = read_types(data, types_at, types_at.checked_add(types_len)?)?;
        // Type 0 is void.
        let void = Type { name: 0, kind: 0, vlen: 0, size: 0, extra: 0 };
        let first = if self.base.types.is_empty() { vec![void] } else { self.base.types.clone() };
        let count = first.len();
        let types: Vec<Type> = first.into_iter().chain(own).collect();
        let mut found = self.clone();
        for function in types[count..].iter().filter(|t| t.kind == FUNC) {
            let at = function.name as usize;
            let rest = match at.checked_sub(self.base.strings.len()) {
                Some(own) => strings.get(own..)?,
                None => self.base.strings.get(at..)?,
            };
            let end = rest.iter().position(|&b| b == 0)?;
            let name = String::from_utf8_lossy(&rest[..end]).into_owned();
            // The parameters of a prototype of vmlinux are not in this section.
            let passed = Some(function.size).filter(|&id| id as usize >= count || self.base.types.is_empty());
            let passed = passed.and_then(|id| registers(data, &types, id)).unwrap_or(Passed::Unknown);
            let prototype = types.get(function.size as usize).filter(|t| t.kind == FUNC_PROTO);
            let result = prototype.and_then(|t| if t.size == 0 { Some(0) } else { in_one_register(&types, t.size) });
            let merge = |known: &mut Known| {
                if known.passed != passed {
                    known.passed = Passed::Unknown;
                }
                if known.result != result {
                    known.result = None;
                }
            };
            let known = Known { passed: passed.clone(), result };
            found.functions.entry(name).and_modify(merge).or_insert(known);
        }
        if self.base.types.is_empty() {
            found.paravirtual = Structures { data, types: &types, strings }.paravirtual();
            found.base = Arc::new(Base { types, strings: strings.to_vec() });
        }
        Some(found)
    }
}

/// The structures of a `.BTF` section.
struct Structures<'a> {
    data: &'a [u8],
    types: &'a [Type],
    strings: &'a [u8],
}

impl Structures<'_> {
    fn name(&self, at: u32) -> Option<&str> {
        let rest = self.strings.get(at as usize..)?;
        std::str::from_utf8(&rest[..rest.iter().position(|&byte| byte == 0)?]).ok()
    }

    /// Members: name, type and offset in bytes.
    fn members(&self, structure: &Type) -> Vec<(&str, u32, u32)> {
        let member = |index: usize| {
            let at = structure.extra + 12 * index;
            let bits = word(self.data, at + 8)? & 0xff_ffff;
            Some((self.name(word(self.data, at)?)?, word(self.data, at + 4)?, bits / 8))
        };
        (0..structure.vlen).filter_map(member).collect()
    }

    /// The entries of `pv_ops`: plain pointers have a prototype. Those that preserve
    /// registers do not; they take one argument, but for these.
    fn paravirtual(&self) -> HashMap<u32, usize> {
        const WITHOUT_ARGUMENT: [&str; 4] = ["save_fl", "irq_disable", "irq_enable", "read_cr2"];
        let is = |t: &&Type, name: &str| t.kind == STRUCT && self.name(t.name) == Some(name);
        let template = self.types.iter().find(|t| is(t, "paravirt_patch_template"));
        let mut found = HashMap::new();
        for (_, group, start) in template.map_or_else(Vec::new, |template| self.members(template)) {
            let Some(group) = self.types.get(group as usize).filter(|t| t.kind == STRUCT) else { continue };
            for (name, id, offset) in self.members(group) {
                let member = self.types.get(id as usize);
                let pointed = member.filter(|t| t.kind == POINTER).and_then(|t| self.types.get(t.size as usize));
                let count = match (pointed, member) {
                    (Some(prototype), _) if prototype.kind == FUNC_PROTO => prototype.vlen,
                    (_, Some(t)) if is(&t, "paravirt_callee_save") => usize::from(!WITHOUT_ARGUMENT.contains(&name)),
                    _ => continue,
                };
                found.insert(start + offset, count);
            }
        }
        found
    }
}

fn read_types(data: &[u8], mut at: usize, end: usize) -> Option<Vec<Type>> {
    let mut types = Vec::new();
    while at < end {
        let info = word(data, at + 4)?;
        let (kind, vlen) = (info >> 24 & 0x1f, (info & 0xffff) as usize);
        types.push(Type { name: word(data, at)?, kind, vlen, size: word(data, at + 8)?, extra: at + 12 });
        at += 12 + extra_len(kind, vlen)?;
    }
    Some(types)
}

/// Bits of an argument that are defined at least: callers extend narrower ones.
const LEAST_ARGUMENT: u8 = 32;

fn registers(data: &[u8], types: &[Type], prototype: u32) -> Option<Passed> {
    let prototype = types.get(prototype as usize).filter(|t| t.kind == FUNC_PROTO)?;
    // A large result is returned through a pointer that is passed first.
    in_one_register(types, prototype.size)?;
    let mut widths = Vec::new();
    for parameter in 0..prototype.vlen {
        let id = word(data, prototype.extra + 8 * parameter + 4)?;
        if id == 0 {
            return Some(Passed::AtLeast(parameter));
        }
        widths.push(in_one_register(types, id)?.max(LEAST_ARGUMENT));
    }
    Some(Passed::Exactly(widths))
}

/// The width in bits of a value of this type; `None` when it may need more than one
/// register, or memory. Nothing has no width.
fn in_one_register(types: &[Type], mut id: u32) -> Option<u8> {
    // Through typedefs and qualifiers.
    for _ in 0..32 {
        match types.get(id as usize)? {
            t if matches!(t.kind, 8..=11 | 18) => id = t.size,
            t if matches!(t.kind, INT | ENUM | ENUM64) && matches!(t.size, 1 | 2 | 4 | 8) => {
                return Some(t.size as u8 * 8)
            }
            t if t.kind == POINTER => return Some(64),
            t if t.kind == 0 => return Some(0),
            _ => return None,
        }
    }
    None
}

/// The names that several of `functions` have in the source, by their symbols and some
/// place that tells them apart. BTF describes one function of each name, and the compiler
/// gives some of the others names of its own.
pub fn shared_names<'a, P: Eq + Hash>(functions: impl IntoIterator<Item = (&'a str, P)>) -> HashSet<String> {
    let mut whole: HashMap<&str, HashSet<P>> = HashMap::new();
    let mut clones: HashMap<&str, HashSet<P>> = HashMap::new();
    for (symbol, place) in functions {
        let (name, suffix) = symbol.split_once('.').unwrap_or((symbol, ""));
        if name.is_empty() || suffix.split('.').any(|part| part == "cold") {
            continue;
        }
        // `.isra` is a function in whose place no other is left (GCC's ipa-sra.cc);
        // `.constprop` and `.part` stand beside the function.
        match suffix.is_empty() || suffix.starts_with("isra.") {
            true => whole.entry(name).or_default().insert(place),
            false => clones.entry(symbol).or_default().insert(place),
        };
    }
    let several = |(name, places): (&str, HashSet<P>)| (places.len() > 1).then(|| name.to_owned());
    // One unit has no two clones of one name.
    let of_clones = clones.into_iter().filter_map(several);
    let of_clones = of_clones.map(|symbol| symbol.split('.').next().unwrap_or_default().to_owned());
    whole.into_iter().filter_map(several).chain(of_clones).collect()
}

/// Whether `function` saves and restores every register, so that nothing that
/// matters is passed, read or changed (arch/x86/entry/thunk.S; the static calls
/// of arch/x86/include/asm/preempt.h go there or nowhere).
#[must_use]
pub fn is_transparent(function: &str) -> bool {
    matches!(
        function,
        "__SCT__preempt_schedule"
            | "__SCT__preempt_schedule_notrace"
            | "preempt_schedule_thunk"
            | "preempt_schedule_notrace_thunk"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `int f(long, char *)`, `void g(void)`, `int h(int, ...)`, `void s(struct t)`.
    fn fixture() -> Vec<u8> {
        let strings = b"\0f\0g\0h\0s\0int\0r\0";
        let mut types: Vec<u8> = Vec::new();
        let mut push = |words: &[u32]| words.iter().for_each(|w| types.extend(w.to_le_bytes()));
        push(&[9, INT << 24, 4, 32]); // 1: int
        push(&[0, 2 << 24, 1]); // 2: int *
        push(&[0, FUNC_PROTO << 24 | 2, 1, 0, 1, 0, 2]); // 3: int (int, int *)
        push(&[1, FUNC << 24, 3]); // 4: f
        push(&[0, FUNC_PROTO << 24, 0]); // 5: void (void)
        push(&[3, FUNC << 24, 5]); // 6: g
        push(&[0, FUNC_PROTO << 24 | 2, 1, 0, 1, 0, 0]); // 7: int (int, ...)
        push(&[5, FUNC << 24, 7]); // 8: h
        push(&[0, STRUCT << 24, 16]); // 9: struct
        push(&[0, FUNC_PROTO << 24 | 1, 0, 0, 9]); // 10: void (struct)
        push(&[7, FUNC << 24, 10]); // 11: s
        push(&[0, FUNC_PROTO << 24 | 1, 9, 0, 1]); // 12: struct (int)
        push(&[13, FUNC << 24, 12]); // 13: r
        let mut data = vec![0x9f, 0xeb, 1, 0];
        for field in [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32] {
            data.extend(field.to_le_bytes());
        }
        data.extend(types);
        data.extend(strings);
        data
    }

    #[test]
    fn certain_prototypes_only() {
        let prototypes = Prototypes::of_btf(&fixture());
        assert_eq!(prototypes.arguments("f"), Some(2));
        assert_eq!(prototypes.arguments("g"), Some(0));
        assert_eq!((prototypes.arguments("h"), prototypes.variadic("h")), (None, Some(1)));
        assert_eq!(conversions("\"%d of %*pM: 100%%\""), 3);
        assert_eq!(prototypes.arguments("s"), None, "structure by value");
        assert_eq!(prototypes.arguments("r"), None, "a structure returned through a pointer in rdi");
        assert!(prototypes.returns_in_rax("f") && !prototypes.returns_in_rax("r"));
        assert!(prototypes.returns_nothing("g") && !prototypes.returns_nothing("f"));
        assert_eq!(prototypes.arguments("unknown"), None);
        assert!(prototypes.is_function("h") && !prototypes.is_function("unknown"));
    }

    /// A module adds `int m(int)`, with the type of vmlinux.
    #[test]
    fn a_module_refers_to_the_types_of_vmlinux() {
        let vmlinux = Prototypes::of_btf(&fixture());
        let strings = b"m\0f\0";
        let mut types: Vec<u8> = Vec::new();
        let mut push = |words: &[u32]| words.iter().for_each(|w| types.extend(w.to_le_bytes()));
        push(&[0, FUNC_PROTO << 24 | 1, 1, 0, 1]); // 14: int (int)
        push(&[15, FUNC << 24, 14]); // 15: m
        push(&[17, FUNC << 24, 14]); // 16: f, another one
        let mut data = vec![0x9f, 0xeb, 1, 0];
        for field in [24, 0, types.len() as u32, types.len() as u32, strings.len() as u32] {
            data.extend(field.to_le_bytes());
        }
        data.extend(types);
        data.extend(strings);
        let both = vmlinux.with_module(&data);
        assert_eq!(both.arguments("m"), Some(1));
        assert!(both.returns_in_rax("m"));
        assert_eq!(both.arguments("f"), None, "two functions of one name that differ");
        assert_eq!(both.arguments("g"), Some(0));
        assert_eq!(Prototypes::default().with_module(&data), Prototypes::default());
    }

    #[test]
    fn names_of_several_functions_say_nothing() {
        let functions = [
            ("add_grec", 1),
            ("add_grec", 2),
            ("m_start", 3),
            ("m_start.isra.0", 4),
            ("once", 5),
            ("once.cold", 6),
            ("once.part.0", 7),
            ("once.constprop.0", 8),
            ("twice.constprop.0", 9),
            ("twice.constprop.0", 10),
            ("alias", 11),
            ("alias", 11),
            (".text", 12),
            (".text", 13),
        ];
        let names = shared_names(functions);
        assert_eq!(names, ["add_grec", "m_start", "twice"].map(str::to_owned).into());
        let prototypes = Prototypes::of_btf(&fixture()).without(["f".to_owned()]);
        assert_eq!((prototypes.signature("f"), prototypes.result("f"), prototypes.arguments("f")), (None, None, None));
        assert!(!prototypes.is_function("f") && prototypes.is_function("g"));
    }

    #[test]
    fn damaged_sections_give_nothing_and_do_not_panic() {
        let whole = fixture();
        for len in 0..whole.len() {
            assert_eq!(Prototypes::of_btf(&whole[..len]), Prototypes::default(), "cut at {len}");
        }
        for at in 0..whole.len() {
            let mut damaged = whole.clone();
            damaged[at] ^= 0xff;
            let _ = Prototypes::of_btf(&damaged);
        }
    }
}
