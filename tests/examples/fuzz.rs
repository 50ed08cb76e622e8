//! Fuzzes for as long as it is told to: `cargo run -p eggine-tests --example fuzz -- TARGET SECONDS [SEED]`.
//! The first input that panics or takes too much memory is written to `target/fuzz` and the process ends
//! with status 1; so does one that takes more than 20 seconds. Prints what it did.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a tool of the tests")]

#[allow(unreachable_pub, dead_code, reason = "public in the crate that it is of")]
#[path = "../../fuzz/src/entries.rs"]
mod entries;

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use eggine_tests::alloc::{Counting, count};
use eggine_tests::fuzz::{Outcomes, Random, mutate, seeds};

#[global_allocator]
static ALLOC: Counting = Counting;

/// Longer than any input takes; the machine may be busy.
const HANG: Duration = Duration::from_secs(20);

/// Inputs kept at most.
const MAX_POOL: usize = 4096;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (name, seconds) = (args[0].as_str(), args[1].parse().unwrap());
    let seed = args.get(2).map_or(1, |it| it.parse().unwrap());
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().unwrap();
    let (_, entry) = entries::ENTRIES.iter().find(|(it, _)| *it == name).unwrap();
    let mut pool = seeds(root, name).unwrap();
    let n_seeds = pool.len();
    let current: Arc<Mutex<(Instant, Vec<u8>)>> = Arc::new(Mutex::new((Instant::now(), vec![])));
    let watched = Arc::clone(&current);
    let folder = root.join("target/fuzz");
    std::fs::create_dir_all(&folder).unwrap();
    let found = folder.join(format!("{name}.found"));
    let hung = found.clone();
    std::thread::spawn(move || {
        loop {
            std::thread::sleep(Duration::from_secs(1));
            let (since, input) = watched.lock().unwrap().clone();
            if since.elapsed() > HANG {
                std::fs::write(&hung, &input).unwrap();
                println!("hangs: {}", hung.display());
                std::process::exit(1);
            }
        }
    });
    // A backtrace takes longer than any input may.
    std::panic::set_hook(Box::new(|info| println!("{info}")));
    let (mut random, mut outcomes) = (Random::new(seed), Outcomes::default());
    let (start, mut n, mut largest) = (Instant::now(), 0u64, 0);
    while start.elapsed() < Duration::from_secs(seconds) {
        let input = mutate(&mut random, &pool, 1 << 16);
        *current.lock().unwrap() = (Instant::now(), input.clone());
        let result = std::panic::catch_unwind(|| count(|| entry(&input)));
        n += 1;
        let reason = match &result {
            Err(_) => Some("panics"),
            Ok((_, counted)) if counted.peak_bytes > entries::bound_bytes(input.len()) => {
                Some("takes too much memory")
            }
            Ok(_) => None,
        };
        if let Some(reason) = reason {
            std::fs::write(&found, &input).unwrap();
            println!("{reason} after {n} inputs: {}", found.display());
            std::process::exit(1);
        }
        let Ok((outcome, counted)) = result else { continue };
        largest = largest.max(counted.peak_bytes);
        if outcomes.is_new(&outcome) && pool.len() < MAX_POOL {
            pool.push(input);
        }
    }
    println!(
        "{name}: {n} inputs in {:.0} s from {n_seeds} seeds (seed {seed}), {} kinds of outcomes, at most {largest} bytes",
        start.elapsed().as_secs_f64(),
        outcomes.n_kinds()
    );
}
