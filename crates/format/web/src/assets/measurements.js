// The view of measurements: the tree, and the details of its rows.

import { List } from "./list.js";
import * as overview from "./overview.js";
import * as processes from "./processes.js";
import * as server from "./server.js";
import { $, copy, during, element, filterBy, offer, open, print, say, subtractPrevious, time } from "./shell.js";

/** The current view. It is sent to the server with each request, which keeps none of it. */
const view = { measurement: null, base: null, verbose: false, filter: "", is_regex: false };
/** Keys of nodes that the reader has opened or closed; they hold from one measurement to the next. */
const toggled = new Set();
let state = { measurements: [] };

const asked = () => ({ ...view, toggled: [...toggled] });
const list = new List($("tree"), $("space"), (from, count) => server.rows(asked(), from, count));

// ----------------------------------------------------------------------------------- what is shown

async function look(how = {}) {
  if (view.measurement === null) return;
  try {
    await list.show(how);
    say("");
  } catch (error) {
    say(error.message, true);
  }
}

/** Returns a function that finds the filter's text in a name. */
function finder(path) {
  if (!path) return null;
  const source = view.is_regex ? path : path.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  let pattern;
  try {
    pattern = new RegExp(source, "g");
  } catch {
    return null;
  }
  return (text) => [...text.matchAll(pattern)].filter(([found]) => found).map((found) => [found.index, found.index + found[0].length]);
}

list.addEventListener("answered", ({ detail: answer }) => (list.find = finder(answer.sought.path)));

list.addEventListener("shown", ({ detail: answer }) => {
  const number = (count) => count.toLocaleString("en");
  $("count").textContent = answer.is_cut
    ? `the first ${number(answer.seen)} lines: filter to see others`
    : `${number(answer.seen)} ${answer.seen === 1 ? "line" : "lines"}`;
  overview.draw($("overview"), answer, view.base !== null, (row) => list.jump(row));
  processes.draw($("processes"), answer.processes, answer.sought, { jump: (row) => list.jump(row), filter });
  markProcess();
});

/** Marks in the index the process of the selected row or, if it is hidden, of the first visible. */
function markProcess() {
  const isSeen = list.active >= list.firstSeen && list.active <= list.firstSeen + list.tree.clientHeight / list.height;
  processes.mark($("processes"), isSeen ? list.active : list.firstSeen + 1);
}

/** Filters as if the text had been typed. */
function filter(text) {
  $("filter").value = view.filter = text;
  look({ top: 0, active: 0 });
  focus();
}

list.addEventListener("failed", ({ detail: error }) => say(error.message, true));

list.addEventListener("toggle", ({ detail: key }) => {
  if (!toggled.delete(key)) toggled.add(key);
  look();
});

list.addEventListener("scrolled", () => {
  const first = list.firstSeen;
  markProcess();
  const above = list.row(first) ? list.above(first) : [];
  const crumbs = $("crumbs");
  const text = above.map((one) => one.row).join();
  if (crumbs.dataset.rows === text) return;
  crumbs.dataset.rows = text;
  crumbs.replaceChildren(
    ...above.map((one) => {
      const crumb = element("button", "", one.name);
      crumb.type = "button";
      crumb.addEventListener("click", () => list.jump(one.row));
      return crumb;
    }),
  );
  crumbs.classList.toggle("some", above.length > 0);
});

// -------------------------------------------------------------------------------- what a row means

function exactly(row) {
  const amount = row.amount.toLocaleString("en");
  if (row.unit === "bytes") return `${amount} ${Math.abs(row.amount) === 1 ? "byte" : "bytes"}`;
  return row.unit === "percentage" ? row.value : `${amount} in number`;
}

function meaning(number) {
  const row = list.row(number);
  if (!row?.value) return null;
  const path = [...list.above(number).map((one) => one.name), row.name].join("/");
  const share = row.percent ? ` · ${row.percent.replace(/^(-?)0(?=\d)/, "$1")}` : "";
  return { path, figure: exactly(row) + share, about: row.about ?? "", notes: row.notes ?? [] };
}

function tell(into, number) {
  const told = meaning(number);
  into.replaceChildren();
  if (!told) return false;
  const piece = (tag, className, text) => into.append(element(tag, className, text));
  piece("b", "path", told.path);
  piece("span", "figure", told.figure);
  if (told.about) piece("span", "what", told.about);
  for (const [, what] of told.notes) piece("span", "what noted", what);
  return true;
}

list.addEventListener("active", ({ detail: number }) => {
  tell($("about"), number);
  markProcess();
});

let tipTimer = 0;
$("tree").addEventListener("mousemove", (event) => {
  const row = event.target.closest(".row");
  const tip = $("tip");
  clearTimeout(tipTimer);
  if (!row || row.number !== tip.number) tip.hidden = true;
  if (!row || event.buttons) return;
  const { clientX, clientY } = event;
  tipTimer = setTimeout(() => {
    if (!row.isConnected || !tell(tip, row.number)) return;
    tip.number = row.number;
    tip.hidden = false;
    const x = Math.min(clientX + 14, innerWidth - tip.offsetWidth - 8);
    const below = clientY + 20;
    const y = below + tip.offsetHeight > innerHeight - 8 ? clientY - tip.offsetHeight - 12 : below;
    tip.style.transform = `translate(${Math.max(8, x)}px, ${Math.max(8, y)}px)`;
  }, 350);
});
const hideTip = () => {
  clearTimeout(tipTimer);
  $("tip").hidden = true;
};
$("tree").addEventListener("mouseleave", hideTip);
$("tree").addEventListener("scroll", hideTip, { passive: true });
$("tree").addEventListener("mousedown", hideTip);

// ------------------------------------------------------------------------------------ measurements

const label = (one) => (one.name !== undefined ? one.name : `${time(one.at)} · measured in ${one.milliseconds} ms`);

/** Takes over the server's state. */
export function update(fresh) {
  state = fresh;
  $("measure").hidden = !state.can_measure;
  $("minimise").hidden = !state.can_minimise;
  $("anonymous").closest("label").hidden = !state.can_measure;
  $("allocator").hidden = !state.can_tell_of_allocator;
  offer(state.measurements, view, "measurement", label, ["measurement", "base"]);
  $("save").href = server.file(view.measurement ?? "");
}

/** Shows a measurement that was just added. */
export async function show(id, from = null) {
  view.measurement = id;
  update(state);
  await look(from === null ? {} : { top: from, active: from });
}

/** Measures, and shows the measurement from the beginning. */
export async function begin(take) {
  if (state.can_measure) {
    const fresh = await server.measure(false);
    take(fresh);
    view.measurement = fresh.new;
    update(fresh);
  }
  await look();
  list.go(0);
  $("tree").scrollTop = 0;
}

export const focus = () => $("tree").focus({ preventScroll: true });

/** Connects the buttons that make a new measurement. `take` gets the server's state then. */
export function connect(take) {
  const measured = (button, ask) =>
    during(button, async () => {
      const fresh = await ask($("anonymous").checked);
      take(fresh);
      await show(fresh.new);
    });
  $("measure").addEventListener("click", () => measured($("measure"), server.measure));
  $("minimise").addEventListener("click", () => measured($("minimise"), server.minimise));
}

function choose(which) {
  view[which] = $(which).value ? +$(which).value : null;
  $("save").href = server.file(view.measurement ?? "");
  look();
}
$("measurement").addEventListener("change", () => choose("measurement"));
$("base").addEventListener("change", () => choose("base"));

// --------------------------------------------------------------------------------- filter, options

filterBy("filter", view, look, list, focus);
$("regex").addEventListener("change", () => {
  view.is_regex = $("regex").checked;
  look({ top: 0, active: 0 });
});
$("verbose").addEventListener("change", () => {
  view.verbose = $("verbose").checked;
  look();
});

$("allocator").addEventListener("click", () =>
  during($("allocator"), async () => open("The allocator's own figures", await server.allocator())),
);

/** The actions of the common buttons and keys in this view. */
export const actions = {
  filter: "filter",
  unfilter: () => filter(""),
  copy: async () => copy(await server.text(asked())),
  print: async () => print(await server.text(asked())),
  keys: {
    m: () => $("measure").hidden || $("measure").click(),
    v: () => $("verbose").click(),
    s: () => $("save").click(),
    a: () => $("allocator").hidden || $("allocator").click(),
    /** Compares with the measurement before this one, or stops comparing. */
    d() {
      subtractPrevious(state.measurements, view, "measurement");
      update(state);
      look();
    },
  },
};
