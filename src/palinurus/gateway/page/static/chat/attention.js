// Who has the keyboard while the agent waits for a yes: a new question gets it, unless somebody is writing or is busy
// elsewhere, and gives it back when it is settled.

const READ = 500; // milliseconds: a question that has just come up has not been read yet

export class Attention {
  #composer;
  #cardOf;
  #item = null; // the question that waits longest
  #held = null; // what had the focus before it

  /** @param {{box: HTMLElement, busy: boolean, focus(): void}} composer @param {(item: any) => HTMLElement | null} cardOf */
  constructor(composer, cardOf) {
    this.#composer = composer;
    this.#cardOf = cardOf;
  }

  /** @param {any} item the question that waits longest, or nothing */
  look(item = null) {
    if (item === this.#item) return;
    if (this.#item) this.#giveBack();
    this.#item = item;
    if (!item) return;
    item.shownAt = Date.now();
    if (this.#idle) this.take();
  }

  /** Put the focus on the question. */
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

/** Whether a question has been there for long enough to be answered by a key. */
export function isRead(item) {
  return item.shownAt !== undefined && Date.now() - item.shownAt > READ;
}
