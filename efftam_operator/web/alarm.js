// Loss and return of the target: a banner that can't be missed, and sound and vibration for who has asked for them.

const RETURN_MS = 5000;
const LOST_HZ = [440, 330, 440, 330], FOUND_HZ = [660, 880], ALARM_HZ = [880, 440, 880, 440];
const TONE_S = 0.18;

export class Alarm {
  isLost = false;
  #of = null; // target and selection
  #unseenS = null;
  #foundMs = -Infinity;
  #afterS = 0;
  #rung = [];
  #audio = null; // while sound is on

  /** The state now, `target`, the track's entry that it is of (or undefined), and how long it has been unseen, s or
   * null. UNKNOWN changes nothing; what was selected anew was not found. */
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
      if (state === "IDLE" || state === "ACQUIRING") return; // cleared, or selected anew
      this.#foundMs = nowMs;
      this.#afterS = this.#unseenS ?? 0;
      this.#sound(FOUND_HZ);
    }
  }

  /** Other alarms that are shown, by name: a new one sounds. */
  ring(names) {
    if (names.some((name) => !this.#rung.includes(name))) this.#sound(ALARM_HZ);
    this.#rung = names;
  }

  /** {title, text, seconds} to show, or null; `isGood`: what was lost is seen again. */
  banner(nowMs) {
    if (this.isLost) return { title: "LOST", text: "searching; tapping or drawing it starts anew", seconds: this.#unseenS };
    if (nowMs - this.#foundMs > RETURN_MS) return null;
    return { title: "SEEN AGAIN", text: `after ${Math.round(this.#afterS)} s; see that it is the same`, isGood: true };
  }

  /** Sound and vibration on or off; returns whether they are on. Browsers want a touch before the first sound. */
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
