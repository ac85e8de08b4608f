// A recording: where we are in it, and which image to ask for next. No DOM.

/** Real time, one image at a time: the next is asked for when the last has come, so a thin link skips images. */
export class Playback {
  /** `timeline` as the server tells it; `seek(stamp)` asks for the image of a stamp (BigInt). */
  constructor(timeline, seek) {
    this.stamps = timeline.stamps.map(BigInt);
    this.runs = timeline.runs.map((run) => ({ name: run.name, points: this.#points(run) }));
    this.index = 0;
    this.playing = false;
    this.seek = seek;
  }

  #points(run) {
    const names = ["IDLE", "ACQUIRING", "TRACKING", "COASTING", "LOST"];
    return this.stamps.map((stamp, i) => ({
      t: this.seconds(i),
      state: names[run.states[i]] ?? null,
      speed: run.speed[i],
      presence: run.presence[i],
      quality: run.quality[i],
    }));
  }

  get count() {
    return this.stamps.length;
  }

  /** Seconds from the first image to image `index`. */
  seconds(index = this.index) {
    return Number(this.stamps[index] - this.stamps[0]) / 1e9;
  }

  go(index) {
    this.index = Math.min(Math.max(index, 0), this.count - 1);
    this.seek(this.stamps[this.index]);
    if (this.playing) this.#anchor();
  }

  step(images) {
    this.playing = false;
    this.go(this.index + images);
  }

  /** The last image at or before a time in seconds. */
  goTo(seconds) {
    this.go(this.indexAt(seconds));
  }

  indexAt(seconds) {
    let low = 0, high = this.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      // Times come out of a division: half a microsecond is no other image.
      if (this.seconds(middle) <= seconds + 5e-7) low = middle + 1;
      else high = middle;
    }
    return Math.max(0, low - 1);
  }

  /** To the next image (`direction` 1 or -1) at which some run's state is another than just before. */
  toChange(direction) {
    this.playing = false;
    for (let i = this.index + direction; i > 0 && i < this.count; i += direction) {
      if (this.runs.some(({ points }) => points[i].state !== points[i - 1].state)) return this.go(i);
    }
    this.go(direction > 0 ? this.count - 1 : 0);
  }

  toggle(nowMs) {
    this.nowMs = nowMs;
    this.playing = !this.playing;
    if (this.playing && this.index === this.count - 1) this.go(0);
    this.#anchor();
  }

  #anchor() {
    this.anchor = { ms: this.nowMs, seconds: this.seconds() };
  }

  /** Called often with the page's clock: asks for the image that is due, once the one before has come. */
  tick(nowMs, hasArrived) {
    this.nowMs = nowMs;
    if (!this.playing || !hasArrived) return;
    const due = this.indexAt(this.anchor.seconds + (nowMs - this.anchor.ms) / 1000);
    if (due === this.index) return;
    this.index = due;
    this.seek(this.stamps[due]);
    if (due === this.count - 1) this.playing = false;
  }
}
