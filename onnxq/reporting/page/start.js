// Starts everything. What is above the fold comes first; charts wait for the first paint.

function startButtons(select) {
  document.addEventListener("click", (event) => {
    const button = event.target.closest("button");
    if (!button) return;
    const { layer, find, explain, float } = button.dataset;
    if (button.classList.contains("copy") && button.closest("main") && !button.closest("#details")) {
      copy(button.parentElement.querySelector("code").textContent, button);
    } else if (layer !== undefined) select(Number(layer));
    else if (find !== undefined) { const at = layerCalled(find); if (at >= 0) select(at); }
    else if (explain !== undefined) copy(explainCommand(explain), button);
    else if (float !== undefined) copy(rule(float, "float"), button);
  });
}

// The section that is being read is marked in the list of sections.
function startContents() {
  const links = new Map([...document.querySelectorAll(".contents a")].map((link) => [link.hash.slice(1), link]));
  const visible = new Set();
  const observer = new IntersectionObserver((entries) => {
    for (const entry of entries) visible[entry.isIntersecting ? "add" : "delete"](entry.target.id);
    const first = [...links.keys()].find((id) => visible.has(id));
    for (const [id, link] of links) {
      if (id === first) link.setAttribute("aria-current", "true");
      else link.removeAttribute("aria-current");
    }
  }, { rootMargin: "-15% 0px -70% 0px" });
  for (const id of links.keys()) observer.observe(byId(id));
}

startTables();
startContents();
requestAnimationFrame(() => setTimeout(() => {
  const select = startNetwork();
  startButtons(select);
  drawCoverage();
  drawErrors(select);
  startHistograms();
  document.documentElement.dataset.ready = "";
}));
