"use strict";
// Keeps the page up to date. The page is complete without it.
(() => {
  const root = document.documentElement;
  root.dataset.colors = localStorage.getItem("colors") ?? "";

  const set = (e, text) => {
    if (e.textContent !== String(text)) e.textContent = text;
  };

  // Shows times in the viewer's zone.
  const zone = (within) => {
    for (const time of within.querySelectorAll("time")) {
      const at = new Date(time.dateTime);
      const seconds = /:\d\d:/.test(time.textContent) ? "2-digit" : undefined;
      const day = Math.abs(Date.now() - at) > 12 * 3600e3;
      set(time, (day ? at.toLocaleDateString() + " " : "") +
        at.toLocaleTimeString([], {hour: "2-digit", minute: "2-digit", second: seconds}));
    }
  };

  // Shows what works with a script only.
  const scripted = (within) => {
    zone(within);
    for (const e of within.querySelectorAll(".script")) e.hidden = false;
    for (const e of within.querySelectorAll(".copy")) e.hidden = !navigator.clipboard; // HTTPS only
  };

  // Puts new parts of the page in place of old ones, except where the viewer is.
  const replace = (html, names) => {
    const fresh = new DOMParser().parseFromString(html, "text/html");
    scripted(fresh);
    for (const name of names) {
      const part = fresh.getElementById(name), old = document.getElementById(name);
      if (!part || !old || old.isEqualNode(part)) continue;
      if (name !== "rows" && old.matches(":hover, :focus-within")) continue;
      for (const e of old.querySelectorAll("details[open]")) {
        const again = part.querySelector("details");
        if (again) again.open = true;
      }
      if (old.open) part.open = true;
      old.replaceWith(document.adoptNode(part));
    }
    const title = document.getElementById("says")?.dataset.title;
    if (title) document.title = title;
  };
  const live = ["problems", "says", "empty", "totals", "plot", "top", "state", "numbers"];

  const load = async (names) => {
    const url = new URL(location.href);
    url.searchParams.set("part", names === live ? "now" : "list");
    const answer = await fetch(url);
    if (!answer.ok) throw new Error(answer.statusText);
    replace(await answer.text(), names);
  };

  // Shows the values of the column under the pointer, which the table has.
  const point = (event) => {
    const plot = event.target.closest?.("#plot .plot");
    document.querySelector(".tip")?.remove();
    if (!plot) return;
    const rows = plot.closest("figure").querySelectorAll("tbody tr");
    const box = plot.getBoundingClientRect();
    const share = Math.min(Math.max((event.clientX - box.left) / box.width, 0), 0.9999);
    const cells = rows[Math.floor(share * rows.length)].cells;
    const tip = document.createElement("div"), text = document.createElement("span");
    tip.className = share > 0.5 ? "tip left" : "tip";
    tip.style.left = 100 * share + "%";
    const [at, admitted, refused, undecided] = [...cells].map((c) => c.textContent.trim());
    text.textContent = `${at}: ${admitted} admitted, ${refused} refused` +
      (undecided === "0" ? "" : `, ${undecided} undecided`);
    tip.append(text);
    plot.append(tip);
  };

  const lost = () => set(document.getElementById("status"),
    "The service does not answer. The numbers are old.");

  // Shows the numbers of the list.
  let limits; // that had decided at the last tick, of which there may be none
  const show = (tick) => {
    if (tick.limits.length > limits) load(["rows"]).catch(lost); // a new one has decided
    limits = tick.limits.length;
    for (const limit of tick.limits) {
      const row = document.querySelector(`#limits tr[data-limit="${CSS.escape(limit.name)}"]`);
      if (!row) continue;
      row.querySelector("meter").value = limit.used;
      set(row.cells[2].querySelector("span"), limit.cells[0]);
      for (let i = 1; i < limit.cells.length; i++) set(row.cells[2 + i], limit.cells[i]);
      set(row.querySelector(".notes"), limit.notes);
    }
    set(document.getElementById("status"), "Live.");
  };

  const start = () => {
    scripted(document);
    const colors = document.getElementById("colors");
    colors.value = root.dataset.colors;
    colors.onchange = () => {
      root.dataset.colors = colors.value;
      localStorage.setItem("colors", colors.value);
    };
    document.addEventListener("pointermove", point);
    document.addEventListener("click", (event) => {
      const copy = event.target.closest(".copy");
      if (!copy) return;
      navigator.clipboard.writeText(copy.value).then(() => set(copy, "copied"), () => {});
    });
    if (!document.getElementById("plot")) return;
    const short = new URLSearchParams(location.search).get("range") === "1m";
    setInterval(() => document.hidden || load(live).catch(() => {}), short ? 2000 : 10000);
    const filter = document.getElementById("filter");
    if (!filter) return;

    // Filters the list as somebody types. Links keep what was typed.
    let typing = 0;
    const choose = () => {
      const url = new URL(location.href);
      for (const name of ["filter", "refusing"]) {
        const value = new FormData(filter).get(name);
        if (value) url.searchParams.set(name, value); else url.searchParams.delete(name);
      }
      history.replaceState(null, "", url);
      load(["rows", "ranges"]).catch(lost);
    };
    filter.querySelector(".plain").hidden = true;
    filter.oninput = () => { clearTimeout(typing); typing = setTimeout(choose, 150); };
    filter.onsubmit = (event) => { event.preventDefault(); choose(); };

    // The order and the charts are those of a minute ago at most, except under the pointer.
    const redraw = () => {
      const rows = document.getElementById("rows");
      if (!document.hidden && !rows.matches(":hover, :focus-within")) load(["rows", "ranges"]).catch(() => {});
    };
    setInterval(redraw, short ? 10000 : 60000);

    // Proxies may hold events back, and a connection may hang: without an event in five seconds the
    // page asks itself.
    const query = location.search;
    const poll = async () => {
      try {
        const answer = await fetch("numbers" + query);
        if (!answer.ok) throw new Error(answer.statusText);
        show(await answer.json());
      } catch {
        lost();
      }
      setTimeout(poll, 2000);
    };
    let polling = false, timer = 0;
    const events = new EventSource("events" + query);
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
  };
  document.addEventListener("DOMContentLoaded", start);
})();
