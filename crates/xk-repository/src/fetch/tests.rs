#![allow(clippy::unwrap_used)]

use std::io::Read;
use std::net::TcpListener;
use std::thread;

use xk_harness::example;
use xk_table::KernelRef;

use super::*;

const TIME: Duration = Duration::from_secs(20);

/// A repository with two tables, a store that trusts its key, and what is in the store.
struct Pair {
    folder: TempDir,
    keys: [Keys; 2],
    kernel: KernelRef,
}

impl Pair {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let path = |name: &str| folder.path().join(name);
        let keys = ["packer", "here"].map(|name| Keys::new(&path(name), &path("trusted")));
        fs::create_dir(path("trusted")).unwrap();
        fs::write(path("trusted/packer.pub"), keys[0].public().unwrap().to_string()).unwrap();
        let kernel = example::table().kernel;
        let pair = Self { folder, keys, kernel };
        pair.pack();
        pair
    }

    fn pack(&self) {
        let (code, data) = (example::table(), example::data_table());
        assert_eq!(code.kernel, data.kernel);
        let packed = crate::pack(&self.repository(), &self.keys[0], &self.kernel, &[&code, &data]).unwrap();
        assert_eq!(packed.tables.len(), 2);
    }

    fn repository(&self) -> PathBuf {
        self.folder.path().join("repository")
    }

    fn store(&self) -> PathBuf {
        self.folder.path().join("store")
    }

    fn source(&self) -> Source {
        Source::Folder(self.repository())
    }

    fn table_file(&self) -> PathBuf {
        Store::new(self.repository()).path(&self.kernel.build_id, &example::table().constant.id)
    }

    fn index_file(&self) -> PathBuf {
        self.repository().join(index::path(&self.kernel.build_id))
    }

    /// Fetches everything.
    fn fetch_from(&self, source: &Source, time: Duration) -> Result<usize, RepositoryError> {
        let offer = Offer::read(source, &self.keys[1], &self.kernel.build_id, time)?;
        let mut staging = Staging::new(&self.store())?;
        for entry in &offer.index.tables {
            staging.fetch(&offer, entry)?;
        }
        Ok(staging.install(|_| true)?.len())
    }

    /// What fetching everything says. Then nothing may be left.
    fn refusal(&self, source: &Source, time: Duration) -> String {
        let told = self.fetch_from(source, time).unwrap_err().to_string();
        let left = fs::read_dir(self.store()).map_or(0, Iterator::count);
        assert_eq!(left, 0, "after: {told}");
        told
    }
}

#[test]
fn what_was_packed_is_fetched() {
    let pair = Pair::new();
    assert_eq!(pair.fetch_from(&pair.source(), TIME).unwrap(), 2);
    for table in [example::table(), example::data_table()] {
        assert_eq!(Store::new(pair.store()).load(&pair.kernel.build_id, &table.constant.id).unwrap(), table);
    }
    // Once more, and over a table with a signature of its earlier bytes.
    let signature = Store::new(pair.store()).path(&pair.kernel.build_id, &example::table().constant.id);
    let signature = signature.with_extension("p7s");
    fs::write(&signature, "x").unwrap();
    assert_eq!(pair.fetch_from(&pair.source(), TIME).unwrap(), 2);
    assert!(!signature.exists());
    assert_eq!(fs::read_dir(pair.store()).unwrap().count(), 2, "tables of a kernel, and dates");
}

#[test]
fn whatever_is_altered_is_refused() {
    let pair = Pair::new();
    for file in [pair.index_file(), pair.table_file()] {
        let good = fs::read(&file).unwrap();
        let step = (good.len() / 200).max(1);
        // The line feed at the end of an index says nothing.
        for at in (0..good.len() - 1).step_by(step).chain([good.len() - 2]) {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            fs::write(&file, &bytes).unwrap();
            pair.refusal(&pair.source(), TIME);
            fs::write(&file, &good[..at]).unwrap();
            pair.refusal(&pair.source(), TIME);
        }
        fs::write(&file, [&good[..], b" "].concat()).unwrap();
        if file == pair.table_file() {
            assert!(pair.refusal(&pair.source(), TIME).contains("is longer than"));
        }
        fs::remove_file(&file).unwrap();
        pair.refusal(&pair.source(), TIME);
        fs::write(&file, &good).unwrap();
    }
    assert_eq!(pair.fetch_from(&pair.source(), TIME).unwrap(), 2);
}

#[test]
fn reasons_are_named() {
    let pair = Pair::new();
    let source = pair.source();
    let good = fs::read(pair.table_file()).unwrap();
    fs::write(pair.table_file(), &good[..good.len() - 7]).unwrap();
    assert!(pair.refusal(&source, TIME).contains("bytes instead of"));
    let mut altered = good.clone();
    altered[good.len() / 2] ^= 1;
    fs::write(pair.table_file(), altered).unwrap();
    assert!(pair.refusal(&source, TIME).contains("SHA-256"));
    fs::write(pair.table_file(), &good).unwrap();
    // Another machine's key.
    fs::write(pair.folder.path().join("trusted/packer.pub"), pair.keys[1].public().unwrap().to_string()).unwrap();
    assert!(pair.refusal(&source, TIME).contains("not trusted here"));
    // No tables of this build; no repository.
    fs::remove_dir_all(pair.repository().join(&pair.kernel.build_id)).unwrap();
    assert!(pair.refusal(&source, TIME).contains("no tables of kernel build"));
    fs::remove_dir_all(pair.repository()).unwrap();
    assert!(pair.refusal(&source, TIME).contains("no such folder"));
}

/// The index of another build, whole and signed, in the folder of this one; then a table of another build, with a digest
/// that is right.
#[test]
fn tables_of_another_build_are_refused() {
    let pair = Pair::new();
    let mut other = example::table();
    other.kernel.build_id = "01ff".into();
    crate::pack(&pair.repository(), &pair.keys[0], &other.kernel, &[&other]).unwrap();
    let good = fs::read(pair.index_file()).unwrap();
    fs::copy(pair.repository().join(index::path("01ff")), pair.index_file()).unwrap();
    assert!(pair.refusal(&pair.source(), TIME).contains("is of kernel build 01ff"));
    fs::write(pair.index_file(), &good).unwrap();
    let from = Store::new(pair.repository()).path("01ff", &other.constant.id);
    fs::copy(&from, pair.table_file()).unwrap();
    let bytes = fs::read(&from).unwrap();
    let index = Index { kernel: pair.kernel.clone(), made: 0, tables: vec![Entry::new(&other, &bytes)] };
    let sealed = FORMAT.seal(&pair.keys[0], serde_json::to_string(&index).unwrap()).unwrap();
    fs::write(pair.index_file(), sealed).unwrap();
    assert!(pair.refusal(&pair.source(), TIME).contains("made for kernel build 01ff"));
}

#[test]
fn another_fetch_at_the_same_time_waits_its_turn() {
    let pair = Pair::new();
    let first = Staging::new(&pair.store()).unwrap();
    assert!(matches!(Staging::new(&pair.store()), Err(RepositoryError::Busy(_))));
    drop(first);
    // What a killed process leaves is removed by the next one.
    fs::create_dir_all(pair.store().join(".fetch-old/x")).unwrap();
    assert_eq!(pair.fetch_from(&pair.source(), TIME).unwrap(), 2);
    assert_eq!(fs::read_dir(pair.store()).unwrap().count(), 2, "tables of a kernel, and dates");
}

/// A server on the loopback, for each connection one answer: a file of the repository, changed. `stall` bytes of the answer
/// are sent, then nothing.
fn serve(root: PathBuf, stall: Option<usize>) -> Source {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    thread::spawn(move || {
        let mut open = Vec::new();
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut request = Vec::new();
            while !request.ends_with(b"\r\n\r\n") {
                let mut byte = [0];
                if stream.read(&mut byte).unwrap_or(0) == 0 {
                    break;
                }
                request.push(byte[0]);
            }
            let request = String::from_utf8_lossy(&request).into_owned();
            let path = request.split(' ').nth(1).unwrap_or("/").trim_start_matches('/').to_owned();
            let answer = match fs::read(root.join(path)) {
                Ok(body) => {
                    let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", body.len());
                    [head.as_bytes(), &body].concat()
                }
                Err(_) => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec(),
            };
            let sent = stall.unwrap_or(answer.len()).min(answer.len());
            _ = stream.write_all(&answer[..sent]);
            if stall.is_some() {
                open.push(stream);
            }
        }
    });
    format!("http://{address}").parse().unwrap()
}

#[test]
fn a_server_gives_the_same() {
    let pair = Pair::new();
    let server = serve(pair.repository(), None);
    assert_eq!(pair.fetch_from(&server, TIME).unwrap(), 2);
    fs::remove_dir_all(pair.store()).unwrap();
    let good = fs::read(pair.table_file()).unwrap();
    fs::write(pair.table_file(), &good[..good.len() / 2]).unwrap();
    assert!(pair.refusal(&server, TIME).contains("bytes instead of"));
    fs::remove_file(pair.table_file()).unwrap();
    assert!(pair.refusal(&server, TIME).contains("404"));
    fs::remove_dir_all(pair.repository()).unwrap();
    assert!(pair.refusal(&server, TIME).contains("no tables of kernel build"));
}

#[test]
fn a_server_that_stalls_is_left() {
    let pair = Pair::new();
    let short = Duration::from_millis(300);
    let index = fs::metadata(pair.index_file()).unwrap().len() as usize;
    for bytes in [0, 9, 80, index] {
        let told = pair.refusal(&serve(pair.repository(), Some(bytes)), short);
        assert!(told.contains("does not answer") && told.contains("timed out"), "{bytes}: {told}");
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let gone: Source = format!("http://{}", listener.local_addr().unwrap()).parse().unwrap();
    drop(listener);
    assert!(pair.refusal(&gone, short).contains("refused"));
}

#[test]
fn an_older_index_is_refused_and_changes_nothing() {
    let pair = Pair::new();
    let old = fs::read(pair.index_file()).unwrap();
    assert_eq!(pair.fetch_from(&pair.source(), TIME).unwrap(), 2);
    assert_eq!(pair.fetch_from(&pair.source(), TIME).unwrap(), 2, "the same again");
    pair.pack();
    let new = fs::read(pair.index_file()).unwrap();
    assert_eq!(pair.fetch_from(&pair.source(), TIME).unwrap(), 2);
    fs::write(pair.index_file(), &old).unwrap();
    let table = Store::new(pair.store()).path(&pair.kernel.build_id, &example::table().constant.id);
    fs::write(&table, "x").unwrap();
    let told = pair.fetch_from(&pair.source(), TIME).unwrap_err();
    assert!(matches!(told, RepositoryError::Older { .. }), "{told}");
    assert_eq!(fs::read(&table).unwrap(), b"x");
    // Of another address, nothing is known.
    let server = serve(pair.repository(), None);
    assert_eq!(pair.fetch_from(&server, TIME).unwrap(), 2);
    fs::write(pair.index_file(), &new).unwrap();
    assert_eq!(pair.fetch_from(&pair.source(), TIME).unwrap(), 2);
}

#[test]
fn each_index_is_later_than_the_one_before_and_none_is_of_the_future() {
    let pair = Pair::new();
    let made = |keys: &Keys| {
        let offer = Offer::read(&pair.source(), keys, &pair.kernel.build_id, TIME).unwrap();
        offer.index.made
    };
    let first = made(&pair.keys[1]);
    pair.pack();
    assert!(made(&pair.keys[1]) > first, "also in the same second");
    let mut accepted = Accepted::read(&pair.store()).unwrap();
    let soon = crate::index::now() + 3600;
    assert!(accepted.accept("/srv/t", "0123", soon, "index").is_ok(), "clocks differ");
    let told = accepted.accept("/srv/t", "0123", soon + 48 * 3600, "index").unwrap_err().to_string();
    assert!(told.contains("in the future"), "{told}");
    fs::create_dir_all(pair.store()).unwrap();
    fs::write(pair.store().join(".accepted.json"), "{").unwrap();
    let told = pair.fetch_from(&pair.source(), TIME).unwrap_err().to_string();
    assert!(told.contains("is not known"), "{told}");
}
