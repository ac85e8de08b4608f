// In the page: every combination as the modules make it. Gives how many there were, and what is wrong.
async () => {
    const { bannersOf, drawingQuestion, menuQuestion } = await import("/static/panels.js");
    const { showBanners, showNotices } = await import("/static/notices.js");
    const $ = (id) => document.getElementById(id), found = new Set();
    const main = document.querySelector("main");
    const cause = { id: "tracker", title: "TRACKER SILENT", text: "images arrive, no answer from the tracker", seconds: 12 };
    const gimbal = { title: "AUTOPILOT SILENT", text: "the gimbal does not follow", seconds: 12 };
    const lost = { title: "LOST", text: "searching; tapping or drawing it starts anew", seconds: 12 };
    const all = { replaces: true, turns: true, mayReplace: true, mayAdd: true, addTurns: false };
    const questions = [
        null,
        drawingQuestion({ mode: "corner" }, {}, false),
        drawingQuestion({ mode: "proposed" }, {}, false),
        drawingQuestion({ mode: "placed", isBetweenTaps: true }, {}, false),
        drawingQuestion({ mode: "asked" }, all, false),
        menuQuestion({ id: 12, state: "COASTING", steered: false }, true, true),
    ];
    const refusal = "the selection on the image of 12.4 s is refused: it is older than the 8 s that are kept";
    const notices = [0, 1, 3].map((count) => Array.from({ length: count }, (_, i) => ({ subject: `s${i}`, text: refusal, isRefusal: true })));
    const rows = [0, 4].map((count) => Array.from({ length: count }, (_, id) => `<button>${id} TRACKING</button>`).join(""));
    let count = 0;
    const off = (a, b) => a.right <= b.left + 1 || b.right <= a.left + 1 || a.bottom <= b.top + 1 || b.bottom <= a.top + 1;
    const check = (what) => {
        count++;
        const room = main.getBoundingClientRect();
        const shown = [...$("banners").children, ...$("notices").children, $("left"), $("hint"), $("targets"), $("choice")]
            .filter((one) => !one.hidden && one.offsetHeight).map((one) => [one, one.getBoundingClientRect()]);
        const inNotices = $("notices").getBoundingClientRect();
        const newest = $("notices").firstElementChild?.getBoundingClientRect();
        if (newest && newest.top < inNotices.top - 1) found.add(`the newest notice is cut: ${what}`);
        for (const [one, box] of shown) {
            const name = one.id || one.dataset.id || "notice";
            // An older notice may give way; what is seen of it lies in its place.
            const seen = name !== "notice" ? box : { ...box.toJSON(), top: Math.max(box.top, inNotices.top), bottom: Math.min(box.bottom, inNotices.bottom) };
            if (seen.top < room.top - 1 || seen.bottom > room.bottom + 1 || seen.left < room.left - 1 || seen.right > room.right + 1) found.add(`${name} leaves the picture: ${what}`);
            if (name !== "notice" && (one.scrollHeight > one.clientHeight + 1 || one.scrollWidth > one.clientWidth + 1)) found.add(`${name} is cut: ${what}`);
            for (const [other, its] of shown) {
                if (one === other || one.parentElement === other.parentElement && one.parentElement !== main) continue;
                const otherName = other.id || other.dataset.id || "notice";
                if (otherName !== "notice" && seen.bottom > seen.top && !off(seen, its)) found.add(`${name} over ${otherName}: ${what}`);
            }
        }
    };
    for (const frozen of [false, true]) for (const aside of frozen ? [false, true] : [false])
    for (const isLost of [false, true]) for (const isSilent of [false, true]) for (const isDead of [false, true])
    for (const isSmall of frozen ? [false] : [false, true]) for (const holder of frozen ? [null] : [null, "page 12 (192.168.100.200)"])
    for (const question of holder || isSmall || aside ? [null] : frozen ? questions.slice(1, 5) : [null, questions[5]])
    for (const high of question ? [false, true] : [false]) for (const low of aside || frozen && !question ? [false, true] : [false])
    for (const said of aside ? notices.slice(0, 2) : notices) for (const list of question || aside ? [""] : rows) {
        if (isLost && isSilent) continue; // the alarm is silent where the state is not known
        showBanners(bannersOf({ cause: isSilent ? cause : null, gimbal: isDead ? gimbal : null, alarm: isLost ? lost : null, isSteered: isDead, held: "", isSmall, holder }), () => {});
        showNotices(said);
        $("banners").classList.toggle("low", low);
        $("left").hidden = !frozen;
        $("left").classList.toggle("aside", aside);
        $("left-s").textContent = "8 s";
        $("targets").innerHTML = list;
        $("targets").hidden = !list;
        $("hint").hidden = frozen || holder !== null || list !== "" || question !== null;
        $("choice").hidden = !question;
        $("choice").classList.toggle("high", high);
        $("choice-text").textContent = question?.text ?? "";
        $("choice-send").textContent = question?.send ?? "";
        for (const what of ["point", "send", "add", "remove"]) $(`choice-${what}`).hidden = !question?.[what];
        check(JSON.stringify({ frozen, aside, isLost, isSilent, isDead, isSmall, holder: holder !== null, question: question?.text, high, low, said: said.length, list: list !== "" }));
    }
    return [count, [...found].slice(0, 12)];
}
