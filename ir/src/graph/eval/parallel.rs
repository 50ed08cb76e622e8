//! Work on all cores. Tasks write disjoint parts of the result, so it does not depend on threads.

use std::num::NonZero;
use std::sync::Mutex;

/// Fewer elementary operations than this are not worth a thread.
const MIN_WORK: usize = 1 << 20;

/// Number of threads that [`for_each`] uses for enough work.
pub(super) fn n_threads() -> usize {
    std::thread::available_parallelism().map_or(1, NonZero::get)
}

/// Runs `f` on every task. `work` is about the number of elementary operations of all of them.
pub(super) fn for_each<T: Send>(
    tasks: impl ExactSizeIterator<Item = T> + Send,
    work: usize,
    f: impl Fn(T) + Sync,
) {
    let n_threads = n_threads().min(tasks.len());
    if work < MIN_WORK || n_threads < 2 {
        return tasks.for_each(f);
    }
    let tasks = Mutex::new(tasks);
    let next = || tasks.lock().expect("no task panics while it holds the lock").next();
    std::thread::scope(|scope| {
        for _ in 0..n_threads {
            scope.spawn(|| {
                while let Some(task) = next() {
                    f(task);
                }
            });
        }
    });
}
