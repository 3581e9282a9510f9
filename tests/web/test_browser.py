"""The page in a real browser, with a scripted engine behind it."""

from __future__ import annotations

import threading

import pytest
from playwright.sync_api import expect

from chat.types import Chunk, GenerationFailed, InvalidRequest, Progress, Status
from tests.web.pages import Visitor

pytestmark = pytest.mark.browser


@pytest.fixture
def visit(browser, url):
    """Return a function that opens the page as somebody new."""
    contexts = []

    def visit(**options: object) -> Visitor:
        contexts.append(browser.new_context(permissions=["clipboard-read", "clipboard-write"], **options))
        return Visitor(contexts[-1].new_page(), url)

    yield visit
    for context in contexts:
        context.close()


def test_a_reply_grows_word_by_word(visit, engine):
    more, rest = threading.Event(), threading.Event()
    engine.replies = [["Paris", more, " is the", rest, " capital."]]
    visitor = visit()
    visitor.ask("What is the capital of France?")
    expect(visitor.replies).to_have_text("Paris")
    visitor.expect_busy()
    expect(visitor.status).to_have_text("Writing")
    more.set()
    expect(visitor.replies).to_have_text("Paris is the")
    rest.set()
    expect(visitor.replies).to_have_text("Paris is the capital.")
    visitor.expect_idle()
    expect(visitor.status).to_contain_text("tokens/s")


def test_stop_keeps_the_text_and_the_conversation_goes_on(visit, engine):
    """T1, T4, T8, T9: the compute ends, the partial reply stays, and the next question has a reply of its own."""
    engine.replies = [["One", " two", threading.Event()], ["Three."]]
    visitor = visit()
    visitor.ask("Count")
    expect(visitor.replies).to_have_text("One two")
    visitor.page.locator("#stop").click()
    visitor.expect_idle()
    assert engine.closed == [0]
    expect(visitor.status).to_contain_text("Stopped after")
    visitor.ask("And now?")
    expect(visitor.replies).to_have_text(["One two", "Three."])
    assert [message["content"] for message in engine.prompts[1]] == ["Count", "One two", "And now?"]


@pytest.mark.parametrize(
    ("progress", "line"),
    [
        (Progress("loading", 42, 100, "Downloading"), "Downloading 42%"),
        (Progress("queued", 3), "Waiting: number 3 in line"),
        (Progress("reading", 1200, 3400), "Reading 1,200 of 3,400 tokens"),
    ],
)
def test_escape_stops_in_every_phase_before_the_first_word(visit, engine, monkeypatch, progress, line):
    """T8, T9, H5: what is done is said, can be stopped, and the question can be asked again."""
    stopped = threading.Event()

    def stay(prompt, params):
        try:
            while not stopped.wait(0.05):
                yield Chunk(progress=progress)
        finally:
            stopped.set()

    visitor = visit()
    with monkeypatch.context() as patch:
        patch.setattr(engine, "stream", stay)
        visitor.ask("A long story")
        expect(visitor.status).to_have_text(line)
        visitor.message.press("Escape")
        visitor.expect_idle()
    assert stopped.is_set()
    visitor.press("Retry")
    expect(visitor.replies).to_have_text("Hello there.")
    assert engine.prompts[0] == [{"role": "user", "content": "A long story"}]


def test_retry_answers_the_question_again_also_beside_a_thought(visit, engine):
    """G12: what is shown and what the history holds are counted differently."""
    engine.replies = [[Chunk(thought="Hm."), "One."], ["Two."]]
    visitor = visit()
    visitor.ask("A number?")
    expect(visitor.replies).to_have_count(2)
    visitor.expect_idle()
    visitor.press("Retry")
    expect(visitor.replies).to_have_text(["Two."])
    assert engine.prompts[1] == [{"role": "user", "content": "A number?"}]


def test_an_edited_question_drops_what_followed(visit, engine):
    """G12: the first question is edited, after a thought."""
    engine.replies = [[Chunk(thought="Hm."), "One."], ["Two."], ["Three."]]
    visitor = visit()
    visitor.ask("First")
    visitor.expect_idle()
    visitor.ask("Second")
    expect(visitor.replies.last).to_have_text("Two.")
    visitor.expect_idle()
    visitor.page.get_by_role("button", name="Edit").first.click()
    box = visitor.page.locator("#chat textarea")
    expect(box).to_have_value("First")
    box.fill("Better <b>first</b>")
    visitor.press("Submit")
    expect(visitor.replies).to_have_text(["Three."])
    expect(visitor.questions).to_have_text("Better <b>first</b>")
    assert engine.prompts[2] == [{"role": "user", "content": "Better <b>first</b>"}]


def test_undo_takes_the_question_back(visit):
    """G12: also the only one."""
    visitor = visit()
    visitor.ask("Only one")
    visitor.expect_idle()
    visitor.press("Undo")
    expect(visitor.message).to_have_value("Only one")
    expect(visitor.page.get_by_text("What can I do for you?")).to_be_visible()


def test_a_stopped_reply_goes_on(visit, engine):
    """T9: the partial reply is the end of the prompt, and its text goes on in place."""
    engine.replies = [["Once upon", threading.Event()], [" a time."]]
    visitor = visit()
    visitor.ask("A story")
    expect(visitor.replies).to_have_text("Once upon")
    visitor.page.locator("#stop").click()
    visitor.press("Continue")
    expect(visitor.replies).to_have_text("Once upon a time.")
    assert engine.prompts[1][-1] == {"role": "assistant", "content": "Once upon"}
    expect(visitor.page.get_by_role("button", name="Continue")).to_have_count(0)


def test_a_refused_message_stays_in_the_box(visit, engine, monkeypatch):
    """S2, G6: the toast says what to do, and shows the message as text."""

    def refuse(prompt, params):
        raise InvalidRequest("<b>Shorten</b> it.")

    monkeypatch.setattr(engine, "stream", refuse)
    visitor = visit()
    visitor.write("too long")
    expect(visitor.toast).to_have_text("<b>Shorten</b> it.")
    expect(visitor.message).to_have_value("too long")
    expect(visitor.questions).to_have_count(0)


def test_a_failure_before_the_first_word_gives_the_message_back(visit, engine):
    engine.replies = [["Hello."], [Chunk(progress=Progress("queued", 1)), GenerationFailed("Try <b>again</b>.")]]
    visitor = visit()
    visitor.ask("One")
    visitor.expect_idle()
    visitor.write("Two")
    expect(visitor.toast).to_have_text("Try <b>again</b>.")
    expect(visitor.message).to_have_value("Two")
    expect(visitor.questions).to_have_text("One")
    expect(visitor.replies).to_have_text("Hello.")


def test_a_failed_reply_keeps_its_text(visit, engine):
    """L4, G20: what was said stays, and the next message works."""
    engine.replies = [["Half a", GenerationFailed("The model failed. Try again.")], ["Whole."]]
    visitor = visit()
    visitor.ask("Say")
    expect(visitor.toast).to_have_text("The model failed. Try again.")
    visitor.expect_idle()
    expect(visitor.replies).to_have_text("Half a")
    visitor.ask("Again")
    expect(visitor.replies).to_have_text(["Half a", "Whole."])


@pytest.mark.parametrize("end", ["stop", "error"])
def test_no_thought_stays_pending(visit, engine, end):
    """G13"""
    engine.replies = [[Chunk(thought="Let me see"), threading.Event() if end == "stop" else GenerationFailed("No.")]]
    visitor = visit()
    visitor.ask("Think")
    if end == "stop":
        expect(visitor.replies).to_contain_text("Let me see")
        expect(visitor.page.locator(".loading-spinner")).to_be_visible()
        visitor.page.locator("#stop").click()
    visitor.expect_idle()
    expect(visitor.replies).to_contain_text("Thought for")
    expect(visitor.page.locator(".loading-spinner")).to_have_count(0)


def test_a_thought_is_folded_when_the_answer_comes(visit, engine):
    """G3"""
    engine.replies = [[Chunk(thought="They ask for <b>one</b>."), "One."]]
    visitor = visit()
    visitor.ask("A number?")
    expect(visitor.replies.last).to_have_text("One.")
    thought = visitor.replies.first
    expect(thought).to_have_text("Thought for 0.0 s")
    thought.get_by_role("button").first.click()
    expect(thought).to_contain_text("They ask for <b>one</b>.")


EXACT = """\
A vector<int> and <anything>, $5 and $6, R&amp;D, C:\\(x86\\ and a lone $$ sign.

all: build
\tgcc -o x x.c
    four   spaces

```make
\t$(CC) $$HOME $$PATH # <b>
```

`$$ \\(x\\) &lt;`"""


def test_text_is_shown_and_copied_as_it_is(visit, engine):
    """G2, G4, G5"""
    engine.replies = [[EXACT]]
    visitor = visit()
    visitor.ask("Say it")
    visitor.expect_idle()
    shown = visitor.replies.inner_text()
    for part in (
        "A vector<int> and <anything>, $5 and $6, R&amp;D, C:\\(x86\\ and a lone $$ sign.",
        "all: build\n\tgcc -o x x.c\n    four   spaces",
        "\t$(CC) $$HOME $$PATH # <b>",
        "$$ \\(x\\) &lt;",
    ):
        assert part in shown
    visitor.page.get_by_role("button", name="Copy message").last.click()
    assert visitor.page.evaluate("navigator.clipboard.readText()") == EXACT
    visitor.ask("Next")
    visitor.expect_idle()
    assert engine.prompts[1][1]["content"] == EXACT


def test_a_question_is_shown_as_it_was_typed(visit, engine):
    """G2, G4, G5: no Markdown in it, and none in the box that edits it."""
    typed = "# all: *.o\n\t$(CC) $$HOME $$PATH\n__init__ <b>bold</b> `x` 1. a  b\n$$x$$"
    visitor = visit()
    visitor.ask(typed)
    visitor.expect_idle()
    assert visitor.questions.inner_text() == typed
    assert engine.prompts[0][0]["content"] == typed
    visitor.page.get_by_role("button", name="Copy message").first.click()
    assert visitor.page.evaluate("navigator.clipboard.readText()") == typed
    visitor.press("Edit")
    expect(visitor.page.locator("#chat textarea")).to_have_value(typed)


def test_code_tables_and_formulas_are_rendered(visit, engine):
    """G4"""
    engine.replies = [
        ["```python\nprint(1)\n```\n\n|a|b|\n|-|-|\n|1|2|\n\n$$x^2$$ and \\(y\\) and\n\n\\[z\\]\n\nfor $5 or $6"]
    ]
    visitor = visit()
    visitor.ask("Show")
    visitor.expect_idle()
    expect(visitor.replies.locator("code.language-python")).to_have_text("print(1)")
    expect(visitor.replies.locator("table td")).to_have_text(["1", "2"])
    expect(visitor.replies.locator(".katex")).to_have_count(3)
    expect(visitor.replies.locator(".katex-display")).to_have_count(2)
    expect(visitor.replies).to_contain_text("for $5 or $6")


def test_nothing_in_a_message_runs_or_is_fetched(visit, engine):
    """G6: and no request ever leaves for another host."""
    attack = "<img src=x onerror=\"document.title='hacked'\"> <script>document.title='hacked'</script> ![a](https://b.invalid/c.png)"
    engine.replies = [[Chunk(thought=attack), attack, "\n\n[a](javascript:document.title='hacked')"]]
    visitor = visit()
    visitor.ask(attack)
    visitor.expect_idle()
    expect(visitor.questions).to_have_text(attack)
    visitor.replies.first.get_by_role("button").first.click()
    expect(visitor.replies.first).to_contain_text("<img src=x")
    expect(visitor.replies.last).to_contain_text("<script>")
    expect(visitor.page.locator("#chat img, #chat script, #chat a[href^=javascript]")).to_have_count(0)
    assert visitor.page.title() == "Chat"
    assert visitor.hosts == {visitor.page.url.rstrip("/")}


def test_a_message_written_meanwhile_waits_in_the_box(visit, engine):
    """G20: neither lost nor mixed in."""
    end = threading.Event()
    engine.replies = [["One", end, "."], ["Two."]]
    visitor = visit()
    visitor.ask("First")
    expect(visitor.replies).to_have_text("One")
    visitor.write("Second")
    end.set()
    visitor.expect_idle()
    expect(visitor.replies).to_have_text("One.")
    expect(visitor.message).to_have_value("Second")
    visitor.message.press("Enter")
    expect(visitor.replies).to_have_text(["One.", "Two."])


def test_shift_enter_begins_a_line(visit, engine):
    visitor = visit()
    visitor.message.fill("one")
    visitor.message.press("Shift+Enter")
    visitor.message.press_sequentially("two")
    visitor.page.locator("#send").click()
    expect(visitor.questions).to_have_text("one two")
    assert engine.prompts[0][0]["content"] == "one\ntwo"


def test_two_visitors_never_see_each_others_words(visit, engine):
    """G9, S4"""
    ends = [threading.Event(), threading.Event()]
    engine.replies = [["For A", ends[0], " only."], ["For B", ends[1], " only."]]
    first, second = visit(), visit()
    first.ask("I am A")
    expect(first.replies).to_have_text("For A")
    second.ask("I am B")
    expect(second.replies).to_have_text("For B")
    for end in ends:
        end.set()
    expect(first.replies).to_have_text("For A only.")
    expect(second.replies).to_have_text("For B only.")
    expect(first.questions).to_have_text("I am A")
    expect(second.questions).to_have_text("I am B")


def test_a_reload_finds_the_conversation_again_and_another_tab_does_not(visit, engine):
    """G11"""
    engine.replies = [[Chunk(thought="Hm."), "One."], ["Two."]]
    visitor = visit()
    visitor.ask("First")
    visitor.expect_idle()
    visitor.page.wait_for_function("sessionStorage.getItem('conversation')?.includes('One.')")
    visitor.page.reload()
    expect(visitor.questions).to_have_text("First")
    visitor.ask("Second")
    expect(visitor.replies.last).to_have_text("Two.")
    assert [message["content"] for message in engine.prompts[1]] == ["First", "One.", "Second"]
    other = Visitor(visitor.page.context.new_page(), visitor.page.url)
    expect(other.page.get_by_text("What can I do for you?")).to_be_visible()
    expect(other.questions).to_have_count(0)


def test_a_closed_tab_stops_its_reply(visit, engine):
    """T1, G11"""
    stopped = threading.Event()
    engine.closed = Noticing(stopped)
    engine.replies = [["One", threading.Event()]]
    visitor = visit()
    visitor.ask("Count")
    expect(visitor.replies).to_have_text("One")
    visitor.page.close()
    assert stopped.wait(20)


class Noticing(list):
    """A list that tells when something is added."""

    def __init__(self, noticed: threading.Event) -> None:
        super().__init__()
        self._noticed = noticed

    def append(self, item: object) -> None:
        super().append(item)
        self._noticed.set()


def test_new_chat_begins_anew(visit, engine):
    visitor = visit()
    visitor.ask("One")
    visitor.expect_idle()
    visitor.press("New chat")
    expect(visitor.page.get_by_text("What can I do for you?")).to_be_visible()
    visitor.ask("Two")
    expect(visitor.replies).to_have_text("Hello there.")
    assert engine.prompts[1] == [{"role": "user", "content": "Two"}]


def test_an_example_is_asked_when_clicked(visit, engine):
    visitor = visit()
    visitor.page.get_by_text("What is photosynthesis?").click()
    expect(visitor.questions).to_have_text("What is photosynthesis?")
    expect(visitor.replies).to_have_text("Hello there.")


def test_the_settings_hold_the_models_defaults_and_reach_the_engine(visit, engine):
    visitor = visit()
    visitor.page.get_by_role("button", name="Toggle Sidebar").click()
    expect(visitor.page.get_by_label("Max tokens")).to_have_value("512")
    expect(visitor.page.get_by_label("Top k")).to_have_value("")
    visitor.page.get_by_label("System prompt").fill("Be brief.")
    visitor.page.get_by_label("Temperature").fill("0")
    visitor.page.get_by_label("Seed").fill("7")
    visitor.ask("Hi")
    expect(visitor.replies).to_have_text("Hello there.")
    assert engine.prompts[0][0] == {"role": "system", "content": "Be brief."}
    params = engine.params[0]
    assert (params.max_new_tokens, params.temperature, params.top_p, params.top_k, params.seed) == (
        512,
        0,
        0.95,
        None,
        7,
    )


def test_a_setting_out_of_range_is_refused_with_what_is_allowed(visit, engine):
    visitor = visit()
    visitor.page.get_by_role("button", name="Toggle Sidebar").click()
    visitor.page.get_by_label("Temperature").fill("9")
    visitor.write("Hi")
    expect(visitor.toast).to_contain_text("temperature: '9' is not allowed")
    expect(visitor.message).to_have_value("Hi")
    assert engine.prompts == []


def test_the_page_is_up_before_the_model_is(visit, engine):
    engine.state = Status("loading", progress=Progress("loading", 42, 100, "Downloading"))
    visitor = visit()
    expect(visitor.status).to_have_text("Downloading 42%")
    engine.state = None
    expect(visitor.status).to_contain_text("fake/model · cpu float32")
    expect(visitor.page.get_by_role("heading", name="fake/model")).to_be_visible()


def test_it_fits_a_phone(visit, engine):
    engine.replies = [
        [f"{'word ' * 50}\n\n```\n{'long' * 100}\n```\n\n|{'a|' * 30}\n|{'-|' * 30}\n|{'b|' * 30}\n\n{'x' * 200}"]
    ]
    visitor = visit(viewport={"width": 390, "height": 844})
    visitor.ask("y" * 200)
    visitor.expect_idle()
    for place in ("document.documentElement", "document.querySelector('#chat .bubble-wrap')"):
        assert visitor.page.evaluate(f"{place}.scrollWidth <= {place}.clientWidth")
    box = visitor.page.locator("#send").bounding_box()
    assert box["x"] + box["width"] <= 390
    assert box["y"] + box["height"] <= 844


@pytest.mark.parametrize(("scheme", "darkest"), [("light", 200), ("dark", 0)])
def test_it_follows_the_systems_light_and_dark(visit, scheme, darkest):
    visitor = visit(color_scheme=scheme)
    color = visitor.page.evaluate("getComputedStyle(document.body).backgroundColor")
    brightness = int(color.split("(")[1].split(",")[0])
    assert darkest <= brightness <= darkest + 55
