"use strict";
// The page is whole without this script; it only saves a reader some clicks.
(() => {
  const all = (selector) => Array.from(document.querySelectorAll(selector));

  const copy = async (code, button) => {
    try {
      await navigator.clipboard.writeText(code.textContent);
      button.textContent = "Copied";
      setTimeout(() => { button.textContent = "Copy"; }, 1500);
    } catch {
      getSelection().selectAllChildren(code); // no clipboard for this page: Ctrl-C takes it from here
    }
  };
  for (const box of all(".command")) {
    const button = document.createElement("button");
    button.type = "button";
    button.textContent = "Copy";
    button.addEventListener("click", () => copy(box.firstElementChild, button));
    box.append(button);
  }

  // What matters in a stack is its innermost frame, which is last.
  for (const details of all("details.stacks")) {
    details.addEventListener("toggle", () => {
      for (const stack of details.querySelectorAll(".stack")) stack.scrollTop = stack.scrollHeight;
    });
  }

  // A link into a closed part opens it.
  const reveal = () => {
    const target = document.getElementById(decodeURIComponent(location.hash.slice(1)));
    if (!target) return;
    for (let at = target.parentElement; at; at = at.parentElement) if (at.tagName === "DETAILS") at.open = true;
    const inside = target.tagName === "TR" && target.querySelector("details");
    if (inside) inside.open = true;
    if (target.tagName === "TR") target.scrollIntoView({ block: "center" });
  };
  addEventListener("hashchange", reveal);
  if (location.hash) reveal();

  const table = document.getElementById("scenarios");
  if (table && table.tBodies[0].rows.length > 8) {
    const label = document.createElement("label");
    const input = document.createElement("input");
    const count = document.createElement("span");
    label.className = "filter";
    label.append("Show only ", input, " ", count);
    input.type = "search";
    input.placeholder = "unsafe, lock=none, fx_error …";
    count.setAttribute("role", "status");
    const rows = Array.from(table.tBodies[0].rows);
    const texts = rows.map((row) => row.textContent.toLowerCase());
    input.addEventListener("input", () => {
      const words = input.value.toLowerCase().split(/\s+/).filter(Boolean);
      let shown = 0;
      rows.forEach((row, index) => {
        row.hidden = !words.every((word) => texts[index].includes(word));
        shown += row.hidden ? 0 : 1;
      });
      count.textContent = words.length ? `${shown} of ${rows.length}` : "";
    });
    const box = document.createElement("div");
    box.className = "filter";
    box.append(label);
    table.parentElement.before(box);
  }
})();
