"""Looking at a page as somebody who cannot see it, or has no mouse, would meet it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

CHECKS = Path(__file__).with_name("page_checks.js").read_text()
# Tab goes on from where the focus was, so it is put before everything.
FROM_THE_TOP = """() => {
  const start = Object.assign(document.createElement("span"), { tabIndex: -1 });
  document.body.prepend(start);
  start.focus();
  start.remove();
  window.__seen = new Map();
  window.__last = null;
}"""
# Roles by which a control says what it is. Generic ones say nothing.
SPEAKING = {
    "button", "link", "textbox", "searchbox", "checkbox", "radio", "combobox", "listbox", "option", "menuitem", "tab",
    "tabpanel", "slider", "spinbutton", "switch", "menuitemradio", "menuitemcheckbox", "DisclosureTriangle", "treeitem",
    "row", "cell", "gridcell", "log", "main", "region", "figure", "img", "image", "group", "list", "article", "dialog",
    "progressbar", "status", "navigation", "complementary", "table", "textarea", "heading", "RootWebArea", "form",
    "Date",
    "ComboBoxSelect", "popUpButton", "code", "Pre", "graphics-document", "listitem", "document", "application", "menu",
    "time", "feed", "alert", "alertdialog", "note", "search", "meter", "separator", "toolbar", "tree", "Iframe",
}  # fmt: skip


def check(page: Any, name: str) -> list[str]:
    """One of the checks in page_checks.js: sentences about what is wrong."""
    found: list[str] = page.evaluate(f"{CHECKS}.{name}()")
    return found


def nameless(page: Any) -> list[str]:
    """Controls that the browser's own accessibility tree has no name or no telling role for."""
    session = page.context.new_cdp_session(page)
    try:
        nodes = session.send("Accessibility.getFullAXTree")["nodes"]
    finally:
        session.detach()
    return [told for node in nodes if not node.get("ignored") and (told := _trouble(node))]


def _trouble(node: dict[str, Any]) -> str:
    facts = {each["name"]: each["value"].get("value") for each in node.get("properties", ())}
    if not facts.get("focusable"):
        return ""
    role = node.get("role", {}).get("value", "")
    name = str(node.get("name", {}).get("value", "")).strip()
    if role == "RootWebArea":
        return "" if name else "the page has no title"
    if not name and role != "main":
        return f"a {role} has no name ({node.get('description', {}).get('value', '')})"
    return "" if role in SPEAKING else f"{name!r} has the role {role}"


def tabbed(page: Any, most: int = 120) -> list[dict[str, Any]]:
    """What the Tab key meets from the top of the page on, until it comes round or leaves the page."""
    page.evaluate(FROM_THE_TOP)
    met: list[dict[str, Any]] = []
    for _ in range(most):
        page.keyboard.press("Tab")
        found = page.evaluate(f"{CHECKS}.focused()")
        if found is None or any(each["number"] == found["number"] for each in met):
            break
        met.append(found)
    return met
