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
    fn judge(&mut self, candidate: &Candidate, incumbent: &Schedule) -> Result<Judgement, Self::Error>;

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
        Self { n_launches, best, best_ns: ns, space, frontier: Vec::new(), n_tried: 0, saved_ns: 0.0 }
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
        let (parent, tiling_move) = considered.parent.expect("only the first schedule has no parent");
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
        let chosen = open.max_by(|a, b| a.1.value(n_steps).total_cmp(&b.1.value(n_steps)).then(b.0.cmp(&a.0)));
        let Some((region, _)) = chosen else {
            return Ok(Outcome { n_steps, exhausted: true });
        };
        let arm = &mut arms[region];
        // Mostly the best prediction; the model is not always right, so sometimes any.
        let nth = if random.below(5) == 0 { random.below(arm.frontier.len() as u64) as usize } else { 0 };
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
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not 0.
    pub fn below(&mut self, n: u64) -> u64 {
        self.next() % n
    }
}
