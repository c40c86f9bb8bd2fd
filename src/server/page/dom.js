// Elements without markup: text given here is always text, whatever is in it.

// element("a", {href: "#", class: "x"}, "text", child, ...)
export function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  made.append(...children);
  return made;
}

export const byId = (id) => document.getElementById(id);

export function button(label, onClick) {
  const made = element("button", { type: "button" }, label);
  made.addEventListener("click", onClick);
  return made;
}

// A button that copies what `text()` says and tells for a moment that it did.
export function copyButton(label, text) {
  const made = button("Copy", async () => {
    made.textContent = (await copy(text())) ? "Copied" : "Not allowed";
    setTimeout(() => (made.textContent = "Copy"), 1500);
  });
  made.setAttribute("aria-label", label);
  return made;
}

async function copy(text) {
  // Pages over plain HTTP, other than of this machine, have no clipboard but the old command.
  if (navigator.clipboard) {
    return navigator.clipboard.writeText(text).then(() => true, () => false);
  }
  const area = element("textarea", { class: "unseen", "aria-hidden": "true" });
  area.value = text;
  const focused = document.activeElement;
  document.body.append(area);
  area.select();
  const copied = document.execCommand("copy");
  area.remove();
  focused?.focus();
  return copied;
}
