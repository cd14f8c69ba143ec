"""The bundled skills: each can be used here and now, names only tools that there are, and its scripts work."""

from __future__ import annotations

import io
import json
import re
import subprocess
import sys
import zipfile
import zlib
from pathlib import Path

import pytest

from palinurus.skills.discovery import BUNDLED, Root, SkillCache, SkillCatalog
from palinurus.skills.offer import offer
from palinurus.skills.settings import SkillsSettings
from palinurus.skills.skill import Skill
from palinurus.skills.use import instructions
from palinurus.tools.tool_names import GROUPS

NAMES = (
    *("checklists", "daily-review", "git-helper", "meeting-notes", "memory-care", "read-pdf", "read-spreadsheet"),
    *("skill-creator", "summarise-file", "translate", "web-research", "weekly-plan"),
)
TOOLS = {name for group in GROUPS.values() for name in group}
OURS = {
    "read",
    "write",
    "edit",
    "ls",
    "grep",
    "find",
    "exec",
    "memory_search",
    "memory_write",
    "web_search",
    "web_fetch",
}


def bundled() -> dict[str, Skill]:
    found = SkillCatalog((Root("bundled", str(BUNDLED)),), SkillsSettings(), SkillCache(None)).look()
    assert (found.left_out, found.shadowed) == ((), ())
    return {skill.name: skill for skill in found.skills}


def run(script: str, *arguments: object, code: int = 0) -> str:
    argv = [sys.executable, "-I", str(BUNDLED / script), *map(str, arguments)]
    ended = subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == code, ended.stderr
    return ended.stdout if code == 0 else ended.stdout + ended.stderr


def test_they_are_all_there_and_offered_for_little() -> None:
    found = bundled()
    assert tuple(found) == NAMES
    assert all(skill.about.remarks == () for skill in found.values())
    listed = offer(list(found.values()), SkillsSettings().limits, "/nobody")
    assert (listed.form, listed.listed) == ("full", len(NAMES))
    assert all(f"\n{name}: {skill.about.description}\n" in listed.text for name, skill in found.items())
    assert f'<bundled location="{BUNDLED}/NAME/SKILL.md">' in listed.text
    assert all((BUNDLED / name / "SKILL.md").is_file() for name in NAMES)
    assert len(listed.text) < 1_500  # the first request of a fresh home is small


@pytest.mark.parametrize("name", NAMES)
def test_a_bundled_skill_is_well_made(name: str) -> None:
    skill = bundled()[name]
    assert skill.about.description[-1] == "."
    assert run("skill-creator/scripts/check_skill.py", skill.folder) == "nothing to mend\n"
    text = instructions(skill)
    assert len(text) < 5_000
    called = set(re.findall(r"`([a-z]+(?:_[a-z]+)*)`", text)) & TOOLS
    assert called <= OURS
    assert called, "a skill that calls no tool is only talk"
    for block in re.findall(r"```sh\n(.*?)```", text, re.DOTALL):
        subprocess.run(["/bin/sh", "-n"], input=block, text=True, check=True, timeout=60)


def test_the_commands_of_git_helper_work(tmp_path: Path) -> None:
    def git(line: str) -> str:
        env = {"PATH": "/usr/bin:/bin:/usr/local/bin", "HOME": str(tmp_path), "GIT_CONFIG_NOSYSTEM": "1"}
        identity = "-c user.name=a -c user.email=a@b -c init.defaultBranch=main"
        line = re.sub("^git ", f"git {identity} ", line)
        return subprocess.run(
            ["/bin/sh", "-ec", line], cwd=tmp_path, env=env, capture_output=True, text=True, check=True
        ).stdout

    git("git init -q")
    file = tmp_path / "FILE"
    for number in range(6):
        file.write_text("".join(f"line {each}\n" for each in range(20)) + ("broken\n" if number > 2 else "fine\n"))
        (tmp_path / "n").write_text(str(number))
        git("git add .")
        git(f'git commit -q -m "Step {number}" -m "Why."')
    text = instructions(bundled()["git-helper"])
    for line in ("git status --short --branch", "git diff --stat", "git diff --cached --stat"):
        assert line in text
        git(line)
    assert "git log -S'text' --oneline -- FILE" in text
    assert git("git log -S'broken' --oneline -- FILE").split(maxsplit=1)[1] == "Step 3\n"
    assert "Step 0" in git("git log -L 10,20:FILE")
    assert len(git("git blame -w -C -L 10,20 FILE").splitlines()) == 11
    git("git bisect start HEAD HEAD~5")
    assert "Step 3" in git("git bisect run sh -c '! grep -q broken FILE'")
    git("git bisect reset")
    file.write_text("changed\n")
    git("git add FILE")
    git("git restore --staged FILE")
    git("git stash push -q -m WHY")
    git("git revert --no-edit HEAD")
    git("git branch backup-NAME")
    assert "revert" in git("git reflog")


# --- read-pdf ---


def pdf(*objects: bytes, root: int = 1) -> bytes:
    body = b"".join(b"%d 0 obj\n%s\nendobj\n" % (number, data) for number, data in enumerate(objects, start=1))
    return b"%PDF-1.7\n" + body + b"trailer << /Root %d 0 R >>\n%%%%EOF\n" % root


def stream(data: bytes, more: bytes = b"", *, packed: bool = True) -> bytes:
    if packed:
        data, more = zlib.compress(data), more + b" /Filter /FlateDecode"
    return b"<< /Length %d%s >>\nstream\n%s\nendstream" % (len(data), more, data)


CATALOG = b"<< /Type /Catalog /Pages 2 0 R >>"
TEXT = b"BT /F1 12 Tf 72 700 Td (Hello \\(world\\)) Tj 0 -14 Td [(Se) 20 (cond) -300 (li\\156e)] TJ ET"
CMAP = (
    b"1 begincodespacerange <0000> <FFFF> endcodespacerange 1 beginbfchar <0003> <00E4> endbfchar "
    b"2 beginbfrange <0010> <0012> <0041> <0020> <0021> [<03B1> <00660069>] endbfrange"
)


@pytest.fixture
def two_pages(tmp_path: Path) -> Path:
    path = tmp_path / "two.pdf"
    path.write_bytes(
        pdf(
            CATALOG,
            b"<< /Type /Pages /Kids [3 0 R 4 0 R 8 0 R] /Count 3 /Resources << /Font << /F1 5 0 R /F2 9 0 R >> >> >>",
            b"<< /Type /Page /Parent 2 0 R /Contents 6 0 R >>",
            b"<< /Type /Page /Parent 2 0 R /Contents [7 0 R] >>",
            b"<< /Type /Font /Subtype /Type1 /BaseFont /Helvetica >>",
            stream(TEXT),
            stream(b"BT /F2 9 Tf 1 0 0 1 72 700 Tm <001000030012002000210099> Tj ET", packed=False),
            b"<< /Type /Page /Parent 2 0 R >>",
            b"<< /Type /Font /Subtype /Type0 /Encoding /Identity-H /ToUnicode 10 0 R >>",
            stream(CMAP),
        )
    )
    return path


def test_a_pdf_is_read_page_by_page(two_pages: Path) -> None:
    assert run("read-pdf/scripts/read_pdf.py", two_pages) == (
        "--- page 1 of 3 ---\nHello (world)\nSecond line\n"
        "--- page 2 of 3 ---\nAäCαfi\N{REPLACEMENT CHARACTER}\n"
        "--- page 3 of 3 ---\n[no text on this page: perhaps a picture]\n"
    )
    assert run("read-pdf/scripts/read_pdf.py", two_pages, "--pages", "2-2").count("---") == 2
    assert "page 1: 25 characters" in run("read-pdf/scripts/read_pdf.py", two_pages, "--info")
    assert "[cut here; go on with --pages 1-]" in run("read-pdf/scripts/read_pdf.py", two_pages, "--max-chars", 5)


def test_a_pdf_with_packed_objects_is_read(tmp_path: Path) -> None:
    inner = [CATALOG, b"<< /Type /Pages /Kids [3 0 R] >>", b"<< /Type /Page /Contents 5 0 R >>"]
    offsets = [sum(len(each) + 1 for each in inner[:number]) for number in range(3)]
    head = " ".join(f"{number} {offset}" for number, offset in enumerate(offsets, start=1)).encode()
    packed = stream(head + b"\n" + b"\n".join(inner), b" /Type /ObjStm /N 3 /First %d" % (len(head) + 1))
    path = tmp_path / "packed.pdf"
    path.write_bytes(b"%%PDF-1.5\n4 0 obj\n%s\nendobj\n5 0 obj\n%s\nendobj\n" % (packed, stream(TEXT)))
    assert "Second line" in run("read-pdf/scripts/read_pdf.py", path)


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (b"PK not a pdf", "this is no PDF file"),
        (b"%PDF-1.4\ntrailer << /Encrypt 5 0 R >>", "this PDF is encrypted"),
        (b"%PDF-1.4\n1 0 obj << /Type /Catalog /Pages 1 0 R >> endobj", "--- page 1 of 1 ---"),
        (b"%PDF-1.4\n" + b"<<" * 50_000, "no pages were found"),
        (b"%PDF-1.4\n1 0 obj " + b"[" * 50_000, "no pages were found"),
    ],
)
def test_a_pdf_that_is_none_is_one_line_and_no_hanging(tmp_path: Path, data: bytes, said: str) -> None:
    path = tmp_path / "odd.pdf"
    path.write_bytes(data)
    assert said in run("read-pdf/scripts/read_pdf.py", path, code=0 if said.startswith("---") else 1)


def test_a_packed_bomb_costs_no_more_than_its_limit(tmp_path: Path) -> None:
    bomb = stream(zlib.compress(b"\0" * 80_000_000, 9), packed=False, more=b" /Filter /FlateDecode")
    path = tmp_path / "bomb.pdf"
    path.write_bytes(pdf(CATALOG, b"<< /Type /Pages /Kids [3 0 R] >>", b"<< /Type /Page /Contents 4 0 R >>", bomb))
    assert "[no text on this page" in run("read-pdf/scripts/read_pdf.py", path)


# --- read-spreadsheet ---


def zipped(path: Path, **parts: str) -> Path:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, text in parts.items():
            archive.writestr(name, text)
    path.write_bytes(data.getvalue())
    return path


MAIN = 'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'
LINKS = 'xmlns:r="http://schemas.openxmlformats.org/officeDocument/2006/relationships"'


@pytest.fixture
def book(tmp_path: Path) -> Path:
    sheet = (
        '<row r="1"><c r="A1" t="s"><v>0</v></c><c r="B1" t="inlineStr"><is><t>Cost</t></is></c><c r="D1"/></row>'
        '<row r="3"><c r="A3" s="1"><v>45000</v></c><c r="B3"><v>2.5</v></c><c r="C3" t="b"><v>1</v></c></row>'
        '<row r="4"><c r="A4" s="1"><v>45000.5</v></c><c r="B4"><f>B3*2</f><v>5</v></c>'
        '<c r="D4" t="e"><v>#N/A</v></c></row>'
    )
    return zipped(
        tmp_path / "book.xlsx",
        **{
            "xl/workbook.xml": f'<workbook {MAIN} {LINKS}><sheets><sheet name="Costs" r:id="r1"/>'
            '<sheet name="Empty" r:id="r2"/></sheets></workbook>',
            "xl/_rels/workbook.xml.rels": '<Relationships><Relationship Id="r1" Target="worksheets/sheet1.xml"/>'
            '<Relationship Id="r2" Target="/xl/worksheets/sheet2.xml"/></Relationships>',
            "xl/sharedStrings.xml": f"<sst {MAIN}><si><r><t>D</t></r><r><t>ay</t></r></si></sst>",
            "xl/styles.xml": f'<styleSheet {MAIN}><cellXfs><xf numFmtId="0"/><xf numFmtId="14"/></cellXfs>'
            "</styleSheet>",
            "xl/worksheets/sheet1.xml": f"<worksheet {MAIN}><sheetData>{sheet}</sheetData></worksheet>",
            "xl/worksheets/sheet2.xml": f"<worksheet {MAIN}><sheetData/></worksheet>",
        },
    )


def table(*arguments: object, code: int = 0) -> str:
    return run("read-spreadsheet/scripts/read_table.py", *arguments, code=code)


def test_a_workbook_is_read_with_dates_and_formulas(book: Path) -> None:
    assert table(book, "--info").splitlines()[0] == "Costs: 4 rows, 4 columns, 1 formulas"
    assert table(book).splitlines() == [
        "\tA\tB\tC\tD",
        "1\tDay\tCost\t\t",
        "2\t\t\t\t",
        "3\t2023-03-15\t2.5\tTRUE\t",
        "4\t2023-03-15 12:00:00\t5\t\t#N/A",
    ]
    assert "=B3*2" in table(book, "--formulas", "--columns", "B", "--rows", "4")
    listed = json.loads(table(book, "--columns", "A-B", "--rows", "3-3", "--format", "json"))
    assert listed == {"sheet": "Costs", "total": 4, "rows": [{"row": 3, "A": "2023-03-15", "B": 2.5}]}
    assert table(book, "--stats").splitlines()[2] == "B\tCost\t3\t2\t7.5\t2.5\t5\t3.75"
    assert "there is no sheet 'Nope'; there are Costs, Empty" in table(book, "--sheet", "Nope", code=1)
    assert "go on with --rows 2-" in table(book, "--rows", "1")


def test_an_open_document_is_read(tmp_path: Path) -> None:
    names = " ".join(
        f'xmlns:{short}="urn:oasis:names:tc:opendocument:xmlns:{short}:1.0"' for short in ("office", "table", "text")
    )
    cells = (
        '<table:table-cell office:value-type="string"><text:p>a</text:p><text:p>b</text:p></table:table-cell>'
        '<table:table-cell table:number-columns-repeated="2"/>'
        '<table:table-cell office:value-type="float" office:value="3.0" table:formula="of:=1+2"/>'
    )
    content = (
        f'<office:document-content {names}><office:body><office:spreadsheet><table:table table:name="One">'
        f'<table:table-row table:number-rows-repeated="2">{cells}</table:table-row>'
        '<table:table-row table:number-rows-repeated="1048574"><table:table-cell/></table:table-row>'
        "</table:table></office:spreadsheet></office:body></office:document-content>"
    )
    path = zipped(tmp_path / "book.ods", **{"content.xml": content})
    assert table(path).splitlines() == ["\tA\tB\tC\tD", "1\ta / b\t\t\t3", "2\ta / b\t\t\t3"]
    assert "=1+2" in table(path, "--formulas")


@pytest.mark.parametrize(
    ("name", "data", "second"),
    [
        ("a.csv", "name,size\nAnn,1.5\n", "2\tAnn\t1.5"),
        ("a.csv", "name;size\nAnn;x\n", "2\tAnn\tx"),
        ("a.tsv", "name\tsize\nAnn\t007\n", "2\tAnn\t007"),
        ("a.csv", 'name,size\n"A, B\nC",3\n', "2\tA, B / C\t3"),
    ],
)
def test_separated_values_are_read_whatever_separates_them(tmp_path: Path, name: str, data: str, second: str) -> None:
    (tmp_path / name).write_text(data)
    assert table(tmp_path / name).splitlines()[2] == second


@pytest.mark.parametrize(
    ("parts", "said"),
    [
        ({"content.xml": '<!DOCTYPE a [<!ENTITY b "c">]><a>&b;</a>'}, "defines entities"),
        ({"content.xml": "<a>"}, "read_table: "),
        ({"other": "x"}, "neither .xlsx nor .ods"),
    ],
)
def test_a_spreadsheet_that_is_none_is_one_line(tmp_path: Path, parts: dict[str, str], said: str) -> None:
    told = table(zipped(tmp_path / "odd.xlsx", **parts), code=1)
    assert said in told
    assert len(told.splitlines()) == 1


# --- skill-creator ---


def test_the_check_of_a_new_skill_says_what_to_mend(tmp_path: Path) -> None:
    folder = tmp_path / "tide-table"
    (folder / "scripts").mkdir(parents=True)
    (folder / "scripts" / "lost.py").write_text("KEY = 'sk-" + "a1" * 20 + "'\n")
    (folder / "SKILL.md").write_text(
        "---\nname: Tides\ndescription: Use when: tides\n---\nRun {baseDir}/scripts/x.py\n"
    )
    said = run("skill-creator/scripts/check_skill.py", folder, code=1)
    for complaint in (
        "lower-case words",
        "holds a colon",
        "scripts/x.py is not there",
        "lost.py is not named",
        "a secret",
    ):
        assert complaint in said
