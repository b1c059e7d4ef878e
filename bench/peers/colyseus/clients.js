// All clients, in a thread of their own: they decode what comes and are held against a world that steps like the server's.

import { Decoder } from "@colyseus/schema";
import { parentPort, workerData } from "node:worker_threads";
import { pin } from "./pin.js";
import { types } from "./state.js";
import { World } from "./world.js";

const HISTORY_TICKS = 64;
const SAMPLED_CLIENTS = 8;

const { workload, players, hasViews } = workerData;
pin(1);
const { State } = types(workload === "dense", hasViews);
const world = new World(workload, players);
const decoders = Array.from({ length: players }, () => new Decoder(new State()));
const history = [world.describeAll()];
const ages = { count: 0, sum: 0, max: 0 };

parentPort.on("message", (order) => {
    if (order.check) {
        for (let client = 0; client < players; client++) check(client);
        parentPort.postMessage({ ages });
        return;
    }
    if (order.moves) {
        world.step();
        history.unshift(world.describeAll());
        history.length = Math.min(history.length, HISTORY_TICKS);
    }
    const start = process.hrtime.bigint();
    for (let client = 0; client < players; client++) {
        const [from, to] = [order.ends[client], order.ends[client + 1]];
        if (to > from) decoders[client].decode(order.bytes.subarray(from, to));
    }
    const clientNs = Number(process.hrtime.bigint() - start);
    if (order.isMeasured && order.tick % 4 === 0) sample(order.tick);
    parentPort.postMessage({ clientNs, bytes: order.bytes, ends: order.ends }, [order.bytes.buffer, order.ends.buffer]);
});

/// What a client holds. Without views it also holds what it is not to see: that is looked past.
function look(client) {
    const held = new Map();
    const { state } = decoders[client];
    state.characters?.forEach((c, key) => {
        const number = Number(key);
        if (!hasViews && !world.seesCharacter(client, number)) return;
        held.set(number, [c.x, c.y, c.z, c.vx, c.vy, c.vz, c.yaw, c.pitch, c.mode].join(" "));
    });
    state.chests?.forEach((chest, key) => {
        if (!hasViews && !world.seesChest(client, Number(key) - players)) return;
        held.set(Number(key), `chest ${chest.contents}`);
    });
    return held;
}

function sample(tick) {
    for (let turn = 0; turn < Math.min(SAMPLED_CLIENTS, players); turn++) {
        const client = (tick * SAMPLED_CLIENTS + turn) % players;
        for (const [number, value] of look(client)) {
            const age = history.findIndex((past) => past[number] === value);
            if (age < 0) throw new Error(`tick ${tick}: client ${client} holds a wrong value of object ${number}: ${value}`);
            ages.count++;
            ages.sum += age;
            ages.max = Math.max(ages.max, age);
        }
    }
}

function check(client) {
    const [held, expected] = [look(client), world.expected(client)];
    for (const [number, value] of expected) {
        if (held.get(number) !== value) {
            throw new Error(`client ${client} holds ${held.get(number)} of object ${number} instead of ${value}`);
        }
    }
    if (held.size !== expected.size) throw new Error(`client ${client} holds ${held.size} objects instead of ${expected.size}`);
}
