"use strict";
/* The ledger: who cost whom how much, by day and queue, and one by one. */

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
        { title: "pods", number: true, cell: (row) => row.pods }, { title: "GPUs", number: true, cell: (row) => row.gpus }, { title: "GPU-hours lost", number: true, cell: (row) => hours(row.hours) }], [...found.values()]));
      replaceKeepingFocus(rows, table("Evictions", [
        { title: "time", fixed: true, cell: (row) => day(row.time) + " " + clock(row.time) }, { title: "gang", cell: (row) => gangLink(row.gang) }, { title: "for", cell: (row) => gangLink(row.forGang) }, { title: "pods", number: true, cell: (row) => row.pods },
        { title: "GPU-hours lost", number: true, cell: (row) => hours(row.lostGpuHours) }, { title: "action", fixed: true, cell: (row) => row.cause }, { title: "why", sentence: true, cell: (row) => row.why }], cluster.evictions.slice(0, MOST_ROWS)));
    },
  };
}
