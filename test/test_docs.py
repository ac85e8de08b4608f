"""The pages for users: commands parse, files, options and links exist, snippets compile, lengths are kept."""

from __future__ import annotations

import importlib
import io
import math
import re
import shlex
import subprocess
import textwrap
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import fields
from functools import cache
from pathlib import Path

import pytest
from test_architecture import ALLOWED

from efftam_ros.core.gallery import LEAST, MOST, SURE
from efftam_ros.ros.camera_parameters import CameraConfig
from efftam_ros.runtime.backends import PipelineConfig
from efftam_ros.tools.cli import EFFTAM, Parser

ROOT = Path(__file__).parent.parent
CARD = "efftam_ros/models/compact_192/README.md"
PAGES = {
    str(path.relative_to(ROOT)): path.read_text(encoding="utf-8")
    for path in (*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md")), ROOT / CARD)
}
MAX_COLUMNS = 140  # of a line of prose
MAX_BYTES = 2_000_000  # of a picture


def blocks(text: str, language: str = "bash") -> list[str]:
    found = re.findall(rf"^ *```{language}\n(.*?)^ *```", text, flags=re.S | re.M)
    return [textwrap.dedent(block) for block in found]


def spans(text: str) -> list[str]:
    """Code within lines, without line breaks."""
    prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.S | re.M)
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose)]


def commands(block: str) -> list[list[str]]:
    """The words of each command, those in pipes and groups too, without redirections."""
    found: list[list[str]] = []
    for line in block.replace("\\\n", " ").splitlines():
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        words: list[str] = []
        target = False
        for token in lexer:
            if target:
                target = False
            elif set(token) <= set("<>"):
                target = True
            elif token and set(token) <= set(";|&(){}"):
                found.append(words)
                words = []
            else:
                words.append(token)
        found.append(words)
    return [words for words in found if words]


def parser_of(command: str) -> Parser:
    parser = Parser(prog=f"efftam {command}")
    importlib.import_module(EFFTAM.module_of(command)).add_arguments(parser)
    return parser


def fault_of_efftam(words: list[str]) -> str:
    """What is wrong with ``efftam COMMAND ...``, "" for nothing."""
    command = words[1] if len(words) > 1 else ""
    if command not in EFFTAM.commands:
        return f"efftam has no command {command!r}"
    parser = parser_of(command)
    try:
        parser.parse_args(words[2:])
    except SystemExit:
        return f"{shlex.join(words)} is refused; usage: {' '.join(parser.format_usage().split())}"
    return ""


def fault_of_bags(block: str) -> str:
    """What is wrong with the topic of an ``efftam replay`` of a bag that ``efftam bag`` made; "" for none."""
    topics: dict[Path, str] = {}
    for words in commands(block):
        if words[:2] == ["efftam", "bag"]:
            made = parser_of("bag").parse_args(words[2:])
            topics[made.out] = made.topic + "/compressed" * (made.encoding == "jpeg")
        if words[:2] == ["efftam", "replay"]:
            played = parser_of("replay").parse_args(words[2:])
            if played.topic not in (None, topics.get(played.bag, played.topic)):
                return f"{shlex.join(words)}: the bag has only {topics[played.bag]}"
    return ""


def fault_of_span(span: str) -> str:
    """What is wrong with an ``efftam`` command in prose, which may leave out what must be given."""
    command, *rest = shlex.split(span)[1:] or [""]
    if command in ("COMMAND", "...", ""):
        return ""
    if command not in EFFTAM.commands:
        return f"efftam has no command {command!r}"
    text = parser_of(command).format_help()
    missing = [word for word in rest if word.startswith("--") and not re.search(rf"{word}(?![\w-])", text)]
    return f"efftam {command} has no {', '.join(missing)}" if missing else ""


def fault_of_launch(words: list[str]) -> str:
    """What is wrong with ``ros2 launch efftam_ros FILE name:=value ...``, "" for nothing."""
    package, name, *arguments = words[2:]
    path = ROOT / "launch" / name
    if package != "efftam_ros" or not path.is_file():
        return f"there is no {package}/launch/{name}"
    text = path.read_text(encoding="utf-8")
    if re.search(r"\bTRACKER( \||\.values|\.items)", text):  # all arguments of the tracker
        text += (ROOT / "efftam_ros" / "ros" / "common" / "launching.py").read_text(encoding="utf-8")
        text += "".join(f'Argument("{f.name}"' for f in fields(PipelineConfig))
    for argument, _, value in (word.partition(":=") for word in arguments):
        if not re.search(rf'Argument\(\s*"{argument}"|\n +"{argument}",\n', text):
            return f"{name} has no argument {argument}"
        if argument == "params" and not (ROOT / "config" / f"{value}.yaml").is_file():
            return f"no parameter file {value} ships"
    return ""


@cache
def help_of(package: str, command: str) -> str:
    """What ``python -m PACKAGE COMMAND --help`` prints, "" where there is no such command."""
    said = io.StringIO()
    with redirect_stdout(said), redirect_stderr(io.StringIO()):
        try:
            code = importlib.import_module(f"{package}.__main__").main([command, "--help"])
        except SystemExit as end:
            code = end.code
    return "" if code else said.getvalue()


def fault_of_module(words: list[str]) -> str:
    """What is wrong with ``python -m PACKAGE COMMAND ...`` of a package of the checkout, "" for nothing."""
    package, command, *rest = words[2:]
    if not (ROOT / package / "__main__.py").is_file():
        return f"there is no {package} in the checkout"
    if not (text := help_of(package, command)):
        return f"{package} has no command {command}"
    missing = [word for word in rest if word.startswith("--") and not re.search(rf"{word}(?![\w-])", text)]
    return f"{package} {command} has no {', '.join(missing)}" if missing else ""


def fault_of_script(words: list[str]) -> str:
    path = ROOT / words[0]
    return "" if path.is_file() and path.stat().st_mode & 0o111 else f"{words[0]} is no program of ours"


def bash_says(block: str) -> str:
    done = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True, check=False)
    return done.stderr or ("" if done.returncode == 0 else "refused")


def in_blocks(*starts: str) -> list:
    """The commands in all pages' blocks whose words begin so, one test case each."""
    return [
        pytest.param(words, id=f"{page}: {' '.join(words)[:60]}")
        for page, text in PAGES.items()
        for block in blocks(text)
        if not bash_says(block)  # a test of its own says so
        for words in commands(block)
        if " ".join(words).startswith(starts)
    ]


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(b, id=f"{page} {n}")
        for page, text in PAGES.items()
        for n, b in enumerate(blocks(text), 1)
    ],
)
def test_every_block_is_valid_bash(block):
    assert bash_says(block) == ""


@pytest.mark.parametrize("words", in_blocks("efftam "))
def test_efftam_takes_every_command_as_it_is_shown(words):
    assert fault_of_efftam(words) == ""


def test_bags_are_replayed_from_the_topic_that_they_hold():
    shown = [(page, block) for page, text in PAGES.items() for block in blocks(text) if not bash_says(block)]
    assert {page: fault for page, block in shown if (fault := fault_of_bags(block))} == {}


@pytest.mark.parametrize(
    "span",
    [
        pytest.param(s, id=f"{page}: {s[:60]}")
        for page, text in PAGES.items()
        for s in spans(text)
        if s.startswith("efftam ")
    ],
)
def test_efftam_has_the_commands_and_options_that_prose_names(span):
    assert fault_of_span(span) == ""


@pytest.mark.parametrize("words", in_blocks("ros2 launch "))
def test_launch_files_and_their_arguments_exist(words):
    assert fault_of_launch(words) == ""


@pytest.mark.parametrize("words", in_blocks("scripts/", "./scripts/"))
def test_scripts_exist(words):
    assert fault_of_script(words) == ""


@pytest.mark.parametrize("words", in_blocks("ros2 service call "))
def test_service_calls_fit_the_interface(words):
    yaml = pytest.importorskip("yaml")
    _, _, _, service, kind, request = words
    if service in ("/efftam_gimbal/enable", "/efftam_mavlink/enable_follow"):
        assert kind == "std_srvs/srv/SetBool"
        assert set(yaml.safe_load(request)) == {"data"}
        return
    assert service == "/efftam_tracker/select_target"
    assert (ROOT / "srv" / f"{kind.split('/')[-1]}.srv").is_file()
    fields = (ROOT / "msg" / "TargetSelection.msg").read_text()
    for name in yaml.safe_load(request)["selection"]:
        assert re.search(rf"^\S+ {name}\b", fields, flags=re.M), name


@pytest.mark.parametrize("words", in_blocks("python -m "))
def test_modules_take_every_command_as_it_is_shown(words):
    assert fault_of_module(words) == ""


@pytest.mark.parametrize(
    "span",
    [
        pytest.param(s, id=f"{page}: {s[:60]}")
        for page, text in PAGES.items()
        for s in spans(text)
        if re.match(r"python -m (benchmarks|simulation|training) [a-z]", s)
    ],
)
def test_modules_have_the_commands_that_prose_names(span):
    assert fault_of_module(shlex.split(span)) == ""


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(b, id=f"{page} {n}")
        for page, text in PAGES.items()
        for n, b in enumerate(blocks(text, "python"), 1)
    ],
)
def test_every_python_snippet_compiles(block):
    compile(block, "snippet", "exec")


def test_names_that_snippets_import_from_this_package_exist():
    for page, text in PAGES.items():
        for block in blocks(text, "python"):
            if "import efftam_ros as et" in block:
                package = importlib.import_module("efftam_ros")
                for name in re.findall(r"\bet\.(\w+)", block):
                    assert hasattr(package, name), f"{page}: et.{name}"


def test_lines_of_prose_are_short():
    for page, text in PAGES.items():
        prose = re.sub(r"^ *```.*?^ *```", "", text, flags=re.S | re.M)
        for line in prose.splitlines():
            table = line.lstrip().startswith("|") or page == "docs/bundle.md"
            assert table or len(line) <= MAX_COLUMNS, f"{page}: {line}"


def test_the_limits_of_likeness_are_those_of_the_code():
    assert {f"{LEAST:g}", f"{SURE:g}"} <= set(re.findall(r"[\d.]*\d", PAGES["docs/tracking.md"]))
    assert MOST == 6  # "up to five later ones"


def test_the_page_on_tracking_states_the_limits_of_the_code():
    from efftam_ros.core.crop import AutomaticCrop, FollowingCrop
    from efftam_ros.core.memory import SPACING_NS
    from efftam_ros.core.motion import COASTING_FACTOR, EDGE, EDGE_PX
    from efftam_ros.core.policies import constants

    text = " ".join(PAGES["docs/tracking.md"].split())
    smallest, largest = (AutomaticCrop.MIN_PX * AutomaticCrop.CHANGE**sign for sign in (-1, 1))
    for stated in (
        f"a box of the last {constants.STILL_S:g} s",
        f"{constants.JUMP_PER_S:g} sizes for each second since the last image",
        f"at most {constants.STRAY:g} sizes",
        f"below {constants.SEEN_SHARE:g} of the value that is usual",
        f"above {constants.KEPT_SHARE:g} of the usual value",
        f"more than {constants.GROWN_SHARE:g} of its usual area",
        f"below {constants.GROWN_CLEARNESS:g} of the usual value",
        f"at least {SPACING_NS * 1e-9:g} s apart",
        f"{100 * EDGE:g} % of the size plus {EDGE_PX:g} px",
        f"the limit is {AutomaticCrop.MIN_PX:g} px",
        f"below {smallest:g} px or above {largest:g} px",
        f"{FollowingCrop.LARGE_FACTOR:g} for a target so large",
        f"multiplied by {constants.LLR_KEPT:g}",
        f"never below {constants.MIN_LLR:g}",
        f"at least {constants.ACCEPT_SCORE:g}",
        f"larger by {constants.MARGIN:g}",
        f"a time constant of {constants.IN_SIGHT_S:g} s",
        f"at most {constants.RETURN_MARGIN:g} below",
        f"drawn smaller than {constants.MAX_PX:g} px",
        f"to the power of {constants.SHARE:g}",
    ):
        assert stated in text
    # Written as words: "three times that", "the first five boxes", "at most twofold".
    assert (COASTING_FACTOR, constants.EXTENT_FRAMES, constants.MOST) == (3, 5, 2)


def test_the_page_on_flight_states_the_waits_of_the_code():
    from efftam_flight import waits
    from efftam_flight.camera_geometry import MAX_ROLL
    from efftam_flight.control_config import ControlConfig
    from efftam_flight.law import NADIR, STEEP

    text, config = " ".join(PAGES["docs/flight.md"].split()), ControlConfig()
    for stated in (
        f"does not grant control within {waits.GIVEN_S:g} s",
        f"No message of the gimbal has arrived for {waits.GIMBAL_SILENT_S:g} s",
        f"No message of the autopilot has arrived for {waits.AUTOPILOT_PAUSE_S:g} s",
        f"After {waits.AUTOPILOT_SILENT_S:g} s nothing is sent",
        f"No message of the bridge has arrived for {waits.BRIDGE_SILENT_S:g} s",
        f"No answer has arrived for {config.silence:g} s",
        f"no rate for {waits.CONTROLLER_SILENT_S:g} s",
        f"at rest for {waits.STANDS_S:g} s",
        f"or for {waits.CREEP_S:g} s if the gimbal turned slower",
        f"`first_rate` ({math.degrees(config.first_rate):.1f} degrees/s)",
        f"at most at {100 * config.cautious_share:g} % of the largest rate for {config.cautious_time:g} s",
        f"rolled** by more than {math.degrees(MAX_ROLL):g} degrees",
        f"by more than {math.degrees(STEEP):g} degrees",
        f"zero from {math.degrees(NADIR):g} degrees on",
        f"`kp` ({config.kp:g} per s)",
    ):
        assert stated in text


def constants_of(message: str) -> dict[str, int]:
    """The constants of a message of type uint8, by their names."""
    text = (ROOT / "msg" / f"{message}.msg").read_text(encoding="utf-8")
    return {name: int(number) for name, number in re.findall(r"^uint8 ([A-Z_]+)=(\d+)", text, flags=re.M)}


def test_the_page_on_flight_has_the_numbers_of_all_phases():
    phases = re.findall(r"^\| (\d) \| ([A-Z_]+) \|", PAGES["docs/flight.md"], flags=re.M)
    laws = {"NONE", "LINE_OF_SIGHT", "IMAGE_ONLY"}
    wanted = {name: number for name, number in constants_of("GimbalStatus").items() if name not in laws}
    assert {name: int(number) for number, name in phases} == wanted


def test_the_page_on_position_names_every_field():
    text = (ROOT / "msg" / "TargetPosition.msg").read_text(encoding="utf-8")
    fields = re.findall(r"^[a-z]\S* ([a-z_]+)\b", text, flags=re.M)
    _, table = PAGES["docs/position.md"].split("These are the fields of `position`")
    rows = re.findall(r"^\| ((?:`\w+`(?:, )?)+) \|", table.split("\n\n```")[0], flags=re.M)
    named = [name for row in rows for name in re.findall(r"\w+", row)]
    assert sorted(named) == sorted(fields)


@pytest.mark.parametrize(
    "block",
    [
        pytest.param(block, id=f"{page} {n}")
        for page, text in PAGES.items()
        for n, block in enumerate(blocks(text, "yaml"), 1)
        if "ros__parameters" in block
    ],
)
def test_parameters_in_files_that_are_shown_exist(block):
    yaml = pytest.importorskip("yaml")
    known: dict[str, set[str]] = {}
    for file in ("flight", "tracker"):
        shipped = yaml.safe_load((ROOT / "config" / f"{file}.yaml").read_text(encoding="utf-8"))
        known |= {node: set(text["ros__parameters"]) for node, text in shipped.items()}
    known["efftam_camera"] = {field.name for field in fields(CameraConfig)}
    for node, text in yaml.safe_load(block).items():
        assert set(text["ros__parameters"]) <= known[node]


def test_every_picture_is_shown_and_small():
    shown = {
        ((ROOT / page).parent / target).resolve()
        for page, text in PAGES.items()
        for target in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)
    }
    pictures = set((ROOT / "docs" / "images").iterdir())
    assert {path.name for path in pictures} == {path.name for path in shown}
    for path in pictures:
        assert path.stat().st_size < MAX_BYTES, path.name


def test_the_page_on_track_json_names_every_field():
    from efftam_ros.core.types import Track, TrackState
    from efftam_ros.tools.common.track_json import frame_record

    _, frames = PAGES["docs/track_json.md"].split("A record of `frames`:")
    named = [name for row in re.findall(r"^\| (`[^|]+)", frames, re.M) for name in re.findall(r"\w+", row)]
    assert named == list(frame_record(0, {0: Track(0, TrackState.IDLE)}))


def test_pages_that_the_code_names_exist():
    files = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True)
    for name in files.stdout.splitlines():
        path = ROOT / name
        if path.suffix in (".py", ".cu", ".xml", ".yaml", "") and path.is_file() and "engines" not in name:
            text = path.read_text(encoding="utf-8", errors="ignore")
            for page in re.findall(r"\bdocs/[a-z_]+\.md\b", text):
                assert (ROOT / page).is_file(), f"{name}: {page}"


def test_the_page_on_the_architecture_states_the_imports_that_are_checked():
    rows = re.findall(r"^\| `(\w+)` \|[^|]*\| ([^|]+) \|$", PAGES["docs/architecture.md"], flags=re.M)
    there = {path.name for path in (ROOT / "efftam_ros").iterdir() if (path / "__init__.py").is_file()}
    stated = {folder: set(re.findall(r"`([\w.]+)`", allowed)) for folder, allowed in rows if folder in there}
    assert set(stated) == there & set(ALLOWED)
    for folder, allowed in stated.items():
        if folder not in ("ros", "tools"):  # "all of these", "all but ros"
            assert allowed == ALLOWED[folder], folder


def test_faults_in_a_page_are_found():
    page = "```bash\n{}\n```\n"
    shown = ("echo 'open", "efftam track V --boxes 1 > log; efftam fly | tee x  # --no")
    broken, block = blocks("\n".join(page.format(line) for line in shown))
    assert "unexpected EOF" in bash_says(broken)
    wrong_option, wrong_command, tee = commands(block)
    assert tee == ["tee", "x"]
    assert wrong_option == ["efftam", "track", "V", "--boxes", "1"]
    assert fault_of_efftam(wrong_option).startswith("efftam track V --boxes 1 is refused")
    assert fault_of_efftam(wrong_command) == "efftam has no command 'fly'"
    assert fault_of_efftam(["efftam", "track"]) != ""  # what it must be given is missing
    assert fault_of_efftam(["efftam", "doctor", "--json"]) == ""
    pair = "efftam bag V --out B{}\nefftam replay B --out T{}\n"
    assert fault_of_bags(pair.format("", " --topic /image")).endswith("the bag has only /camera/image_raw")
    assert fault_of_bags(pair.format(" --topic /image", " --topic /image")) == ""
    assert fault_of_bags(pair.format("", "")) == ""
    assert fault_of_span("efftam bench --frame 3 --node") == "efftam bench has no --frame"
    assert fault_of_launch(["ros2", "launch", "efftam_ros", "fly.launch.py"]) != ""
    assert fault_of_launch(["ros2", "launch", "efftam_ros", "tracker.launch.py", "box:=1"]) != ""
    assert fault_of_launch(["ros2", "launch", "efftam_ros", "tracker.launch.py", "params:=mars"]) != ""
    assert (
        fault_of_launch(["ros2", "launch", "efftam_ros", "tracker.launch.py", "image_transport:=raw"]) == ""
    )
    assert fault_of_script(["./scripts/setup_everything"]) != ""
    assert fault_of_module(["python", "-m", "training", "fly"]) != ""
    assert fault_of_module(["python", "-m", "training", "evaluate", "--wings"]) != ""
    assert fault_of_module(["python", "-m", "training", "evaluate", "--clips", "4"]) == ""
    assert blocks("1. Run it:\n\n   ```bash\n   a\n     b\n   ```\n") == ["a\n  b\n"]


def test_links_between_pages_lead_somewhere():
    for page, text in PAGES.items():
        prose = re.sub(r"^```.*?^```", "", text, flags=re.S | re.M)
        for target in re.findall(r"\]\((?!https?:)([^)]+)\)", prose):
            path, _, anchor = target.partition("#")
            there = (ROOT / page).parent / path if path else ROOT / page
            assert there.exists(), f"{page}: {target}"
            if anchor:
                headings = re.findall(r"^#+ (.+)$", there.read_text(encoding="utf-8"), flags=re.M)
                slugs = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings]
                assert anchor in slugs, f"{page}: {target}"


def test_the_gpu_page_names_every_back_end():
    from efftam_ros.runtime.backends import TABLE

    for row in TABLE:
        assert f"| `{row.name}` |" in PAGES["docs/gpu.md"]
