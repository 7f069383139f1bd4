"use strict";
/* The views: what is shown of a cluster, and how it is kept up to date. */

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
    el("details", { class: "panel wide", ontoggle: (event) => { opened = event.target.open; update(state.cluster); } }, el("summary", {}, "Domains as a table"), domains));
  let opened = false;
  return { node, update };

  function update(cluster) {
    const resource = cluster.summary.resource;
    queues.replaceChildren(...visibleQueues(cluster).map((row) => queueRow(row, resource)));
    map.show(cluster);
    const waiting = cluster.gangs.filter((row) => !["running", "finished"].includes(row.stage)).sort(byNeed);
    gangs.replaceChildren(waiting.length ? table("Gangs that wait", gangColumns(cluster), waiting.slice(0, 12)) : el("p", { class: "quiet" }, "No gang waits."),
      waiting.length > 12 ? el("p", { class: "quiet" }, "and " + (waiting.length - 12) + " more") : "");
    lost.replaceChildren(...flows(cluster));
    // Some hundred rows, that nobody sees mostly.
    if (opened) domains.replaceChildren(table("Domains", [
      { title: "domain", cell: (row) => name(row.title) }, { title: "nodes", number: true, cell: (row) => row.nodes },
      { title: "used", number: true, cell: (row) => amount(resource, row.used) + " of " + amount(resource, row.allocatable) + " " + unit(resource) },
      { title: "being released", number: true, cell: (row) => row.releasing ? amount(resource, row.releasing) : "" }], cluster.domains));
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
      { title: "pod", cell: (each) => name(each.pod) }, { title: "role", cell: (each) => name(each.role) }, { title: "phase", cell: (each) => each.phase }, { title: "node", cell: (each) => name(each.node) }], found.members.slice(0, MOST_ROWS)) : el("p", { class: "quiet" }, row.size ? "Its pods at this moment were not kept." : "It has no pods now."));
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
  const moves = found.evictedGangs.some((each) => each.movedTo.length);
  const sentence = found.code === 3 ? [el("b", { class: "bad" }, "cannot run"), found.why ? ": " + found.why : ""]
    : found.runsAlready ? [el("b", { class: "good" }, "runs already")]
      : found.code === 0 ? [el("b", { class: "good" }, "can run now")]
        : found.evictedGangs.length ? [el("b", { class: "wait" }, moves ? "can run after moves" : "can run after evictions"), (moves ? " by which nobody ends, and that cost " : " that cost ") + grouped(hours) + " GPU-hours of work"] : [el("b", { class: "wait" }, "can run soon"), ": what it needs is being released"];
  return el("div", {}, el("p", { class: "answer" }, name(found.gang), " ", sentence),
    nodes.length ? el("p", {}, (found.domain ? found.domain + ", " : "") + count(nodes.length, "node") + ": ", name(compact(nodes))) : "",
    found.evictedGangs.length ? table(moves ? "Moved" : "Evicted", [
      { title: moves ? "moves" : "evicts", cell: (each) => gangLink(each.gang) }, { title: "pods", number: true, cell: (each) => each.pods.length ? each.pods.length + " of " + each.gangSize : "" },
      { title: "then", cell: (each) => each.movedTo.length ? "starts on " + compact(each.movedTo) : each.wholeGang ? "ends" : "keeps running" }, { title: "priority", number: true, cell: (each) => each.priority }, { title: "loses", number: true, cell: (each) => grouped(each.gpuHours) + " GPU-hours" }], found.evictedGangs) : "",
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
