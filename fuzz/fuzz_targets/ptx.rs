//! libFuzzer on `ptx`; see `fuzz/src/entries.rs`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| {
    let _ = eggine_fuzz::entries::ptx(data);
});
