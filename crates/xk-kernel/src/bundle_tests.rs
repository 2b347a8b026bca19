use super::*;
use crate::{Image, ImageError};

const BASE: u64 = 0xffff_ffff_9a00_0000;

fn bundle() -> Bundle {
    let kallsyms = format!("{BASE:x} T _stext\n{:x} T _etext\n", BASE + 4);
    let section = LoadedSection { name: ".text".to_owned(), address: 0xffff_ffff_c000_0000 };
    let contents = [
        ("kallsyms", None, kallsyms.clone().into_bytes()),
        ("config", None, b"CONFIG_X=y\n".to_vec()),
        ("btf", None, vec![0x9f, 0xeb]),
        ("text", Some(BASE), vec![1, 2, 3, 4]),
        ("modules/tcp_bbr/text0", Some(section.address), vec![5; 600_000]),
    ];
    let part = |(name, address, content): &(&str, Option<u64>, Vec<u8>)| Part {
        name: (*name).to_owned(),
        size: content.len() as u64,
        sha256: checksum(content),
        address: *address,
    };
    let manifest = Manifest {
        schema: SCHEMA,
        id: KernelId::new("6.12.117+deb12-amd64", &[0xab; 20], ""),
        parts: contents.iter().map(part).collect(),
        modules: BTreeMap::from([("tcp_bbr".to_owned(), vec![section])]),
    };
    let contents = contents.into_iter().map(|(_, _, content)| content).collect();
    Bundle { manifest, contents, kallsyms, config: Some("CONFIG_X=y\n".to_owned()) }
}

fn saved() -> (tempfile::TempDir, PathBuf) {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernel.xkb");
    bundle().save(&path).unwrap();
    (folder, path)
}

#[test]
fn what_is_saved_is_what_an_image_reads() {
    let (_folder, path) = saved();
    let image = Image::from_bundle(&path).unwrap();
    assert!(image.is_live());
    assert_eq!(image.id().flavour, "amd64");
    assert_eq!(image.text_range(), BASE..BASE + 4);
    assert_eq!(image.read(BASE + 1, 2).unwrap(), [2, 3]);
    assert_eq!(image.read(0xffff_ffff_c000_0010, 3).unwrap(), [5; 3]);
    assert_eq!(image.btf().unwrap(), [0x9f, 0xeb]);
    assert_eq!(image.config(), Some("CONFIG_X=y\n"));
    assert_eq!(image.module_sections("tcp-bbr").unwrap()[0].name, ".text");
    assert!(matches!(image.module_sections("bfq"), Err(ImageError::NotLoaded { .. })));
    for (address, length) in [(BASE + 3, 2), (BASE - 1, 1), (0, 1), (u64::MAX, 1), (BASE, usize::MAX)] {
        assert!(matches!(image.read(address, length), Err(ImageError::Unmapped { .. })), "{address:#x}");
    }
}

#[test]
fn truncated_bundles_are_refused() {
    let (_folder, path) = saved();
    let whole = std::fs::read(&path).unwrap();
    for end in (0..whole.len()).step_by(11).chain([whole.len() - 1]) {
        std::fs::write(&path, &whole[..end]).unwrap();
        assert!(Bundle::open(&path).is_err(), "cut at {end} of {}", whole.len());
    }
}

#[test]
fn altered_parts_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernel.xkb");
    let mut altered = bundle();
    altered.contents[3][2] ^= 1;
    altered.save(&path).unwrap();
    let error = Bundle::open(&path).unwrap_err();
    assert!(matches!(error, BundleError::Damaged { .. }) && error.to_string().contains("part text"), "{error}");
}

#[test]
fn other_files_and_formats_are_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("kernel.xkb");
    assert!(matches!(Bundle::open(&path), Err(BundleError::Io { .. })));
    for content in [&b""[..], b"text", &[0x1f, 0x8b, 8, 0, 0, 0]] {
        std::fs::write(&path, content).unwrap();
        assert!(matches!(Bundle::open(&path), Err(BundleError::NotABundle { .. })), "{content:?}");
    }
    let mut newer = bundle();
    newer.manifest.schema = SCHEMA + 1;
    newer.save(&path).unwrap();
    assert!(matches!(Bundle::open(&path), Err(BundleError::Schema { found: 2, .. })));
}

#[test]
fn a_failed_save_leaves_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("no/such/folder/kernel.xkb");
    assert!(matches!(bundle().save(&path), Err(BundleError::Io { .. })));
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0);
}
