//! Which candidate to try next: the part of the search that decides, without touching a device.
//!
//! Every region has a kernel e-graph of schedules, grown by tiling moves around the best ones. A bandit
//! chooses the region: what a measurement there is expected to save over the whole engine, from what
//! measurements there saved so far, plus a bonus for regions that were tried little. Everything is a
//! function of the seed and of the judgements, so that a replay of recorded judgements repeats the search.

use eggine_ir::Schedule;
use eggine_rewrite::{KernelId, KernelSpace};

/// A schedule of a region that somebody proposes to try.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Index of the region.
    pub region: usize,
    /// What to try.
    pub schedule: Schedule,
    /// The tiling move that led to it.
    pub tiling_move: &'static str,
    /// What it was derived from.
    pub parent: Schedule,
}

/// What was found out about a candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judgement {
    /// Median time of one launch, or `None` if the candidate was rejected.
    pub median_ns: Option<f64>,
    /// Whether it beats the incumbent: the confidence interval of the ratio excludes 1.
    pub better: bool,
}

/// What the search asks for.
pub trait Lab {
    /// Why the search cannot go on. A bad candidate is a judgement, not an error.
    type Error;

    /// Schedules one move away, by name of the move.
    fn moves(&self, region: usize, schedule: &Schedule) -> Vec<(&'static str, Schedule)>;

    /// Predicted time of one launch.
    fn predict_ns(&self, region: usize, schedule: &Schedule) -> f64;

    /// Judges a candidate against the region's incumbent.
    ///
    /// # Errors
    ///
    /// If evidence cannot be read or written, or the device is lost.
    fn judge(
        &mut self,
        candidate: &Candidate,
        incumbent: &Schedule,
    ) -> Result<Judgement, Self::Error>;

    /// Whether to stop before the next candidate. `n_steps` have been judged.
    fn stop(&mut self, n_steps: u64, best_ns: f64) -> bool;
}

/// A region under search.
#[derive(Clone, Debug)]
pub struct Arm {
    /// Launches of it in the engine.
    pub n_launches: u64,
    /// Best schedule so far.
    pub best: Schedule,
    /// Its time.
    pub best_ns: f64,
    /// Everything that was considered: the region's class in the kernel e-graph.
    pub space: KernelSpace,
    /// Considered and not yet judged, by predicted time.
    frontier: Vec<(f64, KernelId)>,
    n_tried: u64,
    saved_ns: f64,
}

impl Arm {
    /// A region whose first schedule is verified and takes `ns`.
    pub fn new(n_launches: u64, space: KernelSpace, ns: f64) -> Self {
        let (_, first) = space.schedules().next().expect("a space has a first schedule");
        let best = first.schedule;
        Self {
            n_launches,
            best,
            best_ns: ns,
            space,
            frontier: Vec::new(),
            n_tried: 0,
            saved_ns: 0.0,
        }
    }

    /// Adds the neighbours of a schedule to the class, and to the frontier ranked by predicted time.
    fn grow(&mut self, region: usize, parent: KernelId, lab: &impl Lab) {
        let schedule = self.space.get(parent).schedule;
        for (tiling_move, next) in lab.moves(region, &schedule) {
            if let Some(id) = self.space.consider(parent, tiling_move, next) {
                self.frontier.push((lab.predict_ns(region, &next), id));
            }
        }
        self.frontier.sort_by(|a, b| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1)));
    }

    fn candidate(&self, region: usize, id: KernelId) -> Candidate {
        let considered = self.space.get(id);
        let (parent, tiling_move) =
            considered.parent.expect("only the first schedule has no parent");
        let parent = self.space.get(parent).schedule;
        Candidate { region, schedule: considered.schedule, tiling_move, parent }
    }

    /// What one more measurement is expected to save over the whole engine.
    fn value(&self, n_steps: u64) -> f64 {
        let share = self.best_ns * self.n_launches as f64;
        // A region that nobody tried is expected to gain 20 % once: about what first schedules leave.
        let prior = 0.2 * share;
        let gain = (self.saved_ns * self.n_launches as f64 + prior) / (self.n_tried + 1) as f64;
        let bonus = 0.02 * share * ((n_steps as f64 + 1.0).ln() / (self.n_tried + 1) as f64).sqrt();
        gain + bonus
    }
}

/// How the search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcome {
    /// Candidates judged.
    pub n_steps: u64,
    /// Nothing was left to try.
    pub exhausted: bool,
}

/// Tries candidates until the laboratory says stop or none is left.
///
/// # Errors
///
/// What the laboratory fails with; the arms keep what was found before.
pub fn tune<L: Lab>(arms: &mut [Arm], lab: &mut L, seed: u64) -> Result<Outcome, L::Error> {
    let mut random = SplitMix(seed);
    for (region, arm) in arms.iter_mut().enumerate() {
        let (first, _) = arm.space.schedules().next().expect("a space has a first schedule");
        arm.grow(region, first, lab);
    }
    let mut n_steps = 0;
    loop {
        let total_ns = arms.iter().map(|arm| arm.best_ns * arm.n_launches as f64).sum();
        if lab.stop(n_steps, total_ns) {
            return Ok(Outcome { n_steps, exhausted: false });
        }
        let open = (arms.iter().enumerate()).filter(|(_, arm)| !arm.frontier.is_empty());
        let chosen = open
            .max_by(|a, b| a.1.value(n_steps).total_cmp(&b.1.value(n_steps)).then(b.0.cmp(&a.0)));
        let Some((region, _)) = chosen else {
            return Ok(Outcome { n_steps, exhausted: true });
        };
        let arm = &mut arms[region];
        // Mostly the best prediction; the model is not always right, so sometimes any.
        let nth =
            if random.below(5) == 0 { random.below(arm.frontier.len() as u64) as usize } else { 0 };
        let (_, id) = arm.frontier.remove(nth);
        let candidate = arm.candidate(region, id);
        let judgement = lab.judge(&candidate, &arm.best)?;
        n_steps += 1;
        arm.n_tried += 1;
        let Some(ns) = judgement.median_ns else { continue };
        if judgement.better {
            arm.saved_ns += (arm.best_ns - ns).max(0.0);
            (arm.best, arm.best_ns) = (candidate.schedule, ns);
        }
        // Neighbours of everything near the best are worth a look.
        if judgement.better || ns < 1.15 * arm.best_ns {
            arm.grow(region, id, lab);
        }
    }
}

/// A small generator with a full period: Steele, Lea and Flood, "Fast splittable pseudorandom number
/// generators", OOPSLA 2014.
#[derive(Clone, Debug)]
pub struct SplitMix(pub u64);

impl SplitMix {
    /// The next 64 bits.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next_u64() % n
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]
    use super::*;
    use std::sync::Arc;

    use eggine_ir::Region;
    use eggine_ir::schedule::PointwiseSchedule;

    /// A line of schedules whose time falls towards `threads = 512`; the model predicts the reverse.
    struct Valley {
        judged: Vec<(usize, String)>,
        n_max: u64,
        rejected: Option<u32>,
    }

    struct NoMoves;

    impl eggine_rewrite::Moves for NoMoves {
        fn names(&self) -> &[&'static str] {
            &[]
        }

        fn neighbours(&self, _: usize, _: &Region, _: &Schedule) -> Vec<Schedule> {
            Vec::new()
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

    fn time_ns(schedule: &Schedule) -> f64 {
        1000.0 + (f64::from(threads_of(schedule)) - 512.0).abs()
    }

    impl Lab for Valley {
        type Error = std::convert::Infallible;

        fn moves(&self, _: usize, schedule: &Schedule) -> Vec<(&'static str, Schedule)> {
            let threads = threads_of(schedule);
            let near = [("less", threads.saturating_sub(32)), ("more", threads + 32)];
            near.into_iter()
                .filter(|(_, n)| (32..=1024).contains(n))
                .map(|(name, n)| (name, self::schedule(n)))
                .collect()
        }

        fn predict_ns(&self, _: usize, schedule: &Schedule) -> f64 {
            -time_ns(schedule)
        }

        fn judge(
            &mut self,
            candidate: &Candidate,
            incumbent: &Schedule,
        ) -> Result<Judgement, Self::Error> {
            self.judged.push((candidate.region, candidate.schedule.to_string()));
            if Some(threads_of(&candidate.schedule)) == self.rejected {
                return Ok(Judgement { median_ns: None, better: false });
            }
            let ns = time_ns(&candidate.schedule);
            Ok(Judgement { median_ns: Some(ns), better: ns < time_ns(incumbent) })
        }

        fn stop(&mut self, n_steps: u64, _: f64) -> bool {
            n_steps >= self.n_max
        }
    }

    fn arms(n_launches: &[u64]) -> Vec<Arm> {
        let region = Region::contiguous(
            eggine_ir::graph::parse(
                "graph @g(v0: f32[64]) {\n    v1 = relu v0\n    return v1\n}\n",
            )
            .unwrap(),
        );
        let arm = |&n| {
            let space = KernelSpace::new(region.clone(), schedule(256), Arc::new(NoMoves));
            Arm::new(n, space, time_ns(&schedule(256)))
        };
        n_launches.iter().map(arm).collect()
    }

    #[test]
    fn finds_the_best_although_the_model_misleads() {
        let mut lab = Valley { judged: Vec::new(), n_max: 200, rejected: None };
        let mut arms = arms(&[1]);
        let outcome = tune(&mut arms, &mut lab, 7).unwrap();
        assert_eq!(arms[0].best, schedule(512));
        assert!(outcome.exhausted, "every schedule within reach was judged");
        let mut unique = lab.judged.clone();
        unique.sort();
        unique.dedup();
        assert_eq!(unique.len(), lab.judged.len(), "nothing is judged twice");
    }

    #[test]
    fn the_same_judgements_give_the_same_search() {
        let run = |seed| {
            let mut lab = Valley { judged: Vec::new(), n_max: 12, rejected: None };
            tune(&mut arms(&[1, 3, 2]), &mut lab, seed).unwrap();
            lab.judged
        };
        assert_eq!(run(1), run(1));
        assert_ne!(run(1), run(2), "the seed matters");
    }

    #[test]
    fn measurements_go_where_the_time_is() {
        let mut lab = Valley { judged: Vec::new(), n_max: 20, rejected: None };
        tune(&mut arms(&[1, 50]), &mut lab, 0).unwrap();
        let on_second = lab.judged.iter().filter(|(region, _)| *region == 1).count();
        assert!(on_second > 12, "{on_second} of 20 on the region that takes 98 % of the time");
    }

    #[test]
    fn a_rejected_candidate_never_becomes_the_incumbent() {
        let mut lab = Valley { judged: Vec::new(), n_max: 200, rejected: Some(512) };
        let mut arms = arms(&[1]);
        tune(&mut arms, &mut lab, 3).unwrap();
        assert_ne!(arms[0].best, schedule(512));
    }
}
