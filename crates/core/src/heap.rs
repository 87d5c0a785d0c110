//! A 4-ary min-heap. Written here, not taken from `std`, for three things `BinaryHeap` does not
//! offer: a walk over the smallest elements alone (counting what is due costs only what is due),
//! clearing out a few elements at a time (a million at once would stop everybody), and half the
//! depth, which is what a heap of a million entries spends its time on.
//!
//! Invariant: no element is smaller than its parent at `(index - 1) / 4`.

const ARITY: usize = 4;

#[derive(Debug, Clone)]
pub(crate) struct Heap<T> {
    items: Vec<T>,
    /// Where the next sweep looks.
    broom: usize,
}

impl<T: Ord + Copy> Heap<T> {
    pub(crate) const fn new() -> Self {
        Self { items: Vec::new(), broom: 0 }
    }

    pub(crate) fn len(&self) -> usize {
        self.items.len()
    }

    pub(crate) fn peek(&self) -> Option<&T> {
        self.items.first()
    }

    #[inline]
    pub(crate) fn push(&mut self, item: T) {
        let index = self.items.len();
        self.items.push(item);
        self.sift_up(index);
    }

    #[inline]
    pub(crate) fn pop(&mut self) -> Option<T> {
        let last = self.items.pop()?;
        let Some(&first) = self.items.first() else {
            return Some(last);
        };
        self.items[0] = last;
        self.sift_down(0);
        Some(first)
    }

    /// Looks at up to `steps` elements, others each time, and takes out what `keep` does not want.
    pub(crate) fn sweep(&mut self, steps: usize, keep: impl Fn(&T) -> bool) {
        for _ in 0..steps.min(self.items.len()) {
            if self.broom >= self.items.len() {
                self.broom = 0;
            }
            match self.items.get(self.broom) {
                Some(item) if keep(item) => self.broom += 1,
                Some(_) => self.remove(self.broom),
                None => return,
            }
        }
    }

    fn remove(&mut self, index: usize) {
        let Some(last) = self.items.pop() else {
            return;
        };
        if index == self.items.len() {
            return;
        }
        self.items[index] = last;
        self.sift_up(index);
        self.sift_down(index);
    }

    /// Keeps what `keep` says, in linear time.
    pub(crate) fn retain(&mut self, keep: impl FnMut(&T) -> bool) {
        self.items.retain(keep);
        for index in (0..self.items.len().div_ceil(ARITY)).rev() {
            self.sift_down(index);
        }
    }

    /// Gives memory back if less than a quarter of it, less `slack`, is used.
    #[inline]
    pub(crate) fn give_back(&mut self, slack: usize) {
        if self.items.capacity() / 4 > self.items.len() + slack {
            self.items.shrink_to(self.items.len() * 2);
        }
    }

    #[cfg(test)]
    pub(crate) fn capacity(&self) -> usize {
        self.items.capacity()
    }

    /// Calls `visit` for every element for which `within` holds. `within` must be downward closed:
    /// if it holds for an element it holds for every smaller one. `visit` returns whether to go on.
    pub(crate) fn visit_while(
        &self,
        within: impl Fn(&T) -> bool,
        mut visit: impl FnMut(&T) -> bool,
    ) {
        let mut open = vec![0];
        while let Some(index) = open.pop() {
            let Some(item) = self.items.get(index).filter(|item| within(item)) else {
                continue;
            };
            if !visit(item) {
                return;
            }
            open.extend((1..=ARITY).map(|child| index * ARITY + child));
        }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.items.iter()
    }

    fn sift_up(&mut self, mut index: usize) {
        let item = self.items[index];
        while index > 0 {
            let parent = (index - 1) / ARITY;
            if self.items[parent] <= item {
                break;
            }
            self.items[index] = self.items[parent];
            index = parent;
        }
        self.items[index] = item;
    }

    fn sift_down(&mut self, mut index: usize) {
        let Some(&item) = self.items.get(index) else {
            return;
        };
        loop {
            let first = index * ARITY + 1;
            let children = first..(first + ARITY).min(self.items.len());
            let Some(least) = children.min_by_key(|&child| self.items[child]) else {
                break;
            };
            if item <= self.items[least] {
                break;
            }
            self.items[index] = self.items[least];
            index = least;
        }
        self.items[index] = item;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gives_back_everything_in_order_whatever_the_order_of_pushes() {
        let mut heap = Heap::new();
        let mut state = 7_u64;
        let mut expected = Vec::new();
        for _ in 0..2_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            heap.push(state >> 40);
            expected.push(state >> 40);
        }
        expected.sort_unstable();
        let taken: Vec<_> = std::iter::from_fn(|| heap.pop()).collect();
        assert_eq!(taken, expected);
    }

    #[test]
    fn retain_keeps_the_order() {
        let mut heap = Heap::new();
        for value in (0..500_u64).rev() {
            heap.push(value);
        }
        heap.retain(|value| value % 3 == 0);
        let taken: Vec<_> = std::iter::from_fn(|| heap.pop()).collect();
        assert_eq!(taken, (0..500).step_by(3).collect::<Vec<_>>());
    }

    #[test]
    fn sweeping_takes_out_everything_unwanted_in_time_and_keeps_the_order() {
        let mut heap = Heap::new();
        let mut state = 3_u64;
        for _ in 0..1_000 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            heap.push(state >> 40);
        }
        let wanted = |value: &u64| value.is_multiple_of(5);
        let mut expected: Vec<u64> = heap.iter().copied().filter(wanted).collect();
        expected.sort_unstable();
        // Some may be moved behind the broom while it sweeps: a few rounds get them all.
        for _ in 0..2_000 {
            heap.sweep(2, wanted);
        }
        assert_eq!(heap.len(), expected.len());
        let taken: Vec<_> = std::iter::from_fn(|| heap.pop()).collect();
        assert_eq!(taken, expected);
    }

    #[test]
    fn visits_exactly_what_is_within() {
        let mut heap = Heap::new();
        for value in (0..1_000_u64).rev() {
            heap.push(value);
        }
        let mut seen = Vec::new();
        heap.visit_while(
            |value| *value < 40,
            |value| {
                seen.push(*value);
                true
            },
        );
        seen.sort_unstable();
        assert_eq!(seen, (0..40).collect::<Vec<_>>());
    }
}
