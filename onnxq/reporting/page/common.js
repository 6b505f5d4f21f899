// What all parts of the page use.
const DATA = JSON.parse(document.getElementById("data").textContent);
const LAYERS = DATA.layers;
const COUNT = LAYERS.name.length;
const byId = (id) => document.getElementById(id);

function colour(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(`--${name}`).trim();
}

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

function decibels(value) {
  if (value === null) return "–";
  return value === "exact" ? "exact" : `${value.toFixed(1).replace("-", "−")} dB`;
}

function percent(share) {
  const value = 100 * share;
  if (value > 0 && value < 0.01) return "< 0.01 %";
  return `${value >= 10 || value === 0 ? value.toFixed(0) : Number(value.toPrecision(2))} %`;
}

function short(value) {
  return String(Number(value.toPrecision(4))).replace("-", "−");
}

// A word for the shell, quoted as Python's shlex does.
function quoted(word) {
  return /^[\w@%+=:,./-]+$/.test(word) ? word : `'${word.replaceAll("'", `'"'"'`)}'`;
}

function explainCommand(tensor) {
  const dash = tensor.startsWith("-") ? "-- " : ""; // after it nothing is an option
  return `${DATA.commands.explain.slice(0, -"TENSOR".length)}${dash}${quoted(tensor)}`;
}

// A rule for one layer; signs that mean something in a selector are escaped.
function rule(name, change) {
  const special = name.startsWith("re:") || /[*?[]/.test(name);
  const selector = special ? `re:${name.replace(/[.*+?^${}()|[\]\\/-]/g, "\\$&")}` : name;
  return JSON.stringify([[selector, change]]);
}

async function copy(text, button) {
  const before = button.textContent;
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    // Pages from files have no clipboard in some browsers.
    const field = element("textarea", { class: "hide" });
    field.value = text;
    document.body.append(field);
    field.select();
    document.execCommand("copy");
    field.remove();
    button.focus();
  }
  button.textContent = "Copied";
  setTimeout(() => { button.textContent = before; }, 1200);
}
