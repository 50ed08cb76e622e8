//! Programs: models whose shapes or course are only known when they run.
//!
//! An engine has fixed shapes. A program is the model itself together with engines of its parts: it walks
//! the model's graphs, runs each *stage* (as many nodes as are known to fit together at the shapes of the
//! moment, see [`part`](eggine_ir::onnx::part)) as one engine, and does on the host what decides how it goes
//! on: branches, loops, nodes whose result has a shape that depends on contents, strings. An engine that is
//! not there is made by the [`Specialise`] that the session was given, if there is one. An engine of a
//! [`WideRecord`] serves a range: it is as large as the largest shapes, and extents are among its inputs.
//!
//! Nothing is silently left to the host: [`Session::trace`] tells every stage and every host step of a run.

mod control;
mod file;
mod host;
mod observe;
mod range;
mod trace;
mod value;
mod walk;
mod wide;

pub use file::{Program, ProgramError, ProgramManifest, is_program};
pub use host::HostError;
pub use observe::{Iteration, Observer, StageRun, Step, Visit};
pub use range::{DimRange, InputRange, OutOfRange};
pub use trace::{Event, Repeated, Trace};
pub use value::{HostValue, Strings};
pub use walk::{NoSpecialise, RunError, Session, Specialise, SpecialiseError};
pub use wide::{Situation, WideRecord};
