// The view of dark matter: blocks that no reporter reports, that one reports, and that two report.

import { List } from "./list.js";
import * as record from "./record.js";
import * as server from "./server.js";
import { $, copy, during, element, filterBy, offer, print, say, subtractPrevious, time } from "./shell.js";

/** The current view. It is sent to the server with each request, which keeps none of it. */
const view = { log: null, base: null, list: null, by: "site", within: null, sort: "usable", filter: "" };
let state = { logs: [] };
/** The server's latest figures for the log as a whole. */
let about = { lists: [] };

const list = new List($("records"), $("records-space"), (from, count) => server.records(view, from, count), {
  draw: record.draw,
  stops: () => true,
});

async function look(how = {}) {
  const has = view.log !== null;
  $("nothing").hidden = has;
  if (!has) {
    $("nothing").textContent = state.can_look ? "" : "There is no log here. Load one: of heapledger dmd, or of Firefox.";
    return;
  }
  list.find = finder();
  try {
    await list.show(how);
    say("");
  } catch (error) {
    say(error.message, true);
  }
}

/** Returns a function that finds the filter's text in a text. */
function finder() {
  const wanted = view.filter.replace(/^!|^\\(?=[!\\])/, "");
  if (!wanted || view.filter.startsWith("!")) return null;
  return (text) => {
    const found = [];
    for (let at = text.indexOf(wanted); at >= 0; at = text.indexOf(wanted, at + wanted.length)) {
      found.push([at, at + wanted.length]);
    }
    return found;
  };
}

const number = (count) => count.toLocaleString("en");

list.addEventListener("shown", ({ detail: answer }) => {
  about = answer.about;
  view.list = about.list;
  $("log-count").textContent = `${number(answer.seen)} ${answer.seen === 1 ? "line" : "lines"}`;
  $("nothing").hidden = answer.seen > 0;
  if (!answer.seen) $("nothing").textContent = view.filter ? "Nothing that the filter lets through." : "Nothing.";
  $("records").closest("main").toggleAttribute("data-estimated", about.is_estimated);
  drawDarkness();
  drawLists();
  drawWithin();
});

list.addEventListener("failed", ({ detail: error }) => say(error.message, true));

// ------------------------------------------------------------------------------ the log as a whole

/** Draws one bar, as long as the heap: the blocks with no, one and two reports. */
function drawDarkness() {
  const head = element("div", "head");
  for (const [figure, what] of about.figures) head.append(element("b", "", figure), element("span", "", what));
  const parts = element("div", "parts");
  for (const part of about.lists) {
    if (!(part.share > 0)) continue;
    const button = element("button", `part ${part.list}`);
    button.type = "button";
    button.style.flexGrow = part.share;
    button.title = `${part.name}\n${part.exactly}`;
    button.setAttribute("aria-label", `${part.name}, ${part.exactly}`);
    if (part.share >= 0.07) button.append(element("span", "", part.name), element("small", "", part.value));
    button.addEventListener("click", () => turn(part.list));
    parts.append(button);
  }
  const isWhole = view.base === null && parts.childNodes.length > 0;
  $("darkness").replaceChildren(head, ...(isWhole ? [parts] : []));
}

function drawLists() {
  $("lists").replaceChildren(
    ...about.lists.map((one) => {
      const tab = element("button", one.list, one.name);
      tab.type = "button";
      tab.setAttribute("role", "tab");
      tab.setAttribute("aria-selected", one.list === view.list);
      tab.append(element("small", "", one.figure));
      tab.addEventListener("click", () => turn(one.list));
      return tab;
    }),
  );
}

/** Draws the group that the list is a part of, and the way back. */
function drawWithin() {
  const within = $("within");
  within.hidden = !view.within;
  within.replaceChildren();
  if (!view.within) return;
  const { by, name } = view.within;
  const back = element("button", "", "✕");
  back.type = "button";
  back.title = "Show all of them again";
  back.setAttribute("aria-label", "Show all of them again");
  back.addEventListener("click", leave);
  within.append(element("span", "", `of the ${by}`), element("code", "", name), back);
}

function leave() {
  view.by = view.within.by;
  $("log-by").value = view.by;
  view.within = null;
  look({ top: 0, active: 0 });
}

function turn(to) {
  view.list = to;
  view.within = null;
  look({ top: 0, active: 0 });
}

// -------------------------------------------------------------------------------------- one record

let wanted = 0;
list.addEventListener("active", async ({ detail: at }) => {
  const mine = ++wanted;
  if (!list.seen) return record.whole($("record"), null);
  try {
    const one = await server.record(view, at);
    if (mine === wanted) {
      record.whole($("record"), one, list.find, enter);
      $("record").scrollTop = 0;
    }
  } catch (error) {
    if (mine === wanted) say(error.message, true);
  }
});

/** Shows the parts of a group. */
function enter(within) {
  view.within = { by: within.by, name: within.name };
  view.by = "site";
  $("log-by").value = "site";
  if (within.list) view.list = within.list;
  look({ top: 0, active: 0 });
  focus();
}
list.addEventListener("open", async ({ detail: at }) => {
  if (list.row(at)?.kind !== "group") return $("record").focus();
  const { within } = await server.record(view, at);
  if (within) enter(within);
});
$("records").addEventListener("dblclick", () => list.enter(list.active));
$("record").addEventListener("keydown", (event) => {
  if (event.key === "Escape" || event.key === "ArrowLeft") focus();
});
$("records").addEventListener("keydown", (event) => {
  if ((event.key === "Escape" || event.key === "Backspace" || event.key === "ArrowLeft") && view.within) leave();
});

// -------------------------------------------------------------------------------------------- logs

const label = (one) => (one.name !== undefined ? one.name : `${time(one.at)} · held up for ${one.pause}`);

/** Takes over the server's state. */
export function update(fresh) {
  state = fresh;
  $("look").hidden = !state.can_look;
  offer(state.logs, view, "log", label, ["log", "log-base"]);
  $("log-save").hidden = view.log === null;
  $("log-save").href = server.log(view.log ?? "");
}

/** Shows a log that was just added. */
export async function show(id, from = null) {
  view.log = id;
  update(state);
  await look(from === null ? {} : { top: from, active: from });
}

/** Gets a log of the heap if there is none yet, and shows it from the beginning. */
export async function begin(take) {
  if (state.can_look && !state.logs.length) take(await server.look(false));
  await look({ top: 0, active: 0 });
}

export const focus = () => $("records").focus({ preventScroll: true });

export function connect(take) {
  $("look").addEventListener("click", () =>
    during($("look"), async () => {
      const fresh = await server.look($("anonymous").checked);
      take(fresh);
      await show(fresh.new_log);
    }),
  );
}

function choose(which, select) {
  view[which] = $(select).value ? +$(select).value : null;
  update(state);
  look();
}
$("log").addEventListener("change", () => choose("log", "log"));
$("log-base").addEventListener("change", () => choose("base", "log-base"));
$("log-sort").addEventListener("change", () => {
  view.sort = $("log-sort").value;
  look({ top: 0, active: 0 });
});
$("log-by").addEventListener("change", () => {
  view.by = $("log-by").value;
  view.within = null;
  look({ top: 0, active: 0 });
});

filterBy("log-filter", view, look, list, focus);

/** Goes to the list before, or after. */
function step(by) {
  const at = about.lists.findIndex((one) => one.list === view.list);
  const to = about.lists[at + by];
  if (to) turn(to.list);
}

/** The actions of the common buttons and keys in this view. */
export const actions = {
  filter: "log-filter",
  unfilter() {
    $("log-filter").value = view.filter = "";
    look({ top: 0, active: 0 });
    focus();
  },
  copy: async () => copy(await server.darkText(view)),
  print: async () => print(await server.darkText(view)),
  keys: {
    m: () => $("look").hidden || $("look").click(),
    s: () => $("log-save").hidden || $("log-save").click(),
    "[": () => step(-1),
    "]": () => step(1),
    d() {
      subtractPrevious(state.logs, view, "log");
      update(state);
      look();
    },
  },
};
