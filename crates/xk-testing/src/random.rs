//! Numbers for tests. The same seed gives the same numbers.

/// `splitmix64`: small, and the same on every run.
#[derive(Debug)]
pub struct Random(pub u64);

impl Random {
    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `limit`; 0 if there is none.
    pub fn below(&mut self, limit: usize) -> usize {
        (self.next_u64() % (limit as u64).max(1)) as usize
    }

    /// One of `choices`.
    pub fn pick<T: Copy>(&mut self, choices: &[T]) -> T {
        choices[self.below(choices.len())]
    }

    /// A value at which arithmetic likes to go wrong, more often than not.
    pub fn value(&mut self) -> u64 {
        const EDGES: [u64; 26] = [
            0,
            1,
            2,
            3,
            7,
            8,
            0xf,
            0x10,
            0x1f,
            0x20,
            0x3f,
            0x40,
            0x7f,
            0x80,
            0xff,
            0x100,
            0x7fff,
            0x8000,
            0xffff,
            0x7fff_ffff,
            0x8000_0000,
            0xffff_ffff,
            0x1_0000_0000,
            0x7fff_ffff_ffff_ffff,
            0x8000_0000_0000_0000,
            0xffff_ffff_ffff_ffff,
        ];
        let edge = self.pick(&EDGES);
        match self.below(8) {
            0 | 1 => edge,
            2 => edge.wrapping_neg(),
            3 => edge.wrapping_add(self.below(3) as u64).wrapping_sub(1),
            // Edges of the sub-registers under random upper bits.
            4 => self.next_u64() << 32 | edge & 0xffff_ffff,
            5 => self.next_u64() << 8 | edge & 0xff,
            _ => self.next_u64(),
        }
    }
}
