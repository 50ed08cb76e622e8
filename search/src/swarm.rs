//! The swarm: which candidate to try next, and on whose behalf, without touching a device.
//!
//! Every region of the current cover has a class of schedules in a kernel e-graph. Agents propose
//! members; a bandit chooses the agent and the region: what one more measurement there is expected to
//! save of the whole engine's time, from what the agent's measurements saved there, in this search and
//! (as [`Lessons`]) in earlier ones. The fuser's proposals are regions of other covers: when all of
//! one's are measured, the better cover becomes the current one. When nothing was gained for long, one
//! agent in turn is preferred for a while, and the search starts again from other good schedules.
//!
//! Everything is a function of the seed, the lessons and the judgements, so that a replay of recorded
//! judgements repeats the search.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use eggine_ir::Schedule;
use eggine_rewrite::agent::{Agent, Budget, Proposal, View};
use eggine_rewrite::{EGraph, KernelId, KernelSpace};
use eggine_runtime::engine::AgentRecord;

use crate::agents::FUSER;
use crate::lessons::Lessons;
use crate::random::SplitMix;

/// A schedule of a region that somebody proposes to try.
#[derive(Clone, Debug, PartialEq)]
pub struct Candidate {
    /// Number of the region.
    pub region: usize,
    /// What to try.
    pub schedule: Schedule,
    /// Who proposes it.
    pub agent: &'static str,
    /// The move that led to it.
    pub tiling_move: &'static str,
    /// What it was derived from.
    pub parent: Schedule,
}

/// What was found out about a candidate.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Judgement {
    /// Time over the time of the region's first schedule, measured in turns, or `None` if the candidate
    /// was rejected.
    pub ratio: Option<f64>,
    /// Whether it surely beats the best so far.
    pub better: bool,
}

/// The best schedule of a region so far.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    /// The schedule.
    pub schedule: Schedule,
    /// Its time over the time of the region's first schedule.
    pub ratio: f64,
}

/// A way to compute the model, as far as times are concerned: how often each region is launched.
pub type Shape = BTreeMap<usize, u64>;

/// A region that can be searched: its class, whose first schedule is verified and measured.
#[derive(Debug)]
pub struct Opened {
    /// The class.
    pub space: KernelSpace,
    /// Time of one launch of its first schedule.
    pub ns: f64,
}

/// What the swarm asks for.
pub trait Lab {
    /// Why the search cannot go on. A bad candidate is a judgement, not an error.
    type Error;

    /// Predicted time of one launch.
    fn predict_ns(&self, region: usize, schedule: &Schedule) -> f64;

    /// How much more than usual a region should be searched, whatever the bandit thinks of it.
    fn weight(&self, _region: usize) -> f64 {
        1.0
    }

    /// Verifies and measures the first schedule of a region. `None`: no kernel of it is right.
    ///
    /// # Errors
    ///
    /// If evidence cannot be read or written, or the device is lost.
    fn open(&mut self, region: usize) -> Result<Option<Opened>, Self::Error>;

    /// Judges a candidate against the region's first schedule, and if it looks better, the best so far.
    ///
    /// # Errors
    ///
    /// As [`open`](Self::open).
    fn judge(&mut self, candidate: &Candidate, best: Best) -> Result<Judgement, Self::Error>;

    /// Covers worth a look when these regions take these times: number and shape of each, the best as far
    /// as is known first.
    ///
    /// # Errors
    ///
    /// If none can be extracted.
    fn covers(
        &mut self,
        times_ns: &BTreeMap<usize, f64>,
    ) -> Result<Vec<(usize, Shape)>, Self::Error>;

    /// Whether to stop before the next candidate.
    fn stop(&mut self, status: &Status<'_>) -> bool;
}

/// How far the search is.
#[derive(Clone, Copy, Debug)]
pub struct Status<'a> {
    /// Candidates judged.
    pub n_steps: u64,
    /// Time of the best engine so far: best launches, summed.
    pub best_ns: f64,
    /// What each agent did.
    pub agents: &'a [AgentRecord],
}

/// Who chooses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Strategy {
    /// The bandit.
    #[default]
    Swarm,
    /// Chance: any agent, any region, any proposal. What the swarm is compared with.
    Random,
}

/// How the swarm works.
#[derive(Clone)]
pub struct Options {
    /// The agents of kernels.
    pub agents: Vec<Arc<dyn Agent>>,
    /// Whether other covers are measured.
    pub fuser: bool,
    /// Who chooses.
    pub strategy: Strategy,
    /// Of everything drawn.
    pub seed: u64,
    /// What is known from before.
    pub lessons: Lessons,
}

/// A region under search.
struct Region {
    space: KernelSpace,
    first: Schedule,
    first_ns: f64,
    best: KernelId,
    best_ns: f64,
    /// Launches in the current cover.
    n_launches: u64,
    /// Predicted times, by schedule.
    predicted: BTreeMap<Schedule, f64>,
    /// Measured times; `None` if rejected.
    judged: BTreeMap<KernelId, Option<f64>>,
    /// By agent: its proposals, best first. `None` if the class changed since.
    proposals: Vec<Option<Vec<Ranked>>>,
    /// What each agent proposed so far.
    proposed: BTreeSet<(usize, Schedule)>,
    /// By agent: measurements, and the part of the best time that they saved.
    credit: Vec<(u64, f64)>,
}

#[derive(Clone)]
struct Ranked {
    parent: KernelId,
    step: &'static str,
    schedule: Schedule,
    /// Predicted time over the predicted time of the best.
    ratio: f64,
}

/// Another cover.
struct Alternative {
    cover: usize,
    shape: Shape,
}

/// Candidates without any gain after which the mix changes.
const STALL_STEPS: u64 = 40;
/// For how long one agent is preferred then.
const BOOST_STEPS: u64 = 12;
/// How much.
const BOOST: f64 = 8.0;
/// A cover is better if it saves this part: sums of medians that were measured at different times.
const LEAST_COVER_GAIN: f64 = 0.01;
/// Candidates between two extractions.
const EXTRACTION_STEPS: u64 = 24;
/// What measuring a region of another cover is expected to save of the whole, at first: so much that covers
/// are compared before they are tuned, when the comparison is fair.
const FUSER_PRIOR: f64 = 0.02;
/// Measurements that this expectation is worth.
const FUSER_WEIGHT: f64 = 6.0;
/// A schedule this near to the best is worth a look at its neighbours.
const NEAR: f64 = 1.15;

/// See the [module](self).
pub struct Swarm {
    options: Options,
    regions: BTreeMap<usize, Region>,
    cover: usize,
    alternatives: VecDeque<Alternative>,
    /// Covers that were compared, by their shapes.
    compared: Vec<Shape>,
    random: SplitMix,
    empty: EGraph,
    records: Vec<AgentRecord>,
    fuser_credit: (u64, f64),
    n_steps: u64,
    n_since_gain: u64,
    n_since_extraction: u64,
    n_restarts: u64,
    boosted_until: u64,
    curve: Vec<(u64, f64)>,
}

/// What the search chose to do.
enum Choice {
    Schedule { region: usize, agent: usize },
    Cover,
}

impl Swarm {
    /// A swarm at the first cover: all of its regions are open. Judges nothing.
    ///
    /// # Panics
    ///
    /// If a region of the shape is not among the opened.
    pub fn new(
        cover: usize,
        shape: &Shape,
        opened: BTreeMap<usize, Opened>,
        options: Options,
    ) -> Self {
        let names = options.agents.iter().map(|agent| agent.name()).chain([FUSER]);
        let records = names
            .map(|name| AgentRecord { agent: name.to_owned(), ..AgentRecord::default() })
            .collect();
        let mut swarm = Self {
            regions: BTreeMap::new(),
            cover,
            alternatives: VecDeque::new(),
            compared: vec![shape.clone()],
            random: SplitMix(options.seed),
            empty: EGraph::default(),
            records,
            fuser_credit: (0, 0.0),
            n_steps: 0,
            n_since_gain: 0,
            n_since_extraction: EXTRACTION_STEPS,
            n_restarts: 0,
            boosted_until: 0,
            curve: Vec::new(),
            options,
        };
        for (number, opened) in opened {
            swarm.add(number, opened);
        }
        swarm.enter(cover, shape);
        swarm
    }

    /// The current cover.
    pub fn cover(&self) -> usize {
        self.cover
    }

    /// The best schedule of a region and its time.
    pub fn best(&self, region: usize) -> Option<(Schedule, f64)> {
        let region = self.regions.get(&region)?;
        Some((region.space.get(region.best).schedule, region.best_ns))
    }

    /// Best times of all regions that were opened.
    pub fn times_ns(&self) -> BTreeMap<usize, f64> {
        self.regions.iter().map(|(&number, region)| (number, region.best_ns)).collect()
    }

    /// Sum over the launches of the current cover, at the best times.
    pub fn total_ns(&self) -> f64 {
        self.regions.values().map(|region| region.best_ns * region.n_launches as f64).sum()
    }

    /// Candidates judged.
    pub fn n_steps(&self) -> u64 {
        self.n_steps
    }

    /// What each agent did.
    pub fn records(&self) -> &[AgentRecord] {
        &self.records
    }

    /// How often the mix of agents was changed because nothing was gained.
    pub fn n_restarts(&self) -> u64 {
        self.n_restarts
    }

    /// What was learned.
    pub fn lessons(&self) -> &Lessons {
        &self.options.lessons
    }

    /// Best time after so many candidates, whenever it changed.
    pub fn curve(&self) -> &[(u64, f64)] {
        &self.curve
    }

    fn add(&mut self, number: usize, opened: Opened) {
        let (first, considered) =
            opened.space.schedules().next().expect("a class has a first schedule");
        let mut region = Region {
            first: considered.schedule,
            first_ns: opened.ns,
            best: first,
            best_ns: opened.ns,
            n_launches: 0,
            predicted: BTreeMap::new(),
            judged: BTreeMap::from([(first, Some(opened.ns))]),
            proposals: vec![None; self.options.agents.len()],
            proposed: BTreeSet::new(),
            credit: vec![(0, 0.0); self.options.agents.len()],
            space: opened.space,
        };
        region.space.expand(first);
        self.regions.insert(number, region);
    }

    fn enter(&mut self, cover: usize, shape: &Shape) {
        self.cover = cover;
        for (number, region) in &mut self.regions {
            region.n_launches = shape.get(number).copied().unwrap_or(0);
        }
        self.mark();
    }

    /// Notes the best time, if it changed.
    fn mark(&mut self) {
        let total_ns = self.total_ns();
        if self.curve.last().is_none_or(|(_, before)| *before != total_ns) {
            self.curve.push((self.n_steps, total_ns));
        }
    }

    /// Tries candidates until the laboratory says stop or nothing is left to try; whether it was the
    /// latter.
    ///
    /// # Errors
    ///
    /// What the laboratory fails with; what was found before is kept.
    pub fn run<L: Lab>(&mut self, lab: &mut L) -> Result<bool, L::Error> {
        loop {
            let status =
                Status { n_steps: self.n_steps, best_ns: self.total_ns(), agents: &self.records };
            if lab.stop(&status) {
                return Ok(false);
            }
            self.look_for_covers(lab)?;
            let Some(choice) = self.choose(lab) else {
                if self.alternatives.is_empty() {
                    return Ok(true);
                }
                self.try_cover(lab)?;
                continue;
            };
            match choice {
                Choice::Cover => self.try_cover(lab)?,
                Choice::Schedule { region, agent } => self.try_schedule(lab, region, agent)?,
            }
            self.detect_stall();
        }
    }

    /// Extracts covers anew when those known have been compared and enough has been learned since.
    fn look_for_covers<L: Lab>(&mut self, lab: &mut L) -> Result<(), L::Error> {
        let due = self.options.fuser
            && self.alternatives.is_empty()
            && self.n_since_extraction >= EXTRACTION_STEPS;
        if !due {
            return Ok(());
        }
        self.n_since_extraction = 0;
        for (cover, shape) in lab.covers(&self.times_ns())? {
            if !self.compared.contains(&shape) {
                self.compared.push(shape.clone());
                self.records[self.options.agents.len()].n_proposed += 1;
                self.alternatives.push_back(Alternative { cover, shape });
            }
        }
        Ok(())
    }

    /// Asks agents whose proposals for a region are out of date.
    fn refresh<L: Lab>(&mut self, lab: &L, number: usize) {
        let Some(region) = self.regions.get_mut(&number) else { return };
        for (nth, agent) in self.options.agents.iter().enumerate() {
            if region.proposals[nth].is_some() {
                continue;
            }
            let view = View {
                egraph: &self.empty,
                kernels: std::slice::from_ref(&region.space),
                iteration: region.judged.len(),
            };
            let best = region.space.get(region.best).schedule;
            let lessons = &self.options.lessons;
            let predicted = &mut region.predicted;
            let mut predict = |schedule: &Schedule| {
                let ns =
                    *predicted.entry(*schedule).or_insert_with(|| lab.predict_ns(number, schedule));
                ns * lessons.correction(schedule)
            };
            let best_ns = predict(&best);
            let mut ranked: Vec<Ranked> = Vec::new();
            for proposal in agent.propose(&view, Budget { n_proposals: 64 }) {
                let Proposal::Schedule { kernel: 0, parent, step, schedule } = proposal else {
                    continue;
                };
                let known = region.space.schedules().any(|(_, known)| known.schedule == schedule);
                if known || ranked.iter().any(|it| it.schedule == schedule) {
                    continue;
                }
                let ratio = predict(&schedule) / best_ns;
                if ratio.is_finite() {
                    let new = region.proposed.insert((nth, schedule));
                    self.records[nth].n_proposed += u64::from(new);
                    ranked.push(Ranked { parent, step, schedule, ratio });
                }
            }
            ranked.sort_by(|a, b| a.ratio.total_cmp(&b.ratio).then(a.schedule.cmp(&b.schedule)));
            region.proposals[nth] = Some(ranked);
        }
    }

    fn choose<L: Lab>(&mut self, lab: &L) -> Option<Choice> {
        let active: Vec<usize> = (self.regions.iter())
            .filter(|(_, region)| region.n_launches > 0)
            .map(|(&number, _)| number)
            .collect();
        active.iter().for_each(|&number| self.refresh(lab, number));
        let mut options: Vec<(f64, Choice)> = Vec::new();
        for number in active {
            let region = &self.regions[&number];
            for (agent, proposals) in region.proposals.iter().enumerate() {
                if let Some(best) = proposals.iter().flatten().next() {
                    let value = lab.weight(number) * self.value(region, agent, best.ratio);
                    options.push((value, Choice::Schedule { region: number, agent }));
                }
            }
        }
        if !self.alternatives.is_empty() {
            let (n, saved) = self.fuser_credit;
            let gain = (FUSER_WEIGHT * FUSER_PRIOR + saved) / (FUSER_WEIGHT + n as f64);
            let boost = self.boost(self.options.agents.len());
            options.push((boost * gain * self.total_ns(), Choice::Cover));
        }
        if self.options.strategy == Strategy::Random && !options.is_empty() {
            let nth = self.random.below(options.len() as u64) as usize;
            return Some(options.swap_remove(nth).1);
        }
        // Of equal values the first.
        let best = options.into_iter().reduce(|a, b| if b.0 > a.0 { b } else { a });
        best.map(|(_, choice)| choice)
    }

    /// What one more measurement is expected to save over the whole engine.
    fn value(&self, region: &Region, agent: usize, ratio: f64) -> f64 {
        let share = region.best_ns * region.n_launches as f64;
        let (n, saved) = region.credit[agent];
        let name = self.options.agents[agent].name();
        // What an agent did elsewhere is worth two measurements here.
        let expected = self.options.lessons.expected_gain(name, region.first.family());
        let gain = (2.0 * expected + saved) / (2.0 + n as f64);
        // What the model promises, of which a quarter is usually kept.
        let promise = 0.25 * (1.0 - ratio).clamp(0.0, 0.5) / (1.0 + n as f64);
        let bonus = 0.002 * ((self.n_steps as f64 + 1.0).ln() / (n as f64 + 1.0)).sqrt();
        self.boost(agent) * share * (gain + promise + bonus)
    }

    fn boost(&self, agent: usize) -> f64 {
        let n_agents = self.records.len() as u64;
        let preferred = self.n_steps < self.boosted_until
            && (self.n_restarts % n_agents.max(1)) as usize == agent;
        if preferred { BOOST } else { 1.0 }
    }

    fn try_schedule<L: Lab>(
        &mut self,
        lab: &mut L,
        number: usize,
        agent: usize,
    ) -> Result<(), L::Error> {
        let chance = self.options.strategy == Strategy::Random;
        let region = self.regions.get_mut(&number).expect("it was chosen among them");
        let proposals = region.proposals[agent].as_ref().expect("they are fresh");
        // Mostly the best prediction; the model is not always right, so sometimes any.
        let any = chance || self.random.below(6) == 0;
        let nth = if any { self.random.below(proposals.len() as u64) as usize } else { 0 };
        let Ranked { parent, step, schedule, .. } = proposals[nth].clone();
        let id = region.space.consider(parent, step, schedule).expect("proposals are unknown");
        let name = self.options.agents[agent].name();
        let candidate = Candidate {
            region: number,
            schedule,
            agent: name,
            tiling_move: step,
            parent: region.space.get(parent).schedule,
        };
        let best = Best {
            schedule: region.space.get(region.best).schedule,
            ratio: region.best_ns / region.first_ns,
        };
        let judgement = lab.judge(&candidate, best)?;
        self.n_steps += 1;
        self.n_since_gain += 1;
        self.n_since_extraction += 1;
        let record = &mut self.records[agent];
        record.n_judged += 1;
        let region = self.regions.get_mut(&number).expect("it was chosen among them");
        // Medians of other times and other noise are not compared: all is relative to the first.
        let ns = judgement.ratio.map(|ratio| ratio * region.first_ns);
        region.judged.insert(id, ns);
        region.proposals.fill(None);
        region.credit[agent].0 += 1;
        let mut saved = 0.0;
        match ns {
            None => record.n_rejected += 1,
            Some(ns) => {
                let predicted = |schedule: &Schedule| {
                    region
                        .predicted
                        .get(schedule)
                        .copied()
                        .unwrap_or_else(|| lab.predict_ns(number, schedule))
                };
                let expected = predicted(&schedule) / predicted(&region.first);
                self.options.lessons.observe(&schedule, ns / region.first_ns, expected);
                if judgement.better {
                    saved = ((region.best_ns - ns) / region.best_ns).max(0.0);
                    record.n_better += 1;
                    record.saved_ns +=
                        ((region.best_ns - ns).max(0.0) * region.n_launches as f64) as u64;
                    (region.best, region.best_ns) = (id, ns);
                    self.n_since_gain = 0;
                }
                // Neighbours of everything near the best are worth a look; chance looks everywhere.
                if chance || judgement.better || ns < NEAR * region.best_ns {
                    region.space.expand(id);
                }
            }
        }
        region.credit[agent].1 += saved;
        self.options.lessons.credit(name, schedule.family(), saved);
        self.mark();
        Ok(())
    }

    /// Opens the next region of the next alternative; if none is missing, compares.
    fn try_cover<L: Lab>(&mut self, lab: &mut L) -> Result<(), L::Error> {
        let fuser = self.options.agents.len();
        let Some(next) = self.alternatives.front() else { return Ok(()) };
        let missing = next.shape.keys().find(|number| !self.regions.contains_key(number)).copied();
        if let Some(number) = missing {
            let opened = lab.open(number)?;
            self.n_steps += 1;
            self.n_since_gain += 1;
            self.n_since_extraction += 1;
            self.fuser_credit.0 += 1;
            self.records[fuser].n_judged += 1;
            match opened {
                Some(opened) => self.add(number, opened),
                None => {
                    self.records[fuser].n_rejected += 1;
                    self.alternatives.retain(|it| !it.shape.contains_key(&number));
                }
            }
        }
        while let Some(next) = self.alternatives.front() {
            if next.shape.keys().any(|number| !self.regions.contains_key(number)) {
                break;
            }
            let Alternative { cover, shape } = self.alternatives.pop_front().expect("it is there");
            let total_ns = self.total_ns();
            let other_ns: f64 =
                shape.iter().map(|(number, &n)| self.regions[number].best_ns * n as f64).sum();
            if other_ns < (1.0 - LEAST_COVER_GAIN) * total_ns {
                self.fuser_credit.1 += (total_ns - other_ns) / total_ns;
                self.records[fuser].n_better += 1;
                self.records[fuser].saved_ns += (total_ns - other_ns) as u64;
                self.n_since_gain = 0;
                self.enter(cover, &shape);
            }
        }
        Ok(())
    }

    /// Changes the mix when nothing was gained for long.
    fn detect_stall(&mut self) {
        if self.options.strategy == Strategy::Random || self.n_since_gain < STALL_STEPS {
            return;
        }
        self.n_restarts += 1;
        self.n_since_gain = 0;
        self.boosted_until = self.n_steps + BOOST_STEPS;
        // Start again from good schedules whose neighbours nobody looked at.
        for region in self.regions.values_mut().filter(|region| region.n_launches > 0) {
            let second = (region.judged.iter())
                .filter_map(|(&id, ns)| Some(((*ns)?, id)))
                .filter(|(ns, _)| *ns >= NEAR * region.best_ns)
                .min_by(|a, b| a.0.total_cmp(&b.0));
            if let Some((_, id)) = second {
                region.space.expand(id);
                region.proposals.fill(None);
            }
        }
        tracing::info!(
            restart = self.n_restarts,
            step = self.n_steps,
            "stalled: another mix of agents"
        );
    }
}

#[cfg(test)]
#[path = "swarm_tests.rs"]
mod tests;
