//! Types of the kernel, from BTF: what the parameters of functions point to, and
//! what a field at an offset is called. Format: Documentation/bpf/btf.rst.
//!
//! In: the `.BTF` sections of vmlinux and of modules. What is damaged is left out:
//! names get poorer, and functions without a prototype are looked at as assembly.

use std::collections::HashMap;

/// A type's number; 0 is `void` and stands for "not known" here.
pub type TypeId = u32;

/// What a function takes and gives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Prototype {
    /// What each parameter points to, or 0.
    pub parameters: Vec<TypeId>,
    /// An unknown number of parameters follows.
    pub variadic: bool,
    /// Registers of the result: 0, 1 (rax) or 2 (rax and rdx).
    pub results: u8,
    /// What the result points to, or 0.
    pub result: TypeId,
}

#[derive(Debug, Clone, Copy)]
struct Type {
    name: u32,
    kind: u8,
    vlen: usize,
    /// Bit 31 of `info`: the members of a structure are bit fields.
    flag: bool,
    /// Size, or the type that it refers to.
    size: u32,
    /// What follows it, in `Types::words`.
    extra: usize,
}

const INT: u8 = 1;
const POINTER: u8 = 2;
const ARRAY: u8 = 3;
const STRUCT: u8 = 4;
const UNION: u8 = 5;
const FUNC: u8 = 12;
const PROTOTYPE: u8 = 13;
const VARIABLE: u8 = 14;

/// All types of a kernel and of some modules.
#[derive(Debug, Clone, Default)]
pub struct Types {
    types: Vec<Type>,
    words: Vec<u32>,
    strings: Vec<u8>,
    /// Types and strings of vmlinux: the modules' numbers go on after them.
    base: (usize, usize),
    /// By name; `None` where two of one name differ.
    functions: HashMap<String, Option<Prototype>>,
    variables: HashMap<String, TypeId>,
    /// Structures.
    named: HashMap<String, TypeId>,
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(data.get(at..at.checked_add(4)?)?.try_into().ok()?))
}

/// Words after a type of this kind.
fn extra(kind: u8, vlen: usize) -> Option<usize> {
    Some(match kind {
        POINTER | 7..=12 | 16 | 18 => 0,
        INT | VARIABLE | 17 => 1,
        ARRAY => 3,
        STRUCT | UNION | 15 | 19 => 3 * vlen,
        6 | PROTOTYPE => 2 * vlen,
        _ => return None,
    })
}

impl Types {
    /// The types of vmlinux.
    #[must_use]
    pub fn new(data: &[u8]) -> Self {
        let void = Type { name: 0, kind: 0, vlen: 0, flag: false, size: 0, extra: 0 };
        let mut this = Self { types: vec![void], ..Self::default() };
        _ = this.add(data);
        this.base = (this.types.len(), this.strings.len());
        this
    }

    /// Those of a module, which refer to the ones of vmlinux. The numbers of several
    /// modules overlap in the file, so each is shifted after the ones before.
    pub fn add_module(&mut self, data: &[u8]) {
        _ = self.add(data);
    }

    fn add(&mut self, data: &[u8]) -> Option<()> {
        if data.get(..2)? != [0x9f, 0xeb] {
            return None;
        }
        let header = word(data, 4)? as usize;
        let part = |at: usize| {
            let start = header.checked_add(word(data, at)? as usize)?;
            data.get(start..start.checked_add(word(data, at + 4)? as usize)?)
        };
        let (types, strings) = (part(8)?, part(16)?);
        let (first, text) = (self.types.len(), self.strings.len());
        // Numbers from the base on are the module's own.
        let (types_shift, text_shift) =
            (first.saturating_sub(self.base.0.max(1)) as u32, text.saturating_sub(self.base.1) as u32);
        let own = |id: u32| if (id as usize) < self.base.0.max(1) { id } else { id + types_shift };
        let spelled = |name: u32| if (name as usize) < self.base.1 { name } else { name + text_shift };
        let mut found = Vec::new();
        let mut words = self.words.clone();
        let mut at = 0;
        while at < types.len() {
            let info = word(types, at + 4)?;
            let (kind, vlen) = ((info >> 24 & 0x1f) as u8, (info & 0xffff) as usize);
            let refers = matches!(kind, POINTER | 8..=14 | 17 | 18);
            let size = word(types, at + 8)?;
            let size = if refers { own(size) } else { size };
            found.push(Type {
                name: spelled(word(types, at)?),
                kind,
                vlen,
                flag: info >> 31 == 1,
                size,
                extra: words.len(),
            });
            for n in 0..extra(kind, vlen)? {
                let value = word(types, at + 12 + 4 * n)?;
                words.push(match (kind, n % 3, n % 2) {
                    (STRUCT | UNION, 0, _) | (PROTOTYPE, _, 0) => spelled(value),
                    (STRUCT | UNION, 1, _) | (PROTOTYPE, _, 1) | (ARRAY, 0 | 1, _) => own(value),
                    _ => value,
                });
            }
            at += 12 + 4 * extra(kind, vlen)?;
        }
        self.types.extend(found);
        self.words = words;
        self.strings.extend_from_slice(strings);
        self.name_functions(first);
        Some(())
    }

    fn name_functions(&mut self, first: usize) {
        for id in first..self.types.len() {
            let t = self.types[id];
            match t.kind {
                FUNC => {
                    let (name, prototype) = (self.string(t.name), self.prototype(t.size));
                    let same = |known: &mut Option<Prototype>| {
                        // Numbers differ between modules, shapes do not.
                        let shape = |p: &Prototype| (p.parameters.len(), p.variadic, p.results);
                        if known.as_ref().map(shape) != prototype.as_ref().map(shape) {
                            *known = None;
                        }
                    };
                    self.functions.entry(name).and_modify(same).or_insert(prototype);
                }
                STRUCT => {
                    let name = self.string(t.name);
                    self.named.entry(name).or_insert(id as TypeId);
                }
                VARIABLE => {
                    let (name, points) = (self.string(t.name), self.structure(t.size));
                    self.variables.insert(name, points);
                }
                _ => {}
            }
        }
    }

    fn string(&self, at: u32) -> String {
        let rest = self.strings.get(at as usize..).unwrap_or_default();
        let end = rest.iter().position(|&byte| byte == 0).unwrap_or(rest.len());
        String::from_utf8_lossy(&rest[..end]).into_owned()
    }

    /// `id` without typedefs and qualifiers.
    fn plain(&self, mut id: TypeId) -> Option<(TypeId, Type)> {
        for _ in 0..32 {
            match *self.types.get(id as usize)? {
                t if matches!(t.kind, 8..=11 | 17 | 18) => id = t.size,
                t => return Some((id, t)),
            }
        }
        None
    }

    /// The structure or union that `id` is, or 0.
    fn structure(&self, id: TypeId) -> TypeId {
        self.plain(id).filter(|(_, t)| matches!(t.kind, STRUCT | UNION)).map_or(0, |(id, _)| id)
    }

    /// What `id` points to, or 0.
    fn pointee(&self, id: TypeId) -> TypeId {
        self.plain(id).filter(|(_, t)| t.kind == POINTER).map_or(0, |(_, t)| self.structure(t.size))
    }

    fn prototype(&self, id: TypeId) -> Option<Prototype> {
        let t = *self.types.get(id as usize).filter(|t| t.kind == PROTOTYPE)?;
        let mut prototype = Prototype { parameters: Vec::new(), variadic: false, results: 0, result: 0 };
        for n in 0..t.vlen {
            let parameter = *self.words.get(t.extra + 2 * n + 1)?;
            if parameter == 0 {
                prototype.variadic = true;
                break;
            }
            // A structure by value takes no or several registers.
            let (_, plain) = self.plain(parameter)?;
            if matches!(plain.kind, STRUCT | UNION) || (plain.kind == INT && plain.size > 8) {
                return None;
            }
            prototype.parameters.push(self.pointee(parameter));
        }
        match self.plain(t.size)? {
            _ if t.size == 0 => {}
            (_, r) if matches!(r.kind, STRUCT | UNION) && r.size > 16 => return None,
            (_, r) if matches!(r.kind, STRUCT | UNION) || (r.kind == INT && r.size > 8) => prototype.results = 2,
            (0, _) => {}
            _ => (prototype.results, prototype.result) = (1, self.pointee(t.size)),
        }
        Some(prototype)
    }

    /// Whether there is a C function of this name, whatever its prototype.
    #[must_use]
    pub fn has_function(&self, name: &str) -> bool {
        self.functions.contains_key(name)
    }

    /// The prototype of a function, if it is certain.
    #[must_use]
    pub fn function(&self, name: &str) -> Option<&Prototype> {
        self.functions.get(name)?.as_ref()
    }

    /// The structure that the per-CPU variable `name` is, or 0.
    #[must_use]
    pub fn variable(&self, name: &str) -> TypeId {
        self.variables.get(name).copied().unwrap_or(0)
    }

    /// Bytes of a structure; 0 if that is not known.
    #[must_use]
    pub fn size(&self, id: TypeId) -> u32 {
        self.types.get(id as usize).filter(|t| matches!(t.kind, STRUCT | UNION)).map_or(0, |t| t.size)
    }

    /// The member of `id` that covers the byte at `offset`: its name, its type, and
    /// the byte's offset in it.
    fn member(&self, id: TypeId, offset: u32) -> Option<(String, TypeId, u32)> {
        let (_, t) = self.plain(id)?;
        if !matches!(t.kind, STRUCT | UNION) {
            return None;
        }
        (0..t.vlen).rev().find_map(|n| {
            let at = t.extra + 3 * n;
            let (name, of, bits) = (*self.words.get(at)?, *self.words.get(at + 1)?, *self.words.get(at + 2)?);
            let start = if t.flag { bits & 0xff_ffff } else { bits } / 8;
            let inside = offset.checked_sub(start)?;
            (inside < self.bytes(of)).then(|| (self.string(name), of, inside))
        })
    }

    /// Bytes of any type.
    fn bytes(&self, id: TypeId) -> u32 {
        match self.plain(id) {
            Some((_, t)) if t.kind == POINTER => 8,
            Some((_, t)) if t.kind == ARRAY => {
                let (of, count) = (self.words.get(t.extra), self.words.get(t.extra + 2));
                of.zip(count).map_or(0, |(&of, &count)| match self.plain(of) {
                    Some((_, element)) if element.kind == ARRAY => u32::MAX,
                    _ => self.bytes(of).saturating_mul(count),
                })
            }
            Some((_, t)) if matches!(t.kind, INT | STRUCT | UNION | 6 | 19 | 16) => t.size,
            _ => 0,
        }
    }

    /// `struct bictcp.delay_min`; the offset where no member is known there.
    #[must_use]
    pub fn field(&self, id: TypeId, offset: Option<i32>) -> String {
        let Some((_, t)) = self.plain(id) else { return "?".into() };
        let word = if t.kind == UNION { "union" } else { "struct" };
        let name = match self.string(t.name) {
            name if name.is_empty() => "(anonymous)".to_owned(),
            name => name,
        };
        let Some(offset) = offset else { return format!("{word} {name}, at an offset that is computed") };
        let mut text = format!("{word} {name}");
        let (mut of, mut rest) = (id, offset as u32);
        for _ in 0..8 {
            let Some((member, next, inside)) = self.member(of, rest) else { break };
            if !member.is_empty() {
                text.push('.');
                text.push_str(&member);
            }
            (of, rest) = (next, inside);
        }
        if text == format!("{word} {name}") {
            text.push_str(&format!("{offset:+#x}"));
        }
        text
    }

    /// The prototype of the function that the pointer at `offset` of `id` points to, or 0.
    #[must_use]
    pub fn code_at(&self, id: TypeId, offset: i32) -> TypeId {
        self.pointer_type(id, offset).map_or(0, |t| match self.plain(t.size) {
            Some((code, plain)) if plain.kind == PROTOTYPE => code,
            _ => 0,
        })
    }

    /// The prototype with that number.
    #[must_use]
    pub fn numbered(&self, id: TypeId) -> Option<Prototype> {
        self.prototype(id)
    }

    /// The structure of that name, or 0.
    #[must_use]
    pub fn structure_named(&self, name: &str) -> TypeId {
        self.named.get(name).copied().unwrap_or(0)
    }

    /// What the pointer at `offset` of `id` points to, or 0.
    #[must_use]
    pub fn pointer_at(&self, id: TypeId, offset: i32) -> TypeId {
        self.pointer_type(id, offset).map_or(0, |t| self.structure(t.size))
    }

    /// The pointer at `offset` of `id`.
    fn pointer_type(&self, id: TypeId, offset: i32) -> Option<Type> {
        let (mut of, mut rest) = (id, offset as u32);
        for _ in 0..8 {
            match self.plain(of) {
                Some((_, t)) if t.kind == POINTER => return (rest == 0).then_some(t),
                _ => {}
            }
            let (_, next, inside) = self.member(of, rest)?;
            (of, rest) = (next, inside);
        }
        None
    }
}
