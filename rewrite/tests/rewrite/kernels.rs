//! The second level: schedules are e-nodes of a kernel's class, found by moves.

use std::sync::Arc;

use eggine_ir::schedule::PointwiseSchedule;
use eggine_ir::{DType, Graph, Op, Region, Schedule, TensorType};
use eggine_rewrite::agent::{Agent, Budget, Proposal, View};
use eggine_rewrite::agents::Tiler;
use eggine_rewrite::{KernelSpace, Moves, lower};

fn schedule(threads: u32, elems: u32) -> Schedule {
    Schedule::Pointwise(PointwiseSchedule { threads, elems, vector: 1 })
}

fn fields(schedule: &Schedule) -> (u32, u32) {
    match schedule {
        Schedule::Pointwise(it) => (it.threads, it.elems),
        other => panic!("{other}"),
    }
}

/// More or fewer threads, more or fewer elements of each: eight schedules in all.
struct Grid;

impl Moves for Grid {
    fn names(&self) -> &[&'static str] {
        &["threads", "elements"]
    }

    fn neighbours(&self, index: usize, _: &Region, from: &Schedule) -> Vec<Schedule> {
        let (threads, elems) = fields(from);
        let wanted = match index {
            0 => [(threads * 2, elems), (threads / 2, elems)],
            _ => [(threads, elems * 2), (threads, elems / 2)],
        };
        let legal = |&(threads, elems): &(u32, u32)| {
            (64..=512).contains(&threads) && (1..=2).contains(&elems)
        };
        wanted.into_iter().filter(legal).map(|(threads, elems)| schedule(threads, elems)).collect()
    }
}

fn space() -> KernelSpace {
    let mut graph = Graph::new("region");
    let x = graph.input("", TensorType::fixed(DType::F32, &[1024]));
    let y = graph.apply(Op::Relu, vec![], &[x]).unwrap();
    graph.outputs = vec![y];
    KernelSpace::new(Region::contiguous(graph), schedule(128, 1), Arc::new(Grid))
}

#[test]
fn schedules_are_found_nearest_first_and_once() {
    let mut space = space();
    assert_eq!(space.schedules().len(), 1);
    assert_eq!(space.grow(2).len(), 2);
    let found: Vec<(u32, u32)> = space.schedules().map(|(_, it)| fields(&it.schedule)).collect();
    assert_eq!(found, [(128, 1), (256, 1), (64, 1)]);
    space.grow(100);
    let mut found: Vec<(u32, u32)> =
        space.schedules().map(|(_, it)| fields(&it.schedule)).collect();
    assert_eq!(found.len(), 8);
    found.sort_unstable();
    found.dedup();
    assert_eq!(found.len(), 8);
    assert_eq!(space.n_nodes(), 9, "each schedule is an e-node beside the region");
    assert!(space.grow(1).is_empty());
}

#[test]
fn every_schedule_has_a_path_from_the_first() {
    let mut space = space();
    space.grow(100);
    for (id, considered) in space.schedules() {
        let Some((parent, step)) = considered.parent else {
            assert_eq!(id.to_string(), "s0");
            continue;
        };
        assert!(parent < id);
        let index = Grid.names().iter().position(|name| *name == step).unwrap();
        let neighbours = Grid.neighbours(index, space.region(), &space.get(parent).schedule);
        assert!(neighbours.contains(&considered.schedule));
    }
}

#[test]
fn the_tiler_proposes_what_grow_would_add() {
    let empty = lower(&Graph::new("g")).egraph;
    let mut kernels = vec![space(), space()];
    let view = View { egraph: &empty, kernels: &kernels, iteration: 0 };
    let proposals = Tiler.propose(&view, Budget { n_proposals: 4 });
    assert_eq!(proposals.len(), 4);
    let of_first: Vec<(u32, u32)> = (proposals.iter())
        .filter_map(|proposal| match proposal {
            Proposal::Schedule { kernel: 0, schedule, .. } => Some(fields(schedule)),
            _ => None,
        })
        .collect();
    assert_eq!(of_first, [(256, 1), (64, 1)], "kernels take turns");
    for proposal in proposals {
        let Proposal::Schedule { kernel, parent, step, schedule } = proposal else { continue };
        assert!(kernels[kernel].consider(parent, step, schedule).is_some());
        assert!(kernels[kernel].consider(parent, step, schedule).is_none(), "known by now");
    }
    assert_eq!(kernels[0].schedules().len(), 3);
}
