/* The page: a tab for each part, made when it is opened first. #graph:NODE in the address goes to a node. */
const compared = DATA.kind === "compare", model = DATA.models[0], other = DATA.models[1], runs = DATA.time || [];
const rewrite = model.rewrite, after = compared ? other.graph : rewrite.graph, pairs = DATA.values && DATA.values.pairs;
const M = aligned(model.graph, after, rewrite ? rewrite.firings : [], pairs);
const fileName = (m) => m.file.split("/").at(-1);
const card = (title, ...what) => el("section", {class: "card"}, el("h2", {}, title), what);
const wide = (title, ...what) => el("section", {class: "card wide"}, el("h2", {}, title), what);
const figure = (value, what) => el("div", {class: "figure"}, el("b", {}, value), el("span", {}, what));
const figures = (...list) => el("div", {class: "figures"}, list);
const code = (text) => el("code", {}, text);
const soft = (text) => el("span", {class: "soft"}, text);
const comma = (list) => list.map((x, k) => [k ? ", " : "", x]);
let graph = null;

/* Things of one kind together, by what key(x) says. */
function grouped(list, key) {
  const groups = new Map();
  for (const x of list) {
    const k = JSON.stringify(key(x));
    if (!groups.has(k)) groups.set(k, []);
    groups.get(k).push(x);
  }
  return [...groups.values()];
}

/* ---------------------------------------------------------------- summary */

function range(s) {
  const lo = s.min ?? "−∞", hi = s.max ?? "∞";
  return el("div", {}, code(s.name), ` ${lo} to ${hi}`, s.bound_by ? soft(`  (${s.bound_by})`) : "");
}

function fileCard(m) {
  const pt2 = m.format === "pt2", dtypes = grouped(m.graph.weights, (w) => w.dtype);
  return card(fileName(m), facts([
    ["file", code(m.file)], ["size", bytes(m.bytes)], ["SHA-256", code(m.sha256)],
    ["format", pt2 ? `torch.export archive, schema ${m.schema_version}` : `ONNX, opset ${m.opset}`],
    ["written by", m.torch ? "torch " + m.torch : m.producer],
    ["parameters", `${count(m.parameters)}, ${bytes(m.parameter_bytes)}`],
    ["buffers", m.buffers ? `${count(m.buffers)}, ${bytes(m.buffer_bytes)}` : ""],
    ["weights' dtypes", dtypes.map((list) => `${list[0].dtype} (${plural(list.length, "tensor")})`).join(", ")],
    ["sizes", m.symbols.length ? m.symbols.map(range) : "all fixed"],
    ["conditions", m.requirements.slice(0, 12).map((r) => el("div", {}, code(r.condition)))],
    ["not read", m.ignored_entries.map((t) => el("div", {}, t))]]));
}

function ports(m) {
  const rows = [...m.inputs.map((t) => ["in", t]), ...m.outputs.map((t) => ["out", t])];
  return card("Inputs and outputs", table("Inputs and outputs", ["", "name", "dtype", "sizes"],
    rows.map(([end, t]) => [end, code(t.label || t.name), t.dtype, code(shape(t.shape))])));
}

function machineCard() {
  const c = DATA.machine, run = runs[0];
  return card("Machine and versions", facts([
    ["qkv", c.qkv], ["CPU", c.cpu || c.architecture], ["instructions", c.isa], ["CPUs", c.cpus],
    ["memory", bytes(c.memory_bytes)], ["system", `${c.system}, ${c.architecture}`],
    ["timed with", run && `${plural(run.threads, "thread")}, ${run.dtype}, ` +
      run.inputs.map((t) => `${t.name} ${typed(t)}`).join(", ")],
    ["peak", run && `${digits(run.peak.f32_gflops)} GFLOP/s in f32 (${run.peak.f32_by}), ` +
      `reading ${digits(run.peak.read_gbs)} GB/s`]]));
}

function opsCard(m) {
  const ops = Object.entries(m.ops), most = ops.length ? ops[0][1] : 1, SHOWN = 14;
  const row = ([op, n]) => [code(shortOp(op)), [count(n), bar(n / most)]];
  const list = (name, part) => table(name, ["op", "#nodes"], part.map(row));
  return card("Ops of the file", list("Ops", ops.slice(0, SHOWN)), ops.length > SHOWN &&
    el("details", {}, el("summary", {}, `${ops.length - SHOWN} more`), list("More ops", ops.slice(SHOWN))));
}

function rulesCard() {
  const byRule = grouped(rewrite.firings, (f) => f.rule).sort((a, b) => b.length - a.length);
  if (!byRule.length) return card("Rules that were applied", soft("None: no rule found anything to replace."));
  return card("Rules that were applied", table("Rules", ["", "rule", "#times", "#nodes", "#proven", "#largest diff."],
    byRule.map((list) => [
      el("span", {class: "dot", "aria-hidden": "true", style: {background: M.colour.get(list[0].rule)}}), list[0].rule,
      count(list.length), count(list.reduce((n, f) => n + f.nodes.length, 0)),
      count(list.filter((f) => f.runs > 0).length), small(Math.max(...list.map((f) => f.max_rel_peak || 0)))])));
}

function exportsCard() {
  const stem = fileName(model).replace(/\.\w+$/, ""), data = document.getElementById("data").textContent;
  const button = (text, name, type, make) =>
    el("button", {type: "button", onclick: () => download(stem + name, type, make())}, text);
  return card("Take away", el("div", {class: "crumbs"}, button("Data as JSON", ".json", "application/json", () => data),
    runs.length > 0 && [button("Steps as CSV", ".csv", "text/csv", stepsCsv),
      button("Timeline for Perfetto", "-trace.json", "application/json", () => JSON.stringify(perfetto(runs[0])))]));
}

function stepsCsv() {
  const field = (x) => (typeof x === "number" ? x : x === undefined ? "" : `"${String(x).replace(/"/g, '""')}"`);
  const keys = ["node", "op", "shape", "operands", "calls", "total_ms", "min_ms", "flops", "bytes"];
  const rows = runs.flatMap((run) => run.steps.map((s) => [run.file, ...keys.map((k) => s[k])].map(field).join(",")));
  return ["file," + keys.join(","), ...rows].join("\n") + "\n";
}

function perfetto(run) {
  const event = ([step, start, dur]) => {
    const s = run.steps[step], what = s ? {name: s.node, cat: s.op} : {name: "(run)", cat: "session"};
    return {ph: "X", pid: 1, tid: 1, ...what, ts: start * 1e3, dur: dur * 1e3, args: s || {}};
  };
  return {displayTimeUnit: "ms", traceEvents: run.flame.map(event)};
}

function summaryTab(box) {
  if (compared) return comparedSummary(box);
  const run = runs[0];
  box.append(figures(figure(count(model.parameters), "parameters"),
    figure(`${count(model.nodes)} → ${count(rewrite.nodes_after)}`, "nodes before and after rewriting"),
    figure(count(rewrite.attentions_fused), "attentions, each one op"),
    rewrite.attentions_left > 0 && figure(count(rewrite.attentions_left), "attentions left spelled out"),
    run && figure(ms(run.min_ms), "fastest of " + plural(run.runs, "run"))),
  el("div", {class: "flow"}, fileCard(model), ports(model), exportsCard(), rulesCard(), opsCard(model), machineCard()));
}

/* ---------------------------------------------------------------- graph */

function has(side, name) {
  const g = side ? M.right : M.left;
  return g && g.byName.has(name);
}

/* A way to a node; its name alone where there is no such node. */
function go(side, name, text) {
  if (!has(side, name)) return code(text ?? name);
  const onclick = () => {
    open("graph");
    graph.show(side, name);
  };
  return el("button", {type: "button", class: "link mono", onclick}, text ?? name);
}

function valueLine(g, side, name) {
  const v = g.value.get(name), from = v && v.kind === "result" ? g.nodes[v.node].name : null;
  return [from ? go(side, from, name) : code(v && v.path ? v.path : name), v ? soft(` ${typed(v)}`) : ""];
}

const argument = (x) => (x === null ? "none" : typeof x === "object" ? JSON.stringify(x) : String(x));

function firingFacts(f) {
  return facts([["rule", el("b", {}, f.rule)], ["phase", f.phase], ["result", shortOp(f.op)],
    ["replaced", comma(f.nodes.map((n) => go(0, n)))], ["note", f.note], ["proof", proofText(f)]]);
}

function proofText(f) {
  if (f.not_proven) return "not proven: " + f.not_proven;
  if (!f.runs) return "not evaluated (--no-prove)";
  const rows = f.max_abs_masked_rows, masked = rows > 0 ? `; ${small(rows)} in rows that may attend to nothing` : "";
  return `equal in ${plural(f.runs, "evaluation")} on random values at several sizes; largest difference ` +
    `${small(f.max_rel_peak)} of the peak (${small(f.max_abs)} absolute)${masked}`;
}

const stepTime = (run, s) => ms(perRun(run, s)) + (s.flops ? `, ${digits(s.flops / s.min_ms / 1e6)} GFLOP/s` : "");

function callFacts(g, side, n) {
  const values = (list) => [list].flat().filter((x) => x !== null).map((x) => el("div", {}, valueLine(g, side, x)));
  return [...Object.entries(n.inputs).map(([key, v]) => [key, values(v)]),
    ...Object.entries(n.attributes).filter(([, v]) => v !== null).map(([key, v]) => [key, code(argument(v))])];
}

function nodeCard(side, i) {
  const g = side ? M.right : M.left, n = g.nodes[i], run = runs[side && compared ? 1 : 0], f = M.firing(side, i);
  const steps = run ? run.steps.filter((s) => s.node === n.name) : [], attention = isAttention(n.op);
  const history = side && M.made.get(n.name), pair = pairs && pairs.find((p) => (side ? p.b : p.a) === n.name);
  const users = [...new Set(n.results.flatMap((r) => g.users.get(r.name) || []))].slice(0, 12);
  const where = compared ? fileName(side ? other : model) : side ? "after rewriting" : "in the file";
  return el("section", {}, el("h2", {class: "mono"}, n.name),
    el("p", {}, el("span", {class: "chip" + (attention ? " attention" : " on")}, shortOp(n.op)), " ", soft(where)),
    facts([["module", g.module[i] || "–"], ["source", n.line === null ? null : code(g.lines[n.line])],
      ...(attention ? [] : callFacts(g, side, n)), ["result", n.results.map((r) => el("div", {}, code(typed(r))))],
      ["used by", comma(users.map((u) => go(side, g.nodes[u].name)))],
      ["time", steps.map((s) => el("div", {}, stepTime(run, s)))]]),
    pair && [el("h3", {}, "Values"), pairFacts(pair)],
    attention && [el("h3", {}, "Attention"), attentionFacts(g, side, n)],
    history ? [el("h3", {}, "How it was made"), firingsOf(history, 6), spelled(history)]
      : f && [el("h3", {}, "Where it went"), firingFacts(f), el("p", {}, "It is part of ", go(1, f.result), ".")]);
}

function firingsOf(history, most) {
  return history.chain.slice(-most).map((f) => el("div", {style: {marginBottom: "10px"}}, firingFacts(f)));
}

function pairFacts(p) {
  return facts([["partner by", p.by], ["agrees", p.agrees ? "yes" : el("b", {class: "bad"}, "no")],
    ["largest difference", small(p.max_abs)], ["of the peak", small(p.max_abs_over_peak)], ["cosine", p.cosine],
    ["at", p.index && `${shape(p.index)}: ${p.got} and ${p.expected}`]]);
}

/* The nodes of the file that went into it, in order, with their lines of source. */
function spelled(history) {
  const SHOWN = 40, places = [...history.covers].map((name) => M.left.byName.get(name)).sort((a, b) => a - b);
  const list = places.map((i) => M.left.nodes[i]), lines = list.filter((n) => n.line !== null).map((n) => n.line);
  return [el("h3", {}, "As it was spelled"),
    lines.length > 0 && el("pre", {}, [...new Set(lines)].map((k) => M.left.lines[k]).join("\n")),
    el("p", {}, list.slice(0, SHOWN).map((n, k) => [k ? " → " : "", go(0, n.name, shortOp(n.op))]),
      list.length > SHOWN ? ` … ${list.length - SHOWN} more` : "")];
}

function moduleCard(mod) {
  const run = runs[0], inside = (path) => path === mod.path || path.startsWith(mod.path + ".");
  const steps = run ? run.steps.filter((s) => s.node && inside(moduleOf(M, s.node))) : [];
  const time = steps.reduce((t, s) => t + perRun(run, s), 0), rules = [...M.rulesOf.get(mod).values()];
  const titles = compared ? [fileName(model), fileName(other)] : ["before", "after"];
  return el("section", {}, el("h2", {}, mod.path), facts([...titles.map((t, k) => [t, plural(mod.n[k], "node")]),
    ["time", run && `${ms(time)}, ${percent(time / run.min_ms)} of the run`],
    ["rules", rules.map(({f, n}) => el("div", {}, `${f.rule} (${n})`))]]));
}

function graphTab(box) {
  box.classList.add("whole");
  const side = el("aside", {class: "side", "aria-label": "Details", tabindex: "0"});
  const titles = compared ? [fileName(model), fileName(other)] : ["In the file", "After rewriting"];
  graph = new GraphView(M, titles, (r) => {
    const alone = r.mod || r.r < 0 || M.partner(r.l) !== r.r || compared; // or the right side says all
    const cards = r.mod ? [moduleCard(r.mod)] : [r.r >= 0 && nodeCard(1, r.r), r.l >= 0 && alone && nodeCard(0, r.l)];
    side.replaceChildren(...cards.filter(Boolean));
    side.scrollTop = 0;
  });
  box.append(graph.bar, el("div", {class: "graph"}, graph.box, graph.map, side));
  new ResizeObserver(() => graph.redraw()).observe(graph.rowsBox);
  graph.select(0);
}

/* ---------------------------------------------------------------- attentions */

function headsText(q, k) {
  const heads = (v) => (v && v.shape.length > 2 ? v.shape.at(-3) : null);
  if (heads(q) === null || heads(k) === null || heads(q) === heads(k)) return heads(q);
  return `${heads(q)} of queries, ${heads(k)} of keys`;
}

function attentionFacts(g, side, n) {
  const q = g.value.get(n.inputs.query), k = g.value.get(n.inputs.key), a = n.attributes, mask = n.inputs.attn_mask;
  const size = q ? q.shape.at(-1) : "d";
  return facts([["heads", headsText(q, k)], ["head size", size],
    ...["query", "key", "value"].filter((x) => n.inputs[x]).map((x) => [x, valueLine(g, side, n.inputs[x])]),
    ["mask", mask ? valueLine(g, side, mask) : a.is_causal === true ? "causal" : "none"],
    ["scale", String(a.scale ?? `1/√${size}`)], ["softcap", a.softcap ? String(a.softcap) : null],
    ["dropout", a.dropout_p ? String(a.dropout_p) : null]]);
}

function leftFacts(l) {
  return [el("h3", {}, go(0, l.node)), facts([["stopped at", l.at && go(0, l.at)], ["nearest rule", l.rule],
    ["matched", l.matched === undefined || l.matched === null ? null : argument(l.matched)], ["why", l.reason],
    ["remedy", el("b", {}, l.advice)]])];
}

function alikeCard(nodes) {
  const n = nodes[0], history = M.made.get(n.name), SHOWN = 60;
  return wide(nodes.length > 1 ? `${nodes.length} attentions alike` : "One attention",
    el("p", {}, comma(nodes.slice(0, SHOWN).map((k) => go(1, k.name))), nodes.length > SHOWN ? " …" : ""),
    el("div", {class: "columns"}, el("div", {}, attentionFacts(M.right, 1, n)), el("div", {},
      history ? firingsOf(history, 3) : el("p", {}, "The file has it as this op already."), kernelLines(nodes))),
    history && el("details", {}, el("summary", {}, "How it was spelled"), spelled(history)));
}

function attentionTab(box) {
  const list = M.right.nodes.filter((n) => isAttention(n.op)), left = rewrite.left || [];
  const type = (n, x) => M.right.value.get(n.inputs[x]);
  const rules = (n) => (M.made.get(n.name)?.chain || []).map((f) => f.rule);
  const alike = (n) => [...["query", "key", "value", "attn_mask"].map((x) => type(n, x) && typed(type(n, x))),
    n.attributes.scale, n.attributes.is_causal, rules(n)];
  box.append(figures(figure(count(list.length), "attentions that are one op"),
    figure(count(list.filter((n) => M.made.has(n.name)).length), "of them recognised by rules"),
    figure(count(left.length), "left as they are")));
  if (left.length) box.append(card("Left as it is, and why", left.map(leftFacts)));
  box.append(...grouped(list, alike).map(alikeCard));
  if (!list.length && !left.length) box.append(el("p", {}, "This model has no attention."));
}

/* ---------------------------------------------------------------- kernels */

function choiceText(a) {
  const when = (x) => (x.when ? ` when ${x.when}` : a.choice.length > 1 ? " otherwise" : "");
  return a.choice.map((x) => el("div", {}, el("b", {}, x.backend), soft(when(x))));
}

function kernelLines(nodes) {
  const names = new Set(nodes.map((n) => n.name));
  const rows = rewrite.backends.map((d) => [d.device, d.attentions.find((a) => names.has(a.node))]);
  const known = rows.filter(([, a]) => a).map(([device, a]) => [device, choiceText(a)]);
  return known.length > 0 && [el("h3", {}, "Kernel that PyTorch would take"), facts(known)];
}

function reasonsText(refused) {
  const reason = (r) => el("p", {}, el("b", {}, r.backend), `: needs that ${r.what}`,
    r.when ? soft(` (it would when ${r.when})`) : "", r.change ? el("div", {}, "To do: " + r.change) : "");
  if (!refused.length) return "–";
  return el("details", {}, el("summary", {}, plural(refused.length, "reason")), refused.map(reason));
}

function kernelTable(name, attentions) {
  const sizes = (dims) => (dims ? code(shape(dims)) : "none"), way = (a) => go(has(1, a.node) ? 1 : 0, a.node);
  const names = (list) => (list.length > 3 ? [way(list[0]), ` and ${list.length - 1} more`] : comma(list.map(way)));
  const groups = grouped(attentions, (a) => [a.choice, a.refused, a.query, a.key, a.mask]);
  return table(name, ["attentions", "query", "mask", "kernel", "why not a better one"], groups.map((list) =>
    [names(list), sizes(list[0].query), sizes(list[0].mask), choiceText(list[0]), reasonsText(list[0].refused)]));
}

function kernelsTab(box) {
  box.append(el("h2", {}, "Which kernel PyTorch takes"), el("p", {class: "soft"},
    `What scaled_dot_product_attention of PyTorch ${DATA.backends[0].pytorch} runs for each attention, by device and ` +
    "size: as the file has it, and as qkv rewrite writes it."));
  DATA.backends.forEach((d, i) => {
    const part = (title, list) => [el("h3", {}, title),
      list.length ? kernelTable(`Kernels on ${d.device}, ${title}`, list) : soft("No attention is one op.")];
    box.append(wide(d.device, part("As the file has it", d.attentions),
      part("After rewriting", rewrite.backends[i].attentions)));
  });
}

/* ---------------------------------------------------------------- time, memory, training */

function runCards(run) {
  const ops = opsOf(run), sum = (key) => ops.reduce((t, o) => t + o[key], 0), peak = run.peak;
  return [figures(figure(ms(run.min_ms), "fastest of " + plural(run.runs, "run")),
    figure(digits(sum("flops") / run.min_ms / 1e6), "GFLOP/s"), figure(percent(sum("ideal") / run.min_ms), "of peak"),
    figure(count(run.steps.filter((s) => s.node).length), "steps")),
  card("Where the time goes", treemap(M, run)), wide("One run", flame(M, run)),
  wide("Against what this machine can do", el("div", {class: "columns"}, rooflinePlot(run, ops),
    el("p", {class: "soft"}, "A point is an op; its area is its time. Under the slope an op waits for memory, under " +
    `the flat line for multiply-adds. The peak is measured at the same time, on ${plural(peak.threads, "thread")}: ` +
    `${digits(peak.f32_gflops)} GFLOP/s in f32 (${peak.f32_by}), ${digits(peak.bf16_gflops)} in bf16 ` +
    `(${peak.bf16_by}), and ${digits(peak.read_gbs)} GB/s. What lies in a cache is read faster than that.`)),
  rooflineTable(run, ops))];
}

function timeTab(box) {
  if (compared) comparedTime(box);
  else box.append(...runs.flatMap(runCards));
}

function memoryTab(box) {
  for (const run of runs)
    box.append(figures(figure(bytes(run.memory.arena_bytes), "of activations, in one arena"),
      figure(bytes(run.packed_bytes), "of packed weights"),
      figure(bytes(run.constant_bytes), "of constants for these sizes")),
    card(compared ? run.file : "Memory over a run", memoryChart(run), el("p", {class: "soft"},
      "Blue-green: results that later steps read. Amber: scratch of the step. The dashed line is the peak.")),
    wide("What holds the peak", heldTable(run)));
}

/* Lines over steps: [{name, colour, width, points: [[x, y], ..]}, ..] */
function curves(series, label) {
  const W = 900, H = 280, left = 60, bottom = 30, top = 14, all = series.flatMap((s) => s.points);
  const xs = all.map((p) => p[0]), ys = all.map((p) => p[1]), x0 = Math.min(...xs), x1 = Math.max(...xs, x0 + 1);
  const y0 = Math.min(...ys, 0), y1 = Math.max(...ys) || 1;
  const X = (v) => left + ((v - x0) / (x1 - x0)) * (W - left - 10);
  const Y = (v) => H - bottom - ((v - y0) / (y1 - y0)) * (H - top - bottom);
  const tick = (v) => [svg("line", {class: "grid", x1: left, x2: W - 10, y1: Y(v), y2: Y(v)}),
    svg("text", {x: left - 6, y: Y(v) + 4, "text-anchor": "end"}, v ? digits(v) : "0")];
  const line = (s, i) => [svg("polyline", {fill: "none", stroke: s.colour, "stroke-width": s.width,
    points: s.points.map(([x, y]) => `${X(x).toFixed(1)},${Y(y).toFixed(1)}`).join(" ")}),
  svg("text", {x: W - 14, y: top + 14 + 16 * i, "text-anchor": "end", style: {fill: s.colour}}, s.name)];
  return svg("svg", {viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": label},
    [0, 0.25, 0.5, 0.75, 1].map((k) => tick(y0 + k * (y1 - y0))), svg("text", {x: left, y: H - 8}, count(x0)),
    svg("text", {x: W - 10, y: H - 8, "text-anchor": "end"}, "step " + count(x1)), series.map(line));
}

function trainingTab(box) {
  const steps = DATA.training.filter((e) => "lr" in e), epochs = DATA.training.filter((e) => "val_loss" in e);
  const points = (key, from) => from.filter((e) => typeof e[key] === "number").map((e) => [e.step, e[key]]);
  const line = (name, colour, width, key, from) => ({name, colour, width, points: points(key, from)});
  const losses = [line("loss of steps", "var(--r7)", 1, "loss", steps),
    line("loss of epochs", "var(--accent)", 2.2, "loss", epochs),
    line("validation", "var(--attention)", 2.2, "val_loss", epochs)].filter((s) => s.points.length);
  const rate = line("learning rate", "var(--accent)", 2, "lr", steps), last = epochs.at(-1);
  box.append(figures(figure(count(steps.length), "steps"), last && figure(count(epochs.length), "epochs"),
    last && figure(digits(last.loss), "last loss"),
    last && typeof last.val_accuracy === "number" && figure(percent(last.val_accuracy), "validation accuracy")),
  card("Loss", losses.length ? curves(losses, "Loss over steps") : el("p", {}, "The log holds no losses.")));
  if (rate.points.length) box.append(wide("Learning rate", curves([rate], "Learning rate over steps")));
}

/* ---------------------------------------------------------------- comparing */

function comparedSummary(box) {
  const v = DATA.values, first = v && v.first !== null ? v.pairs[v.first] : null, outputs = DATA.outputs || [];
  const differ = outputs.filter((o) => !o.agrees).length;
  box.append(figures(figure(`${count(model.nodes)} and ${count(other.nodes)}`, "nodes"),
    v && [figure(count(v.pairs.length), "pairs of nodes"),
      figure(count(v.pairs.filter((p) => !p.agrees).length), "of them differ")],
    outputs.length > 0 && figure(differ ? `${differ} of ${outputs.length}` : "none", "outputs differ"),
    runs.length > 0 && figure(runs.map((t) => ms(t.min_ms)).join(" and "), "fastest runs")));
  if (v) box.append(card("First difference", first
    ? [el("p", {}, go(0, first.a), " and ", go(1, first.b), " are the first pair that differs."), pairFacts(first)]
    : el("p", {class: "good"}, "Every pair of nodes agrees.")));
  const cards = [fileCard(model), fileCard(other), ports(model), exportsCard(), machineCard()];
  box.append(el("div", {class: "flow wide"}, cards));
}

function differenceChart(list) {
  const W = 900, H = 220, left = 60, LEAST = 1e-9, MOST = 10;
  const share = (p) => (typeof p.max_abs_over_peak === "number" ? p.max_abs_over_peak : MOST);
  const X = (k) => left + ((k + 0.5) / list.length) * (W - left - 8);
  const Y = (x) => 12 + ((1 - Math.log10(Math.max(LEAST, Math.min(MOST, x)))) / 10) * (H - 40);
  const tick = (e) => [svg("line", {class: "grid", x1: left, x2: W - 8, y1: Y(10 ** e), y2: Y(10 ** e)}),
    svg("text", {x: left - 6, y: Y(10 ** e) + 4, "text-anchor": "end"}, "1e" + e)];
  const dot = (p, k) => svg("circle", {cx: X(k), cy: Y(share(p)), r: p.agrees ? 2.2 : 3.2,
    fill: p.agrees ? "var(--accent)" : "var(--bad)", onmouseleave: () => showTip(""),
    onmousemove: (e) => showTip(`${p.a} and ${p.b}\n${small(p.max_abs_over_peak)} of the peak`, e.clientX, e.clientY)});
  return svg("svg", {viewBox: `0 0 ${W} ${H}`, role: "img", "aria-label": "Largest difference of each pair"},
    [1, -1, -3, -5, -7, -9].map(tick), list.map(dot),
    svg("text", {x: left, y: H - 6}, "nodes in order; differences as a share of the largest value"));
}

const cosineText = (p) => (typeof p.cosine === "number" ? p.cosine.toFixed(6) : "–");

function outputsTable() {
  const verdict = (o) => (o.agrees ? el("span", {class: "good"}, "agrees") : el("b", {class: "bad"}, "differs"));
  return table("Outputs", ["output", "#largest", "#of peak", "#cosine", ""], DATA.outputs.map((o) =>
    [code(o.name), small(o.max_abs), small(o.max_abs_over_peak), cosineText(o), verdict(o)]));
}

function valuesTab(box) {
  const v = DATA.values, list = el("div", {}), SHOWN = 1500;
  const only = el("input", {type: "checkbox", id: "differing", onchange: () => fillRows()});
  const heads = [fileName(model), fileName(other), "partner by", "#largest", "#of peak", "#cosine", ""];
  const word = (p) => (p === v.pairs[v.first] ? "differs first" : "differs");
  const verdict = (p) => (p.agrees ? "" : el("b", {class: "bad"}, word(p)));
  function fillRows() {
    const shown = v.pairs.filter((p) => !only.checked || !p.agrees);
    list.replaceChildren(table("Pairs of nodes", heads, shown.slice(0, SHOWN).map((p) =>
      [go(0, p.a), go(1, p.b), p.by, small(p.max_abs), small(p.max_abs_over_peak), cosineText(p), verdict(p)])),
    shown.length > SHOWN ? soft(`${shown.length - SHOWN} more are in the data.`) : "");
  }
  fillRows();
  const alone = `   without a partner: ${v.left_a.length} and ${v.left_b.length} nodes`;
  const chart = v.pairs.length ? differenceChart(v.pairs) : soft("No node has a partner.");
  box.append(card("Differences along the model", chart),
    wide("Outputs", outputsTable()), wide("Pairs", el("p", {}, only, " ",
      el("label", {for: "differing"}, "only those that differ"),
      soft(alone + (v.not_kept ? `; ${v.not_kept} values were too large to hold` : ""))), list));
}

function comparedTime(box) {
  const none = {ms: 0, n: 0}, [a, b] = runs.map((run) => new Map(opsOf(run).map((o) => [o.op, o])));
  const both = [...new Set([...a.keys(), ...b.keys()])].map((op) => [op, a.get(op) || none, b.get(op) || none]);
  both.sort((p, q) => Math.abs(q[2].ms - q[1].ms) - Math.abs(p[2].ms - p[1].ms));
  const signed = (x) => (x < 0 ? "−" : "+") + ms(Math.abs(x)), time = (o) => (o.ms ? ms(o.ms) : "–");
  box.append(figures(runs.map((t, i) => figure(ms(t.min_ms), fileName(DATA.models[i]))),
    figure(`${(runs[1].min_ms / runs[0].min_ms).toFixed(2)} ×`, "the second over the first")),
  card("Time of each op, largest change first", table("Time of each op",
    ["op", "#" + fileName(model), "#" + fileName(other), "#change", "#steps"],
    both.map(([op, x, y]) => [code(shortOp(op)), time(x), time(y), signed(y.ms - x.ms), `${x.n} and ${y.n}`]))),
  ...runs.map((run, i) => wide(fileName(DATA.models[i]), treemap(M, run))));
}

/* ---------------------------------------------------------------- tabs */

const TABS = [
  ["summary", "Summary", summaryTab], ["graph", "Graph", graphTab],
  !compared && ["attention", "Attention", attentionTab],
  DATA.values && ["values", "Values", valuesTab], runs.length > 0 && ["time", "Time", timeTab],
  runs.length > 0 && ["memory", "Memory", memoryTab],
  (DATA.backends || []).length > 0 && ["kernels", "Kernels", kernelsTab],
  (DATA.training || []).length > 0 && ["training", "Training", trainingTab],
].filter(Boolean);
const tabs = document.getElementById("tabs"), main = document.getElementById("main"), made = new Set();

function open(id) {
  for (const [name, , make] of TABS) {
    const on = name === id, [tab, box] = ["tab-", "panel-"].map((kind) => document.getElementById(kind + name));
    tab.setAttribute("aria-selected", on);
    tab.tabIndex = on ? 0 : -1;
    box.hidden = !on;
    box.style.display = on ? "" : "none";
    if (!on || made.has(name)) continue;
    made.add(name);
    make(box);
  }
  if (!location.hash.startsWith("#" + id)) history.replaceState(null, "", "#" + id);
}

function fromAddress() {
  const [id, name] = decodeURIComponent(location.hash.slice(1)).split(/:(.*)/s);
  open(TABS.some(([t]) => t === id) ? id : "summary");
  if (id === "graph" && name) graph.show(1, name) || graph.show(0, name);
}

function setTheme(dark) {
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  const button = document.getElementById("theme");
  button.textContent = dark ? "Light" : "Dark";
  button.setAttribute("aria-label", dark ? "Use light colours" : "Use dark colours");
  if (graph) graph.later();
}

/* Arrows go from tab to tab. */
function tabKey(e, k) {
  const by = e.key === "ArrowRight" ? 1 : e.key === "ArrowLeft" ? -1 : 0;
  if (!by) return;
  const to = TABS[(k + by + TABS.length) % TABS.length][0];
  open(to);
  document.getElementById("tab-" + to).focus();
}

TABS.forEach(([id, title], k) => {
  tabs.append(el("button", {type: "button", role: "tab", id: "tab-" + id, "aria-controls": "panel-" + id,
    onclick: () => open(id), onkeydown: (e) => tabKey(e, k)}, title));
  main.append(el("div", {class: "panel", role: "tabpanel", id: "panel-" + id, "aria-labelledby": "tab-" + id,
    tabindex: "-1", hidden: true}));
});
const title = compared ? `${fileName(model)} and ${fileName(other)}` : fileName(model);
document.title = plain(title) + " · qkv";
document.getElementById("title").textContent = plain(title);
const isDark = () => document.documentElement.dataset.theme === "dark";
document.getElementById("theme").addEventListener("click", () => setTheme(!isDark()));
setTheme(matchMedia("(prefers-color-scheme: dark)").matches);
addEventListener("hashchange", fromAddress);
fromAddress();
