"use strict";
// The rows, the threads, and the side calls of an episode (`gem_lab.eval._segments`), above its turns.

const SIDE = new Set(["sub-agent", "no tools"]); // reasons of rows beside the main conversation

// "1–4, 7" for the indices 0 to 3 and 6.
function ranges(turns) {
  const parts = [];
  for (const turn of turns) {
    const last = parts[parts.length - 1];
    if (last && last[1] === turn - 1) last[1] = turn;
    else parts.push([turn, turn]);
  }
  return parts.map(([from, to]) => (from === to ? `${from + 1}` : `${from + 1}–${to + 1}`)).join(", ");
}

function turnLink(turn, label) {
  const button = make("button", { class: "link", text: label || `turn ${turn + 1}` });
  button.addEventListener("click", () => change({ turn: String(turn + 1) }));
  return button;
}

function isSide(row, turns) {
  return SIDE.has(row.kind) || row.turns.every((turn) => turns[turn].thread !== 0);
}

// The turns of a row among all turns of the episode, so that the rows below each other show their order.
function lane(row, turns) {
  const step = Math.max(2, Math.min(10, 190 / turns.length));
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  for (const [key, value] of Object.entries({ class: "lane", width: step * turns.length, height: 14, role: "img",
    "aria-label": `Turns ${ranges(row.turns)}` })) svg.setAttribute(key, value);
  draw(svg, "rect", { x: 0, y: 6, width: step * turns.length, height: 2 });
  for (const turn of row.turns) {
    const bar = draw(svg, "rect", { x: turn * step + 0.5, y: 1, width: step - 1, height: 12, rx: 1,
      class: isSide(row, turns) ? "own side" : "own" });
    draw(bar, "title", {}, `turn ${turn + 1}`);
    bar.addEventListener("click", () => change({ turn: String(turn + 1) }));
  }
  return svg;
}

function differenceLine(difference) {
  const line = make("div", { class: "soft" }, `token ${difference.at + 1}, in the ${difference.part} of `, turnLink(difference.turn), ": ");
  const [before, was, is] = [difference.before, difference.was, difference.is].map((text) => text.replace(/\n/g, "⏎"));
  const code = make("code", {}, before);
  if (was) code.append(make("del", { text: was, title: "before" }));
  if (was && is) code.append(" → ");
  if (is) code.append(make("ins", { text: is, title: "in this row" }));
  line.append(code);
  return line;
}

function heads(...labels) {
  return make("tr", {}, ...labels.map(([text, kind]) => make("th", { text, class: kind, scope: "col" })));
}

function rowsTable(rows, turns, trainable) {
  const lines = rows.map((row, place) => {
    const why = make("td", { class: "why" }, row.why || "not known");
    if (row.about !== null) why.append(" ", make("span", { class: "once" }, "(", turnLink(row.about), ")"));
    if (row.difference) why.append(differenceLine(row.difference));
    return make("tr", { "data-row": place, "data-kind": row.kind },
      make("td", { class: "number", text: place + 1 }), make("td", {}, lane(row, turns)),
      make("td", { class: "turns", text: ranges(row.turns) }),
      make("td", { class: "number", text: row.prompt }), make("td", { class: "number", text: row.sampled }),
      make("td", { class: "number", text: row.between }), why);
  });
  const sampled = rows.reduce((sum, row) => sum + row.sampled, 0), all = rows.reduce((sum, row) => sum + row.prompt + row.sampled + row.between, 0);
  return make("div", { id: "segments" },
    make("h3", { text: `${rows.length} ${trainable ? "training rows" : "rows, which are not trained"}` }),
    make("div", { class: "wide" }, make("table", {}, make("thead", {}, heads(["row", "number"], [""], ["turns"], ["prompt", "number"], ["sampled", "number"],
      ["between", "number"], ["why it was opened", "why"])), make("tbody", {}, ...lines))),
    make("p", { class: "soft", text: `${all} tokens, ${sampled} of them sampled. Each sampled token is trained in one row.` }));
}

function threadsTable(threads) {
  const turnCell = (turn, none) => make("td", {}, turn === null ? make("span", { class: "soft", text: none }) : turnLink(turn));
  const lines = threads.map((thread) => make("tr", { "data-thread": thread.number },
    make("td", { class: "number", text: thread.number }),
    make("td", { class: "turns", text: ranges(thread.turns) || "–" }),
    turnCell(thread.called_by, "–"), turnCell(thread.returns_to, "–"),
    make("td", { class: "why", text: thread.kind + (thread.independent ? ", independent" : "") })));
  return make("div", { id: "threads" }, make("h3", { text: "Threads" }),
    make("div", { class: "wide" }, make("table", {},
      make("thead", {}, heads(["thread", "number"], ["turns"], ["called by"], ["returns to"], ["what it is", "why"])),
      make("tbody", {}, ...lines))));
}

function asideTable(aside) {
  const lines = aside.map((entry) => {
    const more = [entry.code, entry.tokens && `${entry.tokens} tokens`, entry.count > 1 && `${entry.count} times`].filter(Boolean);
    return make("tr", { "data-aside": entry.what },
      make("td", { class: "once", text: entry.what }), make("td", {}, entry.after ? turnLink(entry.after - 1) : "the start"),
      make("td", { class: "soft", text: more.join(", ") }), make("td", { class: "why", text: entry.why ?? entry.text ?? "" }));
  });
  return make("div", { id: "aside" }, make("h3", { text: "Not trained" }), make("div", { class: "wide" }, make("table", {},
    make("thead", {}, heads(["what"], ["after"], [""], ["text", "why"])), make("tbody", {}, ...lines))));
}

function harnessBar({ counts, error }) {
  const own = (counts.recognized || 0) + (counts.spliced || 0), all = own + (counts.foreign || 0);
  const bar = make("div", { class: "bar", id: "harness" }, make("span", { class: "soft", text: "agent" }),
    chip("calls", format(counts.calls)), chip("answers recognized", `${own} of ${all}`, own < all ? "bad" : ""));
  if (counts.spliced) bar.append(chip("in a rewritten history", counts.spliced));
  bar.append(chip("rows", format(counts.rows)));
  for (const [key, label] of [["foreign", "foreign answers"], ["lost", "lost"], ["refused", "refused"], ["replayed", "repeated requests"]]) {
    if (counts[key]) bar.append(chip(label, counts[key], key === "foreign" || key === "lost" ? "bad" : ""));
  }
  if ((counts.unserved || []).length) bar.append(chip("no effect", counts.unserved.join(", ")));
  if (error) bar.append(chip("agent failed", error, "bad"));
  return bar;
}

function segmentParts(segments, turns, trainable) {
  if (!segments) return [];
  const parts = [];
  if (segments.harness) parts.push(harnessBar(segments.harness));
  if (segments.rows.length > 1) parts.push(rowsTable(segments.rows, turns, trainable));
  if (segments.threads.length) parts.push(threadsTable(segments.threads));
  if (segments.harness && segments.harness.aside.length) parts.push(asideTable(segments.harness.aside));
  return parts;
}

// What the card of a turn says of its row and its thread.
function segmentChips(segments, turns, number) {
  if (!segments) return [];
  const chips = [], turn = turns[number];
  const place = segments.rows.length > 1 ? segments.rows.findIndex((row) => row.turns.includes(number)) : -1;
  if (place >= 0) {
    const row = segments.rows[place], first = row.turns[0] === number;
    const node = chip(first ? "begins row" : "row", place + 1);
    if (first) node.title = row.why;
    chips.push(node);
    if (!first && turn.parent !== -1 && turn.parent !== null) chips.push(chip("continues turn", number + turn.parent + 1));
  }
  const thread = turn.thread && segments.threads.find((one) => one.number === turn.thread);
  if (thread) chips.push(chip(`thread ${thread.number}`, thread.kind));
  return chips;
}

function isSideTurn(segments, turns, number) {
  return Boolean(segments) && segments.rows.some((row) => row.turns.includes(number) && isSide(row, turns));
}
