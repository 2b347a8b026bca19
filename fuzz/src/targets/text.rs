//! What people and other programs write: tables, patches, names, values.

use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use anyhow::{Context, Result};
use xk_const::{glob, patched, BuildTree, ConstId, FileEdit, Spec, TreeError, Unit};
use xk_probe::{Class, Place};
use xk_table::{OpCode, Quantity, ScopeTable, Store};

use super::code::size;
use super::{said, Input};

/// The table of the command's own tests, and one with everything else that a table can hold.
pub fn tables() -> Result<Vec<Vec<u8>>> {
    let text = include_str!("../../../crates/xk/tests/golden/table.json");
    let mut all: serde_json::Value = serde_json::from_str(text)?;
    let address = serde_json::json!({ "code": "text", "width": 8, "dst": 20, "a": 0, "b": 1, "c": 2, "imm": 4 });
    let ops = all["spans"][0]["indirection"]["program"]["ops"].as_array_mut().context("no operations")?;
    ops.insert(0, address);
    all["spans"][0]["ivs"][0]["form"] = serde_json::json!({ "quotient": 3 });
    all["spans"][0]["ivs"][1]["form"] = serde_json::json!({ "power": 2 });
    // Instructions hold no quotient.
    all["spans"][0].as_object_mut().context("no span")?.remove("in_place");
    all["values"]["proved"] = serde_json::json!({ "min": 1, "max": 100 });
    all["values"]["unproved"] = "beyond it, a loop is unrolled".into();
    all["values"]["compiled"] = serde_json::json!([128, 256]);
    all["values"]["refused"] = serde_json::json!({ "0": "f+0x4", "129": "f+0x9" });
    all["data"] = serde_json::json!([{
        "symbol": "limit", "module": null, "section": ".data", "section_offset": 16, "offset": 8, "width": 4,
        "fit": { "a": 1, "b": 0, "form": "log2", "width": 4 }, "source": "block/blk.c",
    }]);
    serde_json::from_value::<ScopeTable>(all.clone())?.check().map_err(anyhow::Error::msg)?;
    Ok(vec![text.as_bytes().to_vec(), serde_json::to_vec(&all)?])
}

/// A table that is accepted can be loaded: nothing in it points outside.
pub fn table(input: &Input<'_>) -> String {
    said(Store::read(input.path), |table| {
        for span in &table.spans {
            let text = table.functions[span.function].text().unwrap_or_default();
            let probed = span.indirection.offset as usize + usize::from(span.indirection.insn_len);
            assert!(probed <= text.len(), "the probe lies behind the function");
            for patch in span.in_place.iter().flat_map(|in_place| &in_place.patches) {
                let number = patch.offset as usize + usize::from(patch.field) + usize::from(patch.size);
                assert!(number <= text.len(), "{patch:?} lies behind the function");
            }
            for op in span.indirection.program.ops.iter().filter(|op| op.code == OpCode::Text) {
                let field = usize::try_from(op.imm).ok().and_then(|at| text.get(at..at.checked_add(4)?));
                assert!(field.is_some(), "{op:?} reads beyond {} bytes", text.len());
            }
        }
        let fits = table.spans.iter().flat_map(|span| &span.ivs).chain(table.data.iter().map(|data| &data.fit));
        let hull = table.values.hull();
        assert!(table.values.contains(table.constant.default) && table.values.contains(hull.min));
        for fit in fits {
            for value in [hull.min, hull.max, table.constant.default, 0, i64::MIN, i64::MAX] {
                let value = fit.apply(value);
                assert!(fit.width == 8 || value >> (8 * u32::from(fit.width)) == 0, "{fit:?} gives {value:#x}");
            }
        }
        again(&table);
        format!("spans {} data {}", size(table.spans.len()), size(table.data.len()))
    })
}

/// What is written is what was read, times aside.
fn again(table: &ScopeTable) {
    let mut table = table.clone();
    table.stages.clear();
    let text = serde_json::to_string(&table).unwrap_or_default();
    assert_eq!(serde_json::from_str::<ScopeTable>(&text).ok(), Some(table));
}

const PATCH: &str = "\
--- a/x.c\t2024-01-01
+++ b/x.c
@@ -1,3 +1,3 @@ void f(void)
 #define DELAY (HZ / 25)
-#define BATCH 32 /* how many */
+#define BATCH 64 /* how many */
 static const int limit = 16 * 1024;
";

const SOURCE: &str = "\
#define DELAY (HZ / 25)
#define BATCH 32 /* how many */
static const int limit = 16 * 1024;
#define fits(a, b) ((a) * 1280 < (b) * 1024)
enum { A = 1, B = (1 << 4), C };
int f(int x)
{
	return x > 3 ? 0x10UL : 'c' + \"text\"[1];
}
#define LONG \\
	(A / 2)
";

/// A patch, a zero, the source.
pub fn patches() -> Result<Vec<Vec<u8>>> {
    let other = [("32 /*", "(4 * 8) /*"), ("BATCH 64", "BATCH (-1L)")].map(|(from, to)| PATCH.replacen(from, to, 2));
    let seed = |patch: &str| [patch.as_bytes(), &[0], SOURCE.as_bytes()].concat();
    let enumerator =
        "--- a/x.c\n+++ b/x.c\n@@ -5 +5 @@\n-enum { A = 1, B = (1 << 4), C };\n+enum { A = 1, B = (1 << 5), C };\n";
    Ok(other.iter().map(String::as_str).chain([PATCH, enumerator]).map(seed).collect())
}

/// A tree of one file, whatever it is called.
struct Source<'a>(&'a [u8]);

/// The folder of the file: only its name is looked at.
fn root() -> &'static Path {
    static ROOT: OnceLock<PathBuf> = OnceLock::new();
    ROOT.get_or_init(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("src/targets/tree"))
}

fn no_compiler<T>() -> Result<T, TreeError> {
    Err(TreeError::Failed("no compiler".into()))
}

impl BuildTree for Source<'_> {
    fn root(&self) -> &Path {
        root()
    }

    fn cache(&self) -> PathBuf {
        root().to_owned()
    }

    fn stamp(&self) -> String {
        String::new()
    }

    fn units(&self) -> Result<Vec<Unit>, TreeError> {
        no_compiler()
    }

    fn compile(&self, _: &[FileEdit], _: &str, _: &Path, _: &[&str]) -> Result<(), TreeError> {
        no_compiler()
    }

    fn compile_preprocessed(&self, _: &Path, _: &str, _: &Path, _: &[&str]) -> Result<(), TreeError> {
        no_compiler()
    }

    fn preprocess(&self, _: &[FileEdit], _: &str, _: &[&str]) -> Result<String, TreeError> {
        no_compiler()
    }

    fn read(&self, _: &str) -> Result<Vec<u8>, TreeError> {
        Ok(self.0.to_vec())
    }
}

pub fn patch(input: &Input<'_>) -> String {
    let middle = input.bytes.iter().position(|&byte| byte == 0).unwrap_or(input.bytes.len());
    let source = Source(input.bytes.get(middle + 1..).unwrap_or_default());
    said(patched(&source, &input.bytes[..middle]), |found| {
        if let Spec::Id(id) = &found.spec {
            assert_eq!(id.to_string().parse().as_ref(), Ok(id));
        }
        let spec = match found.spec {
            Spec::Id(_) => "id",
            Spec::Line { .. } => "line",
            Spec::Name(_) => "name",
        };
        format!("{spec} {}", found.suggestion.is_some())
    })
}

pub fn names() -> Result<Vec<Vec<u8>>> {
    let texts = ["SHRINK_BATCH", "net/ipv4/tcp.c:1162", "block/blk.h:L335:32:0", "a/b.c:L7:(x ? 1 : 2):3", "m*?.c"];
    Ok(texts.map(|text| text.as_bytes().to_vec()).to_vec())
}

/// What is printed is what was read; no pattern takes for ever.
pub fn name(input: &Input<'_>) -> String {
    let text = String::from_utf8_lossy(input.bytes);
    let (pattern, name) = text.split_once('\n').unwrap_or((&text, "mm/vmscan.c"));
    let matches = glob(pattern, name);
    let said = said(Spec::parse(&text), |spec| match spec {
        Spec::Id(id) => {
            assert_eq!(id.to_string().parse::<ConstId>().as_ref(), Ok(&id));
            "id".into()
        }
        Spec::Line { path, line } => {
            assert!(line > 0 && !path.starts_with('/') && path.split('/').all(|part| part != ".."), "{path}");
            "line".into()
        }
        Spec::Name(_) => "name".into(),
    });
    format!("{matches} {said}")
}

pub fn values() -> Result<Vec<Vec<u8>>> {
    let texts = ["128", "-1", "+7", "0x40", "4K", "20ms", "-2G", "170141183460469231731687303715884105727"];
    Ok(texts.map(|text| text.as_bytes().to_vec()).to_vec())
}

pub fn value(input: &Input<'_>) -> String {
    said(String::from_utf8_lossy(input.bytes).parse::<Quantity>(), |found| match found {
        Quantity::Number(number) => format!("number {}", number < 0),
        Quantity::Time(count, unit) => {
            let _ = count.saturating_mul(unit.nanoseconds());
            format!("{} {}", unit.suffix(), count < 0)
        }
    })
}

/// Instructions and patterns.
pub fn places() -> Result<Vec<Vec<u8>>> {
    let all =
        ["vfs_write", "vfs_write+0x5b", "sch_pie:f.cold+18", "0xffffffff81234567", "vfs_*@indirect-call", "?:*@any"];
    Ok(all.map(|text| text.as_bytes().to_vec()).to_vec())
}

/// A place is written as it is read.
pub fn place(input: &Input<'_>) -> String {
    let text = String::from_utf8_lossy(input.bytes);
    said(Place::parse(&text, None), |place| {
        assert_eq!(Place::parse(&place.to_string(), None).as_ref(), Ok(&place), "{text}");
        if let Ok(other) = Place::parse(&text, Some(&Class::Return)) {
            assert_eq!(Place::parse(&other.to_string(), None), Ok(other), "{text}");
        }
        place.to_string()
    })
}
