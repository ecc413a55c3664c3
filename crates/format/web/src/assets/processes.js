// The index of processes: the first row of each in the tree, and the filter that shows only one.

import { element } from "./shell.js";

function button(className, text, title, press) {
  const made = element("button", className, text);
  made.type = "button";
  made.title = title;
  made.addEventListener("click", press);
  return made;
}

/** Draws the index. `sought` has the two parts of the filter; `go.jump` goes to a row, `go.filter` takes a filter. */
export function draw(into, all, sought, go) {
  const isOne = sought.process !== "";
  into.hidden = all.length < 2 && !isOne;
  const rest = sought.path;
  const chips = all.map((process) => {
    const chip = element("span", "process");
    const name = button("name", process.name, "Go to it", () => go.jump(process.row));
    if (process.total) name.append(" ", element("small", "", process.total));
    chip.row = process.row;
    chip.append(name);
    if (all.length > 1) {
      const quoted = `process:"${process.name}"${rest && ` ${rest}`}`;
      chip.append(button("only", "only", `Show ${process.name} alone`, () => go.filter(quoted)));
    }
    return chip;
  });
  const back = isOne ? [button("back", "All processes", "Show all processes again", () => go.filter(rest))] : [];
  into.replaceChildren(...back, ...chips);
}

/** Marks the process that a row belongs to. */
export function mark(into, row) {
  const chips = [...into.querySelectorAll(".process")];
  const current = chips.findLast((chip) => chip.row <= row) ?? chips[0];
  for (const chip of chips) {
    if (chip === current) chip.setAttribute("aria-current", "true");
    else chip.removeAttribute("aria-current");
  }
}
