/* The graph: a tree grid of which only the rows in view exist. Each side has a gutter in which edges run from a value
 * to its users; the strip on the right is the whole model.
 *
 * Keys: arrows move and fold, Enter selects, / searches, n and p go through what was found, + and - zoom, 0 resets.
 */
const GUTTER = 66;

class GraphView {
  constructor(M, titles, onSelect) {
    Object.assign(this, {M, onSelect, at: 0, zoom: 1, found: [], foundAt: -1, query: ""});
    this.open = new Set(["", ...this.firstOpen(M.root)]);
    this.tall = el("div", {class: "tall"});
    this.canvas = el("canvas", {"aria-hidden": "true"});
    this.rowsBox = el("div", {class: "rows", role: "treegrid", tabindex: "0", "aria-label": "Graph, folded by module",
      onscroll: () => this.later(), onkeydown: (e) => this.key(e), onwheel: (e) => this.wheel(e)},
    this.canvas, this.tall);
    this.map = el("canvas", {class: "map", "aria-hidden": "true", onclick: (e) => this.jump(e)});
    const words = {placeholder: "Search names, ops, rules", "aria-label": "Search the graph"};
    this.search = el("input", {type: "search", ...words, oninput: () => this.find(this.search.value),
      onkeydown: (e) => e.key === "Enter" && this.next(e.shiftKey ? -1 : 1)});
    this.status = el("span", {class: "soft", role: "status"});
    const button = (text, title, onclick) =>
      el("button", {type: "button", "aria-label": title, title, onclick}, text);
    this.bar = el("div", {class: "tools"}, this.search, this.status,
      button("Unfold", "Unfold all modules", () => this.unfoldAll()),
      button("Fold", "Fold all modules", () => this.foldAll()),
      button("−", "Smaller rows", () => this.setZoom(this.zoom / 1.25)),
      button("+", "Larger rows", () => this.setZoom(this.zoom * 1.25)), this.legend());
    this.box = el("div", {class: "sides"},
      el("div", {class: "heads"}, titles.map((t) => el("span", {}, t))), this.rowsBox);
    this.cells = new Map();
    this.flatten();
  }

  legend() {
    const attention = new Set(this.M.firings.filter((f) => isAttention(f.op)).map((f) => f.rule));
    const shown = this.M.rules.filter(([rule]) => !attention.has(rule)).slice(0, 7);
    const entry = (word, background, title) => el("span", {title}, el("i", {style: {background}}), word);
    return el("div", {class: "legend"}, this.M.right && entry("attention", "var(--attention)"),
      shown.map(([rule, n]) => entry(rule, this.M.colour.get(rule), plural(n, "firing"))));
  }

  /* Modules to open at first: level by level, while few rows are shown. */
  firstOpen(root) {
    const open = [];
    let level = [root], shown = root.rows.length;
    while (level.length) {
      const next = level.flatMap((m) => [...m.inner.values()]);
      for (const m of next) {
        if (shown + m.rows.length > 44 && next.length > 1) return open;
        shown += m.rows.length;
        open.push(m.path);
      }
      level = next;
    }
    return open;
  }

  /* ---------------------------------------------------------------- rows */

  flatten() {
    const rows = [], where = [this.M.left, this.M.right].map((g) => new Int32Array(g ? g.nodes.length : 0));
    const hide = (mod, index) => {
      for (const r of mod.rows)
        if (r.mod) hide(r.mod, index);
        else this.put(where, r, index);
    };
    const walk = (mod, depth) => {
      for (const r of mod.rows) {
        const index = rows.length;
        rows.push({...r, depth});
        if (!r.mod) this.put(where, r, index);
        else if (this.open.has(r.mod.path)) walk(r.mod, depth + 1);
        else hide(r.mod, index);
      }
    };
    walk(this.M.root, 0);
    Object.assign(this, {rows, where});
    this.edges = [this.M.left, this.M.right].map((g, side) => g && this.edgesOf(g, where[side], rows.length));
    this.at = Math.min(this.at, rows.length - 1);
    this.rowsBox.setAttribute("aria-rowcount", rows.length);
    this.layout();
  }

  put(where, r, index) {
    if (r.l >= 0) where[0][r.l] = index;
    if (r.r >= 0) where[1][r.r] = index;
  }

  /* By row: the rows that its edges go to and come from, each once. */
  edgesOf(g, where, n) {
    const edges = Array.from({length: n}, () => null), seen = new Set();
    g.nodes.forEach((node, i) => {
      for (const name of operands(node)) {
        const v = g.value.get(name);
        if (!v || v.kind !== "result") continue;
        const from = where[v.node], to = where[i], key = from * n + to;
        if (from === to || seen.has(key)) continue;
        seen.add(key);
        for (const k of [from, to]) (edges[k] = edges[k] || []).push([from, to]);
      }
    });
    return edges;
  }

  get rowHeight() { return Math.max(3, Math.round(25 * this.zoom)); }

  layout() {
    for (const node of this.cells.values()) node.remove();
    this.cells.clear();
    this.tall.style.height = this.rows.length * this.rowHeight + "px";
    this.rowsBox.style.setProperty("--row-font", Math.min(16, Math.max(6, 13.2 * this.zoom)) + "px");
    this.redraw();
  }

  later() {
    if (this.waiting) return;
    this.waiting = requestAnimationFrame(() => {
      this.waiting = 0;
      this.redraw();
    });
  }

  redraw() {
    this.draw();
    this.drawMap();
  }

  draw() {
    const h = this.rowHeight, top = this.rowsBox.scrollTop, high = this.rowsBox.clientHeight || 600;
    const from = Math.max(0, Math.floor(top / h) - 4), to = Math.min(this.rows.length, Math.ceil((top + high) / h) + 4);
    for (const [i, node] of this.cells)
      if (i < from || i >= to) {
        node.remove();
        this.cells.delete(i);
      }
    for (let i = from; i < to; i++)
      if (!this.cells.has(i)) {
        const node = this.row(i);
        this.cells.set(i, node);
        this.tall.append(node);
      }
    for (const [i, node] of this.cells) node.setAttribute("aria-selected", i === this.at);
    this.rowsBox.setAttribute("aria-activedescendant", this.cells.has(this.at) ? "row" + this.at : "");
    this.drawEdges(from, to, top, high);
  }

  row(i) {
    const r = this.rows[i], h = this.rowHeight;
    return el("div", {class: "row" + (r.mod ? " module" : ""), role: "row", id: "row" + i, "aria-level": r.depth + 1,
      "aria-rowindex": i + 1, "aria-expanded": r.mod ? String(this.open.has(r.mod.path)) : null,
      style: {top: i * h + "px", height: h + "px"},
      onclick: () => { this.select(i); if (r.mod) this.toggle(r.mod); }},
      (this.M.right ? [0, 1] : [0]).map((side) => (r.mod ? this.moduleCell(r, side) : this.nodeCell(r, side))));
  }

  indent(r) { return {paddingLeft: GUTTER + 14 * r.depth * Math.min(1, this.zoom) + "px"}; }

  moduleCell(r, side) {
    const m = r.mod, n = m.n[side], box = el("div", {class: "cell", role: "gridcell", style: this.indent(r)});
    if (!n) return box;
    box.append(el("span", {class: "twist", "aria-hidden": "true"}, this.open.has(m.path) ? "▾" : "▸"),
      el("span", {class: "name"}, this.marked(m.name)), el("span", {class: "op"}, plural(n, "node")));
    if (side)
      for (const {f, n: k} of [...this.M.rulesOf.get(m).values()].slice(0, 6)) {
        const style = {background: this.colour(1, {op: f.op}, f)};
        box.append(el("span", {class: "dot", title: `${f.rule}, ${k}`, style}));
      }
    return box;
  }

  nodeCell(r, side) {
    const g = side ? this.M.right : this.M.left, i = side ? r.r : r.l;
    const style = this.indent(r);
    if (i < 0) return el("div", {class: "cell", role: "gridcell", style});
    const n = g.nodes[i], f = this.M.firing(side, i), gone = !side && this.M.right && r.r < 0;
    return el("div", {class: "cell" + (gone ? " gone" : ""), role: "gridcell", style},
      el("span", {class: "stripe", style: {background: this.colour(side, n, f)}}),
      el("span", {class: "name mono"}, this.marked(n.name)), el("span", {class: "op"}, this.marked(shortOp(n.op))),
      el("span", {class: "size mono"}, n.results.length ? shape(n.results[0].shape) : ""));
  }

  colour(side, n, f) {
    if (isAttention(n.op) || (f && isAttention(f.op))) return "var(--attention)";
    return f ? this.M.colour.get(f.rule) : "var(--line)";
  }

  marked(text) {
    const at = this.query ? text.toLowerCase().indexOf(this.query) : -1;
    if (at < 0) return text;
    const end = at + this.query.length;
    return [text.slice(0, at), el("span", {class: "hit"}, text.slice(at, end)), text.slice(end)];
  }

  /* ---------------------------------------------------------------- edges and the strip */

  drawEdges(from, to, top, high) {
    const scale = devicePixelRatio || 1, wide = this.rowsBox.clientWidth, h = this.rowHeight, c = this.canvas;
    c.width = wide * scale;
    c.height = high * scale;
    Object.assign(c.style, {width: wide + "px", height: high + "px", transform: `translateY(${top}px)`});
    const p = c.getContext("2d");
    p.scale(scale, scale);
    const quiet = css("--soft"), strong = css("--accent");
    this.edges.forEach((edges, side) => {
      if (!edges) return;
      const left = side * (wide / 2), seen = new Set();
      for (let i = from; i < to; i++)
        for (const [a, b] of edges[i] || []) {
          const key = a * this.rows.length + b;
          if (seen.has(key)) continue;
          seen.add(key);
          const mine = a === this.at || b === this.at, y0 = (a + 0.5) * h - top, y1 = (b + 0.5) * h - top;
          const bend = Math.min(GUTTER - 10, 5 + 7 * Math.log2(Math.abs(b - a) + 1)), x = left + GUTTER - 4;
          p.strokeStyle = mine ? strong : quiet;
          p.globalAlpha = mine ? 1 : Math.abs(b - a) > 60 ? 0.16 : 0.38;
          p.lineWidth = mine ? 1.8 : 1;
          p.beginPath();
          p.moveTo(x, y0);
          p.bezierCurveTo(x - bend * 1.3, y0, x - bend * 1.3, y1, x, y1);
          p.stroke();
        }
    });
  }

  drawMap() {
    const c = this.map, scale = devicePixelRatio || 1, wide = c.clientWidth, high = c.clientHeight;
    if (!wide || !high) return;
    c.width = wide * scale;
    c.height = high * scale;
    const p = c.getContext("2d"), n = this.rows.length, step = Math.min(high / n, 14);
    p.scale(scale, scale);
    const side = this.M.right ? 1 : 0, colours = new Map();
    const real = (v) => {
      if (!colours.has(v)) colours.set(v, css(v.slice(4, -1)));
      return colours.get(v);
    };
    this.rows.forEach((r, i) => {
      let colour = "var(--line)", inset = 4;
      if (r.mod) inset = 10;
      else {
        const use = r.r >= 0 ? 1 : 0, k = use ? r.r : r.l, g = use ? this.M.right : this.M.left;
        colour = this.colour(use, g.nodes[k], this.M.firing(use, k));
        inset = use === side ? 4 : 12;
      }
      p.fillStyle = real(colour);
      p.fillRect(inset, i * step, wide - inset - 4, Math.max(0.7, step - (step > 3 ? 1 : 0)));
    });
    const h = this.rowHeight, y = (this.rowsBox.scrollTop / h) * step, tall = (this.rowsBox.clientHeight / h) * step;
    p.strokeStyle = css("--accent");
    p.lineWidth = 1.5;
    p.strokeRect(1, y + 0.5, wide - 2, Math.min(tall, high - y) - 1);
  }

  jump(e) {
    const n = this.rows.length, step = Math.min(this.map.clientHeight / n, 14);
    this.rowsBox.scrollTop = ((e.offsetY / step) * this.rowHeight) - this.rowsBox.clientHeight / 2;
  }

  /* ---------------------------------------------------------------- moving */

  select(i, quiet) {
    this.at = Math.max(0, Math.min(this.rows.length - 1, i));
    const h = this.rowHeight, y = this.at * h, box = this.rowsBox;
    if (y < box.scrollTop) box.scrollTop = y - 2 * h;
    else if (y + h > box.scrollTop + box.clientHeight) box.scrollTop = y + 3 * h - box.clientHeight;
    this.draw();
    if (!quiet && this.rows.length) this.onSelect(this.rows[this.at]);
  }

  toggle(mod, open) {
    if (open ?? !this.open.has(mod.path)) this.open.add(mod.path);
    else this.open.delete(mod.path);
    this.flatten();
  }

  foldAll() {
    this.open = new Set([""]);
    this.at = 0;
    this.flatten();
  }

  unfoldAll() {
    const walk = (m) => {
      this.open.add(m.path);
      for (const k of m.inner.values()) walk(k);
    };
    walk(this.M.root);
    this.flatten();
  }

  setZoom(z) {
    const centre = (this.rowsBox.scrollTop + this.rowsBox.clientHeight / 2) / this.rowHeight;
    this.zoom = Math.max(0.12, Math.min(2.2, z));
    this.layout();
    this.rowsBox.scrollTop = centre * this.rowHeight - this.rowsBox.clientHeight / 2;
  }

  wheel(e) {
    if (!e.ctrlKey) return;
    e.preventDefault();
    this.setZoom(this.zoom * (e.deltaY < 0 ? 1.12 : 1 / 1.12));
  }

  key(e) {
    const larger = () => this.setZoom(this.zoom * 1.25), smaller = () => this.setZoom(this.zoom / 1.25);
    const r = this.rows[this.at], page = Math.floor(this.rowsBox.clientHeight / this.rowHeight) - 1;
    const keys = {
      ArrowDown: () => this.select(this.at + 1), ArrowUp: () => this.select(this.at - 1),
      PageDown: () => this.select(this.at + page), PageUp: () => this.select(this.at - page),
      Home: () => this.select(0), End: () => this.select(this.rows.length - 1),
      ArrowRight: () => r.mod && this.toggle(r.mod, true),
      ArrowLeft: () => (r.mod && this.open.has(r.mod.path) ? this.toggle(r.mod, false) : this.toParent()),
      Enter: () => (r.mod ? this.toggle(r.mod) : this.onSelect(r)),
      "+": larger, "=": larger, "-": smaller, 0: () => this.setZoom(1), "/": () => this.search.focus(),
      n: () => this.next(1), p: () => this.next(-1),
    };
    if (!keys[e.key] || e.ctrlKey || e.metaKey || e.altKey) return;
    e.preventDefault();
    keys[e.key]();
  }

  toParent() {
    const depth = this.rows[this.at].depth;
    for (let i = this.at; i >= 0; i--) if (this.rows[i].depth < depth) return this.select(i);
  }

  /* Opens what is around a node, and goes there. */
  show(side, name) {
    const g = side ? this.M.right : this.M.left, i = g && g.byName.get(name);
    if (i === undefined || i === null) return false;
    this.openAround(side, i);
    this.select(this.where[side][i]);
    this.rowsBox.scrollTop = this.at * this.rowHeight - this.rowsBox.clientHeight / 2;
    this.draw();
    return true;
  }

  openAround(side, i) {
    const g = side ? this.M.right : this.M.left;
    let path = "";
    for (const c of components(g.module[i])) {
      path = path ? path + "." + c : c;
      this.open.add(path);
    }
    this.flatten();
  }

  /* ---------------------------------------------------------------- searching */

  find(text) {
    this.query = text.trim().toLowerCase();
    this.found = [];
    this.foundAt = -1;
    [this.M.left, this.M.right].forEach((g, side) => {
      if (!g || !this.query) return;
      g.nodes.forEach((n, i) => {
        const f = this.M.firing(side, i), text = [n.name, n.op, g.module[i], f ? f.rule : ""].join("\n");
        if (text.toLowerCase().includes(this.query)) this.found.push([side, i]);
      });
    });
    this.status.textContent = this.query ? plural(this.found.length, "match").replace(/matchs$/, "matches") : "";
    this.layout();
  }

  next(by) {
    if (!this.found.length) return;
    this.foundAt = (this.foundAt + by + this.found.length) % this.found.length;
    const [side, i] = this.found[this.foundAt];
    this.openAround(side, i);
    this.select(this.where[side][i]);
    this.status.textContent = `${this.foundAt + 1} of ${this.found.length}`;
  }
}
