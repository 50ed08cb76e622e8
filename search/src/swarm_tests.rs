//! Searches of made-up landscapes, without any device.

#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
use super::*;

use std::sync::Mutex;

use eggine_ir::Region as IrRegion;
use eggine_ir::schedule::PointwiseSchedule;

use crate::agents::{PointwiseTiler, Wanderer};

/// A line of schedules whose time falls towards `threads = 512`; the model predicts the reverse.
struct Valley {
    judged: Vec<(usize, String)>,
    n_max: u64,
    rejected: Option<u32>,
    /// Time of a launch of each region's first schedule over that of region 0.
    scale: BTreeMap<usize, f64>,
    covers: Vec<(usize, Shape)>,
    opened: Vec<usize>,
    forbidden: Option<usize>,
}

/// Steps of 32 threads.
struct Line;

impl eggine_rewrite::Moves for Line {
    fn names(&self) -> &[&'static str] {
        &["pointwise-less", "pointwise-more"]
    }

    fn neighbours(&self, index: usize, _: &IrRegion, schedule: &Schedule) -> Vec<Schedule> {
        let n = threads_of(schedule);
        let next = if index == 0 { n.saturating_sub(32) } else { n + 32 };
        if (32..=1024).contains(&next) { vec![self::schedule(next)] } else { Vec::new() }
    }
}

fn schedule(threads: u32) -> Schedule {
    Schedule::Pointwise(PointwiseSchedule { threads, elems: 1, vector: 1 })
}

fn threads_of(schedule: &Schedule) -> u32 {
    match schedule {
        Schedule::Pointwise(s) => s.threads,
        other => unreachable!("{other}"),
    }
}

fn opened(ns: f64) -> Opened {
    let text = "graph @g(v0: f32[64]) {\n    v1 = relu v0\n    return v1\n}\n";
    let region = IrRegion::contiguous(eggine_ir::graph::parse(text).unwrap());
    Opened { space: KernelSpace::new(region, schedule(256), Arc::new(Line)), ns }
}

impl Valley {
    fn new(n_max: u64) -> Self {
        Self {
            judged: Vec::new(),
            n_max,
            rejected: None,
            scale: BTreeMap::new(),
            covers: Vec::new(),
            opened: Vec::new(),
            forbidden: None,
        }
    }

    fn time_ns(&self, region: usize, schedule: &Schedule) -> f64 {
        let scale = self.scale.get(&region).copied().unwrap_or(1.0);
        scale * (1000.0 + (f64::from(threads_of(schedule)) - 512.0).abs())
    }

    fn swarm(&self, shape: &[(usize, u64)], options: Options) -> Swarm {
        let shape: Shape = shape.iter().copied().collect();
        let open = |&number: &usize| (number, opened(self.time_ns(number, &schedule(256))));
        Swarm::new(0, &shape, shape.keys().map(open).collect(), options)
    }
}

impl Lab for Valley {
    type Error = std::convert::Infallible;

    fn predict_ns(&self, _: usize, schedule: &Schedule) -> f64 {
        1e6 / self.time_ns(0, schedule)
    }

    fn open(&mut self, region: usize) -> Result<Option<Opened>, Self::Error> {
        self.opened.push(region);
        let ns = self.time_ns(region, &schedule(256));
        Ok((self.forbidden != Some(region)).then(|| opened(ns)))
    }

    fn judge(&mut self, candidate: &Candidate, best: Best) -> Result<Judgement, Self::Error> {
        self.judged.push((candidate.region, candidate.schedule.to_string()));
        if Some(threads_of(&candidate.schedule)) == self.rejected {
            return Ok(Judgement { ratio: None, better: false });
        }
        let ns = self.time_ns(candidate.region, &candidate.schedule);
        let ratio = ns / self.time_ns(candidate.region, &schedule(256));
        Ok(Judgement { ratio: Some(ratio), better: ratio < best.ratio - 1e-9 })
    }

    fn covers(&mut self, _: &BTreeMap<usize, f64>) -> Result<Vec<(usize, Shape)>, Self::Error> {
        Ok(self.covers.clone())
    }

    fn stop(&mut self, status: &Status<'_>) -> bool {
        status.n_steps >= self.n_max
    }
}

fn options(seed: u64) -> Options {
    Options {
        agents: vec![Arc::new(PointwiseTiler), Arc::new(Wanderer)],
        fuser: true,
        strategy: Strategy::Swarm,
        seed,
        lessons: Lessons::default(),
    }
}

#[test]
fn finds_the_best_although_the_model_misleads() {
    let mut lab = Valley::new(400);
    let mut swarm = lab.swarm(&[(0, 1)], options(7));
    swarm.run(&mut lab).unwrap();
    assert_eq!(swarm.best(0).unwrap().0, schedule(512));
    let mut unique = lab.judged.clone();
    unique.sort();
    unique.dedup();
    assert_eq!(unique.len(), lab.judged.len(), "nothing is judged twice");
    assert!(swarm.curve().windows(2).all(|pair| pair[1].1 < pair[0].1), "best so far only falls");
}

#[test]
fn the_same_judgements_give_the_same_search() {
    let run = |seed| {
        let mut lab = Valley::new(12);
        lab.swarm(&[(0, 1), (1, 3), (2, 2)], options(seed)).run(&mut lab).unwrap();
        lab.judged
    };
    assert_eq!(run(1), run(1));
    assert!((2..40).any(|seed| run(seed) != run(1)), "the seed matters");
}

#[test]
fn measurements_go_where_the_time_is() {
    let mut lab = Valley::new(20);
    lab.swarm(&[(0, 1), (1, 50)], options(0)).run(&mut lab).unwrap();
    let on_second = lab.judged.iter().filter(|(region, _)| *region == 1).count();
    assert!(on_second > 12, "{on_second} of 20 on the region that takes 98 % of the time");
}

#[test]
fn a_rejected_candidate_never_becomes_the_incumbent() {
    let mut lab = Valley { rejected: Some(512), ..Valley::new(200) };
    let mut swarm = lab.swarm(&[(0, 1)], options(3));
    swarm.run(&mut lab).unwrap();
    assert_ne!(swarm.best(0).unwrap().0, schedule(512));
    assert_eq!(swarm.records().iter().map(|it| it.n_rejected).sum::<u64>(), 1);
}

#[test]
fn a_better_cover_is_found_and_a_worse_one_is_not_taken() {
    let better: Shape = [(1, 1)].into();
    let worse: Shape = [(0, 1), (2, 5)].into();
    let mut lab = Valley {
        covers: vec![(1, worse), (2, better)],
        scale: [(1, 0.3)].into(),
        ..Valley::new(60)
    };
    let mut swarm = lab.swarm(&[(0, 1)], options(0));
    swarm.run(&mut lab).unwrap();
    assert_eq!(swarm.cover(), 2);
    let fuser = swarm.records().last().unwrap();
    assert_eq!((fuser.agent.as_str(), fuser.n_better), (FUSER, 1));
    assert!(fuser.saved_ns > 500);
}

#[test]
fn a_cover_with_a_region_that_cannot_be_made_is_dropped() {
    let impossible: Shape = [(1, 1), (2, 1)].into();
    let mut lab = Valley {
        covers: vec![(1, impossible)],
        forbidden: Some(1),
        scale: [(1, 0.1), (2, 0.1)].into(),
        ..Valley::new(60)
    };
    let mut swarm = lab.swarm(&[(0, 1)], options(0));
    swarm.run(&mut lab).unwrap();
    assert_eq!((swarm.cover(), lab.opened), (0, vec![1]));
}

#[test]
fn without_the_fuser_no_cover_is_looked_at() {
    let mut lab = Valley { covers: vec![(1, [(1, 1)].into())], ..Valley::new(60) };
    let mut swarm = lab.swarm(&[(0, 1)], Options { fuser: false, ..options(0) });
    swarm.run(&mut lab).unwrap();
    assert_eq!((swarm.cover(), lab.opened.len()), (0, 0));
}

/// Proposes what is not legal, what is known, and what it was not asked about.
struct Nonsense(Mutex<u32>);

impl Agent for Nonsense {
    fn name(&self) -> &'static str {
        "nonsense"
    }

    fn propose(&self, view: &View<'_>, _: Budget) -> Vec<Proposal> {
        *self.0.lock().unwrap() += 1;
        let parent = view.kernels[0].schedules().next().unwrap().0;
        let of = |kernel, threads| Proposal::Schedule {
            kernel,
            parent,
            step: "nonsense",
            schedule: schedule(threads),
        };
        vec![of(17, 64), of(0, 256), of(0, 512)]
    }
}

#[test]
fn what_an_agent_says_about_other_kernels_and_known_schedules_is_ignored() {
    let mut lab = Valley::new(60);
    let agent = Arc::new(Nonsense(Mutex::new(0)));
    let mut swarm =
        lab.swarm(&[(0, 1)], Options { agents: vec![agent.clone()], fuser: false, ..options(0) });
    assert!(swarm.run(&mut lab).unwrap(), "nothing is left to try");
    assert_eq!(lab.judged, [(0, schedule(512).to_string())]);
    assert!(*agent.0.lock().unwrap() > 0);
}

#[test]
fn a_stall_changes_the_mix() {
    // The first schedule is the best there is: nothing can be gained.
    struct Flat(Valley);
    impl Lab for Flat {
        type Error = std::convert::Infallible;
        fn predict_ns(&self, _: usize, _: &Schedule) -> f64 {
            1.0
        }
        fn open(&mut self, region: usize) -> Result<Option<Opened>, Self::Error> {
            self.0.open(region)
        }
        fn judge(&mut self, _: &Candidate, _: Best) -> Result<Judgement, Self::Error> {
            Ok(Judgement { ratio: Some(1.0), better: false })
        }
        fn covers(&mut self, _: &BTreeMap<usize, f64>) -> Result<Vec<(usize, Shape)>, Self::Error> {
            Ok(Vec::new())
        }
        fn stop(&mut self, status: &Status<'_>) -> bool {
            status.n_steps >= self.0.n_max
        }
    }
    let lab = Valley::new(90);
    let shape: Vec<(usize, u64)> = (0..6).map(|number| (number, 1)).collect();
    let mut swarm = lab.swarm(&shape, options(0));
    swarm.run(&mut Flat(lab)).unwrap();
    assert_eq!(swarm.n_restarts(), 2);
}

#[test]
fn lessons_bring_the_best_earlier() {
    let steps_to_best = |lessons: Lessons| {
        let mut lab = Valley::new(400);
        let mut swarm = lab.swarm(&[(0, 1)], Options { lessons, ..options(5) });
        swarm.run(&mut lab).unwrap();
        let learned = swarm.lessons().clone();
        (swarm.curve().last().unwrap().0, learned)
    };
    let (without, mut lessons) = steps_to_best(Lessons::default());
    for _ in 0..3 {
        lessons = steps_to_best(lessons).1;
    }
    let (with, _) = steps_to_best(lessons);
    assert!(with < without, "{with} steps with lessons, {without} without");
}
