#!/usr/bin/env python3
"""Print cells of .xlsx, .ods, .csv and .tsv files. Needs nothing but Python 3.9, and changes nothing."""

import argparse
import csv
import datetime
import io
import json
import re
import sys
import zipfile
from xml.etree import ElementTree

MAX_PART = 200_000_000  # of what a part of the file unpacks to
MAX_ROWS, MAX_COLUMNS, MAX_REPEAT = 1_100_000, 16_384, 10_000
OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
DATE_FORMATS = {*range(14, 23), *range(27, 37), 45, 46, 47, *range(50, 59)}


class Unreadable(Exception):
    """Said to the person in one line."""


class Sheet:
    """Rows of values: text, number, True, False, or None. `formulas` by (row, column), counted from nought."""

    def __init__(self, name):
        self.name, self.rows, self.formulas = name, [], {}

    def put(self, row, column, value):
        if row >= MAX_ROWS or column >= MAX_COLUMNS:
            raise Unreadable(f"{self.name} is larger than any spreadsheet may be")
        while len(self.rows) <= row:
            self.rows.append([])
        cells = self.rows[row]
        cells.extend([None] * (column + 1 - len(cells)))
        cells[column] = value

    @property
    def width(self):
        return max(map(len, self.rows), default=0)


def part(archive, name):
    """One XML part, if it is no bomb and has no entities of its own; an element without a name if it is missing."""
    if name not in archive.namelist():
        return ElementTree.Element("")
    with archive.open(name) as file:
        data = file.read(MAX_PART + 1)
    if len(data) > MAX_PART:
        raise Unreadable(f"{name} inside the file is too large")
    if b"<!DOCTYPE" in data[:4096] or b"<!ENTITY" in data:
        raise Unreadable(f"{name} inside the file defines entities, which no spreadsheet does")
    return ElementTree.fromstring(data)


def attribute(element, name):
    return next((value for key, value in element.attrib.items() if key.rpartition("}")[2] == name), "")


def xlsx(archive):
    book = part(archive, "xl/workbook.xml")
    targets = {each.get("Id"): each.get("Target", "") for each in part(archive, "xl/_rels/workbook.xml.rels")}
    shared = [texts(each) for each in part(archive, "xl/sharedStrings.xml").iterfind("{*}si")]
    dates = date_styles(part(archive, "xl/styles.xml"))
    since_1904 = any(attribute(each, "date1904") in ("1", "true") for each in book.iterfind("{*}workbookPr"))
    found = []
    for entry in book.iterfind("{*}sheets/*"):
        target = targets.get(attribute(entry, "id"), "").lstrip("/")
        tree = part(archive, target if target.startswith("xl/") else f"xl/{target}")
        if tree.tag:
            found.append(xlsx_sheet(entry.get("name", "?"), tree, shared, dates, since_1904))
    return found


def xlsx_sheet(name, tree, shared, dates, since_1904):
    sheet, row_number = Sheet(name), -1
    for row in tree.iterfind("{*}sheetData/{*}row"):
        row_number = int(row.get("r", row_number + 2)) - 1
        column = -1
        for cell in row.iterfind("{*}c"):
            column = column_of(cell.get("r", "")) if cell.get("r") else column + 1
            sheet.put(row_number, column, xlsx_value(cell, shared, dates, since_1904))
            if formula := cell.findtext("{*}f"):
                sheet.formulas[row_number, column] = f"={formula}"
    return sheet


def xlsx_value(cell, shared, dates, since_1904):
    kind = cell.get("t", "n")
    if kind == "inlineStr":
        return "".join(texts(each) for each in cell.iterfind("{*}is"))
    raw = cell.findtext("{*}v")
    if raw is None:
        return None
    if kind == "s":
        return shared[int(raw)] if raw.isdigit() and int(raw) < len(shared) else raw
    if kind == "b":
        return raw == "1"
    if kind in ("str", "e", "d"):
        return raw
    number = as_number(raw)
    if number is None:
        return raw
    return as_date(number, since_1904) if cell.get("s", "0") in dates else number


def texts(element):
    """All text but the readings above Asian words."""
    return "".join(each.text or "" for path in ("{*}t", "{*}r/{*}t") for each in element.iterfind(path))


def date_styles(tree):
    """Numbers of the cell styles that show a date."""
    own = {}
    for each in tree.iterfind("{*}numFmts/*"):
        code = re.sub(r'"[^"]*"|\\.|\[[^\[\]]*\]', "", each.get("formatCode", ""))
        own[each.get("numFmtId")] = bool(re.search("[ymdhs]", code, re.IGNORECASE))
    codes = [each.get("numFmtId", "0") for each in tree.iterfind("{*}cellXfs/*")]
    shown = (own.get(code, code.isdigit() and int(code) in DATE_FORMATS) for code in codes)
    return {str(number) for number, is_date in enumerate(shown) if is_date}


def as_date(number, since_1904):
    start = datetime.datetime(1904, 1, 1) if since_1904 else datetime.datetime(1899, 12, 30)
    try:
        moment = start + datetime.timedelta(seconds=round(number * 86_400))
    except OverflowError:
        return number
    if number < 1:
        return moment.strftime("%H:%M:%S")
    return moment.strftime("%Y-%m-%d" if number == int(number) else "%Y-%m-%d %H:%M:%S")


def ods(archive):
    tables = part(archive, "content.xml").iterfind("{*}body/{*}spreadsheet/{*}table")
    return [ods_sheet(table) for table in tables]


def ods_sheet(table):
    sheet, row_number = Sheet(table.get(f"{TABLE}name", "?")), 0
    for row in table.iter(f"{TABLE}table-row"):
        again = int(row.get(f"{TABLE}number-rows-repeated", "1"))
        cells, column = [], 0
        for cell in row:
            if not cell.tag.endswith(("}table-cell", "}covered-table-cell")):
                continue
            times = int(cell.get(f"{TABLE}number-columns-repeated", "1"))
            value, formula = ods_value(cell), cell.get(f"{TABLE}formula", "")
            if value is not None:
                cells += [(column + each, value, formula) for each in range(min(times, MAX_REPEAT))]
            column += times
        for each in range(min(again, MAX_REPEAT) if cells else 0):
            for place, value, formula in cells:
                sheet.put(row_number + each, place, value)
                if formula:
                    sheet.formulas[row_number + each, place] = re.sub("^[a-z]+:", "", formula)
        row_number += again
    return sheet


def ods_value(cell):
    kind = cell.get(f"{OFFICE}value-type", "")
    if kind in ("float", "currency", "percentage"):
        return as_number(cell.get(f"{OFFICE}value", ""))
    if kind == "date":
        return cell.get(f"{OFFICE}date-value", "").replace("T", " ")
    if kind == "boolean":
        return cell.get(f"{OFFICE}boolean-value") == "true"
    return "\n".join("".join(each.itertext()) for each in cell.iter(f"{TEXT}p")) or None


def separated(data, name, decimal):
    for encoding in ("utf-8-sig", "utf-16" if data[:2] in (b"\xff\xfe", b"\xfe\xff") else "cp1252", "latin-1"):
        try:
            text = data.decode(encoding)
            break
        except UnicodeDecodeError:
            continue
    sign = "\t" if name.lower().endswith((".tsv", ".tab")) else max(",;\t|", key=text[:8192].count)
    csv.field_size_limit(10_000_000)
    sheet = Sheet("csv")
    for row in csv.reader(io.StringIO(text, newline=""), delimiter=sign):
        sheet.rows.append([typed(each, decimal) for each in row])
        if len(sheet.rows) > MAX_ROWS:
            raise Unreadable(f"the file has more than {MAX_ROWS:,} rows")
    return [sheet]


def typed(text, decimal):
    plain = text.strip()
    if not plain:
        return None
    if re.fullmatch(r"0\d+", plain):  # a post code, a telephone number
        return text
    number = as_number(plain.replace(decimal, ".") if decimal != "." else plain)
    return text if number is None else number


def as_number(text):
    if not re.fullmatch(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d{1,3})?", text):
        return None
    number = float(text)
    return int(number) if number.is_integer() and abs(number) < 1e15 and "e" not in text.lower() else number


def column_of(text):
    number = 0
    for char in re.match("[A-Za-z]*", text)[0].upper()[:4]:
        number = number * 26 + ord(char) - 64
    return number - 1


def column_name(number):
    name = ""
    number += 1
    while number:
        number, rest = divmod(number - 1, 26)
        name = chr(65 + rest) + name
    return name


def columns_wanted(text, width):
    if not text:
        return list(range(width))
    found = []
    for each in text.split(","):
        first, dash, last = each.strip().partition("-")
        low = column_of(first)
        high = (column_of(last) if last else width - 1) if dash else low
        if low < 0 or high < 0:
            raise Unreadable(f"not columns: {each!r}; write A,C-E")
        found += range(low, min(high, width - 1) + 1)
    return found


def rows_wanted(text, count):
    first, dash, last = text.partition("-")
    try:
        low = int(first or 1)
        high = int(last or count) if dash else low
    except ValueError:
        raise Unreadable(f"not rows: {text!r}; write 1-50") from None
    return range(max(low, 1) - 1, min(high, count))


def load(path, decimal):
    with open(path, "rb") as file:
        data = file.read(MAX_PART + 1)
    if len(data) > MAX_PART:
        raise Unreadable(f"the file has more than {MAX_PART:,} bytes")
    if data[:4] == b"\xd0\xcf\x11\xe0":
        raise Unreadable("this is an old .xls file, or one with a password; save it as .xlsx")
    if data[:2] != b"PK":
        return separated(data, path, decimal)
    with zipfile.ZipFile(io.BytesIO(data)) as archive:
        for name, read in (("xl/workbook.xml", xlsx), ("content.xml", ods)):
            if name in archive.namelist():
                return read(archive)
    raise Unreadable("this is neither .xlsx nor .ods")


def told(value):
    if value is None or isinstance(value, bool):
        return {None: "", True: "TRUE", False: "FALSE"}[value]
    first, *lines = str(value).split("\n")
    if lines:
        between = (line.strip() for line in lines[:-1])
        first = " / ".join([first.rstrip(), *filter(None, between), lines[-1].lstrip()])
    return first.replace("\t", " ")


def info(sheets):
    for sheet in sheets:
        head = next((row for row in sheet.rows if any(cell is not None for cell in row)), [])
        print(f"{sheet.name}: {len(sheet.rows):,} rows, {sheet.width:,} columns, {len(sheet.formulas):,} formulas")
        print(f"  first row: {' | '.join(told(cell) for cell in head[:30])}")


def stats(sheet, columns):
    print("column\thead\tfilled\tnumbers\tsum\tmin\tmax\tmean")
    for column in columns:
        cells = [row[column] for row in sheet.rows if column < len(row) and row[column] is not None]
        numbers = [each for each in cells if isinstance(each, (int, float)) and not isinstance(each, bool)]
        head = told(cells[0]) if cells and isinstance(cells[0], str) else ""
        row = [column_name(column), head, len(cells), len(numbers)]
        if numbers:
            total = sum(numbers)
            row += [f"{each:.10g}" for each in (total, min(numbers), max(numbers), total / len(numbers))]
        print("\t".join(map(str, row)))


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file")
    parser.add_argument("--sheet", default="", help="its name or number; default: the first")
    parser.add_argument("--rows", default="1-200", help="such as 1-50 or 51-")
    parser.add_argument("--columns", default="", help="such as A,C-E")
    parser.add_argument("--format", choices=("tsv", "json"), default="tsv")
    parser.add_argument("--formulas", action="store_true", help="formulas where there are any")
    parser.add_argument("--decimal", choices=(".", ","), default=".", help="in csv files")
    parser.add_argument("--info", action="store_true", help="sheets and their sizes")
    parser.add_argument("--stats", action="store_true", help="sum, smallest, largest and mean of each column")
    asked = parser.parse_args()
    try:
        sheets = load(asked.file, asked.decimal)
        if not sheets:
            raise Unreadable("the file has no sheets")
        if asked.info:
            info(sheets)
            return 0
        sheet = chosen(sheets, asked.sheet)
        columns = columns_wanted(asked.columns, sheet.width)
        if asked.stats:
            stats(sheet, columns)
            return 0
        show(sheet, rows_wanted(asked.rows, len(sheet.rows)), columns, asked)
    except (Unreadable, OSError, ElementTree.ParseError, zipfile.BadZipFile, csv.Error) as error:
        print(f"read_table: {error}", file=sys.stderr)
        return 1
    return 0


def chosen(sheets, name):
    for number, sheet in enumerate(sheets, start=1):
        if name in ("", sheet.name, str(number)):
            return sheet
    raise Unreadable(f"there is no sheet {name!r}; there are {', '.join(sheet.name for sheet in sheets)}")


def show(sheet, rows, columns, asked):
    def cell(row, column):
        if asked.formulas and (row, column) in sheet.formulas:
            return sheet.formulas[row, column]
        return sheet.rows[row][column] if column < len(sheet.rows[row]) else None

    if asked.format == "json":
        names = [column_name(column) for column in columns]
        listed = [{"row": row + 1, **{name: cell(row, at) for name, at in zip(names, columns)}} for row in rows]
        print(json.dumps({"sheet": sheet.name, "total": len(sheet.rows), "rows": listed}, ensure_ascii=False))
        return
    print("\t".join(["", *map(column_name, columns)]))
    for row in rows:
        print("\t".join([str(row + 1), *(told(cell(row, column)) for column in columns)]))
    if len(sheet.rows) > rows.stop:
        print(f"[{len(sheet.rows):,} rows in all; go on with --rows {rows.stop + 1}-]")


if __name__ == "__main__":
    sys.exit(main())
