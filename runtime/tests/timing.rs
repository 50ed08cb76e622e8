//! Timing: the right one wins under noise and drift, bad samples are kept and not believed, and what is
//! measured is verified before and after.
#![allow(clippy::unwrap_used, reason = "a panic is how a test fails")]

mod common;

use common::region;
use eggine_runtime::device::FakeDevice;
use eggine_runtime::timing::{
    Contestant, Decision, Rejection, TimingVerdict, measure, race, time_alone,
};
use eggine_runtime::{
    Candidate, CandidateBuffer, OracleCache, Timing, TimingPlan, Verdict, VerifyOptions,
};

/// Noise in ±1, the same for equal seeds.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        self.0 =
            self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 40) as f64 / f64::from(1 << 23) - 1.0
    }
}

fn run(seed: u64, challenger_ns: f64, drift: f64, noise: f64) -> Decision {
    let mut random = Noise(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) + 1);
    let mut n_runs = 0.0;
    let race = race(&TimingPlan { seed, ..TimingPlan::default() }, |who| {
        n_runs += 1.0;
        let base = if who == Contestant::Challenger { challenger_ns } else { 100_000.0 };
        Ok((base * (1.0 + drift * n_runs) * (1.0 + noise * random.next())) as i64)
    });
    race.unwrap().decision
}

#[test]
fn one_per_cent_is_found_under_drift() {
    let seeds = 0..200;
    let faster =
        seeds.clone().filter(|&seed| run(seed, 99_000.0, 0.002, 0.01) == Decision::Faster).count();
    let slower = seeds.filter(|&seed| run(seed, 99_000.0, 0.002, 0.01) == Decision::Slower).count();
    assert!(faster > 190 && slower <= 4, "faster {faster}, slower {slower} of 200");
    let slower =
        (0..200).filter(|&seed| run(seed, 101_000.0, -0.001, 0.01) == Decision::Slower).count();
    assert!(slower > 190, "slower {slower} of 200");
}

#[test]
fn equals_rarely_win() {
    let wins =
        (0..400).filter(|&seed| run(seed, 100_000.0, 0.001, 0.02) == Decision::Faster).count();
    assert!(wins < 48, "{wins} of 400 equals win");
}

#[test]
fn twice_as_slow_is_given_up_after_a_round() {
    let mut n_runs = 0;
    let race = race(&TimingPlan::default(), |who| {
        n_runs += 1;
        Ok(if who == Contestant::Challenger { 2100 } else { 1000 })
    });
    let race = race.unwrap();
    assert_eq!((race.decision, n_runs), (Decision::GivenUp, 2 + 4));
    assert_eq!(race.challenger.samples_ns, [2100, 2100]);
}

#[test]
fn bad_samples_are_kept_and_not_believed() {
    let timing = Timing::new(vec![100, 0, 101, -5, 99, 100_000, 3, 100], 10);
    let reasons: Vec<Rejection> = timing.rejected.iter().map(|&(_, reason)| reason).collect();
    use Rejection::{FasterThanPossible, NotPositive, Outlier};
    assert_eq!(reasons, [NotPositive, NotPositive, Outlier, FasterThanPossible]);
    assert_eq!(timing.samples_ns.len(), 8);
    assert_eq!(timing.median_ns(), Some(100.0));
    assert_eq!(timing.verdict(), TimingVerdict::MostlyRejected);
    assert_eq!(Timing::new(vec![100, 0, 101, 99], 10).verdict(), TimingVerdict::Believed);
    assert_eq!(Timing::new(vec![], 0).median_ns(), None);

    let stopped = race(&TimingPlan::default(), |_| Ok(0)).unwrap();
    assert_eq!(stopped.decision, Decision::Rejected);
    assert_eq!(stopped.challenger.samples_ns.len(), TimingPlan::default().max_samples);
    let impossible = TimingPlan { floor_ns: 1000, ..TimingPlan::default() };
    let lucky = race(&impossible, |who| Ok(if who == Contestant::Challenger { 500 } else { 2000 }))
        .unwrap();
    assert_eq!(lucky.decision, Decision::Rejected, "faster than the roofline is not faster");
    // One stray sample in a round does not decide a race.
    let mut nth = 0;
    let stray = race(&TimingPlan::default(), |who| {
        nth += 1;
        Ok(match who {
            _ if nth == 9 => 1,
            Contestant::Challenger => 1000 + nth % 3,
            Contestant::Incumbent => 1000 + (nth + 1) % 3,
        })
    });
    assert_ne!(stray.unwrap().decision, Decision::Faster);
}

#[test]
fn drift_is_seen_when_timed_alone() {
    let plan = TimingPlan { half_width: 0.0, ..TimingPlan::default() };
    let mut ns = 1000;
    let timing = time_alone(&plan, || {
        ns += 10;
        Ok(ns)
    });
    assert_eq!(timing.unwrap().verdict(), TimingVerdict::Drifting);
    let steady = time_alone(&plan, || Ok(1000)).unwrap();
    assert_eq!(
        (steady.verdict(), steady.samples_ns.len()),
        (TimingVerdict::Believed, plan.max_samples)
    );
    let enough = time_alone(&TimingPlan::default(), || Ok(1000)).unwrap();
    assert_eq!(
        enough.samples_ns.len(),
        TimingPlan::default().min_samples,
        "a narrow interval ends it"
    );
    let budget = TimingPlan { budget_ns: 1, half_width: 0.0, ..TimingPlan::default() };
    assert_eq!(time_alone(&budget, || Ok(1000)).unwrap().samples_ns.len(), budget.min_samples);
}

#[test]
fn equal_samples_and_seeds_give_equal_decisions() {
    for seed in 0..20 {
        assert_eq!(run(seed, 99_500.0, 0.0, 0.05), run(seed, 99_500.0, 0.0, 0.05));
    }
    let timing = Timing::new((0..50).map(|i| 1000 + (i * 37) % 91).collect(), 0);
    assert_eq!(timing.interval_ns(7), timing.interval_ns(7));
    let interval = timing.interval_ns(7).unwrap();
    assert!(
        interval.low <= interval.median
            && interval.median <= interval.high
            && interval.half_width() > 0.0
    );
}

fn candidate(entry: &'static str) -> Candidate<'static> {
    let buffers =
        vec![CandidateBuffer::Input { index: 0, pack: None }, CandidateBuffer::Output { index: 0 }];
    Candidate { ptx: "// fake", entry, grid: [1, 1, 1], block: [1, 1, 1], buffers }
}

#[test]
fn what_is_measured_is_verified_before_and_after() {
    let negate = region("graph @r(v0: f32[64]) {\n    v1 = neg v0\n    return v1\n}");
    let mut device = FakeDevice::new();
    for entry in ["good", "slow", "fast", "tiring", "wrong", "crashing"] {
        device.kernel(entry, move |memory, params, nth| {
            let xs = memory.read_f32(params[0], 64)?;
            let sign = if entry == "wrong" || entry == "tiring" && nth >= 10 { 1.0 } else { -1.0 };
            if entry == "crashing" && nth >= 5 {
                return memory.write(8, &[0]);
            }
            memory.write_f32(params[1], &xs.iter().map(|x| sign * x).collect::<Vec<_>>())
        });
    }
    device.clock(|entry, nth| {
        let base = match entry {
            "slow" => 1300,
            "fast" | "tiring" => 900,
            _ => 1000,
        };
        base + nth % 5
    });
    let oracles = OracleCache::default();
    let mut go = |challenger, incumbent: Option<&'static str>| {
        let incumbent = incumbent.map(candidate);
        let (options, plan) = (VerifyOptions::default(), TimingPlan::default());
        let found = measure(
            &mut device,
            &negate,
            "r",
            &candidate(challenger),
            incumbent.as_ref(),
            &oracles,
            &options,
            &plan,
        );
        assert_eq!((device.n_allocations(), device.n_modules()), (0, 0));
        found.unwrap()
    };
    let first = go("good", None);
    assert!(first.wins() && first.timing.is_some() && first.race.is_none());
    assert_eq!(first.after.unwrap().seed, 1, "other inputs than before");
    assert!(go("fast", Some("good")).wins());
    let slow = go("slow", Some("good"));
    assert!(slow.accepted() && !slow.wins());
    let wrong = go("wrong", Some("good"));
    assert!(!wrong.accepted() && wrong.timing.is_none(), "a wrong kernel is not timed");
    let tiring = go("tiring", Some("good"));
    assert!(tiring.before.accepted() && !tiring.wins(), "right for ten calls, then wrong");
    assert!(matches!(tiring.verdict(), Verdict::Inaccurate { .. }), "{}", tiring.verdict());
    let crashing = go("crashing", Some("good"));
    assert!(matches!(crashing.verdict(), Verdict::Faults { .. }), "{}", crashing.verdict());
}
