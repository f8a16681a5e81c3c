// One trial: what failed, both threads' stacks side by side, who held what, how to see it again, and its timeline.

const MOST_CHIPS = 80;

const SILENT = new Set(["out_of_memory", "setup_error", "interrupted"]); // these tell nothing of the subject

const trialMark = (labels) => {
  if (labels.length === 1 && labels[0] === "ok") return ["✓", "safe"];
  return labels.every((label) => SILENT.has(label)) ? ["…", "incomplete"] : ["✗", "unsafe"];
};

const stacks = (error) => {
  if (!error.stacks.length) return null;
  const box = make("div", { class: "side-by-side" }, error.stacks.map(([title, inner, text]) => {
    const pre = make("pre", { class: "stack", tabIndex: 0, role: "region", "aria-label": title }, text);
    requestAnimationFrame(() => { pre.scrollTop = pre.scrollHeight; }); // the innermost frame is last
    return make("figure", {}, make("figcaption", {}, make("strong", {}, title), inner && make("br"), inner && make("span", { class: "quiet" }, `innermost: ${inner}`)), pre);
  }));
  return box;
};

const held = (rows, title) => (rows.length
  ? [make("h4", {}, title), table(title, ["thread", "in", "holds", "waits for", "is doing"], rows.map((row) => row.map((cell) => cell || "–")), "plain held")]
  : []);

const errorBox = (error, number, seek) => {
  const box = make("article", { class: "example", id: `trial-error-${number}`, tabIndex: -1 },
    make("h3", {}, make("span", { class: "label strong" }, error.label), ` ${error.who}`),
    make("p", { class: "message" }, error.message),
    error.follows && make("p", { class: "quiet" }, "It followed from another error."),
    error.note && make("p", { class: "quiet" }, error.note),
    ...held(error.held, "Who held what at that moment"), stacks(error));
  if (seek && error.at !== null && error.lane !== null) {
    const link = make("button", { type: "button", class: "seek" }, "Show it in the timeline");
    link.addEventListener("click", () => seek(error));
    box.querySelector("h3").after(make("p", {}, link));
  }
  return box;
};

const legend = () => make("p", { class: "timeline-legend" },
  Object.entries({ region: "region", trace: "FX trace", compile: "compile", lowering: "lower backward", engine: "engine", hold: "holds a lock", wait: "waits for a lock", queue: "waits for a queue" })
    .map(([kind, name]) => make("span", { class: "key" }, make("span", { class: `swatch kind-${kind}`, "aria-hidden": "true" }), ` ${name}`)),
  make("span", { class: "key" }, "✗ error"), make("span", { class: "key" }, "⚑ a check found the FX flag set"), make("span", { class: "key" }, "■ dense call"));

const tables = (model) => {
  const seconds = (ticks) => (ticks ? (ticks / 1e7).toFixed(3) : "–");
  const kinds = model.told.kinds;
  const names = { region: "in regions", trace: "tracing", compile: "compiling", lowering: "lowering", engine: "in the engine", hold: "holding", wait: "waiting for locks", queue: "waiting for queues" };
  const alarms = model.alarms.slice(0, 200).map(({ at, track, index }) => {
    const [what] = describe(model, track, "mark", index).lines;
    return [moment(at), track.title, what];
  });
  return make("details", {}, make("summary", {}, "As tables"),
    table("Seconds by thread", ["thread", "good steps", ...kinds.map((kind) => `${names[kind]}, s`)],
      totals(model).map(({ track, spent, steps }) => [track.title, String(steps), ...kinds.map((kind) => seconds(spent[kind]))]), "plain numbers"),
    alarms.length ? table("Alarms", ["at", "thread", "what"], alarms) : make("p", {}, "No alarm in the log."));
};

const timelineBox = async (id, found, errors) => {
  const page = `harness report ${DATA.run} --trial ${quoted(id)}`;
  const head = make("h3", { id: "timeline-title" }, "Timeline");
  const block = own(DATA.timelines, id);
  if (block === undefined) {
    const why = own(DATA.why, id) ?? "it is not in this file";
    return { node: make("section", {}, head, make("p", {}, `Not here: ${why}.`), why.includes("no event log") ? null : command(page)), seek: null };
  }
  const model = decode(await unpack(block));
  const line = Timeline(model, errors, (number) => {
    const box = document.getElementById(`trial-error-${number}`);
    box.scrollIntoView({ block: "start" });
    box.focus({ preventScroll: true });
  });
  const note = model.told.leftOut && make("p", { class: "left-out" }, model.told.leftOut);
  const words = make("p", { class: "quiet" }, `${model.told.events.toLocaleString("en")} events in ${moment(model.end)}. FX flag: set while a thread is inside fx.Tracer.trace; one flag for the process up to torch 2.13, which hides from other threads the traces of a compile itself; one a thread from 2.14 on.`);
  const seek = (error) => { line.go(error.at, error.lane); line.node.scrollIntoView({ block: "center" }); line.stage.focus({ preventScroll: true }); };
  return { node: make("section", {}, head, words, note, legend(), line.node, tables(model)), seek };
};

// As a POSIX shell wants it.
const quoted = (text) => (/^[\w@%+=:,./-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\"'\"'")}'`);

const trialBody = async (id) => {
  const place = own(DATA.places, id);
  const page = `harness report ${DATA.run} --trial ${quoted(id)}`;
  if (!place) {
    return [make("p", {}, "This trial is not in this file: for each scenario the first trial of every way to fail is, and the first that ended well. Its own page is written by"), command(page)];
  }
  const found = (await unpack(place[0]))[place[1]];
  const errors = found.errors.map((error) => ({ ...error }));
  const { node, seek } = await timelineBox(id, found, errors);
  const end = found.end ? held(found.end.held, "Who held what at the end") : [];
  const facts = make("dl", { class: "trial-facts" }, found.facts.flatMap(([name, text]) => [make("dt", {}, name), make("dd", {}, text)]));
  const briefly = make("p", { class: "facts" }, found.facts.filter(([name]) => ["seed", "schedule", "torch", "steps", "took"].includes(name))
    .map(([name, text]) => make("span", {}, `${name} `, make("strong", {}, text))));
  const commands = make("dl", { class: "follow-up" },
    found.commands.flatMap(([what, text]) => [make("dt", {}, what), make("dd", {}, command(text))]),
    DATA.only ? [] : [make("dt", {}, "This trial's own page"), make("dd", {}, command(page))],
    make("dt", {}, "Evidence"), make("dd", {}, make("code", {}, found.folder)));
  const dumps = found.dumps.map(([title, text]) => make("figure", {}, make("figcaption", {}, make("strong", {}, title)), make("pre", { class: "stack", tabIndex: 0, role: "region", "aria-label": title }, text)));
  return [
    found.reason && !DATA.only && make("p", { class: "message" }, found.reason),  // a trial's own page has it in its headline
    found.problems.map(([label, text]) => make("p", { class: "message" }, make("span", { class: "label strong" }, label), ` ${text}`)),
    briefly,
    commands,
    errors.map((error, number) => errorBox(error, number, seek)),
    found.more ? make("p", { class: "quiet" }, `Not shown: ${found.more} more errors of this trial.`) : null,
    end,
    node,
    make("details", { open: !found.errors.length }, make("summary", {}, "Facts"), facts),
    dumps.length ? make("details", {}, make("summary", {}, "Stacks of all threads, and the end of its output"), make("div", { class: "side-by-side" }, dumps)) : null,
    found.last.length ? make("details", {}, make("summary", {}, `Last events of each thread (${found.last.length})`), table("Last events", ["s", "thread", "worker", "event", "with"], found.last)) : null,
    found.witness.length ? make("details", {}, make("summary", {}, "The order that its plan brought about"), make("pre", { class: "stack", tabIndex: 0, role: "region", "aria-label": "Order of the plan" }, found.witness.join("\n"))) : null,
  ].flat(2);
};
