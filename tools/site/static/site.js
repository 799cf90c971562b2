"use strict";
// What scrolls sideways does so by keys, too.
const wide = document.querySelectorAll("article :is(table, .table-wrapper)");
for (const one of wide) if (one.scrollWidth > one.clientWidth) one.tabIndex = 0;

document.querySelector(".menu")?.addEventListener("click", () => {
  document.getElementById("__navigation").click();
  document.querySelector(".sidebar-drawer a").focus();
});
