/* What tests/python/test_report_page.py asks of a page that is open; evaluated in it, and gives a list of complaints. */
(() => {
  const bad = [], seen = (e) => {
    const r = e.getBoundingClientRect(), s = getComputedStyle(e);
    return r.width > 1 && r.height > 1 && s.visibility !== "hidden" && s.display !== "none";
  };
  const what = (e) => `${e.tagName.toLowerCase()}.${e.className.baseVal ?? e.className} "${e.textContent.slice(0, 40)}"`;

  /* Nothing is wider than the window; cards, figures and tabs do not overlap. */
  if (document.documentElement.scrollWidth > innerWidth) bad.push(`the page is ${document.documentElement.scrollWidth} wide`);
  const panel = [...document.querySelectorAll("[role=tabpanel]")].find((p) => !p.hidden);
  if (panel.scrollWidth > panel.clientWidth + 1) bad.push(`${panel.id} is ${panel.scrollWidth} wide in ${panel.clientWidth}`);
  for (const group of [[...document.querySelectorAll("header > *")], [...panel.querySelectorAll(".card")], [...panel.querySelectorAll(".figure")], [...panel.querySelectorAll(".row")], [...panel.querySelectorAll(".tools > *")]]) {
    const boxes = group.filter(seen).map((e) => [e, e.getBoundingClientRect()]);
    for (let i = 0; i < boxes.length; i++)
      for (let k = i + 1; k < boxes.length; k++) {
        const [a, p] = boxes[i], [b, q] = boxes[k];
        const over = Math.min(p.right, q.right) - Math.max(p.left, q.left) > 1 && Math.min(p.bottom, q.bottom) - Math.max(p.top, q.top) > 1;
        if (over && !a.contains(b) && !b.contains(a)) bad.push(`${what(a)} overlaps ${what(b)}`);
      }
  }

  /* Contrast of texts (WCAG 2.1, 1.4.3), against the nearest background that is not transparent. */
  const parse = (c) => { const m = c.match(/[\d.]+/g).map(Number); return m.length > 3 ? m : [...m, 1]; };
  const luminance = (c) => c.slice(0, 3).map((v) => ((v /= 255) <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4)).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
  const over = (top, under) => top.slice(0, 3).map((v, i) => v * top[3] + under[i] * (1 - top[3]));
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  for (let t = walk.nextNode(); t; t = walk.nextNode()) {
    const e = t.parentElement;
    if (!t.data.trim() || e.closest("script, style, noscript, [hidden], svg, .brand") || !seen(e)) continue;
    const layers = [];
    let opacity = 1, under = [255, 255, 255];
    for (let p = e; p; p = p.parentElement) {
      const s = getComputedStyle(p), c = parse(s.backgroundColor);
      opacity *= Number(s.opacity);
      if (c[3] > 0) layers.push(c);
      if (c[3] === 1) break;
    }
    for (const c of layers.reverse()) under = over(c, under);
    const style = getComputedStyle(e), ink = parse(style.color), size = parseFloat(style.fontSize);
    const shown = over([...ink.slice(0, 3), ink[3] * opacity], under), [x, y] = [luminance(shown), luminance(under)];
    const ratio = (Math.max(x, y) + 0.05) / (Math.min(x, y) + 0.05), large = size >= 24 || (size >= 18.66 && style.fontWeight >= 700);
    if (ratio < (large ? 3 : 4.5)) bad.push(`contrast ${ratio.toFixed(2)}: ${what(e)}`);
  }

  /* What can be used has a name; ids are unique; grids and tabs are whole. */
  for (const e of document.querySelectorAll("button, input, select, [role=treegrid], [role=region], canvas[role], svg[role], [role=tabpanel]"))
    if (seen(e) && !(e.getAttribute("aria-label") || e.getAttribute("aria-labelledby") || e.textContent.trim() || (e.labels && e.labels.length))) bad.push(`without a name: ${what(e)}`);
  const ids = [...document.querySelectorAll("[id]")].map((e) => e.id);
  if (new Set(ids).size !== ids.length) bad.push("an id stands twice");
  if (document.querySelectorAll("[role=tab][aria-selected=true]").length !== 1) bad.push("not one tab is selected");
  return [...new Set(bad)].slice(0, 20);
})()
