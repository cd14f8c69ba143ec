// Drawing once a frame at most, and no more than a fifth of the time: typing stays quick however fast words come.

const SHARE = 5;
const CHEAP = 4; // milliseconds of drawing that need no pause afterwards

export class Pace {
  #frame = 0;
  #rest = 0; // until when there is a pause
  #draw;

  /** @param {() => void} draw draws all that has changed */
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
