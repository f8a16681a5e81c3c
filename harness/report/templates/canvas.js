// Draws a timeline on a canvas and lets the reader move in it: wheel, drag, pinch, keys and buttons.

const OWNERS = 8;

const Timeline = (model, errors, onError) => {
  const canvas = make("canvas", { "aria-hidden": "true" });
  const tip = make("div", { class: "tip", hidden: true });
  const stage = make("div", {
    class: "stage", tabIndex: 0, role: "group",
    "aria-label": "Timeline. Keys: plus and minus zoom, arrows move, 0 shows all, n and p go to the next and previous alarm. The tables below hold the same.",
  }, canvas, tip);
  const pinned = make("div", { class: "pinned", role: "status" });
  const pen = canvas.getContext("2d");
  const view = { from: 0, to: model.end };
  let width = 0, gutter = 120, colours = {}, hatches = {}, hover = null, pin = null, asked = false, alarm = -1;

  const readColours = () => {
    const style = getComputedStyle(stage);
    const colour = (name) => style.getPropertyValue(name).trim();
    colours = Object.fromEntries(["ink", "quiet", "line", "page", "raised", "bad", "open", "region", "region-2", "trace", "compile", "lowering", "engine", "hold", "wait", "queue", "on-dark"].map((name) => [name, colour(`--${name}`)]));
    colours.owners = Array.from({ length: OWNERS }, (_, number) => colour(`--owner-${number}`));
    hatches = {};
    for (const kind of ["wait", "queue"]) {
      const tile = document.createElement("canvas");
      tile.width = tile.height = 8;
      const brush = tile.getContext("2d");
      brush.strokeStyle = colours[kind];
      brush.lineWidth = 2;
      for (const shift of [-8, 0, 8]) { brush.beginPath(); brush.moveTo(shift, 8); brush.lineTo(shift + 8, 0); brush.stroke(); }
      hatches[kind] = pen.createPattern(tile, "repeat");
    }
  };

  const x = (time) => gutter + ((time - view.from) / (view.to - view.from)) * (width - gutter);
  const time = (at) => view.from + ((at - gutter) / (width - gutter)) * (view.to - view.from);

  const fill = (kind, depth) => {
    if (kind === "region") return depth % 2 ? colours["region-2"] : colours.region;
    return hatches[kind] ?? colours[kind] ?? colours.region;
  };

  const label = (text, left, right, top, ink) => {
    const room = right - left - 6;
    if (room < 22) return;
    const most = Math.floor(room / 6.1);
    pen.fillStyle = ink;
    pen.fillText(text.length > most ? `${text.slice(0, Math.max(1, most - 1))}…` : text, left + 3, top + ROW - 4.5);
  };

  // Names of threads differ at their ends.
  const shorter = (text, most) => (text.length <= most ? text : `${text.slice(0, Math.max(1, most - 5))}…${text.slice(-4)}`);

  const drawRow = (track, row, depth, top) => {
    const kinds = model.told.kinds, names = model.told.names;
    let painted = -1; // what is narrower than a pixel is drawn once a pixel
    for (let n = firstAfter(row, view.from); n < row.start.length && row.start[n] <= view.to; n += 1) {
      const right = Math.min(width, Math.max(x(row.end[n]), x(row.start[n]) + 1));
      if (right <= painted) continue;
      const left = Math.max(gutter, x(row.start[n]));
      const index = row.index[n];
      const wide = right - left;
      if (track.type === "held") {
        pen.fillStyle = colours.owners[track.lane[index] % OWNERS];
        pen.fillRect(left, top, wide, ROW - 2);
        label(model.told.lanes[track.lane[index]].thread, left, right, top, colours["on-dark"]);
      } else {
        const kind = kinds[track.kind[index]];
        pen.fillStyle = fill(kind, depth);
        pen.fillRect(left, top, wide, ROW - 2);
        if (wide > 3 && hatches[kind]) { pen.strokeStyle = colours[kind]; pen.strokeRect(left + 0.5, top + 0.5, wide - 1, ROW - 3); }
        if (track.flags[index] & BAD) { pen.fillStyle = colours.bad; pen.fillRect(right - Math.min(3, wide), top, Math.min(3, wide), ROW - 2); }
        const onLight = kind === "region" || hatches[kind];
        if (hatches[kind] && wide > 28) { pen.fillStyle = colours.page; pen.fillRect(left + 2, top + 2, Math.min(wide - 4, names[track.name[index]].length * 6.1 + 4), ROW - 6); }
        label(names[track.name[index]], left, right, top, onLight ? colours.ink : colours["on-dark"]);
      }
      painted = Math.floor(right);
    }
  };

  const drawMarks = (track) => {
    const { at, kind } = track.marks;
    let painted = -1;
    for (let n = 0; n < at.length; n += 1) {
      if (at[n] < view.from || at[n] > view.to) continue;
      const name = model.told.names[kind[n]], left = Math.round(x(at[n]));
      if (ALARMS.has(name)) continue;
      if (left === painted) continue;
      painted = left;
      pen.fillStyle = colours.quiet;
      pen.fillRect(left, track.top + track.height - 1, 1, 4);
    }
    for (let n = 0; n < at.length; n += 1) {
      const name = model.told.names[kind[n]];
      if (!signed(track, name) || at[n] < view.from || at[n] > view.to) continue;
      sign(x(at[n]), track.top - 3, name === "flag.checked" ? "flag" : name === "dense.call" ? "dense" : "bad", track.height + 6);
    }
  };

  // A step that failed is shown where its error was raised, when that is known, and not again where it was told.
  const signed = (track, name) => ALARMS.has(name) && !(name === "step.failed" && errors.some((error) => error.lane === track.number && error.at !== null));

  // A flag: the check said that somebody traces. A cross: a failure. A square: a dense call.
  const sign = (left, top, what, height) => {
    pen.strokeStyle = what === "flag" ? colours.open : colours.bad;
    pen.fillStyle = pen.strokeStyle;
    pen.lineWidth = 1.5;
    pen.beginPath(); pen.moveTo(left, top); pen.lineTo(left, top + height); pen.stroke();
    if (what === "flag") { pen.beginPath(); pen.moveTo(left, top); pen.lineTo(left + 9, top + 4); pen.lineTo(left, top + 8); pen.fill(); }
    else if (what === "dense") pen.fillRect(left - 3.5, top, 7, 7);
    else { pen.lineWidth = 2.5; pen.beginPath(); pen.moveTo(left - 4, top); pen.lineTo(left + 4, top + 8); pen.moveTo(left + 4, top); pen.lineTo(left - 4, top + 8); pen.stroke(); }
    pen.lineWidth = 1;
  };

  const drawAxis = () => {
    const span = view.to - view.from;
    const rough = (span / Math.max(2, (width - gutter) / 95));
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((part) => part * power).find((size) => size >= rough);
    pen.font = "11px ui-monospace, monospace";
    for (let tick = Math.ceil(view.from / step) * step; tick <= view.to; tick += step) {
      const left = Math.round(x(tick)) + 0.5;
      pen.strokeStyle = colours.line;
      pen.beginPath(); pen.moveTo(left, AXIS - 5); pen.lineTo(left, model.height); pen.stroke();
      pen.fillStyle = colours.quiet;
      const digits = Math.min(7, Math.max(0, 7 - Math.floor(Math.log10(step))));
      if (left < width - 40) pen.fillText(`${(tick / 1e7).toFixed(digits)} s`, left + 3, 12);
    }
  };

  const draw = () => {
    asked = false;
    if (!width || !colours.owners) return; // not in the document yet
    const began = performance.now();
    const scale = devicePixelRatio || 1;
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, width, model.height);
    drawAxis();
    pen.save();
    pen.beginPath(); pen.rect(gutter, 0, width - gutter, model.height); pen.clip();
    for (const track of model.tracks) track.rows.forEach((row, depth) => drawRow(track, row, depth, track.top + depth * ROW));
    for (const track of model.tracks) drawMarks(track);
    for (const error of errors) {
      const track = model.tracks.find((one) => one.number === error.lane);
      if (track && error.at !== null && error.at >= view.from && error.at <= view.to) sign(x(error.at), track.top - 3, "bad", track.height + 6);
    }
    if (pin && pin.until !== null) {
      const left = Math.max(gutter, x(pin.at)), right = Math.min(width, x(pin.until ?? pin.at));
      pen.strokeStyle = colours.ink; pen.lineWidth = 2;
      pen.strokeRect(left - 1, pin.top - 1, Math.max(3, right - left + 2), pin.height);
      pen.lineWidth = 1;
    }
    pen.restore();
    pen.font = "12px ui-monospace, monospace";
    model.tracks.forEach((track) => {
      pen.fillStyle = colours.line;
      pen.fillRect(0, track.top - GAP / 2 - 0.5, width, 1);
      if (track.type === "lane") { pen.fillStyle = colours.owners[track.number % OWNERS]; pen.fillRect(0, track.top, 4, ROW - 2); }
      pen.fillStyle = track.type === "held" ? colours.quiet : colours.ink;
      const most = Math.floor((gutter - 14) / 7.3);
      pen.fillText(shorter(track.title, most), 8, track.top + ROW - 4);
    });
    stage.dataset.drawMs = (performance.now() - began).toFixed(2);
    stage.dataset.view = `${Math.round(view.from)} ${Math.round(view.to)}`;
  };

  const ask = () => { if (!asked) { asked = true; requestAnimationFrame(draw); } };

  const resize = () => {
    const room = stage.clientWidth;
    if (!room) return;
    width = room;
    gutter = room < 560 ? 90 : 132;
    const scale = devicePixelRatio || 1;
    canvas.width = Math.round(width * scale);
    canvas.height = Math.round(model.height * scale);
    canvas.style.width = `${width}px`;
    canvas.style.height = `${model.height}px`;
    ask();
  };

  const show = (from, to) => {
    const least = 50; // five microseconds
    let span = Math.min(model.end * 1.02, Math.max(least, to - from));
    const middle = (from + to) / 2;
    view.from = Math.max(-model.end * 0.01, Math.min(middle - span / 2, model.end * 1.01 - span));
    view.to = view.from + span;
    ask();
  };
  const zoom = (factor, around = (view.from + view.to) / 2) =>
    show(around - (around - view.from) * factor, around + (view.to - around) * factor);
  const pan = (part) => { const by = (view.to - view.from) * part; show(view.from + by, view.to + by); };
  const fit = () => show(0, model.end);

  // What lies under a point of the canvas: an error, an alarm, a span; null for nothing.
  const under = (px, py) => {
    if (px < gutter) return null;
    const track = model.tracks.find((one) => py >= one.top - 4 && py < one.top + one.height + 3);
    if (!track) return null;
    const error = errors.findIndex((one) => one.lane === track.number && track.type === "lane" && one.at !== null && Math.abs(x(one.at) - px) < 6);
    if (error >= 0) return { error, at: errors[error].at, until: null, top: track.top - 3, height: track.height + 6, lines: [errors[error].message, `${track.title}, at ${moment(errors[error].at)}`] };
    const near = track.marks.at.findIndex((at, index) => signed(track, model.told.names[track.marks.kind[index]]) && Math.abs(x(at) - px) < 6);
    if (near >= 0) return { ...describe(model, track, "mark", near), top: track.top - 3, height: track.height + 6 };
    const depth = Math.floor((py - track.top) / ROW);
    const row = track.rows[depth];
    if (!row) return null;
    const at = time(px), slack = (view.to - view.from) / (width - gutter);
    const n = firstAfter(row, at - slack);
    if (n >= row.start.length || row.start[n] > at + slack) return null;
    return { ...describe(model, track, "span", row.index[n]), top: track.top + depth * ROW, height: ROW };
  };

  const keep = (found) => {
    pin = found;
    pinned.replaceChildren();
    if (found) {
      pinned.append(...found.lines.map((line, number) => make(number ? "span" : "strong", {}, line)));
      if (found.error !== undefined) {
        const link = make("button", { type: "button" }, "See its stacks");
        link.addEventListener("click", () => onError(found.error));
        pinned.append(link);
      }
      if (found.until !== null && found.until > found.at) {
        const close = make("button", { type: "button" }, "Zoom to it");
        close.addEventListener("click", () => { const span = found.until - found.at; show(found.at - span * 0.2, found.until + span * 0.2); });
        pinned.append(close);
      }
    } else pinned.append(make("span", { class: "quiet" }, "Point at something to see what it is; click keeps it here."));
    ask();
  };

  const go = (at, lane, around = 500_000) => {
    show(at - around, at + around);
    const track = model.tracks.find((one) => one.number === lane && one.type === "lane");
    const found = errors.findIndex((one) => one.lane === lane && one.at === at);
    if (track && found >= 0) keep({ error: found, at, until: null, top: track.top - 3, height: track.height + 6, lines: [errors[found].message, `${track.title}, at ${moment(at)}`] });
  };
  const next = (way) => {
    if (!model.alarms.length) return;
    alarm = (alarm + way + model.alarms.length) % model.alarms.length;
    const { at, track, index } = model.alarms[alarm];
    show(at - 200_000, at + 200_000);
    keep({ ...describe(model, track, "mark", index), top: track.top - 3, height: track.height + 6 });
  };

  const spot = (event) => { const box = canvas.getBoundingClientRect(); return [event.clientX - box.left, event.clientY - box.top]; };
  const fingers = new Map();
  let moved = 0;
  stage.addEventListener("wheel", (event) => {
    const [px] = spot(event);
    const whole = view.to - view.from >= model.end;
    if (Math.abs(event.deltaX) > Math.abs(event.deltaY)) { event.preventDefault(); pan(event.deltaX / width); return; }
    if (whole && event.deltaY > 0) return; // nothing to zoom out of: the page may scroll on
    event.preventDefault();
    zoom(1.0016 ** (event.deltaMode ? event.deltaY * 30 : event.deltaY), time(Math.max(gutter, px)));
  }, { passive: false });
  canvas.addEventListener("pointerdown", (event) => { fingers.set(event.pointerId, spot(event)); moved = 0; });
  canvas.addEventListener("pointermove", (event) => {
    const [px, py] = spot(event);
    const before = fingers.get(event.pointerId);
    if (!before) {
      hover = under(px, py);
      tip.hidden = !hover;
      stage.classList.toggle("over", Boolean(hover));
      if (hover) {
        tip.replaceChildren(...hover.lines.map((line, number) => make(number ? "span" : "strong", {}, line)));
        tip.style.left = `${Math.max(0, Math.min(px + 14, width - tip.offsetWidth - 4))}px`;
        tip.style.top = `${py + 18}px`;
      }
      return;
    }
    if (fingers.size === 2) {
      const [other] = [...fingers].filter(([id]) => id !== event.pointerId).map(([, at]) => at);
      const was = Math.abs(before[0] - other[0]), is = Math.abs(px - other[0]);
      if (was > 8 && is > 8) zoom(was / is, time((px + other[0]) / 2));
    } else pan((before[0] - px) / (width - gutter));
    moved += Math.abs(px - before[0]) + Math.abs(py - before[1]);
    if (moved > 4 && !canvas.hasPointerCapture(event.pointerId)) canvas.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, [px, py]);
    tip.hidden = true;
  });
  for (const end of ["pointerup", "pointercancel"]) {
    canvas.addEventListener(end, (event) => {
      fingers.delete(event.pointerId);
      if (end === "pointerup" && moved < 5) keep(under(...spot(event)));
    });
  }
  canvas.addEventListener("pointerleave", () => { tip.hidden = true; });
  canvas.addEventListener("dblclick", (event) => zoom(0.4, time(spot(event)[0])));
  const keys = {
    "+": () => zoom(0.6), "=": () => zoom(0.6), "-": () => zoom(1 / 0.6), ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2),
    0: fit, Home: fit, n: () => next(1), p: () => next(-1),
  };
  stage.addEventListener("keydown", (event) => {
    if (event.target !== stage || event.ctrlKey || event.metaKey || event.altKey || !keys[event.key]) return;
    event.preventDefault();
    keys[event.key]();
  });

  const button = (text, name, act) => {
    const one = make("button", { type: "button", "aria-label": name, title: name }, text);
    one.addEventListener("click", act);
    return one;
  };
  const buttons = make("div", { class: "tools" },
    button("−", "Zoom out", () => zoom(1 / 0.6)), button("+", "Zoom in", () => zoom(0.6)),
    button("←", "Move left", () => pan(-0.3)), button("→", "Move right", () => pan(0.3)), button("All", "Show all of it", fit),
    model.alarms.length ? button("‹ alarm", "Previous alarm", () => next(-1)) : null,
    model.alarms.length ? button("alarm ›", "Next alarm", () => next(1)) : null);

  const scheme = matchMedia("(prefers-color-scheme: dark)");
  scheme.addEventListener("change", () => { readColours(); ask(); });
  new ResizeObserver(() => { if (!colours.ink && stage.isConnected) readColours(); resize(); }).observe(stage);
  keep(null);
  return { node: make("div", { class: "timeline" }, buttons, stage, pinned), go, stage };
};
