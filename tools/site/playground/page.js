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
    const pixels = Float32Array.from(raw.subarray(0, count * 784), (byte) => byte / 255);
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
  for (const one of switches) one.checked = !off.includes(one.id);
  for (const name of Object.keys(FLAGS)) {
    controls[name].value = given.get(name) || FLAGS[name];
    if (!controls[name].value) controls[name].value = FLAGS[name];  // no such choice
  }
}

function readControls() {
  const off = switches.filter((one) => !one.checked).map((one) => one.id);
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

// What stage 1 had when it had seen as many images.
function lossOfReference(at) {
  const epoch = Math.ceil(at - 1e-9);
  const seen = (at - epoch + 1) * IMAGES;
  const before = (epoch - 1) * Math.ceil(IMAGES / settings.batch_size);
  const step = before + Math.ceil(seen / settings.batch_size - 1e-6);
  return reference.steps[step - 1].losses[0];
}

const apart = (loss, other) => Math.abs(loss - other) / (Math.abs(other) || 1);

function judge(rows, others) {  // as `make compare` does, in its words
  const number = (value, places) =>
    value.toExponential(places).replace(/-(\d)$/, "-0$1").replace(/\+(\d)$/, "+0$1");
  const errors = rows.map(([loss], n) => apart(loss, others[n][0]));
  const images = rows.map(([, correct], n) => Math.abs(correct - others[n][1]));
  const error = Math.max(...errors);
  const many = Math.max(...images);
  if (!rows.every(([loss]) => Number.isFinite(loss)))
    return "DIFFERENT: a loss is not a number";
  if (error === 0 && many === 0) return "equal";
  for (const n of rows.keys()) {
    if (errors[n] > data.allowed[n])
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
  by("curve").classList.toggle("different", verdict.startsWith("DIFFERENT"));
  by("curve").dataset.done = done;
  const [name, rows] = run.steps.length
    ? [`stage 4 on ${settings.ranks} ranks`, run.rows] : ["stage 1", reference.rows];
  by("progress").textContent = done ? "" : `${name}, epoch ${rows.length + 1}`;
  by("verdict").textContent = verdict || "…";
  drawLoss();
  drawDistance();
  drawRows();
  if (!playing) showStep(done ? Number(by("which").value) : run.steps.length);
}

// Measures a chart and draws its grid: `down` says how far down a value stands, 0 to 1.
function frame(svg, ticks, down) {
  const width = svg.clientWidth;
  const bottom = svg.clientHeight - 20;
  const x = (at) => 44 + (at / settings.epochs) * (width - 52);
  const y = (value) => 5 + down(value) * (bottom - 5);
  svg.setAttribute("viewBox", `0 0 ${width} ${bottom + 20}`);
  const grid = ticks.map((tick) => `<path class="grid" d="M44 ${y(tick)}H${width - 8}"/>
    <text x="38" y="${y(tick) + 4}" text-anchor="end">${tick}</text>`);
  for (let n = 0; n < settings.epochs; n++)
    grid.push(`<path class="grid" d="M${x(n + 1)} 5V${bottom}"/>
      <text x="${x(n + 0.5)}" y="${bottom + 16}" text-anchor="middle">${n + 1}</text>`);
  return { x, y, bottom, grid: grid.join("") };
}

function drawLoss() {
  const highest = Math.max(2.4, ...reference.rows.map(([loss]) => loss));
  const down = (loss) => 1 - Math.min(loss / highest, 1);
  const { x, y, grid } = frame(by("loss"), [0, 0.5, 1, 1.5, 2], down);
  const lines = ({ steps, rows }, loss, kind) => {
    const points = steps.map((step) => `${x(step.at)},${y(loss(step))}`);
    const means = rows.map(([mean], n) => `M${x(n)} ${y(mean)}H${x(n + 1)}`);
    return `<polyline class="${kind}" points="${points.join(" ")}"/>
      <path class="${kind} mean" d="${means.join("")}"/>`;
  };
  by("loss").innerHTML = grid + lines(reference, (step) => step.losses[0], "one") +
    lines(run, lossOf, "ours");
}

function drawDistance() {
  const down = (error) => -Math.log10(Math.min(Math.max(error, 1e-9), 1)) / 9;
  const ticks = ["1", "1e-2", "1e-4", "1e-6", "1e-8"];
  const { x, y, bottom, grid } = frame(by("distance"), ticks, down);
  const bands = data.allowed.slice(0, settings.epochs).map((allowed, n) =>
    `<path class="bug" d="M${x(n)} 5H${x(n + 1)}V${y(allowed)}H${x(n)}"/>
      <path class="rounding" d="M${x(n)} ${bottom}H${x(n + 1)}V${y(allowed)}H${x(n)}"/>`);
  const dots = run.steps.map((step) => {
    const error = apart(lossOf(step), lossOfReference(step.at));
    return `<circle class="dot" cx="${x(step.at)}" cy="${y(error)}" r="1.5"/>`;
  });
  const errors = run.rows.map(([loss], n) => apart(loss, reference.rows[n][0]));
  const means = errors.map((error, n) =>
    `<circle class="${error > data.allowed[n] ? "far" : "near"}" r="6"
      cx="${x(n + 0.5)}" cy="${y(error)}"/>`);
  const place = `class="name" text-anchor="end" x="${x(settings.epochs) - 8}"`;
  const names = `<text ${place} y="21">a bug</text>
    <text ${place} y="${y(data.allowed[settings.epochs - 1]) + 18}">rounding</text>`;
  by("distance").innerHTML = [...bands, grid, ...dots, ...means, names].join("");
}

function drawRows() {
  by("ours").textContent = `stage 4, ${settings.ranks} ranks`;
  by("rows").innerHTML = reference.rows.map(([loss], n) => {
    const right = loss.toFixed(6);
    const [ours, correct] = run.rows[n] || [];
    const printed = ours === undefined ? "" : ours.toFixed(6);
    let same = apart(ours, loss) > data.allowed[n] ? 0 : printed.length;
    while (same < printed.length && printed[same] === right[same]) same++;
    return `<tr><th scope="row">${n + 1}</th><td>${right}</td>
      <td>${printed.slice(0, same)}<mark>${printed.slice(same)}</mark></td>
      <td>${correct === undefined ? "" : `${correct}/${TESTED}`}</td></tr>`;
  }).join("");
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
  if (figures.length !== settings.ranks)
    by("ranks").innerHTML = `<figure><figcaption></figcaption><canvas role="img"></canvas>
      <svg role="img"></svg></figure>`.repeat(settings.ranks);
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
digits = await unpack();
readAddress();
start();
new ResizeObserver(drawSoon).observe(by("loss"));
