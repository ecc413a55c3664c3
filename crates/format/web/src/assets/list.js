// A tree of any number of rows, of which only the visible ones are fetched and in the document.

import { draw as drawMeasurement } from "./row.js";

const CHUNK = 256;
/** The rows drawn above and below the visible ones, so that scrolling by a little shows no gap. */
const MARGIN = 12;

const isMeasurement = (row) => row.kind === "node" || row.kind === "single";

export class List extends EventTarget {
  /**
   * `fetchRows(from, count)` returns a promise of the server's answer; `draw` fills an element with
   * a row; `stops` is true if a row can be selected.
   */
  constructor(tree, space, fetchRows, { draw = drawMeasurement, stops = isMeasurement } = {}) {
    super();
    Object.assign(this, { tree, space, fetchRows, drawRow: draw, stopsAt: stops });
    this.seen = 0;
    this.active = 0;
    this.find = null;
    /** Chunk number → its rows, or the promise of them. */
    this.chunks = new Map();
    this.generation = 0;
    /** Row number → element. */
    this.drawn = new Map();
    this.spare = [];
    this.height = parseFloat(getComputedStyle(tree).getPropertyValue("--row"));
    this.isDrawing = false;
    tree.addEventListener("scroll", () => this.plan(), { passive: true });
    new ResizeObserver(() => this.plan()).observe(tree);
    tree.addEventListener("keydown", (event) => this.key(event));
    tree.addEventListener("click", (event) => this.click(event));
    tree.addEventListener("focus", () => this.mark());
  }

  /** Shows another view. The old rows stay until the new ones are here. */
  async show({ top = null, active = null } = {}) {
    const generation = ++this.generation;
    const scroll = top ?? this.tree.scrollTop;
    const first = Math.floor(scroll / this.height / CHUNK);
    const numbers = [...new Set([0, first, first + 1])];
    const answers = await Promise.all(numbers.map((chunk) => this.fetchRows(chunk * CHUNK, CHUNK)));
    if (generation !== this.generation) return;
    this.chunks = new Map(numbers.map((chunk, at) => [chunk, answers[at]]));
    this.seen = answers[0].seen;
    this.space.style.height = `${this.seen * this.height}px`;
    if (top !== null) this.tree.scrollTop = top;
    if (active !== null) this.active = active;
    this.active = Math.max(0, Math.min(this.active, this.seen - 1));
    for (const element of this.drawn.values()) element.remove();
    this.spare.push(...this.drawn.values());
    this.drawn.clear();
    this.dispatchEvent(new CustomEvent("answered", { detail: answers[0] }));
    this.draw();
    this.dispatchEvent(new CustomEvent("shown", { detail: answers[0] }));
    this.tell();
  }

  /** Returns the row with this number, if it has been fetched. */
  row(number) {
    const chunk = this.chunks.get(Math.floor(number / CHUNK));
    return chunk?.rows?.[number % CHUNK];
  }

  element(number) {
    return this.drawn.get(number);
  }

  /** Returns the names above a row, from the root on. */
  above(number) {
    const chunk = this.chunks.get(Math.floor(number / CHUNK));
    if (!chunk?.rows) return [];
    const above = [...chunk.above];
    const depth = this.row(number)?.depth ?? 0;
    for (let at = number - (number % CHUNK); at < number; at++) {
      const row = this.row(at);
      if (row?.kind !== "node") continue;
      while (above.length && above.at(-1).depth >= (row.depth ?? 0)) above.pop();
      above.push({ row: at, name: row.name, depth: row.depth ?? 0 });
    }
    while (above.length && above.at(-1).depth >= depth) above.pop();
    return above;
  }

  get firstSeen() {
    return Math.floor(this.tree.scrollTop / this.height);
  }

  plan() {
    if (this.isDrawing) return;
    this.isDrawing = true;
    requestAnimationFrame(() => {
      this.isDrawing = false;
      this.draw();
    });
  }

  draw() {
    const from = Math.max(0, this.firstSeen - MARGIN);
    const to = Math.min(this.seen, this.firstSeen + Math.ceil(this.tree.clientHeight / this.height) + MARGIN);
    for (const [number, element] of this.drawn) {
      if (number < from || number >= to) {
        this.drawn.delete(number);
        this.spare.push(element);
      }
    }
    for (let number = from; number < to; number++) {
      const row = this.row(number);
      const here = this.drawn.get(number);
      if (here && !(here.isEmpty && row)) continue;
      const element = here ?? this.spare.pop() ?? document.createElement("div");
      element.style.transform = `translateY(${number * this.height}px)`;
      element.isEmpty = !row;
      element.id = `${this.tree.id}-${number}`;
      element.number = number;
      if (row) this.drawRow(element, row, this.find);
      else {
        element.replaceChildren();
        element.className = "row waiting";
      }
      this.drawn.set(number, element);
      if (!element.isConnected) this.space.append(element);
    }
    for (const element of this.spare) element.remove();
    this.want(Math.floor(from / CHUNK), Math.floor(Math.max(from, to - 1) / CHUNK));
    this.mark();
    this.dispatchEvent(new Event("scrolled"));
  }

  /** Fetches these chunks. Only the newest request matters: dragging the bar passes by many. */
  want(first, last) {
    const missing = [];
    for (let chunk = first; chunk <= last; chunk++) {
      if (!this.chunks.has(chunk) && chunk * CHUNK < this.seen) missing.push(chunk);
    }
    this.wanted = missing;
    if (!this.isFetching) this.fetchWanted();
  }

  async fetchWanted() {
    this.isFetching = true;
    while (this.wanted.length) {
      const chunk = this.wanted.shift();
      const generation = this.generation;
      if (this.chunks.has(chunk)) continue;
      try {
        const answer = await this.fetchRows(chunk * CHUNK, CHUNK);
        if (generation === this.generation) {
          this.chunks.set(chunk, answer);
          // Chunks that are far away are dropped.
          if (this.chunks.size > 64) {
            const here = this.firstSeen / CHUNK;
            const far = [...this.chunks.keys()].sort((a, b) => Math.abs(b - here) - Math.abs(a - here));
            for (const chunk of far.slice(0, 32)) this.chunks.delete(chunk);
          }
          this.draw();
        }
      } catch (error) {
        this.wanted = [];
        this.dispatchEvent(new CustomEvent("failed", { detail: error }));
      }
    }
    this.isFetching = false;
  }

  /** True if a row can be selected. */
  stops(number) {
    const row = this.row(number);
    return !row || this.stopsAt(row);
  }

  /** Selects a row, or the nearest one in that direction that can be selected. */
  go(number, direction = 1) {
    const inside = (at) => at >= 0 && at < this.seen;
    let to = Math.max(0, Math.min(this.seen - 1, number));
    while (inside(to) && !this.stops(to)) to += direction;
    if (!inside(to)) {
      to = Math.max(0, Math.min(this.seen - 1, number));
      while (inside(to) && !this.stops(to)) to -= direction;
    }
    if (!inside(to)) return;
    this.active = to;
    const top = to * this.height;
    const room = this.tree.clientHeight - this.height;
    if (top < this.tree.scrollTop) this.tree.scrollTop = top;
    else if (top > this.tree.scrollTop + room) this.tree.scrollTop = top - room;
    this.draw();
    this.tell();
  }

  /** Selects a row and scrolls it near to the top. */
  jump(number) {
    this.tree.scrollTop = Math.max(0, number - 1) * this.height;
    this.go(number);
    this.tree.focus({ preventScroll: true });
  }

  mark() {
    for (const [number, element] of this.drawn) {
      element.classList.toggle("active", number === this.active);
      const role = element.getAttribute("role");
      if (role === "treeitem" || role === "option") element.setAttribute("aria-selected", number === this.active);
    }
    if (this.drawn.has(this.active)) this.tree.setAttribute("aria-activedescendant", `${this.tree.id}-${this.active}`);
    else this.tree.removeAttribute("aria-activedescendant");
  }

  tell() {
    this.dispatchEvent(new CustomEvent("active", { detail: this.active }));
  }

  toggle(number) {
    const row = this.row(number);
    if (row?.open !== undefined) this.dispatchEvent(new CustomEvent("toggle", { detail: row.key }));
  }

  /** Opens or closes a row with children; otherwise has the listeners open it. */
  enter(number) {
    if (this.row(number)?.open !== undefined) this.toggle(number);
    else this.dispatchEvent(new CustomEvent("open", { detail: number }));
  }

  click(event) {
    const number = event.target.closest(".row")?.number;
    if (number === undefined || !this.stops(number)) return;
    // Selecting text to copy it must not close the row that it is in.
    if (!getSelection().isCollapsed) return;
    this.active = number;
    this.mark();
    this.tell();
    this.toggle(number);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    const row = this.row(this.active);
    const page = Math.max(1, Math.floor(this.tree.clientHeight / this.height) - 1);
    const keys = {
      ArrowDown: () => this.go(this.active + 1, 1),
      ArrowUp: () => this.go(this.active - 1, -1),
      PageDown: () => this.go(this.active + page, 1),
      PageUp: () => this.go(this.active - page, -1),
      Home: () => this.jump(0),
      End: () => this.go(this.seen - 1, -1),
      ArrowRight: () => (row && isMeasurement(row) && row.open !== false ? this.go(this.active + 1, 1) : this.enter(this.active)),
      ArrowLeft: () => {
        const up = this.above(this.active).at(-1);
        if (row?.open) this.toggle(this.active);
        else if (up) this.go(up.row, -1);
      },
      Enter: () => this.enter(this.active),
      " ": () => this.enter(this.active),
    };
    const action = keys[event.key];
    if (!action) return;
    event.preventDefault();
    action();
  }
}
