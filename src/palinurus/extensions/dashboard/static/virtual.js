// A list of which only the rows near the view are in the document. Rows have any height: it is estimated until a row is
// drawn, and measured from then on.
//
// Nothing jumps: when something changes above the view, the row at the top of the view stays where it is. A reader at the
// bottom stays at the bottom; a reader who has scrolled up is left alone. Nothing stalls: rows in view are drawn at once,
// the others in the following frames, a few milliseconds each.

import { el } from "./dom.js";
import { Heights } from "./heights.js";

const AHEAD = 600; // pixels beyond the view that are drawn too
const ENOUGH = 200; // pixels; while as much is drawn, scrolling changes nothing
const NEAR = 48; // pixels from the bottom that still count as the bottom
const KEPT = 300; // rows out of view that are kept, so that scrolling back is cheap
const FRAME = 4; // milliseconds of drawing ahead in one frame
const LONGEST = 12; // milliseconds of drawing in one frame, also of what is in view
const PASSES = 4; // rounds of drawing and measuring, until the view is full

export class VirtualList {
  /** The element that scrolls, and the one inside that holds the rows. */
  node;
  rows;
  /** Called when the reader reaches or leaves the bottom, and when the first or the last row is near. */
  onStick = () => {};
  onTop = () => {};
  onBottom = () => {};
  /** Whether a reader at the bottom stays there while the list grows. */
  sticks = true;

  #items = [];
  #index = new Map(); // key → index
  #heights = new Heights();
  #drawn = new Map(); // key → element; in order of use
  #above = el("div", { class: "virtual-space", "aria-hidden": "true" });
  #below = el("div", { class: "virtual-space", "aria-hidden": "true" });
  #from = 0; // the range in the document
  #to = 0;
  #view = 600; // height of the view
  #stuck = true;
  #asked = 0;
  #moved = -1; // a scroll position set by this class
  #last = null; // what was at the top of the view after the last layout
  #draw;
  #same;
  #sources = new WeakMap(); // element → the item that it was drawn for
  #sizes = new ResizeObserver((entries) => this.#measured(entries));

  /**
   * @param {(item: any) => HTMLElement} draw makes the element of an item; kept while it is in use
   * @param {{label?: string, same?: (one: any, other: any) => boolean}} [about] `same`: whether the element of one item
   *   can be used for another with the same key
   */
  constructor(draw, { label = "", same = () => true } = {}) {
    this.#draw = draw;
    this.#same = same;
    this.rows = el("div", {
      class: "virtual-rows",
      role: "log",
      "aria-live": "polite",
      "aria-relevant": "additions",
      "aria-label": label,
    });
    this.node = el(
      "div",
      { class: "virtual", tabIndex: 0, role: "group", "aria-label": label },
      this.#above,
      this.rows,
      this.#below,
    );
    this.node.addEventListener("scroll", () => this.#scrolled(), { passive: true });
    this.#sizes.observe(this.node);
  }

  get stuck() {
    return this.#stuck;
  }

  get items() {
    return this.#items;
  }

  /** The element of an item, if it is drawn. */
  element(key) {
    return this.#drawn.get(key);
  }

  /**
   * Show these items. Those that are shown already (by `key`) keep their elements and heights.
   *
   * @param {{key: string}[]} items
   */
  set(items) {
    const anchor = this.#anchor();
    this.#items = items;
    this.#index = new Map(items.map((item, at) => [item.key, at]));
    for (const key of [...this.#drawn.keys()]) if (!this.#index.has(key)) this.#forget(key);
    this.#heights.reset(items);
    this.#layout(anchor);
  }

  toBottom() {
    this.#stick(true);
    this.#layout(null);
  }

  /** Scroll an item to the top of the view. */
  toItem(key) {
    if (!this.#index.has(key)) return;
    this.#stick(false);
    this.#layout({ key, top: 16 });
  }

  clear() {
    cancelAnimationFrame(this.#asked);
    this.#sizes.disconnect();
    for (const key of [...this.#drawn.keys()]) this.#forget(key);
    this.node.remove();
  }

  /** What is at the top of the view: a row, or a paragraph of a long one. Null at the bottom. */
  #anchor() {
    if (this.#stuck || !this.#items.length) return null;
    const scrolled = this.node.scrollTop;
    const at = this.#heights.at(scrolled);
    const { key } = this.#items[at];
    const anchor = { key, top: this.#heights.offset(at) - scrolled };
    return this.#heights.of(at) > this.#view ? { ...anchor, ...this.#paragraph(key) } : anchor;
  }

  #paragraph(key) {
    const view = this.node.getBoundingClientRect();
    const node = document.elementFromPoint(view.left + view.width / 2, view.top + 1)?.closest(".md > *, .plain-piece");
    if (!node || !this.#drawn.get(key)?.contains(node)) return {};
    return { node, at: node.getBoundingClientRect().top - view.top };
  }

  #layout(anchor) {
    if (!this.#items.length) {
      this.rows.replaceChildren();
      return this.#space();
    }
    const began = performance.now();
    let whole = true;
    for (let pass = 0; pass < PASSES; pass++) {
      whole = this.#place(this.#goal(anchor), began);
      this.#measure();
      this.#space();
      // Rows may be smaller than estimated: then there is more to draw, now or in the next frame.
      if (this.#covers(this.#goal(anchor))) break;
      whole = false;
      if (performance.now() - began > LONGEST) break;
    }
    this.#moveTo(this.#goal(anchor));
    this.#hold(anchor);
    this.#last = this.#anchor();
    if (!whole) this.#soon();
  }

  /** The wanted scroll position. */
  #goal(anchor) {
    if (this.#stuck) return Math.max(0, this.#heights.total - this.#view);
    const at = anchor ? this.#index.get(anchor.key) : undefined;
    return Math.max(0, at === undefined ? this.node.scrollTop : this.#heights.offset(at) - anchor.top);
  }

  #covers(top, room = 0) {
    const begins = this.#from === 0 || this.#heights.offset(this.#from) <= top - room;
    return begins && (this.#to === this.#items.length || this.#heights.offset(this.#to) >= top + this.#view + room);
  }

  /** Put rows into the document: those in view, and beyond them as many as time allows. Returns whether that was all. */
  #place(top, began) {
    const bottom = top + this.#view;
    const first = this.#heights.at(Math.max(0, top - AHEAD));
    const last = Math.min(this.#items.length, this.#heights.at(bottom + AHEAD) + 1);
    const [above, below] = [this.#heights.at(top), this.#heights.at(bottom)];
    // At the bottom upwards, elsewhere downwards, so that what is being read comes first.
    let [from, to] = this.#stuck ? [last, last] : [above, above];
    const rows = [];
    const seen = (at) => at >= above && at <= below;
    const may = (at) =>
      this.#drawn.has(this.#items[at].key) || performance.now() - began < (seen(at) ? LONGEST : FRAME) || !rows.length;
    while (to < last && may(to)) rows.push(this.#element(this.#items[to++]));
    while (from > first && may(from - 1)) rows.unshift(this.#element(this.#items[--from]));
    [this.#from, this.#to] = [from, to];
    this.#sync(rows);
    return from <= first && to >= last;
  }

  /** Change as little as possible: removing a row would lose focus and selection. */
  #sync(wanted) {
    const staying = new Set(wanted);
    for (const row of [...this.rows.children]) if (!staying.has(row)) row.remove();
    let at = this.rows.firstChild;
    for (const row of wanted) {
      if (row === at) at = at.nextSibling;
      else this.rows.insertBefore(row, at);
    }
  }

  #measure() {
    for (let at = this.#from, row = this.rows.firstChild; row; at++, row = row.nextSibling)
      this.#heights.set(at, row.offsetHeight);
  }

  #element(item) {
    let row = this.#drawn.get(item.key);
    const source = row && this.#sources.get(row);
    if (row && source !== item && !this.#same(source, item)) row = this.#forget(item.key);
    if (row) this.#drawn.delete(item.key);
    else {
      row = this.#draw(item);
      row.dataset.key = item.key;
      this.#sources.set(row, item);
      this.#sizes.observe(row);
    }
    this.#drawn.set(item.key, row);
    if (this.#drawn.size > KEPT) this.#trim();
    return row;
  }

  /** Drop the rows that were not used for longest. */
  #trim() {
    for (const [key, row] of this.#drawn) {
      if (this.#drawn.size <= KEPT / 2) break;
      if (!row.isConnected) this.#forget(key);
      else (this.#drawn.delete(key), this.#drawn.set(key, row));
      if (this.#drawn.size <= this.rows.children.length + 1) break;
    }
  }

  #forget(key) {
    const row = this.#drawn.get(key);
    this.#sizes.unobserve(row);
    row.dispatchEvent(new CustomEvent("forgotten"));
    row.remove();
    this.#drawn.delete(key);
  }

  #space() {
    const total = this.#heights.total;
    this.#above.style.height = `${this.#items.length ? this.#heights.offset(this.#from) : 0}px`;
    this.#below.style.height = `${this.#items.length ? total - this.#heights.offset(this.#to) : 0}px`;
  }

  #moveTo(top) {
    const goal = this.#stuck ? this.node.scrollHeight - this.#view : top;
    if (Math.abs(this.node.scrollTop - goal) < 1) return;
    this.node.scrollTop = goal;
    this.#moved = this.node.scrollTop;
  }

  /** To the pixel: the paragraph at the top stays where it was. */
  #hold(anchor) {
    if (this.#stuck || !anchor?.node?.isConnected) return;
    const moved = anchor.node.getBoundingClientRect().top - this.node.getBoundingClientRect().top - anchor.at;
    if (Math.abs(moved) >= 1) this.#moveTo(this.node.scrollTop + moved);
  }

  #scrolled() {
    const { scrollTop } = this.node;
    const ours = Math.abs(scrollTop - this.#moved) < 2;
    this.#moved = -1;
    const left = this.node.scrollHeight - scrollTop - this.#view;
    if (!ours) this.#stick(this.sticks && left < NEAR);
    if (scrollTop < AHEAD) this.onTop();
    if (left < AHEAD) this.onBottom();
    this.#last = this.#anchor();
    if (!this.#covers(scrollTop, ENOUGH)) this.#soon();
  }

  #stick(stuck) {
    if (stuck === this.#stuck) return;
    this.#stuck = stuck;
    // Rows that scroll into view are not announced as new.
    this.rows.setAttribute("aria-live", stuck ? "polite" : "off");
    this.onStick(stuck);
  }

  /** At most one layout per frame. */
  #soon() {
    this.#asked ||= requestAnimationFrame(() => {
      this.#asked = 0;
      this.#layout(this.#anchor());
    });
  }

  /** Called by the browser before it paints, so that rows that grow move nothing that is being read. */
  #measured(entries) {
    this.#view = this.node.clientHeight || this.#view;
    const other = ({ target }) =>
      target === this.node ||
      (target.isConnected && this.#heights.of(this.#index.get(target.dataset.key)) !== target.offsetHeight);
    if (entries.some(other)) this.#layout(this.#last);
  }
}
