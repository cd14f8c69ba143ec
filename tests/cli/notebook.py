"""A scratch extension: a tool, an operation with its command, a section of the config, a job, a check, words."""

from typing import Annotated

from msgspec import Struct

from palinurus.cli.command import command_of
from palinurus.config.home import Home
from palinurus.config.load import LoadedConfig
from palinurus.config.section import Section, option
from palinurus.domain.text_places import TextFiles
from palinurus.domain.tool import ToolOutput, ToolRun, tool
from palinurus.operations.operation import operation
from palinurus.operations.services import Services
from palinurus.runtime.checks.check import Check, ok
from palinurus.runtime.extensions import App
from palinurus.storage.jobs import Job, JobKind

PLACES = (TextFiles(r"notebook\.txt", "text"),)


class NotebookSettings(Section, frozen=True):
    """A notebook beside the workspace."""

    pages: Annotated[int, option("How many pages it has.", ge=1)] = 10


class Page(Struct, frozen=True):
    text: str


@operation("notebook.add", scope="write")
async def add_page(services: Services, text: Annotated[str, "What stands on it."]) -> Page:
    """Write a page of the notebook."""
    await services.jobs.add("notebook.write", Page(text), text)
    return Page(text)


async def write_page(services: Services, page: Page, job: Job) -> int:
    with (services.home.root / "notebook.txt").open("a") as file:
        return file.write(f"{page.text}\n")


@tool("notebook_look", "Look at the notebook.")
async def look_at_notebook(run: ToolRun) -> ToolOutput:
    return ToolOutput("It is blue.")


def check_notebook(_: Home, loaded: LoadedConfig | None) -> list[Check]:
    return [ok("notebook", f"{loaded.config.section(NotebookSettings).pages} pages")] if loaded else []


def register(app: App) -> None:
    app.operation(add_page)
    app.command("notebook", command_of(add_page, lambda _, page: f"noted: {page.text}", name="notebook"))
    app.job(JobKind("notebook.write", Page, write_page, on_crash="retry"))
    app.tool(look_at_notebook)
    app.doctor_check(check_notebook)
