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
    here: "decided here", warned: "warned", stricter: "refused only here",
    looser: "admitted only here",
  };
  const notes = (view) => Object.keys(words).filter((k) => view[k])
    .flatMap((k) => [element("span", view[k] + " " + words[k]), " "]);

  const draw = (row) => {
    row.querySelector("img").src = "chart?name=" + encodeURIComponent(row.dataset.limit) +
      "&at=" + Date.now(); // so that it is fetched again
  };
  const rows = new Map();
  for (const row of document.querySelectorAll("#limits tbody tr")) rows.set(row.dataset.limit, row);

  const newRow = (limit) => {
    const row = element("tr", "", {"data-limit": limit.name});
    const head = element("th", "", {scope: "row"});
    head.append(element("a", limit.name, {href: "limit?name=" + encodeURIComponent(limit.name)}),
      limit.trial ? " (trial) " : " ", element("small", ""));
    row.append(head);
    for (let i = 0; i < 8; i++) row.append(element("td", ""));
    row.cells[1].append(element("img", "", {loading: "lazy", alt: ""}));
    draw(row);
    let before = null;
    for (const other of byId("limits").tBodies[0].rows) {
      if (other.dataset.limit > limit.name) { before = other; break; }
    }
    byId("limits").tBodies[0].insertBefore(row, before);
    rows.set(limit.name, row);
    return row;
  };

  let drawn = Date.now();
  const show = (snapshot) => {
    for (const limit of snapshot.limits) {
      const row = rows.get(limit.name) || newRow(limit);
      set(row.querySelector("small"), limit.rate);
      [limit.second, limit.minute, limit.quarter].forEach((view, i) => {
        set(row.cells[2 * i + 2], view.admitted);
        set(row.cells[2 * i + 3], view.refused);
      });
      row.cells[8].replaceChildren(...notes(limit.minute));
    }
    if (Date.now() - drawn > 60000) {
      drawn = Date.now();
      rows.forEach(draw);
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

  // Proxies may hold events back, and a connection may hang: without an event in five seconds the
  // page asks itself.
  let polling = false, timer = 0;
  const events = new EventSource("events");
  const ask = () => {
    if (polling) return;
    polling = true;
    events.close();
    poll();
  };
  const wait = () => {
    clearTimeout(timer);
    timer = setTimeout(ask, 5000);
  };
  wait();
  events.onmessage = (event) => { wait(); show(JSON.parse(event.data)); };
  events.onerror = () => {
    if (!polling) lost();
    if (events.readyState === EventSource.CLOSED) ask(); // an answer that is not of events
  };
})();
