"""Tasks about tables and records: CSV, JSON, key and value."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Mapping
from random import Random
from typing import Any

from gem_core._util.foreign_json import read_json
from gem_envs._drawn import PEOPLE, PLACES, THINGS
from gem_envs._terminal.task import Condition, End, TerminalTask, has_lines, task, texts, unchanged


def has_json(path: str, expected: Any) -> Condition:
    """Return the condition that a file has this JSON value, in any formatting."""

    def check(end: End) -> bool:
        return same_json(read_json(end.text(path) or ""), expected)

    return Condition(f"the value in {path}", check)


def same_json(value: Any, expected: Any) -> bool:
    """Return whether two values of JSON are the same; true is not 1, and 1.0 is."""
    if isinstance(value, dict) and isinstance(expected, dict):
        return value.keys() == expected.keys() and all(same_json(value[key], expected[key]) for key in value)
    if isinstance(value, list) and isinstance(expected, list):
        return len(value) == len(expected) and all(map(same_json, value, expected))
    return bool(value == expected) and isinstance(value, bool) == isinstance(expected, bool)


def python(program: str) -> str:
    """Return a command that runs a Python program."""
    return f"python3 - <<'END'\n{program.strip()}\nEND"


def table(header: str, rows: list[Any]) -> str:
    """Return rows as CSV."""
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows([header.split(","), *rows])
    return text.getvalue()


@task
def totals(random: Random) -> TerminalTask:
    """Add up orders by customer, without canceled ones."""
    people = random.sample(PEOPLE, 4)
    rows: list[list[Any]] = [
        [number, random.choice(people), random.randint(-20, 90), random.choice(["paid", "paid", "cancelled"])]
        for number in range(100, 118)
    ]
    rows += [[200 + n, person, 10 + n, "paid"] for n, person in enumerate(people)]
    rows += [[210, people[0], 77, "cancelled"], [211, people[1], -33, "paid"]]
    sums = {p: sum(int(r[2]) for r in rows if r[1] == p and r[3] == "paid") for p in people}
    files = texts({"orders.csv": table("order,customer,amount,state", rows)})
    program = """
import csv, json
sums = {{}}
for row in csv.DictReader(open("orders.csv")):
    if {}:
        sums[row["customer"]] = sums.get(row["customer"], 0) + int(row["amount"])
json.dump(sums, open("totals.json", "w"))
"""
    return TerminalTask(
        "orders.csv has the columns order, customer, amount and state. Write totals.json: one JSON "
        "object with, for each customer, the sum of the amounts of the orders whose state is paid, as a "
        "number. Some amounts are negative; they count as well.",
        files,
        (has_json("totals.json", sums), unchanged(files)),
        python(program.format('row["state"] == "paid"')),
        (
            python(program.format("True")),
            python(program.format('row["state"] == "paid" and int(row["amount"]) > 0')),
        ),
    )


@task
def join(random: Random) -> TerminalTask:
    """Join two tables by a key."""
    things = random.sample(THINGS, 6)
    prices = {
        f"p{random.randint(100, 999)}{n}": (thing, random.randint(2, 60)) for n, thing in enumerate(things)
    }
    codes = [*prices, "p000"]
    sales: list[Any] = [
        [number, random.choice(codes), random.randint(1, 9)] for number in random.sample(range(10, 99), 12)
    ]
    sales += [[5, "p000", 2], [7, codes[0], 3]]
    totals = [[n, prices[c][0], k * prices[c][1]] for n, c, k in sorted(sales) if c in prices]
    files = texts({
        "products.csv": table("code,name,price", [[code, *rest] for code, rest in prices.items()]),
        "sales.csv": table("sale,code,pieces", sales),
    })  # fmt: skip
    program = """
import csv
products = {{row["code"]: row for row in csv.DictReader(open("products.csv"))}}
with open("sold.csv", "w") as out:
    print("sale,name,total", file=out)
    for row in sorted(csv.DictReader(open("sales.csv")), key=lambda row: int(row["sale"]) * {}):
        product = products.get(row["code"], {})
        if product:
            print(row["sale"], product["name"], int(row["pieces"]) * int(product["price"]), sep=",", file=out)
"""
    return TerminalTask(
        "products.csv has the columns code, name and price, sales.csv the columns sale, code and pieces. "
        "Write sold.csv with the header sale,name,total and a line for each sale: its number, the name "
        "of the product, and pieces times price. The lines are in the order of the numbers of the sales. "
        "Sales of a code that products.csv does not have are left out.",
        files,
        (has_lines("sold.csv", *table("sale,name,total", totals).splitlines()), unchanged(files)),
        python(program.format(1, "None")),
        (python(program.format(0, "None")), python(program.format(1, '{"name": "", "price": "0"}'))),
    )


def _flat(value: Any, path: tuple[str, ...] = ()) -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {".".join(path): value}
    return {name: leaf for key, inner in value.items() for name, leaf in _flat(inner, (*path, key)).items()}


@task
def flatten_settings(random: Random) -> TerminalTask:
    """Flatten a nested object into lines of keys and values."""
    parts = random.sample(THINGS, 6)
    settings: dict[str, Any] = {
        parts[0]: random.randrange(99),
        parts[1]: {parts[2]: random.choice(PLACES), "size": random.randrange(9), "deep": {parts[3]: True}},
        parts[4]: {"on": False, parts[5]: {"a": random.choice(PEOPLE), "b": 0}},
    }
    files = texts({"settings.json": json.dumps(settings, indent=1)})
    lines = sorted(
        f"{key}={json.dumps(v) if not isinstance(v, str) else v}" for key, v in _flat(settings).items()
    )
    program = """
import json
def flat(value, path):
    if isinstance(value, dict):
        for key, inner in value.items():
            yield from flat(inner, path + [key])
    else:
        yield ".".join(path) + "=" + ({})
print(*sorted(flat(json.load(open("settings.json")), [])), sep="\\n", file=open("settings.txt", "w"))
"""
    return TerminalTask(
        "Write the JSON object in settings.json to settings.txt as lines of the form path=value, where "
        "the path is made of the keys from the outside in with dots between them. Texts stand without "
        "quotes; true, false and numbers as they are in JSON. Sort the lines by the order of the "
        "alphabet.",
        files,
        (has_lines("settings.txt", *lines), unchanged(files)),
        python(program.format("value if isinstance(value, str) else json.dumps(value)")),
        (python(program.format("str(value)")), python(program.format("json.dumps(value)"))),
    )


@task
def select_events(random: Random) -> TerminalTask:
    """Select and change some records of a stream."""
    levels = ["debug", "info", "warning", "error"]
    events = []
    for number in range(16):
        event: dict[str, Any] = {
            "id": number,
            "level": random.choice(levels),
            "host": random.choice(PLACES[:4]),
        }
        if random.random() < 0.7:
            event["ms"] = random.randint(1, 900)
        events.append(event)
    events += [
        {"id": 90, "level": "error", "host": PLACES[0]},
        {"id": 91, "level": "warning", "host": "x", "ms": 5},
    ]
    events += [{"id": 92, "level": "info", "host": "x", "ms": 800}]
    random.shuffle(events)
    kept = [
        {"id": event["id"], "machine": event["host"], "ms": event.get("ms", 0)}
        for event in events
        if event["level"] in ("warning", "error")
    ]
    files = texts({"events.jsonl": "".join(json.dumps(event) + "\n" for event in events)})
    program = """
import json
with open("alarms.jsonl", "w") as out:
    for line in open("events.jsonl"):
        event = json.loads(line)
        if event["level"] in {}:
            alarm = {{"id": event["id"], "machine": event["host"], "ms": event.get("ms"{})}}
            print(json.dumps(alarm), file=out)
"""

    def check(end: End) -> bool:
        return same_json([read_json(line) for line in end.lines("alarms.jsonl") or []], kept)

    return TerminalTask(
        "events.jsonl has one JSON object a line. Write alarms.jsonl in the same form with the events "
        "whose level is warning or error, in the order in which they come. Each has exactly three keys: "
        "id; machine, which is the host of the event; and ms, which is 0 where the event has none.",
        files,
        (Condition("the records in alarms.jsonl", check), unchanged(files)),
        python(program.format('("warning", "error")', ", 0")),
        (python(program.format('("error",)', ", 0")), python(program.format('("warning", "error")', ""))),
    )


@task
def reject_rows(random: Random) -> TerminalTask:
    """Separate malformed rows."""
    good: list[str] = []
    bad: list[str] = []
    lines: list[str] = []
    for number in range(14):
        row = [str(number), random.choice(PEOPLE), str(random.randint(1, 99))]
        fault = number % 4 if number < 8 else random.randrange(8)
        if fault == 1:
            row.pop()
        elif fault == 2:
            row[2] = random.choice(["", "many", "-", "1x"])
        elif fault == 3:
            row.append(random.choice(THINGS))
        line = ",".join(row)
        lines.append(line)
        (bad if fault in (1, 2, 3) else good).append(line)
    files = texts({"people.csv": "\n".join(["id,name,points", *lines]) + "\n"})
    awk = "head -1 people.csv > good.csv; : > bad.csv; tail -n +2 people.csv | "
    awk += 'awk -F, \'{{ if ({}) print >> "good.csv"; else print >> "bad.csv" }}\''
    return TerminalTask(
        "people.csv has a header and rows of three values: id, name and points, where points is a whole "
        "number of digits only. Some rows have more or fewer values, or points that are no such number. "
        "Write good.csv with the header and the sound rows, and bad.csv with the other rows and no "
        "header, both in the order of people.csv.",
        files,
        (has_lines("good.csv", "id,name,points", *good), has_lines("bad.csv", *bad), unchanged(files)),
        awk.format("NF == 3 && $3 ~ /^[0-9]+$/"),
        (awk.format("NF == 3"), awk.format("$3 ~ /^[0-9]+$/"), awk.format('NF >= 3 && $3 != ""')),
    )


@task
def pivot(random: Random) -> TerminalTask:
    """Pivot a table from one row per value to one row per place."""
    places, months = sorted(random.sample(PLACES, 4)), ["jan", "feb", "mar", "apr"]
    values = {(p, m): random.randint(1, 99) for p in places for m in months if random.random() < 0.7}
    values[places[0], "jan"], values[places[1], "apr"] = 41, 42
    values.pop((places[2], "feb"), None)
    values[places[2], "mar"] = values[places[3], "mar"] = 7
    rows = [[place, month, value] for (place, month), value in values.items()]
    random.shuffle(rows)
    files = texts({"long.csv": table("place,month,value", rows)})
    wide = [[place, *(values.get((place, month), "-") for month in months)] for place in places]
    program = """
import csv
months = {}
found = {{(row["place"], row["month"]): row["value"] for row in csv.DictReader(open("long.csv"))}}
with open("wide.csv", "w") as out:
    print("place", *months, sep=",", file=out)
    for place in sorted({{place for place, _ in found}}):
        print(place, *(found.get((place, month), "{}") for month in months), sep=",", file=out)
"""
    order = '["jan", "feb", "mar", "apr"]'
    return TerminalTask(
        "long.csv has the columns place, month and value, with the months jan, feb, mar and apr. Write "
        "wide.csv with the header place,jan,feb,mar,apr and one line for each place, in the order of the "
        "alphabet, with its values of the four months. Where there is none, put a minus sign.",
        files,
        (has_lines("wide.csv", *table("place,jan,feb,mar,apr", wide).splitlines()), unchanged(files)),
        python(program.format(order, "-")),
        (python(program.format(order, "0")), python(program.format(f"sorted({order})", "-"))),
    )
