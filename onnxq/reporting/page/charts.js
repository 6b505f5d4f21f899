// Charts by Observable Plot. Colours are CSS variables, so that themes and printing just work.

const PRECISIONS = ["integer", "float", "constant", "index"];
const LOOK = { background: "none", color: "var(--soft)", fontSize: "12px" };
const HISTOGRAMS_AT_ONCE = 12;

function drawCoverage() {
  const place = byId("coverage-chart");
  const counts = new Map();
  for (let at = 0; at < COUNT; at++) {
    const precision = LAYERS.precision[at];
    if (precision !== "integer" && precision !== "float") continue;
    const op = LAYERS.op[at];
    if (!counts.has(op)) counts.set(op, { integer: 0, float: 0 });
    counts.get(op)[precision]++;
  }
  const total = (each) => each.integer + each.float;
  const kinds = [...counts].sort((a, b) => total(b[1]) - total(a[1])).slice(0, 14);
  if (!kinds.length) { place.hidden = true; return; }
  const bars = kinds.flatMap(([op, each]) => ["integer", "float"]
    .map((precision) => ({ op, precision, count: each[precision] })).filter((bar) => bar.count));
  place.replaceChildren(Plot.plot({
    style: LOOK,
    width: Math.min(760, place.clientWidth || 760),
    height: 44 + 24 * kinds.length,
    marginLeft: 10 + 7.2 * Math.min(26, d3.max(kinds, ([op]) => op.length)),
    x: { label: "operators", grid: true, ticks: 6, tickFormat: "d" },
    y: { label: null, domain: kinds.map(([op]) => op), tickFormat: (op) => op.length > 26 ? `${op.slice(0, 25)}…` : op },
    color: { domain: ["integer", "float"], range: ["var(--integer)", "var(--float)"], legend: true },
    marks: [
      Plot.barX(bars, { x: "count", y: "op", fill: "precision", insetTop: 2, insetBottom: 2, tip: { fill: "var(--paper)" } }),
      Plot.ruleX([0]),
    ],
  }));
}

function drawErrors(select) {
  const place = byId("error-chart");
  if (!place) return;
  const dots = d3.range(COUNT).filter((at) => LAYERS.sqnr[at] !== null)
    .map((at) => ({ at, sqnr: LAYERS.sqnr[at] === "exact" ? null : Math.max(-20, LAYERS.sqnr[at]) }))
    .filter((dot) => dot.sqnr !== null);
  if (dots.length < 2) { place.hidden = true; return; }
  const low = Math.min(0, d3.min(dots, (dot) => dot.sqnr));
  const chart = Plot.plot({
    style: LOOK,
    width: Math.min(1100, place.clientWidth || 900),
    height: 260,
    marginLeft: 44, marginTop: 30, marginBottom: 44,
    x: { label: "layers, in the order of the network", ticks: 10, labelOffset: 38 },
    y: { label: "signal to noise, dB", grid: true, domain: [low, d3.max(dots, (dot) => dot.sqnr) * 1.05], nice: true },
    color: { domain: PRECISIONS, range: PRECISIONS.map((p) => `var(--${p})`) },
    marks: [
      Plot.ruleY([DATA.limits.low], { stroke: "var(--poor)", strokeDasharray: "4 3" }),
      Plot.text([DATA.limits.low], { y: (d) => d, frameAnchor: "right", text: () => "below: a visible loss", dy: -7, fill: "var(--poor)" }),
      Plot.line(dots, { x: (dot) => dot.at + 1, y: "sqnr", stroke: "var(--line)" }),
      Plot.dot(dots, {
        x: (dot) => dot.at + 1, y: "sqnr", fill: (dot) => LAYERS.precision[dot.at],
        r: dots.length > 400 ? 1.8 : 3,
        title: (dot) => `${LAYERS.name[dot.at]}\n${LAYERS.op[dot.at]}, ${decibels(dot.sqnr)}`,
        tip: { fill: "var(--paper)" },
      }),
    ],
  });
  chart.addEventListener("click", () => { if (chart.value) select(chart.value.at); });
  place.replaceChildren(chart);
}

// -- histograms -----------------------------------------------------------------------------------

function gridTicks(grid, scale) {
  const codes = grid.codes[1] - grid.codes[0];
  const step = (grid.ends[1] - grid.ends[0]) / codes;
  // At most one tick for every three pixels.
  const every = 2 ** Math.max(0, Math.ceil(Math.log2(3 / (step * scale))));
  const ticks = d3.range(0, codes + 1, every).map((n) => grid.ends[0] + n * step);
  return { ticks, every };
}

function histogram(each, width) {
  const [left, right] = each.ends;
  const size = (right - left) / each.bins.length;
  const bars = each.bins.map((share, n) => ({ share, x1: left + n * size, x2: left + (n + 1) * size }));
  const top = d3.max(each.bins) || 1;
  const grid = each.grid;
  const marginLeft = 8, marginRight = 8;
  const marks = [];
  let drawn = null;
  if (grid) {
    drawn = gridTicks(grid, (width - marginLeft - marginRight) / (right - left));
    marks.push(
      Plot.rect([grid.ends], { x1: (d) => d[0], x2: (d) => d[1], y1: 0, y2: top, fill: "var(--band)" }),
      Plot.ruleX(grid.ends, { stroke: "var(--accent)", strokeWidth: 1.2 }),
    );
  }
  marks.push(
    Plot.rect(bars, { x1: "x1", x2: "x2", y1: 0, y2: "share", fill: "var(--soft)", fillOpacity: 0.75, insetLeft: 0.4, insetRight: 0.4,
      title: (d) => `${short(d.x1)} to ${short(d.x2)}: ${percent(d.share)}`, tip: { fill: "var(--paper)" } }),
    Plot.ruleY([0], { stroke: "var(--line)" }),
  );
  if (drawn && drawn.every === 1 && drawn.ticks.length < 40) marks.push(Plot.ruleX(drawn.ticks, { stroke: "var(--accent)", strokeOpacity: 0.35 }));
  if (drawn) marks.push(Plot.tickX(drawn.ticks, { x: (d) => d, stroke: "var(--accent)", strokeWidth: 0.8, y: null, insetTop: 118, insetBottom: -6, clip: false }));
  return Plot.plot({
    style: LOOK, width, height: 160, marginLeft, marginRight, marginTop: 6, marginBottom: 34,
    x: { domain: [left, right], label: each.codes ? "code" : "value", ticks: 6 },
    y: { type: "sqrt", axis: null, domain: [0, top] },
    marks,
  });
}

function gridWords(each) {
  const grid = each.grid;
  if (!grid) return "float";
  const scales = grid.scales > 1 ? `${grid.scales} scales ${short(grid.scale[0])} to ${short(grid.scale[1])}` : `scale ${short(grid.scale[0])}`;
  const zero = grid.scales > 1 ? "" : `, zero point ${String(grid.zero).replace("-", "−")}`;
  return `${grid.kind} ${grid.codes[0]}…${grid.codes[1]}, ${scales}${zero}`.replaceAll("-", "−");
}

function gridEffects(each) {
  if (!each.grid) return "";
  const parts = [];
  if (each.sqnr !== null) parts.push(`rounding leaves ${decibels(each.sqnr)}`);
  else if (each.codes) parts.push("stored as codes");
  parts.push(each.clipped ? `${percent(each.clipped)} cut off` : "nothing cut off", `${percent(each.used)} of the range used`);
  return parts.join(" · ");
}

function figure(each, width) {
  const made = element("figure", { class: "histogram" });
  const caption = element("figcaption", {}, element("span", { class: "name" }, each.tensor));
  caption.append(element("small", {}, gridWords(each)));
  const effects = gridEffects(each);
  if (effects) caption.append(element("small", {}, effects));
  const beyond = each.outside[0] + each.outside[1];
  if (beyond) caption.append(element("small", {}, `${percent(beyond)} beyond the drawing, up to ${short(each.outside[1] ? each.extremes[1] : each.extremes[0])}`));
  const chart = histogram(each, width);
  chart.setAttribute("role", "img");
  chart.setAttribute("aria-label", `Histogram of ${each.tensor}: ${gridWords(each)}. ${effects}`);
  made.append(caption, chart);
  return made;
}

function startHistograms() {
  const place = byId("histograms");
  if (!place) return;
  const order = byId("tensor-order"), filter = byId("tensor-filter"), more = byId("more-histograms");
  const rank = {
    sqnr: (each) => each.sqnr ?? Infinity,
    clipped: (each) => -each.clipped,
    used: (each) => each.used,
    name: (each) => each.tensor,
  };
  let most = HISTOGRAMS_AT_ONCE;

  function update() {
    const role = document.querySelector("[name=role]:checked").value;
    const text = filter.value.trim().toLowerCase();
    const key = rank[order.value];
    const found = DATA.distributions
      .filter((each) => each.role === role && each.tensor.toLowerCase().includes(text))
      .sort((a, b) => d3.ascending(key(a), key(b)));
    const room = place.clientWidth || 680;
    const columns = Math.max(1, Math.floor((room + 14) / 334));
    const width = Math.floor((room - 14 * (columns - 1)) / columns) - 32;
    place.replaceChildren(...found.slice(0, most).map((each) => figure(each, width)));
    if (!found.length) place.append(element("p", { class: "empty" }, "No tensor has such a name."));
    more.hidden = found.length <= most;
    more.textContent = `Show more (${found.length - most} left)`;
  }

  more.addEventListener("click", () => { most += 4 * HISTOGRAMS_AT_ONCE; update(); });
  const again = () => { most = HISTOGRAMS_AT_ONCE; update(); };
  for (const input of document.querySelectorAll("[name=role]")) input.addEventListener("change", again);
  filter.addEventListener("input", again);
  order.addEventListener("change", again);
  update();
}
