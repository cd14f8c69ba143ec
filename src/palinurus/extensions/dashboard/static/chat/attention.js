// Keyboard focus for approvals: a new approval gets the focus, unless somebody is typing or busy elsewhere, and returns
// it when it is decided.

const READ = 500; // milliseconds: an approval that has just appeared has not been read yet

export class Attention {
  #composer;
  #cardOf;
  #item = null; // the approval that waits longest
  #held = null; // what had the focus before it

  /** @param {{box: HTMLElement, busy: boolean, focus(): void}} composer @param {(item: any) => HTMLElement | null} cardOf */
  constructor(composer, cardOf) {
    this.#composer = composer;
    this.#cardOf = cardOf;
  }

  /** @param {any} item the approval that waits longest, or null */
  look(item = null) {
    if (item === this.#item) return;
    if (this.#item) this.#giveBack();
    this.#item = item;
    if (!item) return;
    item.shownAt = Date.now();
    if (this.#idle) this.take();
  }

  /** Focus the approval. */
  take() {
    const card = this.#item && this.#cardOf(this.#item);
    if (!card?.isConnected) return;
    if (!card.contains(document.activeElement)) this.#held = document.activeElement;
    card.focus();
  }

  get #idle() {
    const at = document.activeElement;
    const writing = at === this.#composer.box && this.#composer.busy;
    return !writing && (!at || at === document.body || at === this.#composer.box);
  }

  #giveBack() {
    const at = document.activeElement;
    const card = this.#cardOf(this.#item);
    if (at && at !== document.body && !card?.contains(at)) return;
    this.#held?.isConnected && this.#held !== document.body ? this.#held.focus() : this.#composer.focus();
    this.#held = null;
  }
}

/** Whether an approval has been visible long enough to be answered by a key. */
export function isRead(item) {
  return item.shownAt !== undefined && Date.now() - item.shownAt > READ;
}
