//! A constant of one unit, compiled as the kernel is; the unit is the deployed kernel, too.

#![allow(dead_code)] // each test binary uses its part

use std::collections::{BTreeMap, HashSet};

use xk_analysis::analyse::{conclude, Input};
use xk_analysis::data::DataSeeds;
use xk_analysis::identity::{Candidate, Deployed, Unreadable};
use xk_analysis::pipeline::BuildError;
use xk_analysis::proof::Solver;
use xk_analysis::span::Seeds;
use xk_analysis::study::{Means, Study, Variant};
use xk_analysis::theorem::{Compiled, Compiler, Functions, Theorem, With};
use xk_analysis::verify::{against, quick, shown_again, values, At, Claim, Report};
use xk_const::CType;
use xk_lift::notes::Notes;
use xk_lift::object::Object;
use xk_lift::prototypes::Prototypes;
use xk_table::{ConstRef, KernelRef, Mode, ScopeTable, Values, SCHEMA};

use xk_testing::{compile_c, noted_c, try_compile_c};

/// The deployed kernel is the fixture itself.
pub struct Itself(Vec<(String, Vec<u8>)>);

impl Deployed for Itself {
    fn candidates(&self, symbol: &str, _module: Option<&str>) -> Result<Vec<Candidate>, Unreadable> {
        let found = self.0.iter().enumerate().filter(|(_, (name, _))| name == symbol);
        let candidate =
            |i: usize| Candidate { section: ".text".into(), text_offset: i as u64 * 0x1000, address: i as u64 };
        Ok(found.map(|(i, _)| candidate(i)).collect())
    }

    fn text(&self, candidate: &Candidate, _module: Option<&str>, len: usize) -> Result<Vec<u8>, Unreadable> {
        let bytes = &self.0[candidate.address as usize].1;
        Ok(bytes[..len.min(bytes.len())].to_vec())
    }
}

/// A constant of one unit, its table, and what is needed to make both again.
pub struct Bench {
    pub text: &'static str,
    pub deployed: Itself,
    pub solver: Solver,
    pub noreturns: HashSet<String>,
    pub table: ScopeTable,
}

pub const DEFAULT: i64 = 32;
const FITTED: [i64; 2] = [17, 64];
const UNSEEN: [i64; 4] = [5, 10, 100, 127];

fn object(text: &str, value: i64) -> Object {
    Object::parse(&compile_c(text, &value.to_string())).unwrap()
}

impl Bench {
    pub fn new(text: &'static str) -> Self {
        let base = object(text, DEFAULT);
        let mut names: Vec<(String, Vec<u8>)> =
            base.functions.values().map(|f| (f.name.clone(), base.text_and_mask(f).0)).collect();
        names.extend(base.data_symbols.keys().map(|name| (name.clone(), Vec::new())));
        let table = ScopeTable {
            schema: SCHEMA,
            kernel: KernelRef { release: "test".into(), build_id: "00".into() },
            constant: ConstRef {
                id: "unit.c:L1:32:0".into(),
                name: None,
                text: String::new(),
                token: "32".into(),
                default: DEFAULT,
            },
            values: Values::proved(DEFAULT, DEFAULT),
            functions: vec![],
            spans: vec![],
            data: vec![],
            scopes: Vec::new(),
            mode: Mode::Global,
            escapes: Vec::new(),
            scoped: None,
            units: vec![],
            stages: BTreeMap::new(),
        };
        let solver = Solver::z3(10).expect("z3 is needed: apt-get install z3");
        let mut bench = Self { text, deployed: Itself(names), solver, noreturns: HashSet::new(), table };
        let mut studies = [bench.study(&[FITTED.as_slice(), &UNSEEN].concat())];
        let functions = [(studies[0].seeds().unwrap().clone(), studies[0].data().clone())];
        let candidates = FITTED.into_iter().chain(UNSEEN).chain([DEFAULT]).collect();
        let (mut shown, ordered) = bench.theorem(&studies, &functions, |theorem| {
            let shown = theorem.values(&candidates).unwrap();
            let ordered = if shown.proved.is_none() { theorem.ordered().unwrap() } else { None };
            (shown, ordered)
        });
        if let Some((seeds, values)) = ordered {
            shown = values;
            studies.iter_mut().zip(seeds).for_each(|(study, seeds)| study.test_for_order(seeds));
        }
        let found = conclude(&bench.input(), &studies, shown).unwrap();
        bench.table.values = found.values;
        bench.table.functions = found.functions;
        bench.table.spans = found.spans;
        bench.table.data = found.data;
        bench.table.check().unwrap();
        bench
    }

    pub fn input(&self) -> Input<'_> {
        let Self { deployed, solver, noreturns, .. } = self;
        Input { default: DEFAULT, noreturns, deployed, solver }
    }

    pub fn study(&self, values: &[i64]) -> Study {
        let prototypes = Prototypes::default();
        let means =
            Means { default: DEFAULT, noreturns: &self.noreturns, prototypes: &prototypes, solver: &self.solver };
        let mut study = Study::new("unit.c".into(), None, object(self.text, DEFAULT), &prototypes);
        for &value in values {
            study.add(&means, value, Variant::Built(Box::new(object(self.text, value))));
        }
        study
    }

    /// What is found when the table is altered like this.
    pub fn altered(&self, alter: impl FnOnce(&mut ScopeTable)) -> Report {
        let mut table = self.table.clone();
        alter(&mut table);
        let mut report = quick(&table, &self.deployed);
        let values = values(&table);
        let studies = [self.study(&values)];
        let solvers = std::slice::from_ref(&self.solver);
        let functions = against(&self.input(), solvers, &table, &values, &studies, &mut report);
        if !functions.is_empty() {
            self.theorem(&studies, &functions, |theorem| {
                shown_again(theorem, &table, &values, &mut report).unwrap();
            });
        }
        report
    }

    /// The theorem with these functions of V.
    pub fn theorem<T>(
        &self,
        studies: &[Study],
        functions: &[(Seeds, DataSeeds)],
        use_it: impl FnOnce(&Theorem<'_>) -> T,
    ) -> T {
        let prototypes = Prototypes::default();
        let means =
            Means { default: DEFAULT, noreturns: &self.noreturns, prototypes: &prototypes, solver: &self.solver };
        let functions = functions.iter().map(|(code, data)| Functions { code, data }).collect();
        use_it(&Theorem { c_type: CType::Int, means, compiler: self, studies, functions, jobs: 1 })
    }

    #[track_caller]
    pub fn finds(&self, at: At, claim: Claim, alter: impl FnOnce(&mut ScopeTable)) {
        let report = self.altered(alter);
        let there = report.faults.iter().any(|fault| fault.at == at && fault.claim == claim);
        assert!(there, "no fault of {claim:?} at {at:?} in {:?}", report.faults);
        // A fault of one span does not blame another.
        let elsewhere =
            |fault: &&xk_analysis::verify::Fault| matches!((fault.at, at), (At::Span(x), At::Span(y)) if x != y);
        assert!(!report.faults.iter().any(|fault| elsewhere(&fault)), "{:?}", report.faults);
    }
}

impl Compiler for Bench {
    fn compile(&self, _unit: usize, with: With) -> Result<Compiled, BuildError> {
        let (text, value) = self.text(with);
        Ok(match try_compile_c(&text, &value) {
            Ok(object) => Compiled::Object(Box::new(Object::parse(&object).unwrap())),
            Err(rejected) => Compiled::Rejected(rejected.messages),
        })
    }

    fn notes(&self, _unit: usize, with: With, object: &Object) -> Result<Notes, BuildError> {
        let (text, value) = self.text(with);
        Ok(Notes::read(&noted_c(&text, &value), object))
    }
}

impl Bench {
    fn text(&self, with: With) -> (String, String) {
        match with {
            // Without its sign it is no int.
            With::Value(value) if value == i64::from(i32::MIN) => (self.text.to_owned(), "(-2147483647 - 1)".into()),
            With::Value(value) => (self.text.to_owned(), value.to_string()),
            With::Changing => {
                let declared = format!("extern const volatile int xk_opaque_object;\n{}", self.text);
                (declared, "((int)xk_opaque_object)".into())
            }
            With::Opaque => (format!("extern char xk_opaque[];\n{}", self.text), "((int)(long)xk_opaque)".into()),
        }
    }
}
