//! Which registers of two builds hold equal values at a place.

/// Low bits of a register that are known to be equal: 0, 8, 16, 32 or 64.
pub(super) type Valid = u8;

/// For each register of the variant and each of the deployed build: how many
/// low bits of them are equal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Pairing {
    pub registers: [[Valid; 16]; 16],
    /// Whether the status flags are equal.
    pub flags: bool,
    /// Registers of the deployed build and of the variant that a call of a C
    /// function clobbered and nothing wrote since: they pass no argument.
    pub junk: [u16; 2],
}

impl Pairing {
    pub fn identity() -> Self {
        Self {
            registers: std::array::from_fn(|v| std::array::from_fn(|b| if v == b { 64 } else { 0 })),
            flags: true,
            junk: [0; 2],
        }
    }

    pub fn valid(&self, base: usize, other: usize) -> Valid {
        self.registers[other][base]
    }

    /// Both registers are written: what they were equal to is gone.
    pub fn kill(&mut self, base: usize, other: usize) {
        self.junk[0] &= !(1 << base);
        self.junk[1] &= !(1 << other);
        self.registers[other] = [0; 16];
        for row in &mut self.registers {
            row[base] = 0;
        }
    }

    pub fn pair(&mut self, base: usize, other: usize, valid: Valid) {
        self.kill(base, other);
        self.registers[other][base] = valid;
    }

    pub fn meet(&self, with: &Self) -> Self {
        let registers =
            std::array::from_fn(|v| std::array::from_fn(|b| self.registers[v][b].min(with.registers[v][b])));
        let junk = [self.junk[0] & with.junk[0], self.junk[1] & with.junk[1]];
        Self { registers, flags: self.flags && with.flags, junk }
    }
}
