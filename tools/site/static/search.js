"use strict";
// The search page, which finds while you type. texts.js has each page's title and texts,
// [text, id and title of its section], prose first.
const part = id => document.getElementById(id);
const form = part("kinds").parentElement;
const make = (tag, text) => Object.assign(document.createElement(tag), { textContent: text });
const KINDS = [["lessons", /^(0|beyond|transformer).*README/], ["exercises", /^exercises/],
  ["notebooks", /^notebooks/], ["reference", /./]];
const kindOf = name => KINDS.find(([, pattern]) => pattern.test(name))[0];
const WORD = /[\w.]+/g;
let most = 10;

// A page with all words and its best text, or null. The page of this very title comes first,
// then symptoms, titles, lessons and frequent words.
function find(name, { title, texts }, words) {
  const has = text => words.filter(word => text.toLowerCase().includes(word)).length;
  const whole = texts.map(([text]) => text).join(" ");
  if (!texts.length || has(`${title} ${whole}`) < words.length) return null;
  const best = texts.reduce((best, one) => has(one[0]) > has(best[0]) ? one : best);
  const hits = words.reduce((sum, word) => sum + whole.toLowerCase().split(word).length - 1, 0);
  const isNamed = (title.toLowerCase().match(WORD) || []).join() === words.join();
  const score = (isNamed ? 2000 : 0) + Math.min(10, hits) * 2 + 15 * has(title) + (kindOf(name) === "lessons" ? 10 : 0) +
    (name === "docs/SYMPTOMS" && has(best[0]) === words.length ? 1000 : 0);
  return { name, title, best, score };
}

function item({ name, title, best: [text, id, section] }, words) {
  const made = make("li", ""), page = make("a", title), place = make("a", section);
  page.href = `${name}.html`;
  place.href = `${name}.html#${id}`;
  const at = text.toLowerCase().search(words.find(word => text.toLowerCase().includes(word)));
  const start = at > 60 ? text.indexOf(" ", at - 60) : 0;  // whole words around the first hit
  const end = text[start + 200] ? text.lastIndexOf(" ", start + 200) : text.length;
  const shown = make("p", (start ? "…" : "") + text.slice(start, end) + (text[end] ? " …" : ""));
  for (const word of words) _highlightText(shown, word, "found");
  made.append(page, make("small", kindOf(name).replace(/s$/, "")), shown, section === title ? "" : place);
  return made;
}

function search(words, kind) {
  return Object.entries(TEXTS).map(([name, page]) => find(name, page, words))
    .filter(one => one && (kind === "all" || kindOf(one.name) === kind))
    .sort((a, b) => b.score - a.score || a.name.localeCompare(b.name));
}

function show() {
  const { q, kind } = Object.fromEntries(new FormData(form));
  const words = q.toLowerCase().match(WORD) || [];
  const hits = words.length ? search(words, kind) : [];
  const found = hits.length || kind === "all" ? hits : search([], kind);  // or all of a kind
  part("found").replaceChildren(...found.slice(0, most).map(one => item(one, hits.length ? words : [])));
  part("more").hidden = found.length <= most;
  part("more").textContent = `${found.length - most} more`;
  part("suggested").hidden = hits.length > 0;
  part("count").textContent = hits.length ? `Pages found: ${hits.length}`
    : words.length ? `No page has ${words[1] ? "all of " : ""}“${q}”` : "";
}
form.oninput = () => { most = 10; show(); };
part("more").onclick = () => { most += 10; show(); };
const asked = new URLSearchParams(location.search);
form.elements.q.value = asked.get("q") || "";
form.elements.kind.value = asked.get("kind") || "all";
show();
