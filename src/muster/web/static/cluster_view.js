"use strict";
/* The cluster: its queues, its nodes, who waits, and what evictions cost. */

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
  if (row.waiting) notes.push(el("span", {}, count(row.waiting, "gang lacks", "gangs lack") + (row.requested[resource] ? " " + amount(resource, row.requested[resource]) + " " + unit(resource) : " members")));
  const figures = amount(resource, used) + (row.depth ? (deserved !== undefined ? " of " + amount(resource, deserved) : "") : " of " + amount(resource, deserved || 0)) + (limit !== undefined ? ", limit " + amount(resource, limit) : "");
  const made = el("div", { class: "queue", role: "listitem" }, name(queueName(row.queue)), el("span", { class: "figures" }, figures), bar,
    notes.length ? el("div", { class: "notes" }, notes.flatMap((note, at) => at ? [" \u00b7 ", note] : [note])) : "");
  made.style.paddingLeft = Math.max(0, row.depth - 1) * 16 + (row.depth ? 12 : 0) + "px";
  return made;
}

const visibleQueues = (cluster) => cluster.queues.filter((row) => row.queue !== "queue/default" || row.waiting || Object.keys(row.used).length || cluster.queues.length < 3);
const MOST_QUEUES = 200;
/** Where there are too many, those go first in which nothing is. */
function queueRows(cluster, resource) {
  let rows = visibleQueues(cluster);
  const all = rows.length;
  if (all > MOST_QUEUES) rows = rows.filter((row) => row.waiting || Object.keys(row.used).length).slice(0, MOST_QUEUES);
  return [...rows.map((row) => queueRow(row, resource)), all > rows.length ? el("p", { class: "quiet", role: "listitem" }, "and " + grouped(all - rows.length) + " more") : ""];
}

function clusterView() {
  state.marked = new Set();
  const queues = el("div", { role: "list" }), map = mapPanel("Nodes"), gangs = el("div", {}), lost = el("div", {}), domains = el("div", {});
  const node = el("div", { class: "panels" },
    el("section", { class: "panel" }, el("div", { class: "top" }, el("h2", {}, "Queues"), el("span", { class: "quiet" }, "| deserved", el("span", { class: "bad" }, "  | limit"))), queues), map.node,
    el("section", { class: "panel wide" }, el("div", { class: "top" }, el("h2", {}, "Gangs that wait"), el("a", { href: "#/gangs" }, "all gangs")), gangs),
    el("section", { class: "panel wide" }, el("div", { class: "top" }, el("h2", {}, "Evictions"), el("a", { href: "#/evictions" }, "all evictions")), lost),
    el("details", { class: "panel wide", ontoggle: (event) => { opened = event.target.open; update(state.cluster); } }, el("summary", {}, "Domains as a table"), domains));
  let opened = false;
  // The nodes of the gang that is pointed at, or that has the focus, light up.
  const light = (gang) => {
    state.marked = new Set(gang ? state.cluster.nodes.filter((each) => each.gangs.some((one) => one.gang === gang)).map((each) => each.node) : []);
    map.show(state.cluster);
  };
  const gangAt = (event) => { const row = event.target.closest("tr[data-gang]"); return row ? row.dataset.gang : ""; };
  for (const event of ["pointerover", "focusin"]) gangs.addEventListener(event, (each) => light(gangAt(each)));
  for (const event of ["pointerleave", "focusout"]) gangs.addEventListener(event, () => light(""));
  return { node, update };

  function update(cluster) {
    const resource = cluster.summary.resource;
    queues.replaceChildren(...queueRows(cluster, resource));
    map.show(cluster);
    const waiting = cluster.gangs.filter((row) => !["running", "finished"].includes(row.stage)).sort(byNeed);
    replaceKeepingFocus(gangs, waiting.length ? table("Gangs that wait", gangColumns(cluster), waiting.slice(0, 12)) : el("p", { class: "quiet" }, "No gang waits."),
      waiting.length > 12 ? el("p", { class: "quiet" }, "and " + (waiting.length - 12) + " more") : "");
    lost.replaceChildren(...flows(cluster));
    // Some hundred rows, that nobody sees mostly.
    if (opened) domains.replaceChildren(table("Domains", [
      { title: "domain", cell: (row) => name(row.title) }, { title: "nodes", number: true, cell: (row) => row.nodes },
      { title: "used", number: true, cell: (row) => amount(resource, row.used) + " of " + amount(resource, row.allocatable) + " " + unit(resource) },
      { title: "being released", number: true, cell: (row) => row.releasing ? amount(resource, row.releasing) : "" }], cluster.domains.slice(0, MOST_ROWS)), cluster.domains.length > MOST_ROWS ? el("p", { class: "quiet" }, "and " + grouped(cluster.domains.length - MOST_ROWS) + " more") : "");
  }
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
  return [el("p", { class: "flow" }, el("b", {}, count(pods, "pod") + ", " + hours(total) + " GPU-hours of work lost"),
    [...pairs].sort((a, b) => b[1].hours - a[1].hours).slice(0, 6).map(([pair, each]) => el("span", {}, name(pair), " " + hours(each.hours) + " GPU-hours, " + count(each.pods, "pod"))))];
}
