//! Tests of the whole: what does not fit beside the code it tests.

pub mod bench_tgt;
pub mod guest;
pub mod initiator;
pub mod kill;
pub mod process_use;
pub mod server_process;
pub mod sim;
