//! What the native driver takes, Pingora reads as the same request.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| tidegate_proxy::requests_agree(bytes));
