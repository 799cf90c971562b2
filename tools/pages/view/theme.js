// The theme that the site's switch has stored: light, dark, or auto, the system's.
try { document.body.dataset.theme = localStorage.getItem("theme") || "auto"; } catch {}
