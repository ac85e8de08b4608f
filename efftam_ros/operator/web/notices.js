// Banners for what lasts, notices for what has just happened; both reach a screen reader.

const SHOWN_MS = 6000;

const banners = document.getElementById("banners");
const notices = document.getElementById("notices");
const spoken = document.getElementById("spoken");

/** Show exactly these banners: {id: {word, text, seconds?, button?}} with button {label, press}. */
export function showBanners(wanted) {
  for (const shown of [...banners.children]) if (!(shown.dataset.id in wanted)) shown.remove();
  for (const [id, { word, text, seconds = null, button }] of Object.entries(wanted)) {
    let banner = banners.querySelector(`[data-id="${id}"]`);
    if (!banner) {
      banner = document.createElement("p");
      banner.dataset.id = id;
      banner.append(document.createElement("b"), document.createElement("span"));
      if (button) {
        const made = document.createElement("button");
        made.textContent = button.label;
        made.onclick = button.press;
        banner.append(made);
      }
      banners.append(banner);
    }
    const [first, second] = banner.children;
    const shown = seconds === null ? word : `${word} ${Math.floor(seconds)} s`;
    if (first.textContent !== shown) first.textContent = shown;
    if (second.textContent !== text) second.textContent = text;
    if (banner.dataset.word !== word) say(`${word}: ${text}`); // not every second
    banner.dataset.word = word;
  }
}

/** Say something once; the same words twice within their time are shown once. */
export function notify(text, isRefusal = false) {
  if ([...notices.children].some((notice) => notice.textContent === text)) return;
  const notice = document.createElement("p");
  notice.textContent = text;
  notice.className = isRefusal ? "refusal" : "";
  notices.append(notice);
  while (notices.children.length > 3) notices.firstChild.remove();
  setTimeout(() => notice.remove(), SHOWN_MS);
  say(text);
}

/** For a screen reader alone. */
export function say(text) {
  const line = document.createElement("p");
  line.textContent = text;
  spoken.append(line);
  while (spoken.children.length > 5) spoken.firstChild.remove();
}
