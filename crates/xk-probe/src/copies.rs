//! Copies of programs for calls through one register.
//!
//! `xk_call_target()` of `bpf/xk_probe.bpf.h` finds the register of a call in its cookie, unless the constant
//! `xk_call_register` names it. The verifier then removes the code for all other registers. So a program that calls that
//! function is loaded once for every register of its calls. All copies have the same maps, except the constants.
//!
//! In: the cookies of the calls. Out: the registers, and which of the programs of an attachment runs at each call.

use std::os::fd::AsFd;

use libbpf_rs::{MapCore, Object, OpenObject};
use object::{Object as _, ObjectSymbol};

use crate::constants::{set, CONSTANTS};
use crate::operand::Operand;

/// The constant.
const REGISTER: &str = "xk_call_register";

/// An object that is loaded for the calls through one register.
#[derive(Debug)]
pub(crate) struct Copy {
    /// Its number, as cookies have it.
    pub register: u64,
    pub object: Object,
}

/// The registers of calls with these cookies, as the object asks for them: none if it does not.
pub(crate) fn registers(object: &[u8], cookies: &[u64]) -> Vec<u64> {
    let Ok(file) = object::File::parse(object) else { return Vec::new() };
    if !file.symbols().any(|symbol| symbol.name() == Ok(REGISTER)) {
        return Vec::new();
    }
    let mut all: Vec<u64> = cookies.iter().filter_map(|cookie| Operand::register_of(*cookie)).collect();
    all.sort_unstable();
    all.dedup();
    all
}

/// Makes an object that is to be loaded the copy of another one: for calls through this register, and with its maps.
pub(crate) fn prepare(open: &mut OpenObject, object: &[u8], register: u64, first: &Object) -> Result<(), String> {
    for mut map in open.maps_mut() {
        let name = map.name().to_os_string();
        if name.to_string_lossy().ends_with(CONSTANTS) {
            let bytes = map.initial_value_mut().ok_or("its constants cannot be set")?;
            set(object, bytes, REGISTER, 0, register)?;
            continue;
        }
        let same = first.maps().find(|map| map.name() == name).ok_or("it has other maps")?;
        map.reuse_fd(same.as_fd()).map_err(|error| format!("{}: {error}", name.to_string_lossy()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_does_not_ask_has_no_copies() {
        assert!(registers(b"no object", &[Operand::Register(0).cookie()]).is_empty());
    }
}
