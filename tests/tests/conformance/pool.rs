//! Runs tests on all cores, each in a thread of its own, so that a panic or a hang is a verdict.

use std::cell::RefCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Once, mpsc};
use std::thread;
use std::time::Duration;

use crate::case::Case;
use crate::judge::{Judged, Outcome, Verdict};

thread_local! {
    /// What the panic of this thread said, and where.
    static PANIC: RefCell<Option<String>> = const { RefCell::new(None) };
}

/// Name of the threads whose panics are verdicts and not printed.
const NAME: &str = "conformance";

fn record_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let before = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            if thread::current().name() == Some(NAME) {
                PANIC.with(|panic| *panic.borrow_mut() = Some(info.to_string()));
            } else {
                before(info);
            }
        }));
    });
}

/// One verdict per case, in order. A test that takes longer than `limit` is left behind.
pub(crate) fn judge_all(
    cases: &[Case],
    limit: Duration,
    judge: impl Fn(&Case) -> Judged + Send + Sync + Clone + 'static,
) -> Vec<Judged> {
    record_panics();
    let n_threads = thread::available_parallelism().map_or(1, usize::from);
    let next = AtomicUsize::new(0);
    let results: Mutex<Vec<Option<Judged>>> = Mutex::new(vec![None; cases.len()]);
    let judge = Arc::new(judge);
    thread::scope(|scope| {
        for _ in 0..n_threads {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(case) = cases.get(at) else { return };
                    let judged = one(case, limit, &judge);
                    results.lock().unwrap()[at] = Some(judged);
                }
            });
        }
    });
    results.into_inner().unwrap().into_iter().map(Option::unwrap).collect()
}

fn one<F: Fn(&Case) -> Judged + Send + Sync + 'static>(
    case: &Case,
    limit: Duration,
    judge: &Arc<F>,
) -> Judged {
    let (sender, receiver) = mpsc::channel();
    let (owned, judge) = (case.clone(), Arc::clone(judge));
    let work = move || {
        let judged = catch_unwind(AssertUnwindSafe(|| judge(&owned)));
        let panic = || PANIC.with(|panic| panic.borrow_mut().take()).unwrap_or_default();
        // The other end may have given up.
        let _ = sender.send(judged.map_err(|_| panic()));
    };
    // Deep graphs of unrolled loops recurse deeply.
    thread::Builder::new().name(NAME.into()).stack_size(64 << 20).spawn(work).unwrap();
    let failed = |verdict, reason| Judged {
        id: case.id(),
        excluded: case.excluded.clone(),
        constants: String::new(),
        oracle: Outcome { verdict, reason },
        engine: Outcome::skipped(),
        program: Outcome::skipped(),
    };
    match receiver.recv_timeout(limit) {
        Ok(Ok(judged)) => judged,
        Ok(Err(panic)) => failed(Verdict::Panic, panic.replace(['\n', '\t'], " ")),
        Err(_) => failed(Verdict::Timeout, format!("more than {} s", limit.as_secs_f64())),
    }
}
