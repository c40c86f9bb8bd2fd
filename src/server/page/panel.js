// The panel beside the conversation: open or not, and on narrow screens over it.
import { byId } from "./dom.js";

const kStored = "tilewright.panel";
const narrow = matchMedia("(max-width: 60rem)");

export class Panel {
  #panel = byId("panel");
  #switch = byId("panel-switch");
  #onChange;

  constructor(onChange) {
    this.#onChange = onChange;
    this.#switch.addEventListener("click", () => this.#setOpen(this.#panel.hidden));
    byId("panel-close").addEventListener("click", () => this.close());
    this.#setOpen(!narrow.matches && localStorage.getItem(kStored) !== "closed", false);
  }

  get isOver() {
    return narrow.matches && !this.#panel.hidden;
  }

  close() {
    this.#setOpen(false);
    this.#switch.focus();
  }

  #setOpen(isOpen, isChoice = true) {
    this.#panel.hidden = !isOpen;
    this.#switch.setAttribute("aria-expanded", String(isOpen));
    if (isChoice && !narrow.matches) localStorage.setItem(kStored, isOpen ? "open" : "closed");
    if (isChoice && this.isOver) byId("panel-close").focus();
    this.#onChange(isOpen);
  }
}
