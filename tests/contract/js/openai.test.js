// The official OpenAI client for JavaScript against the server at TILEWRIGHT_URL; see ../run.sh.
import assert from "node:assert/strict";
import { before, describe, it } from "node:test";
import OpenAI from "openai";

const url = process.env.TILEWRIGHT_URL;
const apiKey = process.env.TILEWRIGHT_API_KEY ?? "none";
if (!url) throw new Error("TILEWRIGHT_URL is not set; tests/contract/run.sh starts a server");

// Retries would hide what the server answered.
const client = new OpenAI({ baseURL: `${url}/v1`, apiKey, maxRetries: 0 });
const messages = [{ role: "user", content: "What is the capital of France? Answer in one sentence." }];
const list = [{ role: "user", content: "List five fruits." }]; // answered "1. ...\n2. ...\n3. ..."
let model;

before(async () => {
  model = (await client.models.list()).data[0].id;
});

const chat = (options = {}) =>
  client.chat.completions.create({ model, messages, temperature: 0, max_tokens: 24, ...options });

describe("models", () => {
  it("retrieves the served model", async () => {
    assert.equal((await client.models.retrieve(model)).id, model);
  });
});

describe("chat", () => {
  it("answers", async () => {
    const answer = await chat();
    assert.equal(answer.object, "chat.completion");
    assert.equal(answer.choices[0].message.role, "assistant");
    assert.match(answer.choices[0].message.content, /Paris/);
    assert.equal(
      answer.usage.total_tokens,
      answer.usage.prompt_tokens + answer.usage.completion_tokens,
    );
  });

  it("streams what it answers", async () => {
    const whole = await chat();
    let text = "";
    let reason = null;
    let usage = null;
    const stream = await chat({ stream: true, stream_options: { include_usage: true } });
    for await (const chunk of stream) {
      text += chunk.choices[0]?.delta.content ?? "";
      reason = chunk.choices[0]?.finish_reason ?? reason;
      usage = chunk.usage ?? usage;
    }
    assert.equal(text, whole.choices[0].message.content);
    assert.equal(reason, whole.choices[0].finish_reason);
    assert.equal(usage.completion_tokens, whole.usage.completion_tokens);
  });

  it("is understood by the client's own stream reader", async () => {
    const runner = client.chat.completions.stream({ model, messages, temperature: 0, max_tokens: 24 });
    const completion = await runner.finalChatCompletion();
    assert.equal(completion.choices[0].message.content, (await chat()).choices[0].message.content);
  });

  it("stops at stop strings", async () => {
    const whole = (await chat({ messages: list })).choices[0].message.content;
    const answer = await chat({ messages: list, stop: ["\n3"] });
    assert.equal(answer.choices[0].finish_reason, "stop");
    assert.equal(answer.choices[0].message.content, whole.split("\n3")[0]);
  });

  it("gives n choices", async () => {
    const answer = await chat({ n: 3, temperature: 1, seed: 3, max_tokens: 12 });
    assert.deepEqual(answer.choices.map((choice) => choice.index).sort(), [0, 1, 2]);
    assert.ok(new Set(answer.choices.map((choice) => choice.message.content)).size > 1);
  });

  it("gives logprobs", async () => {
    const answer = await chat({ logprobs: true, top_logprobs: 2, max_tokens: 4 });
    const { content } = answer.choices[0].logprobs;
    assert.equal(content.length, answer.usage.completion_tokens);
    for (const token of content) {
      assert.ok(token.logprob <= 0);
      assert.equal(token.top_logprobs.length, 2);
      assert.equal(token.top_logprobs[0].token, token.token);
    }
  });

  it("can be left in the middle of a stream", async () => {
    const stream = await chat({ messages: list, stream: true, max_tokens: 500 });
    for await (const chunk of stream) {
      if (chunk.choices[0]?.delta.content) break;
    }
    assert.ok((await chat({ max_tokens: 2 })).choices[0].message.content);
  });
});

describe("completions", () => {
  const prompt = "The capital of France is";

  it("completes, whole and as a stream", async () => {
    const request = { model, prompt, temperature: 0, max_tokens: 8 };
    const whole = await client.completions.create(request);
    assert.match(whole.choices[0].text, /^ Paris/);
    assert.equal(whole.choices[0].finish_reason, "length");
    let text = "";
    for await (const chunk of await client.completions.create({ ...request, stream: true })) {
      text += chunk.choices[0]?.text ?? "";
    }
    assert.equal(text, whole.choices[0].text);
  });

  it("echoes", async () => {
    const answer = await client.completions.create({ model, prompt, max_tokens: 2, echo: true });
    assert.ok(answer.choices[0].text.startsWith(prompt));
  });
});

describe("errors", () => {
  const rejected = (promise, type, check = () => {}) =>
    assert.rejects(promise, (error) => {
      assert.ok(error instanceof type, `${error.constructor.name}: ${error.message}`);
      check(error);
      return true;
    });

  it("names the field of a bad request", async () => {
    await rejected(chat({ temperature: -1 }), OpenAI.BadRequestError, (error) => {
      assert.equal(error.param, "temperature");
      assert.equal(error.type, "invalid_request_error");
    });
  });

  it("knows no other model", async () => {
    await rejected(chat({ model: "gpt-99" }), OpenAI.NotFoundError, (error) => {
      assert.equal(error.code, "model_not_found");
    });
  });

  it("refuses a prompt longer than the context", async () => {
    const long = [{ role: "user", content: "word ".repeat(20000) }];
    await rejected(chat({ messages: long }), OpenAI.BadRequestError, (error) => {
      assert.equal(error.code, "context_length_exceeded");
    });
  });

  it("wants the key", { skip: apiKey === "none" }, async () => {
    const stranger = new OpenAI({ baseURL: `${url}/v1`, apiKey: "wrong", maxRetries: 0 });
    await rejected(stranger.models.list(), OpenAI.AuthenticationError);
  });
});
