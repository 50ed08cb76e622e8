//! Recurrent layers, unrolled over the steps, whose number is known.
//!
//! The part that does not depend on the state, `X W`, is one product for all steps.

use crate::graph::Op;
use crate::onnx::builder::Builder;
use crate::onnx::call::{Call, Outcome};
use crate::onnx::error::OpError;
use crate::{Tensor, Value};

use super::elementwise::soft_plus;
use super::movement::swap;
use super::quant;

/// More steps are not unrolled.
const MAX_STEPS: usize = 4096;

/// Operand positions and gate counts of one kind of layer.
struct Kind {
    n_gates: usize,
    activations: &'static [&'static str],
    has_cell: bool,
}

/// What a product with the weights is: plain, or with weights of 8 bits.
#[derive(Clone, Copy)]
enum Weights {
    Plain,
    /// Operand positions of scale and zero point of `W` and `R`.
    Quantised {
        w: [usize; 2],
        r: [usize; 2],
    },
}

/// One direction of a layer, cut out of the stacked operands.
struct Direction {
    /// `X W + biases`, `[T, B, gates * H]`; GRU keeps some biases apart.
    projected: Value,
    r: Value,
    r_scale: Option<(Value, Value)>,
    r_bias: Option<Value>,
    peephole: Option<Value>,
    activations: Vec<String>,
    reverse: bool,
}

fn activate(b: &mut Builder, c: &Call, name: &str, x: Value) -> Result<Value, OpError> {
    match name.to_ascii_lowercase().as_str() {
        "sigmoid" => b.unary(Op::Sigmoid, x),
        "tanh" => b.unary(Op::Tanh, x),
        "relu" => b.unary(Op::Relu, x),
        "softplus" => soft_plus(b, x),
        _ => c.form(format!("activation `{name}`"), "Sigmoid, Tanh, Relu and Softplus"),
    }
}

/// Row `d` of a stacked operand, without its first axis.
fn part(b: &mut Builder, x: Value, d: usize) -> Result<Value, OpError> {
    let row = b.narrow(x, 0, d, 1)?;
    b.squeeze(row, 0)
}

/// A gate: columns `i * h` to `(i + 1) * h` of the last axis.
fn gate(b: &mut Builder, x: Value, i: usize, h: usize) -> Result<Value, OpError> {
    let last = b.rank(x) - 1;
    b.narrow(x, last, i * h, h)
}

/// Makes the new state (output and cell) from a projected slice, the old state and the hidden size.
type Step =
    fn(&mut Builder, &Call, &Direction, Value, [Value; 2], usize) -> Result<[Value; 2], OpError>;

/// Runs a layer: `step` makes the new state of one direction from a projected slice and the old state.
fn layer(b: &mut Builder, c: &Call, kind: &Kind, weights: Weights, step: Step) -> Outcome {
    if c.has("clip") {
        return c.form("clip", "no clip");
    }
    // Opset 1 returns the sequence on request.
    if c.has("output_sequence") && c.int("output_sequence", 0)? == 0 && c.wants(0) {
        return c.form("a sequence that `output_sequence` leaves out", "`output_sequence` 1");
    }
    if c.int("input_forget", 0)? != 0 {
        return c.form("input_forget", "separate gates");
    }
    let batch_first = c.int("layout", 0)? != 0;
    let mut x = c.x(0)?;
    let (w, r) = (c.x(1)?, c.x(2)?);
    for (index, value) in [(0, x), (1, w), (2, r)] {
        if b.rank(value) != 3 {
            return Err(OpError::Operand {
                index,
                found: b.ty(value).to_string(),
                expected: "rank 3".into(),
            });
        }
    }
    if batch_first {
        x = swap(b, x, 0, 1)?;
    }
    let [steps, batch, width] = b.extents(x)[..] else { unreachable!("rank 3") };
    let directions = b.extents(w)[0];
    let hidden = match weights {
        Weights::Plain => b.extents(r)[2],
        Weights::Quantised { .. } => b.extents(r)[1],
    };
    if steps == 0 || steps > MAX_STEPS {
        return c.form(format!("{steps} steps"), "1 to 4096 steps");
    }
    let direction = c.word("direction", "forward")?;
    let expected = if direction == "bidirectional" { 2 } else { 1 };
    if directions != expected
        || !["forward", "reverse", "bidirectional"].contains(&direction.as_str())
    {
        let found = format!("`{direction}` with {directions} sets of weights");
        return Err(OpError::Attribute {
            name: "direction".into(),
            found,
            expected: "as many sets as directions".into(),
        });
    }
    let n_activations = kind.activations.len();
    let activations = match c.words("activations")? {
        Some(given) if given.len() == n_activations * directions => given,
        Some(given) => return c.form(format!("activations {given:?}"), "as many as gates need"),
        None => kind
            .activations
            .iter()
            .map(|s| (*s).to_owned())
            .cycle()
            .take(n_activations * directions)
            .collect(),
    };
    // Known lengths that are all the number of steps say nothing.
    let lengths = match c.opt(4)? {
        Some(lengths)
            if b.known(lengths)
                .is_some_and(|it| it.to_i64().iter().all(|&n| n == steps as i64)) =>
        {
            None
        }
        other => other,
    };
    let dtype = b.dtype(x);
    let (mut all, mut last, mut cells) = (vec![], vec![], vec![]);
    for d in 0..directions {
        let reverse = direction == "reverse" || d == 1;
        let size = kind.n_gates * hidden;
        let (w, r) = (part(b, w, d)?, part(b, r, d)?);
        let flat = b.reshape(x, &[steps * batch, width])?;
        let (product, r, r_scale) = match weights {
            Weights::Plain => {
                let (w, r) = (swap(b, w, 0, 1)?, swap(b, r, 0, 1)?);
                (b.matmul(flat, w)?, r, None)
            }
            Weights::Quantised { w: at_w, r: at_r } => {
                let (w_scale, w_zero) = (part(b, c.x(at_w[0])?, d)?, part(b, c.x(at_w[1])?, d)?);
                let (r_scale, r_zero) = (part(b, c.x(at_r[0])?, d)?, part(b, c.x(at_r[1])?, d)?);
                (quant::dynamic_product(b, flat, w, w_scale, w_zero)?, r, Some((r_scale, r_zero)))
            }
        };
        let mut projected = b.reshape(product, &[steps, batch, size])?;
        let mut r_bias = None;
        if let Some(bias) = c.opt(3)? {
            let bias = part(b, bias, d)?;
            let (of_w, of_r) = (b.narrow(bias, 0, 0, size)?, b.narrow(bias, 0, size, size)?);
            if kind.n_gates == 3 {
                // The last gate of a GRU may scale its recurrent bias.
                projected = b.add(projected, of_w)?;
                r_bias = Some(of_r);
            } else {
                let both = b.add(of_w, of_r)?;
                projected = b.add(projected, both)?;
            }
        }
        let peephole = match (kind.has_cell, c.opt(7)?) {
            (true, Some(p)) => Some(part(b, p, d)?),
            _ => None,
        };
        let activations = activations[d * n_activations..(d + 1) * n_activations].to_vec();
        let direction = Direction { projected, r, r_scale, r_bias, peephole, activations, reverse };

        let zeros = b.scalar(dtype, 0.0);
        let zeros = b.expand(zeros, &[batch, hidden])?;
        let initial = |b: &mut Builder, at: usize| -> Result<Value, OpError> {
            let Some(given) = c.opt(at)? else { return Ok(zeros) };
            let given = if batch_first { swap(b, given, 0, 1)? } else { given };
            part(b, given, d)
        };
        let mut state = [initial(b, 5)?, if kind.has_cell { initial(b, 6)? } else { zeros }];
        let mut outputs = vec![zeros; steps];
        for i in 0..steps {
            let t = if direction.reverse { steps - 1 - i } else { i };
            let slice = part(b, direction.projected, t)?;
            let next = step(b, c, &direction, slice, state, hidden)?;
            let (next, output) = match lengths {
                None => (next, next[0]),
                Some(lengths) => {
                    // Behind the end of its sequence a row keeps its state and returns 0.
                    let ty = b.dtype(lengths);
                    let now = b.constant(Tensor::from_i64(ty, &[], &[t as i64]));
                    let on = b.binary(Op::Lt, now, lengths)?;
                    let on = b.reshape(on, &[batch, 1])?;
                    let kept = [b.select(on, next[0], state[0])?, b.select(on, next[1], state[1])?];
                    (kept, b.select(on, next[0], zeros)?)
                }
            };
            state = next;
            outputs[t] = output;
        }
        if c.wants(0) {
            let rows = outputs
                .iter()
                .map(|&o| b.reshape(o, &[1, 1, batch, hidden]))
                .collect::<Result<Vec<_>, _>>()?;
            all.push(b.concat(&rows, 0)?);
        }
        last.push(b.unsqueeze(state[0], 0)?);
        cells.push(b.unsqueeze(state[1], 0)?);
    }
    let mut y = if c.wants(0) { b.concat(&all, 1)? } else { last[0] };
    let (mut y_h, mut y_c) = (b.concat(&last, 0)?, b.concat(&cells, 0)?);
    if batch_first {
        if c.wants(0) {
            y = b.transpose(y, &[2, 0, 1, 3])?;
        }
        (y_h, y_c) = (swap(b, y_h, 0, 1)?, swap(b, y_c, 0, 1)?);
    }
    let mut results = vec![y.into(), y_h.into()];
    if kind.has_cell {
        results.push(y_c.into());
    }
    Ok(results)
}

/// `H R` with the weights as they are.
fn recur(b: &mut Builder, d: &Direction, h: Value, r: Value) -> Result<Value, OpError> {
    match d.r_scale {
        None => b.matmul(h, r),
        Some((scale, zero)) => quant::dynamic_product(b, h, r, scale, zero),
    }
}

/// Gates i, o, f, c.
fn lstm_step(
    b: &mut Builder,
    c: &Call,
    d: &Direction,
    x: Value,
    [h, cell]: [Value; 2],
    n: usize,
) -> Result<[Value; 2], OpError> {
    let recurrent = recur(b, d, h, d.r)?;
    let sum = b.add(x, recurrent)?;
    let peep = |b: &mut Builder, gate: Value, i: usize, cell: Value| match d.peephole {
        None => Ok(gate),
        Some(p) => {
            let p = b.narrow(p, 0, i * n, n)?;
            let term = b.mul(p, cell)?;
            b.add(gate, term)
        }
    };
    let (i, o, f, g) =
        (gate(b, sum, 0, n)?, gate(b, sum, 1, n)?, gate(b, sum, 2, n)?, gate(b, sum, 3, n)?);
    let [gate_fn, cell_fn, out_fn] = &d.activations[..] else {
        unreachable!("an LSTM has three activations")
    };
    let (i, f) = (peep(b, i, 0, cell)?, peep(b, f, 2, cell)?);
    let (i, f) = (activate(b, c, gate_fn, i)?, activate(b, c, gate_fn, f)?);
    let g = activate(b, c, cell_fn, g)?;
    let (kept, added) = (b.mul(f, cell)?, b.mul(i, g)?);
    let cell = b.add(kept, added)?;
    let o = peep(b, o, 1, cell)?;
    let o = activate(b, c, gate_fn, o)?;
    let shown = activate(b, c, out_fn, cell)?;
    Ok([b.mul(o, shown)?, cell])
}

/// Gates z, r, h.
fn gru_step(
    b: &mut Builder,
    c: &Call,
    d: &Direction,
    x: Value,
    [h, _]: [Value; 2],
    n: usize,
) -> Result<[Value; 2], OpError> {
    let [gate_fn, new_fn] = &d.activations[..] else { unreachable!("a GRU has two activations") };
    let with_bias = |b: &mut Builder, value: Value, from: usize, size: usize| match d.r_bias {
        None => Ok(value),
        Some(bias) => {
            let bias = b.narrow(bias, 0, from * n, size * n)?;
            b.add(value, bias)
        }
    };
    let (r_gates, r_new) = (b.narrow(d.r, 1, 0, 2 * n)?, b.narrow(d.r, 1, 2 * n, n)?);
    let recurrent = recur(b, d, h, r_gates)?;
    let recurrent = with_bias(b, recurrent, 0, 2)?;
    let gates = b.narrow(x, 1, 0, 2 * n)?;
    let gates = b.add(gates, recurrent)?;
    let (z, r) = (gate(b, gates, 0, n)?, gate(b, gates, 1, n)?);
    let (z, r) = (activate(b, c, gate_fn, z)?, activate(b, c, gate_fn, r)?);
    let new = gate(b, x, 2, n)?;
    let old = if c.int("linear_before_reset", 0)? != 0 {
        let old = recur(b, d, h, r_new)?;
        let old = with_bias(b, old, 2, 1)?;
        b.mul(r, old)?
    } else {
        let reset = b.mul(r, h)?;
        let old = recur(b, d, reset, r_new)?;
        with_bias(b, old, 2, 1)?
    };
    let new = b.add(new, old)?;
    let new = activate(b, c, new_fn, new)?;
    let unit = b.scalar_like(z, 1.0);
    let rest = b.sub(unit, z)?;
    let (fresh, kept) = (b.mul(rest, new)?, b.mul(z, h)?);
    let h = b.add(fresh, kept)?;
    Ok([h, h])
}

fn rnn_step(
    b: &mut Builder,
    c: &Call,
    d: &Direction,
    x: Value,
    [h, _]: [Value; 2],
    _: usize,
) -> Result<[Value; 2], OpError> {
    let recurrent = recur(b, d, h, d.r)?;
    let sum = b.add(x, recurrent)?;
    let h = activate(b, c, &d.activations[0], sum)?;
    Ok([h, h])
}

const LSTM: Kind = Kind { n_gates: 4, activations: &["Sigmoid", "Tanh", "Tanh"], has_cell: true };
const GRU: Kind = Kind { n_gates: 3, activations: &["Sigmoid", "Tanh"], has_cell: false };
const RNN: Kind = Kind { n_gates: 1, activations: &["Tanh"], has_cell: false };

pub(super) fn lstm(b: &mut Builder, c: &Call) -> Outcome {
    layer(b, c, &LSTM, Weights::Plain, lstm_step)
}

pub(super) fn gru(b: &mut Builder, c: &Call) -> Outcome {
    layer(b, c, &GRU, Weights::Plain, gru_step)
}

pub(super) fn rnn(b: &mut Builder, c: &Call) -> Outcome {
    layer(b, c, &RNN, Weights::Plain, rnn_step)
}

/// ONNX Runtime's: operands as LSTM's, weights transposed (`[D, I, 4H]`) in 8 bits, then scales and
/// zero points of `W` and `R`.
pub(super) fn dynamic_quantize_lstm(b: &mut Builder, c: &Call) -> Outcome {
    layer(b, c, &LSTM, Weights::Quantised { w: [8, 9], r: [10, 11] }, lstm_step)
}
