//! `xk sign`: signatures for an xk.ko that was loaded with `require_signed=1`.
//!
//! In: tables of the running kernel, a key. Out: a signature next to each table, of the bytes that the kernel reads when it
//! loads the table. OpenSSL signs. If the key is on another machine, the bytes are written instead.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use xk_kernel::KernelId;
use xk_store::{Addresses, Folders, Tables};
use xk_table::ScopeTable;

use crate::exit::{Failure, Result};

/// Arguments of `xk sign`.
#[derive(Debug, clap::Args)]
#[command(after_help = "\
The signature covers what the kernel executes: sites, operations, values, safe spans, the bytes of the functions. These
are the same in every boot of this kernel. The signature is written next to the table, with the suffix .p7s. A table
that is built again must be signed again. If the key is on another machine, --bytes writes the bytes to sign, for
  openssl cms -sign -binary -noattr -nocerts -md sha256 -outform DER -signer CERT -inkey KEY -in BYTES -out TABLE.p7s
See docs/signing.md.")]
pub struct Args {
    /// The constants
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// The private key: a PEM file, or a name that openssl accepts
    #[arg(long, value_name = "FILE", required_unless_present = "bytes", requires = "certificate")]
    key: Option<PathBuf>,
    /// Its certificate (PEM)
    #[arg(long, value_name = "FILE", requires = "key")]
    certificate: Option<PathBuf>,
    /// Write the bytes to be signed for one constant; sign nothing
    #[arg(long, value_name = "FILE", conflicts_with = "key")]
    bytes: Option<PathBuf>,
}

/// Signs them.
pub fn run(args: &Args) -> Result {
    let folders = Folders::from_environment();
    let tables = Tables::read(&folders, &KernelId::live()?.build_id)?;
    let wanted = args.names.iter().map(|name| Ok(tables.find(&folders, name)?)).collect::<Result<Vec<_>>>()?;
    let addresses = Addresses::live(wanted.iter().copied())?;
    if let Some(file) = &args.bytes {
        let [table] = wanted[..] else { return Err(Failure::usage("--bytes: one constant at a time")) };
        let bytes = signable(table, &addresses)?;
        write(file, &bytes)?;
        println!("{}: {} bytes in {}", table.constant.title(), bytes.len(), file.display());
        return Ok(());
    }
    let (Some(key), Some(certificate)) = (&args.key, &args.certificate) else {
        return Err(Failure::usage("--key and --certificate, or --bytes"));
    };
    for table in wanted {
        let signature = sign(&signable(table, &addresses)?, key, certificate)?;
        let file = folders.signature_file(table)?;
        write(&file, &signature)?;
        println!("{}: signed, {}", table.constant.title(), file.display());
    }
    Ok(())
}

fn signable(table: &ScopeTable, addresses: &Addresses) -> Result<Vec<u8>> {
    Ok(xk_runtime::signable(table, addresses, addresses.anchor()?)?)
}

/// A detached signature, PKCS#7 in DER, as the kernel reads it.
fn sign(bytes: &[u8], key: &Path, certificate: &Path) -> Result<Vec<u8>> {
    let failed = |error: std::io::Error| Failure::error(format!("cannot sign: {error}"));
    let folder = tempfile::tempdir().map_err(failed)?;
    let [content, signature] = ["content", "signature"].map(|name| folder.path().join(name));
    fs::write(&content, bytes).map_err(failed)?;
    let output = Command::new("openssl")
        .args(["cms", "-sign", "-binary", "-noattr", "-nocerts", "-md", "sha256", "-outform", "DER", "-signer"])
        .arg(certificate)
        .arg("-inkey")
        .arg(key)
        .arg("-in")
        .arg(&content)
        .arg("-out")
        .arg(&signature)
        .output()
        .map_err(|error| {
            Failure::error(format!("cannot run openssl to sign: {error}: apt-get install openssl, or use --bytes"))
        })?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(Failure::error(format!(
            "openssl does not sign with {} and {}: {}",
            key.display(),
            certificate.display(),
            said.trim()
        )));
    }
    fs::read(&signature).map_err(failed)
}

/// Writes a file atomically.
fn write(file: &Path, bytes: &[u8]) -> Result {
    let failed = |error: std::io::Error| Failure::error(format!("{}: {error}", file.display()));
    let folder = file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut new = tempfile::NamedTempFile::new_in(folder).map_err(failed)?;
    std::io::Write::write_all(&mut new, bytes).map_err(failed)?;
    new.as_file().sync_all().map_err(failed)?;
    new.persist(file).map_err(|error| failed(error.error))?;
    Ok(())
}
