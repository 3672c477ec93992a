"use strict";
// The page of one trace. Everything from the trace reaches the document as text or as an element of a
// fixed set, never as markup. The address (#episode=3&q=...) determines the view, so views can be linked.

const byId = (id) => document.getElementById(id);
const block = (id) => byId("data-" + id).textContent;

window.addEventListener("error", (event) => {
  byId("failure").hidden = false;
  byId("failure").textContent = "This page failed: " + event.message;
});

const { name, about, episodes } = JSON.parse(block("index"));
const vocabulary = JSON.parse(block("vocabulary"));
// One line of JSON per episode, parsed when the episode is opened: a trace may hold thousands.
const textLines = block("texts").trim().split("\n");
const turnLines = block("turns").trim().split("\n");
const segmentLines = block("segments").trim().split("\n");
let lowerTexts = null;
// A common prefix such as "game:" would leave less space for the parts that distinguish the ids.
const withoutFolder = (env) => env.replace(/^[^(]*[\\/](?=[^(\\/]+\.py:)/, "") || "(no id)";
const families = new Set(episodes.map((episode) => withoutFolder(episode.env).split(":")[0] + ":"));
const family = families.size === 1 ? [...families][0] : "";
const shortName = (env) => {
  const name = withoutFolder(env);
  return (name.startsWith(family) && name.slice(family.length)) || name;
};

const PAGE = 200; // rows added to the list at a time
const hasRuns = episodes.some((episode) => episode.run); // several evaluations in one page
const hasSteps = episodes.some((episode) => episode.step !== null);
const FILTERS = ["q", "run", "env", "step", "stop", "success"]; // controls with these ids
const COLUMNS = [
  { key: "number", label: "#", numeric: true },
  ...(hasRuns ? [{ key: "run", label: "run" }] : []),
  { key: "env", label: "environment" },
  ...(hasSteps ? [{ key: "step", label: "step", numeric: true }] : []),
  { key: "seed", label: "seed", numeric: true },
  { key: "return", label: "return", numeric: true },
  { key: "turns", label: "turns", numeric: true },
  { key: "success", label: "✓", title: "Solved" },
  { key: "stop", label: "stopped by" },
];
const DEFAULTS = {
  episode: "0", turn: "", q: "", run: "", env: "", step: "", stop: "", success: "", sort: "number", tokens: "", markdown: "",
  theme: "",
};
let state = { ...DEFAULTS };
let shown = []; // numbers of the episodes that pass the filters, in order
let rendered = 0;
let scrolledRow = 0; // episode whose row was scrolled into view
let scrolledTurn = ""; // turn that was scrolled into view
let openNumber = null; // episode shown on the right, so that typing does not rebuild it

function make(tag, attributes, ...children) {
  const node = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === null || value === undefined || value === false) continue;
    if (key === "class") node.className = value;
    else if (key === "text") node.textContent = value;
    else node.setAttribute(key, value);
  }
  node.append(...children);
  return node;
}

function format(value, signed) {
  if (value === null || value === undefined) return "–";
  if (typeof value !== "number") return String(value); // NaN and infinities are encoded as text
  const text = Number.isInteger(value) ? String(value) : String(+value.toFixed(3));
  return (signed && value > 0 ? "+" : "") + text.replace("-", "−");
}

// -- state in the address ----------------------------------------------------------------------

function readAddress() {
  state = { ...DEFAULTS };
  for (const [key, value] of new URLSearchParams(location.hash.slice(1))) {
    if (key in DEFAULTS) state[key] = value;
  }
}

function change(update) {
  const next = { ...state, ...update };
  const address = new URLSearchParams();
  for (const key of Object.keys(DEFAULTS)) if (next[key] !== DEFAULTS[key]) address.set(key, next[key]);
  history.replaceState(null, "", "#" + address);
  render();
}

// -- the list ----------------------------------------------------------------------------------

// Escape the query like the JSON lines, so that a search does not have to parse them. Convert to lower case
// last, so that only ASCII letters change, as in the lines.
function escaped(text) {
  const hex = (c) => "\\u" + c.charCodeAt(0).toString(16).padStart(4, "0");
  return JSON.stringify(text).slice(1, -1).replace(/[<>&\u0080-\uffff]/g, hex).toLowerCase();
}

function matches(number, needle, plain) {
  const episode = episodes[number];
  if (state.run && episode.run !== state.run) return false;
  if (state.env && episode.env !== state.env) return false;
  if (state.step && String(episode.step) !== state.step) return false;
  if (state.stop && episode.stop !== state.stop) return false;
  if (state.success && episode.success !== (state.success === "yes")) return false;
  if (!plain) return true;
  const facts = `${episode.env} ${episode.seed ?? ""} ${episode.error ?? ""}`.toLowerCase();
  return facts.includes(plain) || lowerTexts[number].includes(needle);
}

function compare(a, b) {
  const key = state.sort.replace(/^-/, "");
  const direction = state.sort.startsWith("-") ? -1 : 1;
  const [x, y] = key === "number" ? [a, b] : [episodes[a][key], episodes[b][key]];
  if (x === y) return a - b;
  if (x === null || y === null) return x === null ? 1 : -1; // episodes without a seed come last
  if (typeof x !== typeof y) return typeof x === "string" ? 1 : -1;
  return (x < y ? -1 : 1) * direction;
}

function renderList() {
  const plain = state.q.trim().toLowerCase();
  if (plain && lowerTexts === null) lowerTexts = textLines.map((line) => line.toLowerCase());
  const needle = escaped(state.q.trim());
  shown = episodes.map((_, number) => number).filter((number) => matches(number, needle, plain)).sort(compare);
  rendered = 0;
  byId("body").replaceChildren();
  byId("rows").scrollTop = 0;
  addRows();
  for (const column of COLUMNS) {
    const sorted = state.sort.replace(/^-/, "") === column.key;
    const head = byId("column-" + column.key);
    head.setAttribute("aria-sort", sorted ? (state.sort.startsWith("-") ? "descending" : "ascending") : "none");
    head.querySelector(".arrow").textContent = sorted ? (state.sort.startsWith("-") ? "↓" : "↑") : "";
  }
}

function addRows() {
  const rows = shown.slice(rendered, rendered + PAGE).map(row);
  byId("body").append(...rows);
  rendered += rows.length;
  const left = shown.length - rendered;
  byId("more").textContent = left ? `${left} more` : shown.length ? "" : "No episode matches.";
  // The observer does not fire while the sentinel stays in view, so check again after the next layout.
  if (left) requestAnimationFrame(() => { observer.unobserve(byId("more")); observer.observe(byId("more")); });
}

const observer = new IntersectionObserver((entries) => {
  if (entries.some((entry) => entry.isIntersecting) && rendered < shown.length) addRows();
}, { root: byId("rows"), rootMargin: "400px" });

function row(number) {
  const episode = episodes[number];
  const solved = episode.success ? make("span", { class: "good", text: "✓", title: "solved" }) : make("span", { class: "soft", text: "·" });
  const failed = !episode.trainable;
  return make("tr", { "data-number": number, "aria-selected": String(number === openNumber) },
    make("td", { class: "number soft", text: number }),
    ...(hasRuns ? [make("td", { class: "run", text: episode.run, title: episode.run })] : []),
    make("td", { class: "env", text: shortName(episode.env), title: episode.env }),
    ...(hasSteps ? [make("td", { class: "number step", text: format(episode.step) })] : []),
    make("td", { class: "number seed", text: format(episode.seed) }),
    make("td", { class: "number", text: format(episode.return) }),
    make("td", { class: "number", text: episode.turns }),
    make("td", {}, solved),
    make("td", { class: failed ? "stop bad" : "stop", text: episode.stop }));
}

// -- the header --------------------------------------------------------------------------------

function renderSummary() {
  const chosen = shown.map((number) => episodes[number]);
  const mean = (values) => values.length ? values.reduce((a, b) => a + b, 0) / values.length : null;
  const returns = chosen.map((episode) => episode.return).filter((value) => typeof value === "number");
  const success = mean(chosen.map((episode) => Number(episode.success)));
  const pooled = new Set(chosen.map((episode) => episode.run)).size > 1; // a mean over several runs means nothing
  const facts = [
    ["episodes", chosen.length === episodes.length ? chosen.length : `${chosen.length} of ${episodes.length}`],
    ...(pooled ? [] : [
      ["mean return", format(mean(returns))],
      ["success", success === null ? "–" : `${+(100 * success).toFixed(1)}%`],
      ["mean turns", format(mean(chosen.map((episode) => episode.turns)))],
    ]),
    ["not trainable", chosen.filter((episode) => !episode.trainable).length],
  ];
  byId("facts").replaceChildren(...facts.map(([label, value]) =>
    make("div", {}, make("dt", { text: label }), make("dd", { text: value, "data-fact": label }))));
  renderHistogram(pooled ? [] : returns);
}

function draw(parent, tag, attributes, text) {
  const node = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
  if (text !== undefined) node.textContent = text;
  parent.append(node);
  return node;
}

function renderHistogram(values) {
  const svg = byId("histogram");
  svg.replaceChildren();
  svg.toggleAttribute("hidden", !values.length);
  if (!values.length) return;
  const low = values.reduce((a, b) => Math.min(a, b)), high = values.reduce((a, b) => Math.max(a, b));
  const count = low === high ? 1 : 20, width = 260, base = 42;
  const bins = new Array(count).fill(0);
  const span = high - low || 1;
  for (const value of values) bins[Math.min(count - 1, Math.floor(((value - low) / span) * count))] += 1;
  const top = Math.max(...bins);
  svg.setAttribute("aria-label", `Histogram of ${values.length} returns from ${format(low)} to ${format(high)}`);
  bins.forEach((size, bin) => {
    const height = size ? Math.max(2, (size / top) * (base - 4)) : 0;
    const from = low + (span * bin) / count, to = low + (span * (bin + 1)) / count;
    const bar = draw(svg, "rect", { x: (bin * width) / count + 0.5, width: width / count - 1, y: base - height, height, rx: 1,
      class: to <= 0 && from < 0 ? "minus" : "" });
    draw(bar, "title", {}, count === 1 ? `${format(low)}: ${size}` : `${format(from)} to ${format(to)}: ${size}`);
  });
  draw(svg, "line", { x1: 0, x2: width, y1: base + 0.5, y2: base + 0.5 });
  draw(svg, "text", { x: 0, y: base + 13 }, format(low));
  draw(svg, "text", { x: width / 2, y: base + 13, "text-anchor": "middle" }, "return");
  draw(svg, "text", { x: width, y: base + 13, "text-anchor": "end" }, format(high));
}

// -- one episode -------------------------------------------------------------------------------

function marked(text) {
  const plain = state.q.trim().toLowerCase(), lower = text.toLowerCase();
  if (!plain || lower.length !== text.length) return [document.createTextNode(text)];
  const nodes = [];
  let start = 0;
  for (let at; (at = lower.indexOf(plain, start)) >= 0; start = at + plain.length) {
    nodes.push(document.createTextNode(text.slice(start, at)));
    nodes.push(make("mark", { text: text.slice(at, at + plain.length) }));
  }
  nodes.push(document.createTextNode(text.slice(start)));
  return nodes;
}

function chip(label, value, kind) {
  return make("span", { class: "chip " + (kind || "") }, label + " ", make("b", { text: value }));
}

// Elements and attributes that a tree of `gem_lab.eval._markup` may name; anything else becomes a plain span.
const HTML = new Set("p h1 h2 h3 h4 h5 h6 ul ol li blockquote pre code em strong s hr br table thead tbody tr th td a".split(" "));
const MATH = new Set(("math mrow mi mn mo mtext mspace ms mfrac msqrt mroot msub msup msubsup munder mover munderover mtable mtr " +
  "mtd mstyle mpadded mphantom menclose mfenced merror").split(" "));
const MATH_NAMESPACE = "http://www.w3.org/1998/Math/MathML";

function element(tree) {
  if (typeof tree === "string") return marked(tree);
  const [tag, attributes, ...children] = tree;
  const node = MATH.has(tag) ? document.createElementNS(MATH_NAMESPACE, tag) : document.createElement(HTML.has(tag) ? tag : "span");
  for (const [key, value] of Object.entries(attributes || {})) {
    const isLink = key === "href" && tag === "a" && /^https?:\/\//i.test(value);
    if (isLink || (key === "start" && tag === "ol") || (MATH.has(tag) && !/^(on|href|style|src|xlink)/i.test(key))) node.setAttribute(key, value);
    if (isLink) node.rel = "noopener noreferrer";
  }
  node.append(...children.flatMap(element));
  return [node];
}

function shownText(text, trees) {
  return state.markdown && trees ? make("div", { class: "markdown" }, ...trees.flatMap(element)) : make("pre", {}, ...marked(text));
}

function advantageChip(value, scale) {
  const node = chip("advantage", format(value, true), "advantage");
  if (typeof value === "number") {
    const strength = scale ? Math.min(1, Math.abs(value) / scale) : 0;
    const color = value < 0 ? "var(--minus-bar)" : "var(--plus-bar)";
    node.style.background = `color-mix(in srgb, ${color} ${Math.round(12 + 58 * strength)}%, transparent)`;
    if (value === 0) node.style.background = "var(--context)";
    node.title = `${value} (strongest color of this page: ${format(scale)})`;
  }
  return node;
}

function tokenSpans(ids, logprobs, kind) {
  return ids.map((id, place) => {
    const text = vocabulary[id];
    const logprob = logprobs ? logprobs[place] : null;
    const chance = typeof logprob === "number" ? `, log-prob ${format(logprob)}, p ${Math.exp(logprob).toFixed(3)}` : "";
    return make("span", { class: kind, title: `token ${id}${chance}`, text: text === undefined ? `⟨${id}⟩` : text });
  });
}

function turnCard(number, texts, turns, segments) {
  const [observation, response, action] = texts, turn = turns[number];
  const bar = make("div", { class: "bar" }, make("h3", { text: `Turn ${number + 1}` }),
    chip("reward", format(turn.reward, true)), chip("return-to-go", format(turn.return_to_go, true)),
    ...(about.max_advantage === null ? [] : [advantageChip(turn.advantage, about.max_advantage)]));
  bar.append(...segmentChips(segments, turns, number));
  if (turn.info.invalid) bar.append(chip("invalid", turn.info.invalid, "bad"));
  const counted = turn.info.reply || {}; // token counts from an endpoint, which returns no tokens
  const given = turn.response_ids.length || counted.response_tokens || 0;
  if (turn.finish_reason === "length") bar.append(chip("cut at", `${given} tokens`, "bad"));
  const prompt = turn.context_ids.length || counted.prompt_tokens || 0;
  if (prompt || given) {
    bar.append(make("span", { class: "space" }), make("span", { class: "soft", text: `${prompt} + ${given} tokens` }));
  }
  const card = make("article", { class: isSideTurn(segments, turns, number) ? "turn side" : "turn" }, bar);
  const shownParts = make("div", { class: "part observation" }, make("h4", { text: "observation" }),
    shownText(observation, turn.markup[0]));
  for (const image of turn.images) shownParts.append(make("img", { src: image, alt: "image of the observation" }));
  const answer = make("div", { class: "part response" }, make("h4", { text: "response" }), shownText(response, turn.markup[1]));
  if (action !== null) {
    answer.append(make("h4", { text: "action that reached the environment" }),
      make("pre", { class: action ? "" : "soft" }, ...(action ? marked(action) : ["(empty)"])));
  }
  card.append(shownParts, answer);
  if (state.tokens) {
    card.append(make("div", { class: "part" }, make("h4", { text: "tokens" }), make("pre", { class: "tokens" },
      ...tokenSpans(turn.context_ids, null, "context"), ...tokenSpans(turn.response_ids, turn.logprobs, "response"))));
  }
  if (Object.keys(turn.info).length) {
    card.append(make("details", {}, make("summary", { text: "info" }),
      make("pre", { text: JSON.stringify(turn.info, null, 2) })));
  }
  for (const image of turn.final_images) card.append(make("img", { src: image, alt: "image of the last observation" }));
  return card;
}

function rewardStrip(turns) {
  const rewards = turns.map((turn) => (typeof turn.reward === "number" ? turn.reward : 0));
  const top = Math.max(...rewards.map(Math.abs)) || 1, step = Math.max(3, Math.min(18, 700 / turns.length));
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  const width = step * turns.length, middle = 17;
  for (const [key, value] of Object.entries({ class: "strip", width, height: 2 * middle, role: "img",
    "aria-label": `Rewards of ${turns.length} turns` })) svg.setAttribute(key, value);
  draw(svg, "line", { x1: 0, x2: width, y1: middle, y2: middle });
  rewards.forEach((reward, place) => {
    const height = reward ? Math.max(2, (Math.abs(reward) / top) * (middle - 2)) : 1;
    const bar = draw(svg, "rect", { x: place * step + 0.5, width: step - 1, y: reward < 0 ? middle : middle - height, height,
      class: reward < 0 ? "minus" : "" });
    draw(bar, "title", {}, `turn ${place + 1}: reward ${format(turns[place].reward, true)}`);
    bar.addEventListener("click", () => change({ turn: String(place + 1) }));
  });
  return svg;
}

function renderEpisode() {
  const number = Number(state.episode);
  const pane = byId("episode");
  if (!(number in episodes)) {
    openNumber = null;
    pane.replaceChildren(make("p", { class: "soft", text: episodes.length ? `There is no episode ${state.episode}.` : "The trace contains no episodes." }));
    return;
  }
  const episode = episodes[number];
  const texts = JSON.parse(textLines[number]), turns = JSON.parse(turnLines[number]), segments = JSON.parse(segmentLines[number]);
  const tokens = turns.reduce((sum, turn) => sum + (turn.response_ids.length || (turn.info.reply || {}).response_tokens || 0), 0);
  const step = (label, offset) => {
    const button = make("button", { text: label, title: offset < 0 ? "Previous (k)" : "Next (j)" });
    button.addEventListener("click", () => move(offset));
    return button;
  };
  const toggle = make("button", { id: "tokens", "aria-pressed": String(Boolean(state.tokens)), text: "tokens", title: "Show tokens (t)" });
  toggle.addEventListener("click", () => change({ tokens: state.tokens ? "" : "1" }));
  const markdown = make("button", { id: "markdown", "aria-pressed": String(Boolean(state.markdown)), text: "markdown",
    title: "Render Markdown and formulas (m)" });
  markdown.addEventListener("click", () => change({ markdown: state.markdown ? "" : "1" }));
  markdown.hidden = !turns.some((turn) => turn.markup.some(Boolean));
  const chips = make("div", { class: "bar" },
    chip("return", format(episode.return)), chip("turns", episode.turns),
    ...(tokens ? [chip("sampled tokens", tokens)] : []), chip("stopped by", episode.stop), chip("solved", episode.success ? "yes" : "no", episode.success ? "good" : ""));
  chips.append(chip("discount", format(episode.gamma)));
  if (!episode.trainable) chips.append(chip("trainable", "no", "bad"));
  if (episode.mode !== "append") chips.append(chip("context", episode.mode));
  for (const [key, value] of Object.entries({ ...episode.kwargs, ...episode.metadata })) {
    if (value === episode.env) continue; // it is in the heading
    chips.append(chip(key, typeof value === "string" ? value : JSON.stringify(value)));
  }
  pane.replaceChildren(
    make("div", { class: "bar" }, make("h2", { text: `Episode ${number}: ${withoutFolder(episode.env)}`, title: episode.env }),
      make("span", { class: "soft", text: episode.seed === null ? "" : `seed ${episode.seed}` }),
      make("span", { class: "space" }),
      make("span", { class: "buttons" }, markdown, toggle, step("‹", -1), step("›", 1))),
    chips);
  if (episode.error) pane.append(make("p", { class: "bad", text: episode.error }));
  if (state.tokens) {
    pane.append(make("p", { class: "soft" }, make("span", { class: "key context" }), " context (masked)  ",
      make("span", { class: "key response" }), " response (trained; point at a token for its log-prob)",
      about.has_vocabulary ? "" : ". The trace contains no token texts; pass --tokenizer to see them."));
  }
  if (turns.length > 1) pane.append(rewardStrip(turns));
  pane.append(...segmentParts(segments, turns, episode.trainable));
  pane.append(...turns.map((_, place) => turnCard(place, texts[place], turns, segments)));
  if (number !== openNumber) pane.scrollTop = 0;
  openNumber = number;
  scrolledTurn = "";
}

function move(offset) {
  const place = shown.indexOf(openNumber);
  const next = shown[place < 0 ? 0 : place + offset];
  if (next !== undefined) change({ episode: String(next), turn: "" });
}

// -- assembly ----------------------------------------------------------------------------------

let listKey = null; // the part of the state that the list depends on
let episodeKey = null;

function render() {
  readAddress();
  document.documentElement.dataset.theme = state.theme;
  for (const id of FILTERS) if (byId(id).value !== state[id]) byId(id).value = state[id];
  const nextEpisode = JSON.stringify([state.episode, state.tokens, state.markdown, state.q]);
  if (nextEpisode !== episodeKey) renderEpisode();
  episodeKey = nextEpisode;
  const nextList = JSON.stringify([...FILTERS.map((id) => state[id]), state.sort]);
  if (nextList !== listKey) {
    renderList();
    renderSummary();
  }
  listKey = nextList;
  while (rendered < shown.length && shown.indexOf(openNumber) >= rendered) addRows(); // so that its row can be seen
  for (const line of byId("body").children) {
    const selected = Number(line.dataset.number) === openNumber;
    if (selected && scrolledRow !== openNumber) line.scrollIntoView({ block: "nearest" });
    line.setAttribute("aria-selected", String(selected));
  }
  scrolledRow = openNumber;
  const card = document.querySelectorAll("#episode .turn")[Number(state.turn) - 1];
  if (card && scrolledTurn !== state.turn) card.scrollIntoView();
  scrolledTurn = state.turn;
}

function options(select, label, key) {
  const counts = new Map();
  for (const episode of episodes) counts.set(episode[key], (counts.get(episode[key]) || 0) + 1);
  select.append(make("option", { value: "", text: label }));
  const inOrder = ([a], [b]) => (typeof a === "number" && typeof b === "number" ? a - b : String(a) < String(b) ? -1 : 1);
  for (const [value, count] of [...counts].sort(inOrder)) {
    if (value === null) continue;
    select.append(make("option", { value, text: `${key === "step" ? "step " : ""}${key === "env" ? withoutFolder(value) : value} (${count})` }));
  }
}

byId("name").textContent = name;
byId("about").textContent = about.text;
options(byId("run"), "all runs", "run");
byId("run").hidden = !hasRuns;
options(byId("env"), "all environments", "env");
options(byId("step"), "all steps", "step");
byId("step").hidden = !hasSteps;
options(byId("stop"), "any stop reason", "stop");
for (const column of COLUMNS) {
  const button = make("button", { title: column.title }, column.label, make("span", { class: "arrow" }));
  button.addEventListener("click", () => change({ sort: state.sort === column.key ? "-" + column.key : column.key }));
  byId("columns").append(make("th", { id: "column-" + column.key, class: `${column.numeric ? "number " : ""}${column.key}`, scope: "col" }, button));
}
for (const id of FILTERS) byId(id).addEventListener("input", (event) => change({ [id]: event.target.value }));
byId("body").addEventListener("click", (event) => {
  const line = event.target.closest("tr");
  if (line) change({ episode: line.dataset.number, turn: "" });
});
byId("theme").addEventListener("click", () => {
  const dark = state.theme ? state.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
  change({ theme: dark ? "light" : "dark" });
});
document.addEventListener("keydown", (event) => {
  if (event.target.matches("input, select") || event.ctrlKey || event.metaKey || event.altKey) return;
  if (event.key === "j" || event.key === "k") move(event.key === "j" ? 1 : -1);
  if (event.key === "t") change({ tokens: state.tokens ? "" : "1" });
  if (event.key === "m") change({ markdown: state.markdown ? "" : "1" });
});

// In a report, the episodes are below the comparison, where a link to an episode would go unnoticed.
function showEpisodes() {
  const linked = new URLSearchParams(location.hash.slice(1)).has("episode");
  if (byId("comparison") && linked) document.querySelector("main").scrollIntoView();
}

window.addEventListener("hashchange", () => { render(); showEpisodes(); });
observer.observe(byId("more"));
showEpisodes();
render();
