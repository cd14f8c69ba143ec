// The height of each row of a list and where it begins: measured for rows that were drawn, estimated for the others.

const GUESS = 72;

export class Heights {
  #known = new Map(); // key → measured pixels
  #keys = [];
  #offsets = new Float64Array(1); // where each row begins; the last value is the end of the list
  #fresh = 0; // how many of them are valid
  #guess = GUESS;

  /** Set the rows; measured heights are kept by key. */
  reset(items) {
    this.#keys = items.map((item) => item.key);
    const here = new Set(this.#keys);
    for (const key of this.#known.keys()) if (!here.has(key)) this.#known.delete(key);
    this.#offsets = new Float64Array(this.#keys.length + 1);
    this.#fresh = 0;
    this.#learn();
  }

  get total() {
    return this.offset(this.#keys.length);
  }

  of(at) {
    return this.#known.get(this.#keys[at]) ?? this.#guess;
  }

  set(at, pixels) {
    if (this.#known.get(this.#keys[at]) === pixels) return;
    this.#known.set(this.#keys[at], pixels);
    this.#fresh = Math.min(this.#fresh, at);
  }

  /** Where a row begins. */
  offset(at) {
    for (; this.#fresh < at; this.#fresh++)
      this.#offsets[this.#fresh + 1] = this.#offsets[this.#fresh] + this.of(this.#fresh);
    return this.#offsets[at];
  }

  /** The row at this offset. */
  at(pixels) {
    this.offset(this.#keys.length);
    let low = 0;
    let high = this.#keys.length - 1;
    while (low < high) {
      const middle = (low + high + 1) >> 1;
      if (this.#offsets[middle] <= pixels) low = middle;
      else high = middle - 1;
    }
    return low;
  }

  /** The mean of the measured heights is the estimate for the rest; updated when the whole list is laid out again. */
  #learn() {
    if (!this.#known.size) return;
    let sum = 0;
    for (const height of this.#known.values()) sum += height;
    this.#guess = Math.max(24, Math.round(sum / this.#known.size));
  }
}
