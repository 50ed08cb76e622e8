//! Random kernels: made by the builder and without its simplifications, evaluated, and emitted and run
//! on the cpu device. All four results agree bit for bit (any NaN for any NaN).
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

#[path = "kir_vs_ptx/sink.rs"]
mod sink;

use eggine_codegen_ptx::kir::eval::eval;
use eggine_codegen_ptx::kir::{
    BinaryOp, Buffer, BufferDecl, Builder, CompareOp, Kernel, Operand, Scalar, Space, Special,
    UnaryOp, Val, Var, fold, parse, verify,
};
use eggine_codegen_ptx::{Target, emit};
use eggine_cpu::{LaunchConfig, Memory, Module, Options, Param, launch};
use eggine_ir::DType;
use proptest::prelude::*;
use sink::{Plain, Sink};

const BLOCKS: u32 = 2;
const THREADS: u32 = 64;
const N_INPUT: usize = 4096;
const N_SHARED: usize = 256;
/// Stored by each thread, of each type.
const N_OUT: usize = 8;

/// Decides what the kernel does, from random numbers.
struct Choices<'a> {
    numbers: &'a [u32],
    at: usize,
}

impl Choices<'_> {
    fn below(&mut self, n: usize) -> usize {
        self.at += 1;
        let number = self.numbers.get(self.at - 1).copied().unwrap_or(self.at as u32 * 7);
        number as usize % n
    }

    fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    fn exhausted(&self) -> bool {
        self.at >= self.numbers.len()
    }
}

/// Values in scope.
#[derive(Clone, Default)]
struct Pool {
    i32s: Vec<Val>,
    f32s: Vec<Val>,
    preds: Vec<Val>,
    /// Non-negative values with their greatest, for indices.
    small: Vec<(Val, i32)>,
}

struct Generator<'a, S> {
    sink: S,
    choices: Choices<'a>,
    pool: Pool,
    i32_vars: Vec<Var>,
    f32_vars: Vec<Var>,
}

fn decls() -> Vec<BufferDecl> {
    let n_threads = (BLOCKS * THREADS) as usize;
    let decl = |space, dtype, n_elems| BufferDecl { space, dtype, n_elems, align_bytes: 16 };
    let (input, output) = (Space::Global { writable: false }, Space::Global { writable: true });
    vec![
        decl(input, DType::F32, N_INPUT),
        decl(input, DType::I32, N_INPUT),
        decl(input, DType::F16, N_INPUT),
        decl(input, DType::BF16, N_INPUT),
        decl(input, DType::I8, N_INPUT),
        decl(input, DType::U16, N_INPUT),
        decl(output, DType::F32, n_threads * N_OUT),
        decl(output, DType::I32, n_threads * N_OUT),
        decl(output, DType::F16, n_threads * N_OUT),
        decl(Space::Shared, DType::F32, N_SHARED),
        decl(Space::Shared, DType::I32, N_SHARED),
    ]
}

fn buffer(index: usize) -> Buffer {
    cranelift_entity::EntityRef::new(index)
}

const I32S: [i32; 14] = [0, 1, 2, 3, 4, 5, 7, 8, 12, 31, 100, -1, -7, i32::MIN];
const F32S: [f32; 9] = [0.0, -0.0, 1.0, -1.0, 0.5, 3.25, 1e-40, 3e38, f32::INFINITY];

impl<S: Sink> Generator<'_, S> {
    fn i32(&mut self, value: i32) -> Val {
        self.sink.constant(Scalar::I32, fold::i32_bits(value))
    }

    fn kernel(&mut self) {
        let (block, thread) =
            (self.sink.special(Special::BlockX), self.sink.special(Special::ThreadX));
        let threads = self.i32(THREADS as i32);
        let base = self.sink.binary(BinaryOp::Mul, block, threads);
        let global = self.sink.binary(BinaryOp::Add, base, thread);
        self.pool.small = vec![(block, 1), (thread, 63), (global, 127)];
        self.pool.i32s = vec![thread, global];
        let x = self.sink.load(buffer(0), global, 0, 1, None);
        self.pool.f32s = x;
        let zero = self.i32(0);
        let one = self.sink.constant(Scalar::F32, u64::from(1f32.to_bits()));
        self.pool.preds = vec![self.sink.compare(CompareOp::Lt, zero, thread)];
        for _ in 0..2 {
            let var = self.sink.var(thread);
            self.i32_vars.push(var);
            let var = self.sink.var(one);
            self.f32_vars.push(var);
        }
        while !self.choices.exhausted() {
            match self.choices.below(12) {
                0 => self.exchange(thread),
                1 => {
                    let val = self.choices.pick(&self.pool.f32s.clone());
                    let mask = 1 << self.choices.below(5);
                    let val = self.sink.shuffle(val, mask);
                    self.pool.f32s.push(val);
                }
                _ => self.stmt(0),
            }
        }
        for (var, is_float) in self
            .i32_vars
            .clone()
            .into_iter()
            .map(|var| (var, false))
            .chain(self.f32_vars.clone().into_iter().map(|var| (var, true)))
        {
            let val = self.sink.get(var);
            if is_float { self.pool.f32s.push(val) } else { self.pool.i32s.push(val) }
        }
        let n_out = self.i32(N_OUT as i32);
        let at = self.sink.binary(BinaryOp::Mul, global, n_out);
        let last =
            |vals: &[Val]| -> Vec<Val> { vals.iter().rev().cycle().take(N_OUT).copied().collect() };
        let (floats, ints) = (last(&self.pool.f32s), last(&self.pool.i32s));
        for half in 0..2 {
            let range = half * 4..half * 4 + 4;
            self.sink.store(buffer(6), at, (half * 4) as i32, &floats[range.clone()], None);
            self.sink.store(buffer(7), at, (half * 4) as i32, &ints[range.clone()], None);
            self.sink.store(buffer(8), at, (half * 4) as i32, &floats[range], None);
        }
    }

    /// Writes shared memory, waits, and reads what another thread wrote.
    fn exchange(&mut self, thread: Val) {
        let (float, int) = (
            self.choices.pick(&self.pool.f32s.clone()),
            self.choices.pick(&self.pool.i32s.clone()),
        );
        let offset = self.choices.pick(&[0, 64, 128, 192]);
        self.sink.barrier();
        self.sink.store(buffer(9), thread, offset, &[float], None);
        self.sink.store(buffer(10), thread, offset, &[int], None);
        self.sink.barrier();
        let flip = self.i32(self.choices.at as i32 % 63);
        let other = self.sink.binary(BinaryOp::Xor, thread, flip);
        let float = self.sink.load(buffer(9), other, offset, 1, None);
        let int = self.sink.load(buffer(10), other, offset, 1, None);
        self.pool.f32s.extend(float);
        self.pool.i32s.extend(int);
    }

    fn any_i32(&mut self) -> Val {
        if self.choices.below(4) == 0 {
            let value = self.choices.pick(&I32S);
            return self.i32(value);
        }
        self.choices.pick(&self.pool.i32s.clone())
    }

    fn any_f32(&mut self) -> Val {
        if self.choices.below(4) == 0 {
            let value: f32 = self.choices.pick(&F32S);
            return self.sink.constant(Scalar::F32, u64::from(value.to_bits()));
        }
        self.choices.pick(&self.pool.f32s.clone())
    }

    fn stmts(&mut self, depth: usize) {
        let outer = self.pool.clone();
        for _ in 0..1 + self.choices.below(5) {
            self.stmt(depth);
        }
        self.pool = outer;
    }

    fn stmt(&mut self, depth: usize) {
        let ops = [BinaryOp::Add, BinaryOp::Sub, BinaryOp::Mul, BinaryOp::Min, BinaryOp::Max];
        let compares = [CompareOp::Eq, CompareOp::Ne, CompareOp::Lt, CompareOp::Le];
        match self.choices.below(20) {
            0 | 1 => {
                let bits = [BinaryOp::And, BinaryOp::Or, BinaryOp::Xor];
                let op = if self.choices.below(3) == 0 {
                    self.choices.pick(&bits)
                } else {
                    self.choices.pick(&ops)
                };
                let (a, b) = (self.any_i32(), self.any_i32());
                let val = self.sink.binary(op, a, b);
                self.pool.i32s.push(val);
            }
            2 => {
                let op = self.choices.pick(&[BinaryOp::Shl, BinaryOp::Shr]);
                let a = self.any_i32();
                let amount = self.choices.below(33) as i32;
                let amount = self.i32(amount);
                let val = self.sink.binary(op, a, amount);
                self.pool.i32s.push(val);
            }
            3 => {
                let op = self.choices.pick(&[BinaryOp::Div, BinaryOp::Rem]);
                let a = self.any_i32();
                let divisor = if self.choices.below(2) == 0 {
                    let value = self.choices.pick(&[1, 2, 3, 8, 12, -4, 1000]);
                    self.i32(value)
                } else {
                    let b = self.any_i32();
                    let seven = self.i32(7);
                    let low = self.sink.binary(BinaryOp::And, b, seven);
                    let one = self.i32(1);
                    self.sink.binary(BinaryOp::Add, low, one)
                };
                let val = self.sink.binary(op, a, divisor);
                self.pool.i32s.push(val);
            }
            4 | 5 => {
                // Index arithmetic: sums, multiples and parts of small values.
                let (a, max) = self.choices.pick(&self.pool.small.clone());
                let (b, other) = self.choices.pick(&self.pool.small.clone());
                let factor = self.choices.pick(&[2, 3, 4, 9, 16, 64]);
                let constant = self.i32(factor);
                let (val, max) = match self.choices.below(5) {
                    0 => (self.sink.binary(BinaryOp::Add, a, b), max + other),
                    1 => (self.sink.binary(BinaryOp::Mul, a, constant), max * factor),
                    2 => (self.sink.binary(BinaryOp::Div, a, constant), max / factor),
                    3 => (self.sink.binary(BinaryOp::Rem, a, constant), max.min(factor - 1)),
                    _ => (self.sink.binary(BinaryOp::Add, a, constant), max + factor),
                };
                if max < 2000 {
                    self.pool.small.push((val, max));
                }
                self.pool.i32s.push(val);
            }
            6 | 7 => {
                let op = if self.choices.below(4) == 0 {
                    BinaryOp::Div
                } else {
                    self.choices.pick(&ops)
                };
                let (a, b) = (self.any_f32(), self.any_f32());
                let val = self.sink.binary(op, a, b);
                self.pool.f32s.push(val);
            }
            8 => {
                let (a, b, c) = (self.any_f32(), self.any_f32(), self.any_f32());
                let val = self.sink.fma(a, b, c);
                self.pool.f32s.push(val);
            }
            9 => {
                use UnaryOp::*;
                let op = self.choices.pick(&[Neg, Abs, Floor, Ceil, Round, Sqrt, Recip]);
                let a = self.any_f32();
                let val = self.sink.unary(op, a);
                self.pool.f32s.push(val);
                let op = self.choices.pick(&[Neg, Abs]);
                let a = self.any_i32();
                let val = self.sink.unary(op, a);
                self.pool.i32s.push(val);
            }
            10 => {
                let op = self.choices.pick(&compares);
                let val = if self.choices.below(2) == 0 {
                    let (a, b) = (self.any_i32(), self.any_i32());
                    self.sink.compare(op, a, b)
                } else {
                    let (a, b) = (self.any_f32(), self.any_f32());
                    self.sink.compare(op, a, b)
                };
                self.pool.preds.push(val);
            }
            11 => {
                let a = self.choices.pick(&self.pool.preds.clone());
                let b = self.choices.pick(&self.pool.preds.clone());
                let op = self.choices.pick(&[BinaryOp::And, BinaryOp::Or, BinaryOp::Xor]);
                let val = match self.choices.below(3) {
                    0 => self.sink.unary(UnaryOp::Not, a),
                    _ => self.sink.binary(op, a, b),
                };
                self.pool.preds.push(val);
            }
            12 => {
                // A bounds check.
                let x = self.any_i32();
                let low = self.choices.pick(&[0, 1, -3]);
                let high = self.choices.pick(&[5, 40, 1000]);
                let (low, high) = (self.i32(low), self.i32(high));
                let (a, b) = (
                    self.sink.compare(CompareOp::Le, low, x),
                    self.sink.compare(CompareOp::Lt, x, high),
                );
                let val = self.sink.binary(BinaryOp::And, a, b);
                self.pool.preds.push(val);
            }
            13 => {
                let cond = self.choices.pick(&self.pool.preds.clone());
                let (a, b) = (self.any_i32(), self.any_i32());
                let val = self.sink.select(cond, a, b);
                self.pool.i32s.push(val);
                let (a, b) = (self.any_f32(), self.any_f32());
                let val = self.sink.select(cond, a, b);
                self.pool.f32s.push(val);
            }
            14 => {
                let a = self.any_f32();
                let val = self.sink.convert(a, Scalar::I32);
                self.pool.i32s.push(val);
                let wide = self.sink.convert(a, Scalar::F64);
                let wide = self.sink.binary(BinaryOp::Mul, wide, wide);
                let long = self.sink.convert(wide, Scalar::I64);
                let val = self.sink.convert(long, Scalar::I32);
                self.pool.i32s.push(val);
                let a = self.any_i32();
                let val = self.sink.convert(a, Scalar::F32);
                self.pool.f32s.push(val);
                let a = self.choices.pick(&self.pool.preds.clone());
                let val = self.sink.convert(a, Scalar::F32);
                self.pool.f32s.push(val);
            }
            15 | 16 => {
                let (mut index, max) = self.choices.pick(&self.pool.small.clone());
                let offset = self.choices.below(N_INPUT - 8 - max as usize * 2) as i32;
                let which = self.choices.below(6);
                let mask = self.choices.pick(&self.pool.preds.clone());
                let mask = (self.choices.below(2) == 0).then_some(mask);
                let n = self.choices.pick(&[1, 1, 2, 4]);
                let mut offset = offset / n * n;
                if n > 1 {
                    // Aligned: a multiple of the number of elements.
                    let shift = self.i32(n);
                    let part = self.sink.binary(BinaryOp::Div, index, shift);
                    index = self.sink.binary(BinaryOp::Mul, part, shift);
                    offset = offset.min(N_INPUT as i32 - 8 - max) / n * n;
                }
                let vals = self.sink.load(buffer(which), index, offset, n as usize, mask);
                if which == 0 || which == 2 || which == 3 {
                    self.pool.f32s.extend(vals);
                } else {
                    self.pool.i32s.extend(vals);
                }
            }
            17 => {
                // Accumulates.
                if self.choices.below(2) == 0 {
                    let var = self.choices.pick(&self.f32_vars.clone());
                    let old = self.sink.get(var);
                    let (a, b) = (self.any_f32(), self.any_f32());
                    let val = self.sink.fma(a, b, old);
                    if self.choices.below(4) == 0 {
                        self.pool.f32s.push(old);
                    }
                    self.sink.set(var, val);
                } else {
                    let var = self.choices.pick(&self.i32_vars.clone());
                    let old = self.sink.get(var);
                    let a = self.any_i32();
                    let op = self.choices.pick(&ops);
                    let val = self.sink.binary(op, old, a);
                    self.pool.i32s.push(old);
                    if self.choices.below(2) == 0 {
                        let other = self.any_i32();
                        let other_var = self.choices.pick(&self.i32_vars.clone());
                        self.sink.set(other_var, other);
                    }
                    self.sink.set(var, val);
                }
            }
            18 if depth < 3 => {
                let from = self.choices.below(3) as i32;
                let to = if self.choices.below(2) == 0 {
                    Operand::Const(self.choices.below(9) as i32)
                } else {
                    let (val, _) = self.choices.pick(&self.pool.small.clone());
                    let mask = self.i32(7);
                    Operand::Val(self.sink.binary(BinaryOp::And, val, mask))
                };
                let from = if self.choices.below(3) == 0 {
                    let (val, _) = self.choices.pick(&self.pool.small.clone());
                    let mask = self.i32(3);
                    Operand::Val(self.sink.binary(BinaryOp::And, val, mask))
                } else {
                    Operand::Const(from)
                };
                let step = self.choices.pick(&[1, 1, 2, 3]);
                let counter = self.sink.begin_for(from, to, step);
                let outer = self.pool.clone();
                self.pool.small.push((counter, 9));
                self.pool.i32s.push(counter);
                // An index that moves with the loop.
                let (base, max) = self.choices.pick(&outer.small);
                let factor = self.choices.pick(&[1, 4, 33]);
                let constant = self.i32(factor);
                let product = self.sink.binary(BinaryOp::Mul, counter, constant);
                let index = self.sink.binary(BinaryOp::Add, product, base);
                let offset = self.choices.below(16) as i32;
                if max + 9 * factor < 3000 {
                    let vals = self.sink.load(buffer(0), index, offset, 1, None);
                    let var = self.choices.pick(&self.f32_vars.clone());
                    let old = self.sink.get(var);
                    let sum = self.sink.binary(BinaryOp::Add, old, vals[0]);
                    self.sink.set(var, sum);
                    self.pool.f32s.extend(vals);
                }
                self.stmts(depth + 1);
                self.pool = outer;
                self.sink.end();
            }
            18 | 19 if depth < 3 => {
                let cond = self.choices.pick(&self.pool.preds.clone());
                self.sink.begin_if(cond);
                self.stmts(depth + 1);
                if self.choices.below(2) == 0 {
                    self.sink.begin_else();
                    self.stmts(depth + 1);
                }
                self.sink.end();
            }
            _ => {
                let var = self.choices.pick(&self.f32_vars.clone());
                let val = self.any_f32();
                self.sink.set(var, val);
            }
        }
    }
}

fn generate<S: Sink>(sink: S, numbers: &[u32]) -> S {
    let mut generator = Generator {
        sink,
        choices: Choices { numbers, at: 0 },
        pool: Pool::default(),
        i32_vars: Vec::new(),
        f32_vars: Vec::new(),
    };
    generator.kernel();
    generator.sink
}

fn built(numbers: &[u32]) -> Kernel {
    let mut b = Builder::new("random", [BLOCKS, 1, 1], THREADS);
    for decl in decls() {
        b.buffer(decl);
    }
    generate(b, numbers).finish()
}

fn plain(numbers: &[u32]) -> Kernel {
    generate(Plain::new(&decls()), numbers).finish()
}

fn inputs(kernel: &Kernel) -> Vec<Vec<u8>> {
    let mut state = 12345u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        state >> 8
    };
    let mut buffers = Vec::new();
    for decl in kernel.buffers.values().filter(|decl| decl.space != Space::Shared) {
        let n_bytes = decl.dtype.bytes_for(decl.n_elems);
        buffers.push(match (decl.space, decl.dtype) {
            (Space::Global { writable: true }, _) => vec![0; n_bytes],
            (_, DType::F32) => (0..decl.n_elems)
                .flat_map(|i| {
                    if i % 61 == 7 { f32::NAN } else { (next() % 4001) as f32 / 64.0 - 31.0 }
                        .to_le_bytes()
                })
                .collect(),
            _ => (0..n_bytes).map(|_| next() as u8).collect(),
        });
    }
    buffers
}

fn evaluated(kernel: &Kernel) -> Vec<Vec<u8>> {
    let mut buffers = inputs(kernel);
    eval(kernel, &mut buffers).unwrap();
    buffers
}

fn executed(kernel: &Kernel, checking: bool) -> Vec<Vec<u8>> {
    let ptx = emit(kernel, Target::Sm80).unwrap();
    let module = Module::load(&ptx).unwrap_or_else(|err| panic!("{err}\n{ptx}"));
    let mut memory = Memory::new();
    let mut buffers = inputs(kernel);
    let addresses: Vec<u64> = buffers
        .iter()
        .map(|bytes| {
            let address = memory.alloc(bytes.len()).unwrap();
            memory.write(address, bytes).unwrap();
            address
        })
        .collect();
    let params: Vec<Param> = addresses.iter().map(|&address| Param::U64(address)).collect();
    let config =
        LaunchConfig { grid: kernel.grid, block: [kernel.n_threads, 1, 1], params: &params };
    let options = Options { checking, step_limit: Some(10_000_000), ..Options::default() };
    launch(&module, &kernel.name, &memory, &config, &options)
        .unwrap_or_else(|err| panic!("{err}\n{ptx}"));
    for (bytes, &address) in buffers.iter_mut().zip(&addresses) {
        memory.read(address, bytes).unwrap();
    }
    buffers
}

/// Outputs with every NaN the same.
fn canonical(kernel: &Kernel, buffers: &[Vec<u8>]) -> Vec<Vec<u64>> {
    kernel
        .buffers
        .values()
        .filter(|decl| decl.space != Space::Shared)
        .zip(buffers)
        .filter(|(decl, _)| decl.space == Space::Global { writable: true })
        .map(|(decl, bytes)| match decl.dtype {
            DType::F16 => bytes
                .as_chunks::<2>()
                .0
                .iter()
                .map(|&le| u16::from_le_bytes(le))
                .map(|bits| if bits & 0x7fff > 0x7c00 { 0x7e00 } else { u64::from(bits) })
                .collect(),
            dtype => bytes
                .as_chunks::<4>()
                .0
                .iter()
                .map(|&le| u32::from_le_bytes(le))
                .map(|bits| {
                    if dtype == DType::F32 && f32::from_bits(bits).is_nan() {
                        0x7fc0_0000
                    } else {
                        u64::from(bits)
                    }
                })
                .collect(),
        })
        .collect()
}

fn assert_same(kernel: &Kernel, what: &str, left: &[Vec<u8>], right: &[Vec<u8>]) {
    let (left, right) = (canonical(kernel, left), canonical(kernel, right));
    for (buffer, (left, right)) in left.iter().zip(&right).enumerate() {
        if let Some(at) = left.iter().zip(right).position(|(a, b)| a != b) {
            let (a, b) = (left[at], right[at]);
            panic!(
                "{what}: output {buffer}[{at}]: {a:x} and {b:x}\n{kernel}\n{}",
                emit(kernel, Target::Sm80).unwrap()
            );
        }
    }
}

fn check(numbers: &[u32]) {
    let (built, plain) = (built(numbers), plain(numbers));
    for kernel in [&built, &plain] {
        verify(kernel).unwrap_or_else(|errors| panic!("{errors:#?}\n{kernel}"));
        assert_eq!(parse(&kernel.to_string()).as_ref(), Ok(kernel));
    }
    let expected = evaluated(&plain);
    assert_same(&built, "plain and built, evaluated", &expected, &evaluated(&built));
    assert_same(&built, "evaluated and executed", &expected, &executed(&built, true));
    assert_same(&plain, "plain, evaluated and executed", &expected, &executed(&plain, false));
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 4000, ..ProptestConfig::default() })]

    #[test]
    fn random_kernels_agree(numbers in prop::collection::vec(any::<u32>(), 20..160)) {
        check(&numbers);
    }
}

#[test]
fn a_wrong_result_is_found() {
    let numbers: Vec<u32> = (0..60).map(|i| i * 2_654_435).collect();
    let kernel = built(&numbers);
    let right = evaluated(&kernel);
    let mut wrong = right.clone();
    wrong[7][40] ^= 1;
    assert!(std::panic::catch_unwind(|| assert_same(&kernel, "", &right, &wrong)).is_err());
}
