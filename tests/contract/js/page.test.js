// The web page at / in a real browser, against the server at TILEWRIGHT_URL; see ../run.sh.
import assert from "node:assert/strict";
import { after, before, describe, it } from "node:test";
import { launchBrowser, noBrowser, openPage, withoutRefusals } from "./browser.js";

const url = process.env.TILEWRIGHT_URL;
const apiKey = process.env.TILEWRIGHT_API_KEY;
if (!url) throw new Error("TILEWRIGHT_URL is not set; tests/contract/run.sh starts a server");

const kAnswered = { timeout: 60000 };
let browser;
let model;


// The page with its key given, as a returning user has it.
async function openReady(options) {
  const opened = await openPage(browser, url, options);
  if (apiKey) await giveKey(opened.page, apiKey);
  await opened.page.getByText(model).first().waitFor();
  return opened;
}

async function giveKey(page, key) {
  await page.getByLabel("This server wants an API key").fill(key);
  await page.getByRole("button", { name: "Use key" }).click();
}

async function set(page, label, value) {
  await page.getByLabel(label, { exact: true }).fill(String(value));
}

async function ask(page, text) {
  await page.getByLabel("Message").fill(text);
  await page.keyboard.press("Enter");
}

const answers = (page) => page.getByRole("article", { name: "Assistant" });
const regenerate = (page) => page.getByRole("button", { name: "Regenerate" });

describe("page", { skip: noBrowser }, () => {
  before(async () => {
    browser = await launchBrowser();
    const headers = apiKey ? { Authorization: `Bearer ${apiKey}` } : {};
    model = (await (await fetch(`${url}/v1/models`, { headers })).json()).data[0].id;
  });
  after(() => browser?.close());

  it("asks for the key, and refuses a wrong one", { skip: !apiKey }, async () => {
    const { page, problems } = await openPage(browser, url);
    await giveKey(page, "wrong");
    await page.getByText("the API key is not the server's").waitFor();
    await giveKey(page, apiKey);
    await page.getByLabel("This server wants an API key").waitFor({ state: "hidden" });
    await page.getByText(model).first().waitFor();
    assert.deepEqual(withoutRefusals(problems), []);
    await page.context().close();
  });

  it("streams an answer, regenerates it, and shows the engine", async () => {
    const { page, problems } = await openReady({ viewport: { width: 1280, height: 800 } });
    await set(page, "Temperature", 0);
    await set(page, "Longest answer", 24);
    await ask(page, "What is the capital of France? Answer in one sentence.");
    await regenerate(page).waitFor(kAnswered);
    const first = await answers(page).locator(".text").innerText();
    assert.match(first, /Paris/);
    assert.match(await answers(page).locator("footer").innerText(), /tokens\/s/);
    await regenerate(page).click();
    await page.getByRole("button", { name: "Stop" }).waitFor();
    await regenerate(page).waitFor(kAnswered);
    assert.equal(await answers(page).count(), 1);
    assert.equal(await answers(page).locator(".text").innerText(), first);
    const output = page.locator("#engine-output");
    await output.filter({ hasText: /[1-9].* tokens\/s/ }).waitFor();
    assert.match(await page.locator("#engine-ttft").innerText(), /\d m?s$/);
    assert.match(await page.locator("#engine-kv").innerText(), /^[\d,]+ of [\d,]+$/);
    assert.match(await page.locator("#engine-memory-0").innerText(), /^(idle|[\d.]+ of [\d.]+ GB\/s)$/);
    assert.match(await page.locator("#engine-arithmetic-0").innerText(), /^(idle|[\d.]+ of [\d.]+ GOP\/s)$/);
    assert.deepEqual(withoutRefusals(problems), []);
    await page.context().close();
  });

  it("stops where it is told to, by button and by Escape", async () => {
    const { page } = await openReady();
    for (const stop of [
      () => page.getByRole("button", { name: "Stop" }).click(),
      () => page.keyboard.press("Escape"),
    ]) {
      await ask(page, "Count from 1 to 2000, one number a line.");
      await answers(page).last().locator(".text > *").first().waitFor(kAnswered);
      await stop();
      await regenerate(page).waitFor();
      assert.match(await answers(page).last().locator("footer").innerText(), /stopped/);
      await page.getByRole("button", { name: "New chat" }).click();
      assert.equal(await answers(page).count(), 0);
    }
    await page.context().close();
  });

  it("keeps settings in the browser and sends them", async () => {
    const { page } = await openReady({ viewport: { width: 1280, height: 800 } });
    await set(page, "System prompt", "Answer like a pirate.");
    await set(page, "Temperature", 0.5);
    await set(page, "Seed", 7);
    await set(page, "Top-p", 3); // out of range
    assert.equal(await page.getByLabel("Top-p", { exact: true }).getAttribute("aria-invalid"), "true");
    await page.reload();
    assert.equal(await page.getByLabel("System prompt").inputValue(), "Answer like a pirate.");
    await set(page, "Longest answer", 2);
    const request = page.waitForRequest(/chat\/completions/);
    await ask(page, "Hello");
    const { messages, ...sent } = (await request).postDataJSON();
    assert.deepEqual(sent, {
      temperature: 0.5, seed: 7, max_tokens: 2, stream: true, stream_options: { include_usage: true },
    });
    assert.deepEqual(messages.map(({ role }) => role), ["system", "user"]);
    await page.context().close();
  });

  it("shows markup as text, in questions and in answers", async () => {
    const { page, problems } = await openReady();
    const attack = '<img src="x" onerror="document.title=1"><script>document.title=1</script>';
    await page.route("**/v1/chat/completions", (route) => {
      const content = `${attack}\n\n[click](javascript:alert(1)) **bold** \`${attack}\`\n\n` +
        `\`\`\`html\n${attack}\n\`\`\`\n\n- one\n  1. inner\n- two\n\n| a | b |\n|---|---|\n| 1 | ${attack} |`;
      const chunk = { choices: [{ index: 0, delta: { content }, finish_reason: "stop" }] };
      route.fulfill({ contentType: "text/event-stream", body: `data: ${JSON.stringify(chunk)}\n\ndata: [DONE]\n\n` });
    });
    await ask(page, attack);
    await regenerate(page).waitFor();
    const messages = page.locator("#messages");
    assert.equal(await messages.locator("img, script, [onerror], a").count(), 0);
    assert.equal(await page.getByRole("article", { name: "You" }).innerText(), attack);
    const answer = answers(page);
    assert.equal(await answer.locator("pre").innerText(), attack);
    assert.equal(await answer.locator("strong").innerText(), "bold");
    assert.equal(await answer.locator("td").last().innerText(), attack);
    assert.equal(await answer.locator("ul > li > ol > li").innerText(), "inner");
    assert.match(await answer.innerText(), /\[click\]\(javascript:alert\(1\)\)/);
    assert.match(await page.title(), /tilewright/);
    assert.deepEqual(withoutRefusals(problems), []);
    await page.context().close();
  });

  it("copies code", async () => {
    const { page } = await openReady({ permissions: ["clipboard-read", "clipboard-write"] });
    await page.evaluate(async () => {
      const { renderMarkdown } = await import("./page/render.js");
      renderMarkdown(document.getElementById("messages"), "```sh\necho `date`\n```");
    });
    await page.getByRole("button", { name: "Copy code" }).click();
    await page.getByText("Copied").waitFor();
    assert.equal(await page.evaluate(() => navigator.clipboard.readText()), "echo `date`");
    await page.context().close();
  });

  it("is light or dark as the system prefers, and as the switch says", async () => {
    const { page } = await openReady({ colorScheme: "dark" });
    const ground = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
    const dark = await ground();
    const button = page.getByRole("button", { name: "Dark theme" });
    assert.equal(await button.getAttribute("aria-pressed"), "true");
    await button.click();
    const light = await ground();
    assert.notEqual(light, dark);
    await page.reload();
    assert.equal(await ground(), light);
    await button.click();
    await page.emulateMedia({ colorScheme: "light" });
    // Back at the system's choice, it follows the system.
    await page.waitForFunction((wanted) => getComputedStyle(document.body).backgroundColor === wanted, light);
    await page.context().close();
  });

  it("is usable by keyboard, and every control has a name", async () => {
    const { page } = await openReady({ viewport: { width: 1280, height: 800 } });
    const controls = await page.locator("button:visible, input:visible, textarea:visible").count();
    const names = new Set();
    await page.evaluate(() => document.activeElement.blur());
    for (let i = 0; i < controls + 5; ++i) {
      await page.keyboard.press("Tab");
      names.add(await page.evaluate(() => {
        const focused = document.activeElement;
        const label = focused.labels?.[0]?.textContent;
        const name = focused.getAttribute("aria-label") ?? label ?? focused.textContent.trim();
        return focused === document.body ? "" : name || `nameless ${focused.outerHTML}`;
      }));
    }
    for (const name of ["New chat", "Dark theme", "Panel", "Message", "Send", "System prompt", "Seed"]) {
      assert.ok(names.has(name), `${name} cannot be reached: ${[...names].join(", ")}`);
    }
    assert.ok(![...names].some((name) => name.startsWith("nameless")), [...names].join("\n"));
    await page.context().close();
  });

  it("fits a phone, where the panel lies over the conversation", async () => {
    const { page } = await openReady({ viewport: { width: 360, height: 640 }, hasTouch: true });
    const overflow = () =>
      page.evaluate(() => document.documentElement.scrollWidth - document.documentElement.clientWidth);
    assert.equal(await overflow(), 0);
    const panel = page.getByRole("complementary", { name: "Engine and settings" });
    assert.equal(await panel.isVisible(), false);
    await page.getByRole("button", { name: "Panel" }).tap();
    assert.equal((await panel.boundingBox()).width, 360);
    assert.equal(await overflow(), 0);
    await page.keyboard.press("Escape");
    assert.equal(await panel.isVisible(), false);
    await page.context().close();
  });
});
