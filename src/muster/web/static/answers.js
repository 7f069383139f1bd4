"use strict";
/* What a dry run says: when and where a gang starts, whom it evicts, and what would make it run. */

function startText({ start, code }) {
  if (!start || code === 0) return "";
  if (start.expectedSeconds === null && !start.cutShort && !start.unknown) return "not even when all that runs has ended";
  if (start.expectedSeconds === null) return start.notBeforeSeconds > 1 ? "not within " + duration(start.notBeforeSeconds) : "not known";
  return "in " + duration(start.expectedSeconds) + (start.latestSeconds === null ? " or later" : start.latestSeconds > start.expectedSeconds ? ", at the latest in " + duration(start.latestSeconds) : "") + ", if nobody comes before it";
}

/** Each change was tried in a cycle. */
function remediesNode({ remedies, remediesCutShort }) {
  if (!remedies.length && !remediesCutShort) return "";
  return el("div", { class: "remedies" }, el("h3", {}, "It would run if"), el("ul", {}, remedies.map((each) => el("li", {}, name(each.what),
    each.evicts ? ", after evicting " + count(each.evicts, "pod") : "", each.command ? el("code", { class: "command" }, each.command) : ""))),
  remediesCutShort ? el("p", { class: "quiet" }, "Not all changes were tried: the time for this was over.") : "");
}

function forecastNode(found) {
  const nodes = [...new Set(found.placements.map(([, node]) => node))], lost = found.evictedGangs.reduce((sum, each) => sum + each.gpuHours, 0);
  const moves = found.evictedGangs.some((each) => each.movedTo.length);
  const sentence = found.code === 3 ? [el("b", { class: "bad" }, "cannot run"), found.why ? ": " + found.why : ""]
    : found.runsAlready ? [el("b", { class: "good" }, "runs already")]
      : found.code === 0 ? [el("b", { class: "good" }, "can run now")]
        : found.evictedGangs.length ? [el("b", { class: "wait" }, moves ? "can run after moves" : "can run after evictions"), (moves ? " by which nobody ends, and that cost " : " that cost ") + hours(lost) + " GPU-hours of work"] : [el("b", { class: "wait" }, "can run soon"), ": what it needs is being released"];
  return el("div", {}, el("p", { class: "answer" }, name(found.gang), " ", sentence),
    nodes.length ? el("p", {}, (found.domain ? found.domain + ", " : "") + count(nodes.length, "node") + ": ", name(compact(nodes))) : "",
    found.evictedGangs.length ? table(moves ? "Moved" : "Evicted", [
      { title: moves ? "moves" : "evicts", cell: (each) => gangLink(each.gang) }, { title: "pods", number: true, cell: (each) => each.pods.length ? each.pods.length + " of " + each.gangSize : "" },
      { title: "then", cell: (each) => each.movedTo.length ? "starts on " + compact(each.movedTo) : each.wholeGang ? "ends" : "keeps running" }, { title: "priority", number: true, cell: (each) => each.priority }, { title: "loses", number: true, cell: (each) => hours(each.gpuHours) + " GPU-hours" }], found.evictedGangs) : "",
    remediesNode(found),
    startText(found) ? el("p", {}, (found.evictedGangs.length ? "without evicting anybody " : "starts ") + startText(found)) : "",
    found.alternatives.length ? el("details", {}, el("summary", {}, count(found.alternatives.length, "alternative")), el("ul", { class: "plain" }, found.alternatives.slice(0, 20).map((each) => el("li", {}, name(each.domain || each.action), ": ", each.gpuHours === null ? each.why : hours(each.gpuHours) + " GPU-hours" + (each.evicts.length ? ", evicts " + each.evicts.join(", ") : ""))))) : "");
}
