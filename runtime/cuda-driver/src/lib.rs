//! A CUDA driver that is the cpu device: the library exports the functions of the driver API that
//! cudarc, cuda-python and our runtime call, and executes launches with `eggine-cpu`.
//!
//! Put it on the library path as `libcuda.so.1`, and a program that speaks the driver API runs its PTX
//! on this machine's processor, every access checked. What it is asked, how much is alive, and which
//! call shall fail can be read and set: see `docs/driver.md`.
//!
//! Everything happens in the call that asks for it, under one lock (but the reading of PTX, which several
//! threads may do at once), so streams are in order by
//! themselves. A kernel's fault is reported as a GPU does: the launch succeeds, and every later call in
//! that context fails until the context is reset. Handles are never used twice: a stale one is an error.

#[macro_use]
mod call;
mod attributes;
mod config;
mod device;
mod event;
mod extra;
mod function;
mod graph;
mod launch;
mod memory;
mod module;
mod proc_address;
mod result;
mod state;
mod tensor_map;

pub use extra::Stats;
