"use strict";
/* Gangs as rows of tables: the same columns in all views. */

const MOST_ROWS = 300;

/** When a gang that waits is expected to start, as far as it has been worked out. */
function expectedStart(row) {
  const start = state.at === null && state.starts.rows.get(row.gang);
  if (!start || ["running", "finished"].includes(row.stage)) return "";
  const at = (seconds) => (seconds < 86400 ? "" : day(state.starts.time + seconds) + " ") + clock(state.starts.time + seconds).slice(0, 5);
  if (start.expectedSeconds !== null) return start.expectedSeconds < 1 ? "next" : at(start.expectedSeconds);
  if (!start.cutShort && !start.unknown) return "not as it is";
  return start.notBeforeSeconds >= 60 ? "after " + at(start.notBeforeSeconds) : "not known";
}

function gangColumns(cluster) {
  const resource = cluster.summary.resource;
  return [
    { title: "gang", cell: (row) => gangLink(row.gang) },
    { title: "queue", cell: (row) => name(queueName(row.queue)) },
    { title: "stage", cell: (row) => stage(row.stage) },
    { title: "members", number: true, cell: (row) => row.placed + " of " + row.size + (row.min === row.size ? "" : ", min " + row.min) },
    { title: "priority", number: true, cell: (row) => row.priority },
    { title: "starts", number: true, cell: (row) => expectedStart(row) },
    { title: "age", number: true, cell: (row) => duration(row.ageSeconds) },
    { title: "lacks", number: true, cell: (row) => row.requested[resource] ? amount(resource, row.requested[resource]) + " " + unit(resource) : "" },
    { title: "where, or why not", sentence: true, cell: (row) => row.why ? row.why : row.nodes.length ? name((row.domain && row.nodes.length > 1 ? row.domain + ": " : "") + compact(row.nodes)) : "" },
  ];
}
const byNeed = (a, b) => ORDER.indexOf(a.stage) - ORDER.indexOf(b.stage) || b.priority - a.priority || b.ageSeconds - a.ageSeconds || (a.gang < b.gang ? -1 : 1);
