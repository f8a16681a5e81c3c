// A trial's timeline as numbers: lanes of rows, what is visible in a window of time, what lies under a point.

const ROW = 15, GAP = 7, AXIS = 22;
const ALARMS = new Set(["step.failed", "flag.checked", "dense.call", "hang", "deadlock", "grad.missing", "finding"]);
const BAD = 1, OPEN = 2;
const KIND_NAMES = {
  region: "region", trace: "FX trace", compile: "compile", lowering: "lowering of a backward graph", engine: "in the autograd engine",
  hold: "holds a lock", wait: "waits for a lock", queue: "waits for a queue",
};

const sums = (differences) => {
  let sum = 0;
  return Float64Array.from(differences, (difference) => (sum += difference));
};

// Spans by row, so that those of a row follow each other and a window of time is found by halving.
const byRow = (count, starts, lengths, rows) => {
  const members = Array.from({ length: count }, () => []);
  rows.forEach((row, index) => members[row]?.push(index));
  return members.map((list) => ({
    index: Int32Array.from(list),
    start: Float64Array.from(list, (index) => starts[index]),
    end: Float64Array.from(list, (index) => starts[index] + lengths[index]),
  }));
};

// The first of a row that ends at or after a time.
const firstAfter = (row, time) => {
  let low = 0, high = row.end.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (row.end[middle] < time) low = middle + 1; else high = middle;
  }
  return low;
};

const decode = (told) => {
  let top = AXIS;
  const tracks = [];
  const place = (track, rows) => {
    track.top = top;
    track.height = Math.max(1, rows) * ROW;
    top += track.height + GAP;
    tracks.push(track);
  };
  for (const held of told.held) {
    const start = sums(held.start);
    place({
      type: "held", title: held.name, start, length: held.length, lane: held.lane,
      rows: byRow(held.rows, start, held.length, held.row), marks: { at: [], kind: [], text: [] },
    }, held.rows);
  }
  told.lanes.forEach((lane, number) => {
    const start = sums(lane.start);
    place({
      ...lane, type: "lane", number, title: lane.thread, start,
      rows: byRow(lane.rows, start, lane.length, lane.row),
      marks: { ...lane.marks, at: sums(lane.marks.at) },
    }, lane.rows);
  });
  const alarms = [];
  for (const track of tracks) {
    track.marks.kind.forEach((kind, index) => {
      if (ALARMS.has(told.names[kind])) alarms.push({ at: track.marks.at[index], track, index });
    });
  }
  alarms.sort((one, other) => one.at - other.at);
  return { told, tracks, alarms, end: Math.max(told.end, 1), height: top };
};

// What a span or a mark is, in words.
const describe = (model, track, what, index) => {
  const names = model.told.names;
  if (what === "mark") {
    const text = names[track.marks.text[index]];
    return { at: track.marks.at[index], until: null, lines: [`${names[track.marks.kind[index]]}${text ? `: ${text}` : ""}`, `${track.title}, at ${moment(track.marks.at[index])}`] };
  }
  const from = track.start[index], length = track.length[index];
  const when = `${moment(from)} to ${moment(from + length)}: ${duration(length)}`;
  if (track.type === "held") {
    const owner = model.told.lanes[track.lane[index]].thread;
    return { at: from, until: from + length, lines: [`${track.title}: ${owner}`, when] };
  }
  const flags = track.flags[index];
  const end = flags & BAD ? ", left by an error" : flags & OPEN ? ", still open when the log ended" : "";
  return { at: from, until: from + length, lines: [names[track.name[index]], `${track.title}: ${KIND_NAMES[model.told.kinds[track.kind[index]]]}${end}`, when] };
};

// Seconds of each thread by sort of span: the table beside the drawing. Spans inside others of their sort count once.
const totals = (model) => model.tracks.filter((track) => track.type === "lane").map((track) => {
  const kinds = model.told.kinds;
  const spent = Object.fromEntries(kinds.map((kind) => [kind, 0]));
  const until = Object.fromEntries(kinds.map((kind) => [kind, -1]));
  track.start.forEach((from, index) => {
    const kind = kinds[track.kind[index]], to = from + track.length[index];
    if (to <= until[kind]) return;
    spent[kind] += to - Math.max(from, until[kind]);
    until[kind] = to;
  });
  const steps = track.marks.kind.filter((kind) => model.told.names[kind] === "step.done").length;
  return { track, spent, steps };
});
