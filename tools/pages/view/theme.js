// The theme that is stored, as on the site: light, dark, or auto, the system's. A button
// goes from one to the next.
{
  const themes = ["auto", "dark", "light"];
  const { dataset } = document.body;
  try { dataset.theme = localStorage.getItem("theme"); } catch {}
  if (!themes.includes(dataset.theme)) dataset.theme = themes[0];
  const button = document.createElement("button");
  button.className = "theme";
  button.textContent = "◐";
  button.ariaLabel = "Light, dark, or as the system";
  button.onclick = () => {
    dataset.theme = themes[(themes.indexOf(dataset.theme) + 1) % themes.length];
    try { localStorage.setItem("theme", dataset.theme); } catch {}
  };
  addEventListener("DOMContentLoaded", () => document.querySelector("main").prepend(button));
}
