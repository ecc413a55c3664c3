// The common part of both views: messages, dialogs, colours, lengthy actions, and choosing a log
// or a measurement.

export const $ = (id) => document.getElementById(id);

export const element = (tag, className, text) => {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
};

let noticeTimer = 0;
export function say(text, isError = false) {
  clearTimeout(noticeTimer);
  const notice = $("notice");
  notice.textContent = text;
  notice.hidden = !text;
  notice.classList.toggle("error", isError);
  if (text && !isError) noticeTimer = setTimeout(() => (notice.hidden = true), 4000);
}

/** Runs a lengthy action, unless another one is running, and shows its error. */
export async function during(button, what) {
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

// -------------------------------------------------------------------------------- text and dialogs

export function open(title, content) {
  $("dialog-title").textContent = title;
  const body = typeof content === "string" ? element("pre", "", content) : content;
  $("dialog-body").replaceChildren(body);
  $("dialog").showModal();
}

export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
    say(`Copied ${text.split("\n").length - 1} lines.`);
  } catch {
    open("As text", text);
  }
}

export function print(text) {
  $("paper").textContent = text;
  window.print();
}

const KEYS = [
  ["↑ ↓ Page Home End", "go through the list"],
  ["→ ←", "open a node, close it, go to the one above"],
  ["Enter Space", "open or close"],
  ["1 2", "measurements, dark matter"],
  ["/", "filter; Esc clears it"],
  ["m", "measure again, look again"],
  ["v", "verbose: bytes to the last, and nothing hidden"],
  ["[ ]", "the list before, the list after"],
  ["c", "copy as text"],
  ["s", "save as a file"],
  ["o", "load files"],
  ["d", "compare with the one before"],
  ["a", "the allocator's own figures"],
  ["t", "light or dark"],
];
export function help() {
  const table = element("table");
  for (const [keys, what] of KEYS) {
    const line = table.insertRow();
    const cell = line.insertCell();
    for (const key of keys.split(" ")) cell.append(element("kbd", "", key), " ");
    line.insertCell().textContent = what;
  }
  open("Keys", table);
}

// ----------------------------------------------------------------------------------------- colours

const system = matchMedia("(prefers-color-scheme: dark)");
const ofSystem = () => (system.matches ? "dark" : "light");
/** "light", "dark", or "auto", which follows the system. */
let theme = "auto";
try {
  theme = localStorage.getItem("theme") ?? "auto";
} catch {
  // Nothing can be stored here, so the theme follows the system each time.
}
const paint = () => (document.documentElement.dataset.theme = theme);
/** Switches between light and dark. If the system has the result, it is followed from then on. */
export function nextTheme() {
  const next = (theme === "auto" ? ofSystem() : theme) === "dark" ? "light" : "dark";
  theme = next === ofSystem() ? "auto" : next;
  try {
    localStorage.setItem("theme", theme);
  } catch {
    // As above.
  }
  paint();
  say(theme === "auto" ? `Colours: ${next}, as the system has them.` : `Colours: ${theme}.`);
}
paint();

$("theme").addEventListener("click", nextTheme);
$("help").addEventListener("click", help);
$("dialog").addEventListener("click", (event) => {
  if (event.target === $("dialog")) $("dialog").close();
});

// -------------------------------------------------------------------------------- what views share

export const time = (at) => new Date(at).toLocaleTimeString("en-GB");

/** Offers the things that a view can show, the newest first, and the same to be subtracted:
 *  `view[which]` and `view.base`, in the elements with these names. A choice that no longer exists
 *  is made again. */
export function offer(all, view, which, label, [select, base]) {
  const known = (id) => all.some((one) => one.id === id);
  if (!known(view[which])) view[which] = all.at(-1)?.id ?? null;
  if (!known(view.base)) view.base = null;
  const options = (chosen) => [...all].reverse().map((one) => new Option(label(one), one.id, false, one.id === chosen));
  $(select).replaceChildren(...options(view[which]));
  $(base).replaceChildren(new Option("nothing", "", false, view.base === null), ...options(view.base));
}

/** Subtracts the thing before the one that is shown, or stops subtracting. */
export function subtractPrevious(all, view, which) {
  const at = all.findIndex((one) => one.id === view[which]);
  view.base = view.base === null && at > 0 ? all[at - 1].id : null;
}

/** Makes a view follow the text in its filter, and lets the keyboard go from there to its list. */
export function filterBy(id, view, look, list, focus) {
  let typing = 0;
  $(id).addEventListener("input", () => {
    clearTimeout(typing);
    typing = setTimeout(() => {
      view.filter = $(id).value;
      look({ top: 0, active: 0 });
    }, 60);
  });
  $(id).addEventListener("keydown", (event) => {
    if (event.key === "ArrowDown" || event.key === "Enter") {
      event.preventDefault();
      list.go(0);
      focus();
    }
  });
}
