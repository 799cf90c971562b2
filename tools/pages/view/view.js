"use strict";
// A diff as a part of a page. Each element of class `sbs` becomes one; its data-view is
// full   any pair, by a rail and the address: #04_ddp.7 or #03_dp-06_model_parallel
// home   the front page's, with the curve beside it
// head   the rail on a stage's page, and its ideas
// part   one idea of data-pair, that of the hunk data-hunk, without its reason
// own    data-pair, all ideas
// In the address, &off=set_epoch switches an idea off, #slides=04_ddp is for a projector.

const stages = DIFFS.stages;
const views = [];
const parsed = new Map();  // a script's name -> what parseScript returns
const answered = new Map();  // a switch -> what was guessed, "" where nobody had to
let place = null, lastHash = null;

function script(name) {
  if (!parsed.has(name)) parsed.set(name, parseScript(DIFFS.scripts[name]));
  return parsed.get(name);
}

function baseOf(name) {
  return stages.find(stage => stage.name === name)?.base;
}

// The way from this page to a file of the repository, or to the site's page of it.
function wayTo(file) {
  const root = document.documentElement.dataset.content_root ?? DIFFS.root;
  return root + file.replace(/\.md(?=#|$)/, DIFFS.suffix);
}

function withLinks(made) {
  for (const link of made.querySelectorAll("a[data-file]")) {
    link.href = wayTo(link.dataset.file);
  }
  return made;
}

// ---- the address

function address(pair, idea = 0, off = [], slides = false) {
  const [a, b] = pair.split("-");
  const known = baseOf(b) === a ? b : pair;
  const names = [...off].map(encodeURIComponent).join("|");
  return `#${slides ? "slides=" : ""}${known}${idea ? `.${idea}` : ""}` +
    (names && `&off=${names}`);
}

function parseAddress() {
  const [where, off = ""] = location.hash.slice(1).split("&off=");
  const [, slides, name, idea] = /^(slides=)?([^.]*)\.?(\d*)/.exec(where);
  const pair = baseOf(name) ? `${baseOf(name)}-${name}` : name;
  const names = off.split(/\||%7C/).filter(Boolean).map(decodeURIComponent);
  return { pair, idea: Number(idea), slides: Boolean(slides), off: new Set(names) };
}

function go(hash, scroll = true) {
  location.hash = hash;
  read(scroll);  // now: the event of the new hash comes later than the next key
}

function read(scroll = true) {
  if (location.hash === lastHash) return;
  lastHash = location.hash;
  place = parseAddress();
  document.documentElement.classList.toggle("slides", place.slides);
  for (const view of views) {
    if (view.kind === "full") fillFull(view);
    update(view);
    const target = view.pair === place.pair && cardOf(view, place.idea);
    if (scroll && target) {
      target.focus({ preventScroll: true });
      target.scrollIntoView({ block: place.slides ? "nearest" : "start" });
    }
  }
}

// ---- ideas

function path(name) {
  return baseOf(name) ? [...path(baseOf(name)), `${baseOf(name)}-${name}`] : [];
}

function lesson(pair, undone) {
  const [a, b] = pair.split("-").map(script);
  return { a, b, undone, ideas: DIFFS.lessons[pair], link: address(pair) };
}

function ideasOf(pair) {
  const [a, b] = pair.split("-");
  if (pair === DIFFS.front.pair) return DIFFS.front.ideas;
  if (DIFFS.lessons[pair]) return DIFFS.lessons[pair];
  if (DIFFS.lessons[`${b}-${a}`]) return turned(DIFFS.lessons[`${b}-${a}`]);
  const [back, forth] = [path(a), path(b)];
  return borrowed(script(a), script(b), [
    ...back.filter(one => !forth.includes(one)).reverse().map(one => lesson(one, true)),
    ...forth.filter(one => !back.includes(one)).map(one => lesson(one, false))]);
}

function countLines(ideas) {
  const all = ideas.flatMap(idea => idea.hunks).flatMap(hunk => hunk.stretches);
  return all.reduce((sum, [i1, i2, j1, j2]) => sum + i2 - i1 + j2 - j1, 0);
}

function reason(idea) {
  const why = withLinks(element("div", "why", idea.why));
  if (idea.of) {
    const words = idea.of.undone ? "Undoes" : "From";
    why.prepend(element("p", "soft",
      `${words} <a href="${idea.of.link}">${idea.of.link.slice(1)}</a>:`));
  } else if (idea.undone) why.prepend(element("p", "soft", "Read the other way round:"));
  const made = element("div", "reason");
  const more = element("button", "more", "more");
  more.setAttribute("aria-expanded", "false");
  more.onclick = () => {
    const isOpen = made.classList.toggle("open");
    more.textContent = isOpen ? "less" : "more";
    more.setAttribute("aria-expanded", isOpen);
  };
  made.append(why, more);
  new ResizeObserver(() => {  // three lines or fewer have no more
    const fits = why.scrollHeight <= why.clientHeight + 2;
    more.hidden = fits && !made.classList.contains("open");
  }).observe(why);
  return made;
}

// The section of one idea; n counts from 1.
function makeCard(view, idea, n) {
  const made = element("section", idea.plumbing ? "idea plumbing" : "idea");
  const own = idea.hunks.map(hunk => hunk.number);
  made.numbers = view.kind === "home" ? [n] : own;
  made.tabIndex = -1;
  const title = element("h3", "", idea.title);
  title.id = `idea-${views.length}-${n}`;
  made.setAttribute("aria-labelledby", title.id);
  const number = `<a href="${address(view.pair, made.numbers[0])}">${n}</a> `;
  title.insertAdjacentHTML("afterbegin", number);
  const all = idea.hunks.flatMap(hunk => hunk.stretches);
  const lines = twoColumns(...view.scripts, all, view.kind !== "home");
  if (view.kind === "part") made.append(lines);
  else if (idea.plumbing) {
    const fold = element("details", "fold");
    const summary = element("summary", "", `${countLines([idea])} lines`);
    summary.prepend(title);
    fold.append(summary, lines);
    if (idea.why) fold.append(reason(idea));
    made.append(fold);
  } else {
    made.append(title, lines);
    if (idea.why) made.append(reason(idea));
  }
  addSwitches(view, made, idea, own);
  return made;
}

function cardOf(view, number) {
  return view.cards.find(card => card.numbers.includes(number));
}

// ---- switches

function switchesOf(view, idea, numbers) {
  const [a, b] = view.pair.split("-");
  return DIFFS.switches.filter(one => one.stage === b && (baseOf(b) === a
    ? numbers.includes(one.hunk) : view.kind === "home" && idea.title === one.step));
}

function addSwitches(view, card, idea, numbers) {
  card.switches = switchesOf(view, idea, numbers);
  if (!card.switches.length) return;
  const made = element("div", "switches");
  for (const one of card.switches) {
    const button = element("button", "switch", `<i></i><span>${one.title}</span>`);
    button.setAttribute("role", "switch");
    button.onclick = () => {
      answered.delete(one);
      if (!place.off.delete(one.name)) {
        place.off.add(one.name);
        answered.set(one, null);  // not yet
      }
      go(address(view.pair, card.numbers[0], place.off, place.slides), false);
    };
    made.append(button);
  }
  card.told = element("div", "told");
  card.told.setAttribute("aria-live", "polite");
  card.append(made, card.told);
}

function guess(view, one) {
  const made = element("p", "guess", `${one.title}: what happens? `);
  for (const [kind, words] of Object.entries(GUESSES)) {
    const button = element("button", "", words);
    button.onclick = () => {
      answered.set(one, kind);
      update(view);
    };
    made.append(button);
  }
  return made;
}

// Strike what is off through, and say what stands there instead.
function strike(card, one) {
  for (const line of one.struck) {
    card.querySelector(`.l.right[data-line="${line}"]`)?.classList.add("off");
  }
  const lines = one.instead.map(line => `<code>${escaped(line)}</code>`).join("");
  return element("div", "instead", lines && `instead: <div>${lines}</div>`);
}

function update(view) {
  const shown = [];
  for (const card of view.cards) {
    card.classList.toggle("current", cardOf(view, place.idea) === card);
    if (!card.told) continue;
    for (const line of card.querySelectorAll(".off")) line.classList.remove("off");
    const off = card.switches.filter(one => place.off.has(one.name));
    card.classList.toggle("broken", off.length > 0);
    card.querySelectorAll(".switch").forEach((button, n) =>
      button.setAttribute("aria-checked", !off.includes(card.switches[n])));
    card.told.replaceChildren();
    for (const one of off) {
      card.told.append(strike(card, one));
      const answer = answered.has(one) ? answered.get(one) : "";  // "": came by a link
      if (answer === null) card.told.append(guess(view, one));
      else {
        card.told.append(withLinks(outcome(one, answer)));
        shown.push(one);
      }
    }
  }
  if (view.aside) fillAside(view.aside, shown.at(-1));
}

// ---- around the ideas

// 01 –6– 02 –5– 03 …: a number leads to that diff, a name to the stage.
function rail(here, inPlace) {
  const made = element("nav", "rail");
  made.setAttribute("aria-label", "diffs of the stages");
  const list = element("ol");
  for (const { name, base, page } of stages) {
    const item = element("li");
    const link = inPlace ? address(`${base}-${name}`) : wayTo(page);
    const label = name.slice(0, 2) + `<span>${name.slice(2).replaceAll("_", " ")}</span>`;
    if (base) {
      const count = countLines(DIFFS.lessons[`${base}-${name}`]);
      const from = `${count} changed lines from ${base}`;
      const diff = `${wayTo("side_by_side.html")}${address(`${base}-${name}`)}`;
      item.innerHTML = `<a class="count" title="${from}" aria-label="${from} to ${name}"
        href="${inPlace ? link : diff}">–${count}–</a>`;
    }
    item.insertAdjacentHTML("beforeend", base || !inPlace
      ? `<a class="stage" href="${link}">${label}</a>` : `<b class="stage">${label}</b>`);
    const side = here.indexOf(name);
    if (side >= 0) item.lastChild.classList.add(side ? "to" : "from");
    list.append(item);
  }
  made.append(list);
  return made;
}

// Which section of the script changes where: a number leads to its first hunk.
function overview() {
  const { sections, counts } = DIFFS.overview;
  const columns = Object.keys(counts);
  const rows = sections.map((section, n) => `<tr><th scope="row">${section}</th>` +
    columns.map(stage => {
      const [count, hunk] = counts[stage][n] || [];
      return count ? `<td><a href="#${stage}.${hunk}">${count}</a></td>` : "<td>·</td>";
    }).join("") + "</tr>");
  const heads = columns.map(stage => `<th scope="col"><a href="#${stage}">${
    stage.slice(0, 2)}</a></th>`);
  return element("details", "fold overview", `<summary>Overview: how many lines change in
    each section</summary><table><tr><th scope="col">section</th>${heads.join("")}</tr>${
    rows.join("")}</table>`);
}

function fillFull(view) {
  const [a, b] = place.pair.split("-");
  const known = DIFFS.scripts[a] && DIFFS.scripts[b];
  const pair = known ? place.pair : `${stages[0].name}-${stages[1].name}`;
  if (!known) place.pair = pair;
  if (view.pair !== pair) fill(view, pair);
}

function heading(view, ideas) {
  const [a, b] = view.pair.split("-");
  const made = element("h2", "", `From <select aria-label="from"></select> to ${b}`);
  for (const { name } of stages) {
    if (name !== b) made.firstElementChild.add(new Option(name, name, false, name === a));
  }
  made.firstElementChild.onchange = event => go(address(`${event.target.value}-${b}`));
  const stage = stages.find(one => one.name === b);
  const lead = element("p", "lead", `${stage.lesson}: ${countLines(ideas)} changed lines.
    <a href="${address(view.pair, 0, [], !place.slides)}">${place.slides ? "Desk" : "Slides"}</a>`);
  return [made, lead, overview()];
}

function fill(view, pair) {
  const [a, b] = pair.split("-");
  Object.assign(view, { pair, scripts: [script(a), script(b)] });
  let ideas = ideasOf(pair);
  if (view.kind === "part") {
    const number = Number(view.root.dataset.hunk);
    ideas = ideas.filter(idea => idea.hunks.some(hunk => hunk.number === number));
  }
  const list = element("div", "ideas");
  view.cards = view.kind === "head" ? [] : ideas.map((one, n) => makeCard(view, one, n + 1));
  list.append(...view.cards);
  view.root.replaceChildren();
  if (["full", "home", "head"].includes(view.kind)) view.root.append(rail([a, b], view.kind === "full"));
  if (view.kind === "full") view.root.append(...heading(view, ideas));
  view.root.append(list);
  if (view.kind === "home") {
    view.aside = element("aside", "curve");
    view.root.append(view.aside);
  }
  if (view.kind === "full" || view.kind === "head") view.root.append(wholeScript(...view.scripts));
}

// ---- keys

function step(by) {
  const view = views.find(one => one.pair === place.pair) || views[0];
  const all = views.filter(one => one.pair === view.pair).flatMap(one => one.cards);
  const now = all.findIndex(card => card.classList.contains("current"));
  const next = all[Math.min(Math.max(now + by, 0), all.length - 1)];
  if (next) go(address(view.pair, next.numbers[0], place.off, place.slides));
}

function stage(by) {
  const now = stages.findIndex(one => one.name === views[0].pair.split("-")[1]);
  const next = stages[Math.min(Math.max(now + by, 1), stages.length - 1)];
  if (views[0].kind === "full") go(address(`${next.base}-${next.name}`));
  else if (views[0].kind === "head") location.href = wayTo(next.page);
}

addEventListener("keydown", event => {
  const isTyping = event.target.closest?.("input, select, textarea, pre, .rail");
  if (event.ctrlKey || event.metaKey || event.altKey || isTyping) return;
  const next = { n: () => step(1), p: () => step(-1), ArrowRight: () => stage(1),
    ArrowLeft: () => stage(-1) }[event.key];
  if (next) {
    event.preventDefault();
    next();
  }
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
if (views.length) read();
