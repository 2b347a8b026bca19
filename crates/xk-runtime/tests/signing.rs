//! `xk.ko` with `require_signed=1`: what is signed is loaded, what is altered is not. One guest boots and runs
//! every check of `inside`; that of lockdown boots its own.
//!
//! Effects are what `/proc/xk_target` prints, the return values of functions that contain a constant of 32.

#![allow(clippy::unwrap_used, clippy::expect_used)] // a test

#[allow(dead_code)] // shared with the tests of probes
mod support;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use support::target::{fresh_target, target, target_module, write, TARGET_KO};
use support::{listed, raw, set_register, table, Loaded, SiteSpec, RAX};
use xk_runtime::{
    abi, signable, AddressError, AddressOf, Backend, Change, Destination, Device, Error, Mode, SignatureError,
};
use xk_table::{DataSite, Fit, Function, OpCode, Scope, ScopeTable};
use xk_testing::guest::{file, report_under_lockdown, run, XK_KO};

xk_testing::guest_tests! {
    what_is_signed_is_loaded,
    what_is_altered_is_refused,
    every_byte_is_signed,
    the_mode_is_signed,
    another_key_is_refused,
    a_policy_is_refused,
    a_constant_of_the_kernel_is_signed_without_its_address,
    a_key_that_is_none_is_refused,
    under_lockdown_what_is_signed_is_loaded,
}

fn report(name: &str) {
    report_under_lockdown(name, &[(XK_KO, "kernel/xk"), (TARGET_KO, "kernel/test")]);
}

/// A key and its certificate.
struct Key(PathBuf);

impl Key {
    /// A new one.
    fn new(name: &str) -> Self {
        let folder = PathBuf::from(format!("/tmp/xk-signing-{name}"));
        let key = Self(folder);
        if !key.0.exists() {
            fs::create_dir(&key.0).unwrap();
            let subject = format!("/CN=xk test {name}");
            let (pem, cert) = (key.path("key.pem"), key.path("cert.pem"));
            let extensions = ["keyUsage=digitalSignature", "subjectKeyIdentifier=hash"];
            openssl(&[
                "req",
                "-x509",
                "-newkey",
                "rsa:2048",
                "-sha256",
                "-nodes",
                "-days",
                "36500",
                "-subj",
                &subject,
                "-addext",
                extensions[0],
                "-addext",
                extensions[1],
                "-keyout",
                &pem,
                "-out",
                &cert,
            ]);
            openssl(&["x509", "-in", &cert, "-outform", "DER", "-out", &key.path("cert.der")]);
        }
        key
    }

    fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().to_owned()
    }

    /// A detached signature over `bytes`.
    fn sign(&self, bytes: &[u8]) -> Vec<u8> {
        let (content, signature) = (self.path("content"), self.path("signature"));
        fs::write(&content, bytes).unwrap();
        openssl(&[
            "cms",
            "-sign",
            "-binary",
            "-noattr",
            "-nocerts",
            "-md",
            "sha256",
            "-outform",
            "DER",
            "-signer",
            &self.path("cert.pem"),
            "-inkey",
            &self.path("key.pem"),
            "-in",
            &content,
            "-out",
            &signature,
        ]);
        fs::read(signature).unwrap()
    }
}

fn openssl(arguments: &[&str]) {
    let output = Command::new("openssl").args(arguments).output().unwrap();
    assert!(output.status.success(), "{arguments:?}: {}", String::from_utf8_lossy(&output.stderr));
}

/// Addresses as of [`Loaded`], and a signature.
struct Signed(Vec<u8>);

impl AddressOf for Signed {
    fn address(&self, function: &Function) -> Result<Option<u64>, AddressError> {
        Loaded.address(function)
    }

    fn data_address(&self, data: &DataSite) -> Result<Option<u64>, AddressError> {
        if data.module.is_some() {
            return Loaded.data_address(data);
        }
        listed(&data.symbol).map(Some)
    }

    fn signature(&self, _: &ScopeTable) -> Result<Option<Vec<u8>>, SignatureError> {
        Ok(Some(self.0.clone()))
    }
}

fn rmmod() {
    assert!(!Path::new("/sys/module/xk").exists() || run("rmmod", &["xk"]));
}

fn insmod_signed(key: &Key) -> bool {
    let parameters = ["require_signed=1".to_owned(), format!("signing_key={}", key.path("cert.der"))];
    run("insmod", &[file(XK_KO).to_str().unwrap(), &parameters[0], &parameters[1]])
}

/// Fresh modules for each check, whatever the one before left behind.
fn prepare() {
    fresh_target();
    rmmod();
    assert!(insmod_signed(&Key::new("own")));
}

fn value_table() -> ScopeTable {
    let mut table = table(&target_module(), "VALUE", vec![SiteSpec::new("xk_target_value", 5, 2, set_register(RAX))]);
    table.scopes = vec![Scope { function: 0, ranges: vec![[0, 8]], spans: vec![0], ..Scope::default() }];
    table.mode = Mode::Task;
    table
}

/// Signed as it is.
fn signed(table: &ScopeTable, key: &Key) -> Signed {
    Signed(key.sign(&signable(table, &Loaded, 0).unwrap()))
}

fn forbidden<T: std::fmt::Debug>(result: Result<T, Error>) -> String {
    match result {
        Err(Error::Forbidden(reason)) => reason,
        other => panic!("not forbidden: {other:?}"),
    }
}

const ALTERED: &str = "the table is not what was signed";

mod checks {
    use super::*;

    const LONG: Duration = Duration::from_secs(60);

    pub fn what_is_signed_is_loaded() {
        let table = value_table();
        let device = Device::open().unwrap();
        assert!(device.requires_signed());
        let tune = device.load(&table, &signed(&table, &Key::new("own"))).unwrap();
        tune.go(Destination::Value(99), Mode::Task, LONG).unwrap();
        assert_eq!(target("value"), "99");
        tune.go(Destination::Unload, Mode::Task, LONG).unwrap();
        assert_eq!(target("value"), "32");
        assert!(forbidden(device.load(&table, &Loaded)).contains("require_signed=1, and the table is not signed"));
    }

    pub fn what_is_altered_is_refused() {
        let table = value_table();
        let device = Device::open().unwrap();
        let signature = signed(&table, &Key::new("own"));
        type Edit = fn(&mut ScopeTable);
        let edits: [(&str, Edit); 7] = [
            ("an operation", |t| t.spans[0].indirection.program.ops[0].code = OpCode::Imm),
            ("its operand", |t| t.spans[0].indirection.program.ops[1].dst = 1),
            ("how a value follows", |t| t.spans[0].ivs[0] = Fit::linear(2, 0, 4)),
            ("the range", |t| t.values = xk_table::Values::proved(1, 1001)),
            ("the place", |t| t.spans[0].indirection.offset = 7),
            ("a scope", |t| t.scopes[0].ranges = vec![[0, 7]]),
            ("the mode", |t| t.mode = Mode::Now),
        ];
        for (what, edit) in edits {
            let mut altered = table.clone();
            edit(&mut altered);
            assert!(forbidden(device.load(&altered, &signature)).contains(ALTERED), "{what}");
            assert_eq!(target("value"), "32");
        }
        assert!(device.tunes().unwrap().is_empty());
        device.load(&table, &signature).unwrap();
    }

    /// Of the bytes that the kernel gets, whichever one is changed; and of the signature.
    pub fn every_byte_is_signed() {
        let table = value_table();
        let key = Key::new("own");
        let bytes = signable(&table, &Loaded, 0).unwrap();
        let mut like = raw::Flat::new(0, &[], &[], &table.spans[0]);
        like.signature = key.sign(&bytes);
        let device = raw::device();
        let id = raw::load(&device, &bytes, &like).unwrap();
        raw::unload_in(&device, id, abi::MODE_TASK);
        for at in (0..bytes.len()).step_by(11).chain(160..bytes.len().min(260)) {
            let mut altered = bytes.clone();
            altered[at] ^= 0x10;
            let (errno, text) = raw::load(&device, &altered, &like).unwrap_err();
            assert!(errno == libc::EKEYREJECTED && text.contains(ALTERED), "{at}: {errno} {text}");
        }
        let longer = [&bytes[..], &[0]].concat();
        assert!(raw::load(&device, &longer, &like).unwrap_err().1.contains(ALTERED));
        like.signature.truncate(40);
        assert_eq!(raw::load(&device, &bytes, &like).unwrap_err().0, libc::EKEYREJECTED);
        // What the kernel says to a place that was signed.
        let mut placed = raw::Flat::new(4096, &[], &[], &table.spans[0]);
        placed.signature = key.sign(&placed.bytes());
        let text = placed.load(&device).unwrap_err().1;
        assert!(text.contains("a signed table must not give the address of a function in module xk_target"), "{text}");
    }

    pub fn the_mode_is_signed() {
        let table = value_table();
        let device = Device::open().unwrap();
        let tune = device.load(&table, &signed(&table, &Key::new("own"))).unwrap();
        let id = tune.id();
        assert!(forbidden(tune.set(99)).contains("signed for mode task or a stronger one"));
        assert!(forbidden(device.unload(id)).contains("signed for mode task or a stronger one"));
        assert_eq!(target("value"), "32");
        device.transition(&[Change { id, to: Destination::Value(98) }], Mode::Global, LONG).unwrap();
        assert_eq!(target("value"), "98");
        // Who closes the descriptor asks for no mode.
        drop((tune, device));
        xk_testing::guest::wait_for("the default", || target("value") == "32");
    }

    pub fn another_key_is_refused() {
        let table = value_table();
        let device = Device::open().unwrap();
        let text = forbidden(device.load(&table, &signed(&table, &Key::new("other"))));
        assert!(text.contains("signed with a key that is not trusted"), "{text}");
        drop(device);
        // Nor is one of ours, where the kernel's keys are asked.
        rmmod();
        assert!(run("insmod", &[file(XK_KO).to_str().unwrap(), "require_signed=1"]));
        let device = Device::open().unwrap();
        let text = forbidden(device.load(&table, &signed(&table, &Key::new("own"))));
        assert!(text.contains("signed with a key that is not trusted"), "{text}");
        // The keyring takes no other key, from root either.
        drop(device);
        rmmod();
        assert!(insmod_signed(&Key::new("own")));
        let keys = fs::read_to_string("/proc/keys").unwrap();
        let ring = keys.lines().find(|line| line.contains(" keyring ") && line.contains(" .xk:")).expect("a keyring");
        let serial = i32::from_str_radix(ring.split_whitespace().next().unwrap(), 16).unwrap();
        let der = fs::read(Key::new("other").path("cert.der")).unwrap();
        // SAFETY: the strings end with NUL, and the key is as long as is said.
        let added = unsafe {
            libc::syscall(libc::SYS_add_key, c"asymmetric".as_ptr(), c"".as_ptr(), der.as_ptr(), der.len(), serial)
        };
        assert_eq!((added, std::io::Error::last_os_error().raw_os_error()), (-1, Some(libc::EACCES)));
    }

    pub fn a_policy_is_refused() {
        let table = value_table();
        let device = Device::open().unwrap();
        let tune = device.load(&table, &signed(&table, &Key::new("own"))).unwrap();
        // SAFETY: integers and arrays of integers, of which zero is a value.
        let mut policy: abi::Policy = unsafe { std::mem::zeroed() };
        (policy.size, policy.id, policy.program) = (size_of::<abi::Policy>() as u32, tune.id(), 0);
        let error = raw::ioctl(&raw::device(), abi::IOC_POLICY, &mut policy).unwrap_err();
        assert_eq!(error.raw_os_error(), Some(libc::EKEYREJECTED));
        assert!(raw::text(&policy.error).contains("no signature covers the program of a policy"));
    }

    /// The kernel lies elsewhere in every boot; what is signed does not say where.
    pub fn a_constant_of_the_kernel_is_signed_without_its_address() {
        let mut table = table(&target_module(), "SWAPPINESS", Vec::new());
        table.data = vec![DataSite {
            symbol: "vm_swappiness".into(),
            module: None,
            section: ".data".into(),
            section_offset: 0,
            offset: 0,
            width: 4,
            fit: Fit::linear(1, 28, 4),
            source: "mm/vmscan.c".into(),
        }];
        let swappiness = || fs::read_to_string("/proc/sys/vm/swappiness").unwrap().trim().to_owned();
        let anchor = listed("_printk").unwrap();
        let bytes = signable(&table, &Signed(Vec::new()), anchor).unwrap();
        // As in another boot: everything lies so much further.
        struct Further(u64);
        impl AddressOf for Further {
            fn address(&self, _: &Function) -> Result<Option<u64>, AddressError> {
                Ok(None)
            }
            fn data_address(&self, data: &DataSite) -> Result<Option<u64>, AddressError> {
                Ok(Some(listed(&data.symbol)? + self.0))
            }
        }
        assert_eq!(signable(&table, &Further(0x1234_0000), anchor + 0x1234_0000).unwrap(), bytes);
        assert_ne!(signable(&table, &Further(8), anchor).unwrap(), bytes);

        let signature = Signed(Key::new("own").sign(&bytes));
        let tune = Device::open().unwrap().load_by(&table, &signature, Backend::Kprobe).unwrap();
        tune.go(Destination::Value(42), Mode::Global, LONG).unwrap();
        assert_eq!(swappiness(), "70");
        drop(tune);
        assert_eq!(swappiness(), "60");
    }

    pub fn a_key_that_is_none_is_refused() {
        rmmod();
        let insmod = |parameters: &[&str]| {
            let module = file(XK_KO);
            run("insmod", &[&[module.to_str().unwrap()], parameters].concat())
        };
        fs::write("/tmp/no-key", "no key").unwrap();
        let key = format!("signing_key={}", Key::new("own").path("cert.der"));
        for wrong in [
            &["require_signed=1", "signing_key=/tmp/no-key"][..],
            &["require_signed=1", "signing_key=/nonexistent"],
            &[&key],
        ] {
            assert!(!insmod(wrong), "{wrong:?}");
            assert!(!Path::new("/sys/module/xk").exists());
        }
        assert!(insmod(&[]));
        assert!(!Device::open().unwrap().requires_signed());
    }

    const LOCKDOWN: &str = "/sys/kernel/security/lockdown";

    pub fn under_lockdown_what_is_signed_is_loaded() {
        if std::env::var_os("XK_TEST_SHARED").is_some() {
            return; // Not where others run after it.
        }
        if !Path::new(LOCKDOWN).exists() {
            assert!(run("mount", &["-t", "securityfs", "securityfs", "/sys/kernel/security"]));
        }
        write(LOCKDOWN, "integrity");
        let table = value_table();
        let signature = signed(&table, &Key::new("own"));
        let device = Device::open().unwrap();
        let tune = device.load(&table, &signature).unwrap();
        tune.go(Destination::Value(99), Mode::Task, LONG).unwrap();
        assert_eq!(target("value"), "99");
        tune.go(Destination::Unload, Mode::Task, LONG).unwrap();
        let mut altered = table.clone();
        altered.spans[0].indirection.program.ops[0].code = OpCode::Imm;
        assert!(forbidden(device.load(&altered, &signature)).contains(ALTERED));
        assert!(forbidden(device.load(&table, &Loaded)).contains("the table is not signed"));
        assert_eq!(target("value"), "32");
    }
}
