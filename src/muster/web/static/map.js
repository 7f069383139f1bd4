"use strict";
/* The map: every node in its domain, on one canvas. */

/** Colours of the style sheet. Asking for them makes the browser lay out the page, so they are asked for once for each scheme. */
const scheme = {
  night: matchMedia("(prefers-color-scheme: dark)"), known: new Map(),
  colour(key) {
    if (!this.known.has(key)) this.known.set(key, getComputedStyle(document.documentElement).getPropertyValue("--" + key).trim());
    return this.known.get(key);
  },
};
scheme.night.addEventListener("change", () => scheme.known.clear());

const PALETTE = ["#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#e15759", "#76b7b2", "#edc948", "#ff9da7", "#9c755f", "#86bcb6", "#d37295", "#8cd17d"];

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
    this.canvas.addEventListener("pointermove", (event) => this.point(event));
    this.canvas.addEventListener("pointerleave", () => { this.at = -1; this.tip.hidden = true; this.draw(); });
    this.canvas.addEventListener("keydown", (event) => this.key(event));
    this.canvas.addEventListener("click", () => this.open());
    this.canvas.addEventListener("blur", () => { this.tip.hidden = true; });
    this.observer = new ResizeObserver(() => { if (this.cluster) { this.layOut(); this.draw(); } });
    this.observer.observe(this.node);
    scheme.night.addEventListener("change", () => this.cluster && this.draw());
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
    for (const rest of inside.values()) found.push({ title: found.length ? "in no domain" : "", zone: "", nodes: rest });
    return found.sort((a, b) => a.zone < b.zone ? -1 : a.zone > b.zone ? 1 : 0);
  }

  /** The largest cells with which everything fits: racks side by side, zones below each other. */
  layOut() {
    const width = this.node.clientWidth || 800, groups = this.groups(), most = Math.max(320, Math.min(640, innerHeight - 330));
    let size = 50, placed;
    do { size -= size > 12 ? 2 : 1; placed = this.placed(groups, width, size); } while (size > 4 && placed.height > most);
    Object.assign(this, placed, { size });
  }

  placed(groups, width, size) {
    const cells = [], titles = [], gap = size > 8 ? 2 : 1, step = size + gap;
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
    const { canvas, size } = this, scale = devicePixelRatio || 1;
    const colours = Object.fromEntries(["empty", "low", "high", "release", "nominated", "quiet", "text", "bad", "panel"].map((key) => [key, scheme.colour(key)]));
    const w = Math.round(this.width * scale), h = Math.round(this.height * scale);
    if (canvas.width !== w || canvas.height !== h) { canvas.width = w; canvas.height = h; canvas.style.height = this.height + "px"; }
    const pen = canvas.getContext("2d");
    pen.setTransform(scale, 0, 0, scale, 0, 0);
    pen.clearRect(0, 0, this.width, this.height);
    for (const title of this.titles) {
      pen.font = (title.zone ? "600 " : "") + "11px system-ui, sans-serif";
      pen.fillStyle = title.zone ? colours.text : colours.quiet;
      let text = shown(title.text);
      if (title.width) while (text.length > 1 && pen.measureText(text).width > Math.max(title.width, 24)) text = text.slice(0, -2) + "\u2026";
      pen.fillText(text, title.x, title.y);
    }
    for (const { node, x, y } of this.cells) {
      if (!node) continue;
      pen.globalAlpha = this.marked.size && !this.marked.has(node.node) && !this.leaving.has(node.node) ? 0.28 : 1;
      pen.fillStyle = colours.empty;
      pen.fillRect(x, y, size, size);
      let bottom = y + size;
      for (const [share, colour] of this.parts(node, colours)) {
        const tall = Math.min(bottom - y, share * size);
        pen.fillStyle = colour;
        pen.fillRect(x, bottom - tall, size, tall);
        bottom -= tall;
      }
      if (node.state !== "ready") {
        pen.strokeStyle = colours.bad; pen.lineWidth = size > 8 ? 1.5 : 1;
        pen.beginPath(); pen.moveTo(x, y); pen.lineTo(x + size, y + size); pen.moveTo(x + size, y); pen.lineTo(x, y + size); pen.stroke();
      }
    }
    pen.globalAlpha = 1;
    const outline = (cell, colour, width, inset = 0) => {
      pen.strokeStyle = colour;
      pen.lineWidth = width;
      pen.strokeRect(cell.x - .5 + inset, cell.y - .5 + inset, size + 1 - 2 * inset, size + 1 - 2 * inset);
    };
    if (this.marked.size) this.cells.forEach((cell) => { if (this.marked.has(cell.name)) outline(cell, colours.text, 1.5); });
    if (this.leaving.size) {
      pen.setLineDash([3, 2]);
      this.cells.forEach((cell) => { if (this.leaving.has(cell.name)) outline(cell, colours.release, 2, size > 12 ? 3 : 0); });
      pen.setLineDash([]);
    }
    if (this.cells[this.at]) outline(this.cells[this.at], colours.text, 2.5);
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
    if (gang) location.hash = "#/gang/" + encodeURIComponent(gang.gang);
  }

  tell() {
    this.draw();
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
