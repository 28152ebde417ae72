/* What all parts of the page use: elements, texts of values, colours, downloads. Names of a model reach the page as
 * text nodes only, never as HTML:
 *
 *     el("td", {class: "num"}, bytes(1536))      <td class="num">1.5 KiB</td>
 */
"use strict";
const DATA = JSON.parse(document.getElementById("data").textContent);
const SVG = "http://www.w3.org/2000/svg";

function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key.startsWith("on")) node.addEventListener(key.slice(2), value);
    else if (key === "style") Object.assign(node.style, value);
    else node.setAttribute(key, value === true ? "" : value);
  }
  for (const child of children.flat(9))
    if (child !== null && child !== undefined && child !== false)
      node.append(child instanceof Node ? child : plain(child));
  return node;
}
const el = (tag, attributes, ...children) => fill(document.createElement(tag), attributes, children);
const svg = (tag, attributes, ...children) => fill(document.createElementNS(SVG, tag), attributes, children);

/* Control characters and marks that turn the direction of text are shown as codes. */
function plain(text) {
  return String(text).replace(/[\u0000-\u001f\u007f-\u009f\u200b-\u200f\u2028-\u202e\u2066-\u2069\ufeff]/g, (c) =>
    c === "\n" ? "\n" : "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0"));
}

const count = (n) => Math.round(n).toString().replace(/\B(?=(\d{3})+$)/g, "\u202f");
const digits = (x) => (x >= 100 ? x.toFixed(0) : x >= 10 ? x.toFixed(1) : x >= 1 ? x.toFixed(2) : x.toPrecision(2));
function bytes(n) {
  const units = ["bytes", "KiB", "MiB", "GiB", "TiB"];
  let u = 0;
  for (; n >= 1024 && u < 4; u++) n /= 1024;
  return (u ? n.toFixed(1) : n) + " " + units[u];
}
function ms(x) {
  if (x >= 1000) return (x / 1000).toFixed(2) + " s";
  return x >= 0.01 ? digits(x) + " ms" : (x * 1000).toFixed(1) + " µs";
}
const percent = (x) => (100 * x).toFixed(x < 0.1 ? 1 : 0) + "\u202f%";
function small(x) {
  if (x === null || x === undefined) return "–";
  return typeof x === "string" ? x : x === 0 ? "0" : x.toExponential(1);
}
const shape = (dims) => "(" + dims.join(", ") + (dims.length === 1 ? ",)" : ")");
const typed = (t) => t.dtype + shape(t.shape);
const shortOp = (op) => op.replace(/^(aten|qkv)\./, "").replace(/\.(default|Tensor|int)$/, "");
const plural = (n, word) => count(n) + " " + word + (n === 1 ? "" : "s");
const css = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

const bar = (share) =>
  el("span", {class: "bar", "aria-hidden": "true"}, el("i", {style: {width: Math.min(100, 100 * share) + "%"}}));

function table(caption, heads, rows) {
  const cell = (tag, x, k) =>
    el(tag, {class: /^#/.test(heads[k]) ? "num" : null, scope: tag === "th" ? "col" : null}, x);
  return el("div", {class: "scroll", tabindex: "0", role: "region", "aria-label": caption},
    el("table", {"aria-label": caption},
      el("thead", {}, el("tr", {}, heads.map((h, k) => cell("th", h.replace(/^#/, ""), k)))),
      el("tbody", {}, rows.map((row) => el("tr", {}, row.map((x, k) => cell("td", x, k)))))));
}

/* Pairs of a word and what it is; those that are nothing are left out. */
function facts(pairs) {
  const some = ([, v]) => v !== null && v !== undefined && v !== "" && !(Array.isArray(v) && !v.length);
  return el("dl", {}, pairs.filter(some).map(([k, v]) => [el("dt", {}, k), el("dd", {}, v)]));
}

function download(name, type, text) {
  const link = el("a", {href: URL.createObjectURL(new Blob([text], {type})), download: name});
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 1000);
}

const tip = document.getElementById("tip");
function showTip(text, x, y) {
  tip.hidden = !text;
  if (!text) return;
  tip.textContent = plain(text);
  const box = tip.getBoundingClientRect();
  tip.style.left = Math.max(4, Math.min(x + 14, innerWidth - box.width - 8)) + "px";
  tip.style.top = Math.max(4, Math.min(y + 16, innerHeight - box.height - 8)) + "px";
}
