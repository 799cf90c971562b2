"use strict";
// What stands around the ideas: the rail, a pair's heading; the keys; the beginning.

// 01 –6– 02 –5– 03 …: a number leads to that diff, a name to the stage.
function rail(pair, isInPlace) {
  const items = DIFFS.stages.map(({ name, base, page }, n) => {
    const side = { 0: "from", 1: "to" }[pair.split("-").indexOf(name)] || "";
    const words = name.slice(2).replaceAll("_", " ");
    const label = `${name.slice(0, 2)}<span>${words}</span>`;
    const hash = base ? address(`${base}-${name}`) : "";
    const diff = isInPlace ? hash : wayTo("side_by_side.html") + hash;
    const stage = isInPlace && base ? hash : wayTo(page);
    const count = base ? countLines(DIFFS.lessons[`${base}-${name}`]) : 0;
    const from = base === DIFFS.stages[n - 1]?.name ? "" : `${base?.slice(0, 2)} `;
    const says = `${count} changed lines from ${base} to ${name}`;
    const number = `<a class="count" href="${diff}" title="${says}"
      aria-label="${says}">${from}–${count}–</a>`;
    return `<li>${base ? number : ""}<a class="stage ${side}" href="${stage}"
      aria-label="${name}">${label}</a></li>`;
  });
  const made = element("nav", "rail", `<ol>${items.join("")}</ol>`);
  made.setAttribute("aria-label", "the stages and their diffs");
  return made;
}

function heading(pair, ideas) {
  const [a, b] = pair.split("-");
  const made = element("h2", "", `From <select aria-label="from"></select> to ${b}`);
  const select = made.firstElementChild;
  const last = DIFFS.stages.findIndex(stage => stage.name === b);
  const { lesson, target } = DIFFS.stages[last];
  for (const { name } of DIFFS.stages.slice(0, last)) {
    select.add(new Option(name, name, false, name === a));
  }
  select.onchange = () => go(address(`${select.value}-${b}`));
  const slides = address(pair, place.idea, [], !place.isSlides);
  const lead = element("p", "lead", `${countLines(ideas)} changed lines: ${lesson}.
    Run it by <code>make ${target}</code>. <span class="soft"><a href="${slides}">${
    place.isSlides ? "Back from the slides" : "As slides"}</a></span>`);
  const summary = "<summary>Overview: how many lines change in each section</summary>";
  const overview = element("details", "fold overview", summary + DIFFS.overview);
  return [made, lead, overview];
}

function contents(pair, ideas) {
  const links = ideas.map(idea =>
    `<li><a href="${address(pair, idea.hunks[0].number)}">${idea.title}</a></li>`);
  return element("div", "lead", `${countLines(ideas)} changed lines from ${
    pair.split("-")[0]}:<ol>${links.join("")}</ol>`);
}

function fill(view, pair) {
  Object.assign(view, { pair, scripts: pair.split("-").map(script), cards: [] });
  const { kind } = view;
  let ideas = ideasOf(pair);
  if (kind === "part") {
    const number = Number(view.root.dataset.hunk);
    ideas = ideas.filter(idea => idea.hunks.some(hunk => hunk.number === number));
  }
  const isAlone = kind === "part" || kind === "own";
  const list = element("div", "ideas");
  const body = element("div", `body ${kind}`);
  if (!isAlone) body.append(rail(pair, kind === "full"));
  if (kind === "full") body.append(...heading(pair, ideas));
  if (kind === "head") body.append(contents(pair, ideas));
  else {
    view.cards = ideas.map((idea, n) => makeCard(view, idea, n + 1));
    list.append(...view.cards);
    if (kind === "home") {
      view.aside = element("aside", "curve");
      body.append(view.aside);
    }
    body.append(list);
  }
  if (!isAlone) body.append(wholeScript(...view.scripts));
  view.body = body;
  view.root.replaceChildren(body);
  const chip = body.querySelector(".rail .from");  // a narrow rail scrolls to it
  if (chip) chip.closest(".rail").scrollLeft = chip.offsetLeft - 12;
}

function fillFull(view) {
  const [a, b] = place.pair.split("-");
  const first = DIFFS.stages.findIndex(stage => stage.name === a);
  const last = DIFFS.stages.findIndex(stage => stage.name === b);
  if (first < 0 || first >= last) {
    place.pair = `${DIFFS.stages[0].name}-${DIFFS.stages[1].name}`;
  }
  const key = place.pair + place.isSlides;
  if (view.key !== key) fill(view, place.pair);
  view.key = key;
  const isAtStart = place.isSlides && !cardOf(view, place.idea);
  if (isAtStart) place.idea = view.cards[0].numbers[0];
  view.body.classList.remove("revealed");
}

// ---- keys

// To the next idea or the one before; on slides its reason comes first.
function goToIdea(by) {
  const view = views.find(one => one.kind !== "head");
  if (place.isSlides && by > 0 && !view.body.classList.contains("revealed")) {
    view.body.classList.add("revealed");
    return;
  }
  const cards = views.flatMap(one => one.cards);
  const now = cards.findIndex(card => card.classList.contains("current"));
  const next = cards[Math.min(Math.max(now + by, 0), cards.length - 1)];
  go(address(view.pair, next.numbers[0], place.off, place.isSlides));
}

function goToStage(by) {
  const [view] = views;
  const { stages } = DIFFS;
  const now = stages.findIndex(stage => stage.name === view.pair.split("-")[1]);
  const next = stages[Math.min(Math.max(now + by, 1), stages.length - 1)];
  if (view.kind === "full") go(address(`${next.base}-${next.name}`));
  if (view.kind === "head") location.href = wayTo(next.page);
}

addEventListener("keydown", event => {
  const isTaken = event.target.closest?.(
    "input:not([role=switch]), select, textarea, pre, .rail");
  const isCommand = event.ctrlKey || event.metaKey || event.altKey;
  if (isTaken || isCommand || !views.length) return;
  const keys = { n: [goToIdea, 1], p: [goToIdea, -1], ArrowRight: [goToStage, 1],
    ArrowLeft: [goToStage, -1] };
  const onSlides = { ArrowRight: keys.n, PageDown: keys.n, ArrowLeft: keys.p,
    PageUp: keys.p };
  const [act, by] = (place.isSlides && onSlides[event.key]) || keys[event.key] || [];
  if (!act) return;
  event.preventDefault();
  act(by);
});
addEventListener("hashchange", () => read());

for (const own of document.querySelectorAll("script.sbs-scripts")) {
  Object.assign(DIFFS.scripts, JSON.parse(own.textContent));
}
place = parseAddress();
for (const root of document.querySelectorAll(".sbs")) {
  const view = { root, kind: root.dataset.view, cards: [] };
  views.push(view);
  if (view.kind !== "full") fill(view, root.dataset.pair);
}
read();
