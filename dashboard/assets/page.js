"use strict";
// Writes each snapshot of the server into the page, which is complete without it.
(() => {
  const byId = (id) => document.getElementById(id);
  const element = (name, text, attributes = {}) => {
    const e = document.createElement(name);
    e.textContent = text;
    for (const [key, value] of Object.entries(attributes)) e.setAttribute(key, value);
    return e;
  };
  const set = (e, text) => {
    if (e.textContent !== String(text)) e.textContent = text;
  };
  const words = {
    undecided: "undecided", cached: "from the cache", local: "local", open: "by the policy",
    warned: "warned", stricter: "refused, and admitted live", looser: "admitted, and refused live",
  };
  const notes = (view) => Object.keys(words).filter((k) => view[k])
    .map((k) => view[k] + " " + words[k]).join(" ");

  const rows = new Map();
  for (const row of document.querySelectorAll("#limits tbody tr")) rows.set(row.dataset.limit, row);

  const newRow = (limit) => {
    const row = element("tr", "", {"data-limit": limit.name});
    const head = element("th", "", {scope: "row"});
    head.append(element("a", limit.name, {href: "limit?name=" + encodeURIComponent(limit.name)}),
      limit.trial ? " (trial)" : "");
    row.append(head);
    for (let i = 0; i < 8; i++) row.append(element("td", ""));
    let before = null;
    for (const other of byId("limits").tBodies[0].rows) {
      if (other.dataset.limit > limit.name) { before = other; break; }
    }
    byId("limits").tBodies[0].insertBefore(row, before);
    rows.set(limit.name, row);
    return row;
  };

  const show = (snapshot) => {
    for (const limit of snapshot.limits) {
      const cells = (rows.get(limit.name) || newRow(limit)).cells;
      [limit.rate, limit.second.admitted, limit.second.refused, limit.minute.admitted,
        limit.minute.refused, limit.quarter.admitted, limit.quarter.refused, notes(limit.minute),
      ].forEach((text, i) => set(cells[i + 1], text));
    }
    byId("none").hidden = snapshot.limits.length > 0;
    byId("state").parentElement.hidden = snapshot.state.length === 0;
    byId("state").replaceChildren(...snapshot.state.map((line) => {
      const div = element("div", "", line.bad ? {class: "bad"} : {});
      div.append(element("dt", line.name), element("dd", line.value));
      return div;
    }));
    byId("top").parentElement.hidden = snapshot.top.length === 0;
    byId("top").replaceChildren(...snapshot.top.flatMap((limit) => {
      const table = document.createElement("table");
      const head = table.createTHead().insertRow();
      for (const name of ["Key", "Refusals, of late", "For"]) {
        head.append(element("th", name, {scope: "col"}));
      }
      const body = table.createTBody();
      for (const key of limit.keys) {
        const name = element("th", "", {scope: "row"});
        name.append(element("bdi", key.name));
        body.insertRow().append(name, element("td", key.count), element("td", key.for + " s"));
      }
      return [element("h3", limit.limit), table];
    }));
    set(byId("status"), "Live.");
  };

  const lost = () => set(byId("status"), "The service does not answer. The numbers are old.");
  const poll = async () => {
    try {
      const answer = await fetch("snapshot");
      if (!answer.ok) throw new Error(answer.statusText);
      show(await answer.json());
    } catch {
      lost();
    }
    setTimeout(poll, 2000);
  };

  // Proxies may hold events back: without one in five seconds the page asks itself.
  let polling = false;
  const events = new EventSource("events");
  const timer = setTimeout(() => { polling = true; events.close(); poll(); }, 5000);
  events.onmessage = (event) => { clearTimeout(timer); show(JSON.parse(event.data)); };
  events.onerror = () => { if (!polling) lost(); };
})();
