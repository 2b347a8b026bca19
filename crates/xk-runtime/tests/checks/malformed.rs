//! Requests that contradict themselves, past the checks of this crate: each is refused
//! with its error and a sentence, and nothing has changed then.

use xk_runtime::{AddressOf, Change, Destination, Mode};
use xk_table::{ScopeTable, Values};

use crate::*;

/// Where nothing is mapped.
const NOWHERE: u64 = 64;
/// Behind the end of any table.
const OUTSIDE: u64 = 1 << 40;

fn nothing_is_tuned() {
    assert!(Device::open().unwrap().tunes().unwrap().is_empty());
    assert_eq!(target("value"), "32");
}

/// The request of VALUE with a scope, and the memory that it points to.
struct Scoped {
    text: Vec<u8>,
    mask: Vec<u8>,
    address: u64,
}

impl Scoped {
    fn new() -> Self {
        let function = value_table().functions.remove(0);
        let address = Loaded.address(&function).unwrap().unwrap();
        Self { text: function.text().unwrap(), mask: function.text_mask().unwrap(), address }
    }

    /// What the kernel says to it; a tune of which it says nothing is unloaded.
    fn load(&self, ranges: &[[u32; 2]], change: impl FnOnce(&mut raw::Flat)) -> (i32, String) {
        let mut flat = raw::Flat::new(self.address, &self.text, &self.mask, &value_table().spans[0]);
        // Its text once more: the kernel takes that of a site over for a scope that has it, too.
        flat.scope(self.address, &self.text, &self.mask, ranges);
        change(&mut flat);
        let device = raw::device();
        match flat.load(&device) {
            Ok(id) => {
                assert_eq!(Device::open().unwrap().tunes().unwrap()[0].scopes, flat.head.nr_scopes);
                raw::unload(&device, id);
                (0, String::new())
            }
            Err(said) => said,
        }
    }
}

pub fn malformed_ranges_are_refused() {
    let request = Scoped::new();
    let end = request.text.len() as u32;
    let many = |n: u32| (0..n).map(|i| [i, i + 1]).collect::<Vec<_>>();
    let [none, most, too_many] = [0, 256, 257].map(many);
    for ranges in [
        &[[5, 5]][..],
        &[[5, 4]],
        &[[0, 6], [5, 8]],
        &[[5, 8], [0, 3]],
        &[[0, end + 1]],
        &[[end, end + 1]],
        &[[0, u32::MAX]],
        &[[u32::MAX, 1]],
        &most,
    ] {
        let (errno, text) = request.load(ranges, |_| ());
        assert!(
            errno == libc::EINVAL && text.starts_with("xk_target_value: range 0x") && text.ends_with("or outside"),
            "{ranges:x?}: {errno} {text}"
        );
        nothing_is_tuned();
    }
    for (ranges, number) in [(&none, 0), (&too_many, 257)] {
        let expected = format!("scope 0: {number} ranges; 1 to 256 are possible");
        assert_eq!(request.load(ranges, |_| ()), (libc::EINVAL, expected));
        nothing_is_tuned();
    }
    // What is not refused.
    for ranges in [&[[0, end]][..], &[[0, 5], [5, end]], &[[end - 1, end]]] {
        assert_eq!(request.load(ranges, |_| ()), (0, String::new()), "{ranges:x?}");
    }
    nothing_is_tuned();
}

pub fn malformed_scopes_are_refused() {
    let request = Scoped::new();
    type Edit = fn(&mut raw::Flat);
    let cases: [(Edit, i32, &str); 17] = [
        (|flat| flat.scopes[0].ranges = OUTSIDE, libc::EINVAL, "scope 0: ranges are not in the table"),
        (|flat| flat.scopes[0].ranges = u64::MAX - 7, libc::EINVAL, "scope 0: ranges are not in the table"),
        (|flat| flat.scopes[0].text = OUTSIDE, libc::EINVAL, "scope 0: text or mask is not in the table"),
        (|flat| flat.scopes[0].mask = u64::MAX, libc::EINVAL, "scope 0: text or mask is not in the table"),
        (|flat| flat.sites[0].text = u64::MAX - 3, libc::EINVAL, "site 0: text or mask is not in the table"),
        (|flat| flat.head.nr_scopes = 512, libc::EINVAL, "the table ends at "),
        (|flat| flat.head.nr_scopes = 513, libc::EINVAL, "513 scopes; up to 512 are possible"),
        (|flat| flat.head.nr_sites = 0, libc::EINVAL, "0 sites; 1 to 256 are possible"),
        (|flat| flat.head.magic[0] = b'y', libc::EINVAL, "not a scope table: it does not begin with xktable"),
        (|flat| flat.head.mode = 3, libc::EINVAL, "mode 3 or flags 0x0 are not known"),
        (|flat| flat.scopes[0].text_len = 0, libc::EINVAL, "scope 0: 0 bytes at "),
        (|flat| flat.scopes[0].text_len = abi::MAX_TEXT as u32 + 1, libc::EINVAL, "scope 0: 65537 bytes at "),
        (|flat| flat.scopes[0].address = u64::MAX, libc::EINVAL, "scope 0: "),
        (|flat| flat.scopes[0].symbol[0] = 0, libc::EINVAL, "scope 0: a name is empty or not terminated"),
        (|flat| flat.scopes[0].symbol.fill(b'x'), libc::EINVAL, "scope 0: a name is empty or not terminated"),
        (|flat| flat.scopes[0].module.fill(b'x'), libc::EINVAL, "scope 0: a name is empty or not terminated"),
        (|flat| flat.scopes[0].address += 1, libc::ENOENT, "xk_target_value: address 0x"),
    ];
    for (edit, errno, sentence) in cases {
        let said = request.load(&[[0, 8]], edit);
        assert!(said.0 == errno && said.1.starts_with(sentence), "{said:?} instead of {errno} {sentence}");
        nothing_is_tuned();
    }
    // Another code than that of the site, which is the running one.
    let mut other = Scoped::new();
    other.text[1] = 33;
    let (errno, text) = other.load(&[[0, 8]], |_| ());
    assert_eq!((errno, text.as_str()), (libc::EBADMSG, "xk_target_value+0x1: expected 21, running 20"));
    nothing_is_tuned();
    assert_eq!(request.load(&[[0, 8]], |_| ()), (0, String::new()));
    let _tune = load(&value_table(), 5).unwrap();
    assert_eq!(target("value"), "5");
}

/// The default is 32, and 1 to 1000 are proved if nothing else is said.
pub fn malformed_values_are_refused() {
    let request = Scoped::new();
    let with = |values: &[i64], edit: &dyn Fn(&mut raw::Flat)| {
        request.load(&[[0, 8]], |flat| {
            (flat.values, flat.head.nr_values) = (values.to_vec(), values.len() as u32);
            edit(flat);
        })
    };
    let refused = |values: &[i64], edit: &dyn Fn(&mut raw::Flat), errno: i32, sentence: &str| {
        assert_eq!(with(values, edit), (errno, sentence.into()), "{values:?}");
        nothing_is_tuned();
    };
    let nothing_proved = |flat: &mut raw::Flat| (flat.head.min, flat.head.max) = (1, 0);
    let as_it_is = |_: &mut raw::Flat| ();
    refused(&[5, 4], &as_it_is, libc::EINVAL, "RAW: value 4 follows 5; they must ascend");
    refused(&[4, 4], &as_it_is, libc::EINVAL, "RAW: value 4 follows 4; they must ascend");
    refused(
        &[-1, i64::MAX, i64::MIN],
        &as_it_is,
        libc::EINVAL,
        &format!("RAW: value {} follows {}; they must ascend", i64::MIN, i64::MAX),
    );
    refused(&[0; 4097], &as_it_is, libc::EINVAL, "4097 values; up to 4096 are possible");
    refused(&[1], &|flat| flat.flags = 1 << 9, libc::EINVAL, "unknown flags 0x200");
    refused(
        &[1],
        &|flat| flat.head.flags = abi::TABLE_IN_PLACE,
        libc::EINVAL,
        "other CPUs could see a partial update: only the backend patch can set this value",
    );
    let no_default = "RAW: default 32 is neither within 1..0 nor one of 2 values";
    refused(&[31, 33], &nothing_proved, libc::EINVAL, no_default);
    let no_default = "RAW: default 32 is neither within 1..0 nor one of 0 values";
    refused(&[], &nothing_proved, libc::EINVAL, no_default);
    // What is not refused.
    for values in [&[][..], &[i64::MIN, i64::MAX], &[32]] {
        assert_eq!(with(values, &as_it_is), (0, String::new()), "{values:?}");
    }
    assert_eq!(with(&[31, 32], &nothing_proved), (0, String::new()));
    nothing_is_tuned();
}

/// What a transition says to a value that was not compiled; and the list is read in parts.
pub fn values_are_listed() {
    let table = ScopeTable { values: Values::compiled([16, 32, 64]), ..value_table() };
    let tune = load(&table, 64).unwrap();
    let id = tune.detach().unwrap();
    let device = raw::device();
    let changes = [abi::Change { id, flags: 0, value: 48 }];
    let mut request = raw::transition(&changes);
    let error = raw::ioctl(&device, abi::IOC_TRANSITION, &mut request).unwrap_err();
    let sentence = raw::text(&request.error);
    assert_eq!(error.raw_os_error(), Some(libc::ERANGE));
    assert!(sentence.ends_with(": 48 is not one of the 3 compiled values from 16 to 64"), "{sentence}");
    for (room, expected) in [(0, [0; 4]), (2, [16, 32, 0, 0]), (4, [16, 32, 64, 0])] {
        let mut values = [0i64; 4];
        let mut request = abi::TuneValues { id, nr_values: room, values: values.as_mut_ptr() as u64 };
        raw::ioctl(&device, abi::IOC_TUNE_VALUES, &mut request).unwrap();
        assert_eq!((request.nr_values, values), (3, expected));
    }
    let mut none = abi::TuneValues { id: id + 1, nr_values: 0, values: 0 };
    assert_eq!(raw::ioctl(&device, abi::IOC_TUNE_VALUES, &mut none).unwrap_err().raw_os_error(), Some(libc::ENOENT));
    let mut nowhere = abi::TuneValues { id, nr_values: 3, values: NOWHERE };
    let error = raw::ioctl(&device, abi::IOC_TUNE_VALUES, &mut nowhere).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::EFAULT));
    Device::open().unwrap().unload(id).unwrap();
    nothing_is_tuned();
}

pub fn malformed_transitions_are_refused() {
    let tune = load(&value_table(), 41).unwrap();
    let id = tune.detach().unwrap();
    let to = |value| abi::Change { id, flags: 0, value };
    let unload = abi::Change { id, flags: abi::CHANGE_UNLOAD, value: 0 };
    type Edit = fn(&mut abi::Transition);
    let mut report = [0u8; 64];
    let report_at = report.as_mut_ptr() as u64;
    let none: Edit = |_| ();
    let cases: Vec<(Vec<abi::Change>, Edit, i32, &str)> = vec![
        // Another structure is not written to.
        (vec![to(42)], |request| request.size -= 8, libc::EINVAL, ""),
        (vec![to(42)], |request| request.mode = 3, libc::EINVAL, "unknown mode 3"),
        (vec![to(42)], |request| request.timeout_ms = 600_001, libc::EINVAL, "600001 ms exceeds the maximum of 600000"),
        (vec![to(42)], |request| request.pad = 1, libc::EINVAL, "pad is not 0"),
        (vec![to(42)], |request| request.report_len = 64, libc::EINVAL, "64 bytes for a report at 0"),
        (vec![to(42)], |request| request.changes = NOWHERE, libc::EFAULT, "the changes cannot be read"),
        (vec![], none, libc::EINVAL, "0 changes; 1 to 1024 are possible"),
        (vec![to(42); 1025], none, libc::EINVAL, "1025 changes; 1 to 1024 are possible"),
        (vec![abi::Change { flags: 4, ..to(42) }], none, libc::EINVAL, "unknown flags 0x4"),
        (vec![abi::Change { value: 1, ..unload }], none, libc::EINVAL, "or a value given for an unload"),
        (vec![abi::Change { id: id + 1, ..to(42) }], none, libc::ENOENT, "no tune has the number"),
        (vec![to(42), abi::Change { id: id + 1, ..to(42) }], none, libc::ENOENT, "no tune has the number"),
        (vec![to(42), to(42)], none, libc::EBUSY, "named twice"),
        (vec![to(42), unload], none, libc::EBUSY, "named twice"),
        (vec![to(42); 1024], none, libc::EBUSY, "named twice"),
        (vec![to(1001)], none, libc::ERANGE, "1001 is outside the proved range 1..1000"),
    ];
    let device = raw::device();
    let refused = |changes: &[abi::Change], edit: &dyn Fn(&mut abi::Transition), errno: i32, sentence: &str| {
        for mode in [abi::MODE_NOW, abi::MODE_TASK, abi::MODE_GLOBAL] {
            let mut request = raw::transition(changes);
            request.mode = mode;
            edit(&mut request);
            let error = raw::ioctl(&device, abi::IOC_TRANSITION, &mut request).unwrap_err();
            let text = raw::text(&request.error);
            assert!(error.raw_os_error() == Some(errno) && text.contains(sentence), "{error}, {text}: not {sentence}");
            assert_eq!(text.is_empty(), sentence.is_empty(), "{text}");
            let tunes = Device::open().unwrap().tunes().unwrap();
            assert_eq!((tunes.len(), tunes[0].value, target("value").as_str()), (1, 41, "41"));
        }
    };
    for (changes, edit, errno, sentence) in &cases {
        refused(changes, edit, *errno, sentence);
    }
    refused(&[to(42)], &|request| request.report = report_at, libc::EINVAL, "0 bytes for a report at");
    // A place that cannot be written to is noticed when it is too late for the value.
    let mut request = raw::transition(&[to(42)]);
    (request.report, request.report_len) = (NOWHERE, 64);
    let error = raw::ioctl(&device, abi::IOC_TRANSITION, &mut request).unwrap_err();
    assert_eq!((error.raw_os_error(), target("value").as_str()), (Some(libc::EFAULT), "42"));
    let device = Device::open().unwrap();
    device.transition(&[Change { id, to: Destination::Value(43) }], Mode::Global, Duration::ZERO).unwrap();
    assert_eq!(target("value"), "43");
    device.unload(id).unwrap();
    nothing_is_tuned();
}

/// As many as a corpus has.
pub fn many_tunes_change_together() {
    const TUNES: u32 = 100;
    let device = Device::open().unwrap();
    let one = |i: u32| {
        let site = SiteSpec::new("xk_target_many", 7 * i + 7, 2, set_register(RDX));
        device.load(&table(&target_module(), &format!("MANY{i}"), vec![site]), &Loaded).unwrap()
    };
    let tunes: Vec<Tune> = (0..TUNES).map(one).collect();
    for (mode, value) in [(Mode::Now, 33), (Mode::Task, 34), (Mode::Global, 35)] {
        let to = |tune: &Tune| Change { id: tune.id(), to: Destination::Value(value) };
        device.transition(&tunes.iter().map(to).collect::<Vec<_>>(), mode, Duration::from_secs(60)).unwrap();
        assert_eq!(target("many"), (256 * 32 + i64::from(TUNES) * (value - 32)).to_string());
    }
    let unload = |tune: &Tune| Change { id: tune.id(), to: Destination::Unload };
    device.transition(&tunes.iter().map(unload).collect::<Vec<_>>(), Mode::Task, Duration::from_secs(60)).unwrap();
    assert_eq!(target("many"), "8192");
    nothing_is_tuned();
}
