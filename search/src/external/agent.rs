//! An external agent as an agent of the kernel e-graphs: it is asked when what it proposed for a region
//! is used up and there is news, and what it proposed waits until the swarm chooses it.

use std::collections::BTreeMap;
use std::sync::Mutex;

use eggine_codegen_ptx::neighbours;
use eggine_ir::{Region, Schedule};
use eggine_rewrite::agent::{Agent, Budget, Proposal, View};
use eggine_rewrite::rule_file::CheckedRules;

use super::{EvidenceView, External, ExternalOptions, RegionView, ScheduleSource, TuneView};

/// Schedules asked for at once.
const N_ASKED: usize = 8;

/// How far an agent may shift the search to a region or away from it.
const WEIGHTS: std::ops::RangeInclusive<f64> = 0.25..=4.0;

/// See the [module](self).
pub(crate) struct ExternalAgent {
    name: &'static str,
    state: Mutex<State>,
}

struct State {
    external: External,
    regions: Vec<Known>,
    news: Vec<EvidenceView>,
    /// Best schedules heard of and their times, by hash of the region.
    bests: BTreeMap<String, (Schedule, f64)>,
    /// Launches in one inference, by hash of the region.
    n_launches: BTreeMap<String, u64>,
    /// Whether anything happened since the last question.
    has_news: bool,
}

struct Known {
    hash: String,
    region: Region,
    first: Schedule,
    waiting: Vec<Schedule>,
}

impl ExternalAgent {
    /// Starts the command.
    pub(crate) fn start(command: &str, options: ExternalOptions) -> Self {
        let external = External::start(command, options);
        let name = crate::agents::intern(external.name());
        let state = State {
            external,
            regions: Vec::new(),
            news: Vec::new(),
            bests: BTreeMap::new(),
            n_launches: BTreeMap::new(),
            has_news: true,
        };
        Self { name, state: Mutex::new(state) }
    }

    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        f(&mut self.state.lock().expect("nothing panics while it holds the lock"))
    }

    /// The rules that it proposes and that are true.
    pub(crate) fn rules(&self) -> CheckedRules {
        self.with(|state| state.external.rules())
    }

    /// Takes note of a judgement.
    pub(crate) fn hear(&self, row: &EvidenceView) {
        self.with(|state| {
            if !state.external.is_running() {
                return;
            }
            let best = state.bests.get(&row.region).map_or(f64::INFINITY, |(_, ns)| *ns);
            if let (Some(ns), Ok(schedule)) = (row.median_ns, row.schedule.parse::<Schedule>())
                && ns < best
            {
                state.bests.insert(row.region.clone(), (schedule, ns));
            }
            state.news.push(row.clone());
            state.has_news = true;
        });
    }

    /// Says how often regions are launched in one inference, by hash.
    pub(crate) fn set_launches(&self, n_launches: BTreeMap<String, u64>) {
        self.with(|state| state.n_launches = n_launches);
    }

    /// How much more than usual it wants a region searched.
    pub(crate) fn weight(&self, hash: &str) -> f64 {
        let weight = self.with(|state| state.external.weights().get(hash).copied());
        weight.map_or(1.0, |weight| weight.clamp(*WEIGHTS.start(), *WEIGHTS.end()))
    }

    /// What became of it, a line each.
    pub(crate) fn report(&self) -> Vec<String> {
        const MAX_FAULTS: usize = 8;
        self.with(|state| {
            let external = &state.external;
            let faults = external.faults();
            let mut lines = vec![format!(
                "{}: {} legal schedules proposed, {} faults, {} lines of budget left",
                self.name,
                external.n_proposed(),
                faults.len(),
                external.budget_left()
            )];
            lines.extend(faults.iter().take(MAX_FAULTS).map(|it| format!("{}: {it}", self.name)));
            if faults.len() > MAX_FAULTS {
                lines.push(format!("{}: … and {} more", self.name, faults.len() - MAX_FAULTS));
            }
            lines
        })
    }
}

impl State {
    /// Asks about all regions; what is proposed waits there.
    fn ask(&mut self) {
        let regions = self.regions.iter().enumerate().map(|(region, known)| {
            let best = self.bests.get(&known.hash);
            let schedule = best.map_or(known.first, |best| best.0);
            RegionView {
                region,
                hash: &known.hash,
                graph: &known.region,
                n_launches: self.n_launches.get(&known.hash).copied().unwrap_or(1),
                best: schedule,
                best_ns: best.map(|best| best.1),
                neighbours: neighbours(&known.region, &schedule),
            }
        });
        let evidence = std::mem::take(&mut self.news);
        let view = TuneView { regions: regions.collect(), evidence, n_left: None };
        let found = self.external.propose(&view, N_ASKED);
        self.has_news = false;
        for proposed in found {
            self.regions[proposed.region].waiting.push(proposed.schedule);
        }
    }
}

impl Agent for ExternalAgent {
    fn name(&self) -> &'static str {
        self.name
    }

    /// Depends on what the process says, so a search with such an agent is repeatable only as far as that
    /// is; a finished one is repeated from its recipe.
    fn propose(&self, view: &View<'_>, budget: Budget) -> Vec<Proposal> {
        let mut proposals = Vec::new();
        self.with(|state| {
            for (kernel, space) in view.kernels.iter().enumerate() {
                let hash = space.region().hash_hex();
                let at = match state.regions.iter().position(|known| known.hash == hash) {
                    Some(at) => at,
                    None => {
                        let Some((_, first)) = space.schedules().next() else { continue };
                        state.regions.push(Known {
                            region: space.region().clone(),
                            first: first.schedule,
                            waiting: Vec::new(),
                            hash,
                        });
                        state.has_news = true;
                        state.regions.len() - 1
                    }
                };
                let fresh = |waiting: &mut Vec<Schedule>| {
                    // Open neighbours may be proposed by anybody; what was considered may not.
                    let considered =
                        |it: &Schedule| space.schedules().any(|(_, known)| known.schedule == *it);
                    waiting.retain(|schedule| !considered(schedule));
                    !waiting.is_empty()
                };
                if !fresh(&mut state.regions[at].waiting) && state.has_news {
                    state.ask();
                    fresh(&mut state.regions[at].waiting);
                }
                let known = &state.regions[at];
                let best = state.bests.get(&known.hash).map_or(known.first, |best| best.0);
                let ids = || space.schedules();
                let parent =
                    ids().find(|(_, known)| known.schedule == best).or_else(|| ids().next());
                let Some((parent, _)) = parent else { continue };
                for &schedule in &state.regions[at].waiting {
                    if proposals.len() == budget.n_proposals {
                        return;
                    }
                    proposals.push(Proposal::Schedule {
                        kernel,
                        parent,
                        step: "external",
                        schedule,
                    });
                }
            }
        });
        proposals
    }
}
