// Shows Markdown as elements. The text comes from a model: it reaches the document as text nodes
// only, never as markup.
import { blocks } from "./markdown.js";
import { copyButton, element } from "./dom.js";

// Makes `target` show `text`. Blocks that did not change keep their elements, and with them
// selection and focus; while a text streams in, only its last block is made anew.
export function renderMarkdown(target, text) {
  const wanted = blocks(text);
  let kept = 0;
  while (kept < wanted.length && target.children[kept]?.source === wanted[kept].source) ++kept;
  while (target.children.length > kept) target.lastChild.remove();
  for (const block of wanted.slice(kept)) {
    const made = blockElement(block);
    made.source = block.source;
    target.append(made);
  }
}

function blockElement(block) {
  switch (block.type) {
    case "code":
      return codeElement(block);
    case "heading":
      // The page has the first two levels.
      return element(`h${Math.min(block.level + 2, 6)}`, {}, ...inlineNodes(block.inlines));
    case "rule":
      return element("hr");
    case "quote":
      return element("blockquote", {}, ...block.blocks.map(blockElement));
    case "list":
      return listElement(block);
    case "table":
      return tableElement(block);
    default:
      return element("p", {}, ...inlineNodes(block.inlines));
  }
}

function codeElement({ language, text }) {
  const head = element("figcaption", {}, element("span", {}, language || "text"),
    copyButton("Copy code", () => text));
  const code = element("pre", { tabindex: "0" }, element("code", {}, text));
  return element("figure", { class: "code" }, head, code);
}

function listElement({ ordered, start, items }) {
  const made = element(ordered ? "ol" : "ul", ordered && start !== 1 ? { start } : {});
  for (const item of items) {
    // A lone paragraph needs no margins of its own.
    const [first, ...rest] = item;
    const head = first?.type === "paragraph" ? inlineNodes(first.inlines) : item.slice(0, 1).map(blockElement);
    made.append(element("li", {}, ...head, ...rest.map(blockElement)));
  }
  return made;
}

function tableElement({ head, rows }) {
  const row = (cells, tag) =>
    element("tr", {}, ...cells.map((cell) => element(tag, {}, ...inlineNodes(cell))));
  const table = element("table", {}, element("thead", {}, row(head, "th")),
    element("tbody", {}, ...rows.map((cells) => row(cells, "td"))));
  return element("div", { class: "table", tabindex: "0" }, table);
}

function inlineNodes(inlines) {
  return inlines.map((inline) => {
    if (typeof inline === "string") return inline;
    switch (inline.type) {
      case "code":
        return element("code", {}, inline.text);
      case "strong":
        return element("strong", {}, ...inlineNodes(inline.inlines));
      case "emphasis":
        return element("em", {}, ...inlineNodes(inline.inlines));
      default:
        return element("a", { href: inline.target, target: "_blank", rel: "noopener noreferrer" },
          ...inlineNodes(inline.inlines));
    }
  });
}
