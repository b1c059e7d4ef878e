// The workload on Colyseus' schema encoder. One row of JSON on stdout, as the other peers' programs print.
//
// --views shared   one patch for the room, copied to everybody (Colyseus' default; everybody gets everything)
// --views each     a StateView for each client: per-client visibility
//
// The encoder is driven as @colyseus/core's SchemaSerializer drives it: encode() once, then encodeView() for each view,
// then discardChanges(). "Values written" to "packets ready" ends when each client's bytes lie in one buffer.

import { Encoder, StateView } from "@colyseus/schema";
import { readFileSync } from "node:fs";
import { setTimeout } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import { pin } from "./pin.js";
import { spread } from "./spread.js";
import { assign, types } from "./state.js";
import { World } from "./world.js";

const TICK_MS = 1000 / 30;
const options = { "--workload": "dense", "--players": "100", "--warmup": "60", "--ticks": "300", "--settle": "30", "--views": "shared" };
let isPaced = false;
for (let at = 2; at < process.argv.length; at++) {
    const option = process.argv[at];
    if (option === "--paced") isPaced = true;
    else if (option in options) options[option] = process.argv[++at];
    else {
        console.error(`cannot make sense of ${option}`);
        process.exit(2);
    }
}
const workload = options["--workload"];
const [players, warmupTicks, ticks, settleTicks] = ["--players", "--warmup", "--ticks", "--settle"].map((name) => Number(options[name]));
const hasViews = options["--views"] === "each";

Encoder.BUFFER_SIZE = 64 * 1024 * 1024;
const { Character, Chest, State } = types(workload === "dense", hasViews);

class Server {
    constructor(world) {
        this.world = world;
        this.state = new State();
        this.encoder = new Encoder(this.state);
        this.characters = world.characters.map((character, number) => {
            const made = new Character();
            assign(made, character);
            this.state.characters.set(String(number), made);
            return made;
        });
        this.chests = world.chests.map((contents, number) => {
            const made = new Chest();
            made.x = number;
            made.y = number;
            made.contents = contents;
            this.state.chests.set(String(players + number), made);
            return made;
        });
        this.views = hasViews ? Array.from({ length: players }, (_, client) => this.viewOf(client)) : [];
    }

    viewOf(client) {
        const view = new StateView();
        this.characters.forEach((character, number) => this.world.seesCharacter(client, number) && view.add(character));
        this.chests.forEach((chest, number) => this.world.seesChest(client, number) && view.add(chest));
        return view;
    }

    /// What a client gets when it joins.
    join(out) {
        const it = { offset: 0 };
        const shared = this.encoder.encodeAll(it);
        const sharedOffset = it.offset;
        out.begin();
        for (let client = 0; client < players; client++) {
            out.push(hasViews ? this.encoder.encodeAllView(this.views[client], sharedOffset, it) : shared);
        }
        this.encoder.discardChanges();
    }

    assign() {
        for (let number = 0; number < players; number++) assign(this.characters[number], this.world.characters[number]);
        for (let number = 0; number < this.chests.length; number++) this.chests[number].contents = this.world.chests[number];
    }

    replicate(out) {
        const it = { offset: 0 };
        const shared = this.encoder.encode(it);
        const sharedOffset = it.offset;
        out.begin();
        for (let client = 0; client < players; client++) {
            out.push(hasViews ? this.encoder.encodeView(this.views[client], sharedOffset, it) : shared);
        }
        this.encoder.discardChanges();
    }
}

/// Packets under way, one for each client.
class Packets {
    constructor() {
        this.bytes = new Uint8Array(1 << 20);
        this.ends = new Uint32Array(players + 1);
    }

    begin() {
        this.client = 0;
        this.ends[0] = 0;
    }

    push(packet) {
        const [from, to] = [this.ends[this.client], this.ends[this.client] + packet.length];
        if (to > this.bytes.length) {
            const larger = new Uint8Array(2 * to);
            larger.set(this.bytes.subarray(0, from));
            this.bytes = larger;
        }
        this.bytes.set(packet, from);
        this.ends[++this.client] = to;
    }
}

const worker = new Worker(new URL("./clients.js", import.meta.url), { workerData: { workload, players, hasViews } });
worker.on("error", (error) => {
    console.error(`colyseus (${options["--views"]}) on ${workload} with ${players}: ${error.message}`);
    process.exit(1);
});

function tell(order, transfer = []) {
    return new Promise((resolve) => {
        worker.once("message", resolve);
        worker.postMessage(order, transfer);
    });
}

pin(0);
const world = new World(workload, players);
const server = new Server(world);
const packets = new Packets();
/// What travels to the clients and back. The server's own buffer stays with its processor, as in the other peers.
let handedOver = { bytes: new Uint8Array(0), ends: new Uint32Array(players + 1) };
const measured = { assign: [], replicate: [], bytes: 0, packets: 0, clientNs: 0 };

async function send(order) {
    let { bytes, ends } = handedOver;
    const used = packets.ends[players];
    if (bytes.length < used) bytes = new Uint8Array(2 * used);
    bytes.set(packets.bytes.subarray(0, used));
    ends.set(packets.ends);
    const answer = await tell({ ...order, bytes, ends }, [bytes.buffer, ends.buffer]);
    handedOver = { bytes: answer.bytes, ends: answer.ends };
    if (order.isMeasured) measured.clientNs += answer.clientNs;
}

let dueMs = performance.now();

/// Ticks are as far apart in real time as in a game.
async function untilDue() {
    dueMs = Math.max(dueMs + TICK_MS, performance.now() - TICK_MS);
    await setTimeout(Math.max(dueMs - performance.now(), 0));
}

server.join(packets);
await send({ tick: 0, moves: false, isMeasured: false });
for (let tick = 0; tick < warmupTicks + ticks + settleTicks; tick++) {
    const moves = tick < warmupTicks + ticks;
    const isMeasured = moves && tick >= warmupTicks;
    if (moves) world.step();
    if (isPaced) await untilDue();
    const start = process.hrtime.bigint();
    if (moves) server.assign();
    const written = process.hrtime.bigint();
    server.replicate(packets);
    const ready = process.hrtime.bigint();
    if (isMeasured) {
        measured.assign.push(Number(written - start) / 1e6);
        measured.replicate.push(Number(ready - written) / 1e6);
        measured.bytes += packets.ends[players];
        measured.packets += players;
    }
    await send({ tick, moves, isMeasured });
}
const { ages } = await tell({ check: true });
await worker.terminate();

const lock = JSON.parse(readFileSync(new URL("./package-lock.json", import.meta.url)));
const msPerTick = spread(measured.replicate);
console.log(
    JSON.stringify({
        peer: hasViews ? "colyseus, a view each" : "colyseus, one patch",
        version: lock.packages["node_modules/@colyseus/schema"].version,
        workload,
        players,
        ticks,
        ms_per_tick: msPerTick,
        us_per_client: (msPerTick.mean * 1e3) / players,
        assign_ms_per_tick: spread(measured.assign).mean,
        receive_ms_per_tick: 0,
        client_us_per_client: measured.clientNs / 1e3 / ticks / players,
        allocations_per_tick: null,
        bytes_per_client_tick: measured.bytes / ticks / players,
        packets_per_client_tick: measured.packets / ticks / players,
        state_age_ticks: ages.sum / Math.max(ages.count, 1),
        state_age_ticks_max: ages.max,
        checked: true,
        notes: hasViews
            ? "a StateView for each client; a reliable ordered stream (TCP) is assumed, so no loss recovery"
            : "one byte string for the whole room, no visibility; a reliable ordered stream (TCP) is assumed",
    }),
);
