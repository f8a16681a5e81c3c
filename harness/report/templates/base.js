"use strict";
// The page's one script, in parts; each part is a file. Text of a run enters the document as text nodes only.
// The page is whole without it, but for what is shown of single trials.

const all = (selector, inside = document) => Array.from(inside.querySelectorAll(selector));

// An element: properties by name (`class`, `aria-…` and `data-…` as attributes), then children: nodes, texts, null.
const make = (tag, properties = {}, ...children) => {
  const one = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === null || value === undefined) continue;
    if (name === "class") one.className = value;
    else if (name.includes("-") || name === "role" || name === "for") one.setAttribute(name, value);
    else one[name] = value;
  }
  one.append(...children.flat().filter((child) => child || child === 0));
  return one;
};

const DATA = JSON.parse(document.getElementById("data")?.textContent ?? "{}"); // a page of a watch has none

// What a run calls its trials may also be the name of something that every object has.
const own = (object, name) => (Object.hasOwn(object, name) ? object[name] : undefined);

// A deflated block of the page, as the value that it holds.
const opened = new Map();
const unpack = (number) => {
  if (!opened.has(number)) {
    opened.set(number, (async () => {
      const text = atob(document.getElementById(`block-${number}`).textContent);
      const bytes = Uint8Array.from(text, (sign) => sign.charCodeAt(0));
      const stream = new Blob([bytes]).stream().pipeThrough(new DecompressionStream("deflate"));
      return JSON.parse(await new Response(stream).text());
    })());
  }
  return opened.get(number);
};

const copy = async (code, button) => {
  try {
    await navigator.clipboard.writeText(code.textContent);
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  } catch {
    getSelection().selectAllChildren(code); // no clipboard for this page: Ctrl-C takes it from here
  }
};

const copyable = (box) => {
  const button = make("button", { type: "button" }, "Copy");
  button.addEventListener("click", () => copy(box.firstElementChild, button));
  box.append(button);
  return box;
};

const command = (text) =>
  copyable(make("div", { class: "command" }, make("code", {}, text.split(" ").flatMap((word, at) => [at ? " " : "", make("span", {}, word)]))));

const scrolling = (label, ...children) =>
  make("div", { class: "scroll", role: "region", "aria-label": label, tabIndex: 0 }, ...children);

// A table of texts. `rows`: arrays of texts or nodes; the first of each is its head.
const table = (label, head, rows, kind = "plain") =>
  scrolling(label, make("table", { class: kind },
    make("thead", {}, make("tr", {}, head.map((text) => make("th", { scope: "col" }, text)))),
    make("tbody", {}, rows.map(([first, ...rest]) =>
      make("tr", {}, make("th", { scope: "row" }, first), rest.map((cell) => make("td", {}, cell)))))));

// Ticks of 100 ns as people read them.
const duration = (ticks) => {
  const ns = ticks * 100;
  if (ns >= 1e9) return `${(ns / 1e9).toFixed(3)} s`;
  if (ns >= 1e6) return `${(ns / 1e6).toFixed(2)} ms`;
  return `${(ns / 1e3).toFixed(1)} µs`;
};
const moment = (ticks) => `${(ticks / 1e7).toFixed(4)} s`;
