"""What the scripted agent of `record_session.py` does: the questions, and the replies computed from real results."""

import re
from collections.abc import Generator, Iterator
from itertools import islice
from typing import TypeAlias

from langchain_core.messages import AIMessage

ROOT = "/repo"
"""Where the tools say that the files are."""

Script: TypeAlias = Generator[AIMessage, list[str], None]
"""Yields replies of the model; is sent the results of the calls in each."""


class Tour:
    """What the scripted agent knows while it walks: the files, what it found, the calls that it made."""

    def __init__(self, files: list[str], reading_budget: int) -> None:
        self.files = files
        self.reading_budget = reading_budget
        self.calls = 0
        self.facts: dict[str, list[str]] = {}  # package -> claims with path and line
        self.claims: list[tuple[str, int, str]] = []  # path, line, text of the line

    def reply(self, text: str, *calls: tuple[str, dict[str, object]], thought: str = "") -> AIMessage:
        """A reply with its reasoning, its text and its parallel calls."""
        made = []
        for name, args in calls:
            self.calls += 1
            made.append({"name": name, "args": args, "id": f"call_{self.calls:04}", "type": "tool_call"})
        if not thought:
            return AIMessage(text, tool_calls=made)
        reasoning: dict[str, object] = {"type": "reasoning", "reasoning": thought}
        return AIMessage([reasoning, *([{"type": "text", "text": text}] if text else [])], tool_calls=made)

    def modules(self) -> list[str]:
        return [name for name in self.files if name.startswith("src/") and name.endswith((".py", ".sql"))]

    def packages(self) -> dict[str, list[str]]:
        """Source files by folder."""
        found: dict[str, list[str]] = {}
        for name in self.modules():
            found.setdefault(name.rpartition("/")[0], []).append(name)
        return found


def turns(tour: Tour) -> Iterator[tuple[str, Script]]:
    """What the user says, and how the agent works on it."""
    yield (
        "请通读这个仓库，按包写一份导览，放在 /repo/notes 下面，每个包一个文件。要求：\n"
        "1. 每条结论都要写出路径和行号；\n2. 不要修改 /repo/notes 以外的任何文件；\n"
        "3. 代码里的标识符保持英文，说明用中文；\n4. 先列计划，再动手。\n"
        "Please also tell me which licence it has and which Python it needs.",
        survey(tour),
    )
    yield (
        "Here is the log of a failed run on our side. Which of these lines can come from the code in this repository, "
        "and from where? Do not guess, search.\n\n" + pasted_log(tour),
        search_log(tour),
    )
    yield (
        "把每个包里最长的函数找出来，逐个看一遍，说明它们为什么长，记到 /repo/notes/long-functions.md。",
        long_functions(tour),
    )
    yield (
        "Now the errors: list every exception class, where it is raised, and what a caller should do. "
        "Put the table into /repo/notes/errors.md. From now on keep answers under 200 words.",
        errors(tour),
    )
    yield ("最后核对一遍，按下面的会议纪要来做。\n\n" + pasted_minutes(tour), verify(tour))
    yield ("谢谢。用三句话总结：这个仓库解决什么问题，从哪个文件读起，许可证是什么？", summary(tour))


def survey(tour: Tour) -> Script:
    plan = ["看目录和元数据", *(f"阅读 {package}" for package in tour.packages()), "汇总"]
    yield tour.reply("先列计划。", todos(plan, 0), thought="用户要按包写导览。先看目录、许可证和依赖，再逐包阅读。")
    yield tour.reply(
        "",
        ("list_files", {"path": ROOT, "depth": 2}),
        ("read_file", {"path": f"{ROOT}/LICENSE"}),
        ("read_file", {"path": f"{ROOT}/pyproject.toml", "lines": 200}),
        thought="These three do not depend on each other, so I ask for them at once.",
    )
    yield tour.reply("Let me see whether there is a list of changes.", ("read_file", {"path": f"{ROOT}/CHANGES.txt"}))
    yield tour.reply("没有这个文件，继续。先数一数规模。", ("run_python", {"code": COUNT_LINES}))
    read = 0
    for number, (package, names) in enumerate(tour.packages().items(), 1):
        for group in groups(names):
            if read > tour.reading_budget:
                break
            calls = [("read_file", {"path": f"{ROOT}/{name}", "lines": 110}) for name in group]
            results = yield tour.reply(remark(tour, package, group), *calls, thought=intent(package, group))
            read += sum(map(len, results))
            for name, result in zip(group, results, strict=True):
                note_facts(tour, package, name, result)
        yield tour.reply(
            f"{package} 读完，写下来。", ("write_note", {"path": note_path(package), "text": note_text(tour, package)})
        )
        yield tour.reply("", todos(plan, number + 1))
    licence, python = yield tour.reply(
        "汇总之前再确认两件事。",
        ("grep", {"pattern": r"^MIT License|Apache License|GNU ", "path": ROOT, "limit": 5}),
        ("grep", {"pattern": "requires-python", "path": ROOT, "limit": 5}),
    )
    yield tour.reply("", todos(plan, len(plan)))
    yield tour.reply(
        f"导览写好了，共 {len(tour.facts)} 个包，{len(tour.claims)} 条结论，都在 /repo/notes 下。\n\n"
        f"Licence: {first_line(licence)}\nPython: {first_line(python)}"
    )


def search_log(tour: Tour) -> Script:
    phrases = ["cannot be made to fit", "does not match its hash", "another writer", "known formats", "stands? there"]
    for at, phrase in enumerate(phrases):
        yield tour.reply(
            f"Line group {at + 1}: searching for the words, not for the numbers.",
            ("grep", {"pattern": phrase, "path": f"{ROOT}/src", "limit": 12}),
            ("grep", {"pattern": phrase, "path": f"{ROOT}/tests", "limit": 12}),
            thought=f"The log repeats “{phrase}” with other numbers; only the words can stand in code.",
        )
    failed = yield tour.reply(
        "One line is a Python error. I try whether the expression in it fails the same way.",
        ("run_python", {"code": "budget = 0\nprint('budget', budget)\nprint(1200 / budget)\n"}),
    )
    [divisions] = yield tour.reply(
        f"It does: {failed[0].splitlines()[-2]}. Is there such a division here?",
        ("grep", {"pattern": r"[^/]/ ?budget\b", "path": f"{ROOT}/src", "limit": 20}),
    )
    count = 0 if divisions == "no match" else len(divisions.splitlines())
    yield tour.reply(
        "The lines about fitting, hashes, writers and formats have their text in src (paths above). The "
        f"`billing-worker` lines have not. Divisions by a name `budget` in src: {count}; whether one of them is meant, "
        "the log does not say."
    )


def long_functions(tour: Tour) -> Script:
    plan = ["统计函数长度", "逐个阅读", "写笔记", "补充说明"]
    yield tour.reply("", todos(plan, 0), thought="统计要用 ast，数行不可靠：装饰器、多行签名都要算对。")
    [table] = yield tour.reply("用 ast 统计。", ("run_python", {"code": LONGEST}))
    rows = [line.split("\t") for line in table.splitlines() if line.count("\t") == 3]
    yield tour.reply("", todos(plan, 1))
    lines = ["# 最长的函数", "", "| 行数 | 位置 | 函数 |", "|---:|---|---|"]
    for at, (length, path, start, name) in enumerate(rows):
        [page] = yield tour.reply(
            f"第 {at + 1} 个：`{name}`，{length} 行。" if at % 2 else f"Number {at + 1}: `{name}`, {length} lines.",
            ("read_file", {"path": f"{ROOT}/{path}", "start": int(start), "lines": int(length)}),
        )
        branches = len(re.findall(r"\b(?:if|elif|case|except|for|while)\b", page))
        lines.append(f"| {length} | {path}:{start} | `{name}`，分支 {branches} 处 |")
        tour.claims.append((path, int(start), name))
    note = f"{ROOT}/notes/long-functions.md"
    text = "\n".join(lines)
    yield tour.reply("写笔记。", ("write_note", {"path": note, "text": text}))
    yield tour.reply("补上说明。", ("edit_note", {"path": note, "old": "# 函数长度", "new": "# 最长的函数（按包）"}))
    reason = "# 最长的函数\n\n“分支”一列数的是 if、elif、case、except、for、while 出现的次数，字符串里的也算在内。"
    yield tour.reply(
        "标题记错了，按原文再改一次。", ("edit_note", {"path": note, "old": "# 最长的函数", "new": reason})
    )
    yield tour.reply("", todos(plan, 4))
    yield tour.reply(f"共看了 {len(rows)} 个函数，记在 {note}。最长的是 `{rows[0][3]}`（{rows[0][1]}:{rows[0][2]}）。")


def errors(tour: Tour) -> Script:
    [found] = yield tour.reply(
        "",
        ("grep", {"pattern": r"^class \w+Error\b", "path": f"{ROOT}/src", "limit": 80}),
        thought="One grep finds the classes.",
    )
    names = re.findall(r"^(\S+):(\d+): class (\w+)", found, re.MULTILINE)
    table = ["# Errors", "", "| class | defined | raised |", "|---|---|---|"]
    for path, line, name in names[:32]:
        raised, tested = yield tour.reply(
            f"`{name}`: where is it raised, and which test expects it?",
            ("grep", {"pattern": rf"raise {name}\b", "path": f"{ROOT}/src", "limit": 15}),
            ("grep", {"pattern": rf"\b{name}\b", "path": f"{ROOT}/tests", "limit": 8}),
        )
        places = ", ".join(
            hit.split(": ")[0].removeprefix(f"{ROOT}/") for hit in raised.splitlines()[:4] if ": " in hit
        )
        tests = "tested" if tested != "no match" else "no test names it"
        table.append(f"| `{name}` | {path.removeprefix(ROOT + '/')}:{line} | {places or 'nowhere by name'}; {tests} |")
        tour.claims.append((path.removeprefix(f"{ROOT}/"), int(line), name))
    yield tour.reply("", ("write_note", {"path": f"{ROOT}/notes/errors.md", "text": "\n".join(table)}))
    half = len(table) // 2 + 2
    marked = [*table[3:half], f"| (first half, {half - 3} classes, marked) | | |"]
    yield tour.reply(
        "I mark the first half of the table.",
        ("edit_note", {"path": f"{ROOT}/notes/errors.md", "old": "\n".join(table[3:half]), "new": "\n".join(marked)}),
    )
    yield tour.reply(
        f"{len(names)} classes, table in /repo/notes/errors.md. A caller should catch the one base class, and read the "
        "attributes instead of the text."
    )


def verify(tour: Tour) -> Script:
    [listing] = yield tour.reply(
        "先把自己的笔记读回来，再抽查。",
        ("list_files", {"path": f"{ROOT}/notes", "depth": 1}),
        thought="纪要要求逐包核对。笔记是我写的，但不能凭记忆，要按文件里的原文来查。",
    )
    notes = [line.split(" ")[0] for line in listing.splitlines()]
    for at in range(0, len(notes), 3):
        names = notes[at : at + 3]
        yield tour.reply(
            "读回：" + "、".join(name.rpartition("/")[2] for name in names) + "。",
            *(("read_file", {"path": name, "lines": 60}) for name in names),
        )
    picked = tour.claims[:: max(1, len(tour.claims) // 24)][:24]
    wrong = 0
    for at in range(0, len(picked), 2):
        pair = picked[at : at + 2]
        pages = yield tour.reply(
            "、".join(f"{path}:{line}" for path, line, _ in pair),
            *(
                ("read_file", {"path": f"{ROOT}/{path}", "start": max(1, line - 3), "lines": 8})
                for path, line, _ in pair
            ),
        )
        wrong += sum(text[:40] not in page for (_, _, text), page in zip(pair, pages, strict=True))
    yield tour.reply(
        "把核对结果也记下来。",
        (
            "write_note",
            {"path": f"{ROOT}/notes/check.md", "text": f"# 核对\n\n抽查 {len(picked)} 条，行号不符 {wrong} 条。"},
        ),
    )
    yield tour.reply(f"抽查了 {len(picked)} 条结论，{wrong} 条行号不符。")


def summary(tour: Tour) -> Script:
    [notes] = yield tour.reply("", ("list_files", {"path": f"{ROOT}/notes", "depth": 1}))
    yield tour.reply(
        "它让长时间运行的 LangGraph agent 不超出上下文窗口，检查点只按新增内容增长，并且不丢任何内容。"
        "从 /repo/src/refold/errors.py 和 /repo/src/refold/core/messages.py 读起。许可证是 MIT"
        f"（/repo/LICENSE:1）。笔记共 {len(notes.splitlines())} 个文件。"
    )


# --- what the agent says -----------------------------------------------------------------------------------------


def todos(plan: list[str], done: int) -> tuple[str, dict[str, object]]:
    states = ["completed" if at < done else "in_progress" if at == done else "pending" for at in range(len(plan))]
    items = [{"content": content, "status": status} for content, status in zip(plan, states, strict=True)]
    return "write_todos", {"todos": items}


def groups(names: list[str]) -> Iterator[list[str]]:
    """Files in the order of the listing, two or three at once where an engineer would ask for them together."""
    pending = iter(names)
    size = 1
    while group := list(islice(pending, size)):
        yield group
        size = size % 3 + 1


def intent(package: str, group: list[str]) -> str:
    names = "、".join(name.rpartition("/")[2] for name in group)
    if len(group) > 1:
        return f"{package} 里的 {names} 互不依赖，一次读完；重点看模块说明、公开的类和函数。"
    return f"Next is {names} in {package}: its promise first, then what it leaves to its callers."


def remark(tour: Tour, package: str, group: list[str]) -> str:
    """A remark on what was read last, in the two languages by turns."""
    facts = tour.facts.get(package, [])
    if not facts:
        return f"开始读 {package} 这个包，先看它的说明。" if len(package) % 2 else f"Now {package}."
    if len(facts) % 2:
        return f"到这里 {package} 记了 {len(facts)} 条，最近一条：{facts[-1]}。接着往下读。"
    return f"Noted so far in {package}: {len(facts)} points; the last is {facts[-1]}"


def note_facts(tour: Tour, package: str, name: str, page: str) -> None:
    """Claims from a page: what the module says of itself, and its public classes and functions."""
    facts = tour.facts.setdefault(package, [])
    for number, line in re.findall(r"^ *(\d+)\t(.*)$", page, re.MULTILINE):
        at = int(number)
        if match := re.match(r'"""(.+?)(?:"""|$)', line):
            if at <= 2:
                facts.append(f"{name}:{at} 是模块说明，原文为“{match[1].strip()}”")
                tour.claims.append((name, at, match[1].strip()))
        elif match := re.match(r"(class|def|async def) ([A-Za-z]\w*)", line):
            kind = "类" if match[1] == "class" else "函数"
            facts.append(f"{name}:{at} 定义了公开的{kind} `{match[2]}`")
            tour.claims.append((name, at, match[2]))


def note_path(package: str) -> str:
    return f"{ROOT}/notes/{package.removeprefix('src/').replace('/', '-')}.md"


def note_text(tour: Tour, package: str) -> str:
    facts = tour.facts.get(package, [])
    body = "\n".join(f"- {fact}" for fact in facts) or "- 本轮没有读到这个包，留待以后。"
    return f"# {package}\n\n读到 {len(facts)} 条。行号以读取时为准。\n\n{body}\n"


def first_line(text: str) -> str:
    return text.splitlines()[0] if text else "not found"


def pasted_minutes(tour: Tour) -> str:
    """Minutes of a meeting, as a user would paste them: long and in Chinese."""
    rules = (
        "笔记里的每一条结论都要能在原文件里找到，找不到的删掉，不要改成更含糊的说法。",
        "行号以现在的文件为准；如果文件后来变了，就写新的行号，不要保留旧的。",
        "数字要带单位，例如字节、毫秒、条；百分比要写清楚分母是什么。",
        "不要评价写代码的人，只写代码做了什么、保证了什么、没有保证什么。",
        "遇到看不懂的地方写“没看懂”，并写出是哪一行，不要猜。",
        "英文标识符、路径、命令一律照抄，不翻译，也不加空格。",
        "同一件事只写一次，写在最先用到它的那个包里，别处用路径指过去。",
    )
    lines = [
        "会议纪要（节选）",
        "",
        "一、规则",
        *(f"{number}. {rule}" for number, rule in enumerate(rules, 1)),
        "",
        "二、各包",
    ]
    for number, (package, names) in enumerate(tour.packages().items(), 1):
        lines.append(
            f"{number}. {package}：共 {len(names)} 个文件。请确认笔记里写到了它对外承诺什么、出错时抛出什么、"
            f"以及哪些情况留给调用方处理；第一个要看的文件是 {names[0]}。"
        )
    return "\n".join([*lines, "", "三、时间", "今天之内完成；来不及的部分写明剩下哪些，不要省略。"])


def pasted_log(tour: Tour) -> str:
    """A log as a user would paste it: long, repetitive, partly in Chinese, with lines of more than one program."""
    shapes = (
        "{t} ERROR agent the window cannot be made to fit (tokens: limit {a}, reserved for output {b}, messages {c})",
        "{t} WARN  saver 线程 {b} 的检查点写入变慢：{a} ms，队列里还有 {c} 条",
        "{t} ERROR saver a stored value does not match its hash: blob {c:08x}, expected {a:08x}",
        "{t} INFO  billing-worker invoice {a} for tenant {b} queued, 金额 {c} 元",
        "{t} ERROR saver another writer extended thread t-{b} first: built on {a}, found {c}",
        "{t} INFO  agent 第 {b} 轮：输入 {a} tokens，缓存命中 {c} tokens",
    )
    lines = []
    for at in range(96):
        a, b, c = (at * 7919 + 4096) % 131072, at % 17 + 1, (at * 104729 + 77) % 99991
        time = f"2026-03-14T09:{at // 60 + 26:02}:{at % 60:02}Z"
        lines.append(shapes[at % len(shapes)].format(t=time, a=a, b=b, c=c))
    lines.insert(
        60,
        'Traceback (most recent call last):\n  File "worker.py", line 88, in step\nZeroDivisionError: division by zero',
    )
    return "\n".join([f"# {len(tour.files)} files in our checkout", *lines])


COUNT_LINES = """from collections import Counter
from pathlib import Path

lines = Counter()
files = Counter()
for path in sorted(Path(".").rglob("*.py")):
    top = "/".join(path.parts[:3])
    files[top] += 1
    lines[top] += len(path.read_text(encoding="utf-8").splitlines())
for top in sorted(lines):
    print(f"{lines[top]:7} lines {files[top]:4} files  {top}")
print(f"{sum(lines.values()):7} lines {sum(files.values()):4} files")
"""

LONGEST = """import ast
from pathlib import Path

best = {}
for path in sorted(Path("src").rglob("*.py")):
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            length = node.end_lineno - node.lineno + 1
            best.setdefault(str(path.parent), []).append((length, path.as_posix(), node.lineno, node.name))
for package in sorted(best):
    for length, path, line, name in sorted(best[package], reverse=True)[:2]:
        print(length, path, line, name, sep="\\t")
"""
