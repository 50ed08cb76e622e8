//! Cells and blocks of the convolutional networks.

use eggine_ir::Value;

use super::build::Net;

const ONE: [usize; 2] = [1, 1];
const THREE: [usize; 2] = [3, 3];

impl Net {
    /// A residual block with groups, and a convolution in the shortcut where the shape changes.
    pub(super) fn bottleneck(
        &mut self,
        x: Value,
        inner: usize,
        outer: usize,
        stride: usize,
        groups: usize,
    ) -> Value {
        let narrow = self.conv_norm_relu(x, inner, ONE, 1, 1);
        let middle = self.conv_norm_relu(narrow, inner, THREE, stride, groups);
        let wide = self.conv_norm(middle, outer, ONE, 1, 1);
        let shortcut = match self.channels(x) == outer && stride == 1 {
            true => x,
            false => self.conv_norm(x, outer, ONE, stride, 1),
        };
        let sum = self.add(wide, shortcut);
        self.relu(sum)
    }

    // NASNet-A.

    /// Twice: activation, depthwise and pointwise convolution, normalisation.
    fn separable(&mut self, x: Value, filters: usize, kernel: usize, stride: usize) -> Value {
        let mut at = x;
        for stride in [stride, 1] {
            at = self.relu(at);
            let channels = self.channels(at);
            at = self.depthwise(at, channels, kernel, stride);
            at = self.conv_norm(at, filters, ONE, 1, 1);
        }
        at
    }

    /// The input of a cell in the cell's number of filters, and in the size of the newer one.
    fn adjust(&mut self, x: Value, filters: usize, like: Value) -> Value {
        let stride = self.extents(x)[2].div_ceil(self.extents(like)[2]);
        let at = self.relu(x);
        self.conv_norm(at, filters, ONE, stride, 1)
    }

    pub(super) fn normal_cell(&mut self, new: Value, old: Value, filters: usize) -> Value {
        let old = self.adjust(old, filters, new);
        let new = self.adjust(new, filters, new);
        let (a, b) = (self.separable(new, filters, 3, 1), new);
        let first = self.add(a, b);
        let (a, b) = (self.separable(old, filters, 3, 1), self.separable(new, filters, 5, 1));
        let second = self.add(a, b);
        let (a, b) = (self.average_pool(new, 1), old);
        let third = self.add(a, b);
        let (a, b) = (self.average_pool(old, 1), self.average_pool(old, 1));
        let fourth = self.add(a, b);
        let (a, b) = (self.separable(old, filters, 5, 1), self.separable(old, filters, 3, 1));
        let fifth = self.add(a, b);
        self.concat(&[old, first, second, third, fourth, fifth])
    }

    pub(super) fn reduction_cell(&mut self, new: Value, old: Value, filters: usize) -> Value {
        let old = self.adjust(old, filters, new);
        let new = self.adjust(new, filters, new);
        let (a, b) = (self.separable(old, filters, 7, 2), self.separable(new, filters, 5, 2));
        let first = self.add(a, b);
        let (a, b) = (self.max_pool(new, 3, 2, 1), self.separable(old, filters, 7, 2));
        let second = self.add(a, b);
        let (a, b) = (self.average_pool(new, 2), self.separable(old, filters, 5, 2));
        let third = self.add(a, b);
        let (a, b) = (self.max_pool(new, 3, 2, 1), self.separable(first, filters, 3, 1));
        let fourth = self.add(a, b);
        let (a, b) = (self.average_pool(first, 1), second);
        let fifth = self.add(a, b);
        self.concat(&[third, fourth, fifth])
    }

    // Inception-v3.

    fn pooled(&mut self, x: Value, channels: usize) -> Value {
        let average = self.average_pool(x, 1);
        self.conv_norm_relu(average, channels, ONE, 1, 1)
    }

    /// A chain of convolutions, each padded and of stride 1.
    fn chain(&mut self, x: Value, layers: &[(usize, [usize; 2])]) -> Value {
        layers
            .iter()
            .fold(x, |at, &(channels, kernel)| self.conv_norm_relu(at, channels, kernel, 1, 1))
    }

    pub(super) fn inception_a(&mut self, x: Value, pool: usize) -> Value {
        let one = self.chain(x, &[(64, ONE)]);
        let five = self.chain(x, &[(48, ONE), (64, [5, 5])]);
        let three = self.chain(x, &[(64, ONE), (96, THREE), (96, THREE)]);
        let pooled = self.pooled(x, pool);
        self.concat(&[one, five, three, pooled])
    }

    pub(super) fn inception_b(&mut self, x: Value) -> Value {
        let left = self.conv_valid(x, 384, 3, 2);
        let middle = self.chain(x, &[(64, ONE), (96, THREE)]);
        let middle = self.conv_valid(middle, 96, 3, 2);
        let right = self.max_pool(x, 3, 2, 0);
        self.concat(&[left, middle, right])
    }

    pub(super) fn inception_c(&mut self, x: Value, n: usize) -> Value {
        let (wide, tall) = ([1, 7], [7, 1]);
        let one = self.chain(x, &[(192, ONE)]);
        let two = self.chain(x, &[(n, ONE), (n, wide), (192, tall)]);
        let four = self.chain(x, &[(n, ONE), (n, tall), (n, wide), (n, tall), (192, wide)]);
        let pooled = self.pooled(x, 192);
        self.concat(&[one, two, four, pooled])
    }

    pub(super) fn inception_d(&mut self, x: Value) -> Value {
        let left = self.chain(x, &[(192, ONE)]);
        let left = self.conv_valid(left, 320, 3, 2);
        let middle = self.chain(x, &[(192, ONE), (192, [1, 7]), (192, [7, 1])]);
        let middle = self.conv_valid(middle, 192, 3, 2);
        let right = self.max_pool(x, 3, 2, 0);
        self.concat(&[left, middle, right])
    }

    pub(super) fn inception_e(&mut self, x: Value) -> Value {
        let one = self.chain(x, &[(320, ONE)]);
        let split = self.chain(x, &[(384, ONE)]);
        let (wide, tall) =
            (self.chain(split, &[(384, [1, 3])]), self.chain(split, &[(384, [3, 1])]));
        let middle = self.concat(&[wide, tall]);
        let split = self.chain(x, &[(448, ONE), (384, THREE)]);
        let (wide, tall) =
            (self.chain(split, &[(384, [1, 3])]), self.chain(split, &[(384, [3, 1])]));
        let right = self.concat(&[wide, tall]);
        let pooled = self.pooled(x, 192);
        self.concat(&[one, middle, right, pooled])
    }
}
