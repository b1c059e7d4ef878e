// @ts-check
// The live page. Reads the stream of the hub (GET /live, docs/live.md) and draws it.
"use strict";

/**
 * @typedef {{name: string, budget_ms?: number}} Subsystem
 * @typedef {{type: "hello", workload: string, unit: string, tick_hz: number, budget_ms?: number, subsystems: Subsystem[],
 *   map?: {left_m: number, bottom_m: number, width_m: number, height_m: number}, load?: {least: number, most: number}}} Hello
 * @typedef {{type: "sample", time_s: number, wanted: number, connected: number, frame_p50_ms: number, frame_p99_ms: number,
 *   frame_max_ms: number, subsystems_ms: Record<string, number>, breaches: number, missed_ticks?: number, kbit_per_s?: number,
 *   near_age_p99_ms?: number, generator_cores?: number}} Sample
 * @typedef {{type: "points", time_s: number, points: string}} Points
 * @typedef {{type: "mark", text: string}} Mark
 * @typedef {{feed: number, at_s: number, message: Hello | Sample | Points | Mark | {type: "end"}}} StreamEvent
 */

/** Samples on the plots; older ones go. */
const SAMPLES_MAX = 2400;
/** Events in the list, and lines on the plots. */
const MARKS_MAX = 200;
/** Loads that are remembered; the oldest are forgotten. */
const HELLOS_MAX = 64;
/** The plots are drawn again at most so often. */
const REDRAW_MS = 250;
const RETRY_MS = 2000;
/** Bytes of a point: x, y and kind. */
const POINT_BYTES = 5;
/** Told apart by everybody, in light and dark (Okabe and Ito). */
const COLORS = ["#0072b2", "#e69f00", "#009e73", "#cc79a7", "#56b4e9", "#d55e00", "#999933", "#882255", "#44aa99", "#aa4499", "#117733", "#777777"];

const $ = (/** @type {string} */ id) => /** @type {HTMLElement} */ (document.getElementById(id));
const css = (/** @type {string} */ name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** @type {Map<number, Hello>} loads that were there, by number */
const hellos = new Map();
/** The load that is shown: the newest with figures. @type {number | null} */
let shown = null;
/** @type {{at: number, sample: Sample}[]} */
let samples = [];
/** @type {{at: number, text: string}[]} */
let marks = [];
let lost = 0;
/** For tests: drawn maps, and the time that they took. */
const drawn = { maps: 0, ms: 0, points: 0 };
// @ts-ignore
window.throngLive = drawn;

// ---- plots

/** A line at each mark, and the budget, behind the curves. @param {() => number | undefined} budget */
function lines(budget) {
  return (/** @type {any} */ plot) => {
    const { ctx, bbox } = plot;
    ctx.save();
    ctx.lineWidth = devicePixelRatio;
    ctx.setLineDash([]);
    ctx.strokeStyle = css("--soft");
    for (const mark of marks) {
      const x = Math.round(plot.valToPos(mark.at, "x", true));
      if (x >= bbox.left && x <= bbox.left + bbox.width) {
        ctx.globalAlpha = 0.6;
        ctx.beginPath(); ctx.moveTo(x, bbox.top); ctx.lineTo(x, bbox.top + bbox.height); ctx.stroke();
      }
    }
    const most = budget();
    if (most !== undefined && plot.scales.y.max >= most) {
      const y = Math.round(plot.valToPos(most, "y", true));
      ctx.globalAlpha = 1;
      ctx.strokeStyle = css("--bad");
      ctx.setLineDash([6 * devicePixelRatio, 4 * devicePixelRatio]);
      ctx.beginPath(); ctx.moveTo(bbox.left, y); ctx.lineTo(bbox.left + bbox.width, y); ctx.stroke();
    }
    ctx.restore();
  };
}

/**
 * @param {string} id
 * @param {any[]} series
 * @param {{height?: number, bands?: any[], budget?: () => number | undefined}} [options]
 */
function plot(id, series, options = {}) {
  const axis = { stroke: () => css("--soft"), grid: { stroke: () => css("--line"), width: 1 }, ticks: { stroke: () => css("--line") } };
  const time = (/** @type {any} */ _, /** @type {number | null} */ at) => (at === null ? "–" : at.toFixed(1) + " s");
  return new uPlot({
    width: Math.max(200, $(id).clientWidth), height: options.height ?? 160,
    cursor: { sync: { key: "live" } },
    legend: { live: true },
    scales: { x: { time: false }, y: { range: (/** @type {any} */ _, /** @type {number} */ __, /** @type {number} */ high) => [0, (high > 0 ? high : 1) * 1.1] } },
    axes: [{ ...axis, values: (/** @type {any} */ _, /** @type {number[]} */ at) => at.map((s) => s + " s") }, { ...axis, size: 56 }],
    series: [{ label: "time", value: time }, ...series],
    bands: options.bands ?? [],
    hooks: { draw: [lines(options.budget ?? (() => undefined))] },
  }, [[], ...series.map(() => [])], $(id));
}

const number = (/** @type {string} */ unit, digits = 1) => (/** @type {any} */ _, /** @type {number | null} */ value) =>
  value === null || value === undefined ? "–" : value.toFixed(digits) + " " + unit;
const curve = (/** @type {string} */ label, /** @type {string} */ unit, digits = 1, dash = false) => ({
  label, stroke: () => css(dash ? "--soft" : "--accent"), width: 1.5, dash: dash ? [6, 4] : undefined, value: number(unit, digits), points: { show: false },
});

/** @type {any} */ let framePlot = null;
const loadPlot = plot("load-plot", [curve("there", "", 0), curve("wanted", "", 0, true)]);
const dataPlot = plot("data-plot", [curve("data", "kbit/s", 0)]);
const agePlot = plot("age-plot", [curve("age, p99", "ms", 0)]);
const generatorPlot = plot("generator-plot", [curve("generator", "cores", 2)]);

/** The parts of a frame, one above the other: each curve is the sum of its part and those below it. @param {Hello} hello */
function makeFramePlot(hello) {
  if (framePlot) framePlot.destroy();
  const names = hello.subsystems.map((part) => part.name);
  const color = (/** @type {number} */ at) => COLORS[at % COLORS.length];
  const own = (/** @type {number} */ at) => (/** @type {any} */ of, /** @type {number | null} */ sum, /** @type {number} */ series, /** @type {number | null} */ index) => {
    if (sum === null || index === null || index === undefined) return "–";
    return (sum - (at === 0 ? 0 : of.data[series - 1][index])).toFixed(3) + " ms";
  };
  const label = (/** @type {Subsystem} */ part) => part.name + (part.budget_ms === undefined ? "" : ` (budget ${part.budget_ms} ms)`);
  const parts = hello.subsystems.map((part, at) => ({ label: label(part), stroke: color(at), width: 1, fill: color(at) + "66", value: own(at), points: { show: false } }));
  const bands = names.slice(1).map((_, at) => ({ series: [at + 2, at + 1], fill: color(at + 1) + "66" }));
  const whole = { label: "frame, p99", stroke: () => css("--ink"), width: 1.5, value: number("ms", 2), points: { show: false } };
  framePlot = plot("frame-plot", [...parts, whole], { height: 260, bands, budget: () => hello.budget_ms });
}

function drawPlots() {
  const hello = shown === null ? undefined : hellos.get(shown);
  if (!hello || !framePlot) return;
  const at = samples.map((entry) => entry.at);
  const of = (/** @type {(sample: Sample) => number | undefined} */ read) => samples.map((entry) => read(entry.sample) ?? null);
  const sums = samples.map(() => 0);
  const stacked = hello.subsystems.map((part) => samples.map((entry, index) => (sums[index] += entry.sample.subsystems_ms[part.name] ?? 0)));
  framePlot.setData([at, ...stacked, of((sample) => sample.frame_p99_ms)]);
  loadPlot.setData([at, of((sample) => sample.connected), of((sample) => sample.wanted)]);
  dataPlot.setData([at, of((sample) => sample.kbit_per_s)]);
  agePlot.setData([at, of((sample) => sample.near_age_p99_ms)]);
  generatorPlot.setData([at, of((sample) => sample.generator_cores)]);
}

// ---- figures

/** @param {Sample} sample @param {Hello} hello */
function drawTiles(sample, hello) {
  const budget = hello.budget_ms;
  /** @type {[string, number | undefined, string, number, boolean, string][]} */
  const tiles = [
    [hello.unit || "load", sample.connected, sample.wanted === sample.connected ? "" : `of ${sample.wanted}`, 0, false, "Players that are connected, or matches that are played."],
    ["frame, median", sample.frame_p50_ms, "ms", 2, false, "Half of the frames of the last half second took less: the work of a tick, without waiting for it."],
    ["frame, p99", sample.frame_p99_ms, "ms", 2, budget !== undefined && sample.frame_p99_ms > budget, "99 of 100 frames took less."],
    ["longest frame", sample.frame_max_ms, "ms", 2, budget !== undefined && sample.frame_max_ms > budget, "The longest frame of the last half second."],
    ["over budget", sample.breaches, "frames", 0, false, "Frames over their budget since the load began."],
    ["missed ticks", sample.missed_ticks, "", 0, false, "Ticks that were due and never played, since the load began."],
    ["data to each", sample.kbit_per_s, "kbit/s", 0, false, "Payload to each client."],
    ["age near, p99", sample.near_age_p99_ms, "ms", 0, false, "Age of the state of neighbours within 10 m, as the bots see it."],
  ];
  $("tiles").replaceChildren(...tiles.filter((tile) => tile[1] !== undefined).map(([name, value, unit, digits, isBad, about]) => {
    const tile = document.createElement("dl"), term = document.createElement("dt"), figure = document.createElement("dd"), small = document.createElement("small");
    tile.className = isBad ? "tile bad" : "tile";
    tile.title = about;
    term.textContent = name;
    small.textContent = " " + unit;
    figure.append((value ?? 0).toFixed(digits), small);
    tile.append(term, figure);
    return tile;
  }));
}

// ---- map

/** @type {Uint8Array | null} */ let newest = null;
let isMapDue = false;

/** @param {Points} message */
function takePoints(message) {
  const text = atob(message.points);
  const bytes = new Uint8Array(text.length - (text.length % POINT_BYTES));
  for (let at = 0; at < bytes.length; at++) bytes[at] = text.charCodeAt(at);
  newest = bytes;
  if (!isMapDue) {
    isMapDue = true;
    requestAnimationFrame(drawMap);
  }
}

function drawMap() {
  isMapDue = false;
  const hello = shown === null ? undefined : hellos.get(shown);
  if (!hello || !hello.map || !newest) return;
  const began = performance.now();
  const canvas = /** @type {HTMLCanvasElement} */ ($("map"));
  const width = Math.round(canvas.clientWidth * devicePixelRatio);
  const height = Math.round(Math.min(width * hello.map.height_m / hello.map.width_m, 640 * devicePixelRatio));
  if (canvas.width !== width || canvas.height !== height) {
    canvas.width = width;
    canvas.height = height;
  }
  const context = /** @type {CanvasRenderingContext2D} */ (canvas.getContext("2d"));
  context.clearRect(0, 0, width, height);
  // The whole map fits, with equal scales for both axes.
  const scale = Math.min(width / hello.map.width_m, height / hello.map.height_m);
  const [wide, high] = [hello.map.width_m * scale, hello.map.height_m * scale];
  const [left, bottom] = [(width - wide) / 2, (height + high) / 2];
  const count = newest.length / POINT_BYTES;
  const size = Math.max(1.5, Math.min(5, 250 / Math.sqrt(count + 1))) * devicePixelRatio;
  const colors = [css("--accent"), css("--witness"), ...COLORS.slice(2)];
  for (let kind = 0; kind < colors.length; kind++) {
    context.fillStyle = colors[kind];
    for (let at = 0; at < newest.length; at += POINT_BYTES) {
      if (Math.min(newest[at + 4], colors.length - 1) !== kind) continue;
      const x = left + (newest[at] + newest[at + 1] * 256) / 65535 * wide;
      const y = bottom - (newest[at + 2] + newest[at + 3] * 256) / 65535 * high;
      context.fillRect(x - size / 2, y - size / 2, size, size);
    }
  }
  $("map-note").textContent = `· ${count.toLocaleString("en")} points · ${hello.map.width_m} m x ${hello.map.height_m} m`;
  drawn.maps++;
  drawn.points = count;
  drawn.ms += performance.now() - began;
}

// ---- the stream

/** Shows another load. @param {number} feed @param {Hello} hello */
function show(feed, hello) {
  shown = feed;
  samples = [];
  newest = null;
  $("workload").textContent = hello.workload;
  $("map-part").hidden = !hello.map;
  const control = /** @type {HTMLFormElement} */ ($("control")), amount = /** @type {HTMLInputElement} */ ($("amount"));
  control.hidden = !hello.load;
  if (hello.load) {
    amount.min = String(hello.load.least);
    amount.max = String(hello.load.most);
    $("range").textContent = `(${hello.load.least} to ${hello.load.most} ${hello.unit})`;
  }
  makeFramePlot(hello);
}

/** Remembers a load. @param {number} feed @param {Hello} hello */
function addHello(feed, hello) {
  hellos.delete(feed);
  hellos.set(feed, hello);
  for (const oldest of hellos.keys()) {
    if (hellos.size <= HELLOS_MAX) break;
    if (oldest !== shown) hellos.delete(oldest);
  }
}

/** @param {number} at @param {string} text */
function addMark(at, text) {
  marks.push({ at, text });
  if (marks.length > MARKS_MAX) marks.shift();
  areMarksDue = true;
}

/** @param {StreamEvent} event */
function take(event) {
  const { feed, at_s: at, message } = event;
  const hello = hellos.get(feed);
  switch (message.type) {
    case "hello":
      addHello(feed, message);
      break;
    case "sample":
      if (!hello || (shown !== null && feed < shown)) break;
      if (feed !== shown) show(feed, hello);
      samples.push({ at, sample: message });
      if (samples.length > SAMPLES_MAX) samples.shift();
      arePlotsDue = true;
      break;
    case "points":
      if (feed === shown) takePoints(message);
      break;
    case "mark":
      addMark(at, message.text);
      arePlotsDue = true;
      break;
    case "end":
      if (hello) addMark(at, `${hello.workload} has ended`);
      if (feed === shown) $("control").hidden = true;
      areRunsDue = true;
      break;
  }
}

let arePlotsDue = false, areMarksDue = false, areRunsDue = false;
setInterval(() => {
  if (areRunsDue) {
    // Of the loads of the past, all ends come at once.
    areRunsDue = false;
    readRuns();
  }
  const hello = shown === null ? undefined : hellos.get(shown);
  if (areMarksDue) {
    areMarksDue = false;
    $("marks").replaceChildren(...marks.slice().reverse().map((mark) => {
      const item = document.createElement("li");
      item.textContent = `${mark.at.toFixed(0)} s: ${mark.text}`;
      return item;
    }));
  }
  if (!arePlotsDue || !hello || document.hidden) return;
  arePlotsDue = false;
  const last = samples[samples.length - 1];
  if (last) drawTiles(last.sample, hello);
  drawPlots();
}, REDRAW_MS);

function readRuns() {
  fetch("/runs").then((answer) => {
    // Too many read at the same time.
    if (!answer.ok) setTimeout(() => { areRunsDue = true; }, RETRY_MS);
    return answer.ok ? answer.json() : [];
  }).then((/** @type {{name: string, file: string}[]} */ runs) => {
    if (runs.length === 0) return;
    $("runs").replaceChildren(...runs.map((run) => {
      const item = document.createElement("li"), link = document.createElement("a");
      link.href = `/runs/${encodeURIComponent(run.name)}/${run.file}`;
      link.textContent = run.name;
      item.append(link);
      return item;
    }));
  }).catch(() => {});
}

function connect() {
  const stream = new EventSource("/live"), state = $("state");
  stream.onopen = () => {
    // All that is kept comes again.
    hellos.clear();
    [shown, samples, marks, lost] = [null, [], [], 0];
    state.className = "";
    state.textContent = "connected";
  };
  stream.onmessage = (event) => take(JSON.parse(event.data));
  stream.addEventListener("lost", (event) => {
    lost += Number(event.data);
    state.textContent = `connected; this browser was too slow for ${lost} events`;
  });
  stream.onerror = () => {
    state.className = "broken";
    state.textContent = "not connected: the program has ended, or cannot be reached. The page tries again.";
  };
}

$("control").addEventListener("submit", (event) => {
  event.preventDefault();
  const amount = Number(/** @type {HTMLInputElement} */ ($("amount")).value);
  const answer = $("answer");
  fetch("/set", { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ feed: shown, amount }) })
    .then(async (reply) => { answer.textContent = reply.ok ? `asked for ${amount}` : (await reply.text()).trim(); })
    .catch(() => { answer.textContent = "not connected"; });
});
addEventListener("resize", () => {
  for (const one of [framePlot, loadPlot, dataPlot, agePlot, generatorPlot]) {
    if (one) one.setSize({ width: Math.max(200, one.root.parentElement.clientWidth), height: one.height });
  }
  drawMap();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => { drawPlots(); drawMap(); });
readRuns();
connect();
