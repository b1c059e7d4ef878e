"use strict";
(() => {
  const run = JSON.parse(document.getElementById("summary").textContent);
  // Older runs lack some of them.
  const subsystems = ["simulate", "interest", "quantise", "plan", "encode", "write", "seal", "send", "receive", "open", "settle", "other"]
    .filter(name => (run.series.frames[name] || []).length > 0);
  const colour = name => getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim();

  // Each layer is drawn from zero to the sum of itself and those below, the tallest first: the rest covers it.
  const stack = frames => {
    let sum = frames.time_s.map(() => 0);
    const layers = subsystems.map(name => (sum = sum.map((below, i) => below + frames[name][i])));
    return [frames.time_s, ...layers.reverse()];
  };
  const layers = () => [...subsystems].reverse().map(name => ({ fill: colour(name), stroke: colour(name), width: 0 }));
  const line = name => ({ stroke: colour(name), width: 1.75 });

  const second = run.series.seconds;
  // Each bar is at the middle of its range.
  const histogram = run.series.histogram;
  const width = histogram.from_ms[1] || 0;
  const bars = { paths: uPlot.paths.bars({ size: [0.95, 100] }), fill: colour("send"), width: 0 };
  const plots = {
    frames: { data: () => stack(run.series.frames), series: layers, height: 280, unit: "ms", limit: run.server.tick_ms, limitName: "one tick" },
    histogram: { data: () => [histogram.from_ms.map(from => from + width / 2), histogram.frames], series: () => [bars], xUnit: "ms" },
    age: { data: () => [second.time_s, second.near_age_p99_ms], series: () => [line("send")] },
    rate: { data: () => [second.time_s, second.kbit_per_s], series: () => [line("send")], limit: run.client.budget_kbit_per_s, limitName: "budget" },
    encoded: { data: () => [second.time_s, second.frames_encoded_per_tick], series: () => [line("encode")] },
    shared: { data: () => [second.time_s, second.subscriptions_per_frame], series: () => [line("seal")] },
    cohorts: { data: () => [second.time_s, second.cohorts_per_channel], series: () => [line("quantise")] },
    loss: { data: () => [second.time_s, second.loss_ratio.map(share => share * 100)], series: () => [line("encode")] },
    resent: { data: () => [second.time_s, second.resent_segments_per_s], series: () => [line("encode")] },
    cpu: { data: () => [second.time_s, second.server_cpu_cores, second.bots_cpu_cores], series: () => [line("send"), line("encode")] },
  };

  // The limit is drawn where it fits; a curve far below its limit is not flattened to show it.
  const limitLine = ({ limit, limitName }) => ({
    hooks: {
      draw: [plot => {
        if (limit == null || limit > plot.scales.y.max) return;
        const y = Math.round(plot.valToPos(limit, "y", true));
        const { left, width } = plot.bbox;
        plot.ctx.save();
        plot.ctx.strokeStyle = colour("bad");
        plot.ctx.setLineDash([6, 4]);
        plot.ctx.beginPath();
        plot.ctx.moveTo(left, y);
        plot.ctx.lineTo(left + width, y);
        plot.ctx.stroke();
        plot.ctx.fillStyle = colour("bad");
        plot.ctx.font = `${12 * devicePixelRatio}px system-ui`;
        plot.ctx.textAlign = "right";
        plot.ctx.fillText(limitName, left + width, y - 5 * devicePixelRatio);
        plot.ctx.restore();
      }],
    },
  });

  const range = limit => (plot, low, high) => {
    const top = (high || 0) * 1.08;
    return [0, limit != null && limit < top * 2.5 ? Math.max(top, limit * 1.12) : top || 1];
  };

  const draw = (figure, plot) => {
    const data = plot.data();
    figure.replaceChildren();
    figure.classList.toggle("empty", data[0].length < 2);
    if (data[0].length < 2) {
      figure.textContent = "no data";
      return;
    }
    const axis = { stroke: colour("soft"), grid: { stroke: colour("line"), width: 1 }, ticks: { show: false }, font: "12px system-ui" };
    new uPlot({
      width: figure.clientWidth,
      height: plot.height || 170,
      legend: { show: false },
      cursor: { show: false },
      scales: { x: { time: false }, y: { range: range(plot.limit) } },
      series: [{}, ...plot.series().map(style => ({ points: { show: false }, ...style }))],
      axes: [
        { ...axis, size: 28, values: (_, ticks) => ticks.map(tick => tick + " " + (plot.xUnit || "s")) },
        { ...axis, size: 52, values: (_, ticks) => ticks.map(tick => plot.unit ? tick + " " + plot.unit : tick) },
      ],
      plugins: [limitLine(plot)],
    }, data, figure);
  };

  const drawAll = () => document.querySelectorAll("figure[data-plot]").forEach(figure => draw(figure, plots[figure.dataset.plot]));
  let pending;
  const redraw = () => { clearTimeout(pending); pending = setTimeout(drawAll, 100); };
  drawAll();
  // The first time, the page grew and may have got a scroll bar.
  drawAll();
  addEventListener("resize", redraw);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  addEventListener("beforeprint", drawAll);
  addEventListener("afterprint", drawAll);
})();
