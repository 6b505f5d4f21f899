// The panel beside the network: what happens in one layer, and the commands that act on it.

function commandBox(text, what = "$") {
  const button = element("button", { type: "button", class: "copy", "aria-label": "Copy" }, "Copy");
  button.addEventListener("click", () => copy(text, button));
  return element("div", { class: "cmd" }, element("span", { class: "cmd-what" }, what), element("code", {}, text), button);
}

function facts(pairs) {
  const list = element("dl");
  for (const [key, value] of pairs) {
    if (value === "" || value === null) continue;
    list.append(element("dt", {}, key), element("dd", {}, value));
  }
  return list;
}

function showDetails(at) {
  const precision = LAYERS.precision[at];
  const how = { integer: LAYERS.kernel[at], float: LAYERS.reason[at], constant: "computed when the model is loaded", index: "shapes, indices or labels" }[precision];
  const compared = LAYERS.sqnr[at] !== null;
  const parts = [
    element("h3", { class: "name" }, LAYERS.name[at]),
    element("p", {}, element("span", { class: `chip ${precision}` }, precision), ` ${how}`),
    facts([
      ["operator", LAYERS.op[at]],
      ["result", LAYERS.shape[at]],
      ["rounded to", LAYERS.quantizer[at] || "not rounded"],
      ["parameters", LAYERS.parameters[at] ? LAYERS.parameters[at].toLocaleString("en") : ""],
      ["signal to noise", compared ? decibels(LAYERS.sqnr[at]) : "not compared"],
      ["adds noise", LAYERS.added[at] === null ? "" : percent(LAYERS.added[at])],
      ["note", LAYERS.rescaled.includes(at) ? "its channels have other factors than in the trusted model, which do not count as error" : ""],
    ]),
  ];
  for (const tensor of new Set([LAYERS.output[at], LAYERS.weight[at]])) {
    const found = DATA.distributions.find((each) => each.tensor === tensor);
    if (found) parts.push(figure(found, 290));
  }
  parts.push(element("p", {}, precision === "float" ? "Why it is float:" : "Why it is quantized like this:"), commandBox(explainCommand(LAYERS.output[at])));
  if (precision === "integer" && compared) {
    parts.push(element("p", {}, "Keep it in float:"), commandBox(rule(LAYERS.name[at], "float"), "rules.json"), commandBox(DATA.commands.quantize));
  }
  byId("details").replaceChildren(...parts);
}
