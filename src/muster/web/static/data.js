"use strict";
/* Where the figures come from: the API of a running scheduler or of a file, or a report that has all of them. */

class ApiData {
  static RETRY_MS = 2000;
  /** A stream without news says so every 15 s: a server that says less is gone, or the way to it is. */
  static SILENT_MS = 45000;

  constructor() { this.token = sessionStorage.getItem("token") || ""; this.canAsk = true; }

  async fetched(path, options) {
    const headers = this.token ? { Authorization: "Bearer " + this.token } : {};
    const answer = await fetch("api/v1/" + path, { ...options, headers, cache: "no-store" });
    if (answer.ok) return answer;
    const said = await answer.json().catch(() => ({}));
    throw Object.assign(new Error(said.error || answer.statusText), { status: answer.status });
  }
  async request(path, options) { return (await this.fetched(path, options)).json(); }
  cluster(at) { return this.request("cluster" + (at === null ? "" : "?at=" + at)); }
  gang(gang, at) { return this.request("gangs/" + gang.split("/").map(encodeURIComponent).join("/") + (at === null ? "" : "?at=" + at)); }
  why(gang, outlook) { return this.request("why/" + gang.split("/").map(encodeURIComponent).join("/") + "?outlook=" + outlook); }
  plan(job, namespace, outlook) { return this.request("plan?outlook=" + outlook + "&namespace=" + encodeURIComponent(namespace), { method: "POST", body: job }); }
  starts() { return this.request("starts"); }

  /** Calls `changed` at every newer cycle, and `lost` where the connection ends or nothing comes any more. Not EventSource: that
      sends no token. */
  async follow(changed, lost) {
    for (;;) {
      const silent = new AbortController();
      let alarm;
      const heard = () => { clearTimeout(alarm); alarm = setTimeout(() => silent.abort(new Error("the connection is silent")), ApiData.SILENT_MS); };
      try {
        heard();
        const answer = await this.fetched("events", { signal: silent.signal }), reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
        for (let text = ""; ;) {
          const { value, done } = await reader.read();
          if (done) break;
          heard();
          text += value;
          if (text.includes("event: cycle") && text.includes("\n\n")) { text = ""; await changed(); }
        }
      } catch (error) { lost(error); } finally { clearTimeout(alarm); }
      await new Promise((resolve) => setTimeout(resolve, ApiData.RETRY_MS));
    }
  }
}

/** A report: all moments are in the document, each as what differs from the one before. What was shown once is kept: rows that do not
    change are the same objects in all moments. */
class ReportData {
  constructor(report) { this.report = report; this.canAsk = false; this.moments = []; }

  cluster(at) {
    const { times, evictions, samples } = this.report;
    let wanted = times.length - 1;
    if (at !== null) for (wanted = 0; wanted + 1 < times.length && times[wanted + 1] <= at;) wanted += 1;
    while (this.moments.length <= wanted) this.moments.push(this.next(this.moments[this.moments.length - 1]));
    const time = times[wanted];
    return Promise.resolve({ ...this.moments[wanted], time, evictions: evictions.filter((row) => row.time <= time), timeline: { samples, times: times.length > 1 ? times : [] } });
  }
  next(before) {
    const frame = this.report.frames[this.moments.length], found = { summary: frame.summary, queues: frame.queues, cycle: frame.cycle };
    for (const [part, key] of [["gangs", "gang"], ["nodes", "node"], ["domains", "domain"]]) {
      const rows = before ? before[part] : [], changed = new Map(frame[part].changed.map((row) => [row[key], row])), gone = new Set(frame[part].gone);
      found[part] = rows.filter((row) => !gone.has(row[key])).map((row) => {
        const now = changed.get(row[key]);
        return now && changed.delete(row[key]) ? now : row;
      });
      // Those that are left are new.
      if (changed.size) found[part] = [...found[part], ...changed.values()].sort((a, b) => part === "domains" ? b.tier - a.tier || (a.domain < b.domain ? -1 : 1) : a[key] < b[key] ? -1 : 1);
    }
    return found;
  }
  async starts() { return this.report.starts; }
  /** Of gangs that wait at the end. */
  remedies(gang, time) { return time === this.report.times[this.report.times.length - 1] ? this.report.remedies[gang] : undefined; }
  async gang(gang, at) {
    const cluster = await this.cluster(at), row = cluster.gangs.find((each) => each.gang === gang);
    if (!row) throw new Error("there is no gang " + gang + " at this moment");
    return { gang: row, members: [], history: this.report.history[gang] || [] };
  }
}
