// The parts of each process's memory at a glance: one bar, as long as all of it.

import { colour } from "./row.js";

const element = (tag, className, text) => {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
};

/** The share from which on a part has room for its name. */
const NAMED_FROM = 0.07;
const PROCESSES_MAX = 3;

/** Draws the overview. `jump` goes to a row. */
export function draw(into, answer, isDifference, jump) {
  const shown = isDifference ? [] : answer.overview.slice(0, PROCESSES_MAX);
  into.replaceChildren(...shown.map((process) => bar(process, answer, shown.length, jump)));
  into.hidden = shown.length === 0;
}

function bar(process, answer, count, jump) {
  const holder = element("div", "composition");
  const head = element("div", "head");
  head.append(element("b", "", process.total), element("span", "", "explicit"));
  if (count > 1) head.append(element("span", "whose", process.process));
  else if (answer.resident) head.append(element("b", "", answer.resident), element("span", "", "resident, about"));
  const unclassified = process.branches.find((branch) => branch.name === "heap-unclassified");
  if (unclassified) {
    head.append(element("b", "", unclassified.percent.replace(/^0(?=\d)/, "")), element("span", "", "unclassified"));
  }
  const parts = element("div", "parts");
  for (const branch of process.branches) {
    if (branch.share <= 0) continue;
    const part = element("button", `part ${colour(branch.name, branch.branch)}`);
    part.type = "button";
    part.style.flexGrow = branch.share;
    part.title = `${branch.name}\n${branch.value} (${branch.percent})\n${branch.about}`;
    part.setAttribute("aria-label", `${branch.name}, ${branch.value}, ${branch.percent}`);
    if (branch.share >= NAMED_FROM) {
      part.append(element("span", "", branch.name), element("small", "", branch.value));
    }
    part.addEventListener("click", () => jump(branch.row));
    parts.append(part);
  }
  holder.append(head, parts);
  return holder;
}
