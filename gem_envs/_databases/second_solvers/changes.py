"""What tasks change in a database: each function changes the tables as the instruction says."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from datetime import date
from fractions import Fraction

from gem_envs._databases.second_solvers.tables import AmbiguousTask, TableRow, Tables, by_id, only_one


def _merge_customers(tables: Tables) -> None:
    first: dict[str, int] = {}
    for customer in sorted(tables["customers"], key=lambda row: row["id"]):
        first.setdefault(customer["email"].casefold(), customer["id"])
    customers = by_id(tables["customers"])
    for order in tables["orders"]:
        order["customer_id"] = first[customers[order["customer_id"]]["email"].casefold()]
    tables["customers"] = [customers[id] for id in first.values()]


def _restock(tables: Tables, factor: str) -> None:
    for product in tables["products"]:
        if product["stock"] < product["minimum"]:
            wanted = int(factor) * product["minimum"]
            pieces = wanted - product["stock"]
            tables["purchases"].append({"product_id": product["id"], "pieces": pieces})
            product["stock"] = wanted


def _cancel_unpaid(tables: Tables, day: str) -> None:
    products = by_id(tables["products"])
    for order in tables["orders"]:
        if order["state"] == "unpaid" and date.fromisoformat(order["day"]) < date.fromisoformat(day):
            order["state"] = "cancelled"
            for item in tables["items"]:
                if item["order_id"] == order["id"]:
                    products[item["product_id"]]["stock"] += item["pieces"]


def _discount(tables: Tables, percent: str) -> None:
    sold = {item["product_id"] for item in tables["items"]}
    for product in tables["products"]:
        if product["id"] not in sold:
            old, new = product["price"], product["price"] * (100 - int(percent)) // 100
            tables["price_changes"].append({"product_id": product["id"], "old": old, "new": new})
            product["price"] = new


def _worth(tables: Tables) -> Counter[int]:
    prices, worth = by_id(tables["products"]), Counter[int]()
    for item in tables["items"]:
        worth[item["order_id"]] += item["pieces"] * prices[item["product_id"]]["price"]
    return worth


def _best_customers(tables: Tables) -> None:
    worth, totals = _worth(tables), Counter[int]()
    for order in tables["orders"]:
        if order["state"] == "paid":
            totals[order["customer_id"]] += worth[order["id"]]
    ranked = totals.most_common()
    if len(ranked) < 3 or any(total == ranked[2][1] for _, total in ranked[3:]):
        raise AmbiguousTask("not three customers")
    names = by_id(tables["customers"])
    tables["best_customers"] = [{"name": names[id]["name"], "total": total} for id, total in ranked[:3]]


def _order_values(tables: Tables) -> None:
    worth = _worth(tables)
    tables["view order_values"] = [
        {"order_id": order["id"], "day": order["day"], "value": worth[order["id"]]}
        for order in tables["orders"]
    ]


def _fines(tables: Tables, days: str, cents: str) -> None:
    for loan in tables["loans"]:
        if loan["returned"] is not None:
            kept = (date.fromisoformat(loan["returned"]) - date.fromisoformat(loan["taken"])).days
            if kept > int(days):
                tables["fines"].append({"loan_id": loan["id"], "cents": (kept - int(days)) * int(cents)})


def _orphans(tables: Tables) -> None:
    books, members, kept = by_id(tables["books"]), by_id(tables["members"]), []
    for loan in tables["loans"]:
        if loan["book_id"] not in books:
            tables["lost_loans"].append({"loan_id": loan["id"], "reason": "book"})
        elif loan["member_id"] not in members:
            tables["lost_loans"].append({"loan_id": loan["id"], "reason": "member"})
        else:
            kept.append(loan)
    tables["loans"] = kept


def _inactive(tables: Tables, day: str) -> None:
    for member in tables["members"]:
        loans = [loan for loan in tables["loans"] if loan["member_id"] == member["id"]]
        recent = any(date.fromisoformat(loan["taken"]) >= date.fromisoformat(day) for loan in loans)
        if not recent and all(loan["returned"] for loan in loans):
            member["active"] = 0


def _genres(tables: Tables) -> None:
    places = {name: place for place, name in enumerate(sorted({row["genre"] for row in tables["books"]}), 1)}
    tables["genres"] = [{"id": place, "name": name} for name, place in places.items()]
    for book in tables["books"]:
        book["genre_id"] = places[book.pop("genre")]


def _stand_in(tables: Tables, ill: str, day: str, other: str) -> None:
    visits = [visit for visit in tables["visits"] if visit["day"] == day]
    busy = {visit["hour"] for visit in visits if visit["doctor_id"] == int(other)}
    moved = [v for v in visits if v["doctor_id"] == int(ill) and v["state"] == "planned"]
    if len({visit["hour"] for visit in moved}) < len(moved):
        raise AmbiguousTask("two visits at the same hour")
    for visit in moved:
        if visit["hour"] in busy:
            visit["doctor_id"], visit["state"] = None, "open"
        else:
            visit["doctor_id"] = int(other)


def _forget(tables: Tables, year: str) -> None:
    planned = {visit["patient_id"] for visit in tables["visits"] if visit["state"] == "planned"}
    for patient in tables["patients"]:
        if patient["born"] < int(year) and patient["id"] not in planned:
            patient["name"], patient["phone"] = f"patient {patient['id']}", None


def _free_hours(tables: Tables, doctor: str, first: str, last: str) -> None:
    taken = {(v["day"], v["hour"]) for v in tables["visits"] if v["doctor_id"] == int(doctor)}
    for day in {visit["day"] for visit in tables["visits"]}:
        for hour in range(int(first), int(last) + 1):
            if (day, hour) not in taken:
                tables["free_hours"].append({"day": day, "hour": hour})


def _odometers(tables: Tables) -> None:
    for truck in tables["trucks"]:
        ends = [trip["end_km"] for trip in tables["trips"] if trip["truck_id"] == truck["id"]]
        truck["km"] = max([truck["km"], *ends])


def _missing_drivers(tables: Tables) -> None:
    depots = {truck["id"]: truck["depot"] for truck in tables["trucks"]}
    gaps = [trip for trip in tables["trips"] if trip["driver_id"] is None]
    if len({trip["day"] for trip in gaps}) < len(gaps):
        raise AmbiguousTask("two trips on the same day")
    for trip in gaps:
        away = {one["driver_id"] for one in tables["trips"] if one["day"] == trip["day"]}
        free = [
            driver["id"]
            for driver in tables["drivers"]
            if driver["depot"] == depots[trip["truck_id"]] and driver["id"] not in away
        ]
        if not free:
            raise AmbiguousTask("no driver is free")
        trip["driver_id"] = min(free)


def _monthly_fuel(tables: Tables, at_least: str) -> None:
    months: dict[str, list[TableRow]] = defaultdict(list)
    for trip in tables["trips"]:
        months[trip["day"].rpartition("-")[0]].append(trip)
    tables["view monthly_fuel"] = []
    for month, trips in months.items():
        if len(trips) >= int(at_least):
            km = sum(trip["end_km"] - trip["start_km"] for trip in trips)
            liters = sum(trip["liters"] for trip in trips)
            tenths = Fraction(1000 * liters, km)
            if tenths - int(tenths) == Fraction(1, 2):
                raise AmbiguousTask("halfway between two decimals")
            tables["view monthly_fuel"].append({
                "month": month, "trips": len(trips), "km": km, "liters": liters,
                "per_100": int(tenths + Fraction(1, 2)) / 10,
            })  # fmt: skip


def _close_depot(tables: Tables, closed: str) -> None:
    trucks = Counter({depot["name"]: 0 for depot in tables["depots"] if depot["name"] != closed})
    trucks.update(truck["depot"] for truck in tables["trucks"] if truck["depot"] != closed)
    fewest = only_one(trucks, lambda name: -trucks[name])
    for row in (*tables["trucks"], *tables["drivers"]):
        if row["depot"] == closed:
            row["depot"] = fewest
    tables["depots"] = [depot for depot in tables["depots"] if depot["name"] != closed]


def _reports(tables: Tables, limit: str) -> None:
    for enrollment in tables["enrollments"]:
        points = [
            grade["points"]
            for grade in tables["grades"]
            if all(grade[key] == enrollment[key] for key in ("student_id", "course_id"))
        ]
        if not points:
            tables["reports"].append({**enrollment, "mean": None, "passed": "open"})
            continue
        tenths = Fraction(10 * sum(points), len(points))
        if tenths - int(tenths) == Fraction(1, 2):
            raise AmbiguousTask("halfway between two decimals")
        passed = "yes" if sum(points) >= int(limit) * len(points) else "no"
        mean = int(tenths + Fraction(1, 2)) / 10
        tables["reports"].append({**enrollment, "mean": mean, "passed": passed})


def _waiting_list(tables: Tables, course: str) -> None:
    number = int(course)
    enrolled = [row["student_id"] for row in tables["enrollments"] if row["course_id"] == number]
    waiting = sorted(
        (row for row in tables["waiting"] if row["course_id"] == number), key=lambda row: row["since"]
    )
    free = by_id(tables["courses"])[number]["places"] - len(enrolled)
    chosen, others = waiting[:free], waiting[free:]
    students = [row["student_id"] for row in chosen]
    if free < 1 or (others and chosen[-1]["since"] == others[0]["since"]) or {*enrolled} & {*students}:
        raise AmbiguousTask("no free place, or a tie for the last one")
    tables["enrollments"] += [{"student_id": student, "course_id": number} for student in students]
    tables["waiting"] = [row for row in tables["waiting"] if row not in chosen]


def _prerequisites(tables: Tables, limit: str) -> None:
    passed = {
        (grade["student_id"], grade["course_id"])
        for grade in tables["grades"]
        if grade["points"] >= int(limit)
    }
    tables["enrollments"] = [
        row
        for row in tables["enrollments"]
        if all(
            (row["student_id"], rule["needs_id"]) in passed
            for rule in tables["prerequisites"]
            if rule["course_id"] == row["course_id"]
        )
    ]


def _next_year(tables: Tables, last: str) -> None:
    leave = {student["id"] for student in tables["students"] if student["year"] == int(last)}
    tables["former"] += [
        {"id": row["id"], "name": row["name"]} for row in tables["students"] if row["id"] in leave
    ]
    tables["enrollments"] = [row for row in tables["enrollments"] if row["student_id"] not in leave]
    tables["students"] = [
        {**row, "year": row["year"] + 1} for row in tables["students"] if row["id"] not in leave
    ]


CHANGES: dict[str, Callable[..., None]] = {
    r"^Some customers were entered more than once": _merge_customers,
    r"so that its stock becomes (\d+) times its minimum": _restock,
    r"^Cancel the orders from before ([\d-]+) that are unpaid": _cancel_unpaid,
    r"^Products that are in no order become (\d+) percent cheaper": _discount,
    r"^Make a table best_customers": _best_customers,
    r"^Make a view order_values": _order_values,
    r"^A book may be kept for (\d+) days\..* and (\d+) cents for each day": _fines,
    r"^Some loans are of a book or of a member that the database no longer has": _orphans,
    r"who has taken no book on ([\d-]+) or later and has no book at home now": _inactive,
    r"^Give the genres a table of their own": _genres,
    r"^The doctor with id (\d+) is ill on ([\d-]+), and the doctor with id (\d+) stands in": _stand_in,
    r"^Patients who were born before (\d+) and have no visit that is planned": _forget,
    r"^Fill the table free_hours .* doctor with id (\d+) .* from (\d+) to (\d+), both included": _free_hours,
    r"^The column km of trucks is to be what the counter shows now": _odometers,
    r"^Some trips have no driver\.": _missing_drivers,
    r"^Make a view monthly_fuel .* at least (\d+) trips": _monthly_fuel,
    r"^The depot (\w+) is closed\.": _close_depot,
    r"^Fill the table reports .* if the mean before rounding is (\d+) or more": _reports,
    r"^The course with id (\d+) has as many places as its column places says": _waiting_list,
    r"in which they have no single grade of (\d+) points or more": _prerequisites,
    r"^A year has passed\. Students of year (\d+) leave": _next_year,
}
"""Solvers by an expression for the instruction, whose groups are their arguments."""
