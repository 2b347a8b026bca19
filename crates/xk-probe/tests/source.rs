//! Lines of the source in the kernel of the lab (`lab/lab fetch amd64`), as it lies on disk.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

use std::fs;
use std::path::Path;

use object::{Object, ObjectSection, ObjectSymbol};
use xk_const::{build_debug, BuildTree};
use xk_kernel::Image;
use xk_policy::variables::uses;
use xk_probe::{reading, Lines, Place, Resolver, Source, SourceError, VariableError};
use xk_testing::kernels::{cache, kernel, tree};

const UNIT: &str = "fs/read_write.c";
/// In `vfs_write`.
const CALL: &str = "ret = file->f_op->write(file, buf, count, pos);";

fn image() -> Image {
    let kernel = kernel("amd64");
    Image::from_vmlinuz(&kernel.vmlinuz, None).unwrap().with_modules_in(&kernel.root)
}

/// Number of the first line of a file that contains a text.
fn number(file: &str, text: &str) -> usize {
    let source = fs::read_to_string(tree().root().join(file)).unwrap();
    source.lines().position(|line| line.contains(text)).unwrap() + 1
}

fn line(unit: &str, text: &str) -> Place {
    Place::parse(&format!("{unit}:{}", number(unit, text)), None).unwrap()
}

/// C that reads a variable at a place.
fn c(image: &Image, place: &str, variable: &str) -> Result<String, VariableError> {
    let text = format!("SEC(\"xk/{place}\")\n\tXK_VAR({variable});\n");
    let (found, places) = (uses(&text).unwrap(), vec![Place::parse(place, None).unwrap()]);
    let source = Source::new(image, tree(), &cache()).unwrap();
    let resolver = Resolver::with_lines(image, &places, None, source.lines(&places).unwrap()).unwrap();
    reading(Path::new("a.bpf.c"), &[(&found[0], places)], &source, &resolver)
}

fn lines(image: &Image, cache: &Path, place: &Place) -> Result<Lines, SourceError> {
    Source::new(image, tree(), cache).unwrap().lines(std::slice::from_ref(place))
}

/// Its object in a folder, with one byte of a function changed: the first that is compared.
fn altered(folder: &Path, function: &str) {
    let unit = BuildTree::units(tree()).unwrap().into_iter().find(|unit| unit.source == UNIT).unwrap();
    let path = build_debug(tree(), &unit, &folder.join("objects")).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let at = {
        let file = object::File::parse(&*bytes).unwrap();
        let symbol = file.symbols().find(|symbol| symbol.name() == Ok(function)).unwrap();
        let section = file.section_by_index(symbol.section_index().unwrap()).unwrap();
        let (start, _) = section.file_range().unwrap();
        // After endbr64 and the call of the tracer, which the kernel patches.
        (start + symbol.address()) as usize + 9
    };
    bytes[at] ^= 1;
    fs::write(&path, bytes).unwrap();
}

#[test]
fn a_function_that_is_not_the_deployed_one_is_refused() {
    let (folder, image, place) = (tempfile::tempdir().unwrap(), image(), line(UNIT, CALL));
    altered(folder.path(), "vfs_write");
    let error = lines(&image, folder.path(), &place).unwrap_err();
    assert!(matches!(error, SourceError::NotDeployed { .. }), "{error}");
    let message = error.to_string();
    for word in [&place.to_string(), UNIT, "vfs_write", "+0x9"] {
        assert!(message.contains(word), "no `{word}` in: {message}");
    }
    // Another function of the unit is what it was.
    let other = line(UNIT, "ret = filp->f_op->write_iter(&kiocb, &iter);");
    assert!(lines(&image, folder.path(), &other).is_err(), "it is inlined in vfs_write");
    let other = line(UNIT, "ret = file->f_op->read(file, buf, count, pos);");
    assert!(lines(&image, folder.path(), &other).is_ok());
}

#[test]
fn a_line_of_a_module_is_in_the_module() {
    let (image, place) = (image(), line("net/sched/sch_pie.c", "if (!pie_drop_early("));
    let lines = lines(&image, &cache(), &place).unwrap();
    let resolver = Resolver::with_lines(&image, std::slice::from_ref(&place), None, lines).unwrap();
    let found = resolver.resolve(&place).unwrap().found;
    assert!(!found.is_empty() && found.iter().all(|found| found.module.as_deref() == Some("sch_pie")), "{found:?}");
}

#[test]
fn a_line_needs_its_source() {
    let (image, place) = (image(), line(UNIT, CALL));
    let resolver = Resolver::new(&image, std::slice::from_ref(&place), None).unwrap();
    let message = resolver.resolve(&place).unwrap_err().to_string();
    assert!(message.contains("the source of the kernel was not read"), "{message}");
}

#[test]
fn a_line_of_a_header_is_found_in_a_unit() {
    let image = image();
    let line = number("include/linux/fs.h", "static inline void file_start_write(struct file *file)") + 2;
    let place = Place::parse(&format!("{UNIT}:include/linux/fs.h:{line}"), None).unwrap();
    let known = lines(&image, &cache(), &place).unwrap();
    let Place::Line { line, .. } = &place else { panic!("{place}") };
    let functions: Vec<&str> = known.of(line).unwrap().parts.iter().map(|part| part.function.symbol.as_str()).collect();
    assert!(functions.contains(&"vfs_write") && functions.len() > 1, "{functions:?}");
    let alone = Place::parse(&format!("include/linux/fs.h:{}", line.number), None).unwrap();
    let message = lines(&image, &cache(), &alone).unwrap_err().to_string();
    assert!(message.contains(&format!("UNIT.c:include/linux/fs.h:{}", line.number)), "{message}");
}

#[test]
fn the_unit_of_a_function_is_found_in_the_source() {
    let image = image();
    for (place, variable, parts) in [
        ("vfs_write@body", "count", ["size_t xk_var_count(", "ctx->dx"]),
        ("sch_pie:pie_drop_early@body", "params", ["struct pie_params * xk_var_params(", "ctx->si"]),
    ] {
        let text = c(&image, place, variable).unwrap();
        for part in parts {
            assert!(text.contains(part), "no {part} in {text}");
        }
        assert!(text.contains(&format!("{{ \"{}+0x", place.trim_end_matches("@body"))), "{text}");
    }
    let message = c(&image, "vfs_write@any", "count").unwrap_err().to_string();
    assert!(message.contains("`count` cannot be read at vfs_write+0x"), "{message}");
    // Assembly has no such debug information.
    let message = c(&image, "rep_movs_alternative", "dst").unwrap_err().to_string();
    assert!(message.contains("no translation unit was found") && message.contains("FILE.c:LINE"), "{message}");
}
