//! Tests of the whole: what does not fit beside the code it tests.

pub mod initiator;
pub mod sim;
