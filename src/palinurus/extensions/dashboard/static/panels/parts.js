// Controls that panels share: buttons, fields, tabs, tables, key figures. Each has an accessible name.

import { clear, el } from "../dom.js";

/** @param {string} label @param {() => unknown} click @param {string} [kind] "", "quiet" or "coral" */
export function button(label, click, kind = "quiet", props = {}) {
  const tone = kind ? ` button-${kind}` : "";
  return el("button", { class: `button${tone}`, type: "button", on: { click }, ...props }, label);
}

/** A button that is disabled while its work goes on; work that returns false leaves it disabled. */
export function worker(label, work, kind = "quiet", props = {}) {
  const made = button(
    label,
    async () => {
      made.disabled = true;
      made.setAttribute("aria-busy", "true");
      let stay = false;
      try {
        stay = (await work()) === false;
      } finally {
        made.disabled = stay;
        made.removeAttribute("aria-busy");
      }
    },
    kind,
    props,
  );
  return made;
}

/** A labelled control. @param {string} label @param {HTMLElement} control @param {string} [hint] */
export function field(label, control, hint = "") {
  const id = (control.id ||= unique("field"));
  const about = hint ? el("span", { class: "field-hint", id: `${id}-hint` }, hint) : null;
  if (about) control.setAttribute("aria-describedby", about.id);
  return el("div", { class: "labelled" }, el("label", { for: id }, label), control, about);
}

/** @param {Record<string, any>} props */
export const input = (props) =>
  el("input", { class: "field", type: "text", autocomplete: "off", spellcheck: false, ...props });

/** @param {[string, string][]} choices value and label */
export function select(choices, chosen, change, props = {}) {
  const made = el(
    "select",
    { class: "field", on: { change: () => change(made.value) }, ...props },
    choices.map(([value, words]) => el("option", { value }, words)),
  );
  made.value = chosen;
  return made;
}

/** A checkbox with a label. */
export function tick(label, checked, change) {
  const box = el("input", { type: "checkbox", on: { change: () => change(box.checked) } });
  box.checked = checked;
  return el("label", { class: "tick" }, box, el("span", {}, label));
}

let made = 0;
/** @returns {string} an id that is unique in the document */
export const unique = (stem) => `${stem}-${++made}`;

/**
 * Tabs as ARIA describes them: arrow keys move, only the chosen tab is in the Tab order.
 * @param {string} label @param {[string, string][]} names key and label @param {string} chosen
 * @param {(key: string, page: HTMLElement) => void} draw fills the panel of a tab
 */
export function tabs(label, names, chosen, draw) {
  const group = unique("tabs");
  const page = el("div", { class: "tab-page", role: "tabpanel", id: `${group}-page`, tabindex: "-1" });
  const heads = names.map(([key, words]) =>
    el(
      "button",
      {
        type: "button",
        class: "tab",
        role: "tab",
        id: `${group}-${key}`,
        "aria-controls": page.id,
        "data-key": key,
        on: { click: () => choose(key) },
      },
      words,
    ),
  );
  const list = el("div", { class: "tabs", role: "tablist", "aria-label": label, on: { keydown: move } }, heads);
  function choose(key) {
    for (const head of heads) {
      const on = head.dataset.key === key;
      head.setAttribute("aria-selected", String(on));
      head.tabIndex = on ? 0 : -1;
      if (on) page.setAttribute("aria-labelledby", head.id);
    }
    clear(page);
    draw(key, page);
  }
  function move(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    const at = heads.indexOf(document.activeElement);
    const to =
      event.key === "Home"
        ? 0
        : event.key === "End"
          ? heads.length - 1
          : step
            ? (at + step + heads.length) % heads.length
            : -1;
    if (at < 0 || to < 0) return;
    event.preventDefault();
    heads[to].focus();
    choose(heads[to].dataset.key);
  }
  choose(names.some(([key]) => key === chosen) ? chosen : names[0][0]);
  /** @param {string} key @param {number} n shown beside the label; none for 0 */
  function mark(key, n) {
    const head = heads.find((each) => each.dataset.key === key);
    const words = names.find(([name]) => name === key)[1];
    clear(head);
    head.append(words, ...(n ? [el("span", { class: "tab-count" }, String(n))] : []));
  }
  return { node: el("div", { class: "tabbed" }, list, page), choose, mark };
}

/**
 * @typedef {{ name: string, cell: (row: any) => (Node | string | number | null), numeric?: boolean, class?: string }} Column
 * @param {string} caption for screen readers; not shown @param {Column[]} columns @param {any[]} rows
 * @param {(row: any) => Record<string, any>} [propsOf] further properties of a row
 */
export function table(caption, columns, rows, propsOf = () => ({})) {
  const classOf = (column) => [column.numeric ? "numeric" : "", column.class ?? ""].join(" ").trim() || null;
  // Explicit roles: a narrow panel shows rows as blocks, which screen readers would not see as rows.
  const head = el(
    "tr",
    { role: "row" },
    columns.map((column) => el("th", { scope: "col", role: "columnheader", class: classOf(column) }, column.name)),
  );
  const lines = rows.map((row) =>
    el(
      "tr",
      { role: "row", ...propsOf(row) },
      columns.map((column) =>
        el(
          "td",
          { role: "cell", class: classOf(column), "data-label": column.name },
          el("div", { class: "cell" }, column.cell(row)),
        ),
      ),
    ),
  );
  return el(
    "div",
    { class: "table-scroll", tabindex: "0", role: "region", "aria-label": caption },
    el(
      "table",
      { class: "table", role: "table" },
      el("caption", { class: "visually-hidden" }, caption),
      el("thead", { role: "rowgroup" }, head),
      el("tbody", { role: "rowgroup" }, lines),
    ),
  );
}

/** Key figures. @param {[string, Node | string, string?][]} facts name, value, remark */
export function tiles(facts) {
  return el(
    "dl",
    { class: "tiles" },
    facts.map(([name, value, remark]) =>
      el("div", { class: "tile" }, el("dt", {}, name), el("dd", {}, value, remark ? el("small", {}, remark) : null)),
    ),
  );
}

/** A thin bar. @param {number} part @param {number} all @param {string} label for screen readers */
export function meter(part, all, label, tone = "") {
  const share = all > 0 ? Math.min(1, part / all) : 0;
  const fill = el("span", { class: `meter-fill ${tone}`.trim() });
  fill.style.width = `${(100 * share).toFixed(2)}%`;
  return el("span", { class: "meter", role: "img", "aria-label": label }, fill);
}

/** @param {string} words @param {"" | "ok" | "bad" | "warn" | "accent"} tone */
export const chip = (words, tone = "") => el("span", { class: `chip ${tone ? `chip-${tone}` : ""}`.trim() }, words);

/** A confirmation in the place of a button: asked where it was pressed, answered by keyboard too. */
export function sure(label, question, yes, work, kind = "quiet") {
  const host = el("span", { class: "sure" });
  const first = button(label, ask, kind);
  function ask() {
    clear(host);
    const no = button("Cancel", back);
    host.append(
      el("span", { class: "sure-question" }, question),
      worker(
        yes,
        async () => {
          await work();
          if (host.isConnected) back();
        },
        "coral",
      ),
      no,
    );
    no.focus();
  }
  function back() {
    clear(host);
    host.append(first);
    first.focus();
  }
  host.addEventListener("keydown", (event) => {
    if (event.key === "Escape" && host.firstChild !== first) {
      event.stopPropagation();
      back();
    }
  });
  host.append(first);
  return host;
}
