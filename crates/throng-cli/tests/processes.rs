//! The `throng` command as its users run it.

mod ai_server;
mod bake;
mod command_line;
mod compare;
mod deploy;
mod doctor;
mod gateway_killed;
mod gateway_link;
mod gateway_log;
mod gateway_memory;
mod gateway_memory_transports;
mod gateway_replay;
mod gateway_told;
mod lab;
mod lines;
mod live;
mod matches;
mod outage;
mod pages;
mod players;
mod quilkin;
mod scale;
mod schema;
mod serving;
mod store;
mod summary_keys;
