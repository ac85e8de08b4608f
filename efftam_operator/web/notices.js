// Notices, which show for some seconds what has just happened, and banners, which show lasting conditions.

const SHOWN_MS = 6000;
const MOST = 3;

/** The notices that are shown, at most one per subject: a newer one replaces the older one. Uses no DOM. */
export class Notices {
  // Subject -> notice, the oldest first.
  #bySubject = new Map();

  add(subject, text, isRefusal, nowMs) {
    this.#bySubject.delete(subject);
    this.#bySubject.set(subject, { subject, text, isRefusal, untilMs: nowMs + SHOWN_MS });
    for (const oldest of this.#bySubject.keys()) if (this.#bySubject.size > MOST) this.#bySubject.delete(oldest);
  }

  /** Remove the notices on these subjects, because they are no longer true; without a subject, remove all. */
  retire(...subjects) {
    for (const subject of subjects.length ? subjects : [...this.#bySubject.keys()]) this.#bySubject.delete(subject);
  }

  /** [{subject, text, isRefusal}] to show now, the newest first. */
  shown(nowMs) {
    for (const [subject, { untilMs }] of this.#bySubject) if (nowMs >= untilMs) this.#bySubject.delete(subject);
    return [...this.#bySubject.values()].reverse();
  }
}

export function showNotices(list) {
  const element = document.getElementById("notices");
  const kept = new Map([...element.children].map((one) => [one.dataset.subject, one]));
  const rows = list.map(({ subject, text, isRefusal }) => {
    const row = kept.get(subject) ?? document.createElement("p");
    row.dataset.subject = subject;
    row.className = isRefusal ? "refusal" : "";
    if (row.textContent !== text) row.textContent = text;
    return row;
  });
  if (rows.length !== element.children.length || rows.some((row, i) => row !== element.children[i])) element.replaceChildren(...rows);
}

/** Show exactly the banners `wanted`, as `bannersOf` returns them, in their order. `act(id)` is called when the button of a
 * banner is pressed. */
export function showBanners(wanted, act) {
  const element = document.getElementById("banners");
  for (const shown of [...element.children]) if (!(shown.dataset.id in wanted)) shown.remove();
  Object.entries(wanted).forEach(([id, { title, text, seconds = null, action, isAlarm = false, isGood = false }], i) => {
    const banner = [...element.children].find((shown) => shown.dataset.id === id) ?? made(id, action, act);
    if (element.children[i] !== banner) element.insertBefore(banner, element.children[i] ?? null);
    const [first, second] = banner.children;
    const shown = seconds === null ? title : `${title} ${Math.floor(seconds)} s`;
    if (first.textContent !== shown) first.textContent = shown;
    if (second.textContent !== text) second.textContent = text;
    banner.classList.toggle("alarm", isAlarm);
    banner.classList.toggle("good", isGood);
    // A banner is announced once, and not again when its seconds change.
    if (banner.dataset.title !== title) announce(`${title}: ${text}`);
    banner.dataset.title = title;
  });
}

function made(id, action, act) {
  const banner = document.createElement("p");
  banner.dataset.id = id;
  banner.append(document.createElement("b"), document.createElement("span"));
  if (action) {
    const button = document.createElement("button");
    button.textContent = action;
    button.onclick = () => act(id);
    banner.append(button);
  }
  return banner;
}

/** Have a screen reader read the text aloud; it is not visible. */
export function announce(text) {
  const spoken = document.getElementById("spoken"), line = document.createElement("p");
  line.textContent = text;
  spoken.append(line);
  while (spoken.children.length > 5) spoken.firstChild.remove();
}
