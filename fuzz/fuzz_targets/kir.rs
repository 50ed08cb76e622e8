//! libFuzzer on `kir`; see `fuzz/src/entries.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| eggine_fuzz::bounded(eggine_fuzz::entries::kir, data));
