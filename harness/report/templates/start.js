// Where the page is: the address names axes, filters, and the scenario or trial that is open; links to parts stay links.

for (const box of all(".command")) copyable(box);

// What matters in a stack is its innermost frame, which is last.
for (const details of all("details.stacks")) {
  details.addEventListener("toggle", () => {
    for (const stack of details.querySelectorAll(".stack")) stack.scrollTop = stack.scrollHeight;
  });
}

const Panel = (() => {
  if (!Grid) return null;
  const title = make("h2", { id: "panel-title", tabIndex: -1 });
  const close = make("button", { type: "button", class: "close", "aria-label": "Close" }, "✕");
  const chips = make("div", { class: "chips", role: "group", "aria-label": "Trials of this scenario" });
  const body = make("div", { class: "panel-body" });
  const verdict = make("p", { class: "panel-verdict" });
  const said = make("div", { class: "panel-said" });
  const dialog = make("dialog", { "aria-labelledby": "panel-title" }, make("div", { class: "panel-head" }, title, close), make("div", { class: "panel-scroll" }, verdict, said, chips, body));
  document.body.append(dialog);
  let open = { scenario: null, trial: null };
  let closed = () => {};
  close.addEventListener("click", () => dialog.close());
  dialog.addEventListener("close", () => { open = { scenario: null, trial: null }; body.replaceChildren(); closed(); });
  dialog.addEventListener("click", (event) => { if (event.target === dialog) dialog.close(); });

  const idsOf = (number) => {
    const [outcomes, ids] = DATA.trials[number];
    const scenario = Grid.scenarios[number];
    return outcomes.map((labels, at) => ({ id: ids[at] ?? `${scenario.id}--r${at}`, labels: DATA.labels[labels], at }));
  };
  const scenarioOf = (trial) => {
    const by = trial.replace(/--r\d+$/, "");
    const likely = Grid.scenarios.find((one) => one.id === by);
    if (likely && idsOf(likely.number).some((one) => one.id === trial)) return likely;
    return Grid.scenarios.find((one) => idsOf(one.number).some((other) => other.id === trial)) ?? null;
  };

  const fill = async (scenario, wanted) => {
    const trials = idsOf(scenario.number);
    const bad = (one) => trialMark(one.labels)[1] === "unsafe";
    const shown = (one) => own(DATA.places, one.id) !== undefined;
    const chosen = trials.find((one) => one.id === wanted) ?? trials.find((one) => bad(one) && shown(one)) ?? trials.find(shown) ?? trials[0];
    const tile = Grid.tile(scenario.anchor);
    const row = document.getElementById(scenario.anchor);
    const name = row?.querySelector("summary")?.textContent ?? scenario.id;
    title.textContent = name;
    const link = make("a", { href: `#${scenario.anchor}` }, "its line in the table");
    verdict.replaceChildren(...[...tile.children].map((child) => child.cloneNode(true)), " ", link);
    verdict.className = `panel-verdict tile ${scenario.state}`;
    // What its line in the table says of it: expectations, and of what did not run, why.
    const lines = row ? all("details > p", row).filter((line) => line.firstElementChild?.tagName === "SPAN" || (!chosen && line.className === "")) : [];
    said.replaceChildren(...lines.map((line) => line.cloneNode(true)));
    const ordered = [...trials.filter(bad), ...trials.filter((one) => !bad(one))];
    const listed = ordered.slice(0, MOST_CHIPS);
    if (chosen && !listed.includes(chosen)) listed.push(chosen);
    chips.replaceChildren(...listed.map((one) => {
      const [mark, kind] = trialMark(one.labels);
      const chip = make("button", { type: "button", class: `chip ${kind}`, "aria-pressed": String(one === chosen) },
        make("span", { class: "mark", "aria-hidden": "true" }, mark), ` ${one.at} `, one.labels.join(" "));
      chip.addEventListener("click", () => { location.hash = address({ trial: one.id }); });
      return chip;
    }), ...(ordered.length > listed.length ? [make("span", { class: "quiet" }, `and ${ordered.length - listed.length} more`)] : []));
    body.replaceChildren(make("p", { class: "quiet" }, chosen ? "…" : "No trial of this scenario has ended."));
    if (!chosen) {
      const again = row?.querySelector(".command code")?.textContent;
      if (again) body.append(command(again));
      return;
    }
    const asked = open;
    const nodes = await trialBody(chosen.id);
    if (asked === open) body.replaceChildren(...nodes.filter(Boolean));
    dialog.dataset.ready = chosen.id;
  };

  return {
    show: (scenario, trial) => {
      if (open.scenario === scenario && open.trial === trial && dialog.open) return;
      open = { scenario, trial };
      delete dialog.dataset.ready;
      if (!dialog.open) { dialog.showModal(); title.focus(); }
      fill(scenario, trial);
    },
    hide: () => { if (dialog.open) dialog.close(); },
    onClose: (listener) => { closed = listener; },
    get open() { return dialog.open; },
    scenarioOf,
  };
})();

const address = (more = {}) => {
  const parts = new URLSearchParams();
  if (Grid) Grid.write(parts);
  for (const [name, value] of Object.entries(more)) parts.set(name, value);
  return parts.toString();
};

// A link into a closed part opens it.
const reveal = (id) => {
  const target = document.getElementById(id);
  if (!target) return;
  for (let at = target.parentElement; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
  const inside = target.tagName === "TR" && target.querySelector("details");
  if (inside) inside.open = true;
  if (target.tagName === "TR") target.scrollIntoView({ block: "center" });
};

const arrive = () => {
  const hash = location.hash.slice(1);
  if (hash && !hash.includes("=")) {
    Panel?.hide();
    let id = hash;
    try { id = decodeURIComponent(hash); } catch { /* not one of ours: looked for as it is */ }
    reveal(id);
    return;
  }
  if (!Grid) return;
  const parts = new URLSearchParams(hash);
  Grid.read(parts);
  const trial = parts.get("trial");
  const anchor = parts.get("scenario");
  const scenario = trial ? Panel.scenarioOf(trial) : Grid.scenarios.find((one) => one.anchor === anchor || one.id === anchor);
  if (scenario) Panel.show(scenario, trial); else Panel.hide();
};

if (Grid) {
  const stay = () => history.replaceState(null, "", `#${address()}`);
  Grid.onChange(stay);
  Panel.onClose(() => { if (/(^#|&)(trial|scenario)=/.test(location.hash)) stay(); });
  document.querySelector("#grid .grids").addEventListener("click", (event) => {
    const tile = event.target.closest("a.tile");
    if (!tile || event.ctrlKey || event.metaKey || event.shiftKey || event.button) return;
    event.preventDefault();
    location.hash = address({ scenario: Grid.scenarios.find((one) => one.anchor === tile.hash.slice(1)).id });
  });
}
addEventListener("hashchange", arrive);
if (location.hash) arrive();

if (DATA.only !== undefined) {
  trialBody(DATA.only).then((nodes) => {
    document.getElementById("whole").replaceChildren(...nodes.filter(Boolean));
    document.documentElement.dataset.ready = DATA.only;
  });
}

const listed = document.getElementById("scenarios");
if (listed && listed.tBodies[0].rows.length > 8) {
  const input = make("input", { type: "search", placeholder: "unsafe, lock=none, fx_error …" });
  const count = make("span", { role: "status" });
  const rows = Array.from(listed.tBodies[0].rows);
  let texts = null; // read when first needed: long tables take a while
  input.addEventListener("input", () => {
    texts ??= rows.map((row) => row.textContent.toLowerCase());
    const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
    let shown = 0;
    rows.forEach((row, index) => {
      row.hidden = !words.every((word) => texts[index].includes(word));
      shown += row.hidden ? 0 : 1;
    });
    count.textContent = words.length ? `${shown} of ${rows.length}` : "";
  });
  listed.parentElement.before(make("div", { class: "filter" }, make("label", { class: "filter" }, "Show only ", input, " ", count)));
}
