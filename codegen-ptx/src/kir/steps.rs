//! How many instructions a block can take at most: what a watchdog needs to know about a kernel before it
//! runs, so that one that hangs is stopped soon and one that works never is.

use super::{Kernel, Operand, Stmt};

/// Instructions that one statement becomes at most, with its share of address arithmetic: a division by
/// a constant or a guarded conversion takes about twenty.
const PER_STATEMENT: u64 = 32;

/// Instructions that are free: a kernel of a few statements is no reason for a tight limit.
const FLOOR: u64 = 1 << 16;

/// Upper bound of the warp instructions of a block of the kernel, generous by design.
///
/// Both sides of a branch count, loops as often as their bounds say. A bound that is computed is taken
/// to be the elements of the largest buffer.
pub fn steps_bound(kernel: &Kernel) -> u64 {
    let largest = kernel.buffers.values().map(|buffer| buffer.n_elems).max().unwrap_or(0) as u64;
    let n_warps = u64::from(kernel.n_threads.div_ceil(32));
    let per_warp = statements(&kernel.body, largest).saturating_mul(PER_STATEMENT);
    // Lanes that go different ways take their turns, at worst each alone.
    per_warp.saturating_mul(n_warps).saturating_mul(2).saturating_add(FLOOR)
}

fn statements(body: &[Stmt], largest: u64) -> u64 {
    body.iter().fold(0u64, |sum, stmt| {
        sum.saturating_add(match stmt {
            Stmt::For { from, to, step, body, .. } => {
                let trips = match (from, to) {
                    (Operand::Const(from), Operand::Const(to)) => {
                        let span = (i64::from(*to) - i64::from(*from)).max(0).unsigned_abs();
                        span.div_ceil(u64::from(step.unsigned_abs().max(1)))
                    }
                    (_, Operand::Const(to)) => u64::from(to.unsigned_abs()).min(largest),
                    _ => largest,
                };
                trips.saturating_mul(statements(body, largest).saturating_add(1))
            }
            Stmt::If { then, otherwise, .. } => {
                1 + statements(then, largest) + statements(otherwise, largest)
            }
            _ => 1,
        })
    })
}
