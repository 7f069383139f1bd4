"use strict";
/* The page about a cluster: of a running scheduler, or of a file. No library and no build step.
   Whatever comes from objects of the cluster becomes text nodes, never HTML. */

// -- text ---------------------------------------------------------------------------------------------------------------------

const HIDDEN = /[\p{C}\p{Zl}\p{Zp}]/gu;
const HEX = (character) => "\\u" + character.codePointAt(0).toString(16).padStart(4, "0");
/** Characters that do not print (controls, marks that reverse what a reader sees) become visible. */
const shown = (text) => String(text).replace(HIDDEN, HEX);

function el(tag, properties, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(properties || {})) {
    if (key === "class") made.className = value;
    else if (key.startsWith("on")) made.addEventListener(key.slice(2), value);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== undefined && value !== null) made.setAttribute(key, value);
  }
  for (const child of children.flat(Infinity)) {
    if (child !== null && child !== undefined && child !== "") made.append(child instanceof Node ? child : shown(child));
  }
  return made;
}

const BYTES = [["Ei", 2 ** 60], ["Pi", 2 ** 50], ["Ti", 2 ** 40], ["Gi", 2 ** 30], ["Mi", 2 ** 20], ["Ki", 1024]];
const grouped = (value) => Number(value).toLocaleString("en", { maximumFractionDigits: 1 });

function amount(resource, value) {
  if (resource === "cpu") return grouped(value / 1000);
  if (resource === "memory" || resource.endsWith("storage") || resource.startsWith("hugepages-")) {
    const found = BYTES.find(([, size]) => value >= size);
    if (found) return grouped(value / found[1]) + " " + found[0];
  }
  return grouped(value);
}
const unit = (resource) => resource === "nvidia.com/gpu" ? "GPU" : resource;
const amounts = (found) => Object.entries(found).filter(([, value]) => value).map(([name, value]) => amount(name, value) + " " + unit(name)).join(", ");
const count = (number, word, plural) => grouped(number) + " " + (number === 1 ? word : plural || word + "s");
const queueName = (key) => key.includes("/") ? key.slice(key.indexOf("/") + 1) : key;

function duration(seconds) {
  if (seconds < 90) return Math.round(seconds) + " s";
  if (seconds < 5400) return Math.round(seconds / 60) + " min";
  const hours = Math.floor(seconds / 3600), minutes = Math.round(seconds % 3600 / 60);
  return hours < 48 ? hours + " h" + (minutes ? " " + minutes + " min" : "") : Math.round(hours / 24) + " days";
}
const clock = (time) => new Date(time * 1000).toISOString().slice(11, 19);
const day = (time) => new Date(time * 1000).toISOString().slice(0, 10);

/** n1, n2, n3 as n[1-3]. */
function compact(names) {
  const groups = new Map();
  for (const name of names) {
    const [, head, digits, tail] = /^(.*?)(\d*)(\D*)$/s.exec(name);
    const key = JSON.stringify([head, tail, digits.length > 1 && digits[0] === "0" ? digits.length : 0]);
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push(digits);
  }
  const found = [];
  for (const [key, digits] of groups) {
    const [head, tail] = JSON.parse(key);
    if (digits.length === 1) { found.push(head + digits[0] + tail); continue; }
    digits.sort((a, b) => a - b);
    const runs = [];
    for (const each of digits) {
      const last = runs[runs.length - 1];
      if (last && Number(last[1]) + 1 === Number(each)) last[1] = each; else runs.push([each, each]);
    }
    found.push(head + "[" + runs.map(([from, to]) => from === to ? from : from + "-" + to).join(",") + "]" + tail);
  }
  return found.join(", ");
}

const STAGES = {
  "running": "good", "waiting": "wait hollow", "waiting-for-pods": "quiet hollow", "waiting-on-permit": "wait hollow",
  "preempting": "nominated hollow", "timed-out": "bad hollow", "finished": "quiet",
};
const ORDER = ["preempting", "waiting-on-permit", "waiting", "timed-out", "waiting-for-pods", "running", "finished"];
const stage = (name) => el("span", { class: "stage " + (STAGES[name] || "") }, name);
const name = (text) => el("span", { class: "name" }, text);
const gangLink = (gang) => gang ? el("a", { class: "name", href: "#/gang/" + encodeURIComponent(gang) }, gang) : el("span", { class: "quiet" }, "another tenant's");

function table(caption, columns, rows) {
  return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption }, el("table", {},
    el("caption", { class: "hidden-text" }, caption),
    el("thead", {}, el("tr", {}, columns.map((column) => el("th", { scope: "col", class: column.number ? "number" : "" }, column.title)))),
    el("tbody", {}, rows.map((row) => el("tr", { class: "link" }, columns.map((column) =>
      el("td", { class: column.number ? "number" : column.sentence ? "sentence" : column.fixed ? "fixed" : "" }, column.cell(row))))))));
}

// -- where the figures come from --------------------------------------------------------------------------------------------------

class ApiData {
  constructor() { this.token = sessionStorage.getItem("token") || ""; this.canAsk = true; }

  async request(path, options = {}) {
    const headers = this.token ? { Authorization: "Bearer " + this.token } : {};
    const answer = await fetch("api/v1/" + path, { ...options, headers, cache: "no-store" });
    const document = await answer.json();
    if (answer.ok) return document;
    throw Object.assign(new Error(document.error || answer.statusText), { status: answer.status });
  }
  cluster(at) { return this.request("cluster" + (at === null ? "" : "?at=" + at)); }
  gang(gang, at) { return this.request("gangs/" + gang.split("/").map(encodeURIComponent).join("/") + (at === null ? "" : "?at=" + at)); }
  why(gang) { return this.request("why/" + gang.split("/").map(encodeURIComponent).join("/")); }
  plan(job, namespace) { return this.request("plan?namespace=" + encodeURIComponent(namespace), { method: "POST", body: job }); }

  /** Calls `changed` at every newer cycle, and `lost` where the connection ends. Not EventSource: that sends no token. */
  async follow(changed, lost) {
    for (;;) {
      try {
        const headers = this.token ? { Authorization: "Bearer " + this.token } : {};
        const answer = await fetch("api/v1/events", { headers, cache: "no-store" });
        if (!answer.ok) throw new Error(answer.statusText);
        const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        for (let text = ""; ;) {
          const { value, done } = await reader.read();
          if (done) break;
          text += value;
          if (text.includes("event: cycle") && text.includes("\n\n")) { text = ""; await changed(); }
        }
      } catch (error) { lost(error); }
      await new Promise((resolve) => setTimeout(resolve, 2000));
    }
  }
}

/** A report: all moments are in the document, each as what differs from the one before. */
class ReportData {
  constructor(report) { this.report = report; this.canAsk = false; this.known = { at: -1 }; }

  cluster(at) {
    const { times, frames, evictions, samples } = this.report;
    let wanted = times.length - 1;
    if (at !== null) for (wanted = 0; wanted + 1 < times.length && times[wanted + 1] <= at;) wanted += 1;
    if (wanted < this.known.at) this.known = { at: -1 };
    const known = this.known;
    while (known.at < wanted) {
      known.at += 1;
      const frame = frames[known.at];
      Object.assign(known, { summary: frame.summary, queues: frame.queues, cycle: frame.cycle });
      for (const [part, key] of [["gangs", "gang"], ["nodes", "node"], ["domains", "domain"]]) {
        const rows = new Map((known[part] || []).map((row) => [row[key], row]));
        for (const gone of frame[part].gone) rows.delete(gone);
        for (const row of frame[part].changed) rows.set(row[key], row);
        known[part] = [...rows.values()].sort((a, b) => part === "domains" ? b.tier - a.tier || (a.domain < b.domain ? -1 : 1) : a[key] < b[key] ? -1 : 1);
      }
    }
    const time = times[wanted];
    return Promise.resolve({ ...known, time, evictions: evictions.filter((row) => row.time <= time), timeline: { samples, times: times.length > 1 ? times : [] } });
  }
  async gang(gang, at) {
    const cluster = await this.cluster(at), row = cluster.gangs.find((each) => each.gang === gang);
    if (!row) throw new Error("there is no gang " + gang + " at this moment");
    return { gang: row, members: [], history: this.report.history[gang] || [] };
  }
}

// -- state ------------------------------------------------------------------------------------------------------------------------

const $ = (id) => document.getElementById(id);
const embedded = $("report");
const data = embedded ? new ReportData(JSON.parse(embedded.textContent)) : new ApiData();
const state = { cluster: null, at: null, colour: "use", marked: new Set(), view: null };

function trouble(text) { $("trouble").hidden = !text; $("trouble").textContent = shown(text || ""); }

async function refresh() {
  try {
    const wanted = state.at, cluster = await data.cluster(wanted);
    if (wanted !== state.at) return;
    state.cluster = cluster;
    trouble("");
    $("token-form").hidden = true;
    showHead(cluster);
    showPast(cluster);
    if (!state.view) route(); else state.view.update(cluster);
  } catch (error) {
    $("token-form").hidden = error.status !== 401;
    trouble(error.status === 401 && !data.token ? "" : "No figures: " + error.message);
    if (!state.cluster) $("main").replaceChildren();
  }
}

function showHead(cluster) {
  const { summary } = cluster, resource = summary.resource;
  const share = summary.allocatable ? Math.round(100 * summary.used / summary.allocatable) : 0;
  const stages = ORDER.filter((each) => summary.stages[each]).map((each) => count(summary.stages[each], each, each));
  $("headline").replaceChildren(
    el("b", {}, amount(resource, summary.used) + " of " + amount(resource, summary.allocatable) + " " + unit(resource)), " in use (" + share + " %)",
    summary.releasing ? ", " + amount(resource, summary.releasing) + " being released" : "",
    " \u00b7 ", summary.readyNodes === summary.nodes ? count(summary.nodes, "node") : summary.readyNodes + " of " + count(summary.nodes, "node") + " ready",
    " \u00b7 ", stages.length ? "gangs: " + stages.join(", ") : "no gangs", " \u00b7 ", day(cluster.time) + " " + clock(cluster.time) + " UTC");
  document.title = "Muster: " + share + " % of " + unit(resource) + " in use";
}

// -- the time line ------------------------------------------------------------------------------------------------------------------

function showPast(cluster) {
  const { times, samples } = cluster.timeline, bar = $("moment");
  $("past").hidden = times.length < 2 && samples.length < 2;
  bar.hidden = times.length < 2;
  if ($("past").hidden) return;
  const first = samples.length ? samples[0].time : times[0], last = Math.max(samples.length ? samples[samples.length - 1].time : 0, times.length ? times[times.length - 1] : 0);
  const x = (time) => (1000 * (time - first) / Math.max(1, last - first)).toFixed(1);
  const y = (each) => (40 - 38 * each.used / Math.max(1, each.allocatable)).toFixed(1);
  let line = "M0 40";
  samples.forEach((each, number) => { line += (number ? " H" + x(each.time) : "") + " L" + x(each.time) + " " + y(each); });
  const svg = $("use-chart"), SVG = "http://www.w3.org/2000/svg";
  const path = document.createElementNS(SVG, "path");
  path.setAttribute("d", line + " H1000 V40 Z");
  const marks = [...new Set(cluster.evictions.map((row) => row.time))].map((time) => {
    const mark = document.createElementNS(SVG, "line");
    for (const [key, value] of [["x1", x(time)], ["x2", x(time)], ["y1", 30], ["y2", 40]]) mark.setAttribute(key, value);
    return mark;
  });
  svg.setAttribute("aria-label", "Use from " + clock(first) + " to " + clock(last) + "; " + count(marks.length, "moment") + " with evictions");
  svg.replaceChildren(path, ...marks);
  const here = state.at === null ? last : state.at;
  if (document.activeElement !== bar || state.at === null) bar.value = 1000 * (here - first) / Math.max(1, last - first);
  $("moment-text").textContent = times.length ? clock(here) + (here >= last ? ", the end" : ", " + duration(last - here) + " before the end") : "since " + clock(first);
  bar.setAttribute("aria-valuetext", $("moment-text").textContent);
}

let dragging = 0;
function goTo(number) {
  const times = state.cluster.timeline.times, at = Math.max(0, Math.min(times.length - 1, number));
  state.at = at === times.length - 1 ? null : times[at];
  cancelAnimationFrame(dragging);
  dragging = requestAnimationFrame(refresh);
}
$("moment").addEventListener("input", () => {
  const { times, samples } = state.cluster.timeline, first = samples.length ? samples[0].time : times[0], last = times[times.length - 1];
  const wanted = first + (last - first) * $("moment").value / 1000;
  goTo(times.findLastIndex((time) => time <= wanted + 1e-6));
});
$("moment").addEventListener("keydown", (event) => {
  const times = state.cluster.timeline.times, here = state.at === null ? times.length - 1 : times.indexOf(state.at);
  const steps = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1, PageDown: -10, PageUp: 10, Home: -Infinity, End: Infinity };
  if (!(event.key in steps)) return;
  event.preventDefault();
  goTo(here + steps[event.key]);
});

// -- the map --------------------------------------------------------------------------------------------------------------------------

const PALETTE = ["#4e79a7", "#f28e2b", "#59a14f", "#b07aa1", "#e15759", "#76b7b2", "#edc948", "#ff9da7", "#9c755f", "#86bcb6", "#d37295", "#8cd17d"];

class ClusterMap {
  /** Nodes in their domains. `marked` is a set of names that are outlined. */
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
    this.night = matchMedia("(prefers-color-scheme: dark)");
    this.night.addEventListener("change", () => this.cluster && this.draw());
  }

  show(cluster, colour, marked) {
    Object.assign(this, { colour, marked });
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
    const style = getComputedStyle(document.documentElement);
    const swatches = this.colour === "use" ? [["free", "--empty"], ["in use", "--high"]]
      : this.colour === "released" ? [["free", "--empty"], ["in use", "--low"], ["being released", "--release"], ["nominated to a gang", "--nominated"]]
        : [...found].slice(0, 14).map(([key, colour]) => [key ? queueName(this.colour === "queue" ? key : key + "").replace(/^$/, key) : "another tenant's", colour]);
    if (this.colour === "gang") swatches.forEach((each, at) => { each[0] = [...found.keys()][at] || "another tenant's"; });
    this.legend.replaceChildren(...swatches.map(([text, colour]) => {
      const made = el("span", { class: "name" }, text);
      made.style.setProperty("--swatch", colour.startsWith("--") ? style.getPropertyValue(colour) : colour);
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
    const { canvas, size } = this, scale = devicePixelRatio || 1, style = getComputedStyle(document.documentElement);
    const colours = Object.fromEntries(["empty", "low", "high", "release", "nominated", "quiet", "text", "bad", "panel"].map((key) => [key, style.getPropertyValue("--" + key).trim()]));
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
      pen.globalAlpha = this.marked.size && !this.marked.has(node.node) ? 0.28 : 1;
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
    const outline = (cell, colour, width) => { pen.strokeStyle = colour; pen.lineWidth = width; pen.strokeRect(cell.x - .5, cell.y - .5, size + 1, size + 1); };
    if (this.marked.size) this.cells.forEach((cell) => { if (this.marked.has(cell.name)) outline(cell, colours.text, 1.5); });
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
  const select = el("select", { id: "colour", onchange: () => { state.colour = select.value; map.show(state.cluster, state.colour, state.marked); } },
    [["use", "use"], ["queue", "queue"], ["gang", "gang"], ["released", "capacity being released"]].map(([value, text]) => el("option", { value, selected: value === state.colour }, text)));
  const node = el("section", { class: "panel" }, el("div", { class: "top" }, el("h2", {}, title), el("div", { class: "controls" }, el("label", { for: "colour" }, "coloured by"), select)), map.node);
  return { node, show: (cluster) => map.show(cluster, state.colour, state.marked) };
}

// -- queues -----------------------------------------------------------------------------------------------------------------------------

function queueRow(row, resource) {
  const used = row.used[resource] || 0, deserved = row.deserved[resource], limit = row.limit[resource];
  const scale = Math.max(used, deserved || 0, limit || 0, 1), over = deserved !== undefined && used > deserved && row.depth > 0;
  const part = (from, to, kind) => { const made = el(kind[0], { class: kind[1] || "" }); made.style.left = 100 * from / scale + "%"; if (kind[0] === "i") made.style.width = 100 * (to - from) / scale + "%"; return made; };
  const bar = el("div", { class: "bar", "aria-hidden": "true" }, part(0, over ? deserved : used, ["i"]), over ? part(deserved, used, ["i", "over"]) : "");
  if (deserved !== undefined && row.depth) bar.append(part(Math.min(deserved, scale * .995), 0, ["u"]));
  if (limit !== undefined) bar.append(part(Math.min(limit, scale * .995), 0, ["u", "limit"]));
  const notes = [];
  if (over) notes.push(el("span", { class: "wait" }, amount(resource, used - deserved) + " over what it deserves" + (row.reclaimable ? ": may be reclaimed" : "")));
  if (limit !== undefined && used >= limit) notes.push(el("span", { class: "bad" }, "at its limit"));
  if (row.waiting) notes.push(el("span", {}, count(row.waiting, "gang waits", "gangs wait") + (row.requested[resource] ? " for " + amount(resource, row.requested[resource]) + " " + unit(resource) : "")));
  const figures = amount(resource, used) + (row.depth ? (deserved !== undefined ? " of " + amount(resource, deserved) : "") : " of " + amount(resource, deserved || 0)) + (limit !== undefined ? ", limit " + amount(resource, limit) : "");
  const made = el("div", { class: "queue", role: "listitem" }, name(queueName(row.queue)), el("span", { class: "figures" }, figures), bar,
    notes.length ? el("div", { class: "notes" }, notes.flatMap((note, at) => at ? [" \u00b7 ", note] : [note])) : "");
  made.style.paddingLeft = Math.max(0, row.depth - 1) * 16 + (row.depth ? 12 : 0) + "px";
  return made;
}

const visibleQueues = (cluster) => cluster.queues.filter((row) => row.queue !== "queue/default" || row.waiting || Object.keys(row.used).length || cluster.queues.length < 3);

// -- gangs ------------------------------------------------------------------------------------------------------------------------------

const MOST_ROWS = 300;

function gangColumns(cluster) {
  const resource = cluster.summary.resource;
  return [
    { title: "gang", cell: (row) => gangLink(row.gang) },
    { title: "queue", cell: (row) => name(queueName(row.queue)) },
    { title: "stage", cell: (row) => stage(row.stage) },
    { title: "members", number: true, cell: (row) => row.placed + " of " + row.size + (row.min === row.size ? "" : ", min " + row.min) },
    { title: "priority", number: true, cell: (row) => row.priority },
    { title: "age", number: true, cell: (row) => duration(row.ageSeconds) },
    { title: "lacks", number: true, cell: (row) => row.requested[resource] ? amount(resource, row.requested[resource]) + " " + unit(resource) : "" },
    { title: "where, or why not", sentence: true, cell: (row) => row.why ? row.why : row.nodes.length ? name((row.domain && row.nodes.length > 1 ? row.domain + ": " : "") + compact(row.nodes)) : "" },
  ];
}
const byNeed = (a, b) => ORDER.indexOf(a.stage) - ORDER.indexOf(b.stage) || b.priority - a.priority || b.ageSeconds - a.ageSeconds || (a.gang < b.gang ? -1 : 1);

// -- views ------------------------------------------------------------------------------------------------------------------------------

function clusterView() {
  state.marked = new Set();
  const queues = el("div", { role: "list" }), map = mapPanel("Nodes"), gangs = el("div", {}), lost = el("div", {}), domains = el("div", {});
  const node = el("div", { class: "panels" },
    el("section", { class: "panel" }, el("div", { class: "top" }, el("h2", {}, "Queues"), el("span", { class: "quiet" }, "| deserved", el("span", { class: "bad" }, "  | limit"))), queues), map.node,
    el("section", { class: "panel wide" }, el("div", { class: "top" }, el("h2", {}, "Gangs that wait"), el("a", { href: "#/gangs" }, "all gangs")), gangs),
    el("section", { class: "panel wide" }, el("div", { class: "top" }, el("h2", {}, "Evictions"), el("a", { href: "#/evictions" }, "all evictions")), lost),
    el("details", { class: "panel wide" }, el("summary", {}, "Domains as a table"), domains));
  return {
    node, update(cluster) {
      const resource = cluster.summary.resource;
      queues.replaceChildren(...visibleQueues(cluster).map((row) => queueRow(row, resource)));
      map.show(cluster);
      const waiting = cluster.gangs.filter((row) => !["running", "finished"].includes(row.stage)).sort(byNeed);
      gangs.replaceChildren(waiting.length ? table("Gangs that wait", gangColumns(cluster), waiting.slice(0, 12)) : el("p", { class: "quiet" }, "No gang waits."),
        waiting.length > 12 ? el("p", { class: "quiet" }, "and " + (waiting.length - 12) + " more") : "");
      lost.replaceChildren(...flows(cluster));
      domains.replaceChildren(table("Domains", [
        { title: "domain", cell: (row) => name(row.title) }, { title: "nodes", number: true, cell: (row) => row.nodes },
        { title: "used", number: true, cell: (row) => amount(resource, row.used) + " of " + amount(resource, row.allocatable) + " " + unit(resource) },
        { title: "being released", number: true, cell: (row) => row.releasing ? amount(resource, row.releasing) : "" }], cluster.domains));
    },
  };
}

/** Who cost whom how much, by queue. */
function flows(cluster) {
  if (!cluster.evictions.length) return [el("p", { class: "quiet" }, "Nobody was evicted.")];
  const pairs = new Map();
  for (const row of cluster.evictions) {
    const key = queueName(row.queue) + " \u2192 " + queueName(row.forQueue), known = pairs.get(key) || { pods: 0, hours: 0 };
    pairs.set(key, { pods: known.pods + row.pods, hours: known.hours + row.lostGpuHours });
  }
  const total = cluster.evictions.reduce((sum, row) => sum + row.lostGpuHours, 0), pods = cluster.evictions.reduce((sum, row) => sum + row.pods, 0);
  return [el("p", { class: "flow" }, el("b", {}, count(pods, "pod") + ", " + grouped(total) + " GPU-hours of work lost"),
    [...pairs].sort((a, b) => b[1].hours - a[1].hours).slice(0, 6).map(([pair, each]) => el("span", {}, name(pair), " " + grouped(each.hours) + " GPU-hours, " + count(each.pods, "pod"))))];
}

function gangsView() {
  state.marked = new Set();
  const filter = el("input", { id: "filter", type: "search", placeholder: "name or reason", oninput: () => update(state.cluster) });
  const stages = el("select", { id: "stage", onchange: () => update(state.cluster) }, el("option", { value: "" }, "all but finished"), el("option", { value: "*" }, "all"), ORDER.map((each) => el("option", { value: each }, each)));
  const queue = el("select", { id: "queue", onchange: () => update(state.cluster) }, el("option", { value: "" }, "all"));
  const rows = el("div", {}), said = el("p", { class: "quiet", role: "status" });
  function update(cluster) {
    const names = [...new Set(cluster.gangs.map((row) => row.queue))].sort();
    if (queue.options.length !== names.length + 1) queue.append(...names.slice(queue.options.length - 1).map((each) => el("option", { value: each }, queueName(each))));
    const wanted = filter.value.toLowerCase();
    const found = cluster.gangs.filter((row) => (stages.value === "*" || (stages.value ? row.stage === stages.value : row.stage !== "finished")) && (!queue.value || row.queue === queue.value) && (!wanted || (row.gang + " " + row.why).toLowerCase().includes(wanted))).sort(byNeed);
    said.textContent = count(found.length, "gang") + (found.length > MOST_ROWS ? ", the first " + MOST_ROWS + " are shown" : "");
    rows.replaceChildren(found.length ? table("Gangs", gangColumns(cluster), found.slice(0, MOST_ROWS)) : el("p", {}, "No gang is like that."));
  }
  return {
    update, node: el("section", { class: "panel" }, el("div", { class: "top" }, el("h2", {}, "Gangs"), el("div", { class: "controls" },
      el("label", { for: "filter" }, "filter"), filter, el("label", { for: "stage" }, "stage"), stages, el("label", { for: "queue" }, "queue"), queue)), said, rows),
  };
}

const EVENTS = { bind: "bound", reserve: "reserved nodes for", nominate: "nominated", release: "released", evict: "lost", evicts: "had evicted", waiting: "waits", "cancel-eviction": "kept" };

function gangView(gang) {
  const head = el("div", {}), history = el("div", {}), members = el("div", {}), answer = el("div", { "aria-live": "polite" }), map = mapPanel("Where");
  const ask = el("button", { onclick: async () => {
    ask.disabled = true;
    answer.replaceChildren(el("p", { class: "quiet" }, "A dry run decides the next cycle ..."));
    try { answer.replaceChildren(whyAnswer(await data.why(gang))); } catch (error) { answer.replaceChildren(el("p", { class: "bad" }, error.message)); }
    ask.disabled = false;
  } }, "What would the next cycle do?");
  async function update(cluster) {
    let found;
    try { found = await data.gang(gang, state.at); } catch (error) { head.replaceChildren(el("p", {}, error.message)); state.marked = new Set(); map.show(cluster); return; }
    const row = found.gang, resource = cluster.summary.resource;
    // Nominated nodes are its, too.
    state.marked = new Set(cluster.nodes.filter((node) => node.gangs.some((each) => each.gang === gang)).map((node) => node.node));
    map.show(cluster);
    const queue = cluster.queues.find((each) => each.queue === row.queue);
    head.replaceChildren(
      el("p", { class: "answer" }, stage(row.stage), row.why ? ": " + row.why : row.placed ? " on " + count(row.nodes.length, "node") : ""),
      el("dl", { class: "facts" }, [["members", row.placed + " placed of " + row.size + ", minimum " + row.min], ["lacks", amounts(row.requested)],
        ["where", row.nodes.length ? name((row.domain ? row.domain + ": " : "") + compact(row.nodes)) : ""], ["priority", row.priority], ["age", duration(row.ageSeconds)], ["attempts", row.attempts || ""],
        ["queue", queue ? [name(queueName(row.queue)), ": " + amount(resource, queue.used[resource] || 0) + " " + unit(resource) + " used" + (queue.deserved[resource] !== undefined ? " of " + amount(resource, queue.deserved[resource]) + " deserved" : "") + (queue.limit[resource] !== undefined ? ", limit " + amount(resource, queue.limit[resource]) : "")] : name(queueName(row.queue))],
      ].filter(([, value]) => value !== "").flatMap(([title, value]) => [el("dt", {}, title), el("dd", {}, value)])));
    const entries = found.history.filter((each) => each.time <= cluster.time + 1).reverse();
    history.replaceChildren(entries.length ? table("History", [
      { title: "time", cell: (each) => clock(each.time) },
      { title: "what", cell: (each) => [EVENTS[each.event] || each.event, each.pods ? " " + count(each.pods, "pod") : "", each.victim ? [" of ", gangLink(each.victim)] : "", each.event === "evict" && each.for_gang ? [" for ", gangLink(each.for_gang)] : ""] },
      { title: "why", sentence: true, cell: (each) => each.why || "" }], entries) : el("p", { class: "quiet" }, "Nothing was decided about it since the scheduler started."));
    members.replaceChildren(found.members.length ? table("Members", [
      { title: "pod", cell: (each) => name(each.pod) }, { title: "role", cell: (each) => name(each.role) }, { title: "phase", cell: (each) => each.phase }, { title: "node", cell: (each) => name(each.node) }], found.members.slice(0, MOST_ROWS)) : el("p", { class: "quiet" }, data.canAsk ? "It has no pods now." : "A report has no pods."));
  }
  return {
    update, node: el("div", { class: "panels" },
      el("section", { class: "panel" }, el("div", { class: "top" }, el("h2", { class: "name" }, gang), el("a", { href: "#/gangs" }, "all gangs")), head, data.canAsk ? ask : "", answer), map.node,
      el("section", { class: "panel wide" }, el("div", { class: "top" }, el("h2", {}, "What was decided")), history),
      el("section", { class: "panel wide" }, el("div", { class: "top" }, el("h2", {}, "Members")), members)),
  };
}

function whyAnswer(found) {
  const reasons = (found.forecast.whyNotNow || found.forecast.why || "").split("; ").filter(Boolean);
  const ahead = found.ahead.slice(-5).map((each) => [gangLink(each.gang), " "]);
  return el("div", {}, forecastNode({ ...found.forecast, why: "", start: null }), el("dl", { class: "facts" }, [
    ["position", found.position ? found.position + " of " + found.waitingInQueue + " in its queue" : ""], ["before it", ahead.length ? ahead : ""],
    ["starts", startText(found.forecast)], ["decides", reasons[0] || ""], ["then", reasons.slice(1).map((each) => el("div", {}, each))],
    ["may lose", found.workHours ? "at most " + grouped(found.workHours) + " h of work of a pod, if it is evicted now" : ""], ["budgets", found.budgets.join(", ")],
  ].filter(([, value]) => value.length).flatMap(([title, value]) => [el("dt", {}, title), el("dd", {}, value)])));
}

function startText({ start, code }) {
  if (!start || code === 0) return "";
  if (start.expectedSeconds === null) return start.notBeforeSeconds > 1 ? "not within " + duration(start.notBeforeSeconds) : "not known";
  return "in " + duration(start.expectedSeconds) + (start.latestSeconds === null ? " or later" : start.latestSeconds > start.expectedSeconds ? ", at the latest in " + duration(start.latestSeconds) : "") + ", if nobody comes before it";
}

function forecastNode(found) {
  const nodes = [...new Set(found.placements.map(([, node]) => node))], hours = found.evictedGangs.reduce((sum, each) => sum + each.gpuHours, 0);
  const sentence = found.code === 3 ? [el("b", { class: "bad" }, "cannot run"), found.why ? ": " + found.why : ""]
    : found.runsAlready ? [el("b", { class: "good" }, "runs already")]
      : found.code === 0 ? [el("b", { class: "good" }, "can run now")]
        : found.evictedGangs.length ? [el("b", { class: "wait" }, "can run after evictions"), " that cost " + grouped(hours) + " GPU-hours of work"] : [el("b", { class: "wait" }, "can run soon"), ": what it needs is being released"];
  return el("div", {}, el("p", { class: "answer" }, name(found.gang), " ", sentence),
    nodes.length ? el("p", {}, (found.domain ? found.domain + ", " : "") + count(nodes.length, "node") + ": ", name(compact(nodes))) : "",
    found.evictedGangs.length ? table("Evicted", [
      { title: "evicts", cell: (each) => gangLink(each.gang) }, { title: "pods", number: true, cell: (each) => each.pods.length ? each.pods.length + " of " + each.gangSize : "" },
      { title: "then", cell: (each) => each.wholeGang ? "ends" : "keeps running" }, { title: "priority", number: true, cell: (each) => each.priority }, { title: "loses", number: true, cell: (each) => grouped(each.gpuHours) + " GPU-hours" }], found.evictedGangs) : "",
    startText(found) ? el("p", {}, (found.evictedGangs.length ? "without evicting anybody " : "starts ") + startText(found)) : "",
    found.alternatives.length ? el("details", {}, el("summary", {}, count(found.alternatives.length, "alternative")), el("ul", { class: "plain" }, found.alternatives.slice(0, 20).map((each) => el("li", {}, name(each.domain || each.action), ": ", each.gpuHours === null ? each.why : grouped(each.gpuHours) + " GPU-hours" + (each.evicts.length ? ", evicts " + each.evicts.join(", ") : ""))))) : "");
}

function evictionsView() {
  state.marked = new Set();
  const sums = el("div", {}), rows = el("div", {});
  return {
    node: el("div", { class: "panels" }, el("section", { class: "panel wide" }, el("div", { class: "top" }, el("h2", {}, "Who cost whom, by day")), sums), el("section", { class: "panel wide" }, el("div", { class: "top" }, el("h2", {}, "Evictions")), rows)),
    update(cluster) {
      if (!cluster.evictions.length) { sums.replaceChildren(el("p", { class: "quiet" }, "Nobody was evicted.")); rows.replaceChildren(); return; }
      const found = new Map();
      for (const row of cluster.evictions) {
        const key = JSON.stringify([day(row.time), row.queue, row.forQueue]), known = found.get(key) || { day: day(row.time), queue: row.queue, forQueue: row.forQueue, pods: 0, gpus: 0, hours: 0 };
        found.set(key, Object.assign(known, { pods: known.pods + row.pods, gpus: known.gpus + row.gpus, hours: known.hours + row.lostGpuHours }));
      }
      sums.replaceChildren(table("By day and queue", [
        { title: "day", cell: (row) => row.day }, { title: "lost by", cell: (row) => name(queueName(row.queue) || "another tenant") }, { title: "for", cell: (row) => name(queueName(row.forQueue) || "another tenant") },
        { title: "pods", number: true, cell: (row) => row.pods }, { title: "GPUs", number: true, cell: (row) => row.gpus }, { title: "GPU-hours lost", number: true, cell: (row) => grouped(row.hours) }], [...found.values()]));
      rows.replaceChildren(table("Evictions", [
        { title: "time", fixed: true, cell: (row) => day(row.time) + " " + clock(row.time) }, { title: "gang", cell: (row) => gangLink(row.gang) }, { title: "for", cell: (row) => gangLink(row.forGang) }, { title: "pods", number: true, cell: (row) => row.pods },
        { title: "GPU-hours lost", number: true, cell: (row) => grouped(row.lostGpuHours) }, { title: "action", fixed: true, cell: (row) => row.cause }, { title: "why", sentence: true, cell: (row) => row.why }], cluster.evictions.slice(0, MOST_ROWS)));
    },
  };
}

const EXAMPLE = "apiVersion: batch/v1\nkind: Job\nmetadata: {name: train, namespace: default}\nspec:\n  parallelism: 4\n  template:\n    spec:\n      schedulerName: muster\n      containers:\n      - name: main\n        resources: {limits: {nvidia.com/gpu: 8}}\n";

function planView() {
  state.marked = new Set();
  const job = el("textarea", { id: "job", spellcheck: "false" }), namespace = el("input", { id: "namespace", placeholder: "default" });
  const answer = el("div", { "aria-live": "polite" }), map = mapPanel("Where it would run"), button = el("button", {}, "Plan");
  job.value = EXAMPLE;
  const form = el("form", { onsubmit: async (event) => {
    event.preventDefault();
    button.disabled = true;
    answer.replaceChildren(el("p", { class: "quiet" }, "A dry run decides one cycle ..."));
    try {
      const found = await data.plan(job.value, namespace.value);
      state.marked = new Set(found.gangs.flatMap((each) => each.placements.map(([, node]) => node)));
      answer.replaceChildren(...found.gangs.map((each) => el("div", {}, forecastNode(each), each.assumed.length ? el("p", { class: "quiet" }, "assumed: " + each.assumed.join("; ")) : "")), ...found.notes.map((note) => el("p", { class: "quiet" }, note)));
    } catch (error) { state.marked = new Set(); answer.replaceChildren(el("p", { class: "bad" }, error.message)); }
    map.show(state.cluster);
    button.disabled = false;
  } }, el("label", { for: "job" }, "A manifest of any workload, in YAML or JSON"), job, el("div", { class: "controls" }, el("label", { for: "namespace" }, "namespace of what names none"), namespace, button));
  return { update: map.show, node: el("div", { class: "panels" }, el("section", { class: "panel" }, el("div", { class: "top" }, el("h2", {}, "Would this job run?")), form, answer), map.node) };
}

// -- which view ---------------------------------------------------------------------------------------------------------------------------

function route() {
  if (!state.cluster) return;
  const [, where = "", ...rest] = location.hash.split("/");
  const views = { "": clusterView, gangs: gangsView, evictions: evictionsView, plan: planView, gang: () => gangView(decodeURIComponent(rest.join("/"))) };
  const known = views[where] ? where : "";
  if (known === "plan" && !data.canAsk) { location.hash = "#/"; return; }
  state.view = views[known]();
  $("main").replaceChildren(state.view.node);
  for (const link of document.querySelectorAll("nav a")) {
    if (link.getAttribute("href") === "#/" + (known === "gang" ? "gangs" : known)) link.setAttribute("aria-current", "page"); else link.removeAttribute("aria-current");
  }
  state.view.update(state.cluster);
}

addEventListener("hashchange", () => { route(); scrollTo(0, 0); $("main").focus({ preventScroll: true }); });
$("token-form").addEventListener("submit", (event) => {
  event.preventDefault();
  data.token = $("token").value.trim();
  sessionStorage.setItem("token", data.token);
  $("token").value = "";
  refresh();
});
$("plan-link").hidden = !data.canAsk;
refresh().then(() => {
  if (data.canAsk) data.follow(() => state.at === null ? refresh() : undefined, () => trouble("The connection is lost: these are the figures of " + (state.cluster ? clock(state.cluster.time) : "before") + ". Trying again ..."));
});
