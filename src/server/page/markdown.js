// The part of Markdown that models write, as a tree: fenced code, headings, lists, quotes, tables,
// rules and paragraphs; in them code, strong, emphasis and links. HTML is not part of it and stays
// text. Incomplete input, as it is while streaming, gives the tree of what is there.
//
// blocks(text) -> [{type, source, ...}], where `source` is the block's lines: equal source, equal
// block.
// inlines(text) -> [string | {type, ...}]

const kFence = /^ {0,3}(`{3,}|~{3,})\s*([^\s`]*)[^`]*$/;
const kHeading = /^ {0,3}(#{1,6})\s+(.*?)\s*#*$/;
const kRule = /^ {0,3}([-*_])(\s*\1){2,}\s*$/;
const kQuote = /^ {0,3}> ?(.*)$/;
const kItem = /^( *)([-*+]|\d{1,9}[.)])\s+(.*)$/;
const kTableRow = /^\s*\|.*\|\s*$/;
const kTableDivider = /^\s*\|(\s*:?-+:?\s*\|)+\s*$/;

export function blocks(text) {
  const lines = text.replaceAll("\r\n", "\n").split("\n");
  const found = [];
  for (let at = 0; at < lines.length; ) {
    if (lines[at].trim() === "") {
      ++at;
      continue;
    }
    const { end, ...block } = blockAt(lines, at);
    found.push({ ...block, source: lines.slice(at, end).join("\n") });
    at = end;
  }
  return found;
}

function blockAt(lines, at) {
  const line = lines[at];
  let match;
  if ((match = kFence.exec(line))) return codeAt(lines, at, match[1], match[2]);
  if ((match = kHeading.exec(line))) {
    return { type: "heading", level: match[1].length, inlines: inlines(match[2]), end: at + 1 };
  }
  if (kRule.test(line)) return { type: "rule", end: at + 1 };
  if (kQuote.test(line)) return quoteAt(lines, at);
  if (kItem.test(line)) return listAt(lines, at);
  if (beginsTable(lines, at)) return tableAt(lines, at);
  return paragraphAt(lines, at);
}

function codeAt(lines, at, fence, language) {
  let end = at + 1;
  const closes = (line) => line.trim().startsWith(fence) && /^(`+|~+)$/.test(line.trim());
  while (end < lines.length && !closes(lines[end])) ++end;
  return {
    type: "code",
    language,
    text: lines.slice(at + 1, end).join("\n"),
    end: Math.min(end + 1, lines.length),
  };
}

function quoteAt(lines, at) {
  let end = at;
  const inner = [];
  for (let match; end < lines.length && (match = kQuote.exec(lines[end])); ++end) {
    inner.push(match[1]);
  }
  return { type: "quote", blocks: blocks(inner.join("\n")), end };
}

// Items are lines with a marker; deeper lines below an item are blocks inside it.
function listAt(lines, at) {
  const [, indent, marker] = kItem.exec(lines[at]);
  const ordered = /\d/.test(marker);
  const items = [];
  let end = at;
  while (end < lines.length) {
    const match = kItem.exec(lines[end]);
    const isDeeper = lines[end].search(/\S/) > indent.length;
    if (match && match[1].length <= indent.length) {
      if (/\d/.test(match[2]) !== ordered || kRule.test(lines[end])) break;
      items.push([match[3]]);
    } else if (isDeeper) {
      items.at(-1).push(lines[end]);
    } else if (lines[end].trim() === "" && continuesList(lines, end, indent.length, ordered)) {
      items.at(-1).push("");
    } else {
      break;
    }
    ++end;
  }
  return {
    type: "list",
    ordered,
    start: ordered ? parseInt(marker, 10) : 1,
    items: items.map((item) => blocks([item[0], ...unindented(item.slice(1))].join("\n"))),
    end,
  };
}

function continuesList(lines, at, indent, ordered) {
  while (at < lines.length && lines[at].trim() === "") ++at;
  if (at === lines.length) return false;
  const match = kItem.exec(lines[at]);
  if (match && match[1].length <= indent) return /\d/.test(match[2]) === ordered;
  return lines[at].search(/\S/) > indent;
}

function unindented(lines) {
  const indents = lines.filter((line) => line.trim() !== "").map((line) => line.search(/\S/));
  const common = Math.min(...indents);
  return lines.map((line) => line.slice(Math.min(common, line.length)));
}

function beginsTable(lines, at) {
  return kTableRow.test(lines[at]) && kTableDivider.test(lines[at + 1] ?? "");
}

function tableAt(lines, at) {
  const cells = (line) => line.trim().slice(1, -1).split("|").map((cell) => inlines(cell.trim()));
  let end = at + 2;
  while (end < lines.length && kTableRow.test(lines[end])) ++end;
  return { type: "table", head: cells(lines[at]), rows: lines.slice(at + 2, end).map(cells), end };
}

function paragraphAt(lines, at) {
  const interrupts = (line) =>
    line.trim() === "" || [kFence, kHeading, kRule, kQuote, kItem].some((kind) => kind.test(line));
  let end = at + 1;
  while (end < lines.length && !interrupts(lines[end]) && !beginsTable(lines, end)) ++end;
  return { type: "paragraph", inlines: inlines(lines.slice(at, end).join("\n")), end };
}

// The first of these in a text is taken; what is before it is text.
const kSpans = [
  { type: "code", pattern: /(`+)([^`]+)\1(?!`)/ },
  { type: "strong", pattern: /(\*\*)(?=[^\s*])((?:[^*]|\*(?!\*))*?[^\s])\1/ },
  { type: "emphasis", pattern: /(?<![\w*])([*_])(?=[^\s*_])([^*_\n]*[^\s*_])\1(?![\w*])/ },
  { type: "link", pattern: /\[([^[\]]+)\]\(([^()\s]+)\)/ },
];
// Each span searches what is left of the text, so the work grows with the square of its length.
const kLongestSearched = 10000;

export function inlines(text) {
  if (text.length > kLongestSearched) return [text];
  const found = [];
  while (text !== "") {
    const next = firstSpan(text);
    if (!next) break;
    const { type, match } = next;
    if (match.index > 0) found.push(text.slice(0, match.index));
    if (type === "code") {
      found.push({ type, text: match[2] });
    } else if (type === "link") {
      found.push(linkOf(match));
    } else {
      found.push({ type, inlines: inlines(match[2]) });
    }
    text = text.slice(match.index + match[0].length);
  }
  if (text !== "") found.push(text);
  return found;
}

function firstSpan(text) {
  let first = null;
  for (const { type, pattern } of kSpans) {
    const match = pattern.exec(text);
    if (match && (!first || match.index < first.match.index)) first = { type, match };
  }
  return first;
}

// A link to anything but the web or mail stays text.
function linkOf([source, label, target]) {
  return /^(https?:\/\/|mailto:)/i.test(target)
    ? { type: "link", target, inlines: inlines(label) }
    : source;
}
