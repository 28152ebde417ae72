/* Where the time and memory of a run go: treemap, roofline, flame chart, memory. A step of the profile:
 *
 *     {node, op, shape, calls, total_ms, min_ms, operands, arithmetic, flops, bytes}
 */
const perRun = (run, s) => (s.min_ms * s.calls) / run.runs;
const peakOf = (run, s) => (s.arithmetic === "bf16" ? run.peak.bf16_gflops : run.peak.f32_gflops);

/* By module the step belongs to, as the graph has it. */
function moduleOf(M, name) {
  for (const g of [M.right, M.left]) {
    const i = g ? g.byName.get(name) : undefined;
    if (i !== undefined) return g.module[i];
  }
  return "";
}

function hue(text) {
  let h = 0;
  for (const c of text) h = (h * 31 + c.charCodeAt(0)) >>> 0;
  return h % 360;
}
/* Dark enough for white text, in both themes. */
const fillOf = (text) => `hsl(${hue(text)} 32% 36%)`;

/* ---------------------------------------------------------------- treemap */

/* Squarified rectangles (Bruls, Huizing and van Wijk, 2000) of positive sizes, largest first. */
function squarify(items, x, y, w, h, out) {
  const total = items.reduce((s, i) => s + i.size, 0), area = total > 0 ? (w * h) / total : 0;
  let k = 0;
  while (k < items.length && w > 0 && h > 0) {
    const side = Math.min(w, h);
    let sum = 0, best = Infinity, end = k;
    for (; end < items.length; end++) {
      const more = sum + items[end].size * area, thick = more / side;
      const worst = Math.max((items[k].size * area) / thick / thick, thick / ((items[end].size * area) / thick));
      if (worst > best) break;
      best = worst;
      sum = more;
    }
    const thick = sum / side;
    let at = 0;
    for (; k < end; k++) {
      const long = (items[k].size * area) / thick;
      const across = w >= h ? {x, y: y + at, w: thick, h: long} : {x: x + at, y, w: long, h: thick};
      out.push({...items[k], ...across});
      at += long;
    }
    if (w >= h) { x += thick; w -= thick; } else { y += thick; h -= thick; }
  }
  return out;
}

function treemap(M, run) {
  const box = el("div", {class: "treemap"}), crumbs = el("div", {class: "crumbs"});
  const steps = run.steps.filter((s) => s.calls && perRun(run, s) > 0);
  const total = steps.reduce((t, s) => t + perRun(run, s), 0);
  const by = el("select", {"aria-label": "Group time by", onchange: () => draw([])},
    ["module", "op"].map((value) => el("option", {value}, "by " + value)));
  const pathOf = (s) => {
    if (!s.node) return ["(run)", s.op];
    const tail = [shortOp(s.op), s.node];
    return by.value === "op" ? tail : [...components(moduleOf(M, s.node)), ...tail];
  };
  /* The parts of what lies under a path, largest first. */
  const partsOf = (path) => {
    const groups = new Map();
    for (const s of steps) {
      const p = pathOf(s);
      if (p.length <= path.length || path.some((c, i) => p[i] !== c)) continue;
      const key = p[path.length], g = groups.get(key) || {key, size: 0, deeper: false, n: 0};
      g.size += perRun(run, s);
      g.n++;
      g.deeper ||= p.length > path.length + 1;
      groups.set(key, g);
    }
    return [...groups.values()].sort((a, b) => b.size - a.size).slice(0, 200);
  };
  const HEAD = 22, TALL = 400, DEEPEST = 4;
  function tile(g, path, wide) {
    const words = `${ms(g.size)}, ${percent(g.size / total)}`, whole = [...path, g.key];
    const share = (x) => (100 * x) / wide + "%";
    const tell = `${whole.join(" › ")}\n${words} of the run, ${plural(g.n, "step")}`;
    const style = {left: share(g.x), top: g.y + "px", width: share(g.w), height: g.h + "px", background: fillOf(g.key)};
    return el("button", {type: "button", style, "aria-label": `${g.key}: ${words}`,
      onclick: () => g.deeper && draw(whole), onmousemove: (e) => showTip(tell, e.clientX, e.clientY),
      onmouseleave: () => showTip("")},
    el("span", {}, `${g.key}  ${percent(g.size / total)}`));
  }
  /* Tiles for the parts under a path in a rectangle, and in those with room for it their own parts. */
  function place(path, groups, at, wide, tiles, depth) {
    for (const g of squarify(groups, at.x, at.y, at.w, at.h, [])) {
      if (g.w < 5 || g.h < 5) continue;
      tiles.push(tile(g, path, wide));
      const whole = [...path, g.key], room = g.deeper && depth < DEEPEST && g.h > 2.4 * HEAD && g.w > 70;
      const inner = room ? partsOf(whole) : [], inside = {x: g.x + 3, y: g.y + HEAD, w: g.w - 6, h: g.h - HEAD - 3};
      if (inner.length > 1 || (inner.length && inner[0].deeper)) place(whole, inner, inside, wide, tiles, depth + 1);
    }
  }
  function draw(path) {
    const groups = partsOf(path), wide = box.clientWidth || 1200, tiles = [];
    const crumb = (c, i) =>
      el("button", {type: "button", class: "link", onclick: () => draw(path.slice(0, i))}, (i ? "› " : "") + c);
    crumbs.replaceChildren(by, ...["all", ...path].map(crumb),
      el("span", {class: "soft"}, ms(groups.reduce((t, g) => t + g.size, 0))));
    place(path, groups, {x: 0, y: 0, w: wide, h: TALL}, wide, tiles, 0);
    box.replaceChildren(...tiles);
  }
  /* begins where there is something to tell apart */
  const start = [], alone = (g) => g.length && g[0].deeper && g[0].size > 0.97 * total;
  for (let g = partsOf([]); alone(g); g = partsOf(start)) start.push(g[0].key);
  requestAnimationFrame(() => draw(start));
  return el("div", {}, crumbs, box);
}

/* ---------------------------------------------------------------- roofline */

function opsOf(run) {
  const ops = new Map();
  for (const s of run.steps) {
    const o = ops.get(s.op) || {op: s.op, n: 0, ms: 0, flops: 0, bytes: 0, ideal: 0};
    const calls = s.calls / run.runs;
    o.n++;
    o.ms += perRun(run, s);
    o.flops += (s.flops || 0) * calls;
    o.bytes += (s.bytes || 0) * calls;
    if (s.flops) o.ideal += (s.flops * calls) / peakOf(run, s) / 1e6;
    ops.set(s.op, o);
  }
  return [...ops.values()].sort((a, b) => b.ms - a.ms);
}

function rooflinePlot(run, ops) {
  const W = 640, H = 340, left = 56, bottom = 40, top = 14, right = 14;
  const peak = run.peak.f32_gflops, read = run.peak.read_gbs;
  const points = ops.filter((o) => o.flops > 0 && o.bytes > 0 && o.ms > 0);
  for (const o of points) Object.assign(o, {x: o.flops / o.bytes, y: o.flops / o.ms / 1e6});
  const span = (v) => [Math.floor(Math.log10(Math.min(...v))), Math.ceil(Math.log10(Math.max(...v)))];
  const [x0, x1] = span([0.05, ...points.map((p) => p.x), (peak / read) * 4]);
  const [y0, y1] = span([peak / 300, ...points.map((p) => p.y), peak * 1.6]), most = Math.max(...ops.map((o) => o.ms));
  const X = (v) => left + ((Math.log10(v) - x0) / (x1 - x0)) * (W - left - right);
  const Y = (v) => H - bottom - ((Math.log10(v) - y0) / (y1 - y0)) * (H - top - bottom);
  const power = (e) => (e >= 0 && e < 5 ? String(10 ** e) : e < 0 && e > -4 ? (10 ** e).toFixed(-e) : "1e" + e);
  const label = (x, y, anchor, text) => svg("text", {x, y, "text-anchor": anchor}, text);
  const line = (a, b, c, d) => svg("line", {class: "grid", x1: a, y1: b, x2: c, y2: d}), grid = [];
  for (let e = x0; e <= x1; e++)
    grid.push(line(X(10 ** e), top, X(10 ** e), H - bottom), label(X(10 ** e), H - bottom + 16, "middle", power(e)));
  for (let e = y0; e <= y1; e++)
    grid.push(line(left, Y(10 ** e), W - right, Y(10 ** e)), label(left - 6, Y(10 ** e) + 4, "end", power(e)));
  const start = Math.max(10 ** x0, 10 ** y0 / read);
  const roof = [[start, start * read], [peak / read, peak], [10 ** x1, peak]];
  const tell = (p) => `${shortOp(p.op)}\n${ms(p.ms)}, ${digits(p.y)} GFLOP/s, ${digits(p.x)} operations per byte`;
  const dot = (p) => svg("circle", {cx: X(p.x), cy: Y(p.y), r: 4 + 14 * Math.sqrt(p.ms / most), "fill-opacity": 0.55,
    fill: isAttention(p.op) ? "var(--attention)" : "var(--accent)", stroke: "var(--card)",
    onmousemove: (e) => showTip(tell(p), e.clientX, e.clientY), onmouseleave: () => showTip("")});
  const name = (p) => (X(p.x) > W - 160 ? label(X(p.x) - 14, Y(p.y) + 22, "end", shortOp(p.op))
    : label(X(p.x) + 14, Y(p.y) + 22, "start", shortOp(p.op)));
  return svg("svg", {viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "Roofline: GFLOP/s over operations per byte"},
    grid, svg("polyline", {class: "roof", points: roof.map(([x, y]) => `${X(x)},${Y(y)}`).join(" ")}),
    label(W - right - 4, Y(peak) - 6, "end", `${digits(peak)} GFLOP/s`), label(left + 6, top + 12, "start", "GFLOP/s"),
    label(W - right, H - 6, "end", "operations per byte"), points.map(dot), apart(points, X, Y).map(name));
}

/* The points whose names do not run into one another, slowest first. */
function apart(points, X, Y) {
  const named = [];
  for (const p of points) if (named.length < 4 && named.every((q) => Math.abs(Y(q.y) - Y(p.y)) > 18)) named.push(p);
  return named;
}

function rooflineTable(run, ops) {
  const total = ops.reduce((t, o) => t + o.ms, 0);
  const share = (x) => (x > 0 ? [percent(x), bar(x)] : "");
  const heads = ["op", "#steps", "#time", "#share", "#GFLOP/s", "#of peak", "#moved", "#GB/s", "#of reading"];
  return table("Time, operations and bytes of each op", heads,
    ops.filter((o) => o.ms > 0).map((o) => [el("code", {}, shortOp(o.op)), count(o.n), ms(o.ms), share(o.ms / total),
      o.flops ? digits(o.flops / o.ms / 1e6) : "", share(o.ideal / o.ms), o.bytes ? bytes(o.bytes) : "",
      o.bytes ? digits(o.bytes / o.ms / 1e6) : "", share(o.bytes / o.ms / 1e6 / run.peak.read_gbs)]));
}

/* ---------------------------------------------------------------- flame chart */

function flame(M, run) {
  const depth = 5, line = 22, style = {height: line * (depth + 1) + "px"};
  const canvas = el("canvas", {class: "flame", tabindex: "0", role: "img", style,
    "aria-label": "One run: modules, and below them ops, over time. Plus and minus zoom, arrows move."});
  const rows = Array.from({length: depth + 1}, () => []);
  for (const [step, start, dur] of run.flame) {
    const s = step >= 0 ? run.steps[step] : null, path = s ? components(moduleOf(M, s.node)) : ["(run)"];
    for (let d = 0; d < depth; d++) {
      const name = path.slice(0, d + 1).join("."), last = rows[d].at(-1);
      if (path.length <= d) continue;
      if (last && last.name === name && start - last.end < 0.002 + dur * 0.02 && last.open) last.end = start + dur;
      else rows[d].push({name, label: path[d], start, end: start + dur, open: true});
    }
    for (let d = path.length; d < depth; d++) if (rows[d].at(-1)) rows[d].at(-1).open = false;
    const name = s ? `${s.node}\n${s.op}\n${s.operands} → ${s.shape}` : "(run)";
    rows[depth].push({name, label: s ? shortOp(s.op) : "", start, end: start + dur});
  }
  const end = Math.max(...run.flame.map(([, a, b]) => a + b), 0.001);
  let from = 0, to = end;
  function draw() {
    const scale = devicePixelRatio || 1, wide = canvas.clientWidth || 900, p = canvas.getContext("2d");
    canvas.width = wide * scale;
    canvas.height = line * (depth + 1) * scale;
    p.scale(scale, scale);
    p.font = "12px system-ui, sans-serif";
    rows.forEach((list, d) => {
      let covered = -1;
      for (const b of list) {
        const x = ((b.start - from) / (to - from)) * wide, w = ((b.end - b.start) / (to - from)) * wide;
        if (x + w < 0 || x > wide || x + w < covered + 0.5) continue;
        covered = x + w;
        p.fillStyle = fillOf(b.label || "-");
        p.fillRect(x, d * line + 1, Math.max(0.6, w - 0.5), line - 2);
        if (w < 34) continue;
        p.save();
        p.beginPath();
        p.rect(Math.max(x, 0), d * line, w - 4, line);
        p.clip();
        p.fillStyle = "#fff";
        p.fillText(plain(b.label), Math.max(x, 0) + 5, d * line + 15);
        p.restore();
      }
    });
  }
  const zoom = (k, at) => {
    const span = Math.min(end, (to - from) * k), c = from + (to - from) * at;
    from = Math.max(0, Math.min(end - span, c - span * at));
    to = from + span;
    draw();
  };
  const pan = (by) => {
    const span = to - from;
    from = Math.max(0, Math.min(end - span, from + by * span));
    to = from + span;
    draw();
  };
  canvas.addEventListener("wheel", (e) => {
    if (!e.ctrlKey && !e.shiftKey) return;
    e.preventDefault();
    if (e.shiftKey) pan((e.deltaY || e.deltaX) / 1000);
    else zoom(e.deltaY < 0 ? 0.8 : 1.25, e.offsetX / canvas.clientWidth);
  }, {passive: false});
  canvas.addEventListener("keydown", (e) => {
    const closer = () => zoom(0.6, 0.5), keys = {"+": closer, "=": closer, "-": () => zoom(1.6, 0.5),
      ArrowLeft: () => pan(-0.2), ArrowRight: () => pan(0.2), 0: () => zoom(1e9, 0)};
    if (keys[e.key]) { e.preventDefault(); keys[e.key](); }
  });
  canvas.addEventListener("dblclick", (e) => zoom(0.3, e.offsetX / canvas.clientWidth));
  canvas.addEventListener("mousemove", (e) => {
    if (e.buttons === 1) pan(-e.movementX / canvas.clientWidth);
    const t = from + (e.offsetX / canvas.clientWidth) * (to - from), row = rows[Math.floor(e.offsetY / line)] || [];
    const hit = row.find((b) => b.start <= t && t < b.end);
    showTip(hit ? `${hit.name}\n${ms(hit.end - hit.start)}` : "", e.clientX, e.clientY);
  });
  canvas.addEventListener("mouseleave", () => showTip(""));
  new ResizeObserver(draw).observe(canvas);
  return el("div", {}, canvas, el("p", {class: "soft"}, `0 to ${ms(end)}. Ctrl and the wheel zoom, dragging moves, a ` +
    "double click zooms in; + − and arrows do the same."));
}

/* ---------------------------------------------------------------- memory */

function memoryChart(run) {
  const memory = run.memory, steps = memory.steps.map((s, i) => ({...s, i})).filter((s) => !s.constant);
  if (!steps.length) return el("p", {class: "soft"}, "This run keeps nothing in its arena.");
  const W = 900, H = 230, left = 74, bottom = 26, top = 16, n = steps.length, inside = W - left - 8;
  const used = (s) => s.alive_bytes + s.scratch_bytes, most = Math.max(...steps.map(used), 1);
  const X = (k) => left + (k / n) * inside, Y = (v) => H - bottom - (v / most) * (H - top - bottom);
  const point = (k, v) => `${X(k).toFixed(1)},${Y(v).toFixed(1)}`;
  const flat = (f) => steps.map((s, k) => `L${point(k, f(s))}L${point(k + 1, f(s))}`).join("");
  const area = (f) => `M${point(0, 0)}${flat(f)}L${point(n, 0)}Z`;
  const peak = steps.findIndex((s) => s.i === memory.peak), tick = (v) => [
    svg("line", {class: "grid", x1: left, x2: W - 8, y1: Y(v), y2: Y(v)}),
    svg("text", {x: left - 6, y: Y(v) + 4, "text-anchor": "end"}, bytes(Math.round(v)))];
  const tell = (s, k) => `step ${k + 1}: ${s.node}\n${shortOp(s.op)}\n${bytes(s.alive_bytes)} of results, ` +
    `${bytes(s.scratch_bytes)} of scratch`;
  const under = (e) => {
    const box = chart.getBoundingClientRect(), x = ((e.clientX - box.left) / box.width) * W;
    const k = Math.floor(((x - left) / inside) * n);
    showTip(steps[k] ? tell(steps[k], k) : "", e.clientX, e.clientY);
  };
  const chart = svg("svg", {viewBox: `0 0 ${W} ${H}`, role: "img", onmousemove: under, onmouseleave: () => showTip(""),
    "aria-label": `Memory over the steps of a run; the peak is ${bytes(most)}`}, [0, most / 2, most].map(tick),
  svg("path", {d: area(used), fill: "var(--attention)", "fill-opacity": 0.45}),
  svg("path", {d: area((s) => s.alive_bytes), fill: "var(--accent)", "fill-opacity": 0.75}),
  peak >= 0 && svg("line", {x1: X(peak + 0.5), x2: X(peak + 0.5), y1: top - 8, y2: H - bottom, stroke: "var(--ink)",
    "stroke-dasharray": "3 3"}),
  svg("text", {x: left, y: H - 6}, `${plural(n, "step")}, in order`));
  return chart;
}

function heldTable(run) {
  const held = run.memory.held;
  return table("What holds the peak", ["value", "op", "shape", "#size", "#from step", "#to step"],
    held.slice(0, 30).map((h) => [el("code", {}, h.value ?? "–"), h.op ? shortOp(h.op) : "", shape(h.shape),
      bytes(h.bytes), h.from + 1, h.to + 1]));
}
