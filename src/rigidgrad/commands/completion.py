"""`rigidgrad completion bash|zsh|fish`: a script that completes commands, options, choices, robots
and files.

It is written from the parser itself, once, so that a key press starts no Python. (argcomplete
starts one for every press; shtab knows no fish.)
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

from rigidgrad.commands.terminal import add_output, show
from rigidgrad.model.source import bundled

# an argument's name: what it may be besides its choices
WORDS: dict[str, Callable[[], tuple[str, ...]]] = {
    "robot": bundled,
    "functions": lambda: (
        "rnea",
        "aba",
        "crba",
        "minv",
        "rnea_derivatives",
        "aba_derivatives",
        "fused_gradient",
    ),
}
SUFFIXES = {"robot": ".urdf", "task": ".toml", "motion": ".npz"}
HOW = {
    "bash": 'eval "$(rigidgrad completion bash)"   # in ~/.bashrc',
    "zsh": 'eval "$(rigidgrad completion zsh)"    # in ~/.zshrc, after compinit',
    "fish": "rigidgrad completion fish | source    # in ~/.config/fish/config.fish",
}


def add_parser(commands: Any) -> None:
    """Adds the command to those of a parser."""
    parser = commands.add_parser(
        "completion",
        help="a script for shell completion",
        description="Prints a script that teaches a shell to complete this command line.",
        epilog="\n".join(HOW.values()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("shell", choices=tuple(HOW), help="the shell to write for")
    add_output(parser)
    parser.set_defaults(run=run)


def run(arguments: argparse.Namespace) -> None:
    script = {"bash": bash, "zsh": zsh, "fish": fish}[arguments.shell](
        list(described(arguments.parser))
    )
    show(arguments, {"shell": arguments.shell, "script": script}, script)


class Argument(NamedTuple):
    """An option, or a positional argument (without flags)."""

    name: str
    flags: tuple[str, ...]
    takes: bool  # whether a value follows
    words: tuple[str, ...]  # what that may be
    suffix: str | None  # of files that it may be; "" for all, None for none
    help: str


class Command(NamedTuple):
    name: str
    help: str
    arguments: list[Argument]

    @property
    def options(self) -> list[Argument]:
        return [a for a in self.arguments if a.flags]

    @property
    def positional(self) -> list[Argument]:
        return [a for a in self.arguments if not a.flags]

    @property
    def flags(self) -> list[str]:
        return [flag for a in self.options for flag in a.flags]


def described(parser: argparse.ArgumentParser) -> Iterator[Command]:
    """The commands of a parser."""
    group = next(a for a in parser._actions if isinstance(a, argparse._SubParsersAction))
    helps = {a.dest: a.help or "" for a in group._choices_actions}
    for name, sub in group.choices.items():
        yield Command(name, helps[name], [_argument(a) for a in sub._actions])


def _argument(action: argparse.Action) -> Argument:
    choices = tuple(map(str, action.choices or ())) or (
        WORDS[action.dest]() if action.dest in WORDS else ()
    )
    takes = action.nargs != 0
    suffix = SUFFIXES.get(
        action.dest, None if choices or not takes or action.type not in (None, Path) else ""
    )
    said = re.sub(r"\s+", " ", (action.help or "").replace("%%", "%"))
    return Argument(action.dest, tuple(action.option_strings), takes, choices, suffix, said)


# --- one script a shell ---------------------------------------------------------------------------


def bash(commands: list[Command]) -> str:
    cases = []
    for c in commands:
        values = [
            f"          {'|'.join(a.flags)}) {_bash_offer(a.words, a.suffix)}; return ;;"
            for a in c.options
            if a.takes
        ]
        inner = ["        case $before in", *values, "        esac"] if values else []
        words = tuple(w for a in c.positional for w in a.words)
        suffix = next((a.suffix for a in c.positional if a.suffix is not None), None)
        offer = (
            f"if [[ $now == -* ]]; then {_bash_offer(tuple(c.flags), None)}; else"
            f" {_bash_offer(words, suffix)}; fi"
        )
        cases.append("\n".join([f"      {c.name})", *inner, f"        {offer} ;;"]))
    names = " ".join(c.name for c in commands)
    return f"""\
# completion of rigidgrad for bash: {HOW["bash"]}
_rigidgrad_offer() {{ COMPREPLY=($(compgen -W "$1" -- "$now")); }}
_rigidgrad_files() {{
  local IFS=$'\\n'
  COMPREPLY+=($(compgen -d -- "$now") $(compgen -f -X "!*$1" -- "$now"))
}}
_rigidgrad() {{
  local now=${{COMP_WORDS[COMP_CWORD]}} before=${{COMP_WORDS[COMP_CWORD - 1]}}
  COMPREPLY=()
  if ((COMP_CWORD == 1)); then
    _rigidgrad_offer "{names} --help --version"
  else
    case ${{COMP_WORDS[1]}} in
{chr(10).join(cases)}
    esac
  fi
}}
complete -o filenames -F _rigidgrad rigidgrad"""


def _bash_offer(words: tuple[str, ...], suffix: str | None) -> str:
    return f'_rigidgrad_offer "{" ".join(words)}"' + (
        "" if suffix is None else f'; _rigidgrad_files "{suffix}"'
    )


def zsh(commands: list[Command]) -> str:
    names = " ".join(f"'{c.name}:{_zsh_text(c.help)}'" for c in commands)
    cases = []
    for c in commands:
        specs = []
        for a in c.options:
            spec = f"[{_zsh_text(a.help)}]" + (f":{a.name}:{_zsh_values(a)}" if a.takes else "")
            specs += [f"'{flag}{spec}'" for flag in a.flags]
        specs += [f"'*:{a.name}:{_zsh_values(a)}'" for a in c.positional[:1]]
        cases.append(f"    {c.name}) _arguments -s {' '.join(specs)} ;;")
    return f"""\
#compdef rigidgrad
# completion of rigidgrad for zsh: {HOW["zsh"]}
_rigidgrad() {{
  local -a commands=({names})
  if ((CURRENT == 2)); then
    _describe command commands
    return
  fi
  shift words
  ((CURRENT--))
  case $words[1] in
{chr(10).join(cases)}
  esac
}}
compdef _rigidgrad rigidgrad"""


def _zsh_text(text: str) -> str:
    """Without what means something to zsh in a description."""
    return re.sub(r"[`$\\]", "", text.translate(str.maketrans("'[]:", "’(),")))


def _zsh_values(a: Argument) -> str:
    words = f"({' '.join(a.words)})"
    if a.suffix is None:
        return words if a.words else " "
    files = f'_files -g "*{a.suffix}(-.)"' if a.suffix else "_files"
    # the blank before it: without further arguments
    return (
        f' _alternative "{a.name}:{a.name}:{words}"'
        f' "files:file:{files.replace(chr(34), chr(92) + chr(34))}"'
        if a.words
        else files
    )


def fish(commands: list[Command]) -> str:
    lines = [f"# completion of rigidgrad for fish: {HOW['fish']}", "complete -c rigidgrad -f"]
    for c in commands:
        lines.append(
            f"complete -c rigidgrad -n __fish_use_subcommand -a {c.name} -d {_fish_text(c.help)}"
        )
        seen = f"complete -c rigidgrad -n '__fish_seen_subcommand_from {c.name}'"
        for a in c.options:
            flags = " ".join(
                f"-l {f[2:]}" if f.startswith("--") else f"-s {f[1:]}" for f in a.flags
            )
            values = " -x" if a.takes and a.suffix is None else " -r -F" if a.takes else ""
            values += f" -a '{' '.join(a.words)}'" if a.words else ""
            lines.append(f"{seen} {flags}{values} -d {_fish_text(a.help)}")
        for a in c.positional:
            offers = [" ".join(a.words)] if a.words else []
            offers += [f"(__fish_complete_suffix {a.suffix})"] if a.suffix else []
            if offers:
                lines.append(f"{seen} -a '{' '.join(offers)}'")
    return "\n".join(lines)


def _fish_text(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"
