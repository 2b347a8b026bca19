#![allow(clippy::unwrap_used)]

use std::fs;

use super::*;

const FORMAT: Format = Format { name: "things", version: 2, command: "xk things" };
const OTHER: Format = Format { name: "others", version: 2, command: "xk others" };

fn keys(folder: &std::path::Path, name: &str) -> Keys {
    Keys::new(&folder.join(name), &folder.join("trusted"))
}

#[test]
fn only_the_sealed_text_of_a_trusted_key_is_opened() {
    let folder = tempfile::tempdir().unwrap();
    let [one, other] = ["one", "other"].map(|name| keys(folder.path(), name));
    let sealed = FORMAT.seal(&one, "text".into()).unwrap();
    // One's own key is trusted; that of another machine if its file is there.
    assert_eq!(FORMAT.open(&one, &sealed).unwrap(), ("text".into(), one.public().unwrap()));
    assert!(matches!(FORMAT.open(&other, &sealed), Err(SealError::Untrusted { .. })));
    fs::create_dir(folder.path().join("trusted")).unwrap();
    fs::write(folder.path().join("trusted/one.pub"), one.public().unwrap().to_string()).unwrap();
    assert_eq!(FORMAT.open(&other, &sealed).unwrap().0, "text");
    assert!(matches!(FORMAT.open(&other, &sealed.replace("text", "next")), Err(SealError::Altered(_))));
}

#[test]
fn a_signature_is_of_one_format() {
    let folder = tempfile::tempdir().unwrap();
    let keys = keys(folder.path(), "one");
    let sealed = FORMAT.seal(&keys, "text".into()).unwrap();
    assert!(matches!(OTHER.open(&keys, &sealed), Err(SealError::Version { .. })));
    // The name is altered, too: the signature covers it.
    assert!(matches!(OTHER.open(&keys, &sealed.replace("things", "others")), Err(SealError::Altered(_))));
}
