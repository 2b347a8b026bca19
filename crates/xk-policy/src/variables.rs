//! Variables of the kernel's source in policies: `XK_VAR(name)` before the compiler sees it.
//!
//! In: the text of a policy, and for each constant that it decides where its variables are at
//! each site. Out: C that reads them. Refused is a variable that one of the sites does not have;
//! warned about are arguments of a function by register, which are something else in its middle.

use std::collections::BTreeMap;
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

/// A variable is read outside of every policy.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("XK_VAR({name}) stands outside every XK_TUNE")]
pub struct OutsidePolicy {
    /// Line of the source, from 1.
    pub line: usize,
    /// The variable.
    pub name: String,
}

/// Why a policy cannot read a variable at a site.
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

/// A variable that a policy uses cannot be read at one of its sites.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[error("{}:{line}: `{name}` cannot be read at {place}: {why}; what can be: {}", file.display(), list(readable))]
pub struct HeaderError {
    /// The source of the policy.
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

/// An `XK_TUNE` of a source, with the variables that it reads.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Use {
    /// Line of the `XK_TUNE`.
    pub line: usize,
    /// Its constant.
    pub constant: String,
    /// Names and lines.
    pub variables: Vec<(String, usize)>,
    /// Lines with arguments by register.
    pub registers: Vec<usize>,
}

/// Reads a source as far as it matters here.
///
/// # Errors
/// A variable is read outside of every policy.
pub fn uses(text: &str) -> Result<Vec<Use>, OutsidePolicy> {
    let mut uses: Vec<Use> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let (line, number) = (line.split("//").next().unwrap_or_default(), index + 1);
        if let Some(rest) = line.trim_start().strip_prefix("XK_TUNE") {
            let constant = rest.split('"').nth(1).unwrap_or_default().to_owned();
            uses.push(Use { line: number, constant, variables: vec![], registers: vec![] });
        } else if line.starts_with("SEC(") {
            // Another program begins: what follows is not of a policy.
            uses.push(Use { line: number, constant: String::new(), variables: vec![], registers: vec![] });
        }
        for rest in line.split("XK_VAR(").skip(1) {
            let name = rest.split(')').next().unwrap_or_default().trim().to_owned();
            match uses.last_mut() {
                Some(last) if !last.constant.is_empty() => last.variables.push((name, number)),
                _ => return Err(OutsidePolicy { line: number, name }),
            }
        }
        if line.contains("PT_REGS_PARM") {
            if let Some(last) = uses.last_mut() {
                last.registers.push(number);
            }
        }
    }
    uses.retain(|tune| !tune.constant.is_empty());
    Ok(uses)
}

/// The header for the uses of a file; `sites` are those of each use.
///
/// # Errors
/// A variable cannot be read at one of the sites.
pub fn header(file: &Path, uses: &[(&Use, Vec<AtSite>)]) -> Result<String, HeaderError> {
    let mut cases: BTreeMap<&str, (String, String)> = BTreeMap::new();
    for (tune, sites) in uses {
        let mut done: Vec<&str> = Vec::new();
        for (name, line) in &tune.variables {
            if done.contains(&name.as_str()) {
                continue;
            }
            done.push(name);
            for (index, site) in sites.iter().enumerate() {
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
                let _ = writeln!(text, "\tcase {}ULL << 16 | {index}: /* {} */\n{value}", tune.line, site.place);
            }
        }
    }
    let mut text = String::new();
    for (name, (type_name, cases)) in cases {
        let _ = write!(
            text,
            "static __always_inline {type_name} xk_var_{name}(struct pt_regs *ctx, xk_handle_t xk_ctx, int line)\n{{\n\
             \t{type_name} value = ({type_name})0;\n\tu64 raw __attribute__((unused));\n\n\tswitch ((u64)line << 16 | xk_site(xk_ctx)) {{\n{cases}\t}}\n\
             \treturn value;\n}}\n\n"
        );
    }
    Ok(text)
}

fn refused(file: &Path, line: usize, name: &str, site: &AtSite, why: NotReadable) -> HeaderError {
    let readable =
        site.variables.iter().filter(|variable| read(variable).is_ok()).map(|variable| variable.name.clone()).collect();
    HeaderError { file: file.into(), line, name: name.into(), place: site.place.clone(), why: Box::new(why), readable }
}

/// C that assigns it to `value`.
///
/// # Errors
/// No policy can read it.
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
        assert_eq!((found[1].constant.as_str(), &found[1].registers), ("B", &vec![12]));
        assert!(found[0].registers.is_empty(), "of a program that starts where a function does");
        assert_eq!(uses("XK_VAR(a)").unwrap_err().line, 1);
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
