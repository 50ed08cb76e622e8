//! The contraction family: matrix products, batched ones, and convolutions as implicit matrix products.
//!
//! A block computes a tile of rows × columns; steps of k are staged in shared memory, and each thread
//! keeps a tile of the result in registers. Operands are pulled through [`Gen::value`], so whatever is
//! computed on the way in (weights' transposes, head splits, padding, maps) is part of the loader; the
//! result goes out through the region's own expression of it, so bias, activation and residual are
//! part of the store.

mod loader;
mod problem;
mod shape;

use eggine_ir::Graph;
use eggine_ir::schedule::ContractionSchedule;

use crate::bindings::Binding;
use crate::index::moves::Inside;
use crate::index::{Atom, Index};
use crate::kir::{Buffer, Builder, Kernel, Val, Var};
use crate::lower::{Illegal, check_threads, parameter};
use crate::math;
use crate::value::{Gen, Lanes};
use eggine_ir::DType;
use loader::{Mode, mode};
pub(crate) use problem::Problem;
use problem::{Axis, Product, Side, extents_of, n_of};
pub(crate) use shape::shape;

fn problem_of(graph: &Graph, s: &ContractionSchedule) -> Option<Problem> {
    let problem = Problem::of(graph)?;
    Some(if s.swap == 1 { problem.swapped() } else { problem })
}

/// One operand of one product in the kernel.
struct Operand {
    mode: Mode,
    /// Elements of a tile along rows or columns.
    tile: usize,
    /// Distance between steps of k in shared memory.
    pitch: usize,
    shared: Buffer,
    packed: Option<Buffer>,
}

fn pitch_of(mode: &Mode, tile: usize) -> usize {
    tile + mode.padding()
}

/// Shared elements of one stage of an operand.
fn shared_elems(mode: &Mode, tile: usize, tile_k: usize) -> usize {
    pitch_of(mode, tile) * tile_k
}

/// The loading modes of both operands of each product.
fn modes(problem: &mut Problem, graph: &Graph, s: &ContractionSchedule) -> Vec<[Mode; 2]> {
    let products = problem.products.clone();
    let (m, n) = (problem.m.clone(), problem.n.clone());
    let one =
        |problem: &mut Problem, side: &Side, axes: &[Axis], k: &[Axis], tile: u32, pack: u32| {
            if pack == 1
                && let Some((value, packing, casts)) =
                    problem.packing(graph, side, axes, k, (tile as usize, s.tile_k as usize))
            {
                return Mode::Packed(value, packing, casts);
            }
            mode(problem, graph, side, axes, k, s.vector as usize)
        };
    products
        .iter()
        .map(|product| {
            [
                one(problem, &product.m_side, &m, &product.k, s.tile_m, s.pack_lhs),
                one(problem, &product.n_side, &n, &product.k, s.tile_n, s.pack_rhs),
            ]
        })
        .collect()
}

fn n_threads(s: &ContractionSchedule) -> u32 {
    (s.tile_m / s.thread_m.max(1)) * (s.tile_n / s.thread_n.max(1))
}

/// Shared memory of a block.
fn shared_bytes(modes: &[[Mode; 2]], s: &ContractionSchedule) -> usize {
    let of = |[a, b]: &[Mode; 2]| {
        shared_elems(a, s.tile_m as usize, s.tile_k as usize)
            + shared_elems(b, s.tile_n as usize, s.tile_k as usize)
    };
    modes.iter().map(of).max().unwrap_or(0) * s.stages as usize * 4
}

/// Registers of a thread, about: accumulators, both fragments, prefetched elements, and some 40 for
/// addresses and conditions.
fn n_regs(n_products: usize, s: &ContractionSchedule) -> usize {
    let staged = (s.tile_k * (s.tile_m + s.tile_n)).div_ceil(n_threads(s)) as usize;
    let accumulators = n_products * (s.thread_m * s.thread_n) as usize;
    accumulators + (s.thread_m + s.thread_n) as usize + staged + 40
}

/// Whether a schedule fits.
pub(crate) fn check(graph: &Graph, s: &ContractionSchedule) -> Result<(), Illegal> {
    let power = |x: u32, least: u32, most: u32| x.is_power_of_two() && (least..=most).contains(&x);
    parameter("tm", s.thread_m, power(s.thread_m, 1, 16), "a power of two up to 16")?;
    parameter("tn", s.thread_n, power(s.thread_n, 1, 16), "a power of two up to 16")?;
    parameter(
        "m",
        s.tile_m,
        power(s.tile_m, s.thread_m.max(4), 256),
        "a power of two from max(4, tm) to 256",
    )?;
    parameter(
        "n",
        s.tile_n,
        power(s.tile_n, s.thread_n.max(4), 256),
        "a power of two from max(4, tn) to 256",
    )?;
    parameter("k", s.tile_k, power(s.tile_k, 4, 64), "a power of two from 4 to 64")?;
    parameter("stages", s.stages, matches!(s.stages, 1 | 2), "1 or 2")?;
    parameter("vector", s.vector, matches!(s.vector, 1 | 2 | 4), "1, 2 or 4")?;
    parameter("swap", s.swap, s.swap <= 1, "0 or 1")?;
    check_threads(n_threads(s))?;
    let Some(mut problem) = problem_of(graph, s) else {
        return Err(Illegal::Family { family: "contraction" });
    };
    let modes = modes(&mut problem, graph, s);
    let needed = shared_bytes(&modes, s);
    if needed > 48 << 10 {
        return Err(Illegal::Resource {
            resource: "bytes of shared memory",
            needed,
            available: 48 << 10,
        });
    }
    let needed = n_regs(problem.products.len(), s);
    let available = (65536 / n_threads(s) as usize).min(255);
    if needed > available {
        return Err(Illegal::Resource { resource: "registers per thread", needed, available });
    }
    let grid_y = n_of(&problem.m).div_ceil(s.tile_m as usize);
    if grid_y > 65535 || n_of(&problem.batch) > 65535 {
        let needed = grid_y.max(n_of(&problem.batch));
        return Err(Illegal::Resource { resource: "blocks in y or z", needed, available: 65535 });
    }
    Ok(())
}

/// The kernel under construction.
struct Tiles<'g> {
    g: Gen<'g>,
    s: ContractionSchedule,
    /// Of tiles in shared memory and of accumulators.
    dtype: DType,
    problem: Problem,
    thread: Index,
    block_m: Index,
    block_n: Index,
    batch_position: Index,
    /// Batch leaves and what they are in this block.
    batch: Vec<(Atom, Index)>,
}

/// Code for a region under a schedule that [`check`] accepts.
pub(crate) fn lower(
    graph: &Graph,
    s: &ContractionSchedule,
    name: &str,
) -> Option<(Kernel, Vec<Binding>)> {
    let mut problem = problem_of(graph, s)?;
    let modes = modes(&mut problem, graph, s);
    let blocks_n = n_of(&problem.n).div_ceil(s.tile_n as usize);
    let blocks_m = n_of(&problem.m).div_ceil(s.tile_m as usize);
    let n_batch = n_of(&problem.batch);
    let builder =
        Builder::new(name, [blocks_n as u32, blocks_m as u32, n_batch as u32], n_threads(s));
    let mut g = Gen::new(graph, builder);
    // The leaves of the analysis are those of the kernel.
    g.space = problem.space.clone();
    let (bx, by, bz, thread) = (g.b.block_x(), g.b.block_y(), g.b.block_z(), g.b.thread());
    let (block_n, block_m, batch_position) = (g.leaf(bx, 0), g.leaf(by, 0), g.leaf(bz, 0));
    let thread = g.leaf(thread, 1);
    let parts = g.space.delinear(&batch_position, &extents_of(&problem.batch));
    let batch: Vec<(Atom, Index)> = problem.batch.iter().map(|axis| axis.leaf).zip(parts).collect();
    let dtype = DType::F32;
    let mut tiles =
        Tiles { g, s: *s, dtype, problem, thread, block_m, block_n, batch_position, batch };

    let stages = s.stages as usize;
    let tile_k = s.tile_k as usize;
    let most = |side: usize, tile: u32| {
        modes.iter().map(|m| shared_elems(&m[side], tile as usize, tile_k)).max().unwrap_or(0)
    };
    let products = tiles.problem.products.clone();
    // Half floats are multiplied as floats, quantised numbers in 32 bits.
    let integer = products.iter().all(|product| !graph.ty(product.node).dtype.is_float());
    tiles.dtype = if integer { DType::I32 } else { DType::F32 };
    let shared = [
        tiles.g.b.shared(tiles.dtype, stages * most(0, s.tile_m)),
        tiles.g.b.shared(tiles.dtype, stages * most(1, s.tile_n)),
    ];
    let mut accumulators = Vec::new();
    for (number, (product, [m_mode, n_mode])) in products.iter().zip(modes).enumerate() {
        let operand = |tiles: &mut Tiles<'_>, mode: Mode, tile: u32, shared: Buffer| {
            let packed = match &mode {
                Mode::Packed(value, packing, _) => {
                    Some(tiles.g.packed_buffer(*value, packing.clone()))
                }
                _ => None,
            };
            Operand {
                pitch: pitch_of(&mode, tile as usize),
                tile: tile as usize,
                mode,
                shared,
                packed,
            }
        };
        let a = operand(&mut tiles, m_mode, s.tile_m, shared[0]);
        let b = operand(&mut tiles, n_mode, s.tile_n, shared[1]);
        if number > 0 {
            // The tiles of the product before are still being read.
            tiles.g.b.barrier();
        }
        accumulators.push(tiles.multiply(product, &a, &b));
    }
    tiles.write(&products, &accumulators);
    Some((tiles.g.b.finish(), tiles.g.bindings))
}

impl Tiles<'_> {
    /// The loop over k; the accumulators of the thread, rows outermost.
    fn multiply(&mut self, product: &Product, a: &Operand, b: &Operand) -> Vec<Var> {
        let s = self.s;
        let zero = math::number(&mut self.g.b, self.dtype, 0.0);
        let accumulators: Vec<Var> =
            (0..s.thread_m * s.thread_n).map(|_| self.g.b.var(zero)).collect();
        let (n_k, tile_k) = (product.n_k(), s.tile_k as usize);
        let n_steps = n_k.div_ceil(tile_k);
        let inner = product.k.last().map_or(1, |axis| axis.extent);
        if s.stages == 1 {
            // Channels inside, taps outside: what depends on the tap only is computed once per tap.
            let nested = inner.is_multiple_of(tile_k) && inner < n_k;
            let (outer_steps, inner_steps) =
                if nested { (n_k / inner, inner / tile_k) } else { (1, n_steps) };
            let body = |tiles: &mut Self, tap: &Index, step: &Index| {
                let scaled = tiles.g.space.scale(tap, inner_steps as i64);
                let k_tile = tiles.g.space.add(&scaled, step);
                let loaded_a = tiles.fetch(product, a, true, &k_tile);
                let loaded_b = tiles.fetch(product, b, false, &k_tile);
                tiles.g.b.barrier();
                let start = Index::constant(0);
                tiles.put(a, &loaded_a, &start);
                tiles.put(b, &loaded_b, &start);
                tiles.g.b.barrier();
                tiles.accumulate(a, b, &start, &start, &accumulators);
            };
            self.for_loop(outer_steps, |tiles, tap| {
                tiles.for_loop(inner_steps, |tiles, step| body(tiles, tap, step));
            });
            return accumulators;
        }
        let (size_a, size_b) =
            (shared_elems(&a.mode, a.tile, tile_k), shared_elems(&b.mode, b.tile, tile_k));
        let start = Index::constant(0);
        let first_a = self.fetch(product, a, true, &start);
        let first_b = self.fetch(product, b, false, &start);
        self.put(a, &first_a, &start);
        self.put(b, &first_b, &start);
        self.g.b.barrier();
        let count =
            |lanes: &[(Index, Lanes)]| lanes.iter().map(|(_, lanes)| lanes.len()).sum::<usize>();
        let zeros =
            |tiles: &mut Self, n: usize| (0..n).map(|_| tiles.g.b.var(zero)).collect::<Vec<Var>>();
        let (vars_a, vars_b) = if n_steps > 1 {
            (zeros(self, count(&first_a)), zeros(self, count(&first_b)))
        } else {
            (Vec::new(), Vec::new())
        };
        self.for_loop(n_steps, |tiles, step| {
            let next = tiles.g.space.add_constant(step, 1);
            let next_val = tiles.g.index_val(&next);
            let limit = tiles.g.b.i32(n_steps as i32);
            let more = tiles.g.b.lt(next_val, limit);
            let next = next.within(0, n_steps as i64 - 1);
            if n_steps > 1 {
                tiles.if_then(more, |tiles| {
                    for (operand, is_m, vars) in [(a, true, &vars_a), (b, false, &vars_b)] {
                        let loaded = tiles.fetch(product, operand, is_m, &next);
                        let vals: Vec<Val> =
                            loaded.iter().flat_map(|(_, lanes)| lanes.iter().copied()).collect();
                        for (var, val) in vars.iter().zip(vals) {
                            tiles.g.b.set(*var, val);
                        }
                    }
                });
            }
            let parity = tiles.g.space.rem(step, 2);
            let (at_a, at_b) = (
                tiles.g.space.scale(&parity, size_a as i64),
                tiles.g.space.scale(&parity, size_b as i64),
            );
            tiles.accumulate(a, b, &at_a, &at_b, &accumulators);
            if n_steps > 1 {
                tiles.if_then(more, |tiles| {
                    let parity = tiles.g.space.rem(&next, 2);
                    for (operand, first, vars, size) in
                        [(a, &first_a, &vars_a, size_a), (b, &first_b, &vars_b, size_b)]
                    {
                        let mut vars = vars.iter();
                        let lanes = first.iter().map(|(index, lanes)| {
                            let vals = lanes.iter().map(|_| {
                                tiles.g.b.get(*vars.next().expect("one variable per element"))
                            });
                            (index.clone(), vals.collect())
                        });
                        let lanes: Vec<(Index, Lanes)> = lanes.collect();
                        let at = tiles.g.space.scale(&parity, size as i64);
                        tiles.put(operand, &lanes, &at);
                    }
                });
                tiles.g.b.barrier();
            }
        });
        accumulators
    }

    fn for_loop(&mut self, n: usize, f: impl FnOnce(&mut Self, &Index)) {
        let counter = self.g.begin_loop(n);
        f(self, &counter);
        self.g.end_loop();
    }

    fn if_then(&mut self, condition: Val, f: impl FnOnce(&mut Self)) {
        self.g.begin_if(condition);
        f(self);
        self.g.end_if();
    }

    /// Loads the thread's part of a tile into registers: the element's position in shared memory, and
    /// its lanes.
    fn fetch(
        &mut self,
        product: &Product,
        operand: &Operand,
        is_m: bool,
        k_tile: &Index,
    ) -> Vec<(Index, Lanes)> {
        let s = self.s;
        let threads = n_threads(&s) as usize;
        let (tile, tile_k, lanes) = (operand.tile, s.tile_k as usize, operand.mode.lanes());
        let n_vectors = tile * tile_k / lanes;
        let (axes, block) = if is_m {
            (self.problem.m.clone(), self.block_m.clone())
        } else {
            (self.problem.n.clone(), self.block_n.clone())
        };
        let side = if is_m { &product.m_side } else { &product.n_side };
        let outer = self.g.lane();
        let lane = self.g.set_lanes(lanes);
        let mut loaded = Vec::new();
        for round in 0..n_vectors.div_ceil(threads) {
            let number = self.g.space.add_constant(&self.thread, (round * threads) as i64);
            let mut inside: Inside = Vec::new();
            if number.hi >= n_vectors as i64 {
                inside.push((number.clone(), n_vectors as i64));
            }
            let number = number.within(0, n_vectors as i64 - 1);
            // Position along the tile and along k of the first lane.
            let (at, at_k) = match operand.mode {
                Mode::Across(_) => {
                    let per_row = (tile_k / lanes) as i64;
                    let (row, group) =
                        (self.g.space.div(&number, per_row), self.g.space.rem(&number, per_row));
                    let group = self.g.space.scale(&group, lanes as i64);
                    (row, self.g.space.add(&group, &lane))
                }
                _ => {
                    let per_k = (tile / lanes) as i64;
                    let (k, group) =
                        (self.g.space.div(&number, per_k), self.g.space.rem(&number, per_k));
                    let group = self.g.space.scale(&group, lanes as i64);
                    (self.g.space.add(&group, &lane), k)
                }
            };
            let pitched = self.g.space.scale(&at_k, operand.pitch as i64);
            let shared_at = self.g.space.add(&pitched, &at);
            let condition = self.g.condition(&inside);
            let lanes_here = if let (Mode::Packed(value, packing, casts), Some(buffer)) =
                (&operand.mode, operand.packed)
            {
                let (row_tiles, k_tiles) = packing.n_tiles();
                let mut position = self.g.space.scale(&self.batch_position, row_tiles as i64);
                position = self.g.space.add(&position, &block);
                position = self.g.space.scale(&position, k_tiles as i64);
                position = self.g.space.add(&position, k_tile);
                position = self.g.space.scale(&position, (tile * tile_k) as i64);
                let scaled = self.g.space.scale(&number, lanes as i64);
                position = self.g.space.add(&position, &scaled);
                position = self.g.space.add(&position, &lane);
                let dtype = self.g.graph.ty(*value).dtype;
                let mut loaded = self.g.masked(&condition, |g| g.load(buffer, dtype, &position));
                for &[from, to] in casts {
                    loaded = self.g.map_lanes(&[loaded], |b, x| math::cast(b, x[0], from, to));
                }
                loaded
            } else {
                self.element(side, product, &axes, &block, tile, (&at, &at_k), k_tile, inside)
            };
            let full: Lanes =
                (0..lanes).map(|lane| lanes_here[lane.min(lanes_here.len() - 1)]).collect();
            loaded.push((shared_at, full));
        }
        // The lanes of the positions are those of this call.
        let own = self.g.lane();
        for (index, _) in &mut loaded {
            if let Some((atom, _)) = own {
                *index = self.g.space.substitute(index, atom, &Index::constant(0));
            }
        }
        self.g.with_outer_lane(outer);
        loaded
    }

    /// One element (with lanes) of an operand's tile.
    #[allow(clippy::too_many_arguments, reason = "the coordinates of one element")]
    fn element(
        &mut self,
        side: &Side,
        product: &Product,
        axes: &[Axis],
        block: &Index,
        tile: usize,
        (at, at_k): (&Index, &Index),
        k_tile: &Index,
        mut inside: Inside,
    ) -> Lanes {
        let space = &mut self.g.space;
        let base = space.scale(block, tile as i64);
        let position = space.add(&base, at);
        let n = n_of(axes) as i64;
        if position.hi >= n {
            inside.push((position.clone(), n));
        }
        let parts = space.delinear(&position.within(0, n - 1), &extents_of(axes));
        let base = space.scale(k_tile, i64::from(self.s.tile_k));
        let k = space.add(&base, at_k);
        let n_k = product.n_k() as i64;
        if k.hi >= n_k {
            inside.push((k.clone(), n_k));
        }
        let k_parts = space.delinear(&k.within(0, n_k - 1), &product.k_extents());
        let mut with = self.batch.clone();
        with.extend(axes.iter().map(|axis| axis.leaf).zip(parts));
        with.extend(product.k.iter().map(|axis| axis.leaf).zip(k_parts));
        let index: Vec<Index> = side.index.iter().map(|i| space.substitute_all(i, &with)).collect();
        for (i, extent) in &side.inside {
            let i = space.substitute_all(i, &with);
            inside.push((i, *extent));
        }
        self.g.value_or(side.node, &index, &inside, 0.0)
    }

    /// Stores what was fetched into shared memory, `start` elements from its beginning.
    fn put(&mut self, operand: &Operand, loaded: &[(Index, Lanes)], start: &Index) {
        let (tile, tile_k) = (operand.tile, self.s.tile_k as usize);
        let lanes = operand.mode.lanes();
        let threads = n_threads(&self.s) as usize;
        let n_vectors = tile * tile_k / lanes;
        for (round, (index, vals)) in loaded.iter().enumerate() {
            // The last round may be for some threads only.
            let number = self.g.space.add_constant(&self.thread, (round * threads) as i64);
            let inside = if number.hi >= n_vectors as i64 {
                vec![(number, n_vectors as i64)]
            } else {
                Vec::new()
            };
            let condition = self.g.condition(&inside);
            let at = self.g.space.add(index, start);
            let rest = self.g.space.add_constant(&at, -at.base);
            let (val, offset) = (self.g.index_val(&rest), at.base as i32);
            let mask = condition.first().copied();
            match operand.mode {
                Mode::Across(_) => {
                    for (lane, &x) in vals.iter().enumerate() {
                        self.g.b.store(
                            operand.shared,
                            val,
                            offset + (lane * operand.pitch) as i32,
                            &[x],
                            mask,
                        );
                    }
                }
                _ => self.g.b.store(operand.shared, val, offset, vals, mask),
            }
        }
    }

    /// Row (of the tile) of the thread's `i`-th row.
    fn thread_row(&mut self, i: usize) -> Index {
        let columns = i64::from(self.s.tile_n / self.s.thread_n);
        let row = self.g.space.div(&self.thread, columns);
        let row = self.g.space.scale(&row, i64::from(self.s.thread_m));
        self.g.space.add_constant(&row, i as i64)
    }

    /// Columns that a thread accesses together.
    fn chunk(&self) -> usize {
        self.s.thread_n.min(4) as usize
    }

    /// Column (of the tile) of the first column of the thread's `c`-th chunk.
    fn thread_column(&mut self, c: usize) -> Index {
        let (columns, chunk) = (i64::from(self.s.tile_n / self.s.thread_n), self.chunk() as i64);
        let column = self.g.space.rem(&self.thread, columns);
        let column = self.g.space.scale(&column, chunk);
        self.g.space.add_constant(&column, c as i64 * columns * chunk)
    }

    /// Multiplies the tiles in shared memory.
    fn accumulate(
        &mut self,
        a: &Operand,
        b: &Operand,
        at_a: &Index,
        at_b: &Index,
        accumulators: &[Var],
    ) {
        let s = self.s;
        let row = self.thread_row(0);
        let row = self.g.space.add(&row, at_a);
        let row = self.g.index_val(&row);
        let chunk = self.chunk();
        let n_chunks = s.thread_n as usize / chunk;
        let column = self.thread_column(0);
        let chunk_distance = (s.tile_n / s.thread_n) as usize * chunk;
        let column = self.g.space.add(&column, at_b);
        let column = self.g.index_val(&column);
        let mut sums: Vec<Val> = accumulators.iter().map(|&var| self.g.b.get(var)).collect();
        let width_m = s.thread_m.min(4) as usize;
        for k in 0..s.tile_k as usize {
            let mut fragment_a = Vec::new();
            for i in (0..s.thread_m as usize).step_by(width_m) {
                fragment_a.extend(self.g.b.load(
                    a.shared,
                    row,
                    (k * a.pitch + i) as i32,
                    width_m,
                    None,
                ));
            }
            let mut fragment_b = Vec::new();
            for c in 0..n_chunks {
                fragment_b.extend(self.g.b.load(
                    b.shared,
                    column,
                    (k * b.pitch + c * chunk_distance) as i32,
                    chunk,
                    None,
                ));
            }
            for (i, &x) in fragment_a.iter().enumerate() {
                for (j, &y) in fragment_b.iter().enumerate() {
                    let at = i * s.thread_n as usize + j;
                    sums[at] = self.g.b.fma(x, y, sums[at]);
                }
            }
        }
        for (&var, &sum) in accumulators.iter().zip(&sums) {
            self.g.b.set(var, sum);
        }
    }

    /// The epilogue: pulls every output at the thread's elements and stores them.
    fn write(&mut self, products: &[Product], accumulators: &[Vec<Var>]) {
        let s = self.s;
        let chunk = self.chunk();
        let n_chunks = s.thread_n as usize / chunk;
        let sums: Vec<Vec<Val>> = accumulators
            .iter()
            .map(|vars| vars.iter().map(|&var| self.g.b.get(var)).collect())
            .collect();
        let graph = self.g.graph;
        let buffers: Vec<Buffer> =
            (0..graph.outputs.len()).map(|i| self.g.output_buffer(i)).collect();
        let targets = self.problem.targets.clone();
        let (m, n) = (self.problem.m.clone(), self.problem.n.clone());
        let lane = self.g.set_lanes(chunk);
        for i in 0..s.thread_m as usize {
            for c in 0..n_chunks {
                let first = i * s.thread_n as usize + c * chunk;
                self.g.seeds = products
                    .iter()
                    .zip(&sums)
                    .map(|(product, sums)| (product.node, sums[first..first + chunk].to_vec()))
                    .collect();
                let (row, column) = (self.thread_row(i), self.thread_column(c));
                let space = &mut self.g.space;
                let base = space.scale(&self.block_m, i64::from(s.tile_m));
                let row = space.add(&base, &row);
                let base = space.scale(&self.block_n, i64::from(s.tile_n));
                let column = space.add(&base, &column);
                let column = space.add(&column, &lane);
                let mut inside: Inside = Vec::new();
                for (position, axes) in [(&row, &m), (&column, &n)] {
                    if position.hi >= n_of(axes) as i64 {
                        inside.push((position.clone(), n_of(axes) as i64));
                    }
                }
                let rows = space.delinear(&row.within(0, n_of(&m) as i64 - 1), &extents_of(&m));
                let columns =
                    space.delinear(&column.within(0, n_of(&n) as i64 - 1), &extents_of(&n));
                let mut with = self.batch.clone();
                with.extend(m.iter().map(|axis| axis.leaf).zip(rows));
                with.extend(n.iter().map(|axis| axis.leaf).zip(columns));
                for ((target, &output), &buffer) in targets.iter().zip(&graph.outputs).zip(&buffers)
                {
                    let index: Vec<Index> = target
                        .index
                        .iter()
                        .map(|i| self.g.space.substitute_all(i, &with))
                        .collect();
                    let mut inside = inside.clone();
                    for (i, extent) in &target.inside {
                        let i = self.g.space.substitute_all(i, &with);
                        inside.push((i, *extent));
                    }
                    let ty = graph.ty(output);
                    let address = self.g.space.linear(&index, &ty.extents());
                    let condition = self.g.condition(&inside);
                    self.g.scoped(|g| {
                        g.masked(&condition, |g| {
                            let lanes = g.value(output, &index);
                            g.store(buffer, ty.dtype, &address, &lanes);
                        });
                    });
                }
            }
        }
    }
}

/// The schedule that is tried first.
pub(crate) fn first_schedule(graph: &Graph) -> Option<ContractionSchedule> {
    let mut problem = Problem::of(graph)?;
    let (m, n) = (problem.m.clone(), problem.n.clone());
    let along_n = problem.column_stride(graph, &n);
    let along_m = problem.column_stride(graph, &m);
    let swap = u32::from(along_n != Some(1) && along_m == Some(1));
    let (rows, columns) = if swap == 1 { (n_of(&n), n_of(&m)) } else { (n_of(&m), n_of(&n)) };
    let n_batch = n_of(&problem.batch);
    let n_k = problem.products.iter().map(Product::n_k).max().unwrap_or(1);
    // (rows, columns) of the tile, of the thread, and the part of the best rate that the cpu device
    // reaches with it on the layers of resnet50 (`bench` example).
    let shapes: [(u32, u32, u32, u32, f64); 12] = [
        (128, 64, 8, 8, 1.0),
        (64, 128, 8, 8, 1.0),
        (64, 64, 8, 8, 0.9),
        (32, 128, 8, 8, 0.9),
        (16, 128, 8, 8, 0.85),
        (64, 64, 8, 4, 0.75),
        (32, 128, 8, 4, 0.7),
        (128, 32, 8, 4, 0.7),
        (32, 64, 4, 4, 0.5),
        (64, 32, 4, 4, 0.5),
        (16, 64, 4, 4, 0.4),
        (32, 32, 4, 4, 0.4),
    ];
    let cost = |(tile_m, tile_n, _, _, efficiency): &(u32, u32, u32, u32, f64)| {
        let blocks = rows.div_ceil(*tile_m as usize) * columns.div_ceil(*tile_n as usize) * n_batch;
        // A grid of few blocks leaves processors idle, the more so the larger the tile.
        let fill = (blocks as f64 / 4.0).min(1.0).powf(0.5);
        let work =
            (blocks as u32 * tile_m * tile_n) as f64 * if blocks > (1 << 20) { 1e3 } else { 1.0 };
        work / efficiency / fill
    };
    let best = shapes.iter().min_by(|a, b| cost(a).total_cmp(&cost(b))).expect("there are shapes");
    let &(tile_m, tile_n, thread_m, thread_n, _) = best;
    let tile_k = if n_k <= 8 { 8 } else { 16 };
    let schedule = ContractionSchedule {
        tile_m,
        tile_n,
        tile_k,
        thread_m,
        thread_n,
        stages: 1,
        pack_lhs: 1,
        pack_rhs: 1,
        swap,
        vector: 4,
    };
    check(graph, &schedule).is_ok().then_some(schedule)
}

/// Schedules one move away.
pub(crate) fn neighbours(s: &ContractionSchedule) -> Vec<(&'static str, ContractionSchedule)> {
    let s = *s;
    vec![
        ("tile-m-double", ContractionSchedule { tile_m: s.tile_m * 2, ..s }),
        ("tile-m-halve", ContractionSchedule { tile_m: s.tile_m / 2, ..s }),
        ("tile-n-double", ContractionSchedule { tile_n: s.tile_n * 2, ..s }),
        ("tile-n-halve", ContractionSchedule { tile_n: s.tile_n / 2, ..s }),
        ("tile-k-double", ContractionSchedule { tile_k: s.tile_k * 2, ..s }),
        ("tile-k-halve", ContractionSchedule { tile_k: s.tile_k / 2, ..s }),
        ("thread-m-double", ContractionSchedule { thread_m: s.thread_m * 2, ..s }),
        ("thread-m-halve", ContractionSchedule { thread_m: s.thread_m / 2, ..s }),
        ("thread-n-double", ContractionSchedule { thread_n: s.thread_n * 2, ..s }),
        ("thread-n-halve", ContractionSchedule { thread_n: s.thread_n / 2, ..s }),
        ("stages", ContractionSchedule { stages: 3 - s.stages.clamp(1, 2), ..s }),
        ("pack-lhs", ContractionSchedule { pack_lhs: 1 - s.pack_lhs.min(1), ..s }),
        ("pack-rhs", ContractionSchedule { pack_rhs: 1 - s.pack_rhs.min(1), ..s }),
        (
            "swap",
            ContractionSchedule {
                swap: 1 - s.swap.min(1),
                pack_lhs: s.pack_rhs,
                pack_rhs: s.pack_lhs,
                ..s
            },
        ),
        ("vector-scalar", ContractionSchedule { vector: if s.vector == 1 { 4 } else { 1 }, ..s }),
    ]
}
