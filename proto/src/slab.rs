//! Things by number, where a number is never used for two things.

/// Names an entry of one [`Slab`]. An entry that takes the place of an earlier one has another generation.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Debug)]
pub(crate) struct Key {
    index: u32,
    generation: u32,
}

impl Key {
    /// As one number of 48 bits.
    pub(crate) const fn to_bits(self) -> u64 {
        (self.generation as u64) << WIDTH | self.index as u64
    }

    /// Back from [`to_bits`](Self::to_bits).
    pub(crate) const fn from_bits(bits: u64) -> Self {
        Self { index: bits as u32 & MASK, generation: (bits >> WIDTH) as u32 & MASK }
    }
}

/// Index and generation are this many bits wide each.
const WIDTH: u32 = 24;
const MASK: u32 = (1 << WIDTH) - 1;

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// A growing table of entries.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    vacant: Vec<u32>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), vacant: Vec::new() }
    }
}

impl<T> Slab<T> {
    /// Adds an entry.
    pub(crate) fn insert(&mut self, value: T) -> Key {
        let index = self.vacant.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, value: None });
            assert!(self.slots.len() <= MASK as usize, "far fewer than 2^24 entries exist at once");
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.value = Some(value);
        Key { index, generation: slot.generation }
    }

    /// Takes an entry out.
    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index as usize).filter(|s| s.generation == key.generation)?;
        let value = slot.value.take()?;
        slot.generation = (slot.generation + 1) & MASK;
        self.vacant.push(key.index);
        Some(value)
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        self.slots.get(key.index as usize).filter(|s| s.generation == key.generation)?.value.as_ref()
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        self.slots.get_mut(key.index as usize).filter(|s| s.generation == key.generation)?.value.as_mut()
    }

    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }

    /// All entries, in the order of their places.
    pub(crate) fn iter(&self) -> impl Iterator<Item = (Key, &T)> {
        self.slots.iter().enumerate().filter_map(|(index, slot)| {
            let key = Key { index: index as u32, generation: slot.generation };
            slot.value.as_ref().map(|value| (key, value))
        })
    }

    /// The keys of all entries, for loops that change the slab.
    pub(crate) fn keys(&self) -> Vec<Key> {
        self.iter().map(|(key, _)| key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_nothing_after_its_entry_is_gone() {
        let mut slab = Slab::default();
        let a = slab.insert('a');
        assert_eq!(slab.remove(a), Some('a'));
        let b = slab.insert('b');
        assert_eq!(slab.get(a), None);
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab.get(Key::from_bits(b.to_bits())), Some(&'b'));
        assert_eq!(slab.len(), 1);
    }
}
