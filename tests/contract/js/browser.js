// The system's Chromium, driven without a window; see page.test.js.
import { accessSync, constants } from "node:fs";
import { delimiter, join } from "node:path";
import { chromium } from "playwright-core";

const kNames = ["chromium", "chromium-browser", "google-chrome", "google-chrome-stable"];

function findBrowser() {
  if (process.env.CHROMIUM) return process.env.CHROMIUM;
  for (const folder of process.env.PATH.split(delimiter)) {
    for (const name of kNames) {
      try {
        accessSync(join(folder, name), constants.X_OK);
        return join(folder, name);
      } catch {
        // not this one
      }
    }
  }
  return null;
}

const executablePath = findBrowser();
export const noBrowser = executablePath ? false : `none of ${kNames.join(", ")} is in PATH; set CHROMIUM`;
export const launchBrowser = () => chromium.launch({ executablePath });

// A fresh profile with the page in it, and what must stay empty: the console's errors, and requests
// to anything but the server. A refused key is an expected error; `withoutRefusals` takes it out.
export async function openPage(browser, url, options = {}) {
  const context = await browser.newContext(options);
  const page = await context.newPage();
  const problems = [];
  page.on("console", (message) => {
    if (["error", "warning"].includes(message.type())) problems.push(message.text());
  });
  page.on("pageerror", (error) => problems.push(String(error)));
  page.on("request", (request) => {
    if (!request.url().startsWith(url)) problems.push(`request to ${request.url()}`);
  });
  await page.goto(url);
  return { page, problems };
}

export const withoutRefusals = (problems) =>
  problems.filter((problem) => !/status of 401/.test(problem));
