// Checks of our own, run inside the page: contrast, motion, sizes, focus. Each gives a list of sentences, empty when all
// is well. Evaluated as one expression that gives an object of functions.
(() => {
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = 1;
  const brush = canvas.getContext("2d", { willReadFrequently: true });

  /** Any CSS colour as [r, g, b, alpha]; the browser itself reads it. */
  function rgba(colour) {
    brush.clearRect(0, 0, 1, 1);
    brush.fillStyle = "#000";
    brush.fillStyle = colour;
    brush.fillRect(0, 0, 1, 1);
    const [r, g, b, a] = brush.getImageData(0, 0, 1, 1).data;
    return [r, g, b, a / 255];
  }

  const over = (top, below) => [0, 1, 2].map((at) => top[at] * top[3] + below[at] * (1 - top[3])).concat(1);

  function luminance([r, g, b]) {
    const [x, y, z] = [r, g, b].map((part) => (part / 255 <= 0.04045 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  }

  function ratio(one, other) {
    const [light, dark] = [luminance(one), luminance(other)].sort((a, b) => b - a);
    return (light + 0.05) / (dark + 0.05);
  }

  /** What lies behind an element: backgrounds from the page's root up to it, one over the other. */
  function ground(element) {
    const layers = [];
    for (let at = element; at; at = at.parentElement) layers.unshift(rgba(getComputedStyle(at).backgroundColor));
    const canvasColour = rgba(matchMedia("(prefers-color-scheme: dark)").matches ? "#121212" : "#ffffff");
    return layers.reduce((below, top) => over(top, below), canvasColour);
  }

  /** Words in a drawing lie on the shape that was drawn before them in the same group. */
  function drawnGround(element) {
    const shapes = [...(element.parentNode?.children ?? [])].filter((each) => ["rect", "path", "circle"].includes(each.tagName));
    const own = element.getBoundingClientRect();
    const under = (box) => box.left <= own.left + own.width / 2 && own.left + own.width / 2 <= box.right && box.top <= own.top + own.height / 2 && own.top + own.height / 2 <= box.bottom;
    const before = (each) => each.compareDocumentPosition(element) & Node.DOCUMENT_POSITION_FOLLOWING;
    const shape = shapes.findLast((each) => before(each) && getComputedStyle(each).fill !== "none" && under(each.getBoundingClientRect()));
    if (!shape) return ground(element.closest("svg"));
    const fill = rgba(getComputedStyle(shape).fill);
    const share = Number(getComputedStyle(shape).fillOpacity) * Number(getComputedStyle(shape).opacity);
    return over([fill[0], fill[1], fill[2], fill[3] * share], ground(element.closest("svg")));
  }

  function opacity(element) {
    let whole = 1;
    for (let at = element; at; at = at.parentElement) whole *= Number(getComputedStyle(at).opacity);
    return whole;
  }

  function visible(element) {
    if (!element.checkVisibility({ opacityProperty: true, visibilityProperty: true, contentVisibilityAuto: true })) return false;
    const box = element.getBoundingClientRect();
    if (box.width < 2 || box.height < 2) return false;
    return !element.closest("[inert]") && !element.closest(".visually-hidden");
  }

  const told = (element) => {
    const name = element.tagName.toLowerCase() + (element.id ? `#${element.id}` : "") + [...element.classList].map((each) => `.${each}`).join("");
    return `${name} “${(element.textContent || element.value || "").trim().replace(/\s+/g, " ").slice(0, 40)}”`;
  };

  function textElements() {
    const found = new Set();
    const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (walker.nextNode()) if (walker.currentNode.data.trim()) found.add(walker.currentNode.parentElement);
    return [...found].filter((each) => visible(each) && !each.closest(":disabled, [aria-disabled=true], noscript, script, style"));
  }

  function contrast() {
    const wrong = [];
    for (const element of textElements()) {
      const style = getComputedStyle(element);
      const drawn = element.tagName === "text" || element.tagName === "tspan";
      const behind = drawn ? drawnGround(element) : ground(element);
      const colour = rgba(drawn ? style.fill : style.color);
      const ink = over([colour[0], colour[1], colour[2], colour[3] * opacity(element)], behind);
      const size = parseFloat(style.fontSize);
      const large = size >= 24 || (size >= 18.66 && Number(style.fontWeight) >= 700);
      const found = ratio(ink, behind);
      if (found < (large ? 3 : 4.5) - 0.01) wrong.push(`${told(element)}: contrast ${found.toFixed(2)}`);
    }
    for (const field of document.querySelectorAll("input, textarea")) {
      if (!visible(field) || !field.placeholder || field.value || field.disabled) continue;
      const behind = ground(field);
      const style = getComputedStyle(field, "::placeholder");
      const colour = rgba(style.color);
      const found = ratio(over([colour[0], colour[1], colour[2], colour[3] * Number(style.opacity)], behind), behind);
      if (found < 4.49) wrong.push(`the placeholder “${field.placeholder}”: contrast ${found.toFixed(2)}`);
    }
    return wrong;
  }

  function motion() {
    const seconds = (text) => Math.max(0, ...text.split(",").map((each) => parseFloat(each) * (each.trim().endsWith("ms") ? 0.001 : 1)));
    const wrong = [];
    for (const element of document.querySelectorAll("*")) {
      for (const part of [null, "::before", "::after"]) {
        const style = getComputedStyle(element, part);
        const moves = style.animationName !== "none" ? seconds(style.animationDuration) : 0;
        if (Math.max(moves, seconds(style.transitionDuration)) > 0.011) wrong.push(`${told(element)}${part ?? ""} moves for ${style.animationDuration} ${style.transitionDuration}`);
      }
    }
    if (getComputedStyle(document.documentElement).scrollBehavior === "smooth") wrong.push("the page scrolls smoothly");
    return wrong;
  }

  const CONTROLS = "a[href], button, input, select, textarea, summary, [role=button], [role=tab], [role=menuitem], [role=option], [tabindex]";

  /** WCAG 2.5.8: 24 by 24 at least, or so far from others that a circle of 24 around its middle touches none. */
  function sizes() {
    const targets = [...document.querySelectorAll(CONTROLS)].filter((each) => visible(each) && each.tabIndex >= 0);
    const boxes = targets.map((each) => boxOf(each));
    const wrong = [];
    targets.forEach((element, at) => {
      const box = boxes[at];
      if (getComputedStyle(element).display === "inline" || (box.width > 23.5 && box.height > 23.5)) return; // links in a sentence
      const [x, y] = [box.left + box.width / 2, box.top + box.height / 2];
      const crowded = boxes.some((other, index) => index !== at && !targets[index].contains(element) && !element.contains(targets[index]) && distance(x, y, other) < 12);
      if (crowded) wrong.push(`${told(element)} is ${box.width.toFixed(0)}×${box.height.toFixed(0)} and close to others`);
    });
    return wrong;
  }

  /** Its own box and that of the label which is part of the target. */
  function boxOf(element) {
    const own = element.getBoundingClientRect();
    const label = element.closest("label")?.getBoundingClientRect();
    return label && label.width * label.height > own.width * own.height ? label : own;
  }

  const distance = (x, y, box) => Math.hypot(Math.max(box.left - x, 0, x - box.right), Math.max(box.top - y, 0, y - box.bottom));

  /** Structure that a reader of screens goes by. */
  function structure() {
    const wrong = [];
    if (!document.documentElement.lang) wrong.push("the page has no language");
    if (!document.title) wrong.push("the page has no title");
    const shown = (selector) => [...document.querySelectorAll(selector)].filter(visible);
    if (shown("main").length !== 1) wrong.push(`${shown("main").length} main landmarks`);
    if (document.querySelectorAll("[tabindex]").length && [...document.querySelectorAll("[tabindex]")].some((each) => each.tabIndex > 0)) wrong.push("a positive tabindex");
    const ids = [...document.querySelectorAll("[id]")].map((each) => each.id);
    for (const id of new Set(ids.filter((each, at) => ids.indexOf(each) !== at))) wrong.push(`the id ${id} is there twice`);
    for (const name of ["aria-labelledby", "aria-describedby", "aria-controls", "aria-activedescendant"]) {
      for (const element of document.querySelectorAll(`[${name}]`)) {
        for (const id of element.getAttribute(name).split(/\s+/).filter(Boolean)) {
          if (!document.getElementById(id) && visible(element)) wrong.push(`${told(element)}: ${name} names ${id}, which is not there`);
        }
      }
    }
    for (const image of document.querySelectorAll("img")) if (!image.hasAttribute("alt")) wrong.push(`${told(image)} has no alt`);
    for (const table of shown("table")) if (!table.querySelector("th")) wrong.push(`${told(table)} has no headings`);
    let level = 0;
    for (const heading of shown("h1, h2, h3, h4, h5, h6")) {
      const own = Number(heading.tagName[1]);
      if (own > level + 1 && level && !heading.closest("[role=log], .message")) wrong.push(`${told(heading)} comes after a level ${level}`);
      level = own;
    }
    return wrong;
  }

  /** Nothing sticks out to the right, at any width. */
  function reflow() {
    const root = document.scrollingElement;
    return root.scrollWidth > root.clientWidth + 1 ? [`the page is ${root.scrollWidth} wide in a window of ${root.clientWidth}`] : [];
  }

  /** How an element and what is around it look, as far as focus may show there. */
  function look(element) {
    const looks = [];
    for (let at = element, level = 0; at && level < 4; at = at.parentElement, level++) {
      const style = getComputedStyle(at);
      looks.push([style.outlineStyle, style.outlineWidth, style.outlineColor, style.boxShadow, style.borderColor, style.backgroundColor, style.textDecorationLine].join());
    }
    return looks.join("|");
  }

  /** The element that has the focus, where it stands and whether one sees that it has it. */
  function focused() {
    const at = document.activeElement;
    if (!at || at === document.body) return null;
    const seen = (window.__seen ??= new Map());
    if (!seen.has(at)) seen.set(at, seen.size);
    const found = { name: told(at), number: seen.get(at), visible: visible(at), after: true };
    if (window.__last) found.after = Boolean(window.__last.compareDocumentPosition(at) & Node.DOCUMENT_POSITION_FOLLOWING);
    window.__last = at;
    const lit = look(at);
    at.blur();
    found.ring = look(at) !== lit;
    at.focus({ preventScroll: true });
    return found;
  }

  return { contrast, motion, sizes, structure, reflow, focused };
})()
