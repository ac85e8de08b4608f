// Alarms: the banners for the loss and the return of the target, and sound and vibration if the user has switched them on.

const RETURN_MS = 5000;
const LOST_HZ = [440, 330, 440, 330], FOUND_HZ = [660, 880], ALARM_HZ = [880, 440, 880, 440];
const TONE_S = 0.18;

export class Alarm {
  isLost = false;
  // Target and selection to which the alarm belongs, as text; null: none.
  #of = null;
  #unseenS = null;
  #foundMs = -Infinity;
  #afterS = 0;
  #rung = [];
  // The AudioContext; null: sound is off.
  #audio = null;

  /**
   * Update the alarm. `state`: the state shown; UNKNOWN changes nothing. `target`: the track's entry with this state, or
   * undefined. `unseenS`: for how long the target has not been seen, s, or null.
   * A new selection after a loss is no return, so it gives no SEEN AGAIN.
   */
  see(state, target, unseenS, nowMs) {
    const of = target && `${target.id} ${target.selection}`;
    if (state !== "UNKNOWN" && of !== this.#of) {
      this.isLost = false;
      this.#foundMs = -Infinity;
      this.#of = of;
    }
    if (state === "LOST") {
      if (!this.isLost) this.#sound(LOST_HZ);
      this.isLost = true;
      this.#unseenS = unseenS;
    } else if (state !== "UNKNOWN" && this.isLost) {
      this.isLost = false;
      // In these states the target was cleared or selected anew, which is no return.
      if (state === "IDLE" || state === "ACQUIRING") return;
      this.#foundMs = nowMs;
      this.#afterS = this.#unseenS ?? 0;
      this.#sound(FOUND_HZ);
    }
  }

  /** Sound an alarm if `names`, the ids of the alarm banners now shown, contain one that was not shown before. */
  ring(names) {
    if (names.some((name) => !this.#rung.includes(name))) this.#sound(ALARM_HZ);
    this.#rung = names;
  }

  /** The banner to show as {title, text, seconds?, isGood?}, or null; `isGood`: the lost target was found again. */
  banner(nowMs) {
    if (this.isLost) return { title: "LOST", text: "searching; tapping or drawing it starts anew", seconds: this.#unseenS };
    if (nowMs - this.#foundMs > RETURN_MS) return null;
    return { title: "SEEN AGAIN", text: `after ${Math.round(this.#afterS)} s; check that it is the same`, isGood: true };
  }

  /** Switch sound and vibration on or off; returns whether they are on. Must be called in the handler of a click: only
   * then browsers allow sound. */
  toggle() {
    if (this.#audio) this.#audio.close();
    this.#audio = this.#audio ? null : new AudioContext();
    this.#sound(FOUND_HZ);
    return this.#audio !== null;
  }

  #sound(tones) {
    if (!this.#audio) return;
    navigator.vibrate?.(tones.flatMap(() => [150, 60]));
    tones.forEach((hz, i) => {
      const tone = new OscillatorNode(this.#audio, { frequency: hz });
      tone.connect(this.#audio.destination);
      tone.start(this.#audio.currentTime + i * TONE_S);
      tone.stop(this.#audio.currentTime + (i + 0.9) * TONE_S);
    });
  }
}
