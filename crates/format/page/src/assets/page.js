// The page: what is looked at, and what the buttons and keys do.

import { List } from "./list.js";
import * as overview from "./overview.js";
import * as server from "./server.js";

const $ = (id) => document.getElementById(id);

/** What is looked at. All of it goes to the server with each question, which keeps none of it. */
const view = { measurement: null, base: null, verbose: false, filter: "", is_regex: false };
/** Keys of nodes that the reader has opened or closed; they hold from one measurement to the next. */
const toggled = new Set();
let state = { measurements: [] };

const asked = () => ({ ...view, toggled: [...toggled] });
const list = new List($("tree"), $("space"), (from, count) => server.rows(asked(), from, count));

// ------------------------------------------------------------------------------------------------- what is shown

async function look(how = {}) {
  if (view.measurement === null) return;
  list.find = finder();
  try {
    await list.show(how);
    say("");
  } catch (error) {
    say(error.message, true);
  }
}

/** Finds in names what the filter is about. */
function finder() {
  if (!view.filter) return null;
  const source = view.is_regex ? view.filter : view.filter.replace(/[.*+?^${}()|[\]\\]/g, "\\$&");
  let pattern;
  try {
    pattern = new RegExp(source, "g");
  } catch {
    return null;
  }
  return (text) => [...text.matchAll(pattern)].filter(([found]) => found).map((found) => [found.index, found.index + found[0].length]);
}

list.addEventListener("shown", ({ detail: answer }) => {
  const number = (count) => count.toLocaleString("en");
  $("count").textContent = answer.is_cut
    ? `the first ${number(answer.seen)} lines: filter to see others`
    : `${number(answer.seen)} ${answer.seen === 1 ? "line" : "lines"}`;
  overview.draw($("overview"), answer, view.base !== null, (row) => list.jump(row));
});

list.addEventListener("failed", ({ detail: error }) => say(error.message, true));

list.addEventListener("toggle", ({ detail: key }) => {
  if (!toggled.delete(key)) toggled.add(key);
  look();
});

list.addEventListener("scrolled", () => {
  const first = list.firstSeen;
  const above = list.row(first) ? list.above(first) : [];
  const crumbs = $("crumbs");
  const text = above.map((one) => one.row).join();
  if (crumbs.dataset.rows === text) return;
  crumbs.dataset.rows = text;
  crumbs.replaceChildren(
    ...above.map((one) => {
      const crumb = document.createElement("button");
      crumb.type = "button";
      crumb.textContent = one.name;
      crumb.addEventListener("click", () => list.jump(one.row));
      return crumb;
    }),
  );
  crumbs.classList.toggle("some", above.length > 0);
});

// ------------------------------------------------------------------------------------------- what a row means

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
  const piece = (tag, className, text) => {
    const made = document.createElement(tag);
    made.className = className;
    made.textContent = text;
    into.append(made);
  };
  piece("b", "path", told.path);
  piece("span", "figure", told.figure);
  if (told.about) piece("span", "what", told.about);
  for (const [, what] of told.notes) piece("span", "what noted", what);
  return true;
}

list.addEventListener("active", ({ detail: number }) => tell($("about"), number));

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

// -------------------------------------------------------------------------------------------------- measurements

const time = (at) => new Date(at).toLocaleTimeString("en-GB");
const label = (one) => (one.name !== undefined ? one.name : `${time(one.at)} · measured in ${one.milliseconds} ms`);

/** Takes over what the server has. */
function update(fresh) {
  state = fresh;
  $("title").textContent = state.title;
  document.title = `about:memory – ${state.title}`;
  $("measure").hidden = !state.can_measure;
  $("minimise").hidden = !state.can_minimise;
  $("anonymous").closest("label").hidden = !state.can_measure;
  $("allocator").hidden = !state.can_tell_of_allocator;
  const known = (id) => state.measurements.some((one) => one.id === id);
  if (!known(view.measurement)) view.measurement = state.measurements.at(-1)?.id ?? null;
  if (!known(view.base)) view.base = null;
  const newestFirst = [...state.measurements].reverse();
  $("measurement").replaceChildren(...newestFirst.map((one) => new Option(label(one), one.id, false, one.id === view.measurement)));
  $("base").replaceChildren(
    new Option("nothing", "", false, view.base === null),
    ...newestFirst.map((one) => new Option(label(one), one.id, false, one.id === view.base)),
  );
  $("save").href = server.file(view.measurement ?? "");
}

/** Does something that takes time, says so, and shows what came of it. */
async function during(button, doing, what) {
  if (document.body.classList.contains("busy")) return;
  document.body.classList.add("busy");
  button?.setAttribute("aria-busy", "true");
  try {
    await what();
  } catch (error) {
    say(error.message, true);
  } finally {
    document.body.classList.remove("busy");
    button?.removeAttribute("aria-busy");
  }
}

const measure = () =>
  during($("measure"), "measuring", async () => {
    const fresh = await server.measure($("anonymous").checked);
    view.measurement = fresh.new;
    update(fresh);
    await look();
  });

const minimise = () =>
  during($("minimise"), "minimising", async () => {
    const fresh = await server.minimise($("anonymous").checked);
    view.measurement = fresh.new;
    update(fresh);
    await look();
  });

const load = (files) =>
  during($("load"), "loading", async () => {
    for (const file of files) {
      if (file.size > state.file_bytes_max) throw new Error(`${file.name} is larger than ${state.file_bytes_max >> 20} MiB.`);
      let fresh;
      try {
        fresh = await server.load(file);
      } catch (error) {
        throw new Error(`${file.name}: ${error.message}`);
      }
      view.measurement = fresh.new;
      update(fresh);
    }
    await look({ top: 0, active: 0 });
  });

$("measure").addEventListener("click", measure);
$("minimise").addEventListener("click", minimise);
$("load").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", () => load([...$("file").files]).then(() => ($("file").value = "")));
$("measurement").addEventListener("change", () => choose("measurement"));
$("base").addEventListener("change", () => choose("base"));

function choose(which) {
  view[which] = $(which).value ? +$(which).value : null;
  $("save").href = server.file(view.measurement ?? "");
  look();
}

addEventListener("dragover", (event) => {
  event.preventDefault();
  document.body.classList.add("dropping");
});
addEventListener("dragleave", () => document.body.classList.remove("dropping"));
addEventListener("drop", (event) => {
  event.preventDefault();
  document.body.classList.remove("dropping");
  if (event.dataTransfer.files.length) load([...event.dataTransfer.files]);
});

// ----------------------------------------------------------------------------------------------- filter, options

let typing = 0;
$("filter").addEventListener("input", () => {
  clearTimeout(typing);
  typing = setTimeout(() => {
    view.filter = $("filter").value;
    look({ top: 0, active: 0 });
  }, 60);
});
$("filter").addEventListener("keydown", (event) => {
  if (event.key === "ArrowDown" || event.key === "Enter") {
    event.preventDefault();
    list.go(0);
    $("tree").focus();
  }
});
$("regex").addEventListener("change", () => {
  view.is_regex = $("regex").checked;
  look({ top: 0, active: 0 });
});
$("verbose").addEventListener("change", () => {
  view.verbose = $("verbose").checked;
  look();
});

// ------------------------------------------------------------------------------------------------ text and dialogs

$("copy").addEventListener("click", () =>
  during($("copy"), "copying", async () => {
    const text = await server.text(asked());
    try {
      await navigator.clipboard.writeText(text);
      say(`Copied ${text.split("\n").length - 1} lines.`);
    } catch {
      open("As text", text);
    }
  }),
);

const print = () =>
  during($("print"), "printing", async () => {
    $("paper").textContent = await server.text(asked());
    window.print();
  });
$("print").addEventListener("click", print);

$("allocator").addEventListener("click", () =>
  during($("allocator"), "asking", async () => open("The allocator's own figures", await server.allocator())),
);

function open(title, content) {
  $("dialog-title").textContent = title;
  const body = typeof content === "string" ? document.createElement("pre") : content;
  if (typeof content === "string") body.textContent = content;
  $("dialog-body").replaceChildren(body);
  $("dialog").showModal();
}
$("dialog").addEventListener("click", (event) => {
  if (event.target === $("dialog")) $("dialog").close();
});

const KEYS = [
  ["↑ ↓ Page Home End", "go through the tree"],
  ["→ ←", "open a node, close it, go to the one above"],
  ["Enter Space", "open or close"],
  ["/", "filter; Esc clears it"],
  ["m", "measure again"],
  ["v", "verbose: bytes to the last, and nothing hidden"],
  ["c", "copy the tree as text"],
  ["s", "save as a report file"],
  ["o", "load report files"],
  ["d", "compare with the measurement before"],
  ["a", "the allocator's own figures"],
  ["t", "light or dark"],
];
function help() {
  const table = document.createElement("table");
  for (const [keys, what] of KEYS) {
    const line = table.insertRow();
    const cell = line.insertCell();
    for (const key of keys.split(" ")) {
      const cap = document.createElement("kbd");
      cap.textContent = key;
      cell.append(cap, " ");
    }
    line.insertCell().textContent = what;
  }
  open("Keys", table);
}
$("help").addEventListener("click", help);

let noticeTimer = 0;
function say(text, isError = false) {
  clearTimeout(noticeTimer);
  const notice = $("notice");
  notice.textContent = text;
  notice.hidden = !text;
  notice.classList.toggle("error", isError);
  if (text && !isError) noticeTimer = setTimeout(() => (notice.hidden = true), 4000);
}

// --------------------------------------------------------------------------------------------------------- colours

const THEMES = ["auto", "light", "dark"];
let theme = "auto";
try {
  theme = localStorage.getItem("theme") ?? "auto";
} catch {
  // Nothing may be kept here: the system decides each time.
}
function paint() {
  document.documentElement.dataset.theme = theme;
}
function nextTheme() {
  theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length];
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // As above.
  }
  paint();
  say(theme === "auto" ? "Colours as the system has them." : `Colours: ${theme}.`);
}
$("theme").addEventListener("click", nextTheme);

// ------------------------------------------------------------------------------------------------------------ keys

/** Compares with the measurement before this one, or stops comparing. */
function compare() {
  const at = state.measurements.findIndex((one) => one.id === view.measurement);
  view.base = view.base === null && at > 0 ? state.measurements[at - 1].id : null;
  update(state);
  look();
}

const press = (id) => () => $(id).hidden || $(id).click();
const ACTIONS = {
  "/": () => $("filter").select(),
  m: press("measure"),
  v: press("verbose"),
  c: press("copy"),
  s: press("save"),
  o: press("load"),
  a: press("allocator"),
  t: nextTheme,
  d: compare,
  "?": help,
};
addEventListener("keydown", (event) => {
  if ((event.ctrlKey || event.metaKey) && event.key === "p") {
    event.preventDefault();
    print();
    return;
  }
  if (event.ctrlKey || event.metaKey || event.altKey || $("dialog").open) return;
  const isTyping = event.target.matches?.("input[type=search], select");
  if (event.key === "Escape" && event.target === $("filter")) {
    $("filter").value = view.filter = "";
    look({ top: 0, active: 0 });
    $("tree").focus();
  } else if (!isTyping && ACTIONS[event.key]) {
    event.preventDefault();
    ACTIONS[event.key]();
  }
});

// ----------------------------------------------------------------------------------------------------------- begin

paint();
during(null, "measuring", async () => {
  update(await server.state());
  if (state.can_measure) {
    const fresh = await server.measure(false);
    view.measurement = fresh.new;
    update(fresh);
  }
  await look();
  list.go(0);
  $("tree").scrollTop = 0;
  $("tree").focus({ preventScroll: true });
});
