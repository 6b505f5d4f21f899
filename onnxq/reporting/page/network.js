// The network, drawn by Cytoscape on a canvas. Places were computed when the report was made.

const DECIBEL_STEPS = [10, 20, 30, 40];
const ADDED_STEPS = [0.01, 0.003, 0.001, 0.0001];
const RAMP = ["r0", "r1", "r2", "r3", "r4"];

const COLOURINGS = {
  precision: {
    key: (at) => LAYERS.precision[at],
    legend: () => PRECISIONS.filter((p) => LAYERS.precision.includes(p)).map((p) => [p, p]),
  },
  sqnr: {
    key: (at) => {
      const value = LAYERS.sqnr[at];
      if (value === null) return "index";
      return value === "exact" ? "r4" : RAMP[DECIBEL_STEPS.filter((step) => value >= step).length];
    },
    legend: () => [["r0", "below 10 dB"], ["r1", "10 to 20"], ["r2", "20 to 30"], ["r3", "30 to 40"], ["r4", "40 dB and more"], ["index", "not compared"]],
  },
  added: {
    key: (at) => {
      const value = LAYERS.added[at];
      return value === null ? "index" : RAMP[ADDED_STEPS.filter((step) => value < step).length];
    },
    legend: () => [["r0", "adds 1 % and more"], ["r1", "0.3 to 1 %"], ["r2", "0.1 to 0.3 %"], ["r3", "0.01 to 0.1 %"], ["r4", "less than 0.01 %"], ["index", "not compared"]],
  },
};

function luminance(text) {
  const { r, g, b } = d3.rgb(text);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
}

function elements(paint) {
  const [width] = DATA.node;
  const nodes = d3.range(COUNT).map((at) => {
    const name = LAYERS.op[at];
    return {
      data: { id: String(at), at, label: name.length > 18 ? `${name.slice(0, 17)}…` : name, ...paint(at) },
      position: { x: LAYERS.x[at], y: LAYERS.y[at] },
    };
  });
  const edges = [];
  for (let at = 0; at < COUNT; at++) {
    for (const source of LAYERS.from[at]) {
      const dx = LAYERS.x[at] - LAYERS.x[source], dy = LAYERS.y[at] - LAYERS.y[source];
      const turns = dy <= 0; // into the next column
      // An edge over several rows would hide behind the layers between: it bows to the side.
      const bows = !turns && dy > 60 && Math.abs(dx) < width;
      edges.push({ data: { id: `${source}-${at}`, source: String(source), target: String(at), bow: 0.75 * width }, classes: turns ? "turns" : bows ? "bows" : "" });
    }
  }
  return { nodes, edges };
}

// The colours of the layers, as data of the nodes: faster than a function for each style.
function paints(colouring) {
  const cache = new Map();
  return (at) => {
    const name = colouring.key(at);
    if (!cache.has(name)) {
      const fill = colour(name);
      cache.set(name, { fill, text: luminance(fill) > 140 ? "#111" : "#fff" });
    }
    return cache.get(name);
  };
}

function look() {
  const [width, height] = DATA.node;
  const edge = colour("soft");
  return [
    { selector: "node", style: {
      shape: "round-rectangle", width, height, label: "data(label)", "font-size": 13, "font-family": "system-ui, sans-serif",
      "text-valign": "center", "text-halign": "center", "min-zoomed-font-size": 7,
      "background-color": "data(fill)", color: "data(text)" } },
    { selector: "edge", style: { width: 1.6, "line-color": edge, "target-arrow-color": edge, "target-arrow-shape": "triangle", "arrow-scale": 0.8, "curve-style": "straight", opacity: 0.55 } },
    { selector: "edge.bows", style: { "curve-style": "unbundled-bezier", "control-point-distances": "data(bow)", "control-point-weights": 0.5 } },
    { selector: "edge.turns", style: { "line-style": "dashed", opacity: 0.2 } },
    { selector: "node:selected", style: { "border-width": 4, "border-color": colour("ink") } },
    { selector: "edge.near", style: { opacity: 1, width: 3 } },
  ];
}

function startNetwork() {
  const place = byId("graph");
  if (!COUNT) { place.textContent = "The model has no operators."; return () => {}; }
  let colouring = COLOURINGS.precision;
  const cy = cytoscape({
    container: place, elements: elements(paints(colouring)), style: look(), layout: { name: "preset", fit: false },
    userZoomingEnabled: false, minZoom: 0.02, maxZoom: 3, boxSelectionEnabled: false, autoungrabify: true,
    hideEdgesOnViewport: COUNT > 600, textureOnViewport: COUNT > 600, pixelRatio: 1.5,
  });
  let current = -1;

  // The whole network: its extent is known, which is faster than asking for that of every curve.
  const [width, height] = DATA.node;
  const [left, right] = d3.extent(LAYERS.x), [top, bottom] = d3.extent(LAYERS.y);
  function fit() {
    const room = [place.clientWidth - 48, place.clientHeight - 48];
    const zoom = Math.min(room[0] / (right - left + 2 * width), room[1] / (bottom - top + height), 1.2);
    cy.viewport({ zoom, pan: {
      x: place.clientWidth / 2 - zoom * (left + right) / 2,
      y: place.clientHeight / 2 - zoom * (top + bottom) / 2 } });
  }

  function select(at, scroll = true) {
    current = at;
    cy.elements().removeClass("near");
    const node = cy.getElementById(String(at));
    cy.nodes(":selected").unselect();
    node.select();
    node.connectedEdges().addClass("near");
    cy.animate({ center: { eles: node }, zoom: Math.max(cy.zoom(), 0.8), duration: matchMedia("(prefers-reduced-motion: reduce)").matches ? 0 : 200 });
    showDetails(at);
    if (scroll) byId("network").scrollIntoView({ block: "start" });
  }

  function recolour() {
    const paint = paints(colouring);
    cy.batch(() => cy.nodes().forEach((node) => { node.data(paint(node.data("at"))); }));
    tellLegend();
  }

  function restyle() {
    cy.style(look());
    recolour();
  }

  function tellLegend() {
    byId("legend").replaceChildren(...colouring.legend().map(([name, text]) =>
      element("li", {}, element("i", { style: `background:var(--${name})` }), text)));
  }

  const zoomBy = (factor) => cy.zoom({ level: cy.zoom() * factor, renderedPosition: { x: place.clientWidth / 2, y: place.clientHeight / 2 } });
  const step = (by) => select((current + by + COUNT) % COUNT, false);
  const keys = {
    ArrowLeft: () => cy.panBy({ x: 80, y: 0 }), ArrowRight: () => cy.panBy({ x: -80, y: 0 }),
    ArrowUp: () => cy.panBy({ x: 0, y: 80 }), ArrowDown: () => cy.panBy({ x: 0, y: -80 }),
    "+": () => zoomBy(1.3), "=": () => zoomBy(1.3), "-": () => zoomBy(1 / 1.3), 0: fit,
    n: () => step(1), p: () => step(-1),
  };
  place.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey || !(event.key in keys)) return;
    event.preventDefault();
    keys[event.key]();
  });
  // Who scrolls the page past the network does not mean to zoom: that needs a click on it, or Ctrl.
  place.addEventListener("pointerup", () => place.focus({ preventScroll: true }));
  place.parentElement.addEventListener("wheel", (event) => { // before Cytoscape hears of it
    cy.userZoomingEnabled(event.ctrlKey || event.metaKey || document.activeElement === place);
  }, { capture: true, passive: true });
  cy.on("tap", "node", (event) => select(event.target.data("at"), false));
  byId("zoom-in").addEventListener("click", () => zoomBy(1.4));
  byId("zoom-out").addEventListener("click", () => zoomBy(1 / 1.4));
  byId("zoom-fit").addEventListener("click", fit);
  for (const input of document.querySelectorAll("[name=colour]")) {
    input.addEventListener("change", () => { colouring = COLOURINGS[input.value]; recolour(); });
  }
  document.addEventListener("theme", restyle);
  addEventListener("beforeprint", () => { document.documentElement.dataset.printing = ""; fit(); restyle(); });
  addEventListener("afterprint", () => { delete document.documentElement.dataset.printing; restyle(); });
  startFind(select);
  tellLegend();
  fit();
  window.onnxqNetwork = cy; // for the console, and for tests
  return select;
}

// -- finding a layer ------------------------------------------------------------------------------

function layerCalled(text) {
  const exact = LAYERS.name.indexOf(text);
  if (exact >= 0) return exact;
  const made = LAYERS.output.indexOf(text);
  if (made >= 0) return made;
  const weight = LAYERS.weight.indexOf(text);
  if (weight >= 0) return weight;
  const lower = text.toLowerCase();
  return lower ? LAYERS.name.findIndex((name) => name.toLowerCase().includes(lower)) : -1;
}

function startFind(select) {
  const field = byId("find");
  field.addEventListener("focus", () => {
    const list = byId("layer-names");
    if (!list.children.length) list.append(...LAYERS.name.map((name) => element("option", { value: name })));
  });
  field.addEventListener("change", () => {
    const at = layerCalled(field.value.trim());
    field.setAttribute("aria-invalid", String(at < 0 && field.value !== ""));
    if (at >= 0) select(at, false);
  });
}
