//! The `eggine` command line: parses arguments, calls the library, prints results and errors.
//!
//! Results go to standard output, progress and diagnostics to standard error. Exit status: 0 success,
//! 1 a comparison that differs, 2 an error.

mod cli;

use std::process::ExitCode;

use clap::Parser;

fn main() -> ExitCode {
    let args = cli::Args::parse();
    match cli::run(args) {
        Ok(code) => code,
        Err(error) => {
            cli::print_error(error.as_ref());
            ExitCode::from(2)
        }
    }
}
