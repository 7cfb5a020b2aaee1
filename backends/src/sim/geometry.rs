//! Where a byte of the disk is: ring, track and angle, and how long the head needs to get there.

/// Rings of equal width in cylinders; the data rate is constant within one (zoned recording).
const RINGS: u64 = 24;

/// A turn, tracks and their rates. Times are nanoseconds, lengths bytes.
#[derive(Clone, Debug)]
pub(super) struct Geometry {
    turn: u64,
    rings: Vec<Ring>,
    tracks_per_ring: u64,
    capacity: u64,
}

#[derive(Clone, Copy, Debug)]
struct Ring {
    first_byte: u64,
    track_bytes: u64,
}

/// A place on the platter.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) struct Place {
    /// Track number from the outer edge.
    pub(super) track: u64,
    /// Angle as the part of a turn that passes before it, in nanoseconds.
    pub(super) angle: u64,
    /// Fraction of the stroke, 0 at the outer edge.
    pub(super) stroke: f64,
}

impl Geometry {
    /// `outer` and `inner` are data rates in bytes per second.
    pub(super) fn new(rpm: u32, outer: u64, inner: u64, capacity: u64) -> Self {
        let turn = 60_000_000_000 / u64::from(rpm);
        let rate = |ring: u64| outer - (outer - inner) * ring / (RINGS - 1);
        let track = |ring: u64| (u128::from(rate(ring)) * u128::from(turn) / 1_000_000_000) as u64;
        let per_cylinder: u64 = (0..RINGS).map(track).sum();
        let tracks_per_ring = capacity.div_ceil(per_cylinder);
        let mut first_byte = 0;
        let rings = (0..RINGS)
            .map(|ring| {
                let here = Ring { first_byte, track_bytes: track(ring) };
                first_byte += here.track_bytes * tracks_per_ring;
                here
            })
            .collect();
        Self { turn, rings, tracks_per_ring, capacity }
    }

    pub(super) const fn turn(&self) -> u64 {
        self.turn
    }

    pub(super) const fn capacity(&self) -> u64 {
        self.capacity
    }

    fn ring(&self, byte: u64) -> usize {
        self.rings.partition_point(|ring| ring.first_byte <= byte) - 1
    }

    pub(super) fn place(&self, byte: u64) -> Place {
        let index = self.ring(byte);
        let ring = self.rings[index];
        let within = byte - ring.first_byte;
        let track = index as u64 * self.tracks_per_ring + within / ring.track_bytes;
        let angle =
            (u128::from(within % ring.track_bytes) * u128::from(self.turn) / u128::from(ring.track_bytes)) as u64;
        Place { track, angle, stroke: track as f64 / (self.tracks_per_ring * RINGS) as f64 }
    }

    /// How long the head is over `len` bytes from `byte` on.
    pub(super) fn transfer(&self, byte: u64, len: u64) -> u64 {
        let track_bytes = self.rings[self.ring(byte)].track_bytes;
        (u128::from(len) * u128::from(self.turn) / u128::from(track_bytes)) as u64
    }

    /// Bytes of the track that `byte` is on.
    pub(super) fn track_bytes(&self, byte: u64) -> u64 {
        self.rings[self.ring(byte)].track_bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_whole_track_takes_one_turn_everywhere_and_the_inner_ones_are_slower() {
        let geometry = Geometry::new(7200, 285_000_000, 130_000_000, 20_000_000_000_000);
        assert_eq!(geometry.turn(), 8_333_333);
        for byte in [0, 10_000_000_000_000, 19_999_999_000_000] {
            let track = geometry.track_bytes(byte);
            assert_eq!(geometry.transfer(byte, track), geometry.turn());
        }
        let (first, last) = (geometry.track_bytes(0), geometry.track_bytes(19_999_999_999_999));
        assert_eq!((first, last), (2_374_999, 1_083_333), "rate times turn");
        assert!(geometry.place(19_999_999_999_999).stroke < 1.0);
    }

    #[test]
    fn places_follow_each_other_without_a_gap() {
        let geometry = Geometry::new(7200, 285_000_000, 130_000_000, 1_000_000_000_000);
        let track = geometry.track_bytes(0);
        let (end, next) = (geometry.place(track - 1), geometry.place(track));
        assert_eq!((end.track, next.track, next.angle), (0, 1, 0));
        assert!(end.angle < geometry.turn());
    }
}
