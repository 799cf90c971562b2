"use strict";
// Lines of two scripts as elements of a page, side by side, the changed words marked.

function escaped(text) {
  return text.replace(/[&<>"]/g, sign => `&#${sign.charCodeAt(0)};`);
}

// The text of a line, without its first `dedent` letters.
function lineText(script, n, marks, dedent) {
  const made = element("span", "text");
  const line = script.lines[n], kinds = script.kinds[n];
  const isMarked = at => marks.some(([start, end]) => start <= at && at < end);
  let at = dedent;
  while (at < line.length) {
    const kind = kinds[at], marked = isMarked(at);
    let end = at + 1;
    while (end < line.length && kinds[end] === kind && isMarked(end) === marked) end++;
    const words = line.slice(at, end);
    const html = escaped(words).replace(/[(\[]/g, "$&<wbr>");  // it may break there
    made.append(element(marked && words.trim() ? "mark" : "span", kind, html));
    at = end;
  }
  const indent = Math.max(line.search(/\S|$/) - dedent, 0);
  made.style.setProperty("--hang", `${indent + 2}ch`);  // of what is wrapped
  return made;
}

// A line of one side in a row of the grid; n is null where this side has none.
function cell(script, n, side, kind, row, marks = [], dedent = 0) {
  const made = element("div", `l ${side} ${n === null ? "none" : kind}`);
  made.style.gridRow = row;
  if (n === null) return made;
  const sign = { old: "−", new: "+", same: " " }[kind];
  made.append(element("span", "no", `${n + 1} ${sign}`));
  made.append(lineText(script, n, marks, dedent));
  made.dataset.line = n;
  return made;
}

// The blocks of some stretches that stand at most two equal lines apart. A block is a
// list of rows [i, j, whether they are equal]; `context` adds an equal row around it.
function blocksOf(a, b, all, context) {
  const blocks = [];
  let rows = null, i = 0, j = 0;
  const equalRow = (m, n) => {
    const isSame = context && a.lines[m]?.trim() && a.lines[m] === b.lines[n];
    if (isSame) rows.push([m, n, true]);
  };
  for (const [i1, i2, j1, j2] of all) {
    if (rows && i1 - i === j1 - j && i1 - i <= APART) {
      while (i < i1) rows.push([i++, j++, true]);
    } else {
      if (rows) equalRow(i, j);
      rows = [];
      blocks.push(rows);
      equalRow(i1 - 1, j1 - 1);
    }
    const pairs = aligned(a.lines.slice(i1, i2), b.lines.slice(j1, j2), i1, j1);
    rows.push(...pairs.map(pair => [...pair, false]));
    [i, j] = [i2, j2];
  }
  equalRow(i, j);
  return blocks;
}

// The indentation that all lines of some blocks have.
function commonIndent(a, b, blocks) {
  const found = blocks.flat().flatMap(([i, j]) => [a.lines[i], b.lines[j]]);
  const indents = found.filter(line => line?.trim()).map(line => line.search(/\S/));
  return Math.min(...indents);
}

// In two columns a row has both sides. In one column what goes comes before what comes,
// up to the next equal row: so that is the order of the elements.
function twoColumns(a, b, all, context) {
  const made = element("div", "code");
  const blocks = blocksOf(a, b, all, context);
  const dedent = commonIndent(a, b, blocks);
  let row = 0;
  for (const rows of blocks) {
    const [i, j] = rows.find(one => !one[2]);
    const where = element("div", "where", j === null ? a.sections[i] : b.sections[j]);
    where.style.gridRow = ++row;
    made.append(where);
    let right = [];
    for (const [i, j, isEqual] of rows) {
      row++;
      if (isEqual) made.append(...right.splice(0));
      const both = !isEqual && i !== null && j !== null;
      const marks = both ? changedWords(a.lines[i], b.lines[j]) : [[], []];
      made.append(cell(a, i, "left", isEqual ? "same" : "old", row, marks[0], dedent));
      right.push(cell(b, j, "right", isEqual ? "same" : "new", row, marks[1], dedent));
      if (isEqual) made.append(...right.splice(0));
    }
    made.append(...right);
  }
  return made;
}

// The whole new script, its new lines marked, in a fold.
function wholeScript(a, b) {
  const summary = "<summary>The whole script, its new lines marked</summary>";
  const made = element("details", "fold", summary);
  made.addEventListener("toggle", () => {
    if (made.children.length > 1) return;
    const added = stretches(a.lines, b.lines);
    const lines = element("div", "code whole");
    b.lines.forEach((_, n) => {
      const isNew = added.some(([, , j1, j2]) => j1 <= n && n < j2);
      lines.append(cell(b, n, "right", isNew ? "new" : "same", n + 1));
    });
    made.append(lines);
  });
  return made;
}
