//! The arena plan: buffers that are live together never overlap, parts are inside their whole.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

use eggine_runtime::plan::{ARENA_ALIGN_BYTES, ArenaError, BufferLife, Part, plan_arena};
use proptest::prelude::*;

fn whole(n_bytes: u64, first: usize, last: usize) -> BufferLife {
    BufferLife { n_bytes, first, last, part_of: None }
}

fn part(n_bytes: u64, first: usize, last: usize, parent: usize, offset_bytes: u64) -> BufferLife {
    BufferLife { n_bytes, first, last, part_of: Some(Part { parent, offset_bytes }) }
}

#[test]
fn a_chain_needs_two_buffers() {
    let lives: Vec<BufferLife> = (0..10).map(|i| whole(1000, i, i + 1)).collect();
    let plan = plan_arena(&lives).unwrap();
    assert_eq!((plan.arena_bytes, plan.live_peak_bytes, plan.sum_bytes), (2048, 2048, 10240));
}

#[test]
fn pieces_of_a_concatenation_lie_in_it() {
    // Two pieces, written at steps 0 and 1, read as one at step 4; another buffer between.
    let lives =
        [part(512, 0, 4, 2, 0), part(512, 1, 4, 2, 512), whole(1024, 4, 4), whole(256, 2, 3)];
    let plan = plan_arena(&lives).unwrap();
    assert_eq!(plan.offsets_bytes, [0, 512, 0, 1024], "the whole is live as long as its parts");
    assert_eq!(plan.arena_bytes, 1280);
}

#[test]
fn lives_without_sense_are_errors() {
    assert!(matches!(plan_arena(&[whole(1, 3, 2)]), Err(ArenaError::Backwards { .. })));
    assert!(matches!(plan_arena(&[part(1, 0, 0, 7, 0)]), Err(ArenaError::Parent { .. })));
    assert!(matches!(
        plan_arena(&[part(1, 0, 0, 1, 0), part(1, 0, 0, 0, 0)]),
        Err(ArenaError::Parent { .. })
    ));
    assert!(matches!(
        plan_arena(&[whole(8, 0, 0), part(8, 0, 0, 0, 1)]),
        Err(ArenaError::Part { .. })
    ));
    assert_eq!(plan_arena(&[]).unwrap().arena_bytes, 0);
}

fn lives() -> impl Strategy<Value = Vec<BufferLife>> {
    let one = (0u64..5000, 0usize..30, 0usize..8, any::<u16>(), 0u8..4, any::<u16>());
    prop::collection::vec(one, 1..40).prop_map(|rows| {
        let mut lives: Vec<BufferLife> = Vec::new();
        for (n_bytes, first, length, parent, kind, offset) in rows {
            let mut life = whole(n_bytes, first, first + length);
            // A quarter are parts of an earlier buffer.
            if kind == 0 && !lives.is_empty() {
                let parent = usize::from(parent) % lives.len();
                life.n_bytes = life.n_bytes.min(lives[parent].n_bytes);
                let offset_bytes = u64::from(offset) % (lives[parent].n_bytes - life.n_bytes + 1);
                life.part_of = Some(Part { parent, offset_bytes });
            }
            lives.push(life);
        }
        lives
    })
}

fn root(lives: &[BufferLife], mut at: usize) -> usize {
    while let Some(part) = lives[at].part_of {
        at = part.parent;
    }
    at
}

/// Every violation, by brute force over steps.
fn overlaps(lives: &[BufferLife], offsets: &[u64]) -> Option<(usize, usize)> {
    let range = |i: usize| offsets[i]..offsets[i] + lives[i].n_bytes;
    for a in 0..lives.len() {
        for b in 0..a {
            let together = (0..40).any(|step| {
                [a, b].iter().all(|&i| lives[i].first <= step && step <= lives[i].last)
            });
            let meet = range(a).start < range(b).end && range(b).start < range(a).end;
            if together && meet && root(lives, a) != root(lives, b) {
                return Some((b, a));
            }
        }
    }
    None
}

proptest! {
    #[test]
    fn live_buffers_never_overlap(lives in lives()) {
        let plan = plan_arena(&lives).unwrap();
        prop_assert_eq!(overlaps(&lives, &plan.offsets_bytes), None);
        for (i, life) in lives.iter().enumerate() {
            prop_assert!(plan.offsets_bytes[i] + life.n_bytes <= plan.arena_bytes);
            match life.part_of {
                None => prop_assert_eq!(plan.offsets_bytes[i] % ARENA_ALIGN_BYTES, 0),
                Some(part) => prop_assert_eq!(plan.offsets_bytes[i], plan.offsets_bytes[part.parent] + part.offset_bytes),
            }
        }
        prop_assert!(plan.live_peak_bytes <= plan.arena_bytes && plan.arena_bytes <= plan.sum_bytes);
        prop_assert_eq!(plan_arena(&lives).unwrap(), plan);
    }
}

#[test]
fn the_check_sees_an_overlap() {
    let lives = [whole(100, 0, 2), whole(100, 2, 3)];
    assert_eq!(overlaps(&lives, &[0, 64]), Some((0, 1)));
    assert_eq!(overlaps(&lives, &[0, 256]), None);
}
