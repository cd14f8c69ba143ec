// A tool call: one quiet line with the argument that matters, which unfolds to arguments and result.

import { el, icon } from "../dom.js";
import { bytes, seconds, shortened } from "../format.js";
import { copyButton, plainPieces } from "../markdown.js";

const MOST_SHOWN = 20_000; // characters of a result before "show all"
const LINE = 120;

// The argument that says most about a call: the first of these that is there.
const TELLING = [
  "command",
  "path",
  "file",
  "file_path",
  "query",
  "url",
  "pattern",
  "task",
  "to",
  "name",
  "key",
  "id",
  "text",
  "message",
];
const ICONS = [
  [/^(exec|process|bash|shell|code)/, "command"],
  [/^memory/, "memory"],
  [/^(web|browser|fetch|http)/, "web"],
  [/^(read|write|edit|apply|file|list|find|grep)/, "file"],
  [/^(sessions|agents|message)/, "chat"],
  [/^(image|picture)/, "image"],
  [/^(cron|schedule)/, "clock"],
];

/** What to show of the arguments in one line. */
export function telling(given) {
  if (given === null || typeof given !== "object") return "";
  const name =
    TELLING.find((each) => typeof given[each] === "string" && given[each].trim()) ??
    Object.keys(given).find((each) => ["string", "number"].includes(typeof given[each]));
  return name === undefined ? "" : shortened(String(given[name]).replace(/\s+/g, " ").trim(), LINE);
}

export const toolIcon = (name) => ICONS.find(([pattern]) => pattern.test(name))?.[1] ?? "tool";

export function drawTool(item) {
  const { name, arguments: given } = item.call;
  const side = el("span", { class: "tool-side" });
  const summary = el(
    "summary",
    null,
    icon(toolIcon(name)),
    el("span", { class: "tool-name" }, name),
    el("span", { class: "tool-about mono" }, telling(given)),
    side,
    icon("chevron"),
  );
  const body = el("div", { class: "tool-body" });
  const details = el("details", { class: "tool" }, summary, body);
  const node = el("div", { class: "row-tool" }, details);
  const gone = new AbortController();
  let timer = 0;
  let shown = null;

  node.update = () => {
    const { result } = item;
    details.classList.toggle("failed", result?.isError ?? false);
    details.classList.toggle("live", !result);
    side.textContent = result ? outcome(result) : running(item);
    if (!result && item.began && !timer) timer = setInterval(() => (side.textContent = running(item)), 1_000);
    if (result && timer) timer = (clearInterval(timer), 0);
    if (details.open && shown !== result) unfold();
  };

  function unfold() {
    shown = item.result;
    const parts = [part("Arguments", pretty(given), gone.signal)];
    if (item.result?.images?.length)
      parts.push(
        el(
          "div",
          { class: "pictures" },
          item.result.images
            .filter(Boolean)
            .map((src) => el("img", { class: "picture", src, alt: "picture in the result" })),
        ),
      );
    if (item.result)
      parts.push(part(item.result.isError ? "Error" : "Result", item.result.text || "(nothing)", gone.signal));
    body.replaceChildren(...parts);
  }

  details.addEventListener("toggle", () => details.open && (shown !== item.result || !body.firstChild) && unfold());
  node.addEventListener("forgotten", () => (gone.abort(), clearInterval(timer)));
  node.update();
  return node;
}

function outcome({ isError, seconds: took, where, unknown }) {
  if (unknown) return "";
  const time = took ? seconds(took) : "";
  return [isError ? "failed" : "", where === "host" ? "on the host" : "", time].filter(Boolean).join(" · ");
}

function running({ began }) {
  const took = began ? (Date.now() - began) / 1000 : 0;
  return took >= 2 ? `${Math.floor(took)} s…` : "…";
}

function pretty(given) {
  if (given === null || typeof given !== "object") return String(given);
  const entries = Object.entries(given);
  if (entries.length === 1 && typeof entries[0][1] === "string") return entries[0][1];
  // Long texts are easier to read as they are than with \n in them.
  return entries
    .map(([name, value]) => `${name}: ${typeof value === "string" ? value : JSON.stringify(value, null, 2)}`)
    .join("\n");
}

function part(title, text, signal) {
  const content = el("pre", { tabIndex: 0, role: "group", "aria-label": title }, shortened(text, MOST_SHOWN));
  const head = el(
    "div",
    { class: "tool-head" },
    el("span", null, title),
    copyButton(() => text, `Copy: ${title}`),
  );
  const box = el("div", { class: "tool-part" }, head, content);
  if (text.length > MOST_SHOWN) {
    const all = el("button", { class: "button-quiet", type: "button" }, `Show all ${bytes(text.length)}`);
    all.addEventListener("click", () => {
      all.remove();
      content.replaceChildren();
      plainPieces(text, content, signal);
    });
    box.append(all);
  }
  return box;
}
