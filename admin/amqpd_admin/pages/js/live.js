// What a page shows, asked for again and again while somebody looks: one turn at a time, none while it is hidden.

export const EVERY_MS = 2000;

const lives = new Set();
let held = 0;

/** `action` is done while nothing is asked for: what it destroys would be asked for when it is gone. */
export async function hold(action) {
  held += 1;
  for (const each of lives) each.pause();
  try {
    return await action();
  } finally {
    held -= 1;
    for (const each of lives) each.goOn();
  }
}

/** `load(signal)` asks, `show(found)` draws, `fail(error)` says what went wrong. */
export class Live {
  constructor(load, show, fail) {
    this.load = load;
    this.show = show;
    this.fail = fail;
    this.timer = 0;
    this.running = null;
    this.stopped = false;
    this.seen = () => this.#seen();
    document.addEventListener("visibilitychange", this.seen);
    lives.add(this);
  }

  /** Ask now: instead of what is under way. */
  now() {
    this.running?.abort();
    this.running = null;
    return this.#turn();
  }

  pause() {
    clearTimeout(this.timer);
    this.running?.abort();
    this.running = null;
  }

  /** Not at once: who has acted mostly goes elsewhere, or asks now. */
  goOn() {
    clearTimeout(this.timer);
    if (this.running === null && !document.hidden) this.timer = setTimeout(() => this.#turn(), EVERY_MS);
  }

  stop() {
    this.stopped = true;
    lives.delete(this);
    this.pause();
    document.removeEventListener("visibilitychange", this.seen);
  }

  #seen() {
    if (document.hidden) clearTimeout(this.timer);
    else if (this.running === null) this.#turn();
  }

  async #turn() {
    if (this.stopped || held > 0) return;
    clearTimeout(this.timer);
    const mine = new AbortController();
    this.running = mine;
    try {
      const found = await this.load(mine.signal);
      if (this.running === mine) this.show(found);
    } catch (error) {
      if (this.running === mine && error.name !== "AbortError") this.fail(error);
    }
    if (this.running !== mine) return;
    this.running = null;
    if (!this.stopped && !document.hidden) this.timer = setTimeout(() => this.#turn(), EVERY_MS);
  }
}
