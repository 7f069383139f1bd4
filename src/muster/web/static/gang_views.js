"use strict";
/* All gangs, and one of them. */

function gangsView() {
  state.marked = new Set();
  // A link to what is shown has the filters, too.
  const given = address().parameters;
  const change = () => { remember({ filter: filter.value, stage: stages.value, queue: queue.value }); update(state.cluster); };
  const filter = el("input", { id: "filter", type: "search", placeholder: "name or reason", value: given.get("filter"), oninput: () => update(state.cluster), onchange: change });
  const stages = el("select", { id: "stage", onchange: change }, el("option", { value: "" }, "all but finished"), el("option", { value: "*" }, "all"), ORDER.map((each) => el("option", { value: each, selected: each === given.get("stage") }, each)));
  const queue = el("select", { id: "queue", onchange: change }, el("option", { value: "" }, "all"));
  if (given.get("stage") === "*") stages.value = "*";
  let wantedQueue = given.get("queue") || "";
  const rows = el("div", {}), said = el("p", { class: "quiet", role: "status" });
  function update(cluster) {
    const names = [...new Set(cluster.gangs.map((row) => row.queue))].sort();
    if (queue.options.length !== names.length + 1) queue.append(...names.slice(queue.options.length - 1).map((each) => el("option", { value: each }, queueName(each))));
    if (wantedQueue && names.includes(wantedQueue)) { queue.value = wantedQueue; wantedQueue = ""; }
    const wanted = filter.value.toLowerCase();
    const found = cluster.gangs.filter((row) => (stages.value === "*" || (stages.value ? row.stage === stages.value : row.stage !== "finished")) && (!queue.value || row.queue === queue.value) && (!wanted || (row.gang + " " + row.why).toLowerCase().includes(wanted))).sort(byNeed);
    said.textContent = count(found.length, "gang") + (found.length > MOST_ROWS ? ", the first " + MOST_ROWS + " are shown" : "");
    replaceKeepingFocus(rows, found.length ? table("Gangs", gangColumns(cluster), found.slice(0, MOST_ROWS)) : el("p", {}, "No gang is like that."));
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
    try {
      const first = await data.why(gang, false);
      answer.replaceChildren(whyAnswer(first));
      if (first.position && first.forecast.code !== 0) {
        answer.append(el("p", { class: "quiet" }, "When it starts, and what would make it run, is being tried ..."));
        answer.replaceChildren(whyAnswer(await data.why(gang, true)));
      }
    } catch (error) { answer.replaceChildren(el("p", { class: "bad" }, lines(error.message))); }
    ask.disabled = false;
  } }, "What would make it run?");
  async function update(cluster) {
    let found;
    try { found = await data.gang(gang, state.at); } catch (error) { head.replaceChildren(el("p", { class: "answer" }, lines(error.message))); ask.hidden = true; history.replaceChildren(); members.replaceChildren(); state.marked = new Set(); map.show(cluster); return; }
    ask.hidden = false;
    const row = found.gang, resource = cluster.summary.resource;
    // Nominated nodes are its, too.
    state.marked = new Set(cluster.nodes.filter((node) => node.gangs.some((each) => each.gang === gang)).map((node) => node.node));
    map.show(cluster);
    ask.textContent = row.placed < row.size ? "What would make it run?" : "What would the next cycle do?";
    const queue = cluster.queues.find((each) => each.queue === row.queue);
    head.replaceChildren(
      el("p", { class: "answer" }, stage(row.stage), row.why ? ": " + row.why : row.placed ? " on " + count(row.nodes.length, "node") : ""),
      el("dl", { class: "facts" }, [["members", row.placed + " placed of " + row.size + ", minimum " + row.min], ["lacks", amounts(row.requested)],
        ["where", row.nodes.length ? name((row.domain ? row.domain + ": " : "") + compact(row.nodes)) : ""], ["priority", row.priority], ["age", duration(row.ageSeconds)], ["expected start", expectedStart(row)], ["attempts", row.attempts || ""],
        ["queue", queue ? [name(queueName(row.queue)), ": " + amount(resource, queue.used[resource] || 0) + " " + unit(resource) + " used" + (queue.deserved[resource] !== undefined ? " of " + amount(resource, queue.deserved[resource]) + " deserved" : "") + (queue.limit[resource] !== undefined ? ", limit " + amount(resource, queue.limit[resource]) : "")] : name(queueName(row.queue))],
      ].filter(([, value]) => value !== "").flatMap(([title, value]) => [el("dt", {}, title), el("dd", {}, value)])));
    if (!data.canAsk) answer.replaceChildren(remediesNode(data.remedies(gang, cluster.time) || { remedies: [], remediesCutShort: false }));
    const entries = found.history.filter((each) => each.time <= cluster.time + 1).reverse();
    replaceKeepingFocus(history, entries.length ? table("History", [
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
    ["served by", Object.entries(found.otherSchedulers).map(([scheduler, pods]) => "the scheduler " + scheduler + " (" + count(pods, "pod") + "): not looked through here").join(", ")],
    ["may lose", found.workHours ? "at most " + grouped(found.workHours) + " h of work of a pod, if it is evicted now" : ""], ["budgets", found.budgets.join(", ")],
  ].filter(([, value]) => value.length).flatMap(([title, value]) => [el("dt", {}, title), el("dd", {}, value)])));
}
