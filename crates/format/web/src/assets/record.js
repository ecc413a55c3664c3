// Blocks that have their stacks in common: as a row, and with all details.

import { element } from "./shell.js";

/** Draws a row of a list. */
export function draw(into, row, find) {
  into.replaceChildren();
  into.className = `row ${row.kind} ${row.list}`;
  into.classList.toggle("less", row.amount < 0);
  into.setAttribute("role", "option");
  into.setAttribute("aria-label", [row.name, row.value, row.percent, row.count, row.detail].filter(Boolean).join(", "));
  into.setAttribute("aria-posinset", row.row + 1);
  const meter = element("span", "meter");
  const fill = element("i");
  fill.style.width = `${Math.max(Math.abs(row.share) * 100, row.share ? 1 : 0)}%`;
  meter.append(fill);
  const value = element("span", "value", row.value);
  if (row.error) value.append(element("small", "", ` ±${row.error}`));
  into.append(value, element("span", "percent", row.percent ?? ""), meter, element("span", "blocks", row.count));
  into.append(marked("name", row.name, find));
  if (row.detail) into.append(marked("note", row.detail, find));
  into.title = row.cumulative ? `${row.exactly}\n${row.cumulative} with those above` : row.exactly;
}

/** Returns text in which the filter's matches are highlighted. */
function marked(className, text, find) {
  const holder = element("span", className);
  let from = 0;
  for (const [start, end] of find ? find(text) : []) {
    holder.append(text.slice(from, start), element("mark", "", text.slice(start, end)));
    from = end;
  }
  holder.append(text.slice(from));
  return holder;
}

/** Draws all details of a record. `jump` goes to the group of a row. */
export function whole(into, record, find, jump) {
  into.replaceChildren();
  if (!record) return;
  const head = element("div");
  head.append(element("h2", "", record.title), element("p", "figures", record.figures));
  into.append(head);
  if (record.advice) {
    const advice = element("p", "advice");
    advice.append(element("b", "", "Advice"), marked("", record.advice, find));
    into.append(advice);
  }
  const facts = element("dl");
  for (const [name, text] of record.facts) {
    if (!text) continue;
    facts.append(element("dt", "", name));
    const value = element("dd");
    value.append(marked("", text, find));
    facts.append(value);
  }
  if (facts.childNodes.length) into.append(facts);
  for (const stack of record.stacks) into.append(frames(stack, find));
  if (record.sizes.length) {
    const sizes = element("p", "sizes");
    sizes.append(element("b", "", "Sizes"));
    for (const size of record.sizes) sizes.append(element("span", "", size));
    into.append(sizes);
  }
  if (record.parts.length) {
    const parts = element("ul", "parts-of");
    for (const part of record.parts) {
      const line = element("li");
      line.append(element("b", "", part.value), element("span", "blocks", part.count), marked("name", part.name, find));
      if (part.detail) line.append(marked("note", part.detail, find));
      parts.append(line);
    }
    into.append(parts);
  }
  if (record.within) {
    const button = element("button", "", record.within.label);
    button.type = "button";
    button.addEventListener("click", () => jump(record.within));
    into.append(button);
  }
}

function frames(stack, find) {
  const section = element("section", "stack");
  const title = element("h3", "", stack.title);
  if (stack.reporter) title.append(" ", element("code", "", stack.reporter));
  const list = element("ol");
  for (const run of runs(stack.frames)) {
    if (run.length === 1) list.append(frame(run[0], find));
    else list.append(folded(run, find));
  }
  section.append(title, list);
  return section;
}

/** Returns the frames, numbered from 1; adjacent frames that are not the program's are a run. */
function runs(frames) {
  const all = [];
  for (const [at, frame] of frames.entries()) {
    const isOthers = (frame.whose === "library" || frame.whose === "dependency") && !frame.is_owner;
    const numbered = { ...frame, number: at + 1, isOthers };
    if (isOthers && all.at(-1)?.[0].isOthers) all.at(-1).push(numbered);
    else all.push([numbered]);
  }
  return all;
}

function frame(one, find) {
  const line = element("li", one.whose);
  line.value = one.number;
  line.classList.toggle("owner", !!one.is_owner);
  line.append(marked("function", one.function, find));
  if (one.place) line.append(" ", marked("place", one.place, find));
  return line;
}

/** Draws frames of the language, the system and dependencies, which a click or a match opens. */
function folded(run, find) {
  const line = element("li", "folded");
  line.value = run[0].number;
  const fold = element("details");
  const whose = run.some((one) => one.whose === "dependency") ? "libraries and dependencies" : "libraries";
  fold.append(element("summary", "", `${run.length} frames of ${whose}`));
  const frames = element("ol");
  frames.append(...run.map((one) => frame(one, find)));
  fold.append(frames);
  fold.open = frames.querySelector("mark") !== null;
  line.append(fold);
  return line;
}
