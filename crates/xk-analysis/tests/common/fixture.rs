//! Fixtures that are analysed: compiled as the kernel is, each its own deployed
//! kernel.

#![allow(dead_code, missing_docs)] // each test binary uses its part

use std::collections::HashSet;

use xk_analysis::analyse::{analyse, Analysis, Input};
use xk_analysis::identity::{Candidate, Deployed, Unreadable};
use xk_analysis::proof::Solver;
use xk_analysis::study::{Builds, Variant};
use xk_lift::object::Object;
use xk_table::Refusal;

use xk_testing::{assemble, compile_c};

/// The deployed kernel is the fixture itself.
#[derive(Default)]
pub struct Itself {
    pub functions: Vec<(String, Vec<u8>)>,
    data: Vec<String>,
}

impl Itself {
    /// All functions and objects of `object`.
    pub fn of(object: &Object) -> Self {
        let functions = object.functions.values().map(|f| (f.name.clone(), object.text_and_mask(f).0)).collect();
        Self { functions, data: object.data_symbols.keys().cloned().collect() }
    }
}

impl Deployed for Itself {
    fn candidates(&self, symbol: &str, _module: Option<&str>) -> Result<Vec<Candidate>, Unreadable> {
        let functions = self.functions.iter().map(|(name, _)| name);
        let found = functions.chain(&self.data).enumerate().filter(|(_, name)| *name == symbol);
        Ok(found
            .map(|(i, _)| Candidate { section: ".text".into(), text_offset: i as u64 * 0x1000, address: i as u64 })
            .collect())
    }

    fn text(&self, candidate: &Candidate, _module: Option<&str>, len: usize) -> Result<Vec<u8>, Unreadable> {
        let bytes = &self.functions[candidate.address as usize].1;
        Ok(bytes[..len.min(bytes.len())].to_vec())
    }
}

/// A solver that gives `answer` to every query.
pub fn says(answer: &str) -> Solver {
    let script = format!(
        r#"while read -r line; do
            case "$line" in
            '(check-sat)') [ -z '{answer}' ] || printf '%s\n' '{answer}' ;;
            '(echo '*) line=${{line#*\"}}; echo "${{line%\"*}}" ;;
            esac
        done"#
    );
    Solver::of(&["sh", "-c", &script], "stub".into(), 1)
}

pub fn solver() -> Solver {
    Solver::z3(10).expect("z3 is needed: apt-get install z3")
}

/// How a fixture becomes an object for one value.
pub type Build<'a> = dyn Fn(i64) -> Object + 'a;

pub fn from_c(text: &str) -> impl Fn(i64) -> Object + '_ {
    move |v| Object::parse(&compile_c(text, &v.to_string())).unwrap()
}

pub fn from_assembly(text: &str) -> impl Fn(i64) -> Object + '_ {
    move |v| Object::parse(&assemble(&text.replace("{V}", &v.to_string()))).unwrap()
}

/// A function `f` in assembly, with `{V}` where the value stands.
pub fn body(text: &str) -> String {
    format!(".text\n.globl f\n.type f,@function\nf:\n{text}\n.size f,.-f\n")
}

/// The function that the fixtures define.
pub fn function(object: &Object) -> &xk_lift::object::Function {
    object.functions.values().find(|f| f.name == "f").unwrap()
}

pub fn builds(build: &Build<'_>, default: i64, fitted: &[i64], unseen: &[i64]) -> Builds {
    let built = |&v: &i64| (v, Variant::Built(Box::new(build(v))));
    let variants = fitted.iter().chain(unseen).map(built).collect();
    Builds { source: "unit.c".into(), module: None, base: build(default), variants }
}

pub fn analysed(
    units: Vec<Builds>,
    default: i64,
    deployed: &dyn Deployed,
    solver: &Solver,
) -> Result<Analysis, Refusal> {
    let noreturns = HashSet::new();
    analyse(&Input { default, noreturns: &noreturns, deployed, solver }, units)
}

pub fn plain(build: &Build<'_>, default: i64, fitted: &[i64], unseen: &[i64]) -> Result<Analysis, Refusal> {
    let unit = builds(build, default, fitted, unseen);
    let deployed = Itself::of(&unit.base);
    analysed(vec![unit], default, &deployed, &solver())
}

pub const PRELUDE: &str =
    "typedef unsigned char u8; typedef unsigned short u16; typedef unsigned int u32; typedef int s32;\n\
     typedef unsigned long u64; typedef long s64; extern u64 g(u64), h(u64); extern u64 shared;\n\
     struct s { u32 a, b; u64 c; u16 d; u8 e; };\n";

pub const ALTERNATIVE: &str = "1: .byte 0x90,0x90,0x90,0x90,0x90; call g; ret\n.size f,.-f\n\
    .section .altinstructions,\"a\"; .long 1b - ., 2f - ., 0x10; .byte 5, 5\n\
    .section .altinstr_replacement,\"ax\"; 2: mov ${V},%edi\n.text\n";

pub fn reason(refusal: &Refusal) -> String {
    serde_json::to_value(refusal).unwrap()["reason"].as_str().unwrap().to_owned()
}
