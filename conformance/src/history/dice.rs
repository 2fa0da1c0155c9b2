/// A stream of numbers that one seed decides, the same in every version of every crate: a seed in a bug report stays
/// good. It is SplitMix64 (Steele, Lea and Flood, OOPSLA 2014).
#[derive(Debug, Clone)]
pub(crate) struct Dice(u64);

impl Dice {
    /// Dice of their own for each path of numbers, such as a seed, a round and a client.
    pub(crate) fn new(path: &[u64]) -> Self {
        let mut dice = Self(0);
        for number in path {
            dice.0 ^= number;
            dice.0 = dice.next();
        }
        dice
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut number = self.0;
        number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        number ^ (number >> 31)
    }

    /// A number below `limit`, which is above zero. That some are likelier by a 2^-32nd part is no matter here.
    pub(crate) fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit
    }

    /// True in `percent` of a hundred.
    pub(crate) fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    /// One of several, each as likely as its weight says.
    pub(crate) fn weighted<T: Copy>(&mut self, from: &[(u64, T)]) -> T {
        let mut left = self.below(from.iter().map(|(weight, _)| weight).sum());
        for &(weight, item) in from {
            if left < weight {
                return item;
            }
            left -= weight;
        }
        unreachable!("a number below the sum of the weights falls into one of them")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_decides_the_numbers() {
        let numbers = |path: &[u64]| {
            std::iter::repeat_with({
                let mut dice = Dice::new(path);
                move || dice.next()
            })
            .take(3)
            .collect::<Vec<_>>()
        };
        assert_eq!(numbers(&[1, 2]), numbers(&[1, 2]));
        assert_ne!(numbers(&[1, 2]), numbers(&[2, 1]));
        assert_ne!(numbers(&[1]), numbers(&[1, 0]));
        // Held to a known number, so that old seeds go on meaning what they meant.
        assert_eq!(Dice(0).next(), 0xe220_a839_7b1d_cdaf);
    }
}
