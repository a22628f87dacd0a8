# SPDX-License-Identifier: Apache-2.0
"""The commands of README.md and docs/ do what these pages say, as far as they need no GPU: documentation drifts.

Every line of a fenced block labelled ``sh``, or not labelled and beginning with a command, is a command. It is run
here, or named in NOT_RUN with the reason; and whatever it calls (a lagom command or option, a make target, a file of
the repository) has to exist either way.
"""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from typer.testing import CliRunner

from lagom.cli.main import app
from tests.forked_commands import lagom
from tests.processor_time import shared

ROOT = Path(__file__).resolve().parents[2]
README = ROOT / "README.md"
PAGES = (README, *sorted((ROOT / "docs").rglob("*.md")))

BLOCK = re.compile(r"^```(\w*)\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHELLS = ("sh", "bash", "console", "shell")
#: What a block without a label begins with if it holds commands.
FIRST_COMMANDS = ("make", "pip", "lagom", "export", "eval", "git", "torchrun", "python", "srun", "mpirun")

#: First words of commands that are checked but not run, and why.
NOT_RUN = {
    "git clone": "needs the network",
    "cd": "says where to go",
    "pip": "installs",
    "make test": "would run itself",
    "make test-full": "would run itself",
    "make test-gpu": "needs GPUs",
    "make demo": "its own test runs the demo",
    "make bench": "takes minutes",
    "make figures": "takes minutes",
    "make bench-gpu": "needs GPUs",
    "make agreement": "takes minutes",
    "make fuzz": "takes minutes",
    "make dev": "was made before these tests",
    "make native": "was made before these tests",
    "make lint": "run by make test",
    "make readme": "test_what_is_made_from_the_code_is_up_to_date compares what it writes",
    "make docs": "tests/contract/test_site.py builds the site where mkdocs is installed",
    "make fresh-clone": "takes minutes",
    "make wheel": "needs packages of its own and a minute",
    "make test-wheel": "needs packages of its own and minutes",
    "make asan": "run by make test",
    "make ubsan": "run by make test",
    "make tsan": "run by make test",
    "torchrun": "needs GPUs and torch",
    "srun": "needs Slurm",
    "mpirun": "needs MPI",
    "ray": "needs Ray",
    "python": "needs GPUs or takes minutes",
    "lagom run": "needs a job; tests/unit/cli/test_run.py runs it",
    "lagom bench": "needs a job; tests/system/test_bench.py runs it",
    "lagom tune": "needs a job; tests/system/test_tune.py runs it",
    "lagom set": "needs a running job; tests/unit/cli/test_commands.py runs it",
    "lagom profile -- torchrun": "needs GPUs; tests/system/test_profile_job.py profiles virtual ranks",
    "lagom profile --trace lagom-profile": "needs a recorded job; tests/system/test_profile_job.py reads one",
    "lagom report /shared/tune": "needs a search on several nodes; tests/system/test_tune_nodes.py makes one",
    "lagom report lagom-tune": "needs a search for start settings; tests/system/test_tune.py reads one",
    "lagom report lagom-bench": "needs a comparison; tests/unit/report/test_read_run.py reads one",
    "lagom watch": "needs a running job; tests/system/test_watch.py watches one",
}
#: Commands that are run as they stand.
RUN = ("lagom doctor", "lagom env", "eval $(lagom env)", "lagom --help", "lagom --version", "make help")
#: Commands that are run in a folder where a simulated job was tuned and profiled.
READING = ("lagom demo", "lagom log", "lagom report", "lagom profile")


def commands() -> list[str]:
    """Every command of the pages, once each; continuation lines joined, comments and prompts taken off."""
    found = [one for page in PAGES for one in BLOCK.findall(page.read_text())]
    blocks = [
        block
        for label, block in found
        if label in SHELLS or (not label and block.split(maxsplit=1)[:1] in [[word] for word in FIRST_COMMANDS])
    ]
    lines = "\n".join(blocks).replace("\\\n", " ").splitlines()
    stripped = (re.sub(r"\s+#\s.*$", "", line.removeprefix("$ ")).strip() for line in lines)
    return list(dict.fromkeys(line for line in stripped if line and not line.startswith("#")))


def words_of(command: str) -> list[str]:
    """The words of a command without the variables set for it."""
    words = shlex.split(command)
    while words and re.fullmatch(r"[A-Z_][A-Z0-9_]*=.*", words[0]):
        words.pop(0)
    return words


def is_one_of(command: str, heads: Iterable[str]) -> bool:
    """Whether a command begins with the words of any of ``heads``."""
    return f"{' '.join(words_of(command))} ".startswith(tuple(f"{head} " for head in heads))


COMMANDS = commands()


def test_there_are_commands_in_the_readme_and_in_docs() -> None:
    readme = {line for _, block in BLOCK.findall(README.read_text()) for line in block.splitlines()}
    assert {line.split()[1] for line in readme if line.startswith("make ")} >= {"demo", "test"}
    assert any(command.startswith("lagom set ") for command in COMMANDS), "docs/usage.md was not read"


@pytest.mark.parametrize("command", COMMANDS)
def test_each_command_is_run_or_has_a_reason_not_to(command: str) -> None:
    exports = command.startswith(("export ", "eval "))
    assert exports or not words_of(command) or is_one_of(command, [*RUN, *READING, *NOT_RUN]), (
        f"add to RUN or NOT_RUN: {command}"
    )


@pytest.mark.parametrize("command", [c for c in COMMANDS if is_one_of(c, RUN)])
def test_commands_that_need_no_gpu_do_what_they_say(command: str, tmp_path: Path) -> None:
    line = re.sub(r"(^|\$\(|\s)lagom(?=\s)", rf"\1{shlex.quote(sys.executable)} -m lagom", command)
    done = subprocess.run(["bash", "-c", line], cwd=ROOT, capture_output=True, text=True, check=False)
    allowed = (0, 1) if "doctor" in command else (0,)  # 1 = the doctor found a problem with this machine
    assert done.returncode in allowed, done.stderr


@pytest.fixture(scope="module")
def tuned_job(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the log of a job and the trace of one, both simulated."""
    folder = tmp_path_factory.mktemp("job")
    with shared("a demo and a profile for the commands of the pages"):
        for words in (["demo", "--seconds", "5"], ["profile", "--simulate", "a40_nvlink"]):
            done = lagom(*words, cwd=folder)
            assert done.returncode == 0, done.stderr
    (folder / "lagom-profile" / "trace.json.gz").rename(folder / "rank0.json.gz")
    return folder


def in_this_job(text: str, folder: Path) -> str:
    """What a page writes as ``lagom-<job>``, with the folder of this one."""
    (log,) = folder.glob("lagom-demo-*")
    return text.replace("lagom-<job>", log.name)


def test_commands_that_read_a_log_or_a_trace_do_what_they_say(tuned_job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tuned_job)
    made = ("lagom demo", "lagom profile --simulate")  # by the fixture
    commands = [c for c in COMMANDS if is_one_of(c, READING) and not is_one_of(c, [*NOT_RUN, *made])]
    assert len(commands) >= 6
    for command in commands:
        result = CliRunner().invoke(app, words_of(in_this_job(command, tuned_job))[1:])
        assert result.exit_code == 0, f"{command}: {result.output}"


def test_the_python_of_the_pages_runs(tuned_job: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tuned_job)
    blocks = [block for page in PAGES for label, block in BLOCK.findall(page.read_text()) if label == "python"]
    assert blocks
    for block in blocks:
        exec(in_this_job(block, tuned_job), {})


@pytest.mark.parametrize("command", [c for c in COMMANDS if "lagom " in c])
def test_lagom_commands_and_options_exist(command: str) -> None:
    for part in re.findall(r'(?:^|[\s(;])lagom ((?:"[^"]*"|[^;|)&]|\$\()*)', command):
        words = shlex.split(part.split(" -- ")[0].replace("...", ""))
        if not words or words[0].startswith("-"):
            continue
        result = CliRunner(env={"COLUMNS": "300"}).invoke(app, [words[0], "--help"])
        assert result.exit_code == 0, f"lagom {words[0]} does not exist"
        for option in (word.split("=")[0] for word in words[1:] if word.startswith("--")):
            assert option in result.output, f"lagom {words[0]} has no option {option}"


@pytest.mark.parametrize("command", [c for c in COMMANDS if words_of(c)[:1] == ["make"]])
def test_make_targets_exist(command: str) -> None:
    targets = re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for word in words_of(command)[1:]:
        assert "=" in word or word in targets, f"make has no target {word}"


@pytest.mark.parametrize("command", [c for c in COMMANDS if words_of(c)[:1] == ["python"]])
def test_scripts_and_modules_exist(command: str) -> None:
    words = words_of(command)
    if words[1] == "-m":
        path = ROOT / words[2].replace(".", "/")
        assert path.with_suffix(".py").exists() or (path / "__main__.py").exists(), command
    else:
        assert (ROOT / words[1]).exists(), command


def test_what_is_made_from_the_code_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("readme_blocks", Path(__file__).with_name("readme_blocks.py"))
    assert spec is not None
    assert spec.loader is not None
    blocks = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(blocks)
    for page, text in blocks.filled():
        assert page.read_text() == text, f"{page.name}: run `make readme`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_environment_variable_of_a_page_is_a_setting(page: Path) -> None:
    from lagom.settings import BY_NAME

    named = set(re.findall(r"\bLAGOM_[A-Z_]+\b", page.read_text()))
    assert {name for name in named if not name.startswith("LAGOM_TEST")} <= set(BY_NAME)


def test_the_table_of_settings_is_complete() -> None:
    from lagom.settings import BY_NAME

    named = set(re.findall(r"^\| `(LAGOM_[A-Z_]+)`", (ROOT / "docs" / "settings.md").read_text(), re.MULTILINE))
    shown = {name for name, setting in BY_NAME.items() if not setting.internal}
    assert shown <= named, "`lagom env --settings` prints the whole table; run `make readme`"
