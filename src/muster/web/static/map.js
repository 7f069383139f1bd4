"use strict";
/* The map: every node in its domain, on one canvas. */

/** Colours of the style sheet. Asking for them makes the browser lay out the page, so they are asked for once for each scheme. */
const scheme = {
  night: matchMedia("(prefers-color-scheme: dark)"), print: matchMedia("print"), known: new Map(),
  colour(key) {
    if (!this.known.has(key)) this.known.set(key, getComputedStyle(document.documentElement).getPropertyValue("--" + key).trim());
    return this.known.get(key);
  },
};
/** Paper is white at night, too. */
for (const media of [scheme.night, scheme.print]) media.addEventListener("change", () => scheme.known.clear());

const PALETTE = ["#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#e15759", "#76b7b2", "#edc948", "#ff9da7", "#9c755f", "#86bcb6", "#d37295", "#8cd17d"];

/** r2 before r10. */
const NATURAL = new Intl.Collator("en", { numeric: true });
const gapOf = (size) => size > 8 ? 2 : 1;
const TITLE_FONT = "11px system-ui, sans-serif";

class ClusterMap {
  /** Nodes in their domains. `marked` and `leaving` are sets of names that are outlined: a gang's, and those it evicts others from. */
  constructor() {
    this.canvas = el("canvas", { tabindex: "0", role: "application", "aria-label": "Map of nodes; arrow keys go from node to node", "aria-describedby": "map-said" });
    this.tip = el("div", { class: "tip", hidden: true });
    this.said = el("p", { class: "hidden-text", id: "map-said", "aria-live": "polite" });
    this.legend = el("div", { class: "legend", "aria-hidden": "true" });
    this.node = el("div", {}, el("div", { class: "map" }, this.canvas, this.tip), this.legend, this.said);
    this.at = -1;
    this.cells = [];
    // What does not change while a pointer moves over it.
    this.picture = document.createElement("canvas");
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => { this.at = -1; this.tip.hidden = true; this.outlinePointed(); });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("click", () => this.open());
    this.canvas.addEventListener("blur", () => { this.tip.hidden = true; });
    this.observer = new ResizeObserver(() => { if (this.cluster) { this.layOut(); this.draw(); } });
    this.observer.observe(this.node);
    for (const media of [scheme.night, scheme.print]) media.addEventListener("change", () => { if (this.cluster) { this.colours(); this.draw(); } });
  }

  show(cluster, colour, marked, leaving) {
    Object.assign(this, { colour, marked, leaving });
    const before = this.cluster;
    this.cluster = cluster;
    if (!before || before.nodes.length !== cluster.nodes.length || before.domains.length !== cluster.domains.length) this.layOut();
    this.cells.forEach((cell) => { cell.node = null; });
    const byName = new Map(cluster.nodes.map((node) => [node.node, node]));
    if (this.cells.some((cell) => !byName.has(cell.name))) this.layOut();
    for (const cell of this.cells) cell.node = byName.get(cell.name);
    this.colours();
    this.draw();
  }

  groups() {
    const { nodes, domains } = this.cluster, inside = new Map();
    for (const node of nodes) { if (!inside.has(node.domain)) inside.set(node.domain, []); inside.get(node.domain).push(node); }
    const found = [], titles = new Map(domains.map((each) => [each.domain, each]));
    for (const domain of domains) {
      if (!inside.has(domain.domain)) continue;
      const above = titles.get(domain.parent);
      found.push({ title: domain.title, zone: above ? above.title : "", nodes: inside.get(domain.domain) });
      inside.delete(domain.domain);
    }
    for (const rest of inside.values()) found.push({ title: found.length ? "in no domain" : "", zone: "", nodes: rest, loose: 1 });
    for (const each of found) each.nodes.sort((a, b) => NATURAL.compare(a.node, b.node));
    // What is in no domain comes last.
    return found.sort((a, b) => (a.zone === b.zone ? 0 : NATURAL.compare(a.zone, b.zone)) || (a.loose || 0) - (b.loose || 0) || NATURAL.compare(a.title, b.title));
  }

  /** The largest cells with which everything fits: racks side by side, zones below each other. */
  layOut() {
    const width = this.node.clientWidth || 800, groups = this.groups(), most = Math.max(320, Math.min(640, innerHeight - 330));
    let size = 50, placed;
    do { size -= size > 12 ? 2 : 1; placed = this.placed(groups, width, size); } while (size > 4 && placed.height > most);
    Object.assign(this, placed, { size });
    this.shorten(placed.titles);
  }

  /** What stands above a rack: its whole name, the last part of it where that does not fit for all, and as much of it as fits. */
  shorten(titles) {
    const pen = this.picture.getContext("2d");
    pen.font = TITLE_FONT;
    const fits = (title) => !title.width || pen.measureText(title.text).width <= Math.max(title.width, 24);
    for (const title of titles) title.text = shown(title.text);
    if (titles.every(fits)) return;
    for (const title of titles) {
      if (title.zone) continue;
      title.text = title.text.slice(Math.max(title.text.lastIndexOf(" "), title.text.lastIndexOf("/")) + 1);
      while (title.text.length > 1 && !fits(title)) title.text = title.text.slice(0, -2) + "\u2026";
    }
  }

  placed(groups, width, size) {
    const cells = [], titles = [], gap = gapOf(size), step = size + gap;
    let x = 0, y = 0, rowHeight = 0, zone = null;
    for (const group of groups) {
      if (group.zone !== zone) {
        if (zone !== null) { y += rowHeight + 6; }
        x = 0; rowHeight = 0; zone = group.zone;
        if (zone) { titles.push({ x: 0, y: y + 11, text: zone, zone: true }); y += 17; }
      }
      const across = Math.max(1, Math.min(group.nodes.length, Math.floor((width + gap) / step), Math.max(Math.ceil(Math.sqrt(group.nodes.length * 2)), group.title ? Math.ceil(44 / step) : 1)));
      const w = across * step - gap, h = Math.ceil(group.nodes.length / across) * step;
      if (x && x + w > width) { x = 0; y += rowHeight + 6; rowHeight = 0; }
      const top = group.title ? 14 : 0;
      if (group.title) titles.push({ x, y: y + 11, text: group.title, width: w });
      group.nodes.forEach((node, at) => cells.push({ name: node.node, node, x: x + at % across * step, y: y + top + Math.floor(at / across) * step }));
      x += w + Math.max(8, Math.min(18, size)); rowHeight = Math.max(rowHeight, top + h);
    }
    return { cells, titles, height: y + rowHeight + 2, width };
  }

  colours() {
    const { cluster } = this, found = new Map();
    if (this.colour === "queue") cluster.queues.filter((row) => row.depth).forEach((row, at) => found.set(row.queue, PALETTE[at % PALETTE.length]));
    if (this.colour === "gang") [...new Set(cluster.nodes.flatMap((node) => node.gangs.map((each) => each.gang)))].sort().forEach((gang, at) => found.set(gang, PALETTE[at % PALETTE.length]));
    this.palette = found;
    const swatches = this.colour === "use" ? [["free", "--empty"], ["in use", "--high"]]
      : this.colour === "released" ? [["free", "--empty"], ["in use", "--low"], ["being released", "--release"], ["nominated to a gang", "--nominated"]]
        : [...found].slice(0, 14).map(([key, colour]) => [key ? queueName(this.colour === "queue" ? key : key + "").replace(/^$/, key) : "another tenant's", colour]);
    if (this.colour === "gang") swatches.forEach((each, at) => { each[0] = [...found.keys()][at] || "another tenant's"; });
    if (!cluster.nodes.length) { this.legend.replaceChildren("There are no nodes."); return; }
    this.legend.replaceChildren(...swatches.map(([text, colour]) => {
      const made = el("span", { class: "name" }, text);
      made.style.setProperty("--swatch", colour.startsWith("--") ? scheme.colour(colour.slice(2)) : colour);
      return made;
    }), ...(found.size > 14 ? [el("em", {}, "and " + (found.size - 14) + " more")] : []), el("em", {}, "crossed: not ready"));
  }

  /** From the bottom up: who uses how much of the node. */
  parts(node, colours) {
    const resource = this.cluster.summary.resource, total = node.allocatable[resource] || 0, used = node.used[resource] || 0;
    if (!total) return [];
    if (this.colour === "use") return [[Math.min(1, used / total), colours.high]];
    if (this.colour === "released") {
      const nominated = node.gangs.filter((each) => each.state === "nominated").reduce((sum, each) => sum + each.amount, 0);
      const kept = Math.max(0, used - node.releasing);
      return [[kept / total, colours.low], [node.releasing / total, colours.release], ...(node.releasing ? [] : [[nominated / total, colours.nominated]])];
    }
    return node.gangs.filter((each) => each.state !== "nominated").map((each) => [each.amount / total, this.palette.get(this.colour === "queue" ? each.queue : each.gang) || colours.quiet]);
  }

  draw() {
    const { picture, size } = this, scale = devicePixelRatio || 1;
    const colours = Object.fromEntries(["empty", "low", "high", "release", "nominated", "quiet", "text", "bad", "panel"].map((key) => [key, scheme.colour(key)]));
    const w = Math.round(this.width * scale), h = Math.round(this.height * scale);
    for (const canvas of [picture, this.canvas]) if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; }
    this.canvas.style.height = this.height + "px";
    const pen = picture.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    // From moment to moment few nodes change: rows that do not are the same objects.
    const same = this.marked.size || this.leaving.size || this.colour === "gang" ? null : [this.colour, scale, this.width, JSON.stringify([...this.palette, colours])].join(" ");
    const changed = same && same === this.same && this.drawn === this.cells ? this.cells.filter((cell) => cell.drawn !== cell.node) : null;
    Object.assign(this, { same, drawn: this.cells });
    for (const cell of this.cells) cell.drawn = cell.node;
    if (changed) {
      const gap = gapOf(size);
      for (const { x, y } of changed) pen.clearRect(x - gap / 2, y - gap / 2, size + gap, size + gap);
      this.drawCells(pen, changed.filter((cell) => cell.node), colours);
      this.outlinePointed();
      return;
    }
    pen.clearRect(0, 0, this.width, this.height);
    for (const title of this.titles) {
      pen.font = (title.zone ? "600 " : "") + TITLE_FONT;
      pen.fillStyle = title.zone ? colours.text : colours.quiet;
      pen.fillText(title.text, title.x, title.y);
    }
    const isFaded = (cell) => this.marked.size && !this.marked.has(cell.name) && !this.leaving.has(cell.name);
    const cells = this.cells.filter((cell) => cell.node), faded = cells.filter(isFaded);
    pen.globalAlpha = 0.28;
    this.drawCells(pen, faded, colours);
    pen.globalAlpha = 1;
    this.drawCells(pen, faded.length ? cells.filter((cell) => !isFaded(cell)) : cells, colours);
    if (this.marked.size) this.cells.forEach((cell) => { if (this.marked.has(cell.name)) this.outline(pen, cell, colours.text, 1.5); });
    if (this.leaving.size) {
      pen.setLineDash([3, 2]);
      this.cells.forEach((cell) => { if (this.leaving.has(cell.name)) this.outline(pen, cell, colours.release, 2, size > 12 ? 3 : 0); });
      pen.setLineDash([]);
    }
    this.outlinePointed();
  }

  /** One colour after the other: to change the colour of a pen takes longer than to fill a cell. */
  drawCells(pen, cells, colours) {
    const { size } = this, filled = new Map(), crossed = [];
    pen.fillStyle = colours.empty;
    for (const { node, x, y } of cells) {
      pen.fillRect(x, y, size, size);
      let bottom = y + size;
      for (const [share, colour] of this.parts(node, colours)) {
        const tall = Math.min(bottom - y, share * size);
        bottom -= tall;
        if (!filled.has(colour)) filled.set(colour, []);
        filled.get(colour).push(x, bottom, tall);
      }
      if (node.state !== "ready") crossed.push([x, y]);
    }
    for (const [colour, parts] of filled) {
      pen.fillStyle = colour;
      for (let at = 0; at < parts.length; at += 3) pen.fillRect(parts[at], parts[at + 1], size, parts[at + 2]);
    }
    pen.strokeStyle = colours.bad; pen.lineWidth = size > 8 ? 1.5 : 1;
    for (const [x, y] of crossed) { pen.beginPath(); pen.moveTo(x, y); pen.lineTo(x + size, y + size); pen.moveTo(x + size, y); pen.lineTo(x, y + size); pen.stroke(); }
  }

  outline(pen, cell, colour, width, inset = 0) {
    pen.strokeStyle = colour;
    pen.lineWidth = width;
    pen.strokeRect(cell.x - .5 + inset, cell.y - .5 + inset, this.size + 1 - 2 * inset, this.size + 1 - 2 * inset);
  }

  /** The picture, and an outline around the node that is pointed at. */
  outlinePointed() {
    const pen = this.canvas.getContext("2d"), scale = devicePixelRatio || 1;
    pen.setTransform(1, 0, 0, 1, 0, 0);
    pen.clearRect(0, 0, this.canvas.width, this.canvas.height);
    pen.drawImage(this.picture, 0, 0);
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    if (this.cells[this.at]) this.outline(pen, this.cells[this.at], scheme.colour("text"), 2.5);
  }

  point(event) {
    const box = this.canvas.getBoundingClientRect(), x = event.clientX - box.left, y = event.clientY - box.top;
    const at = this.cells.findIndex((cell) => x >= cell.x - 1 && x < cell.x + this.size + 1 && y >= cell.y - 1 && y < cell.y + this.size + 1);
    if (at !== this.at) { this.at = at; this.tell(); }
  }

  key(event) {
    const here = this.cells[Math.max(0, this.at)];
    const step = { ArrowRight: 1, ArrowLeft: -1, Home: -Infinity, End: Infinity }[event.key];
    if (event.key === "Enter") return this.open();
    if (event.key === "Escape") { this.tip.hidden = true; return undefined; }
    if (step === undefined && event.key !== "ArrowDown" && event.key !== "ArrowUp") return undefined;
    event.preventDefault();
    if (step !== undefined) this.at = this.at < 0 ? 0 : Math.max(0, Math.min(this.cells.length - 1, this.at + step));
    else {
      const down = event.key === "ArrowDown" ? 1 : -1;
      let best = -1, distance = Infinity;
      this.cells.forEach((cell, number) => {
        const away = (cell.y - here.y) * down, off = away * 4 + Math.abs(cell.x - here.x);
        if (away > 1 && off < distance) { best = number; distance = off; }
      });
      if (best >= 0) this.at = best;
    }
    return this.tell();
  }

  open() {
    const node = this.cells[this.at] && this.cells[this.at].node, gang = node && node.gangs.find((each) => each.gang);
    if (gang) location.hash = gangAddress(gang.gang);
  }

  tell() {
    this.outlinePointed();
    const cell = this.cells[this.at], resource = this.cluster.summary.resource;
    this.tip.hidden = !cell;
    if (!cell || !cell.node) return;
    const node = cell.node, head = amount(resource, node.used[resource] || 0) + " of " + amount(resource, node.allocatable[resource] || 0) + " " + unit(resource);
    const lines = node.gangs.slice(0, 8).map((each) => (each.gang || "another tenant's") + ": " + amount(resource, each.amount) + (each.state === "running" ? "" : ", " + each.state));
    if (node.gangs.length > 8) lines.push("and " + (node.gangs.length - 8) + " more");
    this.tip.replaceChildren(el("b", { class: "name" }, node.node), el("div", { class: "quiet" }, head + (node.state === "ready" ? "" : " \u00b7 " + node.state)), ...lines.map((line) => el("div", { class: "name" }, line)));
    this.said.textContent = shown(node.node + ", " + head + ", " + node.state + (lines.length ? ": " + lines.join("; ") : ", nobody is on it"));
    this.tip.style.left = Math.max(0, Math.min(cell.x + this.size + 8, this.width - this.tip.offsetWidth - 4)) + "px";
    this.tip.style.top = cell.y + this.size + 8 + "px";
  }
}

function mapPanel(title) {
  const map = new ClusterMap();
  const select = el("select", { id: "colour", onchange: () => { state.colour = select.value; map.show(state.cluster, state.colour, state.marked, state.leaving); } },
    [["use", "use"], ["queue", "queue"], ["gang", "gang"], ["released", "capacity being released"]].map(([value, text]) => el("option", { value, selected: value === state.colour }, text)));
  const node = el("section", { class: "panel" }, el("div", { class: "top" }, el("h2", {}, title), el("div", { class: "controls" }, el("label", { for: "colour" }, "coloured by"), select)), map.node);
  return { node, show: (cluster) => map.show(cluster, state.colour, state.marked, state.leaving) };
}
