//! Parameters and meters that loaded modules describe (`kernel/tunable/xk_tunable.h`): listed, set, held,
//! through `/dev/xk_tunable`.

use std::path::Path;
use std::time::Duration;

use xk_history::{Action, Event, Kind, State};

use crate::abi::{self, Plain};
use crate::descriptor::Descriptor;
use crate::ParameterError;

/// Where xk_tunable.ko is reached.
pub const PARAMETER_DEVICE_PATH: &str = "/dev/xk_tunable";

/// A parameter of a module.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Parameter {
    /// Number by which the kernel knows it, as long as the module stays; never given twice.
    pub id: u32,
    /// The module.
    pub module: String,
    /// The part of it that the parameter belongs to.
    pub subsystem: String,
    /// Its name, one of a kind in the module.
    pub name: String,
    /// What it may be set to.
    pub values: Values,
    /// What its developer has chosen.
    pub default: i64,
    /// The value in force, or the error number of the module.
    pub value: Result<i64, i32>,
    /// Another parameter of the subsystem, and the value of it with which alone this one matters.
    pub only_if: Option<(String, i64)>,
    /// How long the module takes to get used to another value.
    pub settle: Duration,
    /// Whether a value that was proved better is to go when the tuner ends.
    pub revert: bool,
    /// Who has set it, if it will go back.
    pub hold: Option<Hold>,
}

/// What a parameter may be set to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Values {
    /// Whole numbers.
    Numbers {
        /// The smallest.
        min: i64,
        /// The greatest.
        max: i64,
        /// What leads from one to the next that is worth trying.
        step: i64,
        /// Whether the step is a factor.
        exponential: bool,
    },
    /// The numbers of these words.
    Choices(Vec<String>),
}

/// A value that goes back to what it was.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hold {
    /// Who set it; `None` when it is about to be restored.
    pub owner: Option<u32>,
    /// Whether that was this descriptor.
    pub own: bool,
    /// The value before.
    pub original: i64,
    /// The time that is left; `None`: as long as the descriptor is open.
    pub lease: Option<Duration>,
}

/// A number, or two, that a module reports.
#[derive(Debug, Clone, PartialEq)]
pub struct Meter {
    /// The module.
    pub module: String,
    /// The part of it that the meter belongs to.
    pub subsystem: String,
    /// Its name, one of a kind among the module's meters.
    pub name: String,
    /// What it is for.
    pub role: Role,
    /// Whether it is divided by a second number.
    pub divided: bool,
    /// What it reads, and the second number; or the error number of the module.
    pub reading: Result<(u64, u64), i32>,
}

/// What a meter is for.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Role {
    /// Tells workloads apart: readings that differ by no more than this share are alike.
    Sensor(f64),
    /// Is optimised.
    Target {
        /// Its growth per second counts, not the number.
        rate: bool,
        /// Less is better.
        minimise: bool,
    },
    /// Shows that the subsystem holds the work up, from this reading on.
    Bottleneck(f64),
}

fn result<T>(error: i32, value: T) -> Result<T, i32> {
    match error {
        0 => Ok(value),
        _ => Err(-error),
    }
}

impl Parameter {
    fn new(info: &abi::ParameterInfo) -> Self {
        let values = match info.steps {
            abi::PARAMETER_CHOICE => Values::Choices(
                info.choices.iter().take(info.nr_choices as usize).map(|word| abi::text(word)).collect(),
            ),
            steps => Values::Numbers {
                min: info.min,
                max: info.max,
                step: info.step,
                exponential: steps == abi::PARAMETER_EXPONENTIAL,
            },
        };
        let guard = abi::text(&info.only_if);
        let hold = (info.flags & abi::PARAMETER_HELD != 0).then(|| Hold {
            owner: u32::try_from(info.owner_pid).ok().filter(|&pid| pid != 0),
            own: info.flags & abi::PARAMETER_OWN != 0,
            original: info.original,
            lease: (info.lease_ns != 0).then(|| Duration::from_nanos(info.lease_ns)),
        });
        Self {
            id: info.id,
            module: abi::text(&info.module),
            subsystem: abi::text(&info.subsystem),
            name: abi::text(&info.name),
            values,
            default: info.default_value,
            value: result(info.error, info.value),
            only_if: (!guard.is_empty()).then_some((guard, info.only_if_value)),
            settle: Duration::from_millis(info.settle_ms.into()),
            revert: info.flags & abi::PARAMETER_REVERT != 0,
            hold,
        }
    }
}

impl Meter {
    /// `None` for a role that this version does not know.
    fn new(info: &abi::MeterInfo) -> Option<Self> {
        let limit = info.limit as f64 / 1000.0;
        let role = match info.role {
            abi::METER_IS_SENSOR => Role::Sensor(limit),
            abi::METER_IS_TARGET => Role::Target {
                rate: info.flags & abi::METER_HAS_RATE != 0,
                minimise: info.flags & abi::METER_LESS != 0,
            },
            abi::METER_IS_BOTTLENECK => Role::Bottleneck(limit),
            _ => return None,
        };
        Some(Self {
            module: abi::text(&info.module),
            subsystem: abi::text(&info.subsystem),
            name: abi::text(&info.name),
            role,
            divided: info.flags & abi::METER_HAS_PER != 0,
            reading: result(info.error, (info.of, info.per)),
        })
    }
}

/// What a process keeps of a parameter, for the history.
fn kept(parameter: Parameter) -> Option<Event> {
    let words = |number: i64| match &parameter.values {
        Values::Choices(words) => usize::try_from(number).ok().and_then(|index| words.get(index)).map(String::as_str),
        Values::Numbers { .. } => None,
    };
    let state = |number: i64| words(number).map_or(State::Value(number), State::from);
    let (value, hold) = parameter.value.ok().zip(parameter.hold.as_ref())?;
    let name = format!("{}:{}", parameter.module, parameter.name);
    Some(Event::new(Kind::Parameter, name, Action::Keep).from(state(hold.original)).to(state(value)))
}

/// An open descriptor of xk_tunable.ko. What is set through it is held as long as it is open.
#[derive(Debug)]
pub struct ParameterDevice {
    descriptor: Descriptor,
}

impl ParameterDevice {
    /// Opens [`PARAMETER_DEVICE_PATH`] and checks the version of the interface.
    ///
    /// # Errors
    /// [`ParameterError::NotRoot`], [`ParameterError::NotLoaded`], [`ParameterError::Abi`], or what the
    /// operating system said.
    pub fn open() -> Result<Self, ParameterError> {
        Self::open_at(Path::new(PARAMETER_DEVICE_PATH), true)
    }

    /// Opens [`PARAMETER_DEVICE_PATH`] to look only: whatever would change something is refused
    /// with [`ParameterError::Forbidden`].
    ///
    /// # Errors
    /// As [`ParameterDevice::open`].
    pub fn open_to_read() -> Result<Self, ParameterError> {
        Self::open_at(Path::new(PARAMETER_DEVICE_PATH), false)
    }

    fn open_at(path: &Path, write: bool) -> Result<Self, ParameterError> {
        let device = Self { descriptor: Descriptor::open(path, write)? };
        let mut version = abi::ParameterVersion::zeroed();
        device.descriptor.ioctl(abi::IOC_PARAMETER_VERSION, &mut version).map_err(ParameterError::Device)?;
        if version.abi != abi::PARAMETER_ABI_VERSION {
            let module = abi::text(&version.module);
            return Err(ParameterError::Abi { kernel: version.abi, user: abi::PARAMETER_ABI_VERSION, module });
        }
        Ok(device)
    }

    /// The parameters that loaded modules describe, with their values, by module, subsystem and name.
    ///
    /// # Errors
    /// What the operating system said.
    pub fn parameters(&self) -> Result<Vec<Parameter>, ParameterError> {
        let mut all: Vec<Parameter> = Vec::new();
        for index in 0.. {
            match self.parameter_at(index)? {
                Some(parameter) => all.push(parameter),
                None => break,
            }
        }
        // Compilers do not keep the order of a source.
        all.sort_by(|a, b| (&a.module, &a.subsystem, &a.name).cmp(&(&b.module, &b.subsystem, &b.name)));
        Ok(all)
    }

    /// The parameter with this number.
    ///
    /// # Errors
    /// [`ParameterError::Gone`], or what the operating system said.
    pub fn parameter(&self, id: u32) -> Result<Parameter, ParameterError> {
        let found = self.parameters()?.into_iter().find(|parameter| parameter.id == id);
        found.ok_or_else(|| {
            ParameterError::Gone(format!("no parameter has the number {id}: its module is not loaded any more"))
        })
    }

    fn parameter_at(&self, index: u32) -> Result<Option<Parameter>, ParameterError> {
        let mut info = abi::ParameterInfo::zeroed();
        info.index = index;
        match self.descriptor.ioctl(abi::IOC_PARAMETER_INFO, &mut info) {
            Ok(()) => Ok(Some(Parameter::new(&info))),
            Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
            Err(error) => Err(ParameterError::Device(error)),
        }
    }

    /// The meters of loaded modules, with what they read, by module, subsystem and name.
    ///
    /// # Errors
    /// What the operating system said.
    pub fn meters(&self) -> Result<Vec<Meter>, ParameterError> {
        let mut all: Vec<Meter> = Vec::new();
        for index in 0.. {
            let mut info = abi::MeterInfo::zeroed();
            info.index = index;
            match self.descriptor.ioctl(abi::IOC_METER_INFO, &mut info) {
                Ok(()) => all.extend(Meter::new(&info)),
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => break,
                Err(error) => return Err(ParameterError::Device(error)),
            }
        }
        all.sort_by(|a, b| (&a.module, &a.subsystem, &a.name).cmp(&(&b.module, &b.subsystem, &b.name)));
        Ok(all)
    }

    /// Sets a parameter. The value is held: it goes back to what it was when this descriptor is closed or the
    /// lease ends, except one that another process has set meanwhile. The value that it had before ends the hold.
    ///
    /// # Errors
    /// [`ParameterError::Gone`]; [`ParameterError::Busy`] when another descriptor holds it;
    /// [`ParameterError::NotHeld`] when another process has set it since this descriptor did;
    /// [`ParameterError::Refused`] when the module does not take the value, or has another afterwards;
    /// [`ParameterError::Forbidden`].
    pub fn set_parameter(&self, id: u32, value: i64, lease: Option<Duration>) -> Result<(), ParameterError> {
        self.change_parameter(id, abi::PARAMETER_SET, value, lease)
    }

    /// Ends the hold after so much time from now; `None`: with this descriptor.
    ///
    /// # Errors
    /// [`ParameterError::Gone`], [`ParameterError::NotHeld`], [`ParameterError::Forbidden`].
    pub fn lease_parameter(&self, id: u32, lease: Option<Duration>) -> Result<(), ParameterError> {
        self.change_parameter(id, abi::PARAMETER_LEASE, 0, lease)
    }

    /// Lets the value that this descriptor holds stay.
    ///
    /// # Errors
    /// [`ParameterError::Gone`], [`ParameterError::NotHeld`], [`ParameterError::Forbidden`].
    pub fn keep_parameter(&self, id: u32) -> Result<(), ParameterError> {
        let before = if xk_history::is_kept() { self.parameter(id).ok() } else { None };
        self.change_parameter(id, abi::PARAMETER_KEEP, 0, None)?;
        // The values before were trials of a search, which records them itself.
        xk_history::record(before.and_then(kept).into_iter().collect());
        Ok(())
    }

    fn change_parameter(&self, id: u32, op: u32, value: i64, lease: Option<Duration>) -> Result<(), ParameterError> {
        let mut change = abi::ParameterChange::zeroed();
        change.size = size_of::<abi::ParameterChange>() as u32;
        change.id = id;
        change.op = op;
        change.value = value;
        change.lease_ns = lease.map_or(0, |time| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX).max(1));
        let Err(error) = self.descriptor.ioctl(abi::IOC_PARAMETER_CHANGE, &mut change) else { return Ok(()) };
        let said = abi::text(&change.error);
        Err(match error.raw_os_error() {
            _ if said.is_empty() => ParameterError::Device(error),
            Some(libc::ENOENT) => ParameterError::Gone(said),
            Some(libc::ESTALE) => ParameterError::NotHeld(said),
            Some(libc::EPERM | libc::EBUSY) => ParameterError::Busy(said),
            Some(libc::EACCES) => ParameterError::Forbidden(said),
            errno => ParameterError::Refused { reason: said, errno: errno.unwrap_or(0) },
        })
    }
}
