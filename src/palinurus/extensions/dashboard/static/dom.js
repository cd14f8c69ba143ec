// Elements without innerHTML: text from a model, a file or a person is always inserted as text.

const SVG = "http://www.w3.org/2000/svg";

/**
 * Make an element.
 *
 * @param {string} tag
 * @param {Record<string, any> | null} [props] `class`, `on: {click: fn}`, `dataset: {…}`, `aria-*`, `data-*`; known
 *   properties are set as properties, the rest as attributes. `null`, `undefined` and `false` are left out.
 * @param {...any} children strings and numbers become text, arrays are flattened, null and false are left out
 * @returns {HTMLElement}
 */
export function el(tag, props, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(props ?? {})) {
    if (value === null || value === undefined) continue;
    if (name === "class") node.className = value;
    else if (name === "on") listen(node, value);
    else if (name === "dataset") Object.assign(node.dataset, value);
    else if (name === "style") Object.assign(node.style, value);
    else if (name.includes("-") || name === "role" || !(name in node) || typeof node[name] === "object") {
      if (value !== false || name.startsWith("aria-"))
        node.setAttribute(name, value === true && !name.startsWith("aria-") ? "" : String(value));
    } else node[name] = value;
  }
  return append(node, children);
}

/** The same for SVG: everything is an attribute. */
export function svg(tag, attrs, ...children) {
  const node = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attrs ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name === "on") listen(node, value);
    else node.setAttribute(name, String(value));
  }
  return append(node, children);
}

/** Put children into a node; see `el` for what they may be. */
export function append(node, children) {
  for (const child of children.flat(Infinity)) {
    if (child === null || child === undefined || child === false || child === true) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

/** Remove everything from a node, and add the given children. */
export function clear(node, ...children) {
  node.replaceChildren();
  return append(node, children);
}

function listen(node, handlers) {
  for (const [event, handler] of Object.entries(handlers)) if (handler) node.addEventListener(event, handler);
}

// Icons on a grid of 24, drawn by us. A shape is a path; a circle is [x, y, radius].
const ICONS = {
  agent: ["M5 20c0-4 3-6 7-6s7 2 7 6", [12, 8, 4]],
  approve: ["M12 3l8 3v6c0 4.5-3.4 7.6-8 9-4.6-1.4-8-4.5-8-9V6z", "M8.5 12l2.5 2.5 4.5-5"],
  attach: [
    "M20 11l-8.5 8.5a5 5 0 0 1-7-7L13 4a3.3 3.3 0 0 1 4.7 4.7l-8.400 8.400a1.600 1.600 0 0 1-2.300-2.300L14.500 7.300",
  ],
  bell: ["M6 16v-5a6 6 0 0 1 12 0v5l2 2H4z", "M10 21h4"],
  chat: ["M4 5h16v11H9l-5 4z"],
  check: ["M5 12.500l4.500 4.500L19 7"],
  chevron: ["M9 6l6 6-6 6"],
  clock: [[12, 12, 8.5], "M12 7v5l3.500 2"],
  close: ["M6 6l12 12", "M18 6L6 18"],
  command: ["M4 5h16v14H4z", "M8 10l2.500 2L8 14", "M13 15h3"],
  compact: ["M12 3v6", "M9 6.500L12 9.500l3-3", "M12 21v-6", "M9 17.500l3-3 3 3", "M4 12h16"],
  config: ["M4 7h9", "M17 7h3", [15, 7, 2], "M4 17h3", "M11 17h9", [9, 17, 2]],
  context: ["M4 4h9v16H4z", "M13 4h7v7h-7", "M13 11h7v9h-7"],
  copy: ["M9 9h11v11H9z", "M5 15H4V4h11v1"],
  download: ["M12 4v11", "M7.500 11l4.500 4.500 4.500-4.500", "M4 20h16"],
  edit: ["M4 20l1-4.500L16 4.500l3.500 3.500L8.500 19z", "M13.500 7l3.500 3.500"],
  error: ["M12 4l9 16H3z", "M12 10v4.500", "M12 17.300v.2"],
  file: ["M6 3h8l4 4v14H6z", "M14 3v4h4"],
  files: ["M3 6h6l2 2h10v11H3z"],
  image: ["M4 5h16v14H4z", "M4 16l4.500-4.500L13 16l2.500-2.500L20 18", [15.5, 9, 1.3]],
  link: [
    "M10 14a4 4 0 0 0 5.700 0l3-3a4 4 0 0 0-5.700-5.700l-1 1",
    "M14 10a4 4 0 0 0-5.700 0l-3 3a4 4 0 0 0 5.700 5.700l1-1",
  ],
  logs: ["M5 6h14", "M5 10h14", "M5 14h9", "M5 18h11"],
  memory: [
    "M12 5c-1.500-2-6-1.500-6 2-3 .5-3 5-.5 6-.5 4 3.500 6 6.500 4",
    "M12 5c1.500-2 6-1.500 6 2 3 .5 3 5 .5 6 .5 4-3.500 6-6.500 4",
    "M12 5v13",
  ],
  menu: ["M4 7h16", "M4 12h16", "M4 17h16"],
  more: [
    [6, 12, 1],
    [12, 12, 1],
    [18, 12, 1],
  ],
  panel: ["M4 5h16v14H4z", "M14.500 5v14"],
  plus: ["M12 5v14", "M5 12h14"],
  reset: ["M5 12a7 7 0 1 1 2 5", "M5 20v-4h4"],
  runs: ["M4 6h8", "M8 12h9", "M13 18h7"],
  search: [[11, 11, 6.5], "M16 16l4.500 4.500"],
  send: ["M12 20V5", "M5.500 11.500L12 5l6.500 6.500"],
  stop: ["M7 7h10v10H7z"],
  thought: ["M7 17a4.500 4.500 0 0 1-.5-9A5.500 5.500 0 0 1 17 8.500 4.200 4.200 0 0 1 17 17z", [7, 20.5, 0.8]],
  tool: [
    "M14 6a4.500 4.500 0 0 1 5.500-1.500L16.500 7.500l.5 2 2 .5 3-3A4.500 4.500 0 0 1 15.500 13L8 20.500a2.100 2.100 0 0 1-3-3L12.500 10A4.500 4.500 0 0 1 14 6z",
  ],
  trash: ["M5 7h14", "M9.500 7V4.500h5V7", "M7 7l1 13h8l1-13"],
  subagent: [[12, 6, 2.5], [6, 18, 2.5], [18, 18, 2.5], "M12 8.500v3.500", "M12 12l-4.500 4", "M12 12l4.500 4"],
  usage: ["M5 20V11", "M12 20V4", "M19 20v-6"],
  web: [[12, 12, 8.5], "M3.500 12h17", "M12 3.500c3 3 3 14 0 17", "M12 3.500c-3 3-3 14 0 17"],
};

/**
 * An icon by its name; an unknown name gives the icon of a tool. Icons are decorative: label the control around them.
 *
 * @param {string} name
 * @returns {SVGElement}
 */
export function icon(name) {
  const shapes = (ICONS[name] ?? ICONS.tool).map((shape) =>
    typeof shape === "string" ? svg("path", { d: shape }) : svg("circle", { cx: shape[0], cy: shape[1], r: shape[2] }),
  );
  return svg("svg", { class: "icon", viewBox: "0 0 24 24", "aria-hidden": "true", focusable: "false" }, shapes);
}

const TAIL = [
  "M12.500 19.300h7l-.7 2.700h-5.600z",
  "M13.400 22.700h5.200l-.5 2.200h-4.200z",
  "M14.100 25.600h3.800l-.4 1.700h-3z",
  "M16 27.700c-1.700-.7-4.600-.3-5.800 2.900 1.800 1 4.100.6 5.800-1 1.700 1.600 4 2 5.800 1-1.200-3.200-4.100-3.600-5.800-2.900z",
];

/** The mark: a helm wheel whose lowest handle is a lobster's tail. */
export function mark() {
  const spokes = [0, 45, 90, 135, 225, 270, 315].map((angle) =>
    svg("path", { d: "M16 9.800V1.600", transform: `rotate(${angle} 16 13)` }),
  );
  return svg(
    "svg",
    { class: "mark", viewBox: "0 0 32 32", "aria-hidden": "true", focusable: "false" },
    svg("circle", { cx: 16, cy: 13, r: 7.2 }),
    svg("circle", { cx: 16, cy: 13, r: 2.6 }),
    spokes,
    svg("path", { class: "mark-tail", d: TAIL.join(" ") }),
  );
}
