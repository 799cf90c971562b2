"use strict";
// SCALING's calculator: Python has computed each choice, this shows what is chosen.
const calculator = document.querySelector(".calculator");
const { memory, plans } = JSON.parse(calculator.querySelector("script").textContent);

function planRow(cut, [state, best, worst], { computing, kept: [all, some] }) {
  const fits = state + all < memory ? "yes"
    : state + some < memory ? "with checkpointing" : "no";
  const part = (kind, share) => `<i class="${kind}" style="width: ${100 * share}%"></i>`;
  const filled = (kind, bytes) => part(kind, bytes / memory / 2);  // its half is full
  const percent = seconds => Math.round(100 * computing / seconds);
  return `<tr class="fits-${fits}"><th scope="row">${cut}</th>
    <td>${best.toPrecision(3)} to ${worst.toPrecision(3)}</td>
    <td><div class="bar">${part("state", computing / worst)}${
      part("may", (worst - best) / worst)}${part("waits", (best - computing) / worst)}</div>
      ${percent(worst)} to ${percent(best)} %</td>
    <td><div class="bar full">${filled("state", state)}${filled("some", some)}${
      filled("all", all - some)}</div>${[0, some, all].map(one =>
      Math.round((state + one) / 1e9)).join(", ")}</td><td>${fits}</td></tr>`;
}

function showPlan() {
  const plan = plans[[...new FormData(calculator).values()].join(" | ")];
  const rows = Object.entries(plan.cuts).map(([cut, numbers]) => planRow(cut, numbers, plan));
  calculator.querySelector("tbody").innerHTML = rows.join("");
}
calculator.oninput = showPlan;
showPlan();
