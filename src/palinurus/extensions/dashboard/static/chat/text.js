// The agent's text, drawn while it streams. Beyond a limit it is plain text shown on request, so that a megabyte does
// not block the browser.

import { el } from "../dom.js";
import { bytes, clockTime, count, wholeTime } from "../format.js";
import { copyButton, MarkdownView, plainPieces } from "../markdown.js";

const MOST_MARKDOWN = 40_000; // characters of one text drawn as markdown
const whenIdle = globalThis.requestIdleCallback ?? ((fn) => setTimeout(fn, 200));

export function drawText(item) {
  const view = new MarkdownView();
  const gone = new AbortController();
  const node = el("div", { class: "row-text" }, el("span", { class: "visually-hidden" }, "The agent said:"), view.node);
  let rest = null;
  let foot = null;
  let drawn = "";
  if (item.plain) view.node.classList.add("md-plain");

  node.update = () => {
    let text = cut(item.text);
    if (text.length < drawn.length && item.text.startsWith(drawn)) text = drawn; // the limit was passed in between
    node.setAttribute("aria-busy", String(Boolean(item.live))); // announced when it is complete
    node.classList.toggle("live", Boolean(item.live));
    if (item.plain) view.node.textContent = text;
    else if (text.length > drawn.length && text.startsWith(drawn) && drawn) view.append(text.slice(drawn.length));
    else if (text !== drawn) view.set(text, gone.signal);
    drawn = text;
    if (text.length < item.text.length || rest) {
      if (!rest) node.append((rest = el("div", { class: "rest" })));
      remaining(item, text, rest, gone.signal);
    }
    node.classList.toggle("last", Boolean(item.last));
    // Buttons can wait until scrolling has stopped.
    if (item.last && !foot) {
      foot = el("div", { class: "text-foot" });
      whenIdle(() => gone.signal.aborted || (footOf(item, foot), node.append(foot)));
    }
  };
  node.addEventListener("forgotten", () => gone.abort());
  node.update();
  return node;
}

function footOf(item, foot) {
  const about = item.about;
  const used = about?.usage
    ? ` · ${count((about.usage.input ?? 0) + (about.usage.cacheRead ?? 0))} in, ${count(about.usage.output ?? 0)} out`
    : "";
  foot.append(copyButton(() => item.text, "Copy reply"));
  if (item.timestamp)
    foot.append(
      el(
        "span",
        { class: "quiet", title: wholeTime(item.timestamp) },
        `${clockTime(item.timestamp)}${about?.model ? ` · ${about.model}${used}` : ""}`,
      ),
    );
}

/** Up to the last line that fits. */
function cut(text) {
  if (text.length <= MOST_MARKDOWN) return text;
  const line = text.lastIndexOf("\n", MOST_MARKDOWN);
  return text.slice(0, line > MOST_MARKDOWN / 2 ? line : MOST_MARKDOWN);
}

/** The button for the rest; after a click the rest itself, also what still streams. */
function remaining(item, shown, rest, signal) {
  const left = item.text.length - shown.length;
  const unfolded = Number(rest.dataset.until ?? 0);
  rest.hidden = left <= 0;
  if (left <= 0) return;
  if (unfolded) {
    rest.dataset.until = item.text.length;
    return void plainPieces(item.text.slice(unfolded), rest, signal);
  }
  const all = () => {
    rest.replaceChildren();
    rest.dataset.until = item.text.length;
    plainPieces(item.text.slice(shown.length), rest, signal);
  };
  if (!rest.firstChild) rest.append(el("button", { class: "button-quiet", type: "button", on: { click: all } }));
  rest.firstChild.textContent = `Show all: ${bytes(left)} more, as plain text`;
}
