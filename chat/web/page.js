() => {
    // The marks that view.py puts into a message are for the Markdown reader alone: a copy goes without them.
    if (navigator.clipboard) {
        const write = navigator.clipboard.writeText.bind(navigator.clipboard);
        navigator.clipboard.writeText = (text) => write(text.replaceAll("\0", ""));
    }

    // What a person wrote is shown as it was typed: no Markdown, no formulas, every space.
    const prefix = "user's message: ";
    const showAsTyped = () => {
        for (const message of document.querySelectorAll('#chat [data-testid="user"]')) {
            const shown = message.querySelector(".md");
            const typed = message.getAttribute("aria-label").slice(prefix.length).replaceAll("\0", "");
            if (shown && shown.textContent !== typed) shown.replaceChildren(typed);
        }
    };
    new MutationObserver(showAsTyped).observe(document.body, { childList: true, subtree: true });

    document.addEventListener("keydown", (event) => {
        const stop = document.querySelector("#stop");
        if (event.key === "Escape" && stop?.checkVisibility()) stop.click();
    });
}
