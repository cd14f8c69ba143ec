// A conversation in which nothing was said yet teaches by example.

import { el, mark } from "../dom.js";

const EXAMPLES = [
  "Remember that I take my coffee without sugar.",
  "What do you remember about me?",
  "Look through the workspace and tell me what is there.",
  "/status",
];

/** Scout is built in: it keeps and finds what it is told, and thinks no further. */
function scoutNote() {
  return el(
    "p",
    { class: "quiet" },
    "Scout answers here: it remembers and finds what you told it. ",
    el("a", { href: "/welcome" }, "Add a model"),
    " for everything else.",
  );
}

/** @param {(words: string) => void} fill puts words into the box @param {string} model `provider/model` that answers */
export function emptyState(fill, model) {
  const tries = EXAMPLES.map((words) =>
    el("li", null, el("button", { class: "example", type: "button", on: { click: () => fill(words) } }, words)),
  );
  return el(
    "div",
    null,
    mark(),
    el("p", null, "Say something. What matters is remembered, in files that you can read."),
    el("ul", { class: "examples", "aria-label": "Try" }, tries),
    model === "embedded/scout" ? scoutNote() : null,
    el(
      "p",
      { class: "quiet keys" },
      el("kbd", null, "Ctrl K"),
      " everything · ",
      el("kbd", null, "/"),
      " commands · ",
      el("kbd", null, "↑"),
      " last message · ",
      el("kbd", null, "Esc"),
      " stop",
    ),
  );
}
