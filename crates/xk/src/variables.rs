//! Variables of the kernel's source in policies: `XK_VAR(name)` before the compiler sees it.
//!
//! In: the text of a policy, and for each constant that it decides where its variables are at
//! each site. Out: C that reads them. Refused is a variable that one of the sites does not have;
//! warned about are arguments of a function by register, which are something else in its middle.

use std::collections::BTreeMap;
use std::fmt::Write;
use std::path::Path;

use xk_const::{recall, BuildTree, Location, Point, Spec, Unit, Variable};
use xk_kernel::Tree;
use xk_table::{Function, ScopeTable, When};

use crate::exit::{Exit, Failure, Result};

/// The variables at one site.
#[derive(Debug, Clone)]
pub struct AtSite {
    /// `function+0x12`
    pub place: String,
    /// What the source has in scope there.
    pub variables: Vec<Variable>,
}

/// The variables at every site of a constant, in the order of the sites.
pub fn at_sites(table: &ScopeTable, tree: &Tree, cache: &Path) -> Result<Vec<AtSite>> {
    let constant = recall(tree, &Spec::parse(&table.constant.id)?)?;
    let units = BuildTree::units(tree).map_err(|error| Failure::error(error.to_string()))?;
    let mut sites = Vec::new();
    for span in &table.spans {
        let function = &table.functions[span.function];
        let wrong = |why: String| Failure::error(format!("{}: {why}", function.symbol));
        let not_hex = |fault: xk_table::Incoherent| Failure::error(fault.to_string());
        let indirection = &span.indirection;
        let behind = if indirection.when == When::After { u32::from(indirection.insn_len) } else { 0 };
        let point = Point {
            symbol: function.symbol.clone(),
            offset: indirection.offset + behind,
            bytes: function.text().map_err(not_hex)?,
            mask: function.text_mask().map_err(not_hex)?,
        };
        let unit = unit_of(function, &units).ok_or_else(|| wrong(format!("no unit is {}", function.source)))?;
        let found = xk_const::variables(tree, &constant, unit, &cache.join("objects"), &[point])
            .map_err(|error| Failure::error(error.to_string()))?;
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
pub fn uses(text: &str) -> std::result::Result<Vec<Use>, (usize, String)> {
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
                _ => return Err((number, format!("XK_VAR({name}) stands outside every XK_TUNE"))),
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
pub fn header(file: &Path, uses: &[(&Use, Vec<AtSite>)]) -> Result<String> {
    let mut cases: BTreeMap<&str, (String, String)> = BTreeMap::new();
    for (tune, sites) in uses {
        let mut done: Vec<&str> = Vec::new();
        for (name, line) in &tune.variables {
            if done.contains(&name.as_str()) {
                continue;
            }
            done.push(name);
            for (index, site) in sites.iter().enumerate() {
                let at = |why: &str| refused(file, *line, name, site, why);
                let variable = site
                    .variables
                    .iter()
                    .find(|variable| variable.name == *name)
                    .ok_or_else(|| at("the source has no such variable there"))?;
                let value = read(variable).map_err(|why| at(&why))?;
                let (known, text) = cases.entry(name).or_insert_with(|| (variable.type_name.clone(), String::new()));
                if *known != variable.type_name {
                    return Err(at(&format!("it is `{}` there and `{known}` elsewhere", variable.type_name)));
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

fn refused(file: &Path, line: usize, name: &str, site: &AtSite, why: &str) -> Failure {
    let there: Vec<&str> = site
        .variables
        .iter()
        .filter(|variable| read(variable).is_ok())
        .map(|variable| variable.name.as_str())
        .collect();
    let there = if there.is_empty() { "none is".into() } else { there.join(", ") };
    Failure::new(
        Exit::Refused,
        format!("{}:{line}: `{name}` cannot be read at {}: {why}; what can be: {there}", file.display(), site.place),
    )
}

/// C that assigns it to `value`.
pub fn read(variable: &Variable) -> std::result::Result<String, String> {
    let type_name = &variable.type_name;
    if variable.size > 8 || variable.size == 0 {
        return Err(format!("its {} bytes are more than a value", variable.size));
    }
    let unknown = |number: u16| register(number).ok_or_else(|| format!("it is in register {number} of DWARF"));
    let sum = |number: u16, offset: i64| Ok::<_, String>(format!("ctx->{} + ({offset}LL)", unknown(number)?));
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
        Location::Gone(why) => return Err((*why).to_owned()),
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
        assert_eq!(uses("XK_VAR(a)").unwrap_err().0, 1);
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
        let message = header(Path::new("a.bpf.c"), &[(&tune, gone)]).unwrap_err().message;
        assert_eq!(message, "a.bpf.c:3: `sk` cannot be read at f+0x1: optimised away; what can be: none is");
        let other = vec![site("g+0x2", vec![variable("plug", Location::Constant(1))])];
        let message = header(Path::new("a.bpf.c"), &[(&tune, other)]).unwrap_err().message;
        assert_eq!(
            message,
            "a.bpf.c:3: `sk` cannot be read at g+0x2: the source has no such variable there; what can be: plug"
        );
    }
}
