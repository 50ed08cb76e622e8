//! Weights in pieces: the same bytes as the weights section, without what lies between the tensors, so that
//! engines of one model can share what is equal.

use bytes::Bytes;

use crate::plan::{ARENA_ALIGN_BYTES, Arg, Plan};

/// Bytes of the weights section from an offset on.
pub type Piece = (u64, Bytes);

/// The bytes of a weights section that steps and outputs read, merged where they overlap. What lies between
/// and is more than padding is a piece too.
pub(super) fn cut(plan: &Plan, weights: &Bytes) -> Vec<Piece> {
    let args = plan.steps.iter().flat_map(|step| &step.args);
    let of = |arg: &Arg| match *arg {
        Arg::Weight { offset_bytes, n_bytes } => Some((offset_bytes, offset_bytes + n_bytes)),
        _ => None,
    };
    let mut ranges: Vec<(u64, u64)> =
        args.chain(plan.aliases.iter().map(|alias| &alias.source)).filter_map(of).collect();
    ranges.sort_unstable();
    let mut merged: Vec<(u64, u64)> = Vec::new();
    let mut push = |from: u64, to: u64| match merged.last_mut() {
        Some(last) if from < last.1 => last.1 = last.1.max(to),
        _ if from == to => (),
        last => {
            let end = last.map_or(0, |last| last.1);
            if from - end >= ARENA_ALIGN_BYTES {
                merged.push((end, from));
            }
            merged.push((from, to));
        }
    };
    ranges.into_iter().for_each(|(from, to)| push(from, to));
    let end = merged.last().map_or(0, |last| last.1);
    if end < weights.len() as u64 {
        merged.push((end, weights.len() as u64));
    }
    let slice = |(from, to): (u64, u64)| (from, weights.slice(from as usize..to as usize));
    merged.into_iter().map(slice).collect()
}

/// Whether pieces are in order, leave out no more than padding, and hold what a plan reads.
pub(super) fn check(plan: &Plan, pieces: &[Piece]) -> Result<(), &'static str> {
    let mut end = 0;
    for (offset, bytes) in pieces {
        if *offset < end || offset - end >= ARENA_ALIGN_BYTES {
            return Err("its weights have holes, or lie upon each other");
        }
        end = offset.checked_add(bytes.len() as u64).ok_or("its weights have no end")?;
    }
    if end != plan.weights_bytes {
        return Err("it has more or fewer weights than its plan needs");
    }
    let held = |arg: &Arg| match *arg {
        Arg::Weight { offset_bytes, n_bytes } => {
            let at = pieces.partition_point(|(offset, _)| *offset <= offset_bytes);
            n_bytes == 0
                || at.checked_sub(1).is_some_and(|at| {
                    let (offset, bytes) = &pieces[at];
                    let inside = offset_bytes - offset;
                    inside.checked_add(n_bytes).is_some_and(|end| end <= bytes.len() as u64)
                })
        }
        _ => true,
    };
    let args = plan.steps.iter().flat_map(|step| &step.args);
    match args.chain(plan.aliases.iter().map(|alias| &alias.source)).all(held) {
        true => Ok(()),
        false => Err("a step reads weights that are in no piece"),
    }
}

/// The weights section again.
pub(super) fn join(pieces: &[Piece]) -> Bytes {
    let mut whole = Vec::new();
    for (offset, bytes) in pieces {
        whole.resize(*offset as usize, 0);
        whole.extend_from_slice(bytes);
    }
    whole.into()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::plan::Step;

    fn plan(ranges: &[(u64, u64)], weights_bytes: u64) -> Plan {
        let args =
            ranges.iter().map(|&(offset_bytes, n_bytes)| Arg::Weight { offset_bytes, n_bytes });
        let step = Step { kernel: 0, args: args.collect(), sources: Vec::new() };
        Plan { steps: vec![step], weights_bytes, ..Plan::default() }
    }

    #[test]
    fn pieces_are_the_tensors_and_make_up_the_whole() {
        let mut whole: Vec<u8> = (0..1600u32).map(|i| (i % 251) as u8 + 1).collect();
        whole[100..256].fill(0);
        let whole = Bytes::from(whole);
        // Two parts of one tensor, a second one, and a rest that nothing reads.
        let plan = plan(&[(256, 64), (300, 100), (0, 100), (1000, 30)], 1600);
        let pieces = cut(&plan, &whole);
        let places: Vec<(u64, usize)> = pieces.iter().map(|(at, it)| (*at, it.len())).collect();
        assert_eq!(places, [(0, 100), (256, 144), (400, 600), (1000, 30), (1030, 570)]);
        assert_eq!(check(&plan, &pieces), Ok(()));
        assert_eq!(join(&pieces), whole);
        assert!(check(&plan, &pieces[1..]).is_err() && check(&plan, &pieces[..4]).is_err());
        let mut swapped = pieces.clone();
        swapped.swap(0, 1);
        assert!(check(&plan, &swapped).is_err());
        let mut split = pieces;
        let (at, bytes) = split.remove(1);
        split.insert(1, (at + 50, bytes.slice(50..)));
        split.insert(1, (at, bytes.slice(..50)));
        assert_eq!(check(&plan, &split), Err("a step reads weights that are in no piece"));
    }

    #[test]
    fn no_weights_are_no_pieces() {
        let plan = plan(&[], 0);
        assert!(cut(&plan, &Bytes::new()).is_empty());
        assert_eq!(check(&plan, &[]), Ok(()));
    }
}
