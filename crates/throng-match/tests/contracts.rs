//! The contracts of the match runtime, each in a module of its own.

mod balls;
mod commands;
mod examples;
mod frames;
mod hosts;
mod isolation;
mod logs;
mod replays;
mod seats;
