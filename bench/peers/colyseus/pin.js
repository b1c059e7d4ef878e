// A processor for each side, if there are two, as in harness/src/lockstep.rs.

import { execFileSync } from "node:child_process";
import { readlinkSync } from "node:fs";
import { cpus } from "node:os";

/// Puts the calling thread, and those that it starts from now on, on a processor. The runtime's own helper threads (collector,
/// compiler) run already and stay where the system puts them.
export function pin(processor) {
    if (process.platform !== "linux" || cpus().length < 2) return;
    // "<process>/task/<thread>": Node has no other name for the thread. Reading synchronously happens in it.
    const thread = readlinkSync("/proc/thread-self").split("/").pop();
    execFileSync("taskset", ["--cpu-list", "--pid", String(processor), thread], { stdio: ["ignore", "ignore", "inherit"] });
}
