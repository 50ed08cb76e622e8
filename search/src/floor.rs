//! The shop floor of a compilation: covers, the first right kernel of each of their regions, and the
//! laboratory that the swarm sends its candidates to.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use eggine_codegen_ptx::{classify_on, first_schedule_on, schedule_of};
use eggine_ir::Schedule;
use eggine_rewrite::{Cover, KernelSpace, Optimiser, RegionId, TensorDef};
use eggine_runtime::Verification;
use eggine_runtime::timing::median;
use rayon::prelude::*;

use crate::compile::CompileError;
use crate::costs::{Costs, CostsRecord};
use crate::external::{EvidenceView, ExternalAgent};
use crate::gate::Gate;
use crate::memory::kind_of;
use crate::moves::{CodegenMoves, OTHER_FAMILY, other_families};
use crate::phases::Phase;
use crate::progress::{Progress, Snapshot};
use crate::swarm::{Best, Candidate, Judgement, Lab, Opened, Shape, Status};
use crate::workshop::{Origin, Prepared, Subject, Workshop, WorkshopError, prepare};

/// How often extraction is repeated when a region that it chose turns out to have no right kernel.
const MAX_RETRIES: usize = 8;

/// A win by less than this is not worth a change that was measured alone.
const LEAST_GAIN: f64 = 0.01;

/// When to stop.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// After so many candidates, counted from evidence or measured.
    pub(crate) n_steps: Option<u64>,
    /// At this moment.
    pub(crate) deadline: Option<Instant>,
}

/// A region with its first right kernel.
pub(crate) struct First {
    pub(crate) schedule: Schedule,
    pub(crate) prepared: Prepared,
    pub(crate) verification: Verification,
    pub(crate) measured_ns: Option<f64>,
    pub(crate) proof: Option<String>,
}

/// A cover, and how it is extracted again.
pub(crate) struct Extracted {
    pub(crate) cover: Cover,
    /// Numbers of its regions.
    pub(crate) numbers: BTreeMap<RegionId, usize>,
    /// What was known of costs.
    pub(crate) costs: Arc<CostsRecord>,
    /// How many covers were asked for.
    pub(crate) k: usize,
    /// Which of them this is.
    pub(crate) nth: usize,
}

impl Extracted {
    /// How often each region is launched.
    pub(crate) fn shape(&self) -> Shape {
        let mut shape = Shape::new();
        for (_, region) in self.cover.kernels() {
            *shape.entry(self.numbers[&region]).or_default() += 1;
        }
        shape
    }
}

/// See the [module](self).
pub(crate) struct Floor<'a> {
    pub(crate) workshop: Workshop<'a>,
    pub(crate) costs: Costs,
    pub(crate) optimiser: Optimiser<'a>,
    pub(crate) gate: Gate,
    /// Every region that was looked at; numbers are positions.
    pub(crate) subjects: Vec<Subject>,
    number_of: BTreeMap<String, usize>,
    pub(crate) firsts: BTreeMap<usize, First>,
    pub(crate) covers: Vec<Extracted>,
    /// Kernels of the best schedules, made when needed.
    pub(crate) incumbents: BTreeMap<usize, (Schedule, Prepared)>,
    /// The row that each passed candidate rests on, and who proposed it.
    pub(crate) proofs: BTreeMap<(usize, Schedule), Proof>,
    /// What is predicted of schedules from their machine code.
    pub(crate) refined_ns: BTreeMap<(usize, Schedule), f64>,
    /// Whether kernels are measured, or only verified.
    pub(crate) measures: bool,
    /// Covers to extract at once.
    pub(crate) k: usize,
    /// Largest error of a kernel, as a fraction of its bound.
    pub(crate) max_error: f64,
    /// Candidates that were right, but not within `max_error`.
    pub(crate) n_over_error: u64,
    /// Schedules to try instead of first choices, by kind of region.
    pub(crate) hints: BTreeMap<String, Vec<Schedule>>,
    /// Agents that are told of judgements.
    pub(crate) external: Vec<Arc<ExternalAgent>>,
    pub(crate) limits: Limits,
    pub(crate) interrupt: &'a AtomicBool,
    pub(crate) progress: Progress,
    pub(crate) started: Instant,
    /// Since when candidates are judged, for rates.
    pub(crate) search_started: Option<Instant>,
}

/// What is known of a candidate that passed.
#[derive(Clone, Debug)]
pub(crate) struct Proof {
    pub(crate) row: String,
    pub(crate) agent: &'static str,
    pub(crate) median_ns: f64,
}

impl<'a> Floor<'a> {
    pub(crate) fn new(
        workshop: Workshop<'a>,
        costs: Costs,
        optimiser: Optimiser<'a>,
        interrupt: &'a AtomicBool,
        progress: Progress,
        started: Instant,
    ) -> Self {
        Self {
            workshop,
            costs,
            optimiser,
            gate: Gate::default(),
            subjects: Vec::new(),
            number_of: BTreeMap::new(),
            firsts: BTreeMap::new(),
            covers: Vec::new(),
            incumbents: BTreeMap::new(),
            proofs: BTreeMap::new(),
            refined_ns: BTreeMap::new(),
            measures: false,
            k: 1,
            max_error: 1.0,
            n_over_error: 0,
            hints: BTreeMap::new(),
            external: Vec::new(),
            limits: Limits { n_steps: None, deadline: None },
            interrupt,
            progress,
            started,
            search_started: None,
        }
    }

    /// Forgets covers, kernels and costs: begins anew.
    pub(crate) fn forget(&mut self) {
        self.costs.restore(&CostsRecord::default());
        self.covers.clear();
        self.firsts.clear();
        self.incumbents.clear();
        self.proofs.clear();
        self.k = 1;
    }

    /// Shows what is being done.
    pub(crate) fn show(&mut self, phase: &'static str) {
        let counts = self.workshop.counts;
        let snapshot = Snapshot {
            phase,
            n_candidates: counts.n_candidates,
            n_measured: counts.n_measured,
            n_rejected: counts.n_rejected,
            elapsed_s: self.started.elapsed().as_secs_f64(),
            ..Snapshot::default()
        };
        self.progress.show(&snapshot, true);
    }

    /// The number of a region.
    fn number(&mut self, region: &eggine_ir::Region) -> usize {
        let hash = region.hash_hex();
        *self.number_of.entry(hash.clone()).or_insert_with(|| {
            self.subjects.push(Subject { region: region.clone(), hash });
            self.subjects.len() - 1
        })
    }

    /// Extracts covers under the present costs, and numbers their regions.
    pub(crate) fn extract(&mut self) -> Result<Vec<usize>, CompileError> {
        let k = self.k;
        let (optimiser, costs) = (&self.optimiser, &self.costs);
        let covers = self.workshop.phases.time(Phase::Rewrite, |_| optimiser.covers(costs, k))?;
        let record = Arc::new(self.costs.record());
        let first = self.covers.len();
        for (nth, cover) in covers.into_iter().enumerate() {
            let regions: Vec<_> = cover.regions.iter().map(|(id, it)| (id, it.clone())).collect();
            let numbers = regions.iter().map(|(id, region)| (*id, self.number(region))).collect();
            let costs = Arc::clone(&record);
            self.covers.push(Extracted { cover, numbers, costs, k, nth });
        }
        Ok((first..self.covers.len()).collect())
    }

    /// The best cover all of whose regions have a right kernel.
    pub(crate) fn first_cover(&mut self) -> Result<usize, CompileError> {
        for attempt in 0.. {
            self.show("rewrite");
            let best = self.extract()?[0];
            self.show("verify");
            let numbers: Vec<usize> = self.covers[best].numbers.values().copied().collect();
            match self.make_firsts(&numbers, best)? {
                None => return Ok(best),
                Some((number, failure)) if attempt < MAX_RETRIES => {
                    let region = self.subjects[number].hash.clone();
                    tracing::warn!(region, reason = %failure, "region has no right kernel; extracting again");
                    self.costs.forbid(&region);
                }
                Some((_, failure)) => return Err(failure),
            }
        }
        unreachable!("the loop returns")
    }

    /// Makes sure that each of these regions has a verified kernel. `Some`: one has none.
    fn make_firsts(
        &mut self,
        numbers: &[usize],
        cover: usize,
    ) -> Result<Option<(usize, CompileError)>, CompileError> {
        let target = self.workshop.target;
        let mut todo: Vec<usize> =
            numbers.iter().copied().filter(|number| !self.firsts.contains_key(number)).collect();
        todo.sort_unstable();
        todo.dedup();
        let (subjects, chip) = (&self.subjects, self.costs.chip());
        let made: Vec<_> = self.workshop.phases.time(Phase::Emit, |_| {
            todo.into_par_iter()
                .map(|number| {
                    let subject = &subjects[number];
                    let schedule = first_schedule_on(&subject.region, chip);
                    let prepared = schedule.map(|it| prepare(subject, &it, target));
                    (number, schedule.zip(prepared))
                })
                .collect()
        });
        let wanted: Vec<_> = (made.iter())
            .filter_map(|(number, made)| Some((&self.subjects[*number], made.as_ref()?.0)))
            .collect();
        self.workshop.check_nearby(&wanted)?;
        for (number, made) in made {
            match self.make_first(number, made)? {
                Ok(first) => {
                    let first = self.hinted(number, first)?;
                    self.firsts.insert(number, first);
                }
                Err(reason) => {
                    let sources = sources_of(&self.covers[cover], number).join(", ");
                    let region = self.subjects[number].region.to_string();
                    let failure = CompileError::NoKernel { sources, reason, region };
                    return Ok(Some((number, failure)));
                }
            }
        }
        Ok(None)
    }

    /// The first right kernel of a region, or why there is none.
    #[allow(
        clippy::type_complexity,
        reason = "the outer error ends the search, the inner does not"
    )]
    fn make_first(
        &mut self,
        number: usize,
        made: Option<(Schedule, Result<Prepared, String>)>,
    ) -> Result<Result<First, String>, WorkshopError> {
        let mut reason = "does not exist: no kernel family takes it".to_owned();
        if let Some((schedule, prepared)) = made {
            match self.try_first(number, schedule, prepared)? {
                Ok(first) => return Ok(Ok(first)),
                Err(why) => reason = why,
            }
        }
        // The other families, in order of preference; the universal one is last.
        let families = classify_on(&self.subjects[number].region, self.costs.chip());
        for family in families.into_iter().skip(1) {
            let subject = self.subjects[number].clone();
            if let Some(schedule) = schedule_of(&subject.region, family) {
                let prepared = self.workshop.prepare(&subject, &schedule);
                match self.try_first(number, schedule, prepared)? {
                    Ok(first) => return Ok(Ok(first)),
                    Err(why) => reason = why,
                }
            }
        }
        Ok(Err(reason))
    }

    /// A first choice: verified, and measured if this is a search.
    #[allow(
        clippy::type_complexity,
        reason = "the outer error ends the search, the inner does not"
    )]
    fn try_first(
        &mut self,
        number: usize,
        schedule: Schedule,
        prepared: Result<Prepared, String>,
    ) -> Result<Result<First, String>, WorkshopError> {
        let prepared = match prepared {
            Ok(prepared) => prepared,
            Err(err) => return Ok(Err(format!("cannot be made: {err}"))),
        };
        let subject = self.subjects[number].clone();
        let (mut measured_ns, mut proof) = (None, None);
        if self.measures {
            let evidence = self.workshop.evidence;
            let text = subject.region.to_string();
            self.workshop
                .phases
                .time(Phase::Evidence, |_| evidence.insert_region(&subject.hash, &text))?;
            let origin = Origin { agent: "model", tiling_move: "first", parent: "" };
            let row = self.workshop.judge(&subject, &schedule, &prepared, None, origin)?;
            self.external.iter().for_each(|it| it.hear(&EvidenceView::from(&row)));
            if !row.passed() {
                return Ok(Err(row.verdict));
            }
            // A time that is not believed is none.
            measured_ns = (row.median_ns > 0.0).then_some(row.median_ns);
            proof = Some(row.key.hash());
        }
        let verification = self.workshop.verify(&subject, &prepared)?;
        if !verification.accepted() {
            let reason = verification.verdict.to_string();
            tracing::warn!(%schedule, %reason, "first choice rejected");
            return Ok(Err(reason));
        }
        if verification.error_ratio() > self.max_error {
            self.n_over_error += 1;
            return Ok(Err(format!(
                "has an error of {:.3} of its bound, the job allows {:.3}",
                verification.error_ratio(),
                self.max_error
            )));
        }
        Ok(Ok(First { schedule, prepared, verification, measured_ns, proof }))
    }

    /// The first kernel of a region, or one under a schedule that was good at other extents, if that is
    /// right here and surely faster. A search finds out by itself.
    fn hinted(&mut self, number: usize, mut first: First) -> Result<First, WorkshopError> {
        if self.measures || self.hints.is_empty() {
            return Ok(first);
        }
        let subject = self.subjects[number].clone();
        let hints = self.hints.get(&kind_of(&subject.region)).cloned().unwrap_or_default();
        let own = first.schedule;
        let mut best_ratio = 1.0 - LEAST_GAIN;
        let mut better: Option<(Schedule, Prepared)> = None;
        for hint in hints.into_iter().filter(|hint| *hint != own) {
            // What is not legal at these extents is no candidate.
            let Ok(prepared) = self.workshop.prepare(&subject, &hint) else { continue };
            let parent = own.to_string();
            let origin = Origin { agent: "range", tiling_move: "hint", parent: &parent };
            let reference = Some(&first.prepared);
            let row = self.workshop.judge(&subject, &hint, &prepared, reference, origin)?;
            let before: Vec<f64> = row.incumbent_ns.iter().map(|&ns| ns as f64).collect();
            let ratio = median(&before).map_or(f64::INFINITY, |ns| row.median_ns / ns);
            let is_faster = row.passed() && row.decision == "faster" && ratio < best_ratio;
            if is_faster && row.error_of_bound <= self.max_error {
                best_ratio = ratio;
                better = Some((hint, prepared));
            }
        }
        let Some((schedule, prepared)) = better else { return Ok(first) };
        let verification = self.workshop.verify(&subject, &prepared)?;
        if verification.accepted() {
            first = First { schedule, prepared, verification, ..first };
        }
        Ok(first)
    }

    /// The class of a region that has a first kernel.
    pub(crate) fn opened(&self, number: usize) -> Opened {
        let first = &self.firsts[&number];
        let region = self.subjects[number].region.clone();
        let others = other_families(&region, &first.schedule);
        let mut space = KernelSpace::new(region, first.schedule, Arc::new(CodegenMoves));
        let (root, _) = space.schedules().next().expect("a class has a first schedule");
        others.into_iter().for_each(|other| space.offer(root, OTHER_FAMILY, other));
        Opened { space, ns: first.measured_ns.unwrap_or(0.0) }
    }

    /// Whether a text of this hash was verified, now or when the recipe was written that named it.
    pub(crate) fn is_verified(&self, ptx_hash: &str) -> bool {
        let is_first =
            |first: &First| first.prepared.ptx_hash == ptx_hash && first.verification.accepted();
        self.workshop.is_verified(ptx_hash) || self.firsts.values().any(is_first)
    }

    /// Makes the kernel of a region under a schedule that was made before.
    pub(crate) fn remake(&mut self, number: usize, schedule: &Schedule) {
        let known = self.incumbents.get(&number).is_some_and(|(known, _)| known == schedule);
        if known || self.firsts.get(&number).is_some_and(|first| first.schedule == *schedule) {
            return;
        }
        let subject = self.subjects[number].clone();
        let prepared = self.workshop.prepare(&subject, schedule);
        let prepared = prepared.expect("a kernel that was made before is made again");
        self.incumbents.insert(number, (*schedule, prepared));
    }

    /// The kernel of a region after [`remake`](Self::remake).
    pub(crate) fn kernel(&self, number: usize, schedule: &Schedule) -> &Prepared {
        match self.firsts.get(&number).filter(|first| first.schedule == *schedule) {
            Some(first) => &first.prepared,
            None => &self.incumbents[&number].1,
        }
    }
}

/// Names of the model's nodes that a region of a cover computes.
fn sources_of(extracted: &Extracted, number: usize) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for (tensor, region) in extracted.cover.kernels() {
        if extracted.numbers[&region] == number
            && let TensorDef::Kernel { sources, .. } = &extracted.cover.tensors[tensor]
        {
            names.extend(sources.iter().cloned());
        }
    }
    names.sort();
    names.dedup();
    names
}

impl Lab for Floor<'_> {
    type Error = CompileError;

    fn weight(&self, region: usize) -> f64 {
        self.external.iter().map(|it| it.weight(&self.subjects[region].hash)).product()
    }

    fn predict_ns(&self, region: usize, schedule: &Schedule) -> f64 {
        self.costs.predict_schedule_ns(&self.subjects[region].region, schedule)
    }

    fn open(&mut self, region: usize) -> Result<Option<Opened>, CompileError> {
        if !self.firsts.contains_key(&region) {
            let subject = self.subjects[region].clone();
            let schedule = first_schedule_on(&subject.region, self.costs.chip());
            let made = schedule.map(|it| (it, self.workshop.prepare(&subject, &it)));
            match self.make_first(region, made)? {
                Ok(first) => drop(self.firsts.insert(region, first)),
                Err(reason) => {
                    tracing::info!(
                        region = subject.hash,
                        reason,
                        "region of another cover has no right kernel"
                    );
                    self.costs.forbid(&subject.hash);
                    return Ok(None);
                }
            }
        }
        Ok(Some(self.opened(region)))
    }

    fn judge(&mut self, candidate: &Candidate, best: Best) -> Result<Judgement, CompileError> {
        let number = candidate.region;
        let subject = self.subjects[number].clone();
        let prepared = match self.workshop.prepare(&subject, &candidate.schedule) {
            Ok(prepared) => prepared,
            Err(reason) => {
                tracing::debug!(schedule = %candidate.schedule, reason, "not lowered");
                let parent = candidate.parent.to_string();
                let (agent, tiling_move) = (candidate.agent, candidate.tiling_move);
                let origin = Origin { agent, tiling_move, parent: &parent };
                self.workshop.refuse(&subject, &candidate.schedule, &reason, origin)?;
                return Ok(Judgement { ratio: None, better: false });
            }
        };
        let parent = candidate.parent.to_string();
        let origin =
            Origin { agent: candidate.agent, tiling_move: candidate.tiling_move, parent: &parent };
        let reference = &self.firsts[&number].prepared;
        let schedule = &candidate.schedule;
        let row = self.workshop.judge(&subject, schedule, &prepared, Some(reference), origin)?;
        self.external.iter().for_each(|it| it.hear(&EvidenceView::from(&row)));
        let within = row.error_of_bound <= self.max_error;
        self.n_over_error += u64::from(row.passed() && !within);
        let before: Vec<f64> = row.incumbent_ns.iter().map(|&ns| ns as f64).collect();
        let ratio = median(&before).map(|before_ns| row.median_ns / before_ns);
        let usable = |ratio: &f64| row.passed() && within && ratio.is_finite() && *ratio > 0.0;
        let Some(ratio) = ratio.filter(usable) else {
            return Ok(Judgement { ratio: None, better: false });
        };
        if ratio >= (1.0 - LEAST_GAIN) * best.ratio {
            return Ok(Judgement { ratio: Some(ratio), better: false });
        }
        self.remake(number, &best.schedule);
        let incumbent = match self.firsts.get(&number).filter(|it| it.schedule == best.schedule) {
            Some(first) => &first.prepared,
            None => &self.incumbents[&number].1,
        };
        let duel = self.workshop.duel(&subject, &prepared, incumbent)?;
        if duel.decision != "faster" || duel.ratio > 1.0 - LEAST_GAIN {
            return Ok(Judgement { ratio: Some(ratio), better: false });
        }
        let proof = Proof { row: row.key.hash(), agent: candidate.agent, median_ns: row.median_ns };
        self.proofs.insert((number, candidate.schedule), proof);
        self.incumbents.insert(number, (candidate.schedule, prepared));
        // Of what was chosen for being low the second measurement is believed.
        Ok(Judgement { ratio: Some(duel.ratio * best.ratio), better: true })
    }

    fn covers(
        &mut self,
        times_ns: &BTreeMap<usize, f64>,
    ) -> Result<Vec<(usize, Shape)>, CompileError> {
        let Self { costs, firsts, subjects, .. } = self;
        costs.learn(times_ns.iter().filter_map(|(number, &best_ns)| {
            let (first, subject) = (firsts.get(number)?, &subjects[*number]);
            Some((
                &subject.region,
                subject.hash.as_str(),
                &first.schedule,
                first.measured_ns?,
                best_ns,
            ))
        }));
        let found = self.extract()?;
        Ok(found.into_iter().map(|cover| (cover, self.covers[cover].shape())).collect())
    }

    fn stop(&mut self, status: &Status<'_>) -> bool {
        let counts = self.workshop.counts;
        let now = Instant::now();
        let elapsed_s =
            now.duration_since(self.search_started.unwrap_or(self.started)).as_secs_f64();
        let left = self.limits.deadline.map(|deadline| deadline.saturating_duration_since(now));
        let per_second = status.n_steps as f64 / elapsed_s.max(1e-9);
        let eta_s = left.map(|left| left.as_secs_f64()).or_else(|| {
            let n_left = self.limits.n_steps?.saturating_sub(status.n_steps);
            (status.n_steps > 0).then(|| n_left as f64 / per_second)
        });
        let snapshot = Snapshot {
            phase: "search",
            n_candidates: counts.n_candidates,
            n_measured: counts.n_measured,
            n_rejected: counts.n_rejected,
            best_ns: Some(status.best_ns as u64),
            per_second,
            elapsed_s: self.started.elapsed().as_secs_f64(),
            eta_s,
            agents: status.agents.to_vec(),
        };
        self.progress.show(&snapshot, false);
        self.interrupt.load(Ordering::SeqCst)
            || self.limits.n_steps.is_some_and(|limit| status.n_steps >= limit)
            || left == Some(Duration::ZERO)
    }
}
