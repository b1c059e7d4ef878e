// The state as a user of @colyseus/schema declares it. Integers of the fitting width are its smallest encoding of these values:
// its quantised floats have 8, 16 or 32 bits and would not hit the other peers' steps exactly.

import { schema, t } from "@colyseus/schema";

/// The types of a workload. `hasViews`: characters and chests are filtered for each client.
export function types(isDense, hasViews) {
    const plane = () => (isDense ? t.uint16() : t.uint32());
    const Character = schema(
        {
            x: plane(),
            y: plane(),
            z: t.uint8(),
            vx: t.int16(),
            vy: t.int16(),
            vz: t.int16(),
            yaw: t.uint16(),
            pitch: t.int8(),
            mode: t.uint8(),
        },
        "Character",
    );
    const Chest = schema({ x: plane(), y: plane(), contents: t.uint16() }, "Chest");
    const map = (type) => (hasViews ? t.map(type).view() : t.map(type));
    const State = schema({ characters: map(Character), chests: map(Chest) }, "State");
    return { Character, Chest, State };
}

/// Writes a tick's values.
export function assign(to, { position, velocity, yaw, pitch, mode }) {
    to.x = position[0];
    to.y = position[1];
    to.z = position[2];
    to.vx = velocity[0];
    to.vy = velocity[1];
    to.vz = velocity[2];
    to.yaw = yaw;
    to.pitch = pitch;
    to.mode = mode;
}
