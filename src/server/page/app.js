// The page's parts, put together.
import { setKey } from "./api.js";
import { ChatView } from "./chat_view.js";
import { Conversation } from "./conversation.js";
import { byId } from "./dom.js";
import { EngineView } from "./engine_view.js";
import { Panel } from "./panel.js";
import { showServer } from "./server_view.js";
import { Settings } from "./settings.js";

const settings = new Settings();
settings.fill(byId("settings"));
const chat = new ChatView(new Conversation(settings), wantKey);
const engine = new EngineView();
const panel = new Panel((isOpen) => engine.setOpen(isOpen));

function wantKey(problem) {
  byId("key-form").hidden = false;
  if (problem) byId("key-problem").textContent = problem;
  byId("api-key").focus();
}

async function connect() {
  try {
    await showServer();
    byId("key-form").hidden = true;
  } catch (failure) {
    if (failure.status === 401) {
      wantKey(byId("api-key").value ? failure.message : "");
    } else {
      byId("model-name").textContent = failure.message;
    }
  }
}

byId("key-form").addEventListener("submit", async (event) => {
  event.preventDefault();
  setKey(byId("api-key").value);
  await connect();
  if (byId("key-form").hidden) byId("prompt").focus();
});

document.addEventListener("keydown", (event) => {
  if (event.key !== "Escape") return;
  if (panel.isOver) {
    panel.close();
  } else {
    chat.stop();
  }
});

connect();
