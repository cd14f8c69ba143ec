#!/usr/bin/env python3
"""Print the text of a PDF, page by page. Needs nothing but Python 3.9.

Objects are found by looking for them and not by the table at the end, so damaged files are read as far as they go.
Text is decoded by each font's own map to Unicode where it has one. What is only drawn or scanned has no text.
"""

import argparse
import base64
import re
import sys
import zlib

MAX_FILE = 200_000_000
MAX_STREAM = 50_000_000
MAX_PAGES = 10_000
SPACE = -200  # thousandths of an em that count as a gap between words

OBJECT = re.compile(rb"(?<!\d)(\d{1,10})\s+(\d{1,5})\s+obj\b")
TOKEN = re.compile(
    rb"\s+|%[^\r\n]*|(?P<dict><<|>>)|(?P<hex><[0-9A-Fa-f\s]*>)|(?P<paren>\()|(?P<array>[\[\]])"
    rb"|(?P<name>/[^\s<>\[\]()/%{}]*)|(?P<ref>\d+\s+\d+\s+R\b)|(?P<number>[+-]?(?:\d+\.?\d*|\.\d+))"
    rb"|(?P<word>[^\s<>\[\]()/%{}]+)|(?P<other>.)",
    re.DOTALL,
)
ESCAPES = {b"n": b"\n", b"r": b"\r", b"t": b"\t", b"b": b"\b", b"f": b"\f", b"\n": b"", b"\r": b""}


class Name(str):
    """/Something"""


class Ref(int):
    """The number of an object that stands elsewhere."""


class Word(str):
    """An operator, or true, false, null."""


class Unreadable(Exception):
    """Said to the person in one line."""


def tokens(data, at=0):
    """Values and operators, each with the place behind it."""
    stack, size = [], len(data)
    while at < size:
        found = TOKEN.match(data, at)
        kind, text, at = found.lastgroup, found.group(), found.end()
        if kind is None or kind == "other":
            continue
        if kind == "paren":
            value, at = string(data, at)
        elif text in (b"<<", b"["):
            if len(stack) > 100:
                return
            stack.append((text, []))
            continue
        elif text in (b">>", b"]"):
            if not stack:
                continue
            opened, value = stack.pop()
            if opened == b"<<":
                value = {str(key): each for key, each in zip(value[::2], value[1::2]) if isinstance(key, Name)}
        else:
            value = plain(kind, text)
        if stack:
            stack[-1][1].append(value)
        else:
            yield value, at


def plain(kind, text):
    if kind == "name":
        return Name(re.sub(rb"#([0-9A-Fa-f]{2})", lambda m: bytes([int(m[1], 16)]), text[1:]).decode("latin-1"))
    if kind == "ref":
        return Ref(text.split()[0])
    if kind == "number":
        return float(text) if b"." in text else int(text)
    if kind == "hex":
        return unhexed(text)
    return Word(text.decode("latin-1"))


def unhexed(text):
    digits = re.sub(rb"[^0-9A-Fa-f]", b"", text)
    return bytes.fromhex((digits + b"0" * (len(digits) % 2)).decode())


def string(data, at):
    """From behind an opening parenthesis to its end."""
    out, depth = bytearray(), 1
    while at < len(data):
        char = data[at : at + 1]
        at += 1
        if char == b"\\":
            following = data[at : at + 1]
            if code := re.compile(rb"[0-7]{1,3}").match(data, at):
                out.append(int(code.group(), 8) & 255)
                at = code.end()
            else:
                out += ESCAPES.get(following, following)
                at += 2 if data[at : at + 2] == b"\r\n" else 1
            continue
        depth += (char == b"(") - (char == b")")
        if depth == 0:
            break
        out += char
    return bytes(out), at


class Pdf:
    def __init__(self, data):
        if b"%PDF-" not in data[:1024]:
            raise Unreadable("this is no PDF file")
        if re.search(rb"/Encrypt\s+\d+\s+\d+\s+R", data):
            raise Unreadable("this PDF is encrypted: its text cannot be read without its password")
        self.data = data
        self.places = {int(found[1]): found.end() for found in OBJECT.finditer(data)}
        self.inner = {}
        self.kept = {}
        for number in list(self.places):
            value = self.get(Ref(number))
            if isinstance(value, dict) and value.get("Type") == "ObjStm":
                self.unpack(number, value)

    def unpack(self, number, header):
        """Objects that are kept, compressed, inside another one."""
        data, first = self.stream(number), self.get(header.get("First")) or 0
        numbers = [value for value, _ in tokens(data[:first]) if isinstance(value, int)]
        for inner, offset in zip(numbers[::2], numbers[1::2]):
            if inner not in self.places:
                self.inner[inner] = (data, first + offset)

    def get(self, value, depth=0):
        """The value itself, wherever it stands."""
        if not isinstance(value, Ref) or depth > 20:
            return value
        number = int(value)
        if number not in self.kept:
            data, at = (self.data, self.places[number]) if number in self.places else self.inner.get(number, (b"", 0))
            self.kept[number] = next((found for found, _ in tokens(data, at)), None)
        return self.get(self.kept[number], depth + 1)

    def stream(self, number):
        """The content of a stream, its filters undone as far as we know them."""
        if number not in self.places:
            return b""
        header, at = next(tokens(self.data, self.places[number]), ({}, 0))
        found = re.compile(rb"\s*stream\r?\n").match(self.data, at)
        if not isinstance(header, dict) or not found:
            return b""
        length = self.get(header.get("Length"))
        end = found.end() + length if isinstance(length, int) else -1
        if end < 0 or b"endstream" not in self.data[end : end + 20]:
            end = self.data.find(b"endstream", found.end())
        data = self.data[found.end() : end if end >= 0 else None]
        filters = self.get(header.get("Filter")) or []
        for each in filters if isinstance(filters, list) else [filters]:
            data = undone(str(self.get(each)), data)
        return data

    def pages(self):
        """Page objects in order: by the tree, or by number where the tree is broken."""
        found, seen = [], set()
        roots = [value for value in map(self.get, map(Ref, self.numbers())) if isinstance(value, dict)]
        for catalog in (each for each in roots if each.get("Type") == "Catalog"):
            self.climb(self.get(catalog.get("Pages")), {}, found, seen)
        return found or [each for each in roots if each.get("Type") == "Page"]

    def numbers(self):
        return sorted({*self.places, *self.inner})

    def climb(self, node, above, found, seen):
        if not isinstance(node, dict) or id(node) in seen or len(found) > MAX_PAGES:
            return
        seen.add(id(node))
        here = {**above, **({"Resources": node["Resources"]} if "Resources" in node else {})}
        kids = self.get(node.get("Kids"))
        if isinstance(kids, list):
            for kid in kids:
                self.climb(self.get(kid), here, found, seen)
        else:
            found.append({**here, **node})

    def fonts(self, page):
        resources = self.get(page.get("Resources")) or {}
        named = self.get(resources.get("Font")) if isinstance(resources, dict) else {}
        return {name: self.font(self.get(value)) for name, value in (named or {}).items()}

    def font(self, font):
        """How its codes become letters: width of a code in bytes, and a map."""
        if not isinstance(font, dict):
            return 1, {}
        wide = font.get("Subtype") == "Type0"
        if isinstance(font.get("ToUnicode"), Ref):
            width, mapped = unicode_map(self.stream(int(font["ToUnicode"])))
            return (2 if wide else width), mapped
        return (2 if wide else 1), self.differences(font)

    def differences(self, font):
        encoding = self.get(font.get("Encoding"))
        listed = self.get(encoding.get("Differences")) if isinstance(encoding, dict) else None
        mapped, code = {}, 0
        for each in listed or []:
            if isinstance(each, int):
                code = each
            elif isinstance(each, Name):
                if letter := glyph(str(each)):
                    mapped[code] = letter
                code += 1
        return mapped

    def text(self, page):
        contents = page.get("Contents")
        found = self.get(contents)
        parts = found if isinstance(found, list) else [contents]
        data = b"\n".join(self.stream(int(each)) for each in parts if isinstance(each, Ref))
        return shown(data, self.fonts(page))


def undone(name, data):
    if name in ("FlateDecode", "Fl"):
        try:
            return zlib.decompressobj().decompress(data, MAX_STREAM)
        except zlib.error:
            return b""
    if name in ("ASCIIHexDecode", "AHx"):
        return unhexed(data.partition(b">")[0])
    if name in ("ASCII85Decode", "A85"):
        try:
            return base64.a85decode(data.partition(b"~>")[0], adobe=False)
        except ValueError:
            return b""
    return b"" if name in ("DCTDecode", "JPXDecode", "CCITTFaxDecode", "JBIG2Decode", "LZWDecode") else data


GLYPHS = {
    "space": " ", "hyphen": "-", "endash": "–", "emdash": "—", "quoteright": "’", "quoteleft": "‘", "bullet": "•",
    "quotedblleft": "“", "quotedblright": "”", "fi": "fi", "fl": "fl", "ff": "ff", "ffi": "ffi", "ffl": "ffl",
    "period": ".", "comma": ",", "colon": ":", "semicolon": ";", "parenleft": "(", "parenright": ")", "slash": "/",
    "germandbls": "ß", "adieresis": "ä", "odieresis": "ö", "udieresis": "ü", "eacute": "é", "egrave": "è",
    "zero": "0", "one": "1", "two": "2", "three": "3", "four": "4", "five": "5", "six": "6", "seven": "7",
    "eight": "8", "nine": "9", "exclam": "!", "question": "?", "quotesingle": "'", "underscore": "_", "equal": "=",
}  # fmt: skip


def glyph(name):
    if code := re.fullmatch(r"uni([0-9A-F]{4})|u([0-9A-F]{4,6})", name):
        return letter(int(code[1] or code[2], 16))
    return GLYPHS.get(name, name if len(name) == 1 else "")


def letter(number):
    return chr(number) if number < 0x110000 and not 0xD800 <= number < 0xE000 else ""


def unicode_map(data):
    """bfchar and bfrange of a CMap."""
    mapped, width = {}, 1
    text = data.decode("latin-1")
    if code := re.search(r"begincodespacerange\s*<([0-9A-Fa-f]+)>", text):
        width = max(1, len(code[1]) // 2)
    for block in re.findall(r"beginbfchar(.*?)(?:endbfchar|\Z)", text, re.DOTALL):
        for source, target in re.findall(r"<([0-9A-Fa-f]+)>\s*<([0-9A-Fa-f]*)>", block):
            mapped[int(source, 16)] = letters(target)
    for block in re.findall(r"beginbfrange(.*?)(?:endbfrange|\Z)", text, re.DOTALL):
        for low, high, target, many in re.findall(
            r"<([0-9A-Fa-f]+)>\s*<([0-9A-Fa-f]+)>\s*(?:<([0-9A-Fa-f]*)>|\[([^\[\]]*)\])", block
        ):
            first, last = int(low, 16), min(int(high, 16), int(low, 16) + 65_535)
            each = [letters(one) for one in re.findall(r"<([0-9A-Fa-f]*)>", many)]
            for number in range(first, last + 1):
                if each:
                    mapped[number] = each[number - first] if number - first < len(each) else ""
                elif target:
                    mapped[number] = following(letters(target), number - first)
    return width, mapped


def letters(digits):
    return bytes.fromhex(digits + "0" * (-len(digits) % 4)).decode("utf-16-be", "replace")


def following(text, by):
    return text[:-1] + (letter(ord(text[-1]) + by) or text[-1]) if text else text


def shown(data, fonts):
    """Run the text operators of a page."""
    out, operands, font, height = [], [], (1, {}), None

    def line():
        if out and not out[-1].endswith("\n"):
            out.append("\n")

    for value, _ in tokens(data):
        if not isinstance(value, Word):
            operands.append(value)
            del operands[:-16]
            continue
        numbers = [each for each in operands if isinstance(each, (int, float))]
        if value == "Tf" and operands:
            named = next((each for each in operands if isinstance(each, Name)), "")
            font = fonts.get(str(named), (1, {}))
        elif value in ("Td", "TD") and len(numbers) > 1:
            line() if abs(numbers[-1]) > 0.5 else gap(out, numbers[-2])
        elif value == "Tm" and len(numbers) > 5:
            line() if height is None or abs(numbers[-1] - height) > 0.5 else gap(out, 1)
            height = numbers[-1]
        elif value in ("T*", "'", '"'):
            line()
        if value in ("Tj", "'", '"') and operands and isinstance(operands[-1], bytes):
            out.append(decoded(operands[-1], font))
        elif value == "TJ" and operands and isinstance(operands[-1], list):
            for each in operands[-1]:
                if isinstance(each, bytes):
                    out.append(decoded(each, font))
                elif isinstance(each, (int, float)) and each < SPACE:
                    gap(out, 1)
        operands.clear()
    lines = (re.sub(r"[^\S\n]+", " ", each).strip() for each in "".join(out).splitlines())
    return "\n".join(each for each in lines if each)


def gap(out, by):
    if by > 0 and out and not out[-1].endswith((" ", "\n")):
        out.append(" ")


def decoded(data, font):
    width, mapped = font
    if width == 1:
        return "".join(mapped.get(code) or bytes([code]).decode("cp1252", "replace") for code in data)
    codes = (int.from_bytes(data[at : at + width], "big") for at in range(0, len(data), width))
    return "".join(mapped.get(code, "\N{REPLACEMENT CHARACTER}") for code in codes)


def wanted(text, total):
    pages = []
    for part in text.split(","):
        first, dash, last = part.partition("-")
        try:
            low = int(first or 1)
            high = int(last or total) if dash else low
        except ValueError:
            raise Unreadable(f"not pages: {part!r}; write 1-5,8") from None
        pages += range(max(low, 1), min(high, total) + 1)
    return pages


def title(pdf):
    for number in pdf.numbers():
        value = pdf.get(Ref(number))
        found = pdf.get(value.get("Title")) if isinstance(value, dict) and "Producer" in value else None
        if isinstance(found, bytes):
            wide = found[:2] == b"\xfe\xff"
            return found[2:].decode("utf-16-be", "replace") if wide else found.decode("cp1252", "replace")
    return ""


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file")
    parser.add_argument("--pages", default="1-", help="such as 1-5,8 or 6-")
    parser.add_argument("--max-chars", type=int, default=60_000)
    parser.add_argument("--info", action="store_true", help="number of pages and how much text each has")
    asked = parser.parse_args()
    try:
        with open(asked.file, "rb") as file:
            data = file.read(MAX_FILE + 1)
        if len(data) > MAX_FILE:
            raise Unreadable(f"the file has more than {MAX_FILE:,} bytes")
        pdf = Pdf(data)
        pages = pdf.pages()
        if not pages:
            raise Unreadable("no pages were found; the file is damaged, or of a kind that this script cannot read")
        if asked.info:
            print(f"pages: {len(pages)}\ntitle: {title(pdf) or '-'}")
            for number, page in enumerate(pages[:200], start=1):
                print(f"page {number}: {len(pdf.text(page)):,} characters")
            return 0
        left = asked.max_chars
        for number in wanted(asked.pages, len(pages)):
            text = pdf.text(pages[number - 1]) or "[no text on this page: perhaps a picture]"
            print(f"--- page {number} of {len(pages)} ---\n{text[:left]}")
            left -= len(text)
            if left <= 0:
                print(f"[cut here; go on with --pages {number}-]")
                break
    except (Unreadable, OSError) as error:
        print(f"read_pdf: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
