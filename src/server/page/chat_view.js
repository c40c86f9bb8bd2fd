// The conversation on the page: its messages, the composer, and the buttons of both.
import { renderMarkdown } from "./render.js";
import { button, byId, copyButton, element } from "./dom.js";

// How far from the end, in pixels, a reader still follows the text that streams in.
const kFollowDistance = 80;

export class ChatView {
  #conversation;
  #onKeyWanted;
  #messages = byId("messages");
  #welcome = byId("welcome");
  #prompt = byId("prompt");
  #frame = 0;

  constructor(conversation, onKeyWanted) {
    this.#conversation = conversation;
    this.#onKeyWanted = onKeyWanted;
    byId("composer").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#send();
    });
    this.#prompt.addEventListener("keydown", (event) => {
      // While an input method composes, Enter chooses a character.
      if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
        event.preventDefault();
        this.#send();
      }
    });
    this.#prompt.addEventListener("input", () => this.#fitPrompt());
    byId("stop").addEventListener("click", () => this.stop());
    byId("new-chat").addEventListener("click", () => this.#clear());
    this.#prompt.focus();
  }

  stop() {
    this.#conversation.stop();
  }

  async regenerate() {
    if (this.#conversation.isAnswering) return;
    this.#conversation.dropAnswer();
    this.#messages.querySelector("article.assistant:last-of-type")?.remove();
    await this.#answer();
  }

  #send() {
    const text = this.#prompt.value.trim();
    if (text === "" || this.#conversation.isAnswering) return;
    this.#prompt.value = "";
    this.#fitPrompt();
    this.#conversation.ask(text);
    // What people write is shown as they wrote it.
    this.#append("user", "You", element("p", { class: "plain" }, text));
    this.#answer();
  }

  async #answer() {
    const body = element("div", { class: "body" });
    const article = this.#append("assistant", "Assistant", body);
    article.setAttribute("aria-busy", "true");
    this.#showAnswering(true);
    this.#announce("Answering");
    const message = await this.#conversation.answer((changed) => this.#draw(body, changed));
    cancelAnimationFrame(this.#frame);
    this.#frame = 0;
    if (!article.isConnected) return; // the conversation was cleared meanwhile
    this.#show(body, message);
    article.removeAttribute("aria-busy");
    article.append(this.#footer(message));
    this.#showAnswering(false);
    this.#announce(message.problem ? message.problem.message : "Answer complete");
    this.#follow(true);
    if (message.problem?.status === 401) this.#onKeyWanted();
  }

  // At most once per frame, however fast the tokens come.
  #draw(body, message) {
    this.#frame ||= requestAnimationFrame(() => {
      this.#frame = 0;
      const follows = this.#isAtEnd();
      this.#show(body, message);
      this.#follow(follows);
    });
  }

  #show(body, message) {
    if (message.reasoning) this.#showReasoning(body, message.reasoning);
    let text = body.querySelector(":scope > .text");
    if (!text) body.append((text = element("div", { class: "text" })));
    renderMarkdown(text, message.content);
    if (message.problem) body.append(element("p", { class: "problem" }, message.problem.message));
  }

  #showReasoning(body, reasoning) {
    let details = body.querySelector(":scope > details");
    if (!details) {
      details = element("details", {}, element("summary", {}, "Reasoning"), element("div"));
      body.prepend(details);
    }
    renderMarkdown(details.lastChild, reasoning);
  }

  #footer(message) {
    const buttons = [button("Regenerate", () => this.regenerate())];
    if (message.content) buttons.unshift(copyButton("Copy answer", () => message.content));
    this.#messages.querySelectorAll("footer button.regenerate").forEach((old) => old.remove());
    buttons.at(-1).className = "regenerate";
    return element("footer", {}, ...buttons, element("span", { class: "hint" }, summary(message)));
  }

  #append(kind, name, content) {
    this.#welcome.hidden = true;
    const article = element("article", { class: kind, "aria-label": name }, content);
    this.#messages.append(article);
    this.#follow(true);
    return article;
  }

  #clear() {
    this.#conversation.clear();
    this.#messages.querySelectorAll("article").forEach((article) => article.remove());
    this.#welcome.hidden = false;
    this.#showAnswering(false);
    this.#prompt.focus();
  }

  #showAnswering(isAnswering) {
    const hadFocus = [byId("stop"), byId("send")].includes(document.activeElement);
    byId("send").hidden = isAnswering;
    byId("stop").hidden = !isAnswering;
    if (hadFocus) this.#prompt.focus();
  }

  #announce(text) {
    byId("announcement").textContent = text;
  }

  #fitPrompt() {
    this.#prompt.style.height = "auto";
    this.#prompt.style.height = `${this.#prompt.scrollHeight + 2}px`;
  }

  #isAtEnd() {
    const { scrollHeight, scrollTop, clientHeight } = this.#messages;
    return scrollHeight - scrollTop - clientHeight < kFollowDistance;
  }

  #follow(follows) {
    if (follows) this.#messages.scrollTop = this.#messages.scrollHeight;
  }
}

function summary({ usage, seconds, firstTokenSeconds, finishReason, wasStopped }) {
  const parts = [];
  if (wasStopped) parts.push("stopped");
  if (finishReason === "length") parts.push("cut at the longest answer");
  if (usage) {
    const rate = usage.completion_tokens / seconds;
    parts.push(`${usage.completion_tokens} tokens`, `${rate.toFixed(1)} tokens/s`);
  }
  if (firstTokenSeconds !== undefined) parts.push(`first after ${firstTokenSeconds.toFixed(2)} s`);
  return parts.join(" · ");
}
