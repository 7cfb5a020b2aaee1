//! The target as a transport and an engine see it.

mod abort;
mod admin;
mod blocks;
mod changes;
mod connect;
mod discovery;
mod ends;
mod events;
mod features;
mod fields;
mod fused;
mod fuzz;
mod identify;
mod logs;
mod memory;
mod property;
mod rig;
mod timers;
