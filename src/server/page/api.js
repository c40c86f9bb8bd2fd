// The server's endpoints, relative to the page (it may lie under a prefix of a proxy).
const kStoredKey = "tilewright.key";

// What the server answered instead of what was asked for.
export class ApiFailure extends Error {
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

export function setKey(key) {
  sessionStorage.setItem(kStoredKey, key);
}

async function request(path, options = {}) {
  const key = sessionStorage.getItem(kStoredKey);
  const headers = { ...options.headers, ...(key && { Authorization: `Bearer ${key}` }) };
  let response;
  try {
    response = await fetch(path, { ...options, headers });
  } catch (problem) {
    if (problem.name === "AbortError") throw problem;
    throw new ApiFailure(0, "The server cannot be reached.");
  }
  if (!response.ok) {
    const body = await response.json().catch(() => null);
    throw new ApiFailure(response.status, body?.error?.message ?? `HTTP ${response.status}`);
  }
  return response;
}

export const models = async () => (await (await request("v1/models")).json()).data;
export const serverInfo = async () => (await request("get_server_info")).json();
export const metricsText = async () => (await request("metrics")).text();

// The chunks of a streamed chat completion. Ends early when `signal` aborts or the caller stops
// iterating; the server then stops generating.
export async function* chatChunks(body, signal) {
  const response = await request("v1/chat/completions", {
    method: "POST",
    headers: { "Content-Type": "application/json" },
    body: JSON.stringify({ ...body, stream: true, stream_options: { include_usage: true } }),
    signal,
  });
  for await (const data of eventData(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw new ApiFailure(500, chunk.error.message);
    yield chunk;
  }
}

// The payloads of server-sent events.
async function* eventData(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let pending = "";
  try {
    for (;;) {
      const { value, done } = await reader.read();
      if (done) return;
      const lines = (pending + value).split("\n");
      pending = lines.pop();
      for (const line of lines) {
        if (line.startsWith("data: ")) yield line.slice(6).trimEnd();
      }
    }
  } finally {
    reader.cancel().catch(() => {});
  }
}
