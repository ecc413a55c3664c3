// One row, as elements, which are reused for other rows.

/** Returns the classes for a colour: each branch of the explicit tree has its own. */
export function colour(name, branch) {
  if (name === "heap-unclassified") return "dark";
  if (/^\(\d[\d,]* tiny\)$/.test(name)) return "tiny";
  return branch === undefined ? "plain" : `b${branch % 9}`;
}

const element = (tag, className, text) => {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
};

/** Draws the name: separators are dim, and matches of the filter are highlighted. */
function name(text, find) {
  const holder = element("span", "name");
  const plain = (part) => {
    for (const piece of part.split(/(\/)/)) {
      if (piece === "/") holder.append(element("i", "slash", "/"));
      else if (piece) holder.append(piece);
    }
  };
  let from = 0;
  for (const [start, end] of find ? find(text) : []) {
    plain(text.slice(from, start));
    holder.append(element("mark", "", text.slice(start, end)));
    from = end;
  }
  plain(text.slice(from));
  return holder;
}

/** Fills an element with a row. `find` finds the filter's matches in a name. */
export function draw(into, row, find) {
  into.replaceChildren();
  into.className = `row ${row.kind}`;
  into.classList.toggle("invalid", !!row.invalid);
  for (const attribute of ["role", "aria-level", "aria-expanded", "aria-posinset", "aria-setsize", "aria-label"]) {
    into.removeAttribute(attribute);
  }
  if (row.kind === "node" || row.kind === "single") {
    measurement(into, row, find);
  } else {
    into.setAttribute("role", "none");
    if (row.kind === "warning") {
      into.append(element("span", "sign", row.position === 1 ? "!" : ""));
    }
    into.append(element("span", "name", row.name));
  }
}

function measurement(into, row, find) {
  const share = Math.abs(row.share);
  into.setAttribute("role", "treeitem");
  into.setAttribute("aria-level", (row.depth ?? 0) + 1);
  into.setAttribute("aria-posinset", row.position);
  into.setAttribute("aria-setsize", row.siblings);
  into.setAttribute("aria-label", [row.name, row.value, row.percent, ...(row.notes ?? []).map(([note]) => note)].join(" "));
  if (row.open !== undefined) into.setAttribute("aria-expanded", row.open);
  into.classList.add(colour(row.name, row.branch));
  into.classList.toggle("less", row.share < 0);

  const meter = element("span", "meter");
  if (row.kind === "node") {
    const fill = element("i");
    fill.style.width = `${Math.max(share * 100, share > 0 ? 1 : 0)}%`;
    meter.append(fill);
  }
  into.append(element("span", "value", row.value), element("span", "percent", row.percent ?? ""), meter);
  [...(row.rails ?? "")].forEach((goesOn, level, all) => {
    const isOwn = level === all.length - 1;
    into.append(element("i", `rail${isOwn ? " own" : ""}${goesOn === "1" ? " on" : ""}`));
  });
  if (row.kind === "node") {
    into.append(element("i", row.open === undefined ? "twist none" : `twist ${row.open ? "open" : "shut"}`));
  }
  into.append(name(row.name, find));
  for (const [note, meaning] of row.notes ?? []) {
    const badge = element("span", "note", note);
    badge.title = meaning;
    into.append(badge);
  }
}
