// Draws at most once per frame and at most a fifth of the time, so that typing stays quick however fast text streams.

const SHARE = 5;
const CHEAP = 4; // milliseconds of drawing after which no pause is needed

export class Pace {
  #frame = 0;
  #rest = 0; // end of the pause
  #draw;

  /** @param {() => void} draw draws everything that has changed */
  constructor(draw) {
    this.#draw = draw;
  }

  soon() {
    this.#frame ||= requestAnimationFrame(() => this.#now());
  }

  end() {
    cancelAnimationFrame(this.#frame);
  }

  #now() {
    this.#frame = 0;
    const began = performance.now();
    if (began < this.#rest) return this.soon();
    this.#draw();
    const took = performance.now() - began;
    this.#rest = took > CHEAP ? began + took * SHARE : 0;
  }
}
