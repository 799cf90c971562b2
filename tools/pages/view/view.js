"use strict";
// A diff as a part of a page. Each element of class `sbs` becomes one; its data-view is
// full   any pair of stages, by a rail and the address: #04_ddp.7, #01_cpu-04_ddp.3
// home   the front page's, with the curve beside it
// head   the rail on a stage's page, and links to its ideas
// part   the idea of data-pair that has the hunk data-hunk, without its reason
// own    data-pair, all ideas
// In the address, &off=set_epoch switches a mistake on; #slides=04_ddp is for a screen.

const views = [];  // { root, kind, pair, scripts, body, cards, aside }
const parsed = new Map();  // a script's name -> what parseScript returns
const guesses = new Map();  // a switch -> what was guessed; null: nothing yet
let place = null, lastHash = null;

function script(name) {
  if (!parsed.has(name)) parsed.set(name, parseScript(DIFFS.scripts[name]));
  return parsed.get(name);
}

function baseOf(name) {
  return DIFFS.stages.find(stage => stage.name === name)?.base;
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

function address(pair, idea = 0, off = [], isSlides = false) {
  const [a, b] = pair.split("-");
  const name = baseOf(b) === a ? b : pair;
  const names = [...off].map(encodeURIComponent).join("|");
  return `#${isSlides ? "slides=" : ""}${name}${idea ? `.${idea}` : ""}` +
    (names && `&off=${names}`);
}

function parseAddress() {
  const [where, off = ""] = location.hash.slice(1).split("&off=");
  const [, slides, name, idea] = /^(slides=)?([^.]*)\.?(\d*)/.exec(where);
  const pair = baseOf(name) ? `${baseOf(name)}-${name}` : name;
  const names = off.split(/\||%7C/).filter(Boolean).map(decodeURIComponent);
  return { pair, idea: Number(idea), isSlides: Boolean(slides), off: new Set(names) };
}

function go(hash, isScrolling = true) {
  location.hash = hash;
  read(isScrolling);  // now: the event of the new hash comes later than the next key
}

function read(isScrolling = true) {
  if (location.hash === lastHash) return;
  lastHash = location.hash;
  place = parseAddress();
  document.documentElement.classList.toggle("slides", place.isSlides);
  for (const view of views) {
    if (view.kind === "full") fillFull(view);
    const target = view.pair === place.pair && cardOf(view, place.idea);
    update(view);
    if (isScrolling && target) {
      target.focus({ preventScroll: true });
      target.scrollIntoView({ block: "start", behavior: "instant" });
    }
  }
}

// ---- ideas

function ideasOf(pair) {
  if (pair === DIFFS.front.pair) return DIFFS.front.ideas;
  const hunks = hunksOf(...pair.split("-").map(script));
  return DIFFS.lessons[pair] || [{ title: "The change", why: "", hunks }];
}

function countLines(ideas) {
  const all = ideas.flatMap(idea => idea.hunks).flatMap(hunk => hunk.stretches);
  return all.reduce((sum, [i1, i2, j1, j2]) => sum + i2 - i1 + j2 - j1, 0);
}

function reason(idea) {
  const why = withLinks(element("div", "why", idea.why));
  const made = element("div", "reason");
  const more = element("button", "more", "more");
  more.setAttribute("aria-expanded", "false");
  more.onclick = () => {
    const isOpen = made.classList.toggle("open");
    more.textContent = isOpen ? "less" : "more";
    more.setAttribute("aria-expanded", isOpen);
  };
  made.append(why, more);
  new ResizeObserver(() => {  // three lines of one paragraph have no more
    const fits = why.children.length < 2 && why.scrollHeight <= why.clientHeight + 2;
    more.hidden = fits && !made.classList.contains("open");
  }).observe(why);
  return made;
}

// The section of one idea; n counts from 1.
function makeCard(view, idea, n) {
  const made = element("section", "idea");
  const numbers = idea.hunks.map(hunk => hunk.number);
  made.numbers = view.kind === "home" ? [n] : numbers;
  made.tabIndex = -1;
  const link = `<a href="${address(view.pair, made.numbers[0])}">${n}</a>`;
  const title = element("h3", "", `${idea.plumbing ? n : link} ${idea.title}`);
  title.id = `idea-${views.length}-${n}`;
  const all = idea.hunks.flatMap(hunk => hunk.stretches);
  const parts = [twoColumns(...view.scripts, all, view.kind !== "home")];
  if (view.kind !== "part") {
    made.setAttribute("aria-labelledby", title.id);
    if (idea.why) parts.push(reason(idea));
  }
  if (view.kind !== "part" && idea.plumbing) {
    const count = `<summary>changed lines: ${countLines([idea])}</summary>`;
    const fold = element("details", "fold", count);
    fold.firstElementChild.prepend(title);
    fold.append(...parts);
    made.append(fold);
  } else made.append(...(view.kind === "part" ? [] : [title]), ...parts);
  addSwitches(view, made, idea, numbers);
  return made;
}

function cardOf(view, number) {
  return view.cards.find(card => card.numbers.includes(number));
}

// ---- switches: each turns a mistake on, what is left out or common instead

function addSwitches(view, card, idea, numbers) {
  const [a, b] = view.pair.split("-");
  card.switches = DIFFS.switches.filter(one => one.stage === b && (baseOf(b) === a
    ? numbers.includes(one.hunk) : view.kind === "home" && idea.title === one.step));
  if (!card.switches.length) return;
  const made = element("div", "switches");
  for (const one of card.switches) {
    const label = element("label", "", `<input type="checkbox" role="switch">
      <span>${one.title}</span>`);
    label.firstElementChild.onchange = () => {
      guesses.set(one, null);
      if (!place.off.delete(one.name)) place.off.add(one.name);
      go(address(view.pair, card.numbers[0], place.off, place.isSlides), false);
    };
    made.append(label);
  }
  card.told = element("div", "told");
  card.told.setAttribute("aria-live", "polite");
  card.append(made, card.told);
}

function askFirst(view, one) {
  const made = element("p", "guess", `${one.title}: what happens? `);
  for (const [kind, words] of Object.entries(GUESSES)) {
    const button = element("button", "", words);
    button.onclick = () => {
      guesses.set(one, kind);
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
  return element("div", "instead",
    one.instead && `instead: <pre>${escaped(one.instead)}</pre>`);
}

function update(view) {
  let last = null;  // the last switch whose outcome shows
  for (const card of view.cards) {
    card.classList.toggle("current", cardOf(view, place.idea) === card);
    if (!card.told) continue;
    for (const line of card.querySelectorAll(".off")) line.classList.remove("off");
    const off = card.switches.filter(one => place.off.has(one.name));
    card.classList.toggle("broken", off.length > 0);
    card.querySelectorAll("[role=switch]").forEach((box, n) => {
      box.checked = off.includes(card.switches[n]);
    });
    card.told.replaceChildren();
    for (const one of off) {
      card.told.append(strike(card, one));
      const isAsked = guesses.has(one) && guesses.get(one) === null;  // not by a link
      if (!isAsked) last = one;
      card.told.append(isAsked ? askFirst(view, one)
        : withLinks(outcome(one, guesses.get(one))));
    }
  }
  if (view.aside) fillAside(view.aside, last);
}
