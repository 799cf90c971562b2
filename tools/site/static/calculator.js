"use strict";
// SCALING's calculator: Python has computed each choice, this shows what is chosen.
const calculator = document.querySelector(".calculator");
const { memory, plans } = JSON.parse(calculator.querySelector("script").textContent);

function planRow(cut, [state, best, worst], { computing, kept: [all, some] }) {
  const fits = state + all < memory ? "yes"
    : state + some < memory ? "with checkpointing" : "no";
  const part = (kind, bytes) =>
    `<i class="${kind}" style="width: ${bytes / memory * 50}%"></i>`;
  const percent = seconds => Math.round(100 * computing / seconds);
  return `<tr class="fits-${fits}"><th scope="row">${cut}</th>
    <td>${best.toPrecision(3)} to ${worst.toPrecision(3)}</td>
    <td>${percent(worst)} to ${percent(best)} %</td>
    <td><div class="filled">${part("state", state)}${part("some", some)}${
      part("all", all - some)}</div></td>
    <td>${[state, state + some, state + all].map(one => Math.round(one / 1e9)).join(", ")}
    </td><td>${fits}</td></tr>`;
}

function showPlan() {
  const plan = plans[[...new FormData(calculator).values()].join(" | ")];
  const rows = Object.entries(plan.cuts).map(([cut, numbers]) => planRow(cut, numbers, plan));
  calculator.querySelector("tbody").innerHTML = rows.join("");
}
calculator.oninput = showPlan;
showPlan();
