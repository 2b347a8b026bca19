//! From places to addresses, with the windows of jumps.
//!
//! In: places, the image of a kernel, and the running kernel if it is one. Out: instructions, each with its address and
//! the way in which a probe reaches it. Refuses what is not the first byte of an instruction, names of several functions,
//! modules that are not loaded or whose files have changed, and single instructions that cannot be probed. Patterns leave
//! out what cannot be probed.

use std::collections::BTreeMap;

use iced_x86::Mnemonic;
use xk_const::glob;
use xk_kernel::Image;
use xk_runtime::ProbeFunction;
use xk_span::world::Function;
use xk_table::Function as Deployed;

use crate::code::Code;
use crate::error::Error;
use crate::field::{Field, Fields, Raw};
use crate::found::{sentence, Found};
use crate::line::Line;
use crate::live::Live;
use crate::operand::Operand;
use crate::place::{Class, Place, EVERY};
use crate::reach::{is_long_call, NoJump, Reach};
use crate::relay::separate;
use crate::source::Lines;

/// Names in a message that are similar to one that does not exist.
const SIMILAR: usize = 3;

/// What a place names.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Resolved {
    /// The instructions, by address.
    pub found: Vec<Found>,
    /// Instructions of the class that cannot be probed and were left out.
    pub left_out: usize,
    /// Functions that matched.
    pub functions: usize,
}

/// Finds places in the code of a kernel.
#[derive(Debug)]
pub struct Resolver {
    code: Code,
    /// The running kernel, and its distance from the image.
    live: Option<(Live, u64)>,
    /// Modules that are loaded, and whose files are not those of this kernel.
    unread: Vec<String>,
    lines: Lines,
    types: Option<Raw>,
}

impl Resolver {
    /// For these places in a kernel: the modules that they name are read with it. `live` is given if the image is that of
    /// the running kernel.
    ///
    /// # Errors
    /// [`Error::Image`], [`Error::NotLoaded`], [`Error::Replaced`], [`Error::Hidden`].
    pub fn new(image: &Image, places: &[Place], live: Option<Live>) -> Result<Self, Error> {
        Self::with_lines(image, places, live, Lines::default())
    }

    /// The same, for places of which some are lines of the source.
    ///
    /// # Errors
    /// As [`Resolver::new`].
    pub fn with_lines(image: &Image, places: &[Place], live: Option<Live>, lines: Lines) -> Result<Self, Error> {
        let mut modules = modules(image, places, live.as_ref(), &lines)?;
        let mut unread = Vec::new();
        if let Some(live) = live.as_ref().filter(|_| places.iter().any(|place| place.module() == Some(EVERY))) {
            for name in live.modules() {
                if modules.iter().any(|known| known == name) {
                    continue;
                }
                let known = image.shared_module(name).is_ok_and(|module| live.is_build(&module, name));
                if known { &mut modules } else { &mut unread }.push(name.to_owned());
            }
        }
        let modules = modules;
        let names: Vec<&str> = modules.iter().map(String::as_str).collect();
        let live = match live {
            Some(live) => {
                let shift = live.shift(image).ok_or(Error::Hidden)?;
                Some((live, shift))
            }
            None => None,
        };
        Ok(Self { code: Code::new(image, &names)?, live, unread, lines, types: Raw::new(image) })
    }

    /// The instructions of a place.
    ///
    /// # Errors
    /// [`Error`].
    pub fn resolve(&self, place: &Place) -> Result<Resolved, Error> {
        let one = |found| Resolved { found: vec![found], left_out: 0, functions: 1 };
        match place {
            Place::Address(address) => self.address(place, *address).map(one),
            Place::Instruction { module, function, offset } => {
                self.instruction(place, module.as_deref(), function, *offset).map(one)
            }
            Place::Line { line, class } => self.line(place, line, class.as_ref()),
            Place::Pattern { module: Some(module), pattern, class } if module == EVERY => {
                let matching = |function: &&Function| function.names.iter().any(|name| glob(pattern, name));
                let owners = 1..self.code.world().owners.len();
                let functions: Vec<&Function> =
                    owners.flat_map(|owner| self.code.functions(owner)).filter(matching).collect();
                // There may be no modules.
                match functions.is_empty() {
                    true => Ok(Resolved { found: Vec::new(), left_out: 0, functions: 0 }),
                    false => self.of_class(place, &functions, class),
                }
            }
            Place::Pattern { module, pattern, class } => {
                let owner = self.owner(place, module.as_deref(), pattern)?;
                let matching = |function: &&Function| function.names.iter().any(|name| glob(pattern, name));
                let functions: Vec<&Function> = self.code.functions(owner).filter(matching).collect();
                let where_ = || self.where_(owner);
                if functions.is_empty() {
                    return Err(Error::NoMatch { place: place.to_string(), where_: where_() });
                }
                self.of_class(place, &functions, class)
            }
        }
    }

    /// The instructions of all places, each once and by address, as they are probed: with the number of the first place
    /// that names it, and how many of patterns were left out.
    ///
    /// # Errors
    /// [`Error`]; also [`Error::Unreachable`] if a place is a single instruction that cannot be probed.
    pub fn all(&self, places: &[Place]) -> Result<(Vec<(Found, usize)>, usize), Error> {
        let (mut all, mut left_out) = (Vec::new(), 0);
        for (number, place) in places.iter().enumerate() {
            let resolved = self.resolve(place)?;
            left_out += resolved.left_out;
            for found in resolved.found {
                if let Reach::Nothing(reason) = &found.reach {
                    return Err(Error::Unreachable { place: place.to_string(), reason: sentence(reason) });
                }
                all.push((found, number));
            }
        }
        all.sort_by_key(|(found, number)| (found.address, *number));
        all.dedup_by_key(|(found, _)| found.address);
        let mut ways: Vec<_> = all.iter_mut().map(|(found, _)| (found.address, &mut found.reach)).collect();
        separate(&mut ways);
        Ok((all, left_out))
    }

    /// The functions of modules that contain these instructions, as xk.ko finds them again when their modules are loaded
    /// again.
    #[must_use]
    pub fn functions(&self, all: &[(Found, usize)]) -> Vec<ProbeFunction> {
        let mut functions: BTreeMap<u64, ProbeFunction> = BTreeMap::new();
        for (found, _) in all {
            let Some(module) = &found.module else { continue };
            let address = found.address - found.offset;
            if functions.contains_key(&address) {
                continue;
            }
            let start = match &self.live {
                Some((live, _)) => self.in_module(live, module, address),
                None => Some(address),
            };
            let Some(start) = start else { continue };
            let known = xk_span::text::function(self.code.world(), start);
            let (Ok(text), Ok(mask)) = (known.text(), known.text_mask()) else { continue };
            let module = module.clone();
            functions.insert(address, ProbeFunction { address, symbol: known.symbol, module, text, mask });
        }
        functions.into_values().collect()
    }

    fn of_class(&self, place: &Place, functions: &[&Function], class: &Class) -> Result<Resolved, Error> {
        let field = Fields::of_class(self.types.as_ref(), class)?;
        let places = functions.iter().map(|function| (*function, self.addresses(function, class, field.as_ref())));
        self.several(place, &places.collect::<Vec<_>>(), Some(class), 0)
    }

    /// The instructions of a class in a function.
    fn addresses(&self, function: &Function, class: &Class, field: Option<&(Fields, Field)>) -> Vec<u64> {
        match field {
            Some((fields, field)) => {
                fields.accesses(self.code.world(), function, &self.code.instructions(function), field)
            }
            None => self.code.of_class(function, class),
        }
    }

    /// The instructions of a line, in all functions that contain it.
    fn line(&self, place: &Place, line: &Line, class: Option<&Class>) -> Result<Resolved, Error> {
        let spread = self.lines.of(line).ok_or_else(|| Error::NoSource { place: place.to_string() })?;
        let field = class.map(|class| Fields::of_class(self.types.as_ref(), class)).transpose()?.flatten();
        let mut places = Vec::new();
        for part in &spread.parts {
            let none = || Error::NoCode { place: place.to_string() };
            let start = self.start(&part.function).ok_or_else(none)?;
            let function = self.code.world().function_at(start).ok_or_else(none)?;
            let addresses = match class {
                None => part.statements.iter().map(|offset| start + offset).collect(),
                Some(class) => {
                    // Where the line begins at an instruction of another one, it has no bytes.
                    let begins = |at: u64| *class == Class::Any && part.statements.contains(&at);
                    let own =
                        |at: &u64| begins(at - start) || part.bytes.iter().any(|bytes| bytes.contains(&(at - start)));
                    self.addresses(function, class, field.as_ref()).into_iter().filter(own).collect()
                }
            };
            places.push((function, addresses));
        }
        self.several(place, &places, class, spread.gone)
    }

    /// Whether the function of an instruction has a name.
    pub(crate) fn is_called(&self, found: &Found, name: &str) -> bool {
        let Some(owner) = self.code.owner(found.module.as_deref()) else { return false };
        let named = self.code.named(&found.function, owner);
        named.iter().any(|function| function.names.iter().any(|other| other == name))
    }

    /// Whether an instruction is in a function that the source describes.
    pub(crate) fn is_in(&self, found: &Found, function: &Deployed) -> bool {
        let here = self.in_image(found.address).map(|address| address.wrapping_sub(found.offset));
        here.is_some() && here == self.start(function)
    }

    /// Where a function that the source describes is in the image.
    fn start(&self, function: &Deployed) -> Option<u64> {
        let owner = self.code.owner(function.module.as_deref())?;
        if owner == 0 {
            return Some(self.code.world().text_base.wrapping_add(function.text_offset));
        }
        let mut sections = self.code.world().placed.iter().filter(|placed| placed.owner == owner);
        sections.find(|placed| placed.section == function.section).map(|placed| placed.start + function.text_offset)
    }

    /// Those of several instructions that can be probed.
    fn several(
        &self,
        place: &Place,
        places: &[(&Function, Vec<u64>)],
        class: Option<&Class>,
        left_out: usize,
    ) -> Result<Resolved, Error> {
        let mut resolved = Resolved { found: Vec::new(), left_out, functions: places.len() };
        for (function, addresses) in places {
            for address in addresses {
                let mut found = match class {
                    None => self.single(&place.to_string(), function, *address)?,
                    Some(_) => self.found(&place.to_string(), function, *address)?,
                };
                if class == Some(&Class::IndirectCall) {
                    found.operand = self.operand(function, *address);
                    // Without its target, a program could not tell what it is.
                    if found.operand.is_none() {
                        resolved.left_out += 1;
                        continue;
                    }
                }
                match found.reach {
                    Reach::Nothing(_) => resolved.left_out += 1,
                    _ => resolved.found.push(found),
                }
            }
        }
        // With `any`, the instruction after an endbr64 is there twice.
        resolved.found.sort_by_key(|found| (found.address, found.after_endbr));
        resolved.found.dedup_by_key(|found| found.address);
        if resolved.found.is_empty() {
            return Err(Error::NoInstruction { place: place.to_string(), functions: places.len() });
        }
        Ok(resolved)
    }

    fn operand(&self, function: &Function, address: u64) -> Option<Operand> {
        // In a module, instructions reach memory of their own by addresses that are not known here.
        let shift = self.live.as_ref().filter(|_| function.owner == 0).map_or(0, |(_, shift)| *shift);
        let operand = self.code.operand(&self.code.instruction(address)?, shift)?;
        let fixed = matches!(operand, Operand::Memory { base: None, .. });
        (function.owner == 0 || !fixed).then_some(operand)
    }

    /// The functions of vmlinux and of the modules that were read whose address is taken, and all of modules that were not,
    /// where they are in the running kernel.
    ///
    /// # Errors
    /// [`Error::Elsewhere`] if the running kernel has one of them elsewhere.
    pub fn taken(&self) -> Result<Vec<u64>, Error> {
        let known = |function: &&&Function| self.code.world().owners.get(function.owner).is_some();
        let all = self.code.taken();
        let all = all.iter().filter(known).map(|function| self.running(function.name(), function, function.start));
        let mut all: Vec<u64> = all.collect::<Result<_, _>>()?;
        if let Some((live, _)) = &self.live {
            all.extend(self.unread.iter().flat_map(|module| live.functions_of(module)));
        }
        Ok(all)
    }

    /// The modules that are loaded and whose code is not known. [`EVERY`] leaves them out, and all of their functions
    /// count as taken.
    #[must_use]
    pub fn unread(&self) -> &[String] {
        &self.unread
    }

    fn where_(&self, owner: usize) -> String {
        let module = self.code.world().owners.get(owner).and_then(Option::as_deref);
        module.map_or_else(|| "vmlinux".into(), |module| format!("module {module}"))
    }

    /// vmlinux or the module in which a function is looked for.
    fn owner(&self, place: &Place, module: Option<&str>, function: &str) -> Result<usize, Error> {
        if module.is_some() {
            let missing = || Error::NoCode { place: place.to_string() };
            return self.code.owner(module).ok_or_else(missing);
        }
        if !self.code.named(function, 0).is_empty() {
            return Ok(0);
        }
        // A function of a loaded module that was not named.
        let owners = 1..self.code.world().owners.len();
        Ok(owners.into_iter().find(|&owner| !self.code.named(function, owner).is_empty()).unwrap_or(0))
    }

    fn instruction(&self, place: &Place, module: Option<&str>, name: &str, offset: u64) -> Result<Found, Error> {
        let owner = self.owner(place, module, name)?;
        let text = place.to_string();
        let function = match self.code.named(name, owner)[..] {
            [only] => only,
            [] => {
                let where_ = self.where_(owner);
                let similar = self.similar(name, owner);
                return Err(Error::NoFunction { place: text, where_, function: name.to_owned(), similar });
            }
            ref several => {
                let address = |function: &&Function| self.running(&text, function, function.start);
                let addresses = several.iter().map(address).collect::<Result<Vec<u64>, Error>>()?;
                let addresses = addresses.iter().map(|address| format!("{address:#x}")).collect();
                return Err(Error::Several { place: text, addresses });
            }
        };
        let length = self.code.length(function);
        if offset >= length {
            let cold = self.code.named(&format!("{name}.cold"), owner);
            let cold =
                cold.first().map_or_else(String::new, |cold| format!("; the compiler moved {} away", cold.name()));
            return Err(Error::Outside { place: text, function: name.to_owned(), length, cold });
        }
        self.single(&text, function, function.start + offset)
    }

    fn address(&self, place: &Place, address: u64) -> Result<Found, Error> {
        let none = || Error::NoCode { place: place.to_string() };
        let image = self.in_image(address).ok_or_else(none)?;
        let function = self.code.world().function_of(image).ok_or_else(none)?;
        self.single(&place.to_string(), function, image)
    }

    /// One instruction that was asked for.
    fn single(&self, place: &str, function: &Function, address: u64) -> Result<Found, Error> {
        if !self.code.begins(address) {
            let near = self.code.near(function, address).into_iter().map(|at| {
                let text = self.code.instruction(at).map(|insn| self.code.text(&insn));
                format!("{} (`{}`)", self.code.name(at), text.unwrap_or_default())
            });
            return Err(Error::Middle { place: place.to_owned(), near: near.collect() });
        }
        self.found(place, function, address)
    }

    fn found(&self, place: &str, function: &Function, address: u64) -> Result<Found, Error> {
        let none = || Error::NoCode { place: place.to_owned() };
        let mut insn = self.code.instruction(address).ok_or_else(none)?;
        let mut at = address;
        // It does nothing but mark the entry, and kprobes cannot be on it.
        let after_endbr = address == function.start && insn.mnemonic() == Mnemonic::Endbr64;
        if after_endbr {
            at = insn.next_ip();
            insn = self.code.instruction(at).ok_or_else(none)?;
        }
        let windows = self.code.windows();
        let reach = match self.code.changes(at) {
            Some(reason) => Reach::Nothing(reason),
            None => Reach::new(windows.at(at), || windows.short(at), &insn),
        };
        let room = match &reach {
            Reach::Jump(window) => windows.longest(at - u64::from(window.lead.unsigned_abs()), window.len),
            _ => 0,
        };
        let body = match &reach {
            Reach::Tracer(NoJump::EntryCode(behind)) => Some(self.code.name(at + u64::from(*behind))),
            _ => None,
        };
        Ok(Found {
            address: self.running(place, function, at)?,
            module: self.code.module(function).map(str::to_owned),
            function: function.name().to_owned(),
            offset: at - function.start,
            text: self.code.text(&insn),
            length: insn.len() as u8,
            reach,
            room,
            after_endbr,
            long_call: is_long_call(&insn),
            operand: None,
            body,
        })
    }

    /// Where an address of a function is in the running kernel.
    fn running(&self, place: &str, function: &Function, address: u64) -> Result<u64, Error> {
        let Some((live, shift)) = &self.live else { return Ok(address) };
        let Some(module) = self.code.module(function) else { return Ok(address.wrapping_add(*shift)) };
        let elsewhere = || Error::Elsewhere { place: place.to_owned(), function: function.name().to_owned() };
        let sections = self.code.world().placed.iter().filter(|placed| placed.owner == function.owner);
        let section = sections.filter(|placed| placed.start <= function.start).max_by_key(|placed| placed.start);
        let section = section.ok_or_else(elsewhere)?;
        let start = live.section(module, &section.section).ok_or_else(elsewhere)?;
        let first = start.wrapping_add(function.start - section.start);
        if !live.has(module, &function.names, first) {
            return Err(elsewhere());
        }
        Ok(first.wrapping_add(address - function.start))
    }

    /// Where an address of the running kernel is in the image.
    fn in_image(&self, address: u64) -> Option<u64> {
        let Some((live, shift)) = &self.live else { return Some(address) };
        if live.is_vmlinux(address) {
            return Some(address.wrapping_sub(*shift));
        }
        self.in_module(live, live.module_at(address)?, address)
    }

    /// The same in a module. The kernel still names what was freed after its initialisation, where another module may be
    /// now.
    fn in_module(&self, live: &Live, module: &str, address: u64) -> Option<u64> {
        let owner = self.code.owner(Some(module))?;
        let sections = self.code.world().placed.iter().filter(|placed| placed.owner == owner);
        let kept = sections.filter(|placed| !placed.section.starts_with(".init"));
        let loaded = kept.filter_map(|placed| Some((live.section(module, &placed.section)?, placed.start)));
        let below = loaded.filter(|(section, _)| *section <= address);
        let mut places = below.map(|(section, start)| start + (address - section));
        places.find(|place| {
            let function = self.code.world().function_of(*place);
            function.is_some_and(|function| live.has(module, &function.names, address - (place - function.start)))
        })
    }

    /// Functions whose names contain the one that does not exist, or that it contains.
    fn similar(&self, name: &str, owner: usize) -> String {
        let names = self.code.functions(owner).map(Function::name);
        let alike = |other: &&str| other.contains(name) || other.len() > 3 && name.contains(other);
        let mut alike: Vec<&str> = names.filter(alike).collect();
        alike.sort_by_key(|other| (other.len().abs_diff(name.len()), *other));
        match alike[..] {
            [] => "; it may be inlined".into(),
            _ => format!("; similar: {}", alike[..alike.len().min(SIMILAR)].join(", ")),
        }
    }
}

/// The modules whose files are needed.
fn modules(image: &Image, places: &[Place], live: Option<&Live>, lines: &Lines) -> Result<Vec<String>, Error> {
    let mut all: Vec<String> = Vec::new();
    for place in places {
        let found = match (place, live) {
            (Place::Address(address), Some(live)) if !live.is_vmlinux(*address) => live.module_at(*address),
            (Place::Instruction { module: None, function, .. }, Some(live)) if image.symbols(function).is_empty() => {
                live.modules_with(function).next()
            }
            (Place::Line { line, .. }, _) => {
                lines.of(line).and_then(|spread| spread.parts.first()?.function.module.as_deref())
            }
            _ => place.module(),
        };
        let Some(module) = found.filter(|module| *module != EVERY && !all.iter().any(|known| known == module)) else {
            continue;
        };
        if let Some(live) = live {
            let text = || place.to_string();
            if !live.is_loaded(module) {
                return Err(Error::NotLoaded { place: text(), module: module.to_owned() });
            }
            if !live.is_build(&*image.shared_module(module)?, module) {
                return Err(Error::Replaced { place: text(), module: module.to_owned() });
            }
        }
        all.push(module.to_owned());
    }
    Ok(all)
}
