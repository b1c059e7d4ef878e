// The same world as harness/src/world.rs: whole numbers only, the same in both languages.

const SPREAD = 80_000;
const LEASH = 6_000;
const SQUARE = 20_000;
const PITCH_LIMIT = 75;
const YAW_STEPS = 512;

function scatter(number) {
    const mixed = (Math.imul(number, 1_664_525) + 1_013_904_223) >>> 0;
    return (Math.imul((mixed ^ (mixed >>> 15)) >>> 0, 1_664_525) >>> 0) >>> 8;
}

function columns(players) {
    let side = 1;
    while (side * side < players) side++;
    return side;
}

function home(players, number) {
    const side = columns(players);
    return [number % side, Math.floor(number / side)].map((place) => place * SPREAD + SPREAD / 2);
}

export function chestsOf(workload) {
    const chests = /^sparse-(\d+)$/.exec(workload);
    if (chests) return Number(chests[1]);
    if (workload === "dense" || workload === "sparse") return 0;
    throw new Error(`there is no workload ${workload}`);
}

export class World {
    constructor(workload, players) {
        this.isDense = workload === "dense";
        this.players = players;
        this.chestsPerPlayer = chestsOf(workload);
        this.tick = 0;
        this.walkers = [];
        this.characters = [];
        this.chests = new Array(players * this.chestsPerPlayer).fill(0);
        for (let number = 0; number < players; number++) this.begin(number);
    }

    begin(number) {
        const [r, s] = [scatter(number), scatter(number + 100_000)];
        const at = this.isDense ? [r % SQUARE, s % SQUARE] : home(this.players, number);
        const bounds = at.map((steps) => (this.isDense ? [0, SQUARE - 1] : [steps - LEASH, steps + LEASH]));
        this.walkers.push({ bounds, pace: [1 + (r % 15), -1 - (s % 15)], rises: true, pitchesUp: true, turn: 1 + (number % 7) });
        this.characters.push({
            position: [at[0], at[1], r % 130],
            velocity: [0, 0, 0],
            yaw: r % YAW_STEPS,
            pitch: (s % 150) - PITCH_LIMIT,
            mode: number % 3,
        });
    }

    step() {
        this.tick++;
        this.characters.forEach((character, number) => this.walk(this.walkers[number], character));
        for (let number = 0; number < this.chests.length; number++) this.chests[number] = (this.tick * 7 + number) & 0xffff;
    }

    walk(walker, character) {
        const { position, velocity } = character;
        for (let axis = 0; axis < 2; axis++) {
            const at = position[axis] + walker.pace[axis];
            if (at < walker.bounds[axis][0] || at > walker.bounds[axis][1]) walker.pace[axis] = -walker.pace[axis];
            position[axis] += walker.pace[axis];
            velocity[axis] = 3 * walker.pace[axis] + (this.tick % 3) - 1;
        }
        const height = position[2] + (walker.rises ? 3 : -3);
        if (height < 0 || height > 130) walker.rises = !walker.rises;
        position[2] += walker.rises ? 3 : -3;
        velocity[2] = (walker.rises ? 9 : -9) + (this.tick % 2);
        character.yaw = (character.yaw + walker.turn) % YAW_STEPS;
        const pitch = character.pitch + (walker.pitchesUp ? 1 : -1);
        if (Math.abs(pitch) > PITCH_LIMIT) walker.pitchesUp = !walker.pitchesUp;
        character.pitch += walker.pitchesUp ? 1 : -1;
        character.mode = (character.mode + 1) % 3;
    }

    seesCharacter(client, number) {
        return this.isDense || client === number;
    }

    seesChest(client, chest) {
        return this.isDense || client === Math.floor(chest / this.chestsPerPlayer);
    }

    /// What a client is to hold: texts by object.
    expected(client) {
        const held = new Map();
        this.characters.forEach((character, number) => {
            if (this.seesCharacter(client, number)) held.set(number, describe(character));
        });
        this.chests.forEach((contents, chest) => {
            if (this.seesChest(client, chest)) held.set(this.players + chest, `chest ${contents}`);
        });
        return held;
    }

    /// The text of every object, by number.
    describeAll() {
        return [...this.characters.map(describe), ...this.chests.map((contents) => `chest ${contents}`)];
    }
}

function describe({ position, velocity, yaw, pitch, mode }) {
    return [...position, ...velocity, yaw, pitch, mode].join(" ");
}
