// The conversation as data: messages, and the answer that is being streamed.
import { chatChunks } from "./api.js";

export class Conversation {
  messages = []; // {role, content, reasoning?, problem?}: what is sent is role and content
  #settings;
  #abort = null;

  constructor(settings) {
    this.#settings = settings;
  }

  get isAnswering() {
    return this.#abort !== null;
  }

  ask(text) {
    this.messages.push({ role: "user", content: text });
  }

  // Forgets the last answer, so that there can be another.
  dropAnswer() {
    if (this.messages.at(-1)?.role === "assistant") this.messages.pop();
  }

  clear() {
    this.stop();
    this.messages = [];
  }

  stop() {
    this.#abort?.abort();
  }

  // Streams an answer into a new message; `onChange(message)` after each piece. Never throws: what
  // goes wrong becomes the message's `problem` (an ApiFailure).
  async answer(onChange) {
    const request = this.#request();
    const message = { role: "assistant", content: "", reasoning: "" };
    this.messages.push(message);
    const abort = (this.#abort = new AbortController());
    const begin = performance.now();
    try {
      for await (const chunk of chatChunks(request, abort.signal)) {
        this.#add(message, chunk, begin);
        onChange(message);
      }
    } catch (problem) {
      if (problem.name === "AbortError") {
        message.wasStopped = true;
      } else {
        message.problem = problem;
      }
    } finally {
      message.seconds = (performance.now() - begin) / 1e3;
      if (this.#abort === abort) this.#abort = null;
      onChange(message);
    }
    return message;
  }

  #request() {
    const system = this.#settings.systemPrompt;
    const messages = this.messages
      .filter(({ problem }) => !problem)
      .map(({ role, content }) => ({ role, content }));
    return {
      ...this.#settings.sampling,
      messages: system ? [{ role: "system", content: system }, ...messages] : messages,
    };
  }

  #add(message, chunk, begin) {
    const choice = chunk.choices?.[0];
    const { content, reasoning_content: reasoning } = choice?.delta ?? {};
    if (content || reasoning) message.firstTokenSeconds ??= (performance.now() - begin) / 1e3;
    message.content += content ?? "";
    message.reasoning += reasoning ?? "";
    message.finishReason = choice?.finish_reason ?? message.finishReason;
    message.usage = chunk.usage ?? message.usage;
  }
}
