//! What the tuner is given: descriptions of searches, what endpoints expose, and memories of other machines.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{bail, Result};
use tempfile::TempDir;
use xk_keys::Keys;
use xk_tuner::description::{Domain, Job};
use xk_tuner::exchange::{export, import, Imported};
use xk_tuner::modules::{Described, ModuleError, Modules};
use xk_tuner::store::{Context, Store};
use xk_tuner::target::Selector;
use xk_tuner::{Signature, Value};

use super::code::size;
use super::{said, Input};

/// A search with parameters of each kind, and one of what the repository describes.
const SEARCHES: [&str; 2] = [
    "\
schema = 1
name = \"storage\"
with = { disk = \"sda\" }
[[parameter]]
name = \"swappiness\"
sysctl = \"vm.swappiness\"
min = 0
max = 200
step = 20
settle = \"200ms\"
[[parameter]]
name = \"batch\"
const = \"SHRINK_BATCH\"
min = 16
max = 1024
steps = \"exponential\"
only_if = { swappiness = 60 }
at_end = \"revert\"
[[parameter]]
name = \"mode\"
command = { get = \"cat /tmp/mode\", set = \"echo $VALUE >/tmp/mode\" }
choices = [\"slow\", \"fast\"]
[[targets]]
name = \"throughput\"
command = \"./transactions\"
measure = \"number\"
goal = \"maximise\"
timeout = \"60s\"
[[targets]]
name = \"p99\"
goal = \"minimise\"
[[constraint]]
name = \"p99\"
at_most = 5.0
[search]
trials = 40
minimum_effect = 0.05
",
    "\
schema = 1
subsystem = \"disk\"
with = { disk = \"sda\" }
[target]
prometheus = \"http://localhost:9090/metrics\"
metric = 'answers_total{code=\"200\"}'
window = \"10s\"
measure = \"rate\"
goal = \"maximise\"
timeout = \"15s\"
",
];

pub fn searches() -> Result<Vec<Vec<u8>>> {
    Ok(SEARCHES.map(|text| text.as_bytes().to_vec()).to_vec())
}

/// No module is loaded.
struct Nobody;

impl Modules for Nobody {
    fn look(&self) -> Result<Described, ModuleError> {
        Ok(Described::default())
    }
}

/// The repository's.
fn subsystems() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../subsystems")
}

/// What is accepted can be searched: every parameter has values, and whoever waits for another waits for one that is there.
pub fn search(input: &Input<'_>) -> String {
    said(Job::read(input.path, &[subsystems()], &Nobody), |jobs| {
        for job in &jobs {
            let names: Vec<&str> = job.parameters.iter().map(|parameter| parameter.name.as_str()).collect();
            for parameter in &job.parameters {
                let values = match &parameter.domain {
                    Domain::Numbers(values) | Domain::Choices(values) => values.len(),
                    Domain::Offered => 1,
                };
                assert!((1..=4097).contains(&values), "{}: {values} values", parameter.name);
                let guards = parameter.only_if.iter().map(|(name, _)| name.as_str());
                assert!(guards.into_iter().all(|name| names.contains(&name)), "{} waits for nobody", parameter.name);
            }
            assert!(job.options.trials > 0 && job.options.minimum_effect.is_finite(), "{:?}", job.options);
        }
        let parameters = jobs.iter().map(|job| job.parameters.len()).sum();
        format!("jobs {} parameters {}", jobs.len(), size(parameters))
    })
}

/// A selector, a zero, a text.
pub fn expositions() -> Result<Vec<Vec<u8>>> {
    let text =
        "# HELP answers_total All.\n# TYPE answers_total counter\nanswers_total{code=\"200\",path=\"/a\\\"b\\\\\"} 17 \
                1700000000\nanswers_total{code=\"500\"} 1e-3\nload 0.5\nworst +Inf\n";
    let selectors = ["load", "answers_total{code=\"500\"}", "answers_total", "worst"];
    Ok(selectors.map(|selector| [selector.as_bytes(), &[0], text.as_bytes()].concat()).to_vec())
}

/// A selector that is printed is the one that was read.
pub fn exposition(input: &Input<'_>) -> String {
    let text = String::from_utf8_lossy(input.bytes);
    let (selector, exposed) = text.split_once('\0').unwrap_or((&text, ""));
    said(Selector::parse(selector), |selector| {
        assert_eq!(Selector::parse(&selector.to_string()).as_ref(), Ok(&selector));
        said(selector.find(exposed), |value| format!("value {}", value.is_finite()))
    })
}

/// What other machines are told: two memories.
const NAMES: [&str; 2] = ["network", "storage"];

/// A machine that trusts itself. Its key is always the same: what it signed is trusted by later runs.
fn machine(folder: &Path) -> Result<(Store, Keys)> {
    fs::write(folder.join("key"), "5a".repeat(32))?;
    Ok((Store::open(folder)?, Keys::new(folder, &folder.join("trusted"))))
}

/// A file of `xk tune export`.
pub fn memories() -> Result<Vec<Vec<u8>>> {
    let folder = tempfile::tempdir()?;
    let (store, keys) = machine(folder.path())?;
    let context = Context { build_id: "1a2b".into(), hardware: "2 processors".into(), schema: "3c4d".into() };
    for name in NAMES {
        let setting = BTreeMap::from([("swappiness".to_owned(), Value::Number(60))]);
        store.remember(name, &context, &Signature::default(), &setting, 0.25)?;
    }
    let file = folder.path().join("memories");
    export(&store, &keys, None, &file)?;
    Ok(vec![fs::read(file)?])
}

thread_local! {
    /// Opening a database takes a hundred times as long as reading a file.
    static HERE: Result<(TempDir, Store, Keys)> = tempfile::tempdir().map_err(Into::into).and_then(|folder| {
        let (store, keys) = machine(folder.path())?;
        Ok((folder, store, keys))
    });
}

/// Who is believed is believed as a whole: a file that is taken has every memory that was signed.
pub fn memory(input: &Input<'_>) -> String {
    let take = |here: &Result<(TempDir, Store, Keys)>| match here {
        Ok((_, store, keys)) => Ok(import(store, keys, &[], input.path)?.0),
        Err(error) => bail!("{error:#}"),
    };
    said(HERE.with(take), |imported: Imported| {
        // This machine has no search, and says so of each.
        let expected = NAMES.map(|name| format!("search `{name}`: is another search"));
        assert_eq!(imported.refused, expected);
        "taken".into()
    })
}
