"""Message content: stored as JSON, shown in a chat, in the console and as plain text."""

from __future__ import annotations

from html.parser import HTMLParser

import msgspec
import pytest
from hypothesis import given

from tests.unit.text.checks import assert_valid, markdown_sources, marks
from untether.text.blocks import (
    Block,
    Code,
    Copyable,
    Line,
    Markdown,
    Quote,
    decode_blocks,
    encode_blocks,
    to_html,
    to_plain,
    to_rich,
)

PERMISSION: tuple[Block, ...] = (
    Line("⏸ Run a command?", style="bold"),
    Code("git push --force origin fix-cart", language="bash"),
    Quote("Push the *rewritten* branch", expandable=True),
    Line("shop @fix-cart · main.py", style="quiet"),
)
ANSWER: tuple[Block, ...] = (
    Markdown("It **works**, see [the log](http://x.yz/log)."),
    Line("✓ 3m 41s"),
    Copyable("Resume:", "claude --resume 1*2*3"),
)


def test_blocks_are_json_and_back() -> None:
    data = encode_blocks(PERMISSION + ANSWER)
    assert decode_blocks(data) == PERMISSION + ANSWER
    assert msgspec.json.decode(data)[0] == {"block": "line", "text": "⏸ Run a command?", "style": "bold"}


def test_text_that_json_cannot_hold_is_stored_all_the_same() -> None:
    assert decode_blocks(encode_blocks([Line("a\ud800b", style="bold"), Code("x")])) == (
        Line("a�b", style="bold"),
        Code("x"),
    )


def test_an_unknown_block_is_refused() -> None:
    with pytest.raises(msgspec.DecodeError):
        decode_blocks(b'[{"block": "banner", "text": "x"}]')


def test_a_permission_in_a_chat() -> None:
    rich = to_rich(PERMISSION)
    assert_valid(rich)
    assert rich.text == (
        "⏸ Run a command?\ngit push --force origin fix-cart\nPush the *rewritten* branch\nshop @fix-cart · main.py"
    )
    assert marks(rich, "bold") == ["⏸ Run a command?"]
    assert [e.value for e in rich.entities if e.kind == "pre"] == ["bash"]
    assert marks(rich, "expandable_quote") == ["Push the *rewritten* branch"]
    assert marks(rich, "italic") == ["shop @fix-cart · "]
    assert marks(rich, "code") == ["main.py"], "a chat would link it"


def test_an_answer_in_a_chat_has_a_blank_line_around_markdown() -> None:
    rich = to_rich((Line("before"), *ANSWER))
    assert rich.text == "before\n\nIt works, see the log.\n\n✓ 3m 41s\nResume: claude --resume 1*2*3"
    assert marks(rich, "code") == ["claude --resume 1*2*3"]


def test_blocks_without_text_leave_no_gap_but_an_empty_line_does() -> None:
    blocks: list[Block] = [Line("a"), Markdown(""), Code("\n"), Quote(""), Line(""), Line("b")]
    assert to_rich(blocks).text == "a\n\nb"


def test_code_is_shown_with_spaces_for_tabs_and_its_unsafe_characters_visible() -> None:
    assert to_rich([Code("\n\tif x:\r\n\t\ty \u202e\n")]).text == "    if x:\n        y �"


def test_plain_text_has_the_addresses_of_links() -> None:
    assert to_plain(ANSWER) == ("It works, see the log (http://x.yz/log).\n\n✓ 3m 41s\nResume: claude --resume 1*2*3")


# ------------------------------------------------------------------------------------------------------ HTML


def test_literal_blocks_are_escaped() -> None:
    html = to_html(
        [Line("<b>&\nx"), Line("s", style="quiet"), Code("<i>", language='"x'), Quote("<q>"), Copyable("l<", "t&")]
    )
    assert html.split("\n") == [
        '<p class="line">&lt;b&gt;&amp;<br>',
        "x</p>",
        '<p class="line quiet">s</p>',
        '<pre><code class="language-&quot;x">&lt;i&gt;</code></pre>',
        "<blockquote>&lt;q&gt;</blockquote>",
        '<p class="line">l&lt; <code class="copy">t&amp;</code></p>',
    ]


def test_an_expandable_quote_is_folded() -> None:
    assert to_html([Quote("first\nsecond", expandable=True)]) == (
        "<details><summary>first second</summary><blockquote>first<br>\nsecond</blockquote></details>"
    )


def test_markdown_is_rendered_with_safe_links() -> None:
    link = 'rel="noopener noreferrer" target="_blank"'
    html = to_html([Markdown("# H\n[a](http://x.yz) [b](src/b.py) ![c](http://x.yz/c.png)\nhttp://localhost:1/(d).")])
    assert html == (
        '<div class="markdown"><h1>H</h1>\n'
        f'<p><a href="http://x.yz" {link}>a</a> b (<code>src/b.py</code>) '
        f'<a href="http://x.yz/c.png" {link}>c</a><br>\n'
        f'<a href="http://localhost:1/(d)" {link}>http://localhost:1/(d)</a>.</p>\n</div>'
    )


def test_markdown_tables_have_no_inline_style_and_tasks_have_boxes() -> None:
    html = to_html([Markdown("|a|\n|-:|\n|1|\n\n- [x] done")])
    assert '<td align="right">1</td>' in html
    assert '<li class="task">☑ done</li>' in html


class _Tags(HTMLParser):
    def __init__(self, html: str) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


ATTACKS = [
    "<script>alert(1)</script>",
    "<img src=x onerror=alert(1)>",
    "[a](javascript:alert(1)) [b](JaVaScRiPt:alert(1)) [c](data:text/html,x) [d](vbscript:x) [e](//evil.yz)",
    "[a](<java\tscript:alert(1)>) [b](&#106;avascript:alert(1)) <javascript:alert(1)>",
    '[a](http://x.yz "t\\" onclick=alert(1)")',
    "![a](http://x.yz/track.png) ![b](data:image/png;base64,AA) [![c](http://x.yz/c.png)](javascript:x)",
    '```"onload=x\n</code></pre><script>\n```',
    "http://x.yz/\"onclick=alert(1)// and http://x.yz/'onclick=x",
    "| <b> |\n|---|\n| <style>*{}</style> |",
]
SAFE_TAGS = {
    *(
        "div",
        "p",
        "br",
        "h1",
        "h2",
        "h3",
        "h4",
        "h5",
        "h6",
        "em",
        "strong",
        "s",
        "a",
        "code",
        "pre",
        "blockquote",
        "hr",
    ),
    *("ul", "ol", "li", "table", "thead", "tbody", "tr", "th", "td"),
}
SAFE_ATTRIBUTES = {"class", "href", "rel", "target", "title", "align", "start"}


def assert_safe(source: str) -> None:
    for tag, attributes in _Tags(to_html([Markdown(source)])).found:
        assert tag in SAFE_TAGS
        assert set(attributes) <= SAFE_ATTRIBUTES
        if tag == "a":
            assert str(attributes["href"]).lower().startswith(("http://", "https://", "mailto:"))
            assert attributes["rel"] == "noopener noreferrer"


@pytest.mark.parametrize("source", ATTACKS)
def test_nothing_of_an_agent_gets_live_in_the_console(source: str) -> None:
    assert_safe(source)


@given(markdown_sources)
def test_any_markdown_gives_safe_html(source: str) -> None:
    assert_safe(source)
