//! What loads and stores are generic over: elements in memory, addresses, and state spaces.

use crate::fault::Space;
use crate::memory::{SLOT_SHIFT, View};
use crate::program::{Ctx, Lane};

/// How a value lies in memory.
pub(crate) trait Elem: 'static {
    /// Type of the register.
    type Reg: Lane;
    /// Size in memory.
    const BYTES: usize;
    /// Reads one.
    ///
    /// # Safety
    ///
    /// `BYTES` readable bytes.
    unsafe fn get(at: *const u8) -> Self::Reg;
    /// Writes one.
    ///
    /// # Safety
    ///
    /// `BYTES` writable bytes.
    unsafe fn put(at: *mut u8, value: Self::Reg);
}

macro_rules! elems {
    ($($name:ident $memory:ty, $reg:ty, $bytes:literal;)+) => {
        $(
            pub(crate) struct $name;
            impl Elem for $name {
                type Reg = $reg;
                const BYTES: usize = $bytes;
                #[inline(always)]
                unsafe fn get(at: *const u8) -> $reg {
                    // SAFETY: by contract.
                    unsafe { at.cast::<$memory>().read_unaligned() as $reg }
                }
                #[inline(always)]
                unsafe fn put(at: *mut u8, value: $reg) {
                    // SAFETY: by contract.
                    unsafe { at.cast::<$memory>().write_unaligned(value as $memory) }
                }
            }
        )+
    };
}
elems! {
    U8 u8, u32, 1;
    S8 i8, u32, 1;
    B16 u16, u32, 2;
    B32 u32, u32, 4;
    B64 u64, u64, 8;
}

/// An address register's lane type.
pub(crate) trait Address: Lane + PartialEq {
    fn plus(self, n: u64) -> Self;
    fn minus(self, other: Self) -> Self;
    fn differs(self, other: u64) -> Self;
    fn or(self, other: Self) -> Self;
    fn keep(self, bit: u32) -> Self;
    fn larger(self, other: Self) -> Self;
    fn wide(self) -> u64;
}

macro_rules! addresses {
    ($($t:ty),+) => {
        $(impl Address for $t {
            #[inline(always)]
            fn plus(self, n: u64) -> Self { self.wrapping_add(n as $t) }
            #[inline(always)]
            fn minus(self, other: Self) -> Self { self.wrapping_sub(other) }
            #[inline(always)]
            fn differs(self, other: u64) -> Self { self ^ other as $t }
            #[inline(always)]
            fn or(self, other: Self) -> Self { self | other }
            #[inline(always)]
            fn keep(self, bit: u32) -> Self { self & (bit as $t).wrapping_neg() }
            #[inline(always)]
            fn larger(self, other: Self) -> Self { self.max(other) }
            #[inline(always)]
            fn wide(self) -> u64 { u64::from(self) }
        })+
    };
}
addresses!(u32, u64);

/// A state space.
pub(crate) trait Window: 'static {
    /// Its addresses.
    type Addr: Address;
    /// Which.
    const SPACE: Space;
    /// The host pointer of a range, if it is accessible.
    fn range(cx: &Ctx, address: u64, n_bytes: u64, align: u64, store: bool) -> Option<*mut u8>;
    /// The window in which `address` lies: its first address, its host pointer, its size.
    fn around(cx: &Ctx, address: u64, store: bool) -> Option<(u64, *mut u8, u64)>;
}

/// Global memory.
pub(crate) struct Global;
/// Shared memory of the block.
pub(crate) struct Shared;

impl Window for Global {
    type Addr = u64;
    const SPACE: Space = Space::Global;
    #[inline(always)]
    fn range(cx: &Ctx, address: u64, n_bytes: u64, align: u64, store: bool) -> Option<*mut u8> {
        let (base, host, size) = Self::around(cx, address, store)?;
        let offset = address - base;
        // Mapped memory may begin anywhere on the host; the device address decides about alignment.
        (offset + n_bytes <= size && address & (align - 1) == 0)
            .then(|| host.wrapping_add(offset as usize))
    }
    #[inline(always)]
    fn around(cx: &Ctx, address: u64, store: bool) -> Option<(u64, *mut u8, u64)> {
        let slot = (address >> SLOT_SHIFT) as usize;
        if slot >= cx.n_views {
            return None;
        }
        // SAFETY: the slot is one of the views.
        let View { host, n_bytes, writable } = unsafe { *cx.views.add(slot) };
        (writable || !store).then_some(((slot as u64) << SLOT_SHIFT, host, n_bytes))
    }
}

impl Window for Shared {
    type Addr = u32;
    const SPACE: Space = Space::Shared;
    #[inline(always)]
    fn range(cx: &Ctx, address: u64, n_bytes: u64, align: u64, _: bool) -> Option<*mut u8> {
        (address + n_bytes <= u64::from(cx.shared_bytes) && address & (align - 1) == 0)
            .then(|| cx.shared.wrapping_add(address as usize))
    }
    #[inline(always)]
    fn around(cx: &Ctx, _: u64, _: bool) -> Option<(u64, *mut u8, u64)> {
        Some((0, cx.shared, u64::from(cx.shared_bytes)))
    }
}
