"use strict";
// Buttons that copy.

for (const block of document.querySelectorAll(".highlight pre")) {
  const button = document.createElement("button");
  button.className = "copy";
  button.textContent = "copy";
  button.onclick = async () => {
    const text = block.textContent;  // of a terminal, what one types
    const typed = text.match(/^\$ .*$/gm)?.map(line => line.slice(2)).join("\n");
    await navigator.clipboard.writeText(typed || text);
    button.textContent = "copied";
    setTimeout(() => { button.textContent = "copy"; }, 1500);
  };
  block.parentElement.append(button);
}
