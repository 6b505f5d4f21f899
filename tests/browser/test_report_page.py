"""The report in headless Chromium: it renders, sorts, zooms, prints, and runs no foreign script."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.browser.chromium import opened, until
from tests.models.reported import HOSTILE

ZOOM, PAN = "onnxqNetwork.zoom()", "onnxqNetwork.pan().x"


def texts(page: Any, selector: str) -> list[str]:
    return page.eval_on_selector_all(selector, "nodes => nodes.map(n => n.textContent.trim())")


def test_it_renders_and_loads_nothing(running: Any, full_page: Path) -> None:
    with opened(running, full_page) as page:
        assert page.locator("section").count() == 9
        assert page.locator("#coverage-chart svg rect").count() > 3
        assert page.locator("#error-chart svg circle").count() > 10
        assert page.locator(".histogram svg").count() > 6
        assert page.evaluate("onnxqNetwork.nodes().length") == 14
        assert page.evaluate("document.querySelector('#graph canvas').width") > 100


def test_a_float_model_alone_renders(running: Any, bare_page: Path) -> None:
    with opened(running, bare_page) as page:
        assert "onnxq quantize" in page.inner_text("#findings")
        assert page.locator(".histogram svg").count() == 6
        assert page.locator("[name=colour][value=sqnr]").is_disabled()


def test_hostile_names_are_text(running: Any, hostile_page: Path) -> None:
    with opened(running, hostile_page) as page:
        assert page.evaluate("window.hit") is None
        page.locator("#layer-table button.link", has_text="window.hit").click()
        assert page.locator("#details h3").text_content() == HOSTILE
        page.fill("#find", HOSTILE)
        page.press("#find", "Enter")
        page.hover("#error-chart svg circle >> nth=2", force=True)
        assert page.evaluate("window.hit") is None


def test_the_policy_stops_a_script_that_got_in(running: Any, full_page: Path) -> None:
    with opened(running, full_page, expected="Content Security Policy") as page:
        page.evaluate(
            "document.body.insertAdjacentHTML('beforeend', '<img src=data:, onerror=hit=1>')"
        )
        page.evaluate(
            "document.body.append(Object.assign(document.createElement('script'), "
            "{textContent: 'window.hit = 1'}))"
        )
        page.wait_for_timeout(100)
        assert page.evaluate("window.hit") is None


def test_tables_sort_and_filter(running: Any, full_page: Path) -> None:
    with opened(running, full_page) as page:
        names = "#layer-table tbody tr:not([hidden]) td.name"
        worst_first = texts(page, names)
        heading = page.locator("#layer-table th", has_text="signal to noise")
        assert heading.get_attribute("aria-sort") == "ascending"
        heading.locator("button").click()
        assert heading.get_attribute("aria-sort") == "descending"
        assert texts(page, names) == worst_first[::-1]
        page.locator("#layer-table th button", has_text="layer").click()
        assert texts(page, names) == sorted(worst_first)
        page.fill("[data-filters=layer-table]", "MaxPool")
        assert texts(page, names) == ["pool"]
        assert "1 of 1 rows" in page.inner_text("#layers")
        page.fill("[data-filters=layer-table]", "")
        assert len(texts(page, names)) == len(worst_first)


def test_the_network_zooms_and_moves(running: Any, full_page: Path) -> None:
    with opened(running, full_page, reduced_motion="reduce") as page:
        whole = page.evaluate(ZOOM)
        page.click("#zoom-in")
        assert page.evaluate(ZOOM) == pytest.approx(1.4 * whole)
        page.click("#zoom-fit")
        assert page.evaluate(ZOOM) == pytest.approx(whole)
        page.locator("#graph").scroll_into_view_if_needed()
        box = page.locator("#graph").bounding_box()
        page.mouse.move(box["x"] + 40, box["y"] + 200)
        page.mouse.wheel(0, -300)  # that scrolls the page
        until(
            page, f"document.querySelector('#graph').getBoundingClientRect().y > {box['y'] + 250}"
        )
        assert page.evaluate(ZOOM) == pytest.approx(whole)
        page.mouse.wheel(0, 300)
        until(page, f"document.querySelector('#graph').getBoundingClientRect().y < {box['y'] + 1}")
        page.wait_for_timeout(400)  # Cytoscape ignores the wheel while the page scrolls
        page.mouse.click(box["x"] + 40, box["y"] + 200)
        page.mouse.wheel(0, -300)
        until(page, f"{ZOOM} > {1.02 * whole}")
        before = page.evaluate(PAN)
        page.mouse.move(box["x"] + 40, box["y"] + 40)
        page.mouse.down()
        page.mouse.move(box["x"] + 140, box["y"] + 60, steps=4)
        page.mouse.up()
        until(page, f"{PAN} > {before + 50}")


def test_the_network_is_used_by_keyboard(running: Any, full_page: Path) -> None:
    with opened(running, full_page, reduced_motion="reduce") as page:
        page.focus("#graph")
        whole = page.evaluate(ZOOM)
        page.keyboard.press("+")
        assert page.evaluate(ZOOM) > whole
        page.keyboard.press("0")
        before = page.evaluate(PAN)
        page.keyboard.press("ArrowRight")
        assert page.evaluate(PAN) < before
        page.keyboard.press("n")
        assert page.inner_text("#details h3") == "stem"
        page.keyboard.press("n")
        page.keyboard.press("n")
        assert page.inner_text("#details h3") == "block.conv1"
        page.keyboard.press("p")
        assert page.inner_text("#details h3") == "stem.relu"


def test_colours_and_details(running: Any, full_page: Path) -> None:
    with opened(running, full_page) as page:
        fill = "onnxqNetwork.nodes().map(n => n.data('fill'))"
        by_precision = page.evaluate(fill)
        assert len(set(by_precision)) == 1
        page.locator("label", has_text="Error").first.click()
        assert len(set(page.evaluate(fill))) > 1
        assert "30 to 40" in page.inner_text("#legend")
        page.locator("#layer-table button.link", has_text="depthwise").click()
        details = page.inner_text("#details")
        assert "onnxq explain" in details
        assert '[["depthwise","float"]]' in details
        assert page.locator("#details svg").count() >= 1
        page.fill("#find", "classifier")
        page.press("#find", "Enter")
        assert page.inner_text("#details h3") == "classifier"


CLIPBOARD = """Object.defineProperty(navigator, "clipboard",
    {value: {writeText: async (text) => { window.copied = text; }}})"""


def test_commands_are_copied(running: Any, full_page: Path) -> None:
    with opened(running, full_page) as page:
        page.evaluate(CLIPBOARD)
        page.locator("#findings .copy").first.click()
        command = page.locator("#findings .cmd code").first.inner_text()
        until(page, f"window.copied === {json.dumps(command)}")
        row = page.locator("#layer-table tbody tr").first
        name = row.locator(".name").inner_text().replace("\n", "")
        row.locator(".act").click()
        until(
            page,
            f"window.copied === {json.dumps(json.dumps([[name, 'float']]))}.replace(', ', ',')",
        )


def test_histograms_are_filtered_and_ordered(running: Any, full_page: Path) -> None:
    with opened(running, full_page) as page:
        tensors = ".histogram .name"
        page.select_option("#tensor-order", "name")
        assert texts(page, tensors) == sorted(texts(page, tensors))
        page.fill("#tensor-filter", "relu")
        assert all("relu" in name for name in texts(page, tensors))
        page.fill("#tensor-filter", "")
        page.locator("label", has_text="Weights").click()
        assert "classifier.weight" in texts(page, tensors)
        page.fill("#tensor-filter", "nothing at all")
        assert "No tensor has such a name" in page.inner_text("#histograms")


BACK = "getComputedStyle(document.body).backgroundColor"


def contrast(page: Any, selector: str) -> float:
    """The ratio of luminances of text and what is behind it."""
    return page.evaluate(
        """selector => {
            const node = document.querySelector(selector);
            const lum = c => { const [r, g, b] = c.match(/[\\d.]+/g).map(v => v / 255)
                .map(v => v <= 0.03928 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
                return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
            let behind = node;
            const back = n => getComputedStyle(n).backgroundColor;
            while (back(behind) === "rgba(0, 0, 0, 0)") behind = behind.parentElement;
            const [a, b] = [getComputedStyle(node).color, back(behind)].map(lum);
            return (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        }""",
        selector,
    )


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_light_and_dark(running: Any, full_page: Path, scheme: str) -> None:
    with opened(running, full_page, color_scheme=scheme) as page:
        shade = sum(map(int, page.evaluate(f"{BACK}.match(/\\d+/g)")))
        assert (shade > 600) is (scheme == "light")
        for selector in ("h1", ".about", ".chip", ".verdict", ".cmd code", "th", ".badge", ".lead"):
            assert contrast(page, selector) > 4.5, selector
        for chosen in ("Light", "Dark", "Auto"):
            page.click("#theme")
            assert page.inner_text("#theme") == chosen
            if chosen != "Auto":
                assert page.evaluate("document.documentElement.dataset.theme") == chosen.lower()


def test_a_narrow_screen_does_not_scroll_sideways(running: Any, full_page: Path) -> None:
    with opened(running, full_page, viewport={"width": 375, "height": 800}) as page:
        assert page.evaluate("document.documentElement.scrollWidth") == 375
        assert page.locator("#graph").bounding_box()["width"] < 375
        page.locator("nav a", has_text="Model").click()
        until(page, "document.querySelector('#model').getBoundingClientRect().top < 800")


def test_printing(running: Any, full_page: Path, tmp_path: Path) -> None:
    with opened(running, full_page, color_scheme="dark") as page:
        printed = page.pdf(format="A4", print_background=True)
        assert printed.startswith(b"%PDF")
        assert 2 <= printed.count(b"/Type /Page\n") <= 12
        page.emulate_media(media="print")
        assert page.evaluate(BACK) == "rgb(255, 255, 255)"
        assert not page.locator("nav").is_visible()
        assert not page.locator("#theme").is_visible()
        assert page.locator("#layer-table").is_visible()


def test_everything_has_a_name_and_can_be_reached(running: Any, full_page: Path) -> None:
    with opened(running, full_page) as page:
        nameless = page.evaluate(
            """[...document.querySelectorAll("button, input, select, a, [tabindex]")]
                .filter(n => !n.textContent.trim() && !n.getAttribute("aria-label"))
                .filter(n => !(n.labels && n.labels.length)).map(n => n.outerHTML)"""
        )
        assert nameless == []
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.className") == "skip"
        page.focus("#layer-table th:nth-child(3) button")
        page.keyboard.press("Enter")
        assert (
            page.locator("#layer-table th:nth-child(3)").get_attribute("aria-sort") == "ascending"
        )
        identifiers = page.evaluate("[...document.querySelectorAll('[id]')].map(n => n.id)")
        assert len(identifiers) == len(set(identifiers))
