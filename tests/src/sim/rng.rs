//! Chance as an argument: SplitMix64, seeded, the only source of randomness in the simulator.

/// SplitMix64 (Steele, Lea, Flood 2014): one 64-bit word of state, every seed is good.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The generator of `seed`.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A generator of its own for one component, so that a change in one component does not shift the chances of others.
    pub fn fork(&mut self) -> Self {
        Self(self.word())
    }

    /// The next 64 bits.
    pub const fn word(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.0)
    }

    /// A number in `0..n`. `n` is at least 1; the bias is below 2^-32 for the small ranges used here.
    pub const fn below(&mut self, n: u64) -> u64 {
        assert!(n > 0, "a choice among nothing");
        self.word() % n
    }

    /// A number in `low..=high`.
    pub const fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// True `per_mille` times out of a thousand.
    pub const fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1000) < per_mille
    }

    /// One of `items`, which are not empty.
    pub const fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len() as u64) as usize]
    }
}

/// The output function of SplitMix64: a good 64-bit mixer by itself, used where a decision must depend on a name (a write,
/// a block) and not on the order in which decisions are asked for.
pub const fn mix(mut z: u64) -> u64 {
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn known_answers_of_seed_1234567() {
        let mut rng = Rng::new(1_234_567);
        let words = [rng.word(), rng.word(), rng.word()];
        assert_eq!(words, [6_457_827_717_110_365_317, 3_203_168_211_198_807_973, 9_817_491_932_198_370_423]);
    }

    #[test]
    fn between_reaches_both_ends_and_nothing_else() {
        let mut rng = Rng::new(1);
        let seen: std::collections::BTreeSet<u64> = (0..200).map(|_| rng.between(3, 5)).collect();
        assert_eq!(seen.into_iter().collect::<Vec<_>>(), [3, 4, 5]);
    }
}
