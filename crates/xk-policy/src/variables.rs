//! Variables of the kernel's source in policies and probes: `XK_VAR(name)` before the compiler sees it.
//!
//! In: the text of a source, and where the variables are at each site of the constants that its policies decide, or at
//! each instruction that its probes are for. Out: C that reads them. Refused is a variable that one of the sites does not
//! have; warned about are arguments of a function by register in policies, which are something else in its middle.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;
use std::path::{Path, PathBuf};

use thiserror::Error;
use xk_const::{BuildTree, Location, Point, TreeError, Unit, Variable, VariablesError};
use xk_kernel::Tree;
use xk_table::{Function, Incoherent, ScopeTable, When};

/// Why the variables at the sites of a constant are not known.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SitesError {
    /// The translation units of the kernel cannot be listed.
    #[error(transparent)]
    Tree(#[from] TreeError),
    /// The table contradicts itself.
    #[error(transparent)]
    Table(#[from] Incoherent),
    /// The object of a function has no variables that can be read.
    #[error(transparent)]
    Variables(#[from] VariablesError),
    /// No translation unit has the source of a function.
    #[error("{function}: no unit is {source_file}")]
    NoUnit {
        /// The function.
        function: String,
        /// Its source file, as the table has it.
        source_file: String,
    },
}

/// A variable is read outside of every policy and probe.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("XK_VAR({name}) stands outside every XK_TUNE and every program of a section xk/WHERE")]
pub struct OutsidePolicy {
    /// Line of the source, from 1.
    pub line: usize,
    /// The variable.
    pub name: String,
}

/// Why a program cannot read a variable at a site.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum NotReadable {
    /// It is larger than a register, or empty.
    #[error("its {0} bytes are more than a value")]
    Size(u64),
    /// It is in a register that `struct pt_regs` does not have.
    #[error("it is in register {0} of DWARF")]
    Register(u16),
    /// The compiler did not keep it.
    #[error("{0}")]
    Gone(&'static str),
    /// The source does not have it in scope.
    #[error("the source has no such variable there")]
    Missing,
    /// Its type differs between two sites.
    #[error("it is `{here}` there and `{elsewhere}` elsewhere")]
    Types {
        /// Type at this site.
        here: String,
        /// Type at a site before.
        elsewhere: String,
    },
}

/// A variable that a program uses cannot be read at one of its sites.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}:{line}: `{name}` cannot be read at {place}: {why}; what can be: {}", file.display(), list(readable))]
pub struct HeaderError {
    /// The source of the program.
    pub file: PathBuf,
    /// Its line, from 1.
    pub line: usize,
    /// The variable.
    pub name: String,
    /// The site: `function+0x12`.
    pub place: String,
    /// Why not.
    pub why: Box<NotReadable>,
    /// The variables that can be read there.
    pub readable: Vec<String>,
}

fn list(names: &[String]) -> String {
    if names.is_empty() {
        "none is".into()
    } else {
        names.join(", ")
    }
}

/// The variables at one site.
#[derive(Debug, Clone)]
pub struct AtSite {
    /// `function+0x12`
    pub place: String,
    /// What the source has in scope there.
    pub variables: Vec<Variable>,
}

/// The variables at every site of a constant, in the order of the sites.
///
/// # Errors
/// The units or their variables cannot be found.
pub fn at_sites(table: &ScopeTable, tree: &Tree, cache: &Path) -> Result<Vec<AtSite>, SitesError> {
    let units = BuildTree::units(tree)?;
    let mut sites = Vec::new();
    for span in &table.spans {
        let function = &table.functions[span.function];
        let indirection = &span.indirection;
        let behind = if indirection.when == When::After { u32::from(indirection.insn_len) } else { 0 };
        let point = Point {
            symbol: function.symbol.clone(),
            offset: indirection.offset + behind,
            bytes: function.text()?,
            mask: function.text_mask()?,
        };
        let unit = unit_of(function, &units).ok_or_else(|| SitesError::NoUnit {
            function: function.symbol.clone(),
            source_file: function.source.clone(),
        })?;
        let found = xk_const::variables(tree, unit, &cache.join("objects"), &[point])?;
        let place = format!("{}+{:#x}", function.symbol, indirection.offset);
        sites.push(AtSite { place, variables: found.into_iter().next().unwrap_or_default() });
    }
    Ok(sites)
}

fn unit_of<'a>(function: &Function, units: &'a [Unit]) -> Option<&'a Unit> {
    let spelt = |module: &Option<String>| module.as_deref().map(|module| module.replace('-', "_"));
    units.iter().find(|unit| unit.source == function.source && spelt(&unit.module) == spelt(&function.module))
}

/// What a program is for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Subject {
    /// A policy: its constant.
    Constant(String),
    /// A probe: its section.
    Section(String),
}

/// A policy or a probe of a source, with the variables that it reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// Line of the `XK_TUNE` or `SEC`.
    pub line: usize,
    /// What it is for.
    pub subject: Subject,
    /// Names and lines.
    pub variables: Vec<(String, usize)>,
    /// Lines with arguments by register.
    pub registers: Vec<usize>,
}

impl Use {
    fn new(line: usize, subject: Subject) -> Self {
        Self { line, subject, variables: Vec::new(), registers: Vec::new() }
    }

    /// The constant of a policy.
    #[must_use]
    pub fn constant(&self) -> Option<&str> {
        match &self.subject {
            Subject::Constant(constant) => Some(constant),
            Subject::Section(_) => None,
        }
    }

    /// The section of a probe.
    #[must_use]
    pub fn section(&self) -> Option<&str> {
        match &self.subject {
            Subject::Section(section) => Some(section),
            Subject::Constant(_) => None,
        }
    }
}

/// Reads a source as far as it matters here.
///
/// # Errors
/// A variable is read outside of every policy and probe.
pub fn uses(text: &str) -> Result<Vec<Use>, OutsidePolicy> {
    let mut uses: Vec<Use> = Vec::new();
    // Whether the last one is not over.
    let mut inside = false;
    for (index, line) in text.lines().enumerate() {
        // A pattern of places may contain slashes, but not two.
        let (line, number) = (line.split("//").next().unwrap_or_default(), index + 1);
        let quoted = || line.split('"').nth(1).unwrap_or_default().to_owned();
        if line.trim_start().starts_with("XK_TUNE") {
            uses.push(Use::new(number, Subject::Constant(quoted())));
            inside = true;
        } else if line.starts_with("SEC(") {
            // Another program begins.
            let section = quoted();
            inside = section == "xk" || section.starts_with("xk/");
            if inside {
                uses.push(Use::new(number, Subject::Section(section)));
            }
        }
        for rest in line.split("XK_VAR(").skip(1) {
            let name = rest.split(')').next().unwrap_or_default().trim().to_owned();
            match uses.last_mut() {
                Some(last) if inside => last.variables.push((name, number)),
                _ => return Err(OutsidePolicy { line: number, name }),
            }
        }
        if line.contains("PT_REGS_PARM") && inside {
            if let Some(last) = uses.last_mut() {
                last.registers.push(number);
            }
        }
    }
    Ok(uses)
}

/// What C needs to know about one reader of variables.
struct Reader<'a> {
    of: &'a Use,
    /// Its sites, each with the C expression by which a program tells it from others.
    sites: Vec<(String, &'a AtSite)>,
}

/// The header for the policies of a file; `sites` are those of each.
///
/// # Errors
/// A variable cannot be read at one of the sites.
pub fn header(file: &Path, uses: &[(&Use, Vec<AtSite>)]) -> Result<String, HeaderError> {
    let key = |tune: &Use, index: usize| format!("{}ULL << 16 | {index}", tune.line);
    let readers = uses.iter().map(|(tune, sites)| Reader {
        of: tune,
        sites: sites.iter().enumerate().map(|(index, site)| (key(tune, index), site)).collect(),
    });
    let cases = cases(file, &readers.collect::<Vec<_>>())?;
    Ok(functions(&cases, "struct pt_regs *ctx, xk_handle_t xk_ctx, int line", "(u64)line << 16 | xk_site(xk_ctx)"))
}

/// The header for the probes of a file. `sites` are those of each, by their index in `places`: the instructions of all
/// probes.
///
/// # Errors
/// A variable cannot be read at one of the instructions.
pub fn probe_header(file: &Path, places: &[AtSite], uses: &[(&Use, Vec<usize>)]) -> Result<String, HeaderError> {
    let site = |index: &usize| places.get(*index).map(|site| (index.to_string(), site));
    let readers =
        uses.iter().map(|(probe, sites)| Reader { of: probe, sites: sites.iter().filter_map(site).collect() });
    let cases = cases(file, &readers.collect::<Vec<_>>())?;
    let number = places.len();
    let names: String = places.iter().map(|site| format!("\t{{ \"{}\", XK_BUILD_ID }},\n", site.place)).collect();
    let head = format!(
        "const volatile u64 xk_at[{number}] = {{}};\n\
         const struct xk_place xk_places[{number}] SEC(\".xk.places\") = {{\n{names}}};\n\n\
         static __always_inline int xk_place(struct pt_regs *ctx)\n{{\n\tu64 ip = ctx->ip;\n\tint i;\n\n\
         \tfor (i = 0; i < {number}; i++)\n\t\tif (xk_at[i] == ip)\n\t\t\treturn i;\n\treturn -1;\n}}\n\n"
    );
    Ok(head + &functions(&cases, "struct pt_regs *ctx", "xk_place(ctx)"))
}

/// Of each variable its type, and C that assigns it to `value` at each site.
fn cases<'a>(file: &Path, readers: &[Reader<'a>]) -> Result<BTreeMap<&'a str, (String, String)>, HeaderError> {
    let mut cases: BTreeMap<&str, (String, String)> = BTreeMap::new();
    let mut done: BTreeSet<(&str, &str)> = BTreeSet::new();
    for reader in readers {
        for (name, line) in &reader.of.variables {
            for (key, site) in &reader.sites {
                if !done.insert((name, key)) {
                    continue;
                }
                let at = |why: NotReadable| refused(file, *line, name, site, why);
                let variable = site
                    .variables
                    .iter()
                    .find(|variable| variable.name == *name)
                    .ok_or_else(|| at(NotReadable::Missing))?;
                let value = read(variable).map_err(at)?;
                let (known, text) = cases.entry(name).or_insert_with(|| (variable.type_name.clone(), String::new()));
                if *known != variable.type_name {
                    let (here, elsewhere) = (variable.type_name.clone(), known.clone());
                    return Err(at(NotReadable::Types { here, elsewhere }));
                }
                // Writing to a String cannot fail.
                let _ = writeln!(text, "\tcase {key}: /* {} */\n{value}", site.place);
            }
        }
    }
    Ok(cases)
}

/// A function for each variable, which chooses its case by an expression.
fn functions(cases: &BTreeMap<&str, (String, String)>, arguments: &str, choice: &str) -> String {
    let mut text = String::new();
    for (name, (type_name, cases)) in cases {
        let _ = write!(
            text,
            "static __always_inline {type_name} xk_var_{name}({arguments})\n{{\n\
             \t{type_name} value = ({type_name})0;\n\tu64 raw __attribute__((unused));\n\n\tswitch ({choice}) {{\n{cases}\t}}\n\
             \treturn value;\n}}\n\n"
        );
    }
    text
}

fn refused(file: &Path, line: usize, name: &str, site: &AtSite, why: NotReadable) -> HeaderError {
    let readable =
        site.variables.iter().filter(|variable| read(variable).is_ok()).map(|variable| variable.name.clone()).collect();
    HeaderError { file: file.into(), line, name: name.into(), place: site.place.clone(), why: Box::new(why), readable }
}

/// C that assigns it to `value`.
///
/// # Errors
/// No program can read it.
pub fn read(variable: &Variable) -> Result<String, NotReadable> {
    let type_name = &variable.type_name;
    if variable.size > 8 || variable.size == 0 {
        return Err(NotReadable::Size(variable.size));
    }
    let unknown = |number: u16| register(number).ok_or(NotReadable::Register(number));
    let sum = |number: u16, offset: i64| Ok::<_, NotReadable>(format!("ctx->{} + ({offset}LL)", unknown(number)?));
    // Behind a barrier: one load for all sites, from an offset that is chosen before, is none that the
    // kernel's verifier allows from a context.
    let assigned =
        |value: String| format!("\t\traw = {value};\n\t\tbarrier_var(raw);\n\t\tvalue = ({type_name})raw;\n\t\tbreak;");
    Ok(match &variable.location {
        Location::Register(number) => assigned(format!("ctx->{}", unknown(*number)?)),
        Location::Sum(number, offset) => assigned(sum(*number, *offset)?),
        Location::Constant(number) => assigned(format!("{number}LL")),
        Location::Memory(number, offset) => format!(
            "\t\tbpf_probe_read_kernel(&value, sizeof(value), (void *)({}));\n\t\tbreak;",
            sum(*number, *offset)?
        ),
        Location::Gone(why) => return Err(NotReadable::Gone(why)),
    })
}

/// The field of `struct pt_regs` for a register of DWARF.
fn register(number: u16) -> Option<&'static str> {
    const NAMES: [&str; 16] =
        ["ax", "dx", "cx", "bx", "si", "di", "bp", "sp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"];
    NAMES.get(usize::from(number)).copied()
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]

    use super::*;

    fn variable(name: &str, location: Location) -> Variable {
        Variable { name: name.into(), type_name: "struct sock *".into(), size: 8, location }
    }

    fn site(place: &str, variables: Vec<Variable>) -> AtSite {
        AtSite { place: place.into(), variables }
    }

    #[test]
    fn uses_belong_to_their_policy() {
        let text = "XK_TUNE(a, \"A\")\n{\n\tx = XK_VAR(sk) + XK_VAR( plug );\n}\nSEC(\"kprobe/f\")\nint f(ctx) {\n\
                    \tPT_REGS_PARM1(ctx);\n}\nXK_TUNE_EACH(b, \"B\")\n{\n\t// XK_VAR(no)\n\tPT_REGS_PARM2(ctx);\n}\n";
        let found = uses(text).unwrap();
        assert_eq!(found.len(), 2);
        assert_eq!(found[0].variables, [("sk".to_owned(), 3), ("plug".to_owned(), 3)]);
        assert_eq!((found[1].constant(), &found[1].registers), (Some("B"), &vec![12]));
        assert!(found[0].registers.is_empty(), "of a program that starts where a function does");
        assert_eq!(uses("XK_VAR(a)").unwrap_err().line, 1);
    }

    #[test]
    fn uses_of_probes_have_their_section() {
        let text = "SEC(\"xk/fs/a.c:3, f+0x1\")\nint a(struct pt_regs *ctx)\n{\n\treturn XK_VAR(count);\n}\n\
                    SEC(\"xk\")\nint b(struct pt_regs *ctx)\n{\n\treturn 0;\n}\n";
        let found = uses(text).unwrap();
        assert_eq!(found.iter().map(Use::section).collect::<Vec<_>>(), [Some("xk/fs/a.c:3, f+0x1"), Some("xk")]);
        assert_eq!(found[0].variables, [("count".to_owned(), 4)]);
        assert!(found[1].variables.is_empty() && found[0].constant().is_none());
        let message = uses("SEC(\"kprobe/f\")\nint f()\n{\n\tXK_VAR(a);\n}\n").unwrap_err().to_string();
        assert!(message.contains("XK_VAR(a) stands outside"), "{message}");
    }

    #[test]
    fn a_probe_tells_its_places_apart() {
        let text = "SEC(\"xk/f\")\n\tXK_VAR(sk);\nSEC(\"xk/g\")\n\tXK_VAR(sk);\n";
        let found = uses(text).unwrap();
        let there = |place, location| site(place, vec![variable("sk", location)]);
        let places = [there("f+0x1", Location::Register(3)), there("g+0x2", Location::Register(4))];
        let text =
            probe_header(Path::new("a.bpf.c"), &places, &[(&found[0], vec![0, 1]), (&found[1], vec![1])]).unwrap();
        for part in ["xk_at[2]", "{ \"g+0x2\", XK_BUILD_ID }", "switch (xk_place(ctx))", "case 0: /* f+0x1 */"] {
            assert!(text.contains(part), "no {part} in {text}");
        }
        assert_eq!(text.matches("case 1:").count(), 1, "both are there: {text}");
        let gone = [there("f+0x1", Location::Gone("optimised away"))];
        let message = probe_header(Path::new("a.bpf.c"), &gone, &[(&found[0], vec![0])]).unwrap_err().to_string();
        assert_eq!(message, "a.bpf.c:2: `sk` cannot be read at f+0x1: optimised away; what can be: none is");
    }

    #[test]
    fn what_is_there_at_every_site_is_read() {
        let tune = uses("XK_TUNE(a, \"A\")\n{\n\tXK_VAR(sk);\n}\n").unwrap().remove(0);
        let there = |location| site("f+0x1", vec![variable("sk", location)]);
        let sites = vec![there(Location::Register(3)), there(Location::Memory(7, 16))];
        let text = header(Path::new("a.bpf.c"), &[(&tune, sites)]).unwrap();
        for part in
            ["static __always_inline struct sock * xk_var_sk(", "case 1ULL << 16 | 0:", "ctx->bx", "ctx->sp + (16LL)"]
        {
            assert!(text.contains(part), "no {part} in {text}");
        }
        assert!(text.contains("ctx->bx;\n\t\tbarrier_var(raw);"), "{text}");
        let gone = vec![there(Location::Register(3)), there(Location::Gone("optimised away"))];
        let message = header(Path::new("a.bpf.c"), &[(&tune, gone)]).unwrap_err().to_string();
        assert_eq!(message, "a.bpf.c:3: `sk` cannot be read at f+0x1: optimised away; what can be: none is");
        let other = vec![site("g+0x2", vec![variable("plug", Location::Constant(1))])];
        let message = header(Path::new("a.bpf.c"), &[(&tune, other)]).unwrap_err().to_string();
        assert_eq!(
            message,
            "a.bpf.c:3: `sk` cannot be read at g+0x2: the source has no such variable there; what can be: plug"
        );
    }
}
