// The page: the current view, and the common part of the views.

import * as dark from "./dark.js";
import * as measurements from "./measurements.js";
import * as server from "./server.js";
import { $, during, help, nextTheme } from "./shell.js";

const VIEWS = { measurements, dark };
const begun = new Set();
let current = "measurements";
let state = { measurements: [], logs: [] };

/** Takes over the server's state. */
function update(fresh) {
  state = fresh;
  $("title").textContent = state.title;
  document.title = `about:memory – ${state.title}`;
  const has = { measurements: state.can_measure || state.measurements.length > 0, dark: state.can_look || state.logs.length > 0 };
  for (const view in VIEWS) $(`view-${view}`).hidden = !has[view];
  $("views").hidden = !(has.measurements && has.dark);
  for (const view of Object.values(VIEWS)) view.update(state);
}

function choose(view) {
  current = view;
  document.body.dataset.view = view;
  for (const each in VIEWS) $(`view-${each}`).setAttribute("aria-selected", each === view);
}

/** Shows a view. Its data is requested the first time. */
const turn = (view) =>
  during(null, async () => {
    if ($(`view-${view}`).hidden) return;
    choose(view);
    if (!begun.has(view)) {
      begun.add(view);
      await VIEWS[view].begin(update);
    }
    VIEWS[view].focus();
  });
for (const view in VIEWS) {
  VIEWS[view].connect(update);
  $(`view-${view}`).addEventListener("click", () => turn(view));
}

// ------------------------------------------------------------------------------------------- files

const load = (files) =>
  during($("load"), async () => {
    for (const file of files) {
      if (file.size > state.file_bytes_max) throw new Error(`${file.name} is larger than ${state.file_bytes_max >> 20} MiB.`);
      let fresh;
      try {
        fresh = await server.load(file);
      } catch (error) {
        throw new Error(`${file.name}: ${error.message}`);
      }
      update(fresh);
      const view = fresh.new_log === undefined ? "measurements" : "dark";
      begun.add(view);
      choose(view);
      await VIEWS[view].show(fresh.new_log ?? fresh.new, 0);
    }
  });
$("load").addEventListener("click", () => $("file").click());
$("file").addEventListener("change", () => load([...$("file").files]).then(() => ($("file").value = "")));

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

// -------------------------------------------------------------------------------- buttons and keys

const actions = () => VIEWS[current].actions;
const copy = () => during($("copy"), () => actions().copy());
const print = () => during($("print"), () => actions().print());
$("copy").addEventListener("click", copy);
$("print").addEventListener("click", print);

const KEYS = {
  "/": () => $(actions().filter).select(),
  1: () => turn("measurements"),
  2: () => turn("dark"),
  c: copy,
  o: () => $("load").click(),
  t: nextTheme,
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
  const action = KEYS[event.key] ?? actions().keys[event.key];
  if (event.key === "Escape" && event.target === $(actions().filter)) {
    actions().unfilter();
  } else if (!isTyping && action) {
    event.preventDefault();
    action();
  }
});

// ------------------------------------------------------------------------------------------- begin

server.state().then(
  (fresh) => {
    update(fresh);
    turn($("view-measurements").hidden && !$("view-dark").hidden ? "dark" : "measurements");
  },
  (error) => during(null, () => Promise.reject(error)),
);
