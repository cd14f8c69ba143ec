// Turns the transcript from the gateway into items. Pure.

/**
 * @param {any[]} messages of chat.history, the oldest first
 * @returns {any[]} items; see thread.js
 */
export function itemsOf(messages) {
  const items = [];
  const calls = new Map(); // tool call id → item
  for (const message of messages) {
    if (message.role === "user") items.push(said(message));
    else if (message.role === "assistant") items.push(...answered(message, calls, items.findLast(spoken)?.run));
    else if (message.role === "toolResult") result(message, calls, items);
    else if (message.role === "mark")
      items.push({
        key: message.id,
        type: "mark",
        kind: message.kind,
        text: message.text ?? "",
        timestamp: message.timestamp,
      });
  }
  if (items.at(-1)?.type === "error") items.at(-1).fresh = true; // no message came after it
  return items;
}

/** Runs whose last message is in the transcript. @param {any[]} messages @returns {string[]} */
export function answeredRuns(messages) {
  const found = [];
  let asked = [];
  for (const { role, id, also = [], stopReason = "stop" } of messages) {
    if (role === "user") asked = [id, ...also];
    else if (role === "assistant" && stopReason !== "toolUse") found.push(...asked.splice(0));
  }
  return found;
}

const spoken = (item) => item.type === "user";

function said({ id, content, timestamp, origin, also }) {
  const blocks = typeof content === "string" ? [{ type: "text", text: content }] : content;
  const text = blocks
    .filter((block) => block.type === "text")
    .map((block) => block.text)
    .join("\n");
  const images = blocks.filter((block) => block.type === "image").map(picture);
  return { key: id, type: "user", text, images, timestamp, state: "sent", run: id, origin, also };
}

/** @param {string} [run] the run of the message before it */
function answered(message, calls, run) {
  const { id, timestamp } = message;
  const blocks = typeof message.content === "string" ? [{ type: "text", text: message.content }] : message.content;
  const items = blocks.flatMap((block, at) => {
    const about = { key: `${id}-${at}`, message: id, timestamp };
    if (block.type === "thinking") return block.thinking ? [{ ...about, type: "thought", text: block.thinking }] : [];
    if (block.type === "text") return block.text.trim() ? [{ ...about, type: "text", text: block.text }] : [];
    const call = { ...about, type: "tool", call: block, result: null };
    calls.set(block.id, call);
    return [call];
  });
  if (items.at(-1)?.type === "text") items.at(-1).last = true;
  if (items.length && message.model)
    items.at(-1).about = { model: message.model, provider: message.provider, usage: message.usage };
  if (message.errorMessage && message.stopReason !== "aborted")
    items.push({ key: `${id}-error`, message: id, run, type: "error", text: message.errorMessage, timestamp });
  if (message.stopReason === "length")
    items.push({
      key: `${id}-length`,
      message: id,
      type: "notice",
      text: "The reply was cut off: the model reached its output limit.",
      timestamp,
    });
  if (message.stopReason === "aborted")
    items.push({ key: `${id}-aborted`, message: id, type: "notice", text: "Stopped.", timestamp });
  return items;
}

function result(message, calls, items) {
  const blocks = typeof message.content === "string" ? [{ type: "text", text: message.content }] : message.content;
  const text = blocks
    .filter((block) => block.type === "text")
    .map((block) => block.text)
    .join("\n");
  const images = blocks.filter((block) => block.type === "image").map(picture);
  const call = calls.get(message.toolCallId);
  // The call may be on a page of the history that is not loaded: then its result stands alone.
  const found = call ?? {
    key: message.id,
    type: "tool",
    call: { id: message.toolCallId, name: message.toolName, arguments: {} },
    timestamp: message.timestamp,
  };
  found.result = {
    text,
    images,
    isError: message.isError ?? false,
    seconds: call?.timestamp ? Math.max(0, message.timestamp - call.timestamp) / 1000 : 0,
  };
  if (!call) items.push(found);
}

const PICTURES = new Set(["image/png", "image/jpeg", "image/gif", "image/webp"]);

/** Only types that cannot carry a script; anything else is not shown. */
function picture({ data, mimeType }) {
  return PICTURES.has(mimeType) && /^[A-Za-z0-9+/=]+$/.test(data) ? `data:${mimeType};base64,${data}` : "";
}
