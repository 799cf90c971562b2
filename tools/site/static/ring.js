"use strict";
// SCALING's ring, an all-reduce of 2 to 8 ranks, round by round. The gradients of each
// rank are split into one part per rank; a part has the colors of its summands.
{
const ring = document.querySelector(".ring");
const [choice, button, slider, says, table] = ring.querySelectorAll(
  "select, button, input, [role=status], .table");
let ranks, timer;

function choose() {
  ranks = Number(choice.value);
  slider.max = 2 * (ranks - 1);
  slider.value = 0;
  play(false);
  draw();
}

function play(isPlaying) {
  clearInterval(timer);
  timer = isPlaying && setInterval(advance, 1700);
  button.textContent = isPlaying ? "◼ Stop" : "▶ Play";
}

function advance() {
  slider.value = slider.value === slider.max ? 0 : Number(slider.value) + 1;
  if (slider.value === slider.max) play(false);
  draw();
}

function around(number) {
  return (number + 2 * ranks) % ranks;
}

// How many ranks are summed in a rank's copy of a part: itself and those before it.
// A part starts on the rank with its number, goes around the ring and returns complete.
function summands(rank, part, round) {
  const way = around(rank - part);
  if (round >= ranks + way) return ranks;
  return way <= round ? way + 1 : 1;
}

// A rank's copy of a part, each summand at its own height.
function drawPart(kind, rank, part, round) {
  const bands = Array.from({ length: ranks }, (_, one) => {
    const isIn = around(rank - one) < summands(rank, part, round);
    const ink = isIn ? `var(--rank${one % 4})` : "transparent";
    return `${ink} ${100 * one / ranks}% ${100 * (one + 1) / ranks}%`;
  });
  return `<i class="${kind}" style="grid-column: ${part + 1};
    background-image: linear-gradient(${bands})"></i>`;
}

function drawRank(places, rank, round) {
  const before = around(rank - 1), came = around(rank - round);
  const [x, y] = places[rank], [fromX, fromY] = places[before];
  const parts = places.map((_, part) => drawPart("", rank, part, round - 1));
  if (round) parts.push(drawPart("come", rank, came, round),
    drawPart("fly", before, came, round - 1));
  return `<div class="rank" style="--rank: var(--rank${rank % 4}); left: ${x}px;
    top: ${y}px; --x: ${fromX - x}px; --y: ${fromY - y}px"><b>rank ${rank}</b>
    <div>${parts.join("")}</div></div>`;
}

function draw() {
  const round = Number(slider.value), sent = round / ranks, whole = slider.max / ranks;
  const box = Math.min(90, table.clientWidth * .24);
  const across = (table.clientWidth - box) / 2, down = ranks < 5 ? 106 : 125;
  const places = Array.from({ length: ranks }, (_, rank) => {
    const angle = Math.PI * ((2 * rank - 1) / ranks - .5);
    return [across * (1 + Math.cos(angle)), down * (1 + Math.sin(angle))];
  });
  const what = round === 0 ? "each rank has split its gradients into parts"
    : round < ranks ? "reduce-scatter: each rank adds the part it receives"
    : "all-gather: complete parts travel around";
  says.textContent = `Round ${round} of ${slider.max}, ${what}`;
  table.style.cssText = `height: ${2 * down + 72}px; --box: ${box}px`;
  table.innerHTML = `<p><b>${(ring.dataset.bytes * sent / 1e9).toFixed(1)} GB</b>sent by each
    rank,<br>${sent.toFixed(3)} × its gradients<br>(${whole.toFixed(2)} in the end)</p>${
    places.map((_, rank) => drawRank(places, rank, round)).join("")}`;
}

button.onclick = () => { play(!timer); if (timer) advance(); };
slider.oninput = () => { play(false); draw(); };
choice.onchange = choose;
new ResizeObserver(draw).observe(ring);
choose();
}
