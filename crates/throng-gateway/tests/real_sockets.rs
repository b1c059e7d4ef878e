//! The gateway on loopback: doors, transports, limits of connections.

mod admin_page;
mod dialects;
mod false_addresses;
mod farewells;
mod health;
mod limits;
mod link;
mod link_door;
mod movement_link;
mod proxies;
mod reload;
mod serving;
mod side_by_side;
mod slow_readers;
mod stage;
mod transports;
mod trust;
