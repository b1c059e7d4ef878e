"use strict";
// Terms: the button itself shows the explanation at a key, a click or a touch. A mouse shows it by pointing.
document.querySelectorAll(".term").forEach(term => {
  const tip = document.getElementById(term.getAttribute("popovertarget"));
  if (!tip.showPopover) return;
  const isMouse = event => event.pointerType === "mouse";
  let isKept = false;
  term.addEventListener("pointerenter", event => isMouse(event) && (isKept = false, tip.showPopover({ source: term })));
  term.addEventListener("click", () => (isKept = true));
  term.addEventListener("pointerleave", event => isMouse(event) && !isKept && tip.hidePopover());
});

const numbers = document.getElementById("plots");
if (numbers) (() => {
  const plots = JSON.parse(numbers.textContent);
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue("--i-" + name).trim() || "#888";
  const shown = value => value == null ? "–" : Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en") : +value.toPrecision(3) + "";
  const short = value => Math.abs(value) >= 1e6 ? +(value / 1e6).toPrecision(3) + " M" : Math.abs(value) >= 1e4 ? +(value / 1e3).toPrecision(3) + " k" : shown(value);
  const dashes = [[], [7, 5], [2, 4], [12, 4, 2, 4]];
  const touch = matchMedia("(hover: none)").matches;
  // Charts of one axis have one range, one cursor and one zoom.
  const axisOf = plot => plot.plot === "histogram" ? "histogram" : plot.axis || "time";
  const xOf = plot => plot.plot === "histogram" ? plot.from.map(from => from + (plot.from[1] - plot.from[0] || 1) / 2) : plot.x;
  const axes = {};
  for (const plot of plots) {
    const x = xOf(plot), axis = axes[axisOf(plot)] ||= { low: Infinity, high: -Infinity, charts: [] };
    // Seconds that are sampled end a moment after the last frame: no axis begins after 0.
    axis.low = Math.min(axis.low, axisOf(plot) === "time" ? 0 : x[0]);
    axis.high = Math.max(axis.high, x[x.length - 1]);
  }
  if (axes.histogram) axes.histogram.low = 0;

  const zoom = (axis, low, high) => axis.charts.forEach(chart => chart.setScale("x", { min: low, max: high }));

  const text = (u, words, x, y, ink, align) => {
    u.ctx.save();
    u.ctx.font = `${12 * devicePixelRatio}px system-ui`;
    u.ctx.textAlign = align;
    u.ctx.textBaseline = "middle";
    u.ctx.lineWidth = 3 * devicePixelRatio;
    u.ctx.strokeStyle = getComputedStyle(document.body).backgroundColor;
    u.ctx.strokeText(words, x, y);
    u.ctx.fillStyle = ink;
    u.ctx.fillText(words, x, y);
    u.ctx.restore();
  };

  // The limit is drawn where it fits; a curve far below its limit is not flattened to show it.
  const limitLine = (limit, isVertical) => u => {
    const scale = u.scales[isVertical ? "x" : "y"];
    if (!limit || limit.value > scale.max || limit.value < scale.min) return;
    const { left, top, width, height } = u.bbox;
    const at = Math.round(u.valToPos(limit.value, isVertical ? "x" : "y", true));
    u.ctx.save();
    u.ctx.strokeStyle = colour("bad");
    u.ctx.setLineDash([6, 4]);
    u.ctx.beginPath();
    isVertical ? (u.ctx.moveTo(at, top), u.ctx.lineTo(at, top + height)) : (u.ctx.moveTo(left, at), u.ctx.lineTo(left + width, at));
    u.ctx.stroke();
    u.ctx.restore();
    const words = `${limit.name}: ${shown(limit.value)}`, gap = 8 * devicePixelRatio;
    isVertical ? text(u, words, at - gap / 2, top + gap, colour("bad"), "right") : text(u, words, left + width - gap, at - gap, colour("bad"), "right");
  };

  const range = limit => (u, low, high) => {
    const top = (high || 0) * 1.08;
    return [Math.min(0, low || 0), limit && limit.value < top * 2.5 ? Math.max(top, limit.value * 1.15) : top || 1];
  };

  // Each kind of plot: its data, its series, its marks, and what is said of a place.
  const kinds = {
    chart: plot => ({
      data: [plot.x, ...plot.curves.map(curve => curve.values)],
      series: plot.curves.map((curve, number) => ({
        stroke: colour(curve.ink), width: plot.is_points ? 0 : 1.75, dash: dashes[number % 4], spanGaps: true,
        points: { show: plot.is_points, size: 8, fill: colour(curve.ink) },
      })),
      draw: [limitLine(plot.limit), u => plot.curves.length > 1 && !plot.is_points && plot.curves.forEach((curve, number) => {
        const last = curve.values.findLastIndex((value, i) => value != null && plot.x[i] <= u.scales.x.max);
        if (last < 0) return;
        text(u, curve.name, u.bbox.left + u.bbox.width - 4, u.valToPos(curve.values[last], "y", true) - 9 * devicePixelRatio, colour(curve.ink), "right");
      })],
      limit: plot.limit,
      words: i => [`${shown(plot.x[i])} ${plot.axis || "s"}`, ...plot.curves.map(curve => `${curve.name} ${shown(curve.values[i])} ${plot.unit}`)],
    }),
    frames: plot => {
      let sum = plot.x.map(() => 0);
      const layers = plot.parts.map(([, values]) => (sum = sum.map((below, i) => below + values[i])));
      return {
        // Each layer is drawn from zero to the sum of itself and those below, the tallest first: the rest covers it.
        data: [plot.x, ...layers.reverse()],
        series: [...plot.inks].reverse().map(ink => ({ fill: colour(ink), stroke: colour(ink), width: 0, points: { show: false } })),
        draw: [limitLine(plot.budget), u => {
          // Direct labels, on layers with room for them.
          const end = plot.x.findLastIndex(x => x <= u.scales.x.max), from = plot.x.findIndex(x => x >= u.scales.x.min);
          if (from < 0 || end < from) return;
          let below = 0;
          plot.parts.forEach(([name, values]) => {
            const part = values.slice(from, end + 1).reduce((a, b) => a + b, 0) / (end - from + 1);
            const [low, high] = [u.valToPos(below, "y", true), u.valToPos(below + part, "y", true)];
            if (low - high > 15 * devicePixelRatio) text(u, name, u.bbox.left + u.bbox.width - 6, (low + high) / 2, colour("ink"), "right");
            below += part;
          });
        }, u => {
          u.ctx.save();
          u.ctx.fillStyle = colour("bad");
          plot.missed.forEach((missed, i) => {
            if (!missed || plot.x[i] < u.scales.x.min || plot.x[i] > u.scales.x.max) return;
            const x = u.valToPos(plot.x[i], "x", true), size = 5 * devicePixelRatio;
            u.ctx.beginPath();
            u.ctx.moveTo(x - size, u.bbox.top), u.ctx.lineTo(x + size, u.bbox.top), u.ctx.lineTo(x, u.bbox.top + 1.6 * size);
            u.ctx.fill();
          });
          if (plot.chosen != null) {
            const x = u.valToPos(plot.x[plot.chosen], "x", true);
            u.ctx.strokeStyle = colour("ink");
            u.ctx.beginPath();
            u.ctx.moveTo(x, u.bbox.top), u.ctx.lineTo(x, u.bbox.top + u.bbox.height);
            u.ctx.stroke();
          }
          u.ctx.restore();
        }],
        limit: plot.budget,
        tall: true,
        words: i => [`${shown(plot.x[i])} s`, `${shown(plot.total[i])} ms`, ...(plot.missed[i] ? [`${plot.missed[i]} ticks missed before it`] : []),
          ...plot.parts.map(([name, values]) => [name, values[i]]).sort((a, b) => b[1] - a[1]).slice(0, 4).map(([name, value]) => `${name} ${shown(value)}`)],
      };
    },
    histogram: plot => ({
      data: [xOf(plot), plot.counts.map(count => count || null)],
      series: [{ paths: uPlot.paths.bars({ size: [0.95, 100] }), fill: colour("send"), width: 0, points: { show: false } }],
      draw: [limitLine(plot.budget, true)],
      isLog: true,
      words: i => [`${shown(plot.from[i])} to ${shown(plot.from[i] + (plot.from[1] - plot.from[0] || 0))} ms`, `${shown(plot.counts[i])} frames`],
    }),
  };

  const choose = (plot, i, number) => {
    plot.chosen = i;
    const table = document.querySelector(`table.chosen[data-for="${number}"]`);
    const name = table.querySelector(".chosen-name");
    name.textContent = `at ${shown(plot.x[i])} s`;
    const values = [...plot.parts.map(([, values]) => values[i]), plot.total[i]];
    table.querySelectorAll("td.value").forEach((cell, row) => (cell.textContent = shown(values[row])));
    table.querySelectorAll("td.share").forEach((cell, row) => (cell.textContent = (values[row] / plot.total[i] * 100 || 0).toFixed(1) + " %"));
    plot.chart.redraw();
  };

  const draw = (box, number) => {
    const plot = plots[number], kind = kinds[plot.plot](plot), axis = axes[axisOf(plot)];
    const readout = box.nextElementSibling;
    const old = plot.chart;
    if (old) axis.charts.splice(axis.charts.indexOf(old), 1), old.destroy();
    const look = { stroke: colour("soft"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
    const unit = plot.plot === "histogram" ? "ms" : plot.axis || "s";
    const chart = new uPlot({
      width: box.clientWidth,
      height: kind.tall ? 300 : 190,
      legend: { show: false },
      cursor: {
        sync: { key: axisOf(plot), setSeries: false, scales: ["x", null] },
        drag: { x: true, y: false, setScale: false },
        points: { show: plot.plot === "chart" },
        bind: { dblclick: () => () => { zoom(axis, axis.low, axis.high); return null; } },
      },
      scales: {
        x: { time: false, auto: false, min: old ? old.scales.x.min : axis.low, max: old ? old.scales.x.max : axis.high },
        y: kind.isLog ? { distr: 3, range: (u, low, high) => [0.7, Math.max(10, 10 ** Math.ceil(Math.log10(high || 1)))] } : { range: range(kind.limit) },
      },
      series: [{}, ...kind.series],
      axes: [
        // A long unit stands once: at each tick, it would run into the next one.
        { ...look, size: 28, values: (_, ticks) => ticks.map((tick, i) => unit.length > 2 && i ? `${tick}` : `${tick} ${unit}`) },
        { ...look, size: 52, values: (_, ticks) => ticks.map(tick => tick == null ? "" : kind.isLog && Math.log10(tick) % 1 ? "" : short(tick)) },
      ],
      hooks: {
        draw: kind.draw,
        setCursor: [u => {
          const i = u.cursor.idx;
          if (i == null) return void (readout.textContent = "");
          const [first, ...rest] = kind.words(i);
          const bold = document.createElement("b");
          bold.textContent = first;
          readout.replaceChildren(bold, " " + rest.join(", "));
        }],
        setSelect: [u => {
          if (u.select.width < 5) return;
          const [low, high] = [u.posToVal(u.select.left, "x"), u.posToVal(u.select.left + u.select.width, "x")];
          u.setSelect({ left: 0, top: 0, width: 0, height: 0 }, false);
          zoom(axis, low, high);
        }],
      },
    }, kind.data, box);
    plot.chart = chart;
    axis.charts.push(chart);
    if (plot.plot === "frames") {
      let down = 0;
      chart.over.addEventListener("mousedown", event => (down = event.clientX));
      chart.over.addEventListener("click", event => {
        if (Math.abs(event.clientX - down) < 4 && chart.cursor.idx != null) choose(plot, chart.cursor.idx, number);
      });
      if (touch) chart.over.addEventListener("touchstart", event => {
        const at = event.touches[0].clientX - chart.over.getBoundingClientRect().left;
        choose(plot, chart.posToIdx(at), number);
      }, { passive: true });
    }
  };

  const boxes = [...document.querySelectorAll("[data-plot]")];
  const drawAll = () => boxes.forEach(box => draw(box, +box.dataset.plot));
  boxes.forEach(box => box.addEventListener("keydown", event => {
    const plot = plots[+box.dataset.plot], step = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
    if (event.key === "Escape") zoom(axes[axisOf(plot)], axes[axisOf(plot)].low, axes[axisOf(plot)].high);
    if (!step || plot.plot !== "frames") return;
    event.preventDefault();
    const from = plot.chosen ?? plot.total.indexOf(Math.max(...plot.total));
    choose(plot, Math.min(plot.x.length - 1, Math.max(0, from + step)), +box.dataset.plot);
  }));
  let pending;
  drawAll();
  addEventListener("resize", () => { clearTimeout(pending); pending = setTimeout(drawAll, 100); });
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  addEventListener("beforeprint", drawAll);
  addEventListener("afterprint", drawAll);
})();
