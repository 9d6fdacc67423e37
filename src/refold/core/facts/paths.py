"""Paths in text: POSIX, home and Windows ones, relative ones that end in a file name, in any script.

A path in Chinese, Japanese or Korean prose has no blank on either side, so where a run of letters changes script
decides: `打开/etc/hosts文件` holds `/etc/hosts`, and `/数据/报告.pdf` is whole.
"""

import re
from collections.abc import Iterator
from typing import Final

from refold.core.facts.prepare import CJK
from refold.core.facts.words import words

_EXTENSIONS: Final = words(
    """
    astro bash bat bib bin bmp bz2 c cc cfg class clj cmake cmd conf cpp crt cs css csv cxx dart db deb diff dll doc
    docx dockerfile dylib el env epub erl ex exe exs fish gem gif go gql gradle graphql groovy gz h hcl hpp hs htm
    html ico ini ipynb jar java jl jpeg jpg js json json5 jsonl jsx kt kts less lock log lua m4a map markdown md mdx
    mjs mjsx cjs mk ml mov mp3 mp4 mpg nix npy npz odt ogg onnx out parquet patch pb pdf pem php pkl pl plist png po
    ppt pptx properties proto ps1 psd pt pub py pyc pyd pyi pyx r rar rb rmd rpm rs rst rtf sass scala scss sh so
    sol sql sqlite sqlite3 srt sum svelte svg swift tar tex tf tfvars tgz tif tiff toml ts tsv tsx ttf txt vb vim
    vtt vue wasm wav webm webp whl woff woff2 xls xlsx xml xsd xz yaml yml zig zip zst zsh traj
    """
)
_ROOTS: Final = words(
    """
    app bin boot code data dev etc home lib mnt opt private proc repo root run sbin srv sys testbed tmp Users usr var
    Volumes workspace Applications Library media project projects
    """
)
_NAMES: Final = words(
    """
    Makefile Dockerfile Containerfile Jenkinsfile Vagrantfile Procfile Gemfile Rakefile Justfile CMakeLists.txt LICENSE
    NOTICE CODEOWNERS go.mod go.sum .gitignore .gitattributes .dockerignore .env .envrc .npmrc .editorconfig .bashrc
    .zshrc .profile .flake8 .pylintrc .prettierrc .eslintrc .nvmrc .python-version authorized_keys id_rsa
    """
)
# Names that look like files and are products or calls.
_NOT_FILES: Final = words(
    "node.js next.js vue.js nuxt.js react.js express.js three.js d3.js angular.js backbone.js ember.js deno.js "
    "chart.js console.log process.env math.log import.meta.env asp.net logger.log"
)
_JOINERS: Final = frozenset("和与及或到在里中的 と や の を に は 와 과 및 로 에".replace(" ", ""))

_PLAIN: Final = rf"[A-Za-z0-9_.@+~%$\-{CJK}]"
_SEGMENT: Final = rf"(?:{_PLAIN}|\[[A-Za-z0-9_.\-]{{1,40}}\]|\([A-Za-z0-9_.\-]{{1,40}}\))++"
_POSIX: Final = re.compile(rf"(?<![A-Za-z0-9_.@+~%$\-/\\{CJK}])(?:~?/)?+{_SEGMENT}(?:/{_SEGMENT})*+/?+(?![(\\])")
_DRIVE: Final = re.compile(
    rf"(?<![A-Za-z0-9])[A-Za-z]:(?:\\++|/)(?:[A-Za-z0-9_.@+~%$()\-{CJK}]++(?:\\++|/))*+[A-Za-z0-9_.@+~%$()\-{CJK}]*+"
)
_BACKSLASHED: Final = re.compile(
    rf"(?<![A-Za-z0-9_.\\:{CJK}])(?:[A-Za-z0-9_.@+~\-]++\\{{1,2}}){{1,30}}[A-Za-z0-9_.@+~\-]++"
)
_WITH_BLANKS: Final = re.compile(r"[\"'`]((?:~?/|[A-Za-z]:\\)[^\"'`\n<>|*?]{1,200}\.[A-Za-z0-9]{1,8})[\"'`]")
_CONTEXT_LINE: Final = re.compile(r"(\.[A-Za-z]{1,8})-\d{1,7}-[^/]{0,400}$")
"""What `grep -A` prints between a file name and the line."""
_CJK_RUN: Final = re.compile(f"[{CJK}]")
_EXTENSION: Final = re.compile(r"\.([A-Za-z][A-Za-z0-9]{0,9})$")
_EXTENSION_BEFORE_CJK: Final = re.compile(rf"^(.*?\.[A-Za-z0-9]{{1,8}})[{CJK}]")


def take_quoted_paths(text: str) -> tuple[str, list[str]]:
    """Absolute paths with blanks in them, which only quotation marks tell from prose; and the text without them."""
    paths: list[str] = []

    def take(match: re.Match[str]) -> str:
        if " " not in match[1]:
            return match[0]
        paths.append(match[1])
        return " "

    return _WITH_BLANKS.sub(take, text), paths


def paths_in(token: str) -> Iterator[str]:
    """The paths of a token (a run of text without blanks or quotation marks), normalised."""
    if "\\" in token:
        for pattern in (_DRIVE, _BACKSLASHED):
            for match in pattern.finditer(token):
                if (path := _windows(match[0])) is not None:
                    yield path
            token = pattern.sub(" ", token)
    elif ":/" in token:
        for match in _DRIVE.finditer(token):
            yield match[0].rstrip(".")
        token = _DRIVE.sub(" ", token)
    if (name := token.strip("()[]{}*.:!?")) in _NAMES:
        yield name
    elif "/" in token or "." in token:
        for match in _POSIX.finditer(token):
            yield from _posix(match[0])


def path_key(path: str) -> str:
    """The spelling under which a path is known: no leading `./`, no trailing slash, single backslashes."""
    path = re.sub(r"\\{2,}", r"\\", path)
    while path.startswith("./"):
        path = path[2:]
    return path.rstrip("/\\") or path


def _windows(match: str) -> str | None:
    path = re.sub(r"\\{2,}", r"\\", match).rstrip(".)")
    name = path.rsplit("\\", 1)[-1]
    if path[1:2] == ":":
        return path
    return path if _known_extension(name) else None


def _posix(match: str) -> Iterator[str]:
    for piece in _split_scripts(match):
        path = _unbalanced(piece.rstrip(".,:;!?~")) if not piece.endswith("/..") else piece
        path = _CONTEXT_LINE.sub(r"\1", path)
        if path and _is_path(path):
            yield path_key(path)


def _split_scripts(path: str) -> Iterator[str]:
    """Cuts prose off a path where it changes to or from Han, Kana or Hangul."""
    if not _CJK_RUN.search(path):
        yield path
        return
    segments = path.split("/")
    if segments[0] and _CJK_RUN.match(segments[0]):
        segments[0] = re.sub(rf"^[{CJK}]+(?=[A-Za-z0-9_.~])", "", segments[0])
        if len(segments) > 1 and _CJK_RUN.match(segments[0]) and not _CJK_RUN.match(segments[1]):
            segments[0] = ""  # prose, then an absolute path
    start = 0
    for number, segment in enumerate(segments):
        is_last = number == len(segments) - 1
        cut = _cut_of(segment, is_last=is_last)
        if cut is None:
            continue
        yield "/".join([*segments[start:number], segment[:cut]] if cut else segments[start:number])
        start = number + 1
        if not is_last:
            segments[start - 1] = ""
            start -= 1
        else:
            return
    yield "/".join(segments[start:])


def _cut_of(segment: str, *, is_last: bool) -> int | None:
    """Where prose begins in a segment; None when the segment is whole."""
    han = _CJK_RUN.search(segment)
    if han is None:
        return None
    if is_last:
        if (match := _EXTENSION_BEFORE_CJK.match(segment)) is not None:
            return match.end(1)
        if _EXTENSION.search(segment):
            return None
        return han.start()
    tail = segment[han.start() :]
    return han.start() if han.start() > 0 and len(tail) <= 2 and all(char in _JOINERS for char in tail) else None


def _unbalanced(path: str) -> str:
    for opening, closing in ("()", "[]"):
        while path.endswith(closing) and path.count(opening) < path.count(closing):
            path = path[:-1]
    return path


def _is_path(path: str) -> bool:
    segments = path.strip("/").split("/")
    name = segments[-1]
    if "$" in path or any(segment.startswith("...") for segment in segments):
        return False
    if path.startswith(("/", "~/")):
        if "" in segments or path.startswith("//"):
            return False
        deep = len(segments) > 1 and len(path) > 5
        return deep or (segments[0] in _ROOTS and len(path) > 4) or _known_extension(name)
    if len(segments) == 1:
        return _is_file_name(name) and not path.endswith("/")
    if "" in segments:
        return False
    if path.startswith(("./", "../")):
        return any(char.isalpha() for char in path)
    if name in _NAMES or _known_extension(name):
        return True
    extension = _EXTENSION.search(name)
    return extension is not None and extension[1].islower() and len(extension[1]) > 1 and "." not in segments[0]


def _is_file_name(name: str) -> bool:
    if name in _NAMES:
        return True
    if not _known_extension(name) or name.lower() in _NOT_FILES:
        return False
    stem = name.rsplit(".", 1)[0]
    extension = name.rsplit(".", 1)[1]
    if len(extension) == 1 and (len(stem) < 3 or stem in {"self", "this", "cls"}):
        return False
    return any(char.isalnum() for char in stem) and "@" not in name and "$" not in name and not name.startswith("%")


def _known_extension(name: str) -> bool:
    match = _EXTENSION.search(name)
    return match is not None and match[1].lower() in _EXTENSIONS and match.start() > 0
