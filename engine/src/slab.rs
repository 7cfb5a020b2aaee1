//! Storage whose keys carry a generation: a key that outlived its value finds nothing, never another value.

/// Names a value of one [`Slab`]. As a number: generation in the upper half, index in the lower.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Key(pub(crate) u64);

impl Key {
    /// Finds nothing in any slab.
    pub(crate) const NONE: Self = Self(u64::MAX);

    const fn new(generation: u32, index: u32) -> Self {
        Self((generation as u64) << 32 | index as u64)
    }

    const fn index(self) -> usize {
        (self.0 & 0xffff_ffff) as usize
    }

    const fn generation(self) -> u32 {
        (self.0 >> 32) as u32
    }
}

/// Values of one kind. Slots are reused, last freed first; memory is kept at the high-water mark.
#[derive(Debug)]
pub(crate) struct Slab<T> {
    slots: Vec<Slot<T>>,
    vacant: Vec<u32>,
}

#[derive(Debug)]
struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

impl<T> Default for Slab<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), vacant: Vec::new() }
    }
}

impl<T> Slab<T> {
    pub(crate) fn insert(&mut self, value: T) -> Key {
        if let Some(index) = self.vacant.pop() {
            let slot = &mut self.slots[index as usize];
            slot.value = Some(value);
            return Key::new(slot.generation, index);
        }
        let index =
            u32::try_from(self.slots.len()).expect("the limits on ops and pieces keep a slab below 2^32 values");
        self.slots.push(Slot { generation: 0, value: Some(value) });
        Key::new(0, index)
    }

    pub(crate) fn get(&self, key: Key) -> Option<&T> {
        let slot = self.slots.get(key.index())?;
        if slot.generation == key.generation() { slot.value.as_ref() } else { None }
    }

    pub(crate) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let slot = self.slots.get_mut(key.index())?;
        if slot.generation == key.generation() { slot.value.as_mut() } else { None }
    }

    pub(crate) fn remove(&mut self, key: Key) -> Option<T> {
        let slot = self.slots.get_mut(key.index())?;
        if slot.generation != key.generation() {
            return None;
        }
        let value = slot.value.take()?;
        slot.generation = slot.generation.wrapping_add(1);
        self.vacant.push(key.index() as u32);
        Some(value)
    }

    pub(crate) fn len(&self) -> usize {
        self.slots.len() - self.vacant.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_finds_its_own_value_or_nothing() {
        let mut slab = Slab::default();
        let a = slab.insert('a');
        assert_eq!(slab.get(a), Some(&'a'));
        assert_eq!(slab.remove(a), Some('a'));
        assert_eq!(slab.remove(a), None);
        let b = slab.insert('b');
        assert_ne!(a, b, "the slot is reused, the key is not");
        assert_eq!(slab.get(a), None);
        assert_eq!(slab.get_mut(a), None);
        assert_eq!(slab.get(b), Some(&'b'));
        assert_eq!(slab.len(), 1);
    }

    #[test]
    fn a_key_of_another_slab_finds_nothing() {
        let slab: Slab<u8> = Slab::default();
        assert_eq!(slab.get(Key(7)), None);
    }
}
