"use strict";
// An animated figure of one step on all ranks: digits are dealt from one deck, bars of
// gradients grow, meet in the middle and return, and the weights are equal or not.
// It shows the messages of training.js. step.css animates the elements placed here.

const PHASES = [  // what each moment shows; the first is the deck
  ["", "The sampler shuffles the digits into one deck for all ranks."],
  ["Deal", "The ranks take cards in turn. No card is dealt twice."],
  ["Backward", "Each rank computes gradients from its own digits."],
  ["Average", "During backward(), the bars meet and become their mean."],
  ["Return", "Every rank gets the mean in place of its own gradients."],
  ["Step", "Equal weights minus equal gradients: the ranks stay equal."],
];
const PAUSE = 1700;  // milliseconds between two moments
const SHOWN = 64;  // the most digits drawn
const HEAD = 24, BARS = 54, AXIS = 14, GAP = 12;  // pixels
const color = rank => `var(--rank${rank % 4})`;

// The digits of data/sample, from base64: { train, test }, each { images, labels }.
async function unpackDigits(text) {
  const packed = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  const unzip = new DecompressionStream("gzip");
  const stream = new Blob([packed]).stream().pipeThrough(unzip);
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const part = (from, count) => {
    const raw = bytes.subarray(from, from + count * 785);  // pixels, then labels
    const pixels = new Float32Array(raw.subarray(0, count * 784)).map(byte => byte / 255);
    const labels = Array.from(raw.subarray(count * 784));
    const images = labels.map((_, n) => pixels.subarray(n * 784, (n + 1) * 784));
    return { images, labels };
  };
  return { train: part(0, 4000), test: part(4000 * 785, 1000) };
}

// Train in a worker and pass each of its messages to `take`, until another one begins.
let worker;
function trainInWorker(settings, digits, take) {
  const source = document.getElementById("training").textContent;
  worker?.terminate();
  worker = new Worker(URL.createObjectURL(new Blob([source], { type: "text/javascript" })));
  worker.onmessage = event => take(event.data);
  worker.postMessage({ settings, ...digits });
}

class StepFigure {
  constructor(place, digits) {
    this.digits = digits;
    this.steps = [];
    this.number = 1;
    this.phase = 4;
    place.innerHTML = `<div class="controls">
        <button type="button">▶ Play</button>
        <label>Step <input type="range" min="1" max="1" value="1"></label>
        <span class="soft where"></span></div>
      <ol class="phases">${PHASES.slice(1).map(([name]) =>
        `<li><button type="button">${name}</button></li>`).join("")}</ol>
      <p class="says" role="status"></p>
      <div class="table"></div>`;
    const find = name => place.querySelector(name);
    [this.button, this.slider, this.where] = ["button", "input", ".where"].map(find);
    [this.list, this.says, this.table] = [".phases", ".says", ".table"].map(find);
    this.button.onclick = () => this.playing ? this.stop() : this.play();
    for (const [n, item] of [...this.list.children].entries())
      item.onclick = () => { this.stop(); this.go(this.number, n + 1); };
    this.slider.oninput = () => { this.stop(); this.go(Number(this.slider.value)); };
    new ResizeObserver(() => this.draw()).observe(this.table);
  }

  // Show a moment of these steps, which may still grow.
  load(steps, number, phase) {
    this.steps = steps;
    this.slider.max = steps.length;
    if (!this.playing) this.go(number, phase);
  }

  go(number, phase = this.phase) {
    this.number = this.slider.value = number;
    this.phase = phase;
    this.draw();
  }

  advance() {
    if (this.phase < PHASES.length - 1) this.go(this.number, this.phase + 1);
    else this.go(this.number % this.steps.length + 1, 0);
  }

  // Play this step, from the deck to the weights.
  play() {
    this.button.textContent = "◼ Stop";
    this.playing = setInterval(() => {
      this.advance();
      if (this.phase === PHASES.length - 1) this.stop();
    }, PAUSE);
    this.go(this.number, 0);
  }

  stop() {
    clearInterval(this.playing);
    this.playing = 0;
    this.button.textContent = "▶ Play";
  }

  // The facts of this step, from its numbers alone.
  facts() {
    const step = this.steps[this.number - 1];
    const ranks = step.indices.length;
    const all = step.indices.flat();
    const length = Math.ceil(1 / this.steps[0].at - 1e-9);  // steps of an epoch
    const earlier = this.steps[this.number - 1 - length];
    const known = new Set(earlier?.indices.flat());
    return { step, ranks, length, earlier,
      epoch: Math.ceil(this.number / length),
      isTwice: new Set(all).size < all.length,
      isAgain: all.every(index => known.has(index)),
      isKept: ranks > 1 && step.before.some((own, rank) =>
        own.some((grad, n) => grad !== step.before[0][n]) &&
        own.every((grad, n) => grad === step.after[rank][n])) };
  }

  sentence({ ranks, isTwice, isAgain, isKept, step, epoch }) {
    if (this.phase < 2 && isAgain)
      return `Epoch ${epoch} deals the deck of epoch ${epoch - 1} again.`;
    if (this.phase === 1 && isTwice) return "Every rank takes the same cards.";
    if (this.phase > 2 && ranks === 1) return "One process has nothing to exchange.";
    if ((this.phase === 3 || this.phase === 4) && isKept)
      return "Nothing is averaged: each rank keeps its own bars.";
    if (this.phase === 3 && isTwice)
      return "The bars were already equal: every rank computed the same gradients.";
    if (this.phase === 5 && step.apart)
      return "Each rank has subtracted something different: two models, and both train.";
    return PHASES[this.phase][1];
  }

  draw() {
    if (!this.steps.length || !this.table.clientWidth) return;
    const facts = this.facts();
    const { step, length, epoch } = facts;
    const isWrong = facts.isTwice || facts.isAgain || facts.isKept || step.apart > 0;
    this.where.textContent = `${(this.number - 1) % length + 1} of ${length}, epoch ${epoch}`;
    this.says.textContent = this.sentence(facts);
    this.says.classList.toggle("wrong", this.says.textContent !== PHASES[this.phase][1] &&
      isWrong);
    for (const [n, item] of [...this.list.children].entries())
      item.classList.toggle("now", n + 1 === this.phase);
    if (this.laid !== step || this.at.width !== this.table.clientWidth) this.lay(facts);
    this.laid = step;
    this.move(facts);
  }

  // ---- the elements, laid out again for each step

  lay(facts) {
    const { step, ranks, earlier } = facts;
    const width = this.table.clientWidth;
    const lane = Math.min((width - (ranks - 1) * GAP) / ranks, 420);
    const many = Math.min(Math.floor(SHOWN / ranks), step.indices[0].length);
    const columns = Math.min([16, 8, 4].find(count => count * 17 <= lane - 14) || 2, many);
    const size = Math.min(22, Math.floor((lane - 14) / columns));
    const small = earlier && width > 400 ? Math.min(size, Math.floor(width / 32)) : size;  // two decks fit
    const inDeck = Math.min(32, 8 * Math.floor(width / small / 8) || 8);
    const left = (width - ranks * lane - (ranks - 1) * GAP) / 2;
    const pitch = (count, room) => Math.min(room / count, size + 6);  // from card to card
    const dealt = step.indices.map(all => all.slice(0, many));
    const deck = [];  // in the order of dealing
    for (let n = 0; n < many; n++)
      for (const hand of dealt) if (!deck.includes(hand[n])) deck.push(hand[n]);
    const deckHeight = Math.ceil(deck.length / inDeck) * small;
    const before = earlier?.indices.map(all => all.slice(0, many));
    const top = before ? deckHeight + 2 * HEAD : HEAD;  // of this step's deck
    const lanes = top + deckHeight + 18;
    const barsTop = lanes + HEAD + Math.ceil(many / columns) * size + 6;
    const middle = barsTop + BARS + AXIS + 34;
    const card = Math.min(width, Math.max(lane, 220));  // room for the verdict
    const inMiddle = (width - card) / 2 + 7, slot = (card - 14) / 10;
    const largest = Math.max(...step.before.flatMap(own => Array.from(own, Math.abs)));
    this.at = { left, lane, size, barsTop, middle, lanes, width, inMiddle, slot, largest };
    this.table.replaceChildren();
    this.table.style.height = `${middle + BARS + AXIS + 12}px`;
    this.paint([...new Set([...deck, ...(before || []).flat()])]);
    const inRow = (n, y) => [left + n % inDeck * pitch(inDeck, width - 2 * left),
      y + Math.floor(n / inDeck) * small, small / size];
    if (before) {
      this.add("b", "name", left, 0, `epoch ${facts.epoch - 1}`);
      const old = before[0].flatMap((_, n) => before.map(hand => hand[n]));
      for (const [n, index] of [...new Set(old)].entries())
        this.card(index, small).style.transform = moved(...inRow(n, HEAD));
    }
    for (const [n, index] of deck.entries()) {  // stays where it was when it is dealt
      const ghost = this.card(index, small);
      ghost.classList.add("ghost");
      ghost.style.transform = moved(...inRow(n, top));
    }
    this.deckName = this.add("b", "name", left, top - HEAD, "");
    this.lanes = dealt.map((hand, rank) => this.layLane(facts, hand, rank));
    this.cards = dealt.flatMap((hand, rank) => hand.map((index, n) => {
      const made = this.card(index);
      made.style.setProperty("--rank", color(rank));
      made.style.transitionDelay = `${(n * ranks + rank) * 9}ms`;
      const home = inRow(deck.indexOf(index), top);
      const hands = [left + rank * (lane + GAP) + 7 + n % columns * pitch(columns, lane - 14),
        lanes + HEAD + Math.floor(n / columns) * size];
      return { made, home, hands };
    }));
    this.mean = this.add("div", "mean", (width - card) / 2, middle - 20, "<b>the mean</b>");
    Object.assign(this.mean.style, { width: `${card}px`, height: `${BARS + AXIS + 26}px` });
    this.stays = Array.from(step.after[0], (grad, n) => {  // the mean, once it is there
      const made = this.add("i", "bar stays", 0, 0, "");
      stand(made, inMiddle + (n + .15) * slot, middle, slot * .7, grad / largest);
      return made;
    });
    this.zero = this.add("div", "axis", inMiddle, middle + BARS / 2, axis(card));
    this.bars = step.before.map((own, rank) => this.layBars(own, rank));
    this.badge = this.add("p", "badge", 0, middle + 8, "");
  }

  layLane({ step, isTwice }, hand, rank) {
    const { left, lane, lanes, barsTop } = this.at;
    const all = step.indices[rank];
    const more = all.length > hand.length ? `, ${hand.length} shown` : "";
    const made = this.add("div", "lane", left + rank * (lane + GAP), lanes - 4,
      `<b>${lane < 90 ? "" : "rank "}${rank}</b> <span>${lane < 66 ? "" : `${all.length} digits${more}${
        isTwice && lane > 200 ? ", the same" : ""}`}</span>${lane < 300 ? "" : "<em></em>"}`);
    made.style.setProperty("--rank", color(rank));
    Object.assign(made.style,
      { width: `${lane}px`, height: `${barsTop + BARS + AXIS + 8 - lanes}px` });
    this.add("div", "axis", left + rank * (lane + GAP) + 7, barsTop + BARS / 2, axis(lane));
    const read = grads => Array.from(grads, grad => grad.toFixed(3)).join(" ");
    const digits = all.map(index => this.digits.labels[index]).join(" ");
    made.setAttribute("role", "img");
    made.setAttribute("aria-label", `Rank ${rank}. The digits ${digits}. Its own ` +
      `gradients: ${read(step.before[rank])}; then: ${read(step.after[rank])}`);
    return made;
  }

  // Ten bars that move, and outlines that stay in place.
  layBars(own, rank) {
    return Array.from(own, () => ["outline", "bar"].map(kind => {
      const made = this.add("i", kind, 0, 0, "");
      made.style.setProperty("--rank", color(rank));
      return made;
    }));
  }

  add(tag, name, x, y, html) {
    const made = element(tag, name, html);
    made.style.transform = moved(x, y);
    this.table.append(made);
    return made;
  }

  // A picture of some digits, black on transparent: the mask of each card.
  paint(indices) {
    this.sprite = document.createElement("canvas");
    this.painted = indices;
    [this.sprite.width, this.sprite.height] = [28 * indices.length, 28];
    const context = this.sprite.getContext("2d");
    for (const [n, index] of indices.entries()) {
      const image = new ImageData(28, 28);
      const pixels = this.digits.images[index];
      for (const [p, ink] of pixels.entries()) image.data[p * 4 + 3] = ink * 255;
      context.putImageData(image, n * 28, 0);
    }
    this.table.style.setProperty("--sprite", `url(${this.sprite.toDataURL()})`);
  }

  card(index, size = this.at.size) {
    const made = this.add("i", "card", 0, 0, "<i></i>");
    made.style.setProperty("--size", `${size}px`);
    const inner = size - 4;  // within border and padding
    const left = this.painted.indexOf(index) * inner;
    made.firstChild.style.maskSize = `${this.painted.length * inner}px ${inner}px`;
    made.firstChild.style.maskPosition = `${-left}px 0`;
    return made;
  }

  // ---- where the elements are in this phase

  move({ step, ranks, isKept, isTwice, isAgain, epoch, earlier }) {
    const { phase, at } = this;
    this.table.dataset.phase = phase;
    for (const { made, home, hands } of this.cards) {
      made.style.transform = moved(...(phase ? hands : home));
      made.classList.toggle("dealt", phase > 0);
    }
    this.deckName.textContent = isAgain ? `epoch ${epoch}: the same deck again`
      : earlier ? `epoch ${epoch}` : "one deck";
    this.deckName.classList.toggle("wrong", isAgain);
    for (const [rank, one] of this.lanes.entries()) {
      one.classList.toggle("wrong", isTwice && phase > 0);
      const own = one.querySelector("em"), told = own || one.querySelector("span");
      one.dataset.digits ??= told.textContent;  // which the loss replaces in a narrow lane
      if (own || at.lane > 140) told.textContent = phase === 5 ? `b₁ = ${step.biases[rank][1].toFixed(6)}`
        : phase > 1 ? `loss ${step.losses[rank].toFixed(6)}` : one.dataset.digits;
    }
    const isMet = phase === 3 && ranks > 1 && !isKept;
    const stays = (phase === 3 || phase === 4) && ranks > 1 && !isKept;
    const isSoon = phase < 3 && ranks > 1 && !isKept;  // outlines, as of the gradients
    for (const one of this.stays) one.classList.toggle("soon", isSoon);
    for (const one of [...this.stays, this.zero]) one.classList.toggle("gone", !stays && !isSoon);
    this.table.classList.toggle("met", isMet);
    this.mean.classList.toggle("kept", isKept && phase > 2);
    this.mean.firstChild.textContent = phase === 5 ? "the weights"
      : phase < 3 ? "the mean, after Backward" : isKept ? "not averaged" : "the mean";
    const heaviest = Math.max(...step.biases.flatMap(own => Array.from(own, Math.abs)));
    const slot = (at.lane - 14) / 10;
    for (const [rank, pairs] of this.bars.entries()) {
      const left = at.left + rank * (at.lane + GAP) + 7;
      for (const [n, [outline, bar]] of pairs.entries()) {
        const own = step.before[rank][n] / at.largest;
        const after = step.after[rank][n] / at.largest;
        const value = [0, 0, own, after, after, step.biases[rank][n] / heaviest][phase];
        if (isMet) stand(bar, at.inMiddle + (n + .15) * at.slot, at.middle, at.slot * .7, value);
        else stand(bar, left + (n + .15) * slot, at.barsTop, slot * .7, value);
        stand(outline, left + (n + .15) * slot, at.barsTop, slot * .7, own);
      }
    }
    this.badge.className = `badge ${step.apart ? "wrong" : "good"}`;
    this.badge.innerHTML = phase < 5 ? "" : step.apart
      ? `≠ up to ${step.apart.toPrecision(2)} apart`
      : ranks > 1 ? "= equal, bit for bit" : "";
  }
}

// A lane's line of zero, and below it the ten digits if there is room.
function axis(lane) {
  const labels = lane < 120 ? [] : Array.from({ length: 10 }, (_, n) =>
    `<b style="left: ${(n + .5) * (lane - 14) / 10}px">${n}</b>`);
  return `<i style="width: ${lane - 14}px"></i>${labels.join("")}`;
}

// Draw a bar from the middle of its place; `value` is from -1 to 1.
function stand(bar, x, y, width, value) {
  const height = Math.abs(value) * BARS / 2;
  bar.style.transform = moved(x, y + BARS / 2 - (value > 0 ? height : 0));
  bar.style.width = `${width}px`;
  bar.style.height = `${height}px`;
}

function moved(x, y, size = 1) {
  return `translate(${x.toFixed(1)}px, ${y.toFixed(1)}px) scale(${size})`;
}

// The step and phase to begin with. They show a mistake: the repeated deck, the weights
// that differ, or the cards that all ranks have. Otherwise the mean is shown.
function tellingMoment(off, steps) {
  const again = Math.ceil(1 / steps[0].at - 1e-9) + 1;
  if (off.includes("set_epoch") && again <= steps.length) return [again, 1];
  if (off.includes("sampler")) return [1, 1];
  return off.includes("ddp") ? [Math.max(steps.length - 1, 1), 5] : [1, 4];  // the last is small
}
