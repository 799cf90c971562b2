// The page around training.js: it starts runs in a worker, draws them and judges them.
const by = (id) => document.getElementById(id);
const data = JSON.parse(by("data").textContent);
const controls = by("settings").elements;
const switches = [...document.querySelectorAll("[role=switch]")];
const FLAGS = { ranks: 2, batch_size: 64, lr: 0.1, hidden: 128, epochs: 3 };
const IMAGES = 4000;
const TESTED = 1000;
const PHASES = 4;  // of a step that is slowed down
const references = {};  // flags -> the run of stage 1 with them

let digits;  // { train, test }, each { images: rows in [0, 1], labels }
let settings;
let reference;  // stage 1's run, and stage 4's: { steps, rows }, what main() has posted
let run;
let worker;
let phase = PHASES;  // how far the step that is shown has come
let playing = 0;  // the time of the last frame; 0: nothing moves

async function unpack() {
  const packed = Uint8Array.from(atob(data.digits), (letter) => letter.charCodeAt(0));
  const unzip = new DecompressionStream("gzip");
  const stream = new Blob([packed]).stream().pipeThrough(unzip);
  const bytes = new Uint8Array(await new Response(stream).arrayBuffer());
  const part = (from, count) => {
    const raw = bytes.subarray(from, from + count * 785);  // pixels, then labels
    const gray = raw.subarray(0, count * 784);
    const pixels = Float32Array.from(gray, (byte) => byte / 255);
    const labels = Array.from(raw.subarray(count * 784));
    const images = labels.map((_, n) => pixels.subarray(n * 784, (n + 1) * 784));
    return { images, labels };
  };
  return { train: part(0, IMAGES), test: part(IMAGES * 785, TESTED) };
}

// The address has what differs from stage 4: #ranks=4&off=set_epoch,all_reduce
function readAddress() {
  const given = new URLSearchParams(location.hash.slice(1));
  const off = (given.get("off") || "").split(",");
  for (const one of switches) one.checked = off.includes(one.id);
  for (const name of Object.keys(FLAGS)) {
    controls[name].value = given.get(name) || FLAGS[name];
    if (!controls[name].value) controls[name].value = FLAGS[name];  // no such choice
  }
}

function readControls() {
  const off = switches.filter((one) => one.checked).map((one) => one.id);
  settings = { off };
  const parts = off.length ? [`off=${off}`] : [];
  for (const name of Object.keys(FLAGS)) {
    settings[name] = Number(controls[name].value);
    if (settings[name] !== FLAGS[name]) parts.push(`${name}=${settings[name]}`);
  }
  history.replaceState(null, "", `#${parts.join("&")}`);
  by("init_sync").disabled = off.includes("ddp");
}

// Stage 1 trains first, unless it has before with these flags; then stage 4.
async function start() {
  stopPlaying();
  readControls();
  const key = JSON.stringify({ ...settings, ranks: 1, off: [] });
  reference = references[key] || { steps: [], rows: [] };
  run = { steps: [], rows: [] };
  by("curve").dataset.done = false;
  drawSoon();
  if (!references[key]) await train(JSON.parse(key), reference);
  references[key] = reference;
  await train(settings, run);
  by("which").value = 1;
}

function train(flags, into) {  // a promise, never kept if another run begins before
  const code = new Blob([by("training").textContent], { type: "text/javascript" });
  worker?.terminate();
  worker = new Worker(URL.createObjectURL(code));
  worker.postMessage({ settings: flags, ...digits });
  return new Promise((resolve) => {
    worker.onmessage = ({ data: posted }) => {
      (posted.row ? into.rows : into.steps).push(posted.row || posted);
      if (into.rows.length === flags.epochs) resolve();
      drawSoon();
    };
  });
}

// The mean of all ranks, as the script prints it; rank 0's without the all-reduce.
function lossOf(step) {
  if (settings.off.includes("all_reduce")) return step.losses[0];
  return step.losses.reduce((sum, loss) => sum + loss) / step.losses.length;
}

// As `make compare` judges, in its words.
function judge(rows, others) {
  const number = (value, places) =>
    value.toExponential(places).replace(/-(\d)$/, "-0$1").replace(/\+(\d)$/, "+0$1");
  const errors = rows.map(([loss], n) => distance(loss, others[n][0]));
  const images = rows.map(([, correct], n) => Math.abs(correct - others[n][1]));
  const error = Math.max(...errors);
  const many = Math.max(...images);
  if (!rows.every(([loss]) => Number.isFinite(loss)))
    return "DIFFERENT: a loss is not a number";
  if (error === 0 && many === 0) return "equal";
  for (const n of rows.keys()) {
    if (errors[n] > allowed(n + 1))
      return `DIFFERENT: a loss is off by ${number(error, 1)}` +
        (error < data.small ? `; ${data.causes}` : "");
    if (images[n] > data.counts * TESTED)
      return `DIFFERENT: ${many} more or fewer images are right`;
  }
  return `equal to rounding (${number(error, 0)})`;
}

let asked;
function drawSoon() {
  cancelAnimationFrame(asked);
  asked = requestAnimationFrame(draw);
}

function draw() {
  const verdict = run.rows.length ? judge(run.rows, reference.rows) : "";
  const done = run.rows.length === settings.epochs;
  by("curve").dataset.done = done;
  const [name, rows] = run.steps.length
    ? [`stage 4 on ${settings.ranks} ranks`, run.rows] : ["stage 1", reference.rows];
  by("progress").textContent = done ? "" : `${name}, epoch ${rows.length + 1}`;
  by("verdict").textContent = verdict || "…";
  by("verdict").className = verdict.startsWith("DIFFERENT") ? "different" : "";
  drawLosses();
  if (!playing) showStep(done ? Number(by("which").value) : run.steps.length);
}

function drawLosses() {
  const kind = by("verdict").className ? "wrong" : "same";
  const right = reference.rows;
  const steps = ({ steps }, loss) => steps.map((step) => [step.at, loss(step)]);
  const means = right.map(([loss], n) => [n + 0.5, loss]);
  const lines = [
    { kind: "right steps", points: steps(reference, (step) => step.losses[0]) },
    { kind: "right", points: means },
    { kind: `${kind} steps`, points: steps(run, lossOf) },
    epochLine(kind, run.rows, right),
  ];
  const width = by("verdict").parentElement.clientWidth;
  by("charts").replaceChildren(chart(lines, [0, settings.epochs], width));
  const ours = { [`stage 4, ${settings.ranks} ranks`]: run.rows };
  by("table").replaceChildren(lossTable("stage 1", right, ours));
}

function drawDigits(canvas, indices, share) {
  const columns = settings.ranks > 2 ? 8 : 16;
  canvas.width = columns * 28;
  canvas.height = Math.ceil(indices.length / columns) * 28;
  const context = canvas.getContext("2d");
  const dealt = indices.slice(0, Math.ceil(share * indices.length));
  for (const [n, index] of dealt.entries()) {
    const image = new ImageData(28, 28);
    const pixels = digits.train.images[index];
    for (const [p, ink] of pixels.entries()) image.data[p * 4 + 3] = ink * 255;
    context.putImageData(image, (n % columns) * 28, Math.floor(n / columns) * 28);
  }
  const names = indices.map((index) => digits.train.labels[index]).join(" ");
  canvas.setAttribute("aria-label", `The digits ${names}`);
}

function drawBars(svg, before, after, scale) {
  const slot = svg.clientWidth / 10;
  svg.setAttribute("viewBox", `0 0 ${slot * 10} 120`);
  const bar = (x, value, kind) => {
    const height = Math.abs(value / scale) * 48;
    const top = value > 0 ? 52 - height : 52;
    return `<rect class="${kind}" x="${x}" y="${top}" width="${slot * 0.36}"
      height="${height}"/>`;
  };
  const grown = Math.min(Math.max(phase - 1, 0), 1);
  const exchanged = Math.min(Math.max(phase - 2, 0), 1);
  const bars = Array.from(before, (own, n) => {
    const mean = own + (after[n] - own) * exchanged;
    return bar((n + 0.1) * slot, own * grown, "own") +
      (phase > 2 ? bar((n + 0.5) * slot, mean, "mean") : "") +
      `<text x="${(n + 0.48) * slot}" y="116" text-anchor="middle">${n}</text>`;
  });
  svg.innerHTML = `<path class="grid" d="M0 52H${slot * 10}"/>${bars.join("")}`;
  const read = (grads) => Array.from(grads, (grad) => grad.toFixed(3)).join(" ");
  svg.setAttribute("aria-label", `Its own: ${read(before)}; then: ${read(after)}`);
}

function showStep(number) {
  const step = run.steps[number - 1];
  if (!step) return;
  by("which").max = run.steps.length;
  by("which").value = number;
  by("where").textContent = `${number} of ${run.steps.length}`;
  by("exchange").textContent = settings.off.includes("ddp")
    ? "is missing: each keeps its own" : "leaves the mean on all";
  for (const [n, item] of [...by("phases").children].entries())
    item.classList.toggle("now", playing > 0 && Math.floor(phase) === n);
  const figures = by("ranks").children;
  if (figures.length !== settings.ranks) {
    const figure = `<figure><figcaption></figcaption><canvas role="img"></canvas>
      <svg role="img"></svg></figure>`;
    by("ranks").innerHTML = figure.repeat(settings.ranks);
  }
  const scale = Math.max(...step.before.flatMap((own) => Array.from(own, Math.abs)));
  for (const [rank, indices] of step.indices.entries()) {
    const [caption, canvas, svg] = figures[rank].children;
    caption.textContent = `rank ${rank}: ${indices.length} digits`;
    drawDigits(canvas, indices, Math.min(phase, 1));
    drawBars(svg, step.before[rank], step.after[rank], scale);
  }
}

function stopPlaying() {
  playing = 0;
  phase = PHASES;
  by("play").textContent = "Play slowly";
}

function play(now) {
  if (!playing) return;
  phase += (now - playing) / 1200;
  playing = now;
  const number = Number(by("which").value);
  showStep(phase < PHASES ? number : (number % run.steps.length) + 1);
  phase %= PHASES;
  requestAnimationFrame(play);
}

digits = await unpack();  // before anything can start a run
by("play").onclick = () => {
  if (playing) return stopPlaying();
  phase = 0;
  playing = performance.now();
  by("play").textContent = "Stop";
  requestAnimationFrame(play);
};
by("which").oninput = () => showStep(Number(by("which").value));
by("again").onclick = start;
by("settings").onchange = start;
by("lines").onchange = start;
addEventListener("hashchange", () => { readAddress(); start(); });
readAddress();
start();
new ResizeObserver(drawSoon).observe(by("settings"));
