"""An agent's Markdown as formatted text: what is written stays, what is marked is formatted."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given, settings

from tests.unit.text.checks import assert_valid, markdown_sources, marks
from untether.text.markdown import markdown_to_rich
from untether.text.rich import Entity, RichText


def render(source: str) -> RichText:
    rich = markdown_to_rich(source)
    assert_valid(rich)
    return rich


# ---------------------------------------------------------------------------------------------------- blocks


def test_nested_lists_keep_bullets_and_the_indentation_of_their_paragraphs() -> None:
    source = "- a\n  - b\n\n    more of b\n    - c\n- d\n  e"
    assert render(source).text == "• a\n  ◦ b\n\n    more of b\n    ▪ c\n• d\n  e"


def test_a_numbered_list_goes_on_after_fenced_code_which_is_not_indented() -> None:
    rich = render("3. Run:\n   ```bash\n   ls\n     -l\n   ```\n4. Look\n\nText")
    assert rich.text == "3. Run:\nls\n  -l\n4. Look\n\nText"
    assert rich.entities == (Entity("pre", 8, 15, "bash"),)


def test_numbers_count_on_as_markdown_counts_them() -> None:
    assert render("1) a\n1) b\n1) c").text == "1) a\n2) b\n3) c"


def test_an_item_without_text_and_items_of_blocks_keep_their_marker() -> None:
    assert render("-\n- a\n- > q\n- ```\n  c\n  ```").text == "•\n• a\n•\nq\n•\nc"


def test_a_table_is_aligned_with_wide_characters_and_pipes_in_code() -> None:
    rich = render("| Name | 数量 | `a\\|b` |\n|:--|--:|:-:|\n| 苹果 | 3 | `x\\|y` |\n| **fig** | 12345 | c |")
    assert rich.text == "Name │  数量 │ a|b\n─────┼───────┼────\n苹果 │     3 │ x|y\nfig  │ 12345 │  c"
    assert [e.kind for e in rich.entities] == ["pre"]


def test_a_table_whose_heading_would_start_with_blanks_gets_a_border() -> None:
    assert render("| | n |\n|--|--|\n| a | 1 |").text == "│   │ n\n├───┼──\n│ a │ 1"


def test_cells_cut_off_by_a_pipe_in_code_are_kept() -> None:
    assert render("| cmd | what |\n|--|--|\n| `a | b` | list |\n| 1 | 2 | 3 |").text == (
        "cmd   │ what\n──────┼──────\na | b │ list\n1     │ 2 | 3"
    )


def test_a_table_too_wide_for_a_screen_becomes_records() -> None:
    rich = render(f"| File | Why |\n|--|--|\n| x | {'long ' * 30} |\n| y | **short** |\n| z | |")
    assert rich.text == f"File: x\nWhy: {('long ' * 30).strip()}\n\nFile: y\nWhy: short\n\nFile: z"
    assert marks(rich, "bold") == ["File", "Why", "File", "Why", "short", "File"]


def test_fenced_code_keeps_its_language_and_its_characters() -> None:
    rich = render('```python title=x\nif a < b & c:\n    print("*x*")\n```')
    assert rich == RichText('if a < b & c:\n    print("*x*")', (Entity("pre", 0, 30, "python"),))


@pytest.mark.parametrize("source", ["```rust\nfn a() {", "```rust\nfn a() {\n"])
def test_a_fence_that_is_not_closed_yet_is_code(source: str) -> None:
    assert render(source) == RichText("fn a() {", (Entity("pre", 0, 8, "rust"),))


def test_a_fence_within_a_longer_fence_is_its_text() -> None:
    assert render("````md\n```py\nx\n```\n````") == RichText("```py\nx\n```", (Entity("pre", 0, 11, "md"),))


def test_nested_quotes_are_one_quote_with_a_bar_for_the_inner_one() -> None:
    rich = render("> a\n> > b\n> > - c\n> >   ```\n> >   x\n> >   ```\n> - d\n>   e")
    assert rich.text == "a\n│ b\n│ • c\nx\n• d\n  e"
    assert marks(rich, "quote") == [rich.text]
    assert marks(rich, "pre") == ["x"]


def test_a_long_quote_is_expandable_and_keeps_its_lines() -> None:
    lines = [f"line {n}" for n in range(30)]
    rich = render("\n".join(f"> {line}" for line in lines))
    assert rich.text == "\n".join(lines)
    assert [e.kind for e in rich.entities] == ["expandable_quote"]


def test_task_boxes() -> None:
    source = "- [ ] open\n- [x] done\n  - [X] inner\n- plain\n\n1. [ ] numbered\n\n[ ] no item"
    assert render(source).text == "☐ open\n☑ done\n  ☑ inner\n• plain\n\n1. ☐ numbered\n\n[ ] no item"


def test_headings_are_bold_and_rules_are_lines() -> None:
    rich = render("# Build `make` it\ntext\n\nSetext\n---\n\n***\n### end")
    assert rich.text == "Build make it\ntext\n\nSetext\n\n──────────\nend"
    assert marks(rich, "bold") == ["Build ", " it", "Setext", "end"]
    assert marks(rich, "code") == ["make"]


def test_the_spacing_of_the_source_is_kept() -> None:
    assert render("intro:\n- a\n- b\n\nnext\n```\nc\n```\nend").text == "intro:\n• a\n• b\n\nnext\nc\nend"


@pytest.mark.parametrize("depth", [12, 60, 400])
def test_text_nested_too_deep_is_kept(depth: int) -> None:
    rich = render("> " * depth + "deep\n\n" + "".join("  " * n + f"- item{n}\n" for n in range(depth)))
    assert "deep" in rich.text
    assert all(f"item{n}" in rich.text for n in range(depth))


# ---------------------------------------------------------------------------------------------------- inline


def test_styles_nest() -> None:
    rich = render("~~gone~~ ***both*** **bold _it_ b**")
    assert rich.text == "gone both bold it b"
    assert marks(rich, "strike") == ["gone"]
    assert marks(rich, "bold") == ["both", "bold it b"]
    assert marks(rich, "italic") == ["both", "it"]


@pytest.mark.parametrize(
    "text",
    [
        "Vec<String> and <div>a</div> and Map<std::string, T>, a<br>b",
        "snake_case_name 2*3*4 and a*b*c, (x)*y and 3*(y), 2**10 + 3**2",
        "src/**/*.py and tests/**/*.ts",
        "/* a */ and /* b */",
        "price $5 and $6, math $a_b$",
        "if (a||b) or (c||d), a || b and c || d",
        "__name__ and __init__ here",
        "[warn]: deprecated",
        "[PR]: https://host.example/1",
        "[^1]: a footnote",
        "see [^1] and [^note]",
        "[text](javascript:alert(1))",
    ],
)
def test_text_that_only_looks_like_markup_stays(text: str) -> None:
    assert render(text) == RichText(text)


def test_emphasis_where_it_is_meant() -> None:
    rich = render("**Note**s, **src/a/**, **粗体**文字, *a*, un**believ**able")
    assert rich.text == "Notes, src/a/, 粗体文字, a, unbelievable"
    assert marks(rich, "bold") == ["Note", "src/a/", "粗体", "believ"]


def test_file_names_that_a_chat_would_link_become_code() -> None:
    source = (
        "main.py, README.md. **src/a.rs:42** __init__.py, run.sh: site.io https://x.yz/main.py x.yz/a.py me@b.py x.ts"
    )
    rich = render(source)
    assert rich.text == source.replace("*", "")
    assert marks(rich, "code") == ["main.py", "README.md", "src/a.rs:42", "__init__.py", "run.sh"]
    assert marks(rich, "link", "bold") == []


def test_link_targets_with_parentheses_spaces_and_title() -> None:
    rich = render('[a](http://x.yz/q_(w)) [b](<http://x.yz/a b> "T") <http://x.yz> [**c** `d`][r]\n\n[r]: http://r.yz')
    assert rich.text == "a b http://x.yz c d"
    links = [(rich.text[e.start : e.end], e.value) for e in rich.entities if e.kind == "link"]
    assert links == [
        ("a", "http://x.yz/q_(w)"),
        ("b", "http://x.yz/a%20b"),
        ("http://x.yz", "http://x.yz"),
        ("c d", "http://r.yz"),
    ]
    assert marks(rich, "code") == []


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("[the cart](src/cart.ts#L4)", "the cart (src/cart.ts#L4)"),
        ("[cart.ts](cart.ts)", "cart.ts"),
        ("[app](http://localhost:3000)", "app (http://localhost:3000)"),
        ("<http://localhost:3000>", "http://localhost:3000"),
        ("[mail](mailto:a@b.yz) <a@b.yz>", "mail (a@b.yz) a@b.yz"),
        ("[up](#top) [nothing]()", "up nothing"),
        ("[](src/a.c)", "src/a.c"),
        ("![pic](a.png) ![](data:image/png;base64,AAAA)", "pic (a.png) image"),
        ("[x](http://[::1]:3000/)", "x (http://[::1]:3000/)"),
    ],
)
def test_a_link_that_leads_nowhere_in_a_chat_shows_its_address(source: str, text: str) -> None:
    rich = render(source)
    assert rich.text == text
    assert marks(rich, "link") == []


def test_an_image_is_one_link_and_a_badge_too() -> None:
    rich = render("![alt](http://i.yz/a.png) [![badge](http://i.yz/b.svg)](http://ci.yz)")
    assert rich == RichText(
        "alt badge", (Entity("link", 0, 3, "http://i.yz/a.png"), Entity("link", 4, 9, "http://ci.yz"))
    )


def test_spoilers() -> None:
    rich = render("the ||secret word|| and `||code||`")
    assert rich.text == "the secret word and ||code||"
    assert marks(rich, "spoiler") == ["secret word"]


def test_line_breaks_entities_and_escapes() -> None:
    assert render("a  \nb\\\nc\nd &amp; &lt;x&gt; &copy; \\*e\\*").text == "a\nb\nc\nd & <x> © *e*"


def test_emoji_families_flags_and_skin_tones_stay_whole() -> None:
    text = "👨‍👩‍👧 🇩🇪 👍🏽 **👩‍💻**"
    rich = render(text)
    assert rich.text == text.replace("*", "")
    assert marks(rich, "bold") == ["👩‍💻"]


def test_line_ends_tabs_and_unsafe_characters() -> None:
    rich = render("a\r\nb\rc \0 \u202eevil\u202c \x1b[1m \ud800\r\n\r\n```make\r\nall:\r\n\tcc\r\n```")
    assert rich.text == "a\nb\nc � �evil� �[1m �\n\nall:\n    cc"
    assert marks(rich, "pre") == ["all:\n    cc"]


def test_nothing_gives_nothing() -> None:
    assert [render(source).text for source in ("", " \n\t\n", "```\n```", ">")] == [""] * 4


@given(markdown_sources)
@settings(max_examples=300)
def test_any_markdown_gives_a_valid_text_and_keeps_every_letter(source: str) -> None:
    rich = render(source)
    # What follows a fence is its language, and shown as such only with code.
    written = Counter("".join(line for line in source.splitlines() if "```" not in line and "~~~" not in line))
    shown = Counter(rich.text + "".join(e.value for e in rich.entities))
    for letter in "ab漢字":
        assert written[letter] <= shown[letter]
