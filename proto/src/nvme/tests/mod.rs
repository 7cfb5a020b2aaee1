//! The target as a transport and an engine see it.

mod abort;
mod admin;
mod blocks;
mod changes;
mod connect;
mod ends;
mod fused;
mod fuzz;
mod memory;
mod property;
mod rig;
mod timers;
