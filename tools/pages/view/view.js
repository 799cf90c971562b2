"use strict";
// The address and the switches of a page's diffs, which Python has drawn.
// The address is #04_ddp.7, a stage and a hunk of its diff.
// &off=set_epoch turns a mistake on.

const cards = [...document.querySelectorAll(".idea")];
const pairs = [...document.querySelectorAll(".full .body")];  // one of them is visible
const picker = document.querySelector(".full select");
const hero = document.querySelector(".hero");
const guesses = new Map();  // a switch -> the guess; null: none yet
let place = null, lastHash = null;

// ---- the address

function address(pair, idea, off) {
  const names = [...off].map(encodeURIComponent).join("|");
  return `#${pair}.${idea}` + (names && `&off=${names}`);
}

function decoded(name) {
  try { return decodeURIComponent(name); } catch { return name; }  // a truncated address
}

function parseAddress() {
  const [where, off = ""] = location.hash.slice(1).split("&off=");
  const [, pair, idea] = /^([^.]*)\.?(\d*)/.exec(where);
  const names = off.split(/\||%7C/).filter(Boolean).map(decoded);
  return { pair, idea, off: new Set(names) };
}

function current() {
  const shown = cards.filter(card => card.dataset.pair === place.pair);
  return shown.find(card => card.dataset.numbers.split(" ").includes(place.idea));
}

function go(hash, isScrolling = true) {
  location.hash = hash;
  read(isScrolling);  // now, before the hashchange event
}

function read(isScrolling = true) {
  if (location.hash === lastHash) return;
  lastHash = location.hash;
  place = parseAddress();
  const isKnown = pairs.some(pair => pair.dataset.pair === place.pair);
  if (pairs.length && !isKnown) place.pair = "04_ddp";
  for (const pair of pairs) pair.hidden = pair.dataset.pair !== place.pair;
  if (picker) picker.value = place.pair;
  update();
  const target = current();
  if (!isScrolling || !target) return;
  for (const fold of [target.closest("article details"), target.querySelector(".fold")])
    fold?.setAttribute("open", "");
  target.focus({ preventScroll: true });
  target.scrollIntoView({ block: "start", behavior: "instant" });
}

// ---- switches: each turns on a mistake, a line that is missing or wrong

function flip(card, box) {
  const one = DIFFS.switches[box.value];
  const { pair } = card.dataset;
  const off = new Set(place.pair === pair ? place.off : []);
  guesses.set(one, null);
  const isOff = off.delete(one.name);
  if (hero?.contains(card)) off.clear();  // its curve shows a single mistake
  if (!isOff) off.add(one.name);
  go(address(pair, card.dataset.numbers.split(" ")[0], off), false);
  card.querySelector(".guess")?.scrollIntoView({ block: "nearest" });
}

function askFirst(one) {
  const made = element("p", "guess", `<b>${one.title}: what happens?</b>`);
  for (const [kind, words] of Object.entries(GUESSES)) {
    const button = element("button", "", words);
    button.onclick = () => {
      const told = button.closest(".told");
      guesses.set(one, kind);
      update();
      told.focus({ preventScroll: true });
      told.scrollIntoView({ block: "nearest" });
    };
    made.append(button);
  }
  return made;
}

// Strike through the lines that are off, and show their replacement: on the front page in
// place, so that nothing jumps.
function strike(card, one) {
  const lines = one.struck.map(line => card.querySelector(`.right[data-line="${line + 1}"]`)).filter(Boolean);
  for (const line of lines) {
    line.classList.add("off");
    const text = line.lastElementChild, code = /^( *)(.*?)( *<span class="comment">.*)?$/s;
    line.dataset.right = text.innerHTML;
    text.innerHTML = text.innerHTML.replace(code, "$1<s>$2</s>$3");  // not its comment
  }
  if (!hero?.contains(card)) {
    return element("div", "instead",
      one.instead && `instead: <pre>${escaped(one.instead)}</pre>`);
  }
  if (one.instead) {
    const text = lines[0].lastElementChild;  // of the first removed line
    lines[0].classList.add("changed");
    text.textContent = /^ */.exec(text.textContent) + one.instead.trim().replace(/:\s+/, ": ");
  }
  return "";
}

// Show which lines of a card are off. Return the switches whose outcomes are visible.
function updateCard(card) {
  const shown = [];
  for (const line of card.querySelectorAll(".off")) {
    line.classList.remove("off", "changed");
    line.lastElementChild.innerHTML = line.dataset.right;
  }
  const inHero = hero?.contains(card);
  const told = inHero && isWide.matches ? hero.querySelector(".panel .told")
    : card.querySelector(".told");
  if (told !== hero?.querySelector(".panel .told")) told?.replaceChildren();
  for (const box of card.querySelectorAll("[role=switch]")) {
    const one = DIFFS.switches[box.value];
    box.checked = card.dataset.pair === place.pair && place.off.has(one.name);
    if (!box.checked) continue;
    const isAsked = guesses.get(one) === null;  // not if set by a link
    const tell = inHero ? outcomeInWords : outcome;
    const says = isAsked ? askFirst(one) : tell(one, guesses.get(one));
    told.append(strike(card, one), says);
    if (!isAsked) shown.push(one);
  }
  card.classList.toggle("current", card === current());
  return shown;
}

function update() {
  hero?.querySelector(".panel .told").replaceChildren();
  const shown = new Map(cards.flatMap(updateCard).map(one => [one.name, one]));
  const last = [...place.off].findLast(name => shown.has(name));  // the last one flipped
  if (hero) fillHero(hero, shown.get(last));
}
isWide.onchange = update;

addEventListener("hashchange", () => read());
picker?.addEventListener("change", () => go(`#${picker.value}`));
for (const card of cards) card.addEventListener("change", event => flip(card, event.target));
read();
