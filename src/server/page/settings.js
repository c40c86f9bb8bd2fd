// The settings of this browser: a table of fields, the form that shows them, and their storage.
import { element } from "./dom.js";

const kStored = "tilewright.settings";

const kFields = [
  {
    name: "system",
    label: "System prompt",
    kind: "textarea",
    hint: "Comes before every conversation.",
  },
  { name: "temperature", label: "Temperature", min: 0, max: 2, step: 0.01, hint: "0: always the likeliest token" },
  { name: "top_p", label: "Top-p", min: 0.01, max: 1, step: 0.01, hint: "Share of likely tokens to choose from" },
  { name: "max_tokens", label: "Longest answer", min: 1, step: 1, integer: true, hint: "In tokens" },
  { name: "seed", label: "Seed", min: 0, step: 1, integer: true, hint: "Same seed, same answer" },
];

export class Settings {
  #values = JSON.parse(localStorage.getItem(kStored) ?? "{}");

  get systemPrompt() {
    return this.#values.system?.trim() ?? "";
  }

  // Members of a request. What is not set is left to the server's and the model's defaults.
  get sampling() {
    const { system, ...sampling } = this.#values;
    return sampling;
  }

  fill(form) {
    for (const field of kFields) form.append(this.#row(field));
    form.addEventListener("submit", (event) => event.preventDefault());
    const reset = element("button", { type: "reset" }, "Defaults");
    form.append(reset);
    form.addEventListener("reset", () => {
      this.#values = {};
      this.#store();
      for (const input of form.querySelectorAll("input, textarea")) input.defaultValue = "";
    });
  }

  #row(field) {
    const id = `setting-${field.name}`;
    const input = field.kind === "textarea"
      ? element("textarea", { id, rows: "3", spellcheck: "false" })
      : element("input", {
          id,
          type: "number",
          inputmode: field.integer ? "numeric" : "decimal",
          placeholder: "default",
          step: field.step,
          min: field.min,
          ...(field.max !== undefined && { max: field.max }),
        });
    input.setAttribute("aria-describedby", `${id}-hint`);
    input.value = this.#values[field.name] ?? "";
    input.addEventListener("input", () => this.#take(field, input));
    return element("div", { class: "field" },
      element("label", { for: id }, field.label), input,
      element("p", { class: "hint", id: `${id}-hint` }, field.hint));
  }

  // Values out of range stay in the form, marked, and are not used.
  #take(field, input) {
    const isUsable = input.value.trim() !== "" && input.validity.valid;
    delete this.#values[field.name];
    if (isUsable) this.#values[field.name] = field.kind === "textarea" ? input.value : Number(input.value);
    input.setAttribute("aria-invalid", String(!input.validity.valid));
    this.#store();
  }

  #store() {
    localStorage.setItem(kStored, JSON.stringify(this.#values));
  }
}
