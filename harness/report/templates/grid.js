// The grid of verdicts: the reader chooses two axes, filters by the others, and walks through the cells by keys.

const Grid = (() => {
  const place = document.querySelector("#grid .grids");
  if (!place || !DATA.axes) return null;
  const axes = DATA.axes.map(([name]) => name);
  const values = new Map(DATA.axes);
  const scenarios = DATA.scenarios.map(([anchor, state, id, at], number) => ({ anchor, state: DATA.states[state], id, at, number }));
  const tiles = new Map(all("a.tile", place).map((tile) => [tile.hash.slice(1), tile]));
  const fresh = () => ({ rows: DATA.chosen[0], cols: DATA.chosen[1], only: {}, show: "" });
  let state = fresh();
  let changed = () => {};
  const selects = new Map();
  const told = make("span", { role: "status", class: "quiet" });

  const value = (scenario, axis) => scenario.at[axes.indexOf(axis)];

  const visible = () => scenarios.filter((scenario) =>
    (!state.show || scenario.state === state.show)
    && Object.entries(state.only).every(([axis, wanted]) => values.get(axis)[value(scenario, axis)] === wanted));

  const drawTable = (title, members) => {
    const rows = [...new Set(members.map((one) => (state.rows ? value(one, state.rows) : 0)))].sort((a, b) => a - b);
    const cols = [...new Set(members.map((one) => (state.cols ? value(one, state.cols) : 0)))].sort((a, b) => a - b);
    const found = new Map();
    for (const one of members) {
      const key = `${state.rows ? value(one, state.rows) : 0}/${state.cols ? value(one, state.cols) : 0}`;
      if (!found.has(key)) found.set(key, []);
      found.get(key).push(tiles.get(one.anchor));
    }
    const name = (axis, index) => values.get(axis)[index];
    const head = state.rows && make("thead", {}, make("tr", {},
      make("th", { class: "corner", scope: "col" }, state.cols && make("span", {}, `${state.cols} →`), `${state.rows} ↓`),
      cols.map((col) => make("th", { scope: "col" }, state.cols ? name(state.cols, col) : "verdict"))));
    const body = make("tbody", {}, rows.map((row) => make("tr", {},
      state.rows && make("th", { scope: "row" }, name(state.rows, row)),
      cols.map((col) => {
        const here = found.get(`${row}/${col}`);
        if (!here) return make("td", { class: "no-cell" });
        return make("td", {}, here.length > 1 ? make("div", { class: "several" }, here) : here);
      }))));
    return scrolling(`Verdicts ${title}`, make("table", { class: "grid" }, title && make("caption", { class: "name" }, title), head, body));
  };

  const draw = () => {
    const shown = visible();
    const others = axes.filter((axis) => axis !== state.rows && axis !== state.cols && !(axis in state.only));
    const groups = new Map();
    for (const one of shown) {
      const key = others.map((axis) => value(one, axis)).join("/");
      if (!groups.has(key)) groups.set(key, []);
      groups.get(key).push(one);
    }
    const told_apart = others.filter((axis) => new Set(shown.map((one) => value(one, axis))).size > 1);
    const title = (one) => told_apart.map((axis) => `${axis}=${values.get(axis)[value(one, axis)]}`).join(", ");
    place.replaceChildren(...[...groups.values()].map((members) => drawTable(title(members[0]), members)));
    if (!shown.length) place.append(make("p", {}, "No scenario is like that."));
    told.textContent = shown.length < scenarios.length ? `${shown.length} of ${scenarios.length} scenarios` : "";
    sync();
    rove();
  };

  // What the selects say is what is drawn.
  const sync = () => {
    for (const [name, select] of selects) {
      select.value = name === "rows" || name === "cols" || name === "show" ? state[name] : state.only[name] ?? "";
      const box = select.parentElement;
      if (box.dataset.axis) box.hidden = name === state.rows || name === state.cols;
    }
  };

  // One cell is reached by Tab, the others from there by the arrow keys.
  const rove = (to = null) => {
    const cells = all("a.tile", place);
    const current = to ?? cells.find((cell) => cell.tabIndex === 0) ?? cells[0];
    for (const cell of cells) cell.tabIndex = cell === current ? 0 : -1;
  };

  const step = (cell, key) => {
    const at = cell.closest("td");
    const row = at.parentElement;
    const rows = all("tbody tr", place);
    const inRow = all("a.tile", row);
    if (key === "Home") return inRow[0];
    if (key === "End") return inRow.at(-1);
    if (key === "ArrowLeft" || key === "ArrowRight") {
      const cells = all("a.tile", place);
      return cells[cells.indexOf(cell) + (key === "ArrowRight" ? 1 : -1)];
    }
    const way = key === "ArrowDown" ? 1 : -1;
    for (let number = rows.indexOf(row) + way; rows[number]; number += way) {
      const same = rows[number].cells[at.cellIndex]?.querySelector("a.tile");
      if (same) return same;
      const other = rows[number].closest("table") !== row.closest("table") && rows[number].querySelector("a.tile");
      if (other) return other;
    }
    return null;
  };

  const select = (name, text, options, axis = false) => {
    const box = make("select", { id: `choice-${selects.size}` }, options.map(([option, shown]) => make("option", { value: option }, shown)));
    selects.set(name, box);
    box.addEventListener("change", () => {
      if (name === "rows" || name === "cols") {
        const other = name === "rows" ? "cols" : "rows";
        if (box.value && box.value === state[other]) state[other] = state[name];
        state[name] = box.value;
        delete state.only[box.value];
      } else if (name === "show") state.show = box.value;
      else if (box.value) state.only[name] = box.value;
      else delete state.only[name];
      draw();
      changed();
    });
    return make("span", { class: "choice", "data-axis": axis ? name : null }, make("label", { for: box.id }, text), " ", box);
  };

  const controls = () => {
    if (scenarios.length < 2) return;
    const named = axes.map((axis) => [axis, axis]);
    const states = DATA.states.filter((one) => scenarios.some((scenario) => scenario.state === one));
    const box = make("div", { class: "controls", role: "group", "aria-label": "Axes and filters of the verdicts" });
    if (axes.length > 1) box.append(select("rows", "Rows", named), select("cols", "Columns", named));
    if (axes.length > 2) for (const axis of axes) box.append(select(axis, axis, [["", "any"], ...values.get(axis).map((one) => [one, one])], true));
    if (states.length > 1) box.append(select("show", "Verdict", [["", "any"], ...states.map((one) => [one, one === "notrun" ? "not run" : one])]));
    const reset = make("button", { type: "button" }, "Reset");
    reset.addEventListener("click", () => { state = fresh(); draw(); changed(); });
    box.append(reset, told);
    place.before(box);
  };

  controls();
  sync();
  rove();
  place.addEventListener("keydown", (event) => {
    const cell = event.target.closest?.("a.tile");
    if (!cell || event.ctrlKey || event.metaKey || event.altKey || !/^(Arrow|Home|End)/.test(event.key)) return;
    const next = step(cell, event.key);
    event.preventDefault();
    if (next) { rove(next); next.focus(); }
  });
  place.addEventListener("focusin", (event) => { if (event.target.matches("a.tile")) rove(event.target); });

  const normal = () => JSON.stringify(fresh()) === JSON.stringify(state);
  return {
    scenarios,
    tile: (anchor) => tiles.get(anchor),
    onChange: (listener) => { changed = listener; },
    // The state as parts of the address, and back from them.
    write: (into) => {
      if (normal()) return;
      into.set("rows", state.rows);
      if (state.cols) into.set("cols", state.cols);
      for (const [axis, wanted] of Object.entries(state.only)) into.set(`only.${axis}`, wanted);
      if (state.show) into.set("show", state.show);
    },
    read: (from) => {
      const next = fresh();
      const known = (axis) => (axes.includes(axis) ? axis : null);
      next.rows = known(from.get("rows")) ?? next.rows;
      next.cols = known(from.get("cols")) ?? next.cols;
      if (next.rows === next.cols) next.cols = axes.find((axis) => axis !== next.rows) ?? "";
      for (const [axis, list] of values) {
        const wanted = from.get(`only.${axis}`);
        if (wanted !== null && list.includes(wanted) && axis !== next.rows && axis !== next.cols) next.only[axis] = wanted;
      }
      if (DATA.states.includes(from.get("show"))) next.show = from.get("show");
      if (JSON.stringify(next) === JSON.stringify(state)) return;
      state = next;
      draw();
    },
  };
})();
