//! What every driver function does around its body: count, log, fail on demand, refuse a lost context,
//! and turn a panic into an error. [`export!`] makes a function and its row for `cuGetProcAddress`.

use std::ffi::{CStr, c_char};
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{MutexGuard, PoisonError};

use crate::result::{Code, Done};
use crate::state::{STATE, State};

/// A function as `cuGetProcAddress` finds it.
#[derive(Clone, Copy)]
pub(crate) struct Export {
    /// Its name without a suffix of version.
    pub(crate) base: &'static str,
    /// The symbol.
    pub(crate) symbol: &'static str,
    /// First version of CUDA whose headers mean this symbol by the name.
    pub(crate) since: i32,
    /// Where it is.
    pub(crate) address: *const (),
}

/// What a function needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Needs {
    /// Nothing: it works before `cuInit`.
    Nothing,
    /// `cuInit`.
    Init,
    /// A current context that is not lost.
    Context,
}

/// Declares driver functions:
/// `NEEDS "base" SINCE symbol(state; arguments) { body }`. The body returns with `?`.
macro_rules! export {
    ($table:ident; $($needs:ident $base:literal $since:literal $symbol:ident($state:ident $(, $arg:ident: $ty:ty)* $(,)?) $body:block)*) => {
        $(
            #[allow(non_snake_case, reason = "the driver's names")]
            #[unsafe(no_mangle)]
            extern "C" fn $symbol($($arg: $ty),*) -> u32 {
                $crate::call::enter(stringify!($symbol), $crate::call::Needs::$needs, |$state| {
                    $body
                    #[allow(unreachable_code, reason = "a body may end with an error")]
                    Ok(())
                })
            }
        )*
        /// Functions of this file.
        pub(crate) const $table: &[$crate::call::Export] = &[
            $($crate::call::Export {
                base: $base,
                symbol: stringify!($symbol),
                since: $since,
                address: $symbol as *const (),
            },)*
        ];
    };
}

/// Runs the body of a driver function.
pub(crate) fn enter(
    symbol: &'static str,
    needs: Needs,
    body: impl FnOnce(&mut State) -> Done,
) -> u32 {
    let mut state = lock();
    let state = &mut *state;
    let (number, begun) = begin(state, needs);
    let body = AssertUnwindSafe(|| body(state));
    let result = begun.and_then(|()| catch_unwind(body).unwrap_or(Err(Code::UNKNOWN)));
    end(state, number, symbol, result)
}

/// Runs a driver function whose `work`, on what `prepare` tells of the state, needs no lock.
pub(crate) fn enter_apart<A, B>(
    symbol: &'static str,
    needs: Needs,
    prepare: impl FnOnce(&State) -> A,
    work: impl FnOnce(A) -> B,
    finish: impl FnOnce(&mut State, B) -> Done,
) -> u32 {
    let (number, begun) = {
        let mut state = lock();
        let (number, begun) = begin(&mut state, needs);
        (number, begun.map(|()| prepare(&state)))
    };
    let made = begun.and_then(|facts| {
        catch_unwind(AssertUnwindSafe(|| work(facts))).map_err(|_| Code::UNKNOWN)
    });
    let mut state = lock();
    let state = &mut *state;
    let result = made.and_then(|made| {
        // The context may have ended meanwhile.
        state.ready(needs)?;
        let finish = AssertUnwindSafe(|| finish(state, made));
        catch_unwind(finish).unwrap_or(Err(Code::UNKNOWN))
    });
    end(state, number, symbol, result)
}

fn lock() -> MutexGuard<'static, State> {
    STATE.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Number of the call, and whether it may go on.
fn begin(state: &mut State, needs: Needs) -> (u64, Done) {
    state.stats.n_calls += 1;
    let begun = state.injected().map_or_else(|| state.ready(needs), Err);
    (state.stats.n_calls, begun)
}

fn end(state: &mut State, number: u64, symbol: &str, result: Done) -> u32 {
    let code = result.map_or_else(|code| code.0, |()| 0);
    if let Some(log) = &mut state.config.log {
        // A log that cannot be written must not fail the call.
        let _ = writeln!(log, "{number} {symbol} {code}");
    }
    code
}

/// Writes a result through a pointer of the caller's.
pub(crate) fn put<T>(place: *mut T, value: T) -> Done {
    if place.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the driver API asks its caller for a valid pointer; null was refused.
    unsafe { place.write(value) };
    Ok(())
}

/// Reads through a pointer of the caller's.
pub(crate) fn get<T: Copy>(place: *const T) -> Done<T> {
    if place.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: as in `put`; structures of the API may be at any alignment of the caller's choosing.
    Ok(unsafe { place.read_unaligned() })
}

/// Bytes of the caller's, to read.
pub(crate) fn bytes<'a>(place: *const u8, n_bytes: usize) -> Done<&'a [u8]> {
    match (place.is_null(), n_bytes) {
        (_, 0) => Ok(&[]),
        (true, _) => Err(Code::INVALID_VALUE),
        // SAFETY: the driver API asks its caller for `n_bytes` readable bytes, for the time of the call.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts(place, n_bytes) }),
    }
}

/// Bytes of the caller's, to write.
pub(crate) fn bytes_mut<'a>(place: *mut u8, n_bytes: usize) -> Done<&'a mut [u8]> {
    match (place.is_null(), n_bytes) {
        (_, 0) => Ok(&mut []),
        (true, _) => Err(Code::INVALID_VALUE),
        // SAFETY: the driver API asks its caller for `n_bytes` writable bytes, for the time of the call.
        (false, _) => Ok(unsafe { std::slice::from_raw_parts_mut(place, n_bytes) }),
    }
}

/// A text of the caller's.
pub(crate) fn text<'a>(place: *const c_char) -> Done<&'a str> {
    if place.is_null() {
        return Err(Code::INVALID_VALUE);
    }
    // SAFETY: the driver API asks its caller for a text that ends with a zero.
    unsafe { CStr::from_ptr(place) }.to_str().map_err(|_| Code::INVALID_VALUE)
}
