use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

use super::*;
use crate::store::tests::{context, sensors, signature, spec};

/// Two machines, of which the second trusts the first, and a file between them.
struct Pair {
    folder: tempfile::TempDir,
    stores: [Store; 2],
    keys: [Keys; 2],
}

impl Pair {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let stores = ["a", "b"].map(|name| Store::open(&path(name)).unwrap());
        let keys = ["a", "b"].map(|name| Keys::new(&path(name), &path(&format!("trusted-{name}"))));
        let setting = [("a".to_owned(), Value::Number(2))].into();
        stores[0].remember("disk", &context(), &signature(1.0), &setting, 0.5).unwrap();
        stores[0].forbid("disk", &context(), &signature(1.0), &setting, "p99 = 9").unwrap();
        let pair = Self { folder, stores, keys };
        assert_eq!(export(&pair.stores[0], &pair.keys[0], None, &pair.file()).unwrap(), 1);
        fs::create_dir(pair.folder.path().join("trusted-b")).unwrap();
        pair.trust(&pair.keys[0].public().unwrap().to_string());
        pair
    }

    fn file(&self) -> PathBuf {
        self.folder.path().join("memories.json")
    }

    fn trust(&self, key: &str) {
        fs::write(self.folder.path().join("trusted-b/a.pub"), format!("{key}\n")).unwrap();
    }

    fn import(&self, place: &SearchIdentity) -> Result<Imported, String> {
        let places = std::slice::from_ref(place);
        import(&self.stores[1], &self.keys[1], places, &self.file())
            .map(|(imported, _)| imported)
            .map_err(|error| error.to_string())
    }

    /// That nothing has come over.
    fn is_empty(&self) -> bool {
        self.stores[1].memories().unwrap() == 0 && self.stores[1].all_forbidden().unwrap().is_empty()
    }
}

fn here(context: Context) -> SearchIdentity {
    SearchIdentity::new("disk", context, spec().space)
}

#[test]
fn a_memory_comes_over_and_is_believed_half() {
    let pair = Pair::new();
    let imported = pair.import(&here(context())).unwrap();
    assert_eq!(imported, Imported { taken: 1, forbidden: 1, ..Imported::default() });
    let known = pair.stores[1].remembered("disk", &context(), &signature(1.0), &sensors()).unwrap().unwrap();
    assert_eq!((known.effect, known.confidence, &known.setting["a"]), (0.5, 0.5, &Value::Number(2)));
    let forbidden = pair.stores[1].forbidden("disk", &context(), &signature(1.0), &sensors()).unwrap();
    assert_eq!(forbidden, [known.setting]);
    // Once it does not hold, it is forgotten.
    pair.stores[1].demote(known.id).unwrap();
    assert_eq!(pair.stores[1].remembered("disk", &context(), &signature(1.0), &sensors()).unwrap(), None);
    // Again: nothing new, and what was found out here stays.
    assert_eq!(pair.import(&here(context())).unwrap(), Imported { known: 2, ..Imported::default() });
    assert_eq!(pair.stores[1].remembered("disk", &context(), &signature(1.0), &sensors()).unwrap(), None);
    // Imported memories are not exported.
    let told = export(&pair.stores[1], &pair.keys[1], Some("cpu"), &pair.file()).unwrap_err().to_string();
    assert!(told.contains("no memories to export"), "{told}");
    assert_eq!(pair.stores[1].exportable_memories().unwrap(), []);
}

#[test]
fn whatever_is_altered_is_refused() {
    let pair = Pair::new();
    let good = fs::read_to_string(pair.file()).unwrap();
    let mut refused = 0;
    for at in 0..good.len() {
        let mut bytes = good.clone().into_bytes();
        bytes[at] ^= 1;
        fs::write(pair.file(), &bytes).unwrap();
        match pair.import(&here(context())) {
            Err(_) => refused += 1,
            Ok(_) => panic!("byte {at} (`{}`) was altered unnoticed", good.as_bytes()[at] as char),
        }
        assert!(pair.is_empty(), "byte {at}");
        fs::write(pair.file(), &good.as_bytes()[..at]).unwrap();
        assert!(pair.import(&here(context())).is_err() || good[at..].trim().is_empty(), "cut at {at}");
    }
    assert_eq!(refused, good.len());
    let altered = good.replace("\\\"effect\\\":0.5", "\\\"effect\\\":0.9");
    assert_ne!(altered, good);
    fs::write(pair.file(), altered).unwrap();
    let told = pair.import(&here(context())).unwrap_err();
    assert!(told.contains("was altered, or was not signed with the key that it names"), "{told}");
}

#[test]
fn a_key_must_be_trusted() {
    let pair = Pair::new();
    let key = pair.keys[0].public().unwrap().to_string();
    pair.trust(&pair.keys[1].public().unwrap().to_string());
    let told = pair.import(&here(context())).unwrap_err();
    assert!(told.contains("not trusted here") && told.contains(&key) && told.contains("trusted-b"), "{told}");
    assert!(pair.is_empty());
    fs::remove_dir_all(pair.folder.path().join("trusted-b")).unwrap();
    assert!(pair.import(&here(context())).unwrap_err().contains("not trusted here"));
    fs::create_dir(pair.folder.path().join("trusted-b")).unwrap();
    pair.trust("many");
    let told = pair.import(&here(context())).unwrap_err();
    assert!(told.contains("a.pub: `many` is not a key"), "{told}");
    // One's own files come back.
    let own = import(&pair.stores[0], &pair.keys[0], &[here(context())], &pair.file()).unwrap().0;
    assert_eq!(own, Imported { known: 2, ..Imported::default() });
    let mode = fs::metadata(pair.folder.path().join("a/key")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
}

#[test]
fn what_is_of_another_machine_is_refused_with_its_reason() {
    let pair = Pair::new();
    let other = |change: fn(&mut Context)| {
        let mut context = context();
        change(&mut context);
        here(context)
    };
    for (place, reason) in [
        (other(|context| context.build_id = "b2".into()), "another kernel build: b; this machine has b2"),
        (other(|context| context.hardware = "h2".into()), "another hardware: h; this machine has h2"),
        (other(|context| context.schema = "s2".into()), "another description (parameters, values, guards, target): s;"),
        (SearchIdentity::new("cpu", context(), spec().space), "search `disk`: is another search"),
    ] {
        let imported = pair.import(&place).unwrap();
        assert_eq!((imported.taken, imported.forbidden, imported.refused.len()), (0, 0, 1), "{imported:?}");
        assert!(imported.refused[0].contains(reason), "{imported:?}");
        assert!(pair.is_empty());
    }
}

#[test]
fn what_cannot_be_set_here_is_refused() {
    let pair = Pair::new();
    let setting = [("a".to_owned(), Value::Number(77))].into();
    pair.stores[0].remember("disk", &context(), &signature(2.0), &setting, 0.5).unwrap();
    pair.stores[0].remember("disk", &context(), &signature(3.0), &[].into(), -0.5).unwrap();
    export(&pair.stores[0], &pair.keys[0], Some("disk"), &pair.file()).unwrap();
    let imported = pair.import(&here(context())).unwrap();
    assert_eq!(imported.taken, 1);
    assert_eq!(
        imported.refused,
        ["search `disk`: its effect is -0.5, but must be above 0", "search `disk`: this machine cannot set a = 77"]
    );
}

#[test]
fn other_versions_are_not_guessed_at() {
    let pair = Pair::new();
    let good = fs::read_to_string(pair.file()).unwrap();
    fs::write(pair.file(), good.replace("\"version\": 1", "\"version\": 2")).unwrap();
    let told = pair.import(&here(context())).unwrap_err();
    assert!(told.contains("version 2; this program reads `xk tuner memories` version 1"), "{told}");
    for text in ["", "{}", "[]", "nonsense", "{\"format\":\"xk tuner memories\"}"] {
        fs::write(pair.file(), text).unwrap();
        assert!(pair.import(&here(context())).unwrap_err().contains("is not a file of `xk tune export`"), "{text}");
    }
}
