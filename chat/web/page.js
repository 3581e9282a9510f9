() => {
    // guard.py puts NULs into messages, for the Markdown reader alone. Copies and edits go without them.
    const unguard = (text) => text.replaceAll("\0", "");

    if (navigator.clipboard) {
        const write = navigator.clipboard.writeText.bind(navigator.clipboard);
        navigator.clipboard.writeText = (text) => write(unguard(text));
    }

    // What a person wrote is shown as it was typed: no Markdown, no formulas, every space.
    const prefix = "user's message: ";
    const showAsTyped = () => {
        for (const message of document.querySelectorAll('#chat [data-testid="user"]')) {
            const shown = message.querySelector(".md");
            const typed = unguard(message.getAttribute("aria-label").slice(prefix.length));
            if (shown && shown.textContent !== typed) shown.replaceChildren(typed);
        }
        for (const box of document.querySelectorAll("#chat textarea")) {
            if (!box.value.includes("\0")) continue;
            box.value = unguard(box.value);
            box.dispatchEvent(new Event("input", { bubbles: true }));
        }
    };
    new MutationObserver(showAsTyped).observe(document.body, { childList: true, subtree: true });

    document.addEventListener("keydown", (event) => {
        const stop = document.querySelector("#stop");
        if (event.key === "Escape" && stop?.checkVisibility()) stop.click();
    });
}
