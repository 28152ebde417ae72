/* The two graphs as one tree of modules with aligned rows: what stands on both sides is on one row, and what a rule
 * replaced stands beside its replacement.
 *
 *     const M = aligned(before, after, firings, pairs);
 *     M.root.rows: [{mod} or {l: index or -1, r: index or -1}]        M.left.nodes[l], M.right.nodes[r]
 */
const isAttention = (op) => /scaled_dot_product|flash_attention|efficient_attention/.test(op);

/* A graph with what is looked up in it. */
function indexed(graph) {
  const g = {nodes: graph.nodes, lines: graph.lines, module: []};
  Object.assign(g, {byName: new Map(), value: new Map(), users: new Map()});
  for (const v of graph.inputs) g.value.set(v.name, {...v, kind: "input"});
  for (const w of graph.weights) g.value.set(w.name, {...w, kind: w.kind});
  graph.nodes.forEach((n, i) => {
    g.byName.set(n.name, i);
    for (const r of n.results) g.value.set(r.name, {...r, kind: "result", node: i});
    for (const name of operands(n)) {
      if (!g.users.has(name)) g.users.set(name, []);
      g.users.get(name).push(i);
    }
  });
  return g;
}
const operands = (n) => Object.values(n.inputs).flat().filter((name) => name !== null);

/* What a file says of its modules; else the names of a node's weights. */
function ownModule(g, n) {
  if (n.module !== null) return n.module;
  for (const name of operands(n)) {
    const w = g.value.get(name);
    if (w && w.path && w.kind !== "constant" && w.path.includes(".")) return w.path.slice(0, w.path.lastIndexOf("."));
  }
  return null;
}

/* The module of every node; one that has none is of the module of who uses it, or of the node before it. */
function placeInModules(g, known) {
  const module = g.nodes.map((n) => (known && known(n)) ?? ownModule(g, n));
  for (let i = g.nodes.length - 1; i >= 0; i--) {
    if (module[i] !== null) continue;
    const users = g.nodes[i].results.flatMap((r) => g.users.get(r.name) || []);
    module[i] = users.map((u) => module[u]).find((m) => m !== null) ?? null;
  }
  for (let i = 0; i < module.length; i++) module[i] = module[i] ?? (i ? module[i - 1] : "");
  g.module = module;
}

/* "encoder.layer.0.attention" -> ["encoder", "layer.0", "attention"] */
function components(path) {
  const parts = [];
  for (const p of path.split("."))
    if (parts.length && /^\d+(@\d+)?$/.test(p)) parts[parts.length - 1] += "." + p;
    else if (p) parts.push(p);
  return parts;
}

/* By the name of a result: the firings that made it, first to last, and the nodes of the file that went into it. */
function histories(firings, left) {
  const made = new Map(), absorbed = new Map();
  for (const f of firings) {
    const covers = new Set(), chain = [];
    for (const name of f.nodes) {
      const before = made.get(name);
      if (before) {
        for (const c of before.covers) covers.add(c);
        for (const k of before.chain) if (!chain.includes(k)) chain.push(k);
      }
      if (!left.byName.has(name)) continue;
      covers.add(name);
      if (!absorbed.has(name)) absorbed.set(name, f);
    }
    chain.push(f);
    made.set(f.result, {chain, covers});
  }
  return {made, absorbed};
}

class Module {
  constructor(name, path) {
    Object.assign(this, {name, path, inner: new Map(), items: [[], []], rows: [], n: [0, 0], parent: null});
  }
}

function tree(sides) {
  const root = new Module("", "");
  sides.forEach((g, side) => {
    if (!g) return;
    g.nodes.forEach((n, i) => {
      let at = root;
      at.n[side]++;
      for (const name of components(g.module[i])) {
        let next = at.inner.get(name);
        if (!next) {
          next = new Module(name, at.path ? at.path + "." + name : name);
          next.parent = at;
          at.inner.set(name, next);
        }
        if (!next.n[side]++) at.items[side].push(next);
        at = next;
      }
      at.items[side].push(i);
    });
  });
  return root;
}

/* Positions of a longest rising part of a list of numbers. */
function rising(list) {
  const tails = [], back = [];
  list.forEach((v, i) => {
    let lo = 0, hi = tails.length;
    while (lo < hi) {
      const mid = (lo + hi) >> 1;
      if (list[tails[mid]] < v) lo = mid + 1;
      else hi = mid;
    }
    back[i] = lo ? tails[lo - 1] : -1;
    tails[lo] = i;
  });
  const keep = new Set();
  for (let i = tails.length ? tails[tails.length - 1] : -1; i >= 0; i = back[i]) keep.add(i);
  return keep;
}

/* The rows of one module: partners side by side, in an order that is right for both sides. */
function align(M, mod) {
  const [L, R] = mod.items, at = new Map(R.map((item, k) => [item, k]));
  const partner = L.map((item) => (item instanceof Module ? at.get(item) : at.get(M.partner(item)))), matched = [];
  partner.forEach((k, i) => k !== undefined && matched.push(i));
  const keep = rising(matched.map((i) => partner[i])), anchors = matched.filter((_, k) => keep.has(k));
  const twice = new Set(); // modules that stand elsewhere on the right
  for (const i of matched) if (L[i] instanceof Module && !anchors.includes(i)) twice.add(L[i]);
  let l = 0, r = 0;
  const row = (left, right) => {
    const m = left instanceof Module ? left : right instanceof Module ? right : null;
    return m ? {mod: m} : {l: left ?? -1, r: right ?? -1};
  };
  for (const i of [...anchors, L.length]) {
    const to = i < L.length ? partner[i] : R.length, group = L.slice(l, i).map((item) => row(item));
    let free = 0; // the rows of the group before it have their right side
    for (const item of R.slice(r, to)) {
      if (twice.has(item)) continue; // it stands where the left side has it
      const covers = item instanceof Module ? null : M.covers(item);
      let place = -1;
      for (let k = group.length - 1; covers && k >= free && place < 0; k--)
        if (group[k].l >= 0 && group[k].r < 0 && covers.has(M.left.nodes[group[k].l].name)) place = k;
      if (place >= 0) group[place].r = item;
      else group.splice((place = free), 0, row(undefined, item));
      free = place + 1;
    }
    mod.rows.push(...group);
    if (i < L.length) mod.rows.push(row(L[i], R[to]));
    l = i + 1;
    r = to + 1;
  }
  for (const m of mod.inner.values()) align(M, m);
}

/* By module: the firings inside it, by rule; what a rule made counts where it stands, once. */
function rulesInside(M, mod) {
  const n = new Map();
  const add = (f, k) => f && n.set(f.rule, {f, n: (n.get(f.rule)?.n || 0) + k});
  for (const r of mod.rows)
    if (r.mod) for (const {f, n: k} of rulesInside(M, r.mod).values()) add(f, k);
    else if (r.r >= 0) add(M.firing(1, r.r), 1);
  M.rulesOf.set(mod, n);
  return n;
}

/* right: null where there is one graph alone. pairs: of names, where values tell what belongs together. */
function aligned(before, after, firings, pairs) {
  const left = indexed(before), right = after ? indexed(after) : null, {made, absorbed} = histories(firings, left);
  placeInModules(left);
  const named = new Map(pairs ? pairs.map((p) => [p.b, p.a]) : []), partners = new Map();
  const known = (n) => {
    const covered = made.get(n.name)?.covers.values().next().value, first = left.byName.has(n.name) ? n.name : covered;
    const i = left.byName.get(named.get(n.name) ?? first);
    return i === undefined ? null : left.module[i];
  };
  if (right) placeInModules(right, known);
  if (right)
    right.nodes.forEach((n, r) => {
      const l = left.byName.get(named.get(n.name) ?? n.name);
      if (l !== undefined && !partners.has(l)) partners.set(l, r);
    });
  const back = new Map([...partners].map(([l, r]) => [r, l]));
  const M = {
    left, right, made, absorbed, firings,
    partner: (l) => partners.get(l), partnerOfRight: (r) => back.get(r),
    covers: (r) => made.get(right.nodes[r].name)?.covers,
    /* the rule that a node went into, or came from */
    firing: (side, i) =>
      (side ? made.get(right.nodes[i].name)?.chain.at(-1) : absorbed.get(left.nodes[i].name)) ?? null,
    root: tree([left, right]),
  };
  align(M, M.root);
  M.rulesOf = new Map();
  rulesInside(M, M.root);
  const order = new Map();
  for (const f of firings) order.set(f.rule, (order.get(f.rule) || 0) + 1);
  M.rules = [...order].sort((a, b) => b[1] - a[1]);
  M.colour = new Map(M.rules.map(([rule], k) => [rule, `var(--r${Math.min(k, 7)})`]));
  return M;
}
