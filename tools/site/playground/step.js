"use strict";
// One step of all ranks as a figure that moves: digits are dealt from one deck, bars of
// gradients grow, meet in the middle and come back, and the weights are equal or not.
// It shows what training.js posts. The style moves what this places: see step.css.

const PHASES = [  // what each moment shows; the first is the deck
  ["", "The sampler has shuffled the digits: one deck for all ranks."],
  ["Deal", "The ranks take their cards in turn, and none is dealt twice."],
  ["Backward", "Each rank's digits give it gradients of its own."],
  ["Average", "In the middle of backward() the bars meet, and become their mean."],
  ["Return", "Every rank gets the mean, in the place of its own."],
  ["Step", "Equal weights minus equal gradients: the ranks stay equal."],
];
const PAUSE = 1700;  // milliseconds between two moments
const isCalm = matchMedia("(prefers-reduced-motion: reduce)");
const SHOWN = 64;  // digits that are drawn, at most
const HEAD = 24, BARS = 54, GAP = 12;  // pixels

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

// Have a worker train, and give each thing that it posts to `take`, until another begins.
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
    this.phase = PHASES.length - 1;
    place.innerHTML = `<div class="controls">
        <button type="button" class="play">▶ Play</button>
        <button type="button" class="next">Next</button>
        <label>Step <input type="range" min="1" max="1" value="1"></label>
        <span class="soft where"></span></div>
      <ol class="phases">${PHASES.slice(1).map(([name]) => `<li>${name}</li>`).join("")}</ol>
      <p class="says" role="status"></p>
      <div class="table"></div>`;
    const find = name => place.querySelector(name);
    [this.button, this.slider, this.where] = [".play", "input", ".where"].map(find);
    [this.list, this.says, this.table] = [".phases", ".says", ".table"].map(find);
    this.button.onclick = () => this.playing ? this.stop() : this.play();
    find(".next").onclick = () => { this.stop(); this.advance(); };
    this.slider.oninput = () => { this.stop(); this.go(Number(this.slider.value)); };
    new ResizeObserver(() => this.draw()).observe(this.table);
  }

  // Show a step of these, which may still grow.
  load(steps, number) {
    this.steps = steps;
    this.slider.max = steps.length;
    if (!this.playing) this.go(number);
  }

  go(number, phase = PHASES.length - 1) {
    this.number = this.slider.value = number;
    this.phase = phase;
    this.draw();
  }

  advance() {
    if (this.phase < PHASES.length - 1) this.go(this.number, this.phase + 1);
    else this.go(this.number % this.steps.length + 1, 0);
  }

  // From the deck to the weights; if it is there already, the next step.
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

  // What is so in this step, from its numbers alone.
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
        own.every((grad, n) => grad === step.after[rank][n])),
      drift: this.steps.slice(0, this.number).map(one => one.apart) };
  }

  sentence({ ranks, isTwice, isAgain, isKept, step, epoch }) {
    if (this.phase === 0 && isAgain)
      return `Epoch ${epoch} begins with the deck of epoch ${epoch - 1}: nothing has
        shuffled it again.`;
    if (this.phase === 1 && isTwice) return "Every rank takes the same cards.";
    if (this.phase > 2 && ranks === 1) return "One process has nothing to exchange.";
    if ((this.phase === 3 || this.phase === 4) && isKept)
      return "Nothing averages: each rank keeps its own bars.";
    if (this.phase === 3 && isTwice)
      return "The bars were equal before: the mean of the same thing, computed twice.";
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
    for (const [n, item] of [...this.list.children].entries()) {
      item.classList.toggle("now", n + 1 === this.phase);
    }
    if (this.laid !== step || this.at.width !== this.table.clientWidth) this.lay(facts);
    this.laid = step;
    this.move(facts);
  }

  // ---- what there is: placed anew for each step

  lay(facts) {
    const { step, ranks, earlier } = facts;
    const width = this.table.clientWidth;
    const lane = Math.min((width - (ranks - 1) * GAP) / ranks, 420);
    const many = Math.min(Math.floor(SHOWN / ranks), step.indices[0].length);
    const columns = Math.min(16, Math.max(2, Math.floor((lane - 16) / 14)), many);
    const size = Math.min(21, Math.floor((lane - 14) / columns));
    const inDeck = Math.min(32, Math.floor(width / size));
    const left = (width - ranks * lane - (ranks - 1) * GAP) / 2;
    const dealt = step.indices.map(all => all.slice(0, many));
    const deck = [];  // in the order in which it is dealt
    for (let n = 0; n < many; n++)
      for (const hand of dealt) if (!deck.includes(hand[n])) deck.push(hand[n]);
    const deckHeight = Math.ceil(deck.length / inDeck) * size;
    const before = earlier?.indices.map(all => all.slice(0, many));
    const top = before ? deckHeight + 2 * HEAD : HEAD;  // of this step's deck
    const lanes = top + deckHeight + 18;
    const barsTop = lanes + HEAD + Math.ceil(many / columns) * size + 6;
    const middle = barsTop + BARS + 34;
    this.at = { left, lane, size, columns, barsTop, middle, top, lanes, inDeck, width };
    this.table.replaceChildren();
    this.table.style.height = `${middle + BARS + 12}px`;
    this.paint([...new Set([...deck, ...(before || []).flat()])]);
    const inRow = (count, n, y) => [(width - Math.min(count, inDeck) * size) / 2 +
      n % inDeck * size, y + Math.floor(n / inDeck) * size];
    if (before) {
      this.add("b", "name", left, 0, `epoch ${facts.epoch - 1}`);
      const old = before[0].flatMap((_, n) => before.map(hand => hand[n]));
      for (const [n, index] of [...new Set(old)].entries())
        this.card(index).style.transform = moved(...inRow(deck.length, n, HEAD));
    }
    this.deckName = this.add("b", "name", left, top - HEAD, "");
    this.lanes = dealt.map((hand, rank) => this.layLane(facts, hand, rank));
    this.cards = dealt.flatMap((hand, rank) => hand.map((index, n) => {
      const made = this.card(index);
      made.style.setProperty("--rank", `var(--${color(rank)})`);
      made.style.transitionDelay = `${(n * ranks + rank) * 9}ms`;
      const home = inRow(deck.length, deck.indexOf(index), top);
      const hands = [left + rank * (lane + GAP) + 7 + n % columns * size,
        lanes + HEAD + Math.floor(n / columns) * size];
      return { made, home, hands };
    }));
    const wide = Math.min(width, Math.max(lane, 280));  // the verdict has room
    this.mean = this.add("div", "mean", (width - wide) / 2, middle - 20, "<b>the mean</b>");
    Object.assign(this.mean.style, { width: `${wide}px`, height: `${BARS + 26}px` });
    this.bars = step.before.map((own, rank) => this.layBars(own, rank));
    this.badge = this.add("p", "badge", 0, middle + 8, "");
  }

  layLane({ step, isTwice }, hand, rank) {
    const { left, lane, lanes, barsTop } = this.at;
    const all = step.indices[rank];
    const more = all.length > hand.length ? `, ${hand.length} shown` : "";
    const made = this.add("div", "lane", left + rank * (lane + GAP), lanes - 4,
      `<b>${lane < 60 ? "" : "rank "}${rank}</b> <span>${all.length} digits${more}${
        isTwice ? ", the same" : ""}</span>`);
    made.style.setProperty("--rank", `var(--${color(rank)})`);
    Object.assign(made.style,
      { width: `${lane}px`, height: `${barsTop + BARS + 8 - lanes}px` });
    const read = grads => Array.from(grads, grad => grad.toFixed(3)).join(" ");
    const labels = all.map(index => this.digits.labels[index]).join(" ");
    made.setAttribute("role", "img");
    made.setAttribute("aria-label", `Rank ${rank}. The digits ${labels}. Its own ` +
      `gradients: ${read(step.before[rank])}; then: ${read(step.after[rank])}`);
    return made;
  }

  // Ten bars that move, and the outlines that stay where they grew.
  layBars(own, rank) {
    return Array.from(own, () => ["outline", "bar"].map(kind => {
      const made = this.add("i", kind, 0, 0, "");
      made.style.setProperty("--rank", `var(--${color(rank)})`);
      return made;
    }));
  }

  add(tag, name, x, y, html) {
    const made = document.createElement(tag);
    made.className = name;
    made.innerHTML = html;
    made.style.transform = moved(x, y);
    this.table.append(made);
    return made;
  }

  // A picture of some digits, black on nothing: the mask of each card.
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

  card(index) {
    const { size } = this.at;
    const made = this.add("i", "card", 0, 0, "<i></i>");
    made.style.setProperty("--size", `${size}px`);
    made.firstChild.style.maskSize = `${this.painted.length * size}px ${size}px`;
    made.firstChild.style.maskPosition = `${-this.painted.indexOf(index) * size}px 0`;
    return made;
  }

  // ---- where it is in this moment

  move({ step, ranks, drift, isKept, isTwice, isAgain, epoch, earlier }) {
    const { phase, at } = this;
    this.table.dataset.phase = phase;
    for (const { made, home, hands } of this.cards) {
      made.style.transform = moved(...(phase ? hands : home));
      made.classList.toggle("dealt", phase > 0);
    }
    this.deckName.textContent = isAgain ? `epoch ${epoch}: the same deck again`
      : earlier ? `epoch ${epoch}` : "one deck";
    this.deckName.classList.toggle("wrong", isAgain);
    for (const one of this.lanes) one.classList.toggle("wrong", isTwice && phase > 0);
    const isMet = phase === 3 && ranks > 1 && !isKept;
    this.table.classList.toggle("met", isMet);
    this.mean.classList.toggle("last", phase === 5);
    this.mean.classList.toggle("kept", isKept && phase > 2);
    this.mean.firstChild.textContent = phase === 5 ? "the weights"
      : isKept && phase > 2 ? "nothing averages" : "the mean";
    const largest = Math.max(...step.before.flatMap(own => Array.from(own, Math.abs)));
    const heaviest = Math.max(...step.biases.flatMap(own => Array.from(own, Math.abs)));
    const slot = (at.lane - 14) / 10;
    for (const [rank, pairs] of this.bars.entries()) {
      const left = at.left + rank * (at.lane + GAP) + 7;
      for (const [n, [outline, bar]] of pairs.entries()) {
        const own = step.before[rank][n] / largest;
        const after = step.after[rank][n] / largest;
        const value = [0, 0, own, after, after, step.biases[rank][n] / heaviest][phase];
        const x = isMet ? (at.width - at.lane) / 2 + 7 : left;
        const y = isMet ? at.middle : at.barsTop;
        stand(bar, x + (n + .15) * slot, y, slot * .7, value);
        stand(outline, left + (n + .15) * slot, at.barsTop, slot * .7, own);
      }
    }
    this.badge.className = `badge ${step.apart ? "wrong" : "good"}`;
    this.badge.innerHTML = phase < 5 ? "" : step.apart
      ? `≠ up to ${step.apart.toPrecision(2)} apart ${spark(drift)}`
      : ranks > 1 ? "= equal, bit for bit" : "";
  }
}

// A bar around the middle of its place, from -1 to 1.
function stand(bar, x, y, width, value) {
  const height = Math.abs(value) * BARS / 2;
  bar.style.transform = moved(x, y + BARS / 2 - (value > 0 ? height : 0));
  bar.style.width = `${width}px`;
  bar.style.height = `${height}px`;
}

function moved(x, y) {
  return `translate(${x.toFixed(1)}px, ${y.toFixed(1)}px)`;
}

function color(rank) {
  return `rank${rank % 4}`;
}

// How far the ranks have drifted apart until now.
function spark(drift) {
  const most = Math.max(...drift);
  const points = drift.map((one, n) =>
    `${(n + 1) / drift.length * 100},${27 - one / most * 24}`).join(" ");
  return `<svg viewBox="0 0 100 28" width="100" height="28" aria-hidden="true"
    ><polyline points="0,27 ${points}"/></svg>`;
}

// The number of the step in which one sees a mistake.
function tellingStep(off, steps) {
  if (off.includes("ddp")) return Math.max(steps.length - 1, 1);  // the last is small
  const again = Math.ceil(1 / steps[0].at - 1e-9) + 1;
  return off.includes("set_epoch") && again <= steps.length ? again : 1;
}

// ---- in a lesson: the still picture gives its place to the figure

function beginLesson(place) {
  const form = place.querySelector("form");
  const figure = place.querySelector(".figure");
  let made;
  const start = async () => {
    const { ranks, off } = Object.fromEntries(new FormData(form));
    const settings = { ranks: Number(ranks), batch_size: 64, lr: .1, hidden: 128,
      epochs: 3, off: off ? [off] : [] };
    const digits = await lessonDigits;
    made ||= new StepFigure(figure, digits.train);
    place.classList.add("begun");
    made.stop();
    const steps = [];
    const told = { set_epoch: 64, ddp: 188 }[off] || 1;  // where one sees a mistake
    trainInWorker(settings, digits, posted => {
      if (posted.row) return;
      steps.push(posted);
      made.slider.max = steps.length;
      if (steps.length === told) made.load(steps, told);
      if (steps.length === told && !isCalm.matches) made.play();
    });
  };
  form.onchange = start;
  start();
}

let lessonDigits;
for (const place of document.querySelectorAll(".lesson")) {
  const watch = new IntersectionObserver(([seen]) => {
    if (!seen.isIntersecting) return;
    watch.disconnect();
    const script = document.createElement("script");
    script.src = place.dataset.digits;
    lessonDigits = new Promise(resolve => { script.onload = resolve; })
      .then(() => unpackDigits(DIGITS));
    document.head.append(script);
    beginLesson(place);
  }, { rootMargin: "300px" });
  watch.observe(place);
}
