// @ts-check
/** The board's own time: it runs through the flights' time at a pace that a person chooses. */

const LONGEST_STEP_MS = 250; // after the page was hidden, time goes on from where it stood

/**
 * A clock that never runs ahead of what is known.
 *
 * Whoever has the next event waits with `reach` until the clock has come to its time; while nobody waits, because
 * nothing has come, the clock stands. So the clock is what slows the reader, and the reader is what slows the server.
 */
export class Clock {
  /** Milliseconds since 1970 in the time of the flights; NaN before the first. */
  now = NaN;
  /** Milliseconds of the flights' time in one of ours; Infinity to go along with whatever comes. */
  rate = 1;
  running = true;
  #limit = NaN;
  /** @type {{time: number, go: () => void} | null} */
  #waiting = null;

  /** Sets the clock; whoever waits keeps waiting. */
  set(/** @type {number} */ time) {
    this.now = this.#limit = time;
  }

  /**
   * Waits until the clock has come to a time.
   *
   * @param {number} time
   * @returns {Promise<void> | undefined} Undefined if it is there already.
   */
  reach(time) {
    if (Number.isNaN(this.now)) this.set(time);
    if (this.running && (time <= this.#limit || this.rate === Infinity)) {
      this.#arrive(time);
      return undefined;
    }
    return new Promise((go) => {
      this.#waiting = { time, go };
    });
  }

  /**
   * Lets time go on.
   *
   * @param {number} elapsed Milliseconds of our time.
   */
  tick(elapsed) {
    const waiting = this.#waiting;
    if (!this.running || waiting === null) return;
    if (this.rate === Infinity) this.#limit = Math.max(this.#limit, waiting.time);
    else this.#limit += Math.min(elapsed, LONGEST_STEP_MS) * this.rate;
    if (waiting.time > this.#limit) {
      this.now = this.#limit;
    } else {
      this.#arrive(waiting.time);
      this.release();
    }
  }

  /** Lets whoever waits go at once. */
  release() {
    const waiting = this.#waiting;
    this.#waiting = null;
    waiting?.go();
  }

  #arrive(/** @type {number} */ time) {
    // Events of one moment, and those that come late, do not turn it back.
    this.now = Math.max(this.now, time);
    this.#limit = Math.max(this.#limit, this.now);
  }
}
