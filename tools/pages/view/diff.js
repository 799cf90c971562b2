"use strict";
// What differs between two scripts, without a page: stretches of lines, pairs of lines,
// changed words, hunks. A stretch is [i1, i2, j1, j2]: the
// lines i1 to i2 of the old script go, j1 to j2 of the new one come, counted from 0.

const WORD = /^\s+|\d[\w.]*|\w+|\/\/|\*\*|->|[-+*/<>=!|]=|[^\w\s]/g;
const PYTHON = new RegExp([
  /("""[^]*?"""|"(?:\\.|[^"\\\n])*")/, /(#.*)/, /((?<=\b(?:def|class) )\w+|\b\d[\w.]*)/,
  /\b(and|as|assert|break|class|continue|def|del|elif|else|except|False|for|from)\b/,
  /\b(finally|if|import|in|is|lambda|None|not|or|raise|return|True|try|while|with)\b/,
].map(part => part.source).join("|"), "g");
const KINDS = ["", "string", "comment", "name", "keyword", "keyword"];
const SIMILAR = .42;  // two lines that share less are not one line that changed
const APART = 2;  // equal lines between two changes of one hunk, at most

// A script from its text: its lines, the kind of each letter, the section of each line.
function parseScript(text) {
  const kinds = new Array(text.length).fill("");
  for (const found of text.matchAll(PYTHON)) {
    const group = found.findIndex((part, n) => n > 0 && part !== undefined);
    kinds.fill(KINDS[group], found.index, found.index + found[0].length);
  }
  const lines = text.replace(/\n$/, "").split("\n");
  const script = { lines, kinds: [], sections: [] };
  let at = 0, section = "imports";
  for (const line of lines) {
    script.kinds.push(kinds.slice(at, at + line.length));
    at += line.length + 1;
    const found = /^(?:def|class) (\w+)|^if /.exec(line);
    if (found) section = found[1] || "start";
    script.sections.push(section);
  }
  return script;
}

// A bracket or an empty line in both does not make two stretches alike.
function weight(text) {
  return /\w/.test(text) ? 4 : 1;
}

// The heaviest common subsequence of two lists: { weight, pairs: [[i, j], …] }.
function common(a, b) {
  const best = a.concat("").map(() => new Array(b.length + 1).fill(0));
  for (let i = a.length - 1; i >= 0; i--) {
    for (let j = b.length - 1; j >= 0; j--) {
      best[i][j] = a[i] === b[j] ? best[i + 1][j + 1] + weight(a[i])
        : Math.max(best[i + 1][j], best[i][j + 1]);
    }
  }
  const pairs = [];
  let i = 0, j = 0;
  while (i < a.length && j < b.length) {
    if (a[i] === b[j]) pairs.push([i++, j++]);
    else if (best[i + 1][j] >= best[i][j + 1]) i++;
    else j++;
  }
  return { weight: best[0][0], pairs };
}

// The stretches that are not in common.
function stretches(a, b) {
  const found = [];
  let i = 0, j = 0;
  for (const [m, n] of [...common(a, b).pairs, [a.length, b.length]]) {
    if (m > i || n > j) found.push([i, m, j, n]);
    i = m + 1;
    j = n + 1;
  }
  return found;
}

// Where two versions of a line differ: [[start, end], …] of the old, and of the new.
function changedWords(old, now) {
  const words = [old, now].map(line => [...line.matchAll(WORD)]);
  const marks = [[], []];
  for (const cut of stretches(...words.map(all => all.map(word => word[0])))) {
    words.forEach((all, side) => {
      const [first, end] = cut.slice(2 * side);
      if (first === end) return;
      const last = all[end - 1];
      marks[side].push([all[first].index, last.index + last[0].length]);
    });
  }
  return marks;
}

function similarity(old, now) {
  const words = [old, now].map(line => line.trim().match(WORD) || []);
  const total = words.flat().reduce((sum, word) => sum + weight(word), 0);
  return total ? 2 * common(...words).weight / total : 0;
}

// Pairs [i, j] of a stretch's lines, null where a side has none: the two most similar
// lines are a pair, and so on above and below them.
function aligned(old, now, i = 0, j = 0) {
  let best = null, highest = SIMILAR;
  old.forEach((a, m) => now.forEach((b, n) => {
    const ratio = similarity(a, b);
    if (ratio > highest) [best, highest] = [[m, n], ratio];
  }));
  if (!best) {
    return [...old.map((_, m) => [i + m, null]), ...now.map((_, n) => [null, j + n])];
  }
  const [m, n] = best;
  return [...aligned(old.slice(0, m), now.slice(0, n), i, j), [i + m, j + n],
    ...aligned(old.slice(m + 1), now.slice(n + 1), i + m + 1, j + n + 1)];
}

// The hunks of a pair that no page explains, as those of the lessons are given.
function hunksOf(a, b) {
  const hunks = [];
  for (const stretch of stretches(a.lines, b.lines)) {
    const last = hunks.at(-1)?.stretches.at(-1);
    if (last && stretch[0] - last[1] <= APART) hunks.at(-1).stretches.push(stretch);
    else hunks.push({ number: hunks.length + 1, stretches: [stretch] });
  }
  return hunks;
}
